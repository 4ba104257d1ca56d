/* SPDX-License-Identifier: Apache-2.0
 * The forward pass on plain cores: any type, any dims, every option; fp32 throughout. */
#define TESS_STAY TESS_CL_ROWS
#define TESS_STREAM TESS_CL_COLUMNS
#include "item.h"
#include "tile.h"

/* for each work item of the group: a tile of folded rows against a share of the columns
 *     Q to local memory
 *     for each tile of columns of the share
 *         scores = Q K^T               K streams by dims
 *         hook, masks                  masks only where the walk says so
 *         admit the tile, P            the lanes of a row exchange its maximum through local memory
 *         P to local memory
 *         O += P V                     V streams by rows
 *     sink, division by the sum, O and LSE
 *     items with a row that is not finite are left to simt_redo.cl, which skips absent pairs: in
 *     this kernel it would double what a driver compiles
 *
 * The item itself, hundreds of bytes that are the same for all, lies in local memory too: registers
 * are for the tiles. A row's sum stays spread over its 16 lanes until the end: the rescaling is the
 * same for all. */

typedef struct tess_forward_memory {
    float4 q[TESS_STAY * TESS_PITCH];
    float4 stage[TESS_STAGE];
    float weights[TESS_STAY * TESS_WEIGHT_PITCH] __attribute__((aligned(16)));
    tess_forward_item item;
    tess_i64 k_index[TESS_STREAM], v_index[TESS_STREAM]; /* where rows of a tile begin */
    tess_os_row states[TESS_STAY];
    float factors[TESS_STAY];   /* what turns a row's sums into its output */
    tess_u32 is_bad[TESS_STAY]; /* rows to be computed again */
} tess_forward_memory;

TESS_CL_ASSERT(tess_the_line_says_how_much_it_is, sizeof(tess_forward_memory) <= TESS_CL_LOCAL);
TESS_CL_ASSERT(tess_maxima_fit_the_stage, TESS_STAY *TESS_GRID_COLUMNS <= 4 * TESS_STAGE);

/* Scores of a tile that has masks, or more than a scale. They pass through local memory, where each
 * work-item finds its own again: so that this is one loop, and not unrolled for every register. */
TESS_FN void tess_score_tile(__local const tess_forward_item *item, tess_i64 first_column,
                             int is_masked, float scores[TESS_ROWS_EACH][TESS_COLUMNS_EACH],
                             __local float *weights)
{
    __local float *const own = weights + tess_own_y() * TESS_WEIGHT_PITCH + tess_own_x();

    TESS_UNROLL
    for (int r = 0; r < TESS_ROWS_EACH; r++)
        TESS_UNROLL
    for (int c = 0; c < TESS_COLUMNS_EACH; c++)
        own[r * TESS_GRID_ROWS * TESS_WEIGHT_PITCH + c * TESS_GRID_COLUMNS] = scores[r][c];
    TESS_NO_UNROLL
    for (int r = 0; r < TESS_ROWS_EACH; r++) {
        const tess_i64 row = item->tile.first + tess_own_y() + r * TESS_GRID_ROWS;
        tess_i64 first = 0, end = row < item->tile.end ? TESS_STREAM : 0;
        tess_pair pair;

        pair.query = item->group > 1 ? tess_divide(row, item->group) : row;
        pair.head = row - pair.query * item->group;
        if (is_masked && row < item->tile.end) {
            first = tess_visible_first(item->visible, pair.query) - first_column;
            end = tess_visible_end(item->visible, pair.query) - first_column;
        }
        TESS_NO_UNROLL
        for (tess_i32 at = tess_own_x(); at < TESS_STREAM; at += TESS_GRID_COLUMNS) {
            __local float *const score =
                weights + (tess_own_y() + r * TESS_GRID_ROWS) * TESS_WEIGHT_PITCH + at;
            pair.column = first_column + at;
            *score = at >= first && at < end ? tess_score_log2(item->scoring, pair, *score)
                                             : TESS_NEG_INF;
        }
    }
    TESS_UNROLL
    for (int r = 0; r < TESS_ROWS_EACH; r++)
        TESS_UNROLL
    for (int c = 0; c < TESS_COLUMNS_EACH; c++)
        scores[r][c] = own[r * TESS_GRID_ROWS * TESS_WEIGHT_PITCH + c * TESS_GRID_COLUMNS];
}

