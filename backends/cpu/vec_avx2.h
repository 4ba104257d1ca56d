/* SPDX-License-Identifier: Apache-2.0
 * The vector verbs in AVX2, FMA and F16C: 8 lanes, 16 registers. */
#ifndef TESSERA_BACKENDS_CPU_VEC_AVX2_H
#define TESSERA_BACKENDS_CPU_VEC_AVX2_H

#include <immintrin.h>
#include <stdint.h>

typedef __m256 vec;
typedef __m256 vec_mask; /* all ones or all zeros per lane */

/* What forward_tmpl.c builds its tiles from. 3 x 4 sums, 3 vectors of rows and 1 broadcast element
 * fill the 16 registers. */
enum {
    VEC_LANES = 8,
    VEC_WIDE = 3,         /* vectors of rows in a wide panel */
    VEC_WIDE_PANELS = 16, /* panels of the tallest tile of rows */
    VEC_WIDE_KEYS = 4,    /* columns, and dims of V, at a time */
    VEC_WIDE_DIMS = 4,
    VEC_SHORT_KEYS = 12,  /* the same for one vector of rows, in the backward pass */
    VEC_SPREAD = 2,       /* vectors of elements at a time, where the backward pass */
    VEC_SPREAD_KEYS = 6,  /* gathers dK and dV, and columns at a time */
    VEC_BLOCK_PANELS = 4, /* most wide panels in a block of rows of the backward pass */
    VEC_SCATTERED = 512,  /* floats between rows that are better copied than read again and again */
    VEC_FETCH = 4,        /* rows asked for at a time, of those that come next; 0: none */
    VEC_DECODE_ROWS = 4,  /* most rows that a decode kernel computes at once, and */
    VEC_DECODE_TURNED = 6 /* vectors of columns with one or two rows */
};

static inline vec vec_set(float a)
{
    return _mm256_set1_ps(a);
}
static inline vec vec_broadcast(const float *at)
{
    return _mm256_broadcast_ss(at);
}
static inline vec vec_load(const float *at)
{
    return _mm256_loadu_ps(at);
}
static inline void vec_store(float *at, vec a)
{
    _mm256_storeu_ps(at, a);
}

static inline vec vec_add(vec a, vec b)
{
    return _mm256_add_ps(a, b);
}
static inline vec vec_sub(vec a, vec b)
{
    return _mm256_sub_ps(a, b);
}
static inline vec vec_mul(vec a, vec b)
{
    return _mm256_mul_ps(a, b);
}
static inline vec vec_div(vec a, vec b)
{
    return _mm256_div_ps(a, b);
}
static inline vec vec_fma(vec a, vec b, vec c)
{
    return _mm256_fmadd_ps(a, b, c);
}
static inline vec vec_max(vec a, vec b)
{
    return _mm256_max_ps(a, b);
} /* b if one is NaN */
static inline vec vec_min(vec a, vec b)
{
    return _mm256_min_ps(a, b);
} /* the same */

static inline vec vec_abs(vec a)
{
    return _mm256_andnot_ps(vec_set(-0.0f), a);
}

static inline vec vec_copysign(vec size, vec sign)
{
    return _mm256_or_ps(vec_abs(size), _mm256_and_ps(vec_set(-0.0f), sign));
}

static inline vec_mask vec_less(vec a, vec b)
{
    return _mm256_cmp_ps(a, b, _CMP_LT_OQ);
}
static inline vec_mask vec_equal(vec a, vec b)
{
    return _mm256_cmp_ps(a, b, _CMP_EQ_OQ);
}
static inline vec_mask vec_both(vec_mask a, vec_mask b)
{
    return _mm256_and_ps(a, b);
}
static inline int vec_any(vec_mask a)
{
    return _mm256_movemask_ps(a) != 0;
}

static inline vec vec_select(vec_mask mask, vec yes, vec no)
{
    return _mm256_blendv_ps(no, yes, mask);
}

/* 2^x for x <= 127. With n = x rounded and r = x - n in [-1/2, 1/2]: a polynomial of degree 5 in r,
 * fitted for the least error in ulps with the constant term held at 1, so that 2^0 is exactly 1;
 * largest error 1.8 ulp. n is read from the low bits of x + 1.5 * 2^23, which also hold the bias of
 * the exponent. Below 2^-126.5 the result is exactly 0: the maximum stops n at -127, whose biased
 * exponent is 0. A NaN passes the maximum (second operand) and the product. */
