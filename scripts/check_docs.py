#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Finds names in the pages that no longer exist in the tree: files, links, headings, identifiers.

A page may name anything between backticks. What looks like a path, a file, a tess_ name or a
TESS_ or TESSERA_ constant must be somewhere; the rest is prose.
"""
import fnmatch
import posixpath
import re
import sys
import urllib.parse

import tree

FENCE = re.compile(r"^(```|~~~).*?^\1[ \t]*$", flags=re.DOTALL | re.MULTILINE)

# Endings by which a word between backticks is taken for a file of the tree.
FILE = re.compile(r"[\w.*{},/<>-]+\.(?:c|h|def|cl|cu|hip|S|py|sh|md|build|txt|problems|1|3|in)")

# A folder or an instance that a page describes in general: `backends/<name>/driver.c`.
PATTERN = re.compile(r"[<>]|NNNN|\bNAME\b|\.\.\.")


def blank(match):
    return re.sub(r"[^\n]", " ", match[0])


def spans(text):
    """Line and content of each code span outside of fenced blocks."""
    for line, match in tree.matches(r"(?<!`)(`+)(?!`)(.+?)(?<!`)\1(?!`)", FENCE.sub(blank, text)):
        yield line, match[2].strip()


def anchors(text):
    """What the headings of a page can be linked by."""
    names = set()
    for _, match in tree.matches(r"^#+[ \t]+(.*?)[ \t]*#*$", FENCE.sub(blank, text)):
        words = re.sub(r"[`*]|\[([^]]*)\]\([^)]*\)", r"\1", match[1]).lower()
        names.add(re.sub(r"[^\w\- ]", "", words).replace(" ", "-"))
    return names


class Names:
    """Everything that a page may name."""

    def __init__(self, paths):
        self.paths = [path.as_posix() for path in paths]
        self.folders = {parent.as_posix() for path in paths for parent in path.parents}
        self.files = {path.name for path in paths}
        self.tops = {path.parts[0] for path in paths if len(path.parts) > 1}
        code = "\n".join(tree.text_of(path) or "" for path in paths
                         if path.suffix not in (".md", ".txt") and path.parts[0] != "LICENSE")
        self.words = set(re.findall(r"\b\w+\b", code))

    def has_path(self, name, starts):
        """Whether a file, a folder or a pattern is in the tree, from one of several places."""
        for start in starts:
            wanted = posixpath.normpath(posixpath.join(start, name))
            if wanted in self.folders or fnmatch.filter(self.paths, wanted):
                return True
        return False

    def has_file(self, name, page):
        """As has_path, where braces are choices and a bare name may be of any folder."""
        choice = re.search(r"\{([^{}]*)\}", name)
        if choice:
            return all(self.has_file(name[:choice.start()] + part + name[choice.end():], page)
                       for part in choice[1].split(","))
        if self.has_path(name, ("", page.parent.as_posix(), "include")):
            return True
        return "/" not in name and bool(fnmatch.filter(self.files, name))

    def complain(self, span, page):
        """Why what stands between backticks cannot be, or None."""
        word = span.split("(")[0].split(" ")[0].rstrip(":,;")
        if PATTERN.search(span):
            return None
        if re.fullmatch(r"tess_[a-z0-9_]+(?:\.\w+)*", word):
            missing = [part for part in word.split(".") if part not in self.words]
            return f"`{word}` is nowhere in the code" if missing else None
        if re.fullmatch(r"(?:TESS|TESSERA)_[A-Z0-9_]*[A-Z0-9]", word):
            return None if word in self.words else f"`{word}` is nowhere in the code"
        is_below_top = word.split("/")[0] in self.tops and re.fullmatch(r"[\w.*{},/-]+", word)
        if "/" in word and is_below_top or FILE.fullmatch(word):
            return None if self.has_file(word, page) else f"`{word}` is not in the tree"
        return None


def check_links(page, text, names):
    for line, match in tree.matches(r"\]\(([^)\s]+)\)", FENCE.sub(blank, text)):
        target, _, anchor = urllib.parse.unquote(match[1]).partition("#")
        if re.match(r"[a-z]+:", target):
            continue
        if target and not names.has_path(target, [page.parent.as_posix()]):
            yield line, f"the link to {target} leads nowhere"
            continue
        if anchor:
            other = (tree.ROOT / page.parent / target) if target else tree.ROOT / page
            if other.suffix == ".md" and anchor not in anchors(other.read_text("utf-8")):
                yield line, f"{target or page} has no heading #{anchor}"


def main():
    paths = tree.paths()
    pages = [path for path in paths if path.suffix == ".md"]
    names = Names(paths)
    complaints = 0
    for page in pages:
        text = tree.text_of(page)
        found = list(check_links(page, text, names))
        found += [(line, words) for line, span in spans(text)
                  if (words := names.complain(span, page))]
        for line, words in sorted(found):
            print(f"{page}:{line}: {words}")
        complaints += len(found)
    print(f"{len(pages)} pages, {complaints} complaints")
    return 1 if complaints else 0


if __name__ == "__main__":
    sys.exit(main())
