/* SPDX-License-Identifier: Apache-2.0
 * The forward pass on matrix units, after FlashAttention-2 (Dao, 2023). */
#ifndef TESSERA_BACKENDS_GPU_MATRIX_FORWARD_H
#define TESSERA_BACKENDS_GPU_MATRIX_FORWARD_H

#include "backends/gpu/matrix/score.h"
#include "vendor/async.h"

/* for each item of the block                     a tile of folded rows of one key head
 *     Q to shared memory
 *     for each tile of columns                   K and V arrive STAGES - 1 tiles ahead
 *         score = Q K^T                          hook, masks where the tile needs them
 *         admit the tile                         the shift moves, earlier output is rescaled
 *         for 16 columns at a time
 *             weight = exp2(score - shift)       the exponentials of the next columns and the
 *             output += weight V                 products of these overlap
 *     sink, division by the sum, store
 *
 * A wave owns 16 M rows: their scores, weights, output, maxima and sums live in its registers, and
 * a row in four of its lanes. Waves share only the tiles of K and V. One barrier per tile: behind
 * it tile j is everybody's, and the buffer of tile j - 1, which all have left, takes a new one.
 *
 * M = 2 (32 rows a wave) reads half as much shared memory per product as M = 1: a fragment of K or
 * V serves two products. With 128 dims that fills the registers (128 sums of the output, 64
 * scores), so Q stays in shared memory. */

template <int DTYPE_, int DIM_, int M_, int WAVES_, int COLUMNS_, int STAGES_, bool HAS_HOOK_>
struct tess_matrix_shape {
    enum {
        DTYPE = DTYPE_,
        DIM = DIM_, /* head_dim and head_dim_v at most; what is missing is zeros */
        M = M_,     /* times 16 rows of a wave */
        WAVES = WAVES_,
        COLUMNS = COLUMNS_,
        STAGES = STAGES_,     /* tiles of K and V in shared memory */
        HAS_HOOK = HAS_HOOK_, /* scores may be more than scale x dot */
        THREADS = 32 * WAVES,
        ROWS = 16 * M * WAVES,
        K = DIM / 16, /* steps of depth of Q K^T; columns of 16 of the output */
        N = COLUMNS / 8,
        ROW_BYTES = tess_mma_tile<DIM>::PITCH,
        TILE_BYTES = COLUMNS * ROW_BYTES,
        TILES_BYTES = ROWS * ROW_BYTES + 2 * STAGES * TILE_BYTES,
    };

    /* Of a chunk of 16 bytes of Q's tile, whose place the output takes at the end. */
    static TESS_DEVICE_MEMBER tess_u32 q_place(int row, int chunk)
    {
        return tess_mma_tile<DIM>::at(row, chunk);
    }
};

/* What a block keeps in shared memory. */
template <class SHAPE> struct alignas(128) tess_matrix_memory {
    char tiles[SHAPE::TILES_BYTES]; /* Q, then K and V of every stage */
    tess_matrix_item item;
};

/* What a wave knows of its rows. */
template <class SHAPE> struct tess_matrix_rows {
    tess_mma_sum<SHAPE::M, SHAPE::DIM / 8> output;
    tess_os_row row[2 * SHAPE::M]; /* the sum is this lane's part of it until the end */
};

