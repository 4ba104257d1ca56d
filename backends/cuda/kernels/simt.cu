/* SPDX-License-Identifier: Apache-2.0
 * The plain-core kernels for NVIDIA: the shared text with this vendor's seam. */
#include "backends/gpu/simt/kernels.h"
