/* SPDX-License-Identifier: Apache-2.0
 * The forward pass on Hopper: bulk copies, asynchronous products, warps with parts of their own;
 * after FlashAttention-3 (Shah and others, 2024). */
#ifndef TESSERA_BACKENDS_CUDA_HOPPER_FORWARD_H
#define TESSERA_BACKENDS_CUDA_HOPPER_FORWARD_H

#include "backends/cuda/hopper/pipe.h"
#include "backends/cuda/hopper/tile.h"
#include "backends/gpu/matrix/forward.h"

/* One warp makes items, one brings K and V, two warp groups compute, 64 folded rows each. A block
 * stays and takes items:
 *
 *     bringer, for each item                  consumers, for each item
 *         wait until it is made                   Q to shared memory
 *         for each tile of columns                score = Q K(0)^T; admit; weight = exp2(...)
 *             K(tile) when its place is free      for each further tile
 *             V(tile - 1) likewise                    begin score = Q K(tile)^T
 *                                                     begin output += weight V(tile - 1)
 *                                                     when the first is done: admit, exp2
 *                                                     when the second is: rescale, weight
 *                                                 output += weight V(last)
 *                                                 sink, division by the sum, store
 *
 * So the exponentials of one tile run beside the products of the one before. The two groups take
 * turns in giving products to the tensor cores (a token), which keeps them half a tile apart:
 * while one waits for its exponentials, the other's products run. */

template <int DTYPE_, int DIM_, int COLUMNS_, int STAGES_, bool HAS_HOOK_>
struct tess_hopper_shape {
    enum {
        DTYPE = DTYPE_,
        DIM = DIM_, /* head_dim and head_dim_v at most; what is missing is zeros */
        COLUMNS = COLUMNS_,
        STAGES = STAGES_,     /* tiles of K, and of V, in shared memory */
        HAS_HOOK = HAS_HOOK_, /* scores may be more than scale x dot */
        GROUPS = 2,           /* of consumers */
        M = 1,                /* times 16 rows of a warp, as shared code counts */
        N = COLUMNS / 8,
        K = DIM / 16,
        ROWS = 64 * GROUPS,
        THREADS = 128 * (1 + GROUPS),
    };
    typedef tess_hopper_tile<DIM, ROWS> q_tile;
    typedef tess_hopper_tile<DIM, COLUMNS> tile; /* of K and of V */

    static TESS_DEVICE_MEMBER tess_u32 q_place(int row, int chunk)
    {
        return q_tile::at(row, chunk);
    }
};

/* What a block keeps in shared memory. */
template <class SHAPE> struct alignas(1024) tess_hopper_memory {
    char q[SHAPE::q_tile::BYTES];
    char k[SHAPE::STAGES][SHAPE::tile::BYTES];
    char v[SHAPE::STAGES][SHAPE::tile::BYTES];
    tess_u64 k_full[SHAPE::STAGES], k_empty[SHAPE::STAGES];
    tess_u64 v_full[SHAPE::STAGES], v_empty[SHAPE::STAGES];
    tess_u64 item_full[2], item_empty[2];
    tess_hopper_item item[2]; /* the present one and the next */
    tess_u32 verdict[2];      /* groups that are done with an item, and 16 for each that is bad */
};

/* Named barriers: of a group, and the turn of a group. */
enum { TESS_HOPPER_GROUP = 1, TESS_HOPPER_TURN = 3 };

