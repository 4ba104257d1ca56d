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
    tess_oracle_gradients gradients;
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

/* The verdict on a problem that a call did not take. */
static tess_check_verdict stop(checking *k, tess_status status)
{
    k->report->status = status;
    return status == TESS_UNSUPPORTED ? TESS_CHECK_REFUSED
           : status == TESS_NO_MEMORY ? TESS_CHECK_SKIP
                                      : TESS_CHECK_FAIL;
}

static tess_check_verdict make_plan(checking *k)
{
    const bool is_backward = k->c.line.backward;
    const tess_status status =
        is_backward ? tess_plan_create_backward(k->device, &k->c.desc, &k->c.gradients, &k->plan)
                    : tess_plan_create_forward(k->device, &k->c.desc, &k->plan);

    if (status != TESS_OK) {
        add_error(k, tess_status_name(status));
        return stop(k, status);
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
        return stop(k, k->c.desc.struct_size ? TESS_NO_MEMORY : TESS_INVALID);
    verdict = make_plan(k);
    if (verdict != TESS_CHECK_PASS)
        return verdict;
    if (tess_queue_create(k->device, &k->queue) != TESS_OK) {
        add_error(k, "tess_queue_create");
        return TESS_CHECK_FAIL;
    }
    if (!tess_case_upload(&k->c, k->device, k->queue, &k->text))
        return TESS_CHECK_SKIP;
    return make_workspace(k) ? TESS_CHECK_PASS : stop(k, TESS_NO_MEMORY);
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

/* Where a run finds scratch memory: nowhere, or in the checked plan's own, full of NaN. */
static bool choose_workspace(checking *k, bool is_own, tess_out *out, size_t *out_size)
{
    *out = (tess_out){NULL, 0};
    *out_size = 0;
    if (!is_own || k->report->workspace_size == 0)
        return true;
    *out = (tess_out){k->workspace, 0};
    *out_size = k->report->workspace_size;
    return poison_workspace(k);
}

static tess_status launch(checking *k, bool wants_lse, tess_out workspace, size_t size)
{
    tess_forward_args forward;
    tess_backward_args backward;

    if (k->c.line.backward) {
        backward = tess_case_backward_args(&k->c);
        backward.workspace = workspace;
        backward.workspace_size = size;
        return tess_plan_run_backward(k->plan, k->queue, &backward);
    }
    forward = tess_case_forward_args(&k->c, wants_lse);
    forward.workspace = workspace;
    forward.workspace_size = size;
    return tess_plan_run_forward(k->plan, k->queue, &forward);
}

/* One run into fresh outputs, brought back to the host. */
static bool run(checking *k, bool wants_lse, bool own_workspace)
{
    tess_out workspace;
    size_t size;
    double start;

    if (!tess_case_reset(&k->c, k->queue, &k->text) ||
        !choose_workspace(k, own_workspace, &workspace, &size))
        return false;
    if (tess_queue_wait(k->queue) != TESS_OK) {
        add_error(k, "tess_queue_wait before the run");
        return false;
    }
    start = now();
    if (launch(k, wants_lse, workspace, size) != TESS_OK) {
        add_error(k, k->c.line.backward ? "tess_plan_run_backward" : "tess_plan_run_forward");
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

static void keep_all(checking *k)
{
    for (int i = 0; i < TESS_CASE_TENSORS; i++)
        if (k->c.tensor[i].is_present && k->c.tensor[i].is_output)
            keep(k, i);
}

/* Whether all outputs, or all but LSE, are what they were. */
static bool are_kept(checking *k, bool lse_too, const char *what)
{
    for (int i = 0; i < TESS_CASE_TENSORS; i++) {
        const tess_tensor *t = &k->c.tensor[i];

        if (t->is_present && t->is_output && (i != TESS_CASE_LSE || lse_too) &&
            !is_kept(k, i, what))
            return false;
    }
    return true;
}

/* The same plan again: other scratch memory, no LSE. What it wrote the first time it must write
 * every time. */
static tess_check_verdict run_again(checking *k)
{
    const bool is_backward = k->c.line.backward;

    if (!run(k, true, false) || !are_kept(k, true, "in the first run, into a workspace of NaN"))
        return TESS_CHECK_FAIL;
    if (!run(k, is_backward, true) ||
        !are_kept(k, is_backward, is_backward ? "in the first run" : "when LSE was asked for too"))
        return TESS_CHECK_FAIL;
    return TESS_CHECK_PASS;
}

/* ---- Comparing ------------------------------------------------------------------------------- */

static tess_oracle_options oracle_options(const checking *k)
{
    const tess_budget *budget = tess_budget_of(k->c.line.dtype, k->c.line.flags);

    return (tess_oracle_options){.budget =
                                     k->options->budget > 0 ? k->options->budget : DEFAULT_BUDGET,
                                 .wants_naive = budget->naive > 0};
}

static bool ask_oracle(checking *k)
{
    const tess_forward_args args = tess_case_host_forward_args(&k->c);
    const tess_oracle_options options = oracle_options(k);

    if (tess_oracle_forward(&k->c.desc, &args, &options, &k->oracle))
        return true;
    tess_text_add(&k->text, "no memory for the oracle\n");
    return false;
}

static bool ask_oracle_backward(checking *k)
{
    const tess_backward_args args = tess_case_host_backward_args(&k->c);
    tess_oracle_options options = oracle_options(k);

    options.budget /= 2.5; /* what the backward pass costs beside the forward one */
    if (tess_oracle_backward(&k->c.desc, &k->c.gradients, &args, &options, &k->gradients))
        return true;
    tess_text_add(&k->text, "no memory for the oracle\n");
    return false;
}

/* Where gradients are wrong because the forward pass was, that is what there is to say. */
static void blame_forward(checking *k)
{
    const int outputs[] = {TESS_CASE_O, TESS_CASE_LSE};
    char found[1024] = "";
    tess_text text = tess_text_in(found, sizeof found);

    if (!ask_oracle(k))
        return;
    for (size_t i = 0; i < sizeof outputs / sizeof *outputs; i++)
        k->c.tensor[outputs[i]].is_output = true;
    if (!tess_compare_forward(&k->c, &k->oracle, true, &text).is_good)
        tess_text_add(&k->text, "the forward pass before it is wrong already:\n%s", found);
}

static tess_check_verdict falsify(checking *k)
{
    tess_check_report *r = k->report;
    const char *mode = k->options->sabotage;
    const bool is_done =
        !mode ||
        (k->c.line.backward
             ? tess_sabotage_backward(&k->c, &k->gradients, mode, r->sabotage, sizeof r->sabotage,
                                      &k->text)
             : tess_sabotage(&k->c, &k->oracle, mode, r->sabotage, sizeof r->sabotage, &k->text));

    return is_done ? TESS_CHECK_PASS : TESS_CHECK_MISTRUSTED;
}

static tess_check_verdict compare(checking *k)
{
    const double start = now();
    const bool is_backward = k->c.line.backward;
    tess_check_verdict verdict;

    if (is_backward ? !ask_oracle_backward(k) : !ask_oracle(k))
        return stop(k, TESS_NO_MEMORY);
    k->report->oracle_seconds = now() - start;
    k->report->rows_known = is_backward ? k->gradients.known : k->oracle.known;
    verdict = falsify(k);
    if (verdict != TESS_CHECK_PASS)
        return verdict;
    k->report->comparison = is_backward ? tess_compare_backward(&k->c, &k->gradients, &k->text)
                                        : tess_compare_forward(&k->c, &k->oracle, true, &k->text);
    if (k->report->comparison.is_good)
        return TESS_CHECK_PASS;
    if (is_backward && !k->options->sabotage)
        blame_forward(k);
    return TESS_CHECK_FAIL;
}

static tess_check_verdict check(checking *k, const tess_line *line)
{
    tess_check_verdict verdict = prepare(k, line);
    tess_status status = TESS_OK;

    if (verdict != TESS_CHECK_PASS)
        return verdict;
    if (line->backward)
        status = tess_case_run_forward(&k->c, k->device, k->queue, &k->text);
    if (status != TESS_OK)
        return stop(k, status);
    if (!run(k, true, true))
        return TESS_CHECK_FAIL;
    keep_all(k);
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
    tess_oracle_gradients_release(&k->gradients);
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
