#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Turns one OpenCL C source into a text without includes and wraps it for the linker.

Usage: flatten_cl.py --root ROOT --symbol NAME --text OUT.cl --assembly OUT.S --depfile OUT.d SOURCE

A driver compiles one text and has no folder to include from. Headers of ours are put in place, each
once, with #line so that a build log names the file a person edits; of the public headers, which
OpenCL C cannot read, only the enumerations. Comments go: the text is in the library.

The wrapper is assembler around .incbin, with a hidden symbol and the size behind it; ISO C has no
string that long.
"""
import argparse
import pathlib
import re

WRAPPER = """\
/* Made by scripts/flatten_cl.py. */
    .section .rodata
    .globl {symbol}
    .hidden {symbol}
    .globl {symbol}_size
    .hidden {symbol}_size
    .balign 8
{symbol}:
    .incbin "{text}"
.L{symbol}_end:
    .byte 0
    .balign 8
{symbol}_size:
    .quad .L{symbol}_end - {symbol}
    .section .note.GNU-stack,"",%progbits
"""

INCLUDE = re.compile(r'#include "([^"]+)"\s*$')
PUBLIC = re.compile(r"#include <(tessera/[^>]+)>\s*$")


def strip(text):
    """Without comments; lines keep their numbers."""
    text = re.sub(r"/\*.*?\*/", lambda comment: "\n" * comment.group().count("\n") or " ", text,
                  flags=re.DOTALL)
    return re.sub(r"//.*$", "", text, flags=re.MULTILINE)


class Flattener:
    def __init__(self, root):
        self.root = root
        self.seen = []

    def find(self, name, beside):
        for folder in (beside, self.root):
            if (folder / name).exists():
                return (folder / name).resolve()
        raise SystemExit(f"{beside}: there is no {name}")

    def enumerations(self, path):
        """What a public header numbers."""
        self.seen.append(path)
        found = re.findall(r"^enum \{.*?\};", strip(path.read_text("utf-8")),
                           flags=re.DOTALL | re.MULTILINE)
        return [re.sub(r"\s+", " ", one) for one in found]

    def flatten(self, path):
        """The lines of a file and of all it includes."""
        self.seen.append(path)
        name = path.relative_to(self.root)
        lines = [f'#line 1 "{name}"']
        for number, line in enumerate(strip(path.read_text("utf-8")).splitlines(), 1):
            own, public = INCLUDE.match(line), PUBLIC.match(line)
            if not own and not public:
                lines.append(line.rstrip())
                continue
            wanted = (self.find(own.group(1), path.parent) if own else
                      (self.root / "include" / public.group(1)).resolve())
            if wanted not in self.seen:
                lines += self.flatten(wanted) if own else self.enumerations(wanted)
            lines.append(f'#line {number + 1} "{name}"')
        return lines


def main():
    parser = argparse.ArgumentParser(description="Flatten a source of OpenCL kernels.")
    for name in ("--root", "--text", "--assembly", "--depfile"):
        parser.add_argument(name, type=pathlib.Path, required=True)
    parser.add_argument("--symbol", required=True)
    parser.add_argument("source", type=pathlib.Path)
    arguments = parser.parse_args()

    flattener = Flattener(arguments.root.resolve())
    text = "\n".join(flattener.flatten(arguments.source.resolve()))
    arguments.text.write_text(text + "\n", "utf-8")
    arguments.assembly.write_text(
        WRAPPER.format(symbol=arguments.symbol, text=arguments.text.resolve()), "utf-8")
    needs = " ".join(str(path) for path in flattener.seen)
    arguments.depfile.write_text(f"{arguments.text}: {needs}\n", "utf-8")


if __name__ == "__main__":
    main()
