/* SPDX-License-Identifier: Apache-2.0
 * The tile map of one sequence and key head. */
#include "tools/tiles.h"

#include "tests/kit/shape.h"

#include <string.h>

tess_row_tile tool_tiles_rows(const tool_tiles *tiles, int64_t place)
{
    return tess_walk_row_tile(tiles->row_tiles - 1 - place, tiles->row_tiles, tiles->rows,
                              tiles->group, tiles->tile_rows);
}

tess_column_walk tool_tiles_walk(const tool_tiles *tiles, int64_t place, int64_t split)
{
    const tess_row_tile tile = tool_tiles_rows(tiles, place);

    return tess_walk_columns(tiles->visible, tess_walk_query(tile.first, tiles->group),
                             tess_walk_query(tile.end - 1, tiles->group), tiles->tile_columns,
                             split, tiles->splits);
}

/* The walk of a row tile, all shares together. */
static tess_column_walk whole_walk(const tool_tiles *tiles, int64_t place)
{
    const tess_row_tile rows = tool_tiles_rows(tiles, place);

    return tess_walk_columns(tiles->visible, tess_walk_query(rows.first, tiles->group),
                             tess_walk_query(rows.end - 1, tiles->group), tiles->tile_columns, 0,
                             1);
}

/* Tiles a row tile visits, all shares together. */
static int64_t visited(const tool_tiles *tiles, int64_t place, int64_t *out_full)
{
    const tess_column_walk walk = whole_walk(tiles, place);
    const int64_t full =
        tess_min_i64(walk.full_end, walk.end) - tess_max_i64(walk.full_first, walk.first);

    *out_full = tess_max_i64(full, 0);
    return walk.end - walk.first;
}

static void make(const tess_schedule *schedule, int64_t rows, int64_t columns, tool_tiles *out)
{
    const tess_args *args = &schedule->args;

    memset(out, 0, sizeof *out);
    out->rows = rows;
    out->columns = columns;
    out->group = args->group > 0 ? args->group : 1;
    out->tile_rows = args->tile_rows;
    out->tile_columns = args->tile_columns;
    out->splits = args->splits > 0 ? args->splits : 1;
    out->row_tiles = tess_walk_row_tiles(rows, out->group, out->tile_rows);
    out->column_tiles = (columns + out->tile_columns - 1) / out->tile_columns;
    out->visible = tess_visible_make(
        rows, columns, (args->mask & TESS_MASK_CAUSAL) != 0, (args->mask & TESS_MASK_TOP_LEFT) != 0,
        (args->mask & TESS_MASK_WINDOW) != 0, args->window_left, args->window_right);
    for (int64_t place = 0; place < out->row_tiles; place++) {
        int64_t full;
        const int64_t seen = visited(out, place, &full);

        out->full += full;
        out->masked += seen - full;
        out->skipped += out->column_tiles - seen;
    }
}

void tool_tiles_make(const tess_schedule *schedule, const tess_line *line, int64_t sequence,
                     tool_tiles *out)
{
    make(schedule, tess_shape_used_rows(line, sequence), tess_shape_used_columns(line, sequence),
         out);
    out->sequence = sequence;
}

tool_tile tool_tiles_at(const tool_tiles *tiles, int64_t place, int64_t column_tile,
                        int64_t *out_split, int64_t *out_order)
{
    int64_t order = 0, full;

    /* Row tiles are handed out from the bottom; within one, share after share. */
    for (int64_t below = place + 1; below < tiles->row_tiles; below++)
        order += visited(tiles, below, &full);
    for (int64_t split = 0; split < tiles->splits; split++) {
        const tess_column_walk walk = tool_tiles_walk(tiles, place, split);

        if (column_tile >= walk.first && column_tile < walk.end) {
            *out_split = split;
            *out_order = order + column_tile - walk.first + 1;
            return tess_walk_is_masked(walk, column_tile) ? TOOL_TILE_MASKED : TOOL_TILE_FULL;
        }
        order += walk.end - walk.first;
    }
    *out_split = *out_order = 0;
    return TOOL_TILE_SKIPPED;
}

int64_t tool_tiles_scale(const tool_tiles *tiles, int64_t most)
{
    const int64_t longest = tess_max_i64(tiles->row_tiles, tiles->column_tiles);

    return longest > most ? (longest + most - 1) / most : 1;
}

tool_tile tool_tiles_cell(const tool_tiles *tiles, int64_t scale, int64_t row, int64_t column)
{
    const int64_t first_place = row * scale;
    const int64_t last_place = tess_min_i64(first_place + scale, tiles->row_tiles) - 1;
    const int64_t first = column * scale;
    const int64_t last = tess_min_i64(first + scale, tiles->column_tiles) - 1;
    const tess_column_walk top = whole_walk(tiles, first_place);
    const tess_column_walk bottom = whole_walk(tiles, last_place);
    int64_t low = first_place, high = last_place;
    tess_column_walk reached;

    /* Both ends of what a row tile visits, and of what is full of it, grow downwards. So the cell
     * is full when its top sees its right edge and its bottom its left edge. */
    if (first >= tess_max_i64(bottom.first, bottom.full_first) &&
        last < tess_min_i64(top.end, top.full_end))
        return TOOL_TILE_FULL;
    /* The first row tile that reaches the cell from the left is the one to have begun there. */
    while (low < high) {
        const int64_t middle = low + (high - low) / 2;

        if (whole_walk(tiles, middle).end > first)
            high = middle;
        else
            low = middle + 1;
    }
    reached = whole_walk(tiles, low);
    /* Below the last row that sees anything the walks are empty and lie at the right edge. */
    return reached.end > tess_max_i64(first, reached.first) && reached.first <= last
               ? TOOL_TILE_MASKED
               : TOOL_TILE_SKIPPED;
}

/* Sequences from `first` on that have the same lengths in every list. */
static int64_t same_from(const tess_line *line, int64_t first)
{
    const tess_lengths *const lists[] = {&line->lens_q, &line->lens_k, &line->used_q,
                                         &line->used_k};
    int64_t same = line->batch - first;

    for (int i = 0; i < 4; i++) {
        int64_t end = 0;

        if (!lists[i]->runs)
            continue;
        for (int32_t run = 0; run < lists[i]->runs && end <= first; run++)
            end += lists[i]->count[run];
        same = tess_min_i64(same, end - first);
    }
    return tess_max_i64(same, 1);
}

tool_tile_totals tool_tiles_total(const tess_schedule *schedule, const tess_line *line)
{
    tool_tile_totals total = {0, 0, 0};
    int64_t count;

    for (int64_t sequence = 0; sequence < line->batch; sequence += count) {
        tool_tiles tiles;
        double times;

        count = same_from(line, sequence);
        times = (double)count * (double)line->heads_kv;
        make(schedule, tess_shape_used_rows(line, sequence),
             tess_shape_used_columns(line, sequence), &tiles);
        total.skipped += times * (double)tiles.skipped;
        total.masked += times * (double)tiles.masked;
        total.full += times * (double)tiles.full;
    }
    return total;
}
