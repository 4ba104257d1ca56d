/* SPDX-License-Identifier: Apache-2.0
 * Every option on every path changes the result, and to the right one: none is dropped. */
#include "tests/conformance/scene.h"
#include "tests/kit/number.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#define COUNT(list) (sizeof(list) / sizeof *(list))

static const char *const types[] = {"f32", "f16", "bf16"};

/* What a kernel could have a path of its own for. */
static const char *const paths[] = {
    "b2 hq4 hk2 q17 k60 d8",                        /* prefill */
    "b2 hq4 hk2 q1 k60 d8",                         /* decode */
    "b2 hq4 hk2 q1 k150 d8 splits=3",               /* decode with splits */
    "b2 hq4 hk2 q17 k60 d8 splits=2",               /* prefill with splits */
    "hq4 hk2 lensq=20,5 lensk=60,33 d8",            /* packed */
    "b2 hq4 hk2 q3 k60 usedk=60,33 page=16 d8",     /* paged */
    "b2 hq4 hk4 q9 k60 usedq=9,4 usedk=60,21 d5",   /* shortened */
    "b2 hq4 hk2 q9 k60 d8 layout=strided",          /* any strides */
    "b1 hq4 hk1 q100 k100 d8",                      /* several row tiles */
    "b2 hq4 hk2 q9 k60 d8 invariant deterministic", /* flags */
};

/* Two values of one option. All make a difference on every path. */
static const char *const options[][2] = {
    {"scale=0.25", "scale=0.5"},
    {"scale=0.25", "scale=-0.25"},
    {"scale=0.25", "scale=0"},
    {"softcap=0.5", "softcap=3"},
    {"softcap=0.5", ""},
    {"window=9,-1", "window=20,-1"},
    {"window=9,0", ""},
    {"window=0,-1", ""},
    {"alibi", ""},
    {"sink", ""},
    {"bias", ""},
    {"bias=f16", "bias=f16 biasbcast=j"},
    {"bias=bf16 biasbcast=h", "bias=bf16"},
    {"fill=uniform", "fill=uniform seed=2"},
};

/* Whether two results are further apart than ten times what correct arithmetic may be off by. */
static bool differ(const tess_scene *a, const tess_scene *b)
{
    return tess_scene_distance(a, b) > 10 * tess_scene_allows(a, 10, 1, 1) ||
           tess_scene_distance_lse(a, b) > 10 * tess_scene_allows_lse(a, 10);
}

static void expect_difference(tess_scene *a, tess_scene *b, const char *first, const char *second)
{
    if (tess_scene_run(a) && tess_scene_run(b) && tess_scene_is_right(a) &&
        tess_scene_is_right(b) && !differ(a, b))
        tess_scene_fail(a, "\"%s\" and \"%s\" differ by %g, LSE by %g", first, second,
                        tess_scene_distance(a, b), tess_scene_distance_lse(a, b));
}

static void words(const tess_subject *subject)
{
    for (size_t p = 0; p < COUNT(paths); p++)
        for (size_t o = 0; o < COUNT(options); o++)
            for (size_t t = 0; t < COUNT(types); t++) {
                tess_scene *a =
                    tess_scene_make(subject, "fwd %s %s %s", paths[p], types[t], options[o][0]);
                tess_scene *b =
                    tess_scene_make(subject, "fwd %s %s %s", paths[p], types[t], options[o][1]);

                expect_difference(a, b, options[o][0], options[o][1]);
                tess_scene_free(a);
                tess_scene_free(b);
            }
}

/* Causal changes nothing for a single last row; top-left does. */
static void masks(const tess_subject *subject)
{
    static const char *const both[][2] = {{"causal", ""},
                                          {"causal", "causal topleft"},
                                          {"window=5,2", "window=5,2 topleft"},
                                          {"alibi", "alibi topleft"}};

    for (size_t p = 0; p < COUNT(paths); p++)
        for (size_t o = 0; o < COUNT(both); o++)
            for (size_t t = 0; t < COUNT(types); t++) {
                const bool is_row = strstr(paths[p], "q1 ") != NULL;
                const bool is_square = strstr(paths[p], "q100 k100") != NULL;
                tess_scene *a, *b;

                if ((o == 0 && is_row) || (o > 0 && is_square))
                    continue;
                a = tess_scene_make(subject, "fwd %s %s %s", paths[p], types[t], both[o][0]);
                b = tess_scene_make(subject, "fwd %s %s %s", paths[p], types[t], both[o][1]);
                expect_difference(a, b, both[o][0], both[o][1]);
                tess_scene_free(a);
                tess_scene_free(b);
            }
}

static double of_head(tess_place p, const void *user)
{
    return *(const double *)user * (double)(p.head + 1);
}

