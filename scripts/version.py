#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Prints the version number, whose one home is include/tessera/base.h."""
import pathlib
import re

header = pathlib.Path(__file__).resolve().parent.parent / "include/tessera/base.h"
text = header.read_text()
print(".".join(re.search(rf"#define TESS_VERSION_{part} (\d+)", text)[1]
               for part in ("MAJOR", "MINOR", "PATCH")))
