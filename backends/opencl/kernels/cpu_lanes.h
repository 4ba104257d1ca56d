/* SPDX-License-Identifier: Apache-2.0
 * What the kernels for processors share: vectors of 16 lanes, rows in and out, the products. */
#ifndef TESSERA_BACKENDS_OPENCL_KERNELS_CPU_LANES_H
#define TESSERA_BACKENDS_OPENCL_KERNELS_CPU_LANES_H

#include "score.h"

/* One side of the pairs stays: its rows sit in lanes, [element][lane], and each is alone in its
 * lane, so that nothing is summed across lanes. The other side streams past, one element at a time
 * for all lanes. Forward and dQ keep queries in lanes, dK and dV keep columns. A file that includes
 * this says:
 *
 *     CPU_LANES   rows of an item that stay: panels of 4 vectors, or one vector
 *     CPU_TILE    streamed rows of a tile, a multiple of CPU_SUMS and of 4
 *
 * Work-groups have one work-item: a processor's threads take groups, its vectors are these. Arrays
 * are __local, which on a processor is memory like any other, and of vectors, which aligns them.
 *
 * CPU_SUMS streamed rows at a time, or CPU_GATHERED elements, times VECTORS are sums in registers.
 * Tried and lost (Emerald Rapids, PoCL 3.1, shares of the FMA peak): gathering 6 elements at a time
 * (forward 0.81 for 0.84, backward 0.57 for 0.63: all 6 are loaded first and sums are spilled), 5
 * (0.83, 0.62); asking for the next tile ahead (+-1 %); loops over elements unrolled by 4 (0, and
 * the first launch half a second later). */
#if CPU_LANES % 64 == 0
#define CPU_VECTORS 4
#define CPU_SUMS 6
#define CPU_GATHERED 4
#else
#define CPU_VECTORS 1
#define CPU_SUMS 12
#define CPU_GATHERED 8
#endif

enum {
    CPU_WIDTH = 16, /* lanes of a vector */
    CPU_PANEL_LANES = CPU_VECTORS * CPU_WIDTH,
    CPU_PANELS = CPU_LANES / CPU_PANEL_LANES,
    CPU_ROW_VECTORS = (TESS_CL_DIMS + CPU_WIDTH - 1) / CPU_WIDTH,
    CPU_DIMS = CPU_ROW_VECTORS * CPU_WIDTH,
    /* Vectors from one streamed row to the next: an odd number of cache lines, so that an element
     * of all rows is spread over all sets of the cache. */
    CPU_PITCH = CPU_ROW_VECTORS | 1,
    CPU_TILE_VECTORS = CPU_TILE * CPU_PITCH + 1,
    CPU_TILE_SCORES = CPU_TILE * CPU_VECTORS
};

typedef float16 vec;
typedef int16 vec_int; /* also of comparisons: -1 or 0 */

TESS_FN vec vec_set(float a)
{
    return (vec)(a);
}

/* b where one of them is NaN. */
TESS_FN vec vec_max(vec a, vec b)
{
    return select(b, a, a > b);
}
TESS_FN vec vec_min(vec a, vec b)
{
    return select(b, a, a < b);
}

/* 2^x up to x = 128, with at most 1.5 ulp of error. Adding 1.5 * 2^23 rounds to a whole number,
 * whose low bits (with the bias of 127 in them) are then those of a factor's exponent; the rest is
 * in [-1/2, 1/2]. The constant term is 1, so that 2^0 is exactly 1. Below -126 the result is
 * exactly 0: subnormal weights would cost an assist each. NaN stays, whatever its bits. */
TESS_FN vec vec_exp2(vec x)
{
    const vec whole = x + (12582912.0f + 127.0f);
    const vec rest = x - (whole - (12582912.0f + 127.0f));
    const vec factor = as_float16(as_int16(whole) << 23);
    vec p = fma(rest, vec_set(0x1.41fbbep-13f), vec_set(0x1.5f3e54p-10f));

    p = fma(p, rest, vec_set(0x1.3b2d4cp-7f));
    p = fma(p, rest, vec_set(0x1.c6aee8p-5f));
    p = fma(p, rest, vec_set(0x1.ebfbdcp-3f));
    p = fma(p, rest, vec_set(0x1.62e430p-1f));
    p = fma(p, rest, vec_set(1.0f));
    return select(p * factor, vec_set(0.0f), x < vec_set(-126.0f));
}

/* tanh within 3 ulp. Near 0 an odd polynomial of degree 11, fitted on [0, 0.625]; beyond it
 * 1 - 2 / (e^2x + 1), whose difference has lost its cancellation. At 10 it is 1 already; stopping
 * there keeps the exponential in range. */
