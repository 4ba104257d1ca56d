/* SPDX-License-Identifier: Apache-2.0
 * dK and dV on plain cores: a tile of keys stays, the rows that see it stream past. */
#define TESS_STAY TESS_CL_COLUMNS
#define TESS_STREAM TESS_CL_ROWS
#define TESS_KEYS_STAY
#include "pairs.h"

/* First query whose visible columns end behind `column`. They grow with the query. */
TESS_FN tess_i64 tess_first_query(tess_visible visible, tess_i64 queries, tess_i64 column)
{
    tess_i64 low = 0, high = queries;

    while (low < high) {
        const tess_i64 middle = (low + high) / 2;
        if (tess_visible_end(visible, middle) > column)
            high = middle;
        else
            low = middle + 1;
    }
    return low;
}

/* One past the last query whose visible columns begin before `end`. */
TESS_FN tess_i64 tess_end_query(tess_visible visible, tess_i64 queries, tess_i64 end)
{
    tess_i64 low = 0, high = queries;

    while (low < high) {
        const tess_i64 middle = (low + high) / 2;
        if (tess_visible_first(visible, middle) < end)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* By one work-item. */
TESS_FN void tess_take_keys(tess_args_at args, const tess_addresses *to, tess_i64 index,
                            __local tess_backward_memory *memory)
{
    const tess_i64 shares =
        tess_max_i64(tess_divide(args->columns + args->share_columns - 1, args->share_columns), 1);
    const tess_i64 heads = tess_divide(index, shares);
    const tess_i64 sequence = tess_divide(heads, args->heads_kv);
    const tess_i64 head_kv = heads - sequence * args->heads_kv;
    tess_backward_item item;
    tess_sequence s;
    tess_i64 begin, end;

    memory->item.first = memory->item.end = 0;
    if (heads >= args->sequences * args->heads_kv) /* a plan has an item even when there is none */
        return;
    s = tess_sequence_at(args, to, sequence);
    item = tess_backward_item_of(args, to, s, head_kv * args->group, args->group);
    item.first = (index - heads * shares) * args->share_columns;
    item.end = tess_min_i64(item.first + args->share_columns, s.columns);
    begin = tess_first_query(item.visible, s.rows, item.first) * args->group;
    end = tess_end_query(item.visible, s.rows, item.end) * args->group;
    item.seen_first = begin;
    item.seen_end = tess_max_i64(end, begin);
    item.tile_first = begin / TESS_STREAM;
    item.tile_end = end > begin ? (end + TESS_STREAM - 1) / TESS_STREAM : item.tile_first;
    memory->item = item;
    memory->to[0] = tess_key_rows(args, to, to->at[TESS_AT_DK], args->dk_stride, args->head_dim,
                                  args->dk_dtype, s, head_kv);
    memory->to[1] = tess_key_rows(args, to, to->at[TESS_AT_DV], args->dv_stride, args->head_dim_v,
                                  args->dv_dtype, s, head_kv);
}

TESS_FN void tess_keys_tile(tess_args_at args, __local tess_backward_memory *memory)
{
    __local const tess_backward_item *const item = &memory->item;
    float4 sums[2][TESS_ROWS_EACH][TESS_QUADS_EACH]; /* dK, dV */

    tess_keep_pairs(memory);
    tess_clear(sums[0]);
    tess_clear(sums[1]);
    TESS_NO_UNROLL
    for (tess_i64 tile = item->tile_first; tile < item->tile_end; tile++) {
        const tess_i64 row = tile * TESS_STREAM;
        tess_pair_tile(row, 0, memory);
        TESS_UNROLL
        for (int which = 0; which < 2; which++)
            tess_sums(sums[which], memory->weights[1 - which], tess_stream_at(memory, which),
                      item->seen_end - row, memory->stage);
    }
    TESS_BARRIER(); /* marks are there even when no tile was */
    tess_put_gradients(sums, memory);
    if ((args->flags & TESS_ALLOW_NONFINITE_SPREAD) == 0)
        tess_backward_exact(memory, (__local float *)memory->stage);
}

/* The role BACKWARD MAIN. */
TESS_CL_KERNEL(TESS_CL_BACKWARD_PARAMETERS)
{
    __local tess_backward_memory memory;
    TESS_CL_BACKWARD_ADDRESSES(to);

    TESS_CL_FOR_ITEMS(i)
    {
        if (tess_thread() == 0)
            tess_take_keys(args, &to, i, &memory);
        TESS_BARRIER(); /* the item is there */
        if (memory.item.first < memory.item.end)
            tess_keys_tile(args, &memory);
        TESS_BARRIER(); /* before the next item writes where this one reads */
    }
}
