/* SPDX-License-Identifier: Apache-2.0
 * Two ways to say the same: masks and ALiBi as a bias, a sink as a key, heads repeated, dims
 * padded.
 */
#include "tests/conformance/scene.h"
#include "tests/kit/shape.h"

#include <math.h>
#include <stdio.h>

#define COUNT(list) (sizeof(list) / sizeof *(list))

static const char *const types[] = {"f32", "f16", "bf16"};

/* Both are right within the budget, so they are twice that from each other. */
static void expect_agree(const tess_scene *a, const tess_scene *b, double score, const char *what)
{
    const double allowed = 2 * tess_scene_allows(a, score, 3.5, 3.5);
    const double allowed_lse = 2 * tess_scene_allows_lse(a, score);

    if (!(tess_scene_distance(a, b) <= allowed))
        tess_scene_fail(a, "%s: O differs by %g, allowed %g", what, tess_scene_distance(a, b),
                        allowed);
    if (!(tess_scene_distance_lse(a, b) <= allowed_lse))
        tess_scene_fail(a, "%s: LSE differs by %g, allowed %g", what, tess_scene_distance_lse(a, b),
                        allowed_lse);
}

/* ---- Masks and distances as a bias ----------------------------------------------------------- */

/* What the options of `of` add to a score. */
static double as_bias(tess_place p, const void *user)
{
    const tess_scene *of = user;
    const tess_line *line = &of->c.line;
    const int64_t offset = tess_shape_offset(line, p.sequence);
    int64_t first, last;
    double bias = 0;

    tess_shape_reach(line, p.sequence, p.row, &first, &last);
    if (p.dim < first || p.dim > last)
        return -(double)INFINITY;
    if (line->bias & TESS_BIAS_ALIBI)
        bias -= tess_scene_get(of, TESS_CASE_SLOPES, (tess_place){p.sequence, p.head, 0, 0}) *
                fabs((double)(p.row + offset - p.dim));
    if (line->bias & TESS_BIAS_TENSOR)
        bias += tess_scene_get(of, TESS_CASE_BIAS, p);
    return bias;
}

static void masks(const tess_subject *subject)
{
    static const char *const options[] = {"causal",
                                          "causal topleft",
                                          "window=9,3",
                                          "window=0,0",
                                          "window=20,-1 causal",
                                          "window=-1,5 topleft",
                                          "alibi",
                                          "alibi causal",
                                          "alibi window=30,30 softcap=4",
                                          "alibi topleft scale=-0.3"};
    static const int shapes[][2] = {{33, 33}, {5, 97}, {70, 20}, {1, 130}};

    for (size_t o = 0; o < COUNT(options); o++)
        for (size_t s = 0; s < COUNT(shapes); s++) {
            const char *rest = o >= 8 ? (o == 8 ? "softcap=4" : "scale=-0.3") : "";
            const char *type = types[(o + s) % 3];
            tess_scene *native = tess_scene_make(subject, "fwd b2 hq4 hk2 q%d k%d d16 %s %s",
                                                 shapes[s][0], shapes[s][1], type, options[o]);
            tess_scene *biased =
                tess_scene_make(subject, "fwd b2 hq4 hk2 q%d k%d d16 %s bias %s splits=%d",
                                shapes[s][0], shapes[s][1], type, rest, 1 + (int)(o % 3));

            /* Keys that no row sees hold poison in the one and numbers in the other: no matter. */
            tess_scene_set(biased, TESS_CASE_BIAS, as_bias, native);
            if (tess_scene_run(native) && tess_scene_run(biased))
                expect_agree(native, biased, 80, "as a bias");
            tess_scene_free(native);
            tess_scene_free(biased);
        }
}

/* Ways to write one mask. */
static void spellings(const tess_subject *subject)
{
    static const char *const same[][5] = {
        {"causal", "window=-1,0", "window=333,0", "window=332,0", "causal window=-1,-1"},
        {"", "window=-1,-1", "window=2147483647,2147483647", "window=333,333", "topleft"},
        {"causal window=40,-1", "window=40,0", "causal window=40,40", "causal window=40,0",
         "window=40,0 causal topleft"}};

    for (size_t m = 0; m < COUNT(same); m++)
        for (size_t t = 0; t < COUNT(types); t++) {
            tess_scene *first =
                tess_scene_make(subject, "fwd b1 hq2 hk1 q333 d16 %s %s", types[t], same[m][0]);
            const bool is_run = tess_scene_run(first);

            for (size_t i = 1; is_run && i < 5; i++) {
                tess_scene *s =
                    tess_scene_make(subject, "fwd b1 hq2 hk1 q333 d16 %s %s", types[t], same[m][i]);

                if (tess_scene_run(s))
                    tess_scene_same_bits(first, 0, s, 0, same[m][i]);
                tess_scene_free(s);
            }
            tess_scene_free(first);
        }
}

