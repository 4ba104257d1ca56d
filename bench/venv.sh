#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Makes the Python environment of bench/plot.py: .venv in the source tree, or the folder given.
set -euo pipefail

here=$(cd "$(dirname "$0")" && pwd)
venv=${1:-$here/../.venv}

[ -x "$venv/bin/python" ] || python3 -m venv "$venv"
"$venv/bin/python" -m pip install --quiet --disable-pip-version-check -r "$here/requirements.txt"
echo "now: $venv/bin/python $here/plot.py RESULTS.json"
