/* SPDX-License-Identifier: Apache-2.0
 * Elements of tensors in global memory: any storage type, any stride, by 64-bit indices. */
#ifndef TESSERA_BACKENDS_GPU_SIMT_ACCESS_H
#define TESSERA_BACKENDS_GPU_SIMT_ACCESS_H

#include "vendor/lane.h"

#include "core/portable/convert.h"

#include <tessera/attention.h>

/* Four neighbours, the unit in which shared memory is read. */
struct alignas(16) tess_quad {
    float at[4];
};
struct alignas(8) tess_half_quad {
    tess_u32 at[2];
};

TESS_DEVICE tess_i64 tess_element_size(tess_i32 dtype)
{
    return dtype == TESS_F32 ? 4 : 2;
}

TESS_DEVICE float tess_widen(tess_u32 bits, tess_i32 dtype)
{
    return dtype == TESS_F16 ? tess_widen_f16(bits) : tess_f32_from_bf16(bits);
}

TESS_DEVICE tess_u32 tess_narrow_to(float value, tess_i32 dtype)
{
    return dtype == TESS_F16 ? tess_narrow_f16(value) : tess_bf16_from_f32(value);
}

TESS_DEVICE float tess_load(const char *base, tess_i64 index, tess_i32 dtype)
{
    if (dtype == TESS_F32)
        return reinterpret_cast<const float *>(base)[index];
    return tess_widen(reinterpret_cast<const unsigned short *>(base)[index], dtype);
}

TESS_DEVICE void tess_store(char *base, tess_i64 index, tess_i32 dtype, float value)
{
    if (dtype == TESS_F32)
        reinterpret_cast<float *>(base)[index] = value;
    else
        reinterpret_cast<unsigned short *>(base)[index] =
            static_cast<unsigned short>(tess_narrow_to(value, dtype));
}

/* Whether four elements from here on are one aligned word of memory. */
TESS_DEVICE bool tess_is_whole(const char *at, tess_i64 stride, tess_i32 count, tess_i64 size)
{
    return stride == 1 && count >= 4 &&
           (reinterpret_cast<tess_u64>(at) & static_cast<tess_u64>(4 * size - 1)) == 0;
}

/* Elements index, index + stride ... : `count` of them, zeros for the others of the four. */
TESS_DEVICE tess_quad tess_load_quad(const char *base, tess_i64 index, tess_i64 stride,
                                     tess_i32 count, tess_i32 dtype)
{
    const tess_i64 size = tess_element_size(dtype);
    const char *const at = base + index * size;
    tess_quad quad;

    if (!tess_is_whole(at, stride, count, size)) {
        quad = tess_quad{{0.0f, 0.0f, 0.0f, 0.0f}};
        TESS_NO_UNROLL
        for (int i = 0; i < 4 && i < count; i++) {
            const float value = tess_load(at, i * stride, dtype);
            TESS_UNROLL
            for (int e = 0; e < 4; e++) /* registers have no index */
                quad.at[e] = e == i ? value : quad.at[e];
        }
        return quad;
    }
    if (dtype == TESS_F32)
        return *reinterpret_cast<const tess_quad *>(at);
    const tess_half_quad half = *reinterpret_cast<const tess_half_quad *>(at);
    TESS_UNROLL
    for (int i = 0; i < 4; i++)
        quad.at[i] = tess_widen(half.at[i / 2] >> 16 * (i % 2) & 0xFFFFu, dtype);
    return quad;
}

