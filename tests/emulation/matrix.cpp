/* SPDX-License-Identifier: Apache-2.0
 * The matrix kernels for fibers of the host: NVIDIA's side of the seam over emulated instructions.
 */
#include "tests/emulation/ptx.h"

#include "backends/gpu/matrix/kernels.h"

#include "backends/cuda/kernels/matrix.def"
