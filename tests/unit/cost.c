/* SPDX-License-Identifier: Apache-2.0
 * Costs held against counting every pair. */
#include "core/schedule/cost.h"

#include "tests/kit/random.h"
#include "tests/unit/support.h"

#include <time.h>

/* The definition, read aloud: row i faces column i + D. */
static int64_t count_pairs(int64_t rows, int64_t columns, uint32_t mask, int64_t left,
                           int64_t right)
{
    const int64_t diagonal = mask & TESS_MASK_TOP_LEFT ? 0 : columns - rows;
    int64_t pairs = 0;

    for (int64_t i = 0; i < rows; i++) {
        for (int64_t j = 0; j < columns; j++) {
            const bool in_window =
                !(mask & TESS_MASK_WINDOW) || ((left < 0 || j >= i + diagonal - left) &&
                                               (right < 0 || j <= i + diagonal + right));
            const bool is_before = !(mask & TESS_MASK_CAUSAL) || j <= i + diagonal;
            pairs += in_window && is_before;
        }
    }
    return pairs;
}

static int64_t draw_bound(tess_random *random)
{
    static const int64_t edges[] = {-1, 0, 1, INT64_MAX, INT64_MIN, INT32_MAX};

    return tess_random_once_in(random, 3) ? edges[tess_random_below(random, 6)]
                                          : tess_random_below(random, 24) - 2;
}

static void every_pair_is_counted_once(void **state)
{
    tess_random random = tess_random_start(1, 2);

    (void)state;
    for (int i = 0; i < 20000; i++) {
        const int64_t rows = tess_random_below(&random, 20);
        const int64_t columns = tess_random_below(&random, 20);
        const uint32_t mask = (uint32_t)tess_random_below(&random, 8);
        const int64_t left = draw_bound(&random), right = draw_bound(&random);
        /* Far bounds behave as none; the sums of the definition would overflow with them. */
        const int64_t near_left = left > 1000 || left < 0 ? -1 : left;
        const int64_t near_right = right > 1000 || right < 0 ? -1 : right;

        assert_int_equal((int64_t)tess_cost_pairs(rows, columns, mask, left, right),
                         count_pairs(rows, columns, mask, near_left, near_right));
    }
}

static void the_largest_extents_are_exact(void **state)
{
    const int64_t most = INT32_MAX, million = 1000000;

    (void)state;
    assert_true(tess_cost_pairs(most, most, 0, 0, 0) == (double)most * (double)most);
    assert_true(tess_cost_pairs(million, million, TESS_MASK_CAUSAL, 0, 0) ==
                (double)(million * (million + 1) / 2));
    assert_true(tess_cost_pairs(most, most, TESS_MASK_WINDOW, 0, 0) == (double)most);
    assert_true(tess_cost_pairs(most, 1, TESS_MASK_CAUSAL, 0, 0) == 1.0);
    assert_true(tess_cost_pairs(most, most, TESS_MASK_WINDOW, most - 1, most - 1) ==
                (double)most * (double)most);
    assert_true(tess_cost_pairs(most, most, TESS_MASK_WINDOW | TESS_MASK_TOP_LEFT, most - 1, 0) ==
                (double)(most * (most + 1) / 2));
    assert_true(tess_cost_pairs(1, most, TESS_MASK_WINDOW, most - 1, most - 1) == (double)most);
    assert_true(tess_cost_pairs(1, most, TESS_MASK_CAUSAL | TESS_MASK_TOP_LEFT, 0, 0) == 1.0);
}

static tess_line line_of(const char *text)
{
    tess_line line;
    char why[256];
    tess_text out = tess_text_in(why, sizeof why);

    if (tess_line_read(text, &line, &out) != TESS_OK)
        fail_msg("%s: %s", text, why);
    return line;
}