/* The tile is admitted: scores become weights, in local memory; what was gathered is rescaled.
 * `exchange` is a quad of floats for every row and four lanes. */
TESS_FN void tess_softmax_tile(float scores[TESS_ROWS_EACH][TESS_COLUMNS_EACH],
                               tess_os_row states[TESS_ROWS_EACH],
                               float4 sums[TESS_ROWS_EACH][TESS_QUADS_EACH],
                               __local float4 *exchange, __local float *weights)
{
    __local float *const own = weights + tess_own_y() * TESS_WEIGHT_PITCH + tess_own_x();

    TESS_UNROLL
    for (int r = 0; r < TESS_ROWS_EACH; r++) {
        float max_score = TESS_NEG_INF;
        TESS_UNROLL
        for (int c = 0; c < TESS_COLUMNS_EACH; c++)
            max_score = tess_max(scores[r][c], max_score);
        ((__local float *)
             exchange)[(tess_own_y() + r * TESS_GRID_ROWS) * TESS_GRID_COLUMNS + tess_own_x()] =
            max_score;
    }
    TESS_BARRIER(); /* maxima are there */
    TESS_UNROLL
    for (int r = 0; r < TESS_ROWS_EACH; r++) {
        __local const float4 *const maxima =
            exchange + (tess_own_y() + r * TESS_GRID_ROWS) * (TESS_GRID_COLUMNS / 4);
        float max_score = TESS_NEG_INF, sum = 0.0f;
        tess_os_step step;

        TESS_UNROLL
        for (int i = 0; i < TESS_GRID_COLUMNS / 4; i++) {
            const float4 quad = maxima[i];
            max_score = tess_max(quad.x, tess_max(quad.y, max_score));
            max_score = tess_max(quad.z, tess_max(quad.w, max_score));
        }
        step = tess_os_admit(states[r], max_score);
        TESS_UNROLL
        for (int c = 0; c < TESS_COLUMNS_EACH; c++) {
            const float weight = tess_os_weight(scores[r][c], step.shift);
            sum += weight;
            own[r * TESS_GRID_ROWS * TESS_WEIGHT_PITCH + c * TESS_GRID_COLUMNS] = weight;
        }
        states[r] = tess_os_advance(states[r], step, max_score, sum);
        TESS_UNROLL
        for (int j = 0; j < TESS_QUADS_EACH; j++)
            sums[r][j] *= step.rescale;
    }
}

/* The end of one row: the sink takes part, LSE is written. */
TESS_FN void tess_finish_row(__local tess_forward_memory *memory, tess_i32 own)
{
    __local const tess_forward_item *const item = &memory->item;
    const tess_i64 row = item->tile.first + own;
    tess_os_sunk sunk;

    sunk.row = memory->states[own];
    sunk.rescale = 1.0f;
    memory->is_bad[own] = 0;
    if (row >= item->tile.end)
        return;
    if (item->sink)
        sunk =
            tess_os_sink(sunk.row, tess_sink_of(item->sink, item->sink_stride, item->group, row));
    memory->factors[own] = sunk.rescale * tess_os_inverse(sunk.row.sum);
    if (item->lse.base)
        item->lse.base[tess_value_index(item->lse, row)] = tess_os_lse(sunk.row);
}

