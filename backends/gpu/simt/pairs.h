/* SPDX-License-Identifier: Apache-2.0
 * The backward pass, one tile of pairs at a time: P and the gradients of scores, recomputed. */
#ifndef TESSERA_BACKENDS_GPU_SIMT_PAIRS_H
#define TESSERA_BACKENDS_GPU_SIMT_PAIRS_H

#include "backends/gpu/simt/exact.h"
#include "backends/gpu/simt/tile.h"

/* One sequence with one key head and its group of query heads, or one query head alone. */
struct tess_backward_item {
    tess_rows q, k, v, d_o;
    tess_row_values lse, delta;
    tess_scoring scoring;
    tess_visible visible;
    tess_i64 group;
    tess_i64 first, end; /* the resident rows: queries, or keys where those are resident */
    tess_i64 tile_first, tile_end; /* the tiles that stream past */
    tess_i64 seen_first, seen_end; /* of what is in them, what has a partner among the resident */
};

TESS_DEVICE tess_backward_item tess_backward_item_of(const tess_args &args,
                                                     const tess_gpu_addresses &to,
                                                     const tess_sequence &s, tess_i64 head,
                                                     tess_i64 group)
{
    const tess_i64 head_kv = tess_divide(head, args.group);
    tess_backward_item item = {};

    item.q =
        tess_query_rows(to.at[TESS_AT_Q], args.q_stride, args.head_dim, args.dtype, s, head, group);
    item.d_o = tess_query_rows(to.at[TESS_AT_D_O], args.do_stride, args.head_dim_v, args.do_dtype,
                               s, head, group);
    item.k = tess_key_rows(args, to, to.at[TESS_AT_K], args.k_stride, args.head_dim, args.dtype, s,
                           head_kv);
    item.v = tess_key_rows(args, to, to.at[TESS_AT_V], args.v_stride, args.head_dim_v, args.dtype,
                           s, head_kv);
    item.lse = tess_user_values(args, to.at[TESS_AT_LSE], s, head, group);
    item.delta = tess_work_values(args, to, args.delta, tess_first_row(args, s), head, group);
    item.scoring = tess_scoring_of(args, to, s, head);
    item.visible = tess_visible_of(args, s);
    item.group = group;
    return item;
}

/* One pair, chained back. An absent one has weight -1 and no gradients. */
struct tess_pulled {
    float weight;   /* P */
    float gradient; /* of the score */
    float chained;  /* of dot(q, k) */
};

TESS_DEVICE tess_pulled tess_pull(const tess_backward_item &item, tess_i64 row, tess_i64 column,
                                  float dot, float dot_v)
{
    const tess_i64 query = item.group > 1 ? tess_divide(row, item.group) : row;
    const tess_pair pair = {query, row - query * item.group, column};
    tess_pulled pulled = {-1.0f, 0.0f, 0.0f};

    if (row >= item.q.count || !tess_visible_admits(item.visible, query, column))
        return pulled;
    const tess_scored s = tess_score(item.scoring, pair, dot);
    const float lse = item.lse.base[tess_value_index(item.lse, row)];
    if (s.natural == TESS_NEG_INF || lse == TESS_NEG_INF)
        return pulled;
    const float delta = item.delta.base[tess_value_index(item.delta, row)];
    pulled.weight = tess_exp2((s.natural - lse) * TESS_LOG2_E);
    pulled.gradient = pulled.weight * (dot_v - delta);
    pulled.chained = tess_score_chain(item.scoring, s, pulled.gradient);
    return pulled;
}

template <class SHAPE> struct tess_backward_memory {
    tess_backward_item item;
    tess_i64 index_a[TESS_COLUMNS], index_b[TESS_COLUMNS]; /* of what streams past */
    /* Q and dO, or K and V */
    alignas(16) float a[SHAPE::ROWS * SHAPE::PITCH], b[SHAPE::ROWS * SHAPE::PITCH];
    float stage[2 * SHAPE::STAGE];
    float weights[SHAPE::ROWS * TESS_WEIGHT_PITCH]; /* P; of bias and slopes: nothing */
    float grads[SHAPE::ROWS * TESS_WEIGHT_PITCH];
    float factors[SHAPE::ROWS];
    tess_u32 is_bad[SHAPE::ROWS];
};

/* Which side of the pairs is resident, and which gradient is wanted in grads. */
enum { TESS_QUERIES_STAY, TESS_KEYS_STAY };
enum { TESS_CHAINED, TESS_OF_SCORE };

