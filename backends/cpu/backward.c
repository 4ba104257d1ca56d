/* SPDX-License-Identifier: Apache-2.0
 * The backward pass on the CPU: delta, then shares of columns in waves, then the sums of dQ. */
#include "backends/cpu/backward.h"

#include "backends/cpu/access.h"
#include "backends/cpu/backend.h"
#include "backends/cpu/sequences.h"
#include "backends/cpu/threads.h"

#include <string.h>

/* One run, shared by its workers. The items of a wave are the product of three ranges: sequences,
 * key heads and shares of columns, from `base` on. */
typedef struct backward_run {
    const tess_prepared *prepared;
    const tess_args *args;
    const tess_address *addresses;
    char *workspace;
    const int64_t *order; /* sequences in the order of work */
    int64_t shares;       /* of the longest sequence */
    int64_t base[3], extent[3];
    int32_t threads;
} backward_run;

static float *floats(const backward_run *run, int64_t offset)
{
    return (float *)(void *)(run->workspace + offset);
}

/* Element (query 0, first head of the group) of an array [row][head]. */
static int64_t first_value(const tess_args *args, const tess_cpu_sequence *s, int64_t head_kv)
{
    return tess_cpu_first_row(args, s) * args->heads_q + head_kv * args->group;
}

/* Floats of one of the buffers that dQ is summed in. */
static int64_t dq_buffer(const tess_args *args)
{
    return tess_cpu_all_rows(args) * args->heads_q * args->head_dim;
}

static const char *d_o_of(const backward_run *run, const tess_cpu_sequence *s, int64_t head_kv)
{
    const tess_args *a = run->args;
    const int64_t at = s->batch * a->do_stride[0] + s->first_row * a->do_stride[1] +
                       head_kv * a->group * a->do_stride[2];
    const char *base = run->addresses[TESS_AT_D_O].base;
    return base ? base + at * tess_cpu_element_size(a->do_dtype) : NULL;
}

/* Column 0 of a key head in dK or dV; NULL when it is not wanted. */
static char *gradient_of(const tess_address *address, const tess_i64 stride[4], int32_t dtype,
                         const tess_cpu_sequence *s, int64_t head_kv)
{
    const int64_t at = s->batch_k * stride[0] + s->first_column * stride[1] + head_kv * stride[2];
    char *base = address->base;
    return base ? base + at * tess_cpu_element_size(dtype) : NULL;
}

static float *dbias_of(const backward_run *run, int64_t sequence, int64_t head_q)
{
    float *base = run->addresses[TESS_AT_DBIAS].base;
    return base ? base + sequence * run->args->dbias_stride[0] + head_q * run->args->dbias_stride[1]
                : NULL;
}

/* ---- before: delta, and sums that start at zero ------------------------------------------------
 */

/* Queries of one item of the passes over rows. These take all heads of a query at a time, in the
 * order in which the usual layouts and the workspace have them. */
enum { PASS_QUERIES = 32 };

typedef struct query_span {
    tess_cpu_sequence sequence;
    int64_t first, end; /* queries of the sequence */
} query_span;

static int64_t pass_items(const tess_args *args)
{
    return args->sequences * ((args->rows + PASS_QUERIES - 1) / PASS_QUERIES);
}

static query_span pass_queries(const backward_run *run, int64_t item)
{
    const int64_t spans = (run->args->rows + PASS_QUERIES - 1) / PASS_QUERIES;
    query_span span = {.sequence = tess_cpu_sequence_at(run->args, run->addresses, item / spans),
                       .first = item % spans * PASS_QUERIES};

    span.end = tess_min_i64(span.first + PASS_QUERIES, span.sequence.rows);
    return span;
}

/* Row (query, head) of a tensor laid out like Q. */
static tess_cpu_row_at row_at(const tess_address *address, const tess_i64 stride[4], int32_t dtype,
                              const tess_cpu_sequence *s, int64_t query, int64_t head)
{
    return (tess_cpu_row_at){
        .base = address->base,
        .index = s->batch * stride[0] + (s->first_row + query) * stride[1] + head * stride[2],
        .stride = stride[3],
        .dtype = dtype,
    };
}

static float delta_of(const backward_run *run, const tess_cpu_sequence *s, int64_t query,
                      int64_t head)
{
    const tess_args *args = run->args;
    const tess_address *addresses = run->addresses;
    const float *d_lse = addresses[TESS_AT_D_LSE].base;
    const tess_cpu_row_at o =
        row_at(&addresses[TESS_AT_O], args->o_stride, args->o_dtype, s, query, head);
    const tess_cpu_row_at d_o =
        row_at(&addresses[TESS_AT_D_O], args->do_stride, args->do_dtype, s, query, head);
    const float delta = run->prepared->backward.dot(o, d_o, args->head_dim_v);

    return d_lse ? delta - d_lse[s->batch * args->lse_stride[0] +
                                 (s->first_row + query) * args->lse_stride[1] +
                                 head * args->lse_stride[2]]
                 : delta;
}

