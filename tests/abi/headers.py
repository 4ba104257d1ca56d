#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compiles each public header alone, as the strictest user would.

Usage: headers.py --include DIRECTORY --standard STANDARD -- COMPILER...

-Wpadded finds holes in structs, whose every byte is read (docs/decisions/0004). A compiler without
the language is a skip.
"""
import argparse
import pathlib
import subprocess
import sys

SKIP = 77
WARNINGS = ["-Wall", "-Wextra", "-Wpedantic", "-Wpadded", "-Wundef", "-Wshadow", "-Werror"]
C_WARNINGS = ["-Wstrict-prototypes", "-Wmissing-prototypes"]


def compiles(compiler, language, options, text):
    return subprocess.run(
        [*compiler, "-x", language, *options, "-fsyntax-only", "-"],
        input=text, text=True, capture_output=True, check=False)


def main():
    parser = argparse.ArgumentParser(description="Compile each public header alone.")
    parser.add_argument("--include", type=pathlib.Path, required=True)
    parser.add_argument("--standard", required=True)
    parser.add_argument("compiler", nargs="+")
    arguments = parser.parse_args()

    is_cpp = "++" in arguments.standard
    language = "c++" if is_cpp else "c"
    standard = [f"-std={arguments.standard}"]
    if compiles(arguments.compiler, language, standard, "int tessera;\n").returncode != 0:
        print(f"{' '.join(arguments.compiler)} does not compile {arguments.standard}")
        return SKIP

    options = [*standard, *WARNINGS, *([] if is_cpp else C_WARNINGS), f"-I{arguments.include}"]
    headers = sorted(path.name for path in (arguments.include / "tessera").glob("*.h"))
    failed = 0
    for header in headers:
        # Twice, so that the guard is used; something of ours, so that the unit is not empty.
        text = f"#include <tessera/{header}>\n" * 2 + "extern int tessera_is_not_empty;\n"
        result = compiles(arguments.compiler, language, options, text)
        print(f"{header}: {'compiles' if result.returncode == 0 else 'FAILS'}")
        if result.returncode != 0:
            print(result.stderr)
            failed += 1
    return 1 if failed or not headers else 0


if __name__ == "__main__":
    sys.exit(main())
