#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Builds with warnings as errors and runs every test; the last line counts them.
#
# Usage: test.sh [OPTION OF MESON SETUP]...     builds in build-test/
#        BUILD=FOLDER test.sh ...               builds there
#        TESTS="--no-suite opencl" test.sh ...  leaves tests out, as `meson test` is told
set -euo pipefail
cd "$(dirname "$0")/.."
source scripts/need.sh

need gcc libc6-dev pkg-config python3 libjansson-dev libcmocka-dev
need_meson

build=${BUILD:-build-test}
reconfigure=()
[ ! -f "$build/build.ninja" ] || reconfigure=(--reconfigure)
meson setup "$build" --werror "${reconfigure[@]}" "$@"
meson compile -C "$build"

rm -f "$build/meson-logs/testlog"*.json
status=0
# Words of TESTS are options each.
# shellcheck disable=SC2086
meson test -C "$build" --no-rebuild --print-errorlogs ${TESTS:-} || status=$?
python3 scripts/count_tests.py "$build" || status=$?
exit "$status"
