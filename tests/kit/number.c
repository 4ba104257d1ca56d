/* SPDX-License-Identifier: Apache-2.0
 * Storage types to double and back, by the definition of the formats. */
#include "tests/kit/number.h"

#include <math.h>
#include <string.h>

/* A binary format: sign, exponent, mantissa. */
typedef struct format {
    int exponent_bits, mantissa_bits;
    bool has_infinity;
} format;

static const format formats[] = {
    [TESS_F32] = {8, 23, true},  [TESS_F16] = {5, 10, true}, [TESS_BF16] = {8, 7, true},
    [TESS_E4M3] = {4, 3, false}, [TESS_E5M2] = {5, 2, true},
};

/* The format of a float type; index types have none and are taken for f32. */
static inline format format_of(tess_dtype dtype)
{
    return formats[dtype >= TESS_F32 && dtype <= TESS_E5M2 ? dtype : TESS_F32];
}

static int least_exponent(format f)
{
    return 2 - (1 << (f.exponent_bits - 1));
}

double tess_number_decode(tess_dtype dtype, uint32_t bits)
{
    const format f = format_of(dtype);
    const uint32_t sign = bits >> (f.exponent_bits + f.mantissa_bits) & 1;
    const uint32_t exponent = bits >> f.mantissa_bits & ((1u << f.exponent_bits) - 1);
    const uint32_t mantissa = bits & ((1u << f.mantissa_bits) - 1);
    const uint32_t top = (1u << f.exponent_bits) - 1, full = (1u << f.mantissa_bits) - 1;
    double value;

    if (exponent == top && f.has_infinity)
        value = mantissa ? (double)NAN : (double)INFINITY;
    else if (exponent == top && mantissa == full)
        value = (double)NAN;
    else if (exponent == 0)
        value = ldexp(mantissa, least_exponent(f) - f.mantissa_bits);
    else
        value = ldexp(mantissa + (1u << f.mantissa_bits),
                      least_exponent(f) - f.mantissa_bits + (int)exponent - 1);
    return sign ? -value : value;
}

/* A mantissa shifted right, to the nearest, ties to even. */
static uint64_t shift_and_round(uint64_t mantissa, int shift)
{
    uint64_t half, rest;

    if (shift > 54)
        return 0; /* below half of the least number: 53 bits cannot reach it */
    half = UINT64_C(1) << (shift - 1);
    rest = mantissa & (2 * half - 1);
    mantissa >>= shift;
    return mantissa + (rest > half || (rest == half && (mantissa & 1)));
}

uint32_t tess_number_encode(tess_dtype dtype, double value)
{
    const format f = format_of(dtype);
    const uint32_t sign = signbit(value) ? 1u << (f.exponent_bits + f.mantissa_bits) : 0;
    const uint32_t top = ((1u << f.exponent_bits) - 1) << f.mantissa_bits;
    const int least = least_exponent(f);
    int exponent;
    uint64_t word, mantissa, bits;

    if (!f.has_infinity && !isfinite(value))
        return sign | top | ((1u << f.mantissa_bits) - 1);
    if (isnan(value))
        return sign | top | 1u << (f.mantissa_bits - 1);
    if (isinf(value))
        return sign | top;
    memcpy(&word, &value, sizeof word);
    exponent = (int)(word >> 52 & 0x7FF) - 1023;
    mantissa = (word & ((UINT64_C(1) << 52) - 1)) | UINT64_C(1) << 52;
    if (exponent == -1023)
        return sign; /* 0, or far below everything */
    /* Counting in units of the last place from the least exponent on makes the carry of a rounding
     * into the next exponent, and out of the subnormals, a carry between two fields. */
    bits =
        shift_and_round(mantissa, 52 - f.mantissa_bits + (exponent < least ? least - exponent : 0));
    if (exponent > least)
        bits += (uint64_t)(exponent - least) << f.mantissa_bits;
    if (f.has_infinity)
        return sign | (bits > top ? top : (uint32_t)bits);
    return sign | (bits > top + 6 ? top + 6 : (uint32_t)bits);
}

double tess_number_round(tess_dtype dtype, double value)
{
    return tess_number_decode(dtype, tess_number_encode(dtype, value));
}

