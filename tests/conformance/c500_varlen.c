/* SPDX-License-Identifier: Apache-2.0
 * Sequences of different lengths: packed, with gaps, shortened, empty, many. */
#include "tests/conformance/family.h"

#include <stdio.h>

#define COUNT(list) (sizeof(list) / sizeof *(list))

static const char *const types[] = {"f32", "f16", "bf16"};

static const char *const packed[] = {
    "lensq=4x3 lensk=7,0,5",
    "lensq=1,0,129,127,0,65 lensk=1,0,129,127,0,65",
    "lensq=127,1,129,64,3 lensk=127,1,129,64,3",
    "lensq=0x5 lensk=0x5",
    "lensq=0,0,1 lensk=3,0,2",
    "lensq=5,0,7 lensk=0,9,0",
    "lensq=1x6 lensk=1,16,17,48,49,130",
    "lensq=1 lensk=1",
    "lensq=16,17,48,49 lensk=49,48,17,16",
    "lensq=3,2,4 lensk=3,2,4",
    "lensq=76,34,146 lensk=1,1,1",
    "lensq=1,2,3,5,7,11,13,17,19,23 lensk=23,19,17,13,11,7,5,3,2,1"};

static void add_packed(tess_family *family)
{
    static const char *const options[] = {"",
                                          "causal",
                                          "causal topleft",
                                          "window=5,2",
                                          "causal window=16,0",
                                          "index=i64",
                                          "gap=3",
                                          "gap=1 causal index=i64",
                                          "causal alibi",
                                          "sink splits=3",
                                          "bias",
                                          "bias=f16 biasbcast=i gap=2",
                                          "softcap=3 causal invariant",
                                          "layout=strided causal",
                                          "layout=bhsd of=f32 alibi sink bias"};
    static const char *const fills[] = {"normal", "equal", "nan", "holes", "ascending"};

    for (size_t p = 0; p < COUNT(packed); p++)
        for (size_t o = 0; o < COUNT(options); o++)
            tess_family_add(family, "fwd hq%d hk2 d%d f%s %s %s fill=%s seed=%zu", o % 2 ? 2 : 4,
                            p % 2 ? 8 : 20, (p + o) % 2 ? "32" : "16", packed[p], options[o],
                            fills[(p + o) % COUNT(fills)], p + o + 1);
}

/* One side packed, the other not; lengths shortened in every combination. */
static void add_mixed(tess_family *family)
{
    static const char *const sides[] = {
        "lensq=3,0,9 k33",
        "lensk=3,0,40 q7",
        "lensq=3,0,9 lensk=33,5,40",
        "b3 q9 k40",
    };
    static const char *const used[] = {
        "",          "usedq=2,0,5", "usedq=3,0,0", "usedk=1,0,20", "usedq=1,0,7 usedk=3,0,2",
        "usedk=0x3", "usedq=0x3",
    };
    static const char *const options[] = {"",      "causal",           "window=3,3",
                                          "gap=2", "index=i64 causal", "splits=2 sink"};

    for (size_t s = 0; s < COUNT(sides); s++)
        for (size_t u = 0; u < COUNT(used); u++)
            for (size_t o = 0; o < COUNT(options); o++)
                tess_family_add(family, "fwd hq2 hk1 d8 %s %s %s %s %s seed=%zu",
                                types[(s + u + o) % 3], sides[s], used[u],
                                s == 3 && o == 3 ? "" : options[o], o % 2 ? "" : "layout=strided",
                                u + o + 1);
}

static void add_many(tess_family *family)
{
    for (size_t t = 0; t < COUNT(types); t++) {
        tess_family_add(family, "fwd hq1 d4 %s causal lensq=1x700 lensk=3x700", types[t]);
        tess_family_add(family,
                        "fwd hq2 hk1 d8 %s causal lensq=0x100,2x100,0x100,1x100 "
                        "lensk=3x100,2x100,0x100,5x100",
                        types[t]);
        tess_family_add(family, "fwd hq1 d16 %s lensq=1x30,65 lensk=1x30,300 causal", types[t]);
    }
}

static void strata(tess_family *family)
{
    add_packed(family);
    add_mixed(family);
    add_many(family);
}

static bool narrow(tess_line *line)
{
    tess_family_widen_type(line);
    return line->page_size == 0 &&
           (line->lens_q.runs || line->lens_k.runs || line->used_q.runs || line->used_k.runs);
}

int main(int argc, char **argv)
{
    static const tess_family_plan plan = {
        .name = "c500_varlen", .strata = strata, .narrow = narrow, .random = 60};

    return tess_family_main(&plan, argc, argv);
}
