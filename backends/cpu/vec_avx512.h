/* SPDX-License-Identifier: Apache-2.0
 * The vector verbs in AVX-512 F, DQ, BW and VL: 16 lanes, 32 registers. */
#ifndef TESSERA_BACKENDS_CPU_VEC_AVX512_H
#define TESSERA_BACKENDS_CPU_VEC_AVX512_H

#include <immintrin.h>
#include <stdint.h>

typedef __m512 vec;
typedef __mmask16 vec_mask;

/* What forward_tmpl.c builds its tiles from. 4 x 6 sums, 4 vectors of rows and 1 broadcast element
 * take 29 of the 32 registers. */
enum {
    VEC_LANES = 16,
    VEC_WIDE = 4,        /* vectors of rows in a wide panel */
    VEC_WIDE_PANELS = 8, /* panels of the tallest tile of rows */
    VEC_WIDE_KEYS = 6,   /* columns, and dims of V, at a time */
    VEC_WIDE_DIMS = 6,
    VEC_SHORT_KEYS = 12,  /* the same for one vector of rows, in the backward pass */
    VEC_SPREAD = 4,       /* vectors of elements at a time, where the backward pass */
    VEC_SPREAD_KEYS = 6,  /* gathers dK and dV, and columns at a time */
    VEC_BLOCK_PANELS = 2, /* most wide panels in a block of rows of the backward pass */
    VEC_SCATTERED = 0,    /* floats between rows that are better copied than read again; 0: none */
    VEC_FETCH = 0,        /* rows asked for at a time, of those that come next; 0: none */
    VEC_DECODE_ROWS = 8,  /* most rows that a decode kernel computes at once, and */
    VEC_DECODE_TURNED = 3 /* vectors of columns with one or two rows */
};

static inline vec vec_set(float a)
{
    return _mm512_set1_ps(a);
}
static inline vec vec_broadcast(const float *at)
{
    return _mm512_set1_ps(*at);
}
static inline vec vec_load(const float *at)
{
    return _mm512_loadu_ps(at);
}
static inline void vec_store(float *at, vec a)
{
    _mm512_storeu_ps(at, a);
}

static inline vec vec_add(vec a, vec b)
{
    return _mm512_add_ps(a, b);
}
static inline vec vec_sub(vec a, vec b)
{
    return _mm512_sub_ps(a, b);
}
static inline vec vec_mul(vec a, vec b)
{
    return _mm512_mul_ps(a, b);
}
static inline vec vec_div(vec a, vec b)
{
    return _mm512_div_ps(a, b);
}
static inline vec vec_fma(vec a, vec b, vec c)
{
    return _mm512_fmadd_ps(a, b, c);
}
static inline vec vec_max(vec a, vec b)
{
    return _mm512_max_ps(a, b);
} /* b if one is NaN */
static inline vec vec_min(vec a, vec b)
{
    return _mm512_min_ps(a, b);
} /* the same */

static inline vec vec_abs(vec a)
{
    return _mm512_andnot_ps(vec_set(-0.0f), a);
}

static inline vec vec_copysign(vec size, vec sign)
{
    return _mm512_or_ps(vec_abs(size), _mm512_and_ps(vec_set(-0.0f), sign));
}

static inline vec_mask vec_less(vec a, vec b)
{
    return _mm512_cmp_ps_mask(a, b, _CMP_LT_OQ);
}
static inline vec_mask vec_equal(vec a, vec b)
{
    return _mm512_cmp_ps_mask(a, b, _CMP_EQ_OQ);
}
static inline vec_mask vec_both(vec_mask a, vec_mask b)
{
    return (vec_mask)(a & b);
}
static inline int vec_any(vec_mask a)
{
    return a != 0;
}

static inline vec vec_select(vec_mask mask, vec yes, vec no)
{
    return _mm512_mask_blend_ps(mask, no, yes);
}

/* 2^x. vreduceps leaves r = x - floor(x) in [0, 1] and vscalefps multiplies by 2^floor(x), so the
 * polynomial may live on [0, 1] without a step at whole numbers: degree 6, fitted for the least
 * error in ulps with the constant term held at 1, so that 2^0 is exactly 1; largest error 1.3 ulp
 * (degree 5: 2.3, the rounding of r just below 1 included). Below -126 the result is exactly 0:
 * subnormal weights would cost an assist each. The comparison lets a NaN pass. */
static inline vec vec_exp2(vec x)
{
    const vec_mask is_normal = _mm512_cmp_ps_mask(x, vec_set(-126.0f), _CMP_NLT_UQ);
    const vec r = _mm512_reduce_ps(x, _MM_FROUND_TO_NEG_INF | _MM_FROUND_NO_EXC);
    vec p = vec_fma(r, vec_set(0x1.c91130p-13f), vec_set(0x1.457324p-10f));
    p = vec_fma(p, r, vec_set(0x1.3d3b88p-7f));
    p = vec_fma(p, r, vec_set(0x1.c68336p-5f));
    p = vec_fma(p, r, vec_set(0x1.ebfda8p-3f));
    p = vec_fma(p, r, vec_set(0x1.62e42ap-1f));
    p = vec_fma(p, r, vec_set(1.0f));
    return _mm512_maskz_scalef_ps(is_normal, p, x);
}