/* The thread's own pairs of a tile, from dots in weights (S) and grads (dO V^T) to P and gradients.
 * One loop, as in tess_score_tile(). */
template <class SHAPE, int STAY, int WANTED>
TESS_DEVICE void tess_pull_tile(const tess_backward_item &item, tess_i64 streamed, float *weights,
                                float *grads)
{
    TESS_NO_UNROLL
    for (int i = 0; i < SHAPE::ROWS_EACH * TESS_COLUMNS_EACH; i++) {
        const tess_i32 y = tess_own_y() + i / TESS_COLUMNS_EACH * TESS_GRID_ROWS;
        const tess_i32 x = tess_own_x() + i % TESS_COLUMNS_EACH * TESS_GRID_COLUMNS;
        float &weight = weights[y * TESS_WEIGHT_PITCH + x];
        float &grad = grads[y * TESS_WEIGHT_PITCH + x];
        const tess_i64 row = STAY == TESS_QUERIES_STAY ? item.first + y : streamed + x;
        const tess_i64 column = STAY == TESS_QUERIES_STAY ? streamed + x : item.first + y;
        const tess_pulled pulled = tess_pull(item, row, column, weight, grad);
        weight = pulled.weight < 0.0f ? 0.0f : pulled.weight;
        grad = WANTED == TESS_CHAINED ? pulled.chained : pulled.gradient;
    }
}

/* Stores the thread's scores where they are its own. */
template <class SHAPE>
TESS_DEVICE void tess_lay_dots(const float (&dots)[SHAPE::ROWS_EACH][TESS_COLUMNS_EACH], float *to)
{
    to += tess_own_y() * TESS_WEIGHT_PITCH + tess_own_x();
    TESS_UNROLL
    for (int i = 0; i < SHAPE::ROWS_EACH * TESS_COLUMNS_EACH; i++)
        to[i / TESS_COLUMNS_EACH * TESS_GRID_ROWS * TESS_WEIGHT_PITCH +
           i % TESS_COLUMNS_EACH * TESS_GRID_COLUMNS] =
            dots[i / TESS_COLUMNS_EACH][i % TESS_COLUMNS_EACH];
}

/* One tile of pairs: the resident rows against those from `streamed` on. Leaves weights and grads,
 * and the first chunk of `next`; the barrier at its end makes them seen. */
template <class SHAPE, int STAY, int WANTED, class NEXT>
TESS_DEVICE void tess_pair_tile(const tess_backward_item &item, tess_i64 streamed, const NEXT &next,
                                tess_pipe<SHAPE> &pipe, tess_backward_memory<SHAPE> &memory)
{
    const tess_rows &a = STAY == TESS_QUERIES_STAY ? item.k : item.q;
    const tess_rows &b = STAY == TESS_QUERIES_STAY ? item.v : item.d_o;
    const tess_by_dims<SHAPE> from_a = {tess_stream_of(a, memory.index_a)};
    const tess_by_dims<SHAPE> from_b = {tess_stream_of(b, memory.index_b)};
    float dots[SHAPE::ROWS_EACH][TESS_COLUMNS_EACH];

    if (tess_thread() < TESS_COLUMNS) {
        const tess_i64 row = streamed + tess_thread();
        const bool is_there = row >= item.seen_first && row < item.seen_end;
        memory.index_a[tess_thread()] = is_there ? tess_row_index(a, row) : TESS_NO_ROW;
        memory.index_b[tess_thread()] = is_there ? tess_row_index(b, row) : TESS_NO_ROW;
    }
    tess_barrier(); /* the lists are there */
    tess_pipe_start(pipe, from_a);
    tess_dots<SHAPE>(dots, memory.a, from_a, from_b, pipe);
    tess_lay_dots<SHAPE>(dots, memory.weights);
    tess_dots<SHAPE>(dots, memory.b, from_b, next, pipe);
    tess_lay_dots<SHAPE>(dots, memory.grads);
    tess_pull_tile<SHAPE, STAY, WANTED>(item, streamed, memory.weights, memory.grads);
    tess_barrier(); /* P and gradients are there */
}

/* One pair by itself. */
TESS_DEVICE tess_pulled tess_pull_exact(const tess_backward_item &item, tess_i64 row,
                                        tess_i64 column)
{
    return tess_pull(item, row, column, tess_row_dot(item.q, row, item.k, column),
                     tess_row_dot(item.d_o, row, item.v, column));
}

#endif
