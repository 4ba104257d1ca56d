/* SPDX-License-Identifier: Apache-2.0
 * The matrix kernels for AMD. */
#include "backends/hip/matrix/kernels.h"

#include "backends/hip/kernels/matrix.def"