/* The first `count` of four elements. */
TESS_DEVICE void tess_store_quad(char *base, tess_i64 index, tess_i64 stride, tess_i32 count,
                                 tess_i32 dtype, const tess_quad &quad)
{
    const tess_i64 size = tess_element_size(dtype);
    char *const at = base + index * size;

    if (dtype == TESS_F32 && tess_is_whole(at, stride, count, size)) {
        *reinterpret_cast<tess_quad *>(at) = quad;
        return;
    }
    if (dtype != TESS_F32 && tess_is_whole(at, stride, count, size)) {
        tess_half_quad half;
        TESS_UNROLL
        for (int i = 0; i < 2; i++)
            half.at[i] = tess_narrow_to(quad.at[2 * i], dtype) |
                         tess_narrow_to(quad.at[2 * i + 1], dtype) << 16;
        *reinterpret_cast<tess_half_quad *>(at) = half;
        return;
    }
    TESS_UNROLL
    for (int i = 0; i < 4; i++)
        if (i < count)
            tess_store(at, i * stride, dtype, quad.at[i]);
}

/* a / b of numbers that are not negative. Devices divide 32 bits several times faster than 64. */
TESS_DEVICE tess_i64 tess_divide(tess_i64 a, tess_i64 b)
{
    if (((a | b) >> 32) == 0)
        return static_cast<tess_i64>(static_cast<tess_u32>(a) / static_cast<tess_u32>(b));
    return a / b;
}

/* Rows of one tensor, sequence and head or group of heads: queries with their heads folded in,
 * keys, keys in pages. */
struct tess_rows {
    char *base;            /* row 0, first head; with pages: slot 0 of page 0 of the pool */
    const tess_i32 *pages; /* the sequence's row of the page table, or NULL */
    tess_i64 page_stride, page_size, last_page;
    tess_i64 stride, head_stride, dim_stride;
    tess_i64 group; /* heads folded into the rows; 1 for keys */
    tess_i64 count; /* rows that exist, folded */
    tess_i32 dims, dtype;
};

/* Index of (row, dim 0) relative to base. A page number that is none is drawn into the pool: it
 * gives wrong numbers, but touches no foreign memory. */
TESS_DEVICE tess_i64 tess_row_index(const tess_rows &rows, tess_i64 row)
{
    if (rows.pages) {
        const tess_i64 page = tess_divide(row, rows.page_size);
        const tess_i64 entry = tess_max_i64(rows.pages[page], 0);
        return tess_min_i64(entry, rows.last_page) * rows.page_stride +
               (row - page * rows.page_size) * rows.stride;
    }
    if (rows.group > 1) {
        const tess_i64 query = tess_divide(row, rows.group);
        return query * rows.stride + (row - query * rows.group) * rows.head_stride;
    }
    return row * rows.stride;
}

/* Four dims of a row; zeros where there is no row or no dim, so that nothing unused is read. */
TESS_DEVICE tess_quad tess_row_quad(const tess_rows &rows, tess_i64 row, tess_i32 dim)
{
    tess_quad zero = {{0.0f, 0.0f, 0.0f, 0.0f}};

    if (row >= rows.count || dim >= rows.dims)
        return zero;
    return tess_load_quad(rows.base, tess_row_index(rows, row) + dim * rows.dim_stride,
                          rows.dim_stride, rows.dims - dim, rows.dtype);
}

TESS_DEVICE float tess_row_element(const tess_rows &rows, tess_i64 row, tess_i32 dim)
{
    return tess_load(rows.base, tess_row_index(rows, row) + dim * rows.dim_stride, rows.dtype);
}

TESS_DEVICE void tess_put_element(const tess_rows &rows, tess_i64 row, tess_i32 dim, float value)
{
    tess_store(rows.base, tess_row_index(rows, row) + dim * rows.dim_stride, rows.dtype, value);
}

/* dot(a's row, b's row), one sum in the order of the dims. */
TESS_DEVICE float tess_row_dot(const tess_rows &a, tess_i64 a_row, const tess_rows &b,
                               tess_i64 b_row)
{
    const tess_i64 a_at = tess_row_index(a, a_row), b_at = tess_row_index(b, b_row);
    float sum = 0.0f;

    TESS_NO_UNROLL
    for (tess_i32 d = 0; d < a.dims; d++)
        sum += tess_load(a.base, a_at + d * a.dim_stride, a.dtype) *
               tess_load(b.base, b_at + d * b.dim_stride, b.dtype);
    return sum;
}

#endif
