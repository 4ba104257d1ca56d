/* SPDX-License-Identifier: Apache-2.0
 * Laws of gradients: sums, inner products, linearity, and the slope of the forward pass itself. */
#include "tests/conformance/scene.h"
#include "tests/kit/shape.h"

#include <math.h>
#include <stdio.h>

#define COUNT(list) (sizeof(list) / sizeof *(list))

/* In f32: what laws say about sums, narrow types would hide. */
static const char *const problems[] = {
    "b2 hq4 hk2 q33 k70 d16",
    "b2 hq4 hk2 q33 k70 d16 causal",
    "b1 hq6 hk1 q100 k130 d24 dv40 window=20,9",
    "b1 hq3 hk3 q50 k20 d8 causal scale=-0.5",
    "hq4 hk2 lensq=9,0,40 lensk=30,4,20 d16 causal",
    "b3 hq2 hk1 q20 k50 usedq=20,0,7 usedk=50,13,0 d16",
    "b1 hq2 hk1 q5 k700 d8 causal",
};

static double get(const tess_scene *s, int which, int64_t b, int64_t row, int64_t h, int64_t d)
{
    return tess_scene_get(s, which, (tess_place){b, h, row, d});
}

static tess_scene *make(const tess_subject *subject, size_t problem, bool from_lse)
{
    return tess_scene_make_backward(subject, from_lse, "bwd %s f32 seed=%zu", problems[problem],
                                    problem + 1);
}

/* ---- Sums over columns ----------------------------------------------------------------------- */

/* Weights of a row sum to 1: the sum of dV over columns is that of dO over rows that see any. The
 * gradients of its scores sum to 0 against dLSE = 0: so does dK wherever all Q are the same. */
static void expect_sums(const tess_scene *s, int64_t sequence, int64_t head_kv, bool q_is_one)
{
    const tess_line *line = &s->c.line;
    const int64_t group = line->heads_q / line->heads_kv;

    for (int64_t d = 0; d < line->head_dim_v; d++) {
        double dv = 0, d_o = 0, size = 0;

        for (int64_t j = 0; j < tess_shape_used_columns(line, sequence); j++)
            dv += get(s, TESS_CASE_DV, sequence, j, head_kv, d);
        for (int64_t i = 0; i < tess_shape_used_rows(line, sequence); i++)
            for (int64_t h = head_kv * group; h < (head_kv + 1) * group; h++) {
                const double x = get(s, TESS_CASE_D_O, sequence, i, h, d);

                if (isinf(tess_scene_lse(s, sequence, i, h)))
                    continue;
                d_o += x;
                size += fabs(x);
            }
        tess_scene_expect(s, "sum of dV", dv, d_o, 2e-6 * size + 1e-30);
    }
    for (int64_t d = 0; q_is_one && d < line->head_dim; d++) {
        double dk = 0, size = 0;

        for (int64_t j = 0; j < tess_shape_used_columns(line, sequence); j++) {
            const double x = get(s, TESS_CASE_DK, sequence, j, head_kv, d);

            dk += x;
            size += fabs(x);
        }
        tess_scene_expect(s, "sum of dK", dk, 0, 1e-5 * size + 1e-30);
    }
}

static void sums(const tess_subject *subject)
{
    for (size_t p = 0; p < COUNT(problems); p++)
        for (int q_is_one = 0; q_is_one < 2; q_is_one++) {
            tess_scene *s = make(subject, p, false);

            if (q_is_one)
                tess_scene_set_all(s, TESS_CASE_Q, 1);
            if (tess_scene_run(s))
                for (int64_t b = 0; b < s->c.line.batch; b++)
                    for (int64_t h = 0; h < s->c.line.heads_kv; h++)
                        expect_sums(s, b, h, true);
            tess_scene_free(s);
        }
}

/* ---- Inner products -------------------------------------------------------------------------- */

static double inner(const tess_scene *s, int a, int b, bool is_q, double *out_size)
{
    const tess_line *line = &s->c.line;
    double sum = 0;

    for (int64_t n = 0; n < line->batch; n++) {
        const int64_t rows =
            is_q ? tess_shape_used_rows(line, n) : tess_shape_used_columns(line, n);

        for (int64_t i = 0; i < rows; i++)
            for (int64_t h = 0; h < s->c.tensor[a].layout.heads; h++)
                for (int64_t d = 0; d < line->head_dim; d++) {
                    const double gradient = get(s, a, n, i, h, d);

                    if (gradient == 0)
                        continue; /* of a key that no row sees, which holds poison */
                    sum += gradient * get(s, b, n, i, h, d);
                    *out_size += fabs(gradient * get(s, b, n, i, h, d));
                }
    }
    return sum;
}

