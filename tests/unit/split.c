/* SPDX-License-Identifier: Apache-2.0
 * The laws of choosing splits: enough to fill the device, no more, and no share too small. */
#include "core/schedule/split.h"

#include "tests/kit/random.h"
#include "tests/unit/support.h"

static int64_t tiles_of(int64_t columns, int64_t tile)
{
    return (columns + tile - 1) / tile;
}

static void splits_fill_the_device_and_no_more(void **state)
{
    tess_random random = tess_random_start(1, 3);

    (void)state;
    for (int i = 0; i < 50000; i++) {
        const int64_t items = tess_random_below(&random, 300);
        const int64_t columns = tess_random_below(&random, 1 << 20);
        const int64_t tile = 16 + tess_random_below(&random, 240);
        const int32_t units = (int32_t)tess_random_below(&random, 256);
        const int64_t splits = tess_split_choose(items, columns, tile, units);
        const int64_t most = tiles_of(columns, tile) / TESS_SPLIT_TILES;

        assert_in_range(splits, 1, TESS_SPLIT_MOST);
        if (splits == 1)
            continue;
        assert_true(items < units);                             /* the device was not full */
        assert_true(splits <= most);                            /* every share is worth its merge */
        assert_true(items * (splits - 1) < 2 * (int64_t)units); /* one fewer did not do */
        if (splits < most && splits < TESS_SPLIT_MOST)
            assert_true(items * splits >= 2 * (int64_t)units);
    }
}

static void one_share_where_a_split_cannot_help(void **state)
{
    const int64_t far = (int64_t)1 << 40;

    (void)state;
    assert_int_equal(tess_split_choose(0, far, 64, 100), 1);
    assert_int_equal(tess_split_choose(1, far, 64, 1), 1);
    assert_int_equal(tess_split_choose(1, far, 64, 0), 1);
    assert_int_equal(tess_split_choose(100, far, 64, 100), 1);
    assert_int_equal(tess_split_choose(INT64_MAX, far, 64, INT32_MAX), 1);
    assert_int_equal(tess_split_choose(1, 0, 64, 100), 1);
    assert_int_equal(tess_split_choose(1, 64 * (2 * TESS_SPLIT_TILES - 1), 64, 100), 1);
}

static void long_keys_of_few_rows_are_split(void **state)
{
    (void)state;
    assert_int_equal(tess_split_choose(1, 64 * 2 * TESS_SPLIT_TILES, 64, 100), 2);
    assert_int_equal(tess_split_choose(1, (int64_t)1 << 31, 64, 4), 8);
    assert_int_equal(tess_split_choose(3, (int64_t)1 << 31, 64, 4), 3);
    assert_int_equal(tess_split_choose(1, (int64_t)1 << 31, 1, INT32_MAX), TESS_SPLIT_MOST);
}

/* More columns never mean fewer shares, more items never more. */
static void the_choice_is_monotone(void **state)
{
    (void)state;
    for (int64_t items = 1; items < 40; items++) {
        int64_t before = 1;
        for (int64_t columns = 0; columns < 40000; columns += 97) {
            const int64_t splits = tess_split_choose(items, columns, 48, 32);
            assert_true(splits >= before);
            assert_true(splits >= tess_split_choose(items + 1, columns, 48, 32));
            before = splits;
        }
    }
}

/* How long the units are at work, in units of all items on one of them; the last ones in turn. */
static double makespan(int64_t items, int64_t splits, int32_t units)
{
    const int64_t turns = (items * splits + units - 1) / units;

    return (double)turns / (double)splits;
}

static void even_shares_leave_no_unit_idle(void **state)
{
    tess_random random = tess_random_start(2, 3);

    (void)state;
    for (int i = 0; i < 50000; i++) {
        const int64_t items = tess_random_below(&random, 40);
        const int64_t columns = tess_random_below(&random, 1 << 17);
        const int64_t tile = 16 + tess_random_below(&random, 240);
        const int32_t units = (int32_t)tess_random_below(&random, 64);
        const int64_t fewest = tess_split_choose(items, columns, tile, units);
        const int64_t splits = tess_split_even(items, columns, tile, units);
        const int64_t most = tiles_of(columns, tile) / TESS_SPLIT_TILES;
        const double ideal = (double)items / units;

        assert_in_range(splits, fewest, TESS_SPLIT_MOST);
        if (splits == fewest)
            continue;
        assert_true(splits <= most);
        assert_true(makespan(items, splits, units) < makespan(items, fewest, units));
        if (makespan(items, splits, units) > ideal / 0.899) /* none of those near by does better */
            for (int64_t other = fewest; other < fewest + 8 && other <= most; other++)
                assert_true(other > TESS_SPLIT_MOST ||
                            makespan(items, splits, units) <= makespan(items, other, units));
    }
    assert_int_equal(tess_split_even(3, 1 << 20, 48, 2), 2);
    assert_int_equal(tess_split_even(2, 1 << 20, 48, 2), 1);
    assert_int_equal(tess_split_even(5, 1 << 20, 48, 4), 3);
    assert_int_equal(tess_split_even(3, 48 * 2 * TESS_SPLIT_TILES - 48, 48, 2), 1);
    assert_int_equal(tess_split_even(17, 1 << 20, 48, 2), 1);
    assert_int_equal(tess_split_even(0, 1 << 20, 48, 2), 1);
    assert_int_equal(tess_split_even(7, 1 << 20, 48, 1), 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(splits_fill_the_device_and_no_more),
        cmocka_unit_test(one_share_where_a_split_cannot_help),
        cmocka_unit_test(long_keys_of_few_rows_are_split),
        cmocka_unit_test(even_shares_leave_no_unit_idle),
        cmocka_unit_test(the_choice_is_monotone),
    };
    const int failed = cmocka_run_group_tests(tests, NULL, NULL);

    return failed != 0;
}
