/* SPDX-License-Identifier: Apache-2.0
 * TESS_BATCH_INVARIANT: the bits of a sequence depend on that sequence alone. */
#include "tests/conformance/scene.h"
#include "tests/kit/shape.h"

#include <stdio.h>
#include <string.h>

#define COUNT(list) (sizeof(list) / sizeof *(list))

static const char *const types[] = {"f32", "f16", "bf16"};

static const char *const options[] = {"",
                                      "causal",
                                      "causal topleft",
                                      "window=20,3",
                                      "alibi",
                                      "sink causal",
                                      "bias",
                                      "softcap=2",
                                      "splits=3",
                                      "splits=3 causal",
                                      "splits=16 sink window=9,0",
                                      "of=f32",
                                      "fill=ascending causal",
                                      "fill=huge",
                                      "alibi sink bias softcap=5 causal splits=2"};

/* f32 inputs have only one output type. */
static const char *type_for(const char *words, size_t t)
{
    return strstr(words, "of=f32") && t == 0 ? types[1] : types[t];
}

/* Every sequence of a scene against itself alone. */
static void expect_each_alone(tess_scene *all, const char *dims, const char *words,
                              const char *what)
{
    const tess_line *line = &all->c.line;

    if (!tess_scene_run(all) || !tess_scene_is_right(all))
        return;
    for (int64_t b = 0; b < line->batch; b++) {
        tess_scene *alone = tess_scene_make(all->subject, "fwd b1 %s q%lld k%lld %s invariant",
                                            dims, (long long)tess_shape_used_rows(line, b),
                                            (long long)tess_shape_used_columns(line, b), words);
        bool is_same = true;

        tess_scene_copy(all, b, alone, 0);
        if (tess_scene_run(alone))
            is_same = tess_scene_same_bits(all, b, alone, 0, what);
        tess_scene_free(alone);
        if (!is_same)
            return;
    }
}

static void packed(const tess_subject *subject)
{
    static const char *const lengths[] = {"lensq=1,0,129,127,0,65 lensk=1,0,129,127,0,65",
                                          "lensq=4x3 lensk=7,0,5",
                                          "lensq=1x4 lensk=50,200,333,1",
                                          "lensq=33,97,2,8 lensk=300,5,48,49 gap=2",
                                          "b3 q40 k70",
                                          "b4 q9 k200 usedk=200,0,47,48",
                                          "b3 q50 k90 usedq=1,50,8 usedk=90,3,64",
                                          "b3 q3 k97 usedk=97,16,50 page=16",
                                          "b2 q20 k140 usedk=140,77 page=1"};

    for (size_t l = 0; l < COUNT(lengths); l++)
        for (size_t o = l % 2; o < COUNT(options); o += 2) {
            char words[160];
            tess_scene *all;

            snprintf(words, sizeof words, "d16 %s %s", type_for(options[o], (l + o) % 3),
                     options[o]);
            all = tess_scene_make(subject, "fwd hq4 hk2 %s %s invariant", lengths[l], words);
            expect_each_alone(all, "hq4 hk2", words, "in a batch and alone");
            tess_scene_free(all);
        }
}

/* Odd strides against packed ones. */
static void strides(const tess_subject *subject)
{
    static const char *const shapes[] = {"b2 hq4 hk2 q19 k70 d24", "b1 hq2 hk2 q1 k131 d40 dv17",
                                         "hq4 hk1 lensq=5,0,30 lensk=60,3,30 d16",
                                         "b2 hq2 hk1 q3 k60 usedk=60,33 page=16 d16"};

    for (size_t s = 0; s < COUNT(shapes); s++)
        for (int seed = 1; seed <= 15; seed++) {
            const char *words = options[(s + (size_t)seed) % COUNT(options)];
            const char *type = type_for(words, (size_t)seed % 3);
            tess_scene *odd =
                tess_scene_make(subject, "fwd %s %s %s invariant seed=%d layout=strided", shapes[s],
                                type, words, seed);
            tess_scene *plain =
                tess_scene_make(subject, "fwd %s %s %s invariant seed=%d layout=%s", shapes[s],
                                type, words, seed, seed % 2 ? "bshd" : "bhsd");

            for (int64_t b = 0; b < odd->c.line.batch; b++)
                tess_scene_copy(odd, b, plain, b);
            if (tess_scene_run(odd) && tess_scene_run(plain))
                for (int64_t b = 0; b < odd->c.line.batch; b++)
                    if (!tess_scene_same_bits(odd, b, plain, b, "odd strides and packed"))
                        break;
            tess_scene_free(odd);
            tess_scene_free(plain);
        }
}

