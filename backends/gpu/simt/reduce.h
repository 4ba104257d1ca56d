/* SPDX-License-Identifier: Apache-2.0
 * Gradients of what is added to scores, and delta: sums whose every element has one owner. */
#ifndef TESSERA_BACKENDS_GPU_SIMT_REDUCE_H
#define TESSERA_BACKENDS_GPU_SIMT_REDUCE_H

#include "backends/gpu/simt/backward.h"

/* dot(a's row, b's row), this lane's share of it: 16 lanes have a row, each its quads of dims. */
TESS_DEVICE float tess_lane_dot(const tess_rows &a, const tess_rows &b, tess_i64 row)
{
    const tess_i64 a_at = tess_row_index(a, row), b_at = tess_row_index(b, row);
    float sum = 0.0f;

    TESS_NO_UNROLL
    for (tess_i32 dim = 4 * tess_own_x(); dim < a.dims; dim += 4 * TESS_GRID_COLUMNS) {
        const tess_quad x =
            tess_load_quad(a.base, a_at + dim * a.dim_stride, a.dim_stride, a.dims - dim, a.dtype);
        const tess_quad y =
            tess_load_quad(b.base, b_at + dim * b.dim_stride, b.dim_stride, b.dims - dim, b.dtype);
        TESS_UNROLL
        for (int e = 0; e < 4; e++)
            sum += x.at[e] * y.at[e];
    }
    return sum;
}

/* The role BACKWARD DELTA: dot(dO, O) - dLSE, eight rows at a time. */
template <int ROWS, int DIMS, int SHARED>
TESS_DEVICE void tess_backward_delta(const tess_args &args, const tess_gpu_addresses &to,
                                     const tess_gpu_run &run)
{
    static_assert(ROWS % TESS_GRID_ROWS == 0, "a row for every 16 lanes");
    TESS_NO_UNROLL
    for (tess_i64 i = run.first_item + tess_block(); i < run.first_item + run.items;
         i += tess_blocks()) {
        const tess_item_place place = tess_item_place_at(args, i, 1);
        const tess_sequence s = tess_sequence_at(args, to, place.sequence);
        const tess_i64 head = place.head_kv * args.group;
        const tess_row_tile tile =
            tess_walk_row_tile(place.tile, args.row_tiles, s.rows, args.group, args.tile_rows);
        const tess_rows o = tess_query_rows(to.at[TESS_AT_O], args.o_stride, args.head_dim_v,
                                            args.o_dtype, s, head, args.group);
        const tess_rows d_o = tess_query_rows(to.at[TESS_AT_D_O], args.do_stride, args.head_dim_v,
                                              args.do_dtype, s, head, args.group);
        const tess_row_values d_lse =
            tess_user_values(args, to.at[TESS_AT_D_LSE], s, head, args.group);
        const tess_row_values delta =
            tess_work_values(args, to, args.delta, tess_first_row(args, s), head, args.group);
        TESS_NO_UNROLL
        for (tess_i64 first = tile.first; first < tile.end; first += TESS_GRID_ROWS) {
            const tess_i64 row = first + tess_own_y();
            float sum = row < tile.end ? tess_lane_dot(o, d_o, row) : 0.0f;
            sum = tess_row_sum(sum); /* with all lanes of the wave, those without a row too */
            if (row >= tile.end || tess_own_x() != 0)
                continue;
            if (d_lse.base)
                sum -= d_lse.base[tess_value_index(d_lse, row)];
            delta.base[tess_value_index(delta, row)] = sum;
        }
    }
}

/* Part `first ... end - 1` of an axis. */
struct tess_range {
    tess_i64 first, end;
};

/* Everything one element of dbias, or of dslope, sums over. */
struct tess_summed {
    tess_range sequences, heads, row_tiles, column_tiles;
};

/* The tile of gradients of scores summed over all that `over` names; grads holds each in turn.
 * add(item, column, grads) is called by all threads. */
template <class SHAPE, class ADD>
TESS_DEVICE void tess_sum_tiles(const tess_args &args, const tess_gpu_addresses &to,
                                const tess_summed &over, tess_backward_memory<SHAPE> &memory,
                                ADD &add)
{
    const tess_backward_item &item = memory.item;
    const tess_no_more<SHAPE> no_more = {};
    tess_pipe<SHAPE> pipe = {memory.stage, 0};

    TESS_NO_UNROLL
    for (tess_i64 sequence = over.sequences.first; sequence < over.sequences.end; sequence++) {
        TESS_NO_UNROLL
        for (tess_i64 head = over.heads.first; head < over.heads.end; head++) {
            TESS_NO_UNROLL
            for (tess_i64 tile = over.row_tiles.first; tile < over.row_tiles.end; tile++) {
                tess_barrier(); /* nobody reads the tile before */
                if (tess_thread() == 0) {
                    const tess_sequence s = tess_sequence_at(args, to, sequence);
                    memory.item = tess_backward_item_of(args, to, s, head, 1);
                    tess_take_queries(memory.item, tile * SHAPE::ROWS,
                                      tess_min_i64((tile + 1) * SHAPE::ROWS, s.rows));
                }
                tess_barrier(); /* the item is there */
                if (item.first >= item.end)
                    break;
                tess_keep_resident<SHAPE>(item.q, item.first, memory.a);
                tess_keep_resident<SHAPE>(item.d_o, item.first, memory.b);
                const tess_i64 end = tess_min_i64(item.tile_end, over.column_tiles.end);
                TESS_NO_UNROLL
                for (tess_i64 at = tess_max_i64(item.tile_first, over.column_tiles.first); at < end;
                     at++) {
                    tess_pair_tile<SHAPE, TESS_QUERIES_STAY, TESS_OF_SCORE>(item, at * TESS_COLUMNS,
                                                                            no_more, pipe, memory);
                    add(item, at * TESS_COLUMNS, memory.grads);
                }
            }
        }
    }
    tess_barrier(); /* the last tile is read */
}

