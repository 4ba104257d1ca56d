/* SPDX-License-Identifier: Apache-2.0
 * One sequence of a run and what of its tensors a work item sees. */
#ifndef TESSERA_BACKENDS_OPENCL_KERNELS_SEQUENCE_H
#define TESSERA_BACKENDS_OPENCL_KERNELS_SEQUENCE_H

#include "access.h"

typedef struct tess_sequence {
    tess_i64 index;
    tess_i64 batch, batch_k;          /* on the batch axis of Q and O, of K and V; 0 when packed */
    tess_i64 first_row, first_column; /* on their seqlen axes; 0 unless packed */
    tess_i64 rows, columns;           /* used */
} tess_sequence;

TESS_FN tess_i64 tess_clamp(tess_i64 value, tess_i64 low, tess_i64 high)
{
    return tess_max_i64(low, tess_min_i64(value, high));
}

TESS_FN tess_i64 tess_index_at(tess_args_at args, __global const char *array, tess_i64 i)
{
    return args->index_is_64 ? ((__global const tess_i64 *)array)[i]
                             : ((__global const tess_i32 *)array)[i];
}

/* First row and number of rows of a packed sequence, drawn into the tensor and under the bound the
 * launch was sized by: a device cannot refuse what it finds in an index array. */
typedef struct tess_span {
    tess_i64 first, count;
} tess_span;

TESS_FN tess_span tess_sequence_span(tess_args_at args, __global const char *offsets, tess_i64 i,
                                     tess_i64 total, tess_i64 bound)
{
    tess_span span;

    span.first = tess_clamp(tess_index_at(args, offsets, i), 0, total);
    span.count = tess_clamp(tess_index_at(args, offsets, i + 1), span.first, total) - span.first;
    span.count = tess_min_i64(span.count, bound);
    return span;
}

TESS_FN tess_sequence tess_sequence_at(tess_args_at args, const tess_addresses *to, tess_i64 index)
{
    tess_sequence s;

    s.index = s.batch = s.batch_k = index;
    s.first_row = s.first_column = 0;
    s.rows = args->rows;
    s.columns = args->columns;
    if (args->varlen & TESS_VARLEN_CU_SEQLENS_Q) {
        const tess_span span = tess_sequence_span(args, to->at[TESS_AT_CU_SEQLENS_Q], index,
                                                  args->total_rows, args->rows);
        s.batch = 0;
        s.first_row = span.first;
        s.rows = span.count;
    }
    if (args->varlen & TESS_VARLEN_CU_SEQLENS_K) {
        const tess_span span = tess_sequence_span(args, to->at[TESS_AT_CU_SEQLENS_K], index,
                                                  args->total_columns, args->columns);
        s.batch_k = 0;
        s.first_column = span.first;
        s.columns = span.count;
    }
    if (args->varlen & TESS_VARLEN_SEQUSED_Q)
        s.rows = tess_clamp(tess_index_at(args, to->at[TESS_AT_SEQUSED_Q], index), 0, s.rows);
    if (args->varlen & TESS_VARLEN_SEQUSED_K)
        s.columns = tess_clamp(tess_index_at(args, to->at[TESS_AT_SEQUSED_K], index), 0, s.columns);
    return s;
}

/* Row 0 of the sequence among all rows of O, and how many there are: how workspaces number them. */
TESS_FN tess_i64 tess_first_row(tess_args_at args, tess_sequence s)
{
    return args->varlen & TESS_VARLEN_CU_SEQLENS_Q ? s.first_row : s.batch * args->rows;
}
TESS_FN tess_i64 tess_all_rows(tess_args_at args)
{
    return args->varlen & TESS_VARLEN_CU_SEQLENS_Q ? args->total_rows
                                                   : args->sequences * args->rows;
}

TESS_FN tess_visible tess_visible_of(tess_args_at args, tess_sequence s)
{
    return tess_visible_make(s.rows, s.columns, (args->mask & TESS_MASK_CAUSAL) != 0,
                             (args->mask & TESS_MASK_TOP_LEFT) != 0,
                             (args->mask & TESS_MASK_WINDOW) != 0, args->window_left,
                             args->window_right);
}

/* Rows of a tensor laid out like Q: `group` query heads from head on, folded. */
TESS_FN tess_rows tess_query_rows(__global char *base, __constant const tess_i64 *stride,
                                  tess_i32 dims, tess_i32 dtype, tess_sequence s, tess_i64 head,
                                  tess_i64 group)
{
    const tess_i64 at = s.batch * stride[0] + s.first_row * stride[1] + head * stride[2];
    tess_rows rows = tess_no_rows();

    rows.base = base ? base + at * tess_element_size(dtype) : base;
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
TESS_FN tess_rows tess_key_rows(tess_args_at args, const tess_addresses *to, __global char *base,
                                __constant const tess_i64 *stride, tess_i32 dims, tess_i32 dtype,
                                tess_sequence s, tess_i64 head)
{
    tess_rows rows = tess_no_rows();
    tess_i64 at = head * stride[2];

    if (args->page_size > 0) {
        rows.pages = (__global const tess_i32 *)to->at[TESS_AT_PAGE_TABLE] +
                     s.index * args->page_table_stride;
        rows.page_stride = stride[0];
        rows.page_size = args->page_size;
        rows.last_page = args->pages - 1;
    } else {
        at += s.batch_k * stride[0] + s.first_column * stride[1];
    }
    rows.base = base ? base + at * tess_element_size(dtype) : base;
    rows.stride = stride[1];
    rows.dim_stride = stride[3];
    rows.count = s.columns;
    rows.dims = dims;
    rows.dtype = dtype;
    return rows;
}

/* One fp32 number for each folded row: LSE, delta, partial LSE. */
typedef struct tess_row_values {
    __global float *base; /* query 0, first head of the group; NULL: not there */
    tess_i64 stride, head_stride, group;
} tess_row_values;

TESS_FN tess_i64 tess_value_index(tess_row_values values, tess_i64 row)
{
    const tess_i64 query = values.group > 1 ? tess_divide(row, values.group) : row;
    return query * values.stride + (row - query * values.group) * values.head_stride;
}

/* Of a tensor of the caller's, laid out like LSE. */
TESS_FN tess_row_values tess_user_values(tess_args_at args, __global char *base, tess_sequence s,
                                         tess_i64 head, tess_i64 group)
{
    tess_row_values values;

    values.base = (__global float *)base;
    values.stride = args->lse_stride[1];
    values.head_stride = args->lse_stride[2];
    values.group = group;
    if (base)
        values.base += s.batch * args->lse_stride[0] + s.first_row * args->lse_stride[1] +
                       head * args->lse_stride[2];
    return values;
}

/* Of the workspace, [row][head]. */
TESS_FN tess_row_values tess_work_values(tess_args_at args, const tess_addresses *to,
                                         tess_i64 offset, tess_i64 first_row, tess_i64 head,
                                         tess_i64 group)
{
    tess_row_values values;

    values.base =
        (__global float *)(to->at[TESS_AT_WORKSPACE] + offset) + first_row * args->heads_q + head;
    values.stride = args->heads_q;
    values.head_stride = 1;
    values.group = group;
    return values;
}

#endif
