/* SPDX-License-Identifier: Apache-2.0
 * Turns lines of hopper.def into kernels. */
#ifndef TESSERA_BACKENDS_CUDA_HOPPER_KERNELS_H
#define TESSERA_BACKENDS_CUDA_HOPPER_KERNELS_H

/* Of 64 K registers 384 threads get 168 each at first; the producer's warps leave theirs to the
 * consumers. Multiples of 8. */
#define TESS_HOPPER_PRODUCER_REGISTERS 72
#define TESS_HOPPER_CONSUMER_REGISTERS 216

#include "backends/cuda/ptx_sm90.h"

/* Items are made by a warp with few registers. */
#define TESS_SETTLE() tess_ptx_settle()

#include "backends/cuda/hopper/forward.h"
#include "backends/gpu/matrix/kernels.h"

#undef TESS_GPU_KERNEL
#define TESS_GPU_KERNEL(name, pass, role, dtypes, max_head_dim, tile_rows, tile_columns, threads, \
                        dynamic_shared_bytes, most_rows, priority)                                \
    TESS_KERNEL_WITH_MAPS(name, threads, 1)                                                       \
    {                                                                                             \
        tess_hopper_forward_main<                                                                 \
            tess_hopper_shape<tess_only_dtype(dtypes), max_head_dim, tile_columns, 2,             \
                              !tess_name_has(#name, "_plain_")>,                                  \
            dynamic_shared_bytes>(args, addresses, run, maps);                                    \
    }

#endif
