/* SPDX-License-Identifier: Apache-2.0
 * The forward pass on the CPU: work items picked up by threads, then the shares of splits merged.
 */
#include "backends/cpu/access.h"
#include "backends/cpu/backend.h"
#include "backends/cpu/sequences.h"
#include "backends/cpu/threads.h"

/* One run, shared by its workers and read only. Items are numbered sequence by sequence, long ones
 * first; within one, key head by key head, so that K and V of a head stay in cache while its row
 * tiles pass, the longest row tiles first. */
typedef struct forward_run {
    const tess_prepared *prepared;
    const tess_args *args;
    const tess_address *addresses;
    const int64_t *order;      /* sequences in the order of work */
    const int64_t *first_item; /* sequences + 1 prefix sums, in that order */
    char *workspace;
} forward_run;

/* Fills first_item; returns the number of items. */
static int64_t list_items(const tess_args *args, const tess_address addresses[TESS_AT_COUNT],
                          const int64_t *order, int64_t *first_item)
{
    int64_t items = 0;

    for (int64_t i = 0; i < args->sequences; i++) {
        const tess_cpu_sequence s = tess_cpu_sequence_at(args, addresses, order[i]);
        first_item[i] = items;
        items += args->heads_kv * tess_walk_row_tiles(s.rows, args->group, args->tile_rows) *
                 args->splits;
    }
    first_item[args->sequences] = items;
    return items;
}

/* The place in the order of the sequence whose items hold `item`: the last one that starts at or
 * before it. */
static int64_t find_place(const forward_run *run, int64_t item)
{
    int64_t low = 0, high = run->args->sequences - 1;

    while (low < high) {
        const int64_t middle = low + (high - low + 1) / 2;
        if (run->first_item[middle] <= item)
            low = middle;
        else
            high = middle - 1;
    }
    return low;
}

static bool takes_sink(const tess_cpu_work *work)
{
    const tess_args *args = work->args;
    return tess_walk_takes_sink(work->visible, tess_walk_query(work->tile.first, args->group),
                                tess_walk_query(work->tile.end - 1, args->group),
                                args->tile_columns, work->split, args->splits) != 0;
}

static void run_item(void *user, int64_t item, int32_t worker)
{
    const forward_run *run = user;
    const tess_args *args = run->args;
    const int64_t place = find_place(run, item), sequence = run->order[place];
    const tess_cpu_sequence s = tess_cpu_sequence_at(args, run->addresses, sequence);
    const int64_t row_tiles = tess_walk_row_tiles(s.rows, args->group, args->tile_rows);
    const int64_t inside = item - run->first_item[place];
    const int64_t head_kv = inside / args->splits / row_tiles;
    tess_cpu_work work = {.split = inside % args->splits, .splits = args->splits};

    tess_cpu_resolve(args, run->addresses, sequence, &s, head_kv, &work);
    work.tile = tess_walk_row_tile(inside / args->splits % row_tiles, row_tiles, s.rows,
                                   args->group, args->tile_rows);
    work.scratch = run->workspace + args->scratch + worker * args->scratch_size;
    if (args->splits > 1) {
        const int64_t row =
            (work.split * tess_cpu_all_rows(args) + tess_cpu_first_row(args, &s)) * args->heads_q +
            head_kv * args->group;
        work.partial_o =
            (float *)(void *)(run->workspace + args->partial_o) + row * args->head_dim_v;
        work.partial_lse = (float *)(void *)(run->workspace + args->partial_lse) + row;
        if (!takes_sink(&work))
            work.sink = NULL;
    }
    run->prepared->forward(&work);
}

/* Sums the shares of one folded row into o; returns its LSE. */
static float merge_row(const tess_args *args, const char *lses, int64_t lse_stride,
                       const char *parts, float *o)
{
    const tess_cpu_union all = tess_cpu_unite(args->splits, lses, lse_stride);
    bool has_part = false;

    for (int32_t d = 0; d < args->head_dim_v; d++)
        o[d] = 0.0f;
    for (int64_t split = 0; split < args->splits; split++) {
        const float lse = tess_cpu_load(lses, split * lse_stride, TESS_F32);
        const float weight = tess_cpu_union_weight(all, lse);
        const int64_t part = split * lse_stride * args->head_dim_v;
        if (lse == TESS_NEG_INF) /* an empty share */
            continue;
        /* The first is not added to 0, which would lose the sign of a -0: one share among empty
         * ones gives the bits it has without the others. */
        for (int32_t d = 0; d < args->head_dim_v; d++) {
            const float weighted = weight * tess_cpu_load(parts, part + d, TESS_F32);
            o[d] = has_part ? o[d] + weighted : weighted;
        }
        has_part = true;
    }
    return tess_cpu_union_lse(all);
}

/* Merges the shares of one sequence and key head; the item is sequence x key heads + key head. The
 * row in the making lives in the worker's scratch, which the kernels have left. */
static void merge_item(void *user, int64_t item, int32_t worker)
{
    const forward_run *run = user;
    const tess_args *args = run->args;
    const int64_t sequence = item / args->heads_kv, head_kv = item % args->heads_kv;
    const tess_cpu_sequence s = tess_cpu_sequence_at(args, run->addresses, sequence);
    const int64_t split_rows = tess_cpu_all_rows(args) * args->heads_q;
    float *o = (float *)(void *)(run->workspace + args->scratch + worker * args->scratch_size);
    tess_cpu_work work = {.splits = 1};

    tess_cpu_resolve(args, run->addresses, sequence, &s, head_kv, &work);
    for (int64_t folded = 0; folded < s.rows * args->group; folded++) {
        const int64_t row = (tess_cpu_first_row(args, &s) + folded / args->group) * args->heads_q +
                            head_kv * args->group + folded % args->group;
        const char *lses = run->workspace + args->partial_lse + row * 4;
        const char *parts = run->workspace + args->partial_o + row * args->head_dim_v * 4;
        const float lse = merge_row(args, lses, split_rows, parts, o);
        tess_cpu_put_row(&work, folded, o, lse);
    }
}

tess_status tess_cpu_launch_forward(const tess_prepared *prepared,
                                    const tess_address addresses[TESS_AT_COUNT])
{
    const tess_args *args = &prepared->schedule->args;
    char *workspace = addresses[TESS_AT_WORKSPACE].base;
    int64_t *const order = (int64_t *)(void *)(workspace + args->sequence_list);
    int64_t *const first_item = order + args->sequences;
    forward_run run = {prepared, args, addresses, order, first_item, workspace};
    const int32_t threads = tess_cpu_threads_now(prepared);
    int64_t items;

    TESS_TRY(tess_cpu_sequences_check(prepared->host, "tess_plan_run_forward", args, addresses));
    if (args->heads_kv == 0)
        return TESS_OK;
    tess_cpu_order_sequences(args, addresses, order);
    items = list_items(args, addresses, order, first_item);
    tess_cpu_for_each(items, threads, run_item, &run);
    if (args->splits > 1)
        tess_cpu_for_each(args->sequences * args->heads_kv, threads, merge_item, &run);
    return TESS_OK;
}
