/* SPDX-License-Identifier: Apache-2.0
 * The backward pass, one tile of pairs at a time: P and the gradients of scores, recomputed. */
#ifndef TESSERA_BACKENDS_OPENCL_KERNELS_PAIRS_H
#define TESSERA_BACKENDS_OPENCL_KERNELS_PAIRS_H

#include "item.h"
#include "tile.h"

/* Every gradient has one owner, so that no two work-items add to one number and sums have one
 * order. Two kernels recompute P instead of one adding dQ from everywhere:
 *
 *     MAIN   K and V of a tile of keys stay, Q and dO of all rows that see it stream past
 *                dV += P^T dO, dK += g^T Q
 *     DQ     Q and dO of a tile of folded rows stay, K and V stream past
 *                dQ += g K
 *
 * The heads of a group are rows like others, so their sum is part of the product. Rows and columns
 * that come out non-finite are computed again by their group, absent pairs skipped.
 *
 * The kernel defines one of TESS_QUERIES_STAY and TESS_KEYS_STAY. */

/* One sequence with one key head and its group of query heads, or one query head alone. */
typedef struct tess_backward_item {
    tess_rows q, k, v, d_o;
    tess_row_values lse, delta;
    tess_scoring scoring;
    tess_visible visible;
    tess_i64 group;
    tess_i64 first, end; /* the resident rows: queries, or keys where those are resident */
    tess_i64 tile_first, tile_end; /* the tiles that stream past */
    tess_i64 seen_first, seen_end; /* of what is in them, what has a partner among the resident */
} tess_backward_item;

TESS_FN tess_backward_item tess_backward_item_of(tess_args_at args, const tess_addresses *to,
                                                 tess_sequence s, tess_i64 head, tess_i64 group)
{
    const tess_i64 head_kv = tess_divide(head, args->group);
    tess_backward_item item;

    item.q = tess_query_rows(to->at[TESS_AT_Q], args->q_stride, args->head_dim, args->dtype, s,
                             head, group);
    item.d_o = tess_query_rows(to->at[TESS_AT_D_O], args->do_stride, args->head_dim_v,
                               args->do_dtype, s, head, group);
    item.k = tess_key_rows(args, to, to->at[TESS_AT_K], args->k_stride, args->head_dim, args->dtype,
                           s, head_kv);
    item.v = tess_key_rows(args, to, to->at[TESS_AT_V], args->v_stride, args->head_dim_v,
                           args->dtype, s, head_kv);
    item.lse = tess_user_values(args, to->at[TESS_AT_LSE], s, head, group);
    item.delta = tess_work_values(args, to, args->delta, tess_first_row(args, s), head, group);
    item.scoring = tess_scoring_of(args, to, s, head);
    item.visible = tess_visible_of(args, s);
    item.group = group;
    item.first = item.end = 0;
    item.tile_first = item.tile_end = 0;
    item.seen_first = item.seen_end = 0;
    return item;
}

/* Resident queries first ... end - 1 (folded) and the tiles of columns that one of them sees. */
TESS_FN tess_backward_item tess_take_queries(tess_backward_item item, tess_i64 first, tess_i64 end)
{
    tess_i64 query_first, query_last;
    tess_column_walk walk;

    item.first = first;
    item.end = end;
    if (first >= end)
        return item;
    query_first = tess_walk_query(first, item.group);
    query_last = tess_walk_query(end - 1, item.group);
    walk = tess_walk_columns(item.visible, query_first, query_last, TESS_STREAM, 0, 1);
    item.tile_first = walk.first;
    item.tile_end = walk.end;
    item.seen_first = tess_visible_first(item.visible, query_first);
    item.seen_end = tess_visible_end(item.visible, query_last);
    return item;
}

/* One pair, chained back. An absent one has weight -1 and no gradients. */
typedef struct tess_pulled {
    float weight;   /* P */
    float gradient; /* of the score */
    float chained;  /* of dot(q, k) */
} tess_pulled;

TESS_FN tess_pulled tess_pull(__local const tess_backward_item *item, tess_i64 row, tess_i64 column,
                              float dot_product, float dot_v)
{
    tess_pulled pulled;
    tess_pair pair;
    tess_scored s;
    float lse;

    pulled.weight = -1.0f;
    pulled.gradient = pulled.chained = 0.0f;
    pair.query = item->group > 1 ? tess_divide(row, item->group) : row;
    pair.head = row - pair.query * item->group;
    pair.column = column;
    if (row >= item->q.count || !tess_visible_admits(item->visible, pair.query, column))
        return pulled;
    s = tess_score(item->scoring, pair, dot_product);
    lse = item->lse.base[tess_value_index(item->lse, row)];
    if (s.natural == TESS_NEG_INF || lse == TESS_NEG_INF)
        return pulled;
    pulled.weight = tess_exp2((s.natural - lse) * TESS_LOG2_E);
    pulled.gradient =
        pulled.weight * (dot_v - item->delta.base[tess_value_index(item->delta, row)]);
    pulled.chained = tess_score_chain(item->scoring, s, pulled.gradient);
    return pulled;
}

