/* SPDX-License-Identifier: Apache-2.0
 * Plans: what they say of themselves, what the environment may decide, and how often they may run.
 */
#include "core/runtime/objects.h"
#include "tests/unit/support.h"

typedef struct tensors {
    float q[SMALL_BATCH * SMALL_ROWS * SMALL_HEADS * SMALL_DIM];
    float k[SMALL_BATCH * SMALL_COLUMNS * SMALL_HEADS_KV * SMALL_DIM];
    float v[SMALL_BATCH * SMALL_COLUMNS * SMALL_HEADS_KV * SMALL_DIM_V];
    float o[SMALL_BATCH * SMALL_ROWS * SMALL_HEADS * SMALL_DIM_V];
    float lse[SMALL_BATCH * SMALL_ROWS * SMALL_HEADS];
} tensors;

static tess_forward_args args_of(tensors *t)
{
    return (tess_forward_args){TESS_STRUCT(tess_forward_args),
                               .q = {t->q, 0},
                               .k = {t->k, 0},
                               .v = {t->v, 0},
                               .o = {t->o, 0},
                               .lse = {t->lse, 0}};
}

static void fill(tensors *t)
{
    draw_all((float *)(void *)t, sizeof *t / sizeof(float), 3);
    memset(t->o, 0xff, sizeof t->o);
    memset(t->lse, 0xff, sizeof t->lse);
}

static tess_plan *plan_of(const world *w, const tess_attention_desc *desc)
{
    tess_plan *plan = NULL;

    assert_fine(w->context, tess_plan_create_forward(w->device, desc, &plan));
    return plan;
}

/* ---- Describing ------------------------------------------------------------------------------ */

static void a_plan_describes_itself(void **state)
{
    const tess_attention_desc desc = small_desc();
    char text[4096], pieces[256];
    world w;

    (void)state;
    world_open(&w, 2);

    tess_plan *const plan = plan_of(&w, &desc);
    const size_t length = tess_plan_describe(plan, text, sizeof text);

    assert_int_equal(length, strlen(text));
    assert_int_equal(strncmp(text, "fwd b2 hq6 hk3 q5 k7 d8 dv4 f32\n", 32), 0);
    snprintf(pieces, sizeof pieces,
             "device     cpu (|kernel     fwd_|tile  |work items|workspace  %zu"
             " bytes|cost  |not taken|would do",
             tess_plan_workspace_size(plan));
    if (!holds_pieces(text, pieces))
        fail_msg("\"%s\" lacks one of %s", text, pieces);
    tess_plan_destroy(plan);
    world_close(&w);
}

/* Lengths that come with each run are bounds until then, and so is the cost. */
static void a_plan_tells_bounds_from_lengths(void **state)
{
    const tess_varlen varlen = {TESS_STRUCT(tess_varlen), .sequences = 2,
                                .present = TESS_VARLEN_SEQUSED_K, .index_dtype = TESS_I32};
    tess_attention_desc desc = small_desc();
    char text[4096];
    world w;

    (void)state;
    world_open(&w, 1);
    for (int known = 1; known >= 0; known--) {
        desc.varlen = known ? NULL : &varlen;
        tess_plan *const plan = plan_of(&w, &desc);

        tess_plan_describe(plan, text, sizeof text);
        assert_int_equal(strstr(text, "\n  lengths    at most those of the line") == NULL, known);
        assert_int_equal(strstr(text, "\n  cost       at most ") == NULL, known);
        tess_plan_destroy(plan);
    }
    world_close(&w);
}

/* Every size gives the beginning, ended by a zero, and the length of the whole. */
static void a_description_is_cut_to_fit(void **state)
{
    const tess_attention_desc desc = small_desc();
    char whole[4096], part[4096];
    world w;

    (void)state;
    world_open(&w, 1);

    tess_plan *const plan = plan_of(&w, &desc);
    const size_t length = tess_plan_describe(plan, whole, sizeof whole);

    assert_int_equal(tess_plan_describe(plan, NULL, 0), length);
    for (size_t size = 1; size <= length + 2; size++) {
        const size_t kept = size <= length ? size - 1 : length;

        memset(part, 0x7e, sizeof part);
        assert_int_equal(tess_plan_describe(plan, part, size), length);
        assert_memory_equal(part, whole, kept);
        assert_int_equal(part[kept], '\0');
        assert_int_equal(part[size], 0x7e);
    }
    assert_int_equal(tess_plan_describe(NULL, part, sizeof part), 0);
    assert_string_equal(part, "");
    assert_int_equal(tess_plan_workspace_size(NULL), 0);
    tess_plan_destroy(plan);
    tess_plan_destroy(NULL);
    world_close(&w);
}

