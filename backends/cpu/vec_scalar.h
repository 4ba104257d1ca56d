/* SPDX-License-Identifier: Apache-2.0
 * The vector verbs in plain C, for any machine: arrays that a compiler can turn into vectors. */
#ifndef TESSERA_BACKENDS_CPU_VEC_SCALAR_H
#define TESSERA_BACKENDS_CPU_VEC_SCALAR_H

#include "core/portable/convert.h"

#include <stdint.h>
#include <string.h>

enum {
    VEC_LANES = 4,
    VEC_WIDE = 2,         /* vectors of rows in a wide panel */
    VEC_WIDE_PANELS = 16, /* panels of the tallest tile of rows */
    VEC_WIDE_KEYS = 4,    /* columns, and dims of V, at a time */
    VEC_WIDE_DIMS = 4,
    VEC_SHORT_KEYS = 8,   /* the same for one vector of rows, in the backward pass */
    VEC_SPREAD = 2,       /* vectors of elements at a time, where the backward pass */
    VEC_SPREAD_KEYS = 4,  /* gathers dK and dV, and columns at a time */
    VEC_BLOCK_PANELS = 4, /* most wide panels in a block of rows of the backward pass */
    VEC_SCATTERED = 1024, /* floats between rows that are better copied than read again and again */
    VEC_FETCH = 4,        /* rows asked for at a time, of those that come next; 0: none */
    VEC_DECODE_ROWS = 4,  /* most rows that a decode kernel computes at once, and */
    VEC_DECODE_TURNED = 6 /* vectors of columns with one or two rows */
};

typedef struct vec {
    float lane[VEC_LANES];
} vec;

typedef struct vec_mask {
    int32_t lane[VEC_LANES]; /* 0 or 1 */
} vec_mask;

#define VEC_EACH(result, expression)    \
    for (int i = 0; i < VEC_LANES; i++) \
    (result).lane[i] = (expression)

static inline vec vec_set(float a)
{
    vec r;
    VEC_EACH(r, a);
    return r;
}

static inline vec vec_broadcast(const float *at)
{
    return vec_set(*at);
}

static inline vec vec_load(const float *at)
{
    vec r;
    memcpy(r.lane, at, sizeof r.lane);
    return r;
}

static inline void vec_store(float *at, vec a)
{
    memcpy(at, a.lane, sizeof a.lane);
}

static inline vec vec_add(vec a, vec b)
{
    VEC_EACH(a, a.lane[i] + b.lane[i]);
    return a;
}

static inline vec vec_sub(vec a, vec b)
{
    VEC_EACH(a, a.lane[i] - b.lane[i]);
    return a;
}

static inline vec vec_mul(vec a, vec b)
{
    VEC_EACH(a, a.lane[i] * b.lane[i]);
    return a;
}

static inline vec vec_div(vec a, vec b)
{
    VEC_EACH(a, a.lane[i] / b.lane[i]);
    return a;
}

/* Two roundings: fmaf() is a function call on the machines this is for. */
static inline vec vec_fma(vec a, vec b, vec c)
{
    VEC_EACH(c, a.lane[i] * b.lane[i] + c.lane[i]);
    return c;
}

static inline vec vec_max(vec a, vec b) /* b if one is NaN */
{
    VEC_EACH(a, a.lane[i] > b.lane[i] ? a.lane[i] : b.lane[i]);
    return a;
}

static inline vec vec_min(vec a, vec b) /* the same */
{
    VEC_EACH(a, a.lane[i] < b.lane[i] ? a.lane[i] : b.lane[i]);
    return a;
}

static inline vec vec_abs(vec a)
{
    VEC_EACH(a, tess_from_bits(tess_bits(a.lane[i]) & ~TESS_SIGN_32));
    return a;
}

static inline vec vec_copysign(vec size, vec sign)
{
    VEC_EACH(size, tess_from_bits((tess_bits(size.lane[i]) & ~TESS_SIGN_32) |
                                  (tess_bits(sign.lane[i]) & TESS_SIGN_32)));
    return size;
}

static inline vec_mask vec_less(vec a, vec b)
{
    vec_mask r;
    VEC_EACH(r, a.lane[i] < b.lane[i]);
    return r;
}

static inline vec_mask vec_equal(vec a, vec b)
{
    vec_mask r;
    VEC_EACH(r, a.lane[i] == b.lane[i]);
    return r;
}

static inline vec_mask vec_both(vec_mask a, vec_mask b)
{
    VEC_EACH(a, a.lane[i] & b.lane[i]);
    return a;
}

static inline int vec_any(vec_mask a)
{
    int32_t any = 0;
    for (int i = 0; i < VEC_LANES; i++)
        any |= a.lane[i];
    return any;
}

static inline vec vec_select(vec_mask mask, vec yes, vec no)
{
    VEC_EACH(no, mask.lane[i] ? yes.lane[i] : no.lane[i]);
    return no;
}

