#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks what the shared library needs at run time, and the flags a loader looks at.

Usage: dependencies.py --library libtessera.so --soname libtessera.so.0

The C library, its mathematics and one OpenMP run time; drivers are opened at run time, never
linked. No run path but the one clang adds for its own OpenMP, no relocations in code, no
executable stack (an assembler file without its .note.GNU-stack section asks for one).
"""
import argparse
import re
import shutil
import subprocess
import sys

SKIP = 77

# glibc before 2.34 kept threads and dlopen in files of their own.
C_LIBRARY = r"lib(c|m|pthread|dl)\.so\.\d+|ld-linux[-\w]*\.so\.\d+|libc\.musl-\w+\.so\.1"
OPENMP = r"lib(gomp|omp|omp5|iomp5)\.so(\.\d+)?"


def read(library, *options):
    return subprocess.run(["readelf", "--wide", *options, library], check=True,
                          capture_output=True, text=True).stdout


def complaints(library, soname):
    dynamic = read(library, "--dynamic")
    needed = re.findall(r"\(NEEDED\).*\[(.*)\]", dynamic)
    seen_soname = re.findall(r"\(SONAME\).*\[(.*)\]", dynamic)
    stack = re.search(r"GNU_STACK.*\b(R\w*)\s+0x\w+$", read(library, "--segments"), re.MULTILINE)

    print("needs " + ", ".join(needed))
    for name in needed:
        if not re.fullmatch(f"{C_LIBRARY}|{OPENMP}", name):
            yield f"needs {name}; only the C library and OpenMP may be linked"
    if sum(bool(re.fullmatch(OPENMP, name)) for name in needed) > 1:
        yield "needs two OpenMP run times"
    if seen_soname != [soname]:
        yield f"has the soname {seen_soname}; it must be {soname}"
    for path in re.findall(r"\(R(?:UN)?PATH\).*\[(.*)\]", dynamic):
        if not re.fullmatch(r"/usr/lib/llvm-\d+/lib", path):
            yield f"has the run path {path}"
    if "(TEXTREL)" in dynamic:
        yield "has relocations in code"
    if stack is None or "E" in stack[1]:
        yield "asks for an executable stack"


def main():
    parser = argparse.ArgumentParser(description="Check what the shared library needs.")
    parser.add_argument("--library", required=True)
    parser.add_argument("--soname", required=True)
    arguments = parser.parse_args()

    if shutil.which("readelf") is None:
        print("readelf is not installed")
        return SKIP
    found = list(complaints(arguments.library, arguments.soname))
    for complaint in found:
        print(f"{arguments.library} {complaint}")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
