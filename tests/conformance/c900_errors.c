/* SPDX-License-Identifier: Apache-2.0
 * c900: runs that must be refused, by name and value, with every byte left as it was. */
#include "tests/conformance/subject.h"
#include "tests/kit/case.h"
#include "tests/kit/number.h"
#include "tests/unit/support.h"

#include <math.h>

/* ---- The problems ------------------------------------------------------------------------------
 */

typedef enum kind {
    dense,
    packed,
    wide,
    paged,
    biased,
    split,
    back,
    back_biased,
    back_packed,
    KINDS
} kind;

static const char *const lines[KINDS] = {
    [dense] = "fwd b2 hq6 hk3 q5 k7 d8 dv4 f32 causal",
    [packed] = "fwd hq2 hk1 d8 f16 lensq=3,0,6 lensk=2,5,4 usedq=2,0,6 usedk=2,4,4",
    [wide] = "fwd hq2 hk1 d8 f16 lensq=3,0,6 lensk=2,5,4 usedq=2,0,6 usedk=2,4,4 index=i64",
    [paged] = "fwd b2 hq2 hk1 q3 k10 d8 f32 page=4 usedk=10,3",
    [biased] = "fwd b2 hq2 q3 k4 d8 f32 alibi sink bias=f16",
    [split] = "fwd b1 hq1 q3 k2000 d8 f32 splits=4",
    [back] = "bwd b2 hq6 hk3 q5 k7 d8 dv4 f32 causal",
    [back_biased] = "bwd b2 hq2 q3 k4 d8 f32 alibi sink bias",
    [back_packed] = "bwd hq2 hk1 d8 f16 lensq=3,0,6 lensk=2,5,4 usedq=2,0,6 usedk=2,4,4",
};

enum { Q_BYTES = 2 * 5 * 6 * 8 * 4, O_BYTES = 2 * 5 * 6 * 4 * 4 }; /* of dense */

/* The device under test; set once, before the tests run. */
static const tess_subject *subject;

static bool is_plain(void)
{
    return subject->info.kind == TESS_DEVICE_CPU;
}

/* A problem with its data on the device, a plan, and outputs that hold their pattern. */
typedef struct fixture {
    tess_case made;
    tess_queue *queue;
    tess_plan *plan;
    void *workspace;
    size_t workspace_size;
    tess_forward_args args;
    tess_backward_args back;         /* of a backward line */
    char *before[TESS_CASE_TENSORS]; /* every tensor's bytes, to be held against later */
} fixture;

static void need(bool is_fine, const char *why)
{
    if (!is_fine)
        fail_msg("%s", why);
}

static bool is_index(const tess_tensor *t)
{
    return t->layout.dtype == TESS_I32 || t->layout.dtype == TESS_I64;
}

/* Copies every tensor's bytes as they are now. */
static void copy_all(const fixture *f, char *copies[TESS_CASE_TENSORS])
{
    for (int i = 0; i < TESS_CASE_TENSORS; i++) {
        const tess_tensor *const t = &f->made.tensor[i];

        if (!t->is_present || t->buffer.size == 0)
            continue;
        copies[i] = copies[i] ? copies[i] : malloc(t->buffer.size);
        assert_non_null(copies[i]);
        memcpy(copies[i], t->buffer.data, t->buffer.size);
    }
}

static void free_all(char *copies[TESS_CASE_TENSORS])
{
    for (int i = 0; i < TESS_CASE_TENSORS; i++)
        free(copies[i]);
}

/* Outputs as they were before any run, index arrays and arguments as they should be. */
static void reset(fixture *f)
{
    char why[512] = "";
    tess_text text = tess_text_in(why, sizeof why);

    for (int i = 0; i < TESS_CASE_TENSORS; i++)
        if (f->before[i] && is_index(&f->made.tensor[i]))
            memcpy(f->made.tensor[i].buffer.data, f->before[i], f->made.tensor[i].buffer.size);
    need(tess_case_reset(&f->made, f->queue, &text), why);
    f->args = tess_case_forward_args(&f->made, true);
    f->args.workspace.base = f->workspace;
    f->args.workspace_size = f->workspace_size;
    f->back = tess_case_backward_args(&f->made);
    f->back.workspace = f->args.workspace;
    f->back.workspace_size = f->workspace_size;
    copy_all(f, f->before);
}

static void download(fixture *f)
{
    char why[512] = "";
    tess_text text = tess_text_in(why, sizeof why);

    need(tess_case_download(&f->made, f->queue, &text), why);
}

