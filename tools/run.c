/* SPDX-License-Identifier: Apache-2.0
 * tessera run: attention over tensors from files, timed, verified and written back. */
#include "tools/attend.h"
#include "tools/job.h"
#include "tools/json.h"
#include "tools/npy.h"
#include "tools/problems.h"
#include "tools/progress.h"
#include "tools/session.h"
#include "tools/verify.h"

#include "bench/measure.h"
#include "bench/peak.h"

#include <inttypes.h>
#include <stdlib.h>

#define AT(member) offsetof(tool_run_options, member)
#define TEXT_OPTION(name, member, argument, help)                     \
    {                                                                 \
        name, '\0', TOOL_TEXT, AT(member), argument, help, 0, 0, NULL \
    }
#define FLAG_OPTION(name, member, help)                           \
    {                                                             \
        name, '\0', TOOL_FLAG, AT(member), NULL, help, 0, 0, NULL \
    }

static const tool_option options[] = {
    TEXT_OPTION("q", q, "FILE", "Q from an .npy file; needs --k and --v, and no input file"),
    TEXT_OPTION("k", k, "FILE", "K, the same"),
    TEXT_OPTION("v", v, "FILE", "V, the same"),
    TEXT_OPTION("q-name", q_name, "NAME", "tensor of the input file that is Q; \"q\" if not given"),
    TEXT_OPTION("k-name", k_name, "NAME", "the same for K"),
    TEXT_OPTION("v-name", v_name, "NAME", "the same for V"),
    {"layout", '\0', TOOL_CHOICE, AT(layout), "ORDER",
     "order of the axes: bshd (batch, seqlen, heads, head_dim) or bhsd; the batch may be missing. "
     "If not given, what the file's metadata says, else bshd",
     0, 0, "bshd|bhsd"},
    FLAG_OPTION("no-metadata", no_metadata,
                "do not take layout, causal and softmax_scale from the file's metadata"),
    {"causal", 'c', TOOL_FLAG, AT(causal), NULL, "row i sees columns up to the one it faces", 0, 0,
     NULL},
    FLAG_OPTION("no-causal", not_causal, "no causal mask, whatever the metadata says"),
    FLAG_OPTION("top-left", top_left,
                "row i faces column i; else the last row faces the last column"),
    TEXT_OPTION("window", window, "LEFT,RIGHT",
                "see this many columns on either side of the facing one; -1 is no bound"),
    {"scale", '\0', TOOL_REAL, AT(scale), "X",
     "softmax scale; if not given, the metadata's, else 1/sqrt(head_dim)", 0, 0, NULL},
    {"softcap", '\0', TOOL_REAL, AT(softcap), "X", "cap scores to X * tanh(score / X)", 0, 0, NULL},
    TEXT_OPTION("alibi", alibi, "WHAT",
                "ALiBi slopes: \"auto\" for those of the paper, an .npy file, a tensor's name, or "
                "numbers separated by commas"),
    TEXT_OPTION("sink", sink, "WHAT", "one sink logit per query head: file, name or numbers"),
    TEXT_OPTION("bias", bias, "WHAT",
                "tensor added to the scores, broadcast to (batch, heads, seqlen_q, seqlen_k): file "
                "or name"),
    TEXT_OPTION("seqused-k", seqused_k, "WHAT",
                "columns that exist in each sequence: file, name or numbers"),
    TEXT_OPTION("seqused-q", seqused_q, "WHAT", "rows that are computed in each sequence"),
    TEXT_OPTION("cu-seqlens-q", cu_seqlens_q, "WHAT",
                "packed sequences: where each begins in Q, and where the last ends"),
    TEXT_OPTION("cu-seqlens-k", cu_seqlens_k, "WHAT", "the same in K and V"),
    {"splits", '\0', TOOL_INTEGER, AT(splits), "N", "compute the columns in N shares and merge", 1,
     65536, NULL},
    FLAG_OPTION("deterministic", deterministic, "the same bits every time"),
    FLAG_OPTION("batch-invariant", batch_invariant, "bits that do not depend on the batch"),
    FLAG_OPTION("allow-tf32", tf32, "f32 products may round their inputs to TF32"),
    FLAG_OPTION("allow-nonfinite-spread", spread, "a NaN may spread within one tile"),
    {"out-dtype", '\0', TOOL_CHOICE, AT(out_dtype), "TYPE",
     "element type of O: f32, or that of Q; Q's if not given", 0, 0, "f32|f16|bf16"},
    {"output", 'o', TOOL_TEXT, AT(output), "FILE", "write o and lse to a .safetensors file", 0, 0,
     NULL},
    TEXT_OPTION("o", o, "FILE", "write O to an .npy file"),
    TEXT_OPTION("lse", lse, "FILE", "write the LSE, (batch, heads, seqlen), to an .npy file"),
    {"device", 'd', TOOL_TEXT, AT(device), "NAME", "device, as \"tessera devices\" lists them", 0,
     0, NULL},
    {"kernel", 'k', TOOL_TEXT, AT(kernel), "GLOB", "only kernels whose name matches", 0, 0, NULL},
    {"repeat", '\0', TOOL_INTEGER, AT(repeat), "N",
     "time N runs; if not given, as many as fit into a quarter of a second", 1, 100000, NULL},
    FLAG_OPTION("peak", peak, "measure what the machine can do too, and the share reached"),
    FLAG_OPTION("verify", verify,
                "compare with float64 attention, and with tensors o and lse of the input file"),
    FLAG_OPTION("verify-all", verify_all, "the same for every row, even if that takes long"),
    TEXT_OPTION("expect", expect, "WHAT", "expected O: a tensor's name or an .npy file"),
    TEXT_OPTION("o-name", o_name, "NAME", "tensor that is the expected O; \"o\" if not given"),
    TEXT_OPTION("lse-name", lse_name, "NAME", "the same for the LSE"),
    TEXT_OPTION("explain-row", explain_row, "BATCH,HEAD,ROW",
                "show which keys this row attends to, with their tokens if the metadata has any"),
    {"top", '\0', TOOL_INTEGER, AT(top), "N", "keys that --explain-row shows; 8 if not given", 1,
     1000000, NULL},
    {"quiet", '\0', TOOL_FLAG, AT(quiet), NULL, "print only what is wrong", 0, 0, NULL},
    {"json", 'j', TOOL_FLAG, AT(json), NULL, "print one JSON object", 0, 0, NULL},
};

