/* SPDX-License-Identifier: Apache-2.0
 * The forward pass on plain cores: any type, any dims, every option; fp32 throughout. */
#ifndef TESSERA_BACKENDS_GPU_SIMT_FORWARD_H
#define TESSERA_BACKENDS_GPU_SIMT_FORWARD_H

#include "backends/gpu/simt/exact.h"
#include "backends/gpu/simt/tile.h"

/* for each work item of the block: a tile of folded rows against a share of the columns
 *     Q to shared memory
 *     for each tile of 64 columns of the share
 *         scores = Q K^T               K streams by dims
 *         hook, masks                  masks only where the walk says so
 *         admit the tile, P            registers, a row's lanes exchange its maximum
 *         P to shared memory
 *         O += P V                     V streams by rows
 *     sink, division by the sum, O and LSE
 *     rows that are not finite are computed again, one by one, absent pairs skipped (exact.h)
 *
 * The item itself, hundreds of bytes that are the same for all, lies in shared memory too:
 * registers are for the tiles. A row's sum stays spread over its 16 lanes until the end: the
 * rescaling is the same for all. */

template <class SHAPE> struct tess_forward_memory {
    tess_forward_item item;
    /* Where rows of K and V of a tile begin; of even and of odd tiles, since the next one's are
     * wanted while this one's still are. */
    tess_i64 k_index[2][TESS_COLUMNS], v_index[2][TESS_COLUMNS];
    alignas(16) float q[SHAPE::ROWS * SHAPE::PITCH];
    float stage[2 * SHAPE::STAGE];
    float weights[SHAPE::ROWS * TESS_WEIGHT_PITCH];
    tess_os_row states[SHAPE::ROWS];
    float factors[SHAPE::ROWS];   /* what turns a row's sums into its output */
    tess_u32 is_bad[SHAPE::ROWS]; /* rows to be computed again */
};

/* The columns of one tile that a row sees, counted from the tile's first. */
struct tess_seen {
    tess_i32 first, end;
};

TESS_DEVICE tess_seen tess_seen_of(const tess_visible &visible, tess_i64 query, tess_i64 column)
{
    const tess_i64 first = tess_visible_first(visible, query) - column;
    const tess_i64 end = tess_visible_end(visible, query) - column;
    const tess_seen seen = {static_cast<tess_i32>(tess_clamp(first, 0, TESS_COLUMNS)),
                            static_cast<tess_i32>(tess_clamp(end, 0, TESS_COLUMNS))};
    return seen;
}

/* Scores of a tile whose rows see all of its columns, with nothing but a scale. */
template <class SHAPE>
TESS_DEVICE void tess_scale_tile(float (&scores)[SHAPE::ROWS_EACH][TESS_COLUMNS_EACH], float scale)
{
    TESS_UNROLL
    for (int i = 0; i < SHAPE::ROWS_EACH * TESS_COLUMNS_EACH; i++)
        scores[i / TESS_COLUMNS_EACH][i % TESS_COLUMNS_EACH] *= scale * TESS_LOG2_E;
}

/* Scores of a tile that has masks, or more than a scale. They pass through shared memory, where
 * each thread finds its own again: so that this is one loop, and not unrolled for every register.
 */
template <class SHAPE>
TESS_DEVICE void tess_score_tile(const tess_forward_item &item, tess_i64 column, bool is_masked,
                                 float (&scores)[SHAPE::ROWS_EACH][TESS_COLUMNS_EACH],
                                 float *weights)
{
    float *const own = weights + tess_own_y() * TESS_WEIGHT_PITCH + tess_own_x();

    TESS_UNROLL
    for (int i = 0; i < SHAPE::ROWS_EACH * TESS_COLUMNS_EACH; i++)
        own[i / TESS_COLUMNS_EACH * TESS_GRID_ROWS * TESS_WEIGHT_PITCH +
            i % TESS_COLUMNS_EACH * TESS_GRID_COLUMNS] =
            scores[i / TESS_COLUMNS_EACH][i % TESS_COLUMNS_EACH];
    TESS_NO_UNROLL
    for (int r = 0; r < SHAPE::ROWS_EACH; r++) {
        const tess_i64 row = item.tile.first + tess_own_y() + r * TESS_GRID_ROWS;
        const tess_i64 query = item.group > 1 ? tess_divide(row, item.group) : row;
        tess_pair pair = {query, row - query * item.group, column};
        tess_seen seen = {0, row < item.tile.end ? TESS_COLUMNS : 0};
        if (is_masked && row < item.tile.end)
            seen = tess_seen_of(item.visible, query, column);
        TESS_NO_UNROLL
        for (tess_i32 at = tess_own_x(); at < TESS_COLUMNS; at += TESS_GRID_COLUMNS) {
            float &score = weights[(tess_own_y() + r * TESS_GRID_ROWS) * TESS_WEIGHT_PITCH + at];
            pair.column = column + at;
            score = at >= seen.first && at < seen.end ? tess_score_log2(item.scoring, pair, score)
                                                      : TESS_NEG_INF;
        }
    }
    TESS_UNROLL
    for (int i = 0; i < SHAPE::ROWS_EACH * TESS_COLUMNS_EACH; i++)
        scores[i / TESS_COLUMNS_EACH][i % TESS_COLUMNS_EACH] =
            own[i / TESS_COLUMNS_EACH * TESS_GRID_ROWS * TESS_WEIGHT_PITCH +
                i % TESS_COLUMNS_EACH * TESS_GRID_COLUMNS];
}

