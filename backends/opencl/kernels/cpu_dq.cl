/* SPDX-License-Identifier: Apache-2.0
 * dQ on processors: a lane is a row, and columns stream past. */
#include "item.h"

#define CPU_LANES TESS_CL_ROWS
#define CPU_TILE TESS_CL_COLUMNS
#include "cpu_pairs.h"

/*     Q and dO of the item's rows to lanes
 *     for each tile of columns of which one is seen by one of them
 *         K and V of it as fp32                                once for all panels
 *         for each panel of rows that sees one of them
 *             S = K Q^T, dP = V dO^T
 *             P = 2^(S - LSE), dS = P (dP - delta)             hook and masks where needed
 *             dQ += K^T dS
 *     dQ, scaled; rows that are not finite again, absent pairs skipped */

typedef struct cpu_memory {
    vec q[CPU_PANELS][CPU_DIMS * CPU_VECTORS], d_o[CPU_PANELS][CPU_DIMS * CPU_VECTORS];
    vec dq[CPU_PANELS][CPU_DIMS * CPU_VECTORS];
    vec k[CPU_TILE_VECTORS], v[CPU_TILE_VECTORS];
    vec score[CPU_TILE_SCORES], gradient[CPU_TILE_SCORES];
    vec bias[CPU_TILE], bias_rows[CPU_TILE]; /* of one vector of rows */
    vec lse[CPU_PANELS][CPU_VECTORS], delta[CPU_PANELS][CPU_VECTORS];
    vec slope[CPU_PANELS][CPU_VECTORS], distance[CPU_PANELS][CPU_VECTORS];
    vec_int first[CPU_PANELS][CPU_VECTORS], end[CPU_PANELS][CPU_VECTORS];
    vec fault;
} cpu_memory;

TESS_CL_ASSERT(cpu_the_line_says_how_much_it_is, sizeof(cpu_memory) <= TESS_CL_LOCAL);
TESS_CL_ASSERT(cpu_a_tile_is_whole, CPU_TILE % CPU_WIDTH == 0 && CPU_TILE % CPU_SUMS == 0);

TESS_FN cpu_pairs cpu_item_at(tess_args_at args, const tess_addresses *to, tess_i64 index,
                              tess_rows *dq)
{
    const tess_item_place place = tess_item_place_at(args, index, 1);
    const tess_sequence s = tess_sequence_at(args, to, place.sequence);
    const tess_row_tile tile =
        tess_walk_row_tile(place.tile, args->row_tiles, s.rows, args->group, args->tile_rows);
    cpu_pairs item = cpu_pairs_of(args, to, s, place.head_kv);

    item.first = tile.first;
    item.end = tile.end;
    *dq = tess_query_rows(to->at[TESS_AT_DQ], args->dq_stride, args->head_dim, args->dq_dtype, s,
                          place.head_kv * args->group, args->group);
    return item;
}

TESS_FN tess_i64 cpu_row_of(const cpu_pairs *item, int panel, int lane)
{
    return tess_min_i64(item->first + panel * CPU_PANEL_LANES + lane, item->end - 1);
}

TESS_FN void cpu_start_panel(const cpu_pairs *item, cpu_hook hook, int p, __local cpu_memory *m)
{
    for (int v = 0; v < CPU_VECTORS; v++) {
        const tess_i64 first = cpu_row_of(item, p, v * CPU_WIDTH);
        for (int lane = 0; lane < CPU_WIDTH; lane++) {
            const cpu_row row = cpu_row_at(item, hook, cpu_row_of(item, p, v * CPU_WIDTH + lane));
            ((__local float *)&m->lse[p][v])[lane] = row.lse;
            ((__local float *)&m->delta[p][v])[lane] = row.delta;
            ((__local float *)&m->slope[p][v])[lane] = row.slope;
            ((__local float *)&m->distance[p][v])[lane] = row.distance;
            ((__local int *)&m->first[p][v])[lane] = row.first;
            ((__local int *)&m->end[p][v])[lane] = row.end;
        }
        TESS_NO_UNROLL
        for (int t = 0; t < 2; t++)
            cpu_stay(t ? item->d_o : item->q, first, item->end, t ? 1.0f : hook.factor, m->k,
                     (t ? m->d_o[p] : m->q[p]) + v);
    }
    cpu_clear(m->dq[p], CPU_DIMS * CPU_VECTORS);
}

/* Bias of one vector of rows against the columns of a tile, transposed. */
TESS_FN void cpu_bring_bias(const cpu_pairs *item, cpu_hook hook, int p, int v, tess_i64 column,
                            int count, __local cpu_memory *m)
{
    for (int lane = 0; lane < CPU_WIDTH; lane++) {
        const cpu_row row = cpu_row_at(item, hook, cpu_row_of(item, p, v * CPU_WIDTH + lane));
        cpu_bring(cpu_bias_rows(item), cpu_bias_index(item, row, column), count,
                  m->bias_rows + lane * (CPU_TILE / CPU_WIDTH));
    }
    for (int j = 0; j < count; j += CPU_WIDTH)
        cpu_transpose(m->bias_rows + j / CPU_WIDTH, CPU_TILE / CPU_WIDTH, vec_set(1.0f),
                      m->bias + j, 1);
}

