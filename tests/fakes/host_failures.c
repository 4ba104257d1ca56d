/* SPDX-License-Identifier: Apache-2.0
 * Every driver call fails in turn: the text names it, nothing is left behind, the next try works.
 */
#include "tests/fakes/world.h"

#define COUNT(list) (sizeof(list) / sizeof *(list))

/* What one life of the library holds; NULL where it was not reached. */
typedef struct life {
    tess_context *context;
    tess_device *device;
    tess_queue *queue;
    tess_plan *forward, *backward;
    tess_event *start, *end;
    fake_tensors tensors;
    void *gradients;
} life;

enum { GRADIENT_BYTES = 4 * FAKE_TENSOR_BYTES };

static tess_status make(life *l, const tess_attention_desc *desc)
{
    TESS_TRY(tess_device_open(l->context, fake_vendor, &l->device));
    TESS_TRY(tess_queue_create(l->device, &l->queue));
    TESS_TRY(tess_event_create(l->device, &l->start));
    TESS_TRY(tess_event_create(l->device, &l->end));
    TESS_TRY(tess_plan_create_forward(l->device, desc, &l->forward));
    TESS_TRY(tess_plan_create_backward(l->device, desc, NULL, &l->backward));
    TESS_TRY(fake_tensors_make(l->device, 0, &l->tensors));
    return tess_device_allocate(l->device, GRADIENT_BYTES, &l->gradients);
}

static tess_status run(life *l)
{
    const tess_forward_args *f = &l->tensors.args;
    char *const gradients = l->gradients;
    const tess_backward_args args = {TESS_STRUCT(tess_backward_args),
                                     .q = f->q,
                                     .k = f->k,
                                     .v = f->v,
                                     .o = {f->o.base, 0},
                                     .lse = {f->lse.base, 0},
                                     .d_o = {gradients, 0},
                                     .dq = {gradients + FAKE_TENSOR_BYTES, 0},
                                     .dk = {gradients + 2 * FAKE_TENSOR_BYTES, 0},
                                     .dv = {gradients + 3 * FAKE_TENSOR_BYTES, 0}};
    const tess_layout part = tess_layout_packed(TESS_F32, 1, 8, 1, 1);
    const tess_merge_desc merge = {TESS_STRUCT(tess_merge_desc), 2, part, part, 8, 8, part, part};
    const tess_merge_args parts = {
        TESS_STRUCT(tess_merge_args), {f->q.base, 0}, {f->k.base, 0}, f->o, f->lse};
    char bytes[64] = "";
    double seconds;

    TESS_TRY(tess_queue_upload(l->queue, l->tensors.q, bytes, sizeof bytes));
    TESS_TRY(tess_event_record(l->start, l->queue));
    TESS_TRY(tess_plan_run_forward(l->forward, l->queue, f));
    TESS_TRY(tess_plan_run_backward(l->backward, l->queue, &args)); /* grows the scratch */
    TESS_TRY(tess_queue_merge(l->queue, &merge, &parts));
    TESS_TRY(tess_event_record(l->end, l->queue));
    TESS_TRY(tess_event_elapsed(l->start, l->end, &seconds));
    TESS_TRY(tess_queue_download(l->queue, bytes, l->tensors.o, sizeof bytes));
    return tess_queue_wait(l->queue);
}

static void end(life *l)
{
    if (l->device) {
        fake_tensors_free(l->device, &l->tensors);
        tess_device_release(l->device, l->gradients, GRADIENT_BYTES);
    }
    tess_event_destroy(l->start);
    tess_event_destroy(l->end);
    tess_plan_destroy(l->forward);
    tess_plan_destroy(l->backward);
    tess_queue_destroy(l->queue);
    tess_context_destroy(l->context);
}

/* One life with the n-th call failing. Returns the status and the text of the first failure. */
static tess_status live(tally *memory, int64_t fails_at, int failure, char *text, size_t size)
{
    const tess_context_desc context = {TESS_STRUCT(tess_context_desc), .allocate = tally_allocate,
                                       .release = tally_release, .memory_user = memory};
    tess_attention_desc desc = small_desc();
    life l;
    tess_status status;

    memset(&l, 0, sizeof l);
    desc.k = tess_layout_packed(TESS_F32, SMALL_BATCH, 200, SMALL_HEADS_KV, SMALL_DIM);
    desc.v = tess_layout_packed(TESS_F32, SMALL_BATCH, 200, SMALL_HEADS_KV, SMALL_DIM_V);
    desc.num_splits = 2;
    fake->calls = 0;
    fake->failure = failure;
    fake->fails_at = fails_at;
    assert_fine(NULL, tess_context_create(&context, &l.context));
    status = make(&l, &desc);
    if (status == TESS_OK)
        status = run(&l);
    text[0] = '\0';
    if (status != TESS_OK)
        tess_context_error(l.context, text, size);
    end(&l);
    fake->fails_at = 0;
    return status;
}

static void assert_nothing_is_left_in_the_driver(const char *call)
{
    const int64_t left =
        fake->contexts + fake->streams + fake->events + fake->modules + fake->blocks;

    if (left != 0 || fake->complaint[0])
        fail_msg("after %s failed: %d objects are left; %s", call, (int)left, fake->complaint);
}