TESS_FN vec vec_tanh(vec x)
{
    const vec square = x * x, size = vec_min(vec_set(10.0f), fabs(x));
    const vec power = vec_exp2(size * (2.0f * TESS_LOG2_E));
    const vec outer = 1.0f - 2.0f / (power + 1.0f);
    vec inner = fma(square, vec_set(-0.0057049864f), vec_set(0.0206390861f));

    inner = fma(inner, square, vec_set(-0.0537397154f));
    inner = fma(inner, square, vec_set(0.133314416f));
    inner = fma(inner, square, vec_set(-0.333332807f));
    inner = fma(x * square, inner, x);
    return select(copysign(outer, x), inner, size < vec_set(0.625f));
}

/* ---- items ------------------------------------------------------------------------------------
 */

/* The order of items: of the tiles of one head the first, the last, the second ... . Under a causal
 * mask the walk puts the heaviest first, and a processor's threads take groups in runs: so that
 * every run has its part of heavy and of light ones. */
TESS_FN tess_i64 cpu_order(tess_i64 item, tess_i64 tiles, tess_i64 splits)
{
    const tess_i64 all = tess_divide(item, splits);
    const tess_i64 head = tess_divide(all, tiles);
    const tess_i64 tile = all - head * tiles;
    const tess_i64 other = tile % 2 ? tiles - 1 - tile / 2 : tile / 2;

    return item + (other - tile) * splits;
}

/* ---- 16 rows of 16 elements, transposed -------------------------------------------------------
 */

/* One round of four: it moves one bit of the row's number into the element's. */
#define CPU_TRANSPOSE_ROUND(to, from)                   \
    TESS_UNROLL                                         \
    for (int i = 0; i < CPU_WIDTH / 2; i++) {           \
        to[2 * i].even = from[i].lo;                    \
        to[2 * i].odd = from[i + CPU_WIDTH / 2].lo;     \
        to[2 * i + 1].even = from[i].hi;                \
        to[2 * i + 1].odd = from[i + CPU_WIDTH / 2].hi; \
    }

/* Element j of out[i] = element i of factor * row[j]; rows are so many vectors apart. */
TESS_FN void cpu_transpose(__local const vec *row, int row_pitch, vec factor, __local vec *out,
                           int out_pitch)
{
    vec a[CPU_WIDTH], b[CPU_WIDTH];

    TESS_UNROLL
    for (int i = 0; i < CPU_WIDTH; i++)
        a[i] = factor * row[i * row_pitch];
    CPU_TRANSPOSE_ROUND(b, a)
    CPU_TRANSPOSE_ROUND(a, b)
    CPU_TRANSPOSE_ROUND(b, a)
    CPU_TRANSPOSE_ROUND(a, b)
    TESS_UNROLL
    for (int i = 0; i < CPU_WIDTH; i++)
        out[i * out_pitch] = a[i];
}

/* ---- the caller's rows, in and out ------------------------------------------------------------
 */

/* 16 elements of a 16-bit type, next to each other. */
TESS_FN vec cpu_widen(__global const char *at, tess_i32 dtype)
{
    if (dtype == TESS_F16)
        return vload_half16(0, (__global const half *)at);
    return as_float16(convert_uint16(vload16(0, (__global const ushort *)at)) << 16);
}

TESS_FN void cpu_narrow(__global char *at, tess_i32 dtype, vec a)
{
    if (dtype == TESS_F16) {
        vstore_half16_rte(a, 0, (__global half *)at);
        return;
    }
    const uint16 bits = as_uint16(a);
    const uint16 rounded = bits + 0x7fffu + (bits >> 16 & 1u);
    const uint16 kept = select(rounded, bits | TESS_QUIET_32, isnan(a));
    vstore16(convert_ushort16(kept >> 16), 0, (__global ushort *)at);
}

/* `count` elements of a row as fp32, from a row's index on. Reads nothing past the last of them:
 * tensors may end where memory does. */
TESS_FN void cpu_bring(tess_rows rows, tess_i64 index, tess_i64 count, __local vec *out)
{
    __global const char *const at = rows.base + index * tess_element_size(rows.dtype);
    __local float *const elements = (__local float *)out;
    tess_i64 d = 0;

    if (rows.dim_stride == 1 && rows.dtype == TESS_F32) {
        for (; d + CPU_WIDTH <= count; d += CPU_WIDTH)
            out[d / CPU_WIDTH] = vload16(0, (__global const float *)at + d);
    } else if (rows.dim_stride == 1) {
        for (; d + CPU_WIDTH <= count; d += CPU_WIDTH)
            out[d / CPU_WIDTH] = cpu_widen(at + 2 * d, rows.dtype);
    }
    for (; d < count; d++)
        elements[d] = tess_load(at, d * rows.dim_stride, rows.dtype);
}

