/* SPDX-License-Identifier: Apache-2.0
 * Gradients that kernels on matrix units left non-finite, computed again without absent pairs. */
#ifndef TESSERA_BACKENDS_GPU_SIMT_REDO_H
#define TESSERA_BACKENDS_GPU_SIMT_REDO_H

#include "backends/gpu/simt/backward.h"

/* Of flagged items, the rows that hold something that is not finite: a number that overflowed in
 * the storage type is computed again too, and comes out the same. */

struct tess_redo_memory {
    tess_backward_item item;
    tess_rows a, b; /* dK and dV; or dQ and nothing */
    alignas(16) float floats[2 * TESS_THREADS];
};

TESS_DEVICE bool tess_is_flagged(const tess_args &args, const tess_gpu_addresses &to, tess_i64 item)
{
    return reinterpret_cast<const tess_u32 *>(static_cast<const char *>(to.at[TESS_AT_WORKSPACE]) +
                                              args.redo)[item] != 0;
}

/* For each flagged item, whose rows first ... end - 1 stay. make() is called by one thread. */
template <int STAY, class MAKE>
TESS_DEVICE void tess_redo_items(const tess_args &args, const tess_gpu_addresses &to,
                                 const tess_gpu_run &run, tess_redo_memory &memory, MAKE make)
{
    const tess_backward_item &item = memory.item;

    TESS_NO_UNROLL
    for (tess_i64 i = run.first_item + tess_block(); i < run.first_item + run.items;
         i += tess_blocks()) {
        if (!tess_is_flagged(args, to, i))
            continue;
        tess_barrier(); /* nobody reads the item before */
        if (tess_thread() == 0)
            make(i);
        tess_barrier(); /* the item is there */
        TESS_NO_UNROLL
        for (tess_i64 row = item.first; row < item.end; row++)
            if ((memory.a.base && tess_is_bad_row(memory.a, row, memory.floats)) ||
                (memory.b.base && tess_is_bad_row(memory.b, row, memory.floats)))
                tess_backward_exact<STAY>(item, row, item.seen_first, item.seen_end, memory.a,
                                          memory.b, memory.floats);
    }
}

/* The role BACKWARD REDO: dK and dV. */
template <int ROWS, int DIMS, int SHARED>
TESS_DEVICE void tess_backward_redo(const tess_args &args, const tess_gpu_addresses &to,
                                    const tess_gpu_run &run)
{
    tess_redo_memory &memory = *tess_shared<tess_redo_memory>();
    static_assert(sizeof memory == SHARED, "the line in simt.def says how much it is");

    tess_redo_items<TESS_KEYS_STAY>(args, to, run, memory, [&](tess_i64 i) {
        memory.item = tess_keys_item_at(args, to, i, memory.a, memory.b);
    });
}

/* The role BACKWARD REDO_DQ. */
template <int ROWS, int DIMS, int SHARED>
TESS_DEVICE void tess_backward_redo_dq(const tess_args &args, const tess_gpu_addresses &to,
                                       const tess_gpu_run &run)
{
    tess_redo_memory &memory = *tess_shared<tess_redo_memory>();
    static_assert(sizeof memory == SHARED, "the line in simt.def says how much it is");

    tess_redo_items<TESS_QUERIES_STAY>(args, to, run, memory, [&](tess_i64 i) {
        memory.item = tess_queries_item_at(args, to, i, memory.a);
        memory.b = tess_rows();
    });
}

/* ---- dQ that a main kernel has added up in the workspace --------------------------------------
 */

/* The role BACKWARD CLEAR_DQ. */
template <int ROWS, int DIMS, int SHARED>
TESS_DEVICE void tess_backward_clear_dq(const tess_args &args, const tess_gpu_addresses &to,
                                        const tess_gpu_run &run)
{
    const tess_quad zero = {{0.0f, 0.0f, 0.0f, 0.0f}};
    const tess_i64 quads = tess_all_rows(args) * args.heads_q * (tess_dq_pitch(args.head_dim) / 4);
    tess_quad *const all = reinterpret_cast<tess_quad *>(
        static_cast<char *>(to.at[TESS_AT_WORKSPACE]) + args.partial_dq);

    TESS_NO_UNROLL
    for (tess_i64 i = run.first_item + tess_block(); i < run.first_item + run.items;
         i += tess_blocks()) {
        const tess_i64 first = i * TESS_CLEARED_QUADS;
        TESS_NO_UNROLL
        for (tess_i32 q = static_cast<tess_i32>(tess_thread()); q < TESS_CLEARED_QUADS;
             q += TESS_THREADS)
            if (first + q < quads)
                all[first + q] = zero;
    }
}

