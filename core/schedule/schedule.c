/* SPDX-License-Identifier: Apache-2.0
 * A schedule: one problem on one kernel, with its tile grid, splits and workspace laid out. */
#include "core/schedule/schedule.h"

#include "core/base/alloc.h"
#include "core/base/error.h"
#include "core/portable/walk.h"
#include "core/schedule/split.h"

#include <string.h>

const char *const tess_address_names[TESS_AT_COUNT] = {
    [TESS_AT_Q] = "q",
    [TESS_AT_K] = "k",
    [TESS_AT_V] = "v",
    [TESS_AT_O] = "o",
    [TESS_AT_LSE] = "lse",
    [TESS_AT_CU_SEQLENS_Q] = "cu_seqlens_q",
    [TESS_AT_CU_SEQLENS_K] = "cu_seqlens_k",
    [TESS_AT_SEQUSED_Q] = "seqused_q",
    [TESS_AT_SEQUSED_K] = "seqused_k",
    [TESS_AT_PAGE_TABLE] = "page_table",
    [TESS_AT_BIAS] = "bias",
    [TESS_AT_ALIBI_SLOPES] = "alibi_slopes",
    [TESS_AT_SINK] = "sink",
    [TESS_AT_Q_DESCALE] = "q_descale",
    [TESS_AT_K_DESCALE] = "k_descale",
    [TESS_AT_V_DESCALE] = "v_descale",
    [TESS_AT_WORKSPACE] = "workspace",
    [TESS_AT_D_O] = "d_o",
    [TESS_AT_D_LSE] = "d_lse",
    [TESS_AT_DQ] = "dq",
    [TESS_AT_DK] = "dk",
    [TESS_AT_DV] = "dv",
    [TESS_AT_DBIAS] = "dbias",
    [TESS_AT_DALIBI_SLOPES] = "dalibi_slopes",
    [TESS_AT_DSINK] = "dsink",
};

static void take_strides(tess_i64 stride[4], const tess_layout *layout)
{
    stride[0] = layout->batch_stride;
    stride[1] = layout->seqlen_stride;
    stride[2] = layout->head_stride;
    stride[3] = layout->dim_stride;
}

/* The part of the block that only the problem decides. */
static void take_problem(tess_args *args, const tess_problem *p)
{
    take_strides(args->q_stride, &p->q);
    take_strides(args->k_stride, &p->k);
    take_strides(args->v_stride, &p->v);
    take_strides(args->o_stride, &p->o);
    args->lse_stride[0] = p->lse.batch_stride;
    args->lse_stride[1] = p->lse.seqlen_stride;
    args->lse_stride[2] = p->lse.head_stride;
    memcpy(args->bias_stride, p->bias_stride, sizeof args->bias_stride);
    memcpy(args->slope_stride, p->slope_stride, sizeof args->slope_stride);
    args->sink_stride = p->sink_stride;

    args->sequences = p->sequences;
    args->rows = p->rows;
    args->columns = p->columns;
    args->total_rows = tess_problem_is_packed_q(p) ? p->q.seqlen : p->rows;
    args->total_columns = tess_problem_is_packed_k(p) ? p->k.seqlen : p->columns;
    args->heads_q = p->heads_q;
    args->heads_kv = p->heads_kv;
    args->group = p->group;
    args->pages = tess_problem_is_paged(p) ? p->k.batch : 0;
    args->page_size = p->page_size;
    args->page_table_stride = p->table_stride;
    args->max_pages = p->max_pages;
    args->window_left = p->window_left;
    args->window_right = p->window_right;

    args->head_dim = (int32_t)p->head_dim;
    args->head_dim_v = (int32_t)p->head_dim_v;
    args->dtype = p->dtype;
    args->o_dtype = p->o_dtype;
    args->bias_dtype = p->bias_dtype;
    args->index_is_64 = p->index_dtype == TESS_I64;
    args->varlen = p->varlen;
    args->bias = p->bias;
    args->mask = p->mask;
    args->flags = p->flags;
    args->scale = p->scale;
    args->softcap = p->softcap;
}

/* The part that only a backward problem has. */
static void take_gradients(tess_args *args, const tess_problem *p)
{
    take_strides(args->do_stride, &p->d_o);
    take_strides(args->dq_stride, &p->dq);
    take_strides(args->dk_stride, &p->dk);
    take_strides(args->dv_stride, &p->dv);
    memcpy(args->dbias_stride, p->dbias_stride, sizeof args->dbias_stride);
    args->do_dtype = p->d_o.dtype;
    args->dq_dtype = p->dq.dtype;
    args->dk_dtype = p->dk.dtype;
    args->dv_dtype = p->dv.dtype;
    args->gradients = p->gradients;
}

