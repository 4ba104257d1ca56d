/* SPDX-License-Identifier: Apache-2.0
 * dK and dV on processors: a lane is a column, and rows stream past. */
#include "sequence.h"

#define CPU_LANES TESS_CL_COLUMNS
#define CPU_TILE 48
#include "cpu_pairs.h"

/*     K and V of the item's columns to lanes
 *     for each tile of rows of which one sees one of them
 *         Q and dO of it as fp32                               once for all panels
 *         for each panel of columns that is seen
 *             S = Q K^T, dP = dO V^T
 *             P = 2^(S - LSE), dS = P (dP - delta)             hook and masks where needed
 *             dV += dO^T P, dK += Q^T dS
 *     dK and dV, scaled; columns that are not finite again, absent pairs skipped
 *
 * The heads of a group are rows like others, so that their sum is part of the product. */

typedef struct cpu_memory {
    vec k[CPU_PANELS][CPU_DIMS * CPU_VECTORS], v[CPU_PANELS][CPU_DIMS * CPU_VECTORS];
    vec dk[CPU_PANELS][CPU_DIMS * CPU_VECTORS], dv[CPU_PANELS][CPU_DIMS * CPU_VECTORS];
    vec q[CPU_TILE_VECTORS], d_o[CPU_TILE_VECTORS];
    vec weight[CPU_TILE_SCORES], gradient[CPU_TILE_SCORES];
    vec bias[CPU_VECTORS]; /* of one row and a panel */
    vec fault;
    cpu_row rows[CPU_TILE];
} cpu_memory;

TESS_CL_ASSERT(cpu_the_line_says_how_much_it_is, sizeof(cpu_memory) <= TESS_CL_LOCAL);

/* First query whose visible columns end behind `column`. They grow with the query. */
TESS_FN tess_i64 cpu_first_query(tess_visible visible, tess_i64 queries, tess_i64 column)
{
    tess_i64 low = 0, high = queries;

    while (low < high) {
        const tess_i64 middle = (low + high) / 2;
        if (tess_visible_end(visible, middle) > column)
            high = middle;
        else
            low = middle + 1;
    }
    return low;
}

