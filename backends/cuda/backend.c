/* SPDX-License-Identifier: Apache-2.0
 * NVIDIA GPUs as a backend: kernels, images, and the entries that name this vendor. */
#include "backends/cuda/driver.h"
#include "backends/gpu/host/records.h"

/* ---- Kernels --------------------------------------------------------------------------------- */

enum {
#define TESS_GPU_KERNEL TESS_GPU_PLACE
#include "backends/cuda/kernels/hopper.def"
#include "backends/cuda/kernels/matrix.def"
#include "backends/gpu/simt.def"
#undef TESS_GPU_KERNEL
    KERNELS
};

static const tess_gpu_kernel kernels[] = {
#define TESS_GPU_KERNEL TESS_GPU_ENTRY
#define SOURCE "hopper"
#undef TAKES_MAPS
#define TAKES_MAPS true
#include "backends/cuda/kernels/hopper.def"
#undef TAKES_MAPS
#define TAKES_MAPS false
#undef SOURCE
#define SOURCE "matrix"
#include "backends/cuda/kernels/matrix.def"
#undef SOURCE
#define SOURCE "simt"
#include "backends/gpu/simt.def"
#undef SOURCE
#undef TESS_GPU_KERNEL
};

/* ---- Images ---------------------------------------------------------------------------------- */

/* TESS_CUDA_IMAGES is what meson has built: TESS_GPU_IMAGE(source, architecture) of each. */

#define TESS_GPU_IMAGE(source, architecture)                           \
    extern const unsigned char tess_image_##source##_##architecture[]; \
    extern const uint64_t tess_image_##source##_##architecture##_size;
TESS_CUDA_IMAGES
#undef TESS_GPU_IMAGE

static const tess_gpu_image images[] = {
#define TESS_GPU_IMAGE(source, architecture)                       \
    {#source, #architecture, tess_image_##source##_##architecture, \
     &tess_image_##source##_##architecture##_size},
    TESS_CUDA_IMAGES
#undef TESS_GPU_IMAGE
};

/* ---- The vendor ------------------------------------------------------------------------------ */

static const tess_gpu_vendor vendor = {
    .name = "cuda",
    .brand = "CUDA",
    .library = &tess_cuda_library,
    .path = tess_cuda_path,
    .attribute = tess_cuda_attributes,
    .matrix_lanes = 32,
    .architecture = tess_cuda_architecture,
    .suits = tess_cuda_suits,
    .kernels = kernels,
    .kernel_count = KERNELS,
    .images = images,
    .image_count = sizeof images / sizeof images[0],
};

static tess_refusal accept(const tess_kernel *kernel, const tess_problem *problem,
                           const tess_caps *caps)
{
    (void)kernel;
    (void)caps;
    return tess_gpu_accept(&vendor, problem);
}

static tess_refusal accept_matrix(const tess_kernel *kernel, const tess_problem *problem,
                                  const tess_caps *caps)
{
    return tess_gpu_accept_matrix(&vendor, kernel, problem, caps);
}

static const tess_kernel records[] = {
#define TESS_GPU_KERNEL TESS_GPU_RECORD
#define TABLE kernels
#define ACCEPT accept
#include "backends/gpu/simt.def"
#undef ACCEPT
#define ACCEPT accept_matrix
#include "backends/cuda/kernels/matrix.def"
#undef TAKES_MAPS
#define TAKES_MAPS true
#include "backends/cuda/kernels/hopper.def"
#undef TAKES_MAPS
#define TAKES_MAPS false
#undef TESS_GPU_KERNEL
};

static const tess_kernel *give_records(size_t *out_count)
{
    *out_count = sizeof records / sizeof records[0];
    return records;
}

static int32_t count(const tess_open *open, tess_text *out_why)
{
    return tess_gpu_count(&vendor, open, out_why);
}

static tess_status info(const tess_open *open, int32_t index, tess_device_info *out_info)
{
    return tess_gpu_info(&vendor, open, index, out_info);
}

static tess_status open_device(const tess_open *open, tess_backend_device **out_device)
{
    return tess_gpu_open(&vendor, open, out_device);
}

const tess_backend tess_backend_cuda = {
    .name = "cuda",
    .priority = 30,
    .count = count,
    .info = info,
    .open = open_device,
    .kernels = give_records,
    TESS_GPU_ENTRIES,
};
