/* SPDX-License-Identifier: Apache-2.0
 * Merging parts, a plan's own splits or the caller's: weights from their LSEs, sums in their order.
 */
#ifndef TESSERA_BACKENDS_GPU_SIMT_COMBINE_H
#define TESSERA_BACKENDS_GPU_SIMT_COMBINE_H

#include "backends/gpu/simt/item.h"
#include "backends/gpu/simt/tile.h"

/* What the parts of one row are. */
struct tess_parts {
    const char *o;               /* dim 0 in the first part */
    const float *lses;           /* in the first part */
    tess_i64 o_pitch, lse_pitch; /* elements from one part to the next */
    tess_i64 count, dim_stride;
    tess_i32 dims, dtype;
};

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

TESS_DEVICE tess_union tess_unite(const tess_parts &parts)
{
    tess_union all = {TESS_NEG_INF, 0.0f};

    TESS_NO_UNROLL
    for (tess_i64 part = 0; part < parts.count; part++)
        all.max = tess_max(parts.lses[part * parts.lse_pitch], all.max);
    TESS_NO_UNROLL
    for (tess_i64 part = 0; part < parts.count; part++)
        all.sum += tess_part_weight(parts.lses[part * parts.lse_pitch], all.max);
    return all;
}

/* Four dims of the sum. The first part is not added to 0, which would lose the sign of a -0: one
 * share among empty ones gives the bits it has without the others. */
TESS_DEVICE tess_quad tess_unite_quad(const tess_union &all, const tess_parts &parts, tess_i64 dim)
{
    const float inverse = tess_os_inverse(all.sum);
    const tess_i32 count = static_cast<tess_i32>(parts.dims - dim);
    tess_quad sum = {{0.0f, 0.0f, 0.0f, 0.0f}};
    bool has_part = false;

    TESS_NO_UNROLL
    for (tess_i64 part = 0; part < parts.count; part++) {
        const float lse = parts.lses[part * parts.lse_pitch];
        if (lse == TESS_NEG_INF) /* an empty part, whatever its O holds */
            continue;
        const float weight = tess_part_weight(lse, all.max) * inverse;
        const tess_quad quad =
            tess_load_quad(parts.o, part * parts.o_pitch + dim * parts.dim_stride, parts.dim_stride,
                           count, parts.dtype);
        TESS_UNROLL
        for (int e = 0; e < 4; e++)
            sum.at[e] = has_part ? sum.at[e] + weight * quad.at[e] : weight * quad.at[e];
        has_part = true;
    }
    return sum;
}

/* One row by 16 lanes: O to element `at` of o, and LSE, where it is wanted. */
TESS_DEVICE void tess_put_union(const tess_parts &parts, char *o, tess_i64 at, tess_i64 dim_stride,
                                tess_i32 dtype, float *lse)
{
    const tess_union all = tess_unite(parts);

    TESS_NO_UNROLL
    for (tess_i64 dim = tess_own_x() * 4; dim < parts.dims; dim += 4 * TESS_GRID_COLUMNS)
        tess_store_quad(o, at + dim * dim_stride, dim_stride,
                        static_cast<tess_i32>(parts.dims - dim), dtype,
                        tess_unite_quad(all, parts, dim));
    if (lse && tess_own_x() == 0)
        *lse = all.sum == 0.0f ? TESS_NEG_INF : all.max + tess_log2(all.sum) * TESS_LN_2;
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
        const tess_parts parts = {part.o.base + 4 * tess_row_index(part.o, row),
                                  part.lse.base + tess_value_index(part.lse, row),
                                  pitch * args.head_dim_v,
                                  pitch,
                                  args.splits,
                                  1,
                                  args.head_dim_v,
                                  TESS_F32};
        tess_put_union(parts, user.o.base, tess_row_index(user.o, row), user.o.dim_stride,
                       user.o.dtype,
                       user.lse.base ? user.lse.base + tess_value_index(user.lse, row) : NULL);
    }
}

/* The role FORWARD MERGE: likewise. */
template <int ROWS, int DIMS, int SHARED>
TESS_DEVICE void tess_forward_merge(const tess_args &args, const tess_gpu_addresses &addresses,
                                    const tess_gpu_run &run)
{
    const tess_i64 count = args.sequences * args.rows * args.heads_q;
    const tess_i64 *const op = args.q_stride, *const lp = args.k_stride;
    const tess_i64 *const o = args.o_stride, *const l = args.lse_stride;
    float *const lse = static_cast<float *>(addresses.at[TESS_AT_LSE]);

    static_assert(ROWS == TESS_GRID_ROWS, "a row for every 16 lanes");
    TESS_NO_UNROLL
    for (tess_i64 i = run.first_item + tess_block(); i < run.first_item + run.items;
         i += tess_blocks()) {
        const tess_i64 index = i * ROWS + tess_own_y();
        if (index >= count)
            continue;
        const tess_i64 query = tess_divide(index, args.heads_q);
        const tess_i64 head = index - query * args.heads_q;
        const tess_i64 batch = tess_divide(query, args.rows), row = query - batch * args.rows;
        const tess_parts parts = {static_cast<const char *>(addresses.at[TESS_AT_Q]) +
                                      (batch * op[0] + row * op[1] + head * op[2]) *
                                          tess_element_size(args.dtype),
                                  static_cast<const float *>(addresses.at[TESS_AT_K]) +
                                      batch * lp[0] + row * lp[1] + head * lp[2],
                                  args.partial_o,
                                  args.partial_lse,
                                  args.splits,
                                  op[3],
                                  args.head_dim_v,
                                  args.dtype};
        tess_put_union(parts, static_cast<char *>(addresses.at[TESS_AT_O]),
                       batch * o[0] + row * o[1] + head * o[2], o[3], args.o_dtype,
                       lse ? lse + batch * l[0] + row * l[1] + head * l[2] : NULL);
    }
}

#endif