typedef struct tess_backward_memory {
    float4 resident[2][TESS_STAY * TESS_PITCH]; /* Q and dO, or K and V */
    float4 stage[TESS_STAGE];
    /* P, and gradients; before them the dots of both */
    float weights[2][TESS_STAY * TESS_WEIGHT_PITCH] __attribute__((aligned(16)));
    tess_backward_item item;
    tess_rows to[2];                /* dQ, or dK and dV */
    tess_i64 index[2][TESS_STREAM]; /* of what streams past */
    float factors[TESS_STAY];
    tess_u32 is_bad[TESS_STAY];
} tess_backward_memory;

TESS_CL_ASSERT(tess_the_line_says_how_much_it_is, sizeof(tess_backward_memory) <= TESS_CL_LOCAL);
TESS_CL_ASSERT(tess_floats_fit_the_stage, 2 * TESS_CL_GROUP <= 4 * TESS_STAGE);

/* The work-item's own pairs of a tile, from dots in weights (S) and grads (dO V^T) to P and
 * gradients: of dot(q, k), or of scores. */
TESS_FN void tess_pull_tile(__local const tess_backward_item *item, tess_i64 streamed,
                            int is_of_score, __local float *weights, __local float *grads)
{
    TESS_NO_UNROLL
    for (int i = 0; i < TESS_ROWS_EACH * TESS_COLUMNS_EACH; i++) {
        const tess_i32 y = tess_own_y() + i / TESS_COLUMNS_EACH * TESS_GRID_ROWS;
        const tess_i32 x = tess_own_x() + i % TESS_COLUMNS_EACH * TESS_GRID_COLUMNS;
        const tess_i32 at = y * TESS_WEIGHT_PITCH + x;
#ifdef TESS_QUERIES_STAY
        const tess_pulled pulled =
            tess_pull(item, item->first + y, streamed + x, weights[at], grads[at]);
#else
        const tess_pulled pulled =
            tess_pull(item, streamed + x, item->first + y, weights[at], grads[at]);
#endif
        weights[at] = pulled.weight < 0.0f ? 0.0f : pulled.weight;
        grads[at] = is_of_score ? pulled.gradient : pulled.chained;
    }
}

/* Stores the work-item's scores where they are its own. */
TESS_FN void tess_lay_dots(float dots[TESS_ROWS_EACH][TESS_COLUMNS_EACH], __local float *to)
{
    to += tess_own_y() * TESS_WEIGHT_PITCH + tess_own_x();
    TESS_UNROLL
    for (int r = 0; r < TESS_ROWS_EACH; r++)
        TESS_UNROLL
    for (int c = 0; c < TESS_COLUMNS_EACH; c++)
        to[r * TESS_GRID_ROWS * TESS_WEIGHT_PITCH + c * TESS_GRID_COLUMNS] = dots[r][c];
}

#ifdef TESS_QUERIES_STAY
#define TESS_GRADIENTS 1
#define TESS_STREAM_A(item) ((item)->k)
#define TESS_STREAM_B(item) ((item)->v)
#define TESS_STAY_A(item) ((item)->q)
#define TESS_STAY_B(item) ((item)->d_o)
#else
#define TESS_GRADIENTS 2
#define TESS_STREAM_A(item) ((item)->q)
#define TESS_STREAM_B(item) ((item)->d_o)
#define TESS_STAY_A(item) ((item)->k)
#define TESS_STAY_B(item) ((item)->v)
#endif

TESS_FN void tess_keep_pairs(__local tess_backward_memory *memory)
{
    tess_keep_resident(TESS_STAY_A(&memory->item), memory->item.first, memory->resident[0]);
    tess_keep_resident(TESS_STAY_B(&memory->item), memory->item.first, memory->resident[1]);
    if (tess_thread() < TESS_STAY) {
        memory->factors[tess_thread()] = 1.0f;
        memory->is_bad[tess_thread()] = 0;
    }
}

/* What streams past: of dot(q, k), or of dot(dO, v). */
TESS_FN tess_stream tess_stream_at(__local const tess_backward_memory *memory, int which)
{
    if (which)
        return tess_stream_of(TESS_STREAM_B(&memory->item), memory->index[1]);
    return tess_stream_of(TESS_STREAM_A(&memory->item), memory->index[0]);
}

/* One tile of pairs: the resident rows against those from `streamed` on. Leaves weights[0], P, and
 * weights[1], gradients; the barrier at its end makes them seen. Both products are one in the text,
 * which halves what a driver compiles. */
