/* SPDX-License-Identifier: Apache-2.0
 * Matrix products of a wave on NVIDIA: mma.sync m16n8k16 and the tiles it reads. */
#ifndef TESSERA_BACKENDS_CUDA_VENDOR_MMA_H
#define TESSERA_BACKENDS_CUDA_VENDOR_MMA_H

#include "backends/cuda/ptx.h"
#include "core/portable/args.h"
#include "vendor/lane.h"

/* What shared code may know of a matrix unit:
 *
 *   tess_mma_sum<M, N>      a lane's part of M x 16 rows by N x 8 columns of fp32 sums:
 * at[m][n][e]; tess_mma_row(m, e) and tess_mma_column(n, e) say where that lies tess_mma_left a
 * lane's part of a left operand: 16 rows, 16 deep tess_mma_right          a lane's part of a right
 * operand: 16 deep, 16 columns tess_mma_load_...       reads one from a tile in shared memory
 *   tess_mma_pack           a left operand from sums: P from scores without leaving the lane
 *   tess_mma_add            sums of 16 rows and 16 columns += left x right
 *
 * A lane holds whole pairs of neighbours (e = 2r, 2r + 1) of 2 M rows: row r = 2m + e / 2 of the
 * lane. Four lanes share a row. On AMD the sums lie the other way round (a lane holds a column):
 * scores are computed transposed there, and the same names mean the transposed places. */
enum { TESS_MMA_DEPTH = 16, TESS_MMA_ROWS = 16, TESS_MMA_COLUMNS = 8 };

template <int M, int N> struct tess_mma_sum {
    tess_f32 at[M][N][4];

    /* The same by rows of the lane, as backends/gpu/matrix/score.h asks. */
    enum { ROWS = 2 * M, EACH = 2 * N, COLUMNS = 8 * N };
    TESS_DEVICE_MEMBER tess_f32 get(int r, int i) const
    {
        return at[r / 2][i / 2][r % 2 * 2 + i % 2];
    }
    TESS_DEVICE_MEMBER void set(int r, int i, tess_f32 x)
    {
        at[r / 2][i / 2][r % 2 * 2 + i % 2] = x;
    }
    static TESS_DEVICE_MEMBER constexpr int step(int i) { return i / 2 * 8 + i % 2; }
};

struct tess_mma_left {
    tess_u32 at[4];
};

struct tess_mma_right {
    tess_u32 at[4]; /* columns 0 ... 7: at[0], at[1]; 8 ... 15: at[2], at[3] */
};

/* Storage types by their number in <tessera/base.h>. */
template <int DTYPE> struct tess_mma_type;
template <> struct tess_mma_type<2> { /* TESS_F16 */
    static TESS_DEVICE_MEMBER tess_u32 pack(tess_f32 low, tess_f32 high)
    {
        return tess_ptx_cvt_rn_f16x2(low, high);
    }
    static TESS_DEVICE_MEMBER void add(tess_f32 (&c)[4], const tess_u32 (&a)[4], tess_u32 b0,
                                       tess_u32 b1)
    {
        tess_ptx_mma_m16n8k16_f16(c, a, b0, b1);
    }
};
template <> struct tess_mma_type<3> { /* TESS_BF16 */
    static TESS_DEVICE_MEMBER tess_u32 pack(tess_f32 low, tess_f32 high)
    {
        return tess_ptx_cvt_rn_bf16x2(low, high);
    }
    static TESS_DEVICE_MEMBER void add(tess_f32 (&c)[4], const tess_u32 (&a)[4], tess_u32 b0,
                                       tess_u32 b1)
    {
        tess_ptx_mma_m16n8k16_bf16(c, a, b0, b1);
    }
};

TESS_DEVICE tess_u32 tess_lane()
{
    return tess_thread() % 32;
}
TESS_DEVICE tess_u32 tess_wave()
{
    return tess_thread() / 32;
}

TESS_DEVICE int tess_mma_row(int m, int e)
{
    return 16 * m + (int)tess_lane() / 4 + 8 * (e / 2);
}
TESS_DEVICE int tess_mma_column(int n, int e)
{
    return 8 * n + 2 * ((int)tess_lane() % 4) + e % 2;
}

TESS_DEVICE int tess_mma_lane_row(int r)
{
    return tess_mma_row(r / 2, r % 2 * 2);
}
TESS_DEVICE int tess_mma_lane_column()
{
    return tess_mma_column(0, 0);
}

template <int M, int N> TESS_DEVICE void tess_mma_zero(tess_mma_sum<M, N> &sum)
{
    TESS_UNROLL
    for (int m = 0; m < M; m++)
        TESS_UNROLL
    for (int n = 0; n < N; n++)
        TESS_UNROLL
    for (int e = 0; e < 4; e++)
        sum.at[m][n][e] = 0.0f;
}

/* A tile of rows of DIM 16-bit numbers in shared memory, in chunks of 16 bytes. A row is a whole
 * number of 128 bytes; in each 128, chunk c of row r lies at place c ^ (r % 8). So the eight rows
 * that an ldmatrix reads at one chunk lie in different banks, and so do eight chunks of one row. */
template <int DIM> struct tess_mma_tile {
    enum {
        PITCH = (DIM + 63) / 64 * 128, /* bytes of a row */
        PANELS = (DIM + 63) / 64,
    };

    /* Of a place, relative to the tile. */
    static TESS_DEVICE_MEMBER tess_u32 at(int row, int chunk)
    {
        return (tess_u32)(row * PITCH + chunk / 8 * 128 + ((chunk % 8) ^ (row % 8)) * 16);
    }

    /* Of the place `chunks` further in the same row, `chunks` even, given a place whose chunk is 0
     * or 1: an exclusive or and a sum of constants, where at() would compute afresh. */
    static TESS_DEVICE_MEMBER tess_u32 further(tess_u32 place, int chunks)
    {
        return (place ^ (tess_u32)(chunks % 8 * 16)) + (tess_u32)(chunks / 8 * 128);
    }
};

