/* SPDX-License-Identifier: Apache-2.0
 * One row of the forward pass by itself, absent pairs skipped: for rows that came out non-finite.
 */
#ifndef TESSERA_BACKENDS_GPU_SIMT_EXACT_H
#define TESSERA_BACKENDS_GPU_SIMT_EXACT_H

#include "backends/gpu/simt/item.h"
#include "backends/gpu/simt/tile.h"

/* A tile multiplies absent pairs by zero, and zero times NaN is NaN; and its sums may overflow
 * before they are divided. So a row that came out non-finite is computed again by the whole block:
 * the largest score, the sum of weights, then finished shares of the output, which no absent column
 * takes part in and whose sum does not exceed the largest value. */

enum { TESS_EXACT_DIMS = 512 / TESS_THREADS, TESS_EXACT_FLOATS = TESS_THREADS };

/* Over the block; `floats` is shared memory that nobody else uses, TESS_EXACT_FLOATS of it. */
TESS_DEVICE float tess_block_max(float value, float *floats)
{
    floats[tess_thread()] = value;
    tess_barrier(); /* values are there */
    TESS_NO_UNROLL
    for (int i = 0; i < TESS_THREADS; i++)
        value = tess_max(floats[i], value);
    tess_barrier(); /* and read */
    return value;
}
TESS_DEVICE float tess_block_sum(float value, float *floats)
{
    float sum = 0.0f;

    floats[tess_thread()] = value;
    tess_barrier(); /* values are there */
    TESS_NO_UNROLL
    for (int i = 0; i < TESS_THREADS; i++)
        sum += floats[i];
    tess_barrier(); /* and read */
    return sum;
}

TESS_DEVICE float tess_exact_score(const tess_forward_item &item, tess_i64 row, tess_i64 column)
{
    const tess_i64 query = tess_walk_query(row, item.group);
    const tess_pair pair = {query, row - query * item.group, column};

    return tess_score_log2(item.scoring, pair, tess_row_dot(item.q, row, item.k, column));
}

/* Adds the finished shares of up to TESS_THREADS columns; `weights` holds -1 for absent ones. */
TESS_DEVICE void tess_exact_add(const tess_forward_item &item, tess_i64 column, tess_i64 count,
                                const float *weights, float (&sums)[TESS_EXACT_DIMS])
{
    TESS_NO_UNROLL
    for (tess_i32 j = 0; j < TESS_THREADS && j < count; j++) {
        const float weight = weights[j];
        TESS_UNROLL
        for (int i = 0; i < TESS_EXACT_DIMS; i++) {
            const tess_i32 dim = static_cast<tess_i32>(tess_thread()) + i * TESS_THREADS;
            if (!(weight < 0.0f) && dim < item.v.dims)
                sums[i] += weight * tess_row_element(item.v, column + j, dim);
        }
    }
}

TESS_DEVICE void tess_forward_exact(const tess_forward_item &item, tess_i64 row, float *floats)
{
    const tess_i64 query = tess_walk_query(row, item.group);
    const tess_i64 first = tess_max_i64(item.share_first, tess_visible_first(item.visible, query));
    const tess_i64 end = tess_min_i64(item.share_end, tess_visible_end(item.visible, query));
    const float sink = item.sink ? tess_os_score(tess_sink_of(item, row)) : TESS_NEG_INF;
    const tess_i64 own = static_cast<tess_i64>(tess_thread());
    tess_os_row state = {sink, 0.0f};
    float sums[TESS_EXACT_DIMS] = {}, shift = 0.0f, inverse = 0.0f;

    TESS_NO_UNROLL
    for (int pass = 0; pass < 3; pass++) {
        TESS_NO_UNROLL
        for (tess_i64 column = first; column < end; column += TESS_THREADS) {
            float score = TESS_NEG_INF;
            if (column + own < end)
                score = tess_exact_score(item, row, column + own);
            if (pass == 0)
                state.shift = tess_max(score, state.shift);
            if (pass == 1)
                state.sum += tess_os_weight(score, shift);
            if (pass != 2)
                continue;
            floats[own] = score == TESS_NEG_INF ? -1.0f : tess_os_weight(score, shift) * inverse;
            tess_barrier(); /* weights are there */
            tess_exact_add(item, column, end - column, floats, sums);
            tess_barrier(); /* and read */
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
        const tess_i32 dim = static_cast<tess_i32>(own) + i * TESS_THREADS;
        if (dim < item.o.dims)
            tess_put_element(item.o, row, dim, sums[i]);
    }
    if (item.lse.base && own == 0)
        item.lse.base[tess_value_index(item.lse, row)] = tess_os_lse(state);
}

/* Whether an element of the row, as it was stored, is not finite. */
TESS_DEVICE bool tess_is_bad_row(const tess_rows &rows, tess_i64 row, float *floats)
{
    float is_bad = 0.0f;

    TESS_NO_UNROLL
    for (tess_i32 dim = static_cast<tess_i32>(tess_thread()); dim < rows.dims; dim += TESS_THREADS)
        if (!tess_is_finite(tess_row_element(rows, row, dim)))
            is_bad = 1.0f;
    return tess_block_max(is_bad, floats) > 0.0f;
}

struct tess_exact_memory {
    tess_forward_item item;
    alignas(16) float floats[TESS_EXACT_FLOATS];
};

/* The role FORWARD REDO: rows that a checked kernel of any tile shape left non-finite. */
template <int ROWS, int DIMS, int SHARED>
TESS_DEVICE void tess_forward_redo(const tess_args &args, const tess_gpu_addresses &addresses,
                                   const tess_gpu_run &run)
{
    tess_exact_memory &memory = *tess_shared<tess_exact_memory>();
    const tess_forward_item &item = memory.item;
    const tess_u32 *const flags = reinterpret_cast<const tess_u32 *>(
        static_cast<const char *>(addresses.at[TESS_AT_WORKSPACE]) + args.redo);
    static_assert(sizeof memory == SHARED, "the line in simt.def says how much it is");

    TESS_NO_UNROLL
    for (tess_i64 i = run.first_item + tess_block(); i < run.first_item + run.items;
         i += tess_blocks()) {
        if (!flags[i])
            continue;
        tess_barrier(); /* nobody reads the item before */
        if (tess_thread() == 0)
            tess_forward_item_at(memory.item, args, addresses, i);
        tess_barrier(); /* the item is there */
        TESS_NO_UNROLL
        for (tess_i64 row = item.tile.first; row < item.tile.end; row++)
            if (tess_is_bad_row(item.o, row, memory.floats))
                tess_forward_exact(item, row, memory.floats);
    }
}

#endif
