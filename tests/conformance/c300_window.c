/* SPDX-License-Identifier: Apache-2.0
 * Sliding windows: inclusive bounds, none, zero, huge, narrower and wider than tiles and tensors.
 */
#include "tests/conformance/family.h"

#include <stdio.h>

#define COUNT(list) (sizeof(list) / sizeof *(list))

static const char *const types[] = {"f32", "f16", "bf16"};

static const char *const masks[] = {"", "causal", "topleft", "causal topleft"};

/* Every bound against every kind of shape. equal scores make each mean exact, so that one column
 * too many or too few cannot hide in rounding. */
static void add_bounds(tess_family *family)
{
    static const char *const bounds[] = {"0,0",
                                         "0,-1",
                                         "-1,0",
                                         "-1,-1",
                                         "1,0",
                                         "0,1",
                                         "3,0",
                                         "0,3",
                                         "7,7",
                                         "8,0",
                                         "15,16",
                                         "31,-1",
                                         "-1,31",
                                         "32,0",
                                         "47,0",
                                         "48,0",
                                         "49,48",
                                         "63,0",
                                         "64,-1",
                                         "65,2",
                                         "-1,64",
                                         "128,0",
                                         "200,1",
                                         "5,200",
                                         "-1,1000000",
                                         "1000000,-1",
                                         "2147483647,0",
                                         "0,2147483647",
                                         "2147483647,2147483647",
                                         "2147483648,3",
                                         "9223372036854775807,0",
                                         "2,9223372036854775807",
                                         "-5,-7",
                                         "-1,4"};
    static const int shapes[][2] = {{20, 20}, {10, 4}, {5, 70}, {70, 5}, {66, 66}, {1, 130}};

    for (size_t b = 0; b < COUNT(bounds); b++)
        for (size_t s = 0; s < COUNT(shapes); s++)
            tess_family_add(family, "fwd b1 hq2 hk1 q%d k%d d8 %s %s window=%s fill=%s seed=%zu",
                            shapes[s][0], shapes[s][1], types[(b + s) % 3],
                            masks[(b + s) % COUNT(masks)], bounds[b], s % 2 ? "normal" : "equal",
                            b + 1);
}

/* Windows that end at, before and behind the edges of tiles, so that first and last tiles are
 * skipped, masked or full. */
static void add_edges(tess_family *family)
{
    static const int widths[] = {1,  2,  15, 16, 17, 31, 32,  33, 47,
                                 48, 49, 63, 64, 65, 96, 128, 129};

    for (size_t i = 0; i < COUNT(widths); i++) {
        tess_family_add(family, "fwd b1 hq1 q300 d4 f32 causal window=%d,0 fill=equal",
                        widths[i] - 1);
        tess_family_add(family, "fwd b1 hq2 hk1 q100 k230 d8 %s window=%d,%d seed=%zu",
                        types[i % 3], widths[i], widths[COUNT(widths) - 1 - i], i + 1);
        tess_family_add(family, "fwd b1 hq2 hk1 q230 k100 d8 %s window=%d,%d topleft seed=%zu",
                        types[i % 3], widths[i], widths[COUNT(widths) - 1 - i], i + 1);
    }
    for (int splits = 1; splits <= 16; splits += 5)
        tess_family_add(family, "fwd b1 hq4 hk1 q33 k700 d16 f16 window=333,-1 splits=%d", splits);
}

static void add_options(tess_family *family)
{
    static const char *const options[] = {"alibi",
                                          "sink",
                                          "bias",
                                          "softcap=2",
                                          "scale=-0.5",
                                          "splits=2",
                                          "splits=50 sink",
                                          "alibi bias sink softcap=8",
                                          "invariant",
                                          "of=f32",
                                          "layout=strided",
                                          "layout=bhsd",
                                          "usedq=20,3 usedk=51,7",
                                          "usedk=0,33"};
    static const char *const fills[] = {"normal", "holes", "nan", "inf", "descending"};
    static const char *const bounds[] = {"9,4", "0,0", "-1,2", "40,0"};

    for (size_t o = 0; o < COUNT(options); o++)
        for (size_t b = 0; b < COUNT(bounds); b++)
            tess_family_add(family,
                            "fwd b2 hq4 hk2 q41 k%d d16 %s %s window=%s %s fill=%s seed=%zu",
                            b % 2 ? 60 : 99, types[(o + b) % 3], masks[(o + b) % COUNT(masks)],
                            bounds[b], options[o], fills[(o + b) % COUNT(fills)], o + 1);
}

static void strata(tess_family *family)
{
    add_bounds(family);
    add_edges(family);
    add_options(family);
}

static bool narrow(tess_line *line)
{
    tess_family_widen_type(line);
    if (!(line->mask & TESS_MASK_WINDOW)) {
        line->mask |= TESS_MASK_WINDOW;
        line->window_left = (int64_t)(line->seed % 90) - 1;
        line->window_right = (int64_t)(line->seed / 90 % 40) - 1;
    }
    return true;
}

int main(int argc, char **argv)
{
    static const tess_family_plan plan = {
        .name = "c300_window", .strata = strata, .narrow = narrow, .random = 60};

    return tess_family_main(&plan, argc, argv);
}
