#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares the public headers with the lists of what was promised, both ways.

Usage: lists.py --include DIRECTORY --symbols symbols.txt --interface interface.def
                --manual tessera.3

Functions marked TESS_API must be in symbols.txt and in the manual, members of structs and
enumerators in interface.def; nothing else may be in any. Values are the business of layout.c.
"""
import argparse
import pathlib
import re
import sys


def code_of(path):
    return re.sub(r"/\*.*?\*/", "", path.read_text("utf-8"), flags=re.DOTALL)


def names_of_declaration(declaration):
    """Members of "const void *first, *second[4]"."""
    return [re.search(r"(\w+)\s*(?:\[[^]]*\]\s*)*$", part)[1] for part in declaration.split(",")]


def declared(headers):
    """What the headers declare: functions, "struct.member" in order, enumerators."""
    functions, members, constants = [], [], []
    for text in headers:
        functions += re.findall(r"^TESS_API\b[^;]*?\b(tess_\w+)\(", text, flags=re.MULTILINE)
        for name, body in re.findall(r"typedef struct (\w+) \{(.*?)\} \1;", text, flags=re.DOTALL):
            for declaration in filter(str.strip, body.split(";")):
                members += [f"{name}.{member}" for member in names_of_declaration(declaration)]
        for body in re.findall(r"\benum \{(.*?)\};", text, flags=re.DOTALL):
            constants += re.findall(r"\b(TESS_\w+)\s*=", body)
    return functions, members, constants


def compare(what, seen, recorded, place):
    """Prints what is on one side only; returns whether the sides are the same set."""
    for name in sorted(set(seen) - set(recorded)):
        print(f"{what} {name} is declared but not in {place}; add its line")
    for name in sorted(set(recorded) - set(seen)):
        print(f"{what} {name} is in {place} but no longer declared: a break of the interface")
    for name in sorted({name for name in recorded if recorded.count(name) > 1}):
        print(f"{what} {name} is in {place} twice")
    return set(seen) == set(recorded) and len(set(recorded)) == len(recorded)


def main():
    parser = argparse.ArgumentParser(description="Compare the public headers with the lists.")
    parser.add_argument("--include", type=pathlib.Path, required=True)
    parser.add_argument("--symbols", type=pathlib.Path, required=True)
    parser.add_argument("--interface", type=pathlib.Path, required=True)
    parser.add_argument("--manual", type=pathlib.Path, required=True)
    arguments = parser.parse_args()

    headers = [code_of(path) for path in sorted((arguments.include / "tessera").glob("*.h"))]
    functions, members, constants = declared(headers)
    symbols = [line for line in arguments.symbols.read_text("utf-8").splitlines()
               if not line.startswith("#")]
    interface = code_of(arguments.interface)
    recorded_members = [f"{name}.{member}" for name, member
                        in re.findall(r"^MEMBER\((\w+), (\w+),", interface, flags=re.MULTILINE)]
    recorded_constants = re.findall(r"^CONSTANT\((\w+),", interface, flags=re.MULTILINE)

    manual = set(re.findall(r"\bFn (tess_\w+)", arguments.manual.read_text("utf-8")))

    is_same = [
        compare("function", functions, symbols, arguments.symbols.name),
        compare("function", functions, sorted(manual), arguments.manual.name),
        compare("member", members, recorded_members, arguments.interface.name),
        compare("constant", constants, recorded_constants, arguments.interface.name),
    ]
    if symbols != sorted(symbols):
        print(f"{arguments.symbols.name} is not sorted")
        is_same.append(False)
    for what, names in (("functions", functions), ("members", members), ("constants", constants)):
        print(f"{len(names)} {what}")
        is_same.append(bool(names))
    return 0 if all(is_same) else 1


if __name__ == "__main__":
    sys.exit(main())