/* ---- dbias ------------------------------------------------------------------------------------
 */

/* The thread's elements of a tile, added up. */
template <class SHAPE> struct tess_add_tile {
    float sums[SHAPE::ROWS_EACH * TESS_COLUMNS_EACH];

    TESS_DEVICE_MEMBER void operator()(const tess_backward_item &, tess_i64, const float *grads)
    {
        const float *const own = grads + tess_own_y() * TESS_WEIGHT_PITCH + tess_own_x();
        TESS_UNROLL
        for (int i = 0; i < SHAPE::ROWS_EACH * TESS_COLUMNS_EACH; i++)
            sums[i] += own[i / TESS_COLUMNS_EACH * TESS_GRID_ROWS * TESS_WEIGHT_PITCH +
                           i % TESS_COLUMNS_EACH * TESS_GRID_COLUMNS];
    }
};

/* Step `index` of an axis, or all of it where it is summed over. */
TESS_DEVICE tess_range tess_range_of(tess_i64 stride, tess_i64 index, tess_i64 extent)
{
    const tess_range one = {index, index + 1}, all = {0, extent};
    return stride ? one : all;
}

/* Writes the tile at (row, column); an axis that is summed over has one element. */
TESS_DEVICE void tess_put_bias(const tess_args &args, float *to, tess_i64 row, tess_i64 column,
                               tess_i32 rows, const float *sums)
{
    const bool sums_rows = args.dbias_stride[2] == 0, sums_columns = args.dbias_stride[3] == 0;
    const tess_i32 out_rows = sums_rows ? 1 : rows;
    const tess_i32 out_columns = sums_columns ? 1 : static_cast<tess_i32>(TESS_COLUMNS);

    TESS_NO_UNROLL
    for (tess_i32 n = static_cast<tess_i32>(tess_thread()); n < out_rows * out_columns;
         n += TESS_THREADS) {
        const tess_i32 y = n / out_columns, x = n % out_columns;
        float sum = 0.0f;
        TESS_NO_UNROLL
        for (tess_i32 i = y; i < (sums_rows ? rows : y + 1); i++)
            TESS_NO_UNROLL
        for (tess_i32 j = x; j < (sums_columns ? static_cast<tess_i32>(TESS_COLUMNS) : x + 1); j++)
            sum += sums[i * TESS_WEIGHT_PITCH + j];
        if ((sums_rows || row + y < args.rows) && (sums_columns || column + x < args.columns))
            to[(row + y) * args.dbias_stride[2] + (column + x) * args.dbias_stride[3]] = sum;
    }
}

/* The role BACKWARD DBIAS. */
template <int ROWS, int DIMS, int SHARED>
TESS_DEVICE void tess_backward_dbias(const tess_args &args, const tess_gpu_addresses &to,
                                     const tess_gpu_run &run)
{
    typedef tess_shape<ROWS, DIMS> shape;
    tess_backward_memory<shape> &memory = *tess_shared<tess_backward_memory<shape>>();
    const tess_i64 row_tiles = tess_divide(args.rows + ROWS - 1, ROWS);
    const tess_i64 column_tiles = tess_divide(args.columns + TESS_COLUMNS - 1, TESS_COLUMNS);
    const tess_i64 *const stride = args.dbias_stride;
    const tess_i64 columns = stride[3] ? column_tiles : 1, rows = stride[2] ? row_tiles : 1;
    const tess_i64 heads = stride[1] ? args.heads_q : 1;
    static_assert(sizeof memory == SHARED, "the line in simt.def says how much it is");

    TESS_NO_UNROLL
    for (tess_i64 i = run.first_item + tess_block(); i < run.first_item + run.items;
         i += tess_blocks()) {
        const tess_i64 above = tess_divide(i, columns), column = i - above * columns;
        const tess_i64 matrix = tess_divide(above, rows), row = above - matrix * rows;
        const tess_i64 sequence = tess_divide(matrix, heads), head = matrix - sequence * heads;
        const tess_summed over = {tess_range_of(stride[0], sequence, args.sequences),
                                  tess_range_of(stride[1], head, args.heads_q),
                                  tess_range_of(stride[2], row, row_tiles),
                                  tess_range_of(stride[3], column, column_tiles)};
        tess_add_tile<shape> add = {};
        tess_sum_tiles<shape>(args, to, over, memory, add);
        TESS_UNROLL
        for (int n = 0; n < shape::ROWS_EACH * TESS_COLUMNS_EACH; n++)
            memory.weights[(tess_own_y() + n / TESS_COLUMNS_EACH * TESS_GRID_ROWS) *
                               TESS_WEIGHT_PITCH +
                           tess_own_x() + n % TESS_COLUMNS_EACH * TESS_GRID_COLUMNS] = add.sums[n];
        tess_barrier(); /* the sums are there */
        tess_put_bias(args,
                      static_cast<float *>(to.at[TESS_AT_DBIAS]) + sequence * stride[0] +
                          head * stride[1],
                      row * ROWS, column * TESS_COLUMNS, ROWS, memory.weights);
        tess_barrier(); /* before the next item writes where this one reads */
    }
}

