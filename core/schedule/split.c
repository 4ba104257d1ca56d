/* SPDX-License-Identifier: Apache-2.0
 * How many ways to split the columns so that few rows still fill the device. */
#include "core/schedule/split.h"

int64_t tess_split_choose(int64_t items, int64_t columns, int64_t tile, int32_t units)
{
    const int64_t wanted_items = 2 * (int64_t)units;
    const int64_t tiles = (columns + tile - 1) / tile;
    int64_t splits;

    if (units <= 1 || items <= 0 || items >= units)
        return 1;
    splits = (wanted_items + items - 1) / items;
    if (splits > tiles / TESS_SPLIT_TILES)
        splits = tiles / TESS_SPLIT_TILES;
    if (splits > TESS_SPLIT_MOST)
        splits = TESS_SPLIT_MOST;
    return splits < 1 ? 1 : splits;
}