enum { WHY_SIZE = 2048 };

/* How long runs are repeated, alone and with the machine's ceiling measured beside them. */
#define TIMING_SECONDS 0.25
#define PEAK_SECONDS 1.0

/* What is known after the run. */
typedef struct run_result {
    char problem[TOOL_LINE_SIZE];
    tess_cost cost;
    const tess_kernel *kernel;
    int64_t splits, tile_rows, tile_columns;
    size_t workspace;
    tess_spread seconds; /* of one run */
    int64_t runs;
    double peak, share_of_peak; /* flops per second; 0: not measured */
    bool is_verified;
    tool_verdict verdict;
} run_result;

/* ---- Running --------------------------------------------------------------------------------- */

/* Device memory of a job. */
typedef struct placed {
    void *memory[TOOL_JOB_INPUTS + 2]; /* inputs, o, lse */
    size_t size[TOOL_JOB_INPUTS + 2];
} placed;

enum { AT_O = TOOL_JOB_INPUTS, AT_LSE };

static tess_status place(const tool_session *session, const tool_job *job, placed *out)
{
    tess_status status = TESS_OK;

    memset(out, 0, sizeof *out);
    for (int i = 0; i < TOOL_JOB_INPUTS + 2 && status == TESS_OK; i++) {
        const tool_tensor *const tensor = i == AT_O     ? &job->o
                                          : i == AT_LSE ? &job->lse
                                                        : &job->input[i];

        if (!tensor->data)
            continue;
        status = tess_device_allocate(session->device, tensor->size, &out->memory[i]);
        if (status != TESS_OK)
            break;
        out->size[i] = tensor->size;
        /* Rows past the used length are not written: let the files hold zeros there. */
        if (i >= TOOL_JOB_INPUTS)
            memset(tensor->data, 0, tensor->size);
        if (tensor->size)
            status = tess_queue_upload(session->queue, out->memory[i], tensor->data, tensor->size);
    }
    return status;
}

