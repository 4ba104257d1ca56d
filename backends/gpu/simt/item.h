/* SPDX-License-Identifier: Apache-2.0
 * What one work item of the forward pass is: which rows, which columns, which addresses. */
#ifndef TESSERA_BACKENDS_GPU_SIMT_ITEM_H
#define TESSERA_BACKENDS_GPU_SIMT_ITEM_H

#include "backends/gpu/simt/score.h"

/* Puts what is known into memory before more is found out: for warps that have few registers, whose
 * kernels define it. */
#ifndef TESS_SETTLE
#define TESS_SETTLE() ((void)0)
#endif

/* The numbers in an item's index, as backends/gpu/kernels.h says. */
struct tess_item_place {
    tess_i64 sequence, head_kv, tile, split;
};

struct tess_forward_item {
    tess_rows q, k, v;
    tess_rows o; /* the caller's tensor, or this split's part in the workspace */
    tess_row_values lse;
    tess_scoring scoring;
    tess_visible visible;
    tess_row_tile tile;
    tess_column_walk walk;
    tess_i64 share_first, share_end; /* the walk in columns, and no more than some row sees */
    tess_i64 group;
    const float *sink; /* first head of the group; NULL: none, or another share has it */
    tess_i64 sink_stride;
};

TESS_DEVICE tess_item_place tess_item_place_at(const tess_args &args, tess_i64 item,
                                               tess_i64 splits)
{
    tess_item_place place;
    const tess_i64 tiles = tess_divide(item, splits);
    const tess_i64 heads = tess_divide(tiles, args.row_tiles);

    place.split = item - tiles * splits;
    place.tile = tiles - heads * args.row_tiles;
    place.sequence = tess_divide(heads, args.heads_kv);
    place.head_kv = heads - place.sequence * args.heads_kv;
    return place;
}

TESS_DEVICE float tess_sink_of(const tess_forward_item &item, tess_i64 row)
{
    return item.sink[tess_walk_head(row, item.group) * item.sink_stride];
}

/* O and LSE of the caller. */
TESS_DEVICE void tess_put_to_user(const tess_args &args, const tess_gpu_addresses &to,
                                  const tess_sequence &s, tess_i64 head, tess_forward_item &item)
{
    item.o = tess_query_rows(to.at[TESS_AT_O], args.o_stride, args.head_dim_v, args.o_dtype, s,
                             head, args.group);
    item.lse = tess_user_values(args, to.at[TESS_AT_LSE], s, head, args.group);
}

/* The part of one split in the workspace: fp32, [split][row][head][dim]. */
TESS_DEVICE void tess_put_to_part(const tess_args &args, const tess_gpu_addresses &to,
                                  const tess_sequence &s, tess_i64 head, tess_i64 split,
                                  tess_forward_item &item)
{
    const tess_i64 row = split * tess_all_rows(args) + tess_first_row(args, s);

    item.lse = tess_work_values(args, to, args.partial_lse, row, head, args.group);
    item.o = tess_rows();
    item.o.base = static_cast<char *>(to.at[TESS_AT_WORKSPACE]) + args.partial_o +
                  (row * args.heads_q + head) * args.head_dim_v * 4;
    item.o.stride = args.heads_q * args.head_dim_v;
    item.o.head_stride = args.head_dim_v;
    item.o.dim_stride = 1;
    item.o.group = args.group;
    item.o.count = s.rows * args.group;
    item.o.dims = args.head_dim_v;
    item.o.dtype = TESS_F32;
}

/* Makes an item where it is kept: of one that is made elsewhere and copied, the padding would be
 * copied too. Only `tile` is set where a longer sequence has this tile, whose end then is not
 * behind its first row.
 *
 * `place` and `s` are the caller's, who may keep them in shared memory too. */
TESS_DEVICE void tess_forward_item_make(tess_forward_item &item, tess_item_place &place,
                                        tess_sequence &s, const tess_args &args,
                                        const tess_gpu_addresses &to, tess_i64 index,
                                        tess_i64 tile_rows, tess_i64 tile_columns)
{
    place = tess_item_place_at(args, index, args.splits);
    TESS_SETTLE();
    s = tess_sequence_at(args, to, place.sequence);
    TESS_SETTLE();
    item.tile = tess_walk_row_tile(place.tile, args.row_tiles, s.rows, args.group, tile_rows);
    if (item.tile.first >= item.tile.end)
        return;
    TESS_SETTLE();
    item.group = args.group;
    item.q = tess_query_rows(to.at[TESS_AT_Q], args.q_stride, args.head_dim, args.dtype, s,
                             place.head_kv * args.group, args.group);
    TESS_SETTLE();
    item.k = tess_key_rows(args, to, to.at[TESS_AT_K], args.k_stride, args.head_dim, args.dtype, s,
                           place.head_kv);
    TESS_SETTLE();
    item.v = tess_key_rows(args, to, to.at[TESS_AT_V], args.v_stride, args.head_dim_v, args.dtype,
                           s, place.head_kv);
    TESS_SETTLE();
    item.scoring = tess_scoring_of(args, to, s, place.head_kv * args.group);
    TESS_SETTLE();
    item.visible = tess_visible_of(args, s);
    const tess_i64 query_first = tess_divide(item.tile.first, args.group);
    const tess_i64 query_last = tess_divide(item.tile.end - 1, args.group);
    TESS_SETTLE();
    item.walk = tess_walk_columns(item.visible, query_first, query_last, tile_columns, place.split,
                                  args.splits);
    TESS_SETTLE();
    item.share_first =
        tess_max_i64(item.walk.first * tile_columns, tess_visible_first(item.visible, query_first));
    item.share_end =
        tess_min_i64(item.walk.end * tile_columns, tess_visible_end(item.visible, query_last));
    TESS_SETTLE();
    if (args.splits > 1)
        tess_put_to_part(args, to, s, place.head_kv * args.group, place.split, item);
    else
        tess_put_to_user(args, to, s, place.head_kv * args.group, item);
    TESS_SETTLE();
    item.sink_stride = args.sink_stride;
    item.sink = NULL;
    if ((args.bias & TESS_BIAS_SINK) &&
        tess_walk_takes_sink(item.visible, query_first, query_last, tile_columns, place.split,
                             args.splits))
        item.sink = static_cast<const float *>(to.at[TESS_AT_SINK]) +
                    place.head_kv * args.group * args.sink_stride;
}

TESS_DEVICE void tess_forward_item_at(tess_forward_item &item, const tess_args &args,
                                      const tess_gpu_addresses &to, tess_i64 index)
{
    tess_item_place place;
    tess_sequence sequence;

    tess_forward_item_make(item, place, sequence, args, to, index, args.tile_rows,
                           args.tile_columns);
}

#endif
