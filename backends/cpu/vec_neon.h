/* SPDX-License-Identifier: Apache-2.0
 * The vector verbs in NEON of 64-bit Arm: 4 lanes, 32 registers. */
#ifndef TESSERA_BACKENDS_CPU_VEC_NEON_H
#define TESSERA_BACKENDS_CPU_VEC_NEON_H

#include <arm_neon.h>
#include <stdint.h>

typedef float32x4_t vec;
typedef uint32x4_t vec_mask; /* all ones or all zeros per lane */

/* What forward_tmpl.c builds its tiles from. 4 x 6 sums, 4 vectors of rows and 1 broadcast element
 * take 29 of the 32 registers. */
enum {
    VEC_LANES = 4,
    VEC_WIDE = 4,         /* vectors of rows in a wide panel */
    VEC_WIDE_PANELS = 16, /* panels of the tallest tile of rows */
    VEC_WIDE_KEYS = 6,    /* columns, and dims of V, at a time */
    VEC_WIDE_DIMS = 6,
    VEC_SHORT_KEYS = 12,  /* the same for one vector of rows, in the backward pass */
    VEC_SPREAD = 4,       /* vectors of elements at a time, where the backward pass */
    VEC_SPREAD_KEYS = 6,  /* gathers dK and dV, and columns at a time */
    VEC_BLOCK_PANELS = 4, /* most wide panels in a block of rows of the backward pass */
    VEC_SCATTERED = 1024, /* floats between rows that are better copied than read again and again */
    VEC_FETCH = 4,        /* rows asked for at a time, of those that come next; 0: none */
    VEC_DECODE_ROWS = 8,  /* most rows that a decode kernel computes at once, and */
    VEC_DECODE_TURNED = 12 /* vectors of columns with one or two rows */
};

static inline vec vec_set(float a)
{
    return vdupq_n_f32(a);
}
static inline vec vec_broadcast(const float *at)
{
    return vld1q_dup_f32(at);
}
static inline vec vec_load(const float *at)
{
    return vld1q_f32(at);
}
static inline void vec_store(float *at, vec a)
{
    vst1q_f32(at, a);
}

static inline vec vec_add(vec a, vec b)
{
    return vaddq_f32(a, b);
}
static inline vec vec_sub(vec a, vec b)
{
    return vsubq_f32(a, b);
}
static inline vec vec_mul(vec a, vec b)
{
    return vmulq_f32(a, b);
}
static inline vec vec_div(vec a, vec b)
{
    return vdivq_f32(a, b);
}
static inline vec vec_fma(vec a, vec b, vec c)
{
    return vfmaq_f32(c, a, b);
}
static inline vec vec_max(vec a, vec b)
{
    return vmaxq_f32(a, b);
} /* NaN if one is NaN */
static inline vec vec_min(vec a, vec b)
{
    return vminq_f32(a, b);
} /* the same */

static inline vec vec_abs(vec a)
{
    return vabsq_f32(a);
}

static inline vec vec_copysign(vec size, vec sign)
{
    return vbslq_f32(vdupq_n_u32(0x80000000u), sign, size);
}

static inline vec_mask vec_less(vec a, vec b)
{
    return vcltq_f32(a, b);
}
static inline vec_mask vec_equal(vec a, vec b)
{
    return vceqq_f32(a, b);
}
static inline vec_mask vec_both(vec_mask a, vec_mask b)
{
    return vandq_u32(a, b);
}
static inline int vec_any(vec_mask a)
{
    return vmaxvq_u32(a) != 0;
}
static inline vec vec_select(vec_mask mask, vec yes, vec no)
{
    return vbslq_f32(mask, yes, no);
}

/* 2^x for x <= 127, as in vec_avx2.h: degree 5 on [-1/2, 1/2], 2^0 exactly 1, below 2^-126.5
 * exactly 0, NaN stays NaN. */
static inline vec vec_exp2(vec x)
{
    const vec clamped = vec_max(vec_set(-127.0f), x);
    const int32x4_t n = vcvtnq_s32_f32(clamped);
    const vec r = vec_sub(clamped, vcvtq_f32_s32(n));
    const int32x4_t biased = vaddq_s32(n, vdupq_n_s32(127));
    const vec power = vreinterpretq_f32_s32(vshlq_n_s32(biased, 23));
    vec p = vec_fma(r, vec_set(0x1.5ab438p-10f), vec_set(0x1.3ceca0p-7f));
    p = vec_fma(p, r, vec_set(0x1.c6baa2p-5f));
    p = vec_fma(p, r, vec_set(0x1.ebf9b4p-3f));
    p = vec_fma(p, r, vec_set(0x1.62e424p-1f));
    p = vec_fma(p, r, vec_set(1.0f));
    return vec_mul(p, power);
}

