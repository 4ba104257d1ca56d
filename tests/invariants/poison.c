/* SPDX-License-Identifier: Apache-2.0
 * What nobody may use changes no bit, whatever it holds; a NaN that counts reaches its rows only.
 */
#include "tests/conformance/scene.h"
#include "tests/kit/number.h"
#include "tests/kit/random.h"
#include "tests/kit/shape.h"

#include <math.h>
#include <stdio.h>

#define COUNT(list) (sizeof(list) / sizeof *(list))

static const char *const types[] = {"f32", "f16", "bf16"};

static const char *const problems[] = {
    "b2 hq2 hk1 q20 k60 usedk=60,13 d16",
    "b2 hq2 hk1 q20 k60 usedq=20,3 usedk=0,50 d16 causal",
    "b1 hq4 hk2 q3 k60 usedk=37 page=16 d16 causal",
    "b3 hq4 hk2 q1 k90 usedk=1,90,49 page=1 d24 splits=3",
    "b2 hq2 hk2 q9 k40 usedk=40,21 page=256 d16 layout=strided",
    "hq2 hk1 lensq=5,0,20 lensk=9,4,60 gap=3 d16 causal",
    "hq2 hk1 lensq=5,0,20 lensk=9,4,60 gap=1 d7 bias layout=strided",
    "b2 hq2 hk1 q60 k50 usedk=50,49 d16 causal bias alibi sink",
};

/* Masks that hide some columns from all rows. */
static const char *const masks[] = {
    "b2 hq2 hk1 q30 k100 d16 window=5,0",
    "b2 hq2 hk1 q9 k100 d16 topleft causal bias",
    "b1 hq2 hk1 q9 k100 d16 window=3,3 splits=4 bias alibi sink",
    "b2 hq3 hk1 q17 k33 d20 dv9 layout=strided window=9,9",
};

/* A scene with junk in it, and one with zeros in its place. */
static void make_both(const tess_subject *subject, const char *problem, const char *type, int seed,
                      tess_scene *out[2])
{
    for (int i = 0; i < 2; i++)
        out[i] = tess_scene_make(subject, "fwd %s %s seed=%d", problem, type, seed);
    tess_scene_clean(out[1]);
}

/* The kit puts NaN and infinities behind used lengths, into unused pages, gaps and paddings: zeros
 * there give the same bits. */
static void junk(const tess_subject *subject)
{
    for (size_t p = 0; p < COUNT(problems); p++)
        for (size_t t = 0; t < COUNT(types); t++)
            for (int seed = 1; seed <= 3; seed++) {
                tess_scene *s[2];

                make_both(subject, problems[p], types[t], seed, s);
                if (tess_scene_run(s[0]) && tess_scene_run(s[1]))
                    for (int64_t b = 0; b < s[0]->c.line.batch; b++)
                        if (!tess_scene_same_bits(s[0], b, s[1], b, "with junk where none looks"))
                            break;
                tess_scene_free(s[0]);
                tess_scene_free(s[1]);
            }
}

/* Columns that exist and that a mask hides from every row may cost a row its second computation,
 * in another order. */
static void hidden(const tess_subject *subject)
{
    for (size_t p = 0; p < COUNT(masks); p++)
        for (size_t t = 0; t < COUNT(types); t++)
            for (int seed = 1; seed <= 3; seed++) {
                tess_scene *s[2];

                make_both(subject, masks[p], types[t], seed, s);
                if (tess_scene_run(s[0]) && tess_scene_run(s[1])) {
                    tess_scene_expect(s[0], "junk in hidden columns moves O, which",
                                      tess_scene_distance(s[0], s[1]), 0,
                                      tess_scene_allows(s[0], 20, 3.5, 3.5));
                    tess_scene_expect(s[0], "junk in hidden columns moves LSE, which",
                                      tess_scene_distance_lse(s[0], s[1]), 0,
                                      tess_scene_allows_lse(s[0], 20));
                }
                tess_scene_free(s[0]);
                tess_scene_free(s[1]);
            }
}

/* Whether row i of a sequence sees column j. */
static bool is_seen(const tess_line *line, int64_t sequence, int64_t i, int64_t j)
{
    int64_t first, last;

    tess_shape_reach(line, sequence, i, &first, &last);
    return j >= first && j <= last && j < tess_shape_used_columns(line, sequence);
}

/* Where the NaN is. */
typedef struct wound {
    int which; /* TESS_CASE_K or _V */
    int64_t sequence, head, column;
} wound;

/* Rows that see it are NaN; others of its head may have been computed again; the rest has no other
 * bit. */
static bool is_fine(const tess_scene *clean, const tess_scene *hurt, const wound *w, int64_t s,
                    int64_t i, int64_t h)
{
    const tess_line *line = &clean->c.line;
    const double o = tess_scene_o(hurt, s, i, h, 0), lse = tess_scene_lse(hurt, s, i, h);
    const double o_clean = tess_scene_o(clean, s, i, h, 0);
    const double lse_clean = tess_scene_lse(clean, s, i, h);

    if (s != w->sequence || h / (line->heads_q / line->heads_kv) != w->head)
        return o == o_clean && lse == lse_clean;
    if (is_seen(line, s, i, w->column))
        return isnan(o) && isnan(lse) == (w->which == TESS_CASE_K);
    return (o == o_clean || fabs(o - o_clean) <= tess_scene_allows(clean, 10, 1, 1)) &&
           (lse == lse_clean || fabs(lse - lse_clean) <= tess_scene_allows_lse(clean, 10));
}

