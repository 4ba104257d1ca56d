/* SPDX-License-Identifier: Apache-2.0
 * The matrix unit of RDNA 4: WMMA of 16 x 16 on waves of 32. Included by mma.h. */
#ifndef TESSERA_BACKENDS_HIP_VENDOR_RDNA4_H
#define TESSERA_BACKENDS_HIP_VENDOR_RDNA4_H

#include "vendor/rdna.h"

enum { TESS_MMA_LANES = 32, TESS_MMA_SIDE = 16, TESS_MMA_SPAN = 8 };

enum { TESS_MMA_FLUSHES = 0 };

typedef tess_f32x8 tess_mma_sums;

/* Eight numbers: half 0 holds depth 0 ... 7 and half 1 depth 8 ... 15 of the 16. The instruction's
 * own order is another one, from which both operands differ alike. */
typedef tess_u32x4 tess_mma_operand;

/* An operand from the eight numbers of depth that each half has of its own. */
TESS_DEVICE tess_mma_operand tess_mma_join(const tess_u32x4 &own, int)
{
    return own;
}

/* What a lane keeps of an operand that it will use often. */
template <int DIM> struct tess_mma_kept {
    tess_u32x4 at;
    TESS_DEVICE_MEMBER void take(const tess_u32x4 &own, int) { at = own; }
    TESS_DEVICE_MEMBER tess_mma_operand give(int) const { return at; }
};

/* Sum i of half h is row 8 h + i of the product: nothing has to move. */
TESS_DEVICE constexpr int tess_mma_place(int row)
{
    return row;
}

/* Depth 16 k ... 16 k + 15 of the lane's row. */
TESS_DEVICE tess_mma_operand tess_mma_load(const char *row, int k, int half)
{
    return tess_load_16(row + 32 * k + 16 * half);
}

/* Depth = the columns of tile n. */
TESS_DEVICE tess_mma_operand tess_mma_load_across(const char *row, int n, int, int half)
{
    return tess_load_16(row + 32 * n + 16 * half);
}

template <int DTYPE>
TESS_DEVICE void tess_mma_add(tess_mma_sums &sums, const tess_mma_operand &left,
                              const tess_mma_operand &right)
{
    if (DTYPE == TESS_F16)
        sums = __builtin_amdgcn_wmma_f32_16x16x16_f16_w32_gfx12(
            __builtin_bit_cast(tess_f16x8, left), __builtin_bit_cast(tess_f16x8, right), sums);
    else
        sums = __builtin_amdgcn_wmma_f32_16x16x16_bf16_w32_gfx12(
            __builtin_bit_cast(tess_i16x8, left), __builtin_bit_cast(tess_i16x8, right), sums);
}

#endif