/* Writes the tile's rows, and in the item's flag whether one has to be computed again. */
TESS_FN void tess_finish_tile(tess_args_at args, tess_os_row states[TESS_ROWS_EACH],
                              float4 sums[TESS_ROWS_EACH][TESS_QUADS_EACH],
                              __local tess_forward_memory *memory, __global tess_u32 *flag)
{
    __local const tess_forward_item *const item = &memory->item;
    __local float *const exchange = (__local float *)memory->stage;
    const tess_i32 count = (tess_i32)(item->tile.end - item->tile.first);

    TESS_UNROLL
    for (int r = 0; r < TESS_ROWS_EACH; r++)
        exchange[(tess_own_y() + r * TESS_GRID_ROWS) * TESS_GRID_COLUMNS + tess_own_x()] =
            states[r].sum;
    tess_lay_down(sums, memory->q); /* which is read no more since the last barrier */
    TESS_BARRIER();                 /* shares of sums are there */
    TESS_UNROLL
    for (int r = 0; r < TESS_ROWS_EACH; r++) {
        const tess_i32 own = tess_own_y() + r * TESS_GRID_ROWS;
        if (tess_own_x() == 0) {
            tess_os_row state = states[r];
            state.sum = 0.0f;
            TESS_NO_UNROLL
            for (int i = 0; i < TESS_GRID_COLUMNS; i++)
                state.sum += exchange[own * TESS_GRID_COLUMNS + i];
            memory->states[own] = state;
            tess_finish_row(memory, own);
        }
    }
    TESS_BARRIER(); /* factors are there */
    tess_put_rows(item->o, item->tile.first, count, memory->q, memory->factors, memory->is_bad);
    if ((args->flags & TESS_ALLOW_NONFINITE_SPREAD) == 0) {
        TESS_BARRIER(); /* marks are there */
        if (tess_thread() == 0) {
            tess_u32 any = 0;
            TESS_NO_UNROLL
            for (tess_i32 r = 0; r < count; r++)
                any |= memory->is_bad[r];
            *flag = any;
        }
    }
}

TESS_FN void tess_forward_tile(tess_args_at args, __local tess_forward_memory *memory,
                               __global tess_u32 *flag)
{
    __local const tess_forward_item *const item = &memory->item;
    float4 sums[TESS_ROWS_EACH][TESS_QUADS_EACH];
    tess_os_row states[TESS_ROWS_EACH];

    tess_keep_resident(item->q, item->tile.first, memory->q);
    tess_clear(sums);
    TESS_UNROLL
    for (int r = 0; r < TESS_ROWS_EACH; r++)
        states[r] = tess_os_empty();
    TESS_BARRIER(); /* also where there is no tile of columns */
    TESS_NO_UNROLL
    for (tess_i64 tile = item->walk.first; tile < item->walk.end; tile++) {
        const tess_i64 column = tile * TESS_STREAM;
        const int is_masked = tess_walk_is_masked(item->walk, tile);
        float scores[TESS_ROWS_EACH][TESS_COLUMNS_EACH];

        tess_list_rows(item->k, column, item->share_first, item->share_end, memory->k_index);
        tess_list_rows(item->v, column, item->share_first, item->share_end, memory->v_index);
        TESS_BARRIER(); /* lists are there */
        tess_dots(scores, memory->q, tess_stream_of(item->k, memory->k_index), memory->stage);
        if (is_masked || !item->scoring.is_plain) {
            tess_score_tile(item, column, is_masked, scores, memory->weights);
        } else {
            const float scale = item->scoring.scale * TESS_LOG2_E;
            TESS_UNROLL
            for (int r = 0; r < TESS_ROWS_EACH; r++)
                TESS_UNROLL
            for (int c = 0; c < TESS_COLUMNS_EACH; c++)
                scores[r][c] *= scale;
        }
        tess_softmax_tile(scores, states, sums, memory->stage, memory->weights);
        TESS_BARRIER(); /* weights are there, maxima are read */
        tess_sums(sums, memory->weights, tess_stream_of(item->v, memory->v_index),
                  item->share_end - column, memory->stage);
    }
    tess_finish_tile(args, states, sums, memory, flag);
}

/* The role FORWARD MAIN_CHECKED. */
TESS_CL_KERNEL(TESS_CL_FORWARD_PARAMETERS)
{
    __local tess_forward_memory memory;
    TESS_CL_FORWARD_ADDRESSES(to);
    __global tess_u32 *const flags = (__global tess_u32 *)(to.at[TESS_AT_WORKSPACE] + args->redo);

    TESS_CL_FOR_ITEMS(i)
    {
        if (tess_thread() == 0)
            memory.item = tess_forward_item_at(args, &to, i);
        TESS_BARRIER(); /* the item is there */
        if (memory.item.tile.first < memory.item.tile.end)
            tess_forward_tile(args, &memory, flags + i);
        else if (tess_thread() == 0 && (args->flags & TESS_ALLOW_NONFINITE_SPREAD) == 0)
            flags[i] = 0;
        TESS_BARRIER(); /* before the next item writes where this one reads */
    }
}
