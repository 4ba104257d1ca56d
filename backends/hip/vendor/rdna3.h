/* SPDX-License-Identifier: Apache-2.0
 * The matrix unit of RDNA 3: WMMA of 16 x 16 on waves of 32. Included by mma.h. */
#ifndef TESSERA_BACKENDS_HIP_VENDOR_RDNA3_H
#define TESSERA_BACKENDS_HIP_VENDOR_RDNA3_H

#include "vendor/rdna.h"

enum { TESS_MMA_LANES = 32, TESS_MMA_SIDE = 16, TESS_MMA_SPAN = 8 };

enum { TESS_MMA_FLUSHES = 0 };

typedef tess_f32x8 tess_mma_sums;

/* Sixteen numbers, the same in both halves of a row or column. */
typedef tess_u32x8 tess_mma_operand;

/* Both halves get the words of half 0, then those of half 1. */
TESS_DEVICE tess_mma_operand tess_mma_join(const tess_u32x4 &own, int half)
{
    tess_mma_operand all;
    TESS_UNROLL
    for (int i = 0; i < 4; i++) {
        const tess_u32 other = tess_row_exchange(own[i]);
        all[i] = half ? other : own[i];
        all[4 + i] = half ? own[i] : other;
    }
    return all;
}

/* What a lane keeps of an operand that it will use often: all, or with many dims, for which there
 * are no registers, its own half. */
template <int DIM, bool IS_WHOLE = DIM <= 128> struct tess_mma_kept {
    tess_mma_operand at;
    TESS_DEVICE_MEMBER void take(const tess_u32x4 &own, int half) { at = tess_mma_join(own, half); }
    TESS_DEVICE_MEMBER tess_mma_operand give(int) const { return at; }
};
template <int DIM> struct tess_mma_kept<DIM, false> {
    tess_u32x4 at;
    TESS_DEVICE_MEMBER void take(const tess_u32x4 &own, int) { at = own; }
    TESS_DEVICE_MEMBER tess_mma_operand give(int half) const { return tess_mma_join(at, half); }
};

/* Sum i of half h is row 2 i + h of the product. */
TESS_DEVICE constexpr int tess_mma_place(int row)
{
    return row / 16 * 16 + row % 8 * 2 + row % 16 / 8;
}

TESS_DEVICE tess_mma_operand tess_mma_load_both(const char *from)
{
    const tess_u32x4 low = tess_load_16(from), high = tess_load_16(from + 16);
    return tess_mma_operand{low[0], low[1], low[2], low[3], high[0], high[1], high[2], high[3]};
}

/* Depth 16 k ... 16 k + 15 of the lane's row. */
TESS_DEVICE tess_mma_operand tess_mma_load(const char *row, int k, int)
{
    return tess_mma_load_both(row + 32 * k);
}

/* Depth = the columns of tile n. */
TESS_DEVICE tess_mma_operand tess_mma_load_across(const char *row, int n, int, int)
{
    return tess_mma_load_both(row + 32 * n);
}

template <int DTYPE>
TESS_DEVICE void tess_mma_add(tess_mma_sums &sums, const tess_mma_operand &left,
                              const tess_mma_operand &right)
{
    if (DTYPE == TESS_F16)
        sums = __builtin_amdgcn_wmma_f32_16x16x16_f16_w32(
            __builtin_bit_cast(tess_f16x16, left), __builtin_bit_cast(tess_f16x16, right), sums);
    else
        sums = __builtin_amdgcn_wmma_f32_16x16x16_bf16_w32(
            __builtin_bit_cast(tess_i16x16, left), __builtin_bit_cast(tess_i16x16, right), sums);
}

#endif
