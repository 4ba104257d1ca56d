/* SPDX-License-Identifier: Apache-2.0
 * Staging on AMD: tiles of K and V from global memory, through registers, to shared memory. */
#ifndef TESSERA_BACKENDS_HIP_MATRIX_STAGE_H
#define TESSERA_BACKENDS_HIP_MATRIX_STAGE_H

#include "backends/gpu/matrix/item.h"
#include "vendor/mma.h"

/* Where the columns of an item lie, in scalar registers: what its tiles have in common. */
struct tess_matrix_stream {
    const char *k, *v;    /* of column 0 */
    int k_bytes, v_bytes; /* from column to column, where is_steady */
    int k_dims, v_dims;
    int last;      /* column that exists */
    int is_even;   /* columns are read 16 bytes at a time */
    int is_steady; /* and lie at distances of 31 bits in a tile */
};

/* Eight neighbouring dims one by one, zeros past the end of the row. */
TESS_DEVICE tess_u32x4 tess_read_dims(const char *at, tess_i64 dim_stride, int left)
{
    tess_u32x4 chunk = {0, 0, 0, 0};

    TESS_UNROLL
    for (int d = 0; d < 8; d++)
        if (d < left)
            chunk[d / 2] |= tess_read_u16(at + d * dim_stride * 2) << d % 2 * 16;
    return chunk;
}

/* A tile of K as its rows lie: COLUMNS rows of DIM numbers, row r at tess_mma_place(r). A tile of V
 * transposed: DIM rows of COLUMNS numbers, dim d at tess_mma_place(d), so that the columns that a
 * weight's lane holds are side by side for one dim.
 *
 * A row is an odd number of 16 bytes: 8 lanes that read 16 bytes each of 8 neighbouring rows, or 16
 * of 16, meet all banks once, be they 32 or 64. A thread turns two columns by eight dims of V by
 * itself and writes pairs of columns, of which a wave has 64 to 128 bytes side by side.
 *
 * fetch() starts the loads of a tile and put() writes what they have brought: between the two the
 * tile before is being multiplied. A column past the last one is the last one again: what is
 * multiplied by zero there belongs to the tile anyway. What cannot be read 16 bytes at a time is
 * copied by copy() between the barriers, slowly. */
