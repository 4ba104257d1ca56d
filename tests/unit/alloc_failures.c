/* SPDX-License-Identifier: Apache-2.0
 * Every allocation fails once: the call says TESS_NO_MEMORY, nothing leaks, and life goes on. */
#include "tests/unit/support.h"

typedef struct tensors {
    float q[SMALL_BATCH * SMALL_ROWS * SMALL_HEADS * SMALL_DIM];
    float k[SMALL_BATCH * SMALL_COLUMNS * SMALL_HEADS_KV * SMALL_DIM];
    float v[SMALL_BATCH * SMALL_COLUMNS * SMALL_HEADS_KV * SMALL_DIM_V];
    float o[SMALL_BATCH * SMALL_ROWS * SMALL_HEADS * SMALL_DIM_V];
    float lse[SMALL_BATCH * SMALL_ROWS * SMALL_HEADS];
    float d_o[SMALL_BATCH * SMALL_ROWS * SMALL_HEADS * SMALL_DIM_V];
    float dq[SMALL_BATCH * SMALL_ROWS * SMALL_HEADS * SMALL_DIM];
    float dk[SMALL_BATCH * SMALL_COLUMNS * SMALL_HEADS_KV * SMALL_DIM];
    float dv[SMALL_BATCH * SMALL_COLUMNS * SMALL_HEADS_KV * SMALL_DIM_V];
} tensors;

static tensors data, right;

/* Everything a program makes, in the order it makes it. */
typedef struct life {
    tess_context *context;
    tess_device *device;
    tess_queue *queue;
    tess_plan *plan, *backward;
    tess_event *start, *end;
    void *memory;
    const char *call; /* the one that failed */
} life;

enum { MEMORY = 777 };

static tess_forward_args args_of(tensors *t)
{
    return (tess_forward_args){TESS_STRUCT(tess_forward_args),
                               .q = {t->q, 0},
                               .k = {t->k, 0},
                               .v = {t->v, 0},
                               .o = {t->o, 0},
                               .lse = {t->lse, 0}};
}

static tess_backward_args backward_args_of(tensors *t)
{
    return (tess_backward_args){TESS_STRUCT(tess_backward_args),
                                .q = {t->q, 0},
                                .k = {t->k, 0},
                                .v = {t->v, 0},
                                .o = {t->o, 0},
                                .lse = {t->lse, 0},
                                .d_o = {t->d_o, 0},
                                .dq = {t->dq, 0},
                                .dk = {t->dk, 0},
                                .dv = {t->dv, 0}};
}

#define STEP(name, expression)                        \
    do {                                              \
        l->call = name;                               \
        const tess_status step_status = (expression); \
        if (step_status != TESS_OK)                   \
            return step_status;                       \
    } while (0)

/* Lives until something fails. */
static tess_status live(life *l, tally *memory)
{
    const tess_context_desc desc = {TESS_STRUCT(tess_context_desc), .allocate = tally_allocate,
                                    .release = tally_release, .memory_user = memory, .threads = 2};
    const tess_attention_desc problem = small_desc();
    const tess_forward_args args = args_of(&data);
    const tess_backward_args gradients = backward_args_of(&data);
    double seconds;
    char text[4096];

    STEP("tess_context_create", tess_context_create(&desc, &l->context));
    STEP("tess_device_open", tess_device_open(l->context, NULL, &l->device));
    STEP("tess_device_allocate", tess_device_allocate(l->device, MEMORY, &l->memory));
    STEP("tess_queue_create", tess_queue_create(l->device, &l->queue));
    STEP("tess_event_create", tess_event_create(l->device, &l->start));
    STEP("tess_event_create", tess_event_create(l->device, &l->end));
    STEP("tess_plan_create_forward", tess_plan_create_forward(l->device, &problem, &l->plan));
    STEP("tess_event_record", tess_event_record(l->start, l->queue));
    STEP("tess_plan_run_forward", tess_plan_run_forward(l->plan, l->queue, &args));
    STEP("tess_plan_create_backward",
         tess_plan_create_backward(l->device, &problem, NULL, &l->backward));
    STEP("tess_plan_run_backward", tess_plan_run_backward(l->backward, l->queue, &gradients));
    STEP("tess_event_record", tess_event_record(l->end, l->queue));
    STEP("tess_queue_wait", tess_queue_wait(l->queue));
    STEP("tess_event_elapsed", tess_event_elapsed(l->start, l->end, &seconds));
    tess_plan_describe(l->plan, text, sizeof text);
    return TESS_OK;
}

