# SPDX-License-Identifier: Apache-2.0
"""The source tree as the checking scripts see it: which files there are, and code without prose."""
import pathlib
import re
import subprocess

ROOT = pathlib.Path(__file__).resolve().parent.parent

C_ENDINGS = (".c", ".h", ".cpp", ".cl", ".cu", ".cuh", ".hip", ".def")

# What a tree without git history is searched for; a build folder is none of these.
TOPS = ("include", "core", "backends", "tests", "bench", "tools", "python", "docs", "scripts",
        "packaging", ".ci")


def paths():
    """Every file of the project, relative to the root, sorted; not what git ignores."""
    try:
        listing = subprocess.run(
            ["git", "-C", ROOT, "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
            check=True, capture_output=True, text=True).stdout
        names = {pathlib.PurePosixPath(name) for name in listing.split("\0") if name}
    except (OSError, subprocess.CalledProcessError):
        names = {pathlib.PurePosixPath(path.relative_to(ROOT).as_posix())
                 for top in TOPS for path in (ROOT / top).rglob("*")
                 if "__pycache__" not in path.parts}
        names |= {pathlib.PurePosixPath(path.name) for path in ROOT.iterdir() if path.is_file()}
    return sorted(name for name in names if (ROOT / name).is_file())


def is_c(path):
    """Whether a file is of C or of one of its dialects."""
    return path.suffix in C_ENDINGS


def text_of(path):
    """Text of a file of the tree, or None when it holds none."""
    data = (ROOT / path).read_bytes()
    if b"\0" in data:
        return None
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        return None


def without_comments(text):
    """C text with its comments blanked, line numbers kept; strings stay."""
    def blank(match):
        part = match[0]
        return part if part[0] in "\"'" else re.sub(r"[^\n]", " ", part)

    return re.sub(r'"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'|/\*.*?\*/|//[^\n]*', blank, text,
                  flags=re.DOTALL)


def without_strings(code):
    """Code with what its string literals hold blanked."""
    return re.sub(r'"(?:\\.|[^"\\\n])*"', lambda match: '"' + " " * (len(match[0]) - 2) + '"', code)


def matches(pattern, text):
    """Line number and match of each place a pattern is found at."""
    for match in re.finditer(pattern, text, flags=re.MULTILINE):
        yield text.count("\n", 0, match.start()) + 1, match
