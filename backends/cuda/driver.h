/* SPDX-License-Identifier: Apache-2.0
 * NVIDIA's driver, opened at run time. */
#ifndef TESSERA_BACKENDS_CUDA_DRIVER_H
#define TESSERA_BACKENDS_CUDA_DRIVER_H

#include "backends/gpu/host/backend.h"

extern tess_gpu_library tess_cuda_library;

/* What a user asks for: TESSERA_CUDA_LIBRARY. */
const char *tess_cuda_path(const tess_env *env);

/* The driver's numbers for attributes of a device. */
extern const int tess_cuda_attributes[TESS_GPU_ATTRIBUTES];

/* "sm_90" */
tess_status tess_cuda_architecture(const tess_gpu_driver *driver, const tess_open *open,
                                   const char *call, int device, char out_name[64]);

/* Machine code for the very chip, else for an earlier one of its generation, else text that the
 * driver compiles. TESSERA_CUDA_ARCH leaves one of them. */
int tess_cuda_suits(const tess_gpu_image *image, const char *architecture, const tess_env *env);

#endif
