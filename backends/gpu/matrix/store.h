/* SPDX-License-Identifier: Apache-2.0
 * Finished sums of a wave to rows in global memory. */
#ifndef TESSERA_BACKENDS_GPU_MATRIX_STORE_H
#define TESSERA_BACKENDS_GPU_MATRIX_STORE_H

#include "backends/gpu/matrix/item.h"
#include "vendor/mma.h"

/* Whether a row that exists holds a number that is not finite. */
template <int M, int N>
TESS_DEVICE bool tess_matrix_has_nonfinite(const tess_mma_sum<M, N> &sum, int first_row, int count)
{
    bool found = false;
    TESS_UNROLL
    for (int r = 0; r < 2 * M; r++) {
        tess_f32 zero = 0.0f; /* x - x: NaN for what is not finite, and a NaN stays */
        TESS_UNROLL
        for (int n = 0; n < N; n++)
            TESS_UNROLL
        for (int e = r % 2 * 2; e < r % 2 * 2 + 2; e++)
            zero += sum.at[r / 2][n][e] - sum.at[r / 2][n][e];
        found |= first_row + tess_mma_row(r / 2, r % 2 * 2) < count && zero != 0.0f;
    }
    return found;
}

/* Rows of fp32, straight from the registers. Row 0 of the tile is that of `fold`; dims begin at
 * first_dim. */
template <int M, int N>
TESS_DEVICE void tess_matrix_put_f32(const tess_mma_sum<M, N> &sum, const tess_rows &to,
                                     const tess_fold &fold, int first_row, int rows, int first_dim)
{
    TESS_UNROLL
    for (int r = 0; r < 2 * M; r++) {
        const int row = first_row + tess_mma_row(r / 2, r % 2 * 2);
        if (row >= rows)
            continue;
        float *const at = reinterpret_cast<float *>(to.base) + tess_fold_index(fold, to, row);
        TESS_UNROLL
        for (int n = 0; n < N; n++)
            TESS_UNROLL
        for (int e = r % 2 * 2; e < r % 2 * 2 + 2; e++)
            if (first_dim + tess_mma_column(n, e) < to.dims)
                at[(first_dim + tess_mma_column(n, e)) * to.dim_stride] = sum.at[r / 2][n][e];
    }
}

/* Rows of the storage type by way of a tile in shared memory, of which this wave alone uses the
 * rows and dims in question: so global memory is written 16 bytes at a time. */
template <int DTYPE, int DIM, int M, int N>
TESS_DEVICE void tess_matrix_put_16(const tess_mma_sum<M, N> &sum, tess_u32 tile,
                                    const tess_rows &to, const tess_fold &fold, bool is_even,
                                    int first_row, int rows, int first_dim)
{
    const int lane = (int)tess_lane();

    tess_ptx_bar_warp_sync(); /* all lanes have read what was in these rows */
    TESS_UNROLL
    for (int m = 0; m < M; m++)
        TESS_UNROLL
    for (int n = 0; n < N; n++)
        TESS_UNROLL
    for (int e = 0; e < 4; e += 2)
        tess_ptx_st_shared_32(
            tile + tess_mma_tile<DIM>::at(first_row + tess_mma_row(m, e), first_dim / 8 + n) +
                (tess_u32)(lane % 4 * 4),
            tess_mma_type<DTYPE>::pack(sum.at[m][n][e], sum.at[m][n][e + 1]));
    tess_ptx_bar_warp_sync(); /* and written their part of the sums */
    TESS_NO_UNROLL
    for (int i = lane; i < 16 * M * N; i += 32) {
        const int row = first_row + i / N, chunk = first_dim / 8 + i % N;
        const int left = to.dims - 8 * chunk;
        if (row >= rows || left <= 0)
            continue;
        tess_u32 part[4];
        tess_ptx_ld_shared_128(part, tile + tess_mma_tile<DIM>::at(row, chunk));
        char *const at = to.base + (tess_fold_index(fold, to, row) + 8 * chunk * to.dim_stride) * 2;
        if (left >= 8 && is_even) {
            tess_ptx_st_global_128(at, part);
            continue;
        }
        TESS_UNROLL
        for (int d = 0; d < 8; d++)
            if (d < left)
                reinterpret_cast<unsigned short *>(at)[d * to.dim_stride] =
                    static_cast<unsigned short>(part[d / 2] >> (d % 2 * 16));
    }
}

/* Either of them, or neither where the tensor is not wanted. */
template <int DTYPE, int DIM, int M, int N>
TESS_DEVICE void tess_matrix_put(const tess_mma_sum<M, N> &sum, tess_u32 tile, const tess_rows &to,
                                 const tess_fold &fold, bool is_even, int first_row, int rows,
                                 int first_dim)
{
    if (!to.base)
        return;
    if (to.dtype == TESS_F32)
        tess_matrix_put_f32(sum, to, fold, first_row, rows, first_dim);
    else
        tess_matrix_put_16<DTYPE, DIM>(sum, tile, to, fold, is_even, first_row, rows, first_dim);
}

#endif
