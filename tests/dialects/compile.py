#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# Compiles core/portable as one of its dialects, every warning an error; 77 without the compiler.
"""usage: compile.py c11|cpp17|cuda|hip|opencl [compiler option ...]

CC, CXX, NVCC, HIPCC and CLANG name a compiler other than the ones looked for.
"""

import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
SKIP = 77

WARNINGS = ["-Wall", "-Wextra", "-Wshadow", "-Wconversion", "-Wdouble-promotion", "-Wundef",
            "-Wpointer-arith", "-Wcast-qual", "-Wformat=2", "-Wimplicit-fallthrough", "-Werror"]
C_WARNINGS = WARNINGS + ["-Wpedantic", "-Wwrite-strings", "-Wmissing-prototypes",
                         "-Wstrict-prototypes", "-Wvla"]
BARE_HIP = ["-x", "hip", "--cuda-device-only", "--no-gpu-bundle-output", "-nogpulib", "-nogpuinc"]

CLANGS = ["clang-%d" % version for version in range(30, 18, -1)] + ["clang"]
OLDEST_HIP_CLANG = 19  # the first that knows every target below


def fail(text):
    print(text)
    sys.exit(1)


def skip(text):
    print("skipped: " + text)
    sys.exit(SKIP)


def find(variable, names):
    """Paths of the compilers present; a name in the environment is the only one and must exist."""
    chosen = os.environ.get(variable, "").split()
    if chosen:
        if shutil.which(chosen[0]) is None:
            fail("%s is %s, which is not there" % (variable, chosen[0]))
        return [chosen]
    return [[path] for path in map(shutil.which, names) if path]


def find_or_skip(variable, names, what):
    found = find(variable, names)
    if not found:
        skip("no %s: none of %s" % (what, " ".join(names)))
    return found


def ask(command):
    return subprocess.run(command, capture_output=True, text=True).stdout.strip()


def why_not_hip(clang):
    """What a clang lacks, or nothing."""
    version = ask(clang + ["-dumpversion"])
    if int(version.split(".")[0] or 0) < OLDEST_HIP_CLANG:
        return "%s is version %s, below %d" % (clang[0], version, OLDEST_HIP_CLANG)
    if shutil.which(ask(clang + ["-print-prog-name=ld.lld"])) is None:
        return "%s has no ld.lld beside it" % clang[0]
    return None


def jobs_c11():
    for cc in find_or_skip("CC", ["gcc", "clang"], "C compiler"):
        yield cc + ["-std=c11", "-O2", "-c"] + C_WARNINGS + [HERE / "dialect_c11.c"]


def jobs_cpp17():
    for cxx in find_or_skip("CXX", ["g++", "clang++"], "C++ compiler"):
        yield cxx + ["-std=c++17", "-O2", "-c", "-Wpedantic"] + WARNINGS + [
            HERE / "dialect_cpp17.cpp"]


def jobs_cuda():
    toolkit = os.environ.get("CUDA_HOME", "/usr/local/cuda") + "/bin/nvcc"
    nvcc = find_or_skip("NVCC", ["nvcc", toolkit], "CUDA compiler")[0]
    for arch in "sm_80", "sm_90a":
        yield nvcc + ["-std=c++17", "-arch=" + arch, "-cubin", "-Werror", "all-warnings",
                      HERE / "dialect_cuda.cu"]


def jobs_hip():
    # Linked and not only compiled: a call that the device has no code for is an undefined symbol.
    found = find_or_skip("HIPCC", CLANGS, "clang for HIP")
    reasons = [why_not_hip(clang) for clang in found]
    if None not in reasons:
        skip("; ".join(reasons))
    clang = found[reasons.index(None)]
    for arch in "gfx90a", "gfx942", "gfx1100":
        yield clang + BARE_HIP + ["-O3", "--offload-arch=" + arch] + WARNINGS + [
            HERE / "dialect_hip.hip"]


def jobs_opencl():
    # Any clang will do; it stands for the front end that most drivers are built on.
    clang = find_or_skip("CLANG", CLANGS, "clang for OpenCL C")[0]
    yield clang + ["-x", "cl", "-cl-std=CL1.2", "-Xclang", "-finclude-default-header",
                   "-target", "spir64", "-emit-llvm", "-c", "-Wpedantic"] + WARNINGS + [
        HERE / "dialect_opencl.cl"]


JOBS = {"c11": jobs_c11, "cpp17": jobs_cpp17, "cuda": jobs_cuda, "hip": jobs_hip,
        "opencl": jobs_opencl}


def main():
    if len(sys.argv) < 2 or sys.argv[1] not in JOBS:
        fail(__doc__.strip())
    failed = False
    with tempfile.TemporaryDirectory() as folder:
        for job in JOBS[sys.argv[1]]():
            command = [str(word) for word in job] + ["-I" + str(ROOT)] + sys.argv[2:]
            print(" ".join(command), flush=True)
            result = subprocess.run(command + ["-o", folder + "/out"])
            failed = failed or result.returncode != 0
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
