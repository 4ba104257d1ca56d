#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Counts the tests that meson ran last in some build folders; names what was skipped, shows the end
of what a failed one printed.

Usage: count_tests.py [--failed-stages N] BUILD_FOLDER...

The last line is "N passed, N failed, N skipped". A stage that failed without a failed test, in its
build for example, counts as one. Fails when something failed, or when no test ran.
"""
import argparse
import collections
import json
import pathlib
import sys

KINDS = {"OK": "passed", "EXPECTEDFAIL": "passed", "SKIP": "skipped"}
LINES_OF_A_FAILURE = 25


def results(build):
    """Each test in a build folder's logs, as meson wrote it; nothing where there is no log."""
    for log in sorted(pathlib.Path(build, "meson-logs").glob("testlog*.json")):
        for line in log.read_text("utf-8").splitlines():
            yield json.loads(line)


def print_failure(test, build):
    """What was run, how it ended and the end of what it printed."""
    printed = (test.get("stdout", "") + test.get("stderr", "")).splitlines()
    print(f"failed: {test['name']} ({build}): {test['result']}, status {test['returncode']}, "
          f"{test['duration']:.0f} s")
    print("".join(f"    {line}\n" for line in printed[-LINES_OF_A_FAILURE:]), end="")


def main():
    parser = argparse.ArgumentParser(description="Count the tests that meson ran last.")
    parser.add_argument("--failed-stages", type=int, default=0)
    parser.add_argument("builds", nargs="+")
    arguments = parser.parse_args()

    counts = collections.Counter()
    failures = []
    for build in arguments.builds:
        skipped = []
        for test in results(build):
            kind = KINDS.get(test["result"], "failed")
            counts[kind] += 1
            if kind == "failed":
                failures.append((test, build))
            elif kind == "skipped":
                skipped.append(test["name"].split(" / ")[-1])
        if skipped:
            print(f"skipped in {pathlib.Path(build).name}: {' '.join(skipped)}")
    for test, build in failures:
        print_failure(test, pathlib.Path(build).name)
    failed_builds = {build for _, build in failures}
    counts["failed"] += max(0, arguments.failed_stages - len(failed_builds))
    print(f"{counts['passed']} passed, {counts['failed']} failed, {counts['skipped']} skipped")
    return 1 if counts["failed"] or not counts["passed"] else 0


if __name__ == "__main__":
    sys.exit(main())
