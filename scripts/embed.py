#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compiles one source of kernels for one architecture and wraps the image for the linker.

Usage: embed.py --source NAME --architecture ARCH --kernels FILE.def --image OUT --assembly OUT.S
                --depfile OUT.d --most-spill BYTES [--least-waves N] [--prebuilt FILE]
                -- COMPILER ARGUMENTS...

The compiler is given ARGUMENTS, which have it write OUT.d, and -o; with --prebuilt it is not run
and FILE is taken. The wrapper is assembler around .incbin, with a hidden symbol and the size behind
it: a compiler takes 16 s for what an assembler does in one. Image and wrapper are made together,
since no depfile knows of .incbin.

Prints what every kernel takes of the chip. Fails when a kernel is missing or extra, when one spills
more than --most-spill bytes, when fewer than --least-waves of one fit a SIMD of an AMD chip, and on
warnings of ptxas about serialised matrix instructions.
"""
import argparse
import pathlib
import re
import shutil
import subprocess
import sys
import time

import images

WRAPPER = """\
/* Made by scripts/embed.py. */
    .section .rodata
    .globl {symbol}
    .hidden {symbol}
    .globl {symbol}_size
    .hidden {symbol}_size
    .balign 64
{symbol}:
    .incbin "{image}"
.L{symbol}_end:
    .byte 0 /* PTX is read as text */
    .balign 8
{symbol}_size:
    .quad .L{symbol}_end - {symbol}
    .section .note.GNU-stack,"",%progbits
"""


def run(command):
    """Output of a compiler, standard error included; its failure is ours."""
    result = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                            check=False)
    if result.returncode != 0:
        print(" ".join(map(str, command)))
        print(result.stdout)
        sys.exit(1)
    return result.stdout


def aim_depfile(arguments):
    """Names the image as ninja does; compilers have their own ideas of what was made."""
    rules = arguments.depfile.read_text("utf-8").replace("\\\n", " ")
    arguments.depfile.write_text(f"{arguments.image}: {rules.split(': ', 1)[1]}", "utf-8")


def compile_image(arguments):
    """The compiler's words about the image it wrote."""
    if arguments.prebuilt:
        shutil.copyfile(arguments.prebuilt, arguments.image)
        arguments.depfile.write_text(f"{arguments.image}: {arguments.prebuilt}\n", "utf-8")
        return ""
    words = run([*arguments.command, "-o", arguments.image])
    aim_depfile(arguments)
    return words


def complain(arguments, wanted, found, words):
    """What is wrong with the image, a line each."""
    for name in sorted(wanted.keys() - found.keys()):
        yield f"{name} is in {arguments.kernels.name} but not in the image"
    for name in sorted(found.keys() - wanted.keys()):
        yield f"{name} is in the image but not in {arguments.kernels.name}"
    for kernel in found.values():
        if kernel.spill > arguments.most_spill:
            yield (f"{kernel.name} spills {kernel.spill} bytes of registers; "
                   f"at most {arguments.most_spill} are allowed")
    for kernel in found.values():
        line = wanted.get(kernel.name)
        if not arguments.least_waves or not line:
            continue
        waves = images.amd_waves_of_blocks(kernel, line.threads, kernel.shared + line.shared,
                                           arguments.architecture)
        if waves < arguments.least_waves:
            yield (f"{waves} waves of {kernel.name} fit a SIMD; "
                   f"at least {arguments.least_waves} are asked for")
    for line in re.findall(r"^.*\(C75\d\d\).*$", words, flags=re.MULTILINE):
        yield line.strip()


def main():
    parser = argparse.ArgumentParser(description="Compile and wrap an image of kernels.")
    for name in ("--source", "--architecture"):
        parser.add_argument(name, required=True)
    for name in ("--kernels", "--image", "--assembly", "--depfile"):
        parser.add_argument(name, type=pathlib.Path, required=True)
    parser.add_argument("--prebuilt", type=pathlib.Path)
    parser.add_argument("--most-spill", type=int, required=True)
    parser.add_argument("--least-waves", type=int, default=0)
    parser.add_argument("command", nargs="+")
    arguments = parser.parse_args()

    start = time.monotonic()
    words = compile_image(arguments)
    symbol = f"tess_image_{arguments.source}_{arguments.architecture}"
    arguments.assembly.write_text(
        WRAPPER.format(symbol=symbol, image=arguments.image.resolve()), "utf-8")

    wanted = images.read_def(arguments.kernels)
    found = images.read_image(arguments.image.read_bytes(), words)
    print(f"{arguments.source} {arguments.architecture}: {len(found)} kernels, "
          f"{arguments.image.stat().st_size / 1024:.0f} KiB, {time.monotonic() - start:.1f} s")
    for line in images.table(found, wanted, arguments.architecture):
        print("  " + line)
    complaints = list(complain(arguments, wanted, found, words))
    for complaint in complaints:
        print(f"{arguments.source} {arguments.architecture}: {complaint}")
    return 1 if complaints else 0


if __name__ == "__main__":
    sys.exit(main())
