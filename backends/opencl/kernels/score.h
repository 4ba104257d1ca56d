/* SPDX-License-Identifier: Apache-2.0
 * The hook between a dot product and the softmax, and its mirror in the backward pass. */
#ifndef TESSERA_BACKENDS_OPENCL_KERNELS_SCORE_H
#define TESSERA_BACKENDS_OPENCL_KERNELS_SCORE_H

#include "sequence.h"

/* Everything that turns dot(q_i, k_j) into a score, and back, is here: a custom program will be
 * compiled into these functions and nowhere else. */

/* What scores of one sequence and group of heads are made of. */
typedef struct tess_scoring {
    float scale, softcap;
    __global const char *bias; /* row 0, column 0, first head of the group, or NULL */
    tess_i64 bias_head, bias_row, bias_column;
    __global const float *slopes; /* first head of the group, or NULL */
    tess_i64 slope_head;
    tess_i64 diagonal;
    tess_i32 bias_dtype;
    tess_i32 is_plain; /* the score is the scaled dot product */
} tess_scoring;

TESS_FN tess_scoring tess_scoring_of(tess_args_at args, const tess_addresses *to, tess_sequence s,
                                     tess_i64 head)
{
    tess_scoring how;

    how.scale = args->scale;
    how.softcap = args->softcap;
    how.diagonal = tess_visible_of(args, s).diagonal;
    how.bias = 0;
    if (args->bias & TESS_BIAS_TENSOR)
        how.bias =
            to->at[TESS_AT_BIAS] + (s.index * args->bias_stride[0] + head * args->bias_stride[1]) *
                                       tess_element_size(args->bias_dtype);
    how.bias_head = args->bias_stride[1];
    how.bias_row = args->bias_stride[2];
    how.bias_column = args->bias_stride[3];
    how.bias_dtype = args->bias_dtype;
    how.slopes = 0;
    if (args->bias & TESS_BIAS_ALIBI)
        how.slopes = (__global const float *)to->at[TESS_AT_ALIBI_SLOPES] +
                     s.index * args->slope_stride[0] + head * args->slope_stride[1];
    how.slope_head = args->slope_stride[1];
    how.is_plain = !how.bias && !how.slopes && !(args->softcap > 0.0f);
    return how;
}

/* One pair of row and column. */
typedef struct tess_pair {
    tess_i64 query, head, column; /* head: of the group */
} tess_pair;

/* |i + D - j|, what a slope is multiplied by. */
TESS_FN float tess_distance(tess_i64 diagonal, tess_pair pair)
{
    return tess_abs((float)(pair.query + diagonal - pair.column));
}

/* A score in natural units, and what the chain rule needs of it. */
typedef struct tess_scored {
    float natural;
    float slope; /* of the softcap: 1 - tanh^2, 1 without one */
} tess_scored;

/* The order of the steps is part of the contract (docs/numerics.md). */
TESS_FN tess_scored tess_score(tess_scoring how, tess_pair pair, float dot_product)
{
    tess_scored s;

    s.natural = how.scale * dot_product;
    s.slope = 1.0f;
    if (how.is_plain)
        return s;
    if (how.softcap > 0.0f) {
        const float capped = tess_tanh(s.natural / how.softcap);
        s.natural = how.softcap * capped;
        s.slope = 1.0f - capped * capped;
    }
    if (how.slopes)
        s.natural -= how.slopes[pair.head * how.slope_head] * tess_distance(how.diagonal, pair);
    if (how.bias)
        s.natural += tess_load(how.bias,
                               pair.head * how.bias_head + pair.query * how.bias_row +
                                   pair.column * how.bias_column,
                               how.bias_dtype);
    return s;
}

/* For the softmax: in units of log2. A plain score has nothing finite to lose at the range's end
 * but a product that overflows by itself. */
TESS_FN float tess_score_log2(tess_scoring how, tess_pair pair, float dot_product)
{
    if (how.is_plain)
        return dot_product * (how.scale * TESS_LOG2_E);
    return tess_os_score(tess_score(how, pair, dot_product).natural);
}

/* Backwards: the gradient of dot(q_i, k_j) from that of the score. */
TESS_FN float tess_score_chain(tess_scoring how, tess_scored s, float gradient)
{
    return how.scale * s.slope * gradient;
}

#endif
