/* SPDX-License-Identifier: Apache-2.0
 * The forward pass on AMD's matrix units, after FlashAttention-2 (Dao, 2023), transposed. */
#ifndef TESSERA_BACKENDS_HIP_MATRIX_FORWARD_H
#define TESSERA_BACKENDS_HIP_MATRIX_FORWARD_H

#include "backends/gpu/matrix/score.h"
#include "backends/hip/matrix/stage.h"

/* for each item of the block                     a tile of folded rows of one key head
 *     Q to registers
 *     for each tile of columns
 *         barrier, K and V^T to shared memory, barrier
 *         start the loads of the next tile       they arrive while this one is multiplied
 *         S^T = K Q^T                            hook, masks where the tile needs them
 *         admit the tile                         the shift moves, earlier output is rescaled
 *         weight = exp2(score - shift)
 *         O^T += V^T weight^T
 *     sink, division by the sum, store
 *
 * A wave owns SIDE rows (queries), and a lane one of them, which it shares with one other lane: a
 * row's maximum, sum and rescaling are arithmetic of the lane, and one exchange. Weights never
 * leave the registers that their scores came in (vendor/mma.h). Q stays in registers.
 *
 * One buffer of tiles in shared memory and one in registers, not two in shared memory: two blocks
 * then fit where shared memory is 64 KB, and one multiplies while the other waits at its barriers.
 */

template <int DTYPE_, int DIM_, int COLUMNS_, int THREADS_, bool HAS_HOOK_>
struct tess_matrix_shape {
    enum {
        DTYPE = DTYPE_,
        DIM = DIM_, /* head_dim and head_dim_v at most; what is missing is zeros */
        COLUMNS = COLUMNS_,
        THREADS = THREADS_,
        HAS_HOOK = HAS_HOOK_, /* scores may be more than scale x dot */
        WAVES = THREADS / TESS_MMA_LANES,
        ROWS = WAVES * TESS_MMA_SIDE,
        K = DIM / 16,                /* steps of depth of K Q^T */
        N = COLUMNS / TESS_MMA_SIDE, /* blocks of columns */
        D = DIM / TESS_MMA_SIDE,     /* blocks of dims of the output */
        B = TESS_MMA_SPAN / 8,       /* steps of depth of a block of columns */
    };
    typedef tess_stage<DIM, COLUMNS, THREADS> stage;
};

/* What a block keeps in shared memory. */
template <class SHAPE> struct alignas(16) tess_matrix_memory {
    char k[SHAPE::stage::K_BYTES];
    char v[SHAPE::stage::V_BYTES];
    tess_matrix_item item;
    tess_u32 is_bad[8]; /* of each wave */
};

/* What a lane knows of its row. */
template <class SHAPE> struct tess_matrix_row {
    tess_mma_sums output[SHAPE::D];
    tess_os_row row; /* the sum is this lane's part of it until the end */
};

/* Weights are 2^TESS_MATRIX_LIFT as large as they need be: f16 has little room below 1 and much
 * above, and one unit takes what is below its normal numbers as zero. With the shift's lag the
 * largest is 2^15. The sum is lifted as well; both come down at the end. */
#define TESS_MATRIX_LIFT 7.0f
#define TESS_MATRIX_LIFTED 128.0f