static void drop(const tool_session *session, placed *p)
{
    for (int i = 0; i < TOOL_JOB_INPUTS + 2; i++)
        tess_device_release(session->device, p->memory[i], p->size[i]);
}

static tess_forward_args device_args(const placed *p)
{
    return (tess_forward_args){TESS_STRUCT(tess_forward_args),
                               .q.base = p->memory[TOOL_JOB_Q],
                               .k.base = p->memory[TOOL_JOB_K],
                               .v.base = p->memory[TOOL_JOB_V],
                               .o.base = p->memory[AT_O],
                               .lse.base = p->memory[AT_LSE],
                               .cu_seqlens_q.base = p->memory[TOOL_JOB_CU_Q],
                               .cu_seqlens_k.base = p->memory[TOOL_JOB_CU_K],
                               .seqused_q.base = p->memory[TOOL_JOB_USED_Q],
                               .seqused_k.base = p->memory[TOOL_JOB_USED_K],
                               .bias.base = p->memory[TOOL_JOB_BIAS],
                               .alibi_slopes.base = p->memory[TOOL_JOB_SLOPES],
                               .sink.base = p->memory[TOOL_JOB_SINK]};
}

/* What tess_measure() repeats. */
typedef struct repeated {
    const tool_session *session;
    const tess_plan *plan;
    const tess_forward_args *args;
    tess_status status; /* of the last run */
    tool_progress progress;
} repeated;

static bool run_times(void *user, int64_t times, double *out_seconds)
{
    repeated *const r = user;
    const double start = tool_clock();

    for (int64_t i = 0; i < times && r->status == TESS_OK; i++)
        r->status = tess_plan_run_forward(r->plan, r->session->queue, r->args);
    if (r->status == TESS_OK)
        r->status = tess_queue_wait(r->session->queue);
    *out_seconds = tool_clock() - start;
    return r->status == TESS_OK;
}

static double peak_now(void *user)
{
    const repeated *const r = user;

    return tess_peak_fma(r->session->info.units, tess_peak_of_device(&r->session->info));
}

static bool show_round(void *user, int64_t round, int64_t rounds)
{
    repeated *const r = user;

    r->progress.total = rounds;
    tool_progress_step(&r->progress, round, NULL);
    return true;
}

/* Runs once for the result, then again and again for the clock. The first run, which warms caches
 * and loads images, counts only when it is the only one. */
static tess_status run_timed(repeated *r, const tool_run_options *given, run_result *out)
{
    const int64_t repeat = given->repeat.value;
    const bool is_cpu = r->session->info.kind == TESS_DEVICE_CPU;
    const bool has_peak = given->peak && is_cpu;
    const tess_measure_candidate candidate = {.name = out->kernel->name,
                                              .run = run_times,
                                              .user = r,
                                              .peak_flops = has_peak ? peak_now : NULL};
    const tess_measure_options how = {.seconds = has_peak ? PEAK_SECONDS : TIMING_SECONDS,
                                      /* with a number of runs given, a window is one run */
                                      .window_seconds = repeat ? 1e-9 : 0,
                                      .rounds = repeat,
                                      .threads = is_cpu ? r->session->info.units : 1,
                                      .proceed = show_round,
                                      .user = r};
    tess_measured measured;
    double first;

    if (!run_times(r, 1, &first))
        return r->status;
    out->runs = 1;
    out->seconds = (tess_spread){first, first, first, first, first, 1};
    if (!has_peak && (repeat == 1 || (!repeat && first > TIMING_SECONDS)))
        return TESS_OK;
    tool_progress_start(&r->progress, "timing", repeat);
    if (!tess_measure(&candidate, 1, &how, &measured))
        return r->status == TESS_OK ? TESS_NO_MEMORY : r->status;
    tool_progress_clear(&r->progress);
    out->runs = measured.seconds.count * measured.runs_per_window;
    out->seconds = measured.seconds;
    if (has_peak) {
        out->peak = measured.peak_flops.median;
        out->share_of_peak = out->cost.flops / measured.possible_flops.median;
    }
    return TESS_OK;
}

