/* SPDX-License-Identifier: Apache-2.0
 * Matrix products of a wave on AMD, the same verbs for three kinds of units. */
#ifndef TESSERA_BACKENDS_HIP_VENDOR_MMA_H
#define TESSERA_BACKENDS_HIP_VENDOR_MMA_H

#include "core/portable/convert.h"
#include "vendor/lane.h"

#include <tessera/base.h>

/* Vectors as the compiler's builtins take them. */
typedef tess_u32 tess_u32x2 __attribute__((ext_vector_type(2)));
typedef tess_u32 tess_u32x4 __attribute__((ext_vector_type(4)));
typedef tess_u32 tess_u32x8 __attribute__((ext_vector_type(8)));
typedef tess_f32 tess_f32x2 __attribute__((ext_vector_type(2)));
typedef tess_f32 tess_f32x4 __attribute__((ext_vector_type(4)));
typedef tess_f32 tess_f32x8 __attribute__((ext_vector_type(8)));
typedef tess_f32 tess_f32x16 __attribute__((ext_vector_type(16)));
typedef short tess_i16x4 __attribute__((ext_vector_type(4)));
typedef short tess_i16x8 __attribute__((ext_vector_type(8)));
typedef short tess_i16x16 __attribute__((ext_vector_type(16)));
typedef _Float16 tess_f16x2 __attribute__((ext_vector_type(2)));
typedef _Float16 tess_f16x4 __attribute__((ext_vector_type(4)));
typedef _Float16 tess_f16x8 __attribute__((ext_vector_type(8)));
typedef _Float16 tess_f16x16 __attribute__((ext_vector_type(16)));
typedef __bf16 tess_bf16x2 __attribute__((ext_vector_type(2)));
typedef __bf16 tess_bf16x8 __attribute__((ext_vector_type(8)));

/* Sixteen bytes of shared memory, a multiple of 16 there. */
TESS_DEVICE tess_u32x4 tess_load_16(const char *from)
{
    return *reinterpret_cast<const tess_u32x4 *>(from);
}
TESS_DEVICE void tess_store_16(char *to, tess_u32x4 value)
{
    *reinterpret_cast<tess_u32x4 *>(to) = value;
}

/* The same of global memory; and one number of it. */
TESS_DEVICE tess_u32x4 tess_read_16(const char *from)
{
    return *(const TESS_GLOBAL tess_u32x4 *)from;
}
TESS_DEVICE void tess_write_16(char *to, tess_u32x4 value)
{
    *(TESS_GLOBAL tess_u32x4 *)to = value;
}
TESS_DEVICE tess_u32 tess_read_u16(const char *from)
{
    return *(const TESS_GLOBAL unsigned short *)from;
}
TESS_DEVICE void tess_write_u16(char *to, tess_u32 value)
{
    *(TESS_GLOBAL unsigned short *)to = static_cast<unsigned short>(value);
}
TESS_DEVICE void tess_write_f32(char *to, tess_f32 value)
{
    *(TESS_GLOBAL tess_f32 *)to = value;
}

/* What shared code may know of a matrix unit. It multiplies SIDE rows by SIDE columns, 16 deep at a
 * time, and a lane of the product holds SPAN = SIDE / 2 sums of ONE COLUMN; two lanes, `half` 0 and
 * 1, share the column. So scores are computed transposed, S^T = K Q^T: a lane owns a query, and its
 * weights are, where they are, the right operand of O^T = V^T P^T.
 *
 *   tess_mma_sums           a lane's part of SIDE x SIDE fp32 sums
 *   tess_mma_operand        a lane's part of a left operand (SIDE rows, 16 deep) or a right one (16
 *                           deep, SIDE columns): they lie alike, and depth may be permuted as long
 *                           as both sides do it in the same way
 *   tess_mma_load           reads one from a row of memory that the lane's row or column lies in
 *   tess_mma_pack           a right operand from sums, rounded to the storage type
 *   tess_mma_add            sums += left x right
 *   tess_mma_place          rows of a left operand are kept at tess_mma_place(row) of their tile,
 *                           so that a lane's sums are those of SPAN neighbours: row SPAN half + i
 *                           is sum i
 *   tess_mma_exchange       the value of the lane with the other half of the column */
#if defined(__gfx90a__) || defined(__gfx942__) || defined(__gfx950__)
#include "vendor/cdna.h"
#elif defined(__GFX11__)
#include "vendor/rdna3.h"
#elif defined(__GFX12__)
#include "vendor/rdna4.h"
#else
#error "no matrix unit is known of this chip"
#endif

