/* SPDX-License-Identifier: Apache-2.0
 * AMD's HIP runtime, opened at run time: its calls, its numbers, which image suits which chip. */
#include "backends/hip/driver.h"

#include <stdio.h>
#include <string.h>

enum { OPTIONAL = 0, REQUIRED = 1 };

static const tess_gpu_symbol calls[TESS_GPU_CALLS] = {
#define TESS_GPU_CALL(field, cuda, hip, presence, parameters) \
    {hip, offsetof(tess_gpu_driver, field), presence == REQUIRED},
#include "backends/gpu/host/calls.def"
#undef TESS_GPU_CALL
};

static const char *const names[] = {"libamdhip64.so.7", "libamdhip64.so.6", "libamdhip64.so.5",
                                    "libamdhip64.so", NULL};

tess_gpu_library tess_hip_library = {.vendor = "AMD",
                                     .variable = "TESSERA_HIP_LIBRARY",
                                     .names = names,
                                     .calls = calls,
                                     .name_of = "hipGetErrorName",
                                     .text_of = "hipGetErrorString",
                                     .lock = PTHREAD_MUTEX_INITIALIZER};

const char *tess_hip_path(const tess_env *env)
{
    return env->hip_library;
}

/* The same in 5.2 and 6.3, whose headers were compared. */
const int tess_hip_attributes[TESS_GPU_ATTRIBUTES] = {
    [TESS_GPU_UNITS] = 63,      [TESS_GPU_WAVE] = 87,  [TESS_GPU_SHARED_MEMORY] = 74,
    [TESS_GPU_CACHE] = 19,      [TESS_GPU_MAJOR] = 23, [TESS_GPU_MINOR] = 61,
    [TESS_GPU_READS_HOST] = 65,
};

/* hipDeviceProp_t was 792 bytes with the chip's name at 396; since 6.0 it is 1472 with the name at
 * 1160, and its function has another symbol. The buffer holds any of them. */
tess_status tess_hip_architecture(const tess_gpu_driver *driver, const tess_open *open,
                                  const char *call, int device, char out_name[64])
{
    char properties[4096] = "";
    const char *name = properties + 1160;

    if (driver->properties_6) {
        TESS_TRY(TESS_GPU_ASK(driver, open->host, call, properties_6, properties, device));
    } else if (driver->properties_5) {
        name = properties + 396;
        TESS_TRY(TESS_GPU_ASK(driver, open->host, call, properties_5, properties, device));
    }
    /* "gfx90a:sramecc+:xnack-": images are built for either setting */
    snprintf(out_name, 64, "%.*s", (int)strcspn(name, ":"), name);
    return TESS_OK;
}

int tess_hip_suits(const tess_gpu_image *image, const char *architecture, const tess_env *env)
{
    (void)env;
    return strcmp(image->architecture, architecture) == 0;
}
