/* SPDX-License-Identifier: Apache-2.0
 * Tiles in shared memory and the two products that every kernel here is made of. */
#ifndef TESSERA_BACKENDS_GPU_SIMT_TILE_H
#define TESSERA_BACKENDS_GPU_SIMT_TILE_H

#include "backends/gpu/simt/sequence.h"

/* The 128 threads of a block stand in a grid of 8 x 16. A thread owns the elements (y + 8 r,
 * x + 16 c) of a tile of scores, and of a tile of outputs the rows y + 8 r with dims
 * 4 x + 64 j ... + 3. The resident rows of a tile (queries in the forward pass) are in shared
 * memory from its start to its end; what streams past (keys, values) comes in chunks, by dims for
 * the product of rows with rows, by rows for the product of weights with rows. The next chunk is
 * on its way from global memory into registers while the present one is multiplied, and goes to
 * the other of two buffers; one barrier a chunk.
 *
 *     resident[ROWS][DIMS + 4]     all of the tile's rows
 *     stage[2][...]                by dims: 64 rows x 16 dims, pitch 20; by rows: rows x DIMS
 *     weights[ROWS][64 + 4]        P, or a gradient of scores
 *
 * Pitches of 4 more than a multiple of 16 or 32 let 8 rows at one dim lie in all 32 banks. Lanes
 * with x in bits 1-4 of their number, y in the others: neighbours read the same streamed row and
 * every second one the same resident row, so that a wide load of a half wave of 32 is one access
 * (rules of NVIDIA's 128-bit loads, measured by others; elsewhere a broadcast is one anyway). */
enum {
    TESS_THREADS = 128,
    TESS_GRID_ROWS = 8,
    TESS_GRID_COLUMNS = 16,
    TESS_COLUMNS = 64, /* of a tile: what streams past at a time */
    TESS_CHUNK_DIMS = 16,
    TESS_CHUNK_PITCH = TESS_CHUNK_DIMS + 4,
    TESS_WEIGHT_PITCH = TESS_COLUMNS + 4,
    TESS_COLUMNS_EACH = TESS_COLUMNS / TESS_GRID_COLUMNS
};

TESS_DEVICE tess_i32 tess_own_x(void)
{
    return static_cast<tess_i32>(tess_thread() >> 1 & 15u);
}
TESS_DEVICE tess_i32 tess_own_y(void)
{
    return static_cast<tess_i32>((tess_thread() & 1u) | tess_thread() >> 5 << 1);
}

/* Over the 16 lanes that share the rows of a tile. */
TESS_DEVICE float tess_row_max(float value)
{
    value = tess_max(tess_exchange<2>(value), value);
    value = tess_max(tess_exchange<4>(value), value);
    value = tess_max(tess_exchange<8>(value), value);
    return tess_max(tess_exchange<16>(value), value);
}
TESS_DEVICE float tess_row_sum(float value)
{
    value += tess_exchange<2>(value);
    value += tess_exchange<4>(value);
    value += tess_exchange<8>(value);
    return value + tess_exchange<16>(value);
}

/* What the largest head dim decides. */
template <int ROWS_, int DIMS_> struct tess_shape {
    enum {
        ROWS = ROWS_,
        DIMS = DIMS_,
        PITCH = DIMS + 4,
        ROWS_EACH = ROWS / TESS_GRID_ROWS,
        QUADS_EACH = DIMS / 4 / TESS_GRID_COLUMNS, /* of dims, in a row of outputs */
        CHUNK_ROWS = DIMS <= 64    ? 16
                     : DIMS <= 128 ? 8
                                   : 4,
        BY_DIMS = TESS_COLUMNS * TESS_CHUNK_PITCH,
        BY_ROWS = CHUNK_ROWS * DIMS,
        STAGE = BY_DIMS > BY_ROWS ? BY_DIMS : BY_ROWS,
        FETCH_DIMS = TESS_COLUMNS * TESS_CHUNK_DIMS / 4 / TESS_THREADS, /* quads of one thread */
        FETCH_ROWS = BY_ROWS / 4 / TESS_THREADS,
        FETCH = FETCH_DIMS > FETCH_ROWS ? FETCH_DIMS : FETCH_ROWS
    };
    static_assert(ROWS % TESS_GRID_ROWS == 0 && DIMS % (4 * TESS_GRID_COLUMNS) == 0,
                  "a tile is whole in every thread");
};

/* The chunk on its way. */
template <class SHAPE> struct tess_fetched {
    tess_quad quads[SHAPE::FETCH];
};