static tess_status run_on_device(const tool_session *session, const tool_job *job,
                                 const tess_plan *plan, const tool_run_options *given,
                                 run_result *out)
{
    placed p;
    tess_status status = place(session, job, &p);

    if (status == TESS_OK) {
        const tess_forward_args args = device_args(&p);
        repeated r = {.session = session, .plan = plan, .args = &args};

        status = run_timed(&r, given, out);
    }
    if (status == TESS_OK && job->o.size)
        status = tess_queue_download(session->queue, job->o.data, p.memory[AT_O], job->o.size);
    if (status == TESS_OK && job->lse.size)
        status =
            tess_queue_download(session->queue, job->lse.data, p.memory[AT_LSE], job->lse.size);
    drop(session, &p);
    return status;
}

/* The problem's line with the lengths that the arrays hold, which the plan alone does not know. */
static void name_problem(const tess_plan *plan, const tool_job *job, run_result *out)
{
    static const int which[] = {TOOL_JOB_CU_Q, TOOL_JOB_CU_K, TOOL_JOB_USED_Q, TOOL_JOB_USED_K};
    tess_line line;
    tess_lengths *const lists[] = {&line.lens_q, &line.lens_k, &line.used_q, &line.used_k};

    tess_problem_line(&plan->schedule.problem, &line);
    for (int i = 0; i < 4; i++) {
        const tool_tensor *const tensor = &job->input[which[i]];
        const int32_t *const number = tensor->data;
        const int64_t extra = i < 2;

        if (!number)
            continue;
        memset(lists[i], 0, sizeof *lists[i]);
        for (int64_t s = 0; s + extra < tensor->shape[0]; s++)
            if (!tess_lengths_add(lists[i], extra ? number[s + 1] - number[s] : number[s], 1)) {
                /* Too many different lengths for a line: the bounds have to do. */
                memset(lists[i], 0, sizeof *lists[i]);
                break;
            }
    }
    tool_problem_text(&line, out->problem, sizeof out->problem);
    out->cost = tess_cost_of(&line);
}

static int compute(const tool_session *session, tool_job *job, const tool_run_options *given,
                   run_result *out)
{
    tess_plan *plan;
    tess_status status = tess_plan_create_forward(session->device, &job->desc, &plan);
    int result;

    if (status != TESS_OK)
        return tool_fail_library(session->context, status);
    name_problem(plan, job, out);
    out->kernel = plan->schedule.kernel;
    out->splits = plan->schedule.args.splits;
    out->tile_rows = plan->schedule.args.tile_rows;
    out->tile_columns = plan->schedule.args.tile_columns;
    out->workspace = tess_plan_workspace_size(plan);
    result = tool_job_allocate(job);
    if (result == TOOL_OK) {
        status = run_on_device(session, job, plan, given, out);
        if (status != TESS_OK)
            result = tool_fail_library(session->context, status);
    }
    tess_plan_destroy(plan);
    return result;
}

/* ---- Writing --------------------------------------------------------------------------------- */

static json_t *notes_of(const tool_session *session, const tool_job *job, const run_result *r)
{
    char scale[64];
    json_t *notes = json_object();

    snprintf(scale, sizeof scale, "%.9g",
             job->desc.flags & TESS_SCALE_IS_SET ? (double)job->desc.softmax_scale
                                                 : 1 / sqrt((double)job->desc.q.head_dim));
    tool_json_set(notes, "problem", tool_json_text(r->problem));
    tool_json_set(notes, "device", tool_json_text(session->device->name));
    tool_json_set(notes, "kernel", tool_json_text(r->kernel->name));
    tool_json_set(notes, "softmax_scale", json_string(scale));
    tool_json_set(notes, "causal",
                  json_string(job->desc.mask & TESS_MASK_CAUSAL ? "true" : "false"));
    tool_json_set(notes, "layout",
                  json_string(job->is_by_head ? "batch,heads,seqlen,head_dim"
                                              : "batch,seqlen,heads,head_dim"));
    return notes;
}