TESS_DEVICE tess_u32 tess_lane()
{
    return tess_thread() % TESS_MMA_LANES;
}
TESS_DEVICE tess_u32 tess_wave()
{
    return tess_thread() / TESS_MMA_LANES;
}

/* Row or column of the lane, and which half of it. */
TESS_DEVICE int tess_mma_side()
{
    return static_cast<int>(tess_lane()) % TESS_MMA_SIDE;
}
TESS_DEVICE int tess_mma_half()
{
    return static_cast<int>(tess_lane()) / TESS_MMA_SIDE;
}

/* A tile of transposed scores: N times SIDE columns of K by SIDE queries. A lane has one row of the
 * scores, as backends/gpu/matrix/score.h asks. */
template <int N> struct tess_mma_scores {
    tess_mma_sums at[N];

    enum { ROWS = 1, EACH = N * TESS_MMA_SPAN, COLUMNS = N * TESS_MMA_SIDE };
    TESS_DEVICE_MEMBER tess_f32 get(int, int i) const
    {
        return at[i / TESS_MMA_SPAN][i % TESS_MMA_SPAN];
    }
    TESS_DEVICE_MEMBER void set(int, int i, tess_f32 x)
    {
        at[i / TESS_MMA_SPAN][i % TESS_MMA_SPAN] = x;
    }
    static TESS_DEVICE_MEMBER constexpr int step(int i)
    {
        return i / TESS_MMA_SPAN * TESS_MMA_SIDE + i % TESS_MMA_SPAN;
    }
};

TESS_DEVICE int tess_mma_lane_row(int)
{
    return tess_mma_side();
}
TESS_DEVICE int tess_mma_lane_column()
{
    return tess_mma_half() * TESS_MMA_SPAN;
}

/* Two numbers rounded to nearest even, low in the lower half. Weights are not negative and a NaN
 * among them shows in their sum, so bf16 is rounded on integers without a thought for either. */
template <int DTYPE> TESS_DEVICE tess_u32 tess_mma_pair(tess_f32 low, tess_f32 high)
{
    if (DTYPE == TESS_F16) {
        const tess_f16x2 pair = {static_cast<_Float16>(low), static_cast<_Float16>(high)};
        return __builtin_bit_cast(tess_u32, pair);
    }
#if defined(__gfx950__)
    const tess_bf16x2 pair = {static_cast<__bf16>(low), static_cast<__bf16>(high)};
    return __builtin_bit_cast(tess_u32, pair);
#else
    const tess_u32 a = tess_bits(low), b = tess_bits(high);
    return __builtin_amdgcn_perm(b + 0x7FFFu + (b >> 16 & 1u), a + 0x7FFFu + (a >> 16 & 1u),
                                 0x07060302u);
#endif
}

/* A right operand of weights: sums 8 b ... 8 b + 7 of a tile. */
template <int DTYPE>
TESS_DEVICE tess_mma_operand tess_mma_pack(const tess_mma_sums &sums, int b, int half)
{
    tess_u32x4 own;
    TESS_UNROLL
    for (int i = 0; i < 4; i++)
        own[i] = tess_mma_pair<DTYPE>(sums[8 * b + 2 * i], sums[8 * b + 2 * i + 1]);
    return tess_mma_join(own, half);
}

/* v_exp_f32 within 1 ulp and v_rcp_f32 within 1; what is below the normal numbers counts as zero.
 */
TESS_DEVICE tess_f32 tess_quick_exp2(tess_f32 x)
{
    return __builtin_amdgcn_exp2f(x);
}
TESS_DEVICE tess_f32 tess_quick_reciprocal(tess_f32 x)
{
    return __builtin_amdgcn_rcpf(x);
}

/* Said to the compiler: the value is the same in all lanes of the wave. */
TESS_DEVICE int tess_uniform(int x)
{
    return __builtin_amdgcn_readfirstlane(x);
}
TESS_DEVICE tess_i64 tess_uniform_i64(tess_i64 x)
{
    const tess_u64 bits = static_cast<tess_u64>(x);
    const tess_u32 low = static_cast<tess_u32>(tess_uniform(static_cast<int>(bits)));
    const tess_u32 high = static_cast<tess_u32>(tess_uniform(static_cast<int>(bits >> 32)));
    return static_cast<tess_i64>(low | static_cast<tess_u64>(high) << 32);
}

#endif
