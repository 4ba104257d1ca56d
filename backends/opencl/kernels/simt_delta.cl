/* SPDX-License-Identifier: Apache-2.0
 * dot(dO, O) - dLSE of every row: TESS_CL_ROWS rows of TESS_CL_GROUP / TESS_CL_ROWS lanes each. */
#include "item.h"

#define TESS_LANES (TESS_CL_GROUP / TESS_CL_ROWS)

TESS_CL_ASSERT(tess_the_line_says_how_much_it_is, TESS_CL_GROUP * 4 <= TESS_CL_LOCAL);

/* The role BACKWARD DELTA. */
TESS_CL_KERNEL(TESS_CL_BACKWARD_PARAMETERS)
{
    __local float floats[TESS_CL_GROUP];
    TESS_CL_BACKWARD_ADDRESSES(to);
    const tess_i32 thread = (tess_i32)get_local_id(0);
    const tess_i32 own = thread / TESS_LANES, lane = thread % TESS_LANES;

    TESS_CL_FOR_ITEMS(i)
    {
        const tess_item_place place = tess_item_place_at(args, i, 1);
        const tess_sequence s = tess_sequence_at(args, &to, place.sequence);
        const tess_i64 head = place.head_kv * args->group;
        const tess_row_tile tile =
            tess_walk_row_tile(place.tile, args->row_tiles, s.rows, args->group, args->tile_rows);
        const tess_rows o = tess_user_rows(args, &to, s, head);
        const tess_rows d_o = tess_query_rows(to.at[TESS_AT_D_O], args->do_stride, args->head_dim_v,
                                              args->do_dtype, s, head, args->group);
        const tess_i64 row = tile.first + own;
        float sum = 0.0f;

        for (tess_i32 dim = lane; row < tile.end && dim < o.dims; dim += TESS_LANES)
            sum += tess_row_element(o, row, dim) * tess_row_element(d_o, row, dim);
        floats[thread] = sum;
        barrier(CLK_LOCAL_MEM_FENCE); /* shares are there */
        if (lane == 0 && row < tile.end) {
            const tess_row_values d_lse =
                tess_user_values(args, to.at[TESS_AT_D_LSE], s, head, args->group);
            const tess_row_values delta = tess_work_values(
                args, &to, args->delta, tess_first_row(args, s), head, args->group);
            for (int n = 1; n < TESS_LANES; n++)
                sum += floats[thread + n];
            if (d_lse.base)
                sum -= d_lse.base[tess_value_index(d_lse, row)];
            delta.base[tess_value_index(delta, row)] = sum;
        }
        barrier(CLK_LOCAL_MEM_FENCE); /* and read */
    }
}
