/* SPDX-License-Identifier: Apache-2.0
 * Gradients: every mask, option, length, layout and fill that the forward families try. */
#include "tests/conformance/family.h"

#include <stdio.h>

#define COUNT(list) (sizeof(list) / sizeof *(list))

static const char *const types[] = {"f32", "f16", "bf16"};

static const char *const masks[] = {"", "causal", "window=9,3", "causal window=20,0",
                                    "topleft causal"};

/* Head sizes that fit no vector, each with each type; the two sizes the same and not. */
static void add_dims(tess_family *family)
{
    static const int dims[] = {1,  2,  3,  7,   8,   16,  20,  31,  33,  40,  63,  64,
                               72, 80, 96, 100, 127, 128, 129, 192, 200, 256, 257, 512};
    static const int pairs[][2] = {{64, 128}, {128, 64}, {192, 128}, {40, 72}, {1, 256}, {256, 1}};

    for (size_t d = 0; d < COUNT(dims); d++)
        tess_family_add(family, "bwd b1 hq2 hk1 q33 k50 d%d %s %s seed=%zu", dims[d], types[d % 3],
                        masks[d % COUNT(masks)], d + 1);
    for (size_t p = 0; p < COUNT(pairs); p++)
        for (size_t t = 0; t < COUNT(types); t++)
            tess_family_add(family, "bwd b1 hq6 hk1 q33 k65 d%d dv%d %s causal seed=%zu",
                            pairs[p][0], pairs[p][1], types[t], 3 * p + t);
}

/* Lengths around the tiles of rows and columns, around a share of columns and past all the buffers
 * that shares add to. */
static void add_lengths(tess_family *family)
{
    static const int lengths[] = {0, 1, 2, 31, 32, 33, 47, 48, 49, 95, 96, 97, 128, 129};
    static const int columns[] = {191, 240, 241, 527, 528, 529, 1057, 4271};

    for (size_t i = 0; i < COUNT(lengths); i++)
        for (size_t j = i % 2; j < COUNT(lengths); j += 2)
            tess_family_add(family, "bwd b2 hq2 hk1 q%d k%d d8 %s %s seed=%zu", lengths[i],
                            lengths[j], types[(i + j / 2) % 3], masks[(i + j) % COUNT(masks)],
                            i + j + 1);
    for (size_t j = 0; j < COUNT(columns); j++)
        for (size_t m = 0; m < COUNT(masks); m++)
            tess_family_add(family, "bwd b1 hq2 hk1 q%zu k%d d8 %s %s seed=%zu", 5 + 30 * (m % 2),
                            columns[j], types[(j + m) % 3], masks[m], j + m);
    tess_family_add(family, "bwd b1 hq1 q700 k700 d16 f32 causal");
    tess_family_add(family, "bwd b1 hq1 q1500 k40 d8 bf16 causal");
    tess_family_add(family, "bwd b0 hq4 hk2 q9 k9 d8 f32 alibi bias sink");
    tess_family_add(family, "bwd b3 hq2 q0 k9 d8 f16 bias biasbcast=i seed=2");
    tess_family_add(family, "bwd b2 hq0 hk0 q9 k9 d8 f32");
}

static void add_masks(tess_family *family)
{
    static const int lefts[] = {-1, 0, 1, 30, 1000}, rights[] = {-1, 0, 5, 1000};

    for (size_t l = 0; l < COUNT(lefts); l++)
        for (size_t r = 0; r < COUNT(rights); r++)
            for (int shape = 0; shape < 3; shape++)
                tess_family_add(family, "bwd b1 hq2 hk1 q%d k%d d8 %s window=%d,%d %s seed=%zu",
                                shape == 0 ? 60 : 45, shape == 2 ? 20 : 60,
                                types[(l + r + (size_t)shape) % 3], lefts[l], rights[r],
                                (l + r) % 3 == 0   ? "causal"
                                : (l + r) % 3 == 1 ? "topleft"
                                                   : "",
                                l + r + 1);
}

static void add_groups(tess_family *family)
{
    static const int heads[][2] = {{1, 1}, {2, 1}, {3, 1},  {5, 1},  {6, 2},  {7, 1}, {8, 2},
                                   {9, 3}, {5, 5}, {12, 2}, {16, 1}, {33, 1}, {71, 1}};

    for (size_t h = 0; h < COUNT(heads); h++)
        for (int rows = 1; rows <= 19; rows += 9)
            tess_family_add(family, "bwd b2 hq%d hk%d q%d k40 d16 %s %s seed=%zu", heads[h][0],
                            heads[h][1], rows, types[(h + (size_t)rows) % 3],
                            masks[(h + (size_t)rows) % COUNT(masks)], h + 1);
}

/* What is added to scores, and what their gradients are summed over. */
static void add_scores(tess_family *family)
{
    static const char *const options[] = {
        "softcap=1",       "softcap=30 scale=2",
        "alibi",           "sink",
        "alibi sink",      "bias",
        "bias=f16",        "bias=bf16 softcap=2",
        "scale=0",         "scale=-0.25",
        "scale=0 sink",    "alibi softcap=0.5 scale=1",
        "bias alibi sink", "bias sink softcap=5 alibi scale=-0.5"};
    static const char *const axes[] = {"b",  "h",  "i",   "j",   "bh",  "bi",  "bj",  "hi",
                                       "hj", "ij", "bhi", "bhj", "bij", "hij", "bhij"};

    for (size_t o = 0; o < COUNT(options); o++)
        for (size_t m = 0; m < COUNT(masks); m++)
            tess_family_add(family, "bwd b2 hq4 hk2 q%d k%d d16 %s %s %s seed=%zu", o % 2 ? 50 : 9,
                            m % 2 ? 37 : 70, types[(o + m) % 3], options[o], masks[m], o + m + 1);
    for (size_t a = 0; a < COUNT(axes); a++)
        for (int long_rows = 0; long_rows < 2; long_rows++)
            tess_family_add(family, "bwd b3 hq4 hk2 q%d k%d d8 %s bias biasbcast=%s %s seed=%zu",
                            long_rows ? 90 : 5, long_rows ? 30 : 260, types[a % 3], axes[a],
                            masks[a % COUNT(masks)], a + 1);
}

