/* SPDX-License-Identifier: Apache-2.0
 * Laws in V: linear, affine, within its bounds, ones give one however long the row. */
#include "tests/conformance/scene.h"
#include "tests/kit/shape.h"

#include <math.h>
#include <stdio.h>

#define COUNT(list) (sizeof(list) / sizeof *(list))

static const char *const types[] = {"f32", "f16", "bf16"};

static const char *const problems[] = {
    "b2 hq4 hk2 q9 k70 d16",
    "b2 hq4 hk2 q9 k70 d16 causal splits=3",
    "b1 hq2 hk1 q33 k130 d40 dv24 window=20,9",
    "b2 hq4 hk1 q1 k100 usedk=100,37 page=16 d16",
    "hq2 hk1 lensq=5,0,20 lensk=9,4,60 d16 causal alibi",
    "b1 hq2 hk2 q12 k50 d16 softcap=3 bias",
};

static double value_of(const tess_scene *s, tess_place p)
{
    return tess_scene_get(s, TESS_CASE_V, p);
}

/* V of one scene from those of others. */
typedef struct mixture {
    const tess_scene *first, *second;
    double a, b, c;
} mixture;

static double mix(tess_place p, const void *user)
{
    const mixture *m = user;

    return m->a * value_of(m->first, p) + (m->second ? m->b * value_of(m->second, p) : 0) + m->c;
}

static void expect_mixture(const tess_scene *s, const mixture *m, double allowed)
{
    const tess_line *line = &s->c.line;

    for (int64_t b = 0; b < line->batch; b++)
        for (int64_t i = 0; i < tess_shape_used_rows(line, b); i++)
            for (int64_t h = 0; h < line->heads_q; h++)
                for (int64_t d = 0; d < line->head_dim_v; d++) {
                    const bool is_empty = isinf(tess_scene_lse(s, b, i, h));
                    const double o = m->a * tess_scene_o(m->first, b, i, h, d) +
                                     (m->second ? m->b * tess_scene_o(m->second, b, i, h, d) : 0) +
                                     (is_empty ? 0 : m->c);
                    const double got = tess_scene_o(s, b, i, h, d);

                    if (!(fabs(got - o) <= allowed * (1 + fabs(o)))) {
                        tess_scene_fail(s, "O of %g V + %g W + %g is %g, not %g", m->a, m->b, m->c,
                                        got, o);
                        return;
                    }
                }
}

/* In f32; narrower types round V itself. Twice V is exact in every type. */
static void linear(const tess_subject *subject)
{
    for (size_t p = 0; p < COUNT(problems); p++)
        for (size_t t = 0; t < COUNT(types); t++) {
            tess_scene *v = tess_scene_make(subject, "fwd %s %s", problems[p], types[t]);
            tess_scene *w = tess_scene_make(subject, "fwd %s %s", problems[p], types[t]);
            tess_scene *s = tess_scene_make(subject, "fwd %s %s", problems[p], types[t]);
            const mixture twice = {v, NULL, 2, 0, 0}, both = {v, w, 3, -0.5, 0},
                          moved = {v, NULL, 1, 0, 4};
            const mixture squares = {v, NULL, -1, 0, 0.25};

            tess_scene_set(w, TESS_CASE_V, mix, &squares);
            tess_scene_set(s, TESS_CASE_V, mix, &twice);
            if (tess_scene_run(v) && tess_scene_run(w) && tess_scene_run(s)) {
                expect_mixture(s, &twice, t == 1 ? 0x1p-24 : 0); /* f16 has few small numbers */
                if (t == 0) {
                    tess_scene_set(s, TESS_CASE_V, mix, &both);
                    if (tess_scene_run(s))
                        expect_mixture(s, &both, 1e-5);
                    tess_scene_set(s, TESS_CASE_V, mix, &moved);
                    if (tess_scene_run(s))
                        expect_mixture(s, &moved, 1e-5);
                }
            }
            tess_scene_free(v);
            tess_scene_free(w);
            tess_scene_free(s);
        }
}

/* Smallest and largest V of one column of the head that a query head reads. */
static void bounds_of(const tess_scene *s, int64_t sequence, int64_t head, int64_t dim,
                      double *out_least, double *out_most)
{
    const tess_line *line = &s->c.line;
    const int64_t head_kv = head / (line->heads_q / line->heads_kv);

    *out_least = (double)INFINITY;
    *out_most = -(double)INFINITY;
    for (int64_t j = 0; j < tess_shape_used_columns(line, sequence); j++) {
        const double v = value_of(s, (tess_place){sequence, head_kv, j, dim});

        if (!isfinite(v))
            continue; /* poison in a key that no row sees */
        *out_least = fmin(*out_least, v);
        *out_most = fmax(*out_most, v);
    }
}

/* A weighted mean lies between the least and the most; 16-bit results are rounded back there. */
static void bounded(const tess_subject *subject)
{
    static const char *const fills[] = {"normal", "huge", "spike", "ascending", "dominate"};

    for (size_t p = 0; p < COUNT(problems); p++)
        for (size_t f = 0; f < COUNT(fills); f++) {
            tess_scene *s = tess_scene_make(subject, "fwd %s %s fill=%s", problems[p],
                                            types[(p + f) % 3], fills[f]);
            const double slack = s->c.line.dtype == TESS_F32 ? 0x1p-20 : 0;
            const bool is_run = tess_scene_run(s);

            for (int64_t b = 0; is_run && b < s->c.line.batch; b++)
                for (int64_t h = 0; h < s->c.line.heads_q; h++)
                    for (int64_t d = 0; d < s->c.line.head_dim_v; d++) {
                        double least, most;

                        bounds_of(s, b, h, d, &least, &most);
                        for (int64_t i = 0; i < tess_shape_used_rows(&s->c.line, b); i++) {
                            const double o = tess_scene_o(s, b, i, h, d);

                            if (isinf(tess_scene_lse(s, b, i, h)))
                                continue;
                            if (!(o >= least - slack * fabs(least) &&
                                  o <= most + slack * fabs(most)))
                                tess_scene_fail(s, "O is %.9g; V is %.9g to %.9g", o, least, most);
                        }
                    }
            tess_scene_free(s);
        }
}

/* The weights sum to 1: exactly, once the result is 16 bits wide. */
static void ones(const tess_subject *subject)
{
    static const int columns[] = {1, 2, 47, 48, 49, 1000, 4096, 32768, 131072};
    static const char *const fills[] = {"ones", "zero", "ascending"};

    for (size_t c = 0; c < COUNT(columns); c++)
        for (size_t f = 0; f < COUNT(fills); f++)
            for (int splits = 0; splits <= 7; splits += 7) {
                const size_t t = (c + f) % 3;
                tess_scene *s = tess_scene_make(subject,
                                                "fwd b1 hq2 hk1 q2 k%d d8 dv1 %s fill=%s "
                                                "splits=%d",
                                                columns[c], types[t], fills[f], splits);

                tess_scene_set_all(s, TESS_CASE_V, 1);
                if (tess_scene_run(s))
                    for (int i = 0; i < 2; i++)
                        for (int h = 0; h < 2; h++)
                            tess_scene_expect(s, "O of ones", tess_scene_o(s, 0, i, h, 0), 1,
                                              t == 0 ? 4e-6 : 0);
                tess_scene_free(s);
            }
}

static const tess_scene_test tests[] = {{"linear", linear}, {"bounded", bounded}, {"ones", ones}};

int main(int argc, char **argv)
{
    return tess_scene_main(tests, COUNT(tests), argc, argv);
}
