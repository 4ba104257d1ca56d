/* SPDX-License-Identifier: Apache-2.0
 * Elements of the user's tensors by type, stride and page; the CPU's slow but general path. */
#ifndef TESSERA_BACKENDS_CPU_ACCESS_H
#define TESSERA_BACKENDS_CPU_ACCESS_H

#include "backends/cpu/work.h"
#include "core/portable/convert.h"

#include <string.h>
#include <tessera/base.h>

/* All of this is static inline: files compiled for different instruction sets include it, and the
 * linker must not pick one's copy for another. */

static inline int64_t tess_cpu_element_size(int32_t dtype)
{
    return dtype == TESS_F32 ? 4 : 2;
}

static inline float tess_cpu_load(const char *base, int64_t index, int32_t dtype)
{
    uint16_t half;
    float single;

    if (dtype == TESS_F32) {
        memcpy(&single, base + index * 4, sizeof single);
        return single;
    }
    memcpy(&half, base + index * 2, sizeof half);
    return dtype == TESS_F16 ? tess_f32_from_f16(half) : tess_f32_from_bf16(half);
}

static inline void tess_cpu_store(char *base, int64_t index, int32_t dtype, float value)
{
    uint16_t half;

    if (dtype == TESS_F32) {
        memcpy(base + index * 4, &value, sizeof value);
        return;
    }
    half = (uint16_t)(dtype == TESS_F16 ? tess_f16_from_f32(value) : tess_bf16_from_f32(value));
    memcpy(base + index * 2, &half, sizeof half);
}

/* Index of element (column, dim 0) relative to work->k or work->v. */
static inline int64_t tess_cpu_column(const tess_cpu_work *work, const tess_i64 stride[4],
                                      int64_t column)
{
    const int64_t page_size = work->args->page_size;
    if (!work->pages)
        return column * stride[1];
    return work->pages[column / page_size] * stride[0] + column % page_size * stride[1];
}

/* Index of (folded row, dim 0) relative to work->q or work->o. */
static inline int64_t tess_cpu_row(const tess_cpu_work *work, const tess_i64 stride[4],
                                   int64_t folded_row)
{
    const int64_t group = work->args->group;
    return folded_row / group * stride[1] + folded_row % group * stride[2];
}

/* The bias of one (folded row, column), to be added to a score in natural units. */
static inline float tess_cpu_bias(const tess_cpu_work *work, int64_t folded_row, int64_t column)
{
    const tess_args *args = work->args;
    const int64_t at = folded_row % args->group * args->bias_stride[1] +
                       folded_row / args->group * args->bias_stride[2] +
                       column * args->bias_stride[3];
    return tess_cpu_load(work->bias, at, args->bias_dtype);
}

/* Where the result of a folded row goes: the user's tensors, or the partial results of a split.
 * `o` is head_dim_v values, already divided by the sum. */
static inline void tess_cpu_put_row(const tess_cpu_work *work, int64_t folded_row, const float *o,
                                    float lse)
{
    const tess_args *args = work->args;
    const int64_t query = folded_row / args->group, head = folded_row % args->group;

    if (work->splits > 1) {
        const int64_t row = query * args->heads_q + head;
        memcpy(work->partial_o + row * args->head_dim_v, o, (size_t)args->head_dim_v * sizeof *o);
        work->partial_lse[row] = lse;
        return;
    }
    const int64_t at = tess_cpu_row(work, args->o_stride, folded_row);
    for (int64_t d = 0; d < args->head_dim_v; d++)
        tess_cpu_store(work->o, at + d * args->o_stride[3], args->o_dtype, o[d]);
    if (work->lse)
        work->lse[query * args->lse_stride[1] + head * args->lse_stride[2]] = lse;
}

/* One row by itself, two passes, absent pairs skipped: what a row is recomputed with when it came
 * out non-finite, so that nothing an absent element holds can have reached it (forward_scalar.c).
 * Writes the row with tess_cpu_put_row(); `o` is room for head_dim_v values. */
void tess_cpu_forward_row(const tess_cpu_work *work, int64_t folded_row, float *o);

#endif
