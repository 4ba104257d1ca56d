/* SPDX-License-Identifier: Apache-2.0
 * Turns lines of a matrix.def into kernels. Each vendor's source includes this, then its list. */
#ifndef TESSERA_BACKENDS_GPU_MATRIX_KERNELS_H
#define TESSERA_BACKENDS_GPU_MATRIX_KERNELS_H

#include "backends/gpu/matrix/forward.h"
#include "backends/gpu/matrix/name.h"

/* The body of a role. */
#define TESS_MATRIX_FORWARD_MAIN_CHECKED tess_matrix_forward_main

/* Two blocks of 128 threads, or one of 256, leave each thread 255 registers of 64 K. */
#define TESS_GPU_KERNEL(name, pass, role, dtypes, max_head_dim, tile_rows, tile_columns, threads, \
                        dynamic_shared_bytes, most_rows, priority)                                \
    TESS_KERNEL(name, threads, 256 / threads)                                                     \
    {                                                                                             \
        TESS_MATRIX_##pass##_##role<                                                              \
            tess_matrix_shape<tess_only_dtype(dtypes), max_head_dim, 2 * tile_rows / threads,     \
                              threads / 32, tile_columns, 2, !tess_name_has(#name, "_plain_")>,   \
            dynamic_shared_bytes>(args, addresses, run);                                          \
    }
#endif
