#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs clang-tidy over the library's sources as a build folder compiles them.

Usage: tidy.py BUILD_FOLDER

A source that is compiled several times, once per instruction set, is read each time. Versions of
clang-tidy find different things, so only the one the tree is clean for counts.
"""
import concurrent.futures
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys

import tree

SKIP = 77
VERSION = 14

# gcc's own words, which clang meets in the commands of a gcc build.
EXTRA = ["--extra-arg=-Wno-unknown-warning-option", "--extra-arg=-Wno-unused-command-line-argument",
         "--extra-arg=-Wno-ignored-optimization-argument"]


def find_tidy():
    """A clang-tidy of the right version, or None."""
    for name in (f"clang-tidy-{VERSION}", "clang-tidy"):
        if shutil.which(name) is None:
            continue
        said = subprocess.run([name, "--version"], check=True, capture_output=True, text=True)
        if re.search(rf"version {VERSION}\.", said.stdout):
            return name
    return None


def sources(build):
    """The library's sources in the build's commands."""
    commands = json.loads((build / "compile_commands.json").read_text("utf-8"))
    paths = {(build / command["directory"] / command["file"]).resolve() for command in commands}
    return sorted(path for path in paths if path.suffix == ".c"
                  and path.is_relative_to(tree.ROOT)
                  and path.relative_to(tree.ROOT).parts[0] in ("core", "backends"))


def main():
    build = pathlib.Path(sys.argv[1])
    tidy = find_tidy()
    if tidy is None:
        print(f"clang-tidy {VERSION} is not installed")
        return SKIP

    def run(path):
        return subprocess.run([tidy, "-p", build, "--quiet", *EXTRA, path], check=False,
                              capture_output=True, text=True)

    paths = sources(build)
    failed = 0
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        for path, result in zip(paths, pool.map(run, paths)):
            if result.returncode != 0:
                print(f"{path.relative_to(tree.ROOT)}:")
                # The way to each place is long; `clang-tidy -p BUILD_FOLDER FILE` shows it.
                said = re.findall(r"^.*?:\d+:\d+: (?:error|warning): .*$", result.stdout,
                                  flags=re.MULTILINE)
                print("\n".join(dict.fromkeys(said)) or result.stdout + result.stderr)
                failed += 1
    print(f"{len(paths)} files, {failed} with complaints")
    return 1 if failed or not paths else 0


if __name__ == "__main__":
    sys.exit(main())