/* ---- A sink as a key ------------------------------------------------------------------------- */

/* The bias of the scene without a sink, and behind its last column the sink. */
typedef struct sunk {
    const tess_scene *from;
    int64_t columns;
} sunk;

static double with_sink(tess_place p, const void *user)
{
    const sunk *s = user;

    if (p.dim == s->columns)
        return tess_scene_get(s->from, TESS_CASE_SINK, (tess_place){0, p.head, 0, 0});
    return as_bias(p, s->from);
}

static void sinks(const tess_subject *subject)
{
    static const char *const options[] = {"",
                                          "causal",
                                          "window=9,3",
                                          "alibi",
                                          "bias causal",
                                          "bias fill=holes",
                                          "splits=4 causal",
                                          "softcap=2"};
    static const int columns[] = {1, 47, 48, 100};

    for (size_t o = 0; o < COUNT(options); o++)
        for (size_t c = 0; c < COUNT(columns); c++) {
            const char *type = types[(o + c) % 3];
            const char *cap = o == 7 ? "softcap=2" : "";
            tess_scene *native =
                tess_scene_make(subject, "fwd b1 hq4 hk2 q9 k%d d16 %s sink %s seed=%zu",
                                columns[c], type, options[o], o + 1);
            tess_scene *key =
                tess_scene_make(subject, "fwd b1 hq4 hk2 q9 k%d d16 %s bias %s seed=%zu",
                                columns[c] + 1, type, cap, o + 1);
            const sunk s = {native, columns[c]};

            for (int h = 0; h < 2; h++)
                for (int d = 0; d < 16; d++) {
                    tess_scene_put(key, TESS_CASE_K, (tess_place){0, h, columns[c], d}, 0);
                    tess_scene_put(key, TESS_CASE_V, (tess_place){0, h, columns[c], d}, 0);
                }
            tess_scene_set(key, TESS_CASE_BIAS, with_sink, &s);
            if (tess_scene_run(native) && tess_scene_run(key))
                expect_agree(native, key, 110, "as a key");
            tess_scene_free(native);
            tess_scene_free(key);
        }
}

/* A sink of -infinity is not there. */
static void no_sink(const tess_subject *subject)
{
    static const char *const options[] = {"", "causal", "splits=3", "window=0,0 topleft"};

    for (size_t o = 0; o < COUNT(options); o++)
        for (size_t t = 0; t < COUNT(types); t++) {
            tess_scene *with = tess_scene_make(subject, "fwd b2 hq4 hk2 q20 k60 d8 %s sink %s",
                                               types[t], options[o]);
            tess_scene *without =
                tess_scene_make(subject, "fwd b2 hq4 hk2 q20 k60 d8 %s %s", types[t], options[o]);

            tess_scene_set_all(with, TESS_CASE_SINK, -(double)INFINITY);
            if (tess_scene_run(with) && tess_scene_run(without) && tess_scene_is_right(with))
                for (int64_t b = 0; b < 2; b++)
                    tess_scene_same_bits(with, b, without, b, "with a sink of -infinity");
            tess_scene_free(with);
            tess_scene_free(without);
        }
}

/* ---- Heads repeated -------------------------------------------------------------------------- */

typedef struct grouped {
    const tess_scene *from;
    int which;
    int64_t group;
} grouped;

static double of_group(tess_place p, const void *user)
{
    const grouped *g = user;

    p.head /= g->group;
    return tess_scene_get(g->from, g->which, p);
}

