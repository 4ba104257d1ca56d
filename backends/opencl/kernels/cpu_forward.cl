/* SPDX-License-Identifier: Apache-2.0
 * The forward pass on processors: a lane is a row, scores and output are held transposed. */
#include "item.h"

#define CPU_LANES TESS_CL_ROWS
#define CPU_TILE TESS_CL_COLUMNS
#include "cpu_lanes.h"

/* The loops of backends/cpu/forward_tmpl.c in OpenCL's vectors:
 *
 *     Q of the item to lanes
 *     for each tile of columns in this item's share
 *         its rows of K and V as fp32                          once for all panels
 *         for each panel of rows that sees one of them
 *             scores = K Q^T, hook, masks                      masks only where the walk says so
 *             maximum, shift, weight = 2^(score - shift), sum  one vector of rows at a time
 *             output += V^T weights
 *     sink, division by the sum, O and LSE
 *     rows that are not finite are computed again, absent pairs skipped
 *
 * Tried and lost (Emerald Rapids, PoCL 3.1): tiles of 60 and 96 columns (+-1 %). */

typedef struct cpu_memory {
    vec query[CPU_PANELS][CPU_DIMS * CPU_VECTORS];
    vec output[CPU_PANELS][CPU_DIMS * CPU_VECTORS];
    vec shift[CPU_PANELS][CPU_VECTORS], sum[CPU_PANELS][CPU_VECTORS];
    vec_int seen_first[CPU_PANELS][CPU_VECTORS], seen_end[CPU_PANELS][CPU_VECTORS];
    vec k[CPU_TILE_VECTORS], v[CPU_TILE_VECTORS];
    vec score[CPU_TILE_SCORES], bias[CPU_TILE_SCORES];
    vec bias_rows[CPU_TILE];            /* 16 rows of a tile's width */
    vec slope, distance, factor, fault; /* of one vector of rows, to be seen lane by lane */
} cpu_memory;

TESS_CL_ASSERT(cpu_the_line_says_how_much_it_is, sizeof(cpu_memory) <= TESS_CL_LOCAL);
TESS_CL_ASSERT(cpu_a_tile_is_whole, CPU_TILE % CPU_WIDTH == 0 && CPU_TILE % CPU_SUMS == 0);

/* ---- rows -------------------------------------------------------------------------------------
 */

TESS_FN tess_i64 cpu_row_of(const tess_forward_item *item, int panel, int lane)
{
    return tess_min_i64(item->tile.first + panel * CPU_PANEL_LANES + lane, item->tile.end - 1);
}

TESS_FN void cpu_start_panel(const tess_forward_item *item, cpu_hook hook, int p,
                             __local cpu_memory *m)
{
    for (int v = 0; v < CPU_VECTORS; v++) {
        __local int *const first = (__local int *)&m->seen_first[p][v];
        __local int *const end = (__local int *)&m->seen_end[p][v];
        for (int lane = 0; lane < CPU_WIDTH; lane++) {
            const tess_i64 query =
                tess_divide(cpu_row_of(item, p, v * CPU_WIDTH + lane), item->group);
            first[lane] = (int)tess_visible_first(item->visible, query);
            end[lane] = (int)tess_visible_end(item->visible, query);
        }
        cpu_stay(item->q, cpu_row_of(item, p, v * CPU_WIDTH), item->tile.end, hook.factor, m->k,
                 m->query[p] + v);
        m->shift[p][v] = vec_set(TESS_NEG_INF);
        m->sum[p][v] = vec_set(0.0f);
    }
    for (int i = 0; i < item->v.dims * CPU_VECTORS; i++)
        m->output[p][i] = vec_set(0.0f);
}

/* ---- scores -----------------------------------------------------------------------------------
 */