/* VEC_LANES rows of VEC_LANES elements, in place: 2 x 2 and 4 x 4 blocks inside the quarters of the
 * registers, then the quarters themselves. */
static inline void vec_transpose(vec row[VEC_LANES])
{
    __m512 quad[16];

    for (int i = 0; i < 16; i += 4) {
        const __m512 a = _mm512_unpacklo_ps(row[i], row[i + 1]);
        const __m512 b = _mm512_unpackhi_ps(row[i], row[i + 1]);
        const __m512 c = _mm512_unpacklo_ps(row[i + 2], row[i + 3]);
        const __m512 d = _mm512_unpackhi_ps(row[i + 2], row[i + 3]);
        quad[i] = _mm512_shuffle_ps(a, c, 0x44);
        quad[i + 1] = _mm512_shuffle_ps(a, c, 0xee);
        quad[i + 2] = _mm512_shuffle_ps(b, d, 0x44);
        quad[i + 3] = _mm512_shuffle_ps(b, d, 0xee);
    }
    for (int i = 0; i < 4; i++) {
        const __m512 a = _mm512_shuffle_f32x4(quad[i], quad[4 + i], 0x88);
        const __m512 b = _mm512_shuffle_f32x4(quad[8 + i], quad[12 + i], 0x88);
        const __m512 c = _mm512_shuffle_f32x4(quad[i], quad[4 + i], 0xdd);
        const __m512 d = _mm512_shuffle_f32x4(quad[8 + i], quad[12 + i], 0xdd);
        row[i] = _mm512_shuffle_f32x4(a, b, 0x88);
        row[4 + i] = _mm512_shuffle_f32x4(c, d, 0x88);
        row[8 + i] = _mm512_shuffle_f32x4(a, b, 0xdd);
        row[12 + i] = _mm512_shuffle_f32x4(c, d, 0xdd);
    }
}

/* 4 bytes for each lane, wherever they lie: floats, or pairs of 16-bit elements. */
static inline vec vec_load_words(const void *at)
{
    return _mm512_loadu_ps((const float *)at);
}

/* Pairs of 16-bit elements, one pair in each lane: the first of every pair, and the second. */
static inline void vec_split_f16(vec pair, vec *first, vec *second)
{
    static const uint16_t order[32] = {0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30,
                                       1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 21, 23, 25, 27, 29, 31};
    const __m512i apart =
        _mm512_permutexvar_epi16(_mm512_loadu_si512(order), _mm512_castps_si512(pair));
    *first = _mm512_cvtph_ps(_mm512_castsi512_si256(apart));
    *second = _mm512_cvtph_ps(_mm512_extracti64x4_epi64(apart, 1));
}

static inline void vec_split_bf16(vec pair, vec *first, vec *second)
{
    const __m512i bits = _mm512_castps_si512(pair);
    *first = _mm512_castsi512_ps(_mm512_slli_epi32(bits, 16));
    *second = _mm512_castsi512_ps(_mm512_and_si512(bits, _mm512_set1_epi32((int)0xffff0000u)));
}

/* The first VEC_LANES / rows elements, once for each of 1, 2 or 4 rows. */
static inline vec vec_repeat(const float *at, int rows)
{
    if (rows == 1)
        return _mm512_loadu_ps(at);
    if (rows == 2)
        return _mm512_broadcast_f32x8(_mm256_loadu_ps(at));
    return _mm512_broadcast_f32x4(_mm_loadu_ps(at));
}

/* Sums of neighbours: those of a, then those of b. */
static inline vec vec_fold(vec a, vec b)
{
    const __m512i even =
        _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
    const __m512i odd =
        _mm512_setr_epi32(1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 21, 23, 25, 27, 29, 31);
    return _mm512_add_ps(_mm512_permutex2var_ps(a, even, b), _mm512_permutex2var_ps(a, odd, b));
}

/* The largest lane; any of them if one is NaN. */
static inline float vec_largest(vec a)
{
    return _mm512_reduce_max_ps(a);
}

/* VEC_LANES stored elements of a 16-bit type, widened or rounded to nearest even. */
static inline vec vec_load_f16(const void *at)
{
    return _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)at));
}

static inline void vec_store_f16(void *at, vec a)
{
    _mm256_storeu_si256((__m256i *)at, _mm512_cvtps_ph(a, _MM_FROUND_TO_NEAREST_INT));
}

static inline vec vec_load_bf16(const void *at)
{
    const __m512i wide = _mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i *)at));
    return _mm512_castsi512_ps(_mm512_slli_epi32(wide, 16));
}

static inline void vec_store_bf16(void *at, vec a)
{
    const __m512i bits = _mm512_castps_si512(a);
    const __m512i odd = _mm512_and_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1));
    const __m512i half = _mm512_add_epi32(odd, _mm512_set1_epi32(0x7fff));
    const __m512i quiet = _mm512_or_si512(bits, _mm512_set1_epi32(0x00400000));
    const vec_mask is_nan = _mm512_cmp_ps_mask(a, a, _CMP_UNORD_Q);
    const __m512i rounded = _mm512_mask_blend_epi32(is_nan, _mm512_add_epi32(bits, half), quiet);
    _mm256_storeu_si256((__m256i *)at, _mm512_cvtepi32_epi16(_mm512_srli_epi32(rounded, 16)));
}

#endif
