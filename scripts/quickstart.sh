#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# From a bare Debian or Ubuntu to a checked result: installs, builds, computes, compares.
set -euo pipefail
cd "$(dirname "$0")/.."
source scripts/need.sh

# Runs a command and shows what it says only when it fails.
quietly() {
    local said

    said=$("$@" 2>&1) || {
        echo "$said"
        return 1
    }
}

need gcc libc6-dev pkg-config python3 libjansson-dev
need_meson

echo "building in build/ (a minute or two)"
[ -f build/build.ninja ] || quietly meson setup build --buildtype=release -Dtests=false
quietly meson compile -C build

echo "computing the attention of one layer of a sentence-embedding model"
exec ./build/tools/tessera run docs/examples/minilm/minilm_layer.safetensors --verify