/* The other way, for results. */
TESS_FN void cpu_put(tess_rows rows, tess_i64 row, __local const vec *in)
{
    __global char *const at = rows.base + tess_row_index(rows, row) * tess_element_size(rows.dtype);
    __local const float *const elements = (__local const float *)in;
    tess_i64 d = 0;

    if (rows.dim_stride == 1 && rows.dtype == TESS_F32) {
        for (; d + CPU_WIDTH <= rows.dims; d += CPU_WIDTH)
            vstore16(in[d / CPU_WIDTH], 0, (__global float *)at + d);
    } else if (rows.dim_stride == 1) {
        for (; d + CPU_WIDTH <= rows.dims; d += CPU_WIDTH)
            cpu_narrow(at + 2 * d, rows.dtype, in[d / CPU_WIDTH]);
    }
    for (; d < rows.dims; d++)
        tess_store(at, d * rows.dim_stride, rows.dtype, elements[d]);
}

TESS_FN void cpu_clear(__local vec *vectors, int count)
{
    for (int i = 0; i < count; i++)
        vectors[i] = vec_set(0.0f);
}

/* A tile of what streams past, from row `first` on. What nobody in lanes sees lies before
 * `seen_first` and counts as 0, not as what it holds: nothing is computed again for it. */
TESS_FN void cpu_bring_tile(tess_rows rows, tess_i64 first, tess_i64 seen_first, int count,
                            __local vec *tile)
{
    const int unseen = (int)tess_min_i64(tess_max_i64(seen_first - first, 0), count);

    cpu_clear(tile, unseen * CPU_PITCH);
    for (int j = unseen; j < count; j++)
        cpu_bring(rows, tess_row_index(rows, first + j), rows.dims, tile + j * CPU_PITCH);
}

/* One vector of rows that stay, from `first` on; lanes past the end repeat the last row. They pass
 * through `stage`, room for 16 rows. */
TESS_FN void cpu_stay(tess_rows rows, tess_i64 first, tess_i64 end, float factor,
                      __local vec *stage, __local vec *out)
{
    for (int lane = 0; lane < CPU_WIDTH; lane++)
        cpu_bring(rows, tess_row_index(rows, tess_min_i64(first + lane, end - 1)), rows.dims,
                  stage + lane * CPU_PITCH);
    for (int d = 0; d < rows.dims; d += CPU_WIDTH)
        cpu_transpose(stage + d / CPU_WIDTH, CPU_PITCH, vec_set(factor), out + d * CPU_VECTORS,
                      CPU_VECTORS);
}

/* One vector of results, divided or scaled, back as rows in `stage`. What returns is not 0 in lanes
 * where an element is not finite: 0 * x is NaN exactly for such an x. */
TESS_FN vec cpu_leave(__local const vec *sums, int dims, vec factor, __local vec *stage)
{
    vec fault = vec_set(0.0f);

    for (int d = 0; d < dims; d++)
        fault = fma(factor * sums[d * CPU_VECTORS], vec_set(0.0f), fault);
    for (int d = 0; d < dims; d += CPU_WIDTH)
        cpu_transpose(sums + d * CPU_VECTORS, CPU_VECTORS, factor, stage + d / CPU_WIDTH,
                      CPU_PITCH);
    return fault;
}

/* ---- scores besides their product -------------------------------------------------------------
 */

/* Scores come in units of log2. Without a hook the whole factor scale * log2(e) goes into what
 * stays, its sign included, so negative and zero scales are nothing special. With one, it takes the
 * scale and the hook ends with log2(e). A scale so far from 1 that an element times it could leave
 * the range of fp32 is left to the hook as well, but for its sign. */
typedef struct cpu_hook {
    tess_i32 is_needed;
    float factor;
    float scale; /* of the score, in the hook; 1 when `factor` has it */
    float softcap, softcap_inverse;
} cpu_hook;