template <class SHAPE> struct tess_hopper_forward {
    enum { N = SHAPE::N, K = SHAPE::K, DIM = SHAPE::DIM, STEPS = SHAPE::COLUMNS / 16 };
    typedef tess_hopper_memory<SHAPE> memory;
    typedef tess_matrix_forward<SHAPE> softmax;
    typedef typename softmax::rows rows;
    typedef tess_mma_sum<1, N> scores;
    typedef tess_ptx_wgmma<SHAPE::DTYPE, N> score_product;
    typedef tess_ptx_wgmma<SHAPE::DTYPE, DIM / 8> output_product;
    typedef tess_hopper_ring<SHAPE::STAGES> ring;

    /* ---- The producer ---- */

    /* A tile of K or V, columns from `first` on. */
    static TESS_DEVICE_MEMBER void bring(tess_hopper_bringer &bringer, ring &to, tess_u32 tiles,
                                         const tess_hopper_item &item, const tess_rows &rows,
                                         const tess_gpu_map *map, tess_i64 first)
    {
        const tess_u32 tile = tiles + to.stage() * SHAPE::tile::BYTES;

        to.wait_empty();
        if (map)
            bringer.template by_map<typename SHAPE::tile>(tile, to.full(), map, item, first);
        else
            bringer.template by_lanes<typename SHAPE::tile>(tile, to.full(), rows, item.is_even,
                                                            first);
        to.advance();
    }

    /* The warp that brings. */
    static TESS_DEVICE_MEMBER void bring_all(memory &m, const tess_gpu_run &run,
                                             const tess_gpu_maps &maps)
    {
        const tess_u32 k = tess_ptx_shared_address(m.k), v = tess_ptx_shared_address(m.v);
        ring k_ring(m.k_full, m.k_empty), v_ring(m.v_full, m.v_empty);
        tess_hopper_ring<2> items(m.item_full, m.item_empty);
        tess_hopper_bringer bringer;

        TESS_NO_UNROLL
        for (tess_i64 i = run.first_item + tess_block(); i < run.first_item + run.items;
             i += tess_blocks()) {
            items.wait_full();
            const tess_hopper_item &item = m.item[items.stage()];
            const int tiles =
                item.rows == 0 ? 0 : static_cast<int>(item.walk.end - item.walk.first);
            TESS_NO_UNROLL
            for (int tile = 0; tile <= tiles; tile++) {
                const tess_i64 first = (item.walk.first + tile) * SHAPE::COLUMNS;
                if (tile < tiles)
                    bring(bringer, k_ring, k, item, item.k, run.has_maps ? &maps.k : nullptr,
                          first);
                if (tile > 0)
                    bring(bringer, v_ring, v, item, item.v, run.has_maps ? &maps.v : nullptr,
                          first - SHAPE::COLUMNS);
            }
            bringer.finish();
            items.release_by_warp();
        }
    }

    /* The warp that makes items, one ahead of the others. */
    static TESS_DEVICE_MEMBER void make_all(memory &m, const tess_args &args,
                                            const tess_gpu_addresses &addresses,
                                            const tess_gpu_run &run)
    {
        tess_hopper_ring<2> items(m.item_full, m.item_empty);
        tess_i64 left = run.items - tess_block(), i = run.first_item + tess_block();

        TESS_NO_UNROLL
        for (; left > 0; left -= tess_blocks(), i += tess_blocks()) {
            items.wait_empty();
            if (tess_lane() == 0) {
                tess_hopper_item &item = m.item[items.stage()];
                tess_matrix_item_make(item, item.place, item.sequence, args, addresses, i,
                                      SHAPE::ROWS, SHAPE::COLUMNS);
                tess_ptx_mbarrier_arrive(items.full());
            }
            tess_ptx_bar_warp_sync();
            items.advance();
        }
    }

    /* ---- The consumers ---- */

    static TESS_DEVICE_MEMBER int group() { return static_cast<int>(tess_thread() / 128u) - 1; }
    static TESS_DEVICE_MEMBER void wait_for_group()
    {
        tess_ptx_bar_sync(static_cast<tess_u32>(TESS_HOPPER_GROUP + group()), 128);
    }

    /* Products of the other group come first, then this one's. */
    static TESS_DEVICE_MEMBER void take_turn()
    {
        tess_ptx_bar_sync(static_cast<tess_u32>(TESS_HOPPER_TURN + group()), 256);
    }
    static TESS_DEVICE_MEMBER void pass_turn()
    {
        tess_ptx_bar_arrive(static_cast<tess_u32>(TESS_HOPPER_TURN + 1 - group()), 256);
    }

    static TESS_DEVICE_MEMBER void stage_q(tess_u32 q, const tess_hopper_item &item)
    {
        const int first = 64 * group();
        const auto address = [&](int row) {
            return item.q.base + tess_fold_index(item.fold, item.q, row < item.rows ? row : 0) * 2;
        };

        SHAPE::q_tile::template copy<128>(q, static_cast<int>(tess_thread() % 128u), first,
                                          first + 64, item.q, item.rows, item.is_even, address);
        tess_ptx_cp_async_commit_group();
        tess_ptx_cp_async_wait_group<0>();
        tess_ptx_fence_proxy_async();
        wait_for_group();
    }

    /* Begins score = Q K^T. */
    static TESS_DEVICE_MEMBER void begin_scores(scores &score, tess_u32 q, tess_u32 k)
    {
        const tess_u64 left = SHAPE::q_tile::descriptor(q);
        const tess_u64 right = SHAPE::tile::descriptor(k);

        tess_ptx_wgmma_hold(score.at[0]);
        tess_ptx_wgmma_fence();
        score_product::template rows<true>(score.at[0], left, right);
        TESS_UNROLL
        for (int step = 1; step < K; step++)
            score_product::template rows<false>(score.at[0], left + SHAPE::q_tile::depth(step),
                                                right + SHAPE::tile::depth(step));
        tess_ptx_wgmma_commit_group();
    }

    /* Begins output += weight V. */
    static TESS_DEVICE_MEMBER void begin_output(rows &state, const tess_mma_left (&weight)[STEPS],
                                                tess_u32 v)
    {
        const tess_u64 right = SHAPE::tile::descriptor(v);

        tess_ptx_wgmma_hold(state.output.at[0]);
        tess_ptx_wgmma_fence();
        TESS_UNROLL
        for (int step = 0; step < STEPS; step++)
            output_product::template across<false>(state.output.at[0], weight[step].at,
                                                   right + SHAPE::tile::row(16 * step));
        tess_ptx_wgmma_commit_group();
    }

    /* Scores to weights, still in fp32. Returns whether the output is to be multiplied by rescale
     * first. */
    static TESS_DEVICE_MEMBER bool treat(rows &state, scores &score, tess_f32 (&rescale)[2],
                                         const tess_args &args, const tess_hopper_item &item,
                                         int tile, int first_row, bool is_plain)
    {
        const tess_f32 factor = is_plain ? args.scale * TESS_LOG2_E : 1.0f;
        tess_f32 here = factor;
        tess_matrix_place place;

        place.row = first_row;
        place.column = (item.walk.first + tile) * SHAPE::COLUMNS;
        if (!is_plain)
            tess_matrix_hook(score, args, item, place);
        if (tess_walk_is_masked(item.walk, item.walk.first + tile))
            tess_matrix_hide(score, item, place);
        const bool moves = softmax::admit(state, score, factor, rescale);
        if (softmax::is_wide(state)) {
            tess_matrix_each(score, [&](tess_f32 x) { return softmax::in_log2(x, factor); });
            here = 1.0f;
        }
        TESS_UNROLL
        for (int step = 0; step < STEPS; step++)
            softmax::weigh(state, score, step, here);
        return moves;
    }

    static TESS_DEVICE_MEMBER void pack(tess_mma_left (&weight)[STEPS], const scores &score)
    {
        TESS_UNROLL
        for (int step = 0; step < STEPS; step++)
            tess_mma_pack<SHAPE::DTYPE>(weight[step], score, 0, step);
    }

    /* Rows of the last tile of V that are no column's hold another sequence's numbers, or none. */
    static TESS_DEVICE_MEMBER void clear_behind(tess_u32 v, const tess_hopper_item &item, int tile)
    {
        const tess_i64 first = (item.walk.first + tile) * SHAPE::COLUMNS;
        if (first + SHAPE::COLUMNS <= item.v.count)
            return;
        SHAPE::tile::template clear<128>(v, static_cast<int>(tess_thread() % 128u),
                                         static_cast<int>(item.v.count - first));
        tess_ptx_fence_proxy_async();
        wait_for_group();
    }

    static TESS_DEVICE_MEMBER void attend(memory &m, rows &state, ring &k_ring, ring &v_ring,
                                          const tess_args &args, const tess_hopper_item &item,
                                          int first_row)
    {
        const int tiles = static_cast<int>(item.walk.end - item.walk.first);
        const bool is_plain = !SHAPE::HAS_HOOK || tess_matrix_is_plain(args);
        const tess_u32 q = tess_ptx_shared_address(m.q) + SHAPE::q_tile::row_bytes(64 * group());
        const tess_u32 k = tess_ptx_shared_address(m.k), v = tess_ptx_shared_address(m.v);
        tess_mma_left weight[STEPS];
        tess_f32 rescale[2];
        scores score;

        k_ring.wait_full();
        begin_scores(score, q, k + k_ring.stage() * SHAPE::tile::BYTES);
        tess_ptx_wgmma_wait_group<0>();
        tess_ptx_wgmma_hold(score.at[0]);
        k_ring.release();
        (void)treat(state, score, rescale, args, item, 0, first_row, is_plain);
        pack(weight, score);

        TESS_NO_UNROLL
        for (int tile = 1; tile < tiles; tile++) {
            k_ring.wait_full();
            take_turn();
            begin_scores(score, q, k + k_ring.stage() * SHAPE::tile::BYTES);
            v_ring.wait_full();
            begin_output(state, weight, v + v_ring.stage() * SHAPE::tile::BYTES);
            pass_turn();
            tess_ptx_wgmma_wait_group<1>();
            tess_ptx_wgmma_hold(score.at[0]);
            k_ring.release();
            const bool moves = treat(state, score, rescale, args, item, tile, first_row, is_plain);
            tess_ptx_wgmma_wait_group<0>();
            tess_ptx_wgmma_hold(state.output.at[0]);
            v_ring.release();
            if (moves) {
                softmax::multiply_row(state, 0, rescale[0]);
                softmax::multiply_row(state, 1, rescale[1]);
            }
            pack(weight, score);
        }

        v_ring.wait_full();
        clear_behind(v + v_ring.stage() * SHAPE::tile::BYTES, item, tiles - 1);
        begin_output(state, weight, v + v_ring.stage() * SHAPE::tile::BYTES);
        tess_ptx_wgmma_wait_group<0>();
        tess_ptx_wgmma_hold(state.output.at[0]);
        v_ring.release();
    }

    /* Whether the item is to be done again: the last group to say writes it. */
    static TESS_DEVICE_MEMBER void judge(tess_u32 &verdict, tess_u32 *redo, bool is_bad)
    {
        const bool any =
            tess_ptx_bar_red_or(static_cast<tess_u32>(TESS_HOPPER_GROUP + group()), 128, is_bad);
        if (tess_thread() % 128u != 0)
            return;
        const tess_u32 own = any ? 17u : 1u;
        const tess_u32 before = tess_ptx_atom_shared_add(tess_ptx_shared_address(&verdict), own);
        if (before % 16u + 1u != SHAPE::GROUPS)
            return;
        *redo = before + own >= 16u ? 1u : 0u;
        verdict = 0; /* the item's place is not reused before this group has left it */
    }

    static TESS_DEVICE_MEMBER void consume(memory &m, const tess_args &args,
                                           const tess_gpu_addresses &addresses,
                                           const tess_gpu_run &run)
    {
        tess_u32 *const redo = (tess_u32 *)((char *)addresses.at[TESS_AT_WORKSPACE] + args.redo);
        const bool is_checked = !(args.flags & TESS_ALLOW_NONFINITE_SPREAD);
        const int first_row = 64 * group() + static_cast<int>(tess_thread() % 128u / 32u) * 16;
        const tess_u32 q = tess_ptx_shared_address(m.q);
        ring k_ring(m.k_full, m.k_empty), v_ring(m.v_full, m.v_empty);
        tess_hopper_ring<2> items(m.item_full, m.item_empty);

        if (group() == 1)
            pass_turn(); /* the first turn is group 0's */
        TESS_NO_UNROLL
        for (tess_i64 i = run.first_item + tess_block(); i < run.first_item + run.items;
             i += tess_blocks()) {
            items.wait_full();
            const tess_hopper_item &item = m.item[items.stage()];
            rows state;
            tess_f32 lse[2];
            bool is_bad = false;

            tess_mma_zero(state.output);
            state.row[0] = state.row[1] = tess_os_empty();
            if (item.rows > 0) {
                stage_q(q, item);
                if (item.walk.end > item.walk.first)
                    attend(m, state, k_ring, v_ring, args, item, first_row);
                softmax::finish(state, lse, item, first_row);
                is_bad = softmax::has_nonfinite(state, first_row, item.rows);
                softmax::store(state, lse, q, item, first_row);
            }
            if (is_checked)
                judge(m.verdict[items.stage()], redo + i, is_bad);
            wait_for_group(); /* all have left Q and the item */
            items.release();
        }
        if (group() == 0)
            take_turn(); /* nothing is left waiting in a barrier */
    }

    static TESS_DEVICE_MEMBER void start(memory &m)
    {
        if (tess_thread() == 0) {
            tess_hopper_ring<SHAPE::STAGES>::init(m.k_full, m.k_empty, SHAPE::GROUPS);
            tess_hopper_ring<SHAPE::STAGES>::init(m.v_full, m.v_empty, SHAPE::GROUPS);
            tess_hopper_ring<2>::init(m.item_full, m.item_empty, SHAPE::GROUPS + 1);
            m.verdict[0] = m.verdict[1] = 0;
            tess_ptx_fence_mbarrier_init();
        }
        tess_barrier();
    }
};

/* The role FORWARD MAIN_CHECKED. */
template <class SHAPE, int SHARED>
TESS_DEVICE void tess_hopper_forward_main(const tess_args &args,
                                          const tess_gpu_addresses &addresses,
                                          const tess_gpu_run &run, const tess_gpu_maps &maps)
{
    typedef tess_hopper_forward<SHAPE> forward;
    typename forward::memory &memory = *tess_shared<typename forward::memory>();
    static_assert(sizeof memory == SHARED, "the line in hopper.def says how much it is");

    forward::start(memory);
    if (tess_thread() < 128u) {
        tess_ptx_setmaxnreg_dec<TESS_HOPPER_PRODUCER_REGISTERS>();
        const tess_u32 warp = tess_thread() / 32u;
        if (warp == 0)
            forward::bring_all(memory, run, maps);
        if (warp == 1)
            forward::make_all(memory, args, addresses, run);
    } else {
        tess_ptx_setmaxnreg_inc<TESS_HOPPER_CONSUMER_REGISTERS>();
        forward::consume(memory, args, addresses, run);
    }
}

#endif
