/* SPDX-License-Identifier: Apache-2.0
 * Tiles as wgmma reads them, and the ways rows of K and V come into them. */
#ifndef TESSERA_BACKENDS_CUDA_HOPPER_TILE_H
#define TESSERA_BACKENDS_CUDA_HOPPER_TILE_H

#include "backends/cuda/ptx_sm90.h"
#include "backends/gpu/matrix/item.h"
#include "vendor/mma.h"

/* ROWS rows of DIM 16-bit numbers in panels of 64 dims: [panel][row][128 bytes], chunk c of 16
 * bytes of row r at c ^ (r % 8). A bulk copy with 128-byte swizzle writes it so, a panel at a time.
 */
template <int DIM, int ROWS> struct tess_hopper_tile {
    enum { PANELS = (DIM + 63) / 64, PANEL_BYTES = ROWS * 128, BYTES = PANELS * PANEL_BYTES };
    static_assert(PANEL_BYTES % 1024 == 0, "the pattern of chunks repeats every 8 rows");

    /* Of a chunk, relative to the tile. */
    static TESS_DEVICE_MEMBER tess_u32 at(int row, int chunk)
    {
        return static_cast<tess_u32>(chunk / 8 * PANEL_BYTES + row * 128 +
                                     ((chunk % 8) ^ (row % 8)) * 16);
    }
    static TESS_DEVICE_MEMBER tess_u32 row_bytes(int row)
    {
        return static_cast<tess_u32>(row * 128);
    }

    /* For wgmma, and what is added to it for 16 further dims or for further rows. */
    static TESS_DEVICE_MEMBER tess_u64 descriptor(tess_u32 tile)
    {
        return tess_ptx_wgmma_descriptor(tile, PANEL_BYTES);
    }
    static TESS_DEVICE_MEMBER tess_u64 depth(int step)
    {
        return static_cast<tess_u64>((step / 4 * PANEL_BYTES + step % 4 * 32) / 16);
    }
    static TESS_DEVICE_MEMBER tess_u64 row(int rows)
    {
        return static_cast<tess_u64>(rows * 128 / 16);
    }

    /* Rows first ... end - 1 by THREADS threads; those from `count` on and dims that are missing
     * are zeros. address(row) is that of a row, also asked of rows that are not there, and not read
     * then. Chunks of 16 bytes go by cp.async where rows allow it; others are there on return. */
    template <int THREADS, class ADDRESS>
    static TESS_DEVICE_MEMBER void copy(tess_u32 tile, int thread, int first, int end,
                                        const tess_rows &rows, int count, bool is_even,
                                        ADDRESS address)
    {
        const int chunk = thread % 8;

        TESS_NO_UNROLL
        for (int row = first + thread / 8; row < end; row += THREADS / 8) {
            const char *const from = address(row);
            const int dims = row < count ? rows.dims : 0;
            TESS_NO_UNROLL
            for (int panel = 0; panel < PANELS; panel++) {
                const tess_u32 to = tile + at(row, panel * 8 + chunk);
                const int dim = panel * 64 + chunk * 8;
                if (is_even) {
                    const int left = 2 * (dims - dim);
                    tess_ptx_cp_async_16(to, from + 2 * (left > 0 ? dim : 0),
                                         static_cast<tess_u32>(left < 0    ? 0
                                                               : left > 16 ? 16
                                                                           : left));
                    continue;
                }
                TESS_NO_UNROLL
                for (int d = 0; d < 8; d += 2) {
                    const unsigned short *const at = reinterpret_cast<const unsigned short *>(from);
                    const tess_u32 low = dim + d < dims ? at[(dim + d) * rows.dim_stride] : 0u;
                    const tess_u32 high =
                        dim + d + 1 < dims ? at[(dim + d + 1) * rows.dim_stride] : 0u;
                    tess_ptx_st_shared_32(to + static_cast<tess_u32>(2 * d), low | high << 16);
                }
            }
        }
    }

    /* Rows from `first` on become zeros. */
    template <int THREADS>
    static TESS_DEVICE_MEMBER void clear(tess_u32 tile, int thread, int first)
    {
        TESS_NO_UNROLL
        for (int i = thread; i < (ROWS - first) * 32; i += THREADS)
            TESS_NO_UNROLL
        for (int panel = 0; panel < PANELS; panel++)
            tess_ptx_st_shared_32(
                tile + static_cast<tess_u32>(panel * PANEL_BYTES + first * 128 + i * 4), 0u);
    }
};

