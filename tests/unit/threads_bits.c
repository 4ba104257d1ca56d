/* SPDX-License-Identifier: Apache-2.0
 * The bits of a result do not know how many threads made it, nor who else was at work. */
#include "tests/unit/support.h"

#include <sys/types.h>
#include <sys/wait.h>
#include <unistd.h>

#ifdef _OPENMP
#include <omp.h>
#endif

/* A problem with its inputs; outputs belong to whoever runs it. */
typedef struct problem {
    tess_attention_desc desc;
    float *q, *k, *v;
    size_t o_count, lse_count;
} problem;

static size_t count_of(const tess_layout *l)
{
    return (size_t)(l->batch * l->seqlen * l->heads * l->head_dim);
}

static void make(problem *p, int64_t batch, int64_t rows, int64_t columns, int64_t splits)
{
    enum { HEADS = 4, HEADS_KV = 2, DIM = 32, DIM_V = 24 };

    p->desc =
        (tess_attention_desc){TESS_STRUCT(tess_attention_desc),
                              .q = tess_layout_packed(TESS_F32, batch, rows, HEADS, DIM),
                              .k = tess_layout_packed(TESS_F32, batch, columns, HEADS_KV, DIM),
                              .v = tess_layout_packed(TESS_F32, batch, columns, HEADS_KV, DIM_V),
                              .o = tess_layout_packed(TESS_F32, batch, rows, HEADS, DIM_V),
                              .mask = TESS_MASK_CAUSAL,
                              .flags = TESS_BATCH_INVARIANT | TESS_DETERMINISTIC,
                              .num_splits = splits};
    p->q = calloc(count_of(&p->desc.q) + 1, sizeof(float));
    p->k = calloc(count_of(&p->desc.k) + 1, sizeof(float));
    p->v = calloc(count_of(&p->desc.v) + 1, sizeof(float));
    draw_all(p->q, count_of(&p->desc.q), 1);
    draw_all(p->k, count_of(&p->desc.k), 2);
    draw_all(p->v, count_of(&p->desc.v), 3);
    p->o_count = count_of(&p->desc.o);
    p->lse_count = (size_t)(batch * rows * HEADS);
}

static void drop(problem *p)
{
    free(p->q);
    free(p->k);
    free(p->v);
}

/* O and LSE behind each other, prefilled. */
static float *outputs_of(const problem *p)
{
    const size_t size = (p->o_count + p->lse_count) * sizeof(float);
    float *const outputs = malloc(size + 1);

    if (outputs)
        memset(outputs, 0xff, size);
    return outputs;
}

static tess_status run(const problem *p, const tess_plan *plan, tess_queue *queue, float *outputs)
{
    const tess_forward_args args = {TESS_STRUCT(tess_forward_args),
                                    .q = {p->q, 0},
                                    .k = {p->k, 0},
                                    .v = {p->v, 0},
                                    .o = {outputs, 0},
                                    .lse = {outputs + p->o_count, 0}};

    return tess_plan_run_forward(plan, queue, &args);
}

static bool same_bits(const problem *p, const float *a, const float *b)
{
    return memcmp(a, b, (p->o_count + p->lse_count) * sizeof(float)) == 0;
}

/* What one thread makes of it. */
static float *alone(const problem *p)
{
    float *const outputs = outputs_of(p);
    tess_plan *plan = NULL;
    world w;

    world_open(&w, 1);
    assert_fine(w.context, tess_plan_create_forward(w.device, &p->desc, &plan));
    assert_fine(w.context, run(p, plan, w.queue, outputs));
    tess_plan_destroy(plan);
    world_close(&w);
    return outputs;
}

/* ---- Numbers of threads ---------------------------------------------------------------------- */

static void check_thread_counts(int64_t batch, int64_t rows, int64_t columns, int64_t splits)
{
    static const int32_t threads[] = {2, 3, 7, 16, 64};
    problem p;

    make(&p, batch, rows, columns, splits);
    float *const wanted = alone(&p), *const got = outputs_of(&p);

    for (size_t i = 0; i < sizeof threads / sizeof threads[0]; i++) {
        tess_plan *plan = NULL;
        world w;

        world_open(&w, threads[i]);
        assert_fine(w.context, tess_plan_create_forward(w.device, &p.desc, &plan));
        assert_fine(w.context, run(&p, plan, w.queue, got));
        if (!same_bits(&p, wanted, got))
            fail_msg("%d threads: other bits at b%d q%d k%d splits=%d", (int)threads[i], (int)batch,
                     (int)rows, (int)columns, (int)splits);
        tess_plan_destroy(plan);
        world_close(&w);
    }
    free(wanted);
    free(got);
    drop(&p);
}

static void no_number_of_threads_changes_a_bit(void **state)
{
    static const int64_t lengths[] = {1, 31, 32, 33, 34, 64, 65, 300};

    (void)state;
    for (size_t i = 0; i < sizeof lengths / sizeof lengths[0]; i++)
        check_thread_counts(2, lengths[i], lengths[i] + 5, 0);
    check_thread_counts(1, 1000, 1000, 0);
    check_thread_counts(1, 3, 5000, 7); /* fewer rows than threads; shares of the keys */
    check_thread_counts(40, 3, 200, 2);
}

/* ---- Callers at once ------------------------------------------------------------------------- */

typedef struct caller {
    const problem *p;
    const tess_plan *plan;
    tess_device *device;
    const float *wanted;
    int failures; /* counted, for cmocka must not leave another thread */
} caller;

