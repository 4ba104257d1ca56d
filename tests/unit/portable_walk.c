/* SPDX-License-Identifier: Apache-2.0
 * The tile walk by brute force: each admitted pair exactly once, and masks paid for only where due.
 */
#include "core/portable/walk.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include <stdio.h>
#include <string.h>

enum { MOST_ROWS = 9, MOST_COLUMNS = 17, MOST_GROUP = 3 };

struct mask {
    tess_i64 rows, columns;
    tess_i32 is_causal, is_top_left, has_window;
    tess_i64 left, right;
};

static tess_visible visible_of(const struct mask *mask)
{
    return tess_visible_make(mask->rows, mask->columns, mask->is_causal, mask->is_top_left,
                             mask->has_window, mask->left, mask->right);
}

static tess_i64 clamped(tess_i64 bound)
{
    return bound > INT32_MAX ? INT32_MAX : bound;
}

/* The definition, one inequality for each rule, and none of the code under test. */
static int is_admitted(const struct mask *mask, tess_i64 i, tess_i64 j)
{
    const tess_i64 d = mask->is_top_left ? 0 : mask->columns - mask->rows;

    if (j < 0 || j >= mask->columns)
        return 0;
    if (mask->is_causal && !(j <= i + d))
        return 0;
    if (mask->has_window && mask->left >= 0 && !(i + d - clamped(mask->left) <= j))
        return 0;
    if (mask->has_window && mask->right >= 0 && !(j <= i + d + clamped(mask->right)))
        return 0;
    return 1;
}

static const char *describe(const struct mask *mask)
{
    static char text[200];
    snprintf(text, sizeof text, "rows %lld columns %lld%s%s%s %lld %lld", (long long)mask->rows,
             (long long)mask->columns, mask->is_causal ? " causal" : "",
             mask->is_top_left ? " top-left" : "", mask->has_window ? " window" : " (no window)",
             (long long)mask->left, (long long)mask->right);
    return text;
}

