/* SPDX-License-Identifier: Apache-2.0
 * Emulated devices with AMD's kernels, one for each chip that images are built for. */
#include "tests/emulation/target.h"

#define TESS_GPU_KERNEL(name, ...) void gfx90a_##name(const void *arguments);
#include "backends/gpu/simt.def"
#include "backends/hip/kernels/matrix.def"
#undef TESS_GPU_KERNEL
static const tess_emulated_function of_gfx90a[] = {
#define TESS_GPU_KERNEL(name, ...) {#name, gfx90a_##name},
#include "backends/gpu/simt.def"
#include "backends/hip/kernels/matrix.def"
#undef TESS_GPU_KERNEL
};

#define TESS_GPU_KERNEL(name, ...) void gfx942_##name(const void *arguments);
#include "backends/gpu/simt.def"
#include "backends/hip/kernels/matrix.def"
#undef TESS_GPU_KERNEL
static const tess_emulated_function of_gfx942[] = {
#define TESS_GPU_KERNEL(name, ...) {#name, gfx942_##name},
#include "backends/gpu/simt.def"
#include "backends/hip/kernels/matrix.def"
#undef TESS_GPU_KERNEL
};

#define TESS_GPU_KERNEL(name, ...) void gfx950_##name(const void *arguments);
#include "backends/gpu/simt.def"
#include "backends/hip/kernels/matrix.def"
#undef TESS_GPU_KERNEL
static const tess_emulated_function of_gfx950[] = {
#define TESS_GPU_KERNEL(name, ...) {#name, gfx950_##name},
#include "backends/gpu/simt.def"
#include "backends/hip/kernels/matrix.def"
#undef TESS_GPU_KERNEL
};

#define TESS_GPU_KERNEL(name, ...) void gfx1100_##name(const void *arguments);
#include "backends/gpu/simt.def"
#include "backends/hip/kernels/matrix.def"
#undef TESS_GPU_KERNEL
static const tess_emulated_function of_gfx1100[] = {
#define TESS_GPU_KERNEL(name, ...) {#name, gfx1100_##name},
#include "backends/gpu/simt.def"
#include "backends/hip/kernels/matrix.def"
#undef TESS_GPU_KERNEL
};

#define TESS_GPU_KERNEL(name, ...) void gfx1201_##name(const void *arguments);
#include "backends/gpu/simt.def"
#include "backends/hip/kernels/matrix.def"
#undef TESS_GPU_KERNEL
static const tess_emulated_function of_gfx1201[] = {
#define TESS_GPU_KERNEL(name, ...) {#name, gfx1201_##name},
#include "backends/gpu/simt.def"
#include "backends/hip/kernels/matrix.def"
#undef TESS_GPU_KERNEL
};

enum { COUNT = sizeof of_gfx942 / sizeof of_gfx942[0] };

/* Lanes of a wave, bytes of shared memory of a block. */
const tess_emulated_target tess_emulated_targets[] = {
    {"gfx90a", 64, 64 * 1024, of_gfx90a, COUNT},   {"gfx942", 64, 64 * 1024, of_gfx942, COUNT},
    {"gfx950", 64, 160 * 1024, of_gfx950, COUNT},  {"gfx1100", 32, 64 * 1024, of_gfx1100, COUNT},
    {"gfx1201", 32, 64 * 1024, of_gfx1201, COUNT},
};
const int tess_emulated_target_count = 5;