/* One tile of columns, from `column` on, against one panel of rows. */
TESS_FN void cpu_pull_panel(const cpu_pairs *item, cpu_hook hook, int p, tess_i64 column, int count,
                            int is_masked, __local cpu_memory *m)
{
    for (int v = 0; v < CPU_VECTORS; v++) {
        const vec lse = m->lse[p][v], delta = m->delta[p][v];
        const vec slope = m->slope[p][v], distance = m->distance[p][v];
        const vec_int first = m->first[p][v], end = m->end[p][v];
        if (item->scoring.bias)
            cpu_bring_bias(item, hook, p, v, column, count, m);
        for (int j = 0; j < count; j++) {
            const vec_int at = (vec_int)((int)column + j);
            __local vec *const score = m->score + j * CPU_VECTORS + v;
            __local vec *const gradient = m->gradient + j * CPU_VECTORS + v;
            if (hook.is_needed || is_masked)
                *gradient =
                    cpu_pull(hook, *score, *gradient, slope, distance - (float)((int)column + j),
                             item->scoring.bias ? m->bias[j] : vec_set(0.0f), lse, delta,
                             first <= at && end > at)
                        .chained;
            else
                *gradient = cpu_pull_plain(*score, *gradient, lse, delta).chained;
        }
    }
}

TESS_FN void cpu_add_tile(const cpu_pairs *item, cpu_hook hook, int panels, tess_i64 tile,
                          int count, __local cpu_memory *m)
{
    const tess_i64 column = tile * CPU_TILE;

    for (int p = 0; p < panels; p++) {
        const tess_column_walk walk = tess_walk_columns(
            item->visible, tess_divide(cpu_row_of(item, p, 0), item->group),
            tess_divide(cpu_row_of(item, p, CPU_PANEL_LANES - 1), item->group), CPU_TILE, 0, 1);
        if (tile < walk.first || tile >= walk.end)
            continue;
        TESS_NO_UNROLL
        for (int t = 0; t < 2; t++)
            cpu_dots(t ? m->d_o[p] : m->q[p], t ? m->v : m->k, t ? item->v.dims : item->k.dims,
                     count, t ? m->gradient : m->score);
        cpu_pull_panel(item, hook, p, column, count, tess_walk_is_masked(walk, tile), m);
        cpu_gather(m->gradient, m->k, count, item->q.dims, m->dq[p]);
    }
}

/* dQ of one row by itself. */
TESS_FN void cpu_exact_row(const cpu_pairs *item, tess_i64 row, __local vec *dq)
{
    cpu_clear(dq, CPU_ROW_VECTORS);
    for (tess_i64 column = item->seen_first; column < item->seen_end; column++) {
        const cpu_exact pulled = cpu_pull_exact(item, row, column);
        if (!(pulled.weight < 0.0f)) /* absent; a NaN is not */
            cpu_add_exact(item->k, column, pulled.chained, dq);
    }
}

TESS_FN void cpu_finish_vector(const cpu_pairs *item, int p, int v, int may_spread, tess_rows dq,
                               __local cpu_memory *m)
{
    const tess_i64 first = item->first + p * CPU_PANEL_LANES + v * CPU_WIDTH;

    m->fault = cpu_leave(m->dq[p] + v, item->q.dims, vec_set(item->scoring.scale), m->k);
    for (int lane = 0; lane < CPU_WIDTH && first + lane < item->end; lane++) {
        __local vec *const row = m->k + lane * CPU_PITCH;
        if (((__local const float *)&m->fault)[lane] != 0.0f && !may_spread)
            cpu_exact_row(item, first + lane, row);
        cpu_put(dq, first + lane, row);
    }
}

TESS_FN void cpu_dq(cpu_pairs item, int may_spread, tess_rows dq, __local cpu_memory *m)
{
    const cpu_hook hook = cpu_hook_of(item.scoring);
    const int panels = (int)((item.end - item.first + CPU_PANEL_LANES - 1) / CPU_PANEL_LANES);
    const tess_i64 query_first = tess_walk_query(item.first, item.group);
    const tess_i64 query_last = tess_walk_query(item.end - 1, item.group);
    const tess_column_walk walk =
        tess_walk_columns(item.visible, query_first, query_last, CPU_TILE, 0, 1);

    item.seen_first = tess_visible_first(item.visible, query_first);
    item.seen_end = tess_visible_end(item.visible, query_last);
    for (int p = 0; p < panels; p++)
        cpu_start_panel(&item, hook, p, m);
    for (tess_i64 tile = walk.first; tile < walk.end; tile++) {
        const tess_i64 column = tile * CPU_TILE;
        const int count = (int)tess_min_i64(CPU_TILE, item.seen_end - column);
        TESS_NO_UNROLL
        for (int t = 0; t < 2; t++)
            cpu_bring_tile(t ? item.v : item.k, column, item.seen_first, count, t ? m->v : m->k);
        cpu_add_tile(&item, hook, panels, tile, count, m);
    }
    for (int i = 0; i < panels * CPU_VECTORS; i++)
        cpu_finish_vector(&item, i / CPU_VECTORS, i % CPU_VECTORS, may_spread, dq, m);
}

/* The role BACKWARD DQ. */
TESS_CL_KERNEL(TESS_CL_BACKWARD_PARAMETERS)
{
    __local cpu_memory memory;
    TESS_CL_BACKWARD_ADDRESSES(to);

    TESS_CL_FOR_ITEMS(i)
    {
        tess_rows dq;
        const cpu_pairs item = cpu_item_at(args, &to, cpu_order(i, args->row_tiles, 1), &dq);
        if (item.first < item.end)
            cpu_dq(item, (args->flags & TESS_ALLOW_NONFINITE_SPREAD) != 0, dq, &memory);
    }
}
