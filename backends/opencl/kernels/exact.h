/* SPDX-License-Identifier: Apache-2.0
 * One row of the forward pass by itself, absent pairs skipped: for rows that came out non-finite.
 */
#ifndef TESSERA_BACKENDS_OPENCL_KERNELS_EXACT_H
#define TESSERA_BACKENDS_OPENCL_KERNELS_EXACT_H

#include "item.h"

/* A tile multiplies absent pairs by zero, and zero times NaN is NaN; and its sums may overflow
 * before they are divided. So a row that came out non-finite is computed again by the whole group:
 * the largest score, the sum of weights, then finished shares of the output, which no absent column
 * takes part in and whose sum does not exceed the largest value. */

#define TESS_EXACT_DIMS ((512 + TESS_CL_GROUP - 1) / TESS_CL_GROUP)
#define TESS_EXACT_FLOATS TESS_CL_GROUP

/* Over the group; `floats` is local memory that nobody else uses, TESS_EXACT_FLOATS of it. */
TESS_FN float tess_block_max(float value, __local float *floats)
{
    floats[get_local_id(0)] = value;
    barrier(CLK_LOCAL_MEM_FENCE); /* values are there */
    TESS_NO_UNROLL
    for (int i = 0; i < TESS_CL_GROUP; i++)
        value = tess_max(floats[i], value);
    barrier(CLK_LOCAL_MEM_FENCE); /* and read */
    return value;
}
TESS_FN float tess_block_sum(float value, __local float *floats)
{
    float sum = 0.0f;

    floats[get_local_id(0)] = value;
    barrier(CLK_LOCAL_MEM_FENCE); /* values are there */
    TESS_NO_UNROLL
    for (int i = 0; i < TESS_CL_GROUP; i++)
        sum += floats[i];
    barrier(CLK_LOCAL_MEM_FENCE); /* and read */
    return sum;
}

TESS_FN float tess_exact_score(__local const tess_forward_item *item, tess_i64 row, tess_i64 column)
{
    tess_pair pair;

    pair.query = tess_walk_query(row, item->group);
    pair.head = row - pair.query * item->group;
    pair.column = column;
    return tess_score_log2(item->scoring, pair, tess_row_dot(item->q, row, item->k, column));
}

/* Adds the finished shares of up to TESS_CL_GROUP columns; `weights` holds -1 for absent ones. */
TESS_FN void tess_exact_add(__local const tess_forward_item *item, tess_i64 column, tess_i64 count,
                            __local const float *weights, float sums[TESS_EXACT_DIMS])
{
    TESS_NO_UNROLL
    for (tess_i32 j = 0; j < TESS_CL_GROUP && j < count; j++) {
        const float weight = weights[j];
        TESS_UNROLL
        for (int i = 0; i < TESS_EXACT_DIMS; i++) {
            const tess_i32 dim = (tess_i32)get_local_id(0) + i * TESS_CL_GROUP;
            if (!(weight < 0.0f) && dim < item->v.dims)
                sums[i] += weight * tess_row_element(item->v, column + j, dim);
        }
    }
}

TESS_FN void tess_forward_exact(__local const tess_forward_item *item, tess_i64 row,
                                __local float *floats)
{
    const tess_i64 query = tess_walk_query(row, item->group);
    const tess_i64 first =
        tess_max_i64(item->share_first, tess_visible_first(item->visible, query));
    const tess_i64 end = tess_min_i64(item->share_end, tess_visible_end(item->visible, query));
    const tess_i64 own = (tess_i64)get_local_id(0);
    float sink = TESS_NEG_INF;
    float sums[TESS_EXACT_DIMS], shift = 0.0f, inverse = 0.0f;
    tess_os_row state;

    if (item->sink)
        sink = tess_os_score(tess_sink_of(item->sink, item->sink_stride, item->group, row));
    state.shift = sink;
    state.sum = 0.0f;
    TESS_UNROLL
    for (int i = 0; i < TESS_EXACT_DIMS; i++)
        sums[i] = 0.0f;
    TESS_NO_UNROLL
    for (int pass = 0; pass < 3; pass++) {
        TESS_NO_UNROLL
        for (tess_i64 column = first; column < end; column += TESS_CL_GROUP) {
            float score = TESS_NEG_INF;
            if (column + own < end)
                score = tess_exact_score(item, row, column + own);
            if (pass == 0)
                state.shift = tess_max(score, state.shift);
            if (pass == 1)
                state.sum += tess_os_weight(score, shift);
            if (pass == 2) {
                floats[own] =
                    score == TESS_NEG_INF ? -1.0f : tess_os_weight(score, shift) * inverse;
                barrier(CLK_LOCAL_MEM_FENCE); /* weights are there */
                tess_exact_add(item, column, end - column, floats, sums);
                barrier(CLK_LOCAL_MEM_FENCE); /* and read */
            }
        }
        if (pass == 0) {
            state.shift = tess_block_max(state.shift, floats);
            shift = tess_os_shift(state.shift);
        }
        if (pass == 1) {
            state.sum = tess_block_sum(state.sum, floats) + tess_os_weight(sink, shift);
            inverse = tess_os_inverse(state.sum);
        }
    }
    TESS_UNROLL
    for (int i = 0; i < TESS_EXACT_DIMS; i++) {
        const tess_i32 dim = (tess_i32)own + i * TESS_CL_GROUP;
        if (dim < item->o.dims)
            tess_put_element(item->o, row, dim, sums[i]);
    }
    if (item->lse.base && own == 0)
        item->lse.base[tess_value_index(item->lse, row)] = tess_os_lse(state);
}

#endif
