/* SPDX-License-Identifier: Apache-2.0
 * AMD's HIP runtime, opened at run time. */
#ifndef TESSERA_BACKENDS_HIP_DRIVER_H
#define TESSERA_BACKENDS_HIP_DRIVER_H

#include "backends/gpu/host/backend.h"

extern tess_gpu_library tess_hip_library;

/* What a user asks for: TESSERA_HIP_LIBRARY. */
const char *tess_hip_path(const tess_env *env);

/* The runtime's numbers for attributes of a device. */
extern const int tess_hip_attributes[TESS_GPU_ATTRIBUTES];

/* "gfx942": the chip, without the settings it runs with. */
tess_status tess_hip_architecture(const tess_gpu_driver *driver, const tess_open *open,
                                  const char *call, int device, char out_name[64]);

/* Code objects run on the chip they were built for. */
int tess_hip_suits(const tess_gpu_image *image, const char *architecture, const tess_env *env);

#endif