/* Bias of one vector of rows against the columns of a tile, transposed. */
TESS_FN void cpu_bring_bias(const tess_forward_item *item, int p, int v, tess_i64 column, int count,
                            __local cpu_memory *m)
{
    tess_rows rows = tess_no_rows();

    rows.base = (__global char *)item->scoring.bias;
    rows.dim_stride = item->scoring.bias_column;
    rows.dtype = item->scoring.bias_dtype;
    for (int lane = 0; lane < CPU_WIDTH; lane++) {
        const tess_i64 row = cpu_row_of(item, p, v * CPU_WIDTH + lane);
        const tess_i64 query = tess_divide(row, item->group);
        cpu_bring(rows,
                  query * item->scoring.bias_row +
                      (row - query * item->group) * item->scoring.bias_head +
                      column * rows.dim_stride,
                  count, m->bias_rows + lane * (CPU_TILE / CPU_WIDTH));
    }
    for (int j = 0; j < count; j += CPU_WIDTH)
        cpu_transpose(m->bias_rows + j / CPU_WIDTH, CPU_TILE / CPU_WIDTH, vec_set(1.0f),
                      m->bias + j * CPU_VECTORS + v, CPU_VECTORS);
}

/* ALiBi's slope of each row of a vector, and its distance i + D - j from a column. */
TESS_FN void cpu_bring_slopes(const tess_forward_item *item, int p, int v, tess_i64 column,
                              __local cpu_memory *m)
{
    for (int lane = 0; lane < CPU_WIDTH; lane++) {
        const tess_i64 row = cpu_row_of(item, p, v * CPU_WIDTH + lane);
        const tess_i64 query = tess_divide(row, item->group);
        ((__local float *)&m->slope)[lane] =
            item->scoring.slopes[(row - query * item->group) * item->scoring.slope_head];
        ((__local float *)&m->distance)[lane] = (float)(query + item->scoring.diagonal - column);
    }
}

TESS_FN void cpu_apply_hook(const tess_forward_item *item, cpu_hook hook, int p, tess_i64 column,
                            int count, __local cpu_memory *m)
{
    for (int v = 0; v < CPU_VECTORS; v++) {
        __local vec *const score = m->score + v;
        vec slope = vec_set(0.0f), distance = slope;
        if (item->scoring.slopes) {
            cpu_bring_slopes(item, p, v, column, m);
            slope = m->slope;
            distance = m->distance;
        }
        if (item->scoring.bias)
            cpu_bring_bias(item, p, v, column, count, m);
        for (int j = 0; j < count; j++) {
            const vec bias = item->scoring.bias ? m->bias[j * CPU_VECTORS + v] : vec_set(0.0f);
            score[j * CPU_VECTORS] = cpu_in_log2(
                cpu_score(hook, score[j * CPU_VECTORS], slope, distance - (float)j, bias).natural);
        }
    }
}

/* Scores of columns that a row does not see become -inf: selected, never added, so that nothing an
 * absent column holds survives. */
TESS_FN void cpu_hide_absent(int p, tess_i64 column, int count, __local cpu_memory *m)
{
    for (int v = 0; v < CPU_VECTORS; v++) {
        const vec_int first = m->seen_first[p][v] - (int)column;
        const vec_int end = m->seen_end[p][v] - (int)column;
        for (int j = 0; j < count; j++) {
            __local vec *const at = m->score + j * CPU_VECTORS + v;
            *at = select(vec_set(TESS_NEG_INF), *at, first <= (vec_int)(j) && end > (vec_int)(j));
        }
    }
}

/* One vector of rows admits a tile's scores, as tess_os_admit() and tess_os_advance() do, and they
 * become weights. `count` is a multiple of 4: the columns are summed in 4 chains. */