#define EXPECT(mask, condition)                             \
    do {                                                    \
        if (!(condition))                                   \
            fail_msg("%s: %s", describe(mask), #condition); \
    } while (0)

/* Calls `check` for every combination of small shapes and masks. */
static void for_every_mask(void (*check)(const struct mask *mask))
{
    static const tess_i64 rows[] = {0, 1, 2, 5, MOST_ROWS};
    static const tess_i64 columns[] = {0, 1, 3, 8, MOST_COLUMNS};
    static const tess_i64 bounds[] = {-1, 0, 1, 2, 6, 30, INT32_MAX};
    enum { BOUNDS = sizeof bounds / sizeof bounds[0] };

    for (size_t r = 0; r < sizeof rows / sizeof rows[0]; r++)
        for (size_t c = 0; c < sizeof columns / sizeof columns[0]; c++)
            for (int kind = 0; kind < 8; kind++)
                for (size_t b = 0; b < (kind & 4 ? BOUNDS * BOUNDS : 1); b++) {
                    /* Without a window its bounds must not matter, so they are set all the same. */
                    const struct mask mask = {rows[r],           columns[c],
                                              kind & 1,          kind >> 1 & 1,
                                              kind >> 2,         bounds[(b + 2) % BOUNDS],
                                              bounds[b / BOUNDS]};
                    check(&mask);
                }
}

static void check_interval(const struct mask *mask)
{
    const tess_visible visible = visible_of(mask);

    for (tess_i64 i = 0; i < mask->rows; i++) {
        const tess_i64 first = tess_visible_first(visible, i), end = tess_visible_end(visible, i);

        EXPECT(mask, 0 <= first && first <= mask->columns);
        EXPECT(mask, 0 <= end && end <= mask->columns);
        EXPECT(mask, i == 0 || first >= tess_visible_first(visible, i - 1));
        EXPECT(mask, i == 0 || end >= tess_visible_end(visible, i - 1));
        for (tess_i64 j = 0; j < mask->columns; j++) {
            EXPECT(mask, (first <= j && j < end) == is_admitted(mask, i, j));
            EXPECT(mask, tess_visible_admits(visible, i, j) == is_admitted(mask, i, j));
        }
        EXPECT(mask, !tess_visible_admits(visible, i, -1));
        EXPECT(mask, !tess_visible_admits(visible, i, mask->columns));
    }
}

static void an_interval_is_the_definition(void **state)
{
    (void)state;
    for_every_mask(check_interval);
}

/* How a problem is cut into work. */
struct cut {
    tess_i64 group, tile_rows, tile_columns, splits;
};

static int visits[MOST_ROWS * MOST_GROUP][MOST_COLUMNS];

/* One tile as a kernel would treat it: with the tests of its columns, or without. */
static void visit_tile(const struct mask *mask, const struct cut *cut, tess_row_tile rows,
                       tess_column_walk walk, tess_i64 tile)
{
    const tess_visible visible = visible_of(mask);
    const tess_i64 first = tile * cut->tile_columns, end = first + cut->tile_columns;
    const int is_masked = tess_walk_is_masked(walk, tile);
    int admitted = 0;

    for (tess_i64 f = rows.first; f < rows.end; f++) {
        const tess_i64 query = tess_walk_query(f, cut->group);
        for (tess_i64 j = first; j < end; j++) {
            admitted += is_admitted(mask, query, j);
            if (!is_masked)
                EXPECT(mask, is_admitted(mask, query, j)); /* columns past the end included */
            if (!is_masked || tess_visible_admits(visible, query, j))
                visits[f][j]++;
        }
    }
    EXPECT(mask, admitted > 0);
    EXPECT(mask, is_masked || admitted == (rows.end - rows.first) * cut->tile_columns);
    /* The other way round: nobody pays for a mask that hides nothing. */
    EXPECT(mask, !is_masked || admitted < (rows.end - rows.first) * cut->tile_columns);
}

static void visit_row_tile(const struct mask *mask, const struct cut *cut, tess_row_tile rows)
{
    const tess_visible visible = visible_of(mask);
    const tess_i64 query_first = tess_walk_query(rows.first, cut->group);
    const tess_i64 query_last = tess_walk_query(rows.end - 1, cut->group);
    const tess_column_walk whole =
        tess_walk_columns(visible, query_first, query_last, cut->tile_columns, 0, 1);
    tess_i64 next = whole.first;

    for (tess_i64 split = 0; split < cut->splits; split++) {
        const tess_column_walk walk = tess_walk_columns(visible, query_first, query_last,
                                                        cut->tile_columns, split, cut->splits);
        const tess_i64 share = (whole.end - whole.first) / cut->splits;

        EXPECT(mask, walk.first == next && walk.end >= walk.first);
        EXPECT(mask, walk.end - walk.first == share || walk.end - walk.first == share + 1);
        for (tess_i64 tile = walk.first; tile < walk.end; tile++)
            visit_tile(mask, cut, rows, walk, tile);
        next = walk.end;
    }
    EXPECT(mask, next == whole.end);
}

static void check_cut(const struct mask *mask, const struct cut *cut)
{
    const tess_i64 folded = mask->rows * cut->group;
    const tess_i64 count = tess_walk_row_tiles(mask->rows, cut->group, cut->tile_rows);
    tess_i64 next = folded;

    memset(visits, 0, sizeof visits);
    for (tess_i64 index = 0; index < count; index++) {
        const tess_row_tile rows =
            tess_walk_row_tile(index, count, mask->rows, cut->group, cut->tile_rows);

        EXPECT(mask, rows.end == next && rows.first < rows.end);
        EXPECT(mask, rows.end - rows.first <= cut->tile_rows);
        visit_row_tile(mask, cut, rows);
        next = rows.first;
    }
    EXPECT(mask, next == 0);
    for (tess_i64 f = 0; f < folded; f++)
        for (tess_i64 j = 0; j < mask->columns; j++)
            EXPECT(mask, visits[f][j] == is_admitted(mask, f / cut->group, j));
}

static void check_every_cut(const struct mask *mask)
{
    static const tess_i64 tile_rows[] = {1, 2, 4, 64}, tile_columns[] = {1, 4, 5, 32};
    static const tess_i64 splits[] = {1, 2, 3, 20};

    for (tess_i64 group = 1; group <= MOST_GROUP; group++)
        for (size_t r = 0; r < 4; r++)
            for (size_t c = 0; c < 4; c++)
                for (size_t s = 0; s < 4; s++) {
                    const struct cut cut = {group, tile_rows[r], tile_columns[c], splits[s]};
                    check_cut(mask, &cut);
                }
}

static void each_admitted_pair_is_visited_once(void **state)
{
    (void)state;
    for_every_mask(check_every_cut);
}

/* A launch is sized by the longest sequence; the tiles that a shorter one lacks come out empty. */
static void a_short_sequence_in_a_long_launch(void **state)
{
    (void)state;
    for (tess_i64 rows = 0; rows < 20; rows++)
        for (tess_i64 extra = 0; extra < 3; extra++) {
            const tess_i64 own = tess_walk_row_tiles(rows, 3, 4), count = own + extra;
            for (tess_i64 index = 0; index < count; index++) {
                const tess_row_tile tile = tess_walk_row_tile(index, count, rows, 3, 4);
                assert_true((tile.end > tile.first) == (index >= extra));
            }
        }
}

static void folded_rows_count_query_by_query(void **state)
{
    (void)state;
    for (tess_i64 group = 1; group <= 8; group++)
        for (tess_i64 query = 0; query < 8; query++)
            for (tess_i64 head = 0; head < group; head++) {
                assert_true(tess_walk_query(query * group + head, group) == query);
                assert_true(tess_walk_head(query * group + head, group) == head);
            }
}

/* Where an interval begins and ends, for extents no array could hold. */
static void check_edges(const struct mask *mask, tess_i64 i)
{
    const tess_visible visible = visible_of(mask);
    const tess_i64 facing = i + visible.diagonal;
    const tess_i64 first = tess_visible_first(visible, i), end = tess_visible_end(visible, i);
    const tess_i64 near[] = {0, first, end, facing, mask->columns, mask->columns / 2};

    for (size_t n = 0; n < sizeof near / sizeof near[0]; n++)
        for (tess_i64 j = near[n] - 2; j <= near[n] + 2; j++)
            EXPECT(mask, tess_visible_admits(visible, i, j) == is_admitted(mask, i, j));
}

static void extremes_do_not_overflow(void **state)
{
    static const tess_i64 extents[] = {1, 2, 1 << 30, INT32_MAX - 1, INT32_MAX};
    static const tess_i64 bounds[] = {INT64_MIN,     -1,        0,        1, 1 << 30,
                                      INT32_MAX - 1, INT32_MAX, INT64_MAX};

    (void)state;
    for (size_t r = 0; r < 5; r++)
        for (size_t c = 0; c < 5; c++)
            for (int kind = 0; kind < 8; kind++)
                for (size_t b = 0; b < 64; b++) {
                    const struct mask mask = {
                        extents[r], extents[c],    kind & 1,      kind >> 1 & 1,
                        kind >> 2,  bounds[b / 8], bounds[b % 8],
                    };
                    const tess_i64 rows[] = {0, 1, mask.rows / 2, mask.rows - 1};
                    for (size_t i = 0; i < 4; i++)
                        if (rows[i] < mask.rows)
                            check_edges(&mask, rows[i]);
                }
}

static void huge_walks_are_whole(void **state)
{
    static const tess_i64 groups[] = {1, 7, INT32_MAX}, tiles[] = {1, 3, 128, INT32_MAX};
    static const tess_i64 splits[] = {1, 3, 1000, INT32_MAX};
    const tess_i64 most = INT32_MAX;

    (void)state;
    for (size_t g = 0; g < 3; g++)
        for (size_t t = 0; t < 4; t++) {
            const tess_i64 count = tess_walk_row_tiles(most, groups[g], tiles[t]);
            const tess_row_tile first = tess_walk_row_tile(0, count, most, groups[g], tiles[t]);
            const tess_row_tile second = tess_walk_row_tile(1, count, most, groups[g], tiles[t]);
            assert_true(first.end == most * groups[g] && first.first < first.end);
            assert_true(count == 1 || second.end == first.first);
            assert_true(tess_walk_row_tile(count - 1, count, most, groups[g], tiles[t]).first == 0);
        }
    for (size_t s = 0; s < 4; s++)
        for (size_t t = 0; t < 4; t++) {
            const tess_visible all = tess_visible_make(most, most, 0, 0, 0, 0, 0);
            tess_i64 next = 0;
            for (tess_i64 split = 0; split < splits[s]; split += 1 + splits[s] / 500) {
                const tess_column_walk walk =
                    tess_walk_columns(all, 0, most - 1, tiles[t], split, splits[s]);
                assert_true(walk.first >= next && walk.end >= walk.first);
                assert_true(splits[s] >= 1000 || walk.first == next);
                next = walk.end;
            }
            next = tess_walk_columns(all, 0, most - 1, tiles[t], splits[s] - 1, splits[s]).end;
            assert_true(next == (most - 1) / tiles[t] + 1);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_interval_is_the_definition),
        cmocka_unit_test(each_admitted_pair_is_visited_once),
        cmocka_unit_test(a_short_sequence_in_a_long_launch),
        cmocka_unit_test(folded_rows_count_query_by_query),
        cmocka_unit_test(extremes_do_not_overflow),
        cmocka_unit_test(huge_walks_are_whole),
    };
    const int failed = cmocka_run_group_tests(tests, NULL, NULL);

    return failed != 0;
}