/* An item and where its keys lie in the tensors that maps describe. */
struct tess_hopper_item : tess_matrix_item {
    tess_item_place place;
    tess_sequence sequence;
};

/* The bringing warp's two ways. */
struct tess_hopper_bringer {
    tess_u32 under_way; /* barrier of the copies that have not been waited for; 0: none */

    TESS_DEVICE_MEMBER tess_hopper_bringer() : under_way(0) {}

    /* By a bulk copy for each panel. */
    template <class TILE>
    TESS_DEVICE_MEMBER void by_map(tess_u32 tile, tess_u32 full, const tess_gpu_map *map,
                                   const tess_hopper_item &item, tess_i64 first)
    {
        if (tess_lane() != 0)
            return;
        tess_ptx_mbarrier_arrive_expect_tx(full, TILE::BYTES);
        TESS_UNROLL
        for (int panel = 0; panel < TILE::PANELS; panel++)
            tess_ptx_cp_async_bulk_tensor_4d(
                tile + static_cast<tess_u32>(panel * TILE::PANEL_BYTES), map, full, panel * 64,
                static_cast<tess_i32>(item.sequence.first_column) + static_cast<tess_i32>(first),
                static_cast<tess_i32>(item.place.head_kv),
                static_cast<tess_i32>(item.sequence.batch_k));
    }

    /* By the lanes of the warp, row by row: pages, and rows that lie on odd addresses. What one
     * call starts, the next one waits for, so that two tiles are on their way. */
    template <class TILE>
    TESS_DEVICE_MEMBER void by_lanes(tess_u32 tile, tess_u32 full, const tess_rows &rows,
                                     bool is_even, tess_i64 first)
    {
        const tess_i64 left = rows.count - first;
        const int count = static_cast<int>(tess_min_i64(left, TILE::PANEL_BYTES / 128));
        /* One division of 64 bits for the tile; rows of it are less than 2^31 from its first. */
        const tess_i64 page = rows.pages ? tess_divide(first, rows.page_size) : 0;
        const tess_u32 page_size = static_cast<tess_u32>(tess_min_i64(rows.page_size, 0xFFFFFFFF));
        const tess_u32 slot =
            rows.pages ? static_cast<tess_u32>(first - page * rows.page_size) : 0u;
        const auto address = [&](int row) {
            const tess_u32 at = slot + static_cast<tess_u32>(row < count ? row : 0);
            if (!rows.pages)
                return rows.base + (first + at) * rows.stride * 2;
            const tess_i64 entry = rows.pages[page + at / page_size];
            return rows.base + (tess_clamp(entry, 0, rows.last_page) * rows.page_stride +
                                at % page_size * rows.stride) *
                                   2;
        };

        TILE::template copy<32>(tile, static_cast<int>(tess_lane()), 0, TILE::PANEL_BYTES / 128,
                                rows, count, is_even, address);
        tess_ptx_cp_async_commit_group();
        tess_ptx_cp_async_wait_group<1>();
        hand_over();
        under_way = full;
    }

    /* Waits for what is under way. */
    TESS_DEVICE_MEMBER void finish()
    {
        tess_ptx_cp_async_wait_group<0>();
        hand_over();
        under_way = 0;
    }

    TESS_DEVICE_MEMBER void hand_over()
    {
        tess_ptx_fence_proxy_async();
        tess_ptx_bar_warp_sync(); /* all lanes have */
        if (under_way && tess_lane() == 0)
            tess_ptx_mbarrier_arrive(under_way);
    }
};

#endif
