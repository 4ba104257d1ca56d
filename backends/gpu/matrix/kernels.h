/* SPDX-License-Identifier: Apache-2.0
 * Turns lines of a matrix.def into kernels. Each vendor's source includes this, then its list. */
#ifndef TESSERA_BACKENDS_GPU_MATRIX_KERNELS_H
#define TESSERA_BACKENDS_GPU_MATRIX_KERNELS_H

#include "backends/gpu/matrix/backward.h"
#include "backends/gpu/matrix/backward_shared.h"
#include "backends/gpu/matrix/forward.h"
#include "backends/gpu/matrix/name.h"

/* dK and dV by one kernel and dQ by another: the sums of more than 128 dims fit the registers where
 * waves share the dims. */
template <int DTYPE, int DIM, int ROWS, int COLUMNS, int THREADS, int SHARED, bool HAS_HOOK>
TESS_DEVICE void tess_matrix_keys_main(const tess_args &args, const tess_gpu_addresses &addresses,
                                       const tess_gpu_run &run)
{
    if constexpr (DIM > 128)
        tess_matrix_shared_main<
            tess_matrix_shared_shape<DTYPE, DIM, COLUMNS, ROWS, THREADS / 32, false, HAS_HOOK>,
            SHARED>(args, addresses, run);
    else
        tess_matrix_backward_main<tess_matrix_backward_shape<DTYPE, DIM, 2 * COLUMNS / THREADS,
                                                             THREADS / 32, ROWS, true, HAS_HOOK>,
                                  SHARED>(args, addresses, run);
}

/* The body of a role, from a line of a .def file. What stays in shared memory, and who owns it, are
 * rows, but in the main kernel of the backward pass columns. */
#define TESS_MATRIX_FORWARD_MAIN_CHECKED(dtype, dim, rows, columns, threads, shared, hooked) \
    tess_matrix_forward_main<                                                                \
        tess_matrix_shape<dtype, dim, 2 * rows / threads, threads / 32, columns, 2, hooked>, \
        shared>
#define TESS_MATRIX_BACKWARD_MAIN_CHECKED(dtype, dim, rows, columns, threads, shared, hooked) \
    tess_matrix_keys_main<dtype, dim, rows, columns, threads, shared, hooked>
#define TESS_MATRIX_BACKWARD_MAIN_ADDS(dtype, dim, rows, columns, threads, shared, hooked) \
    tess_matrix_shared_main<                                                               \
        tess_matrix_shared_shape<dtype, dim, columns, rows, threads / 32, true, hooked>, shared>
#define TESS_MATRIX_BACKWARD_DQ_CHECKED(dtype, dim, rows, columns, threads, shared, hooked)     \
    tess_matrix_backward_main<tess_matrix_backward_shape<dtype, dim, 2 * rows / threads,        \
                                                         threads / 32, columns, false, hooked>, \
                              shared>

/* Two blocks of 128 threads, or one of 256, leave each thread 255 registers of 64 K. */
#define TESS_GPU_KERNEL(name, pass, role, dtypes, max_head_dim, tile_rows, tile_columns, threads, \
                        dynamic_shared_bytes, most_rows, priority)                                \
    TESS_KERNEL(name, threads, 256 / threads)                                                     \
    {                                                                                             \
        TESS_MATRIX_##pass##_##role(tess_only_dtype(dtypes), max_head_dim, tile_rows,             \
                                    tile_columns, threads, dynamic_shared_bytes,                  \
                                    !tess_name_has(#name, "_plain_"))(args, addresses, run);      \
    }
#endif