/* A backward work item is a share of the columns of one key head: it owns their dK and dV and adds
 * to the dQ of every row that sees them. Items of one *wave* add to different buffers, so that
 * nothing is added by two threads and the order of sums depends on the problem alone; the next wave
 * adds to the same buffers again. More heads need fewer buffers to keep a machine busy. */
enum { MOST_DQ_BUFFERS = 8, WAVE_ITEMS = 64 };

/* A short sequence of one head or two would be one or two items, unequal ones under a mask: its
 * shares are smaller. Below LEAST_SHARE tiles, and where there are items enough, the rows that
 * every share loads again cost more than that brings (Emerald Rapids, AVX-512, 2 threads, 64 dims:
 * one causal head of 1024 columns +24 %, of 512 +54 %; but without a mask -14 %). Not of a
 * batch-invariant problem, for sums of dQ would look at the number of heads. */
enum { FEW_ITEMS = 2, FEW_MASKED_ITEMS = 4, WANTED_ITEMS = 8, LEAST_SHARE = 4 };

static int64_t share_tiles(const tess_schedule *s, int64_t heads)
{
    const tess_problem *p = &s->problem;
    const int64_t tile = s->args.tile_columns, most = TESS_SHARE_COLUMNS / tile;
    const int64_t tiles = (p->columns + tile - 1) / tile, shares = (tiles + most - 1) / most;
    const int64_t few = p->mask ? FEW_MASKED_ITEMS : FEW_ITEMS;

    if (s->workers == 0 || p->flags & TESS_BATCH_INVARIANT || heads >= few || heads * shares >= few)
        return most;
    return tess_min_i64(tess_max_i64(tiles * heads / WANTED_ITEMS, LEAST_SHARE), most);
}

static bool choose_shares(tess_schedule *s)
{
    const tess_problem *p = &s->problem;
    tess_args *args = &s->args;
    const int64_t tile = args->tile_columns;
    const int64_t heads = tess_max_i64(p->sequences * p->heads_kv, 1);
    int64_t shares, buffers;

    args->share_columns = s->kernel->share_is_tile ? tile : share_tiles(s, heads) * tile;
    shares = tess_max_i64((p->columns + args->share_columns - 1) / args->share_columns, 1);
    buffers = p->flags & TESS_BATCH_INVARIANT ? MOST_DQ_BUFFERS : (WAVE_ITEMS + heads - 1) / heads;
    args->dq_buffers =
        s->kernel->leaves_dq ? 0 : tess_min_i64(tess_min_i64(buffers, MOST_DQ_BUFFERS), shares);
    return tess_multiply_i64(heads, shares, &s->work_items);
}

/* Folded rows of a decode step, whose partial results are small. */
enum { MOST_MERGED_ROWS = 16 };

/* Shares of the columns. A batch-invariant problem must not look at the batch or the device, and
 * one share is the only choice that never does. More shares than tiles would all be empty. Cutting
 * them off looks at the longest sequence, but not even a batch-invariant one can tell: shares that
 * hold one tile each hold the same ones however many empty shares lie between them. */
static int64_t choose_splits(const tess_schedule *s, const tess_caps *caps, int64_t items)
{
    const tess_problem *p = &s->problem;
    const tess_kernel *kernel = s->kernel;
    const int64_t tiles = (p->columns + kernel->tile_columns - 1) / kernel->tile_columns;

    if (p->num_splits)
        return tess_min_i64(p->num_splits, tess_max_i64(tiles, 1));
    if (p->flags & TESS_BATCH_INVARIANT)
        return 1;
    if (s->workers && s->args.row_tiles == 1 && p->rows * p->group <= MOST_MERGED_ROWS)
        return tess_split_even(items, p->columns, kernel->tile_columns, caps->units);
    return tess_split_choose(items, p->columns, kernel->tile_columns, caps->units);
}

/* Places a region of count x size bytes behind the last one, on a cache line. */
static bool place(size_t *end, int64_t count, size_t size, tess_i64 *out_offset)
{
    size_t bytes;
    if (!tess_multiply((size_t)count, size, &bytes) || !tess_add(bytes, TESS_ALIGNMENT - 1, &bytes))
        return false;
    bytes = bytes / TESS_ALIGNMENT * TESS_ALIGNMENT;
    *out_offset = (tess_i64)*end;
    return tess_add(*end, bytes, end) && *end <= (size_t)INT64_MAX;
}

