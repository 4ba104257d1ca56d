#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Counts the tests that meson ran last in some build folders, and names what failed or was skipped.

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


def results(build):
    """Name and kind of each test in a build folder's logs; nothing where there is no log."""
    for log in sorted(pathlib.Path(build, "meson-logs").glob("testlog*.json")):
        for line in log.read_text("utf-8").splitlines():
            test = json.loads(line)
            yield test["name"], KINDS.get(test["result"], "failed")


def main():
    parser = argparse.ArgumentParser(description="Count the tests that meson ran last.")
    parser.add_argument("--failed-stages", type=int, default=0)
    parser.add_argument("builds", nargs="+")
    arguments = parser.parse_args()

    counts = collections.Counter()
    failed_builds = set()
    for build in arguments.builds:
        for name, kind in results(build):
            counts[kind] += 1
            if kind != "passed":
                print(f"{kind}: {name} ({pathlib.Path(build).name})")
            if kind == "failed":
                failed_builds.add(build)
    counts["failed"] += max(0, arguments.failed_stages - len(failed_builds))
    print(f"{counts['passed']} passed, {counts['failed']} failed, {counts['skipped']} skipped")
    return 1 if counts["failed"] or not counts["passed"] else 0


if __name__ == "__main__":
    sys.exit(main())
