/* SPDX-License-Identifier: Apache-2.0
 * Extra memory grows with the sequence, never with its square. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>
#include <tessera/tessera.h>

enum { SEQLEN = 65536, DIM = 8 };

/* An allocator that knows how much of it is alive, and how much ever was. */
typedef struct counter {
    size_t alive, most;
} counter;

static void *allocate(void *user, size_t size, size_t alignment)
{
    counter *count = user;
    const size_t whole = (size + alignment - 1) / alignment * alignment;

    count->alive += size;
    if (count->alive > count->most)
        count->most = count->alive;
    return aligned_alloc(alignment, whole);
}

static void release(void *user, void *memory, size_t size)
{
    counter *count = user;

    count->alive -= size;
    free(memory);
}

/* The most memory alive in a forward pass of one head, all of it Tessera's own. A narrow window
 * keeps the run short; what is laid out does not depend on it. */
static size_t most_of(int64_t seqlen, int64_t splits)
{
    counter count = {0, 0};
    const tess_context_desc context_desc = {TESS_STRUCT(tess_context_desc), .allocate = allocate,
                                            .release = release, .memory_user = &count,
                                            .threads = 2};
    const tess_layout shape = tess_layout_packed(TESS_F32, 1, seqlen, 1, DIM);
    const tess_attention_desc desc = {TESS_STRUCT(tess_attention_desc),
                                      .q = shape,
                                      .k = shape,
                                      .v = shape,
                                      .o = shape,
                                      .mask = TESS_MASK_CAUSAL | TESS_MASK_WINDOW,
                                      .window_left = 16,
                                      .num_splits = splits};
    float *in = calloc((size_t)seqlen * DIM, sizeof *in);
    float *out = calloc((size_t)seqlen * DIM, sizeof *out);
    const tess_forward_args args = {TESS_STRUCT(tess_forward_args), .q.base = in, .k.base = in,
                                    .v.base = in, .o.base = out};
    tess_context *context;
    tess_device *device;
    tess_queue *queue;
    tess_plan *plan;

    assert_non_null(in);
    assert_non_null(out);
    assert_int_equal(tess_context_create(&context_desc, &context), TESS_OK);
    assert_int_equal(tess_device_open(context, "cpu", &device), TESS_OK);
    assert_int_equal(tess_queue_create(device, &queue), TESS_OK);
    assert_int_equal(tess_plan_create_forward(device, &desc, &plan), TESS_OK);
    assert_int_equal(tess_plan_run_forward(plan, queue, &args), TESS_OK);
    tess_plan_destroy(plan);
    tess_queue_destroy(queue);
    tess_context_destroy(context);
    assert_int_equal(count.alive, 0);
    free(in);
    free(out);
    return count.most;
}

static void extra_memory_is_linear(void **state)
{
    const size_t whole = most_of(SEQLEN, 1), half = most_of(SEQLEN / 2, 1);

    (void)state;
    assert_true(whole < 2 * half + 4096);
    assert_true(whole < (size_t)SEQLEN * 64); /* one score in fp32 per pair would be 17 GB */
}

static void partial_results_are_linear(void **state)
{
    const size_t whole = most_of(SEQLEN, 4), half = most_of(SEQLEN / 2, 4);

    (void)state;
    assert_true(whole < 2 * half + 4096);
    assert_true(whole < (size_t)SEQLEN * (64 + 4 * 4 * (DIM + 1)));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(extra_memory_is_linear),
        cmocka_unit_test(partial_results_are_linear),
    };
    const int failed = cmocka_run_group_tests(tests, NULL, NULL);
    return failed != 0;
}