/* The bytes of every tensor but the index arrays, which a test may have changed itself. */
static void assert_holds(fixture *f, char *const copies[TESS_CASE_TENSORS], const char *what)
{
    download(f);
    for (int i = 0; i < TESS_CASE_TENSORS; i++) {
        const tess_tensor *const t = &f->made.tensor[i];

        if (copies[i] && !is_index(t) && memcmp(copies[i], t->buffer.data, t->buffer.size) != 0)
            fail_msg("%s: %s is not what it should be", what, t->name);
    }
}

static void make(fixture *f, const char *line_text)
{
    char why[512] = "";
    tess_text text = tess_text_in(why, sizeof why);
    tess_line line;

    memset(f, 0, sizeof *f);
    need(tess_line_read(line_text, &line, &text) == TESS_OK, why);
    need(tess_case_make_plain(&line, true, &f->made, &text), why);
    assert_fine(subject->context, tess_queue_create(subject->device, &f->queue));
    need(tess_case_upload(&f->made, subject->device, f->queue, &text), why);
    if (line.backward) { /* O and LSE are inputs, as a forward pass left them */
        need(tess_case_run_forward(&f->made, subject->device, f->queue, &text) == TESS_OK, why);
        assert_fine(subject->context, tess_plan_create_backward(subject->device, &f->made.desc,
                                                                &f->made.gradients, &f->plan));
    } else {
        assert_fine(subject->context,
                    tess_plan_create_forward(subject->device, &f->made.desc, &f->plan));
    }
    f->workspace_size = tess_plan_workspace_size(f->plan);
    if (f->workspace_size > 0)
        assert_fine(subject->context,
                    tess_device_allocate(subject->device, f->workspace_size, &f->workspace));
    reset(f);
}

static void drop(fixture *f)
{
    tess_device_release(subject->device, f->workspace, f->workspace_size);
    tess_plan_destroy(f->plan);
    tess_case_drop(&f->made, subject->device);
    tess_queue_destroy(f->queue);
    tess_case_free(&f->made);
    free_all(f->before);
}

static tess_status run(fixture *f)
{
    if (f->made.line.backward)
        return tess_plan_run_backward(f->plan, f->queue, &f->back);
    return tess_plan_run_forward(f->plan, f->queue, &f->args);
}

/* ---- What the table makes wrong -------------------------------------------------------------- */

static tess_in out(tess_out where)
{
    return (tess_in){where.base, where.offset};
}

static const void *at(tess_in where, int64_t bytes)
{
    return (const char *)where.base + bytes;
}

static tess_out over(tess_in where, int64_t bytes)
{
    /* An input on purpose: nothing may come to write there. */
    return (tess_out){(void *)(uintptr_t)((uintptr_t)where.base + (uintptr_t)bytes), where.offset};
}

/* An element of an index array. */
static void *element(fixture *f, int which, int64_t batch, int64_t index)
{
    tess_tensor *const t = &f->made.tensor[which];

    return t->buffer.data + (batch * t->layout.batch_stride + index) * (int64_t)t->element_size;
}

static int32_t *cu_q(fixture *f, int64_t i)
{
    return element(f, TESS_CASE_CU_Q, 0, i);
}
static int32_t *cu_k(fixture *f, int64_t i)
{
    return element(f, TESS_CASE_CU_K, 0, i);
}
static int32_t *used_q(fixture *f, int64_t i)
{
    return element(f, TESS_CASE_USED_Q, 0, i);
}
static int32_t *used_k(fixture *f, int64_t i)
{
    return element(f, TESS_CASE_USED_K, 0, i);
}
static int64_t *wide_cu_q(fixture *f, int64_t i)
{
    return element(f, TESS_CASE_CU_Q, 0, i);
}
static int64_t *wide_used_k(fixture *f, int64_t i)
{
    return element(f, TESS_CASE_USED_K, 0, i);
}

static int32_t *table(fixture *f, int64_t sequence, int64_t page)
{
    return element(f, TESS_CASE_TABLE, sequence, page);
}

/* ---- The table: its lines, by their number in the file --------------------------------------- */

typedef struct refusal {
    int line;
    kind kind;
    bool needs_plain;
    const char *pieces, *change;
} refusal;

static const refusal refusals[] = {
#define REFUSED(kind, pieces, ...) {__LINE__, kind, false, pieces, #__VA_ARGS__},
#define REFUSED_PLAIN(kind, pieces, ...) {__LINE__, kind, true, pieces, #__VA_ARGS__},
#include "tests/conformance/c900_errors.def"
#undef REFUSED
#undef REFUSED_PLAIN
};

