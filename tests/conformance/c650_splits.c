/* SPDX-License-Identifier: Apache-2.0
 * Columns shared out: more shares than tiles, columns or head dims, empty shares, sinks, merging.
 */
#include "tests/conformance/family.h"

#include <stdio.h>

#define COUNT(list) (sizeof(list) / sizeof *(list))

static const char *const types[] = {"f32", "f16", "bf16"};

static const int counts[] = {1, 2, 3, 4, 5, 7, 8, 13, 16, 31, 64, 128, 1000, 65536};

static void add_counts(tess_family *family)
{
    static const int columns[] = {0, 1, 3, 17, 48, 49, 64, 65, 97, 300};

    for (size_t s = 0; s < COUNT(counts); s++)
        for (size_t c = 0; c < COUNT(columns); c++)
            tess_family_add(family, "fwd b1 hq2 hk1 q%d k%d d8 %s splits=%d %s seed=%zu",
                            c % 2 ? 1 : 5, columns[c], types[(s + c) % 3], counts[s],
                            (s + c) % 2 ? "causal" : "", s + 1);
    for (int d = 15; d <= 17; d++)
        for (size_t s = 3; s < COUNT(counts); s += 2)
            tess_family_add(family, "fwd b1 hq1 q1 k1500 d%d f32 splits=%d", d, counts[s]);
}

/* Masks that leave most shares nothing, and sinks that must count once whichever share has work. */
static void add_masks(tess_family *family)
{
    static const char *const masks[] = {"causal window=3,0", "causal",
                                        "window=40,-1",      "window=0,0",
                                        "topleft causal",    "window=100,100 topleft"};
    static const char *const options[] = {
        "", "sink", "sink softcap=4", "alibi", "bias", "sink alibi bias", "of=f32 sink"};
    static const char *const fills[] = {"normal", "equal", "holes", "nan", "descending", "huge"};

    for (size_t m = 0; m < COUNT(masks); m++)
        for (size_t o = 0; o < COUNT(options); o++)
            for (size_t s = 1; s < COUNT(counts); s += 3)
                tess_family_add(
                    family, "fwd b2 hq4 hk2 q%d k%d d8 %s %s %s splits=%d fill=%s seed=%zu",
                    (m + o) % 3 ? 2 : 37, o % 2 ? 256 : 131, types[(m + o + s) % 3], masks[m],
                    options[o], counts[s], fills[(m + o + s) % COUNT(fills)], m + o + s);
}

static void add_lengths(tess_family *family)
{
    static const char *const lengths[] = {"lensq=1x3 lensk=50,200,333", "b3 q4 k200 usedk=0,3,200",
                                          "lensq=5,0,70 lensk=0,9,200 gap=1",
                                          "b2 q1 k150 page=16 usedk=150,33"};

    for (size_t l = 0; l < COUNT(lengths); l++)
        for (size_t s = 0; s < COUNT(counts); s++)
            tess_family_add(family, "fwd hq4 hk2 d16 %s %s splits=%d %s %s seed=%zu",
                            types[(l + s) % 3], lengths[l], counts[s], s % 2 ? "causal" : "sink",
                            s % 3 ? "" : "layout=strided", s + 1);
}

static void strata(tess_family *family)
{
    add_counts(family);
    add_masks(family);
    add_lengths(family);
}

static bool narrow(tess_line *line)
{
    tess_family_widen_type(line);
    if (line->splits < 2)
        line->splits = (int64_t)(2 + line->seed % 9);
    return true;
}

int main(int argc, char **argv)
{
    static const tess_family_plan plan = {
        .name = "c650_splits", .strata = strata, .narrow = narrow, .random = 60};

    return tess_family_main(&plan, argc, argv);
}