template <class SHAPE> struct tess_matrix_forward {
    enum { M = SHAPE::M, N = SHAPE::N, K = SHAPE::K, DIM = SHAPE::DIM };
    typedef tess_mma_sum<M, N> scores;
    typedef tess_matrix_rows<SHAPE> rows;

    /* Where things lie in shared memory. */
    static TESS_DEVICE_MEMBER tess_u32 k_tile(tess_u32 shared, int stage)
    {
        return shared + SHAPE::ROWS * SHAPE::ROW_BYTES + (tess_u32)(stage * 2 * SHAPE::TILE_BYTES);
    }
    static TESS_DEVICE_MEMBER tess_u32 v_tile(tess_u32 shared, int stage)
    {
        return k_tile(shared, stage) + SHAPE::TILE_BYTES;
    }

    static TESS_DEVICE_MEMBER void stage_q(tess_u32 shared, const tess_matrix_item &item)
    {
        typedef tess_stage<DIM, SHAPE::ROWS, SHAPE::THREADS> stage;
        const tess_rows &q = item.q;
        const auto address = [&](int row) {
            return q.base + tess_fold_index(item.fold, q, row < item.rows ? row : 0) * 2;
        };
        if (!item.is_even) {
            stage::copy_scattered(shared, q.dims, item.rows, q.dim_stride, address);
            return;
        }
        stage::copy(shared, q.dims, item.rows, address);
    }

    /* Columns from `first` on of K or V. */
    static TESS_DEVICE_MEMBER void stage_columns(tess_u32 tile, const tess_rows &rows,
                                                 tess_i64 first, bool is_even)
    {
        typedef tess_stage<DIM, SHAPE::COLUMNS, SHAPE::THREADS> stage;
        const tess_i64 left = rows.count - first;
        const int count = static_cast<int>(tess_min_i64(left, SHAPE::COLUMNS));
        const auto address = [&](int row) {
            return rows.base + tess_row_index(rows, first + (row < count ? row : 0)) * 2;
        };
        if (!is_even)
            stage::copy_scattered(tile, rows.dims, count, rows.dim_stride, address);
        else if (rows.pages || count < SHAPE::COLUMNS)
            stage::copy(tile, rows.dims, count, address);
        else
            stage::copy_evenly(tile, rows.dims, rows.base + first * rows.stride * 2,
                               rows.stride * 2);
    }

    static TESS_DEVICE_MEMBER void load_q(tess_mma_left (&q)[M], tess_u32 q_lane, int k)
    {
        TESS_UNROLL
        for (int m = 0; m < M; m++)
            tess_mma_load_left<DIM>(q[m], q_lane, 16 * m, k);
    }

    /* score = Q K^T */
    static TESS_DEVICE_MEMBER void multiply_transposed(scores &score, tess_u32 q_lane,
                                                       tess_u32 k_lane)
    {
        tess_mma_zero(score);
        TESS_UNROLL
        for (int k = 0; k < K; k++) {
            tess_mma_left q[M];
            load_q(q, q_lane, k);
            TESS_UNROLL
            for (int n = 0; n < N / 2; n++) {
                tess_mma_right columns;
                tess_mma_load_right<DIM>(columns, k_lane, 16 * n, k);
                TESS_UNROLL
                for (int m = 0; m < M; m++)
                    tess_mma_add<SHAPE::DTYPE>(score, m, n, q[m], columns);
            }
        }
    }

    /* A score that the loop holds, in units of log2; what is finite stays finite. */
    static TESS_DEVICE_MEMBER tess_f32 in_log2(tess_f32 score, tess_f32 factor)
    {
        const tess_f32 scaled = score * factor;
        return score > TESS_NEG_INF ? tess_max(scaled, -TESS_MAX_F32) : scaled;
    }

    /* The largest score of each row, this lane's part. A NaN is passed over: it reaches the sum
     * through its own weight. */
    static TESS_DEVICE_MEMBER void row_max(tess_f32 (&max)[2 * M], const scores &score)
    {
        TESS_UNROLL
        for (int r = 0; r < 2 * M; r++) {
            max[r] = TESS_NEG_INF;
            TESS_UNROLL
            for (int n = 0; n < N; n++)
                TESS_UNROLL
            for (int e = r % 2 * 2; e < r % 2 * 2 + 2; e++)
                max[r] = tess_ptx_max_f32(max[r], score.at[r / 2][n][e]);
        }
    }

    static TESS_DEVICE_MEMBER void multiply_row(rows &state, int r, tess_f32 factor)
    {
        TESS_UNROLL
        for (int n = 0; n < DIM / 8; n++)
            TESS_UNROLL
        for (int e = r % 2 * 2; e < r % 2 * 2 + 2; e++)
            state.output.at[r / 2][n][e] *= factor;
    }

    /* The shift lags behind the maximum by up to TESS_OS_LAG, so mostly no row of the wave moves
     * and this is one comparison per row and a vote: neither the four lanes of a row nor the
     * output are touched. Returns whether one moves; then the output so far is to be multiplied by
     * rescale. */
    static TESS_DEVICE_MEMBER bool admit(rows &state, const scores &score, tess_f32 factor,
                                         tess_f32 (&rescale)[2 * M])
    {
        tess_f32 max[2 * M];
        bool grows = false;

        row_max(max, score);
        TESS_UNROLL
        for (int r = 0; r < 2 * M; r++)
            grows |= in_log2(max[r], factor) > state.row[r].shift + TESS_OS_LAG;
        if (!tess_ptx_vote_any(grows))
            return false;

        TESS_UNROLL
        for (int r = 0; r < 2 * M; r++) {
            const tess_f32 all = in_log2(tess_mma_row_max(max[r]), factor);
            const tess_os_step step = tess_os_admit(state.row[r], all);
            state.row[r] = tess_os_advance(state.row[r], step, all, 0.0f);
            rescale[r] = step.rescale;
        }
        return true;
    }

    /* Whether a shift of the wave is so large that factor x score must be rounded before the shift
     * is taken off, as the shift itself was (docs/numerics.md). */
    static TESS_DEVICE_MEMBER bool is_wide(const rows &state)
    {
        bool found = false;
        TESS_UNROLL
        for (int r = 0; r < 2 * M; r++)
            found |= tess_abs(tess_os_shift(state.row[r].shift)) >= 16777216.0f;
        return tess_ptx_vote_any(found);
    }

    /* Columns 16 k ... 16 k + 15: scores to weights. */
    static TESS_DEVICE_MEMBER void weigh(rows &state, scores &score, int k, tess_f32 factor)
    {
        TESS_UNROLL
        for (int r = 0; r < 2 * M; r++) {
            const tess_f32 shift = tess_os_shift(state.row[r].shift);
            TESS_UNROLL
            for (int i = 0; i < 4; i++) {
                tess_f32 &s = score.at[r / 2][2 * k + i / 2][r % 2 * 2 + i % 2];
                s = tess_ptx_ex2_approx_ftz(s * factor - shift);
                state.row[r].sum += s;
            }
        }
    }

    /* output += exp2(score - shift) V */
    static TESS_DEVICE_MEMBER void multiply_weights(rows &state, scores &score, tess_f32 factor,
                                                    tess_u32 v_lane)
    {
        TESS_UNROLL
        for (int k = 0; k < N / 2; k++) {
            tess_mma_left weight[M];
            weigh(state, score, k, factor);
            TESS_UNROLL
            for (int m = 0; m < M; m++)
                tess_mma_pack<SHAPE::DTYPE>(weight[m], score, m, k);
            TESS_UNROLL
            for (int n = 0; n < DIM / 16; n++) {
                tess_mma_right values;
                tess_mma_load_across<DIM>(values, v_lane, 16 * k, n);
                TESS_UNROLL
                for (int m = 0; m < M; m++)
                    tess_mma_add<SHAPE::DTYPE>(state.output, m, n, weight[m], values);
            }
        }
    }

    /* The sink, the division by the sum, and the LSE of each row. */
    static TESS_DEVICE_MEMBER void finish(rows &state, tess_f32 (&lse)[2 * M],
                                          const tess_matrix_item &item, int first_row)
    {
        TESS_UNROLL
        for (int r = 0; r < 2 * M; r++) {
            tess_os_row row = state.row[r];
            tess_f32 rescale = 1.0f;
            row.sum = tess_mma_row_sum(row.sum);
            if (item.sink) {
                const int at = first_row + tess_mma_row(r / 2, r % 2 * 2);
                const tess_os_sunk sunk =
                    tess_os_sink(row, item.sink[tess_fold_head(item.fold, at) * item.sink_stride]);
                row = sunk.row;
                rescale = sunk.rescale;
            }
            multiply_row(state, r, rescale * tess_os_inverse(row.sum));
            lse[r] = tess_os_lse(row);
        }
    }

    /* Whether a row that exists holds a number that is not finite. */
    static TESS_DEVICE_MEMBER bool has_nonfinite(const rows &state, int first_row, int count)
    {
        bool found = false;
        TESS_UNROLL
        for (int r = 0; r < 2 * M; r++) {
            tess_f32 zero = 0.0f; /* x - x: NaN for what is not finite, and a NaN stays */
            TESS_UNROLL
            for (int n = 0; n < DIM / 8; n++)
                TESS_UNROLL
            for (int e = r % 2 * 2; e < r % 2 * 2 + 2; e++)
                zero += state.output.at[r / 2][n][e] - state.output.at[r / 2][n][e];
            found |= first_row + tess_mma_row(r / 2, r % 2 * 2) < count && zero != 0.0f;
        }
        return found;
    }

    /* Rows of fp32, straight from the registers. */
    static TESS_DEVICE_MEMBER void store_f32(const rows &state, tess_f32 *o, const tess_rows &to,
                                             int r)
    {
        TESS_UNROLL
        for (int n = 0; n < DIM / 8; n++)
            TESS_UNROLL
        for (int e = r % 2 * 2; e < r % 2 * 2 + 2; e++)
            if (tess_mma_column(n, e) < to.dims)
                o[tess_mma_column(n, e) * to.dim_stride] = state.output.at[r / 2][n][e];
    }

    /* Rows of the storage type: through the wave's own rows of the tile of Q, so that global memory
     * is written 16 bytes at a time. */
    static TESS_DEVICE_MEMBER void store_16(const rows &state, tess_u32 shared,
                                            const tess_matrix_item &item, int first_row)
    {
        const int lane = (int)tess_lane();

        tess_ptx_bar_warp_sync(); /* all lanes have read their rows of Q */
        TESS_UNROLL
        for (int m = 0; m < M; m++)
            TESS_UNROLL
        for (int n = 0; n < DIM / 8; n++)
            TESS_UNROLL
        for (int e = 0; e < 4; e += 2)
            tess_ptx_st_shared_32(shared + SHAPE::q_place(first_row + tess_mma_row(m, e), n) +
                                      (tess_u32)(lane % 4 * 4),
                                  tess_mma_type<SHAPE::DTYPE>::pack(state.output.at[m][n][e],
                                                                    state.output.at[m][n][e + 1]));
        tess_ptx_bar_warp_sync(); /* and written their part of the output */
        for (int i = lane; i < 16 * M * (DIM / 8); i += 32) {
            const int row = first_row + i / (DIM / 8), chunk = i % (DIM / 8);
            const int left = item.o.dims - 8 * chunk;
            if (row >= item.rows || left <= 0)
                continue;
            tess_u32 part[4];
            tess_ptx_ld_shared_128(part, shared + SHAPE::q_place(row, chunk));
            char *const to =
                item.o.base +
                (tess_fold_index(item.fold, item.o, row) + 8 * chunk * item.o.dim_stride) * 2;
            if (left >= 8 && item.o_is_even) {
                tess_ptx_st_global_128(to, part);
                continue;
            }
            TESS_UNROLL
            for (int d = 0; d < 8; d++)
                if (d < left)
                    reinterpret_cast<unsigned short *>(to)[d * item.o.dim_stride] =
                        static_cast<unsigned short>(part[d / 2] >> (d % 2 * 16));
        }
    }

    static TESS_DEVICE_MEMBER void store(const rows &state, const tess_f32 (&lse)[2 * M],
                                         tess_u32 shared, const tess_matrix_item &item,
                                         int first_row)
    {
        if (item.o.dtype != TESS_F32)
            store_16(state, shared, item, first_row);
        TESS_UNROLL
        for (int r = 0; r < 2 * M; r++) {
            const int row = first_row + tess_mma_row(r / 2, r % 2 * 2);
            if (row >= item.rows)
                continue;
            if (item.o.dtype == TESS_F32)
                store_f32(state,
                          reinterpret_cast<float *>(item.o.base) +
                              tess_fold_index(item.fold, item.o, row),
                          item.o, r);
            if (item.lse.base && tess_lane() % 4 == 0) /* the first of the lanes of the row */
                item.lse.base[tess_fold_query(item.fold, row) * item.lse.stride +
                              tess_fold_head(item.fold, row) * item.lse.head_stride] = lse[r];
        }
    }

    static TESS_DEVICE_MEMBER void run_item(tess_matrix_memory<SHAPE> &memory,
                                            const tess_args &args,
                                            const tess_gpu_addresses &addresses, tess_i64 index)
    {
        const tess_u32 shared = tess_ptx_shared_address(memory.tiles);
        tess_matrix_item &item = memory.item;
        tess_u32 *const redo =
            (tess_u32 *)((char *)addresses.at[TESS_AT_WORKSPACE] + args.redo) + index;
        const bool is_checked = !(args.flags & TESS_ALLOW_NONFINITE_SPREAD);

        if (tess_thread() == 0)
            tess_matrix_item_at(item, args, addresses, index, SHAPE::ROWS, SHAPE::COLUMNS);
        tess_barrier(); /* the item is there for all */
        if (item.rows == 0) {
            if (is_checked && tess_thread() == 0)
                *redo = 0;
            tess_barrier(); /* all have left it to the next one */
            return;
        }

        const bool is_plain = !SHAPE::HAS_HOOK || tess_matrix_is_plain(args);
        const tess_f32 factor = is_plain ? args.scale * TESS_LOG2_E : 1.0f;
        const int tiles = (int)(item.walk.end - item.walk.first);
        tess_matrix_place place;
        rows state;

        place.row = (int)tess_wave() * 16 * M;

        const auto stage_tile = [&](int tile) {
            const tess_i64 first = (item.walk.first + tile) * SHAPE::COLUMNS;
            TESS_NO_UNROLL
            for (int is_v = 0; is_v < 2; is_v++)
                stage_columns(k_tile(shared, tile % SHAPE::STAGES) +
                                  (tess_u32)(is_v * SHAPE::TILE_BYTES),
                              is_v ? item.v : item.k, first, item.is_even);
        };

        stage_q(shared, item);
        tess_mma_zero(state.output);
        TESS_UNROLL
        for (int r = 0; r < 2 * M; r++)
            state.row[r] = tess_os_empty();

        const tess_u32 q_lane = tess_mma_left_lane<DIM>(shared, place.row);

        /* The first rounds only bring tiles: one place in the code does. */
        TESS_NO_UNROLL
        for (int tile = 1 - SHAPE::STAGES; tile < tiles; tile++) {
            if (tile >= 0) {
                tess_stage_wait<SHAPE::STAGES - 2>();
                tess_barrier(); /* tile is there for all; all have left tile - 1 */
            }
            if (tile + SHAPE::STAGES - 1 < tiles)
                stage_tile(tile + SHAPE::STAGES - 1);
            tess_stage_close();
            if (tile < 0)
                continue;
            scores score;
            tess_f32 here = factor;
            place.column = (item.walk.first + tile) * SHAPE::COLUMNS;
            multiply_transposed(score, q_lane,
                                tess_mma_right_lane<DIM>(k_tile(shared, tile % SHAPE::STAGES)));
            if (!is_plain)
                tess_matrix_hook(score, args, item, place);
            if (tess_walk_is_masked(item.walk, item.walk.first + tile))
                tess_matrix_hide(score, item, place);
            tess_f32 rescale[2 * M];
            if (admit(state, score, factor, rescale)) {
                TESS_UNROLL
                for (int r = 0; r < 2 * M; r++)
                    multiply_row(state, r, rescale[r]);
            }
            if (is_wide(state)) {
                tess_matrix_each(score, [&](tess_f32 x) { return in_log2(x, factor); });
                here = 1.0f;
            }
            multiply_weights(state, score, here,
                             tess_mma_across_lane<DIM>(v_tile(shared, tile % SHAPE::STAGES)));
        }

        tess_f32 lse[2 * M];
        tess_stage_wait<0>(); /* Q, where there was no tile to wait for */
        finish(state, lse, item, place.row);
        const bool is_bad = tess_ptx_barrier_red_or(
            has_nonfinite(state, place.row, item.rows)); /* all have left the tiles */
        if (is_checked && tess_thread() == 0)
            *redo = is_bad ? 1u : 0u;
        store(state, lse, shared, item, place.row);
        tess_barrier(); /* all have left shared memory to the next item */
    }
};

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
        tess_matrix_forward<SHAPE>::run_item(memory, args, addresses, i);
}

#endif
