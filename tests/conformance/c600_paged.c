/* SPDX-License-Identifier: Apache-2.0
 * Keys in pages: any page size, any order, last pages partly used, the rest of the pool poison. */
#include "tests/conformance/family.h"

#include <stdio.h>

#define COUNT(list) (sizeof(list) / sizeof *(list))

static const char *const types[] = {"f32", "f16", "bf16"};

static const int pages[] = {1, 2, 3, 4, 7, 16, 17, 48, 64, 128, 256};

static void add_pages(tess_family *family)
{
    static const char *const lengths[] = {"b1 q1 k13 usedk=13",
                                          "b2 q3 k65 usedk=64,65",
                                          "b3 q1 k130 usedk=1,0,130",
                                          "b2 q17 k97 usedk=48,97",
                                          "b4 q1 k70 usedk=16,17,0,70",
                                          "b2 q5 k48",
                                          "b3 lensq=1,0,9 k60 usedk=60,3,12"};
    static const char *const masks[] = {"causal", "", "window=7,0", "causal window=40,0"};

    for (size_t p = 0; p < COUNT(pages); p++)
        for (size_t l = 0; l < COUNT(lengths); l++)
            tess_family_add(family, "fwd %s hq4 hk2 d16 %s page=%d %s seed=%zu", lengths[l],
                            types[(p + l) % 3], pages[p], masks[(p + l) % COUNT(masks)], p + l + 1);
}

static void add_options(tess_family *family)
{
    static const char *const options[] = {"splits=2",
                                          "splits=5 causal",
                                          "splits=64",
                                          "layout=strided",
                                          "layout=bhsd",
                                          "alibi causal",
                                          "sink",
                                          "bias",
                                          "softcap=2",
                                          "of=f32",
                                          "usedq=1,0,2",
                                          "index=i64",
                                          "invariant",
                                          "layout=strided causal splits=3",
                                          "layout=strided index=i64 sink",
                                          "alibi sink bias softcap=5 causal splits=2"};
    static const char *const fills[] = {"normal", "nan", "inf", "equal", "dominate"};

    for (size_t o = 0; o < COUNT(options); o++)
        for (size_t p = o % 2; p < COUNT(pages); p += 2)
            tess_family_add(
                family, "fwd b3 hq4 hk1 q%d k99 usedk=99,0,50 d12 %s page=%d %s fill=%s seed=%zu",
                o % 3 ? 2 : 19, types[(o + p) % 3], pages[p], options[o],
                fills[(o + p) % COUNT(fills)], o + p + 1);
    /* Dims that differ, so that the pools of K and V do. */
    for (size_t p = 0; p < COUNT(pages); p++)
        tess_family_add(family, "fwd b2 hq2 hk2 q4 k70 usedk=70,33 d40 dv72 f16 page=%d causal",
                        pages[p]);
}

static void strata(tess_family *family)
{
    add_pages(family);
    add_options(family);
}

static bool narrow(tess_line *line)
{
    tess_family_widen_type(line);
    return line->page_size > 0;
}

int main(int argc, char **argv)
{
    static const tess_family_plan plan = {
        .name = "c600_paged", .strata = strata, .narrow = narrow, .random = 60};

    return tess_family_main(&plan, argc, argv);
}