/* An empty sequence put in front of, between and behind others. */
static void empty_ones(const tess_subject *subject)
{
    static const char *const with[] = {
        "lensq=0,9,40,1 lensk=0,60,40,130", "lensq=9,40,0,1 lensk=60,40,7,130",
        "lensq=9,40,1,0 lensk=60,40,130,0", "lensq=9,5,40,1 lensk=60,0,40,130"};
    static const int place[] = {0, 2, 3, 1};

    for (size_t w = 0; w < COUNT(with); w++)
        for (size_t o = 0; o < COUNT(options); o++) {
            const char *type = type_for(options[o], o % 3);
            tess_scene *few = tess_scene_make(subject,
                                              "fwd hq4 hk2 lensq=9,40,1 lensk=60,40,130 d16 %s %s "
                                              "invariant",
                                              type, options[o]);
            tess_scene *more = tess_scene_make(subject, "fwd hq4 hk2 %s d16 %s %s invariant",
                                               with[w], type, options[o]);

            for (int64_t b = 0; b < 3; b++)
                tess_scene_copy(few, b, more, b + (b >= place[w]));
            if (tess_scene_run(few) && tess_scene_run(more))
                for (int64_t b = 0; b < 3; b++)
                    if (!tess_scene_same_bits(few, b, more, b + (b >= place[w]),
                                              "beside an empty sequence"))
                        break;
            tess_scene_free(few);
            tess_scene_free(more);
        }
}

/* Keys in pages, of any size and order, against keys in a row. */
static void pages(const tess_subject *subject)
{
    static const int sizes[] = {1, 3, 4, 16, 48, 64, 256};

    for (size_t p = 0; p < COUNT(sizes); p++)
        for (size_t o = 0; o < COUNT(options); o++) {
            const char *type = type_for(options[o], (p + o) % 3);
            tess_scene *row =
                tess_scene_make(subject, "fwd b2 hq4 hk1 q%d k150 usedk=150,97 d16 %s %s invariant",
                                o % 2 ? 1 : 20, type, options[o]);
            tess_scene *paged = tess_scene_make(
                subject, "fwd b2 hq4 hk1 q%d k150 usedk=150,97 d16 %s %s invariant page=%d",
                o % 2 ? 1 : 20, type, options[o], sizes[p]);

            for (int64_t b = 0; b < 2; b++)
                tess_scene_copy(row, b, paged, b);
            if (tess_scene_run(row) && tess_scene_run(paged))
                for (int64_t b = 0; b < 2; b++)
                    if (!tess_scene_same_bits(row, b, paged, b, "in a row and in pages"))
                        break;
            tess_scene_free(row);
            tess_scene_free(paged);
        }
}

/* The last query alone against the same one below others: a narrow tile and a wide one. It sees
 * what it saw, since the last row faces the last column. */
static void rows(const tess_subject *subject)
{
    static const int counts[] = {2, 9, 17, 64, 200};
    static const char *const words[] = {
        "", "causal", "alibi", "softcap=2 sink", "fill=huge", "fill=ascending causal"};

    for (size_t c = 0; c < COUNT(counts); c++)
        for (size_t w = 0; w < COUNT(words); w++) {
            const char *type = types[(c + w) % 3];
            tess_scene *many = tess_scene_make(
                subject, "fwd b1 hq4 hk2 q%d k230 d16 %s %s invariant", counts[c], type, words[w]);
            tess_scene *one = tess_scene_make(subject, "fwd b1 hq4 hk2 q1 k230 d16 %s %s invariant",
                                              type, words[w]);
            const int last = counts[c] - 1;

            tess_scene_copy(one, 0, many, 0);
            for (int h = 0; h < 4; h++)
                for (int d = 0; d < 16; d++)
                    tess_scene_put(many, TESS_CASE_Q, (tess_place){0, h, last, d},
                                   tess_scene_get(one, TESS_CASE_Q, (tess_place){0, h, 0, d}));
            if (tess_scene_run(many) && tess_scene_run(one))
                for (int h = 0; h < 4; h++) {
                    tess_scene_expect(many, "LSE of the last row", tess_scene_lse(many, 0, last, h),
                                      tess_scene_lse(one, 0, 0, h), 0);
                    for (int d = 0; d < 16; d++)
                        tess_scene_expect(many, "O of the last row",
                                          tess_scene_o(many, 0, last, h, d),
                                          tess_scene_o(one, 0, 0, h, d), 0);
                }
            tess_scene_free(many);
            tess_scene_free(one);
        }
}

static const tess_scene_test tests[] = {{"packed", packed},
                                        {"strides", strides},
                                        {"empty_ones", empty_ones},
                                        {"pages", pages},
                                        {"rows", rows}};

int main(int argc, char **argv)
{
    return tess_scene_main(tests, COUNT(tests), argc, argv);
}
