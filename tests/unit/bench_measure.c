/* SPDX-License-Identifier: Apache-2.0
 * What the benchmark harness makes of samples: spreads, ratios within rounds, who is timed when. */
#include "bench/measure.h"
#include "bench/peak.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#define assert_near(got, wanted) assert_true(fabs((got) - (wanted)) <= 1e-12 * fabs(wanted))

static void places_between_samples_are_on_a_line(void **state)
{
    static const double sorted[] = {1, 2, 4, 8, 16};

    (void)state;
    assert_near(tess_spread_at(sorted, 5, 0), 1.0);
    assert_near(tess_spread_at(sorted, 5, 0.25), 2.0);
    assert_near(tess_spread_at(sorted, 5, 0.5), 4.0);
    assert_near(tess_spread_at(sorted, 5, 0.625), 6.0);
    assert_near(tess_spread_at(sorted, 5, 1), 16.0);
    assert_near(tess_spread_at(sorted, 1, 0.1), 1.0);
    assert_near(tess_spread_at(sorted, 2, 0.5), 1.5);
}

static void a_spread_does_not_depend_on_the_order(void **state)
{
    double samples[11];
    tess_spread spread;

    (void)state;
    for (int first = 0; first < 11; first++) {
        for (int i = 0; i < 11; i++)
            samples[i] = 1 + (first + 7 * i) % 11;
        assert_true(tess_spread_of(samples, 11, &spread));
        assert_near(spread.least, 1.0);
        assert_near(spread.p10, 2.0);
        assert_near(spread.median, 6.0);
        assert_near(spread.p90, 10.0);
        assert_near(spread.most, 11.0);
        assert_int_equal(spread.count, 11);
        assert_near(samples[0], 1.0 + first); /* they are the caller's */
    }
}

static void what_was_not_measured_does_not_count(void **state)
{
    static const double samples[] = {3, 0, NAN, 1, INFINITY, -1, 2};
    tess_spread spread;

    (void)state;
    assert_true(tess_spread_of(samples, 7, &spread));
    assert_int_equal(spread.count, 3);
    assert_near(spread.median, 2.0);
    assert_near(spread.most, 3.0);
    assert_true(tess_spread_of(samples + 1, 2, &spread));
    assert_int_equal(spread.count, 0);
    assert_true(spread.median == 0);
    assert_true(tess_spread_of(samples, 0, &spread));
    assert_int_equal(spread.count, 0);
}

/* A disturbance that hits both sides of every round leaves the ratio alone, however large it is;
 * the ratio of the medians would be wrong here. */
static void ratios_stay_within_their_rounds(void **state)
{
    static const double disturbance[] = {1, 10, 3, 1, 7, 2, 100};
    double a[7], b[7];
    tess_spread ratio;

    (void)state;
    for (int i = 0; i < 7; i++) {
        a[i] = 1.25 * disturbance[i];
        b[i] = disturbance[i];
    }
    assert_true(tess_spread_of_ratios(a, b, 7, &ratio));
    assert_near(ratio.least, 1.25);
    assert_near(ratio.median, 1.25);
    assert_near(ratio.most, 1.25);
    b[3] = 0; /* not measured */
    assert_true(tess_spread_of_ratios(a, b, 7, &ratio));
    assert_int_equal(ratio.count, 6);
}

static void a_share_turns_the_spread_around(void **state)
{
    static const double possible[] = {10, 20, 40};
    static const tess_spread nothing;
    tess_spread spread, share;

    (void)state;
    assert_true(tess_spread_of(possible, 3, &spread));
    share = tess_spread_under(10, &spread);
    assert_near(share.most, 1.0);
    assert_near(share.median, 0.5);
    assert_near(share.least, 0.25);
    assert_true(share.p10 < share.median && share.median < share.p90);
    assert_int_equal(share.count, 3);
    share = tess_spread_under(10, &nothing);
    assert_int_equal(share.count, 0);
    assert_true(share.median == 0);
}

/* ---- Measuring with a clock of our own ------------------------------------------------------- */

/* A candidate that takes as long as it says and writes down when it was asked. */
typedef struct fake {
    double seconds;
    int64_t fails_at; /* this call fails; 0: none */
    int64_t calls, runs;
    int64_t *turn; /* shared by all; counts timed windows */
    int64_t last_turn;
} fake;

static bool run_fake(void *user, int64_t times, double *out_seconds)
{
    fake *const f = user;

    if (++f->calls == f->fails_at)
        return false;
    f->runs += times;
    f->last_turn = ++*f->turn;
    *out_seconds = f->seconds * (double)times;
    return true;
}

static double peak_of_fake(void *user)
{
    (void)user;
    return 4e9;
}

