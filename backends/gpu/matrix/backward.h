/* SPDX-License-Identifier: Apache-2.0
 * The backward pass on matrix units, every gradient by one owner. */
#ifndef TESSERA_BACKENDS_GPU_MATRIX_BACKWARD_H
#define TESSERA_BACKENDS_GPU_MATRIX_BACKWARD_H

#include "backends/gpu/matrix/backward_score.h"
#include "backends/gpu/matrix/backward_stage.h"
#include "backends/gpu/matrix/store.h"

/* Two kernels of one text recompute P, after FlashAttention-2 (Dao, 2023) but for dQ, which there
 * is added up in memory by everybody:
 *
 *     MAIN   keys stay, folded rows stream       S' = K Q^T, dV += P' dO, dK += g' Q
 *     DQ     folded rows stay, keys stream       S  = Q K^T,              dQ += g K
 *
 * for each item of the block
 *     two tensors that stay (K, V; or Q, dO) to shared memory
 *     for each tile of what streams            the next one is on its way meanwhile
 *         score = first product, grad = second product     (K Q^T and V dO^T; Q K^T and dO V^T)
 *         masks where the tile needs them, P and gradients
 *         sums += P x second streamed tensor (MAIN), gradients x first streamed tensor
 *     scale, store
 *
 * Keys are rows of the sums in MAIN, so P' and g' are left operands of the next products where they
 * are, without leaving their lane: waves share the streamed tiles and nothing else, and one barrier
 * a tile does. A wave owns 16 M rows. The heads of a group are folded rows like others: their sum
 * is part of the product. */

template <int DTYPE_, int DIM_, int M_, int WAVES_, int STREAMED_, bool KEYS_STAY_, bool HAS_HOOK_>
struct tess_matrix_backward_shape {
    enum {
        DTYPE = DTYPE_,
        DIM = DIM_, /* head_dim and head_dim_v at most; what is missing is zeros */
        M = M_,
        WAVES = WAVES_,
        STREAMED = STREAMED_, /* rows of a streamed tile */
        KEYS_STAY = KEYS_STAY_,
        HAS_HOOK = HAS_HOOK_, /* scores may be more than scale x dot */
        THREADS = 32 * WAVES,
        ROWS = 16 * M * WAVES, /* that stay */
        STAGES = 2,
        K = DIM / 16,
        N = STREAMED / 8,
        ROW_BYTES = tess_mma_tile<DIM>::PITCH,
        STAYING_BYTES = ROWS * ROW_BYTES,
        STREAMED_BYTES = STREAMED * ROW_BYTES,
        TILES_BYTES = 2 * STAYING_BYTES + 2 * STAGES * STREAMED_BYTES,
        VALUES = KEYS_STAY ? STAGES * STREAMED : ROWS,
    };
    static_assert(KEYS_STAY || int(ROWS) >= TESS_LEAST_FLAGGED_ROWS,
                  "the workspace has a flag for so many rows of dQ");
};

template <class SHAPE> struct alignas(128) tess_matrix_backward_memory {
    char tiles[SHAPE::TILES_BYTES]; /* the two that stay, then two of each stage */
    float lse[SHAPE::VALUES], delta[SHAPE::VALUES];
    tess_matrix_backward_item item;
};