/* VEC_LANES rows of VEC_LANES elements, in place. */
static inline void vec_transpose(vec row[VEC_LANES])
{
    const float32x4x2_t upper = vtrnq_f32(row[0], row[1]);
    const float32x4x2_t lower = vtrnq_f32(row[2], row[3]);

    row[0] = vcombine_f32(vget_low_f32(upper.val[0]), vget_low_f32(lower.val[0]));
    row[1] = vcombine_f32(vget_low_f32(upper.val[1]), vget_low_f32(lower.val[1]));
    row[2] = vcombine_f32(vget_high_f32(upper.val[0]), vget_high_f32(lower.val[0]));
    row[3] = vcombine_f32(vget_high_f32(upper.val[1]), vget_high_f32(lower.val[1]));
}

/* 4 bytes for each lane, wherever they lie: floats, or pairs of 16-bit elements. */
static inline vec vec_load_words(const void *at)
{
    return vreinterpretq_f32_u8(vld1q_u8((const uint8_t *)at));
}

/* Pairs of 16-bit elements, one pair in each lane: the first of every pair, and the second. */
static inline void vec_split_f16(vec pair, vec *first, vec *second)
{
    const uint32x4_t bits = vreinterpretq_u32_f32(pair);
    *first = vcvt_f32_f16(vreinterpret_f16_u16(vmovn_u32(bits)));
    *second = vcvt_f32_f16(vreinterpret_f16_u16(vshrn_n_u32(bits, 16)));
}

static inline void vec_split_bf16(vec pair, vec *first, vec *second)
{
    const uint32x4_t bits = vreinterpretq_u32_f32(pair);
    *first = vreinterpretq_f32_u32(vshlq_n_u32(bits, 16));
    *second = vreinterpretq_f32_u32(vandq_u32(bits, vdupq_n_u32(0xffff0000u)));
}

/* The first VEC_LANES / rows elements, once for each of 1, 2 or 4 rows. */
static inline vec vec_repeat(const float *at, int rows)
{
    if (rows == 1)
        return vld1q_f32(at);
    if (rows == 2)
        return vcombine_f32(vld1_f32(at), vld1_f32(at));
    return vld1q_dup_f32(at);
}

/* Sums of neighbours: those of a, then those of b. */
static inline vec vec_fold(vec a, vec b)
{
    return vpaddq_f32(a, b);
}

/* The largest lane; NaN if one is. */
static inline float vec_largest(vec a)
{
    return vmaxvq_f32(a);
}

/* VEC_LANES stored elements of a 16-bit type, widened or rounded to nearest even. Loads and stores
 * go by bytes: 16-bit tensors are aligned to 2, which is all that is asked of an element. */
static inline vec vec_load_f16(const void *at)
{
    return vcvt_f32_f16(vreinterpret_f16_u8(vld1_u8((const uint8_t *)at)));
}

static inline void vec_store_f16(void *at, vec a)
{
    vst1_u8((uint8_t *)at, vreinterpret_u8_f16(vcvt_f16_f32(a)));
}

static inline vec vec_load_bf16(const void *at)
{
    const uint16x4_t stored = vreinterpret_u16_u8(vld1_u8((const uint8_t *)at));
    return vreinterpretq_f32_u32(vshll_n_u16(stored, 16));
}

static inline void vec_store_bf16(void *at, vec a)
{
    const uint32x4_t bits = vreinterpretq_u32_f32(a);
    const uint32x4_t odd = vandq_u32(vshrq_n_u32(bits, 16), vdupq_n_u32(1));
    const uint32x4_t half = vaddq_u32(odd, vdupq_n_u32(0x7fff));
    const uint32x4_t quiet = vorrq_u32(bits, vdupq_n_u32(0x00400000));
    const uint32x4_t rounded = vbslq_u32(vceqq_f32(a, a), vaddq_u32(bits, half), quiet);
    vst1_u8((uint8_t *)at, vreinterpret_u8_u16(vshrn_n_u32(rounded, 16)));
}

#endif
