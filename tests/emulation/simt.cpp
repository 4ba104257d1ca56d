/* SPDX-License-Identifier: Apache-2.0
 * The plain-core kernels for fibers of the host: the shared text with the emulation's seam. */
#include "backends/gpu/simt/kernels.h"
