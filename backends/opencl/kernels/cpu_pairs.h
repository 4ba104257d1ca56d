/* SPDX-License-Identifier: Apache-2.0
 * The backward pass on processors: P and the gradients of scores recomputed, a tile at a time. */
#ifndef TESSERA_BACKENDS_OPENCL_KERNELS_CPU_PAIRS_H
#define TESSERA_BACKENDS_OPENCL_KERNELS_CPU_PAIRS_H

#include "cpu_lanes.h"

/* Two kernels recompute P instead of one adding dQ from everywhere, so that every gradient has one
 * owner and its sums one order:
 *
 *     cpu_backward.cl   columns in lanes, the rows that see them stream past: dK and dV
 *     cpu_dq.cl         rows in lanes, the columns that they see stream past: dQ
 *
 * They share what is in lanes (two tensors' rows), what streams (two more), and this header. */

/* One sequence with one key head and its group of query heads. */
typedef struct cpu_pairs {
    tess_rows q, k, v, d_o;
    tess_row_values lse, delta;
    tess_scoring scoring;
    tess_visible visible;
    tess_i64 group;
    tess_i64 first, end;           /* of what is in lanes */
    tess_i64 seen_first, seen_end; /* of what streams past and has a partner in lanes */
} cpu_pairs;

TESS_FN cpu_pairs cpu_pairs_of(tess_args_at args, const tess_addresses *to, tess_sequence s,
                               tess_i64 head_kv)
{
    const tess_i64 head = head_kv * args->group;
    cpu_pairs item;

    item.q = tess_query_rows(to->at[TESS_AT_Q], args->q_stride, args->head_dim, args->dtype, s,
                             head, args->group);
    item.d_o = tess_query_rows(to->at[TESS_AT_D_O], args->do_stride, args->head_dim_v,
                               args->do_dtype, s, head, args->group);
    item.k = tess_key_rows(args, to, to->at[TESS_AT_K], args->k_stride, args->head_dim, args->dtype,
                           s, head_kv);
    item.v = tess_key_rows(args, to, to->at[TESS_AT_V], args->v_stride, args->head_dim_v,
                           args->dtype, s, head_kv);
    item.lse = tess_user_values(args, to->at[TESS_AT_LSE], s, head, args->group);
    item.delta =
        tess_work_values(args, to, args->delta, tess_first_row(args, s), head, args->group);
    item.scoring = tess_scoring_of(args, to, s, head);
    item.visible = tess_visible_of(args, s);
    item.group = args->group;
    return item;
}

/* Numbers of one folded row. */
typedef struct cpu_row {
    tess_i64 query, head;  /* head: of the group */
    tess_i32 first, end;   /* columns it sees; none when it is empty */
    float lse, delta;      /* LSE in the hook's units; +inf when the row is empty: P is 0 then */
    float slope, distance; /* ALiBi's, and i + D */
} cpu_row;

TESS_FN cpu_row cpu_row_at(const cpu_pairs *item, cpu_hook hook, tess_i64 row)
{
    const float lse = item->lse.base[tess_value_index(item->lse, row)];
    cpu_row at;

    at.query = tess_divide(row, item->group);
    at.head = row - at.query * item->group;
    at.first = (tess_i32)tess_visible_first(item->visible, at.query);
    at.end = (tess_i32)tess_visible_end(item->visible, at.query);
    at.lse = hook.is_needed ? lse : lse * TESS_LOG2_E;
    if (lse == TESS_NEG_INF) {
        at.first = at.end = 0;
        at.lse = -TESS_NEG_INF;
    }
    at.delta = item->delta.base[tess_value_index(item->delta, row)];
    at.slope =
        item->scoring.slopes ? item->scoring.slopes[at.head * item->scoring.slope_head] : 0.0f;
    at.distance = (float)(at.query + item->scoring.diagonal);
    return at;
}

/* Where the bias of a row and a column is, in elements, as a row of `count` neighbours. */
TESS_FN tess_rows cpu_bias_rows(const cpu_pairs *item)
{
    tess_rows rows = tess_no_rows();

    rows.base = (__global char *)item->scoring.bias;
    rows.dim_stride = item->scoring.bias_column;
    rows.dtype = item->scoring.bias_dtype;
    return rows;
}
TESS_FN tess_i64 cpu_bias_index(const cpu_pairs *item, cpu_row row, tess_i64 column)
{
    return row.head * item->scoring.bias_head + row.query * item->scoring.bias_row +
           column * item->scoring.bias_column;
}

/* ---- from S and dP to P and dS ----------------------------------------------------------------
 */

typedef struct cpu_pulled {
    vec weight;  /* P */
    vec chained; /* the gradient of dot(q, k), but for the scale */
} cpu_pulled;

/* Where there is no hook and nothing is absent. 2^128 stands for all beyond it. */
TESS_FN cpu_pulled cpu_pull_plain(vec product, vec product_v, vec lse, vec delta)
{
    cpu_pulled pulled;

    pulled.weight = vec_exp2(vec_min(vec_set(128.0f), product - lse));
    pulled.chained = pulled.weight * (product_v - delta);
    return pulled;
}

/* Everywhere else. Scores and LSE are in natural units with a hook until their difference is taken.
 * Absent pairs get 0 by selection; times what is not finite that is seen in the finished sum. */
TESS_FN cpu_pulled cpu_pull(cpu_hook hook, vec product, vec product_v, vec slope, vec distance,
                            vec bias, vec lse, vec delta, vec_int is_seen)
{
    const cpu_scored s = cpu_score(hook, product, slope, distance, bias);
    const float unit = hook.is_needed ? TESS_LOG2_E : 1.0f;
    const vec_int is_there = is_seen && s.natural != vec_set(TESS_NEG_INF);
    const vec power = vec_exp2(vec_min(vec_set(128.0f), (s.natural - lse) * unit));
    cpu_pulled pulled;

    pulled.weight = select(vec_set(0.0f), power, is_there);
    pulled.chained = select(vec_set(0.0f), power * (product_v - delta) * s.slope, is_there);
    return pulled;
}

/* ---- one by one -------------------------------------------------------------------------------
 */

/* One pair by itself; an absent one has weight -1. */
typedef struct cpu_exact {
    float weight, chained; /* the scale included */
} cpu_exact;

TESS_FN cpu_exact cpu_pull_exact(const cpu_pairs *item, tess_i64 row, tess_i64 column)
{
    const float lse = item->lse.base[tess_value_index(item->lse, row)];
    tess_pair pair;
    cpu_exact pulled;

    pair.query = tess_divide(row, item->group);
    pair.head = row - pair.query * item->group;
    pair.column = column;
    pulled.weight = -1.0f;
    pulled.chained = 0.0f;
    if (!tess_visible_admits(item->visible, pair.query, column) || lse == TESS_NEG_INF)
        return pulled;
    const tess_scored s =
        tess_score(item->scoring, pair, tess_row_dot(item->q, row, item->k, column));
    if (s.natural == TESS_NEG_INF)
        return pulled;
    const float delta = item->delta.base[tess_value_index(item->delta, row)];
    pulled.weight = tess_exp2((s.natural - lse) * TESS_LOG2_E);
    pulled.chained = tess_score_chain(
        item->scoring, s, pulled.weight * (tess_row_dot(item->d_o, row, item->v, column) - delta));
    return pulled;
}

/* Adds one partner's row. */
TESS_FN void cpu_add_exact(tess_rows rows, tess_i64 row, float factor, __local vec *sums)
{
    for (int d = 0; d < rows.dims; d++)
        ((__local float *)sums)[d] += factor * tess_row_element(rows, row, d);
}

#endif
