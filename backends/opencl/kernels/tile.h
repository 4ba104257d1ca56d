/* SPDX-License-Identifier: Apache-2.0
 * Tiles in local memory and the two products that every kernel for GPUs is made of. */
#ifndef TESSERA_BACKENDS_OPENCL_KERNELS_TILE_H
#define TESSERA_BACKENDS_OPENCL_KERNELS_TILE_H

#include "sequence.h"

/* The 128 work-items of a group stand in a grid of 8 x 16, or 4 x 32 for the fewest rows. Of 8 x 16
 * one owns the elements (y + 8 r, x + 16 c) of a tile of scores, and of a tile of outputs the rows
 * y + 8 r with dims 4 x + 64 j ... + 3. The resident rows of a tile (queries in the forward pass)
 * are in local memory from its start to its end; what streams past (keys, values) comes in chunks,
 * by dims for the product of rows with rows, by rows for the product of weights with rows.
 *
 *     resident[STAY][DIMS / 4 + 1]   all of the tile's rows, in quads
 *     stage[...]                     by dims: STREAM rows x 4 quads, pitch 5; by rows: rows x DIMS
 *     weights[STAY][STREAM + 4]      P, or a gradient of scores
 *
 * A pitch of one quad more than a power of two spreads 8 rows at one dim over all banks.
 *
 * The kernel defines before it includes this, by names of the line's numbers:
 *     TESS_STAY     rows of the tile that stays
 *     TESS_STREAM   rows of what streams past at a time */
#if TESS_STAY >= 8
#define TESS_GRID_ROWS 8
#define TESS_GRID_COLUMNS 16
#else
#define TESS_GRID_ROWS 4
#define TESS_GRID_COLUMNS 32
#endif
#define TESS_CHUNK_QUADS 4
#define TESS_CHUNK_PITCH (TESS_CHUNK_QUADS + 1)
#define TESS_QUADS (TESS_CL_DIMS / 4)
#define TESS_PITCH (TESS_QUADS + 1)
#define TESS_WEIGHT_PITCH (TESS_STREAM + 4)
#define TESS_ROWS_EACH (TESS_STAY / TESS_GRID_ROWS)
#define TESS_COLUMNS_EACH (TESS_STREAM / TESS_GRID_COLUMNS)
#define TESS_QUADS_EACH (TESS_QUADS / TESS_GRID_COLUMNS)
#if TESS_CL_DIMS <= 64
#define TESS_CHUNK_ROWS 16
#elif TESS_CL_DIMS <= 128
#define TESS_CHUNK_ROWS 8
#else
#define TESS_CHUNK_ROWS 4
#endif
#define TESS_BY_DIMS (TESS_STREAM * TESS_CHUNK_PITCH)
#define TESS_BY_ROWS (TESS_CHUNK_ROWS * TESS_QUADS)
#define TESS_STAGE (TESS_BY_DIMS > TESS_BY_ROWS ? TESS_BY_DIMS : TESS_BY_ROWS) /* in quads */

TESS_CL_ASSERT(tess_a_group_is_the_grid, TESS_CL_GROUP == TESS_GRID_ROWS * TESS_GRID_COLUMNS);
TESS_CL_ASSERT(tess_a_tile_is_whole, TESS_STAY % TESS_GRID_ROWS == 0 &&
                                         TESS_STREAM % TESS_GRID_COLUMNS == 0 &&
                                         TESS_QUADS % TESS_GRID_COLUMNS == 0);
#ifdef FP_FAST_FMAF
#define TESS_FMA(a, b, c) fma(a, b, c)
#else
#define TESS_FMA(a, b, c) ((a) * (b) + (c))
#endif

TESS_FN tess_i32 tess_thread(void)
{
    return (tess_i32)get_local_id(0);
}
TESS_FN tess_i32 tess_own_x(void)
{
    return tess_thread() % TESS_GRID_COLUMNS;
}
TESS_FN tess_i32 tess_own_y(void)
{
    return tess_thread() / TESS_GRID_COLUMNS;
}

/* What one work-item writes to local memory is there for the others behind this. */
#define TESS_BARRIER() barrier(CLK_LOCAL_MEM_FENCE)

/* No index of an element: strides may be negative, reaches stay below 2^61. */
#define TESS_NO_ROW (-((tess_i64)1 << 62))

/* A tensor whose rows stream past; where they begin is in a list in local memory, TESS_STREAM
 * indices or TESS_NO_ROW. */
typedef struct tess_stream {
    __global const char *base;
    __local const tess_i64 *index;
    tess_i64 dim_stride;
    tess_i32 dims, dtype;
} tess_stream;

TESS_FN tess_stream tess_stream_of(tess_rows rows, __local const tess_i64 *index)
{
    tess_stream stream;

    stream.base = rows.base;
    stream.index = index;
    stream.dim_stride = rows.dim_stride;
    stream.dims = rows.dims;
    stream.dtype = rows.dtype;
    return stream;
}