static int write_outputs(const tool_session *session, const tool_job *job,
                         const tool_run_options *given, const run_result *r)
{
    const tool_tensor *const tensors[] = {&job->lse, &job->o}; /* f32 first keeps both aligned */
    char why[WHY_SIZE];
    tess_text text = tess_text_in(why, sizeof why);
    bool is_written = true;

    if (given->output) {
        json_t *notes = notes_of(session, job, r);

        is_written = tool_safetensors_write(given->output, tensors, 2, notes, &text);
        json_decref(notes);
    }
    if (is_written && given->o)
        is_written = tool_npy_write(given->o, &job->o, &text);
    if (is_written && given->lse)
        is_written = tool_npy_write(given->lse, &job->lse, &text);
    return is_written ? TOOL_OK : tool_fail(TOOL_BROKEN, "writing %s", why);
}

/* Names that cannot be written are told before anything is computed. */
static int check_outputs(const tool_job *job, const tool_run_options *given)
{
    if (given->output && !tool_ends_with(given->output, ".safetensors"))
        return tool_fail(TOOL_USAGE,
                         "--output is \"%s\"; it takes a name that ends in .safetensors (--o and "
                         "--lse write .npy files)",
                         given->output);
    if ((given->o && !tool_ends_with(given->o, ".npy")) ||
        (given->lse && !tool_ends_with(given->lse, ".npy")))
        return tool_fail(TOOL_USAGE, "--%s is \"%s\"; it takes a name that ends in .npy",
                         given->o && !tool_ends_with(given->o, ".npy") ? "o" : "lse",
                         given->o && !tool_ends_with(given->o, ".npy") ? given->o : given->lse);
    if (given->o && job->desc.o.dtype == TESS_BF16)
        return tool_fail(TOOL_USAGE, "--o: .npy files hold no bf16; take --out-dtype f32, or "
                                     "--output with a .safetensors file");
    return TOOL_OK;
}

/* ---- Saying it ------------------------------------------------------------------------------- */

static void print_shapes(const tool_job *job)
{
    static const char *const names[] = {"q", "k", "v"};
    char shape[256];

    printf("          ");
    for (int i = 0; i < 3; i++) {
        tess_text text = tess_text_in(shape, sizeof shape);

        tool_tensor_write_shape(job->input[i].shape, job->input[i].rank, &text);
        printf("%s %s  ", names[i], shape);
    }
    printf("%s, %s\n", tess_dtype_name(job->desc.q.dtype), job->is_by_head ? "bhsd" : "bshd");
}

static void print_input(const tool_job *job, const char *path, const tool_run_options *given)
{
    const char *const model = job->has_file ? tool_safetensors_note(&job->file, "model") : NULL;
    char shown[128];

    if (path)
        printf("input     %s\n", path);
    else
        printf("input     %s, %s, %s\n", given->q, given->k, given->v);
    if (model)
        printf("          %s\n", tool_printable(model, shown, sizeof shown));
    print_shapes(job);
    if (job->scale_from_file || job->causal_from_file)
        printf("          from its metadata: %s%s%s\n", job->scale_from_file ? "softmax_scale" : "",
               job->scale_from_file && job->causal_from_file ? ", " : "",
               job->causal_from_file ? (job->desc.mask & TESS_MASK_CAUSAL ? "causal" : "not causal")
                                     : "");
}

/* "0.412 ms" */
static const char *duration(double seconds, char *data, size_t size)
{
    if (seconds < 1e-3)
        snprintf(data, size, "%.4g us", 1e6 * seconds);
    else if (seconds < 1)
        snprintf(data, size, "%.4g ms", 1e3 * seconds);
    else
        snprintf(data, size, "%.4g s", seconds);
    return data;
}

