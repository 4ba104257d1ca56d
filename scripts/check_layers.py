#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Holds the tree to its layers: who may include whom, and which words belong where.

The picture is in docs/architecture.md; the tables below are its letter. To allow a new edge, change
the table in the same commit and say why.
"""
import fnmatch
import pathlib
import sys

import tree

PUBLIC = "include/tessera"
LIBRARY = ("core/", "backends/", "include/")

# Folder: the folders whose headers it may include, beside its own. The longest name that fits a
# file is its folder.
EDGES = {
    PUBLIC: [],
    "core/base": [PUBLIC],
    "core/portable": [],
    "core/schedule": [PUBLIC, "core/base", "core/portable"],
    "core/program": [PUBLIC, "core/base", "core/portable", "core/schedule"],
    "core/runtime": [PUBLIC, "core/base", "core/portable", "core/schedule", "core/program",
                     "backends"],
    # The contract and the list of backends; the files beside the folders.
    "backends": [PUBLIC, "core/base", "core/portable", "core/schedule"],
    "backends/cpu": [PUBLIC, "core/base", "core/portable", "core/schedule", "core/program",
                     "backends"],
    # What host and device agree on.
    "backends/gpu": ["core/portable"],
    "backends/gpu/host": [PUBLIC, "core/base", "core/portable", "core/schedule", "backends",
                          "backends/gpu"],
    "backends/gpu/simt": [PUBLIC, "core/portable", "backends/gpu"],
    "backends/gpu/matrix": [PUBLIC, "core/portable", "backends/gpu", "backends/gpu/simt"],
    "backends/cuda": [PUBLIC, "core/base", "core/portable", "core/schedule", "backends",
                      "backends/gpu", "backends/gpu/host", "backends/gpu/simt",
                      "backends/gpu/matrix"],
    "backends/hip": [PUBLIC, "core/base", "core/portable", "core/schedule", "backends",
                     "backends/gpu", "backends/gpu/host", "backends/gpu/simt",
                     "backends/gpu/matrix"],
    "backends/opencl": [PUBLIC, "core/base", "core/portable", "core/schedule", "core/program",
                        "backends", "backends/gpu"],
    "tests/kit": [PUBLIC, "core/base", "core/schedule", "core/runtime"],
    "bench": [PUBLIC, "core/base", "core/schedule", "core/runtime", "tests/kit"],
    "tools": [PUBLIC, "core/base", "core/portable", "core/schedule", "core/runtime", "tests/kit",
              "bench"],
    # Programs of users: nothing but the public interface.
    "docs/examples": [PUBLIC],
    "tests/abi": [PUBLIC],
}

# White-box tests see everything.
UNBOUND = ("tests/",)

# What C11 and POSIX have; no vendor's header is among them: drivers are opened at run time.
SYSTEM = set("""
    assert.h ctype.h errno.h fenv.h float.h inttypes.h limits.h math.h setjmp.h signal.h stdalign.h
    stdarg.h stdatomic.h stdbool.h stddef.h stdint.h stdio.h stdlib.h string.h time.h
    dirent.h dlfcn.h fcntl.h pthread.h sched.h strings.h sys/mman.h sys/stat.h sys/types.h unistd.h
    """.split())
PUBLIC_SYSTEM = {"stddef.h", "stdint.h"}

# Headers that only named files may include.
SYSTEM_FOR = {
    "cmath": ["core/portable/dialect.h"],
    "cstdint": ["core/portable/dialect.h"],
    "cstring": ["core/portable/dialect.h"],
    "omp.h": ["backends/cpu/threads.c"],
    "cpuid.h": ["backends/cpu/isa.c", "backends/cpu/amx_isa.c"],
    "sys/syscall.h": ["backends/cpu/amx_isa.c"],
    "sys/auxv.h": ["backends/cpu/isa.c"],
    "cuda_fp16.h": ["backends/cuda/vendor/*"],
    "sys/prctl.h": ["backends/cpu/isa.c"],
    "immintrin.h": ["backends/cpu/vec_*.h", "backends/cpu/*amx*"],
    "arm_neon.h": ["backends/cpu/vec_*.h"],
    "arm_sve.h": ["backends/cpu/vec_*.h"],
}

# The oracle shares nothing with what it judges: no file that these lead to may be of the library.
ORACLE = ["tests/kit/oracle*", "tests/kit/number.*"]

# Name of the rule, where it is looked for, the files that may, the words.
WORDS = [
    ("intrinsics belong into backends/cpu/vec_*.h",
     ["core/*", "backends/*", "include/*", "bench/*", "tools/*", "tests/kit/*"],
     ["backends/cpu/vec_*.h", "backends/cpu/*amx*", "bench/peak_*"],
     r"\b_mm(?:256|512)?_\w+|\b__m(?:128|256|512)[di]?\b"
     r"|\bv(?:ld|st)[1-4]q?_\w+|\bv\w+q_[fsu](?:16|32|64)\b"
     r"|\b(?:float|u?int)(?:16|32|64)x[248]_t\b|\bsv(?:float|u?int|bool)\w*_t\b"),
    ("assembler belongs into backends/cuda/ptx*.h",
     ["*"],
     ["backends/cuda/ptx*.h", "backends/opencl/*mma_nv*", "backends/cpu/*amx*", "bench/clock.c"],
     r"\b(?:asm|__asm|__asm__)\b"),
    ("only core/base/env.c reads the environment",
     ["core/*", "backends/*", "include/*"], ["core/base/env.c"],
     r"\b(?:secure_)?getenv\b|\benviron\b|\b(?:set|unset|put)env\b"),
    ("the library never prints; core/base/log.c has the one sink",
     ["core/*", "backends/*", "include/*"], ["core/base/log.c", "backends/*/kernels/*"],
     r"\b(?:v?f?printf|f?puts|f?putc|putchar|perror|fwrite)\s*\(|\bstd(?:out|err)\b"),
    ("the library never ends the program",
     ["core/*", "backends/*", "include/*"], [],
     r"\b(?:abort|exit|_exit|_Exit|quick_exit|raise|kill)\s*\("),
    ("no variable-length stack memory",
     ["core/*", "backends/*", "include/*"], [],
     r"\balloca\s*\("),
    ("code shared by GPU vendors names none",
     ["backends/gpu/simt/*"], [],
     r"(?i)\b(?:cuda|nvidia|nvcc|ptx|hip|rocm|amd|amdgcn|cdna|rdna)\w*"
     r"|\b__(?:shfl|ballot|syncwarp)\w*"
     r"|\b(?:threadIdx|blockIdx|blockDim|gridDim|warpSize)\b|\b__(?:global|device|shared)__\b"),
]

# Infinities carry meaning in masks, and the library runs on other machines than it is built on.
FLAGS = (r"-ffast-math|-Ofast|-funsafe-math-optimizations|-ffinite-math-only|-fassociative-math"
         r"|-freciprocal-math|-fno-signed-zeros|-use_fast_math|-cl-fast-relaxed-math"
         r"|-cl-finite-math-only|-cl-unsafe-math-optimizations|-cl-no-signed-zeros|-march=native"
         r"|-mcpu=native")


def fits(path, patterns):
    return any(fnmatch.fnmatchcase(str(path), pattern) for pattern in patterns)


def folder_of(path, folders):
    """The longest of the folders that a file lies in, or None."""
    own = [folder for folder in folders if str(path).startswith(folder + "/")]
    return max(own, key=len, default=None)


def resolve(path, name):
    """Where a quoted include leads, or None; the file's own folder comes first."""
    for start in (path.parent, pathlib.PurePosixPath(), pathlib.PurePosixPath("include")):
        target = tree.ROOT / start / name
        if target.is_file():
            try:
                return pathlib.PurePosixPath(target.resolve().relative_to(tree.ROOT).as_posix())
            except ValueError:
                return None
    return None