static void start_rows(void *user, int64_t item, int32_t worker)
{
    const backward_run *run = user;
    const tess_args *args = run->args;
    const query_span span = pass_queries(run, item);
    const int64_t count = (span.end - span.first) * args->heads_q;
    const int64_t first = (tess_cpu_first_row(args, &span.sequence) + span.first) * args->heads_q;
    float *const delta = floats(run, args->delta) + first;

    (void)worker;
    if (count <= 0)
        return;
    for (int64_t i = 0; i < count; i++)
        delta[i] = delta_of(run, &span.sequence, span.first + i / args->heads_q, i % args->heads_q);
    for (int64_t b = 0; b < args->dq_buffers; b++)
        memset(floats(run, args->partial_dq) + b * dq_buffer(args) + first * args->head_dim, 0,
               (size_t)(count * args->head_dim) * sizeof(float));
}

/* Elements along an axis of dBias; one that is summed has one, even if it sums nothing. */
static int64_t dbias_extent(const tess_args *args, int axis)
{
    const int64_t extent[4] = {args->sequences, args->heads_q, args->rows, args->columns};
    return args->dbias_stride[axis] ? extent[axis] : 1;
}

/* The whole of dBias of one (sequence, head). */
static void clear_dbias(void *user, int64_t item, int32_t worker)
{
    const backward_run *run = user;
    const tess_args *args = run->args;
    const int64_t heads = dbias_extent(args, 1);
    float *dbias = dbias_of(run, item / heads, item % heads);

    (void)worker;
    for (int64_t i = 0; i < dbias_extent(args, 2); i++)
        for (int64_t j = 0; j < dbias_extent(args, 3); j++)
            dbias[i * args->dbias_stride[2] + j * args->dbias_stride[3]] = 0.0f;
}

/* ---- the waves ----------------------------------------------------------------------------------
 */

static void run_item(void *user, int64_t item, int32_t worker)
{
    const backward_run *run = user;
    const tess_args *args = run->args;
    /* Long sequences first, and the first shares: under a causal mask most rows see them. */
    const int64_t share = run->base[2] + item / run->extent[1] % run->extent[2];
    const int64_t head_kv = run->base[1] + item % run->extent[1];
    const int64_t sequence = run->order[run->base[0] + item / run->extent[1] / run->extent[2]];
    const tess_cpu_sequence s = tess_cpu_sequence_at(args, run->addresses, sequence);
    const int64_t value = first_value(args, &s, head_kv);
    tess_cpu_backward_work work = {
        .at = {.splits = 1,
               .scratch = run->workspace + args->scratch + worker * args->scratch_size},
        .first = share * args->share_columns,
        .end = tess_min_i64((share + 1) * args->share_columns, s.columns),
        .rows = s.rows * args->group,
    };

    if (work.first >= work.end)
        return;
    tess_cpu_resolve(args, run->addresses, sequence, &s, head_kv, &work.at);
    work.d_o = d_o_of(run, &s, head_kv);
    work.delta = floats(run, args->delta) + value;
    work.dq = floats(run, args->partial_dq) + share % args->dq_buffers * dq_buffer(args) +
              value * args->head_dim;
    work.dk =
        gradient_of(&run->addresses[TESS_AT_DK], args->dk_stride, args->dk_dtype, &s, head_kv);
    work.dv =
        gradient_of(&run->addresses[TESS_AT_DV], args->dv_stride, args->dv_dtype, &s, head_kv);
    work.dbias = dbias_of(run, sequence, head_kv * args->group);
    if (args->gradients & TESS_GRADIENT_ALIBI)
        work.dslope = floats(run, args->partial_bias) +
                      ((sequence * args->heads_kv + head_kv) * run->shares + share) * args->group;
    run->prepared->backward.run(&work);
}

/* Items that add to the same memory must not run at once: shares with one dQ buffer, and, where
 * dBias sums over an axis, everything along that axis. Such an axis is walked one step at a time.
 */
static void run_waves(backward_run *run)
{
    const tess_args *args = run->args;
    const bool sums_bias = run->addresses[TESS_AT_DBIAS].base != NULL;
    const int64_t total[3] = {args->sequences, args->heads_kv, run->shares};
    const int64_t step[3] = {
        sums_bias && !args->dbias_stride[0] ? 1 : args->sequences,
        sums_bias && !args->dbias_stride[1] ? 1 : args->heads_kv,
        sums_bias && !args->dbias_stride[3] ? 1 : args->dq_buffers,
    };
    int64_t *base = run->base;

    for (base[2] = 0; base[2] < total[2]; base[2] += step[2])
        for (base[0] = 0; base[0] < total[0]; base[0] += step[0])
            for (base[1] = 0; base[1] < total[1]; base[1] += step[1]) {
                for (int axis = 0; axis < 3; axis++)
                    run->extent[axis] = tess_min_i64(step[axis], total[axis] - base[axis]);
                tess_cpu_for_each(run->extent[0] * run->extent[1] * run->extent[2], run->threads,
                                  run_item, run);
            }
}

