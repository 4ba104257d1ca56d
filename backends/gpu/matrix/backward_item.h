/* SPDX-License-Identifier: Apache-2.0
 * One work item of a backward matrix kernel: what stays, what streams past, and where it lies. */
#ifndef TESSERA_BACKENDS_GPU_MATRIX_BACKWARD_ITEM_H
#define TESSERA_BACKENDS_GPU_MATRIX_BACKWARD_ITEM_H

#include "backends/gpu/matrix/item.h"
#include "backends/gpu/simt/backward.h"

/* Keys stay (MAIN: a share of the columns, every folded row that sees it streams past) or queries
 * stay (DQ: a tile of folded rows, the columns they see stream past). Keys are rows whose group is
 * 1, so that one way of counting does for both. Tiles of what streams lie on a fixed grid from row
 * or column 0. */
struct tess_matrix_backward_item : tess_backward_item {
    tess_rows out_q, out_k, out_v; /* dQ, or dK and dV; base is NULL where nobody wants one */
    tess_fold fold;                /* of the first row that stays */
    tess_i64 full_first, full_end; /* streamed tiles all of whose pairs are visible */
    tess_i64 index;                /* of the item */
    int rows;                      /* that stay and exist */
    int is_even;                   /* Q, K, V and dO can be read 16 bytes at a time */
    int out_q_is_even, out_k_is_even, out_v_is_even; /* and these written so */
};

/* What does not depend on the side that stays. */
TESS_DEVICE void tess_matrix_finish_item(tess_matrix_backward_item &item)
{
    item.rows = static_cast<int>(tess_max_i64(item.end - item.first, 0));
    item.is_even = tess_rows_are_even(item.q) && tess_rows_are_even(item.k) &&
                   tess_rows_are_even(item.v) && tess_rows_are_even(item.d_o);
    item.out_q_is_even = tess_rows_are_even(item.out_q);
    item.out_k_is_even = tess_rows_are_even(item.out_k);
    item.out_v_is_even = tess_rows_are_even(item.out_v);
}

/* Keys stay; tiles of `streamed` folded rows. */
TESS_DEVICE void tess_matrix_keys_item(tess_matrix_backward_item &item, const tess_args &args,
                                       const tess_gpu_addresses &to, tess_i64 index,
                                       tess_i64 streamed)
{
    item = tess_matrix_backward_item();
    item.index = index;
    static_cast<tess_backward_item &>(item) =
        tess_keys_item_at(args, to, index, item.out_k, item.out_v);
    if (item.first >= item.end)
        return;
    const tess_i64 queries = tess_divide(item.q.count, item.group);
    const tess_i64 all_begin = tess_first_query(item.visible, queries, item.end - 1) * item.group;
    const tess_i64 all_end = tess_end_query(item.visible, queries, item.first + 1) * item.group;

    item.fold = tess_fold_at(item.first, 1);
    item.tile_first = item.seen_first / streamed;
    item.tile_end = item.seen_end > item.seen_first ? (item.seen_end + streamed - 1) / streamed
                                                    : item.tile_first;
    item.full_first = (all_begin + streamed - 1) / streamed;
    item.full_end =
        all_end / streamed; /* not a ragged one: rows that are not there have weight 1 */
    tess_matrix_finish_item(item);
}

/* Queries stay; tiles of `streamed` columns. */
TESS_DEVICE void tess_matrix_queries_item(tess_matrix_backward_item &item, const tess_args &args,
                                          const tess_gpu_addresses &to, tess_i64 index,
                                          tess_i64 streamed)
{
    item = tess_matrix_backward_item();
    item.index = index;
    static_cast<tess_backward_item &>(item) = tess_queries_item_at(args, to, index, item.out_q);
    if (item.first >= item.end)
        return;
    const tess_column_walk walk =
        tess_walk_columns(item.visible, tess_walk_query(item.first, item.group),
                          tess_walk_query(item.end - 1, item.group), streamed, 0, 1);

    item.fold = tess_fold_at(item.first, item.group);
    item.tile_first = walk.first;
    item.tile_end = walk.end;
    item.full_first = walk.full_first;
    item.full_end = walk.full_end;
    tess_matrix_finish_item(item);
}

/* Whether streamed tile number `tile` of the item's has pairs that are not visible. */
TESS_DEVICE bool tess_matrix_is_masked(const tess_matrix_backward_item &item, int tile)
{
    return item.tile_first + tile < item.full_first || item.tile_first + tile >= item.full_end;
}

/* Where a tile of streamed rows lies against the rows that stay. */
struct tess_matrix_facing_tiles {
    tess_i64 streamed; /* its first row or column */
    tess_fold fold;    /* of the first query of the pairs, wherever queries are */
    int own;           /* the wave's first row among those that stay */
};

/* The streamed rows that own row `own` of the block makes a pair with, counted from the tile's
 * first and drawn into 0 ... most. */
struct tess_matrix_seen {
    int first, end;
};

template <bool KEYS_STAY>
TESS_DEVICE tess_matrix_seen tess_matrix_seen_by(const tess_matrix_backward_item &item,
                                                 const tess_matrix_facing_tiles &at, int own,
                                                 int most)
{
    const tess_visible &visible = item.visible;
    tess_i64 first, end;

    if (KEYS_STAY) { /* j is visible to i: j - D - right <= i <= j - D + left */
        const tess_i64 facing = item.first + own - visible.diagonal;
        first = visible.right >= TESS_UNBOUNDED ? 0 : (facing - visible.right) * item.group;
        end = visible.left >= TESS_UNBOUNDED ? item.q.count
                                             : (facing + visible.left + 1) * item.group;
        end = tess_min_i64(end, item.q.count);
    } else {
        const tess_i64 query = tess_fold_query(at.fold, own);
        first = tess_visible_first(visible, query);
        end = tess_visible_end(visible, query);
    }
    const tess_matrix_seen seen = {(int)tess_clamp(first - at.streamed, 0, most),
                                   (int)tess_clamp(end - at.streamed, 0, most)};
    return seen;
}

#endif
