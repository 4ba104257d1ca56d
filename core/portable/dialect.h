/* SPDX-License-Identifier: Apache-2.0
 * The only file that asks which compiler is reading: fixed-width names and a few functions. */
#ifndef TESSERA_CORE_PORTABLE_DIALECT_H
#define TESSERA_CORE_PORTABLE_DIALECT_H

/* Everything in core/portable takes and returns values. OpenCL C 1.2 needs an address space on
 * every pointer and values have none, so one text serves C11, C++17, CUDA, HIP and OpenCL C. */

#if defined(__OPENCL_C_VERSION__) /* -------------------------------------------------- OpenCL C \
                                   */

typedef float tess_f32;
typedef int tess_i32;
typedef uint tess_u32;
typedef long tess_i64;
typedef ulong tess_u64;
/* Always: PoCL 3.1 with LLVM 15 crashes where a function with a struct of addresses as a parameter
 * is called twice and inlined late. */
#define TESS_FN static inline __attribute__((always_inline))
#define TESS_NEG_INF (-INFINITY)
TESS_FN tess_f32 tess_exp2(tess_f32 x)
{
    return exp2(x);
}
TESS_FN tess_f32 tess_log2(tess_f32 x)
{
    return log2(x);
}
TESS_FN tess_f32 tess_tanh(tess_f32 x)
{
    return tanh(x);
}
TESS_FN tess_f32 tess_abs(tess_f32 x)
{
    return fabs(x);
}
TESS_FN tess_u32 tess_bits(tess_f32 x)
{
    return as_uint(x);
}
TESS_FN tess_f32 tess_from_bits(tess_u32 x)
{
    return as_float(x);
}

#elif defined(__CUDACC__) || defined(__HIP__) /* -------------------------------------- CUDA, HIP \
                                               */

typedef float tess_f32;
typedef int tess_i32;
typedef unsigned int tess_u32;
typedef long long tess_i64;
typedef unsigned long long tess_u64;
#define TESS_FN static __host__ __device__ inline
#if defined(__HIP__) && !defined(__host__) /* bare clang, no HIP headers on the path */
#define __host__ __attribute__((host))
#define __device__ __attribute__((device))
#endif
#define TESS_NEG_INF (-__builtin_huge_valf())
#if defined(__HIP__)
/* Stock clang has no libm for the device; these builtins become instructions. */
TESS_FN tess_f32 tess_exp2(tess_f32 x)
{
    return __builtin_exp2f(x);
}
TESS_FN tess_f32 tess_log2(tess_f32 x)
{
    return __builtin_log2f(x);
}
#define TESS_NO_TANH /* and there is none for this one */
TESS_FN tess_f32 tess_abs(tess_f32 x)
{
    return __builtin_fabsf(x);
}
TESS_FN tess_u32 tess_bits(tess_f32 x)
{
    return __builtin_bit_cast(tess_u32, x);
}
TESS_FN tess_f32 tess_from_bits(tess_u32 x)
{
    return __builtin_bit_cast(tess_f32, x);
}
#else
TESS_FN tess_f32 tess_exp2(tess_f32 x)
{
    return exp2f(x);
}
TESS_FN tess_f32 tess_log2(tess_f32 x)
{
    return log2f(x);
}
TESS_FN tess_f32 tess_tanh(tess_f32 x)
{
    return tanhf(x);
}
TESS_FN tess_f32 tess_abs(tess_f32 x)
{
    return fabsf(x);
}
TESS_FN tess_u32 tess_bits(tess_f32 x)
{
    union {
        tess_f32 value;
        tess_u32 bits;
    } both = {x};
    return both.bits;
}
TESS_FN tess_f32 tess_from_bits(tess_u32 x)
{
    union {
        tess_u32 bits;
        tess_f32 value;
    } both = {x};
    return both.value;
}
#endif

#else /* ---------------------------------------------------------------------------- C11, C++17 \
       */

#ifdef __cplusplus
#include <cmath>
#include <cstdint>
#include <cstring>
typedef std::int32_t tess_i32;
typedef std::uint32_t tess_u32;
typedef std::int64_t tess_i64;
typedef std::uint64_t tess_u64;
#else
#include <math.h>
#include <stdint.h>
#include <string.h>
typedef int32_t tess_i32;
typedef uint32_t tess_u32;
typedef int64_t tess_i64;
typedef uint64_t tess_u64;
#endif
typedef float tess_f32;
#define TESS_FN static inline
#define TESS_NEG_INF (-INFINITY)
TESS_FN tess_f32 tess_exp2(tess_f32 x)
{
    return exp2f(x);
}
TESS_FN tess_f32 tess_log2(tess_f32 x)
{
    return log2f(x);
}
TESS_FN tess_f32 tess_tanh(tess_f32 x)
{
    return tanhf(x);
}
TESS_FN tess_f32 tess_abs(tess_f32 x)
{
    return fabsf(x);
}
TESS_FN tess_u32 tess_bits(tess_f32 x)
{
    tess_u32 bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}
TESS_FN tess_f32 tess_from_bits(tess_u32 x)
{
    tess_f32 value;
    memcpy(&value, &x, sizeof value);
    return value;
}

#endif

/* Written once here because the languages disagree about min and max of NaN. */
TESS_FN tess_f32 tess_max(tess_f32 a, tess_f32 b)
{
    return a > b ? a : b;
}
TESS_FN tess_i32 tess_is_nan(tess_f32 x)
{
    return (tess_bits(x) & 0x7fffffffu) > 0x7f800000u;
}
TESS_FN tess_i32 tess_is_finite(tess_f32 x)
{
    return (tess_bits(x) & 0x7f800000u) != 0x7f800000u;
}
TESS_FN tess_i64 tess_max_i64(tess_i64 a, tess_i64 b)
{
    return a > b ? a : b;
}
TESS_FN tess_i64 tess_min_i64(tess_i64 a, tess_i64 b)
{
    return a < b ? a : b;
}

/* Largest finite value. */
#define TESS_MAX_F32 3.402823466e+38f

#define TESS_LOG2_E 1.44269504088896340736f /* exp(x) = exp2(x * this) */
#define TESS_LN_2 0.69314718055994530942f   /* log(x) = log2(x) * this */

/* tanh from exp2 alone, within a few ulp: 1 - 2 / (exp(2x) + 1), whose limits are right at both
 * ends. Near zero that cancels; there the series to x^9 is within half an ulp. Compiled everywhere
 * so that the tests of the host cover it. */
TESS_FN tess_f32 tess_tanh_from_exp2(tess_f32 x)
{
    const tess_f32 size = tess_abs(x);
    const tess_f32 square = x * x;
    const tess_f32 outer = 1.0f - 2.0f / (tess_exp2(2.0f * TESS_LOG2_E * size) + 1.0f);
    const tess_f32 tail = -0.0539682540f + square * 0.0218694885f;
    const tess_f32 series = -0.333333333f + square * (0.133333333f + square * tail);

    if (size < 0.25f)
        return x * (1.0f + square * series); /* a product, so that -0 stays -0 */
    return x < 0.0f ? -outer : outer;
}

#ifdef TESS_NO_TANH
TESS_FN tess_f32 tess_tanh(tess_f32 x)
{
    return tess_tanh_from_exp2(x);
}
#endif

#endif
