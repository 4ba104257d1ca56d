/* SPDX-License-Identifier: Apache-2.0
 * Adding a constant to all scores of a row leaves O and moves LSE by it. */
#include "tests/conformance/scene.h"

#include <math.h>
#include <stdio.h>

#define COUNT(list) (sizeof(list) / sizeof *(list))

static const char *const types[] = {"f32", "f16", "bf16"};

/* Scores are multiples of 1/4 below 32, so that fp32 still holds them exactly behind a million. */
static double small_integer(tess_place p, const void *user)
{
    const int64_t seed = *(const int64_t *)user;

    return (double)((p.row * 7 + p.dim * 5 + p.head * 3 + p.sequence + seed) % 5 - 2);
}

static double shifted(tess_place p, const void *user)
{
    const double base = (double)((p.row + 3 * p.dim + p.head) % 9 - 4) / 4;

    return base + *(const double *)user;
}

static tess_scene *make(const tess_subject *subject, const char *type, const char *options,
                        double constant)
{
    const int64_t of_q = 0, of_k = 3;
    tess_scene *s = tess_scene_make(
        subject, "fwd b2 hq4 hk2 q9 k70 d16 %s bias scale=0.25 fill=uniform %s", type, options);

    tess_scene_set(s, TESS_CASE_Q, small_integer, &of_q);
    tess_scene_set(s, TESS_CASE_K, small_integer, &of_k);
    tess_scene_set(s, TESS_CASE_BIAS, shifted, &constant);
    return s;
}

static void compare(const tess_scene *base, const tess_scene *moved, double constant)
{
    const double allowed =
        tess_scene_allows(base, 64, 1, 1) + tess_scene_allows(moved, 64 + fabs(constant), 1, 1);
    double worst = 0;

    if (!(tess_scene_distance(base, moved) <= allowed))
        tess_scene_fail(moved, "a shift by %g moves O by %g, allowed %g", constant,
                        tess_scene_distance(base, moved), allowed);
    for (int64_t b = 0; b < 2; b++)
        for (int64_t i = 0; i < 9; i++)
            for (int64_t h = 0; h < 4; h++) {
                const double before = tess_scene_lse(base, b, i, h);
                const double after = tess_scene_lse(moved, b, i, h);

                if (isinf(before) ? after != before : !isfinite(after))
                    tess_scene_fail(moved, "a shift by %g makes LSE %g of %g", constant, after,
                                    before);
                else if (isfinite(before))
                    worst = fmax(worst, fabs(after - (before + constant)) -
                                            tess_scene_allows_lse(moved, after) -
                                            tess_scene_allows_lse(base, before));
            }
    if (worst > 0)
        tess_scene_fail(moved, "a shift by %g moves LSE by something else; %g too much", constant,
                        worst);
}

static void constants(const tess_subject *subject)
{
    static const double all[] = {0, 50, -50, 1e3, -1e3, 6.6e4, -6.6e4, 1e6, -1e6};
    static const char *const options[] = {
        "", "causal", "splits=3", "window=20,5", "softcap=4", "causal window=0,0"};

    for (size_t t = 0; t < COUNT(types); t++)
        for (size_t o = 0; o < COUNT(options); o++) {
            tess_scene *base = make(subject, types[t], options[o], 0);
            const bool is_run = tess_scene_run(base) && tess_scene_is_right(base);

            for (size_t c = 0; is_run && c < COUNT(all); c++) {
                tess_scene *moved = make(subject, types[t], options[o], all[c]);

                if (tess_scene_run(moved))
                    compare(base, moved, all[c]);
                tess_scene_free(moved);
            }
            tess_scene_free(base);
        }
}

static double climbing(tess_place p, const void *user)
{
    return *(const double *)user + (double)p.dim;
}

static double last_is_one(tess_place p, const void *user)
{
    return (double)(p.row == *(const int64_t *)user);
}

/* Scores that differ by 1 are told apart however large they are. */
static void differences(const tess_subject *subject)
{
    static const int64_t last = 1;

    for (int exponent = 12; exponent <= 20; exponent++)
        for (int sign = -1; sign <= 1; sign += 2) {
            const double base = sign * ldexp(1, exponent);
            tess_scene *s = tess_scene_make(subject, "fwd b1 hq1 q3 k2 d8 f32 bias");

            tess_scene_set_all(s, TESS_CASE_Q, 0);
            tess_scene_set(s, TESS_CASE_V, last_is_one, &last);
            tess_scene_set(s, TESS_CASE_BIAS, climbing, &base);
            if (tess_scene_run(s))
                tess_scene_expect(s, "O", tess_scene_o(s, 0, 2, 0, 0), 1 / (1 + exp(-1)),
                                  tess_scene_allows(s, fabs(base), 1, 1));
            tess_scene_free(s);
        }
}

static const tess_scene_test tests[] = {{"constants", constants}, {"differences", differences}};

int main(int argc, char **argv)
{
    return tess_scene_main(tests, COUNT(tests), argc, argv);
}
