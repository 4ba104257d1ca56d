/* SPDX-License-Identifier: Apache-2.0
 * The vector verbs in SVE at a length fixed when compiling: 32 registers. */
#ifndef TESSERA_BACKENDS_CPU_VEC_SVE_H
#define TESSERA_BACKENDS_CPU_VEC_SVE_H

#include <arm_sve.h>
#include <stdint.h>

/* With -msve-vector-bits vectors have a size, so that they may be array elements like those of any
 * other instruction set. A machine whose vectors have another length takes the NEON kernels. */
typedef svfloat32_t vec __attribute__((arm_sve_vector_bits(__ARM_FEATURE_SVE_BITS)));
typedef svbool_t vec_mask __attribute__((arm_sve_vector_bits(__ARM_FEATURE_SVE_BITS)));

/* What forward_tmpl.c builds its tiles from. 4 x 6 sums, 4 vectors of rows and 1 broadcast element
 * take 29 of the 32 registers. */
enum {
    VEC_LANES = __ARM_FEATURE_SVE_BITS / 32,
    VEC_WIDE = 4,        /* vectors of rows in a wide panel */
    VEC_WIDE_PANELS = 8, /* panels of the tallest tile of rows */
    VEC_WIDE_KEYS = 6,   /* columns, and dims of V, at a time */
    VEC_WIDE_DIMS = 6,
    VEC_SHORT_KEYS = 12,  /* the same for one vector of rows, in the backward pass */
    VEC_SPREAD = 4,       /* vectors of elements at a time, where the backward pass */
    VEC_SPREAD_KEYS = 6,  /* gathers dK and dV, and columns at a time */
    VEC_BLOCK_PANELS = 3, /* most wide panels in a block of rows of the backward pass */
    VEC_SCATTERED = 1024, /* floats between rows that are better copied than read again and again */
    VEC_FETCH = 4,        /* rows asked for at a time, of those that come next; 0: none */
    VEC_DECODE_ROWS = 8,  /* most rows that a decode kernel computes at once, and */
    VEC_DECODE_TURNED = 6 /* vectors of columns with one or two rows */
};

/* Every lane. */
static inline svbool_t vec_lanes(void)
{
    return svptrue_b32();
}

static inline vec vec_set(float a)
{
    return svdup_n_f32(a);
}
static inline vec vec_broadcast(const float *at)
{
    return svdup_n_f32(*at);
}
static inline vec vec_load(const float *at)
{
    return svld1_f32(vec_lanes(), at);
}
static inline void vec_store(float *at, vec a)
{
    svst1_f32(vec_lanes(), at, a);
}

static inline vec vec_add(vec a, vec b)
{
    return svadd_f32_x(vec_lanes(), a, b);
}
static inline vec vec_sub(vec a, vec b)
{
    return svsub_f32_x(vec_lanes(), a, b);
}
static inline vec vec_mul(vec a, vec b)
{
    return svmul_f32_x(vec_lanes(), a, b);
}
static inline vec vec_div(vec a, vec b)
{
    return svdiv_f32_x(vec_lanes(), a, b);
}
static inline vec vec_fma(vec a, vec b, vec c)
{
    return svmla_f32_x(vec_lanes(), c, a, b);
}
static inline vec vec_max(vec a, vec b)
{
    return svmax_f32_x(vec_lanes(), a, b);
} /* NaN if one is NaN */
static inline vec vec_min(vec a, vec b)
{
    return svmin_f32_x(vec_lanes(), a, b);
} /* the same */

static inline vec vec_abs(vec a)
{
    return svabs_f32_x(vec_lanes(), a);
}

static inline vec vec_copysign(vec size, vec sign)
{
    const svuint32_t one = svand_n_u32_x(vec_lanes(), svreinterpret_u32_f32(sign), 0x80000000u);
    const svuint32_t rest = svand_n_u32_x(vec_lanes(), svreinterpret_u32_f32(size), 0x7fffffffu);
    return svreinterpret_f32_u32(svorr_u32_x(vec_lanes(), one, rest));
}

static inline vec_mask vec_less(vec a, vec b)
{
    return svcmplt_f32(vec_lanes(), a, b);
}
static inline vec_mask vec_equal(vec a, vec b)
{
    return svcmpeq_f32(vec_lanes(), a, b);
}
static inline vec_mask vec_both(vec_mask a, vec_mask b)
{
    return svand_b_z(vec_lanes(), a, b);
}
static inline int vec_any(vec_mask a)
{
    return svptest_any(vec_lanes(), a);
}
static inline vec vec_select(vec_mask mask, vec yes, vec no)
{
    return svsel_f32(mask, yes, no);
}

/* 2^x for x <= 127, as in vec_avx2.h: degree 5 on [-1/2, 1/2], 2^0 exactly 1, below 2^-126.5
 * exactly 0, NaN stays NaN. */
