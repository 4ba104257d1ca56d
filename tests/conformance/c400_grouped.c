/* SPDX-License-Identifier: Apache-2.0
 * Query heads that share key heads: every group size, folded into rows or not, with per-head data.
 */
#include "tests/conformance/family.h"

#include <stdio.h>

#define COUNT(list) (sizeof(list) / sizeof *(list))

static const char *const types[] = {"f32", "f16", "bf16"};

static const int heads[][2] = {{1, 1},  {2, 1},  {3, 1}, {4, 1},  {5, 1},  {6, 2},  {7, 1},
                               {8, 2},  {9, 3},  {5, 5}, {12, 2}, {14, 2}, {15, 5}, {16, 1},
                               {17, 1}, {24, 8}, {8, 8}, {33, 1}, {96, 8}, {71, 1}};

static void add_groups(tess_family *family)
{
    static const int rows[] = {1, 2, 5, 17};
    static const char *const masks[] = {"causal", "", "window=20,3", "causal window=9,0"};

    for (size_t h = 0; h < COUNT(heads); h++)
        for (size_t r = 0; r < COUNT(rows); r++)
            tess_family_add(family, "fwd b1 hq%d hk%d q%d k%d d16 %s %s seed=%zu", heads[h][0],
                            heads[h][1], rows[r], h % 2 ? 65 : 97, types[(h + r) % 3],
                            masks[(h + r) % COUNT(masks)], h + r + 1);
}

/* Slopes, sinks and biases of a head must reach that head, wherever its rows were folded to. */
static void add_head_data(tess_family *family)
{
    static const char *const options[] = {"alibi",
                                          "sink",
                                          "bias",
                                          "alibi sink bias softcap=5",
                                          "alibi splits=3",
                                          "sink splits=4",
                                          "bias biasbcast=i",
                                          "bias=f16 biasbcast=bj",
                                          "bias biasbcast=h"};

    for (size_t h = 1; h < COUNT(heads); h += 2)
        for (size_t o = 0; o < COUNT(options); o++)
            tess_family_add(family, "fwd b2 hq%d hk%d q%d k50 d8 %s %s %s seed=%zu", heads[h][0],
                            heads[h][1], o % 3 ? 1 : 6, types[(h + o) % 3], options[o],
                            o % 2 ? "causal" : "", h + o + 1);
}

static void add_layouts(tess_family *family)
{
    static const char *const layouts[] = {"bhsd", "strided", "strided", "strided", "sparse"};
    static const char *const fills[] = {"normal", "nan", "equal", "dominate"};

    for (size_t h = 1; h < COUNT(heads); h += 3)
        for (size_t l = 0; l < COUNT(layouts); l++)
            tess_family_add(family,
                            "fwd b2 hq%d hk%d q%d k40 d20 %s causal layout=%s fill=%s seed=%zu",
                            heads[h][0], heads[h][1], l % 2 ? 3 : 11, types[(h + l) % 3],
                            layouts[l], fills[(h + l) % COUNT(fills)], h + l + 1);
    for (int rows = 1; rows <= 33; rows += 4)
        tess_family_add(family, "fwd b1 hq12 hk4 q%d k64 d32 bf16 fill=equal splits=1", rows);
}

static void strata(tess_family *family)
{
    add_groups(family);
    add_head_data(family);
    add_layouts(family);
}

static bool narrow(tess_line *line)
{
    tess_family_widen_type(line);
    if (line->heads_q == line->heads_kv)
        line->heads_q = line->heads_kv * (int64_t)(2 + line->seed % 6);
    return line->heads_kv > 0;
}

int main(int argc, char **argv)
{
    static const tess_family_plan plan = {
        .name = "c400_grouped", .strata = strata, .narrow = narrow, .random = 60};

    return tess_family_main(&plan, argc, argv);
}
