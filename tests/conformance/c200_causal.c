/* SPDX-License-Identifier: Apache-2.0
 * Causal masks: both alignments, more rows than columns and the reverse, rows that see nothing. */
#include "tests/conformance/family.h"

#include <stdio.h>

#define COUNT(list) (sizeof(list) / sizeof *(list))

static const char *const types[] = {"f32", "f16", "bf16"};

static void add_lengths(tess_family *family)
{
    static const int lengths[] = {1,  2,  7,  8,  9,  16, 17, 23, 24, 25,
                                  31, 47, 48, 49, 63, 64, 65, 96, 97, 129};

    /* The diagonal through and beside the corners of tiles. */
    for (size_t i = 0; i < COUNT(lengths); i++)
        for (size_t j = i % 2; j < COUNT(lengths); j += 2)
            tess_family_add(family, "fwd b1 hq1 q%d k%d d8 %s causal%s fill=%s seed=%zu",
                            lengths[i], lengths[j], types[(i + j) % 3],
                            (i + j) % 5 == 0 ? " topleft" : "", j % 4 ? "normal" : "equal",
                            i + j + 1);
    /* Every length of a self-attention, and the last row alone. */
    for (int n = 0; n <= 70; n++) {
        tess_family_add(family, "fwd b1 hq2 hk1 q%d d16 %s causal", n, types[n % 3]);
        tess_family_add(family, "fwd b1 hq3 hk1 q1 k%d d16 f32 causal", n);
    }
    for (int n = 127; n <= 129; n++)
        tess_family_add(family, "fwd b2 hq6 hk2 q%d d64 f16 causal", n);
    for (int n = 1000; n <= 1030; n += 10)
        tess_family_add(family, "fwd b1 hq1 q%d d4 f32 causal seed=%d", n, n);
}

/* The mask meets everything else that decides what a row sees. */
static void add_options(tess_family *family)
{
    static const char *const options[] = {"",
                                          "alibi",
                                          "sink",
                                          "bias",
                                          "softcap=2",
                                          "softcap=2 bias",
                                          "scale=-1",
                                          "scale=0",
                                          "splits=3",
                                          "splits=64",
                                          "sink splits=2",
                                          "alibi bias sink softcap=8 splits=2",
                                          "invariant",
                                          "of=f32",
                                          "biasbcast=i bias",
                                          "biasbcast=hj bias=f16"};
    static const char *const fills[] = {"normal", "holes", "dominate", "nan", "inf", "ascending"};
    static const int shapes[][2] = {{50, 50}, {6, 67}, {67, 6}, {33, 97}, {3, 130}};

    for (size_t o = 0; o < COUNT(options); o++)
        for (size_t s = 0; s < COUNT(shapes); s++)
            for (int top = 0; top < 2; top++)
                tess_family_add(
                    family, "fwd b2 hq4 hk2 q%d k%d d16 %s causal %s %s fill=%s seed=%zu",
                    shapes[s][0], shapes[s][1], types[(o + s) % 3], top ? "topleft" : "",
                    options[o], fills[(o + s + (size_t)top) % COUNT(fills)], o + s + 1);
    for (int seed = 1; seed <= 12; seed++)
        tess_family_add(family, "fwd b2 hq4 hk2 q35 k%d d24 %s causal layout=strided seed=%d",
                        20 + 5 * seed, types[seed % 3], seed);
    tess_family_add(family, "fwd b2 hq2 hk1 q9 k30 d16 f16 causal layout=sparse");
}

/* Used lengths move the diagonal of each sequence. */
static void add_used(tess_family *family)
{
    static const char *const used[] = {
        "usedk=1,30",          "usedk=0,50", "usedq=3,0", "usedq=7,20", "usedq=20,1 usedk=5,49",
        "usedq=0,20 usedk=0,0"};

    for (size_t u = 0; u < COUNT(used); u++)
        for (size_t t = 0; t < COUNT(types); t++)
            for (int top = 0; top < 2; top++)
                tess_family_add(family, "fwd b2 hq2 hk1 q20 k50 d8 %s causal %s %s %s", types[t],
                                top ? "topleft" : "", used[u], t == 1 ? "index=i64" : "");
}

static void strata(tess_family *family)
{
    add_lengths(family);
    add_options(family);
    add_used(family);
}

static bool narrow(tess_line *line)
{
    tess_family_widen_type(line);
    line->mask |= TESS_MASK_CAUSAL;
    return true;
}

int main(int argc, char **argv)
{
    static const tess_family_plan plan = {
        .name = "c200_causal", .strata = strata, .narrow = narrow, .random = 60};

    return tess_family_main(&plan, argc, argv);
}