/* Scores are bilinear, so that Q and K share out the same work: <dQ, Q> = <dK, K>. */
static void products(const tess_subject *subject)
{
    static const char *const options[] = {"", "softcap=2", "alibi", "sink", "bias"};

    for (size_t p = 0; p < COUNT(problems); p++)
        for (size_t o = 0; o < COUNT(options); o++) {
            tess_scene *s = tess_scene_make_backward(subject, true, "bwd %s f32 %s seed=%zu",
                                                     problems[p], options[o], p + o + 1);
            double size = 0, of_q, of_k;

            if (tess_scene_run(s)) {
                of_q = inner(s, TESS_CASE_DQ, TESS_CASE_Q, true, &size);
                of_k = inner(s, TESS_CASE_DK, TESS_CASE_K, false, &size);
                tess_scene_expect(s, "<dQ, Q> - <dK, K>", of_q - of_k, 0, 1e-6 * size + 1e-30);
            }
            tess_scene_free(s);
        }
}

/* ---- Linear in dO and dLSE ------------------------------------------------------------------- */

/* An upstream gradient of one scene from those of others. */
typedef struct mixture {
    const tess_scene *first, *second;
    int which;
    double a, b;
} mixture;

static double mix(tess_place p, const void *user)
{
    const mixture *m = user;

    return m->a * tess_scene_get(m->first, m->which, p) +
           (m->second ? m->b * tess_scene_get(m->second, m->which, p) : 0);
}

static void set_mixture(tess_scene *s, const tess_scene *a, const tess_scene *b, double x, double y)
{
    const mixture d_o = {a, b, TESS_CASE_D_O, x, y}, d_lse = {a, b, TESS_CASE_D_LSE, x, y};

    tess_scene_set(s, TESS_CASE_D_O, mix, &d_o);
    tess_scene_set(s, TESS_CASE_D_LSE, mix, &d_lse);
}

static void expect_mixture(const tess_scene *s, const mixture *m, double allowed)
{
    const tess_line *line = &s->c.line;

    for (int which = TESS_CASE_DQ; which <= TESS_CASE_DV; which++)
        for (int64_t n = 0; n < line->batch; n++) {
            const tess_layout *l = &s->c.tensor[which].layout;
            const int64_t rows = which == TESS_CASE_DQ ? tess_shape_used_rows(line, n)
                                                       : tess_shape_used_columns(line, n);

            for (int64_t i = 0; i < rows; i++)
                for (int64_t h = 0; h < l->heads; h++)
                    for (int64_t d = 0; d < l->head_dim; d++) {
                        const double expected =
                            m->a * get(m->first, which, n, i, h, d) +
                            (m->second ? m->b * get(m->second, which, n, i, h, d) : 0);

                        tess_scene_expect(s, s->c.tensor[which].name,
                                          get(s, which, n, i, h, d) + 0.0, expected + 0.0, allowed);
                    }
        }
}

static void linear(const tess_subject *subject)
{
    for (size_t p = 0; p < COUNT(problems); p++) {
        tess_scene *first = make(subject, p, true), *second = make(subject, p, true);
        tess_scene *s = make(subject, p, true);
        const mixture twice = {first, NULL, 0, 2, 0}, both = {first, second, 0, 1, -0.5};

        /* Another upstream gradient: the first one's, read backwards, is as good as any. */
        set_mixture(second, first, NULL, -1, 0);
        tess_scene_put(second, TESS_CASE_D_O, (tess_place){0, 0, 0, 0}, 3);
        set_mixture(s, first, NULL, 2, 0);
        if (tess_scene_run(first) && tess_scene_run(second) && tess_scene_run(s)) {
            expect_mixture(s, &twice, 0); /* a factor of 2 rounds nothing */
            set_mixture(s, first, second, 1, -0.5);
            if (tess_scene_run(s))
                expect_mixture(s, &both, 3e-5);
        }
        tess_scene_free(first);
        tess_scene_free(second);
        tess_scene_free(s);
    }
}

/* ---- The same bits --------------------------------------------------------------------------- */