template <class SHAPE> struct tess_matrix_backward {
    enum { M = SHAPE::M, N = SHAPE::N, K = SHAPE::K, DIM = SHAPE::DIM };
    enum { KEYS_STAY = SHAPE::KEYS_STAY };
    typedef tess_mma_sum<M, N> scores;
    typedef tess_mma_sum<M, DIM / 8> sums;
    typedef tess_matrix_backward_memory<SHAPE> block_memory;

    /* What a wave gathers. */
    struct state {
        sums of_gradients, of_weights; /* dK or dQ; dV, of MAIN only */
        tess_matrix_lift<SHAPE::DTYPE, M> lift;
    };

    /* Which of the two. */
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

    /* What stays, with its values where it has some. */
    static TESS_DEVICE_MEMBER void stage_staying(block_memory &memory, tess_u32 shared)
    {
        const tess_matrix_backward_item &item = memory.item;
        TESS_NO_UNROLL
        for (int which = 0; which < 2; which++) {
            const tess_rows &rows =
                KEYS_STAY ? (which ? item.v : item.k) : (which ? item.d_o : item.q);
            tess_matrix_stage_rows<DIM, SHAPE::ROWS, SHAPE::THREADS>(staying(shared, which), rows,
                                                                     item.first, item.is_even);
        }
        if (!KEYS_STAY)
            tess_matrix_stage_values(item, item.first, SHAPE::ROWS, memory.lse, memory.delta);
    }

    static TESS_DEVICE_MEMBER void stage_streamed(block_memory &memory, tess_u32 shared,
                                                  tess_i64 tile, int stage)
    {
        const tess_matrix_backward_item &item = memory.item;
        const tess_i64 first = tile * SHAPE::STREAMED;
        TESS_NO_UNROLL
        for (int which = 0; which < 2; which++) {
            const tess_rows &rows =
                KEYS_STAY ? (which ? item.d_o : item.q) : (which ? item.v : item.k);
            tess_matrix_stage_rows<DIM, SHAPE::STREAMED, SHAPE::THREADS>(
                streamed(shared, stage, which), rows, first, item.is_even);
        }
        if (KEYS_STAY)
            tess_matrix_stage_values(item, first, SHAPE::STREAMED,
                                     memory.lse + stage * SHAPE::STREAMED,
                                     memory.delta + stage * SHAPE::STREAMED);
    }

    /* to += weights x streamed rows */
    static TESS_DEVICE_MEMBER void multiply(sums &to, const scores &weights, tess_u32 across_lane)
    {
        TESS_UNROLL
        for (int k = 0; k < N / 2; k++) {
            tess_mma_left left[M];
            TESS_UNROLL
            for (int m = 0; m < M; m++)
                tess_mma_pack<SHAPE::DTYPE>(left[m], weights, m, k);
            TESS_UNROLL
            for (int n = 0; n < DIM / 16; n++) {
                tess_mma_right right;
                tess_mma_load_across<DIM>(right, across_lane, 16 * k, n);
                TESS_UNROLL
                for (int m = 0; m < M; m++)
                    tess_mma_add<SHAPE::DTYPE>(to, m, n, left[m], right);
            }
        }
    }

    static TESS_DEVICE_MEMBER void run_tile(block_memory &memory, const tess_args &args,
                                            tess_u32 shared, int tile, int stage, int own,
                                            state &all)
    {
        const tess_matrix_backward_item &item = memory.item;
        const int values = KEYS_STAY ? stage * SHAPE::STREAMED : 0;
        scores score, grad;

        tess_matrix_multiply_rows<SHAPE::DTYPE, DIM>(
            score, tess_mma_left_lane<DIM>(staying(shared, FIRST), own),
            tess_mma_right_lane<DIM>(streamed(shared, stage, FIRST)));
        tess_matrix_multiply_rows<SHAPE::DTYPE, DIM>(
            grad, tess_mma_left_lane<DIM>(staying(shared, SECOND), own),
            tess_mma_right_lane<DIM>(streamed(shared, stage, SECOND)));
        tess_matrix_facing_tiles at; /* only now, when registers are free again */
        at.streamed = (item.tile_first + tile) * SHAPE::STREAMED;
        at.own = own;
        at.fold = KEYS_STAY ? tess_fold_at(at.streamed, item.group) : item.fold;
        const tess_matrix_values of_rows = {memory.lse + values, memory.delta + values};
        tess_matrix_pull<KEYS_STAY, SHAPE::HAS_HOOK>(score, grad, args, item, at, of_rows, all.lift,
                                                     tile < item.full_first ||
                                                         tile >= item.full_end);
        if (all.lift.IS_USED)
            tess_matrix_settle(all.lift, score, grad, [&](int r, tess_f32 factor) {
                tess_matrix_multiply_row(all.of_gradients, r, factor);
                if (KEYS_STAY)
                    tess_matrix_multiply_row(all.of_weights, r, factor);
            });
        if (KEYS_STAY)
            multiply(all.of_weights, score,
                     tess_mma_across_lane<DIM>(streamed(shared, stage, SECOND)));
        multiply(all.of_gradients, grad, tess_mma_across_lane<DIM>(streamed(shared, stage, FIRST)));
    }

    /* Flags the item, writes its gradients. */
    static TESS_DEVICE_MEMBER void finish(block_memory &memory, const tess_args &args,
                                          const tess_gpu_addresses &addresses, tess_u32 shared,
                                          int own, state &all)
    {
        const tess_matrix_backward_item &item = memory.item;
        bool is_bad;

        TESS_UNROLL
        for (int r = 0; r < 2 * M; r++) {
            if (all.lift.IS_USED) {
                tess_matrix_multiply_row(all.of_gradients, r, all.lift.inverse(r));
                if (KEYS_STAY)
                    tess_matrix_multiply_row(all.of_weights, r, all.lift.inverse(r));
            }
            tess_matrix_multiply_row(all.of_gradients, r, args.scale);
        }
        is_bad = tess_matrix_has_nonfinite(all.of_gradients, own, item.rows);
        if (KEYS_STAY)
            is_bad |= tess_matrix_has_nonfinite(all.of_weights, own, item.rows);
        is_bad = tess_ptx_barrier_red_or(is_bad); /* all have left the tiles */
        tess_matrix_flag(item, args, addresses, is_bad);
        if (!KEYS_STAY) {
            tess_matrix_put<SHAPE::DTYPE, DIM>(all.of_gradients, staying(shared, FIRST), item.out_q,
                                               item.fold, item.out_q_is_even, own, item.rows, 0);
        } else {
            tess_matrix_put<SHAPE::DTYPE, DIM>(all.of_gradients, staying(shared, FIRST), item.out_k,
                                               item.fold, item.out_k_is_even, own, item.rows, 0);
            tess_matrix_put<SHAPE::DTYPE, DIM>(all.of_weights, staying(shared, SECOND), item.out_v,
                                               item.fold, item.out_v_is_even, own, item.rows, 0);
        }
    }

    /* Returns its index, which so needs no register on the way. */
    static TESS_DEVICE_MEMBER tess_i64 run_item(block_memory &memory, const tess_args &args,
                                                const tess_gpu_addresses &addresses, tess_i64 index)
    {
        const tess_u32 shared = tess_ptx_shared_address(memory.tiles);
        const tess_matrix_backward_item &item = memory.item;

        if (tess_thread() == 0) {
            if (KEYS_STAY)
                tess_matrix_keys_item(memory.item, args, addresses, index, SHAPE::STREAMED);
            else
                tess_matrix_queries_item(memory.item, args, addresses, index, SHAPE::STREAMED);
        }
        tess_barrier(); /* the item is there for all */
        if (item.rows == 0) {
            const tess_i64 empty = item.index;
            tess_matrix_flag(item, args, addresses, false);
            tess_barrier(); /* all have left it to the next one */
            return empty;
        }

        const int own = (int)tess_wave() * 16 * M;
        const int tiles = (int)(item.tile_end - item.tile_first);
        state all;

        stage_staying(memory, shared);
        all.lift.start();
        tess_mma_zero(all.of_gradients);
        if (KEYS_STAY)
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
                run_tile(memory, args, shared, tile, tile % SHAPE::STAGES, own, all);
        }
        tess_stage_wait<0>(); /* what stays, where there was no tile to wait for */
        finish(memory, args, addresses, shared, own, all);
        const tess_i64 done = item.index;
        tess_barrier(); /* all have left shared memory to the next item */
        return done;
    }
};

/* The roles BACKWARD MAIN_CHECKED (KEYS_STAY) and DQ_CHECKED. */
template <class SHAPE, int SHARED>
TESS_DEVICE void tess_matrix_backward_main(const tess_args &args,
                                           const tess_gpu_addresses &addresses,
                                           const tess_gpu_run &run)
{
    tess_matrix_backward_memory<SHAPE> &memory = *tess_shared<tess_matrix_backward_memory<SHAPE>>();
    static_assert(sizeof memory == SHARED, "the line in matrix.def says how much it is");

    TESS_NO_UNROLL
    for (tess_i64 i = run.first_item + tess_block(); i < run.first_item + run.items;)
        i = tess_matrix_backward<SHAPE>::run_item(memory, args, addresses, i) + tess_blocks();
}

#endif