/* ---- dslope, dsink ----------------------------------------------------------------------------
 */

/* sum of g |i + D - j|, a sum for each tile first so that long rows lose little. */
template <class SHAPE> struct tess_add_slope {
    float sum;

    TESS_DEVICE_MEMBER void operator()(const tess_backward_item &item, tess_i64 column,
                                       const float *grads)
    {
        float of_tile = 0.0f;
        TESS_NO_UNROLL
        for (int i = 0; i < SHAPE::ROWS_EACH * TESS_COLUMNS_EACH; i++) {
            const tess_i32 y = tess_own_y() + i / TESS_COLUMNS_EACH * TESS_GRID_ROWS;
            const tess_i32 x = tess_own_x() + i % TESS_COLUMNS_EACH * TESS_GRID_COLUMNS;
            const tess_pair pair = {item.first + y, 0, column + x};
            of_tile += grads[y * TESS_WEIGHT_PITCH + x] * tess_distance(item.scoring, pair);
        }
        sum += of_tile;
    }
};

/* The role BACKWARD DSLOPE. */
template <int ROWS, int DIMS, int SHARED>
TESS_DEVICE void tess_backward_dslope(const tess_args &args, const tess_gpu_addresses &to,
                                      const tess_gpu_run &run)
{
    typedef tess_shape<ROWS, DIMS> shape;
    tess_backward_memory<shape> &memory = *tess_shared<tess_backward_memory<shape>>();
    const tess_range rows = {0, tess_divide(args.rows + ROWS - 1, ROWS)};
    const tess_range columns = {0, tess_divide(args.columns + TESS_COLUMNS - 1, TESS_COLUMNS)};
    static_assert(sizeof memory == SHARED, "the line in simt.def says how much it is");

    TESS_NO_UNROLL
    for (tess_i64 i = run.first_item + tess_block(); i < run.first_item + run.items;
         i += tess_blocks()) {
        const tess_i64 batch = tess_divide(i, args.heads_q), head = i - batch * args.heads_q;
        const tess_summed over = {tess_range_of(args.slope_stride[0], batch, args.sequences),
                                  {head, head + 1},
                                  rows,
                                  columns};
        tess_add_slope<shape> add = {0.0f};
        tess_sum_tiles<shape>(args, to, over, memory, add);
        const float sum = tess_block_sum(add.sum, memory.stage);
        if (tess_thread() == 0)
            static_cast<float *>(to.at[TESS_AT_DALIBI_SLOPES])[i] = -sum;
    }
}

/* The role BACKWARD DSINK: the sink takes part in every row of every sequence. */
template <int ROWS, int DIMS, int SHARED>
TESS_DEVICE void tess_backward_dsink(const tess_args &args, const tess_gpu_addresses &to,
                                     const tess_gpu_run &run)
{
    tess_exact_memory &memory = *tess_shared<tess_exact_memory>();
    static_assert(sizeof memory == SHARED, "the line in simt.def says how much it is");

    TESS_NO_UNROLL
    for (tess_i64 head = run.first_item + tess_block(); head < run.first_item + run.items;
         head += tess_blocks()) {
        const float sink = static_cast<const float *>(to.at[TESS_AT_SINK])[head * args.sink_stride];
        float sum = 0.0f;
        TESS_NO_UNROLL
        for (tess_i64 i = 0; i < args.sequences && sink != TESS_NEG_INF; i++) {
            const tess_sequence s = tess_sequence_at(args, to, i);
            const tess_row_values lse = tess_user_values(args, to.at[TESS_AT_LSE], s, head, 1);
            const tess_row_values delta =
                tess_work_values(args, to, args.delta, tess_first_row(args, s), head, 1);
            TESS_NO_UNROLL
            for (tess_i64 row = tess_thread(); row < s.rows; row += TESS_THREADS)
                sum -= tess_exp2((sink - lse.base[tess_value_index(lse, row)]) * TESS_LOG2_E) *
                       delta.base[tess_value_index(delta, row)];
        }
        sum = tess_block_sum(sum, memory.floats);
        if (tess_thread() == 0)
            static_cast<float *>(to.at[TESS_AT_DSINK])[head] = sum;
    }
}

#endif
