/* SPDX-License-Identifier: Apache-2.0
 * NVIDIA's driver, opened at run time: its calls, its numbers, which image suits which chip. */
#include "backends/cuda/driver.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { OPTIONAL = 0, REQUIRED = 1 };

static const tess_gpu_symbol calls[TESS_GPU_CALLS] = {
#define TESS_GPU_CALL(field, cuda, hip, presence, parameters) \
    {cuda, offsetof(tess_gpu_driver, field), presence == REQUIRED},
#include "backends/gpu/host/calls.def"
#undef TESS_GPU_CALL
};

static const char *const names[] = {"libcuda.so.1", NULL};

tess_gpu_library tess_cuda_library = {.vendor = "NVIDIA",
                                      .variable = "TESSERA_CUDA_LIBRARY",
                                      .names = names,
                                      .calls = calls,
                                      .lock = PTHREAD_MUTEX_INITIALIZER};

const char *tess_cuda_path(const tess_env *env)
{
    return env->cuda_library;
}

const int tess_cuda_attributes[TESS_GPU_ATTRIBUTES] = {
    [TESS_GPU_UNITS] = 16,         /* multiprocessors */
    [TESS_GPU_WAVE] = 10,          /* warp */
    [TESS_GPU_SHARED_MEMORY] = 97, /* per block, when a kernel opts in */
    [TESS_GPU_CACHE] = 38,         /* L2 */
    [TESS_GPU_MAJOR] = 75,         [TESS_GPU_MINOR] = 76,
    [TESS_GPU_READS_HOST] = 88, /* pageable memory access */
};

tess_status tess_cuda_architecture(const tess_gpu_driver *driver, const tess_open *open,
                                   const char *call, int device, char out_name[64])
{
    int major = 0, minor = 0;

    TESS_TRY(TESS_GPU_ASK(driver, open->host, call, device_attribute, &major,
                          tess_cuda_attributes[TESS_GPU_MAJOR], device));
    TESS_TRY(TESS_GPU_ASK(driver, open->host, call, device_attribute, &minor,
                          tess_cuda_attributes[TESS_GPU_MINOR], device));
    snprintf(out_name, 64, "sm_%d", major * 10 + minor);
    return TESS_OK;
}

/* 90 of "sm_90", "sm_90a", "compute_90". */
static int number_of(const char *architecture)
{
    return (int)strtol(strchr(architecture, '_') + 1, NULL, 10);
}

int tess_cuda_suits(const tess_gpu_image *image, const char *architecture, const tess_env *env)
{
    const int chip = number_of(architecture), built = number_of(image->architecture);
    const char last = image->architecture[strlen(image->architecture) - 1];

    if (env->cuda_arch && built != env->cuda_arch)
        return 0;
    if (image->architecture[0] == 'c')
        return built <= chip ? built : 0;
    if (last == 'a') /* instructions of one chip, which no later one promises to have */
        return built == chip ? 3000 : 0;
    return built / 10 == chip / 10 && built <= chip ? 2000 + built : 0;
}
