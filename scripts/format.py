#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Formats the C sources, or with --check says which are not formatted.

Usage: format.py [--check] [FILE...]

Versions of clang-format disagree in details, so only the one this tree is formatted with counts;
without it the check is a skip.
"""
import argparse
import fnmatch
import pathlib
import re
import shutil
import subprocess
import sys

import tree

SKIP = 77
VERSION = 14

# Tables of one entry or one verb a line, which a formatter would fold or spread.
UNFORMATTED = ("*.def", "backends/cpu/vec_*.h", "core/portable/dialect.h")


def is_table(path):
    return any(fnmatch.fnmatchcase(str(path), pattern) for pattern in UNFORMATTED)


def find_formatter():
    """A clang-format of the right version, or None."""
    for name in (f"clang-format-{VERSION}", "clang-format"):
        if shutil.which(name) is None:
            continue
        said = subprocess.run([name, "--version"], check=True, capture_output=True, text=True)
        if re.search(rf"version {VERSION}\.", said.stdout):
            return name
    return None


def main():
    parser = argparse.ArgumentParser(description="Format the C sources.")
    parser.add_argument("--check", action="store_true", help="change nothing, report")
    parser.add_argument("files", nargs="*", type=pathlib.Path)
    arguments = parser.parse_args()

    formatter = find_formatter()
    if formatter is None:
        print(f"clang-format {VERSION} is not installed")
        return SKIP
    files = arguments.files or [tree.ROOT / path for path in tree.paths()
                                if tree.is_c(path) and not is_table(path)]
    mode = ["--dry-run", "-Werror"] if arguments.check else ["-i"]
    result = subprocess.run([formatter, "--style=file", *mode, *files], check=False,
                            stderr=subprocess.PIPE, text=True, cwd=tree.ROOT)
    wrong = sorted(set(re.findall(r"^(.*?):\d+:\d+: error", result.stderr, flags=re.MULTILINE)))
    for name in wrong:
        places = re.findall(rf"^{re.escape(name)}:(\d+):\d+: error", result.stderr, re.MULTILINE)
        print(f"{name}: lines {', '.join(dict.fromkeys(places))}; run scripts/format.py {name}")
    if result.returncode != 0 and not wrong:
        print(result.stderr)
    print(f"{len(files)} files, {len(wrong)} to format")
    return 1 if result.returncode != 0 else 0


if __name__ == "__main__":
    sys.exit(main())