/* ---- The environment ---------------------------------------------------------------------------
 */

/* A world made under one setting. */
static void world_with(world *w, const char *name, const char *value)
{
    setenv(name, value, 1);
    world_open(w, 1);
    unsetenv(name);
}

static const char *description(const tess_plan *plan)
{
    static char text[4096];

    tess_plan_describe(plan, text, sizeof text);
    return text;
}

static void a_pattern_of_kernels_is_obeyed_or_refused(void **state)
{
    const tess_attention_desc desc = small_desc();
    tess_plan *plan = NULL;
    world w;

    (void)state;
    world_with(&w, "TESSERA_KERNEL", "fwd_scalar_*");
    plan = plan_of(&w, &desc);
    assert_non_null(strstr(description(plan), "kernel     fwd_scalar_"));
    tess_plan_destroy(plan);
    world_close(&w);

    plan = NULL;
    world_with(&w, "TESSERA_KERNEL", "fwd_magic");
    assert_refused(w.context, tess_plan_create_forward(w.device, &desc, &plan), TESS_UNSUPPORTED,
                   "tess_plan_create_forward",
                   "no kernel on cpu|fwd b2 hq6|fwd_scalar_|TESSERA_KERNEL does not name it",
                   "no such kernel");
    assert_null(plan);
    world_close(&w);
}

static void an_instruction_set_is_a_ceiling(void **state)
{
    const tess_attention_desc desc = small_desc();
    tess_device_info info = {TESS_STRUCT(tess_device_info)};
    world w;

    (void)state;
    world_with(&w, "TESSERA_CPU_ISA", "scalar");

    tess_plan *const plan = plan_of(&w, &desc);

    assert_non_null(strstr(description(plan), "kernel     fwd_scalar_"));
    assert_fine(w.context, tess_device_get_info(w.device, &info));
    assert_string_equal(info.architecture, "scalar");
    tess_plan_destroy(plan);
    world_close(&w);
}

/* The environment fills what the descriptor left open, and nothing else. */
static void splits_and_determinism_fill_what_is_open(void **state)
{
    tess_attention_desc desc = small_desc();
    world w;

    (void)state;
    desc.k.seqlen = desc.v.seqlen = 1000;
    desc.k.batch_stride = desc.v.batch_stride = 0;
    world_with(&w, "TESSERA_SPLITS", "3");
    tess_plan *plan = plan_of(&w, &desc);
    assert_int_equal(plan->schedule.args.splits, 3);
    assert_int_equal(plan->schedule.args.flags, 0);
    tess_plan_destroy(plan);
    desc.num_splits = 2;
    plan = plan_of(&w, &desc);
    assert_int_equal(plan->schedule.args.splits, 2);
    tess_plan_destroy(plan);
    world_close(&w);

    world_with(&w, "TESSERA_DETERMINISTIC", "1");
    plan = plan_of(&w, &desc);
    assert_int_equal(plan->schedule.args.flags, TESS_DETERMINISTIC);
    tess_plan_destroy(plan);
    world_close(&w);

    world_with(&w, "TESSERA_DETERMINISTIC", "0");
    desc.flags = TESS_DETERMINISTIC; /* 0 takes nothing away */
    plan = plan_of(&w, &desc);
    assert_int_equal(plan->schedule.args.flags, TESS_DETERMINISTIC);
    tess_plan_destroy(plan);
    world_close(&w);
}

/* ---- Traces ---------------------------------------------------------------------------------- */

typedef struct lines {
    char text[32][1200];
    int count;
} lines;

static void keep_line(void *user, tess_log_level level, const char *line)
{
    lines *const kept = user;

    (void)level;
    if (kept->count < 32)
        snprintf(kept->text[kept->count++], sizeof kept->text[0], "%s", line);
}

static int count_lines(const lines *kept, const char *pieces)
{
    int found = 0;
    for (int i = 0; i < kept->count; i++)
        found += holds_pieces(kept->text[i], pieces);
    return found;
}