/* One row of a tile: it admits the scores, which become weights. Returns what the row's outputs are
 * multiplied by. */
TESS_DEVICE float tess_softmax_row(float (&scores)[TESS_COLUMNS_EACH], tess_os_row &state)
{
    float max = TESS_NEG_INF, sum = 0.0f;

    TESS_UNROLL
    for (int c = 0; c < TESS_COLUMNS_EACH; c++)
        max = tess_max(scores[c], max);
    max = tess_row_max(max);

    const tess_os_step step = tess_os_admit(state, max);
    TESS_UNROLL
    for (int c = 0; c < TESS_COLUMNS_EACH; c++) {
        scores[c] = tess_os_weight(scores[c], step.shift);
        sum += scores[c];
    }
    state = tess_os_advance(state, step, max, sum);
    return step.rescale;
}

template <class SHAPE>
TESS_DEVICE void tess_softmax_tile(float (&scores)[SHAPE::ROWS_EACH][TESS_COLUMNS_EACH],
                                   tess_os_row (&states)[SHAPE::ROWS_EACH],
                                   tess_quad (&sums)[SHAPE::ROWS_EACH][SHAPE::QUADS_EACH],
                                   float *weights)
{
    float *const own = weights + tess_own_y() * TESS_WEIGHT_PITCH + tess_own_x();

    TESS_UNROLL
    for (int r = 0; r < SHAPE::ROWS_EACH; r++) {
        const float rescale = tess_softmax_row(scores[r], states[r]);
        if (rescale != 1.0f)
            tess_scale_row<SHAPE>(sums, r, rescale);
        TESS_UNROLL
        for (int c = 0; c < TESS_COLUMNS_EACH; c++)
            own[r * TESS_GRID_ROWS * TESS_WEIGHT_PITCH + c * TESS_GRID_COLUMNS] = scores[r][c];
    }
}

/* Lists where the rows of a tile begin. What no row of the item sees counts as not there: whatever
 * it holds, it cannot then be a reason to compute a row again. Behind the last tile there is none.
 */
template <class SHAPE>
TESS_DEVICE void tess_list_columns(const tess_forward_item &item, tess_i64 tile,
                                   tess_forward_memory<SHAPE> &memory)
{
    const tess_i64 column = tile * TESS_COLUMNS + tess_thread();
    const bool is_there = column >= item.share_first && column < item.share_end;

    if (tess_thread() < TESS_COLUMNS) {
        memory.k_index[tile & 1][tess_thread()] =
            is_there ? tess_row_index(item.k, column) : TESS_NO_ROW;
        memory.v_index[tile & 1][tess_thread()] =
            is_there ? tess_row_index(item.v, column) : TESS_NO_ROW;
    }
}

/* The end of one row: the sink takes part, LSE is written. */
template <class SHAPE>
TESS_DEVICE void tess_finish_row(const tess_forward_item &item, tess_i32 own,
                                 tess_forward_memory<SHAPE> &memory)
{
    const tess_i64 row = item.tile.first + own;
    tess_os_sunk sunk = {memory.states[own], 1.0f};

    memory.is_bad[own] = 0;
    if (row >= item.tile.end)
        return;
    if (item.sink)
        sunk = tess_os_sink(sunk.row, tess_sink_of(item, row));
    memory.factors[own] = sunk.rescale * tess_os_inverse(sunk.row.sum);
    if (item.lse.base)
        item.lse.base[tess_value_index(item.lse, row)] = tess_os_lse(sunk.row);
}