/* Calls whose failure has no status to go to, or that have another way out. */
static bool may_be_survived(const char *call)
{
    static const char *const calls[] = {
        "cuStreamDestroy_v2",
        "cuEventDestroy_v2",
        "cuMemFree_v2",
        "cuMemFreeAsync",
        "cuModuleUnload",
        "cuDevicePrimaryCtxRelease_v2",
        "cuPointerGetAttribute",
        "cuStreamSynchronize",
        "cuCtxPushCurrent_v2",
        "cuCtxPopCurrent_v2",
        "hipStreamDestroy",
        "hipEventDestroy",
        "hipFree",
        "hipFreeAsync",
        "hipModuleUnload",
        "hipPointerGetAttribute",
        "hipStreamSynchronize",
        "hipGetDevice",
        "hipSetDevice",
        "hipGetLastError",
    };

    for (size_t i = 0; i < COUNT(calls); i++)
        if (strcmp(calls[i], call) == 0)
            return true;
    return false;
}

/* First of all, since a driver that has started is kept. */
static void a_driver_that_does_not_start_is_a_reason(void **state)
{
    tess_context *context = NULL;
    tess_device *device = NULL;

    (void)state;
    fake->reset();
    fake->fails_at = 1;
    assert_fine(NULL, tess_context_create(NULL, &context));
    assert_refused(context, tess_device_open(context, fake_vendor, &device), TESS_UNAVAILABLE,
                   "tess_device_open",
                   fake_either("does not start: cuInit says CUDA_ERROR_UNKNOWN (999)",
                               "does not start: hipInit says hipErrorUnknown (999)"),
                   "no start");
    fake->fails_at = fake->calls + 2; /* its version, which is for texts only */
    assert_fine(context, tess_device_open(context, fake_vendor, &device));
    tess_context_destroy(context);
}

/* Calls that a life makes when nothing fails. */
static int64_t count_calls(tally *memory)
{
    char text[64];

    fake->reset();
    assert_int_equal(live(memory, 0, 0, text, sizeof text), TESS_OK);
    return fake->calls;
}

static void fail_each(int failure, tess_status wanted)
{
    tally memory = TALLY_EMPTY;
    const int64_t calls = count_calls(&memory);
    int survived = 0;
    char text[8192];

    assert_true(calls > 60);
    for (int64_t n = 1; n <= calls; n++) {
        const tess_status status = live(&memory, n, failure, text, sizeof text);
        const char *const call = fake->failed_call;

        if (status == TESS_OK) {
            survived++;
            if (!may_be_survived(call))
                fail_msg("call %d, %s, failed and nobody noticed", (int)n, call);
        } else if (!strstr(text, call)) {
            fail_msg("%s failed and the text does not name it: %s", call, text);
        } else if (status != wanted && status != TESS_UNAVAILABLE) {
            fail_msg("%s failed with %s: %s", call, tess_status_name(status), text);
        }
        assert_nothing_is_left_in_the_driver(call);
        assert_nothing_is_left(&memory);
        fake->reset();
    }
    assert_int_equal(live(&memory, 0, 0, text, sizeof text), TESS_OK);
    assert_nothing_is_left_in_the_driver("no call");
    print_message("%s: %d calls failed in turn, %d of them without consequence\n", fake_vendor,
                  (int)calls, survived);
}

static void each_call_fails_in_turn(void **state)
{
    (void)state;
    fail_each(999, TESS_DEVICE_FAILED);
}

static void each_call_runs_out_of_memory_in_turn(void **state)
{
    (void)state;
    fail_each(FAKE_OUT_OF_MEMORY, TESS_NO_MEMORY);
}

static void each_call_loses_the_device_in_turn(void **state)
{
    (void)state;
    fail_each(FAKE_ILLEGAL_ADDRESS, TESS_DEVICE_FAILED);
}

/* The library's own memory runs out at every place in turn. */
static void each_allocation_fails_in_turn(void **state)
{
    tally memory = TALLY_EMPTY;
    char text[1024];

    (void)state;
    fake->reset();
    for (int64_t n = 1;; n++) {
        memory.calls = 0;
        memory.fails_at = n;
        /* the context is made by an allocation too, whose failure is not of this test */
        if (n > 1) {
            const tess_status status = live(&memory, 0, 0, text, sizeof text);

            assert_nothing_is_left(&memory);
            assert_nothing_is_left_in_the_driver("an allocation");
            if (memory.calls < n) {
                assert_int_equal(status, TESS_OK);
                break;
            }
            assert_int_equal(status, TESS_NO_MEMORY);
        }
    }
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_driver_that_does_not_start_is_a_reason),
        cmocka_unit_test(each_call_fails_in_turn),
        cmocka_unit_test(each_call_runs_out_of_memory_in_turn),
        cmocka_unit_test(each_call_loses_the_device_in_turn),
        cmocka_unit_test(each_allocation_fails_in_turn),
    };

    fake_world_start(argc, argv);
    return cmocka_run_group_tests(tests, NULL, NULL) != 0;
}
