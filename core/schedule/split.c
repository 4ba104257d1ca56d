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

/* Rounds that the units need for so many items, in shares of one item. */
static int64_t shares_in_turn(int64_t items, int64_t splits, int32_t units)
{
    return (items * splits + units - 1) / units;
}

int64_t tess_split_even(int64_t items, int64_t columns, int64_t tile, int32_t units)
{
    enum { MANY = 8, MORE = 8 }; /* items per unit that balance anyway; shares that are tried */
    const int64_t fewest = tess_split_choose(items, columns, tile, units);
    const int64_t tiles = (columns + tile - 1) / tile;
    int64_t best = fewest;

    if (units <= 1 || items <= 0 || items >= MANY * (int64_t)units)
        return fewest;
    for (int64_t splits = fewest; splits < fewest + MORE; splits++) {
        const int64_t turns = shares_in_turn(items, splits, units);
        if (splits > fewest && (splits > tiles / TESS_SPLIT_TILES || splits > TESS_SPLIT_MOST))
            break;
        if (10 * items * splits >= 9 * turns * units)
            return splits;
        if (turns * best < shares_in_turn(items, best, units) * splits)
            best = splits;
    }
    return best;
}