static void print_time(const run_result *r)
{
    const tess_spread *const s = &r->seconds;
    char median[32], low[32], high[32], flops[32], bytes[32];

    printf("time      %s", duration(s->median, median, sizeof median));
    if (r->runs > 1)
        printf("  median of %" PRId64 " runs, 80 %% between %s and %s", r->runs,
               duration(s->p10, low, sizeof low), duration(s->p90, high, sizeof high));
    printf("\nspeed     %.4g GFLOP/s  %sflop, %sB at least", 1e-9 * r->cost.flops / s->median,
           tool_amount(r->cost.flops, flops, sizeof flops),
           tool_amount(r->cost.bytes, bytes, sizeof bytes));
    if (r->peak > 0)
        printf("\n          %.3g %% of the %.4g GFLOP/s that fp32 multiply-adds reach here",
               100 * r->share_of_peak, 1e-9 * r->peak);
    putchar('\n');
}

static void print_outputs(const tool_job *job, const tool_run_options *given)
{
    char o[256], lse[256];
    tess_text o_text = tess_text_in(o, sizeof o), lse_text = tess_text_in(lse, sizeof lse);

    tool_tensor_write_shape(job->o.shape, job->o.rank, &o_text);
    tool_tensor_write_shape(job->lse.shape, job->lse.rank, &lse_text);
    printf("output    o %s %s  lse %s f32\n", o, tess_dtype_name(job->o.dtype), lse);
    if (given->output)
        printf("          written to %s\n", given->output);
    if (given->o)
        printf("          o written to %s\n", given->o);
    if (given->lse)
        printf("          lse written to %s\n", given->lse);
}

static void print_run(const tool_session *session, const tool_job *job, const char *path,
                      const tool_run_options *given, const run_result *r)
{
    print_input(job, path, given);
    printf("problem   %s\n", r->problem);
    printf("device    %s  %s\n", session->device->name, session->info.description);
    printf("kernel    %s  tiles of %" PRId64 " x %" PRId64, r->kernel->name, r->tile_rows,
           r->tile_columns);
    if (r->splits > 1)
        printf(", %" PRId64 " splits", r->splits);
    putchar('\n');
    print_time(r);
    print_outputs(job, given);
    if (r->is_verified)
        tool_verdict_print(&r->verdict);
}

static json_t *shape_json(const tool_tensor *tensor)
{
    json_t *array = json_array();

    for (int axis = 0; axis < tensor->rank; axis++)
        json_array_append_new(array, json_integer(tensor->shape[axis]));
    return json_pack("{s:s, s:o}", "dtype", tess_dtype_name(tensor->dtype), "shape", array);
}

static json_t *run_json(const tool_session *session, const tool_job *job, const char *path,
                        const run_result *r)
{
    json_t *object = json_object();
    const double speed = r->cost.flops / r->seconds.median;

    tool_json_set(object, "input", tool_json_maybe_text(path));
    tool_json_set(object, "problem", tool_json_text(r->problem));
    tool_json_set(object, "device", tool_json_text(session->device->name));
    tool_json_set(object, "architecture", tool_json_text(session->info.architecture));
    tool_json_set(object, "kernel", tool_json_text(r->kernel->name));
    tool_json_set(object, "tile_rows", json_integer(r->tile_rows));
    tool_json_set(object, "tile_columns", json_integer(r->tile_columns));
    tool_json_set(object, "splits", json_integer(r->splits));
    tool_json_set(object, "workspace", json_integer((json_int_t)r->workspace));
    tool_json_set(object, "layout", json_string(job->is_by_head ? "bhsd" : "bshd"));
    tool_json_set(object, "tensors",
                  json_pack("{s:o, s:o, s:o, s:o, s:o}", "q", shape_json(&job->input[TOOL_JOB_Q]),
                            "k", shape_json(&job->input[TOOL_JOB_K]), "v",
                            shape_json(&job->input[TOOL_JOB_V]), "o", shape_json(&job->o), "lse",
                            shape_json(&job->lse)));
    tool_json_set(object, "runs", json_integer(r->runs));
    tool_json_set(object, "seconds_median", tool_json_real(r->seconds.median));
    tool_json_set(object, "seconds_least", tool_json_real(r->seconds.least));
    tool_json_set(object, "seconds_p10", tool_json_real(r->seconds.p10));
    tool_json_set(object, "seconds_p90", tool_json_real(r->seconds.p90));
    tool_json_set(object, "flops", tool_json_real(r->cost.flops));
    tool_json_set(object, "bytes", tool_json_real(r->cost.bytes));
    tool_json_set(object, "flops_per_second", tool_json_real(speed));
    tool_json_set(object, "peak_flops_per_second",
                  r->peak > 0 ? tool_json_real(r->peak) : json_null());
    tool_json_set(object, "share_of_peak",
                  r->peak > 0 ? tool_json_real(r->share_of_peak) : json_null());
    tool_json_set(object, "verify", r->is_verified ? tool_verdict_json(&r->verdict) : json_null());
    return object;
}