enum { REFUSALS = sizeof refusals / sizeof refusals[0] };

static void apply(fixture *f, int line)
{
    tess_forward_args *const a = &f->args;
    tess_backward_args *const b = &f->back;

    switch (line) {
#define REFUSED(kind, pieces, ...) \
    case __LINE__:                 \
        __VA_ARGS__;               \
        break;
#define REFUSED_PLAIN(kind, pieces, ...) REFUSED(kind, pieces, __VA_ARGS__)
#include "tests/conformance/c900_errors.def"
#undef REFUSED
#undef REFUSED_PLAIN
    default:
        fail_msg("no line %d", line);
    }
}

/* ---- Tests ----------------------------------------------------------------------------------- */

static void refuse_all_of(kind of_kind)
{
    char *right[TESS_CASE_TENSORS] = {NULL};
    const char *call;
    fixture f;

    make(&f, lines[of_kind]);
    call = f.made.line.backward ? "tess_plan_run_backward" : "tess_plan_run_forward";
    assert_fine(subject->context, run(&f));
    download(&f);
    copy_all(&f, right);
    for (int i = 0; i < REFUSALS; i++) {
        const refusal *const r = &refusals[i];
        char name[256];

        if (r->kind != of_kind || (r->needs_plain && !is_plain()))
            continue;
        snprintf(name, sizeof name, "c900_errors.def:%d: %s", r->line, r->change);
        reset(&f);
        apply(&f, r->line);
        assert_refused(subject->context, run(&f), TESS_INVALID, call, r->pieces, name);
        assert_holds(&f, f.before, name);
        reset(&f); /* and the next right run is right */
        assert_fine(subject->context, run(&f));
        assert_holds(&f, right, name);
    }
    free_all(right);
    drop(&f);
}

static void refused_runs_of_dense_tensors(void **state)
{
    (void)state;
    refuse_all_of(dense);
}

static void refused_runs_of_packed_sequences(void **state)
{
    (void)state;
    refuse_all_of(packed);
    refuse_all_of(wide);
}

static void refused_runs_of_pages(void **state)
{
    (void)state;
    refuse_all_of(paged);
}

static void refused_runs_with_additions_to_scores(void **state)
{
    (void)state;
    refuse_all_of(biased);
}

static void refused_runs_with_a_workspace(void **state)
{
    (void)state;
    refuse_all_of(split);
}

static void refused_runs_of_gradients(void **state)
{
    (void)state;
    refuse_all_of(back);
    refuse_all_of(back_biased);
    refuse_all_of(back_packed);
}

static void objects_that_are_missing_or_foreign(void **state)
{
    static const char call[] = "tess_plan_run_forward", backward[] = "tess_plan_run_backward";
    const tess_backward_args no_args = {TESS_STRUCT(tess_backward_args)};
    tess_subject other;
    tess_queue *foreign = NULL;
    char why[512];
    fixture f;

    (void)state;
    make(&f, lines[dense]);
    need(tess_subject_open(subject->info.name, NULL, 0, &other, why, sizeof why), why);
    assert_fine(other.context, tess_queue_create(other.device, &foreign));
    assert_refused(NULL, tess_plan_run_forward(NULL, f.queue, &f.args), TESS_INVALID, call,
                   "plan is NULL", "no plan");
    assert_refused(NULL, tess_plan_run_forward(f.plan, NULL, &f.args), TESS_INVALID, call,
                   "queue is NULL", "no queue");
    assert_refused(subject->context, tess_plan_run_forward(f.plan, f.queue, NULL), TESS_INVALID,
                   call, "args is NULL", "no arguments");
    assert_refused(subject->context, tess_plan_run_forward(f.plan, foreign, &f.args), TESS_INVALID,
                   call, "plan is of|queue is of|of another context", "foreign queue");
    assert_refused(subject->context, tess_plan_run_backward(f.plan, f.queue, &no_args),
                   TESS_INVALID, backward, "plan is of a forward pass", "wrong pass");
    assert_refused(NULL, tess_plan_run_backward(NULL, f.queue, &no_args), TESS_INVALID, backward,
                   "plan is NULL", "no plan");
    assert_refused(NULL, tess_plan_run_backward(f.plan, NULL, &no_args), TESS_INVALID, backward,
                   "queue is NULL", "no queue");
    assert_holds(&f, f.before, "missing objects");
    tess_queue_destroy(foreign);
    tess_subject_close(&other);
    drop(&f);
}

