/* SPDX-License-Identifier: Apache-2.0
 * The gradient of the bias: an item is a tile of one matrix of it. */
#include "reduce.h"

/* The work-item's elements of a tile, added up. */
TESS_FN void tess_add_tile(float sums[TESS_ADDED], __local const tess_backward_item *item,
                           tess_i64 column, __local const float *grads)
{
    (void)item;
    (void)column;
    grads += tess_own_y() * TESS_WEIGHT_PITCH + tess_own_x();
    TESS_UNROLL
    for (int i = 0; i < TESS_ADDED; i++)
        sums[i] += grads[i / TESS_COLUMNS_EACH * TESS_GRID_ROWS * TESS_WEIGHT_PITCH +
                         i % TESS_COLUMNS_EACH * TESS_GRID_COLUMNS];
}

/* Writes the tile at (row, column); an axis that is summed over has one element. */
TESS_FN void tess_put_bias(tess_args_at args, __global float *to, tess_i64 row, tess_i64 column,
                           __local const float *sums)
{
    const int sums_rows = args->dbias_stride[2] == 0, sums_columns = args->dbias_stride[3] == 0;
    const tess_i32 out_rows = sums_rows ? 1 : TESS_STAY;
    const tess_i32 out_columns = sums_columns ? 1 : TESS_STREAM;

    TESS_NO_UNROLL
    for (tess_i32 n = tess_thread(); n < out_rows * out_columns; n += TESS_CL_GROUP) {
        const tess_i32 y = n / out_columns, x = n % out_columns;
        float sum = 0.0f;

        TESS_NO_UNROLL
        for (tess_i32 i = y; i < (sums_rows ? TESS_STAY : y + 1); i++)
            TESS_NO_UNROLL
        for (tess_i32 j = x; j < (sums_columns ? TESS_STREAM : x + 1); j++)
            sum += sums[i * TESS_WEIGHT_PITCH + j];
        if ((sums_rows || row + y < args->rows) && (sums_columns || column + x < args->columns))
            to[(row + y) * args->dbias_stride[2] + (column + x) * args->dbias_stride[3]] = sum;
    }
}

/* The role BACKWARD DBIAS. */
TESS_CL_KERNEL(TESS_CL_BACKWARD_PARAMETERS)
{
    __local tess_backward_memory memory;
    TESS_CL_BACKWARD_ADDRESSES(to);
    const tess_i64 row_tiles = tess_divide(args->rows + TESS_STAY - 1, TESS_STAY);
    const tess_i64 column_tiles = tess_divide(args->columns + TESS_STREAM - 1, TESS_STREAM);
    const tess_i64 columns = args->dbias_stride[3] ? column_tiles : 1;
    const tess_i64 rows = args->dbias_stride[2] ? row_tiles : 1;
    const tess_i64 heads = args->dbias_stride[1] ? args->heads_q : 1;

    TESS_CL_FOR_ITEMS(i)
    {
        const tess_i64 above = tess_divide(i, columns), column = i - above * columns;
        const tess_i64 matrix = tess_divide(above, rows), row = above - matrix * rows;
        const tess_i64 sequence = tess_divide(matrix, heads), head = matrix - sequence * heads;
        float sums[TESS_ADDED];
        tess_summed over;

        over.sequences = tess_range_of(args->dbias_stride[0], sequence, args->sequences);
        over.heads = tess_range_of(args->dbias_stride[1], head, args->heads_q);
        over.row_tiles = tess_range_of(args->dbias_stride[2], row, row_tiles);
        over.column_tiles = tess_range_of(args->dbias_stride[3], column, column_tiles);
        TESS_UNROLL
        for (int n = 0; n < TESS_ADDED; n++)
            sums[n] = 0.0f;
        tess_sum_tiles(args, &to, over, &memory, sums);
        TESS_UNROLL
        for (int n = 0; n < TESS_ADDED; n++)
            memory.weights[0][(tess_own_y() + n / TESS_COLUMNS_EACH * TESS_GRID_ROWS) *
                                  TESS_WEIGHT_PITCH +
                              tess_own_x() + n % TESS_COLUMNS_EACH * TESS_GRID_COLUMNS] = sums[n];
        TESS_BARRIER(); /* the sums are there */
        tess_put_bias(args,
                      (__global float *)to.at[TESS_AT_DBIAS] + sequence * args->dbias_stride[0] +
                          head * args->dbias_stride[1],
                      row * TESS_STAY, column * TESS_STREAM, memory.weights[0]);
        TESS_BARRIER(); /* before the next item writes where this one reads */
    }
}