TESS_FN cpu_hook cpu_hook_of(tess_scoring scoring)
{
    const float size = tess_abs(scoring.scale);
    const int is_extreme = !(size >= 0x1p-40f && size <= 0x1p40f) && scoring.scale != 0.0f;
    cpu_hook hook;

    hook.softcap = scoring.softcap;
    hook.softcap_inverse = 1.0f / tess_max(0x1p-126f, scoring.softcap);
    hook.is_needed = !scoring.is_plain || is_extreme;
    hook.scale = is_extreme ? size : 1.0f;
    hook.factor = is_extreme ? (scoring.scale < 0.0f ? -1.0f : 1.0f) : scoring.scale;
    if (!hook.is_needed)
        hook.factor *= TESS_LOG2_E;
    return hook;
}

typedef struct cpu_scored {
    vec natural;
    vec slope; /* of the softcap: 1 - tanh^2, 1 without one */
} cpu_scored;

/* As tess_score() does it; slopes and bias are 0 where there are none. */
TESS_FN cpu_scored cpu_score(cpu_hook hook, vec product, vec slope, vec distance, vec bias)
{
    cpu_scored s;

    s.natural = product * hook.scale;
    s.slope = vec_set(1.0f);
    if (hook.softcap > 0.0f) {
        const vec capped = vec_tanh(s.natural * hook.softcap_inverse);
        s.natural = hook.softcap * capped;
        s.slope = 1.0f - capped * capped;
    }
    s.natural -= slope * fabs(distance);
    s.natural += bias;
    return s;
}

/* tess_os_score(): what is finite stays finite. */
TESS_FN vec cpu_in_log2(vec natural)
{
    const vec score = natural * TESS_LOG2_E;
    const vec within = vec_min(vec_max(score, vec_set(-TESS_MAX_F32)), vec_set(TESS_MAX_F32));

    return select(score, within, fabs(natural) < vec_set(INFINITY));
}

/* ---- the products -----------------------------------------------------------------------------
 */

/* out[row][lane] = sum over d of streamed[row][d] * stayed[d][lane], in whole groups of rows. */
TESS_FN void cpu_dots(__local const vec *stayed, __local const vec *tile, int dims, int count,
                      __local vec *out)
{
    __local const float *streamed = (__local const float *)tile;

    for (int j = 0; j < count; j += CPU_SUMS, streamed += CPU_SUMS * CPU_PITCH * CPU_WIDTH) {
        vec sum[CPU_SUMS * CPU_VECTORS];
        TESS_UNROLL
        for (int i = 0; i < CPU_SUMS * CPU_VECTORS; i++)
            sum[i] = vec_set(0.0f);
        TESS_NO_UNROLL
        for (int d = 0; d < dims; d++) {
            TESS_UNROLL
            for (int i = 0; i < CPU_SUMS; i++) {
                const vec y = vec_set(streamed[i * CPU_PITCH * CPU_WIDTH + d]);
                TESS_UNROLL
                for (int v = 0; v < CPU_VECTORS; v++)
                    sum[i * CPU_VECTORS + v] =
                        fma(stayed[d * CPU_VECTORS + v], y, sum[i * CPU_VECTORS + v]);
            }
        }
        TESS_UNROLL
        for (int i = 0; i < CPU_SUMS * CPU_VECTORS; i++)
            out[j * CPU_VECTORS + i] = sum[i];
    }
}

/* sums[d][lane] += sum over rows of streamed[row][d] * weight[row][lane], in whole groups of dims.
 * The tile is summed by itself first: the error of a long sum then grows with the number of tiles,
 * not of rows. */
TESS_FN void cpu_gather(__local const vec *weight, __local const vec *tile, int count, int dims,
                        __local vec *sums)
{
    __local const float *streamed = (__local const float *)tile;

    for (int d = 0; d < dims; d += CPU_GATHERED, streamed += CPU_GATHERED) {
        __local const float *at = streamed;
        __local const vec *x = weight;
        vec sum[CPU_GATHERED * CPU_VECTORS];
        TESS_UNROLL
        for (int i = 0; i < CPU_GATHERED * CPU_VECTORS; i++)
            sum[i] = vec_set(0.0f);
        TESS_NO_UNROLL
        for (int j = 0; j < count; j++, at += CPU_PITCH * CPU_WIDTH, x += CPU_VECTORS) {
            TESS_UNROLL
            for (int i = 0; i < CPU_GATHERED; i++) {
                TESS_UNROLL
                for (int v = 0; v < CPU_VECTORS; v++)
                    sum[i * CPU_VECTORS + v] = fma(x[v], vec_set(at[i]), sum[i * CPU_VECTORS + v]);
            }
        }
        TESS_UNROLL
        for (int i = 0; i < CPU_GATHERED * CPU_VECTORS; i++)
            sums[i] += sum[i];
        sums += CPU_GATHERED * CPU_VECTORS;
    }
}

#endif
