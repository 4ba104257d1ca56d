/* SPDX-License-Identifier: Apache-2.0
 * One line, checked: data, plan, runs, comparisons, verdict. */
#include "tests/kit/check.h"

#include "tests/kit/sabotage.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#define DEFAULT_BUDGET 3e8

/* What one check holds until its end. */
typedef struct checking {
    tess_device *device;
    const tess_check_options *options;
    tess_check_report *report;
    tess_text text;
    tess_case c;
    tess_queue *queue;
    tess_plan *plan;
    tess_oracle oracle;
    void *workspace; /* on the device, or in `scratch` where the device reads host memory */
    tess_buffer scratch;
    char *image[TESS_CASE_TENSORS]; /* outputs of the first run; NULL where sparse */
    uint64_t hash[TESS_CASE_TENSORS];
} checking;

static double now(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void add_error(checking *k, const char *what)
{
    char text[4096];

    tess_context_error(NULL, text, sizeof text);
    tess_text_add(&k->text, "%s: %s\n", what, text);
}

/* ---- Plan ------------------------------------------------------------------------------------ */

/* The word behind "kernel" in the plan's description. */
static void note_kernel(checking *k)
{
    const size_t size = tess_plan_describe(k->plan, NULL, 0) + 1;
    char *text = malloc(size);
    const char *word;
    size_t length;

    if (!text)
        return;
    tess_plan_describe(k->plan, text, size);
    word = strstr(text, "\n  kernel ");
    if (word) {
        word += strlen("\n  kernel ");
        word += strspn(word, " ");
        length = strcspn(word, " \n");
        if (length >= TESS_REPORT_KERNEL)
            length = TESS_REPORT_KERNEL - 1;
        memcpy(k->report->kernel, word, length);
    }
    free(text);
}

static tess_check_verdict make_plan(checking *k)
{
    const tess_status status = tess_plan_create_forward(k->device, &k->c.desc, &k->plan);

    if (status != TESS_OK) {
        add_error(k, tess_status_name(status));
        return status == TESS_UNSUPPORTED ? TESS_CHECK_REFUSED
               : status == TESS_NO_MEMORY ? TESS_CHECK_SKIP
                                          : TESS_CHECK_FAIL;
    }
    note_kernel(k);
    k->report->workspace_size = tess_plan_workspace_size(k->plan);
    if (k->options->kernel && !tess_text_glob(k->options->kernel, k->report->kernel)) {
        tess_text_add(&k->text, "the plan took %s, not %s\n", k->report->kernel,
                      k->options->kernel);
        return TESS_CHECK_SKIP;
    }
    return TESS_CHECK_PASS;
}

static bool make_workspace(checking *k)
{
    const size_t size = k->report->workspace_size;

    if (size == 0)
        return true;
    if (k->c.is_on_host) {
        if (tess_buffer_make(size, &k->scratch)) {
            k->workspace = k->scratch.data;
            return true;
        }
        tess_text_add(&k->text, "no memory for a workspace of %zu bytes\n", size);
        return false;
    }
    if (tess_device_allocate(k->device, size, &k->workspace) == TESS_OK)
        return true;
    add_error(k, "tess_device_allocate");
    return false;
}

static tess_check_verdict prepare(checking *k, const tess_line *line)
{
    tess_check_verdict verdict;

    if (!tess_case_make(line, &k->c, &k->text))
        return k->c.desc.struct_size ? TESS_CHECK_SKIP : TESS_CHECK_FAIL;
    verdict = make_plan(k);
    if (verdict != TESS_CHECK_PASS)
        return verdict;
    if (tess_queue_create(k->device, &k->queue) != TESS_OK) {
        add_error(k, "tess_queue_create");
        return TESS_CHECK_FAIL;
    }
    if (!tess_case_upload(&k->c, k->device, k->queue, &k->text))
        return TESS_CHECK_SKIP;
    return make_workspace(k) ? TESS_CHECK_PASS : TESS_CHECK_SKIP;
}

/* ---- Runs ------------------------------------------------------------------------------------ */

/* Fills the workspace with NaN, whatever type it is read as. */
static bool poison_workspace(checking *k)
{
    const size_t size = k->report->workspace_size;
    char *bytes;
    bool is_good;

    if (size == 0)
        return true;
    bytes = malloc(size);
    if (!bytes) {
        tess_text_add(&k->text, "no host memory for a workspace of %zu bytes\n", size);
        return false;
    }
    memset(bytes, 0xFF, size);
    is_good = tess_queue_upload(k->queue, k->workspace, bytes, size) == TESS_OK;
    free(bytes);
    if (!is_good)
        add_error(k, "upload of the workspace");
    return is_good;
}

/* One run into fresh outputs, brought back to the host. */
static bool run(checking *k, bool wants_lse, bool own_workspace)
{
    tess_forward_args args = tess_case_forward_args(&k->c, wants_lse);
    double start;

    if (!tess_case_reset(&k->c, k->queue, &k->text))
        return false;
    if (own_workspace && k->report->workspace_size > 0) {
        if (!poison_workspace(k))
            return false;
        args.workspace = (tess_out){k->workspace, 0};
        args.workspace_size = k->report->workspace_size;
    }
    if (tess_queue_wait(k->queue) != TESS_OK) {
        add_error(k, "tess_queue_wait before the run");
        return false;
    }
    start = now();
    if (tess_plan_run_forward(k->plan, k->queue, &args) != TESS_OK) {
        add_error(k, "tess_plan_run_forward");
        return false;
    }
    if (tess_queue_wait(k->queue) != TESS_OK) {
        add_error(k, "tess_queue_wait");
        return false;
    }
    k->report->seconds = now() - start;
    if (k->scratch.data && !tess_buffer_is_intact(&k->scratch)) {
        tess_text_add(&k->text, "memory in front of the workspace was overwritten\n");
        return false;
    }
    return tess_case_download(&k->c, k->queue, &k->text);
}

/* Keeps what an output holds, for tess_compare_bits(). */
static void keep(checking *k, int which)
{
    const tess_tensor *t = &k->c.tensor[which];

    k->hash[which] = tess_tensor_hash(t);
    if (t->buffer.is_sparse || t->buffer.size == 0)
        return;
    k->image[which] = malloc(t->buffer.size);
    if (k->image[which])
        memcpy(k->image[which], t->buffer.data, t->buffer.size);
}

static bool is_kept(checking *k, int which, const char *what)
{
    const tess_tensor *t = &k->c.tensor[which];

    if (k->image[which])
        return tess_compare_bits(&k->c, which, k->image[which], what, &k->text);
    if (t->buffer.size == 0 || tess_tensor_hash(t) == k->hash[which])
        return true;
    tess_text_add(&k->text, "  %s has other bits than %s\n", t->name, what);
    return false;
}

/* The same plan again: other scratch memory, no LSE. What it wrote the first time it must write
 * every time. */
static tess_check_verdict run_again(checking *k)
{
    if (!run(k, true, false))
        return TESS_CHECK_FAIL;
    if (!is_kept(k, TESS_CASE_O, "in the first run, into a workspace of NaN") ||
        !is_kept(k, TESS_CASE_LSE, "in the first run, into a workspace of NaN"))
        return TESS_CHECK_FAIL;
    if (!run(k, false, true))
        return TESS_CHECK_FAIL;
    if (!is_kept(k, TESS_CASE_O, "when LSE was asked for too"))
        return TESS_CHECK_FAIL;
    return TESS_CHECK_PASS;
}

/* ---- Comparing ------------------------------------------------------------------------------- */

static tess_check_verdict compare(checking *k)
{
    const tess_forward_args args = tess_case_host_forward_args(&k->c);
    const tess_oracle_options options = {
        .budget = k->options->budget > 0 ? k->options->budget : DEFAULT_BUDGET,
        .wants_naive = tess_budget_of(k->c.line.dtype, k->c.line.flags)->naive > 0};
    const double start = now();
    tess_check_verdict verdict = TESS_CHECK_PASS;

    if (!tess_oracle_forward(&k->c.desc, &args, &options, &k->oracle)) {
        tess_text_add(&k->text, "no memory for the oracle\n");
        return TESS_CHECK_SKIP;
    }
    k->report->oracle_seconds = now() - start;
    k->report->rows_known = k->oracle.known;
    if (k->options->sabotage)
        verdict = tess_sabotage(&k->c, &k->oracle, k->options->sabotage, k->report->sabotage,
                                sizeof k->report->sabotage, &k->text)
                      ? TESS_CHECK_PASS
                      : TESS_CHECK_MISTRUSTED;
    if (verdict != TESS_CHECK_PASS)
        return verdict;
    k->report->comparison = tess_compare_forward(&k->c, &k->oracle, true, &k->text);
    return k->report->comparison.is_good ? TESS_CHECK_PASS : TESS_CHECK_FAIL;
}

static tess_check_verdict check(checking *k, const tess_line *line)
{
    tess_check_verdict verdict;

    if (line->backward) {
        tess_text_add(&k->text, "the kit does not run backward lines yet\n");
        return TESS_CHECK_SKIP;
    }
    verdict = prepare(k, line);
    if (verdict != TESS_CHECK_PASS)
        return verdict;
    if (!run(k, true, true))
        return TESS_CHECK_FAIL;
    keep(k, TESS_CASE_O);
    keep(k, TESS_CASE_LSE);
    verdict = compare(k);
    if (verdict != TESS_CHECK_PASS || k->options->once || k->options->sabotage)
        return verdict;
    return run_again(k);
}

static void release(checking *k)
{
    tess_case_drop(&k->c, k->device);
    if (!k->c.is_on_host)
        tess_device_release(k->device, k->workspace, k->report->workspace_size);
    tess_buffer_free(&k->scratch);
    tess_plan_destroy(k->plan);
    tess_queue_destroy(k->queue);
    tess_oracle_release(&k->oracle);
    for (int i = 0; i < TESS_CASE_TENSORS; i++)
        free(k->image[i]);
    tess_case_free(&k->c);
}

tess_check_verdict tess_check_line(tess_device *device, const tess_line *line,
                                   const tess_check_options *options, tess_check_report *report)
{
    static const tess_check_options defaults;
    checking *k = calloc(1, sizeof *k);

    memset(report, 0, sizeof *report);
    report->verdict = TESS_CHECK_SKIP;
    if (!k)
        return report->verdict;
    k->device = device;
    k->options = options ? options : &defaults;
    k->report = report;
    k->text = tess_text_in(report->text, sizeof report->text);
    report->verdict = check(k, line);
    release(k);
    free(k);
    return report->verdict;
}

const char *tess_check_verdict_name(tess_check_verdict verdict)
{
    static const char *const names[] = {"pass", "fail", "refused", "skip", "mistrusted"};

    return names[verdict];
}
