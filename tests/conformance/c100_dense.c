/* SPDX-License-Identifier: Apache-2.0
 * Sequences of one length without masks: lengths, head dims, types, layouts, fills, score options.
 */
#include "tests/conformance/family.h"
#include "tests/kit/fill.h"

#include <stdio.h>

#define COUNT(list) (sizeof(list) / sizeof *(list))

static const char *const types[] = {"f32", "f16", "bf16"};

/* Around the row and column tiles of the kernels, in between, and primes. */
static const int lengths[] = {0,  1,  2,  3,  4,   5,   7,   8,   9,   11,  13,  15,  16,  17, 23,
                              24, 25, 31, 32, 33,  41,  47,  48,  49,  53,  63,  64,  65,  71, 95,
                              96, 97, 98, 99, 127, 128, 129, 143, 144, 145, 191, 192, 193, 257};

static void add_lengths(tess_family *family)
{
    static const int few[] = {1, 5, 17, 49, 97};

    for (size_t i = 0; i < COUNT(lengths); i++)
        for (size_t j = 0; j < COUNT(few); j++) {
            tess_family_add(family, "fwd b1 hq1 q%d k%d d8 f32 seed=%zu", few[j], lengths[i], i);
            tess_family_add(family, "fwd b2 hq2 hk1 q%d k%d d16 %s seed=%zu", lengths[i], few[j],
                            types[(i + j) % 3], j);
        }
}

static void add_dims(tess_family *family)
{
    static const int dims[] = {1,   2,   3,   4,   5,   6,   7,   8,   9,   11,  12,  13,
                               15,  16,  17,  20,  23,  24,  25,  31,  32,  33,  40,  47,
                               48,  63,  64,  65,  72,  80,  88,  95,  96,  100, 127, 128,
                               129, 160, 191, 192, 200, 255, 256, 257, 511, 512};
    static const int pairs[][2] = {{64, 128}, {128, 64}, {192, 128}, {40, 72}, {1, 256},
                                   {256, 1},  {3, 5},    {65, 7},    {512, 9}, {9, 512}};

    for (size_t i = 0; i < COUNT(dims); i++)
        for (size_t t = 0; t < COUNT(types); t++)
            tess_family_add(family, "fwd b1 hq2 hk1 q%d k%d d%d %s seed=%zu", (i + t) % 3 ? 3 : 13,
                            i % 2 ? 50 : 67, dims[i], types[t], i + t);
    for (size_t i = 0; i < COUNT(pairs); i++)
        for (size_t t = 0; t < COUNT(types); t++)
            tess_family_add(family, "fwd b2 hq4 hk2 q9 k65 d%d dv%d %s", pairs[i][0], pairs[i][1],
                            types[t]);
    /* Only one of the two is odd, and the rows of O are narrower than those of V. */
    for (int d = 1; d <= 34; d++)
        tess_family_add(family, "fwd b1 hq1 q9 k50 d%d dv%d f16 of=f32", d, 35 - d);
}

static void add_layouts(tess_family *family)
{
    static const char *const shapes[] = {"b2 hq4 hk2 q35 k50 d40", "b3 hq2 hk2 q5 k97 d64 dv72",
                                         "b1 hq1 q65 k33 d7", "b4 hq3 hk1 q1 k130 d128"};

    for (size_t s = 0; s < COUNT(shapes); s++)
        for (size_t t = 0; t < COUNT(types); t++) {
            tess_family_add(family, "fwd %s %s layout=bhsd", shapes[s], types[t]);
            for (int seed = 1; seed <= 6; seed++)
                tess_family_add(family, "fwd %s %s layout=strided seed=%d", shapes[s], types[t],
                                seed);
        }
    for (int seed = 1; seed <= 4; seed++)
        tess_family_add(family, "fwd b3 hq2 hk1 q9 k50 d24 %s layout=sparse seed=%d",
                        types[seed % 3], seed);
    /* Axes of one element, whose strides mean nothing. */
    for (int mask = 0; mask < 32; mask++)
        tess_family_add(family, "fwd b%d hq%d q%d k%d d%d f32 layout=strided seed=%d",
                        mask & 1 ? 3 : 1, mask & 2 ? 3 : 1, mask & 4 ? 3 : 1, mask & 8 ? 3 : 1,
                        mask & 16 ? 3 : 1, mask + 1);
}

