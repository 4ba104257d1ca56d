/* SPDX-License-Identifier: Apache-2.0
 * Staging on NVIDIA: rows of global memory to tiles in shared memory by cp.async. */
#ifndef TESSERA_BACKENDS_CUDA_VENDOR_ASYNC_H
#define TESSERA_BACKENDS_CUDA_VENDOR_ASYNC_H

#include "backends/cuda/ptx.h"
#include "vendor/mma.h"

/* A thread copies chunks of 16 bytes: chunk thread % 8 of each 128 bytes of rows thread / 8,
 * thread / 8 + THREADS / 8, ... Eight lanes read 128 bytes that lie together. */
template <int DIM, int ROWS, int THREADS> struct tess_stage {
    enum { STEP = THREADS / 8, PASSES = (ROWS + STEP - 1) / STEP };
    static_assert(STEP % 8 == 0,
                  "the place of a chunk in its row must not change from pass to pass");

    /* This thread's first row of a tile. */
    static TESS_DEVICE_MEMBER int first_row() { return static_cast<int>(tess_thread()) / 8; }

    /* One row's chunks of this thread, one for each 128 bytes. What lies past `dims` is zeros. */
    static TESS_DEVICE_MEMBER void copy_row(tess_u32 place, const char *from, int dims)
    {
        const int chunk = static_cast<int>(tess_thread()) % 8;

        TESS_UNROLL
        for (int panel = 0; panel < tess_mma_tile<DIM>::PANELS; panel++) {
            const int left = 2 * (dims - panel * 64 - chunk * 8);
            if (DIM % 64 != 0 && panel * 64 + chunk * 8 >= DIM)
                continue;
            tess_ptx_cp_async_16(place + static_cast<tess_u32>(panel * 128),
                                 from + panel * 128 + chunk * 16,
                                 static_cast<tess_u32>(left < 0    ? 0
                                                       : left > 16 ? 16
                                                                   : left));
        }
    }

    static TESS_DEVICE_MEMBER tess_u32 first_place(tess_u32 tile)
    {
        return tile + tess_mma_tile<DIM>::at(first_row(), static_cast<int>(tess_thread()) % 8);
    }

    /* Starts the copy of a tile. address(r) is that of row r; rows from `rows` on are filled with
     * zeros: address() gives any for them, and it is not read. A loop, for the sake of the
     * instruction cache: this is for first tiles, last ones and pages. */
    template <class ADDRESS>
    static TESS_DEVICE_MEMBER void copy(tess_u32 tile, int dims, int rows, ADDRESS address)
    {
        tess_u32 place = first_place(tile);

        TESS_NO_UNROLL
        for (int row = first_row(); row < ROWS; row += STEP) {
            copy_row(place, address(row), row < rows ? dims : 0);
            place += STEP * tess_mma_tile<DIM>::PITCH;
        }
    }

    /* A whole tile of rows that lie row_bytes apart: one address that is carried on. */
    static TESS_DEVICE_MEMBER void copy_evenly(tess_u32 tile, int dims, const char *base,
                                               tess_i64 row_bytes)
    {
        const char *from = base + first_row() * row_bytes;
        const tess_u32 place = first_place(tile);
        const tess_i64 step = STEP * row_bytes;

        TESS_UNROLL
        for (int pass = 0; pass < PASSES; pass++) {
            if (ROWS % STEP == 0 || first_row() + pass * STEP < ROWS)
                copy_row(place + static_cast<tess_u32>(pass * STEP * tess_mma_tile<DIM>::PITCH),
                         from, dims);
            from += step;
        }
    }

    /* The same without cp.async, for rows that do not lie on multiples of 16 bytes or whose numbers
     * lie dim_stride apart. It is done on return, and a barrier makes it everybody's as well. */
    template <class ROW>
    static TESS_DEVICE_MEMBER void copy_scattered(tess_u32 tile, int dims, int rows,
                                                  tess_i64 dim_stride, ROW address)
    {
        const int chunks = tess_mma_tile<DIM>::PITCH / 16;

        TESS_NO_UNROLL
        for (int i = (int)tess_thread(); i < ROWS * chunks; i += THREADS) {
            const int row = i / chunks, chunk = i % chunks;
            const unsigned short *const from = (const unsigned short *)address(row);
            TESS_NO_UNROLL
            for (int d = 0; d < 8; d += 2) {
                const int dim = 8 * chunk + d;
                const tess_u32 low = row < rows && dim < dims ? from[dim * dim_stride] : 0u;
                const tess_u32 high =
                    row < rows && dim + 1 < dims ? from[(dim + 1) * dim_stride] : 0u;
                tess_ptx_st_shared_32(tile + tess_mma_tile<DIM>::at(row, chunk) + (tess_u32)(2 * d),
                                      low | high << 16);
            }
        }
    }
};

/* Starts the copy of one number of 32 bits; zero where it is not there, and then not read. */
TESS_DEVICE void tess_stage_value(void *to, const void *from, bool is_there)
{
    tess_ptx_cp_async_4(tess_ptx_shared_address(to), from, is_there ? 4u : 0u);
}

/* Copies come in groups, one per stage of the pipeline, closed in order. */
TESS_DEVICE void tess_stage_close()
{
    tess_ptx_cp_async_commit_group();
}

/* Waits for all but the newest PENDING groups of this thread; a barrier makes them everybody's. */
template <int PENDING> TESS_DEVICE void tess_stage_wait()
{
    tess_ptx_cp_async_wait_group<PENDING>();
}

#endif
