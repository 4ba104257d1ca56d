/* SPDX-License-Identifier: Apache-2.0
 * From the two products of a tile of pairs to P and the gradient of dot(q, k): the hook of score.h
 * recomputed, and its mirror. */
#ifndef TESSERA_BACKENDS_GPU_MATRIX_BACKWARD_SCORE_H
#define TESSERA_BACKENDS_GPU_MATRIX_BACKWARD_SCORE_H

#include "backends/gpu/matrix/backward_item.h"
#include "backends/gpu/matrix/score.h"

/* score holds dot(q, k) of each pair, grad holds dot(dO, v). What a query has in common (LSE,
 * delta, slope, place in the bias) is fetched once and used for its pairs: a query is a column of
 * the sums where keys stay, else a row of them. */

/* For each query of the lane, begin(row of the tile of queries) gives what is common, and
 * each(common, m, n, e) is called for its pairs. */
template <bool KEYS_STAY, int M, int N, class BEGIN, class EACH>
TESS_DEVICE void tess_matrix_each_query(int own, BEGIN begin, EACH each)
{
    if (KEYS_STAY) {
        TESS_UNROLL
        for (int n = 0; n < N; n++)
            TESS_UNROLL
        for (int odd = 0; odd < 2; odd++) {
            const auto common = begin(tess_mma_column(n, odd));
            TESS_UNROLL
            for (int r = 0; r < 2 * M; r++)
                each(common, r / 2, n, r % 2 * 2 + odd);
        }
    } else {
        TESS_UNROLL
        for (int r = 0; r < 2 * M; r++) {
            const auto common = begin(own + tess_mma_row(r / 2, r % 2 * 2));
            TESS_UNROLL
            for (int n = 0; n < N; n++)
                TESS_UNROLL
            for (int odd = 0; odd < 2; odd++)
                each(common, r / 2, n, r % 2 * 2 + odd);
        }
    }
}

/* The key of a pair, counted from the first key of its tile. */
template <bool KEYS_STAY> TESS_DEVICE int tess_matrix_key(int own, int m, int n, int e)
{
    return KEYS_STAY ? own + tess_mma_row(m, e) : tess_mma_column(n, e);
}

template <bool KEYS_STAY, int M, int N>
TESS_DEVICE void tess_matrix_pull_softcap(tess_mma_sum<M, N> &score, tess_mma_sum<M, N> &grad,
                                          tess_f32 softcap)
{
    const tess_f32 inverse = 1.0f / softcap;
    TESS_UNROLL
    for (int r = 0; r < tess_mma_sum<M, N>::ROWS; r++)
        TESS_UNROLL
    for (int i = 0; i < tess_mma_sum<M, N>::EACH; i++) {
        const tess_f32 capped = tess_matrix_tanh(score.get(r, i) * inverse);
        score.set(r, i, softcap * capped);
        grad.set(r, i, grad.get(r, i) * (1.0f - capped * capped));
    }
}

template <bool KEYS_STAY, int M, int N>
TESS_DEVICE void tess_matrix_pull_slopes(tess_mma_sum<M, N> &score,
                                         const tess_matrix_backward_item &item,
                                         const tess_matrix_facing_tiles &at)
{
    struct common {
        tess_f32 slope, facing;
    };
    const tess_i64 key = KEYS_STAY ? item.first : at.streamed;
    tess_matrix_each_query<KEYS_STAY, M, N>(
        at.own,
        [&](int row) {
            const common of = {
                item.scoring.slopes[tess_fold_head(at.fold, row) * item.scoring.slope_head],
                (tess_f32)(tess_fold_query(at.fold, row) + item.visible.diagonal - key)};
            return of;
        },
        [&](const common &of, int m, int n, int e) {
            const int column = tess_matrix_key<KEYS_STAY>(at.own, m, n, e);
            score.at[m][n][e] -= of.slope * tess_abs(of.facing - (tess_f32)column);
        });
}

