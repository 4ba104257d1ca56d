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

/* How the sums of a tile lie in lanes is the vendor's. A lane holds SUM::EACH sums of each of
 * SUM::ROWS rows, get(r, i) and set(r, i, x); their places in the wave's tile are row
 * tess_mma_lane_row(r) and column tess_mma_lane_column() + SUM::step(i), the last known at compile
 * time; SUM::COLUMNS is the width of the tile. */

/* tess_tanh_from_exp2 with the fast exp2 and reciprocal. */
TESS_DEVICE tess_f32 tess_matrix_tanh(tess_f32 x)
{
    const tess_f32 size = tess_abs(x), square = x * x;
    const tess_f32 outer =
        1.0f - 2.0f * tess_quick_reciprocal(tess_quick_exp2(2.0f * TESS_LOG2_E * size) + 1.0f);
    const tess_f32 tail = -0.0539682540f + square * 0.0218694885f;
    const tess_f32 series = -0.333333333f + square * (0.133333333f + square * tail);

    if (size < 0.25f)
        return x * (1.0f + square * series);
    return x < 0.0f ? -outer : outer; /* a NaN is not below 0.25 and stays one in outer */
}

/* Each score of the lane becomes f of it. */
template <class SUM, class F> TESS_DEVICE void tess_matrix_each(SUM &score, F f)
{
    TESS_UNROLL
    for (int r = 0; r < SUM::ROWS; r++)
        TESS_UNROLL
    for (int i = 0; i < SUM::EACH; i++)
        score.set(r, i, f(score.get(r, i)));
}

/* |i + D - j| of (row of the lane, column 0 of the tile), signed. */
TESS_DEVICE tess_f32 tess_matrix_facing(const tess_matrix_item &item,
                                        const tess_matrix_place &place, int row)
{
    return (tess_f32)(tess_fold_query(item.fold, row) + item.visible.diagonal - place.column);
}

template <class SUM>
TESS_DEVICE void tess_matrix_add_slopes(SUM &score, const tess_matrix_item &item,
                                        const tess_matrix_place &place)
{
    TESS_UNROLL
    for (int r = 0; r < SUM::ROWS; r++) {
        const int row = place.row + tess_mma_lane_row(r);
        const tess_f32 slope =
            item.scoring.slopes[tess_fold_head(item.fold, row) * item.scoring.slope_head];
        const tess_f32 facing = tess_matrix_facing(item, place, row);
        TESS_UNROLL
        for (int i = 0; i < SUM::EACH; i++) {
            const int column = tess_mma_lane_column() + SUM::step(i);
            score.set(r, i, score.get(r, i) - slope * tess_abs(facing - (tess_f32)column));
        }
    }
}

template <class SUM>
TESS_DEVICE void tess_matrix_add_bias(SUM &score, const tess_matrix_item &item,
                                      const tess_matrix_place &place)
{
    TESS_UNROLL
    for (int r = 0; r < SUM::ROWS; r++) {
        const int row = place.row + tess_mma_lane_row(r);
        const tess_i64 at = tess_fold_head(item.fold, row) * item.scoring.bias_head +
                            tess_fold_query(item.fold, row) * item.scoring.bias_row +
                            place.column * item.scoring.bias_column;
        const int columns =
            row < item.rows ? (int)tess_min_i64(item.visible.columns - place.column, SUM::COLUMNS)
                            : 0; /* of this row that exist */
        TESS_UNROLL
        for (int i = 0; i < SUM::EACH; i++) {
            const int column = tess_mma_lane_column() + SUM::step(i);
            if (column < columns)
                score.set(r, i,
                          score.get(r, i) + tess_load(item.scoring.bias,
                                                      at + column * item.scoring.bias_column,
                                                      item.scoring.bias_dtype));
        }
    }
}

/* Products of q and k to scores in natural units, in the order of docs/numerics.md. */
template <class SUM>
TESS_DEVICE void tess_matrix_natural(SUM &score, const tess_args &args,
                                     const tess_matrix_item &item, const tess_matrix_place &place)
{
    tess_matrix_each(score, [&](tess_f32 s) { return s * args.scale; });
    if (args.softcap > 0.0f) {
        const tess_f32 inverse = 1.0f / args.softcap;
        tess_matrix_each(score,
                         [&](tess_f32 s) { return args.softcap * tess_matrix_tanh(s * inverse); });
    }
    if (item.scoring.slopes)
        tess_matrix_add_slopes(score, item, place);
    if (item.scoring.bias)
        tess_matrix_add_bias(score, item, place);
}

/* The hook: products to scores in units of log2. */
template <class SUM>
TESS_DEVICE void tess_matrix_hook(SUM &score, const tess_args &args, const tess_matrix_item &item,
                                  const tess_matrix_place &place)
{
    tess_matrix_natural(score, args, item, place);
    tess_matrix_each(score, [](tess_f32 s) { return tess_os_score(s); });
}

/* Columns that a row does not see become absent: chosen, never added, so that a NaN there goes. */
template <class SUM>
TESS_DEVICE void tess_matrix_hide(SUM &score, const tess_matrix_item &item,
                                  const tess_matrix_place &place)
{
    TESS_UNROLL
    for (int r = 0; r < SUM::ROWS; r++) {
        const int row = place.row + tess_mma_lane_row(r);
        const tess_i64 query = tess_fold_query(item.fold, row);
        /* Compared with numbers known at compile time; this lane's own column is taken off. */
        const int lane = tess_mma_lane_column();
        const int first = (int)tess_clamp(tess_visible_first(item.visible, query) - place.column, 0,
                                          SUM::COLUMNS) -
                          lane;
        const int end =
            (int)tess_clamp(tess_visible_end(item.visible, query) - place.column, 0, SUM::COLUMNS) -
            lane;
        TESS_UNROLL
        for (int i = 0; i < SUM::EACH; i++)
            if (SUM::step(i) < first || SUM::step(i) >= end)
                score.set(r, i, TESS_NEG_INF);
    }
}

#endif