template <int ROWS> struct tess_finish_memory {
    tess_redo_memory redo;
    const float *sums; /* of the sequence's first row and the group's first head */
    tess_u32 is_bad[ROWS];
};

/* Scales and stores the rows of one item, and marks what is not finite. */
template <int ROWS>
TESS_DEVICE void tess_finish_rows(const tess_args &args, tess_finish_memory<ROWS> &memory)
{
    const tess_backward_item &item = memory.redo.item;
    const tess_rows &dq = memory.redo.a;
    const tess_i64 pitch = tess_dq_pitch(args.head_dim);
    const tess_i32 quads = static_cast<tess_i32>(pitch / 4);
    const tess_i32 count = static_cast<tess_i32>(item.end - item.first) * quads;

    TESS_NO_UNROLL
    for (tess_i32 q = static_cast<tess_i32>(tess_thread()); q < count; q += TESS_THREADS) {
        const tess_i32 r = q / quads, dim = q % quads * 4;
        const tess_i64 row = item.first + r, query = tess_walk_query(row, item.group);
        const tess_i64 at = (query * args.heads_q + row - query * item.group) * pitch + dim;
        tess_quad quad = *tess_quad_at(memory.sums + at);
        bool is_finite = true;
        TESS_UNROLL
        for (int e = 0; e < 4; e++) {
            quad.at[e] *= args.scale;
            is_finite = is_finite && (dim + e >= dq.dims || tess_is_finite(quad.at[e]));
        }
        tess_store_quad(dq.base, tess_row_index(dq, row) + dim * dq.dim_stride, dq.dim_stride,
                        dq.dims - dim, dq.dtype, quad);
        if (!is_finite)
            memory.is_bad[r] = 1; /* several threads may, all the same */
    }
}

/* The role BACKWARD FINISH_DQ. */
template <int ROWS, int DIMS, int SHARED>
TESS_DEVICE void tess_backward_finish_dq(const tess_args &args, const tess_gpu_addresses &to,
                                         const tess_gpu_run &run)
{
    tess_finish_memory<ROWS> &memory = *tess_shared<tess_finish_memory<ROWS>>();
    const tess_backward_item &item = memory.redo.item;
    static_assert(sizeof memory == SHARED, "the line in simt.def says how much it is");

    TESS_NO_UNROLL
    for (tess_i64 i = run.first_item + tess_block(); i < run.first_item + run.items;
         i += tess_blocks()) {
        if (tess_thread() == 0) {
            const tess_item_place place = tess_item_place_at(args, i, 1);
            memory.redo.item = tess_queries_item_at(args, to, i, memory.redo.a);
            memory.sums = tess_dq_rows(args, to, tess_sequence_at(args, to, place.sequence),
                                       place.head_kv * args.group);
        }
        if (tess_thread() < ROWS)
            memory.is_bad[tess_thread()] = 0;
        tess_barrier(); /* the item is there */
        if (item.first < item.end)
            tess_finish_rows<ROWS>(args, memory);
        tess_barrier(); /* and marks are */
        TESS_NO_UNROLL
        for (tess_i32 r = 0; item.first + r < item.end; r++)
            if (memory.is_bad[r] && !(args.flags & TESS_ALLOW_NONFINITE_SPREAD))
                tess_backward_exact<TESS_QUERIES_STAY>(item, item.first + r, item.seen_first,
                                                       item.seen_end, memory.redo.a, memory.redo.a,
                                                       memory.redo.floats);
        tess_barrier(); /* before the next item writes where this one reads */
    }
}

#endif