TESS_FN float4 tess_stream_quad(tess_stream from, tess_i32 row, tess_i32 dim)
{
    const tess_i64 index = from.index[row];

    if (index == TESS_NO_ROW || dim >= from.dims)
        return (float4)(0.0f);
    return tess_load_quad(from.base, index + dim * from.dim_stride, from.dim_stride,
                          from.dims - dim, from.dtype);
}

/* Lists where rows first ... of a tensor begin; those outside of seen_first ... seen_end - 1 count
 * as not there: whatever they hold, it cannot then be a reason to compute a row again. */
TESS_FN void tess_list_rows(tess_rows rows, tess_i64 first, tess_i64 seen_first, tess_i64 seen_end,
                            __local tess_i64 *index)
{
    const tess_i64 row = first + tess_thread();

    if (tess_thread() < TESS_STREAM)
        index[tess_thread()] =
            row >= seen_first && row < seen_end ? tess_row_index(rows, row) : TESS_NO_ROW;
}

/* Puts the resident rows in local memory, zeros where there are none. The caller's next barrier
 * makes them seen. */
TESS_FN void tess_keep_resident(tess_rows rows, tess_i64 first, __local float4 *resident)
{
    TESS_NO_UNROLL
    for (tess_i32 q = tess_thread(); q < TESS_STAY * TESS_QUADS; q += TESS_CL_GROUP) {
        const tess_i32 row = q / TESS_QUADS, quad = q % TESS_QUADS;
        resident[row * TESS_PITCH + quad] = tess_row_quad(rows, first + row, quad * 4);
    }
}

/* ---- Rows with rows ---------------------------------------------------------------------------
 */

/* dots[r][c] += resident row . streamed row, over one chunk of dims. */
TESS_FN void tess_multiply_dims(float dots[TESS_ROWS_EACH][TESS_COLUMNS_EACH],
                                __local const float4 *resident, __local const float4 *stage)
{
    resident += tess_own_y() * TESS_PITCH;
    stage += tess_own_x() * TESS_CHUNK_PITCH;
    TESS_UNROLL
    for (int d = 0; d < TESS_CHUNK_QUADS; d++) {
        float4 b[TESS_COLUMNS_EACH];
        TESS_UNROLL
        for (int c = 0; c < TESS_COLUMNS_EACH; c++)
            b[c] = stage[c * TESS_GRID_COLUMNS * TESS_CHUNK_PITCH + d];
        TESS_UNROLL
        for (int r = 0; r < TESS_ROWS_EACH; r++) {
            const float4 a = resident[r * TESS_GRID_ROWS * TESS_PITCH + d];
            TESS_UNROLL
            for (int c = 0; c < TESS_COLUMNS_EACH; c++) {
                float sum = dots[r][c];
                sum = TESS_FMA(a.x, b[c].x, sum);
                sum = TESS_FMA(a.y, b[c].y, sum);
                sum = TESS_FMA(a.z, b[c].z, sum);
                dots[r][c] = TESS_FMA(a.w, b[c].w, sum);
            }
        }
    }
}

/* dots = resident . streamed over all dims. Begins where the stage is nobody's and ends so. */
TESS_FN void tess_dots(float dots[TESS_ROWS_EACH][TESS_COLUMNS_EACH],
                       __local const float4 *resident, tess_stream from, __local float4 *stage)
{
    const tess_i32 chunks = (from.dims + 4 * TESS_CHUNK_QUADS - 1) / (4 * TESS_CHUNK_QUADS);

    TESS_UNROLL
    for (int r = 0; r < TESS_ROWS_EACH; r++)
        TESS_UNROLL
    for (int c = 0; c < TESS_COLUMNS_EACH; c++)
        dots[r][c] = 0.0f;
    TESS_NO_UNROLL
    for (tess_i32 chunk = 0; chunk < chunks; chunk++) {
        TESS_NO_UNROLL
        for (tess_i32 q = tess_thread(); q < TESS_STREAM * TESS_CHUNK_QUADS; q += TESS_CL_GROUP)
            stage[q / TESS_CHUNK_QUADS * TESS_CHUNK_PITCH + q % TESS_CHUNK_QUADS] =
                tess_stream_quad(from, q / TESS_CHUNK_QUADS,
                                 (chunk * TESS_CHUNK_QUADS + q % TESS_CHUNK_QUADS) * 4);
        TESS_BARRIER(); /* the chunk is there */
        tess_multiply_dims(dots, resident + chunk * TESS_CHUNK_QUADS, stage);
        TESS_BARRIER(); /* and read */
    }
}

/* ---- Weights with rows ------------------------------------------------------------------------
 */