/* 2^x for x <= 127, as in vec_avx2.h with a degree more, which pays for the roundings of products:
 * degree 6 on [-1/2, 1/2], 2^0 exactly 1, largest error 1.2 ulp, below 2^-126.5 exactly 0, NaN
 * stays NaN. */
static inline vec vec_exp2(vec x)
{
    const float magic = 12582912.0f + 127.0f;
    for (int i = 0; i < VEC_LANES; i++) {
        const float clamped = -127.0f > x.lane[i] ? -127.0f : x.lane[i];
        const float shifted = clamped + magic;
        const float r = clamped - (shifted - magic);
        const float power = tess_from_bits(tess_bits(shifted) << 23);
        float p = r * 0x1.415650p-13f + 0x1.5f33a4p-10f;
        p = p * r + 0x1.3b2e54p-7f;
        p = p * r + 0x1.c6af08p-5f;
        p = p * r + 0x1.ebfbdap-3f;
        p = p * r + 0x1.62e430p-1f;
        p = p * r + 1.0f;
        x.lane[i] = p * power;
    }
    return x;
}

/* VEC_LANES rows of VEC_LANES elements, in place. */
static inline void vec_transpose(vec row[VEC_LANES])
{
    for (int i = 0; i < VEC_LANES; i++)
        for (int j = 0; j < i; j++) {
            const float kept = row[i].lane[j];
            row[i].lane[j] = row[j].lane[i];
            row[j].lane[i] = kept;
        }
}

/* 4 bytes for each lane, wherever they lie: floats, or pairs of 16-bit elements. */
static inline vec vec_load_words(const void *at)
{
    vec r;
    memcpy(r.lane, at, sizeof r.lane);
    return r;
}

/* Pairs of 16-bit elements, one pair in each lane: the first of every pair, and the second. */
static inline void vec_split_f16(vec pair, vec *first, vec *second)
{
    for (int i = 0; i < VEC_LANES; i++) {
        uint16_t stored[2];
        memcpy(stored, &pair.lane[i], sizeof stored);
        first->lane[i] = tess_f32_from_f16(stored[0]);
        second->lane[i] = tess_f32_from_f16(stored[1]);
    }
}

static inline void vec_split_bf16(vec pair, vec *first, vec *second)
{
    for (int i = 0; i < VEC_LANES; i++) {
        uint16_t stored[2];
        memcpy(stored, &pair.lane[i], sizeof stored);
        first->lane[i] = tess_f32_from_bf16(stored[0]);
        second->lane[i] = tess_f32_from_bf16(stored[1]);
    }
}

/* The first VEC_LANES / rows elements, once for each of 1, 2 or 4 rows. */
static inline vec vec_repeat(const float *at, int rows)
{
    vec r;
    VEC_EACH(r, at[i % (VEC_LANES / rows)]);
    return r;
}

/* Sums of neighbours: those of a, then those of b. */
static inline vec vec_fold(vec a, vec b)
{
    float all[2 * VEC_LANES];
    vec r;
    memcpy(all, a.lane, sizeof a.lane);
    memcpy(all + VEC_LANES, b.lane, sizeof b.lane);
    VEC_EACH(r, all[2 * i] + all[2 * i + 1]);
    return r;
}

/* The largest lane; any of them if one is NaN. */
static inline float vec_largest(vec a)
{
    float most = a.lane[0];
    for (int i = 1; i < VEC_LANES; i++)
        most = a.lane[i] > most ? a.lane[i] : most;
    return most;
}

/* VEC_LANES stored elements of a 16-bit type, widened or rounded to nearest even. */
static inline vec vec_load_f16(const void *at)
{
    uint16_t stored[VEC_LANES];
    vec r;
    memcpy(stored, at, sizeof stored);
    VEC_EACH(r, tess_f32_from_f16(stored[i]));
    return r;
}

static inline void vec_store_f16(void *at, vec a)
{
    uint16_t stored[VEC_LANES];
    for (int i = 0; i < VEC_LANES; i++)
        stored[i] = (uint16_t)tess_f16_from_f32(a.lane[i]);
    memcpy(at, stored, sizeof stored);
}

static inline vec vec_load_bf16(const void *at)
{
    uint16_t stored[VEC_LANES];
    vec r;
    memcpy(stored, at, sizeof stored);
    VEC_EACH(r, tess_f32_from_bf16(stored[i]));
    return r;
}

static inline void vec_store_bf16(void *at, vec a)
{
    uint16_t stored[VEC_LANES];
    for (int i = 0; i < VEC_LANES; i++)
        stored[i] = (uint16_t)tess_bf16_from_f32(a.lane[i]);
    memcpy(at, stored, sizeof stored);
}

#undef VEC_EACH

#endif
