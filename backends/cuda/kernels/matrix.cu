/* SPDX-License-Identifier: Apache-2.0
 * The matrix kernels for NVIDIA: the shared text with this vendor's seam. */
#include "backends/gpu/matrix/kernels.h"

#include "backends/cuda/kernels/matrix.def"