static void die(life *l)
{
    tess_plan_destroy(l->backward);
    tess_plan_destroy(l->plan);
    tess_event_destroy(l->end);
    tess_event_destroy(l->start);
    tess_queue_destroy(l->queue);
    tess_device_release(l->device, l->memory, MEMORY);
    tess_context_destroy(l->context);
}

static void prefill(void)
{
    memset(data.o, 0xff, sizeof data.o);
    memset(data.lse, 0xff, sizeof data.lse);
    memset(data.dq, 0xff, sizeof data.dq);
    memset(data.dk, 0xff, sizeof data.dk);
    memset(data.dv, 0xff, sizeof data.dv);
}

/* How many allocations a life takes, and what it computes. */
static int64_t allocations_of_a_life(void)
{
    tally memory = TALLY_EMPTY;
    life l = {0};

    draw_all((float *)(void *)&data, sizeof data / sizeof(float), 5);
    prefill();
    assert_fine(NULL, live(&l, &memory));
    right = data;
    die(&l);
    assert_nothing_is_left(&memory);
    return memory.calls;
}

static void each_allocation_may_fail(void **state)
{
    const int64_t count = allocations_of_a_life();
    int failures = 0;

    (void)state;
    assert_true(count >= 8);
    for (int64_t at = 1; at <= count; at++) {
        tally memory = TALLY_EMPTY;
        life l = {0};
        char what[64];

        memory.fails_at = at;
        snprintf(what, sizeof what, "allocation %d of %d", (int)at, (int)count);
        prefill();

        const tess_status status = live(&l, &memory);

        assert_refused(NULL, status, TESS_NO_MEMORY, l.call, "no memory for|bytes", what);
        failures++;
        die(&l); /* what was made before */
        assert_nothing_is_left(&memory);
    }
    assert_int_equal(failures, count);
}

/* Nothing was lost, the call may be repeated: the same objects, the same call again. */
static void the_failed_call_may_be_repeated(void **state)
{
    const int64_t count = allocations_of_a_life();

    (void)state;
    for (int64_t at = 1; at <= count; at++) {
        tally memory = TALLY_EMPTY;
        const tess_context_desc desc = {TESS_STRUCT(tess_context_desc), .allocate = tally_allocate,
                                        .release = tally_release, .memory_user = &memory,
                                        .threads = 2};
        const tess_attention_desc problem = small_desc();
        const tess_forward_args args = args_of(&data);
        const tess_backward_args gradients = backward_args_of(&data);
        life l = {0};
        int failed = 0;

        memory.fails_at = at;
        prefill();
        while (tess_context_create(&desc, &l.context) != TESS_OK)
            failed++;
        while (tess_device_open(l.context, NULL, &l.device) != TESS_OK)
            failed++;
        while (tess_device_allocate(l.device, MEMORY, &l.memory) != TESS_OK)
            failed++;
        while (tess_queue_create(l.device, &l.queue) != TESS_OK)
            failed++;
        while (tess_event_create(l.device, &l.start) != TESS_OK)
            failed++;
        while (tess_event_create(l.device, &l.end) != TESS_OK)
            failed++;
        while (tess_plan_create_forward(l.device, &problem, &l.plan) != TESS_OK)
            failed++;
        while (tess_plan_run_forward(l.plan, l.queue, &args) != TESS_OK)
            failed++;
        while (tess_plan_create_backward(l.device, &problem, NULL, &l.backward) != TESS_OK)
            failed++;
        while (tess_plan_run_backward(l.backward, l.queue, &gradients) != TESS_OK)
            failed++;
        assert_int_equal(failed, 1);
        assert_memory_equal(&data, &right, sizeof right);
        die(&l);
        assert_nothing_is_left(&memory);
    }
}

