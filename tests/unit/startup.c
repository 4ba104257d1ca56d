/* SPDX-License-Identifier: Apache-2.0
 * A program that opens the CPU waits for less than five milliseconds. */
#include "tests/unit/support.h"

#include <time.h>

enum { RUNS = 20, SKIPPED = 77 };

/* Sanitizers and valgrind make everything slow; so may a machine that is doing something else. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define IS_INSTRUMENTED 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer) || \
    __has_feature(memory_sanitizer)
#define IS_INSTRUMENTED 1
#endif
#endif
#ifndef IS_INSTRUMENTED
#define IS_INSTRUMENTED 0
#endif

static double seconds_since(const struct timespec *start)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)(now.tv_sec - start->tv_sec) + 1e-9 * (double)(now.tv_nsec - start->tv_nsec);
}

static int ascending(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* A loop that takes a millisecond on an idle machine of today and tells of those that are slower.
 */
static double seconds_of_a_plain_loop(void)
{
    struct timespec start;

    clock_gettime(CLOCK_MONOTONIC, &start);
    for (volatile int i = 0; i < 1000000; i++)
        continue;
    return seconds_since(&start);
}

static double median_of_opening(void)
{
    double seconds[RUNS];

    for (int i = 0; i < RUNS; i++) {
        tess_context *context = NULL;
        tess_device *device = NULL;
        struct timespec start;

        clock_gettime(CLOCK_MONOTONIC, &start);
        assert_fine(NULL, tess_context_create(NULL, &context));
        assert_fine(context, tess_device_open(context, "cpu", &device));
        seconds[i] = seconds_since(&start);
        tess_context_destroy(context);
    }
    qsort(seconds, RUNS, sizeof seconds[0], ascending);
    return seconds[RUNS / 2];
}

static void opening_takes_less_than_five_milliseconds(void **state)
{
    const double median = median_of_opening();

    (void)state;
    print_message("opening the CPU: %.3f ms (median of %d)\n", 1e3 * median, RUNS);
    assert_true(median < 0.005);
}

static bool is_under_valgrind(void)
{
    const char *const preloaded = getenv("LD_PRELOAD");
    return preloaded && strstr(preloaded, "vgpreload");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(opening_takes_less_than_five_milliseconds),
    };

    if (IS_INSTRUMENTED || is_under_valgrind() || seconds_of_a_plain_loop() > 0.02) {
        printf("skip: nothing is timed on a machine that is instrumented or overloaded\n");
        return SKIPPED;
    }

    const int failed = cmocka_run_group_tests(tests, NULL, NULL);

    return failed != 0;
}
