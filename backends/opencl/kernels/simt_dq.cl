/* SPDX-License-Identifier: Apache-2.0
 * dQ on plain cores: a tile of folded rows stays, the columns that it sees stream past. */
#define TESS_STAY TESS_CL_ROWS
#define TESS_STREAM TESS_CL_COLUMNS
#define TESS_QUERIES_STAY
#include "pairs.h"

/* By one work-item. */
TESS_FN void tess_take_rows(tess_args_at args, const tess_addresses *to, tess_i64 index,
                            __local tess_backward_memory *memory)
{
    const tess_item_place place = tess_item_place_at(args, index, 1);
    const tess_sequence s = tess_sequence_at(args, to, place.sequence);
    const tess_i64 head = place.head_kv * args->group;
    const tess_row_tile tile =
        tess_walk_row_tile(place.tile, args->row_tiles, s.rows, args->group, args->tile_rows);

    memory->item = tess_take_queries(tess_backward_item_of(args, to, s, head, args->group),
                                     tile.first, tile.end);
    memory->to[0] = tess_query_rows(to->at[TESS_AT_DQ], args->dq_stride, args->head_dim,
                                    args->dq_dtype, s, head, args->group);
}

TESS_FN void tess_queries_tile(tess_args_at args, __local tess_backward_memory *memory)
{
    __local const tess_backward_item *const item = &memory->item;
    float4 sums[1][TESS_ROWS_EACH][TESS_QUADS_EACH];

    tess_keep_pairs(memory);
    tess_clear(sums[0]);
    TESS_NO_UNROLL
    for (tess_i64 tile = item->tile_first; tile < item->tile_end; tile++) {
        const tess_i64 column = tile * TESS_STREAM;
        tess_pair_tile(column, 0, memory);
        tess_sums(sums[0], memory->weights[1], tess_stream_at(memory, 0), item->seen_end - column,
                  memory->stage);
    }
    TESS_BARRIER(); /* marks are there even when no tile was */
    tess_put_gradients(sums, memory);
    if ((args->flags & TESS_ALLOW_NONFINITE_SPREAD) == 0)
        tess_backward_exact(memory, (__local float *)memory->stage);
}

/* The role BACKWARD DQ. */
TESS_CL_KERNEL(TESS_CL_BACKWARD_PARAMETERS)
{
    __local tess_backward_memory memory;
    TESS_CL_BACKWARD_ADDRESSES(to);

    TESS_CL_FOR_ITEMS(i)
    {
        if (tess_thread() == 0)
            tess_take_rows(args, &to, i, &memory);
        TESS_BARRIER(); /* the item is there */
        if (memory.item.first < memory.item.end)
            tess_queries_tile(args, &memory);
        TESS_BARRIER(); /* before the next item writes where this one reads */
    }
}
