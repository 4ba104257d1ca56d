/* SPDX-License-Identifier: Apache-2.0
 * The gradient of the sinks: an item is one of them, which takes part in every row of its head. */
#include "item.h"

TESS_CL_ASSERT(tess_the_line_says_how_much_it_is, TESS_CL_GROUP * 4 <= TESS_CL_LOCAL);

/* The role BACKWARD DSINK. */
TESS_CL_KERNEL(TESS_CL_BACKWARD_PARAMETERS)
{
    __local float floats[TESS_CL_GROUP];
    TESS_CL_BACKWARD_ADDRESSES(to);
    const tess_i64 thread = (tess_i64)get_local_id(0);

    TESS_CL_FOR_ITEMS(head)
    {
        const float sink = ((__global const float *)to.at[TESS_AT_SINK])[head * args->sink_stride];
        float sum = 0.0f;

        for (tess_i64 i = 0; i < args->sequences && sink != TESS_NEG_INF; i++) {
            const tess_sequence s = tess_sequence_at(args, &to, i);
            const tess_row_values lse = tess_user_values(args, to.at[TESS_AT_LSE], s, head, 1);
            const tess_row_values delta =
                tess_work_values(args, &to, args->delta, tess_first_row(args, s), head, 1);
            for (tess_i64 row = thread; row < s.rows; row += TESS_CL_GROUP)
                sum -= tess_exp2((sink - lse.base[tess_value_index(lse, row)]) * TESS_LOG2_E) *
                       delta.base[tess_value_index(delta, row)];
        }
        floats[thread] = sum;
        barrier(CLK_LOCAL_MEM_FENCE); /* shares are there */
        if (thread == 0) {
            sum = 0.0f;
            for (int n = 0; n < TESS_CL_GROUP; n++)
                sum += floats[n];
            ((__global float *)to.at[TESS_AT_DSINK])[head] = sum;
        }
        barrier(CLK_LOCAL_MEM_FENCE); /* and read */
    }
}
