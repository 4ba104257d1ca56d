/* SPDX-License-Identifier: Apache-2.0
 * Work items on threads: each once, each worker once at a time, in every kind of company. */
#include "backends/cpu/threads.h"

#include "tests/unit/support.h"

#include <sched.h>
#include <stdatomic.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#ifdef _OPENMP
#include <omp.h>
#endif

enum { MOST_ITEMS = 3000, MOST_WORKERS = 64 };

/* What happened in one call. Failures are counted: cmocka must not jump out of another thread. */
typedef struct record {
    atomic_int visits[MOST_ITEMS];
    atomic_int is_busy[MOST_WORKERS];
    atomic_int wrong;
    int64_t items;
    int32_t workers;
} record;

static void visit(void *user, int64_t item, int32_t worker)
{
    record *const r = user;

    if (item < 0 || item >= r->items || worker < 0 || worker >= r->workers) {
        r->wrong++;
        return;
    }
    if (atomic_exchange(&r->is_busy[worker], 1))
        r->wrong++; /* somebody else has this worker's scratch */
    r->visits[item]++;
    for (volatile int i = 0; i < 50; i++)
        continue;
    atomic_store(&r->is_busy[worker], 0);
}

/* Runs `items` items and says whether all was as it should be. */
static bool is_right(int64_t items, int32_t workers)
{
    record *const r = calloc(1, sizeof *r);
    bool right;

    r->items = items;
    r->workers = workers > 1 ? workers : 1;
    tess_cpu_for_each(items, workers, visit, r);
    right = r->wrong == 0;
    for (int64_t i = 0; i < items; i++)
        right = right && r->visits[i] == 1;
    free(r);
    return right;
}

/* Runs `body` in a forked child under an alarm; true when the child ended well. */
static bool ends_well_in_a_child(bool (*body)(void))
{
    int status = -1;

    fflush(NULL);
    const pid_t child = fork();

    assert_true(child >= 0);
    if (child == 0) {
        alarm(10);
        _exit(body() ? 0 : 1);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

static bool four_threads(void)
{
    return is_right(1000, 4);
}

/* Comes first: nobody in this process has used threads yet. */
static void a_child_of_a_fresh_process_works(void **state)
{
    (void)state;
    assert_true(ends_well_in_a_child(four_threads));
}

static void every_item_is_visited_once(void **state)
{
    static const int64_t items[] = {0, 1, 2, 3, 7, 63, 64, 65, 1000, MOST_ITEMS};
    static const int32_t workers[] = {0, 1, 2, 3, 7, 16, 64};

    (void)state;
    for (size_t i = 0; i < sizeof items / sizeof items[0]; i++)
        for (size_t w = 0; w < sizeof workers / sizeof workers[0]; w++)
            assert_true(is_right(items[i], workers[w]));
}

#ifdef _OPENMP
/* A visit that stays until all are there, or for a while: there may be fewer threads than asked. */
typedef struct meeting {
    atomic_int inside;
    int32_t guests;
    int32_t worker[8]; /* by item */
    bool has_met[8];   /* stayed until all were there */
} meeting;

static void meet(void *user, int64_t item, int32_t worker)
{
    meeting *const m = user;
    struct timespec start, now;

    m->worker[item] = worker;
    m->has_met[item] = false;
    m->inside++;
    clock_gettime(CLOCK_MONOTONIC, &start);
    do {
        sched_yield();
        clock_gettime(CLOCK_MONOTONIC, &now);
    } while (m->inside < m->guests && now.tv_sec - start.tv_sec < 2);
    m->has_met[item] = m->inside == m->guests && now.tv_sec - start.tv_sec < 2;
}

static void workers_that_meet_are_distinct(void **state)
{
    (void)state;
    for (int32_t guests = 2; guests <= 8; guests *= 2) {
        meeting m = {.guests = guests};

        tess_cpu_for_each(guests, guests, meet, &m);
        assert_int_equal(m.inside, guests);
        for (int32_t i = 0; i < guests; i++)
            for (int32_t j = 0; j < i; j++)
                if (m.has_met[i] && m.has_met[j])
                    assert_int_not_equal(m.worker[i], m.worker[j]);
    }
}
#endif

static void one_worker_is_the_caller(void **state)
{
    (void)state;
    assert_true(is_right(100, 1));
    assert_true(tess_cpu_default_threads() >= 1);
}

/* ---- Company --------------------------------------------------------------------------------- */

static void *use_threads(void *user)
{
    atomic_int *const wrong = user;

    for (int i = 0; i < 20; i++)
        *wrong += !is_right(100 + i, 3);
    return NULL;
}

static void eight_threads_may_call_at_once(void **state)
{
    enum { CALLERS = 8 };
    pthread_t callers[CALLERS];
    atomic_int wrong = 0;

    (void)state;
    for (int i = 0; i < CALLERS; i++)
        assert_int_equal(pthread_create(&callers[i], NULL, use_threads, &wrong), 0);
    for (int i = 0; i < CALLERS; i++)
        assert_int_equal(pthread_join(callers[i], NULL), 0);
    assert_int_equal(wrong, 0);
}

#ifdef _OPENMP
static int wrong_in_region(int nested)
{
    int wrong = 0;

    omp_set_max_active_levels(nested ? 2 : 1);
#pragma omp parallel for num_threads(4) reduction(+ : wrong)
    for (int i = 0; i < 16; i++)
        wrong += !is_right(200, 3);
    omp_set_max_active_levels(1);
    return wrong;
}

static void a_callers_own_region_may_call(void **state)
{
    (void)state;
    assert_int_equal(wrong_in_region(0), 0);
    assert_int_equal(wrong_in_region(1), 0);
}
#endif

/* ---- Forks ----------------------------------------------------------------------------------- */

static bool grandchild(void)
{
    return four_threads() && ends_well_in_a_child(four_threads);
}

static void a_child_of_a_process_that_used_threads_works(void **state)
{
    (void)state;
    assert_true(is_right(1000, 4));
    assert_true(ends_well_in_a_child(four_threads));
    assert_true(ends_well_in_a_child(grandchild));
    assert_true(is_right(1000, 4)); /* and so does the parent, still */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_child_of_a_fresh_process_works),
        cmocka_unit_test(every_item_is_visited_once),
        cmocka_unit_test(one_worker_is_the_caller),
        cmocka_unit_test(eight_threads_may_call_at_once),
#ifdef _OPENMP
        cmocka_unit_test(workers_that_meet_are_distinct),
        cmocka_unit_test(a_callers_own_region_may_call),
#endif
        cmocka_unit_test(a_child_of_a_process_that_used_threads_works),
    };
    const int failed = cmocka_run_group_tests(tests, NULL, NULL);

    return failed != 0;
}
