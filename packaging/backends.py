#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Prints the backends that are compiled in, best first, as a comma list.

Usage: backends.py [NAME]...     those of the conditional ones that are
"""
import pathlib
import re
import sys

table = pathlib.Path(__file__).resolve().parent.parent / "backends/backends.def"
text = re.sub(r"/\*.*?\*/", "", table.read_text("utf-8"), flags=re.DOTALL)
for name in sys.argv[1:]:
    text = text.replace(f"#ifdef TESS_WITH_{name.upper()}\n", "")
text = re.sub(r"^#ifdef.*?^#endif\n", "", text, flags=re.MULTILINE | re.DOTALL)
print(",".join(re.findall(r"^TESS_BACKEND\((\w+)\)", text, flags=re.MULTILINE)))