/* Writes the tile's rows, and those that are not finite once more. */
template <class SHAPE>
TESS_DEVICE void tess_finish_tile(const tess_args &args, const tess_forward_item &item,
                                  tess_os_row (&states)[SHAPE::ROWS_EACH],
                                  const tess_quad (&sums)[SHAPE::ROWS_EACH][SHAPE::QUADS_EACH],
                                  tess_forward_memory<SHAPE> &memory)
{
    const tess_i32 count = static_cast<tess_i32>(item.tile.end - item.tile.first);

    TESS_UNROLL
    for (int r = 0; r < SHAPE::ROWS_EACH; r++) {
        states[r].sum = tess_row_sum(states[r].sum);
        if (tess_own_x() == 0)
            memory.states[tess_own_y() + r * TESS_GRID_ROWS] = states[r];
    }
    tess_lay_down<SHAPE>(sums, memory.q); /* which is read no more since the last barrier */
    tess_barrier();                       /* states and sums are there */
    if (tess_thread() < SHAPE::ROWS)
        tess_finish_row<SHAPE>(item, static_cast<tess_i32>(tess_thread()), memory);
    tess_barrier(); /* factors are there */
    tess_put_rows<SHAPE>(item.o, item.tile.first, count, memory.q, memory.factors, memory.is_bad);
    tess_barrier(); /* marks are there, and the rows */
    if (args.flags & TESS_ALLOW_NONFINITE_SPREAD)
        return;
    TESS_NO_UNROLL
    for (tess_i32 r = 0; r < count; r++)
        if (memory.is_bad[r])
            tess_forward_exact(item, item.tile.first + r, memory.stage);
}

template <class SHAPE>
TESS_DEVICE void tess_forward_tile(const tess_args &args, const tess_forward_item &item,
                                   tess_forward_memory<SHAPE> &memory)
{
    tess_quad sums[SHAPE::ROWS_EACH][SHAPE::QUADS_EACH];
    tess_os_row states[SHAPE::ROWS_EACH];
    tess_pipe<SHAPE> pipe = {memory.stage, 0};

    tess_keep_resident<SHAPE>(item.q, item.tile.first, memory.q);
    tess_list_columns<SHAPE>(item, item.walk.first, memory);
    tess_clear<SHAPE>(sums);
    TESS_UNROLL
    for (int r = 0; r < SHAPE::ROWS_EACH; r++)
        states[r] = tess_os_empty();
    tess_barrier(); /* the list is there */

    const tess_by_dims<SHAPE> first = {tess_stream_of(item.k, memory.k_index[item.walk.first & 1])};
    tess_pipe_start(pipe, first);
    TESS_NO_UNROLL
    for (tess_i64 tile = item.walk.first; tile < item.walk.end; tile++) {
        const tess_i64 column = tile * TESS_COLUMNS;
        const tess_by_dims<SHAPE> k = {tess_stream_of(item.k, memory.k_index[tile & 1])};
        const tess_by_rows<SHAPE> v = {tess_stream_of(item.v, memory.v_index[tile & 1])};
        const tess_by_dims<SHAPE> next = {tess_stream_of(item.k, memory.k_index[~tile & 1])};
        const bool is_masked = tess_walk_is_masked(item.walk, tile) != 0;
        float scores[SHAPE::ROWS_EACH][TESS_COLUMNS_EACH];

        tess_dots<SHAPE>(scores, memory.q, k, v, pipe);
        if (is_masked || !item.scoring.is_plain)
            tess_score_tile<SHAPE>(item, column, is_masked, scores, memory.weights);
        else
            tess_scale_tile<SHAPE>(scores, item.scoring.scale);
        tess_softmax_tile<SHAPE>(scores, states, sums, memory.weights);
        tess_list_columns<SHAPE>(item, tile + 1, memory);
        tess_barrier(); /* weights and list are there */
        tess_sums<SHAPE>(sums, memory.weights, v, item.share_end - column, next, pipe);
    }
    tess_finish_tile<SHAPE>(args, item, states, sums, memory);
}

/* The role FORWARD MAIN. */
template <int ROWS, int DIMS, int SHARED>
TESS_DEVICE void tess_forward_main(const tess_args &args, const tess_gpu_addresses &addresses,
                                   const tess_gpu_run &run)
{
    typedef tess_shape<ROWS, DIMS> shape;
    tess_forward_memory<shape> &memory = *tess_shared<tess_forward_memory<shape>>();
    static_assert(sizeof memory == SHARED, "the line in simt.def says how much it is");

    TESS_NO_UNROLL
    for (tess_i64 i = run.first_item + tess_block(); i < run.first_item + run.items;
         i += tess_blocks()) {
        if (tess_thread() == 0)
            tess_forward_item_at(memory.item, args, addresses, i);
        tess_barrier(); /* the item is there */
        if (memory.item.tile.first < memory.item.tile.end)
            tess_forward_tile<shape>(args, memory.item, memory);
        tess_barrier(); /* before the next item writes where this one reads */
    }
}

#endif
