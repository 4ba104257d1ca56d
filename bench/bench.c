/* SPDX-License-Identifier: Apache-2.0
 * Benchmarks of problem lines: checked first, then timed. */
#include "bench/bench.h"

#include "bench/machine.h"
#include "bench/peak.h"
#include "bench/side.h"
#include "core/base/error.h"
#include "core/runtime/objects.h"
#include "core/schedule/cost.h"
#include "tests/kit/compare.h"
#include "tests/kit/oracle.h"

#include <stdio.h>
#include <string.h>

/* Multiply-adds the check of one line may cost; longer problems are compared in some of their
 * rows. */
#define CHECK_BUDGET 1e8

/* A whole run of tess_bench_lines(). */
typedef struct bench {
    tess_context *context;
    tess_device *device;
    tess_queue *queue; /* for the tensors, which sides of one context share */
    tess_bench_options options;
    tess_side sides[TESS_BENCH_CANDIDATES];
    size_t count;
    char machine[96];
    bool is_cpu;
    bool is_stopped;
    tess_bench_progress progress;
} bench;

/* False once somebody wants the run to end. */
static bool show(bench *b, const char *stage, int64_t round, int64_t rounds)
{
    b->progress.stage = stage;
    b->progress.round = round;
    b->progress.rounds = rounds;
    if (b->options.progress && !b->options.progress(b->options.user, &b->progress))
        b->is_stopped = true;
    return !b->is_stopped;
}

/* ---- Checking -------------------------------------------------------------------------------- */

static void set_wrong(tess_bench_result *result, tess_status status, const char *text)
{
    result->status = status;
    snprintf(result->why, sizeof result->why, "%s", text);
}

/* What one pass should give: of a backward line the gradients. */
typedef struct truth {
    tess_oracle forward;
    tess_oracle_gradients backward;
} truth;

static bool find_truth(const tess_case *c, truth *out)
{
    tess_oracle_options options = {.budget = CHECK_BUDGET};

    if (c->line.backward) {
        const tess_backward_args args = tess_case_host_backward_args(c);

        options.budget /= 2.5;
        return tess_oracle_backward(&c->desc, &c->gradients, &args, &options, &out->backward);
    }
    const tess_forward_args args = tess_case_host_forward_args(c);

    return tess_oracle_forward(&c->desc, &args, &options, &out->forward);
}

/* Without the naive reference there is no comparison with it. */
static tess_comparison compare(const tess_case *c, const truth *t, tess_text *text)
{
    return c->line.backward ? tess_compare_backward(c, &t->backward, text)
                            : tess_compare_forward(c, &t->forward, true, text);
}

/* Runs one side into fresh outputs and holds them against the oracle's. */
static void check_side(bench *b, tess_side *side, tess_case *c, const truth *t,
                       tess_bench_result *result)
{
    char data[4096] = "";
    tess_text text = tess_text_in(data, sizeof data);
    tess_comparison found;

    if (!tess_case_reset(c, b->queue, &text) || tess_queue_wait(b->queue) != TESS_OK) {
        set_wrong(result, TESS_DEVICE_FAILED, data);
        return;
    }
    if (!tess_side_run(side, 1, NULL)) {
        set_wrong(result, side->status, side->why);
        return;
    }
    if (!tess_case_download(c, b->queue, &text)) {
        set_wrong(result, TESS_INTERNAL, data);
        return;
    }
    found = compare(c, t, &text);
    result->check = found.is_good ? TESS_BENCH_CHECKED : TESS_BENCH_WRONG;
    result->check_share = found.o.share > found.lse.share ? found.o.share : found.lse.share;
    result->check_rows = c->line.backward ? t->backward.known : t->forward.known;
    if (!found.is_good)
        set_wrong(result, TESS_INTERNAL, data);
}

