/* SPDX-License-Identifier: Apache-2.0
 * One sequence of a run and what of its tensors a work item sees. */
#ifndef TESSERA_BACKENDS_GPU_SIMT_SEQUENCE_H
#define TESSERA_BACKENDS_GPU_SIMT_SEQUENCE_H

#include "backends/gpu/simt/access.h"

#include "core/portable/online_softmax.h"
#include "core/portable/walk.h"

struct tess_sequence {
    tess_i64 index;
    tess_i64 batch, batch_k;          /* on the batch axis of Q and O, of K and V; 0 when packed */
    tess_i64 first_row, first_column; /* on their seqlen axes; 0 unless packed */
    tess_i64 rows, columns;           /* used */
};

TESS_DEVICE tess_i64 tess_clamp(tess_i64 value, tess_i64 low, tess_i64 high)
{
    return tess_max_i64(low, tess_min_i64(value, high));
}

TESS_DEVICE tess_i64 tess_index_at(const tess_args &args, const void *array, tess_i64 i)
{
    return args.index_is_64 ? static_cast<const tess_i64 *>(array)[i]
                            : static_cast<const tess_i32 *>(array)[i];
}

/* First row and number of rows of a packed sequence, drawn into the tensor and under the bound the
 * launch was sized by: a device cannot refuse what it finds in an index array. */
TESS_DEVICE void tess_sequence_span(const tess_args &args, const void *offsets, tess_i64 i,
                                    tess_i64 total, tess_i64 bound, tess_i64 &first,
                                    tess_i64 &count)
{
    first = tess_clamp(tess_index_at(args, offsets, i), 0, total);
    count = tess_clamp(tess_index_at(args, offsets, i + 1), first, total) - first;
    count = tess_min_i64(count, bound);
}

TESS_DEVICE tess_sequence tess_sequence_at(const tess_args &args, const tess_gpu_addresses &to,
                                           tess_i64 index)
{
    tess_sequence s = {index, index, index, 0, 0, args.rows, args.columns};

    if (args.varlen & TESS_VARLEN_CU_SEQLENS_Q) {
        s.batch = 0;
        tess_sequence_span(args, to.at[TESS_AT_CU_SEQLENS_Q], index, args.total_rows, args.rows,
                           s.first_row, s.rows);
    }
    if (args.varlen & TESS_VARLEN_CU_SEQLENS_K) {
        s.batch_k = 0;
        tess_sequence_span(args, to.at[TESS_AT_CU_SEQLENS_K], index, args.total_columns,
                           args.columns, s.first_column, s.columns);
    }
    if (args.varlen & TESS_VARLEN_SEQUSED_Q)
        s.rows = tess_clamp(tess_index_at(args, to.at[TESS_AT_SEQUSED_Q], index), 0, s.rows);
    if (args.varlen & TESS_VARLEN_SEQUSED_K)
        s.columns = tess_clamp(tess_index_at(args, to.at[TESS_AT_SEQUSED_K], index), 0, s.columns);
    return s;
}

/* Row 0 of the sequence among all rows of O, and how many there are: how workspaces number them. */
TESS_DEVICE tess_i64 tess_first_row(const tess_args &args, const tess_sequence &s)
{
    return args.varlen & TESS_VARLEN_CU_SEQLENS_Q ? s.first_row : s.batch * args.rows;
}
TESS_DEVICE tess_i64 tess_all_rows(const tess_args &args)
{
    return args.varlen & TESS_VARLEN_CU_SEQLENS_Q ? args.total_rows : args.sequences * args.rows;
}

TESS_DEVICE tess_visible tess_visible_of(const tess_args &args, const tess_sequence &s)
{
    return tess_visible_make(s.rows, s.columns, (args.mask & TESS_MASK_CAUSAL) != 0,
                             (args.mask & TESS_MASK_TOP_LEFT) != 0,
                             (args.mask & TESS_MASK_WINDOW) != 0, args.window_left,
                             args.window_right);
}