/* A run that could not get its scratch has written nothing. */
static void a_run_without_memory_touches_nothing(void **state)
{
    static tensors before;
    const tess_attention_desc problem = small_desc();
    const tess_forward_args args = args_of(&data);
    tess_plan *plan = NULL;
    world w;

    (void)state;
    allocations_of_a_life();
    prefill();
    before = data;
    world_open(&w, 2);
    assert_fine(w.context, tess_plan_create_forward(w.device, &problem, &plan));
    w.memory.fails_from = w.memory.calls + 1;
    assert_refused(w.context, tess_plan_run_forward(plan, w.queue, &args), TESS_NO_MEMORY,
                   "tess_plan_run_forward", "workspace|bytes", "no scratch");
    assert_memory_equal(&data, &before, sizeof before);
    w.memory.fails_from = 0;
    assert_fine(w.context, tess_plan_run_forward(plan, w.queue, &args));
    assert_memory_equal(data.o, right.o, sizeof right.o);
    assert_memory_equal(data.lse, right.lse, sizeof right.lse);
    tess_plan_destroy(plan);
    world_close(&w);
}

/* Scratch that cannot grow leaves the queue with what it had. */
static void a_queue_keeps_its_scratch_when_it_cannot_grow(void **state)
{
    tess_attention_desc large = small_desc();
    const tess_attention_desc problem = small_desc();
    const tess_forward_args args = args_of(&data);
    tess_plan *plan = NULL, *larger = NULL;
    world w;

    (void)state;
    allocations_of_a_life();
    large.num_splits = 2;
    large.k.seqlen = large.v.seqlen = 1000;
    large.k.batch_stride = large.k.seqlen_stride = 0; /* data of the small one, often */
    large.v.batch_stride = large.v.seqlen_stride = 0;
    world_open(&w, 2);
    assert_fine(w.context, tess_plan_create_forward(w.device, &problem, &plan));
    assert_fine(w.context, tess_plan_create_forward(w.device, &large, &larger));
    assert_true(tess_plan_workspace_size(larger) > tess_plan_workspace_size(plan));
    assert_fine(w.context, tess_plan_run_forward(plan, w.queue, &args));
    w.memory.fails_from = w.memory.calls + 1;
    assert_int_equal(tess_plan_run_forward(larger, w.queue, &args), TESS_NO_MEMORY);
    prefill();
    assert_fine(w.context, tess_plan_run_forward(plan, w.queue, &args));
    assert_memory_equal(data.o, right.o, sizeof right.o);
    assert_memory_equal(data.lse, right.lse, sizeof right.lse);
    tess_plan_destroy(plan);
    tess_plan_destroy(larger);
    world_close(&w);
}

/* Refusals come before anything is allocated, or give it back. */
static void the_device_list_needs_no_memory(void **state)
{
    tess_device_info info = {TESS_STRUCT(tess_device_info)};
    world w;

    (void)state;
    world_open(&w, 2);
    w.memory.fails_from = w.memory.calls + 1;
    assert_true(tess_context_device_count(w.context) >= 1);
    assert_fine(w.context, tess_context_device_info(w.context, 0, &info));
    assert_fine(w.context, tess_device_get_info(w.device, &info));
    world_close(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_allocation_may_fail),
        cmocka_unit_test(the_failed_call_may_be_repeated),
        cmocka_unit_test(a_run_without_memory_touches_nothing),
        cmocka_unit_test(a_queue_keeps_its_scratch_when_it_cannot_grow),
        cmocka_unit_test(the_device_list_needs_no_memory),
    };
    const int failed = cmocka_run_group_tests(tests, NULL, NULL);

    return failed != 0;
}
