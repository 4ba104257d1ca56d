#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares what the shared library exports with the list of what it is to export.

Usage: exports.py --library libtessera.so --symbols symbols.txt
"""
import argparse
import pathlib
import shutil
import subprocess
import sys

SKIP = 77


def exported(library):
    """Name and kind of each symbol other programs can see."""
    listing = subprocess.run(["nm", "-D", "--defined-only", library], check=True,
                             capture_output=True, text=True).stdout
    return {fields[-1].split("@")[0]: fields[-2] for fields in map(str.split, listing.splitlines())}


def main():
    parser = argparse.ArgumentParser(description="Compare exported symbols with their list.")
    parser.add_argument("--library", required=True)
    parser.add_argument("--symbols", type=pathlib.Path, required=True)
    arguments = parser.parse_args()

    if shutil.which("nm") is None:
        print("nm is not installed")
        return SKIP
    seen = exported(arguments.library)
    wanted = {line for line in arguments.symbols.read_text("utf-8").splitlines()
              if not line.startswith("#")}
    for name in sorted(wanted - seen.keys()):
        print(f"{name} is in {arguments.symbols.name} but the library does not export it")
    for name in sorted(seen.keys() - wanted):
        print(f"{name} is exported but not in {arguments.symbols.name}: hide it or add it")
    for name in sorted(name for name, kind in seen.items() if kind != "T"):
        print(f"{name} is exported as {seen[name]}; only functions may be")
    print(f"{len(seen)} symbols")
    return 0 if seen.keys() == wanted and set(seen.values()) == {"T"} else 1


if __name__ == "__main__":
    sys.exit(main())
