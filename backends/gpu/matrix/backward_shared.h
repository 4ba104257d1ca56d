/* SPDX-License-Identifier: Apache-2.0
 * The main kernel of the backward pass on matrix units whose waves exchange P and gradients. */
#ifndef TESSERA_BACKENDS_GPU_MATRIX_BACKWARD_SHARED_H
#define TESSERA_BACKENDS_GPU_MATRIX_BACKWARD_SHARED_H

#include "backends/gpu/matrix/backward_score.h"
#include "backends/gpu/matrix/backward_stage.h"
#include "backends/gpu/matrix/store.h"

/* As MAIN of backward.h, but P' and g' go through shared memory, whence every wave takes the part
 * it needs as a left operand:
 *
 *     KEYS rows of K and V stay, ROWS folded rows of Q and dO stream
 *     products    a wave has 32 keys and ROWS / GROUPS queries: S' = K Q^T, V dO^T
 *     sums        32 keys and DIM / GROUPS dims:                dV += P' dO, dK += g' Q
 *     dQ          ROWS / QUERY_WAVES queries and some dims:     g K, added in memory
 *
 * with KEYS / 32 waves along the keys and GROUPS beside each other. So a wave keeps a share of the
 * dims, which is what makes 32 keys of it (a fragment of dO or Q serves two products), or 256 dims,
 * fit the registers; it costs a second barrier a tile. With g there for all, dQ of the tile's rows
 * is one more product instead of three in a kernel of its own. Its sums over the keys are made in
 * memory by whoever comes, in fp32, in an order that nobody knows: ADDS is for runs that do not ask
 * for equal bits. bf16 only: rows of f16 have their own factors (tess_matrix_lift), and here one
 * rounding of g would have to serve two of them. */

template <int DTYPE_, int DIM_, int KEYS_, int ROWS_, int WAVES_, bool ADDS_, bool HAS_HOOK_>
struct tess_matrix_shared_shape {
    enum {
        DTYPE = DTYPE_,
        DIM = DIM_,
        KEYS = KEYS_,
        ROWS = ROWS_,
        WAVES = WAVES_,
        ADDS = ADDS_, /* dQ too */
        HAS_HOOK = HAS_HOOK_,
        THREADS = 32 * WAVES,
        STAGES = 2,
        KEY_WAVES = KEYS / 32,
        GROUPS = WAVES / KEY_WAVES,
        M = 2,
        N = ROWS / GROUPS / 8,
        GROUP_ROWS = ROWS / GROUPS,
        GROUP_DIMS = DIM / GROUPS,
        QUERY_WAVES = DIM / (WAVES / 2) % 16 == 0 ? 2 : 4, /* of dQ */
        DQ_M = ROWS / QUERY_WAVES / 16,
        DQ_DIMS = DIM / (WAVES / QUERY_WAVES),
        ROW_BYTES = tess_mma_tile<DIM>::PITCH,
        STAYING_BYTES = KEYS * ROW_BYTES,
        STREAMED_BYTES = ROWS * ROW_BYTES,
        EXCHANGED_BYTES = KEYS * tess_mma_tile<ROWS>::PITCH,
        TILES_BYTES = 2 * STAYING_BYTES + 2 * STAGES * STREAMED_BYTES + 2 * EXCHANGED_BYTES,
    };
    static_assert(GROUP_ROWS % 16 == 0 && GROUP_DIMS % 16 == 0 && DQ_DIMS % 16 == 0,
                  "right operands are 16 columns");
    static_assert(DTYPE_ == TESS_BF16, "gradients are not lifted");
};

template <class SHAPE> struct alignas(128) tess_matrix_shared_memory {
    char tiles[SHAPE::TILES_BYTES]; /* K, V; Q and dO of each stage; P', g' */
    float lse[SHAPE::STAGES * SHAPE::ROWS], delta[SHAPE::STAGES * SHAPE::ROWS];
    tess_matrix_backward_item item;
    float *dq; /* of the sequence's first row and the group's first head, in the workspace */
};

