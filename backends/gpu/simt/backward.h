/* SPDX-License-Identifier: Apache-2.0
 * The backward pass on plain cores: every gradient by one owner, so that no two threads add to one
 * number and sums have one order. */
#ifndef TESSERA_BACKENDS_GPU_SIMT_BACKWARD_H
#define TESSERA_BACKENDS_GPU_SIMT_BACKWARD_H

#include "backends/gpu/simt/pairs.h"

/* Two kernels recompute P instead of one adding dQ from everywhere (pairs.h):
 *
 *     MAIN   K and V of a tile of keys stay, Q and dO of all rows that see it stream past
 *                dV += P^T dO, dK += g^T Q
 *     DQ     Q and dO of a tile of folded rows stay, K and V stream past
 *                dQ += g K
 *
 * The heads of a group are rows like others, so their sum is part of the product. Rows and columns
 * that come out non-finite are computed again by their block, absent pairs skipped. */

/* First query whose visible columns end behind `column`. They grow with the query. */
TESS_DEVICE tess_i64 tess_first_query(const tess_visible &visible, tess_i64 queries,
                                      tess_i64 column)
{
    tess_i64 low = 0, high = queries;

    while (low < high) {
        const tess_i64 middle = (low + high) / 2;
        if (tess_visible_end(visible, middle) > column)
            high = middle;
        else
            low = middle + 1;
    }
    return low;
}