/* A caller of a later version is served until it uses what is new. */
static void arguments_from_the_future(void **state)
{
    enum { LATER = sizeof(tess_forward_args) + 32 };
    union {
        tess_forward_args args;
        unsigned char bytes[LATER];
    } later;
    fixture f;
    char pieces[64];

    (void)state;
    make(&f, lines[dense]);
    memset(&later, 0, sizeof later);
    later.args = f.args;
    later.args.struct_size = LATER;
    later.bytes[LATER - 1] = 1;
    snprintf(pieces, sizeof pieces, "args has a member set at byte %d", LATER - 1);
    assert_refused(subject->context, tess_plan_run_forward(f.plan, f.queue, &later.args),
                   TESS_TOO_NEW, "tess_plan_run_forward", pieces, "a new member");
    assert_holds(&f, f.before, "a new member");
    later.bytes[LATER - 1] = 0;
    assert_fine(subject->context, tess_plan_run_forward(f.plan, f.queue, &later.args));
    assert_fine(subject->context, tess_queue_wait(f.queue));
    drop(&f);
}

/* Problems that are right and that this device may not do. */
static void what_nobody_can_do_is_refused_with_every_reason(void **state)
{
    static const char *const hard[] = {
        "fwd b1 hq1 q4 k4 d5000 f32",    "fwd b1 hq1 q4 k4 d64 dv5000 f16",
        "fwd b1 hq2 q4 k4 d64 e4m3",     "fwd b1 hq2 q4 k4 d64 e5m2 of=f32",
        "bwd b1 hq1 q4 k4 d9000 f32",    "bwd b1 hq2 q4 k4 d64 e4m3",
        "fwd b1 hq1 q4 k4 d100000 bf16",
    };

    (void)state;
    for (size_t i = 0; i < sizeof hard / sizeof hard[0]; i++) {
        char why[512] = "", pieces[128];
        tess_text text = tess_text_in(why, sizeof why);
        tess_plan *const untouched = (tess_plan *)(void *)pieces;
        tess_plan *plan = untouched;
        tess_line line;
        tess_case made;
        tess_status status;

        need(tess_line_read(hard[i], &line, &text) == TESS_OK, why);
        need(tess_case_make(&line, &made, &text), why);
        status = line.backward ? tess_plan_create_backward(subject->device, &made.desc, NULL, &plan)
                               : tess_plan_create_forward(subject->device, &made.desc, &plan);
        if (status == TESS_OK) {
            tess_plan_destroy(plan);
        } else {
            snprintf(pieces, sizeof pieces, "no kernel on %s|\"%s b1|\n    ", subject->info.name,
                     line.backward ? "bwd" : "fwd");
            assert_refused(subject->context, status, TESS_UNSUPPORTED,
                           line.backward ? "tess_plan_create_backward" : "tess_plan_create_forward",
                           pieces, hard[i]);
            assert_ptr_equal(plan, untouched);
        }
        tess_case_free(&made);
    }
}

/* What has no element needs no address. */
static void empty_tensors_may_be_null(void **state)
{
    static const char *const empty[] = {
        "fwd b0 hq2 q3 k3 d8 f32",
        "fwd b3 hq2 q0 k9 d8 f32",
        "fwd b3 hq2 q5 k0 d8 f32 causal",
        "fwd b2 hq0 hk0 q5 k4 d8 f16",
        "fwd b2 hq2 q5 k0 d8 f32 sink alibi bias",
    };

    (void)state;
    for (size_t i = 0; i < sizeof empty / sizeof empty[0]; i++) {
        fixture f;

        make(&f, empty[i]);
        for (int t = 0; t < TESS_CASE_TENSORS; t++) {
            tess_in *const inputs[] = {
                &f.args.q, &f.args.k, &f.args.v, &f.args.bias, &f.args.alibi_slopes, &f.args.sink};
            const int of[] = {TESS_CASE_Q,    TESS_CASE_K,      TESS_CASE_V,
                              TESS_CASE_BIAS, TESS_CASE_SLOPES, TESS_CASE_SINK};
            for (int k = 0; k < 6; k++)
                if (of[k] == t && f.made.tensor[t].buffer.size == 0)
                    *inputs[k] = (tess_in){NULL, 0};
        }
        if (f.made.tensor[TESS_CASE_O].buffer.size == 0)
            f.args.o = f.args.lse = (tess_out){NULL, 0};
        assert_fine(subject->context, run(&f));
        download(&f);
        drop(&f);
    }
}