static inline vec vec_exp2(vec x)
{
    const vec clamped = vec_max(vec_set(-127.0f), x);
    const svfloat32_t whole = svrintn_f32_x(vec_lanes(), clamped);
    const vec r = vec_sub(clamped, whole);
    const svint32_t n = svcvt_s32_f32_x(vec_lanes(), whole);
    const svint32_t biased = svadd_n_s32_x(vec_lanes(), n, 127);
    const vec power = svreinterpret_f32_s32(svlsl_n_s32_x(vec_lanes(), biased, 23));
    vec p = vec_fma(r, vec_set(0x1.5ab438p-10f), vec_set(0x1.3ceca0p-7f));
    p = vec_fma(p, r, vec_set(0x1.c6baa2p-5f));
    p = vec_fma(p, r, vec_set(0x1.ebf9b4p-3f));
    p = vec_fma(p, r, vec_set(0x1.62e424p-1f));
    p = vec_fma(p, r, vec_set(1.0f));
    return vec_mul(p, power);
}

/* VEC_LANES rows of VEC_LANES elements, in place. Zipping the first half of the rows with the
 * second turns the bits of an element's address by one place; after log2(VEC_LANES) rounds row and
 * column have changed places. */
static inline void vec_transpose(vec row[VEC_LANES])
{
    vec zipped[VEC_LANES];

    for (int round = 1; round < VEC_LANES; round *= 2) {
        for (int i = 0; i < VEC_LANES / 2; i++) {
            zipped[2 * i] = svzip1_f32(row[i], row[i + VEC_LANES / 2]);
            zipped[2 * i + 1] = svzip2_f32(row[i], row[i + VEC_LANES / 2]);
        }
        for (int i = 0; i < VEC_LANES; i++)
            row[i] = zipped[i];
    }
}

/* 4 bytes for each lane, wherever they lie: floats, or pairs of 16-bit elements. */
static inline vec vec_load_words(const void *at)
{
    return svreinterpret_f32_u8(svld1_u8(svptrue_b8(), (const uint8_t *)at));
}

/* Pairs of 16-bit elements, one pair in each lane: the first of every pair, and the second. */
static inline void vec_split_f16(vec pair, vec *first, vec *second)
{
    const svuint32_t bits = svreinterpret_u32_f32(pair);
    const svuint32_t upper = svlsr_n_u32_x(vec_lanes(), bits, 16);
    *first = svcvt_f32_f16_x(vec_lanes(), svreinterpret_f16_u32(bits));
    *second = svcvt_f32_f16_x(vec_lanes(), svreinterpret_f16_u32(upper));
}

static inline void vec_split_bf16(vec pair, vec *first, vec *second)
{
    const svuint32_t bits = svreinterpret_u32_f32(pair);
    *first = svreinterpret_f32_u32(svlsl_n_u32_x(vec_lanes(), bits, 16));
    *second = svreinterpret_f32_u32(svand_n_u32_x(vec_lanes(), bits, 0xffff0000u));
}

/* The first VEC_LANES / rows elements, once for each of 1, 2 or 4 rows. */
static inline vec vec_repeat(const float *at, int rows)
{
    uint64_t pair;

    if (rows == 1)
        return svld1_f32(vec_lanes(), at);
    if (rows == 2)
        return svld1rq_f32(vec_lanes(), at);
    __builtin_memcpy(&pair, at, sizeof pair);
    return svreinterpret_f32_u64(svdup_n_u64(pair));
}

/* Sums of neighbours: those of a, then those of b. */
static inline vec vec_fold(vec a, vec b)
{
    return svadd_f32_x(vec_lanes(), svuzp1_f32(a, b), svuzp2_f32(a, b));
}

/* The largest lane; NaN if one is. */
static inline float vec_largest(vec a)
{
    return svmaxv_f32(vec_lanes(), a);
}

/* VEC_LANES stored elements of a 16-bit type, widened or rounded to nearest even; each travels in
 * the lower half of its lane. */
static inline vec vec_load_f16(const void *at)
{
    const svuint32_t stored = svld1uh_u32(vec_lanes(), (const uint16_t *)at);
    return svcvt_f32_f16_x(vec_lanes(), svreinterpret_f16_u32(stored));
}

static inline void vec_store_f16(void *at, vec a)
{
    const svfloat16_t rounded = svcvt_f16_f32_x(vec_lanes(), a);
    svst1h_u32(vec_lanes(), (uint16_t *)at, svreinterpret_u32_f16(rounded));
}

static inline vec vec_load_bf16(const void *at)
{
    const svuint32_t stored = svld1uh_u32(vec_lanes(), (const uint16_t *)at);
    return svreinterpret_f32_u32(svlsl_n_u32_x(vec_lanes(), stored, 16));
}

static inline void vec_store_bf16(void *at, vec a)
{
    const svuint32_t bits = svreinterpret_u32_f32(a);
    const svuint32_t upper = svlsr_n_u32_x(vec_lanes(), bits, 16);
    const svuint32_t odd = svand_n_u32_x(vec_lanes(), upper, 1);
    const svuint32_t half = svadd_n_u32_x(vec_lanes(), odd, 0x7fff);
    const svuint32_t quiet = svorr_n_u32_x(vec_lanes(), bits, 0x00400000);
    const svuint32_t nearest = svadd_u32_x(vec_lanes(), bits, half);
    const svuint32_t rounded = svsel_u32(vec_equal(a, a), nearest, quiet);
    svst1h_u32(vec_lanes(), (uint16_t *)at, svlsr_n_u32_x(vec_lanes(), rounded, 16));
}

#endif
