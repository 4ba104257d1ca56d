/* SPDX-License-Identifier: Apache-2.0
 * What the backward matrix kernels share: tiles on their way, the first two products, flags. */
#ifndef TESSERA_BACKENDS_GPU_MATRIX_BACKWARD_STAGE_H
#define TESSERA_BACKENDS_GPU_MATRIX_BACKWARD_STAGE_H

#include "backends/gpu/matrix/backward_item.h"
#include "vendor/async.h"

/* ROWS rows from folded row or column `first` on, to a tile; zeros where there is none. */
template <int DIM, int ROWS, int THREADS>
TESS_DEVICE void tess_matrix_stage_rows(tess_u32 tile, const tess_rows &rows, tess_i64 first,
                                        bool is_even)
{
    typedef tess_stage<DIM, ROWS, THREADS> stage;
    const int count = static_cast<int>(tess_min_i64(rows.count - first, ROWS));
    const tess_fold fold = tess_fold_at(first, rows.group);
    const auto address = [&](int row) {
        return rows.base + tess_fold_index(fold, rows, row < count ? row : 0) * 2;
    };

    if (!is_even)
        stage::copy_scattered(tile, rows.dims, count, rows.dim_stride, address);
    else if (rows.group > 1 || count < ROWS)
        stage::copy(tile, rows.dims, count, address);
    else
        stage::copy_evenly(tile, rows.dims, rows.base + first * rows.stride * 2, rows.stride * 2);
}

/* LSE and delta of `count` folded rows from `first` on, of which one at least is there; zeros for
 * those that are not, which masks hide. */
TESS_DEVICE void tess_matrix_stage_values(const tess_matrix_backward_item &item, tess_i64 first,
                                          int count, float *lse, float *delta)
{
    const int own = static_cast<int>(tess_thread());

    if (own >= count)
        return;
    const tess_fold fold = tess_fold_at(first, item.group);
    const bool is_there = first + own < item.q.count;
    const tess_i64 query = tess_fold_query(fold, is_there ? own : 0);
    const tess_i64 head = tess_fold_head(fold, is_there ? own : 0);
    tess_stage_value(
        lse + own, item.lse.base + query * item.lse.stride + head * item.lse.head_stride, is_there);
    tess_stage_value(delta + own,
                     item.delta.base + query * item.delta.stride + head * item.delta.head_stride,
                     is_there);
}

/* product = own rows x streamed rows, over all dims */
template <int DTYPE, int DIM, int M, int N>
TESS_DEVICE void tess_matrix_multiply_rows(tess_mma_sum<M, N> &product, tess_u32 left_lane,
                                           tess_u32 right_lane)
{
    tess_mma_zero(product);
    TESS_UNROLL
    for (int k = 0; k < DIM / 16; k++) {
        tess_mma_left left[M];
        TESS_UNROLL
        for (int m = 0; m < M; m++)
            tess_mma_load_left<DIM>(left[m], left_lane, 16 * m, k);
        TESS_UNROLL
        for (int n = 0; n < N / 2; n++) {
            tess_mma_right right;
            tess_mma_load_right<DIM>(right, right_lane, 16 * n, k);
            TESS_UNROLL
            for (int m = 0; m < M; m++)
                tess_mma_add<DTYPE>(product, m, n, left[m], right);
        }
    }
}

/* Whether the item has to be done again. One thread's word counts. */
TESS_DEVICE void tess_matrix_flag(const tess_matrix_backward_item &item, const tess_args &args,
                                  const tess_gpu_addresses &to, bool is_bad)
{
    if (tess_thread() == 0 && !(args.flags & TESS_ALLOW_NONFINITE_SPREAD))
        reinterpret_cast<tess_u32 *>(static_cast<char *>(to.at[TESS_AT_WORKSPACE]) +
                                     args.redo)[item.index] = is_bad ? 1u : 0u;
}

#endif