static void heads(const tess_subject *subject)
{
    static const int counts[][2] = {{12, 2}, {7, 1}, {14, 2}, {24, 8}, {9, 3}, {4, 1}};
    static const char *const options[] = {"causal", "", "alibi sink", "bias window=40,2",
                                          "splits=3"};

    for (size_t c = 0; c < COUNT(counts); c++)
        for (size_t o = 0; o < COUNT(options); o++)
            for (int rows = 1; rows <= 5; rows += 2) {
                const int hq = counts[c][0], hk = counts[c][1];
                const char *type = types[(c + o) % 3];
                tess_scene *few = tess_scene_make(subject, "fwd b1 hq%d hk%d q%d k97 d8 %s %s", hq,
                                                  hk, rows, type, options[o]);
                tess_scene *many = tess_scene_make(subject, "fwd b1 hq%d hk%d q%d k97 d8 %s %s", hq,
                                                   hq, rows, type, options[o]);
                const grouped k = {few, TESS_CASE_K, hq / hk}, v = {few, TESS_CASE_V, hq / hk};

                tess_scene_set(many, TESS_CASE_K, of_group, &k);
                tess_scene_set(many, TESS_CASE_V, of_group, &v);
                if (tess_scene_run(few) && tess_scene_run(many))
                    expect_agree(few, many, 60, "with key heads repeated");
                tess_scene_free(few);
                tess_scene_free(many);
            }
}

/* ---- Dims padded ----------------------------------------------------------------------------- */

/* An element of another scene, 0 past its dims. */
typedef struct padded {
    const tess_scene *from;
    int which;
    int64_t dims;
} padded;

static double or_zero(tess_place p, const void *user)
{
    const padded *s = user;

    return p.dim < s->dims ? tess_scene_get(s->from, s->which, p) : 0;
}

static void dims(const tess_subject *subject)
{
    static const int pads[][2] = {{1, 8}, {7, 8}, {16, 33}, {63, 64}, {64, 100}, {100, 128}};

    for (size_t p = 0; p < COUNT(pads); p++)
        for (size_t t = 0; t < COUNT(types); t++) {
            tess_scene *a = tess_scene_make(
                subject, "fwd b1 hq2 hk1 q9 k70 d%d %s causal scale=0.2", pads[p][0], types[t]);
            tess_scene *b = tess_scene_make(
                subject, "fwd b1 hq2 hk1 q9 k70 d%d %s causal scale=0.2", pads[p][1], types[t]);
            const padded q = {a, TESS_CASE_Q, pads[p][0]}, k = {a, TESS_CASE_K, pads[p][0]},
                         v = {a, TESS_CASE_V, pads[p][0]};

            tess_scene_set(b, TESS_CASE_Q, or_zero, &q);
            tess_scene_set(b, TESS_CASE_K, or_zero, &k);
            tess_scene_set(b, TESS_CASE_V, or_zero, &v);
            if (tess_scene_run(a) && tess_scene_run(b)) {
                expect_agree(a, b, 60, "with dims padded by zeros");
                tess_scene_expect(b, "O of a padded dim", tess_scene_o(b, 0, 8, 1, pads[p][1] - 1),
                                  0, 0);
            }
            tess_scene_free(a);
            tess_scene_free(b);
        }
}

/* ---- Signs ----------------------------------------------------------------------------------- */

static double negated(tess_place p, const void *user)
{
    return -tess_scene_get(user, TESS_CASE_Q, p);
}

/* A negative scale is a negative Q; twice the scale is twice Q. */
static void signs(const tess_subject *subject)
{
    static const char *const options[] = {"", "causal", "softcap=3", "alibi", "fill=huge", "sink"};

    for (size_t o = 0; o < COUNT(options); o++)
        for (size_t t = 0; t < COUNT(types); t++) {
            tess_scene *a = tess_scene_make(subject, "fwd b1 hq2 hk1 q33 k90 d16 %s scale=-0.25 %s",
                                            types[t], options[o]);
            tess_scene *b = tess_scene_make(subject, "fwd b1 hq2 hk1 q33 k90 d16 %s scale=0.25 %s",
                                            types[t], options[o]);

            tess_scene_set(b, TESS_CASE_Q, negated, a);
            if (tess_scene_run(a) && tess_scene_run(b))
                tess_scene_same_bits(a, 0, b, 0, "with the sign in Q");
            tess_scene_free(a);
            tess_scene_free(b);
        }
}

static const tess_scene_test tests[] = {
    {"masks", masks}, {"spellings", spellings}, {"sinks", sinks}, {"no_sink", no_sink},
    {"heads", heads}, {"dims", dims},           {"signs", signs}};

int main(int argc, char **argv)
{
    return tess_scene_main(tests, COUNT(tests), argc, argv);
}