/* One past the last query whose visible columns begin before `end`. */
TESS_DEVICE tess_i64 tess_end_query(const tess_visible &visible, tess_i64 queries, tess_i64 end)
{
    tess_i64 low = 0, high = queries;

    while (low < high) {
        const tess_i64 middle = (low + high) / 2;
        if (tess_visible_first(visible, middle) < end)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* Adds one partner's share to the thread's dims of a row. */
TESS_DEVICE void tess_add_exact(float (&sums)[TESS_EXACT_DIMS], float factor, const tess_rows &rows,
                                tess_i64 row)
{
    TESS_UNROLL
    for (int i = 0; i < TESS_EXACT_DIMS; i++) {
        const tess_i32 dim = static_cast<tess_i32>(tess_thread()) + i * TESS_THREADS;
        if (dim < rows.dims)
            sums[i] += factor * tess_row_element(rows, row, dim);
    }
}

TESS_DEVICE void tess_put_exact(const float (&sums)[TESS_EXACT_DIMS], const tess_rows &to,
                                tess_i64 row)
{
    TESS_UNROLL
    for (int i = 0; i < TESS_EXACT_DIMS; i++) {
        const tess_i32 dim = static_cast<tess_i32>(tess_thread()) + i * TESS_THREADS;
        if (to.base && dim < to.dims)
            tess_put_element(to, row, dim, sums[i]);
    }
}

/* dK and dV of one column, or dQ of one folded row (in dk), absent pairs skipped. Streams over
 * partners first ... end - 1; `floats` is room for two numbers of each thread. */
template <int STAY>
TESS_DEVICE void tess_backward_exact(const tess_backward_item &item, tess_i64 own, tess_i64 first,
                                     tess_i64 end, const tess_rows &to_a, const tess_rows &to_b,
                                     float *floats)
{
    const tess_i32 thread = static_cast<tess_i32>(tess_thread());
    float a[TESS_EXACT_DIMS] = {}, b[TESS_EXACT_DIMS] = {};

    TESS_NO_UNROLL
    for (tess_i64 at = first; at < end; at += TESS_THREADS) {
        tess_pulled pulled = {-1.0f, 0.0f, 0.0f};
        if (at + thread < end)
            pulled = STAY == TESS_QUERIES_STAY ? tess_pull_exact(item, own, at + thread)
                                               : tess_pull_exact(item, at + thread, own);
        floats[thread] = pulled.weight;
        floats[TESS_THREADS + thread] = pulled.chained;
        tess_barrier(); /* pairs are there */
        TESS_NO_UNROLL
        for (tess_i32 j = 0; j < TESS_THREADS; j++) {
            if (floats[j] < 0.0f) /* absent; a NaN is not */
                continue;
            tess_add_exact(a, floats[TESS_THREADS + j], STAY == TESS_QUERIES_STAY ? item.k : item.q,
                           at + j);
            if (STAY == TESS_KEYS_STAY)
                tess_add_exact(b, floats[j], item.d_o, at + j);
        }
        tess_barrier(); /* and read */
    }
    tess_put_exact(a, to_a, own);
    if (STAY == TESS_KEYS_STAY)
        tess_put_exact(b, to_b, own);
}

/* Writes one gradient of a tile and marks what is not finite. */
template <class SHAPE>
TESS_DEVICE void tess_put_gradient(const tess_quad (&sums)[SHAPE::ROWS_EACH][SHAPE::QUADS_EACH],
                                   const tess_rows &to, tess_backward_memory<SHAPE> &memory)
{
    const tess_i32 count = static_cast<tess_i32>(memory.item.end - memory.item.first);

    tess_lay_down<SHAPE>(sums, memory.a); /* which no product reads any more */
    tess_barrier();                       /* the sums are there */
    if (to.base)
        tess_put_rows<SHAPE>(to, memory.item.first, count, memory.a, memory.factors, memory.is_bad);
    tess_barrier(); /* and written, and marks are there */
}

template <class SHAPE> TESS_DEVICE void tess_start_marks(tess_backward_memory<SHAPE> &memory)
{
    if (tess_thread() < SHAPE::ROWS) {
        memory.factors[tess_thread()] = 1.0f;
        memory.is_bad[tess_thread()] = 0;
    }
}

/* ---- dK and dV --------------------------------------------------------------------------------
 */

TESS_DEVICE tess_backward_item tess_keys_item_at(const tess_args &args,
                                                 const tess_gpu_addresses &to, tess_i64 index,
                                                 tess_rows &dk, tess_rows &dv)
{
    const tess_i64 shares =
        tess_max_i64(tess_divide(args.columns + args.share_columns - 1, args.share_columns), 1);
    const tess_i64 heads = tess_divide(index, shares);
    if (heads >=
        args.sequences * args.heads_kv) /* a schedule has an item even when there is none */
        return tess_backward_item();
    const tess_i64 sequence = tess_divide(heads, args.heads_kv);
    const tess_i64 head_kv = heads - sequence * args.heads_kv;
    const tess_sequence s = tess_sequence_at(args, to, sequence);
    tess_backward_item item = tess_backward_item_of(args, to, s, head_kv * args.group, args.group);

    item.first = (index - heads * shares) * args.share_columns;
    item.end = tess_min_i64(item.first + args.share_columns, s.columns);
    const tess_i64 begin = tess_first_query(item.visible, s.rows, item.first) * args.group;
    const tess_i64 end = tess_end_query(item.visible, s.rows, item.end) * args.group;
    item.seen_first = begin;
    item.seen_end = end;
    item.tile_first = begin / TESS_COLUMNS;
    item.tile_end = end > begin ? (end + TESS_COLUMNS - 1) / TESS_COLUMNS : item.tile_first;
    dk = tess_key_rows(args, to, to.at[TESS_AT_DK], args.dk_stride, args.head_dim, args.dk_dtype, s,
                       head_kv);
    dv = tess_key_rows(args, to, to.at[TESS_AT_DV], args.dv_stride, args.head_dim_v, args.dv_dtype,
                       s, head_kv);
    if (!to.at[TESS_AT_DK])
        dk.base = nullptr;
    if (!to.at[TESS_AT_DV])
        dv.base = nullptr;
    return item;
}

template <class SHAPE> struct tess_keys_memory {
    tess_backward_memory<SHAPE> tile;
    tess_rows dk, dv;
};

template <class SHAPE>
TESS_DEVICE void tess_keys_tile(const tess_args &args, tess_keys_memory<SHAPE> &all)
{
    tess_backward_memory<SHAPE> &memory = all.tile;
    const tess_backward_item &item = memory.item;
    const tess_by_rows<SHAPE> d_o = {tess_stream_of(item.d_o, memory.index_b)};
    const tess_by_rows<SHAPE> q = {tess_stream_of(item.q, memory.index_a)};
    const tess_no_more<SHAPE> no_more = {};
    tess_quad dk[SHAPE::ROWS_EACH][SHAPE::QUADS_EACH], dv[SHAPE::ROWS_EACH][SHAPE::QUADS_EACH];
    tess_pipe<SHAPE> pipe = {memory.stage, 0};

    tess_start_marks<SHAPE>(memory);
    tess_keep_resident<SHAPE>(item.k, item.first, memory.a);
    tess_keep_resident<SHAPE>(item.v, item.first, memory.b);
    tess_clear<SHAPE>(dk);
    tess_clear<SHAPE>(dv);
    TESS_NO_UNROLL
    for (tess_i64 tile = item.tile_first; tile < item.tile_end; tile++) {
        const tess_i64 row = tile * TESS_COLUMNS;
        tess_pair_tile<SHAPE, TESS_KEYS_STAY, TESS_CHAINED>(item, row, d_o, pipe, memory);
        tess_sums<SHAPE>(dv, memory.weights, d_o, item.seen_end - row, q, pipe);
        tess_sums<SHAPE>(dk, memory.grads, q, item.seen_end - row, no_more, pipe);
    }
    tess_barrier(); /* marks are there even when no tile was */
    tess_put_gradient<SHAPE>(dk, all.dk, memory);
    tess_put_gradient<SHAPE>(dv, all.dv, memory);
    if (args.flags & TESS_ALLOW_NONFINITE_SPREAD)
        return;
    TESS_NO_UNROLL
    for (tess_i32 r = 0; item.first + r < item.end; r++)
        if (memory.is_bad[r])
            tess_backward_exact<TESS_KEYS_STAY>(item, item.first + r, item.seen_first,
                                                item.seen_end, all.dk, all.dv, memory.stage);
}

/* The role BACKWARD MAIN. COLUMNS is the tile that stays: the line's tile_columns. */
template <int COLUMNS, int DIMS, int SHARED>
TESS_DEVICE void tess_backward_main(const tess_args &args, const tess_gpu_addresses &addresses,
                                    const tess_gpu_run &run)
{
    typedef tess_shape<COLUMNS, DIMS> shape;
    tess_keys_memory<shape> &memory = *tess_shared<tess_keys_memory<shape>>();
    static_assert(sizeof memory == SHARED, "the line in simt.def says how much it is");

    TESS_NO_UNROLL
    for (tess_i64 i = run.first_item + tess_block(); i < run.first_item + run.items;
         i += tess_blocks()) {
        if (tess_thread() == 0)
            memory.tile.item = tess_keys_item_at(args, addresses, i, memory.dk, memory.dv);
        tess_barrier(); /* the item is there */
        if (memory.tile.item.first < memory.tile.item.end)
            tess_keys_tile<shape>(args, memory);
        tess_barrier(); /* before the next item writes where this one reads */
    }
}

/* ---- dQ ---------------------------------------------------------------------------------------
 */

/* Resident queries first ... end - 1 (folded) and the tiles of columns that one of them sees. */
TESS_DEVICE void tess_take_queries(tess_backward_item &item, tess_i64 first, tess_i64 end)
{
    item.first = first;
    item.end = end;
    if (first >= end)
        return;
    const tess_column_walk walk =
        tess_walk_columns(item.visible, tess_walk_query(first, item.group),
                          tess_walk_query(end - 1, item.group), TESS_COLUMNS, 0, 1);
    item.tile_first = walk.first;
    item.tile_end = walk.end;
    item.seen_first = tess_visible_first(item.visible, tess_walk_query(first, item.group));
    item.seen_end = tess_visible_end(item.visible, tess_walk_query(end - 1, item.group));
}

TESS_DEVICE tess_backward_item tess_queries_item_at(const tess_args &args,
                                                    const tess_gpu_addresses &to, tess_i64 index,
                                                    tess_rows &dq)
{
    const tess_item_place place = tess_item_place_at(args, index, 1);
    const tess_sequence s = tess_sequence_at(args, to, place.sequence);
    const tess_i64 head = place.head_kv * args.group;
    const tess_row_tile tile =
        tess_walk_row_tile(place.tile, args.row_tiles, s.rows, args.group, args.tile_rows);
    tess_backward_item item = tess_backward_item_of(args, to, s, head, args.group);

    tess_take_queries(item, tile.first, tile.end);
    dq = tess_query_rows(to.at[TESS_AT_DQ], args.dq_stride, args.head_dim, args.dq_dtype, s, head,
                         args.group);
    return item;
}

template <class SHAPE> struct tess_queries_memory {
    tess_backward_memory<SHAPE> tile;
    tess_rows dq;
};

template <class SHAPE>
TESS_DEVICE void tess_queries_tile(const tess_args &args, tess_queries_memory<SHAPE> &all)
{
    tess_backward_memory<SHAPE> &memory = all.tile;
    const tess_backward_item &item = memory.item;
    const tess_by_rows<SHAPE> k = {tess_stream_of(item.k, memory.index_a)};
    const tess_no_more<SHAPE> no_more = {};
    tess_quad dq[SHAPE::ROWS_EACH][SHAPE::QUADS_EACH];
    tess_pipe<SHAPE> pipe = {memory.stage, 0};

    tess_start_marks<SHAPE>(memory);
    tess_keep_resident<SHAPE>(item.q, item.first, memory.a);
    tess_keep_resident<SHAPE>(item.d_o, item.first, memory.b);
    tess_clear<SHAPE>(dq);
    TESS_NO_UNROLL
    for (tess_i64 tile = item.tile_first; tile < item.tile_end; tile++) {
        const tess_i64 column = tile * TESS_COLUMNS;
        tess_pair_tile<SHAPE, TESS_QUERIES_STAY, TESS_CHAINED>(item, column, k, pipe, memory);
        tess_sums<SHAPE>(dq, memory.grads, k, item.seen_end - column, no_more, pipe);
    }
    tess_barrier(); /* marks are there even when no tile was */
    tess_put_gradient<SHAPE>(dq, all.dq, memory);
    if (args.flags & TESS_ALLOW_NONFINITE_SPREAD)
        return;
    TESS_NO_UNROLL
    for (tess_i32 r = 0; item.first + r < item.end; r++)
        if (memory.is_bad[r])
            tess_backward_exact<TESS_QUERIES_STAY>(item, item.first + r, item.seen_first,
                                                   item.seen_end, all.dq, all.dq, memory.stage);
}

/* The role BACKWARD DQ. */
template <int ROWS, int DIMS, int SHARED>
TESS_DEVICE void tess_backward_dq(const tess_args &args, const tess_gpu_addresses &addresses,
                                  const tess_gpu_run &run)
{
    typedef tess_shape<ROWS, DIMS> shape;
    tess_queries_memory<shape> &memory = *tess_shared<tess_queries_memory<shape>>();
    static_assert(sizeof memory == SHARED, "the line in simt.def says how much it is");

    TESS_NO_UNROLL
    for (tess_i64 i = run.first_item + tess_block(); i < run.first_item + run.items;
         i += tess_blocks()) {
        if (tess_thread() == 0)
            memory.tile.item = tess_queries_item_at(args, addresses, i, memory.dq);
        tess_barrier(); /* the item is there */
        if (memory.tile.item.first < memory.tile.item.end)
            tess_queries_tile<shape>(args, memory);
        tess_barrier(); /* before the next item writes where this one reads */
    }
}

#endif
