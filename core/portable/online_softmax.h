/* SPDX-License-Identifier: Apache-2.0
 * The recurrence: a row of softmax seen one tile of columns at a time. */
#ifndef TESSERA_CORE_PORTABLE_ONLINE_SOFTMAX_H
#define TESSERA_CORE_PORTABLE_ONLINE_SOFTMAX_H

#include "dialect.h"

/* "Online normalizer calculation for softmax" (Milakov and Gimelshein, 2018, algorithm 3), as used
 * in FlashAttention-2 (Dao, 2023, algorithm 1). Scores come in units of log2, so that exp2 needs no
 * factor. A row's state is (shift, sum): sum of exp2(score - shift) over the columns seen so far.
 *
 * The shift may lag behind the true maximum by up to TESS_OS_LAG: weights then reach 2^8, which
 * costs no accuracy in fp32, and the output is rescaled once in a while instead of at every tile.
 * (FlashAttention-4 and the CPU kernels use the same observation.) */

#define TESS_OS_LAG 8.0f

typedef struct tess_os_row {
    tess_f32 shift; /* -inf until a finite score arrives */
    tess_f32 sum;
} tess_os_row;

/* What admitting a tile of columns does to a row. */
typedef struct tess_os_step {
    tess_f32 shift;   /* subtract from the tile's scores; never -inf */
    tess_f32 rescale; /* factor for the output and the sum gathered before */
} tess_os_step;

TESS_FN tess_os_row tess_os_empty(void)
{
    tess_os_row row;
    row.shift = TESS_NEG_INF;
    row.sum = 0.0f;
    return row;
}

/* A row that has met only absent columns still holds -inf; subtracting that from itself is NaN, so
 * the shift used is zero until a finite score arrives. */
TESS_FN tess_f32 tess_os_shift(tess_f32 shift)
{
    return shift == TESS_NEG_INF ? 0.0f : shift;
}

/* A score in natural units, in units of log2. What is finite stays finite: masks are often made of
 * a type's most negative number, and its product would be -inf, which is an absent column. */
TESS_FN tess_f32 tess_os_score(tess_f32 natural)
{
    const tess_f32 score = natural * TESS_LOG2_E;

    if (tess_is_finite(score) || !tess_is_finite(natural))
        return score;
    return natural < 0.0f ? -TESS_MAX_F32 : TESS_MAX_F32;
}

/* The step for a tile whose largest score is `max` (-inf when all its columns are absent). A NaN
 * compares false and moves nothing: it reaches the sum through its own weight. */
TESS_FN tess_os_step tess_os_admit(tess_os_row row, tess_f32 max)
{
    tess_os_step step;
    const tess_i32 grows = max > row.shift + TESS_OS_LAG; /* -inf + 8 is -inf */
    step.shift = tess_os_shift(grows ? max : row.shift);
    step.rescale = grows && row.shift != TESS_NEG_INF ? tess_exp2(row.shift - max) : 1.0f;
    return step;
}

/* The row after the step, given the largest score and the tile's sum of weights. */
TESS_FN tess_os_row tess_os_advance(tess_os_row row, tess_os_step step, tess_f32 max,
                                    tess_f32 weights)
{
    tess_os_row next;
    next.shift = row.shift == TESS_NEG_INF && !(max > TESS_NEG_INF) ? TESS_NEG_INF : step.shift;
    next.sum = row.sum * step.rescale + weights;
    return next;
}

/* Weight of one score; exactly 0 for an absent column. */
TESS_FN tess_f32 tess_os_weight(tess_f32 score, tess_f32 shift)
{
    return score == TESS_NEG_INF ? 0.0f : tess_exp2(score - shift);
}

/* Factor that turns the gathered output into O. An empty row (sum == 0) gives 0, so that its
 * output is +0; a NaN sum stays NaN. */
TESS_FN tess_f32 tess_os_inverse(tess_f32 sum)
{
    return sum == 0.0f ? 0.0f : 1.0f / sum;
}

/* Natural logarithm of the sum of exponentials; -inf for an empty row. */
TESS_FN tess_f32 tess_os_lse(tess_os_row row)
{
    return row.sum == 0.0f ? TESS_NEG_INF
                           : (tess_os_shift(row.shift) + tess_log2(row.sum)) * TESS_LN_2;
}

/* Adds a sink: one more logit (natural units) without a value row. The factor applies to the
 * output gathered so far. A sink of -inf is not there. */
typedef struct tess_os_sunk {
    tess_os_row row;
    tess_f32 rescale;
} tess_os_sunk;

TESS_FN tess_os_sunk tess_os_sink(tess_os_row row, tess_f32 sink)
{
    tess_os_sunk sunk;
    const tess_f32 score = tess_os_score(sink);
    const tess_os_step step = tess_os_admit(row, score);
    sunk.rescale = step.rescale;
    sunk.row = tess_os_advance(row, step, score, tess_os_weight(score, step.shift));
    return sunk;
}

/* Merging normalised partial results (O1, L1) and (O2, L2), natural logarithms: the LSE of the
 * union and the weight of each part. Two empty parts give -inf and weights 0. A part whose LSE is
 * +inf or NaN makes a NaN, never a wrong number. Leave an output of LSE -inf out instead of
 * multiplying it by its weight, 0: the output of an empty part may be unwritten memory. */
typedef struct tess_os_merged {
    tess_f32 lse;
    tess_f32 weight_1, weight_2;
} tess_os_merged;

TESS_FN tess_os_merged tess_os_merge(tess_f32 lse_1, tess_f32 lse_2)
{
    tess_os_merged merged;
    const tess_f32 max = tess_os_shift(tess_max(lse_1, lse_2));
    const tess_f32 w1 = lse_1 == TESS_NEG_INF ? 0.0f : tess_exp2((lse_1 - max) * TESS_LOG2_E);
    const tess_f32 w2 = lse_2 == TESS_NEG_INF ? 0.0f : tess_exp2((lse_2 - max) * TESS_LOG2_E);
    const tess_f32 sum = w1 + w2;
    merged.lse = sum == 0.0f ? TESS_NEG_INF : max + tess_log2(sum) * TESS_LN_2;
    merged.weight_1 = w1 * tess_os_inverse(sum);
    merged.weight_2 = w2 * tess_os_inverse(sum);
    return merged;
}

#endif