static void check(bench *b, tess_case *c, tess_bench_result *results)
{
    truth t = {.forward = {0}};
    size_t planned = 0;

    for (size_t i = 0; i < b->count; i++)
        planned += results[i].status == TESS_OK;
    /* The oracle trusts its arguments; the plan has checked them. */
    if (b->options.no_check || planned == 0 || !show(b, "checking", 0, 0))
        return;
    if (!find_truth(c, &t)) {
        for (size_t i = 0; i < b->count; i++)
            set_wrong(&results[i], TESS_NO_MEMORY, "no memory to check the results");
        return;
    }
    for (size_t i = 0; i < b->count; i++)
        if (results[i].status == TESS_OK)
            check_side(b, &b->sides[i], c, &t, &results[i]);
    tess_oracle_release(&t.forward);
    tess_oracle_gradients_release(&t.backward);
}

/* ---- Timing ---------------------------------------------------------------------------------- */

static bool run_side(void *user, int64_t times, double *out_seconds)
{
    return tess_side_run(user, times, out_seconds);
}

static double peak_flops(void *user)
{
    const tess_side *const side = user;

    return tess_peak_fma(side->info.units, side->isa);
}

static double peak_bytes(void *user)
{
    const tess_side *const side = user;

    return tess_peak_read(side->peak_buffer, side->info.units, side->isa);
}

static bool proceed(void *user, int64_t round, int64_t rounds)
{
    return show(user, "timing", round, rounds);
}

/* The bandwidth that counts is that of the memory a problem's data fits: a buffer of its size, read
 * again and again like the problem itself, or one that no cache holds when caches are flushed. */
static size_t buffer_size(const bench *b, const tess_side *side, double bytes)
{
    const size_t least = TESS_PEAK_LEAST * (size_t)side->info.units;

    if (b->options.is_cold || bytes > (double)TESS_PEAK_MOST)
        return TESS_PEAK_MOST;
    return bytes < (double)least ? least : (size_t)bytes;
}

static void finish(bench *b, const tess_side *side, tess_bench_result *result)
{
    const tess_measured *const m = &result->measured;
    const double per_second = result->flops_per_cycle * result->threads;

    if (m->seconds.count == 0)
        return;
    result->is_cold = b->options.is_cold;
    result->flops_per_second = result->flops / m->seconds.median;
    result->bytes_per_second = result->bytes / m->seconds.median;
    result->peak_bytes_buffer = side->peak_buffer;
    result->share_of_peak = tess_spread_under(result->flops, &m->possible_flops);
    result->share_of_bandwidth = tess_spread_under(result->bytes, &m->possible_bytes);
    if (per_second > 0 && m->cycles.count > 0)
        result->share_of_peak_per_cycle = tess_spread_under(result->flops / per_second, &m->cycles);
}

static void time_sides(bench *b, tess_bench_result *results)
{
    tess_measure_candidate candidates[TESS_BENCH_CANDIDATES];
    tess_measured measured[TESS_BENCH_CANDIDATES];
    size_t place[TESS_BENCH_CANDIDATES], count = 0;
    tess_measure_options options = {.window_seconds = b->options.window_seconds,
                                    .rounds = b->options.rounds,
                                    .is_cold = b->options.is_cold,
                                    .no_realtime = b->options.no_realtime,
                                    .proceed = proceed,
                                    .user = b};

    for (size_t i = 0; i < b->count; i++) {
        tess_side *const side = &b->sides[i];
        if (results[i].status != TESS_OK)
            continue;
        candidates[count] = (tess_measure_candidate){
            side->name, run_side, side, side->isa && !b->options.no_peak ? peak_flops : NULL,
            side->peak_buffer > 0 ? peak_bytes : NULL};
        place[count++] = i;
        if (b->is_cpu && side->info.units > options.threads)
            options.threads = side->info.units;
    }
    if (count == 0 || !show(b, "timing", 0, 0))
        return;
    options.seconds = (double)count * (b->options.seconds > 0 ? b->options.seconds : 1);
    if (tess_measure(candidates, count, &options, measured)) {
        for (size_t i = 0; i < count; i++)
            results[place[i]].measured = measured[i];
        return;
    }
    for (size_t i = 0; i < count; i++) {
        const tess_side *const side = &b->sides[place[i]];
        if (side->status != TESS_OK)
            set_wrong(&results[place[i]], side->status, side->why);
        else
            set_wrong(&results[place[i]], TESS_NO_MEMORY,
                      "not timed: memory ran out, or another candidate failed");
    }
}