static int say(const tool_session *session, const tool_job *job, const char *path,
               const tool_run_options *given, const run_result *r)
{
    const int64_t top = given->top.is_set ? given->top.value : 8;
    json_t *object = given->json ? run_json(session, job, path, r) : NULL;
    int result = TOOL_OK;

    if (!given->json && !given->quiet)
        print_run(session, job, path, given, r);
    else if (!given->json && r->is_verified && !r->verdict.is_good)
        tool_verdict_print(&r->verdict);
    if (given->explain_row)
        result = tool_attend(job, given->explain_row, top, object);
    if (object && result == TOOL_OK)
        return tool_json_print(object);
    json_decref(object);
    return result;
}

/* ---- The verb -------------------------------------------------------------------------------- */

static int run_job(const tool_session *session, tool_job *job, const char *path,
                   const tool_run_options *given)
{
    static run_result r;
    int result = compute(session, job, given, &r);

    if (result != TOOL_OK)
        return result;
    if (given->peak && r.peak == 0)
        tool_fail(0, "--peak measures CPUs only for now; %s is none", session->device->name);
    r.is_verified = given->verify || given->verify_all;
    if (r.is_verified)
        result = tool_verify(job, given->verify_all, &r.verdict);
    if (result == TOOL_OK)
        result = write_outputs(session, job, given, &r);
    if (result == TOOL_OK)
        result = say(session, job, path, given, &r);
    if (result == TOOL_OK && r.is_verified && !r.verdict.is_good)
        result = TOOL_DIFFERS;
    return result;
}

static int run_main(int argc, char **argv)
{
    static tool_run_options given;
    static tool_job job;
    tool_session session;
    bool done;
    int first = argc, result = tool_args_read(&tool_run, argc, argv, &given, &first, &done);
    const char *path;

    if (result != TOOL_OK || done)
        return result;
    if (argc - first > 1)
        return tool_fail(TOOL_USAGE, "takes one input file, but was given \"%s\" and \"%s\"",
                         argv[first], argv[first + 1]);
    path = first < argc ? argv[first] : NULL;
    result = tool_job_load(&job, path, &given);
    if (result == TOOL_OK)
        result = check_outputs(&job, &given);
    if (result == TOOL_OK && given.explain_row)
        result = tool_attend_check(&job, given.explain_row);
    if (result == TOOL_OK)
        result = tool_session_open(&session, given.device, given.kernel);
    if (result == TOOL_OK) {
        result = run_job(&session, &job, path, &given);
        tool_session_close(&session);
    }
    tool_job_release(&job);
    return result;
}

const tool_verb tool_run = {
    .name = "run",
    .summary = "compute attention over tensors from a file; verify, time and write the result",
    .usage = "FILE.safetensors [OPTION...]\n"
             "tessera run --q FILE.npy --k FILE.npy --v FILE.npy [OPTION...]",
    .details =
        "Reads Q, K and V, computes attention once and a few times more for the clock, and\n"
        "prints what was computed, on what, how fast. WHAT is an .npy file, the name of a\n"
        "tensor of the input file, or numbers separated by commas. The exit status is 1 when\n"
        "--verify finds a result outside its error budget.",
    .options = options,
    .option_count = sizeof options / sizeof options[0],
    .main = run_main,
};
