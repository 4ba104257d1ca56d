/* SPDX-License-Identifier: Apache-2.0
 * Naive attention in the storage type with fp32 sums: how well anyone would do without care. */
#include "tests/kit/oracle_row.h"

#include "tests/kit/number.h"

#include <math.h>
#include <string.h>

/* A weight between 0 and 1 rounded to the storage type; the same as tess_number_round(), which
 * would take as long as the rest of the row. */
static float round_weight(tess_dtype dtype, float weight)
{
    uint32_t bits;

    if (dtype == TESS_F16 && weight < 0x1p-14f)
        return (weight + 0.5f) - 0.5f; /* 0.5's last place is the least f16 */
    memcpy(&bits, &weight, sizeof bits);
    if (dtype == TESS_BF16)
        bits = (bits + 0x7FFF + (bits >> 16 & 1)) & 0xFFFF0000u;
    else if (dtype == TESS_F16)
        bits = (bits + 0x0FFF + (bits >> 13 & 1)) & 0xFFFFE000u;
    memcpy(&weight, &bits, sizeof weight);
    return weight;
}

int64_t tess_oracle_naive_scratch(const tess_oracle_work *w)
{
    return 2 * w->max_columns + w->dim_v + 1;
}

/* Dots added up one after the other in fp32, columns in the inner loop for speed alone. */
static void compute_dots(const tess_oracle_work *w, float *restrict dots)
{
    const int64_t first = w->column[0], last = w->column[w->count - 1];

    for (int64_t j = first; j <= last; j++)
        dots[j] = 0;
    for (int64_t d = 0; d < w->dim; d++) {
        const double *restrict k = w->k_turned + d * w->columns;
        const float q = (float)w->q[d];

        for (int64_t j = first; j <= last; j++)
            dots[j] += q * (float)k[j];
    }
}

/* fp32 scores of the admitted columns; returns their maximum. */
static float score_row(const tess_oracle_work *w, const float *dots, float *score)
{
    const float scale = (float)w->scale, softcap = (float)w->softcap;
    const float slope = (float)tess_oracle_slope(w, w->head);
    float max = w->has_sink ? (float)w->sink : -INFINITY;

    for (int64_t n = 0; n < w->count; n++) {
        float s = dots[w->column[n]] * scale;

        if (softcap > 0)
            s = softcap * tanhf(s / softcap);
        s -= slope * fabsf((float)(w->row + w->offset - w->column[n]));
        s += (float)tess_oracle_bias(w, w->head, w->row, w->column[n]);
        score[n] = s;
        max = fmaxf(max, s);
    }
    return max;
}

void tess_oracle_naive_row(const tess_oracle_work *w, float *scratch, double *out)
{
    const tess_dtype dtype = w->desc->q.dtype;
    float *dots = scratch, *score = dots + w->max_columns, *sum_v = score + w->max_columns;
    float max, sum;

    if (w->count > 0)
        compute_dots(w, dots);
    max = score_row(w, dots, score);
    sum = w->has_sink ? expf((float)w->sink - max) : 0;
    for (int64_t d = 0; d < w->dim_v; d++)
        sum_v[d] = 0;
    for (int64_t n = 0; n < w->count; n++) {
        score[n] = expf(score[n] - max);
        sum += score[n];
    }
    for (int64_t n = 0; n < w->count; n++) {
        const float weight = round_weight(dtype, score[n] / sum);
        const double *v = w->v + w->column[n] * w->dim_v;

        for (int64_t d = 0; d < w->dim_v; d++)
            sum_v[d] += weight * (float)v[d];
    }
    for (int64_t d = 0; d < w->dim_v; d++)
        out[d] = tess_number_round(w->desc->o.dtype, (double)sum_v[d]);
}

static float round_to(tess_dtype dtype, float value)
{
    return dtype == TESS_F32 ? value : (float)tess_number_round(dtype, (double)value);
}

/* O of the row at hand from rounded weights; returns dot(dO, O) - dLSE. */
static float naive_delta(const tess_oracle_work *w, const float *weight, const double *d_o,
                         double d_lse, float *o)
{
    float delta = -(float)d_lse;

    memset(o, 0, (size_t)w->dim_v * sizeof *o);
    for (int64_t n = 0; n < w->count; n++)
        for (int64_t d = 0; d < w->dim_v; d++)
            o[d] += weight[n] * (float)w->v[w->column[n] * w->dim_v + d];
    for (int64_t d = 0; d < w->dim_v; d++)
        delta += (float)d_o[d] * round_to(w->desc->o.dtype, o[d]);
    return delta;
}

/* dP - delta of one column, times its weight. */
static float naive_gradient(const tess_oracle_work *w, int64_t column, float weight,
                            const double *d_o, float delta)
{
    const double *v = w->v + column * w->dim_v;
    float sum = 0;

    for (int64_t d = 0; d < w->dim_v; d++)
        sum += (float)d_o[d] * (float)v[d];
    return weight * (sum - delta);
}

void tess_oracle_naive_backward_row(const tess_oracle_work *w, const double *d_o, double d_lse,
                                    tess_oracle_naive_sums *sums)
{
    const tess_dtype dtype = w->desc->q.dtype;
    const float scale = (float)w->scale, softcap = (float)w->softcap;
    float *dots = sums->scratch, *score = dots + w->max_columns, max, sum, delta;

    memset(sums->dq, 0, (size_t)w->dim * sizeof *sums->dq);
    if (w->count == 0)
        return;
    compute_dots(w, dots);
    max = score_row(w, dots, score);
    sum = w->has_sink ? expf((float)w->sink - max) : 0;
    for (int64_t n = 0; n < w->count; n++) {
        score[n] = expf(score[n] - max);
        sum += score[n];
    }
    for (int64_t n = 0; n < w->count; n++)
        score[n] = round_weight(dtype, score[n] / sum);
    delta = naive_delta(w, score, d_o, d_lse, sums->o);
    for (int64_t n = 0; n < w->count; n++) {
        const int64_t j = w->column[n];
        const float capped = softcap > 0 ? tanhf(dots[j] * scale / softcap) : 0;
        float g = naive_gradient(w, j, score[n], d_o, delta);

        g = round_to(dtype, g * (1 - capped * capped));
        for (int64_t d = 0; d < w->dim_v; d++)
            sums->dv[j * w->dim_v + d] += score[n] * (float)d_o[d];
        for (int64_t d = 0; d < w->dim; d++) {
            sums->dk[j * w->dim + d] += g * (float)w->q[d];
            sums->dq[d] += g * (float)w->k[j * w->dim + d];
        }
    }
    for (int64_t d = 0; d < w->dim; d++)
        sums->dq[d] = round_to(dtype, scale * sums->dq[d]);
}
