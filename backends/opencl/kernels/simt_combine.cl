/* SPDX-License-Identifier: Apache-2.0
 * Merging the shares of splits: weights from their LSEs, sums in the order of the splits. */
#include "item.h"

/* TESS_CL_ROWS rows of TESS_CL_GROUP / TESS_CL_ROWS lanes each. */
#define TESS_LANES (TESS_CL_GROUP / TESS_CL_ROWS)

/* The union of one row's parts: the sum of exp(lse - max) over them. */
typedef struct tess_union {
    float max; /* -inf when all are empty */
    float sum;
} tess_union;

/* exp(lse - max), exactly 0 for a part that is not there. The difference is taken before the
 * factor, so that large LSEs keep their low bits. */
TESS_FN float tess_part_weight(float lse, float max_lse)
{
    return lse == TESS_NEG_INF ? 0.0f : tess_exp2((lse - tess_os_shift(max_lse)) * TESS_LOG2_E);
}

TESS_FN tess_union tess_unite(__global const float *lses, tess_i64 pitch, tess_i64 splits)
{
    tess_union all;

    all.max = TESS_NEG_INF;
    all.sum = 0.0f;
    for (tess_i64 split = 0; split < splits; split++)
        all.max = tess_max(lses[split * pitch], all.max);
    for (tess_i64 split = 0; split < splits; split++)
        all.sum += tess_part_weight(lses[split * pitch], all.max);
    return all;
}

/* Four dims of the sum. The first part is not added to 0, which would lose the sign of a -0: one
 * share among empty ones gives the bits it has without the others. */
TESS_FN float4 tess_unite_quad(tess_union all, __global const float *lses, tess_i64 pitch,
                               tess_i64 splits, tess_rows parts, tess_i64 row, tess_i32 dim)
{
    const float inverse = tess_os_inverse(all.sum);
    const tess_i64 at = tess_row_index(parts, row) + dim;
    float4 sum = (float4)(0.0f);
    int has_part = 0;

    for (tess_i64 split = 0; split < splits; split++) {
        const float lse = lses[split * pitch];
        if (lse != TESS_NEG_INF) { /* else an empty share, whatever its O holds */
            const float weight = tess_part_weight(lse, all.max) * inverse;
            const float4 part = weight * tess_load_quad(parts.base, at + split * pitch * parts.dims,
                                                        1, parts.dims - dim, TESS_F32);
            sum = has_part ? sum + part : part;
            has_part = 1;
        }
    }
    return sum;
}

/* The role FORWARD COMBINE. */
TESS_CL_KERNEL(TESS_CL_FORWARD_PARAMETERS)
{
    TESS_CL_FORWARD_ADDRESSES(to);
    const tess_i64 pitch = tess_all_rows(args) * args->heads_q; /* LSEs of one split */
    const tess_i32 own = (tess_i32)get_local_id(0) / TESS_LANES;
    const tess_i32 lane = (tess_i32)get_local_id(0) % TESS_LANES;

    TESS_CL_FOR_ITEMS(i)
    {
        const tess_item_place place = tess_item_place_at(args, i, 1);
        const tess_sequence s = tess_sequence_at(args, &to, place.sequence);
        const tess_i64 head = place.head_kv * args->group;
        const tess_i64 row =
            tess_walk_row_tile(place.tile, args->row_tiles, s.rows, args->group, args->tile_rows)
                .first +
            own;
        if (row < s.rows * args->group) {
            const tess_rows parts = tess_part_rows(args, &to, s, head, 0);
            const tess_row_values part_lse = tess_part_values(args, &to, s, head, 0);
            const tess_rows o = tess_user_rows(args, &to, s, head);
            const tess_row_values lse =
                tess_user_values(args, to.at[TESS_AT_LSE], s, head, args->group);
            __global const float *const lses = part_lse.base + tess_value_index(part_lse, row);
            const tess_union all = tess_unite(lses, pitch, args->splits);
            const tess_i64 at = tess_row_index(o, row);
            for (tess_i32 dim = lane * 4; dim < args->head_dim_v; dim += 4 * TESS_LANES)
                tess_store_quad(o.base, at + dim * o.dim_stride, o.dim_stride,
                                args->head_dim_v - dim, o.dtype,
                                tess_unite_quad(all, lses, pitch, args->splits, parts, row, dim));
            if (lse.base && lane == 0)
                lse.base[tess_value_index(lse, row)] =
                    all.sum == 0.0f ? TESS_NEG_INF : all.max + tess_log2(all.sum) * TESS_LN_2;
        }
    }
}
