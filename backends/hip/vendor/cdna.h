/* SPDX-License-Identifier: Apache-2.0
 * The matrix unit of CDNA 2, 3 and 4: MFMA of 32 x 32 on waves of 64. Included by mma.h. */
#ifndef TESSERA_BACKENDS_HIP_VENDOR_CDNA_H
#define TESSERA_BACKENDS_HIP_VENDOR_CDNA_H

enum { TESS_MMA_LANES = 64, TESS_MMA_SIDE = 32, TESS_MMA_SPAN = 16 };

/* CDNA 2 takes operands below the normal numbers as zero. */
#if defined(__gfx90a__)
enum { TESS_MMA_FLUSHES = 1 };
#else
enum { TESS_MMA_FLUSHES = 0 };
#endif

typedef tess_f32x16 tess_mma_sums;

/* Eight numbers: half 0 holds depth 0 ... 7 and half 1 depth 8 ... 15 of the 16. */
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

/* Sum i of half h is row 8 (i / 4) + 4 h + i % 4 of the product. */
TESS_DEVICE constexpr int tess_mma_place(int row)
{
    return row / 32 * 32 + row % 16 / 4 * 8 + row % 32 / 16 * 4 + row % 4;
}

/* Depth 16 k ... 16 k + 15 of the lane's row. */
TESS_DEVICE tess_mma_operand tess_mma_load(const char *row, int k, int half)
{
    return tess_load_16(row + 32 * k + 16 * half);
}

/* Depth = the columns whose weights are sums 8 b ... 8 b + 7 of tile n: 16 half + 8 b on in it. */
TESS_DEVICE tess_mma_operand tess_mma_load_across(const char *row, int n, int b, int half)
{
    return tess_load_16(row + 64 * n + 32 * half + 16 * b);
}

#if defined(__gfx950__)
template <int DTYPE>
TESS_DEVICE void tess_mma_add(tess_mma_sums &sums, const tess_mma_operand &left,
                              const tess_mma_operand &right)
{
    if (DTYPE == TESS_F16)
        sums = __builtin_amdgcn_mfma_f32_32x32x16_f16(__builtin_bit_cast(tess_f16x8, left),
                                                      __builtin_bit_cast(tess_f16x8, right), sums,
                                                      0, 0, 0);
    else
        sums = __builtin_amdgcn_mfma_f32_32x32x16_bf16(__builtin_bit_cast(tess_bf16x8, left),
                                                       __builtin_bit_cast(tess_bf16x8, right), sums,
                                                       0, 0, 0);
}
#else
/* Eight deep at a time: the first four numbers of both halves, then the others. */
template <int DTYPE>
TESS_DEVICE void tess_mma_add(tess_mma_sums &sums, const tess_mma_operand &left,
                              const tess_mma_operand &right)
{
    TESS_UNROLL
    for (int i = 0; i < 2; i++) {
        const tess_u32x2 a = {left[2 * i], left[2 * i + 1]}, b = {right[2 * i], right[2 * i + 1]};
        if (DTYPE == TESS_F16)
            sums = __builtin_amdgcn_mfma_f32_32x32x8f16(__builtin_bit_cast(tess_f16x4, a),
                                                        __builtin_bit_cast(tess_f16x4, b), sums, 0,
                                                        0, 0);
        else
            sums = __builtin_amdgcn_mfma_f32_32x32x8bf16_1k(__builtin_bit_cast(tess_i16x4, a),
                                                            __builtin_bit_cast(tess_i16x4, b), sums,
                                                            0, 0, 0);
    }
}
#endif

TESS_DEVICE tess_f32 tess_mma_exchange(tess_f32 x)
{
    const int other = static_cast<int>(tess_thread() % 64 ^ 32);
    return __builtin_bit_cast(tess_f32,
                              __builtin_amdgcn_ds_bpermute(4 * other, __builtin_bit_cast(int, x)));
}

/* Whether x holds in any lane of the wave; all take part. */
TESS_DEVICE bool tess_wave_any(bool x)
{
    return __builtin_amdgcn_ballot_w64(x) != 0;
}

#endif
