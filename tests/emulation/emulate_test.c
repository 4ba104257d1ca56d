/* SPDX-License-Identifier: Apache-2.0
 * Tests the emulator: what lanes share, and every mistake that it must notice. */
#include "tests/emulation/emulate.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <string.h>

#include <cmocka.h>

enum { THREADS = 128 };

/* What a kernel here is given. */
typedef struct setting {
    float *out; /* THREADS of them for each block */
} setting;

static const char *run_in(void (*kernel)(const void *), setting *s, uint32_t wave,
                          tess_emulated_order order)
{
    const tess_emulated_launch launch = {.kernel = kernel,
                                         .arguments = s,
                                         .blocks = 2,
                                         .threads = THREADS,
                                         .wave = wave,
                                         .shared_size = THREADS * sizeof(float),
                                         .order = order,
                                         .seed = 7};
    return tess_emulate(&launch);
}

static float *own_of(const setting *s)
{
    return s->out + tess_emulated_block() * THREADS + tess_emulated_thread();
}

/* ---- What works -------------------------------------------------------------------------------
 */

static void swap_halves(const tess_emulated_part *parts, uint32_t lanes, uint32_t mask)
{
    for (uint32_t lane = 0; lane < lanes; lane++)
        memcpy(parts[lane].out, parts[lane ^ mask].in, sizeof(float));
}

static void exchange(const void *arguments)
{
    const float own = (float)tess_emulated_thread();

    tess_emulated_collective(swap_halves, tess_emulated_wave() / 2, &own, own_of(arguments));
}

static void lanes_of_a_wave_exchange(void **state)
{
    float out[2 * THREADS];
    setting s = {out};

    (void)state;
    for (uint32_t wave = 32; wave <= 64; wave += 32) {
        for (int order = TESS_EMULATED_FORWARD; order <= TESS_EMULATED_RANDOM; order++) {
            assert_null(run_in(exchange, &s, wave, (tess_emulated_order)order));
            for (uint32_t i = 0; i < 2 * THREADS; i++)
                assert_true(out[i] == (float)(i % THREADS ^ wave / 2));
        }
    }
}

/* Each lane reads what the lane of another wave wrote. */
static void mirror(const void *arguments, bool has_barrier)
{
    float *const shared = tess_emulated_shared(THREADS * sizeof(float));
    const uint32_t own = tess_emulated_thread();

    shared[own] = (float)own;
    if (has_barrier)
        tess_emulated_barrier();
    *own_of(arguments) = shared[THREADS - 1 - own];
}

static void mirror_well(const void *arguments)
{
    mirror(arguments, true);
}

static void a_barrier_orders_waves(void **state)
{
    float out[2 * THREADS];
    setting s = {out};

    (void)state;
    for (int order = TESS_EMULATED_FORWARD; order <= TESS_EMULATED_RANDOM; order++) {
        assert_null(run_in(mirror_well, &s, 32, (tess_emulated_order)order));
        for (uint32_t i = 0; i < 2 * THREADS; i++)
            assert_true(out[i] == (float)(THREADS - 1 - i % THREADS));
    }
}

/* ---- What must be noticed ---------------------------------------------------------------------
 */

static void mirror_badly(const void *arguments)
{
    mirror(arguments, false);
}

/* Shared memory is NaN until it is written, in the second block too. */
static void a_missing_barrier_shows(void **state)
{
    float out[2 * THREADS];
    setting s = {out};

    (void)state;
    for (int order = TESS_EMULATED_FORWARD; order <= TESS_EMULATED_RANDOM; order++) {
        int wrong[2] = {0, 0};
        assert_null(run_in(mirror_badly, &s, 32, (tess_emulated_order)order));
        for (uint32_t i = 0; i < 2 * THREADS; i++)
            wrong[i / THREADS] += isnan(out[i]);
        assert_true(wrong[0] >= THREADS / 2 && wrong[1] >= THREADS / 2);
    }
}

static void barrier_of_some_lanes(const void *arguments)
{
    (void)arguments;
    if (tess_emulated_thread() != 5)
        tess_emulated_barrier();
}

static void barrier_of_some_waves(const void *arguments)
{
    (void)arguments;
    if (tess_emulated_thread() >= 64)
        tess_emulated_barrier();
}

static void exchange_of_two_kinds(const void *arguments)
{
    const float own = 1.0f;

    tess_emulated_collective(swap_halves, 1 + tess_emulated_thread() % 2, &own, own_of(arguments));
}

static void exchange_or_barrier(const void *arguments)
{
    if (tess_emulated_thread() % 2)
        tess_emulated_barrier();
    else
        exchange(arguments);
}

static void fail_together(const tess_emulated_part *parts, uint32_t lanes, uint32_t number)
{
    (void)parts;
    (void)lanes;
    (void)number;
    tess_emulated_fail("between turns");
}

static void exchange_that_fails(const void *arguments)
{
    (void)arguments;
    tess_emulated_collective(fail_together, 0, NULL, NULL);
}

static bool never(uint64_t what)
{
    (void)what;
    return false;
}

static void wait_in_vain(const void *arguments)
{
    (void)arguments;
    if (tess_emulated_thread() >= 64)
        tess_emulated_wait(never, 0);
}

static void too_much_shared_memory(const void *arguments)
{
    (void)arguments;
    tess_emulated_shared((THREADS + 1) * sizeof(float));
}

static void before_shared_memory(const void *arguments)
{
    float *const shared = tess_emulated_shared(THREADS * sizeof(float));

    (void)arguments;
    shared[-1] = 1.0f;
}

static void mistakes_end_the_launch(void **state)
{
    static const struct {
        void (*kernel)(const void *);
        const char *word;
    } cases[] = {
        {barrier_of_some_lanes, "some have ended"},     {barrier_of_some_waves, "passed by"},
        {exchange_of_two_kinds, "different things"},    {exchange_or_barrier, "different things"},
        {exchange_that_fails, "between turns"},         {wait_in_vain, "never comes"},
        {too_much_shared_memory, "more shared memory"}, {before_shared_memory, "in front of"}};
    float out[2 * THREADS];
    setting s = {out};

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const char *text = run_in(cases[i].kernel, &s, 32, TESS_EMULATED_RANDOM);
        assert_non_null(text);
        assert_non_null(strstr(text, cases[i].word));
        assert_null(run_in(mirror_well, &s, 64, TESS_EMULATED_RANDOM)); /* and it goes on */
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lanes_of_a_wave_exchange),
        cmocka_unit_test(a_barrier_orders_waves),
        cmocka_unit_test(a_missing_barrier_shows),
        cmocka_unit_test(mistakes_end_the_launch),
    };

    return cmocka_run_group_tests(tests, NULL, NULL) != 0;
}