/* Where this lane reads, with the first row and depth 0; a multiple of 8 rows is added by
 * rows x PITCH, a depth by further(). The tile lies on a multiple of 128 bytes. */
template <int DIM> TESS_DEVICE tess_u32 tess_mma_left_lane(tess_u32 tile, int first_row)
{
    const int lane = (int)tess_lane();
    return tile + tess_mma_tile<DIM>::at(first_row + lane % 16, lane / 16);
}

/* For a right operand whose columns are rows of the tile (K in Q K^T). */
template <int DIM> TESS_DEVICE tess_u32 tess_mma_right_lane(tess_u32 tile)
{
    const int lane = (int)tess_lane();
    return tile + tess_mma_tile<DIM>::at(lane % 8 + lane / 16 * 8, lane / 8 % 2);
}

/* For an operand that lies across: the depth is rows of the tile (V in P V). */
template <int DIM> TESS_DEVICE tess_u32 tess_mma_across_lane(tess_u32 tile)
{
    const int lane = (int)tess_lane();
    return tile + tess_mma_tile<DIM>::at(lane % 16, lane / 16);
}

/* Rows row ... row + 15 of the tile, depth 16 k ... */
template <int DIM>
TESS_DEVICE void tess_mma_load_left(tess_mma_left &left, tess_u32 lane_place, int row, int k)
{
    tess_ptx_ldmatrix_x4(left.at, tess_mma_tile<DIM>::further(lane_place, 2 * k) +
                                      (tess_u32)(row * tess_mma_tile<DIM>::PITCH));
}

/* Columns = rows column ... column + 15 of the tile. */
template <int DIM>
TESS_DEVICE void tess_mma_load_right(tess_mma_right &right, tess_u32 lane_place, int column, int k)
{
    tess_ptx_ldmatrix_x4(right.at, tess_mma_tile<DIM>::further(lane_place, 2 * k) +
                                       (tess_u32)(column * tess_mma_tile<DIM>::PITCH));
}

/* Depth = rows row ... row + 15 of the tile, columns 16 n ... of it. */
template <int DIM>
TESS_DEVICE void tess_mma_load_across(tess_mma_right &right, tess_u32 lane_place, int row, int n)
{
    tess_ptx_ldmatrix_x4_trans(right.at, tess_mma_tile<DIM>::further(lane_place, 2 * n) +
                                             (tess_u32)(row * tess_mma_tile<DIM>::PITCH));
}

/* For a left operand that lies across: its rows are columns of the tile (g in g K, from rows of
 * keys). */
template <int DIM> TESS_DEVICE tess_u32 tess_mma_left_across_lane(tess_u32 tile)
{
    return tess_mma_right_lane<DIM>(tile);
}

/* Rows = columns 16 m ... of the tile, depth = its rows row ... row + 15. */
template <int DIM>
TESS_DEVICE void tess_mma_load_left_across(tess_mma_left &left, tess_u32 lane_place, int row, int m)
{
    tess_ptx_ldmatrix_x4_trans(left.at, tess_mma_tile<DIM>::further(lane_place, 2 * m) +
                                            (tess_u32)(row * tess_mma_tile<DIM>::PITCH));
}

/* Columns 16 k ... 16 k + 15 of the sums, rounded to the storage type: c's layout is a's. */
template <int DTYPE, int M, int N>
TESS_DEVICE void tess_mma_pack(tess_mma_left &left, const tess_mma_sum<M, N> &sum, int m, int k)
{
    TESS_UNROLL
    for (int i = 0; i < 4; i++)
        left.at[i] = tess_mma_type<DTYPE>::pack(sum.at[m][2 * k + i / 2][i % 2 * 2],
                                                sum.at[m][2 * k + i / 2][i % 2 * 2 + 1]);
}

/* Rows 16 m ... and columns 16 n ... of the sums += left x right. */
template <int DTYPE, int M, int N>
TESS_DEVICE void tess_mma_add(tess_mma_sum<M, N> &sum, int m, int n, const tess_mma_left &left,
                              const tess_mma_right &right)
{
    tess_mma_type<DTYPE>::add(sum.at[m][2 * n], left.at, right.at[0], right.at[1]);
    tess_mma_type<DTYPE>::add(sum.at[m][2 * n + 1], left.at, right.at[2], right.at[3]);
}

/* Within 2 ulp and 1 ulp; what is below the normal numbers counts as zero. */
TESS_DEVICE tess_f32 tess_quick_exp2(tess_f32 x)
{
    return tess_ptx_ex2_approx_ftz(x);
}
TESS_DEVICE tess_f32 tess_quick_reciprocal(tess_f32 x)
{
    return tess_ptx_rcp_approx_ftz(x);
}

/* A value of each row, over the four lanes that share it. */
TESS_DEVICE tess_f32 tess_mma_row_max(tess_f32 x)
{
    x = tess_ptx_max_f32(x, tess_exchange<1>(x));
    return tess_ptx_max_f32(x, tess_exchange<2>(x));
}
TESS_DEVICE tess_f32 tess_mma_row_sum(tess_f32 x)
{
    x += tess_exchange<1>(x);
    return x + tess_exchange<2>(x);
}

#endif
