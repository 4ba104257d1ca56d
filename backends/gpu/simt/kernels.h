/* SPDX-License-Identifier: Apache-2.0
 * Every kernel of simt.def, defined. Each vendor's source includes this and nothing else. */
#ifndef TESSERA_BACKENDS_GPU_SIMT_KERNELS_H
#define TESSERA_BACKENDS_GPU_SIMT_KERNELS_H

#include "backends/gpu/simt/combine.h"
#include "backends/gpu/simt/forward.h"
#include "backends/gpu/simt/redo.h"
#include "backends/gpu/simt/reduce.h"

/* The body of a role: a template of the tile that stays, max_head_dim and dynamic_shared_bytes.
 * What stays are rows, but in the main kernel of the backward pass columns. */
#define TESS_SIMT_FORWARD_MAIN tess_forward_main
#define TESS_SIMT_FORWARD_REDO tess_forward_redo
#define TESS_SIMT_FORWARD_COMBINE tess_forward_combine
#define TESS_SIMT_FORWARD_MERGE tess_forward_merge
#define TESS_SIMT_BACKWARD_MAIN tess_backward_main
#define TESS_SIMT_BACKWARD_DQ tess_backward_dq
#define TESS_SIMT_BACKWARD_REDO tess_backward_redo
#define TESS_SIMT_BACKWARD_REDO_DQ tess_backward_redo_dq
#define TESS_SIMT_BACKWARD_CLEAR_DQ tess_backward_clear_dq
#define TESS_SIMT_BACKWARD_FINISH_DQ tess_backward_finish_dq
#define TESS_SIMT_BACKWARD_DELTA tess_backward_delta
#define TESS_SIMT_BACKWARD_DBIAS tess_backward_dbias
#define TESS_SIMT_BACKWARD_DSLOPE tess_backward_dslope
#define TESS_SIMT_BACKWARD_DSINK tess_backward_dsink

enum { PASS_FORWARD, PASS_BACKWARD };

/* Three blocks of 128 threads leave each 168 registers of 64 K. */
#define TESS_SIMT_RESIDENT 3

#define TESS_GPU_KERNEL(name, pass, role, dtypes, max_head_dim, tile_rows, tile_columns, threads, \
                        dynamic_shared_bytes, most_rows, priority)                                \
    TESS_KERNEL(name, threads, TESS_SIMT_RESIDENT)                                                \
    {                                                                                             \
        static_assert(threads == TESS_THREADS, "every kernel here has blocks of this size");      \
        enum { KEYS_STAY = PASS_##pass == PASS_BACKWARD && TESS_GPU_##role == TESS_GPU_MAIN };    \
        TESS_SIMT_##pass##_##role<KEYS_STAY ? tile_columns : tile_rows, max_head_dim,             \
                                  dynamic_shared_bytes>(args, addresses, run);                    \
    }
#include "backends/gpu/simt.def"
#undef TESS_GPU_KERNEL

#endif
