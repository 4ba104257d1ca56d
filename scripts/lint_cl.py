#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Has clang read every kernel of OpenCL with every combination of numbers it is compiled with.

Usage: lint_cl.py KERNELS.def FOLDER_OF_TEXTS

No device and no driver takes part: this is OpenCL C 1.2 as the language defines it, with warnings
as errors, and the assertions in the kernels. Skipped (77) without clang.
"""
import pathlib
import re
import shutil
import subprocess
import sys

CLANGS = ("clang", "clang-22", "clang-15", "clang-14")
# Flattened headers look like the file itself, so whatever a kernel does not use of them is unused.
OPTIONS = ["-x", "cl", "-cl-std=CL1.2", "-target", "spir64", "-Xclang", "-finclude-default-header",
           "-fsyntax-only", "-Wall", "-Wextra", "-Werror", "-Wno-unused-function"]
DTYPES = {"F32": 1, "F16": 2, "BF16": 3, "E4M3": 4, "E5M2": 5}


def lines(path):
    """Columns of each line of the table."""
    text = re.sub(r"/\*.*?\*/", "", path.read_text("utf-8"), flags=re.DOTALL)
    for line in re.findall(r"TESS_CL_KERNEL\((.*?)\)", text, flags=re.DOTALL):
        yield [column.strip() for column in line.split(",")]


def dtypes_of(column):
    """Types of a line by their numbers."""
    names = re.findall(r"TESS_GPU_(\w+)", column)
    if "FLOATS" in names:
        names = ["F32", "F16", "BF16"]
    return [DTYPES[name] for name in names]


def main():
    table, folder = map(pathlib.Path, sys.argv[1:])
    clang = next(filter(None, map(shutil.which, CLANGS)), None)
    if not clang:
        print("skipped: no clang")
        return 77
    failures = count = 0
    for name, source, _, _, _, dtypes, by_dtype, dims, rows, columns, group, local, *_ in \
            lines(table):
        numbers = {"NAME": name, "DIMS": dims, "ROWS": rows, "COLUMNS": columns, "GROUP": group,
                   "LOCAL": local}
        for dtype in dtypes_of(dtypes) if by_dtype == "1" else [None]:
            macros = [f"-DTESS_CL_{key}={value}" for key, value in numbers.items()]
            macros += [f"-DTESS_CL_DTYPE={dtype}"] if dtype else []
            result = subprocess.run([clang, *OPTIONS, *macros, folder / f"{source}.cl"],
                                    stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                                    check=False)
            count += 1
            if result.returncode != 0:
                failures += 1
                print(name, *macros)
                print(result.stdout)
    print(f"{count} combinations, {failures} wrong")
    return 1 if failures or not count else 0


if __name__ == "__main__":
    sys.exit(main())