TESS_FN void cpu_admit(int p, int v, int count, int dims, __local cpu_memory *m)
{
    __local vec *const score = m->score + v, *const output = m->output[p] + v;
    vec shift = m->shift[p][v], sum = m->sum[p][v], part[4];

    TESS_UNROLL
    for (int i = 0; i < 4; i++)
        part[i] = vec_set(TESS_NEG_INF);
    for (int j = 0; j < count; j += 4) {
        TESS_UNROLL
        for (int i = 0; i < 4; i++)
            part[i] = vec_max(part[i], score[(j + i) * CPU_VECTORS]);
    }
    const vec max = vec_max(vec_max(part[0], part[1]), vec_max(part[2], part[3]));
    const vec_int grows = shift + TESS_OS_LAG < max;
    if (any(grows)) {
        const vec next = select(shift, max, grows);
        const vec rescale = select(vec_set(1.0f), vec_exp2(shift - next), grows);
        for (int d = 0; d < dims; d++)
            output[d * CPU_VECTORS] *= rescale;
        sum *= rescale;
        shift = next;
    }

    const vec used = select(shift, vec_set(0.0f), shift == vec_set(TESS_NEG_INF));
    TESS_UNROLL
    for (int i = 0; i < 4; i++)
        part[i] = vec_set(0.0f);
    for (int j = 0; j < count; j += 4) {
        TESS_UNROLL
        for (int i = 0; i < 4; i++) {
            __local vec *const at = score + (j + i) * CPU_VECTORS;
            const vec weight = vec_exp2(*at - used);
            part[i] += weight;
            *at = weight;
        }
    }
    m->shift[p][v] = shift;
    m->sum[p][v] = sum + ((part[0] + part[1]) + (part[2] + part[3]));
}

TESS_FN void cpu_add_tile(const tess_forward_item *item, cpu_hook hook, int p, tess_i64 column,
                          int is_masked, int count, __local cpu_memory *m)
{
    const int whole = (count + 3) / 4 * 4;

    cpu_dots(m->query[p], m->k, item->q.dims, count, m->score);
    if (hook.is_needed)
        cpu_apply_hook(item, hook, p, column, count, m);
    if (is_masked)
        cpu_hide_absent(p, column, whole, m);
    for (int v = 0; v < CPU_VECTORS; v++)
        cpu_admit(p, v, whole, item->v.dims, m);
    cpu_gather(m->score, m->v, count, item->v.dims, m->output[p]);
}

/* ---- the way out ------------------------------------------------------------------------------
 */

/* One row by itself: the largest score and the sum of weights first, so that the output is a sum of
 * finished shares, which does not exceed the largest value. Absent pairs are skipped. */
TESS_FN tess_os_row cpu_exact_row(const tess_forward_item *item, tess_i64 row,
                                  __local float *output)
{
    const float sink =
        item->sink ? tess_os_score(tess_sink_of(item->sink, item->sink_stride, item->group, row))
                   : TESS_NEG_INF;
    tess_pair pair;
    tess_os_row state;
    float shift = 0.0f;

    pair.query = tess_divide(row, item->group);
    pair.head = row - pair.query * item->group;
    const tess_i64 first =
        tess_max_i64(item->share_first, tess_visible_first(item->visible, pair.query));
    const tess_i64 seen = tess_visible_end(item->visible, pair.query);
    const tess_i64 end = tess_max_i64(tess_min_i64(item->share_end, seen), first);
    state.shift = sink;
    state.sum = 0.0f;
    for (int d = 0; d < item->v.dims; d++)
        output[d] = 0.0f;
    TESS_NO_UNROLL
    for (int pass = 0; pass < 3; pass++) {
        const float inverse = tess_os_inverse(state.sum);
        for (pair.column = first - 1; pair.column < end; pair.column++) {
            const int is_column = pair.column >= first; /* what is before the first: the sink */
            const float score =
                is_column ? tess_score_log2(item->scoring, pair,
                                            tess_row_dot(item->q, row, item->k, pair.column))
                          : sink;
            const float weight = tess_os_weight(score, shift);
            if (pass == 0)
                state.shift = tess_max(score, state.shift);
            if (pass == 1)
                state.sum += weight;
            if (pass < 2 || !is_column || score == TESS_NEG_INF)
                continue;
            for (int d = 0; d < item->v.dims; d++)
                output[d] += weight * inverse * tess_row_element(item->v, pair.column, d);
        }
        shift = tess_os_shift(state.shift);
    }
    return state;
}

