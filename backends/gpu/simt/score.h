/* SPDX-License-Identifier: Apache-2.0
 * The hook between a dot product and the softmax, and its mirror in the backward pass. */
#ifndef TESSERA_BACKENDS_GPU_SIMT_SCORE_H
#define TESSERA_BACKENDS_GPU_SIMT_SCORE_H

#include "backends/gpu/simt/sequence.h"

/* Everything that turns dot(q_i, k_j) into a score, and back, is here: a custom program will be
 * compiled into these functions and nowhere else. */

/* What scores of one sequence and group of heads are made of. */
struct tess_scoring {
    float scale, softcap;
    const char *bias; /* row 0, column 0, first head of the group, or NULL */
    tess_i64 bias_head, bias_row, bias_column;
    tess_i32 bias_dtype;
    const float *slopes; /* first head of the group, or NULL */
    tess_i64 slope_head;
    tess_i64 diagonal;
    bool is_plain; /* the score is the scaled dot product */
};

TESS_DEVICE tess_scoring tess_scoring_of(const tess_args &args, const tess_gpu_addresses &to,
                                         const tess_sequence &s, tess_i64 head)
{
    tess_scoring how = {};

    how.scale = args.scale;
    how.softcap = args.softcap;
    how.diagonal = tess_visible_of(args, s).diagonal;
    if (args.bias & TESS_BIAS_TENSOR)
        how.bias = static_cast<const char *>(to.at[TESS_AT_BIAS]) +
                   (s.index * args.bias_stride[0] + head * args.bias_stride[1]) *
                       tess_element_size(args.bias_dtype);
    how.bias_head = args.bias_stride[1];
    how.bias_row = args.bias_stride[2];
    how.bias_column = args.bias_stride[3];
    how.bias_dtype = args.bias_dtype;
    if (args.bias & TESS_BIAS_ALIBI)
        how.slopes = static_cast<const float *>(to.at[TESS_AT_ALIBI_SLOPES]) +
                     s.index * args.slope_stride[0] + head * args.slope_stride[1];
    how.slope_head = args.slope_stride[1];
    how.is_plain = !how.bias && !how.slopes && !(args.softcap > 0.0f);
    return how;
}

/* One pair of row and column. */
struct tess_pair {
    tess_i64 query, head, column; /* head: of the group */
};

/* |i + D - j|, what a slope is multiplied by. */
TESS_DEVICE float tess_distance(const tess_scoring &how, const tess_pair &pair)
{
    return tess_abs(static_cast<float>(pair.query + how.diagonal - pair.column));
}

/* A score in natural units, and what the chain rule needs of it. */
struct tess_scored {
    float natural;
    float slope; /* of the softcap: 1 - tanh^2, 1 without one */
};

/* The order of the steps is part of the contract (docs/numerics.md). */
TESS_DEVICE tess_scored tess_score(const tess_scoring &how, const tess_pair &pair, float dot)
{
    tess_scored s = {how.scale * dot, 1.0f};

    if (how.is_plain)
        return s;
    if (how.softcap > 0.0f) {
        const float capped = tess_tanh(s.natural / how.softcap);
        s.natural = how.softcap * capped;
        s.slope = 1.0f - capped * capped;
    }
    if (how.slopes)
        s.natural -= how.slopes[pair.head * how.slope_head] * tess_distance(how, pair);
    if (how.bias)
        s.natural += tess_load(how.bias,
                               pair.head * how.bias_head + pair.query * how.bias_row +
                                   pair.column * how.bias_column,
                               how.bias_dtype);
    return s;
}

/* For the softmax: in units of log2. A plain score has nothing finite to lose at the range's end
 * but a product that overflows by itself. */
TESS_DEVICE float tess_score_log2(const tess_scoring &how, const tess_pair &pair, float dot)
{
    if (how.is_plain)
        return dot * (how.scale * TESS_LOG2_E);
    return tess_os_score(tess_score(how, pair, dot).natural);
}

/* Backwards: the gradient of dot(q_i, k_j) from that of the score. */
TESS_DEVICE float tess_score_chain(const tess_scoring &how, const tess_scored &s, float gradient)
{
    return how.scale * s.slope * gradient;
}

#endif