/* sums[r][j] += weights of a row . streamed rows, over one chunk of rows. */
TESS_FN void tess_multiply_rows(float4 sums[TESS_ROWS_EACH][TESS_QUADS_EACH],
                                __local const float *weights, __local const float4 *stage,
                                tess_i32 dims)
{
    weights += tess_own_y() * TESS_WEIGHT_PITCH;
    stage += tess_own_x();
    TESS_UNROLL
    for (int k = 0; k < TESS_CHUNK_ROWS; k += 4) {
        float4 w[TESS_ROWS_EACH];
        TESS_UNROLL
        for (int r = 0; r < TESS_ROWS_EACH; r++)
            w[r] = *(__local const float4 *)(weights + r * TESS_GRID_ROWS * TESS_WEIGHT_PITCH + k);
        TESS_UNROLL
        for (int j = 0; j < TESS_QUADS_EACH; j++) {
            if (j * 4 * TESS_GRID_COLUMNS >= dims)
                continue;
            const float4 v0 = stage[k * TESS_QUADS + j * TESS_GRID_COLUMNS];
            const float4 v1 = stage[(k + 1) * TESS_QUADS + j * TESS_GRID_COLUMNS];
            const float4 v2 = stage[(k + 2) * TESS_QUADS + j * TESS_GRID_COLUMNS];
            const float4 v3 = stage[(k + 3) * TESS_QUADS + j * TESS_GRID_COLUMNS];
            TESS_UNROLL
            for (int r = 0; r < TESS_ROWS_EACH; r++) {
                float4 sum = sums[r][j];
                sum = TESS_FMA((float4)(w[r].x), v0, sum);
                sum = TESS_FMA((float4)(w[r].y), v1, sum);
                sum = TESS_FMA((float4)(w[r].z), v2, sum);
                sums[r][j] = TESS_FMA((float4)(w[r].w), v3, sum);
            }
        }
    }
}

/* sums += weights . streamed over the first `count` rows. Begins and ends as tess_dots(). */
TESS_FN void tess_sums(float4 sums[TESS_ROWS_EACH][TESS_QUADS_EACH], __local const float *weights,
                       tess_stream from, tess_i64 count, __local float4 *stage)
{
    const tess_i32 rows = (tess_i32)tess_clamp(count, 0, TESS_STREAM);
    const tess_i32 chunks = (rows + TESS_CHUNK_ROWS - 1) / TESS_CHUNK_ROWS;

    TESS_NO_UNROLL
    for (tess_i32 chunk = 0; chunk < chunks; chunk++) {
        TESS_NO_UNROLL
        for (tess_i32 q = tess_thread(); q < TESS_BY_ROWS; q += TESS_CL_GROUP)
            stage[q] = tess_stream_quad(from, chunk * TESS_CHUNK_ROWS + q / TESS_QUADS,
                                        q % TESS_QUADS * 4);
        TESS_BARRIER(); /* the chunk is there */
        tess_multiply_rows(sums, weights + chunk * TESS_CHUNK_ROWS, stage, from.dims);
        TESS_BARRIER(); /* and read */
    }
}

TESS_FN void tess_clear(float4 sums[TESS_ROWS_EACH][TESS_QUADS_EACH])
{
    TESS_UNROLL
    for (int r = 0; r < TESS_ROWS_EACH; r++)
        TESS_UNROLL
    for (int j = 0; j < TESS_QUADS_EACH; j++)
        sums[r][j] = (float4)(0.0f);
}

/* Puts the work-item's part of the outputs where the resident rows were, to be written from there
 * by one loop instead of once for every register. */
TESS_FN void tess_lay_down(float4 sums[TESS_ROWS_EACH][TESS_QUADS_EACH], __local float4 *rows)
{
    TESS_UNROLL
    for (int r = 0; r < TESS_ROWS_EACH; r++)
        TESS_UNROLL
    for (int j = 0; j < TESS_QUADS_EACH; j++)
        rows[(tess_own_y() + r * TESS_GRID_ROWS) * TESS_PITCH + j * TESS_GRID_COLUMNS +
             tess_own_x()] = sums[r][j];
}

/* Writes rows first ... first + count - 1 of a tile, each multiplied by its factor, and marks those
 * with an element that is not finite. */
TESS_FN void tess_put_rows(tess_rows to, tess_i64 first, tess_i32 count, __local const float4 *rows,
                           __local const float *factors, __local tess_u32 *is_bad)
{
    TESS_NO_UNROLL
    for (tess_i32 q = tess_thread(); q < count * TESS_QUADS; q += TESS_CL_GROUP) {
        const tess_i32 row = q / TESS_QUADS, dim = q % TESS_QUADS * 4, left = to.dims - dim;
        const float4 quad = rows[row * TESS_PITCH + dim / 4] * factors[row];
        int is_finite = tess_is_finite(quad.x);

        if (left <= 0)
            continue;
        is_finite &= left < 2 || tess_is_finite(quad.y);
        is_finite &= left < 3 || tess_is_finite(quad.z);
        is_finite &= left < 4 || tess_is_finite(quad.w);
        tess_store_quad(to.base, tess_row_index(to, first + row) + dim * to.dim_stride,
                        to.dim_stride, left, to.dtype, quad);
        if (!is_finite)
            is_bad[row] = 1; /* several work-items may, all the same */
    }
}

#endif