/* ---- One line -------------------------------------------------------------------------------- */

static void describe(const bench *b, tess_side *side, const tess_line *line,
                     tess_bench_result *result)
{
    const tess_cost cost = tess_cost_of(line);

    snprintf(result->candidate, sizeof result->candidate, "%s", side->name);
    snprintf(result->device, sizeof result->device, "%s", side->info.name);
    /* beside the machine's name, which a CPU's own description would only repeat */
    if (side->info.kind == TESS_DEVICE_CPU)
        snprintf(result->description, sizeof result->description, "%d threads, %s",
                 (int)side->info.units, side->info.architecture);
    else
        snprintf(result->description, sizeof result->description, "%s", side->info.description);
    result->threads = side->info.units;
    result->flops = cost.flops;
    result->bytes = cost.bytes;
    side->isa = NULL;
    side->peak_buffer = 0;
    if (b->is_cpu) {
        snprintf(result->machine, sizeof result->machine, "%s", b->machine);
        side->isa = tess_peak_of_device(&side->info);
        snprintf(result->isa, sizeof result->isa, "%s", side->isa);
        result->flops_per_cycle = tess_peak_flops_per_cycle(side->isa);
        if (!b->options.no_bandwidth && cost.bytes > 0)
            side->peak_buffer = buffer_size(b, side, cost.bytes);
    }
}

/* Kernels of the amx level are the only ones whose products are made of tiles; the others of such a
 * machine are held to what AVX-512 can do. */
static void choose_ceiling(tess_side *side, tess_bench_result *result)
{
    if (!side->isa || strcmp(side->info.architecture, "amx") != 0)
        return;
    if (!strstr(result->kernel, "_amx_"))
        side->isa = tess_peak_has("avx512") ? "avx512" : "portable";
    snprintf(result->isa, sizeof result->isa, "%s", side->isa);
    result->flops_per_cycle = tess_peak_flops_per_cycle(side->isa);
}

static void plan(bench *b, const tess_case *c, tess_bench_result *results)
{
    for (size_t i = 0; i < b->count; i++) {
        tess_side *const side = &b->sides[i];
        if (tess_side_plan(side, c) != TESS_OK) {
            set_wrong(&results[i], side->status, side->why);
            continue;
        }
        snprintf(results[i].kernel, sizeof results[i].kernel, "%s", side->kernel);
        choose_ceiling(side, &results[i]);
    }
}

/* Makes the O and LSE that a backward pass starts from, once some side can run it. */
static void start(bench *b, tess_case *c, tess_bench_result *results)
{
    char data[1024] = "";
    tess_text why = tess_text_in(data, sizeof data);
    tess_status status = TESS_OK;
    size_t planned = 0;

    for (size_t i = 0; i < b->count; i++)
        planned += results[i].status == TESS_OK;
    if (planned > 0)
        status = tess_case_run_forward(c, b->device, b->queue, &why);
    for (size_t i = 0; i < b->count && status != TESS_OK; i++)
        if (results[i].status == TESS_OK)
            set_wrong(&results[i], status, data);
}

static void time_line(bench *b, const tess_line *line, tess_bench_result *results)
{
    char data[512] = "";
    tess_text why = tess_text_in(data, sizeof data);
    tess_case c;
    bool is_ready = false;

    for (size_t i = 0; i < b->count; i++)
        describe(b, &b->sides[i], line, &results[i]);
    if (!show(b, "making", 0, 0))
        return;
    if (tess_case_make_plain(line, false, &c, &why))
        is_ready = tess_case_upload(&c, b->device, b->queue, &why);
    if (is_ready) {
        plan(b, &c, results);
        if (line->backward)
            start(b, &c, results);
        check(b, &c, results);
        time_sides(b, results);
    }
    for (size_t i = 0; i < b->count; i++) {
        if (!is_ready)
            set_wrong(&results[i], c.desc.struct_size ? TESS_NO_MEMORY : TESS_INVALID, data);
        finish(b, &b->sides[i], &results[i]);
        tess_side_drop(&b->sides[i]);
    }
    tess_case_drop(&c, b->device);
    tess_case_free(&c);
}

