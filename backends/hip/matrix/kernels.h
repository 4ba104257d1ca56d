/* SPDX-License-Identifier: Apache-2.0
 * Turns lines of a matrix.def into kernels on AMD. The source includes this, then its list. */
#ifndef TESSERA_BACKENDS_HIP_MATRIX_KERNELS_H
#define TESSERA_BACKENDS_HIP_MATRIX_KERNELS_H

#include "backends/gpu/matrix/name.h"
#include "backends/hip/matrix/forward.h"

/* The body of a role. */
#define TESS_MATRIX_FORWARD_MAIN_CHECKED tess_matrix_forward_main

#define TESS_GPU_KERNEL(name, pass, role, dtypes, max_head_dim, tile_rows, tile_columns, threads, \
                        dynamic_shared_bytes, most_rows, priority)                                \
    TESS_KERNEL_OF_WAVES(name, threads, 2)                                                        \
    {                                                                                             \
        typedef tess_matrix_shape<tess_only_dtype(dtypes), max_head_dim, tile_columns, threads,   \
                                  !tess_name_has(#name, "_plain_")>                               \
            shape;                                                                                \
        static_assert(shape::ROWS == tile_rows, "a wave owns as many rows as the unit is wide");  \
        TESS_MATRIX_##pass##_##role<shape, dynamic_shared_bytes>(args, addresses, run);           \
    }
#endif
