/* SPDX-License-Identifier: Apache-2.0
 * The executable specification of the backward pass: one pair at a time, no more. */
#include "backends/cpu/backward.h"

#include "backends/cpu/pair.h"

#include <tessera/attention.h>

/* for each row
 *     for each column of the item that the row sees
 *         P from the score and LSE, g from dO, V and delta
 *         dV[column] += P dO, dK[column] += g' Q, dQ[row] += g' K, dBias, dSlope
 *
 * Compiled without contraction, like forward_scalar.c. Absent pairs are skipped, so nothing they
 * hold can reach a gradient. The vector kernels are tested against this file. */

/* One admitted pair. */
typedef struct pair {
    float weight;   /* P */
    float gradient; /* of the score after softcap, ALiBi and bias */
    float chained;  /* of dot(q, k): scale and softcap applied */
} pair;

static float load_dot(const tess_cpu_backward_work *work, int64_t folded_row, int64_t column)
{
    const tess_args *args = work->at.args;
    const int64_t d_o = tess_cpu_row(&work->at, args->do_stride, folded_row);
    const int64_t v = tess_cpu_column(&work->at, args->v_stride, column);
    float sum = 0.0f;

    for (int64_t d = 0; d < args->head_dim_v; d++)
        sum += tess_cpu_load(work->d_o, d_o + d * args->do_stride[3], args->do_dtype) *
               tess_cpu_load(work->at.v, v + d * args->v_stride[3], args->dtype);
    return sum;
}

/* False for a pair that is absent by its score, or whose row has no column at all. */
static bool load_pair(const tess_cpu_backward_work *work, int64_t folded_row, int64_t column,
                      pair *out_pair)
{
    const tess_cpu_score score = tess_cpu_score_of(&work->at, folded_row, column);
    const float lse = work->at.lse[tess_cpu_backward_lse(work, folded_row)];
    const float delta = work->delta[tess_cpu_backward_delta(work, folded_row)];

    if (score.natural == TESS_NEG_INF || lse == TESS_NEG_INF)
        return false;
    out_pair->weight = tess_exp2((score.natural - lse) * TESS_LOG2_E);
    out_pair->gradient = out_pair->weight * (load_dot(work, folded_row, column) - delta);
    out_pair->chained = work->at.args->scale * score.cap_slope * out_pair->gradient;
    return true;
}

/* sum[d] += factor * row element d */
static void add_scaled(float *sum, float factor, const char *base, int64_t index, int64_t stride,
                       int64_t count, int32_t dtype)
{
    for (int64_t d = 0; d < count; d++)
        sum[d] += factor * tess_cpu_load(base, index + d * stride, dtype);
}

static void add_dk(const tess_cpu_backward_work *work, int64_t folded_row, const pair *p, float *dk)
{
    const tess_args *args = work->at.args;
    add_scaled(dk, p->chained, work->at.q, tess_cpu_row(&work->at, args->q_stride, folded_row),
               args->q_stride[3], args->head_dim, args->dtype);
}

static void add_dv(const tess_cpu_backward_work *work, int64_t folded_row, const pair *p, float *dv)
{
    const tess_args *args = work->at.args;
    add_scaled(dv, p->weight, work->d_o, tess_cpu_row(&work->at, args->do_stride, folded_row),
               args->do_stride[3], args->head_dim_v, args->do_dtype);
}

static void add_dq(const tess_cpu_backward_work *work, int64_t column, const pair *p, float *dq)
{
    const tess_args *args = work->at.args;
    add_scaled(dq, p->chained, work->at.k, tess_cpu_column(&work->at, args->k_stride, column),
               args->k_stride[3], args->head_dim, args->dtype);
}

static void zero(float *values, int64_t count)
{
    for (int64_t i = 0; i < count; i++)
        values[i] = 0.0f;
}

void tess_cpu_backward_column(const tess_cpu_backward_work *work, int64_t column, float *dk,
                              float *dv)
{
    const tess_args *args = work->at.args;
    pair p;

    zero(dk, args->head_dim);
    zero(dv, args->head_dim_v);
    for (int64_t f = 0; f < work->rows; f++) {
        const int64_t query = tess_walk_query(f, args->group);
        if (!tess_visible_admits(work->at.visible, query, column) ||
            !load_pair(work, f, column, &p))
            continue;
        add_dk(work, f, &p, dk);
        add_dv(work, f, &p, dv);
    }
}