/* ---- Every option changes the result --------------------------------------------------------- */

/* Largest difference of O between a path and the same path with an option more. */
static double effect_of(const char *path, const char *option)
{
    double most = 0;
    fixture plain, with;
    char line[256];

    snprintf(line, sizeof line, "%s %s", path, option);
    make(&plain, path);
    make(&with, line);
    assert_fine(subject->context, run(&plain));
    assert_fine(subject->context, run(&with));
    download(&plain);
    download(&with);

    const tess_tensor *const a = &plain.made.tensor[TESS_CASE_O];
    const tess_tensor *const b = &with.made.tensor[TESS_CASE_O];
    const tess_dtype dtype = a->layout.dtype;
    const size_t count = a->buffer.size / a->element_size;

    assert_int_equal(a->buffer.size, b->buffer.size);
    for (size_t i = 0; i < count; i++) {
        const double x = tess_number_load(dtype, a->buffer.data + i * a->element_size);
        const double y = tess_number_load(dtype, b->buffer.data + i * b->element_size);
        if (fabs(x - y) > most)
            most = fabs(x - y);
    }
    drop(&plain);
    drop(&with);
    return most;
}

/* An option that is taken and dropped gives the result without it. */
static void every_option_has_an_effect_on_every_path(void **state)
{
    static const char *const paths[] = {
        "fwd b2 hq4 hk2 q40 k50 d16 f32",
        "fwd b2 hq4 hk2 q40 k50 d16 f16",
        "fwd b2 hq4 hk2 q40 k50 d16 bf16 layout=strided",
        "fwd b1 hq4 hk1 q1 k200 d16 f32",
        "fwd b1 hq4 hk1 q2 k200 d16 f32 splits=3",
        "fwd hq4 hk2 d16 f32 lensq=9,1,20 lensk=30,12,44",
        "fwd b2 hq4 hk2 q3 k60 d16 f32 page=16",
    };
    static const char *const options[] = {"scale=0.9",   "scale=-0.3", "softcap=0.4", "window=3,-1",
                                          "window=-1,0", "window=0,0", "alibi",       "sink",
                                          "bias",        "bias=f16"};

    (void)state;
    for (size_t p = 0; p < sizeof paths / sizeof paths[0]; p++) {
        for (size_t o = 0; o < sizeof options / sizeof options[0]; o++) {
            /* decoding: the last row faces the last column, so nothing lies to its right */
            if (strstr(paths[p], "q1 ") && strcmp(options[o], "window=-1,0") == 0)
                continue;
            const double least = strstr(paths[p], " f32") ? 1e-4 : 1e-2; /* ten times the budget */
            if (effect_of(paths[p], options[o]) < least)
                fail_msg("%s: %s has no effect", paths[p], options[o]);
        }
    }
    /* Masks that differ only where the diagonal or the corner counts. */
    assert_true(effect_of("fwd b1 hq2 q30 k30 d16 f32", "causal") > 0.01);
    assert_true(effect_of("fwd b1 hq2 q30 k40 d16 f32 causal", "topleft") > 0.01);
    assert_true(effect_of("fwd b1 hq2 q30 k40 d16 f32", "usedk=17") > 0.01);
    assert_true(effect_of("fwd b1 hq2 q3 k40 d16 f32 page=8", "usedk=17") > 0.01);
}

/* One device; what a test program's exit code says. */
static int check_subject(const tess_subject *current, void *user)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(refused_runs_of_dense_tensors),
        cmocka_unit_test(refused_runs_of_packed_sequences),
        cmocka_unit_test(refused_runs_of_pages),
        cmocka_unit_test(refused_runs_with_additions_to_scores),
        cmocka_unit_test(refused_runs_with_a_workspace),
        cmocka_unit_test(refused_runs_of_gradients),
        cmocka_unit_test(objects_that_are_missing_or_foreign),
        cmocka_unit_test(arguments_from_the_future),
        cmocka_unit_test(what_nobody_can_do_is_refused_with_every_reason),
        cmocka_unit_test(empty_tensors_may_be_null),
        cmocka_unit_test(every_option_has_an_effect_on_every_path),
    };

    (void)user;
    subject = current;
    return cmocka_run_group_tests(tests, NULL, NULL) == 0 ? TESS_TEST_PASSED : TESS_TEST_FAILED;
}

int main(int argc, char **argv)
{
    return tess_subjects_each(argc > 1 ? argv[1] : NULL, check_subject, NULL);
}