template <class SHAPE> struct tess_matrix_shared {
    enum { M = SHAPE::M, N = SHAPE::N, DIM = SHAPE::DIM, ROWS = SHAPE::ROWS };
    typedef tess_mma_sum<M, N> scores;
    typedef tess_mma_sum<M, SHAPE::GROUP_DIMS / 8> sums;
    typedef tess_mma_sum<SHAPE::DQ_M, SHAPE::DQ_DIMS / 8> dq_sums;
    typedef tess_matrix_shared_memory<SHAPE> block_memory;

    /* K and V, Q and dO, g' and P': gradients come of the first of each, weights of the second. */
    enum { FIRST, SECOND };

    static TESS_DEVICE_MEMBER tess_u32 staying(tess_u32 shared, int which)
    {
        return shared + (tess_u32)(which * SHAPE::STAYING_BYTES);
    }
    static TESS_DEVICE_MEMBER tess_u32 streamed(tess_u32 shared, int stage, int which)
    {
        return shared +
               (tess_u32)(2 * SHAPE::STAYING_BYTES + (2 * stage + which) * SHAPE::STREAMED_BYTES);
    }
    static TESS_DEVICE_MEMBER tess_u32 exchanged(tess_u32 shared, int which)
    {
        return shared +
               (tess_u32)(2 * SHAPE::STAYING_BYTES + 2 * SHAPE::STAGES * SHAPE::STREAMED_BYTES +
                          which * SHAPE::EXCHANGED_BYTES);
    }

    /* The wave's first key, and its place among those that share its keys. */
    static TESS_DEVICE_MEMBER int own_key() { return (int)tess_wave() % SHAPE::KEY_WAVES * 32; }
    static TESS_DEVICE_MEMBER int group() { return (int)tess_wave() / SHAPE::KEY_WAVES; }

    static TESS_DEVICE_MEMBER void stage_streamed(block_memory &memory, tess_u32 shared,
                                                  tess_i64 tile, int stage)
    {
        const tess_matrix_backward_item &item = memory.item;
        const tess_i64 first = tile * ROWS;
        TESS_NO_UNROLL
        for (int which = 0; which < 2; which++)
            tess_matrix_stage_rows<DIM, ROWS, SHAPE::THREADS>(
                streamed(shared, stage, which), which ? item.d_o : item.q, first, item.is_even);
        tess_matrix_stage_values(item, first, ROWS, memory.lse + stage * ROWS,
                                 memory.delta + stage * ROWS);
    }

    /* Rounded to the storage type, rows of keys. */
    static TESS_DEVICE_MEMBER void exchange(const scores &score, tess_u32 tile)
    {
        const tess_u32 lane = tess_lane() % 4 * 4;
        TESS_UNROLL
        for (int m = 0; m < M; m++)
            TESS_UNROLL
        for (int n = 0; n < N; n++)
            TESS_UNROLL
        for (int e = 0; e < 4; e += 2)
            tess_ptx_st_shared_32(
                tile + lane +
                    tess_mma_tile<ROWS>::at(own_key() + tess_mma_row(m, e),
                                            group() * (SHAPE::GROUP_ROWS / 8) + n),
                tess_mma_type<SHAPE::DTYPE>::pack(score.at[m][n][e], score.at[m][n][e + 1]));
    }

    /* to += P' dO or g' Q, of the wave's keys and dims */
    static TESS_DEVICE_MEMBER void multiply(sums &to, tess_u32 weights, tess_u32 rows)
    {
        const tess_u32 left_lane = tess_mma_left_lane<ROWS>(weights, own_key());
        const tess_u32 right_lane = tess_mma_across_lane<DIM>(rows);
        TESS_UNROLL
        for (int k = 0; k < ROWS / 16; k++) {
            tess_mma_left left[M];
            TESS_UNROLL
            for (int m = 0; m < M; m++)
                tess_mma_load_left<ROWS>(left[m], left_lane, 16 * m, k);
            TESS_UNROLL
            for (int n = 0; n < SHAPE::GROUP_DIMS / 16; n++) {
                tess_mma_right right;
                tess_mma_load_across<DIM>(right, right_lane, 16 * k,
                                          group() * (SHAPE::GROUP_DIMS / 16) + n);
                TESS_UNROLL
                for (int m = 0; m < M; m++)
                    tess_mma_add<SHAPE::DTYPE>(to, m, n, left[m], right);
            }
        }
    }

    /* dQ of the tile's rows += g K, in memory. */
    static TESS_DEVICE_MEMBER void add_dq(const block_memory &memory, const tess_args &args,
                                          tess_u32 shared, tess_i64 streamed_row)
    {
        const int first_row = (int)tess_wave() % SHAPE::QUERY_WAVES * (ROWS / SHAPE::QUERY_WAVES);
        const int first_dim = (int)tess_wave() / SHAPE::QUERY_WAVES * SHAPE::DQ_DIMS;
        const tess_u32 left_lane = tess_mma_left_across_lane<ROWS>(exchanged(shared, FIRST));
        const tess_u32 right_lane = tess_mma_across_lane<DIM>(staying(shared, FIRST));
        dq_sums dq;

        tess_mma_zero(dq);
        TESS_UNROLL
        for (int k = 0; k < SHAPE::KEYS / 16; k++) {
            tess_mma_left left[SHAPE::DQ_M];
            TESS_UNROLL
            for (int m = 0; m < SHAPE::DQ_M; m++)
                tess_mma_load_left_across<ROWS>(left[m], left_lane, 16 * k, first_row / 16 + m);
            TESS_UNROLL
            for (int n = 0; n < SHAPE::DQ_DIMS / 16; n++) {
                tess_mma_right right;
                tess_mma_load_across<DIM>(right, right_lane, 16 * k, first_dim / 16 + n);
                TESS_UNROLL
                for (int m = 0; m < SHAPE::DQ_M; m++)
                    tess_mma_add<SHAPE::DTYPE>(dq, m, n, left[m], right);
            }
        }

        const tess_i64 pitch = tess_dq_pitch(args.head_dim);
        const tess_fold fold = tess_fold_at(streamed_row, memory.item.group);
        const int rows = (int)tess_min_i64(memory.item.q.count - streamed_row, ROWS);
        TESS_UNROLL
        for (int r = 0; r < 2 * SHAPE::DQ_M; r++) {
            const int row = first_row + tess_mma_row(r / 2, r % 2 * 2);
            if (row >= rows)
                continue;
            float *const to =
                memory.dq +
                (tess_fold_query(fold, row) * args.heads_q + tess_fold_head(fold, row)) * pitch;
            TESS_UNROLL
            for (int n = 0; n < SHAPE::DQ_DIMS / 8; n++) {
                const int dim = first_dim + tess_mma_column(n, 0);
                if (dim < args.head_dim) /* what follows an odd one is room for a zero */
                    tess_ptx_red_add_f32x2(to + dim, dq.at[r / 2][n][r % 2 * 2],
                                           dq.at[r / 2][n][r % 2 * 2 + 1]);
            }
        }
    }

    /* What a wave gathers. */
    struct state {
        sums of_gradients, of_weights; /* dK, dV */
        tess_matrix_lift<SHAPE::DTYPE, M> lift;
    };

    static TESS_DEVICE_MEMBER void run_tile(block_memory &memory, const tess_args &args,
                                            tess_u32 shared, int tile, int stage, state &all)
    {
        const tess_matrix_backward_item &item = memory.item;
        {
            const int first = group() * SHAPE::GROUP_ROWS; /* of the wave's queries in the tile */
            const int values = stage * ROWS + first;
            scores score, grad;

            tess_matrix_multiply_rows<SHAPE::DTYPE, DIM>(
                score, tess_mma_left_lane<DIM>(staying(shared, FIRST), own_key()),
                tess_mma_right_lane<DIM>(streamed(shared, stage, FIRST)) +
                    (tess_u32)(first * SHAPE::ROW_BYTES));
            tess_matrix_multiply_rows<SHAPE::DTYPE, DIM>(
                grad, tess_mma_left_lane<DIM>(staying(shared, SECOND), own_key()),
                tess_mma_right_lane<DIM>(streamed(shared, stage, SECOND)) +
                    (tess_u32)(first * SHAPE::ROW_BYTES));
            tess_matrix_facing_tiles at; /* only now, when registers are free again */
            at.streamed = (item.tile_first + tile) * ROWS + first;
            at.own = own_key();
            at.fold = tess_fold_at(at.streamed, item.group);
            const tess_matrix_values of_rows = {memory.lse + values, memory.delta + values};
            tess_matrix_pull<true, SHAPE::HAS_HOOK>(score, grad, args, item, at, of_rows, all.lift,
                                                    tile < item.full_first ||
                                                        tile >= item.full_end);
            exchange(score, exchanged(shared, SECOND));
            exchange(grad, exchanged(shared, FIRST));
        }
        tess_barrier(); /* P' and g' are there for all */
        multiply(all.of_weights, exchanged(shared, SECOND), streamed(shared, stage, SECOND));
        multiply(all.of_gradients, exchanged(shared, FIRST), streamed(shared, stage, FIRST));
        if (SHAPE::ADDS && memory.dq) {
            const tess_i64 row = (item.tile_first + tile) * ROWS;
            add_dq(memory, args, shared, row);
        }
    }

    /* Flags the item, writes its gradients. */
    static TESS_DEVICE_MEMBER void finish(block_memory &memory, const tess_args &args,
                                          const tess_gpu_addresses &addresses, tess_u32 shared,
                                          state &all)
    {
        const tess_matrix_backward_item &item = memory.item;
        const int first_dim = group() * SHAPE::GROUP_DIMS;
        bool is_bad;

        TESS_UNROLL
        for (int r = 0; r < 2 * M; r++)
            tess_matrix_multiply_row(all.of_gradients, r, args.scale);
        is_bad = tess_matrix_has_nonfinite(all.of_gradients, own_key(), item.rows) ||
                 tess_matrix_has_nonfinite(all.of_weights, own_key(), item.rows);
        is_bad = tess_ptx_barrier_red_or(is_bad); /* all have left the tiles */
        tess_matrix_flag(item, args, addresses, is_bad);
        tess_matrix_put<SHAPE::DTYPE, DIM>(all.of_gradients, staying(shared, FIRST), item.out_k,
                                           item.fold, item.out_k_is_even, own_key(), item.rows,
                                           first_dim);
        tess_matrix_put<SHAPE::DTYPE, DIM>(all.of_weights, staying(shared, SECOND), item.out_v,
                                           item.fold, item.out_v_is_even, own_key(), item.rows,
                                           first_dim);
    }

    static TESS_DEVICE_MEMBER void make_item(block_memory &memory, const tess_args &args,
                                             const tess_gpu_addresses &addresses, tess_i64 index)
    {
        tess_matrix_backward_item &item = memory.item;

        tess_matrix_keys_item(item, args, addresses, index, ROWS);
        memory.dq = nullptr;
        if (SHAPE::ADDS && item.rows > 0 && (args.gradients & TESS_GRADIENT_Q)) {
            const tess_i64 shares =
                tess_divide(args.columns + args.share_columns - 1, args.share_columns);
            const tess_i64 heads = tess_divide(index, shares);
            const tess_i64 sequence = tess_divide(heads, args.heads_kv);
            memory.dq = tess_dq_rows(args, addresses, tess_sequence_at(args, addresses, sequence),
                                     (heads - sequence * args.heads_kv) * args.group);
        }
    }

    /* Returns its index, which so needs no register on the way. */
    static TESS_DEVICE_MEMBER tess_i64 run_item(block_memory &memory, const tess_args &args,
                                                const tess_gpu_addresses &addresses, tess_i64 index)
    {
        const tess_u32 shared = tess_ptx_shared_address(memory.tiles);
        const tess_matrix_backward_item &item = memory.item;

        if (tess_thread() == 0)
            make_item(memory, args, addresses, index);
        tess_barrier(); /* the item is there for all */
        if (item.rows == 0) {
            const tess_i64 empty = item.index;
            tess_matrix_flag(item, args, addresses, false);
            tess_barrier(); /* all have left it to the next one */
            return empty;
        }

        const int tiles = (int)(item.tile_end - item.tile_first);
        state all;

        TESS_NO_UNROLL
        for (int which = 0; which < 2; which++)
            tess_matrix_stage_rows<DIM, SHAPE::KEYS, SHAPE::THREADS>(
                staying(shared, which), which ? item.v : item.k, item.first, item.is_even);
        tess_mma_zero(all.of_gradients);
        tess_mma_zero(all.of_weights);
        /* The first rounds only bring tiles: one place in the code does. */
        TESS_NO_UNROLL
        for (int tile = 1 - SHAPE::STAGES; tile < tiles; tile++) {
            if (tile >= 0) {
                tess_stage_wait<SHAPE::STAGES - 2>();
                tess_barrier(); /* tile is there for all; all have left tile - 1 */
            }
            if (tile + SHAPE::STAGES - 1 < tiles)
                stage_streamed(memory, shared, item.tile_first + tile + SHAPE::STAGES - 1,
                               (tile + SHAPE::STAGES - 1) % SHAPE::STAGES);
            tess_stage_close();
            if (tile >= 0)
                run_tile(memory, args, shared, tile, tile % SHAPE::STAGES, all);
        }
        tess_stage_wait<0>(); /* what stays, where there was no tile to wait for */
        finish(memory, args, addresses, shared, all);
        const tess_i64 done = item.index;
        tess_barrier(); /* all have left shared memory to the next item */
        return done;
    }
};

/* The roles BACKWARD MAIN_ADDS, and MAIN_CHECKED of many dims. */
template <class SHAPE, int SHARED>
TESS_DEVICE void tess_matrix_shared_main(const tess_args &args, const tess_gpu_addresses &addresses,
                                         const tess_gpu_run &run)
{
    tess_matrix_shared_memory<SHAPE> &memory = *tess_shared<tess_matrix_shared_memory<SHAPE>>();
    static_assert(sizeof memory == SHARED, "the line in matrix.def says how much it is");

    TESS_NO_UNROLL
    for (tess_i64 i = run.first_item + tess_block(); i < run.first_item + run.items;)
        i = tess_matrix_shared<SHAPE>::run_item(memory, args, addresses, i) + tess_blocks();
}

#endif