static void traces_name_the_problem_ready_to_be_pasted(void **state)
{
    static lines kept;
    static tensors t;
    const tess_context_desc desc = {TESS_STRUCT(tess_context_desc), .log = keep_line,
                                    .log_user = &kept};
    const tess_attention_desc problem = small_desc();
    const tess_forward_args args = args_of(&t);
    world w = {.memory = TALLY_EMPTY};

    (void)state;
    fill(&t);
    setenv("TESSERA_TRACE", "plan,refuse,exec", 1);
    assert_fine(NULL, tess_context_create(&desc, &w.context));
    unsetenv("TESSERA_TRACE");
    assert_fine(w.context, tess_device_open(w.context, "cpu", &w.device));
    assert_fine(w.context, tess_queue_create(w.device, &w.queue));

    tess_plan *const plan = plan_of(&w, &problem);

    assert_int_equal(count_lines(&kept, "tessera,plan,cpu,fwd_|\"fwd b2 hq6 hk3 q5 k7 d8 dv4 f32\""
                                        "|splits=1|workspace="),
                     1);
    assert_true(count_lines(&kept, "tessera,refuse,cpu,fwd_|\"fwd b2 hq6 ") >= 1 ||
                plan->candidate_count == 1);
    assert_fine(w.context, tess_plan_run_forward(plan, w.queue, &args));
    assert_int_equal(
        count_lines(&kept, "tessera,exec,cpu,fwd_|\"fwd b2 hq6 hk3 q5 k7 d8 dv4 f32\""), 1);
    tess_plan_destroy(plan);
    tess_queue_destroy(w.queue);
    tess_context_destroy(w.context);
}

/* ---- Running --------------------------------------------------------------------------------- */

static void one_plan_runs_on_any_data_and_leaves_inputs_alone(void **state)
{
    static tensors a, b, before;
    const tess_attention_desc desc = small_desc();
    world w;

    (void)state;
    world_open(&w, 2);

    tess_plan *const plan = plan_of(&w, &desc);

    fill(&a);
    fill(&b);
    before = a;
    for (int i = 0; i < 3; i++) {
        const tess_forward_args to_a = args_of(&a), to_b = args_of(&b);
        assert_fine(w.context, tess_plan_run_forward(plan, w.queue, &to_a));
        assert_fine(w.context, tess_plan_run_forward(plan, w.queue, &to_b));
        assert_memory_equal(&a, &b, sizeof a);
    }
    memcpy(a.o, before.o, sizeof a.o);
    memcpy(a.lse, before.lse, sizeof a.lse);
    assert_memory_equal(&a, &before, sizeof a);
    tess_plan_destroy(plan);
    world_close(&w);
}

/* The descriptor and all that hangs off it may go as soon as the plan is there. */
static void a_plan_keeps_nothing_of_its_descriptor(void **state)
{
    static tensors t, again;
    const int64_t rows = SMALL_ROWS;
    world w;

    (void)state;
    world_open(&w, 1);
    fill(&t);
    again = t;

    tess_attention_desc desc = small_desc();
    tess_varlen varlen = {TESS_STRUCT(tess_varlen), .sequences = SMALL_BATCH,
                          .host_seqused_q = (const int64_t[]){rows, 2}, .index_dtype = TESS_I64,
                          .present = TESS_VARLEN_SEQUSED_Q};
    const int64_t used[] = {rows, 2};
    tess_forward_args args = args_of(&t);

    desc.varlen = &varlen;
    args.seqused_q.base = used;
    tess_plan *const plan = plan_of(&w, &desc);
    assert_fine(w.context, tess_plan_run_forward(plan, w.queue, &args));
    memset(&desc, 0xff, sizeof desc);
    memset(&varlen, 0xff, sizeof varlen);
    args = args_of(&again);
    args.seqused_q.base = used;
    assert_fine(w.context, tess_plan_run_forward(plan, w.queue, &args));
    assert_memory_equal(&t, &again, sizeof t);
    tess_plan_destroy(plan);
    world_close(&w);
}

