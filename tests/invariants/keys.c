/* SPDX-License-Identifier: Apache-2.0
 * Laws of the keys as a set: their order does not matter, all of them n times adds ln n to LSE. */
#include "tests/conformance/scene.h"

#include <math.h>
#include <stdio.h>

#define COUNT(list) (sizeof(list) / sizeof *(list))

static const char *const types[] = {"f32", "f16", "bf16"};

/* Keys of one scene taken from another: column j from (j * step + first) % columns. */
typedef struct order {
    const tess_scene *from;
    int which;
    int64_t step, first, columns;
} order;

static double reordered(tess_place p, const void *user)
{
    const order *o = user;

    if (o->which == TESS_CASE_BIAS)
        p.dim = (p.dim * o->step + o->first) % o->columns;
    else
        p.row = (p.row * o->step + o->first) % o->columns;
    return tess_scene_get(o->from, o->which, p);
}

static void take_keys(tess_scene *to, const tess_scene *from, int64_t step, int64_t first)
{
    static const int tensors[] = {TESS_CASE_K, TESS_CASE_V, TESS_CASE_BIAS};

    for (size_t t = 0; t < COUNT(tensors); t++) {
        const order o = {from, tensors[t], step, first, from->c.line.seqlen_k};

        if (to->c.tensor[tensors[t]].is_present)
            tess_scene_set(to, tensors[t], reordered, &o);
    }
}

static void compare(const tess_scene *a, const tess_scene *b, double score, double gained)
{
    const double allowed = 2 * tess_scene_allows(a, score, 3.5, 3.5);
    double worst = 0;

    if (!(tess_scene_distance(a, b) <= allowed))
        tess_scene_fail(b, "O differs by %g, allowed %g", tess_scene_distance(a, b), allowed);
    for (int64_t s = 0; s < a->c.line.batch; s++)
        for (int64_t i = 0; i < a->c.line.seqlen_q; i++)
            for (int64_t h = 0; h < a->c.line.heads_q; h++) {
                const double la = tess_scene_lse(a, s, i, h), lb = tess_scene_lse(b, s, i, h);

                if (isinf(la) && la == lb)
                    continue;
                worst = fmax(worst, fabs(lb - la - gained) - 2 * tess_scene_allows_lse(a, score));
            }
    if (!(worst <= 0))
        tess_scene_fail(b, "LSE differs by %g too much", worst);
}

static const char *const options[] = {"",          "scale=-0.5", "softcap=2", "bias fill=holes",
                                      "sink",      "splits=3",   "fill=huge", "fill=ascending",
                                      "fill=spike"};

static void permutation(const tess_subject *subject)
{
    static const int columns[] = {2, 48, 49, 97, 131};

    for (size_t o = 0; o < COUNT(options); o++)
        for (size_t c = 0; c < COUNT(columns); c++) {
            tess_scene *a = tess_scene_make(subject, "fwd b2 hq4 hk2 q7 k%d d16 %s %s", columns[c],
                                            types[(o + c) % 3], options[o]);
            tess_scene *b = tess_scene_make(subject, "fwd b2 hq4 hk2 q7 k%d d16 %s %s", columns[c],
                                            types[(o + c) % 3], options[o]);

            /* 25 shares no factor with any of the lengths. */
            take_keys(b, a, 25, 11);
            if (tess_scene_run(a) && tess_scene_run(b))
                compare(a, b, options[o][0] == 'f' ? 1e6 : 40, 0);
            tess_scene_free(a);
            tess_scene_free(b);
        }
}

static void repetition(const tess_subject *subject)
{
    static const int times[] = {2, 3, 16, 50};

    for (size_t o = 0; o < COUNT(options); o++)
        for (size_t n = 0; n < COUNT(times); n++) {
            const char *type = types[(o + n) % 3];
            tess_scene *a, *b;

            if (options[o][0] == 's' && options[o][1] == 'i')
                continue; /* a sink is not repeated */
            a = tess_scene_make(subject, "fwd b1 hq2 hk1 q7 k31 d16 %s %s", type, options[o]);
            b = tess_scene_make(subject, "fwd b1 hq2 hk1 q7 k%d d16 %s %s", 31 * times[n], type,
                                options[o]);
            tess_scene_copy(a, 0, b, 0);
            take_keys(b, a, 1, 0);
            if (tess_scene_run(a) && tess_scene_run(b))
                compare(a, b, options[o][0] == 'f' ? 1e6 : 40, log(times[n]));
            tess_scene_free(a);
            tess_scene_free(b);
        }
}

static const tess_scene_test tests[] = {{"permutation", permutation}, {"repetition", repetition}};

int main(int argc, char **argv)
{
    return tess_scene_main(tests, COUNT(tests), argc, argv);
}
