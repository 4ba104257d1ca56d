/* SPDX-License-Identifier: Apache-2.0
 * The .npy format of NumPy: one array per file behind a small text header. */
#ifndef TESSERA_TOOLS_NPY_H
#define TESSERA_TOOLS_NPY_H

#include "tools/tensor.h"

/* Reads a file of version 1 or 2 with elements <f4, <f2, <i4 or <i8, in C or Fortran order (which
 * become strides). False after having written why. */
bool tool_npy_read(const char *path, tool_tensor *out_tensor, tess_text *why);

/* Writes a packed tensor, version 1. TESS_F32 and TESS_F16: the format has no other of ours. */
bool tool_npy_write(const char *path, const tool_tensor *tensor, tess_text *why);

#endif