static void add_sequences(tess_family *family)
{
    static const char *const lists[] = {
        "lensq=4,4,4 lensk=7,0,5",
        "lensq=50,0,50 lensk=30,40,30",
        "lensq=76,34,146 lensk=1,1,1",
        "lensq=127,1,129,64,3 lensk=127,1,129,64,3",
        "lensq=0,0,9 lensk=0,5,200 gap=3",
        "lensq=3,9,40 lensk=40,9,3 gap=2 usedq=3,0,31 usedk=9,9,3",
        "lensq=1x20 lensk=17x20",
        "lensq=30,2 index=i64 k70",
        "b3 q20 k50 usedq=20,0,7 usedk=50,13,0",
    };
    static const char *const options[] = {"",
                                          "causal",
                                          "alibi causal",
                                          "sink bias",
                                          "bias biasbcast=b",
                                          "window=5,0 softcap=2",
                                          "invariant causal"};

    for (size_t l = 0; l < COUNT(lists); l++)
        for (size_t o = 0; o < COUNT(options); o++)
            tess_family_add(family, "bwd hq4 hk2 %s d16 %s %s layout=%s seed=%zu", lists[l],
                            types[(l + o) % 3], options[o], (l + o) % 4 ? "bshd" : "strided",
                            l + o);
}

static void add_layouts(tess_family *family)
{
    static const char *const options[] = {"", "causal", "bias sink", "alibi causal"};

    for (size_t n = 0; n < 40; n++)
        tess_family_add(family, "bwd b2 hq4 hk2 q%zu k%d d%d %s %s layout=strided seed=%zu",
                        7 + n % 5 * 11, n % 2 ? 33 : 70, n % 3 ? 16 : 20, types[n % 3],
                        options[n % COUNT(options)], n + 1);
    for (size_t n = 0; n < 6; n++)
        tess_family_add(family, "bwd b2 hq4 hk2 q9 k33 d16 %s %s layout=%s seed=%zu", types[n % 3],
                        options[n % COUNT(options)], n % 2 ? "sparse" : "bhsd", n + 1);
}

static void add_fills(tess_family *family)
{
    static const char *const fills[] = {"uniform",   "ones",       "equal", "dominate",
                                        "ascending", "descending", "huge",  "spike",
                                        "subnormal", "zero",       "grid"};

    for (size_t f = 0; f < COUNT(fills); f++)
        for (size_t t = 0; t < COUNT(types); t++)
            for (int causal = 0; causal < 2; causal++)
                tess_family_add(family, "bwd b1 hq2 hk1 q50 k100 d32 %s %s fill=%s seed=%zu",
                                types[t], causal ? "causal" : "", fills[f], f + t + 1);
    /* One NaN or infinity in Q, K, V or dO: as the seed has it. */
    for (size_t n = 0; n < 24; n++)
        tess_family_add(family, "bwd b2 hq4 hk2 q40 k60 d%d %s %s fill=%s seed=%zu", n % 5 ? 16 : 7,
                        types[n % 3], masks[n % COUNT(masks)], n % 2 ? "nan" : "inf", n + 1);
    for (size_t n = 0; n < 6; n++)
        tess_family_add(family, "bwd b1 hq2 hk1 q40 k60 d16 %s %s fill=%s spread seed=%zu",
                        types[n % 3], masks[n % COUNT(masks)], n % 2 ? "nan" : "normal", n + 1);
    for (size_t n = 0; n < 6; n++)
        tess_family_add(family, "bwd b2 hq2 q20 k30 d16 %s bias fill=holes seed=%zu", types[n % 3],
                        n + 1);
}

static void strata(tess_family *family)
{
    add_dims(family);
    add_lengths(family);
    add_masks(family);
    add_groups(family);
    add_scores(family);
    add_sequences(family);
    add_layouts(family);
    add_fills(family);
}

static bool narrow(tess_line *line)
{
    tess_family_widen_type(line);
    return line->page_size == 0;
}

static void refusals(tess_family *family)
{
    tess_family_add(family, "bwd b2 hq4 hk1 q1 k70 usedk=70,3 page=16 d64 bf16");
    tess_family_add(family, "bwd b1 hq2 q4 k64 page=16 d16 f32 causal layout=strided");
    tess_family_add(family, "bwd b1 hq2 q4 k4 d64 e4m3 of=bf16");
    tess_family_add(family, "bwd b1 hq2 q4 k4 d5000 f32");
}

int main(int argc, char **argv)
{
    static const tess_family_plan plan = {.name = "c700_backward",
                                          .strata = strata,
                                          .narrow = narrow,
                                          .random = 150,
                                          .is_backward = true};
    static const tess_family_plan refused = {
        .name = "c700_backward, refusals", .strata = refusals, .is_refused = true};
    const int result = tess_family_main(&plan, argc, argv);
    const int other = tess_family_main(&refused, argc, argv);

    return result ? result : other;
}