/* One past the last query whose visible columns begin before `end`. */
TESS_FN tess_i64 cpu_end_query(tess_visible visible, tess_i64 queries, tess_i64 end)
{
    tess_i64 low = 0, high = queries;

    while (low < high) {
        const tess_i64 middle = (low + high) / 2;
        if (tess_visible_first(visible, middle) < end)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* Shares of the columns of one key head; item = (sequence x heads_kv + head) x shares + share. */
TESS_FN cpu_pairs cpu_item_at(tess_args_at args, const tess_addresses *to, tess_i64 i,
                              tess_rows *dk, tess_rows *dv)
{
    const tess_i64 shares =
        tess_max_i64(tess_divide(args->columns + args->share_columns - 1, args->share_columns), 1);
    const tess_i64 index = cpu_order(i, shares, 1);
    const tess_i64 heads = tess_divide(index, shares);
    const tess_i64 sequence = tess_divide(heads, tess_max_i64(args->heads_kv, 1));
    const tess_i64 head_kv = heads - sequence * args->heads_kv;
    cpu_pairs item;

    item.first = item.end = 0;
    if (heads >= args->sequences * args->heads_kv)
        return item; /* a schedule has an item even when there is none */
    const tess_sequence s = tess_sequence_at(args, to, sequence);
    item = cpu_pairs_of(args, to, s, head_kv);
    item.first = (index - heads * shares) * args->share_columns;
    item.end = tess_min_i64(item.first + args->share_columns, s.columns);
    item.seen_first = cpu_first_query(item.visible, s.rows, item.first) * args->group;
    item.seen_end = cpu_end_query(item.visible, s.rows, item.end) * args->group;
    *dk = tess_key_rows(args, to, to->at[TESS_AT_DK], args->dk_stride, args->head_dim,
                        args->dk_dtype, s, head_kv);
    *dv = tess_key_rows(args, to, to->at[TESS_AT_DV], args->dv_stride, args->head_dim_v,
                        args->dv_dtype, s, head_kv);
    return item;
}

/* One tile of rows against one panel of columns, from `column` on. */
TESS_FN void cpu_pull_panel(const cpu_pairs *item, cpu_hook hook, tess_i64 column, int count,
                            int is_masked, __local cpu_memory *m)
{
    const vec_int lanes = (vec_int)(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    const tess_rows bias_rows = cpu_bias_rows(item);
    const tess_i64 columns = tess_min_i64(CPU_PANEL_LANES, item->end - column);

    for (int j = 0; j < count; j++) {
        const cpu_row row = m->rows[j];
        __local vec *const weight = m->weight + j * CPU_VECTORS;
        __local vec *const gradient = m->gradient + j * CPU_VECTORS;
        if (item->scoring.bias)
            cpu_bring(bias_rows, cpu_bias_index(item, row, column), columns, m->bias);
        for (int v = 0; v < CPU_VECTORS; v++) {
            const vec_int at = lanes + ((int)column + v * CPU_WIDTH);
            cpu_pulled pulled;
            if (hook.is_needed || is_masked)
                pulled = cpu_pull(hook, weight[v], gradient[v], vec_set(row.slope),
                                  row.distance - convert_float16(at),
                                  item->scoring.bias ? m->bias[v] : vec_set(0.0f), vec_set(row.lse),
                                  vec_set(row.delta),
                                  at >= (vec_int)(row.first) && at < (vec_int)(row.end));
            else
                pulled =
                    cpu_pull_plain(weight[v], gradient[v], vec_set(row.lse), vec_set(row.delta));
            weight[v] = pulled.weight;
            gradient[v] = pulled.chained;
        }
    }
}

TESS_FN void cpu_add_tile(const cpu_pairs *item, cpu_hook hook, int panels, int count,
                          __local cpu_memory *m)
{
    for (int p = 0; p < panels; p++) {
        const tess_i64 column = item->first + p * CPU_PANEL_LANES;
        const tess_i64 end = tess_min_i64(column + CPU_PANEL_LANES, item->end);
        /* Seen by one of the rows, and by all: intervals grow with the row. */
        const int is_seen = tess_visible_first(item->visible, m->rows[0].query) < end &&
                            tess_visible_end(item->visible, m->rows[count - 1].query) > column;
        const int is_full = tess_visible_first(item->visible, m->rows[count - 1].query) <= column &&
                            tess_visible_end(item->visible, m->rows[0].query) >= end;
        if (!is_seen)
            continue;
        TESS_NO_UNROLL
        for (int t = 0; t < 2; t++)
            cpu_dots(t ? m->v[p] : m->k[p], t ? m->d_o : m->q, t ? item->v.dims : item->k.dims,
                     count, t ? m->gradient : m->weight);
        cpu_pull_panel(item, hook, column, count, !is_full, m);
        TESS_NO_UNROLL
        for (int t = 0; t < 2; t++)
            cpu_gather(t ? m->weight : m->gradient, t ? m->d_o : m->q, count,
                       t ? item->v.dims : item->k.dims, t ? m->dv[p] : m->dk[p]);
    }
}

/* dK and dV of one column by itself. */
TESS_FN void cpu_exact_column(const cpu_pairs *item, tess_i64 column, __local vec *dk,
                              __local vec *dv)
{
    cpu_clear(dk, CPU_ROW_VECTORS);
    cpu_clear(dv, CPU_ROW_VECTORS);
    for (tess_i64 row = item->seen_first; row < item->seen_end; row++) {
        const cpu_exact pulled = cpu_pull_exact(item, row, column);
        TESS_NO_UNROLL
        for (int t = 0; t < 2 && !(pulled.weight < 0.0f); t++) /* absent; a NaN is not */
            cpu_add_exact(t ? item->d_o : item->q, row, t ? pulled.weight : pulled.chained,
                          t ? dv : dk);
    }
}

/* Writes one vector of columns. */
TESS_FN void cpu_finish_vector(const cpu_pairs *item, int p, int v, int may_spread, tess_rows dk,
                               tess_rows dv, __local cpu_memory *m)
{
    const tess_i64 first = item->first + p * CPU_PANEL_LANES + v * CPU_WIDTH;

    m->fault = vec_set(0.0f);
    TESS_NO_UNROLL
    for (int t = 0; t < 2; t++)
        m->fault += cpu_leave(t ? m->dv[p] + v : m->dk[p] + v, t ? item->v.dims : item->k.dims,
                              vec_set(t ? 1.0f : item->scoring.scale), t ? m->d_o : m->q);
    for (int lane = 0; lane < CPU_WIDTH && first + lane < item->end; lane++) {
        if (((__local const float *)&m->fault)[lane] != 0.0f && !may_spread)
            cpu_exact_column(item, first + lane, m->q + lane * CPU_PITCH,
                             m->d_o + lane * CPU_PITCH);
        TESS_NO_UNROLL
        for (int t = 0; t < 2; t++) {
            const tess_rows to = t ? dv : dk;
            if (to.base)
                cpu_put(to, first + lane, (t ? m->d_o : m->q) + lane * CPU_PITCH);
        }
    }
}

TESS_FN void cpu_backward(const cpu_pairs *item, int may_spread, tess_rows dk, tess_rows dv,
                          __local cpu_memory *m)
{
    const cpu_hook hook = cpu_hook_of(item->scoring);
    const int panels = (int)((item->end - item->first + CPU_PANEL_LANES - 1) / CPU_PANEL_LANES);
    const tess_i64 tile_first = item->seen_first / CPU_TILE;

    for (int i = 0; i < 2 * panels * CPU_VECTORS; i++) {
        const int t = i % 2, p = i / 2 / CPU_VECTORS, v = i / 2 % CPU_VECTORS;
        const tess_i64 column =
            tess_min_i64(item->first + p * CPU_PANEL_LANES + v * CPU_WIDTH, item->end - 1);
        cpu_stay(t ? item->v : item->k, column, item->end, t ? 1.0f : hook.factor, m->q,
                 (t ? m->v[p] : m->k[p]) + v);
    }
    cpu_clear(m->dk[0], panels * CPU_DIMS * CPU_VECTORS);
    cpu_clear(m->dv[0], panels * CPU_DIMS * CPU_VECTORS);
    for (tess_i64 row = tile_first * CPU_TILE; row < item->seen_end; row += CPU_TILE) {
        const int count = (int)tess_min_i64(CPU_TILE, item->seen_end - row);
        for (int j = 0; j < count; j++)
            m->rows[j] = cpu_row_at(item, hook, row + j);
        TESS_NO_UNROLL
        for (int t = 0; t < 2; t++)
            cpu_bring_tile(t ? item->d_o : item->q, row, item->seen_first, count,
                           t ? m->d_o : m->q);
        cpu_add_tile(item, hook, panels, count, m);
    }
    for (int i = 0; i < panels * CPU_VECTORS; i++)
        cpu_finish_vector(item, i / CPU_VECTORS, i % CPU_VECTORS, may_spread, dk, dv, m);
}

/* The role BACKWARD MAIN. */
TESS_CL_KERNEL(TESS_CL_BACKWARD_PARAMETERS)
{
    __local cpu_memory memory;
    TESS_CL_BACKWARD_ADDRESSES(to);

    TESS_CL_FOR_ITEMS(i)
    {
        tess_rows dk, dv;
        const cpu_pairs item = cpu_item_at(args, &to, i, &dk, &dv);
        if (item.first < item.end)
            cpu_backward(&item, (args->flags & TESS_ALLOW_NONFINITE_SPREAD) != 0, dk, dv, &memory);
    }
}