def includes(code):
    """Line, form (a quote or a bracket) and name of each include; a macro has the form ''."""
    pattern = r'^[ \t]*#[ \t]*include[ \t]+(?:(["<])([^">]+)[">]|(\w+))'
    for line, match in tree.matches(pattern, code):
        yield line, match[1] or "", match[2] or match[3]


def complain_system(path, name):
    """Why a file may not include a system header, or None."""
    if name in SYSTEM_FOR:
        if path.parts[0] in ("core", "backends", "include") and not fits(path, SYSTEM_FOR[name]):
            return f"<{name}> is for {', '.join(SYSTEM_FOR[name])}"
        return None
    if str(path).startswith(PUBLIC):
        return None if name in PUBLIC_SYSTEM else f"a public header may not include <{name}>"
    if path.suffix in (".c", ".h") and str(path).startswith(LIBRARY) and name not in SYSTEM:
        return f"<{name}> is neither of C nor of POSIX; the library opens vendors' code at run time"
    return None


def complain_include(path, form, name):
    """Why a file may not have this include, or None."""
    if form == "":
        return None if fits(path, ["*_tmpl.c", "tests/*"]) else "only a *_tmpl.c includes a macro"
    if form == "<" and not name.startswith("tessera/"):
        return complain_system(path, name)
    own = folder_of(path, EDGES)
    if name.startswith("vendor/") and own in ("backends/gpu/simt", "backends/gpu/matrix",
                                              "backends/cuda", "backends/hip"):
        return None  # the seam: each vendor puts its own folder first on the include path
    target = resolve(path, name)
    if target is None:
        return f'"{name}" is not in the tree'
    if own is None:
        return None if str(path).startswith(UNBOUND) else f"{path.parent} has no line in EDGES"
    other = folder_of(target, EDGES)
    if other == own or other in EDGES[own]:
        return None
    return f"{own} may not include {other or target.parent} ({target})"