/* Numbers that one head alone has: slopes and sinks of each. */
static void head_data(const tess_subject *subject)
{
    static const struct {
        const char *word;
        int which;
        double first, second;
    } data[] = {{"alibi", TESS_CASE_SLOPES, 0.02, 0.1}, {"sink", TESS_CASE_SINK, 1, -1}};

    for (size_t p = 0; p < COUNT(paths); p++)
        for (size_t d = 0; d < COUNT(data); d++)
            for (int h = 0; h < 4; h++) {
                tess_scene *a = tess_scene_make(subject, "fwd %s %s %s", paths[p],
                                                types[(p + d) % 3], data[d].word);
                tess_scene *b = tess_scene_make(subject, "fwd %s %s %s", paths[p],
                                                types[(p + d) % 3], data[d].word);

                tess_scene_set(a, data[d].which, of_head, &data[d].first);
                tess_scene_set(b, data[d].which, of_head, &data[d].first);
                for (int64_t s = 0; s < b->c.tensor[data[d].which].layout.batch; s++)
                    tess_scene_put(b, data[d].which, (tess_place){s, h, 0, 0}, data[d].second);
                if (tess_scene_run(a) && tess_scene_run(b) && tess_scene_is_right(b))
                    for (int other = 0; other < 4; other++) {
                        const double apart =
                            fabs(tess_scene_lse(a, 0, 0, other) - tess_scene_lse(b, 0, 0, other));
                        const bool is_shared = b->c.tensor[data[d].which].layout.head_stride == 0;

                        if (!is_shared && (other == h ? apart < 1e-3 : apart > 1e-4))
                            tess_scene_fail(b, "the %s of head %d moves head %d by %g",
                                            data[d].word, h, other, apart);
                    }
                tess_scene_free(a);
                tess_scene_free(b);
            }
}

/* Indices: another page, another used length, another start. */
static void indices(const tess_subject *subject)
{
    static const struct {
        const char *line;
        int which, element;
        int add;
    } changes[] = {{"b2 hq2 hk1 q3 k60 usedk=60,33 page=16 d16", TESS_CASE_USED_K, 1, -5},
                   {"b2 hq2 hk1 q3 k60 usedk=60,33 page=16 d16 splits=2", TESS_CASE_USED_K, 0, -9},
                   {"b2 hq2 hk1 q9 k60 usedk=60,33 d16 causal", TESS_CASE_USED_K, 1, -5},
                   {"b2 hq2 hk1 q9 k60 usedk=60,33 d16 index=i64", TESS_CASE_USED_K, 1, -5},
                   {"hq2 hk1 lensq=20,5 lensk=60,33 d16", TESS_CASE_CU_K, 1, -3},
                   {"hq2 hk1 lensq=20,5 lensk=60,33 d16 causal index=i64", TESS_CASE_CU_K, 1, -3},
                   {"b2 hq2 hk1 q9 k60 usedq=9,7 d16 alibi", TESS_CASE_USED_Q, 1, -2}};

    for (size_t c = 0; c < COUNT(changes); c++)
        for (size_t t = 0; t < COUNT(types); t++) {
            tess_scene *a = tess_scene_make(subject, "fwd %s %s", changes[c].line, types[t]);
            tess_scene *b = tess_scene_make(subject, "fwd %s %s", changes[c].line, types[t]);
            tess_tensor *index = &b->c.tensor[changes[c].which];
            char *at = tess_case_element(index, 0, 0, 0, changes[c].element);
            double o = 0;

            tess_number_store(index->layout.dtype, at,
                              tess_number_load(index->layout.dtype, at) + changes[c].add);
            index->hash = tess_tensor_hash(index);
            if (tess_scene_run(a) && tess_scene_run(b))
                for (int h = 0; h < 2; h++)
                    for (int s = 0; s < 2; s++)
                        o = fmax(o, fabs(tess_scene_lse(a, s, 0, h) - tess_scene_lse(b, s, 0, h)));
            if (!(o > 1e-2))
                tess_scene_fail(a, "%s changed LSE by %g only", index->name, o);
            tess_scene_free(a);
            tess_scene_free(b);
        }
}

/* The order of pages in the table. */
static void tables(const tess_subject *subject)
{
    for (size_t t = 0; t < COUNT(types); t++)
        for (int splits = 1; splits <= 3; splits++) {
            tess_scene *a =
                tess_scene_make(subject, "fwd b1 hq2 hk1 q3 k64 usedk=60 page=16 d16 %s splits=%d",
                                types[t], splits);
            tess_scene *b =
                tess_scene_make(subject, "fwd b1 hq2 hk1 q3 k64 usedk=60 page=16 d16 %s splits=%d",
                                types[t], splits);
            tess_tensor *table = &b->c.tensor[TESS_CASE_TABLE];

            /* The first page twice, the second never. */
            tess_number_store(TESS_I32, tess_case_element(table, 0, 0, 0, 1),
                              tess_number_load(TESS_I32, tess_case_element(table, 0, 0, 0, 0)));
            table->hash = tess_tensor_hash(table);
            expect_difference(a, b, "one page after the other", "the first one twice");
            tess_scene_free(a);
            tess_scene_free(b);
        }
}

static const tess_scene_test tests[] = {{"words", words},
                                        {"masks", masks},
                                        {"head_data", head_data},
                                        {"indices", indices},
                                        {"tables", tables}};

int main(int argc, char **argv)
{
    return tess_scene_main(tests, COUNT(tests), argc, argv);
}
