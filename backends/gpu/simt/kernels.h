/* SPDX-License-Identifier: Apache-2.0
 * Every kernel of simt.def, defined. Each vendor's source includes this and nothing else. */
#ifndef TESSERA_BACKENDS_GPU_SIMT_KERNELS_H
#define TESSERA_BACKENDS_GPU_SIMT_KERNELS_H

#include "backends/gpu/simt/combine.h"
#include "backends/gpu/simt/forward.h"

/* The body of a role: a template of tile_rows, max_head_dim and dynamic_shared_bytes. */
#define TESS_SIMT_FORWARD_MAIN tess_forward_main
#define TESS_SIMT_FORWARD_REDO tess_forward_redo
#define TESS_SIMT_FORWARD_COMBINE tess_forward_combine

/* Three blocks of 128 threads leave each 168 registers of 64 K. */
#define TESS_SIMT_RESIDENT 3

#define TESS_GPU_KERNEL(name, pass, role, dtypes, max_head_dim, tile_rows, tile_columns, threads, \
                        dynamic_shared_bytes, most_rows, priority)                                \
    TESS_KERNEL(name, threads, TESS_SIMT_RESIDENT)                                                \
    {                                                                                             \
        static_assert(threads == TESS_THREADS, "every kernel here has blocks of this size");      \
        TESS_SIMT_##pass##_##role<tile_rows, max_head_dim, dynamic_shared_bytes>(args, addresses, \
                                                                                 run);            \
    }
#include "backends/gpu/simt.def"
#undef TESS_GPU_KERNEL

#endif
