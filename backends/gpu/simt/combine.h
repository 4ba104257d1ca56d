/* SPDX-License-Identifier: Apache-2.0
 * Merging the shares of splits: weights from their LSEs, sums in the order of the splits. */
#ifndef TESSERA_BACKENDS_GPU_SIMT_COMBINE_H
#define TESSERA_BACKENDS_GPU_SIMT_COMBINE_H

#include "backends/gpu/simt/item.h"
#include "backends/gpu/simt/tile.h"

/* The union of one row's parts: the sum of exp(lse - max) over them. */
struct tess_union {
    float max; /* -inf when all are empty */
    float sum;
};

/* exp(lse - max), exactly 0 for a part that is not there. The difference is taken before the
 * factor, so that large LSEs keep their low bits. */
TESS_DEVICE float tess_part_weight(float lse, float max)
{
    return lse == TESS_NEG_INF ? 0.0f : tess_exp2((lse - tess_os_shift(max)) * TESS_LOG2_E);
}

TESS_DEVICE tess_union tess_unite(const float *lses, tess_i64 pitch, tess_i64 splits)
{
    tess_union all = {TESS_NEG_INF, 0.0f};

    TESS_NO_UNROLL
    for (tess_i64 split = 0; split < splits; split++)
        all.max = tess_max(lses[split * pitch], all.max);
    TESS_NO_UNROLL
    for (tess_i64 split = 0; split < splits; split++)
        all.sum += tess_part_weight(lses[split * pitch], all.max);
    return all;
}

/* Four dims of the sum. The first part is not added to 0, which would lose the sign of a -0: one
 * share among empty ones gives the bits it has without the others. */
TESS_DEVICE tess_quad tess_unite_quad(const tess_union &all, const float *lses, tess_i64 pitch,
                                      tess_i64 splits, const tess_rows &parts, tess_i64 row,
                                      tess_i32 dim)
{
    const float inverse = tess_os_inverse(all.sum);
    const tess_i64 at = tess_row_index(parts, row) + dim;
    tess_quad sum = {{0.0f, 0.0f, 0.0f, 0.0f}};
    bool has_part = false;

    TESS_NO_UNROLL
    for (tess_i64 split = 0; split < splits; split++) {
        const float lse = lses[split * pitch];
        if (lse == TESS_NEG_INF) /* an empty share, whatever its O holds */
            continue;
        const float weight = tess_part_weight(lse, all.max) * inverse;
        const tess_quad part = tess_load_quad(parts.base, at + split * pitch * parts.dims, 1,
                                              parts.dims - dim, TESS_F32);
        TESS_UNROLL
        for (int e = 0; e < 4; e++)
            sum.at[e] = has_part ? sum.at[e] + weight * part.at[e] : weight * part.at[e];
        has_part = true;
    }
    return sum;
}

/* The role FORWARD COMBINE: 16 lanes to a row. */
template <int ROWS, int DIMS, int SHARED>
TESS_DEVICE void tess_forward_combine(const tess_args &args, const tess_gpu_addresses &addresses,
                                      const tess_gpu_run &run)
{
    const tess_i64 pitch = tess_all_rows(args) * args.heads_q; /* LSEs of one split */

    static_assert(ROWS == TESS_GRID_ROWS, "a row for every 16 lanes");
    TESS_NO_UNROLL
    for (tess_i64 i = run.first_item + tess_block(); i < run.first_item + run.items;
         i += tess_blocks()) {
        const tess_item_place place = tess_item_place_at(args, i, 1);
        const tess_sequence s = tess_sequence_at(args, addresses, place.sequence);
        const tess_i64 head = place.head_kv * args.group;
        const tess_i64 row =
            tess_walk_row_tile(place.tile, args.row_tiles, s.rows, args.group, args.tile_rows)
                .first +
            tess_own_y();
        tess_forward_item part, user;
        if (row >= s.rows * args.group)
            continue;
        tess_put_to_part(args, addresses, s, head, 0, part);
        tess_put_to_user(args, addresses, s, head, user);
        const float *const lses = part.lse.base + tess_value_index(part.lse, row);
        const tess_union all = tess_unite(lses, pitch, args.splits);
        const tess_i64 at = tess_row_index(user.o, row);
        TESS_NO_UNROLL
        for (tess_i32 dim = tess_own_x() * 4; dim < args.head_dim_v; dim += 4 * TESS_GRID_COLUMNS)
            tess_store_quad(user.o.base, at + dim * user.o.dim_stride, user.o.dim_stride,
                            args.head_dim_v - dim, user.o.dtype,
                            tess_unite_quad(all, lses, pitch, args.splits, part.o, row, dim));
        if (user.lse.base && tess_own_x() == 0)
            user.lse.base[tess_value_index(user.lse, row)] =
                all.sum == 0.0f ? TESS_NEG_INF : all.max + tess_log2(all.sum) * TESS_LN_2;
    }
}

#endif
