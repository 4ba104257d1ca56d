/* SPDX-License-Identifier: Apache-2.0
 * The tile map of one sequence and key head: which tiles of the score matrix a plan visits, which
 * of them need masks, and in what order. Computed with the functions the kernels themselves run. */
#ifndef TESSERA_TOOLS_TILES_H
#define TESSERA_TOOLS_TILES_H

#include "core/portable/walk.h"
#include "core/schedule/problem_text.h"
#include "core/schedule/schedule.h"

#include <stdint.h>

typedef enum tool_tile { TOOL_TILE_SKIPPED, TOOL_TILE_MASKED, TOOL_TILE_FULL } tool_tile;

typedef struct tool_tiles {
    int64_t sequence, rows, columns, group;
    int64_t tile_rows, tile_columns, splits;
    int64_t row_tiles, column_tiles; /* extents of the map */
    tess_visible visible;
    int64_t skipped, masked, full; /* they add up to row_tiles x column_tiles */
} tool_tiles;

/* The map of a sequence under a schedule. */
void tool_tiles_make(const tess_schedule *schedule, const tess_line *line, int64_t sequence,
                     tool_tiles *out);

/* Folded rows of row tile `place`, counted from the top of the matrix. */
tess_row_tile tool_tiles_rows(const tool_tiles *tiles, int64_t place);

/* The walk of share `split` of row tile `place`. */
tess_column_walk tool_tiles_walk(const tool_tiles *tiles, int64_t place, int64_t split);

/* What a tile is. When it is visited, which share of its row tile visits it and the how-many-eth
 * of this sequence and key head it is, counted from 1 in the order work is handed out. */
tool_tile tool_tiles_at(const tool_tiles *tiles, int64_t place, int64_t column_tile,
                        int64_t *out_split, int64_t *out_order);

/* Work item of a row tile's share: the order in which workers take them, counted from 0. */
static inline int64_t tool_tiles_item(const tool_tiles *tiles, int64_t place, int64_t split)
{
    return (tiles->row_tiles - 1 - place) * tiles->splits + split;
}

/* The map scaled down so that neither side has more than `most` cells. A cell stands for `scale` x
 * `scale` tiles and is full or skipped only when all of them are. */
int64_t tool_tiles_scale(const tool_tiles *tiles, int64_t most);
tool_tile tool_tiles_cell(const tool_tiles *tiles, int64_t scale, int64_t row, int64_t column);

/* Tiles of every sequence and key head together. */
typedef struct tool_tile_totals {
    double skipped, masked, full;
} tool_tile_totals;

tool_tile_totals tool_tiles_total(const tess_schedule *schedule, const tess_line *line);

#endif