void tess_cpu_backward_row(const tess_cpu_backward_work *work, int64_t folded_row, float *dq)
{
    const tess_cpu_span columns =
        tess_cpu_seen(&work->at, folded_row, (tess_cpu_span){work->first, work->end});
    pair p;

    zero(dq, work->at.args->head_dim);
    for (int64_t column = columns.first; column < columns.end; column++)
        if (load_pair(work, folded_row, column, &p))
            add_dq(work, column, &p, dq);
}

/* What the biases of a pair get. */
static void add_biases(const tess_cpu_backward_work *work, int64_t folded_row, int64_t column,
                       const pair *p)
{
    const tess_args *args = work->at.args;
    const int64_t query = tess_walk_query(folded_row, args->group);
    const int64_t head = tess_walk_head(folded_row, args->group);

    if (work->dbias)
        work->dbias[head * args->dbias_stride[1] + query * args->dbias_stride[2] +
                    column * args->dbias_stride[3]] += p->gradient;
    if (work->dslope)
        work->dslope[head] -= p->gradient * tess_cpu_distance(&work->at, folded_row, column);
}

static void put_columns(const tess_cpu_backward_work *work, char *base, const tess_i64 stride[4],
                        int32_t dtype, const float *sums, int64_t dims)
{
    for (int64_t column = work->first; base && column < work->end; column++)
        for (int64_t d = 0; d < dims; d++)
            tess_cpu_store(base, column * stride[1] + d * stride[3], dtype,
                           sums[(column - work->first) * dims + d]);
}

float tess_cpu_bwd_scalar_dot(tess_cpu_row_at a, tess_cpu_row_at b, int64_t count)
{
    float sum = 0.0f;

    for (int64_t d = 0; d < count; d++)
        sum += tess_cpu_load(a.base, a.index + d * a.stride, a.dtype) *
               tess_cpu_load(b.base, b.index + d * b.stride, b.dtype);
    return sum;
}

void tess_cpu_bwd_scalar_put_sum(tess_cpu_row_at to, const float *sums, int64_t buffers,
                                 int64_t pitch, int64_t count)
{
    for (int64_t d = 0; d < count; d++) {
        float sum = sums[d];
        for (int64_t b = 1; b < buffers; b++)
            sum += sums[b * pitch + d];
        tess_cpu_store(to.base, to.index + d * to.stride, to.dtype, sum);
    }
}

size_t tess_cpu_bwd_scalar_scratch(int64_t head_dim, int64_t head_dim_v)
{
    return (size_t)(TESS_SHARE_COLUMNS * (head_dim + head_dim_v)) * sizeof(float);
}

void tess_cpu_bwd_scalar(const tess_cpu_backward_work *work)
{
    const tess_args *args = work->at.args;
    const int64_t columns = work->end - work->first;
    float *const dk = work->at.scratch;
    float *const dv = dk + columns * args->head_dim;
    pair p;

    zero(dk, columns * args->head_dim);
    zero(dv, columns * args->head_dim_v);
    if (work->dslope)
        zero(work->dslope, args->group);
    for (int64_t f = 0; f < work->rows; f++) {
        const tess_cpu_span seen =
            tess_cpu_seen(&work->at, f, (tess_cpu_span){work->first, work->end});
        float *const dq = work->dq + tess_cpu_backward_delta(work, f) * args->head_dim;
        for (int64_t column = seen.first; column < seen.end; column++) {
            const int64_t inside = column - work->first;
            if (!load_pair(work, f, column, &p))
                continue;
            add_dk(work, f, &p, dk + inside * args->head_dim);
            add_dv(work, f, &p, dv + inside * args->head_dim_v);
            add_dq(work, column, &p, dq);
            add_biases(work, f, column, &p);
        }
    }
    put_columns(work, work->dk, args->dk_stride, args->dk_dtype, dk, args->head_dim);
    put_columns(work, work->dv, args->dv_stride, args->dv_dtype, dv, args->head_dim_v);
}