TESS_DEVICE tess_quad *tess_quad_at(float *at)
{
    return reinterpret_cast<tess_quad *>(at);
}
TESS_DEVICE const tess_quad *tess_quad_at(const float *at)
{
    return reinterpret_cast<const tess_quad *>(at);
}

/* No index of an element: strides may be negative, reaches stay below 2^61. */
#define TESS_NO_ROW (-(static_cast<tess_i64>(1) << 62))

/* A tensor whose rows stream past: where row n of the tile begins, in shared memory, or
 * TESS_NO_ROW. */
struct tess_stream {
    const char *base;
    const tess_i64 *index; /* TESS_COLUMNS of them */
    tess_i64 dim_stride;
    tess_i32 dims, dtype;
};

TESS_DEVICE tess_quad tess_stream_quad(const tess_stream &from, tess_i32 row, tess_i32 dim)
{
    const tess_quad zero = {{0.0f, 0.0f, 0.0f, 0.0f}};
    const tess_i64 index = from.index[row];

    if (index == TESS_NO_ROW || dim >= from.dims)
        return zero;
    return tess_load_quad(from.base, index + dim * from.dim_stride, from.dim_stride,
                          from.dims - dim, from.dtype);
}

/* A tile of streamed rows in chunks of dims. */
template <class SHAPE> struct tess_by_dims {
    tess_stream from;

    TESS_DEVICE_MEMBER void fetch(tess_i32 chunk, tess_fetched<SHAPE> &f) const
    {
        TESS_UNROLL
        for (int n = 0; n < SHAPE::FETCH_DIMS; n++) {
            const tess_i32 q = static_cast<tess_i32>(tess_thread()) + n * TESS_THREADS;
            f.quads[n] = tess_stream_quad(from, q / 4, chunk * TESS_CHUNK_DIMS + q % 4 * 4);
        }
    }
    TESS_DEVICE_MEMBER void keep(const tess_fetched<SHAPE> &f, float *stage) const
    {
        TESS_UNROLL
        for (int n = 0; n < SHAPE::FETCH_DIMS; n++) {
            const tess_i32 q = static_cast<tess_i32>(tess_thread()) + n * TESS_THREADS;
            *tess_quad_at(stage + q / 4 * TESS_CHUNK_PITCH + q % 4 * 4) = f.quads[n];
        }
    }
};

/* The same in chunks of rows. */
template <class SHAPE> struct tess_by_rows {
    tess_stream from;

    TESS_DEVICE_MEMBER void fetch(tess_i32 chunk, tess_fetched<SHAPE> &f) const
    {
        TESS_UNROLL
        for (int n = 0; n < SHAPE::FETCH_ROWS; n++) {
            const tess_i32 q = static_cast<tess_i32>(tess_thread()) + n * TESS_THREADS;
            f.quads[n] = tess_stream_quad(from, chunk * SHAPE::CHUNK_ROWS + q / (SHAPE::DIMS / 4),
                                          q % (SHAPE::DIMS / 4) * 4);
        }
    }
    TESS_DEVICE_MEMBER void keep(const tess_fetched<SHAPE> &f, float *stage) const
    {
        TESS_UNROLL
        for (int n = 0; n < SHAPE::FETCH_ROWS; n++) {
            const tess_i32 q = static_cast<tess_i32>(tess_thread()) + n * TESS_THREADS;
            *tess_quad_at(stage + 4 * q) = f.quads[n];
        }
    }
};

/* Nothing follows. */
template <class SHAPE> struct tess_no_more {
    TESS_DEVICE_MEMBER void fetch(tess_i32, tess_fetched<SHAPE> &) const {}
    TESS_DEVICE_MEMBER void keep(const tess_fetched<SHAPE> &, float *) const {}
};

/* The two buffers and whose turn it is. */
template <class SHAPE> struct tess_pipe {
    float *stage;
    tess_i32 turn;

    TESS_DEVICE_MEMBER float *present(void) const { return stage + turn * SHAPE::STAGE; }
    TESS_DEVICE_MEMBER float *coming(void) const { return stage + (turn ^ 1) * SHAPE::STAGE; }
};

/* Brings the first chunk; every product then brings the next one's. */
template <class SHAPE, class SOURCE>
TESS_DEVICE void tess_pipe_start(tess_pipe<SHAPE> &pipe, const SOURCE &source)
{
    tess_fetched<SHAPE> f;

    source.fetch(0, f);
    source.keep(f, pipe.present());
    tess_barrier();
}

/* Puts the resident rows in shared memory, zeros where there are none. The caller's next barrier
 * makes them seen. */
