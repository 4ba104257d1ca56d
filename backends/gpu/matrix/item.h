/* SPDX-License-Identifier: Apache-2.0
 * One work item of a matrix kernel: which rows and columns, and where they lie. */
#ifndef TESSERA_BACKENDS_GPU_MATRIX_ITEM_H
#define TESSERA_BACKENDS_GPU_MATRIX_ITEM_H

#include "backends/gpu/simt/item.h"

/* Rows of a tile as (query, head of the group): one 64-bit division for the tile, 32-bit ones for
 * its rows. */
struct tess_fold {
    tess_i64 query; /* of the tile's first row */
    tess_u32 head, group;
};

TESS_DEVICE tess_fold tess_fold_at(tess_i64 folded_row, tess_i64 group)
{
    tess_fold fold;
    fold.query = tess_divide(folded_row, group);
    fold.head = static_cast<tess_u32>(folded_row - fold.query * group);
    fold.group = static_cast<tess_u32>(group);
    return fold;
}

/* Of row `row` of the tile. */
TESS_DEVICE tess_i64 tess_fold_query(const tess_fold &fold, int row)
{
    return fold.query + (fold.group == 1 ? static_cast<tess_u32>(row)
                                         : (fold.head + static_cast<tess_u32>(row)) / fold.group);
}
TESS_DEVICE tess_u32 tess_fold_head(const tess_fold &fold, int row)
{
    return fold.group == 1 ? 0u : (fold.head + static_cast<tess_u32>(row)) % fold.group;
}

/* Index of (row of the tile, dim 0) relative to rows.base. */
TESS_DEVICE tess_i64 tess_fold_index(const tess_fold &fold, const tess_rows &rows, int row)
{
    return tess_fold_query(fold, row) * rows.stride + tess_fold_head(fold, row) * rows.head_stride;
}

/* A forward item is the same for a whole block: one thread makes it and all read it in shared
 * memory, where it takes no registers from the products. */
struct tess_matrix_item : tess_forward_item {
    tess_fold fold; /* of the tile's first row */
    int rows;       /* of the tile that exist */
    int is_even;    /* Q, K and V can be read 16 bytes at a time */
    int o_is_even;  /* and O written so */
};

/* Whether all rows lie on multiples of 16 bytes, their numbers side by side. Addresses are known at
 * launch only, so no plan can promise it. */
TESS_DEVICE bool tess_rows_are_even(const tess_rows &rows)
{
    const tess_u64 bytes = static_cast<tess_u64>(tess_element_size(rows.dtype));
    const tess_u64 strides = static_cast<tess_u64>(rows.stride) |
                             static_cast<tess_u64>(rows.head_stride) |
                             static_cast<tess_u64>(rows.page_stride);
    return rows.dim_stride == 1 &&
           (reinterpret_cast<tess_u64>(rows.base) | strides * bytes) % 16 == 0;
}

/* `place` and `sequence` as of tess_forward_item_make(). */
TESS_DEVICE void tess_matrix_item_make(tess_matrix_item &item, tess_item_place &place,
                                       tess_sequence &sequence, const tess_args &args,
                                       const tess_gpu_addresses &to, tess_i64 index,
                                       tess_i64 tile_rows, tess_i64 tile_columns)
{
    tess_forward_item_make(item, place, sequence, args, to, index, tile_rows, tile_columns);
    item.rows = static_cast<int>(tess_max_i64(item.tile.end - item.tile.first, 0));
    if (item.rows == 0) /* and nothing else is known */
        return;
    TESS_SETTLE();
    item.fold = tess_fold_at(item.tile.first, args.group);
    TESS_SETTLE();
    item.is_even =
        tess_rows_are_even(item.q) && tess_rows_are_even(item.k) && tess_rows_are_even(item.v);
    item.o_is_even = tess_rows_are_even(item.o);
}

TESS_DEVICE void tess_matrix_item_at(tess_matrix_item &item, const tess_args &args,
                                     const tess_gpu_addresses &to, tess_i64 index,
                                     tess_i64 tile_rows, tess_i64 tile_columns)
{
    tess_item_place place;
    tess_sequence sequence;

    tess_matrix_item_make(item, place, sequence, args, to, index, tile_rows, tile_columns);
}

#endif