def check_includes(path, code):
    for line, form, name in includes(code):
        complaint = complain_include(path, form, name)
        if complaint:
            yield line, complaint


def check_words(path, code):
    bare = tree.without_strings(code)
    for rule, places, exceptions, pattern in WORDS:
        if fits(path, places) and not fits(path, exceptions):
            for line, match in tree.matches(pattern, bare):
                yield line, f"{match[0].strip()}: {rule}"


def check_flags(path, text):
    for line, match in tree.matches(FLAGS, text):
        yield line, f"{match[0]} is not allowed anywhere"


def reach(path, seen):
    """Every file of the tree that a file includes, and they include."""
    for _, form, name in includes(tree.without_comments(tree.text_of(path) or "")):
        target = resolve(path, name) if form else None
        if target and target not in seen:
            seen.add(target)
            reach(target, seen)
    return seen


def check_oracle(path):
    for target in sorted(reach(path, set())):
        if not str(target).startswith(("tests/kit/", PUBLIC)):
            yield 1, f"the oracle leads to {target}; it must share nothing with the library"


def check(path):
    """Line and words of each complaint about one file."""
    text = tree.text_of(path)
    if text is None:
        return
    if path.name in ("meson.build", "meson_options.txt"):
        yield from check_flags(path, "\n".join(line.split("#")[0] for line in text.split("\n")))
    if tree.is_c(path):
        code = tree.without_comments(text)
        yield from check_includes(path, code)
        yield from check_words(path, code)
        yield from check_flags(path, code)
        if fits(path, ORACLE):
            yield from check_oracle(path)


def main():
    complaints = 0
    paths = tree.paths()
    for path in paths:
        for line, words in check(path):
            print(f"{path}:{line}: {words}")
            complaints += 1
    print(f"{len(paths)} files, {complaints} complaints")
    return 1 if complaints or not paths else 0


if __name__ == "__main__":
    sys.exit(main())