/* ---- All lines ------------------------------------------------------------------------------- */

static tess_status open_all(bench *b)
{
    static const tess_bench_candidate plain = {.name = ""}; /* nothing to tell it from */
    tess_device_info info = {TESS_STRUCT(tess_device_info)};

    TESS_TRY(tess_device_get_info(b->device, &info));
    b->is_cpu = info.kind == TESS_DEVICE_CPU;
    tess_machine_name(b->machine, sizeof b->machine);
    if (b->options.is_cold && !b->is_cpu)
        return tess_fail(&b->context->host, TESS_UNSUPPORTED,
                         "tess_bench_lines: only the caches of the cpu can be flushed, not those "
                         "of %s",
                         info.name);
    TESS_TRY(tess_queue_create(b->device, &b->queue));
    for (size_t i = 0; i < b->count; i++) {
        const tess_bench_candidate *const candidate =
            b->options.candidate_count > 0 ? &b->options.candidates[i] : &plain;
        tess_side *const side = &b->sides[i];
        if (tess_side_open(side, b->context, b->device, candidate, i) != TESS_OK)
            return tess_fail(&b->context->host, side->status, "tess_bench_lines: %s: %s",
                             side->name, side->why);
    }
    return TESS_OK;
}

static tess_status worst_of(const tess_bench_result *results, size_t count)
{
    tess_status status = TESS_OK;

    for (size_t i = 0; i < count; i++) {
        if (results[i].check == TESS_BENCH_WRONG)
            return TESS_INTERNAL;
        if (status == TESS_OK)
            status = results[i].status;
    }
    return status;
}

size_t tess_bench_result_count(size_t count, const tess_bench_options *options)
{
    const size_t candidates = options ? options->candidate_count : 0;

    return count * (candidates > 0 ? candidates : 1);
}

static void time_lines(bench *b, const tess_line *lines, size_t count, tess_bench_result *results)
{
    for (size_t i = 0; i < count; i++) {
        tess_bench_result *const row = results + i * b->count;

        b->progress.line = i;
        b->progress.problem = &lines[i];
        if (!b->is_stopped)
            time_line(b, &lines[i], row);
        for (size_t j = 0; j < b->count; j++)
            if (row[j].status == TESS_OK && row[j].measured.seconds.count == 0)
                set_wrong(&row[j], TESS_BENCH_STOPPED, "stopped before it was timed");
        if (b->options.done && !b->is_stopped)
            b->options.done(b->options.user, row, b->count);
    }
}

tess_status tess_bench_lines(tess_context *context, tess_device *device, const tess_line *lines,
                             size_t count, const tess_bench_options *options,
                             tess_bench_result *results)
{
    bench b = {.context = context, .device = device, .progress = {.lines = count}};
    const size_t rows = tess_bench_result_count(count, options);
    tess_status status;

    if (options)
        b.options = *options;
    b.count = b.options.candidate_count > 0 ? b.options.candidate_count : 1;
    if (b.count > TESS_BENCH_CANDIDATES)
        return tess_fail(&context->host, TESS_INVALID,
                         "tess_bench_lines: candidate_count is %zu; at most %d can be compared",
                         b.count, TESS_BENCH_CANDIDATES);
    memset(results, 0, rows * sizeof *results);
    for (size_t i = 0; i < rows; i++)
        results[i].line = &lines[i / b.count];

    status = open_all(&b);
    if (status == TESS_OK) {
        time_lines(&b, lines, count, results);
        status = worst_of(results, rows);
    } else {
        char why[512] = "";

        tess_context_error(context, why, sizeof why);
        for (size_t i = 0; i < rows; i++)
            set_wrong(&results[i], status, why);
    }
    for (size_t i = 0; i < b.count; i++)
        tess_side_close(&b.sides[i]);
    tess_queue_destroy(b.queue);
    tess_peak_release();
    return status;
}