/* What the backward pass keeps between its steps. */
static bool lay_backward(tess_schedule *schedule, size_t *end)
{
    const tess_problem *p = &schedule->problem;
    tess_args *args = &schedule->args;
    int64_t rows, buffers;

    return tess_multiply_i64(tess_problem_total_rows(p), p->heads_q, &rows) &&
           tess_multiply_i64(rows, args->dq_buffers, &buffers) &&
           place(end, rows, sizeof(float), &args->delta) &&
           place(end, buffers, (size_t)p->head_dim * sizeof(float), &args->partial_dq) &&
           (!(p->gradients & TESS_GRADIENT_ALIBI) ||
            place(end, schedule->work_items, (size_t)p->group * sizeof(float),
                  &args->partial_bias));
}

/* Lays out scratch memory in the order the kernels first touch it. */
static bool lay_workspace(tess_schedule *schedule)
{
    const tess_problem *p = &schedule->problem;
    tess_args *args = &schedule->args;
    int64_t rows = 0;
    size_t end = 0;

    if (schedule->workers) {
        const tess_kernel *kernel = schedule->kernel;
        const size_t row = (size_t)p->head_dim_v * sizeof(float); /* merging needs one of O */
        size_t scratch = kernel->scratch ? kernel->scratch(p->head_dim, p->head_dim_v) : 0;
        if (scratch < row)
            scratch = row;
        args->scratch_size =
            (tess_i64)((scratch + TESS_ALIGNMENT - 1) / TESS_ALIGNMENT * TESS_ALIGNMENT);
        if (!place(&end, 2 * p->sequences + 1, sizeof(int64_t), &args->sequence_list) ||
            !place(&end, schedule->workers, (size_t)args->scratch_size, &args->scratch))
            return false;
    }
    if (schedule->kernel->flags_items && !(p->flags & TESS_ALLOW_NONFINITE_SPREAD) &&
        !place(&end, schedule->work_items, sizeof(uint32_t), &args->redo))
        return false;
    if (p->pass == TESS_PASS_BACKWARD && !lay_backward(schedule, &end))
        return false;
    if (p->pass == TESS_PASS_FORWARD && args->splits > 1) {
        if (!tess_multiply_i64(tess_problem_total_rows(p), p->heads_q, &rows) ||
            !tess_multiply_i64(rows, args->splits, &rows) ||
            !place(&end, rows, (size_t)p->head_dim_v * sizeof(float), &args->partial_o) ||
            !place(&end, rows, sizeof(float), &args->partial_lse))
            return false;
    }
    /* Room to align the caller's memory, which malloc gives on 16 bytes only. */
    schedule->workspace_size = end ? end + TESS_ALIGNMENT - 1 : 0;
    return true;
}

tess_status tess_schedule_make(const tess_host *host, const char *call, const tess_problem *problem,
                               const tess_kernel *kernel, const tess_caps *caps, int32_t workers,
                               tess_schedule *out_schedule)
{
    tess_schedule s;
    tess_line line;
    int64_t items;

    memset(&s, 0, sizeof s);
    s.kernel = kernel;
    s.problem = *problem;
    s.workers = workers;
    take_problem(&s.args, problem);
    s.args.tile_rows = kernel->tile_rows;
    s.args.tile_columns = kernel->tile_columns;
    s.args.row_tiles = tess_walk_row_tiles(problem->rows, problem->group, kernel->tile_rows);
    if (!tess_multiply_i64(problem->sequences, problem->heads_kv, &items) ||
        !tess_multiply_i64(items, s.args.row_tiles, &items))
        return tess_fail(host, TESS_INVALID, "%s: sequences x heads x row tiles leaves 64 bits",
                         call);
    s.args.splits = 1;
    s.work_items = items;
    if (problem->pass == TESS_PASS_FORWARD) {
        s.args.splits = choose_splits(&s, caps, items);
    } else {
        take_gradients(&s.args, problem);
        if (!choose_shares(&s))
            return tess_fail(host, TESS_INVALID,
                             "%s: sequences x heads x shares of the columns leaves 64 bits", call);
    }
    if (!tess_multiply_i64(s.work_items, s.args.splits, &s.work_items) || !lay_workspace(&s))
        return tess_fail(host, TESS_INVALID, "%s: the workspace of %lld splits leaves 64 bits",
                         call, (long long)s.args.splits);
    tess_problem_line(problem, &line);
    s.cost = tess_cost_of(&line);
    *out_schedule = s;
    return TESS_OK;
}
