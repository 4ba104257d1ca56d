/* SPDX-License-Identifier: Apache-2.0
 * The gradient of the ALiBi slopes: an item is one of them. */
#define TESS_ADD_SLOPE
#include "reduce.h"

/* sum of g |i + D - j|, a sum for each tile first so that long rows lose little. */
TESS_FN void tess_add_tile(float sums[TESS_ADDED], __local const tess_backward_item *item,
                           tess_i64 column, __local const float *grads)
{
    float of_tile = 0.0f;

    TESS_NO_UNROLL
    for (int i = 0; i < TESS_ROWS_EACH * TESS_COLUMNS_EACH; i++) {
        const tess_i32 y = tess_own_y() + i / TESS_COLUMNS_EACH * TESS_GRID_ROWS;
        const tess_i32 x = tess_own_x() + i % TESS_COLUMNS_EACH * TESS_GRID_COLUMNS;
        tess_pair pair;

        pair.query = item->first + y;
        pair.head = 0;
        pair.column = column + x;
        of_tile += grads[y * TESS_WEIGHT_PITCH + x] * tess_distance(item->scoring.diagonal, pair);
    }
    sums[0] += of_tile;
}

/* The role BACKWARD DSLOPE. */
TESS_CL_KERNEL(TESS_CL_BACKWARD_PARAMETERS)
{
    __local tess_backward_memory memory;
    TESS_CL_BACKWARD_ADDRESSES(to);
    __local float *const floats = (__local float *)memory.stage;

    TESS_CL_FOR_ITEMS(i)
    {
        const tess_i64 batch = tess_divide(i, args->heads_q), head = i - batch * args->heads_q;
        float sums[TESS_ADDED];
        tess_summed over;

        over.sequences = tess_range_of(args->slope_stride[0], batch, args->sequences);
        over.heads = tess_range_from(head, head + 1);
        over.row_tiles = tess_range_from(0, tess_divide(args->rows + TESS_STAY - 1, TESS_STAY));
        over.column_tiles =
            tess_range_from(0, tess_divide(args->columns + TESS_STREAM - 1, TESS_STREAM));
        sums[0] = 0.0f;
        tess_sum_tiles(args, &to, over, &memory, sums);
        floats[tess_thread()] = sums[0];
        TESS_BARRIER(); /* shares are there */
        if (tess_thread() == 0) {
            float sum = 0.0f;
            TESS_NO_UNROLL
            for (int n = 0; n < TESS_CL_GROUP; n++)
                sum += floats[n];
            ((__global float *)to.at[TESS_AT_DALIBI_SLOPES])[i] = -sum;
        }
        TESS_BARRIER(); /* and read */
    }
}
