/* SPDX-License-Identifier: Apache-2.0
 * The kernels for chips of 9.0 on fibers of the host. */
#include "tests/emulation/ptx_sm90.h"

#include "backends/cuda/hopper/kernels.h"

#include "backends/cuda/kernels/hopper.def"