static void add_fills(tess_family *family)
{
    static const int columns[] = {1, 64, 130};

    for (int kind = 0; kind < TESS_FILL_COUNT; kind++)
        for (size_t t = 0; t < COUNT(types); t++)
            for (size_t c = 0; c < COUNT(columns); c++) {
                const char *fill = tess_fill_name(kind);

                tess_family_add(family, "fwd b1 hq2 hk1 q17 k%d d32 %s fill=%s seed=%zu",
                                columns[c], types[t], fill, c + 1);
                tess_family_add(family, "fwd b1 hq2 hk2 q3 k%d d20 %s bias fill=%s seed=%zu",
                                columns[c], types[t], fill, c + 7);
            }
    for (size_t t = 0; t < COUNT(types); t++) {
        tess_family_add(family, "fwd b1 hq1 q2 k2048 d32 %s fill=ones", types[t]);
        tess_family_add(family, "fwd b1 hq1 q2 k2048 d32 %s fill=ascending", types[t]);
        tess_family_add(family, "fwd b1 hq1 q2 k2048 d32 %s fill=descending", types[t]);
        tess_family_add(family, "fwd b1 hq1 q2 k2048 d32 %s fill=equal splits=1", types[t]);
    }
}

static void add_scores(tess_family *family)
{
    static const char *const options[] = {"scale=0",
                                          "scale=-0.125",
                                          "scale=1",
                                          "scale=-1",
                                          "scale=1e-30",
                                          "scale=1e-6",
                                          "scale=1e6",
                                          "scale=-1e30",
                                          "scale=-1e-38",
                                          "softcap=0.5",
                                          "softcap=2",
                                          "softcap=30",
                                          "softcap=5000",
                                          "softcap=1e-30",
                                          "alibi",
                                          "sink",
                                          "bias",
                                          "bias=f16",
                                          "bias=bf16",
                                          "alibi sink",
                                          "alibi bias",
                                          "sink bias",
                                          "sink softcap=2",
                                          "bias softcap=2 scale=-0.5",
                                          "alibi softcap=20 scale=0.3",
                                          "alibi sink bias softcap=10 scale=0.25"};
    static const char *const fills[] = {"normal", "huge", "holes", "grid"};

    for (size_t o = 0; o < COUNT(options); o++)
        for (size_t f = 0; f < COUNT(fills); f++)
            tess_family_add(family, "fwd b2 hq4 hk2 q%d k%d d24 %s %s fill=%s seed=%zu",
                            f % 2 ? 37 : 3, f < 2 ? 51 : 64, types[(o + f) % 3], options[o],
                            fills[f], o + 1);
    for (int mask = 0; mask < 16; mask++) {
        char axes[24];
        int used = mask ? snprintf(axes, sizeof axes, "biasbcast=") : 0;

        for (int axis = 0; axis < 4; axis++)
            if (mask & 1 << axis)
                axes[used++] = "bhij"[axis];
        axes[used] = '\0';
        tess_family_add(family, "fwd b2 hq4 hk2 q19 k50 d16 f32 bias %s layout=bhsd", axes);
        tess_family_add(family, "fwd b2 hq4 hk2 q5 k70 d16 bf16 bias=f16 %s layout=strided", axes);
    }
}

/* Nothing of one kind or of all kinds. */
static void add_empty(tess_family *family)
{
    static const char *const shapes[] = {
        "b0 hq2 hk1 q3 k5 d8", "b2 hq0 hk0 q3 k5 d8", "b2 hq2 hk1 q0 k5 d8", "b2 hq2 hk1 q3 k0 d8",
        "b0 hq0 hk0 q0 k0 d1", "b3 hq1 hk1 q0 k9 d4", "b2 hq4 hk2 q5 k0 d64"};
    static const char *const options[] = {"",         "sink",           "alibi bias",
                                          "splits=4", "layout=strided", "softcap=3"};

    for (size_t s = 0; s < COUNT(shapes); s++)
        for (size_t o = 0; o < COUNT(options); o++)
            tess_family_add(family, "fwd %s %s %s", shapes[s], types[(s + o) % 3], options[o]);
}

static void add_types(tess_family *family)
{
    static const char *const both[] = {"f16 of=f32", "bf16 of=f32", "f32 of=f32", "f16 of=f16",
                                       "bf16 of=bf16"};
    static const char *const options[] = {"", "deterministic", "invariant", "spread",
                                          "deterministic invariant"};

    for (size_t t = 0; t < COUNT(both); t++)
        for (size_t o = 0; o < COUNT(options); o++)
            tess_family_add(family, "fwd b2 hq2 hk1 q40 k70 d%d %s %s", o % 2 ? 64 : 33, both[t],
                            options[o]);
    tess_family_add(family, "fwd b1 hq2 q40 k70 d64 f32 tf32");
}

static void strata(tess_family *family)
{
    add_lengths(family);
    add_dims(family);
    add_layouts(family);
    add_fills(family);
    add_scores(family);
    add_empty(family);
    add_types(family);
}

static bool narrow(tess_line *line)
{
    tess_family_widen_type(line);
    tess_family_make_dense(line);
    line->mask = 0;
    line->window_left = line->window_right = 0;
    return true;
}

int main(int argc, char **argv)
{
    static const tess_family_plan plan = {
        .name = "c100_dense", .strata = strata, .narrow = narrow, .random = 60};

    return tess_family_main(&plan, argc, argv);
}