template <int DIM, int COLUMNS, int THREADS> struct tess_stage {
    enum {
        CHUNKS = DIM / 8,
        K_PITCH = 16 * (CHUNKS + 1),
        V_PITCH = 16 * (COLUMNS / 8 + 1),
        K_BYTES = COLUMNS * K_PITCH,
        V_BYTES = DIM * V_PITCH,
        PAIRS = COLUMNS / 2,
        K_UNITS = COLUMNS * CHUNKS, /* 16 bytes each */
        V_UNITS = PAIRS * CHUNKS,   /* 32 bytes each */
        K_PASSES = (K_UNITS + THREADS - 1) / THREADS,
        V_PASSES = (V_UNITS + THREADS - 1) / THREADS,
    };
    static_assert(CHUNKS % 2 == 0 && COLUMNS % 32 == 0, "rows are odd numbers of 16 bytes");

    tess_u32x4 k[K_PASSES], v[V_PASSES][2];

    /* This thread's part of a pass; where there is none, that of another thread once more. */
    struct part {
        int column, chunk;
        bool is_own;
    };
    static TESS_DEVICE_MEMBER int unit_of(int pass, int units)
    {
        const int unit = static_cast<int>(tess_thread()) + pass * THREADS;
        return units % THREADS == 0 || unit < units ? unit : units - 1;
    }
    static TESS_DEVICE_MEMBER bool is_own(int pass, int units)
    {
        return units % THREADS == 0 || static_cast<int>(tess_thread()) + pass * THREADS < units;
    }
    static TESS_DEVICE_MEMBER part k_part(int pass)
    {
        const int unit = unit_of(pass, K_UNITS);
        return {unit / CHUNKS, unit % CHUNKS, is_own(pass, K_UNITS)};
    }
    static TESS_DEVICE_MEMBER part v_part(int pass)
    {
        const int unit = unit_of(pass, V_UNITS);
        return {unit % PAIRS * 2, unit / PAIRS, is_own(pass, V_UNITS)};
    }

    /* Index of a column's dim 0, in pages or not: as tess_row_index(), on numbers below 2^31. */
    static TESS_DEVICE_MEMBER tess_i64 index_of(const tess_rows &rows, int column)
    {
        if (!rows.pages)
            return column * rows.stride;
        const int size = static_cast<int>(rows.page_size), page = column / size;
        const tess_i64 entry = tess_max_i64(((const TESS_GLOBAL tess_i32 *)rows.pages)[page], 0);
        return tess_min_i64(entry, rows.last_page) * rows.page_stride +
               (column - page * size) * rows.stride;
    }

    /* A chunk past the row's end is its first one again; put() makes zeros of it. */
    static TESS_DEVICE_MEMBER int drawn_chunk(int chunk, int dims)
    {
        return 8 * chunk < dims ? 16 * chunk : 0;
    }

    /* Of a whole tile whose columns lie row_bytes apart: a base that all lanes share and distances
     * that are the same for every tile. */
    static TESS_DEVICE_MEMBER tess_u32x4 read_evenly(const char *base, int row_bytes, int dims,
                                                     int column, int chunk)
    {
        return tess_read_16(base +
                            static_cast<tess_u32>(column * row_bytes + drawn_chunk(chunk, dims)));
    }
    static TESS_DEVICE_MEMBER tess_u32x4 read_any(const tess_rows &rows, int dims, int column,
                                                  int chunk)
    {
        return tess_read_16(rows.base + index_of(rows, column) * 2 + drawn_chunk(chunk, dims));
    }

    /* Starts to bring the columns from `first` on. */
    TESS_DEVICE_MEMBER void fetch(const tess_matrix_stream &s, const tess_rows &k_rows,
                                  const tess_rows &v_rows, int first)
    {
        const char *const k_base = s.k + static_cast<tess_i64>(first) * s.k_bytes;
        const char *const v_base = s.v + static_cast<tess_i64>(first) * s.v_bytes;
        const int last = s.last - first;

        if (s.is_steady && last >= COLUMNS - 1) {
            TESS_UNROLL
            for (int pass = 0; pass < K_PASSES; pass++) {
                const part p = k_part(pass);
                k[pass] = read_evenly(k_base, s.k_bytes, s.k_dims, p.column, p.chunk);
            }
            TESS_UNROLL
            for (int i = 0; i < 2 * V_PASSES; i++) {
                const part p = v_part(i / 2);
                v[i / 2][i % 2] =
                    read_evenly(v_base, s.v_bytes, s.v_dims, p.column + i % 2, p.chunk);
            }
        } else if (s.is_even) {
            TESS_UNROLL
            for (int pass = 0; pass < K_PASSES; pass++) {
                const part p = k_part(pass);
                k[pass] = read_any(k_rows, s.k_dims, first + drawn(p.column, last), p.chunk);
            }
            TESS_UNROLL
            for (int i = 0; i < 2 * V_PASSES; i++) {
                const part p = v_part(i / 2);
                v[i / 2][i % 2] =
                    read_any(v_rows, s.v_dims, first + drawn(p.column + i % 2, last), p.chunk);
            }
        } else {
            zero(); /* or registers would have to keep what nobody has put there */
        }
    }
    TESS_DEVICE_MEMBER void zero()
    {
        const tess_u32x4 zeros = {0, 0, 0, 0};

        TESS_UNROLL
        for (int pass = 0; pass < K_PASSES; pass++)
            k[pass] = zeros;
        TESS_UNROLL
        for (int i = 0; i < 2 * V_PASSES; i++)
            v[i / 2][i % 2] = zeros;
    }
    static TESS_DEVICE_MEMBER int drawn(int column, int last)
    {
        return column < last ? column : last;
    }

    /* The whole way of a tile, number by number. */
    static TESS_DEVICE_MEMBER void copy(char *k_tile, char *v_tile, const tess_matrix_stream &s,
                                        const tess_rows &k_rows, const tess_rows &v_rows, int first)
    {
        TESS_NO_UNROLL
        for (int unit = static_cast<int>(tess_thread()); unit < K_UNITS; unit += THREADS) {
            const int column = unit / CHUNKS, chunk = unit % CHUNKS;
            const tess_i64 at = index_of(k_rows, first + drawn(column, s.last - first)) +
                                8 * chunk * k_rows.dim_stride;
            tess_store_16(
                k_tile + tess_mma_place(column) * K_PITCH + 16 * chunk,
                tess_read_dims(k_rows.base + at * 2, k_rows.dim_stride, s.k_dims - 8 * chunk));
        }
        TESS_NO_UNROLL
        for (int unit = static_cast<int>(tess_thread()); unit < COLUMNS * DIM; unit += THREADS) {
            const int column = unit % COLUMNS, dim = unit / COLUMNS;
            const tess_i64 at =
                index_of(v_rows, first + drawn(column, s.last - first)) + dim * v_rows.dim_stride;
            const tess_u32 value = dim < s.v_dims ? tess_read_u16(v_rows.base + at * 2) : 0u;
            *reinterpret_cast<unsigned short *>(v_tile + tess_mma_place(dim) * V_PITCH +
                                                2 * column) = static_cast<unsigned short>(value);
        }
    }

    TESS_DEVICE_MEMBER void put(char *k_tile, char *v_tile, const tess_matrix_stream &s)
    {
        if (s.k_dims < DIM || s.v_dims < DIM)
            clear(s);
        TESS_UNROLL
        for (int pass = 0; pass < K_PASSES; pass++) {
            const part p = k_part(pass);
            if (p.is_own)
                tess_store_16(k_tile + tess_mma_place(p.column) * K_PITCH + 16 * p.chunk, k[pass]);
        }
        TESS_UNROLL
        for (int pass = 0; pass < V_PASSES; pass++) {
            const part p = v_part(pass);
            char *const to = v_tile + tess_mma_place(8 * p.chunk) * V_PITCH + 2 * p.column;
            TESS_UNROLL
            for (int d = 0; d < 8; d++) {
                const tess_u32 even = v[pass][0][d / 2], odd = v[pass][1][d / 2];
                const tess_u32 pair =
                    __builtin_amdgcn_perm(odd, even, d % 2 ? 0x07060302u : 0x05040100u);
                if (p.is_own)
                    *reinterpret_cast<tess_u32 *>(to + (tess_mma_place(d) - tess_mma_place(0)) *
                                                           V_PITCH) = pair;
            }
        }
    }

    /* Zeros for dims that the tensors do not have. */
    TESS_DEVICE_MEMBER void clear(const tess_matrix_stream &s)
    {
        const tess_u32x4 zeros = {0, 0, 0, 0};

        TESS_UNROLL
        for (int pass = 0; pass < K_PASSES; pass++)
            if (8 * k_part(pass).chunk >= s.k_dims)
                k[pass] = zeros;
        TESS_UNROLL
        for (int i = 0; i < 2 * V_PASSES; i++)
            if (8 * v_part(i / 2).chunk >= s.v_dims)
                v[i / 2][i % 2] = zeros;
    }
};

#endif
