/* SPDX-License-Identifier: Apache-2.0
 * Which columns a row sees, counted and touched: brute force against LSE and against changes. */
#include "tests/conformance/scene.h"
#include "tests/kit/random.h"

#include <math.h>
#include <stdio.h>

#define COUNT(list) (sizeof(list) / sizeof *(list))

typedef struct mask {
    int64_t rows, columns;
    bool is_causal, is_top_left, has_window;
    int64_t left, right;
} mask;

/* The definition, word by word, in numbers too wide to overflow. */
static bool is_admitted(const mask *m, int64_t i, int64_t j)
{
    const double d = m->is_top_left ? 0 : (double)(m->columns - m->rows);

    if (m->is_causal && (double)j > (double)i + d)
        return false;
    if (m->has_window && m->left >= 0 && (double)j < (double)i + d - (double)m->left)
        return false;
    if (m->has_window && m->right >= 0 && (double)j > (double)i + d + (double)m->right)
        return false;
    return true;
}

static int64_t draw_extent(tess_random *random)
{
    static const int64_t edges[] = {1, 7, 8, 9, 15, 16, 17, 47, 48, 49, 63, 64, 65, 96, 97};

    if (tess_random_once_in(random, 2))
        return edges[tess_random_below(random, COUNT(edges))];
    return 1 + tess_random_below(random, 140);
}

static int64_t draw_bound(tess_random *random, const mask *m)
{
    switch (tess_random_below(random, 8)) {
    case 0:
        return -1;
    case 1:
        return 0;
    case 2:
        return INT32_MAX;
    case 3:
        return INT64_MAX;
    case 4:
        return m->rows;
    default:
        return tess_random_below(random, m->columns + m->rows);
    }
}

static mask draw(tess_random *random)
{
    mask m = {.rows = draw_extent(random), .columns = draw_extent(random)};

    m.is_causal = tess_random_once_in(random, 2);
    m.is_top_left = tess_random_once_in(random, 3);
    m.has_window = tess_random_once_in(random, 2);
    m.left = m.has_window ? draw_bound(random, &m) : 0;
    m.right = m.has_window ? draw_bound(random, &m) : 0;
    return m;
}

static tess_scene *make(const tess_subject *subject, const mask *m, const char *options)
{
    char window[80] = "";

    if (m->has_window)
        snprintf(window, sizeof window, "window=%lld,%lld", (long long)m->left,
                 (long long)m->right);
    return tess_scene_make(subject, "fwd b1 hq1 q%lld k%lld d3 dv1 f32%s%s %s %s",
                           (long long)m->rows, (long long)m->columns, m->is_causal ? " causal" : "",
                           m->is_top_left ? " topleft" : "", window, options);
}

/* With equal scores exp(LSE) is the number of columns. */
static void count(const tess_subject *subject)
{
    static const char *const options[] = {"", "splits=2", "splits=9", "layout=bhsd"};
    tess_random random = tess_random_start(1, 0xC047);
    const int turns = 4 * tess_test_number("TESSERA_TEST_RANDOM", 60);

    for (int turn = 0; turn < turns; turn++) {
        const mask m = draw(&random);
        tess_scene *s = make(subject, &m, options[turn % (int)COUNT(options)]);
        bool is_good = true;

        tess_scene_set_all(s, TESS_CASE_Q, 0);
        tess_scene_set_all(s, TESS_CASE_V, 1);
        if (!tess_scene_run(s))
            is_good = false;
        for (int64_t i = 0; is_good && i < m.rows; i++) {
            int admitted = 0;

            for (int64_t j = 0; j < m.columns; j++)
                admitted += is_admitted(&m, i, j);
            if (round(exp(tess_scene_lse(s, 0, i, 0))) != admitted) {
                tess_scene_fail(s, "row %d sees %g columns, not %d", (int)i,
                                exp(tess_scene_lse(s, 0, i, 0)), admitted);
                is_good = false;
            }
        }
        tess_scene_free(s);
    }
}

/* A change of one column's V changes exactly the rows that see it; of its K, no others. */
static void touch(const tess_subject *subject)
{
    tess_random random = tess_random_start(2, 0xC047);
    const int turns = 2 * tess_test_number("TESSERA_TEST_RANDOM", 60);

    for (int turn = 0; turn < turns; turn++) {
        const mask m = draw(&random);
        const int64_t column = tess_random_below(&random, m.columns);
        const int which = turn % 3 == 0 ? TESS_CASE_K : TESS_CASE_V;
        tess_scene *a = make(subject, &m, "fill=uniform"), *b = make(subject, &m, "fill=uniform");
        const tess_place place = {0, 0, column, 0};
        const double before = tess_scene_get(a, which, place);

        /* In a key that nobody sees lies poison; other poison must not show either. */
        tess_scene_put(b, which, place, isfinite(before) ? before + 8 : -(double)INFINITY);
        if (tess_scene_run(a) && tess_scene_run(b))
            for (int64_t i = 0; i < m.rows; i++) {
                const bool is_same = tess_scene_o(a, 0, i, 0, 0) == tess_scene_o(b, 0, i, 0, 0) &&
                                     tess_scene_lse(a, 0, i, 0) == tess_scene_lse(b, 0, i, 0);
                const bool is_seen = is_admitted(&m, i, column);

                if (is_seen ? is_same && which == TESS_CASE_V : !is_same) {
                    tess_scene_fail(a, "row %d %s column %d", (int)i,
                                    is_seen ? "does not see" : "sees", (int)column);
                    break;
                }
            }
        tess_scene_free(a);
        tess_scene_free(b);
    }
}

static const tess_scene_test tests[] = {{"count", count}, {"touch", touch}};

int main(int argc, char **argv)
{
    return tess_scene_main(tests, COUNT(tests), argc, argv);
}