/* ---- after: dQ, dSlope, dSink -------------------------------------------------------------------
 */

static void finish_rows(void *user, int64_t item, int32_t worker)
{
    const backward_run *run = user;
    const tess_args *args = run->args;
    const query_span span = pass_queries(run, item);
    const float *sums =
        floats(run, args->partial_dq) +
        (tess_cpu_first_row(args, &span.sequence) + span.first) * args->heads_q * args->head_dim;

    (void)worker;
    for (int64_t query = span.first; query < span.end; query++)
        for (int64_t head = 0; head < args->heads_q; head++, sums += args->head_dim) {
            const tess_cpu_row_at to = row_at(&run->addresses[TESS_AT_DQ], args->dq_stride,
                                              args->dq_dtype, &span.sequence, query, head);
            run->prepared->backward.put_sum(to, sums, args->dq_buffers, dq_buffer(args),
                                            args->head_dim);
        }
}

/* dSlope of every head, of each sequence by itself or summed over them as the slopes are. */
static void finish_slopes(const backward_run *run)
{
    const tess_args *args = run->args;
    float *out = run->addresses[TESS_AT_DALIBI_SLOPES].base;
    const int64_t batches = args->slope_stride[0] ? args->sequences : 1;
    const int64_t summed = args->slope_stride[0] ? 1 : args->sequences;

    for (int64_t batch = 0; batch < batches; batch++)
        for (int64_t head = 0; head < args->heads_q; head++) {
            double sum = 0.0;
            for (int64_t i = 0; i < summed * run->shares; i++) {
                const int64_t sequence = batch + i / run->shares, share = i % run->shares;
                const int64_t item =
                    (sequence * args->heads_kv + head / args->group) * run->shares + share;
                sum += (double)floats(run,
                                      args->partial_bias)[item * args->group + head % args->group];
            }
            out[batch * args->heads_q + head] = (float)sum;
        }
}

/* dSink of one query head: the sink takes part in every row of every sequence. */
static void finish_sink(void *user, int64_t head, int32_t worker)
{
    const backward_run *run = user;
    const tess_args *args = run->args;
    const float *lses = run->addresses[TESS_AT_LSE].base;
    const float sink = ((const float *)run->addresses[TESS_AT_SINK].base)[head * args->sink_stride];
    double sum = 0.0;

    (void)worker;
    for (int64_t i = 0; i < args->sequences && sink != TESS_NEG_INF; i++) {
        const tess_cpu_sequence s = tess_cpu_sequence_at(args, run->addresses, i);
        for (int64_t row = 0; row < s.rows; row++) {
            const float lse =
                lses[s.batch * args->lse_stride[0] + (s.first_row + row) * args->lse_stride[1] +
                     head * args->lse_stride[2]];
            const float delta = floats(
                run, args->delta)[(tess_cpu_first_row(args, &s) + row) * args->heads_q + head];
            sum -= (double)(tess_exp2((sink - lse) * TESS_LOG2_E) * delta);
        }
    }
    ((float *)run->addresses[TESS_AT_DSINK].base)[head] = (float)sum;
}

tess_status tess_cpu_launch_backward(const tess_prepared *prepared,
                                     const tess_address addresses[TESS_AT_COUNT])
{
    const tess_args *args = &prepared->schedule->args;
    char *const workspace = addresses[TESS_AT_WORKSPACE].base;
    int64_t *const order = (int64_t *)(void *)(workspace + args->sequence_list);
    const int32_t threads = tess_cpu_threads_now(prepared);
    backward_run run = {.prepared = prepared,
                        .args = args,
                        .addresses = addresses,
                        .workspace = workspace,
                        .threads = threads,
                        .order = order};

    TESS_TRY(tess_cpu_sequences_check(prepared->host, "tess_plan_run_backward", args, addresses));
    tess_cpu_order_sequences(args, addresses, order);
    run.shares = tess_max_i64((args->columns + args->share_columns - 1) / args->share_columns, 1);
    if (args->gradients & TESS_GRADIENT_ALIBI)
        memset(floats(&run, args->partial_bias), 0,
               (size_t)(args->sequences * args->heads_q * run.shares) * sizeof(float));
    tess_cpu_for_each(pass_items(args), threads, start_rows, &run);
    if (args->gradients & TESS_GRADIENT_BIAS)
        tess_cpu_for_each(dbias_extent(args, 0) * dbias_extent(args, 1), threads, clear_dbias,
                          &run);
    run_waves(&run);
    if (args->gradients & TESS_GRADIENT_Q)
        tess_cpu_for_each(pass_items(args), threads, finish_rows, &run);
    if (args->gradients & TESS_GRADIENT_ALIBI)
        finish_slopes(&run);
    if (args->gradients & TESS_GRADIENT_SINK)
        tess_cpu_for_each(args->heads_q, threads, finish_sink, &run);
    return TESS_OK;
}