template <bool KEYS_STAY, int M, int N>
TESS_DEVICE void tess_matrix_pull_bias(tess_mma_sum<M, N> &score,
                                       const tess_matrix_backward_item &item,
                                       const tess_matrix_facing_tiles &at)
{
    struct common {
        tess_i64 at;
        int columns; /* of this query that exist, in this tile */
    };
    const tess_i64 key = KEYS_STAY ? item.first : at.streamed;
    const tess_i64 first_row = KEYS_STAY ? at.streamed : item.first;
    const int columns = (int)tess_min_i64(item.visible.columns - key, 1 << 30);
    const int rows = (int)tess_min_i64(item.q.count - first_row, 1 << 30);
    tess_matrix_each_query<KEYS_STAY, M, N>(
        at.own,
        [&](int row) {
            const common of = {tess_fold_head(at.fold, row) * item.scoring.bias_head +
                                   tess_fold_query(at.fold, row) * item.scoring.bias_row +
                                   key * item.scoring.bias_column,
                               row < rows ? columns : 0};
            return of;
        },
        [&](const common &of, int m, int n, int e) {
            const int column = tess_matrix_key<KEYS_STAY>(at.own, m, n, e);
            if (column < of.columns)
                score.at[m][n][e] +=
                    tess_load(item.scoring.bias, of.at + column * item.scoring.bias_column,
                              item.scoring.bias_dtype);
        });
}

/* Pairs that are not there get a score of -inf: chosen, never added. */
template <bool KEYS_STAY, int M, int N>
TESS_DEVICE void tess_matrix_pull_hide(tess_mma_sum<M, N> &score,
                                       const tess_matrix_backward_item &item,
                                       const tess_matrix_facing_tiles &at)
{
    TESS_UNROLL
    for (int r = 0; r < 2 * M; r++) {
        const int lane = tess_mma_column(0, 0); /* the lane's own column is taken off */
        const tess_matrix_seen seen = tess_matrix_seen_by<KEYS_STAY>(
            item, at, at.own + tess_mma_row(r / 2, r % 2 * 2), 8 * N);
        TESS_UNROLL
        for (int n = 0; n < N; n++)
            TESS_UNROLL
        for (int e = r % 2 * 2; e < r % 2 * 2 + 2; e++) {
            const int column = 8 * n + e % 2;
            if (column < seen.first - lane || column >= seen.end - lane)
                score.at[r / 2][n][e] = TESS_NEG_INF;
        }
    }
}

/* LSE and delta of the tile of queries, in shared memory. */
struct tess_matrix_values {
    const float *lse, *delta;
};

/* What weights and gradients of each own row of the lane are multiplied by before they are rounded
 * to the storage type, as exponents of 2. bf16 has the range of fp32 and needs none of it. f16
 * loses what is below 2^-24 of 1, and a row of gradients may be smaller than that altogether; so
 * there the factor is as large as the row's largest weight or gradient so far allows. It shrinks
 * rarely and shrinks the sums with it, like the shift of the online softmax. */
template <int DTYPE, int M> struct tess_matrix_lift {
    enum { IS_USED = DTYPE == TESS_F16 };
    tess_f32 exponent[IS_USED ? 2 * M : 1];

    TESS_DEVICE_MEMBER void start()
    {
        TESS_UNROLL
        for (int r = 0; r < 2 * M && IS_USED; r++)
            exponent[r] = 100.0f; /* more than any row needs, and less than fp32 has */
    }
    TESS_DEVICE_MEMBER tess_f32 of(int r) const { return IS_USED ? exponent[r] : 0.0f; }

    /* 2^-exponent of row r. */
    TESS_DEVICE_MEMBER tess_f32 inverse(int r) const
    {
        return IS_USED ? tess_from_bits((tess_u32)(127 - (int)exponent[r]) << 23) : 1.0f;
    }
};

/* Most of a lifted number: from there a row's factor goes down so far that its largest is 2^8. */
#define TESS_MOST_LIFTED 32768.0f

template <int M, int N>
TESS_DEVICE void tess_matrix_multiply_row(tess_mma_sum<M, N> &sum, int r, tess_f32 factor)
{
    TESS_UNROLL
    for (int n = 0; n < N; n++)
        TESS_UNROLL
    for (int e = r % 2 * 2; e < r % 2 * 2 + 2; e++)
        sum.at[r / 2][n][e] *= factor;
}