static void *call_often(void *user)
{
    caller *const c = user;
    float *const got = outputs_of(c->p);
    tess_queue *queue = NULL;

    if (!got || tess_queue_create(c->device, &queue) != TESS_OK) {
        c->failures++;
        free(got);
        return NULL;
    }
    for (int i = 0; i < 10; i++) {
        memset(got, 0xff, (c->p->o_count + c->p->lse_count) * sizeof(float));
        c->failures += run(c->p, c->plan, queue, got) != TESS_OK;
        c->failures += !same_bits(c->p, c->wanted, got);
    }
    tess_queue_destroy(queue);
    free(got);
    return NULL;
}

/* One plan, many threads, a queue each: what a plan is for. */
static void one_plan_serves_many_threads(void **state)
{
    enum { CALLERS = 8 };
    pthread_t threads[CALLERS];
    caller callers[CALLERS];
    tess_plan *plan = NULL;
    problem p;
    world w;

    (void)state;
    make(&p, 2, 100, 130, 2);
    world_open(&w, 3);
    assert_fine(w.context, tess_plan_create_forward(w.device, &p.desc, &plan));
    float *const wanted = alone(&p);
    for (int i = 0; i < CALLERS; i++) {
        callers[i] = (caller){&p, plan, w.device, wanted, 0};
        assert_int_equal(pthread_create(&threads[i], NULL, call_often, &callers[i]), 0);
    }
    for (int i = 0; i < CALLERS; i++) {
        assert_int_equal(pthread_join(threads[i], NULL), 0);
        assert_int_equal(callers[i].failures, 0);
    }
    tess_plan_destroy(plan);
    world_close(&w);
    free(wanted);
    drop(&p);
}

/* Plans may be made on one device from several threads while others run. */
static void *plan_often(void *user)
{
    caller *const c = user;

    for (int i = 0; i < 20; i++) {
        tess_plan *plan = NULL;
        c->failures += tess_plan_create_forward(c->device, &c->p->desc, &plan) != TESS_OK;
        tess_plan_destroy(plan);
    }
    return call_often(user);
}

static void plans_are_made_beside_runs(void **state)
{
    enum { CALLERS = 6 };
    pthread_t threads[CALLERS];
    caller callers[CALLERS];
    tess_plan *plan = NULL;
    problem p;
    world w;

    (void)state;
    make(&p, 1, 40, 50, 0);
    world_open(&w, 2);
    assert_fine(w.context, tess_plan_create_forward(w.device, &p.desc, &plan));
    float *const wanted = alone(&p);
    for (int i = 0; i < CALLERS; i++) {
        callers[i] = (caller){&p, plan, w.device, wanted, 0};
        assert_int_equal(
            pthread_create(&threads[i], NULL, i % 2 ? plan_often : call_often, &callers[i]), 0);
    }
    for (int i = 0; i < CALLERS; i++) {
        assert_int_equal(pthread_join(threads[i], NULL), 0);
        assert_int_equal(callers[i].failures, 0);
    }
    tess_plan_destroy(plan);
    world_close(&w);
    free(wanted);
    drop(&p);
}

#ifdef _OPENMP
static void a_callers_own_region_gets_the_same_bits(void **state)
{
    tess_plan *plan = NULL;
    problem p;
    world w;
    int failures = 0;

    (void)state;
    make(&p, 2, 150, 150, 0);
    world_open(&w, 3);
    assert_fine(w.context, tess_plan_create_forward(w.device, &p.desc, &plan));
    float *const wanted = alone(&p);
#pragma omp parallel num_threads(4) reduction(+ : failures)
    {
        caller inside = {&p, plan, w.device, wanted, 0};
        call_often(&inside);
        failures += inside.failures;
    }
    assert_int_equal(failures, 0);
    tess_plan_destroy(plan);
    world_close(&w);
    free(wanted);
    drop(&p);
}
#endif

/* ---- Forks ----------------------------------------------------------------------------------- */

/* Whether a forked child, which ends by itself within ten seconds, gets the wanted bits. */
static bool child_gets(const problem *p, const tess_plan *plan, tess_queue *queue,
                       const float *wanted)
{
    int status = -1;

    fflush(NULL);
    const pid_t child = fork();

    assert_true(child >= 0);
    if (child == 0) {
        float *const got = outputs_of(p);
        alarm(10);
        _exit(!got || run(p, plan, queue, got) != TESS_OK || !same_bits(p, wanted, got));
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

static void a_forked_child_gets_the_same_bits(void **state)
{
    tess_plan *plan = NULL;
    problem p;
    world w;

    (void)state;
    make(&p, 2, 200, 200, 0);
    world_open(&w, 4);
    assert_fine(w.context, tess_plan_create_forward(w.device, &p.desc, &plan));
    float *const wanted = alone(&p), *const got = outputs_of(&p);
    assert_true(child_gets(&p, plan, w.queue, wanted));
    assert_fine(w.context, run(&p, plan, w.queue, got)); /* now the pool exists */
    assert_true(same_bits(&p, wanted, got));
    assert_true(child_gets(&p, plan, w.queue, wanted));
    assert_fine(w.context, run(&p, plan, w.queue, got));
    assert_true(same_bits(&p, wanted, got));
    tess_plan_destroy(plan);
    world_close(&w);
    free(wanted);
    free(got);
    drop(&p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_forked_child_gets_the_same_bits),
        cmocka_unit_test(no_number_of_threads_changes_a_bit),
        cmocka_unit_test(one_plan_serves_many_threads),
        cmocka_unit_test(plans_are_made_beside_runs),
#ifdef _OPENMP
        cmocka_unit_test(a_callers_own_region_gets_the_same_bits),
#endif
    };
    const int failed = cmocka_run_group_tests(tests, NULL, NULL);

    return failed != 0;
}