TESS_FN void tess_pair_tile(tess_i64 streamed, int is_of_score,
                            __local tess_backward_memory *memory)
{
    __local const tess_backward_item *const item = &memory->item;

    tess_list_rows(TESS_STREAM_A(item), streamed, item->seen_first, item->seen_end,
                   memory->index[0]);
    tess_list_rows(TESS_STREAM_B(item), streamed, item->seen_first, item->seen_end,
                   memory->index[1]);
    TESS_BARRIER(); /* the lists are there, and the resident rows */
    TESS_NO_UNROLL
    for (int which = 0; which < 2; which++) {
        float dots[TESS_ROWS_EACH][TESS_COLUMNS_EACH];
        tess_dots(dots, memory->resident[which], tess_stream_at(memory, which), memory->stage);
        tess_lay_dots(dots, memory->weights[which]);
    }
    tess_pull_tile(item, streamed, is_of_score, memory->weights[0], memory->weights[1]);
    TESS_BARRIER(); /* P and gradients are there */
}

/* Writes the gradients of a tile and marks what is not finite. */
TESS_FN void tess_put_gradients(float4 sums[TESS_GRADIENTS][TESS_ROWS_EACH][TESS_QUADS_EACH],
                                __local tess_backward_memory *memory)
{
    const tess_i32 count = (tess_i32)(memory->item.end - memory->item.first);

    TESS_UNROLL
    for (int which = 0; which < TESS_GRADIENTS; which++)
        tess_lay_down(sums[which], memory->resident[which]); /* which no product reads any more */
    TESS_BARRIER();                                          /* the sums are there */
    TESS_NO_UNROLL
    for (int which = 0; which < TESS_GRADIENTS; which++)
        if (memory->to[which].base)
            tess_put_rows(memory->to[which], memory->item.first, count, memory->resident[which],
                          memory->factors, memory->is_bad);
    /* and written, before others write rows again; and marks are there */
    barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE);
}

/* ---- One row or column by itself --------------------------------------------------------------
 */

#define TESS_EXACT_DIMS ((TESS_CL_DIMS + TESS_CL_GROUP - 1) / TESS_CL_GROUP)

/* Adds one partner's share to the work-item's dims of a row. */
TESS_FN void tess_add_exact(float sums[TESS_EXACT_DIMS], float factor, tess_rows rows, tess_i64 row)
{
    TESS_UNROLL
    for (int i = 0; i < TESS_EXACT_DIMS; i++) {
        const tess_i32 dim = tess_thread() + i * TESS_CL_GROUP;
        if (dim < rows.dims)
            sums[i] += factor * tess_row_element(rows, row, dim);
    }
}

TESS_FN void tess_put_exact(float sums[TESS_EXACT_DIMS], tess_rows to, tess_i64 row)
{
    TESS_UNROLL
    for (int i = 0; i < TESS_EXACT_DIMS; i++) {
        const tess_i32 dim = tess_thread() + i * TESS_CL_GROUP;
        if (to.base && dim < to.dims)
            tess_put_element(to, row, dim, sums[i]);
    }
}

/* The gradients of marked rows once more, absent pairs skipped. Every row goes this way and those
 * that are not marked have no partners: barriers stay outside of conditions. `floats` is room for
 * two numbers of each work-item. */
TESS_FN void tess_backward_exact(__local tess_backward_memory *memory, __local float *floats)
{
    __local const tess_backward_item *const item = &memory->item;

    TESS_NO_UNROLL
    for (tess_i64 own = item->first; own < item->end; own++) {
        const int is_bad = memory->is_bad[own - item->first] != 0;
        const tess_i64 end = is_bad ? item->seen_end : item->seen_first;
        float a[TESS_EXACT_DIMS], b[TESS_EXACT_DIMS];

        TESS_UNROLL
        for (int i = 0; i < TESS_EXACT_DIMS; i++)
            a[i] = b[i] = 0.0f;
        TESS_NO_UNROLL
        for (tess_i64 at = item->seen_first; at < end; at += TESS_CL_GROUP) {
            const tess_i64 partner = at + tess_thread();
            tess_pulled pulled;

            pulled.weight = -1.0f;
            pulled.chained = 0.0f;
            if (partner < end) {
#ifdef TESS_QUERIES_STAY
                const tess_i64 row = own, column = partner;
#else
                const tess_i64 row = partner, column = own;
#endif
                pulled = tess_pull(item, row, column, tess_row_dot(item->q, row, item->k, column),
                                   tess_row_dot(item->d_o, row, item->v, column));
            }
            floats[tess_thread()] = pulled.weight;
            floats[TESS_CL_GROUP + tess_thread()] = pulled.chained;
            TESS_BARRIER(); /* pairs are there */
            TESS_NO_UNROLL
            for (tess_i32 j = 0; j < TESS_CL_GROUP; j++) {
                if (!(floats[j] < 0.0f)) { /* else absent; a NaN is not */
                    tess_add_exact(a, floats[TESS_CL_GROUP + j], TESS_STREAM_A(item), at + j);
#ifdef TESS_KEYS_STAY
                    tess_add_exact(b, floats[j], TESS_STREAM_B(item), at + j);
#endif
                }
            }
            TESS_BARRIER(); /* and read */
        }
        if (is_bad) {
            tess_put_exact(a, memory->to[0], own);
#ifdef TESS_KEYS_STAY
            tess_put_exact(b, memory->to[1], own);
#endif
        }
    }
}

#endif