static void candidates_take_turns(void **state)
{
    int64_t turn = 0;
    fake slow = {.seconds = 0.004, .turn = &turn}, fast = {.seconds = 0.001, .turn = &turn};
    const tess_measure_candidate candidates[] = {
        {"slow", run_fake, &slow, peak_of_fake, NULL},
        {"fast", run_fake, &fast, NULL, NULL},
    };
    const tess_measure_options options = {.rounds = 8, .window_seconds = 0.008};
    tess_measured measured[2];

    (void)state;
    assert_true(tess_measure(candidates, 2, &options, measured));
    assert_int_equal(measured[0].seconds.count, 8);
    assert_int_equal(measured[0].runs_per_window, 2);
    assert_int_equal(measured[1].runs_per_window, 8);
    assert_near(measured[0].seconds.median, 0.004);
    assert_near(measured[1].seconds.p90, 0.001);
    assert_near(measured[0].speedup.median, 1.0);
    assert_near(measured[1].speedup.median, 4.0);
    assert_near(measured[0].possible_flops.median, 4e9 * 0.004);
    assert_int_equal(measured[1].possible_flops.count, 0);
    assert_int_equal(measured[0].cycles.count, 0); /* no threads of this CPU: no clock */
    assert_false(measured[0].is_realtime);
    /* Eight rounds: the last began with the second candidate, so the first was the last. */
    assert_true(slow.last_turn > fast.last_turn);
}

static void a_failure_leaves_no_numbers(void **state)
{
    static const tess_measured nothing;

    (void)state;
    for (int64_t fails_at = 1; fails_at < 8; fails_at++) {
        int64_t turn = 0;
        fake good = {.seconds = 0.01, .turn = &turn};
        fake bad = {.seconds = 0.01, .turn = &turn, .fails_at = fails_at};
        const tess_measure_candidate candidates[] = {
            {"good", run_fake, &good, NULL, NULL},
            {"bad", run_fake, &bad, NULL, NULL},
        };
        const tess_measure_options options = {.rounds = 6, .window_seconds = 0.01};
        tess_measured measured[2];

        memset(measured, 0xff, sizeof measured);
        assert_false(tess_measure(candidates, 2, &options, measured));
        assert_memory_equal(&measured[0], &nothing, sizeof nothing);
        assert_memory_equal(&measured[1], &nothing, sizeof nothing);
    }
}

static bool stop_after_three(void *user, int64_t round, int64_t rounds)
{
    *(int64_t *)user = rounds;
    return round < 3;
}

static void who_asks_may_stop(void **state)
{
    int64_t turn = 0, rounds = 0;
    fake one = {.seconds = 0.001, .turn = &turn};
    const tess_measure_candidate candidate = {"one", run_fake, &one, NULL, NULL};
    const tess_measure_options options = {
        .rounds = 50, .proceed = stop_after_three, .user = &rounds};
    tess_measured measured;

    (void)state;
    assert_true(tess_measure(&candidate, 1, &options, &measured));
    assert_int_equal(measured.seconds.count, 3);
    assert_int_equal(rounds, 50);
}

static tess_device_info device(tess_device_kind kind, const char *name, const char *architecture)
{
    tess_device_info info = {TESS_STRUCT(tess_device_info), .kind = kind};

    snprintf(info.name, sizeof info.name, "%s", name);
    snprintf(info.architecture, sizeof info.architecture, "%s", architecture);
    return info;
}

static void a_processor_behind_a_driver_is_held_to_all_it_has(void **state)
{
    const tess_device_info cpu = device(TESS_DEVICE_CPU, "cpu", tess_peak_best());
    const tess_device_info scalar = device(TESS_DEVICE_CPU, "cpu", "scalar");
    const tess_device_info driver = device(TESS_DEVICE_CPU, "opencl:pocl:0", "OpenCL 3.0 PoCL");
    const tess_device_info other = device(TESS_DEVICE_OTHER, "opencl:some:0", "avx2");

    (void)state;
    assert_string_equal(tess_peak_of_device(&cpu), tess_peak_best());
    assert_string_equal(tess_peak_of_device(&scalar), "portable");
    assert_string_equal(tess_peak_of_device(&driver), tess_peak_best());
    assert_null(tess_peak_of_device(&other));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(places_between_samples_are_on_a_line),
        cmocka_unit_test(a_spread_does_not_depend_on_the_order),
        cmocka_unit_test(what_was_not_measured_does_not_count),
        cmocka_unit_test(ratios_stay_within_their_rounds),
        cmocka_unit_test(a_share_turns_the_spread_around),
        cmocka_unit_test(candidates_take_turns),
        cmocka_unit_test(a_failure_leaves_no_numbers),
        cmocka_unit_test(who_asks_may_stop),
        cmocka_unit_test(a_processor_behind_a_driver_is_held_to_all_it_has),
    };
    const int failed = cmocka_run_group_tests(tests, NULL, NULL);

    return failed != 0;
}
