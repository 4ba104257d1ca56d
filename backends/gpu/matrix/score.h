/* SPDX-License-Identifier: Apache-2.0
 * Between the first product and the softmax: scale, softcap, biases and masks of a tile of scores.
 */
#ifndef TESSERA_BACKENDS_GPU_MATRIX_SCORE_H
#define TESSERA_BACKENDS_GPU_MATRIX_SCORE_H

#include "backends/gpu/matrix/item.h"
#include "core/portable/online_softmax.h"
#include "vendor/mma.h"

/* The one place where a score can be changed: tess_matrix_hook() on the way to the softmax, and its
 * mirror, tess_matrix_chain(), on the way back. Everything asked here is the same for a whole
 * launch, so a plain problem pays for one test per tile. */

/* A tile of scores: where its first row and column lie. */
struct tess_matrix_place {
    int row;         /* the wave's first row in the block's tile */
    tess_i64 column; /* its first column */
};

/* Whether a score is scale x dot and the scale may wait: it is folded into the exponent, where it
 * costs nothing. It must keep the order of scores (the maximum is taken before) and its product
 * with log2 e must be an ordinary number. */
TESS_DEVICE bool tess_matrix_is_plain(const tess_args &args)
{
    return args.scale > TESS_LEAST_PLAIN_SCALE && args.scale < TESS_MOST_PLAIN_SCALE &&
           !(args.softcap > 0.0f) && (args.bias & (TESS_BIAS_TENSOR | TESS_BIAS_ALIBI)) == 0u;
}

/* tess_tanh_from_exp2 with the fast exp2 and reciprocal. */
TESS_DEVICE tess_f32 tess_matrix_tanh(tess_f32 x)
{
    const tess_f32 size = tess_abs(x), square = x * x;
    const tess_f32 outer =
        1.0f -
        2.0f * tess_ptx_rcp_approx_ftz(tess_ptx_ex2_approx_ftz(2.0f * TESS_LOG2_E * size) + 1.0f);
    const tess_f32 tail = -0.0539682540f + square * 0.0218694885f;
    const tess_f32 series = -0.333333333f + square * (0.133333333f + square * tail);

    if (size < 0.25f)
        return x * (1.0f + square * series);
    return x < 0.0f ? -outer : outer; /* a NaN is not below 0.25 and stays one in outer */
}

/* For each score of the lane: f(score, m, n, e). */
template <int M, int N, class F> TESS_DEVICE void tess_matrix_each(tess_mma_sum<M, N> &score, F f)
{
    TESS_UNROLL
    for (int m = 0; m < M; m++)
        TESS_UNROLL
    for (int n = 0; n < N; n++)
        TESS_UNROLL
    for (int e = 0; e < 4; e++)
        f(score.at[m][n][e], m, n, e);
}

/* |i + D - j| of (row of the lane, column 0 of the tile), signed. */
TESS_DEVICE tess_f32 tess_matrix_facing(const tess_matrix_item &item,
                                        const tess_matrix_place &place, int row)
{
    return (tess_f32)(tess_fold_query(item.fold, row) + item.visible.diagonal - place.column);
}

template <int M, int N>
TESS_DEVICE void tess_matrix_add_slopes(tess_mma_sum<M, N> &score, const tess_matrix_item &item,
                                        const tess_matrix_place &place)
{
    TESS_UNROLL
    for (int r = 0; r < 2 * M; r++) {
        const int row = place.row + tess_mma_row(r / 2, r % 2 * 2);
        const tess_f32 slope =
            item.scoring.slopes[tess_fold_head(item.fold, row) * item.scoring.slope_head];
        const tess_f32 facing = tess_matrix_facing(item, place, row);
        TESS_UNROLL
        for (int n = 0; n < N; n++)
            TESS_UNROLL
        for (int e = r % 2 * 2; e < r % 2 * 2 + 2; e++)
            score.at[r / 2][n][e] -= slope * tess_abs(facing - (tess_f32)tess_mma_column(n, e));
    }
}

template <int M, int N>
TESS_DEVICE void tess_matrix_add_bias(tess_mma_sum<M, N> &score, const tess_matrix_item &item,
                                      const tess_matrix_place &place)
{
    TESS_UNROLL
    for (int r = 0; r < 2 * M; r++) {
        const int row = place.row + tess_mma_row(r / 2, r % 2 * 2);
        const tess_i64 at = tess_fold_head(item.fold, row) * item.scoring.bias_head +
                            tess_fold_query(item.fold, row) * item.scoring.bias_row +
                            place.column * item.scoring.bias_column;
        const int columns = row < item.rows
                                ? (int)tess_min_i64(item.visible.columns - place.column, 8 * N)
                                : 0; /* of this row that exist */
        TESS_UNROLL
        for (int n = 0; n < N; n++)
            TESS_UNROLL
        for (int e = r % 2 * 2; e < r % 2 * 2 + 2; e++)
            if (tess_mma_column(n, e) < columns)
                score.at[r / 2][n][e] += tess_load(
                    item.scoring.bias, at + tess_mma_column(n, e) * item.scoring.bias_column,
                    item.scoring.bias_dtype);
    }
}

/* Products of q and k to scores in natural units, in the order of docs/numerics.md. */
template <int M, int N>
TESS_DEVICE void tess_matrix_natural(tess_mma_sum<M, N> &score, const tess_args &args,
                                     const tess_matrix_item &item, const tess_matrix_place &place)
{
    tess_matrix_each(score, [&](tess_f32 &s, int, int, int) { s *= args.scale; });
    if (args.softcap > 0.0f) {
        const tess_f32 inverse = 1.0f / args.softcap;
        tess_matrix_each(score, [&](tess_f32 &s, int, int, int) {
            s = args.softcap * tess_matrix_tanh(s * inverse);
        });
    }
    if (item.scoring.slopes)
        tess_matrix_add_slopes(score, item, place);
    if (item.scoring.bias)
        tess_matrix_add_bias(score, item, place);
}

/* The hook: products to scores in units of log2. */
template <int M, int N>
TESS_DEVICE void tess_matrix_hook(tess_mma_sum<M, N> &score, const tess_args &args,
                                  const tess_matrix_item &item, const tess_matrix_place &place)
{
    tess_matrix_natural(score, args, item, place);
    tess_matrix_each(score, [](tess_f32 &s, int, int, int) { s = tess_os_score(s); });
}

/* Columns that a row does not see become absent: chosen, never added, so that a NaN there goes. */
template <int M, int N>
TESS_DEVICE void tess_matrix_hide(tess_mma_sum<M, N> &score, const tess_matrix_item &item,
                                  const tess_matrix_place &place)
{
    TESS_UNROLL
    for (int r = 0; r < 2 * M; r++) {
        const int row = place.row + tess_mma_row(r / 2, r % 2 * 2);
        const tess_i64 query = tess_fold_query(item.fold, row);
        /* Compared with numbers known at compile time; this lane's own column is taken off. */
        const int lane = tess_mma_column(0, 0);
        const int first =
            (int)tess_clamp(tess_visible_first(item.visible, query) - place.column, 0, 8 * N) -
            lane;
        const int end =
            (int)tess_clamp(tess_visible_end(item.visible, query) - place.column, 0, 8 * N) - lane;
        TESS_UNROLL
        for (int n = 0; n < N; n++)
            TESS_UNROLL
        for (int e = r % 2 * 2; e < r % 2 * 2 + 2; e++) {
            const int column = 8 * n + e % 2;
            if (column < first || column >= end)
                score.at[r / 2][n][e] = TESS_NEG_INF;
        }
    }
}

#endif
