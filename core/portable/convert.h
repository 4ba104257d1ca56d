/* SPDX-License-Identifier: Apache-2.0
 * The storage types f16, bf16, e4m3 and e5m2 to and from f32, by bits. */
#ifndef TESSERA_CORE_PORTABLE_CONVERT_H
#define TESSERA_CORE_PORTABLE_CONVERT_H

#include "dialect.h"

/* A stored value is the low 8 or 16 bits of a tess_u32. Everything is done on integers, so that no
 * device setting (flushed subnormals, another rounding mode) changes a bit and all dialects agree.
 *
 *        exponent  mantissa  bias  largest   beyond it           NaN
 * f16           5        10    15  65504     Inf                 any mantissa but 0
 * bf16          8         7   127  3.39e38   Inf                 any mantissa but 0
 * e5m2          5         2    15  57344     Inf                 any mantissa but 0
 * e4m3          4         3     7  448       448 (no Inf)        S.1111.111 only
 *
 * Rounding is to nearest, ties to the even code. The 8-bit types are those of the OCP "8-bit
 * Floating Point Specification" (2023): e4m3 saturates, Inf included, and e5m2 does not, so that an
 * overflow stays visible in the type that can show it. A NaN stays a NaN and keeps its sign; the
 * payload is kept as far as it fits. */

#define TESS_SIGN_32 0x80000000u
#define TESS_INF_32 0x7f800000u
#define TESS_QUIET_32 0x00400000u

/* A positive f32 (not a NaN) in a format of `mantissa` bits and exponent bias `bias`, as if the
 * exponent had no upper end: the caller compares the code with its largest. Codes of a format are
 * ordered like their values, so a carry out of the mantissa is already right. */
TESS_FN tess_u32 tess_narrow(tess_u32 bits, tess_u32 mantissa, tess_u32 bias)
{
    const tess_u32 exponent = bits >> 23;
    const tess_u32 lowest = 128u - bias; /* f32 exponent of the format's smallest normal number */
    const tess_u32 is_normal = exponent >= lowest;
    /* Below the normal numbers the leading one is written out and moved down instead. */
    const tess_u32 number =
        is_normal ? bits - ((lowest - 1u) << 23) : (bits & 0x007fffffu) | 0x00800000u;
    const tess_u32 shift = 23u - mantissa + (is_normal ? 0u : lowest - exponent);
    tess_u32 code, rest, tie;

    if (shift > 24u) /* less than half of the smallest subnormal */
        return 0u;
    code = number >> shift;
    tie = 1u << (shift - 1u);
    rest = number & (2u * tie - 1u);
    return code + (rest > tie || (rest == tie && (code & 1u) != 0u) ? 1u : 0u);
}

/* The other way: f32 bits of a finite positive code. */
TESS_FN tess_u32 tess_widen(tess_u32 code, tess_u32 mantissa, tess_u32 bias)
{
    const tess_u32 smallest = 128u - bias - mantissa; /* f32 exponent of the smallest subnormal */

    if (code >> mantissa != 0u)
        return (code << (23u - mantissa)) + ((127u - bias) << 23);
    if (code == 0u)
        return 0u;
    /* A small integer is exact in f32; scaling by a power of two moves only its exponent. */
    return tess_bits((tess_f32)code) + (smallest << 23) - (127u << 23);
}

TESS_FN tess_f32 tess_f32_from_f16(tess_u32 bits)
{
    const tess_u32 sign = (bits & 0x8000u) << 16;
    const tess_u32 code = bits & 0x7fffu;

    if (code > 0x7c00u)
        return tess_from_bits(sign | TESS_INF_32 | TESS_QUIET_32 | (code & 0x3ffu) << 13);
    return tess_from_bits(sign | (code == 0x7c00u ? TESS_INF_32 : tess_widen(code, 10u, 15u)));
}

TESS_FN tess_u32 tess_f16_from_f32(tess_f32 value)
{
    const tess_u32 bits = tess_bits(value);
    const tess_u32 sign = (bits & TESS_SIGN_32) >> 16;
    const tess_u32 size = bits & ~TESS_SIGN_32;
    tess_u32 code;

    if (size > TESS_INF_32)
        return sign | 0x7e00u | (size & 0x007fffffu) >> 13;
    code = tess_narrow(size, 10u, 15u);
    return sign | (code < 0x7c00u ? code : 0x7c00u);
}

/* bf16 is the upper half of an f32. A signalling NaN stays one here: the first operation that reads
 * it makes it quiet, and kernels load bf16 by this very shift. */
TESS_FN tess_f32 tess_f32_from_bf16(tess_u32 bits)
{
    return tess_from_bits(bits << 16);
}

TESS_FN tess_u32 tess_bf16_from_f32(tess_f32 value)
{
    const tess_u32 bits = tess_bits(value);

    if ((bits & ~TESS_SIGN_32) > TESS_INF_32) /* rounding could carry a NaN into Inf or zero */
        return (bits | TESS_QUIET_32) >> 16;
    return (bits + 0x7fffu + (bits >> 16 & 1u)) >> 16;
}

TESS_FN tess_f32 tess_f32_from_e4m3(tess_u32 bits)
{
    const tess_u32 sign = (bits & 0x80u) << 24;
    const tess_u32 code = bits & 0x7fu;

    return tess_from_bits(sign |
                          (code == 0x7fu ? TESS_INF_32 | TESS_QUIET_32 : tess_widen(code, 3u, 7u)));
}

TESS_FN tess_u32 tess_e4m3_from_f32(tess_f32 value)
{
    const tess_u32 bits = tess_bits(value);
    const tess_u32 sign = (bits & TESS_SIGN_32) >> 24;
    const tess_u32 size = bits & ~TESS_SIGN_32;
    tess_u32 code;

    if (size > TESS_INF_32)
        return sign | 0x7fu;
    code = tess_narrow(size, 3u, 7u);
    return sign | (code < 0x7eu ? code : 0x7eu);
}

TESS_FN tess_f32 tess_f32_from_e5m2(tess_u32 bits)
{
    const tess_u32 sign = (bits & 0x80u) << 24;
    const tess_u32 code = bits & 0x7fu;

    if (code > 0x7cu)
        return tess_from_bits(sign | TESS_INF_32 | TESS_QUIET_32 | (code & 3u) << 21);
    return tess_from_bits(sign | (code == 0x7cu ? TESS_INF_32 : tess_widen(code, 2u, 15u)));
}

TESS_FN tess_u32 tess_e5m2_from_f32(tess_f32 value)
{
    const tess_u32 bits = tess_bits(value);
    const tess_u32 sign = (bits & TESS_SIGN_32) >> 24;
    const tess_u32 size = bits & ~TESS_SIGN_32;
    tess_u32 code;

    if (size > TESS_INF_32)
        return sign | 0x7eu | (size & 0x007fffffu) >> 21;
    code = tess_narrow(size, 2u, 15u);
    return sign | (code < 0x7cu ? code : 0x7cu);
}

#endif