template <class SHAPE>
TESS_DEVICE void tess_keep_resident(const tess_rows &rows, tess_i64 first, float *resident)
{
    TESS_NO_UNROLL
    for (tess_i32 q = static_cast<tess_i32>(tess_thread()); q < SHAPE::ROWS * SHAPE::DIMS / 4;
         q += TESS_THREADS) {
        const tess_i32 row = q / (SHAPE::DIMS / 4), dim = q % (SHAPE::DIMS / 4) * 4;
        *tess_quad_at(resident + row * SHAPE::PITCH + dim) = tess_row_quad(rows, first + row, dim);
    }
}

/* dots[r][c] += resident row . streamed row, over one chunk of dims. */
template <class SHAPE>
TESS_DEVICE void tess_multiply_dims(float (&dots)[SHAPE::ROWS_EACH][TESS_COLUMNS_EACH],
                                    const float *resident, const float *stage)
{
    resident += tess_own_y() * SHAPE::PITCH;
    stage += tess_own_x() * TESS_CHUNK_PITCH;
    TESS_UNROLL
    for (int d = 0; d < TESS_CHUNK_DIMS; d += 4) {
        tess_quad b[TESS_COLUMNS_EACH];
        TESS_UNROLL
        for (int c = 0; c < TESS_COLUMNS_EACH; c++)
            b[c] = *tess_quad_at(stage + c * TESS_GRID_COLUMNS * TESS_CHUNK_PITCH + d);
        TESS_UNROLL
        for (int r = 0; r < SHAPE::ROWS_EACH; r++) {
            const tess_quad a = *tess_quad_at(resident + r * TESS_GRID_ROWS * SHAPE::PITCH + d);
            TESS_UNROLL
            for (int i = 0; i < 4; i++)
                TESS_UNROLL
            for (int c = 0; c < TESS_COLUMNS_EACH; c++)
                dots[r][c] += a.at[i] * b[c].at[i];
        }
    }
}

/* sums[r][j] += weights of a row . streamed rows, over one chunk of rows. */
template <class SHAPE>
TESS_DEVICE void tess_multiply_rows(tess_quad (&sums)[SHAPE::ROWS_EACH][SHAPE::QUADS_EACH],
                                    const float *weights, const float *stage, tess_i32 dims)
{
    weights += tess_own_y() * TESS_WEIGHT_PITCH;
    stage += tess_own_x() * 4;
    TESS_UNROLL
    for (int k = 0; k < SHAPE::CHUNK_ROWS; k += 4) {
        tess_quad w[SHAPE::ROWS_EACH];
        TESS_UNROLL
        for (int r = 0; r < SHAPE::ROWS_EACH; r++)
            w[r] = *tess_quad_at(weights + r * TESS_GRID_ROWS * TESS_WEIGHT_PITCH + k);
        TESS_UNROLL
        for (int j = 0; j < SHAPE::QUADS_EACH; j++) {
            TESS_UNROLL
            for (int i = 0; i < 4 && j * 4 * TESS_GRID_COLUMNS < dims; i++) {
                const tess_quad v =
                    *tess_quad_at(stage + (k + i) * SHAPE::DIMS + j * 4 * TESS_GRID_COLUMNS);
                TESS_UNROLL
                for (int r = 0; r < SHAPE::ROWS_EACH; r++)
                    TESS_UNROLL
                for (int e = 0; e < 4; e++)
                    sums[r][j].at[e] += w[r].at[i] * v.at[e];
            }
        }
    }
}

/* dots = resident . streamed over all dims; then the first chunk of `next` is there. */
template <class SHAPE, class NEXT>
TESS_DEVICE void tess_dots(float (&dots)[SHAPE::ROWS_EACH][TESS_COLUMNS_EACH],
                           const float *resident, const tess_by_dims<SHAPE> &source,
                           const NEXT &next, tess_pipe<SHAPE> &pipe)
{
    const tess_i32 chunks = (source.from.dims + TESS_CHUNK_DIMS - 1) / TESS_CHUNK_DIMS;

    TESS_UNROLL
    for (int r = 0; r < SHAPE::ROWS_EACH; r++)
        TESS_UNROLL
    for (int c = 0; c < TESS_COLUMNS_EACH; c++)
        dots[r][c] = 0.0f;
    TESS_NO_UNROLL
    for (tess_i32 chunk = 0; chunk < chunks; chunk++) {
        tess_fetched<SHAPE> f;
        if (chunk + 1 < chunks)
            source.fetch(chunk + 1, f);
        else
            next.fetch(0, f);
        tess_multiply_dims<SHAPE>(dots, resident + chunk * TESS_CHUNK_DIMS, pipe.present());
        if (chunk + 1 < chunks)
            source.keep(f, pipe.coming());
        else
            next.keep(f, pipe.coming());
        tess_barrier(); /* the chunk that came is whole, the other buffer is read */
        pipe.turn ^= 1;
    }
}