uint32_t tess_number_bits(tess_dtype dtype, const void *element)
{
    uint32_t word = 0;
    uint16_t half;
    uint8_t byte;

    switch (tess_dtype_size(dtype)) {
    case 1:
        memcpy(&byte, element, 1);
        return byte;
    case 2:
        memcpy(&half, element, 2);
        return half;
    default:
        memcpy(&word, element, 4);
        return word;
    }
}

void tess_number_set_bits(tess_dtype dtype, void *element, uint32_t bits)
{
    const uint16_t half = (uint16_t)bits;
    const uint8_t byte = (uint8_t)bits;

    switch (tess_dtype_size(dtype)) {
    case 1:
        memcpy(element, &byte, 1);
        return;
    case 2:
        memcpy(element, &half, 2);
        return;
    default:
        memcpy(element, &bits, 4);
        return;
    }
}

/* ldexp() for every element would be most of a decode problem's time; these are the same values. */
static double load_f16(uint32_t bits)
{
    const uint32_t magnitude = bits & 0x7FFF;
    uint32_t word;
    float value;

    if (magnitude < 0x0400) {
        value = (float)magnitude * 0x1p-24f;
        return bits & 0x8000 ? -(double)value : (double)value;
    }
    word = (magnitude << 13) + (magnitude >= 0x7C00 ? 0x70000000u : 0x38000000u);
    word |= (bits & 0x8000) << 16;
    memcpy(&value, &word, sizeof value);
    return value;
}

double tess_number_load(tess_dtype dtype, const void *element)
{
    int32_t small;
    int64_t large;
    uint32_t word;
    float value;

    switch (dtype) {
    case TESS_F16:
        return load_f16(tess_number_bits(dtype, element));
    case TESS_BF16:
        word = tess_number_bits(dtype, element) << 16;
        memcpy(&value, &word, sizeof value);
        return value;
    case TESS_F32:
        memcpy(&value, element, sizeof value);
        return value;
    case TESS_I32:
        memcpy(&small, element, sizeof small);
        return small;
    case TESS_I64:
        memcpy(&large, element, sizeof large);
        return (double)large;
    default:
        return tess_number_decode(dtype, tess_number_bits(dtype, element));
    }
}

void tess_number_store(tess_dtype dtype, void *element, double value)
{
    const int32_t small = (int32_t)(dtype == TESS_I32 ? value : 0);
    const int64_t large = (int64_t)(dtype == TESS_I64 ? value : 0);

    if (dtype == TESS_I32)
        memcpy(element, &small, sizeof small);
    else if (dtype == TESS_I64)
        memcpy(element, &large, sizeof large);
    else
        tess_number_set_bits(dtype, element, tess_number_encode(dtype, value));
}

double tess_number_ulp(tess_dtype dtype)
{
    return ldexp(1, -format_of(dtype).mantissa_bits);
}

double tess_number_least(tess_dtype dtype)
{
    return tess_number_decode(dtype, 1);
}

double tess_number_most(tess_dtype dtype)
{
    const format f = format_of(dtype);
    const uint32_t top = ((1u << f.exponent_bits) - 1) << f.mantissa_bits;

    return tess_number_decode(dtype, f.has_infinity ? top - 1 : top + 6);
}

uint32_t tess_number_prefill(tess_dtype dtype)
{
    switch (dtype) {
    case TESS_F16:
        return 0x7DA5;
    case TESS_BF16:
        return 0x7FA5;
    case TESS_E4M3:
        return 0x7F;
    case TESS_E5M2:
        return 0x7D;
    default:
        return 0x7FA5A5A5;
    }
}

uint32_t tess_number_poison(tess_dtype dtype, unsigned which)
{
    const format f = format_of(dtype);
    const uint32_t top = ((1u << f.exponent_bits) - 1) << f.mantissa_bits;
    const uint32_t sign = 1u << (f.exponent_bits + f.mantissa_bits);

    switch (which & 3) {
    case 0:
        return sign | (sign - 1); /* every bit set */
    case 1:
        return tess_number_prefill(dtype);
    case 2:
        return f.has_infinity ? top : top + 6;
    default:
        return sign | (f.has_infinity ? top : top + 7);
    }
}
