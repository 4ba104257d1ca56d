/* SPDX-License-Identifier: Apache-2.0
 * Elements of tensors in global memory: any storage type, any stride, by 64-bit indices. */
#ifndef TESSERA_BACKENDS_OPENCL_KERNELS_ACCESS_H
#define TESSERA_BACKENDS_OPENCL_KERNELS_ACCESS_H

#include "prelude.h"

/* Structs of addresses travel by value: a pointer to one would have to name its address space. */

TESS_FN tess_i64 tess_element_size(tess_i32 dtype)
{
    return dtype == TESS_F32 ? 4 : 2;
}

TESS_FN float tess_load(__global const char *base, tess_i64 index, tess_i32 dtype)
{
    if (dtype == TESS_F32)
        return ((__global const float *)base)[index];
    if (dtype == TESS_F16)
        return vload_half((size_t)index, (__global const half *)base);
    return tess_f32_from_bf16(((__global const ushort *)base)[index]);
}

TESS_FN void tess_store(__global char *base, tess_i64 index, tess_i32 dtype, float value)
{
    if (dtype == TESS_F32)
        ((__global float *)base)[index] = value;
    else if (dtype == TESS_F16)
        vstore_half_rte(value, (size_t)index, (__global half *)base);
    else
        ((__global ushort *)base)[index] = (ushort)tess_bf16_from_f32(value);
}

/* Whether four elements from here on are one aligned word of memory. */
TESS_FN int tess_is_whole(__global const char *at, tess_i64 stride, tess_i32 count, tess_i64 size)
{
    return stride == 1 && count >= 4 && ((tess_u64)at & (tess_u64)(4 * size - 1)) == 0;
}

/* Elements index, index + stride ... : `count` of them, zeros for the others of the four. */
TESS_FN float4 tess_load_quad(__global const char *base, tess_i64 index, tess_i64 stride,
                              tess_i32 count, tess_i32 dtype)
{
    const tess_i64 size = tess_element_size(dtype);
    __global const char *const at = base + index * size;
    float4 quad = (float4)(0.0f);

    if (tess_is_whole(at, stride, count, size)) {
        if (dtype == TESS_F32)
            return *(__global const float4 *)at;
        if (dtype == TESS_F16)
            return vloada_half4(0, (__global const half *)at);
        return as_float4(convert_uint4(*(__global const ushort4 *)at) << (uint4)(16));
    }
    TESS_NO_UNROLL
    for (tess_i32 i = 0; i < 4 && i < count; i++) { /* one load in the text for each type */
        const float value = tess_load(at, i * stride, dtype);
        quad = (int4)(i) == (int4)(0, 1, 2, 3) ? (float4)(value) : quad;
    }
    return quad;
}

/* The first `count` of four elements. */
TESS_FN void tess_store_quad(__global char *base, tess_i64 index, tess_i64 stride, tess_i32 count,
                             tess_i32 dtype, float4 quad)
{
    const tess_i64 size = tess_element_size(dtype);
    __global char *const at = base + index * size;

    if (dtype == TESS_F32 && tess_is_whole(at, stride, count, size)) {
        *(__global float4 *)at = quad;
        return;
    }
    TESS_NO_UNROLL
    for (tess_i32 i = 0; i < 4 && i < count; i++) {
        tess_store(at, i * stride, dtype, quad.x);
        quad = quad.yzwx;
    }
}

/* a / b of numbers that are not negative. Devices divide 32 bits several times faster than 64. */
TESS_FN tess_i64 tess_divide(tess_i64 a, tess_i64 b)
{
    if (((a | b) >> 32) == 0)
        return (tess_i64)((tess_u32)a / (tess_u32)b);
    return a / b;
}

/* Rows of one tensor, sequence and head or group of heads: queries with their heads folded in,
 * keys, keys in pages. */
typedef struct tess_rows {
    __global char *base; /* row 0, first head; with pages: slot 0 of page 0 of the pool */
    __global const tess_i32 *pages; /* the sequence's row of the page table, or NULL */
    tess_i64 page_stride, page_size, last_page;
    tess_i64 stride, head_stride, dim_stride;
    tess_i64 group; /* heads folded into the rows; 1 for keys */
    tess_i64 count; /* rows that exist, folded */
    tess_i32 dims, dtype;
} tess_rows;

TESS_FN tess_rows tess_no_rows(void)
{
    tess_rows rows;

    rows.base = 0;
    rows.pages = 0;
    rows.page_stride = 0;
    rows.page_size = 0;
    rows.last_page = 0;
    rows.stride = 0;
    rows.head_stride = 0;
    rows.dim_stride = 0;
    rows.group = 1;
    rows.count = 0;
    rows.dims = 0;
    rows.dtype = TESS_F32;
    return rows;
}

/* Index of (row, dim 0) relative to base. A page number that is none is drawn into the pool: it
 * gives wrong numbers, but touches no foreign memory. */
TESS_FN tess_i64 tess_row_index(tess_rows rows, tess_i64 row)
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
TESS_FN float4 tess_row_quad(tess_rows rows, tess_i64 row, tess_i32 dim)
{
    if (row >= rows.count || dim >= rows.dims)
        return (float4)(0.0f);
    return tess_load_quad(rows.base, tess_row_index(rows, row) + dim * rows.dim_stride,
                          rows.dim_stride, rows.dims - dim, rows.dtype);
}

TESS_FN float tess_row_element(tess_rows rows, tess_i64 row, tess_i32 dim)
{
    return tess_load(rows.base, tess_row_index(rows, row) + dim * rows.dim_stride, rows.dtype);
}

TESS_FN void tess_put_element(tess_rows rows, tess_i64 row, tess_i32 dim, float value)
{
    tess_store(rows.base, tess_row_index(rows, row) + dim * rows.dim_stride, rows.dtype, value);
}

/* dot(a's row, b's row), one sum in the order of the dims. */
TESS_FN float tess_row_dot(tess_rows a, tess_i64 a_row, tess_rows b, tess_i64 b_row)
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