/* sums += weights . streamed over the first `count` rows; then the first chunk of `next` is
 * there. */
template <class SHAPE, class NEXT>
TESS_DEVICE void tess_sums(tess_quad (&sums)[SHAPE::ROWS_EACH][SHAPE::QUADS_EACH],
                           const float *weights, const tess_by_rows<SHAPE> &source, tess_i64 count,
                           const NEXT &next, tess_pipe<SHAPE> &pipe)
{
    const tess_i32 rows = static_cast<tess_i32>(tess_min_i64(count, TESS_COLUMNS));
    const tess_i32 chunks = (rows + SHAPE::CHUNK_ROWS - 1) / SHAPE::CHUNK_ROWS;

    TESS_NO_UNROLL
    for (tess_i32 chunk = 0; chunk < chunks; chunk++) {
        tess_fetched<SHAPE> f;
        if (chunk + 1 < chunks)
            source.fetch(chunk + 1, f);
        else
            next.fetch(0, f);
        tess_multiply_rows<SHAPE>(sums, weights + chunk * SHAPE::CHUNK_ROWS, pipe.present(),
                                  source.from.dims);
        if (chunk + 1 < chunks)
            source.keep(f, pipe.coming());
        else
            next.keep(f, pipe.coming());
        tess_barrier(); /* as in tess_dots() */
        pipe.turn ^= 1;
    }
}

template <class SHAPE>
TESS_DEVICE void tess_clear(tess_quad (&sums)[SHAPE::ROWS_EACH][SHAPE::QUADS_EACH])
{
    TESS_UNROLL
    for (int r = 0; r < SHAPE::ROWS_EACH; r++)
        TESS_UNROLL
    for (int j = 0; j < SHAPE::QUADS_EACH; j++)
        TESS_UNROLL
    for (int e = 0; e < 4; e++)
        sums[r][j].at[e] = 0.0f;
}

/* sums[r] *= factor */
template <class SHAPE>
TESS_DEVICE void tess_scale_row(tess_quad (&sums)[SHAPE::ROWS_EACH][SHAPE::QUADS_EACH], int r,
                                float factor)
{
    TESS_UNROLL
    for (int j = 0; j < SHAPE::QUADS_EACH; j++)
        TESS_UNROLL
    for (int e = 0; e < 4; e++)
        sums[r][j].at[e] *= factor;
}

/* Puts the thread's part of the outputs where the resident rows were, to be written from there by
 * one loop instead of once for every register. */
template <class SHAPE>
TESS_DEVICE void tess_lay_down(const tess_quad (&sums)[SHAPE::ROWS_EACH][SHAPE::QUADS_EACH],
                               float *rows)
{
    TESS_UNROLL
    for (int i = 0; i < SHAPE::ROWS_EACH * SHAPE::QUADS_EACH; i++)
        *tess_quad_at(rows +
                      (tess_own_y() + i / SHAPE::QUADS_EACH * TESS_GRID_ROWS) * SHAPE::PITCH +
                      (i % SHAPE::QUADS_EACH * TESS_GRID_COLUMNS + tess_own_x()) * 4) =
            sums[i / SHAPE::QUADS_EACH][i % SHAPE::QUADS_EACH];
}

/* Writes rows first ... first + count - 1 of a tile, each multiplied by its factor, and marks those
 * with an element that is not finite. */
template <class SHAPE>
TESS_DEVICE void tess_put_rows(const tess_rows &to, tess_i64 first, tess_i32 count,
                               const float *rows, const float *factors, tess_u32 *is_bad)
{
    TESS_NO_UNROLL
    for (tess_i32 q = static_cast<tess_i32>(tess_thread()); q < count * (SHAPE::DIMS / 4);
         q += TESS_THREADS) {
        const tess_i32 row = q / (SHAPE::DIMS / 4), dim = q % (SHAPE::DIMS / 4) * 4;
        tess_quad quad = *tess_quad_at(rows + row * SHAPE::PITCH + dim);
        bool is_finite = true;
        if (dim >= to.dims)
            continue;
        TESS_UNROLL
        for (int e = 0; e < 4; e++) {
            quad.at[e] *= factors[row];
            is_finite = is_finite && (dim + e >= to.dims || tess_is_finite(quad.at[e]));
        }
        tess_store_quad(to.base, tess_row_index(to, first + row) + dim * to.dim_stride,
                        to.dim_stride, to.dims - dim, to.dtype, quad);
        if (!is_finite)
            is_bad[row] = 1; /* several threads may, all the same */
    }
}

#endif
