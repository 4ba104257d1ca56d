/* SPDX-License-Identifier: Apache-2.0
 * One pair of row and column, one score: the lines that both scalar kernels and all redos share. */
#ifndef TESSERA_BACKENDS_CPU_PAIR_H
#define TESSERA_BACKENDS_CPU_PAIR_H

#include "backends/cpu/access.h"

/* Columns first ... end - 1. */
typedef struct tess_cpu_span {
    int64_t first, end;
} tess_cpu_span;

/* Those of `columns` that a row sees. */
static inline tess_cpu_span tess_cpu_seen(const tess_cpu_work *work, int64_t folded_row,
                                          tess_cpu_span columns)
{
    const int64_t query = tess_walk_query(folded_row, work->args->group);
    return (tess_cpu_span){
        tess_max_i64(columns.first, tess_visible_first(work->visible, query)),
        tess_min_i64(columns.end, tess_visible_end(work->visible, query)),
    };
}

/* dot(q_i, k_j), one sum in the order of d. */
static inline float tess_cpu_dot(const tess_cpu_work *work, int64_t folded_row, int64_t column)
{
    const tess_args *args = work->args;
    const int64_t q = tess_cpu_row(work, args->q_stride, folded_row);
    const int64_t k = tess_cpu_column(work, args->k_stride, column);
    float sum = 0.0f;

    for (int64_t d = 0; d < args->head_dim; d++)
        sum += tess_cpu_load(work->q, q + d * args->q_stride[3], args->dtype) *
               tess_cpu_load(work->k, k + d * args->k_stride[3], args->dtype);
    return sum;
}

/* |i + D - j|, what an ALiBi slope is multiplied by. */
static inline float tess_cpu_distance(const tess_cpu_work *work, int64_t folded_row, int64_t column)
{
    const int64_t query = tess_walk_query(folded_row, work->args->group);
    return tess_abs((float)(query + work->visible.diagonal - column));
}

/* A score in natural units, and what the chain rule needs of it. */
typedef struct tess_cpu_score {
    float natural;
    float cap_slope; /* derivative of the softcap: 1 - tanh^2, 1 without one */
} tess_cpu_score;

/* The order of the steps is part of the contract (docs/numerics.md). */
static inline tess_cpu_score tess_cpu_score_of(const tess_cpu_work *work, int64_t folded_row,
                                               int64_t column)
{
    const tess_args *args = work->args;
    tess_cpu_score s = {args->scale * tess_cpu_dot(work, folded_row, column), 1.0f};

    if (args->softcap > 0.0f) {
        const float capped = tess_tanh(s.natural / args->softcap);
        s.natural = args->softcap * capped;
        s.cap_slope = 1.0f - capped * capped;
    }
    if (work->slopes) {
        const int64_t head = tess_walk_head(folded_row, args->group);
        s.natural -= work->slopes[head * args->slope_stride[1]] *
                     tess_cpu_distance(work, folded_row, column);
    }
    if (work->bias)
        s.natural += tess_cpu_bias(work, folded_row, column);
    return s;
}

#endif
