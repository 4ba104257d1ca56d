/* SPDX-License-Identifier: Apache-2.0
 * How many threads a call may use: what the program says, else the environment, else OpenMP. */
#include "backends/cpu/backend.h"
#include "core/runtime/objects.h"

#include "tests/unit/support.h"

#ifdef _OPENMP
#include <omp.h>
#endif

/* A device opened with `threads` in the descriptor, and a plan on it. */
typedef struct scene {
    tess_context *context;
    tess_device *device;
    tess_plan *plan;
} scene;

static scene open_scene(int32_t threads, int64_t rows, int64_t columns, tess_dtype dtype)
{
    const tess_context_desc desc = {TESS_STRUCT(tess_context_desc), .threads = threads};
    const tess_layout q = tess_layout_packed(dtype, 1, rows, 8, 64);
    const tess_layout k = tess_layout_packed(dtype, 1, columns, 8, 64);
    const tess_attention_desc problem = {TESS_STRUCT(tess_attention_desc), .q = q, .k = k, .v = k,
                                         .o = q};
    scene s = {NULL, NULL, NULL};

    assert_fine(NULL, tess_context_create(&desc, &s.context));
    assert_fine(s.context, tess_device_open(s.context, "cpu", &s.device));
    assert_fine(s.context, tess_plan_create_forward(s.device, &problem, &s.plan));
    return s;
}

static void close_scene(scene *s)
{
    tess_plan_destroy(s->plan);
    tess_context_destroy(s->context);
}

static int32_t units_of(int32_t threads)
{
    tess_device_info info = {TESS_STRUCT(tess_device_info)};
    scene s = open_scene(threads, 512, 512, TESS_F32);

    assert_fine(s.context, tess_device_get_info(s.device, &info));
    close_scene(&s);
    return info.units;
}

static void the_program_comes_before_the_environment(void **state)
{
    (void)state;
    assert_int_equal(setenv("TESSERA_THREADS", "3", 1), 0);
    assert_int_equal(units_of(5), 5);
    assert_int_equal(units_of(0), 3);
    assert_int_equal(unsetenv("TESSERA_THREADS"), 0);
    assert_int_equal(units_of(5), 5);
    assert_int_equal(units_of(0), tess_cpu_default_threads());
}

static int32_t worth(int64_t rows, int64_t columns, tess_dtype dtype)
{
    scene s = open_scene(16, rows, columns, dtype);
    const int32_t threads = s.plan->prepared->threads;

    close_scene(&s);
    return threads;
}

/* By flops and by bytes, whichever asks for more. */
static void small_problems_do_not_pay_for_threads(void **state)
{
    (void)state;
    assert_int_equal(worth(1, 8, TESS_F32), 1);
    assert_int_equal(worth(8, 16, TESS_F32), 1);
    assert_int_equal(worth(64, 64, TESS_F32), 16);
    assert_int_equal(worth(1, 128, TESS_F32), 5);  /* 0.26 Mflop, 0.53 MB */
    assert_int_equal(worth(1, 128, TESS_BF16), 2); /* half the bytes */
    assert_int_equal(worth(1, 4096, TESS_BF16), 16);
}

#ifdef _OPENMP
static void a_later_omp_set_num_threads_counts(void **state)
{
    const int before = omp_get_max_threads();

    (void)state;
    omp_set_num_threads(4);
    scene by_default = open_scene(0, 512, 512, TESS_F32);
    scene said = open_scene(4, 512, 512, TESS_F32);

    assert_int_equal(units_of(0), 4);
    assert_int_equal(tess_cpu_threads_now(by_default.plan->prepared), 4);
    omp_set_num_threads(2);
    assert_int_equal(tess_cpu_threads_now(by_default.plan->prepared), 2);
    assert_int_equal(tess_cpu_threads_now(said.plan->prepared), 4);
    omp_set_num_threads(9); /* the plan has scratch for four */
    assert_int_equal(tess_cpu_threads_now(by_default.plan->prepared), 4);
    assert_int_equal(tess_cpu_threads_now(said.plan->prepared), 4);
    omp_set_num_threads(before);
    close_scene(&by_default);
    close_scene(&said);
}

/* Threads that a call had, seen from inside. */
static void count_thread(void *user, int64_t item, int32_t worker)
{
    int32_t *const threads = user;

    (void)item;
    (void)worker;
#pragma omp critical
    if (omp_get_num_threads() > *threads)
        *threads = (int32_t)omp_get_num_threads();
}

/* Inside a caller's region one thread, unless the caller wants nesting. */
static void nesting_is_the_callers_choice(void **state)
{
    int32_t flat = 0, nested = 0, alone = 0;
    const int levels = omp_get_max_active_levels();

    (void)state;
    tess_cpu_for_each(100, 3, count_thread, &alone);
    omp_set_max_active_levels(1);
#pragma omp parallel num_threads(2)
#pragma omp single
    {
        int32_t inside = 0;
        tess_cpu_for_each(100, 3, count_thread, &inside);
        flat = inside;
    }
    omp_set_max_active_levels(2);
#pragma omp parallel num_threads(2)
#pragma omp single
    {
        int32_t inside = 0;
        tess_cpu_for_each(100, 3, count_thread, &inside);
        nested = inside;
    }
    omp_set_max_active_levels(levels);
    assert_int_equal(alone, 3);
    assert_int_equal(flat, 1);
    assert_int_equal(nested, 3);
}
#endif

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_program_comes_before_the_environment),
        cmocka_unit_test(small_problems_do_not_pay_for_threads),
#ifdef _OPENMP
        cmocka_unit_test(a_later_omp_set_num_threads_counts),
        cmocka_unit_test(nesting_is_the_callers_choice),
#endif
    };
    const int failed = cmocka_run_group_tests(tests, NULL, NULL);

    return failed != 0;
}
