/* SPDX-License-Identifier: Apache-2.0
 * Emulated devices with NVIDIA's kernels; the second has waves that no NVIDIA chip has, for the
 * kernels on plain cores, which must not care. */
#include "tests/emulation/target.h"

#define TESS_GPU_KERNEL(name, ...) void name(const void *arguments);
#include "backends/cuda/kernels/hopper.def"
#include "backends/cuda/kernels/matrix.def"
#include "backends/gpu/simt.def"
#undef TESS_GPU_KERNEL

static const tess_emulated_function functions[] = {
#define TESS_GPU_KERNEL(name, ...) {#name, name},
#include "backends/cuda/kernels/hopper.def"
#include "backends/cuda/kernels/matrix.def"
#include "backends/gpu/simt.def"
#undef TESS_GPU_KERNEL
};

enum { COUNT = sizeof functions / sizeof functions[0] };

const tess_emulated_target tess_emulated_targets[] = {
    {"wave32", 32, 227 * 1024, functions, COUNT},
    {"wave64", 64, 227 * 1024, functions, COUNT},
};
const int tess_emulated_target_count = 2;