static void expect_contained(const tess_scene *clean, const tess_scene *hurt, const wound *w)
{
    const tess_line *line = &clean->c.line;

    for (int64_t s = 0; s < line->batch; s++)
        for (int64_t i = 0; i < tess_shape_used_rows(line, s); i++)
            for (int64_t h = 0; h < line->heads_q; h++)
                if (!is_fine(clean, hurt, w, s, i, h)) {
                    tess_scene_fail(hurt,
                                    "a NaN in %s of column %d, sequence %d, head %d: row %d of "
                                    "sequence %d, head %d is %g, LSE %g",
                                    w->which == TESS_CASE_K ? "K" : "V", (int)w->column,
                                    (int)w->sequence, (int)w->head, (int)i, (int)s, (int)h,
                                    tess_scene_o(hurt, s, i, h, 0), tess_scene_lse(hurt, s, i, h));
                    return;
                }
}

/* One NaN in K or V: in the rows that see its column, and nowhere else. */
static void contained(const tess_subject *subject)
{
    static const char *const shapes[] = {
        "b2 hq4 hk2 q20 k60 d8 causal",          "b2 hq2 hk1 q20 k60 usedk=60,13 d16",
        "b1 hq4 hk2 q100 k100 d8 causal",        "b1 hq4 hk2 q3 k60 usedk=37 page=16 d16 causal",
        "b1 hq2 hk1 q70 k130 d8 window=9,20",    "hq2 hk1 lensq=5,0,20 lensk=9,4,60 d16 causal",
        "b1 hq2 hk1 q9 k200 d8 causal splits=3", "b2 hq2 hk1 q9 k50 topleft causal d8 bias sink"};
    tess_random random = tess_random_start(5, 0x50);
    const int turns = 4 * tess_test_number("TESSERA_TEST_RANDOM", 60);

    for (int turn = 0; turn < turns; turn++) {
        const char *shape = shapes[turn % (int)COUNT(shapes)], *type = types[turn % 3];
        tess_scene *clean =
            tess_scene_make(subject, "fwd %s %s seed=%d fill=uniform", shape, type, turn + 1);
        tess_scene *hurt =
            tess_scene_make(subject, "fwd %s %s seed=%d fill=uniform", shape, type, turn + 1);
        const tess_line *line = &clean->c.line;
        const int64_t sequence = tess_random_below(&random, line->batch);
        const int64_t columns = tess_shape_used_columns(line, sequence);
        const wound w = {turn / (int)COUNT(shapes) % 2 ? TESS_CASE_K : TESS_CASE_V, sequence,
                         tess_random_below(&random, line->heads_kv),
                         columns ? tess_random_below(&random, columns) : 0};

        if (columns > 0) {
            tess_scene_put(hurt, w.which, (tess_place){sequence, w.head, w.column, 0}, (double)NAN);
            if (tess_scene_run(clean) && tess_scene_run(hurt))
                expect_contained(clean, hurt, &w);
        }
        tess_scene_free(clean);
        tess_scene_free(hurt);
    }
}

/* One odd element of a bias: NaN and +infinity make their row NaN when it sees the column,
 * -infinity hides it; all three are nothing to a row that does not see it. The oracle says which is
 * which. */
static void odd_bias(const tess_subject *subject)
{
    static const double odd[] = {(double)NAN, (double)INFINITY, -(double)INFINITY};
    static const char *const shapes[] = {
        "b2 hq4 hk2 q20 k60 d8 causal",          "b1 hq2 hk1 q70 k130 d8 window=9,20",
        "b1 hq4 hk1 q3 k60 usedk=37 page=16 d8", "b1 hq2 hk1 q9 k200 d8 causal splits=3",
        "b2 hq2 hk1 q1 k50 d8 softcap=2 sink",   "b1 hq1 q2 k1 d8"};
    tess_random random = tess_random_start(6, 0x50);
    const int turns = 2 * tess_test_number("TESSERA_TEST_RANDOM", 60);

    for (int turn = 0; turn < turns; turn++) {
        tess_scene *s = tess_scene_make(subject, "fwd %s %s bias=%s fill=uniform seed=%d",
                                        shapes[turn % (int)COUNT(shapes)], types[turn % 3],
                                        types[turn / 3 % 3], turn + 1);
        const tess_line *line = &s->c.line;
        const int64_t sequence = tess_random_below(&random, line->batch);
        const int64_t columns = tess_shape_used_columns(line, sequence);
        const tess_place place = {sequence, tess_random_below(&random, line->heads_q),
                                  tess_random_below(&random, line->seqlen_q),
                                  tess_random_below(&random, columns)};

        tess_scene_put(s, TESS_CASE_BIAS, place, odd[turn % (int)COUNT(odd)]);
        if (tess_scene_run(s))
            tess_scene_is_right(s);
        tess_scene_free(s);
    }
}

static const tess_scene_test tests[] = {
    {"junk", junk}, {"hidden", hidden}, {"contained", contained}, {"odd_bias", odd_bias}};

int main(int argc, char **argv)
{
    return tess_scene_main(tests, COUNT(tests), argc, argv);
}
