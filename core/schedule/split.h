/* SPDX-License-Identifier: Apache-2.0
 * How many ways to split the columns so that few rows still fill the device. */
#ifndef TESSERA_CORE_SCHEDULE_SPLIT_H
#define TESSERA_CORE_SCHEDULE_SPLIT_H

#include <stdint.h>

/* items    work items without a split
 * columns  of the longest sequence
 * tile     columns of one tile
 * units    of the device
 *
 * 1 as soon as the items fill the device. Otherwise enough for two items per unit, but no share
 * below TESS_SPLIT_TILES tiles: merging costs a pass over the partial results. */
int64_t tess_split_choose(int64_t items, int64_t columns, int64_t tile, int32_t units);

/* The same where the units are a few threads and the rows so few that merging costs nothing, a
 * decode step: never fewer shares, and more where the last items would leave a tenth of the units
 * without work: 3 items on 2 threads take as long as 4. */
int64_t tess_split_even(int64_t items, int64_t columns, int64_t tile, int32_t units);

enum { TESS_SPLIT_TILES = 8, TESS_SPLIT_MOST = 128 };

#endif