/* Lowers the factors of rows that have grown too large; shrink(r, factor) is called for the sums of
 * such a row. An infinity keeps its row non-finite, which is then computed again. */
template <int DTYPE, int M, int N, class SHRINK>
TESS_DEVICE void tess_matrix_settle(tess_matrix_lift<DTYPE, M> &lift, tess_mma_sum<M, N> &weight,
                                    tess_mma_sum<M, N> &grad, SHRINK shrink)
{
    tess_f32 max[2 * M];
    bool grows = false;

    TESS_UNROLL
    for (int r = 0; r < 2 * M; r++) {
        max[r] = 0.0f;
        TESS_UNROLL
        for (int n = 0; n < N; n++)
            TESS_UNROLL
        for (int e = r % 2 * 2; e < r % 2 * 2 + 2; e++) {
            max[r] = tess_ptx_max_f32(max[r], weight.at[r / 2][n][e]);
            max[r] = tess_ptx_max_f32(max[r], tess_abs(grad.at[r / 2][n][e]));
        }
        grows |= max[r] > TESS_MOST_LIFTED;
    }
    if (!tess_ptx_vote_any(grows))
        return;
    TESS_UNROLL
    for (int r = 0; r < 2 * M; r++) {
        const tess_f32 all = tess_mma_row_max(max[r]);
        const int down = all > TESS_MOST_LIFTED ? (int)(tess_bits(all) >> 23) - 127 - 8 : 0;
        const tess_f32 factor = tess_from_bits((tess_u32)(127 - down) << 23);
        lift.exponent[r] -= (tess_f32)down;
        tess_matrix_multiply_row(weight, r, factor);
        tess_matrix_multiply_row(grad, r, factor);
        shrink(r, factor);
    }
}

/* score becomes P, grad the gradient of dot(q, k) before the scale, which is a factor of the
 * finished sums. P = exp2((score - LSE) log2 e) with the difference taken first, in natural units:
 * what LSE lost to rounding is then all that is lost. Both come lifted. */
template <bool KEYS_STAY, bool HAS_HOOK, int DTYPE, int M, int N>
TESS_DEVICE void tess_matrix_pull(tess_mma_sum<M, N> &score, tess_mma_sum<M, N> &grad,
                                  const tess_args &args, const tess_matrix_backward_item &item,
                                  const tess_matrix_facing_tiles &at,
                                  const tess_matrix_values &values,
                                  const tess_matrix_lift<DTYPE, M> &lift, bool is_masked)
{
    struct common {
        tess_f32 lse, delta;
    };
    const auto begin = [&](int row) {
        const tess_f32 lse = values.lse[row];
        /* A row that saw nothing has LSE -inf and weights of 0. */
        const common of = {lse == TESS_NEG_INF ? -TESS_NEG_INF : lse, values.delta[row]};
        return of;
    };
    const bool is_plain = !HAS_HOOK || tess_matrix_is_plain(args);
    const tess_f32 factor = is_plain ? args.scale : 1.0f;

    if (!is_plain) {
        tess_matrix_each(score, [&](tess_f32 s) { return s * args.scale; });
        tess_matrix_each_query<KEYS_STAY, M, N>(
            at.own, begin,
            [&](const common &of, int m, int n, int e) { grad.at[m][n][e] -= of.delta; });
        if (args.softcap > 0.0f)
            tess_matrix_pull_softcap<KEYS_STAY>(score, grad, args.softcap);
        if (item.scoring.slopes)
            tess_matrix_pull_slopes<KEYS_STAY>(score, item, at);
        if (item.scoring.bias)
            tess_matrix_pull_bias<KEYS_STAY>(score, item, at);
    }
    if (is_masked)
        tess_matrix_pull_hide<KEYS_STAY>(score, item, at);
    tess_matrix_each_query<KEYS_STAY, M, N>(
        at.own, begin, [&](const common &of, int m, int n, int e) {
            tess_f32 &s = score.at[m][n][e], &g = grad.at[m][n][e];
            s = tess_ptx_ex2_approx_ftz((s * factor - of.lse) * TESS_LOG2_E +
                                        lift.of(2 * m + e / 2));
            g = s * (is_plain ? g - of.delta : g);
        });
}

#endif