/* With a workspace given a run allocates nothing; without one it allocates once. */
static void a_run_with_a_workspace_allocates_nothing(void **state)
{
    static tensors t;
    tess_attention_desc desc = small_desc();
    void *workspace = NULL;
    world w;

    (void)state;
    world_open(&w, 2);
    fill(&t);
    desc.num_splits = 1;

    tess_plan *const plan = plan_of(&w, &desc);
    const size_t size = tess_plan_workspace_size(plan);
    tess_forward_args args = args_of(&t);
    int64_t calls;

    assert_fine(w.context, tess_device_allocate(w.device, size + 1, &workspace));
    args.workspace = (tess_out){workspace, 1}; /* of any alignment */
    args.workspace_size = size;
    calls = w.memory.calls;
    for (int i = 0; i < 3; i++)
        assert_fine(w.context, tess_plan_run_forward(plan, w.queue, &args));
    assert_int_equal(w.memory.calls, calls);
    args.workspace = (tess_out){NULL, 0};
    args.workspace_size = 0;
    for (int i = 0; i < 3; i++)
        assert_fine(w.context, tess_plan_run_forward(plan, w.queue, &args));
    assert_int_equal(w.memory.calls, calls + (size > 0));
    tess_device_release(w.device, workspace, size + 1);
    tess_plan_destroy(plan);
    world_close(&w);
}

/* ---- Memory grows with the length, not with its square --------------------------------------- */

typedef struct long_problem {
    tess_attention_desc desc;
    float *q, *k, *v, *o;
    size_t bytes; /* of one tensor */
} long_problem;

static void long_make(long_problem *p, int64_t seqlen, int64_t dim, int64_t window)
{
    const tess_layout shape = tess_layout_packed(TESS_F32, 1, seqlen, 1, dim);

    p->desc = (tess_attention_desc){
        TESS_STRUCT(tess_attention_desc), .q = shape, .k = shape, .v = shape, .o = shape,
        .mask = TESS_MASK_CAUSAL};
    if (window >= 0) {
        p->desc.mask |= TESS_MASK_WINDOW;
        p->desc.window_left = window;
    }
    p->bytes = (size_t)(seqlen * dim) * sizeof(float);
    p->q = calloc(4, p->bytes);
    assert_non_null(p->q);
    p->k = p->q + seqlen * dim;
    p->v = p->k + seqlen * dim;
    p->o = p->v + seqlen * dim;
    draw_all(p->q, 3 * (size_t)(seqlen * dim), 11);
}

static size_t peak_of_a_run(int64_t seqlen, int64_t window, bool runs)
{
    long_problem p;
    world w;

    world_open(&w, 2);
    long_make(&p, seqlen, 16, window);

    tess_plan *const plan = plan_of(&w, &p.desc);
    const tess_forward_args args = {TESS_STRUCT(tess_forward_args), .q = {p.q, 0}, .k = {p.k, 0},
                                    .v = {p.v, 0}, .o = {p.o, 0}};
    const size_t workspace = tess_plan_workspace_size(plan);
    size_t peak;

    if (runs)
        assert_fine(w.context, tess_plan_run_forward(plan, w.queue, &args));
    peak = w.memory.peak;
    assert_true(!runs || peak >= workspace);
    tess_plan_destroy(plan);
    world_close(&w);
    free(p.q);
    return peak > workspace ? peak : workspace;
}

static void memory_grows_no_faster_than_the_length(void **state)
{
    const int64_t seqlen = 65536;
    const size_t linear = (size_t)seqlen * (16 + 4) * sizeof(float); /* a few numbers a row */

    (void)state;
    assert_true(peak_of_a_run(seqlen, 16, true) <= linear);
    assert_true(peak_of_a_run(seqlen, -1, false) <= linear); /* planned; running takes a while */
    assert_true(peak_of_a_run(2 * seqlen, 16, true) <= 2 * linear);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_plan_describes_itself),
        cmocka_unit_test(a_plan_tells_bounds_from_lengths),
        cmocka_unit_test(a_description_is_cut_to_fit),
        cmocka_unit_test(a_pattern_of_kernels_is_obeyed_or_refused),
        cmocka_unit_test(an_instruction_set_is_a_ceiling),
        cmocka_unit_test(splits_and_determinism_fill_what_is_open),
        cmocka_unit_test(traces_name_the_problem_ready_to_be_pasted),
        cmocka_unit_test(one_plan_runs_on_any_data_and_leaves_inputs_alone),
        cmocka_unit_test(a_plan_keeps_nothing_of_its_descriptor),
        cmocka_unit_test(a_run_with_a_workspace_allocates_nothing),
        cmocka_unit_test(memory_grows_no_faster_than_the_length),
    };
    const int failed = cmocka_run_group_tests(tests, NULL, NULL);

    return failed != 0;
}
