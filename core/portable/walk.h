/* SPDX-License-Identifier: Apache-2.0
 * The tile walk: work index to row tile, row tile to column tiles, and which of them need masks. */
#ifndef TESSERA_CORE_PORTABLE_WALK_H
#define TESSERA_CORE_PORTABLE_WALK_H

#include "visible.h"

/* Rows of a tile. The query heads of one key head are folded into the rows, query by query: folded
 * row f is query f / group of head f % group in the group. So K and V are read once for all heads
 * of a group, and short queries fill a tile. */
typedef struct tess_row_tile {
    tess_i64 first, end; /* folded rows */
} tess_row_tile;

TESS_FN tess_i64 tess_walk_row_tiles(tess_i64 rows, tess_i64 group, tess_i64 tile_rows)
{
    return (rows * group + tile_rows - 1) / tile_rows;
}

/* Row tile number `index` of `count` in the order of work: the last tile first, since under a
 * causal mask it sees the most columns and work that starts late should be short. A launch sized by
 * a longer sequence passes that one's count; the tiles this one lacks have end <= first. */
TESS_FN tess_row_tile tess_walk_row_tile(tess_i64 index, tess_i64 count, tess_i64 rows,
                                         tess_i64 group, tess_i64 tile_rows)
{
    tess_row_tile tile;
    tile.first = (count - 1 - index) * tile_rows;
    tile.end = tess_min_i64(tile.first + tile_rows, rows * group);
    return tile;
}

TESS_FN tess_i64 tess_walk_query(tess_i64 folded_row, tess_i64 group)
{
    return folded_row / group;
}
TESS_FN tess_i64 tess_walk_head(tess_i64 folded_row, tess_i64 group)
{
    return folded_row % group;
}

/* Most columns of one backward work item, which keeps their dK and dV in fp32: with 128 dims half a
 * megabyte, a core's own cache. An item's share is this, rounded down to whole tiles: a little more
 * than 512, so that powers of two end in whole shares of 11 tiles of 48. */
#define TESS_SHARE_COLUMNS 528

/* Column tiles of a row tile, in units of tile_columns from column 0. Tiles lie on a fixed grid so
 * that a row's arithmetic does not depend on which rows share its tile. */
typedef struct tess_column_walk {
    tess_i64 first, end;           /* tiles first ... end - 1 hold a visible column of some row */
    tess_i64 full_first, full_end; /* tiles full_first ... full_end - 1 are visible to every row */
} tess_column_walk;

/* The walk of queries query_first ... query_last (inclusive), share `split` of `splits`. Shares are
 * whole tiles, as equal as can be; with more splits than tiles some are empty. */
TESS_FN tess_column_walk tess_walk_columns(tess_visible visible, tess_i64 query_first,
                                           tess_i64 query_last, tess_i64 tile_columns,
                                           tess_i64 split, tess_i64 splits)
{
    tess_column_walk walk;
    const tess_i64 see_first = tess_visible_first(visible, query_first);
    const tess_i64 see_end = tess_visible_end(visible, query_last);
    const tess_i64 all_first = tess_visible_first(visible, query_last);
    const tess_i64 all_end = tess_visible_end(visible, query_first);
    tess_i64 tiles;

    walk.first = see_first / tile_columns;
    walk.end = see_end > see_first ? (see_end + tile_columns - 1) / tile_columns : walk.first;
    tiles = walk.end - walk.first;
    walk.end = walk.first + tiles * (split + 1) / splits;
    walk.first = walk.first + tiles * split / splits;

    /* The ragged last tile is not full even when every row sees all of it: its width differs. */
    walk.full_first = (all_first + tile_columns - 1) / tile_columns;
    walk.full_end = all_end / tile_columns;
    return walk;
}

/* Whether a share of such a row tile takes the sink: the one that holds its first tile of columns,
 * or the first share where there is no tile. Were it always the first share, an empty one, of which
 * there are more in a batch with a longer sequence, would hold the sink alone, and merging it gives
 * other bits than adding it to a tile. */
TESS_FN tess_i32 tess_walk_takes_sink(tess_visible visible, tess_i64 query_first,
                                      tess_i64 query_last, tess_i64 tile_columns, tess_i64 split,
                                      tess_i64 splits)
{
    const tess_column_walk all =
        tess_walk_columns(visible, query_first, query_last, tile_columns, 0, 1);
    const tess_column_walk share =
        tess_walk_columns(visible, query_first, query_last, tile_columns, split, splits);

    if (all.end == all.first)
        return split == 0;
    return share.first == all.first && share.end > share.first;
}

/* Whether tile needs its columns tested row by row. */
TESS_FN tess_i32 tess_walk_is_masked(tess_column_walk walk, tess_i64 tile)
{
    return tile < walk.full_first || tile >= walk.full_end;
}

#endif