/* A sequence alone and in a batch, packed or not. */
static void batch(const tess_subject *subject)
{
    static const char *const options[] = {"", "causal", "alibi causal", "window=9,3 sink",
                                          "softcap=3"};
    static const int rows[] = {9, 40, 130}, columns[] = {30, 600, 130};

    for (size_t o = 0; o < COUNT(options); o++)
        for (int packed = 0; packed < 2; packed++) {
            tess_scene *all =
                tess_scene_make_backward(subject, true, "bwd hq4 hk2 %s d16 %s %s invariant",
                                         packed ? "lensq=9,40,130 lensk=30,600,130"
                                                : "b3 q130 k600 usedq=9,40,130 usedk=30,600,130",
                                         o % 2 ? "bf16" : "f32", options[o]);
            const bool is_run = tess_scene_run(all);

            for (int b = 0; is_run && b < 3; b++) {
                tess_scene *one = tess_scene_make_backward(
                    subject, true, "bwd b1 hq4 hk2 q%d k%d d16 %s %s invariant", rows[b],
                    columns[b], o % 2 ? "bf16" : "f32", options[o]);

                tess_scene_copy(all, b, one, 0);
                if (tess_scene_run(one))
                    tess_scene_same_gradients(all, b, one, 0, "in a batch and alone");
                tess_scene_free(one);
            }
            tess_scene_free(all);
        }
}

/* ---- The slope of the forward pass ----------------------------------------------------------- */

/* The loss sum(O * dO) + sum(LSE * dLSE). */
static double loss(const tess_scene *s)
{
    const tess_line *line = &s->c.line;
    double sum = 0;

    for (int64_t b = 0; b < line->batch; b++)
        for (int64_t i = 0; i < tess_shape_used_rows(line, b); i++)
            for (int64_t h = 0; h < line->heads_q; h++) {
                if (isinf(tess_scene_lse(s, b, i, h)))
                    continue;
                for (int64_t d = 0; d < line->head_dim_v; d++)
                    sum += tess_scene_o(s, b, i, h, d) * get(s, TESS_CASE_D_O, b, i, h, d);
                sum += tess_scene_lse(s, b, i, h) * get(s, TESS_CASE_D_LSE, b, i, h, 0);
            }
    return sum;
}

static double loss_at(tess_scene *s, int which, tess_place place, double value)
{
    tess_scene_put(s, which, place, value);
    return tess_scene_run(s) ? loss(s) : (double)NAN;
}

/* The slope of the loss by one element, in f32: three digits at best. */
static void expect_slope(tess_scene *s, int input, int output, tess_place place)
{
    const double step = 0x1p-6, value = tess_scene_get(s, input, place);
    double expected, got;

    if (!isfinite(value))
        return;
    if (!tess_scene_run(s))
        return;
    got = tess_scene_get(s, output, place);
    expected = (loss_at(s, input, place, value + step) - loss_at(s, input, place, value - step)) /
               (2 * step);
    tess_scene_put(s, input, place, value);
    tess_scene_expect(s, s->c.tensor[output].name, got, expected, 5e-3 + 5e-3 * fabs(expected));
}

static void slopes(const tess_subject *subject)
{
    static const char *const lines[] = {
        "b1 hq2 hk1 q3 k4 d3 causal",         "b2 hq2 q3 k5 d2 softcap=1.5 scale=0.5",
        "b1 hq2 q4 k3 d2 alibi causal sink",  "b1 hq2 hk1 q3 k4 d2 bias window=2,0",
        "hq2 hk1 lensq=3,0,2 lensk=4,2,1 d2",
    };
    static const int pairs[][2] = {
        {TESS_CASE_Q, TESS_CASE_DQ},           {TESS_CASE_K, TESS_CASE_DK},
        {TESS_CASE_V, TESS_CASE_DV},           {TESS_CASE_BIAS, TESS_CASE_DBIAS},
        {TESS_CASE_SLOPES, TESS_CASE_DSLOPES}, {TESS_CASE_SINK, TESS_CASE_DSINK}};

    for (size_t n = 0; n < COUNT(lines); n++) {
        tess_scene *s = tess_scene_make_backward(subject, true, "bwd %s f32 fill=grid", lines[n]);

        for (size_t p = 0; p < COUNT(pairs); p++) {
            const tess_layout *l = &s->c.tensor[pairs[p][0]].layout;

            if (!s->c.tensor[pairs[p][0]].is_present)
                continue;
            /* The first element and the last of the first sequence, of each head. */
            for (int64_t h = 0; h < l->heads; h++) {
                expect_slope(s, pairs[p][0], pairs[p][1], (tess_place){0, h, 0, 0});
                expect_slope(s, pairs[p][0], pairs[p][1],
                             (tess_place){0, h, l->seqlen > 2 ? 2 : 0, l->head_dim - 1});
            }
        }
        tess_scene_free(s);
    }
}

static const tess_scene_test tests[] = {{"sums", sums},
                                        {"products", products},
                                        {"linear", linear},
                                        {"batch", batch},
                                        {"slopes", slopes}};

int main(int argc, char **argv)
{
    return tess_scene_main(tests, COUNT(tests), argc, argv);
}