static inline vec vec_exp2(vec x)
{
    const vec magic = vec_set(12582912.0f + 127.0f);
    const vec clamped = vec_max(vec_set(-127.0f), x);
    const vec shifted = vec_add(clamped, magic);
    const vec r = vec_sub(clamped, vec_sub(shifted, magic));
    const vec power = _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_castps_si256(shifted), 23));
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
    vec pair[8], quad[8];

    for (int i = 0; i < 8; i += 2) {
        pair[i] = _mm256_unpacklo_ps(row[i], row[i + 1]);
        pair[i + 1] = _mm256_unpackhi_ps(row[i], row[i + 1]);
    }
    for (int i = 0; i < 8; i += 4) {
        quad[i] = _mm256_shuffle_ps(pair[i], pair[i + 2], 0x44);
        quad[i + 1] = _mm256_shuffle_ps(pair[i], pair[i + 2], 0xee);
        quad[i + 2] = _mm256_shuffle_ps(pair[i + 1], pair[i + 3], 0x44);
        quad[i + 3] = _mm256_shuffle_ps(pair[i + 1], pair[i + 3], 0xee);
    }
    for (int i = 0; i < 4; i++) {
        row[i] = _mm256_permute2f128_ps(quad[i], quad[i + 4], 0x20);
        row[i + 4] = _mm256_permute2f128_ps(quad[i], quad[i + 4], 0x31);
    }
}

/* 4 bytes for each lane, wherever they lie: floats, or pairs of 16-bit elements. */
static inline vec vec_load_words(const void *at)
{
    return _mm256_loadu_ps((const float *)at);
}

/* Pairs of 16-bit elements, one pair in each lane: the first of every pair, and the second. */
static inline void vec_split_f16(vec pair, vec *first, vec *second)
{
    const __m256i bits = _mm256_castps_si256(pair);
    const __m256i low = _mm256_and_si256(bits, _mm256_set1_epi32(0xffff));
    const __m256i both =
        _mm256_packus_epi32(low, _mm256_srli_epi32(bits, 16)); /* per half: 4 + 4 */
    const __m256i apart = _mm256_permute4x64_epi64(both, 0xd8);
    *first = _mm256_cvtph_ps(_mm256_castsi256_si128(apart));
    *second = _mm256_cvtph_ps(_mm256_extracti128_si256(apart, 1));
}

static inline void vec_split_bf16(vec pair, vec *first, vec *second)
{
    const __m256i bits = _mm256_castps_si256(pair);
    *first = _mm256_castsi256_ps(_mm256_slli_epi32(bits, 16));
    *second = _mm256_castsi256_ps(_mm256_and_si256(bits, _mm256_set1_epi32((int)0xffff0000u)));
}

/* The first VEC_LANES / rows elements, once for each of 1, 2 or 4 rows. */
static inline vec vec_repeat(const float *at, int rows)
{
    if (rows == 1)
        return _mm256_loadu_ps(at);
    if (rows == 2)
        return _mm256_insertf128_ps(_mm256_castps128_ps256(_mm_loadu_ps(at)), _mm_loadu_ps(at), 1);
    return _mm256_castsi256_ps(_mm256_broadcastq_epi64(_mm_loadl_epi64((const __m128i *)at)));
}

/* Sums of neighbours: those of a, then those of b. */
static inline vec vec_fold(vec a, vec b)
{
    const __m256d sums =
        _mm256_castps_pd(_mm256_hadd_ps(a, b)); /* of quarters of a and b in turn */
    return _mm256_castpd_ps(_mm256_permute4x64_pd(sums, 0xd8));
}

/* The largest lane; any of them if one is NaN. */
static inline float vec_largest(vec a)
{
    __m128 most = _mm_max_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
    most = _mm_max_ps(most, _mm_movehl_ps(most, most));
    return _mm_cvtss_f32(_mm_max_ss(most, _mm_movehdup_ps(most)));
}

/* VEC_LANES stored elements of a 16-bit type, widened or rounded to nearest even. */
static inline vec vec_load_f16(const void *at)
{
    return _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)at));
}

static inline void vec_store_f16(void *at, vec a)
{
    _mm_storeu_si128((__m128i *)at, _mm256_cvtps_ph(a, _MM_FROUND_TO_NEAREST_INT));
}

static inline vec vec_load_bf16(const void *at)
{
    const __m256i wide = _mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i *)at));
    return _mm256_castsi256_ps(_mm256_slli_epi32(wide, 16));
}

static inline void vec_store_bf16(void *at, vec a)
{
    const __m256i bits = _mm256_castps_si256(a);
    const __m256i odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
    const __m256i half = _mm256_add_epi32(odd, _mm256_set1_epi32(0x7fff));
    const __m256i quiet = _mm256_or_si256(bits, _mm256_set1_epi32(0x00400000));
    const __m256i is_nan = _mm256_castps_si256(_mm256_cmp_ps(a, a, _CMP_UNORD_Q));
    const __m256i rounded = _mm256_blendv_epi8(_mm256_add_epi32(bits, half), quiet, is_nan);
    const __m256i upper = _mm256_srli_epi32(rounded, 16);
    const __m256i packed = _mm256_packus_epi32(upper, upper); /* per half: elements 0-3 twice */
    _mm_storeu_si128((__m128i *)at, _mm256_castsi256_si128(_mm256_permute4x64_epi64(packed, 0x08)));
}

#endif
