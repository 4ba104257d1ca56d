/* SPDX-License-Identifier: Apache-2.0
 * Gradients of what is added to scores: sums over tiles of pairs, every element with one owner. */
#ifndef TESSERA_BACKENDS_OPENCL_KERNELS_REDUCE_H
#define TESSERA_BACKENDS_OPENCL_KERNELS_REDUCE_H

#define TESS_STAY TESS_CL_ROWS
#define TESS_STREAM TESS_CL_COLUMNS
#define TESS_QUERIES_STAY
#include "pairs.h"

/* Part `first ... end - 1` of an axis. */
typedef struct tess_range {
    tess_i64 first, end;
} tess_range;

TESS_FN tess_range tess_range_from(tess_i64 first, tess_i64 end)
{
    tess_range range;

    range.first = first;
    range.end = end;
    return range;
}

/* Step `index` of an axis, or all of it where it is summed over. */
TESS_FN tess_range tess_range_of(tess_i64 stride, tess_i64 index, tess_i64 extent)
{
    return stride ? tess_range_from(index, index + 1) : tess_range_from(0, extent);
}

/* Everything one element of dbias, or of dslope, sums over. */
typedef struct tess_summed {
    tess_range sequences, heads, row_tiles, column_tiles;
} tess_summed;

/* What a kernel adds of a tile, by its own tess_add_tile(). */
#ifdef TESS_ADD_SLOPE
#define TESS_ADDED 1
#else
#define TESS_ADDED (TESS_ROWS_EACH * TESS_COLUMNS_EACH)
#endif

TESS_FN void tess_add_tile(float sums[TESS_ADDED], __local const tess_backward_item *item,
                           tess_i64 column, __local const float *grads);

/* Tiles of gradients of scores over all that `over` names. */
TESS_FN void tess_sum_tiles(tess_args_at args, const tess_addresses *to, tess_summed over,
                            __local tess_backward_memory *memory, float sums[TESS_ADDED])
{
    __local const tess_backward_item *const item = &memory->item;

    TESS_NO_UNROLL
    for (tess_i64 sequence = over.sequences.first; sequence < over.sequences.end; sequence++) {
        TESS_NO_UNROLL
        for (tess_i64 head = over.heads.first; head < over.heads.end; head++) {
            TESS_NO_UNROLL
            for (tess_i64 tile = over.row_tiles.first; tile < over.row_tiles.end; tile++) {
                tess_i64 first, end;

                TESS_BARRIER(); /* nobody reads the tile before */
                if (tess_thread() == 0) {
                    const tess_sequence s = tess_sequence_at(args, to, sequence);
                    memory->item = tess_take_queries(tess_backward_item_of(args, to, s, head, 1),
                                                     tile * TESS_STAY,
                                                     tess_min_i64((tile + 1) * TESS_STAY, s.rows));
                }
                TESS_BARRIER(); /* the item is there */
                tess_keep_pairs(memory);
                /* Of a tile that a longer sequence has, no column is seen. */
                first = tess_max_i64(item->tile_first, over.column_tiles.first);
                end = tess_min_i64(item->tile_end, over.column_tiles.end);
                TESS_NO_UNROLL
                for (tess_i64 at = first; at < end; at++) {
                    tess_pair_tile(at * TESS_STREAM, 1, memory);
                    tess_add_tile(sums, item, at * TESS_STREAM, memory->weights[1]);
                }
            }
        }
    }
    TESS_BARRIER(); /* the last tile is read */
}

#endif
