#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Prints the backends that are compiled in, best first, as a comma list."""
import pathlib
import re

table = pathlib.Path(__file__).resolve().parent.parent / "backends/backends.def"
text = re.sub(r"/\*.*?\*/", "", table.read_text("utf-8"), flags=re.DOTALL)
print(",".join(re.findall(r"^TESS_BACKEND\((\w+)\)", text, flags=re.MULTILINE)))