/* Rows of a tensor laid out like Q: `group` query heads from head on, folded. */
TESS_DEVICE tess_rows tess_query_rows(void *base, const tess_i64 *stride, tess_i32 dims,
                                      tess_i32 dtype, const tess_sequence &s, tess_i64 head,
                                      tess_i64 group)
{
    const tess_i64 at = s.batch * stride[0] + s.first_row * stride[1] + head * stride[2];
    tess_rows rows = {};

    rows.base = static_cast<char *>(base) + at * tess_element_size(dtype);
    rows.stride = stride[1];
    rows.head_stride = stride[2];
    rows.dim_stride = stride[3];
    rows.group = group;
    rows.count = s.rows * group;
    rows.dims = dims;
    rows.dtype = dtype;
    return rows;
}

/* Rows of a tensor laid out like K, of one key head; in pages where the problem has them. */
TESS_DEVICE tess_rows tess_key_rows(const tess_args &args, const tess_gpu_addresses &to, void *base,
                                    const tess_i64 *stride, tess_i32 dims, tess_i32 dtype,
                                    const tess_sequence &s, tess_i64 head)
{
    tess_rows rows = {};
    tess_i64 at = head * stride[2];

    if (args.page_size > 0) {
        rows.pages = static_cast<const tess_i32 *>(to.at[TESS_AT_PAGE_TABLE]) +
                     s.index * args.page_table_stride;
        rows.page_stride = stride[0];
        rows.page_size = args.page_size;
        rows.last_page = args.pages - 1;
    } else {
        at += s.batch_k * stride[0] + s.first_column * stride[1];
    }
    rows.base = static_cast<char *>(base) + at * tess_element_size(dtype);
    rows.stride = stride[1];
    rows.dim_stride = stride[3];
    rows.group = 1;
    rows.count = s.columns;
    rows.dims = dims;
    rows.dtype = dtype;
    return rows;
}

/* One fp32 number for each folded row: LSE, delta, partial LSE. */
struct tess_row_values {
    float *base; /* query 0, first head of the group; NULL: not there */
    tess_i64 stride, head_stride, group;
};

TESS_DEVICE tess_i64 tess_value_index(const tess_row_values &values, tess_i64 row)
{
    const tess_i64 query = values.group > 1 ? tess_divide(row, values.group) : row;
    return query * values.stride + (row - query * values.group) * values.head_stride;
}

/* Of a tensor of the caller's, laid out like LSE. */
TESS_DEVICE tess_row_values tess_user_values(const tess_args &args, void *base,
                                             const tess_sequence &s, tess_i64 head, tess_i64 group)
{
    tess_row_values values = {static_cast<float *>(base), args.lse_stride[1], args.lse_stride[2],
                              group};

    if (base)
        values.base += s.batch * args.lse_stride[0] + s.first_row * args.lse_stride[1] +
                       head * args.lse_stride[2];
    return values;
}

/* Of the workspace, [row][head]. */
TESS_DEVICE tess_row_values tess_work_values(const tess_args &args, const tess_gpu_addresses &to,
                                             tess_i64 offset, tess_i64 first_row, tess_i64 head,
                                             tess_i64 group)
{
    float *const base =
        reinterpret_cast<float *>(static_cast<char *>(to.at[TESS_AT_WORKSPACE]) + offset);
    const tess_row_values values = {base + first_row * args.heads_q + head, args.heads_q, 1, group};
    return values;
}

/* Where a main kernel adds dQ, [row][head][dim]: of the sequence's first row and this head. */
TESS_DEVICE float *tess_dq_rows(const tess_args &args, const tess_gpu_addresses &to,
                                const tess_sequence &s, tess_i64 head)
{
    float *const base =
        reinterpret_cast<float *>(static_cast<char *>(to.at[TESS_AT_WORKSPACE]) + args.partial_dq);
    return base + (tess_first_row(args, s) * args.heads_q + head) * tess_dq_pitch(args.head_dim);
}

#endif