/* Divides one vector of rows by their sums and writes them. */
TESS_FN void cpu_finish_vector(const tess_forward_item *item, int p, int v, int may_spread,
                               __local cpu_memory *m)
{
    const tess_i64 first = item->tile.first + p * CPU_PANEL_LANES + v * CPU_WIDTH;
    const int lanes = (int)tess_min_i64(CPU_WIDTH, item->tile.end - first);
    __local float *const shift = (__local float *)&m->shift[p][v];
    __local float *const sum = (__local float *)&m->sum[p][v];
    __local float *const factor = (__local float *)&m->factor;

    m->fault = m->sum[p][v] * 0.0f;
    m->factor = vec_set(0.0f);
    for (int lane = 0; lane < lanes; lane++) {
        tess_os_sunk sunk;
        sunk.row.shift = shift[lane];
        sunk.row.sum = sum[lane];
        sunk.rescale = 1.0f;
        if (item->sink)
            sunk = tess_os_sink(
                sunk.row, tess_sink_of(item->sink, item->sink_stride, item->group, first + lane));
        shift[lane] = sunk.row.shift;
        sum[lane] = sunk.row.sum;
        factor[lane] = sunk.rescale * tess_os_inverse(sunk.row.sum);
    }
    m->fault += cpu_leave(m->output[p] + v, item->v.dims, m->factor, m->k);
    for (int lane = 0; lane < lanes; lane++) {
        __local vec *const row = m->k + lane * CPU_PITCH;
        tess_os_row state;
        state.shift = shift[lane];
        state.sum = sum[lane];
        if (((__local const float *)&m->fault)[lane] != 0.0f && !may_spread)
            state = cpu_exact_row(item, first + lane, (__local float *)row);
        cpu_put(item->o, first + lane, row);
        if (item->lse.base)
            item->lse.base[tess_value_index(item->lse, first + lane)] = tess_os_lse(state);
    }
}

/* ---- the item ---------------------------------------------------------------------------------
 */

TESS_FN void cpu_forward(const tess_forward_item *item, int may_spread, __local cpu_memory *m)
{
    const cpu_hook hook = cpu_hook_of(item->scoring);
    const int panels =
        (int)((item->tile.end - item->tile.first + CPU_PANEL_LANES - 1) / CPU_PANEL_LANES);

    for (int p = 0; p < panels; p++)
        cpu_start_panel(item, hook, p, m);
    for (tess_i64 tile = item->walk.first; tile < item->walk.end; tile++) {
        const tess_i64 column = tile * CPU_TILE;
        const int count = (int)tess_min_i64(CPU_TILE, item->share_end - column);
        TESS_NO_UNROLL
        for (int t = 0; t < 2; t++)
            cpu_bring_tile(t ? item->v : item->k, column, item->share_first, count,
                           t ? m->v : m->k);
        for (int p = 0; p < panels; p++) {
            const tess_column_walk walk = tess_walk_columns(
                item->visible, tess_divide(cpu_row_of(item, p, 0), item->group),
                tess_divide(cpu_row_of(item, p, CPU_PANEL_LANES - 1), item->group), CPU_TILE, 0, 1);
            /* Of the last row, which sees the most. */
            const int seen = m->seen_end[p][CPU_VECTORS - 1].sf - (int)column;
            if (tile >= walk.first && tile < walk.end)
                cpu_add_tile(item, hook, p, column, tess_walk_is_masked(walk, tile),
                             min(seen, count), m);
        }
    }
    for (int p = 0; p < panels; p++)
        for (int v = 0; v < CPU_VECTORS; v++)
            cpu_finish_vector(item, p, v, may_spread, m);
}

TESS_CL_KERNEL(TESS_CL_FORWARD_PARAMETERS)
{
    __local cpu_memory memory;
    TESS_CL_FORWARD_ADDRESSES(to);

    TESS_CL_FOR_ITEMS(i)
    {
        const tess_forward_item item =
            tess_forward_item_at(args, &to, cpu_order(i, args->row_tiles, args->splits));
        if (item.tile.first < item.tile.end)
            cpu_forward(&item, (args->flags & TESS_ALLOW_NONFINITE_SPREAD) != 0, &memory);
    }
}
