/* SPDX-License-Identifier: Apache-2.0
 * The kernels for chips of 9.0. */
#include "backends/cuda/hopper/kernels.h"

#include "backends/cuda/kernels/hopper.def"