template <class SHAPE> struct tess_matrix_forward {
    enum { N = SHAPE::N, K = SHAPE::K, D = SHAPE::D, B = SHAPE::B, DIM = SHAPE::DIM };
    typedef tess_mma_scores<N> scores;
    typedef tess_matrix_row<SHAPE> row_state;
    typedef typename SHAPE::stage stage;
    typedef tess_mma_kept<DIM> kept;

    /* ---- Bringing tiles ---- */

    static TESS_DEVICE_MEMBER bool is_near(const tess_rows &rows)
    {
        return !rows.pages && rows.stride >= 0 &&
               rows.stride < static_cast<tess_i64>(0x40000000) / SHAPE::COLUMNS;
    }

    static TESS_DEVICE_MEMBER const char *uniform_address(const char *address)
    {
        return reinterpret_cast<const char *>(
            tess_uniform_i64(reinterpret_cast<tess_i64>(address)));
    }

    static TESS_DEVICE_MEMBER tess_matrix_stream stream_of(const tess_matrix_item &item)
    {
        tess_matrix_stream s;
        s.k = uniform_address(item.k.base);
        s.v = uniform_address(item.v.base);
        s.k_bytes = tess_uniform(static_cast<int>(item.k.stride) * 2);
        s.v_bytes = tess_uniform(static_cast<int>(item.v.stride) * 2);
        s.k_dims = tess_uniform(item.k.dims);
        s.v_dims = tess_uniform(item.v.dims);
        s.last = tess_uniform(static_cast<int>(tess_min_i64(item.k.count, item.v.count)) - 1);
        s.is_even = tess_uniform(item.is_even && (item.k.dims | item.v.dims) % 8 == 0);
        s.is_steady = tess_uniform(s.is_even && is_near(item.k) && is_near(item.v));
        return s;
    }

    /* This lane's row of Q; a row that does not exist is zeros. */
    static TESS_DEVICE_MEMBER void load_q(kept (&q)[K], const tess_matrix_item &item, int row)
    {
        const int half = tess_mma_half();
        const tess_i64 index = tess_fold_index(item.fold, item.q, row < item.rows ? row : 0);
        const int left = row < item.rows ? item.q.dims - 8 * half : 0; /* of the first step */
        const tess_u32x4 zeros = {0, 0, 0, 0};

        if (tess_uniform(item.is_even && item.q.dims % 8 == 0)) {
            TESS_UNROLL
            for (int k = 0; k < K; k++) {
                const tess_u32x4 own = tess_read_16(item.q.base + index * 2 +
                                                    (16 * k < left ? 32 * k + 16 * half : 0));
                q[k].take(16 * k < left ? own : zeros, half); /* it is here before the loop */
            }
            return;
        }
        TESS_UNROLL
        for (int k = 0; k < K; k++)
            q[k].take(zeros, half);
        const char *const at = item.q.base + (index + 8 * half * item.q.dim_stride) * 2;
        TESS_NO_UNROLL
        for (int step = 0; step < K; step++) {
            const tess_u32x4 own = tess_read_dims(at + 32 * step * item.q.dim_stride,
                                                  item.q.dim_stride, left - 16 * step);
            TESS_UNROLL
            for (int k = 0; k < K; k++) /* registers have no index */
                if (k == step)
                    q[k].take(own, half);
        }
    }

    /* ---- Scores ---- */

    /* S^T = K Q^T */
    static TESS_DEVICE_MEMBER void multiply_transposed(scores &score, const kept (&q)[K],
                                                       const char *k_row)
    {
        TESS_UNROLL
        for (int n = 0; n < N; n++)
            score.at[n] = 0.0f;
        TESS_UNROLL
        for (int k = 0; k < K; k++) {
            const tess_mma_operand query = q[k].give(tess_mma_half());
            TESS_UNROLL
            for (int n = 0; n < N; n++)
                tess_mma_add<SHAPE::DTYPE>(
                    score.at[n],
                    tess_mma_load(k_row + n * TESS_MMA_SIDE * stage::K_PITCH, k, tess_mma_half()),
                    query);
        }
    }

    /* A score that the loop holds, in units of log2; what is finite stays finite. */
    static TESS_DEVICE_MEMBER tess_f32 in_log2(tess_f32 score, tess_f32 factor)
    {
        const tess_f32 scaled = score * factor;
        return score > TESS_NEG_INF ? tess_max(scaled, -TESS_MAX_F32) : scaled;
    }

    /* The largest score of the row, this lane's part. A NaN is passed over: it reaches the sum
     * through its own weight. */
    static TESS_DEVICE_MEMBER tess_f32 row_max(const scores &score)
    {
        tess_f32 max = TESS_NEG_INF;
        TESS_UNROLL
        for (int i = 0; i < scores::EACH; i++)
            max = __builtin_fmaxf(max, score.get(0, i));
        return max;
    }

    static TESS_DEVICE_MEMBER void multiply_row(row_state &state, tess_f32 factor)
    {
        TESS_UNROLL
        for (int d = 0; d < D; d++)
            state.output[d] *= factor;
    }

    /* The shift lags behind the maximum by up to TESS_OS_LAG, so mostly no row of the wave moves
     * and this is one comparison and a vote: neither the other lane nor the output is touched. */
    static TESS_DEVICE_MEMBER void admit(row_state &state, const scores &score, tess_f32 factor)
    {
        const tess_f32 max = row_max(score);

        if (!tess_wave_any(in_log2(max, factor) > state.row.shift + TESS_OS_LAG))
            return;
        const tess_f32 all = in_log2(__builtin_fmaxf(max, tess_mma_exchange(max)), factor);
        const tess_os_step step = tess_os_admit(state.row, all);
        state.row = tess_os_advance(state.row, step, all, 0.0f);
        multiply_row(state, step.rescale);
    }

    /* Whether a shift of the wave is so large that factor x score must be rounded before the shift
     * is taken off, as the shift itself was (docs/numerics.md). */
    static TESS_DEVICE_MEMBER bool is_wide(const row_state &state)
    {
        return tess_wave_any(tess_abs(tess_os_shift(state.row.shift)) >= 16777216.0f);
    }

    /* ---- Output ---- */

    /* O^T += V^T exp2(factor score - shift)^T */
    static TESS_DEVICE_MEMBER void multiply_weights(row_state &state, scores &score,
                                                    tess_f32 factor, tess_f32 shift,
                                                    const char *v_row)
    {
        TESS_UNROLL
        for (int n = 0; n < N; n++) {
            TESS_UNROLL
            for (int i = 0; i < TESS_MMA_SPAN; i++) {
                const tess_f32 weight = tess_quick_exp2(score.at[n][i] * factor - shift);
                score.at[n][i] = weight;
                state.row.sum += weight;
            }
            TESS_UNROLL
            for (int b = 0; b < B; b++) {
                const tess_mma_operand weights =
                    tess_mma_pack<SHAPE::DTYPE>(score.at[n], b, tess_mma_half());
                TESS_UNROLL
                for (int d = 0; d < D; d++)
                    tess_mma_add<SHAPE::DTYPE>(
                        state.output[d],
                        tess_mma_load_across(v_row + d * TESS_MMA_SIDE * stage::V_PITCH, n, b,
                                             tess_mma_half()),
                        weights);
            }
        }
    }

    /* The sink, the division by the sum, and the LSE of the row. */
    static TESS_DEVICE_MEMBER tess_f32 finish(row_state &state, const tess_matrix_item &item,
                                              int row)
    {
        const tess_f32 down = 1.0f / TESS_MATRIX_LIFTED;
        tess_f32 rescale = down;

        state.row.sum = (state.row.sum + tess_mma_exchange(state.row.sum)) * down;
        if (item.sink) {
            const tess_os_sunk sunk = tess_os_sink(
                state.row, item.sink[tess_fold_head(item.fold, row) * item.sink_stride]);
            state.row = sunk.row;
            rescale *= sunk.rescale;
        }
        multiply_row(state, rescale * tess_os_inverse(state.row.sum));
        return tess_os_lse(state.row);
    }

    /* A unit that flushes may have taken all of V as zero. A row whose output is so small that it
     * shows is made NaN, for REDO to compute it without the unit. */
    static TESS_DEVICE_MEMBER void doubt_small(row_state &state)
    {
        const tess_f32 least = SHAPE::DTYPE == TESS_F16 ? 6.103515625e-5f : 1e-35f;
        tess_f32 max = 0.0f;

        TESS_UNROLL
        for (int d = 0; d < D; d++)
            TESS_UNROLL
        for (int i = 0; i < TESS_MMA_SPAN; i++)
            max = __builtin_fmaxf(max, tess_abs(state.output[d][i]));
        max = __builtin_fmaxf(max, tess_mma_exchange(max));
        if (max < least && state.row.sum != 0.0f)
            state.output[0][0] = __builtin_nanf("");
    }

    /* Whether the lane's part of its row holds a number that is not finite. */
    static TESS_DEVICE_MEMBER bool has_nonfinite(const row_state &state)
    {
        tess_f32 zero = 0.0f; /* x - x: NaN for what is not finite, and a NaN stays */
        TESS_UNROLL
        for (int d = 0; d < D; d++)
            TESS_UNROLL
        for (int i = 0; i < TESS_MMA_SPAN; i++)
            zero += state.output[d][i] - state.output[d][i];
        return zero != 0.0f;
    }

    /* Eight neighbouring dims of the output, rounded once, of which `left` exist. */
    static TESS_DEVICE_MEMBER void store_dims(const tess_mma_sums &sums, int first, char *to,
                                              tess_i64 dim_stride, int left, bool is_even)
    {
        tess_u32x4 part;

        TESS_UNROLL
        for (int i = 0; i < 4; i++) {
            const tess_f32 low = sums[first + 2 * i], high = sums[first + 2 * i + 1];
            part[i] = SHAPE::DTYPE == TESS_F16
                          ? tess_mma_pair<TESS_F16>(low, high)
                          : tess_bf16_from_f32(low) | tess_bf16_from_f32(high) << 16;
        }
        if (is_even && left >= 8) {
            tess_write_16(to, part);
            return;
        }
        TESS_UNROLL
        for (int i = 0; i < 8; i++)
            if (i < left)
                tess_write_u16(to + i * dim_stride * 2, part[i / 2] >> i % 2 * 16);
    }
    static TESS_DEVICE_MEMBER void store_dims_f32(const tess_mma_sums &sums, int first, char *to,
                                                  tess_i64 dim_stride, int left, bool is_even)
    {
        TESS_UNROLL
        for (int i = first; i < first + 8; i += 4) {
            const tess_f32x4 part = {sums[i], sums[i + 1], sums[i + 2], sums[i + 3]};
            char *const at = to + (i - first) * dim_stride * 4;
            if (is_even && left >= i - first + 4) {
                tess_write_16(at, __builtin_bit_cast(tess_u32x4, part));
                continue;
            }
            TESS_UNROLL
            for (int e = 0; e < 4; e++)
                if (i - first + e < left)
                    tess_write_f32(at + e * dim_stride * 4, part[e]);
        }
    }

    static TESS_DEVICE_MEMBER void store(const row_state &state, tess_f32 lse,
                                         const tess_matrix_item &item, int row)
    {
        const int own = tess_mma_half() * TESS_MMA_SPAN; /* the lane's first dim of a block */
        const int size = tess_uniform(item.o.dtype == TESS_F32) ? 4 : 2;
        const bool is_even = tess_uniform(item.o_is_even);

        if (row >= item.rows)
            return;
        const tess_i64 stride = item.o.dim_stride;
        char *const to =
            item.o.base + (tess_fold_index(item.fold, item.o, row) + own * stride) * size;
        const int left = item.o.dims - own;
        TESS_UNROLL
        for (int d = 0; d < D; d++)
            TESS_UNROLL
        for (int b = 0; b < B; b++) {
            const int dim = d * TESS_MMA_SIDE + 8 * b;
            if (size == 4)
                store_dims_f32(state.output[d], 8 * b, to + dim * stride * 4, stride, left - dim,
                               is_even);
            else
                store_dims(state.output[d], 8 * b, to + dim * stride * 2, stride, left - dim,
                           is_even);
        }
        if (item.lse.base && own == 0)
            tess_write_f32(reinterpret_cast<char *>(
                               item.lse.base + tess_fold_query(item.fold, row) * item.lse.stride +
                               tess_fold_head(item.fold, row) * item.lse.head_stride),
                           lse);
    }

    /* ---- An item ---- */

    static TESS_DEVICE_MEMBER void run_item(tess_matrix_memory<SHAPE> &memory,
                                            const tess_args &args,
                                            const tess_gpu_addresses &addresses, tess_i64 index)
    {
        tess_matrix_item &item = memory.item;
        tess_u32 *const redo =
            reinterpret_cast<tess_u32 *>(static_cast<char *>(addresses.at[TESS_AT_WORKSPACE]) +
                                         args.redo) +
            index;
        const bool is_checked = !(args.flags & TESS_ALLOW_NONFINITE_SPREAD);

        if (tess_thread() == 0)
            tess_matrix_item_at(item, args, addresses, index, args.tile_rows, args.tile_columns);
        tess_barrier(); /* the item is there for all */
        if (tess_uniform(item.rows) == 0) {
            if (is_checked && tess_thread() == 0)
                *redo = 0;
            tess_barrier(); /* all have left it to the next one */
            return;
        }

        const bool is_plain = !SHAPE::HAS_HOOK || tess_matrix_is_plain(args);
        const tess_f32 factor = is_plain ? args.scale * TESS_LOG2_E : 1.0f;
        const tess_matrix_stream stream = stream_of(item);
        const int first_tile = tess_uniform(static_cast<int>(item.walk.first));
        const int tiles = tess_uniform(static_cast<int>(item.walk.end - item.walk.first));
        const int full_first = tess_uniform(
            static_cast<int>(tess_clamp(item.walk.full_first - item.walk.first, 0, tiles)));
        const int full_end = tess_uniform(
            static_cast<int>(tess_clamp(item.walk.full_end - item.walk.first, 0, tiles)));
        const char *const k_row = memory.k + tess_mma_side() * stage::K_PITCH;
        const char *const v_row = memory.v + tess_mma_side() * stage::V_PITCH;
        tess_matrix_place place;
        row_state state;
        kept q[K];
        stage next;

        next.zero();
        place.row = tess_uniform(static_cast<int>(tess_wave())) * TESS_MMA_SIDE;
        const int row = place.row + tess_mma_side();

        TESS_UNROLL
        for (int d = 0; d < D; d++)
            state.output[d] = 0.0f;
        state.row = tess_os_empty();
        load_q(q, item, row);

        /* The first round only brings a tile: one place in the code does. */
        TESS_NO_UNROLL
        for (int tile = -1; tile < tiles; tile++) {
            scores score;
            tess_f32 here = factor;
            const int column = (first_tile + tile) * SHAPE::COLUMNS;

            if (tile >= 0) {
                tess_barrier(); /* all have left tile - 1 */
                if (stream.is_even)
                    next.put(memory.k, memory.v, stream);
                else
                    stage::copy(memory.k, memory.v, stream, item.k, item.v, column);
                tess_barrier(); /* tile is there for all */
            }
            if (tile + 1 < tiles)
                next.fetch(stream, item.k, item.v, column + SHAPE::COLUMNS);
            if (tile < 0)
                continue;
            place.column = column;
            multiply_transposed(score, q, k_row);
            if (!is_plain)
                tess_matrix_hook(score, args, item, place);
            if (tile < full_first || tile >= full_end)
                tess_matrix_hide(score, item, place);
            admit(state, score, factor);
            tess_f32 shift = tess_os_shift(state.row.shift);
            if (is_wide(state)) { /* the lift is added behind, or the shift's rounding takes it */
                tess_matrix_each(score, [&](tess_f32 x) { return in_log2(x, factor) - shift; });
                here = 1.0f;
                shift = 0.0f;
            }
            multiply_weights(state, score, here, shift - TESS_MATRIX_LIFT, v_row);
        }

        const tess_f32 lse = finish(state, item, row);
        if (TESS_MMA_FLUSHES && is_checked)
            doubt_small(state);
        const bool is_bad = tess_wave_any(has_nonfinite(state) && row < item.rows);
        if (tess_lane() == 0)
            memory.is_bad[tess_wave()] = is_bad;
        store(state, lse, item, row);
        tess_barrier(); /* all have said so, and left shared memory to the next item */
        if (is_checked && tess_thread() == 0) {
            tess_u32 any = 0;
            TESS_UNROLL
            for (int wave = 0; wave < SHAPE::WAVES; wave++)
                any |= memory.is_bad[wave];
            *redo = any;
        }
    }
};

/* The same parameters, read again for every item: the compiler cannot know that no item's number is
 * negative. It would read all hundred numbers in front of the loop and have no scalar registers to
 * keep them in. */
template <class PARAMETERS>
TESS_DEVICE const PARAMETERS &tess_again(const PARAMETERS &parameters, tess_i64 item)
{
    return *(&parameters + static_cast<int>(item >> 63));
}

/* The role FORWARD MAIN_CHECKED. */
template <class SHAPE, int SHARED>
TESS_DEVICE void tess_matrix_forward_main(const tess_args &args,
                                          const tess_gpu_addresses &addresses,
                                          const tess_gpu_run &run)
{
    tess_matrix_memory<SHAPE> &memory = *tess_shared<tess_matrix_memory<SHAPE>>();
    static_assert(sizeof memory == SHARED, "the line in matrix.def says how much it is");

    TESS_NO_UNROLL
    for (tess_i64 i = run.first_item + tess_block(); i < run.first_item + run.items;
         i += tess_blocks())
        tess_matrix_forward<SHAPE>::run_item(memory, tess_again(args, i), tess_again(addresses, i),
                                             i);
}

#endif
