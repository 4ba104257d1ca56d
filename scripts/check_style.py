#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What a formatter does not see: headers, blanks, invisible letters, loose ends, places.

clang-format has its own test (format.py); what is here must hold for every file of the tree.
"""
import pathlib
import posixpath
import re
import sys
import unicodedata

import tree

WIDTH = 100
LICENCE = "SPDX-License-Identifier: Apache-2.0"

# Text that is data or somebody else's: neither header nor width.
DATA = ("LICENSE", ".gitignore")
DATA_ENDINGS = (".txt", ".problems", ".json", ".csv", ".svg", ".md")
SOURCE_ENDINGS = (*tree.C_ENDINGS, ".py", ".sh", ".cmake", ".in", ".S")
SOURCE_NAMES = ("meson.build", "meson_options.txt", "run", ".clang-tidy", ".editorconfig")

# Where a path may begin without belonging to one machine.
ROOTS = ("bin", "dev", "etc", "lib", "lib64", "nowhere", "opt", "proc", "sys", "tmp", "usr", "var")

LOOSE = r"\b(?:TO" r"DO|FIX" r"ME|XX" r"X|HA" r"CK)\b"


def is_source(path):
    return path.suffix in SOURCE_ENDINGS or path.name in SOURCE_NAMES


def check_blanks(text):
    for line, match in tree.matches(r"\t|\r|[ ]+$", text):
        what = {"\t": "a tab", "\r": "a carriage return"}.get(match[0], "blanks at the end")
        yield line, what
    if text and not text.endswith("\n"):
        yield text.count("\n") + 1, "no newline at the end"
    if text.endswith("\n\n"):
        yield text.count("\n"), "an empty line at the end"


def check_letters(text):
    """Letters nobody sees: zero-width, direction marks, unusual blanks, control characters."""
    for number, line in enumerate(text.split("\n"), 1):
        for letter in line:
            kind = unicodedata.category(letter)
            if ord(letter) > 126 and kind in ("Cf", "Cc", "Co", "Zl", "Zp", "Zs"):
                yield number, f"the invisible letter U+{ord(letter):04X}"


def check_width(text):
    for number, line in enumerate(text.split("\n"), 1):
        if len(line) > WIDTH:
            yield number, f"{len(line)} columns; at most {WIDTH}"


def check_header(path, text):
    """Two lines: the licence, then what the file is for."""
    lines = text.split("\n")
    if lines[0].startswith("#!"):
        lines = lines[1:]
    lines += ["", ""]
    if tree.is_c(path):
        first, second = f"/* {LICENCE}", r" \* \S.*"
    else:
        first, second = f"# {LICENCE}", r"# \S.*|\"\"\"\S.*"
    if lines[0] != first:
        yield 1, f'the first line should be "{first}"'
    elif not re.fullmatch(second, lines[1]):
        yield 2, "the second line should say what the file is for"


def check_loose_ends(text):
    for line, match in tree.matches(LOOSE, text):
        yield line, f"{match[0]} is for an issue, not for the tree"


def check_places(path, text):
    """Paths that exist on one machine only, or lead out of the tree."""
    for line, match in tree.matches(r"(?:^|(?<=[\s\"'`(=:,]))/([A-Za-z][\w.-]*)/[\w.-]", text):
        if match[1] not in ROOTS:
            yield line, f"/{match[1]}/... is a place of one machine"
    for line, match in tree.matches(r"(?<![\w./}])(?:\.\./)+[\w.][\w./-]*", text):
        target = posixpath.normpath(posixpath.join(path.parent.as_posix(), match[0]))
        if target.startswith("..") or (path.parent == pathlib.PurePosixPath(".")):
            yield line, f"{match[0]} leads out of the tree"


def check_script(path, text):
    if text.startswith("#!/usr/bin/env bash"):
        if not re.search(r"^set -euo pipefail$", text, flags=re.MULTILINE):
            yield 1, "a shell script says set -euo pipefail"
    is_program = text.startswith("#!")
    if is_program != bool((tree.ROOT / path).stat().st_mode & 0o100):
        yield 1, "is executable without saying by what" if not is_program else "is not executable"


def check_listed(paths):
    """A source that no meson.build names is neither built nor tested."""
    builds = {path.parent: tree.text_of(path) for path in paths if path.name == "meson.build"}
    for path in paths:
        if path.suffix != ".c" or path.parts[0] not in ("core", "backends", "tests"):
            continue
        above = [builds[parent] for parent in path.parents if parent in builds and parent.name]
        if not any(re.search(rf"[/']{re.escape(path.stem)}(?:\.c)?'", text) for text in above):
            yield path, 1, "is named by no meson.build"


def check(path):
    """Line and words of each complaint about one file."""
    text = tree.text_of(path)
    if text is None or path.name in DATA:
        return
    if not path.parts[0] == "docs" or path.suffix != ".txt":
        yield from check_blanks(text)
    yield from check_letters(text)
    if path.suffix in DATA_ENDINGS and path.name not in SOURCE_NAMES:
        if path.suffix == ".md":
            yield from check_places(path, text)
        return
    yield from check_width(text)
    yield from check_loose_ends(text)
    yield from check_places(path, text)
    yield from check_script(path, text)
    if is_source(path):
        yield from check_header(path, text)


def main():
    paths = tree.paths()
    complaints = [(path, line, words) for path in paths for line, words in check(path)]
    complaints += check_listed(paths)
    for path, line, words in complaints:
        print(f"{path}:{line}: {words}")
    print(f"{len(paths)} files, {len(complaints)} complaints")
    return 1 if complaints or not paths else 0


if __name__ == "__main__":
    sys.exit(main())
