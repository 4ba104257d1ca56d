/* SPDX-License-Identifier: Apache-2.0
 * The kernel argument block: numbers only, one layout for the host and every device. */
#ifndef TESSERA_CORE_PORTABLE_ARGS_H
#define TESSERA_CORE_PORTABLE_ARGS_H

#include "dialect.h"

/* OpenCL cannot carry buffers inside a struct, so addresses travel apart, in one fixed order
 * (enum tess_address below). 64-bit members first and an even number of 32-bit ones: no compiler
 * has a reason to pad, and the size is asserted at the end. */
typedef struct tess_args {
    /* strides in elements: batch (page of a paged tensor), row, head, dim */
    tess_i64 q_stride[4], k_stride[4], v_stride[4], o_stride[4];
    tess_i64 lse_stride[3];   /* batch, row, head */
    tess_i64 bias_stride[4];  /* batch, head, row, column */
    tess_i64 slope_stride[2]; /* batch, head */
    tess_i64 sink_stride;
    tess_i64 do_stride[4], dq_stride[4], dk_stride[4], dv_stride[4]; /* backward only, like q */
    tess_i64 dbias_stride[4];                                        /* like bias_stride */

    tess_i64 sequences;
    tess_i64 rows, columns;             /* of a sequence: exact, or the upper bound with lengths */
    tess_i64 total_rows, total_columns; /* extents of packed tensors, to clamp indices by */
    tess_i64 heads_q, heads_kv, group;  /* group = heads_q / heads_kv */
    tess_i64 pages, page_size, page_table_stride, max_pages; /* page_size 0: not paged */
    tess_i64 window_left, window_right;

    tess_i64 tile_rows, tile_columns; /* of the kernel */
    tess_i64 row_tiles;               /* of the longest sequence, heads folded */
    tess_i64 splits;

    /* byte offsets into the workspace */
    tess_i64 partial_o, partial_lse; /* [split][row][head][dim], [split][row][head], fp32 */
    tess_i64 scratch, scratch_size;  /* per worker, where a backend has workers */
    tess_i64 sequence_list;          /* what one run finds out about its sequences; the backend's */
    tess_i64 redo; /* of the flags of a GPU's work items, [item], 32 bits: 1 is done again. In the
                    * backward pass tiles of dQ have theirs behind those */

    /* backward only */
    tess_i64 share_columns; /* columns of one work item: whole tiles */
    tess_i64 dq_buffers;    /* partial sums of dQ that are kept apart, then added in order */
    tess_i64 delta;         /* offset of [row][head], fp32: dot(dO, O) - dLSE */
    tess_i64 partial_dq;    /* offset of [buffer][row][head][dim], fp32; a GPU's rows of it are
                             * tess_dq_pitch() apart */
    tess_i64 partial_bias;  /* offset of the CPU's partial sums of dslope: [item], fp32 */

    tess_i32 head_dim, head_dim_v;
    tess_i32 dtype, o_dtype, bias_dtype; /* enum of <tessera/base.h> */
    tess_i32 do_dtype, dq_dtype, dk_dtype, dv_dtype;
    tess_i32 index_is_64; /* index arrays hold 64-bit numbers */
    tess_u32 varlen;      /* TESS_VARLEN_... */
    tess_u32 bias;        /* TESS_BIAS_... */
    tess_u32 mask;        /* TESS_MASK_... */
    tess_u32 flags;       /* TESS_DETERMINISTIC ... */
    tess_u32 gradients;   /* TESS_GRADIENT_..., backward only */
    tess_u32 reserved;
    tess_f32 scale, softcap;
} tess_args;

/* Dims of a row of sums of dQ that many add to: whole units of 16 bytes. */
TESS_FN tess_i64 tess_dq_pitch(tess_i64 head_dim)
{
    return (head_dim + 3) / 4 * 4;
}

/* A backward kernel that flags tiles of dQ has so many folded rows in one at least. */
#define TESS_LEAST_FLAGGED_ROWS 64

/* The fixed order of addresses. */
enum tess_address_index {
    TESS_AT_Q,
    TESS_AT_K,
    TESS_AT_V,
    TESS_AT_O,
    TESS_AT_LSE,
    TESS_AT_CU_SEQLENS_Q,
    TESS_AT_CU_SEQLENS_K,
    TESS_AT_SEQUSED_Q,
    TESS_AT_SEQUSED_K,
    TESS_AT_PAGE_TABLE,
    TESS_AT_BIAS,
    TESS_AT_ALIBI_SLOPES,
    TESS_AT_SINK,
    TESS_AT_Q_DESCALE,
    TESS_AT_K_DESCALE,
    TESS_AT_V_DESCALE,
    TESS_AT_WORKSPACE,
    TESS_AT_D_O, /* from here on: backward only */
    TESS_AT_D_LSE,
    TESS_AT_DQ,
    TESS_AT_DK,
    TESS_AT_DV,
    TESS_AT_DBIAS,
    TESS_AT_DALIBI_SLOPES,
    TESS_AT_DSINK,
    TESS_AT_COUNT
};

/* A negative array size where a compiler laid the block out differently. OpenCL C 1.2 has no
 * static assertion; this form works in every dialect. */
typedef char tess_args_has_no_padding[sizeof(tess_args) == 75 * 8 + 18 * 4 ? 1 : -1];

#endif