static void flops_and_bytes_follow_the_header(void **state)
{
    (void)state;
    tess_line line = line_of("fwd b2 hq6 hk3 q5 k7 d8 dv4 f16 of=f32");
    tess_cost cost = tess_cost_of(&line);

    assert_true(cost.pairs == 2 * 6 * 35);
    assert_true(cost.flops == 2.0 * (8 + 4) * 2 * 6 * 35);
    /* q, k and v in two bytes; o and LSE in four */
    assert_true(cost.bytes ==
                2 * (2.0 * (5 * 6 * 8 + 7 * 3 * (8 + 4)) + 4.0 * (5 * 6 * 4 + 5 * 6)));

    line = line_of("bwd b2 hq6 hk3 q5 k7 d8 dv4 f16");
    cost = tess_cost_of(&line);
    assert_true(cost.flops == 2.0 * (3 * 8 + 2 * 4) * 2 * 6 * 35);
    /* q, k, v, o and dO are read, dq, dk and dv written; O's extents twice */
    assert_true(cost.bytes ==
                2 * (2.0 * (2 * 5 * 6 * (8 + 4) + 2 * 7 * 3 * (8 + 4)) + 4.0 * 5 * 6));
}

static void ragged_sequences_add_up(void **state)
{
    static const struct {
        const char *whole;
        const char *parts[4];
    } cases[] = {
        {"fwd hq2 d4 f32 lensq=3,0,5x2 lensk=7,7,7,2 causal",
         {"fwd b1 hq2 q3 k7 d4 f32 causal", "fwd b1 hq2 q0 k7 d4 f32 causal",
          "fwd b1 hq2 q5 k7 d4 f32 causal", "fwd b1 hq2 q5 k2 d4 f32 causal"}},
        {"fwd b3 hq2 q8 k9 d4 f32 usedk=1,9x2 window=2,0",
         {"fwd b1 hq2 q8 k1 d4 f32 window=2,0", "fwd b2 hq2 q8 k9 d4 f32 window=2,0", NULL}},
        {"fwd hq2 d4 f32 lensq=6x2 lensk=5,8 usedq=1,6 usedk=5,3",
         {"fwd b1 hq2 q1 k5 d4 f32", "fwd b1 hq2 q6 k3 d4 f32", NULL}},
    };

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const tess_line whole = line_of(cases[i].whole);
        tess_cost sum = {0, 0, 0};

        for (int part = 0; part < 4 && cases[i].parts[part]; part++) {
            const tess_line line = line_of(cases[i].parts[part]);
            const tess_cost cost = tess_cost_of(&line);
            sum.pairs += cost.pairs;
            sum.flops += cost.flops;
            sum.bytes += cost.bytes;
        }
        assert_true(tess_cost_of(&whole).pairs == sum.pairs);
        assert_true(tess_cost_of(&whole).flops == sum.flops);
        assert_true(tess_cost_of(&whole).bytes == sum.bytes);
    }
}

/* A plan costs microseconds, however many sequences it is for. */
static void the_number_of_sequences_costs_nothing(void **state)
{
    struct timespec before, after;
    tess_line line = line_of("fwd hq2 d4 f32 lensq=3x2000000000 lensk=7,9x1999999999");

    (void)state;
    clock_gettime(CLOCK_MONOTONIC, &before);
    const tess_cost cost = tess_cost_of(&line);
    clock_gettime(CLOCK_MONOTONIC, &after);
    assert_true(cost.pairs == 2.0 * (3 * 7 + 3.0 * 9 * 1999999999.0));
    assert_true(after.tv_sec - before.tv_sec <= 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_pair_is_counted_once),
        cmocka_unit_test(the_largest_extents_are_exact),
        cmocka_unit_test(flops_and_bytes_follow_the_header),
        cmocka_unit_test(ragged_sequences_add_up),
        cmocka_unit_test(the_number_of_sequences_costs_nothing),
    };
    const int failed = cmocka_run_group_tests(tests, NULL, NULL);

    return failed != 0;
}
