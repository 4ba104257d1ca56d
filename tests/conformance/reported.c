/* SPDX-License-Identifier: Apache-2.0
 * Faults that users of other libraries reported, with the exact results they should have had. */
#include "tests/conformance/scene.h"

#include <float.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

/* Each test is named after the first public issue or pull request that its input comes from. Masks
 * that those wrote as functions are bias tensors of -infinity here. Inputs that a problem line can
 * say are in tests/data/reported.problems. */

#define COUNT(list) (sizeof(list) / sizeof *(list))

static const char *const types[] = {"f32", "f16", "bf16"};

/* Value of an element: a factor times its row or column. */
static double ramp(tess_place place, const void *user)
{
    return (double)place.row * *(const double *)user;
}

/* Puts a value in dim 0 and 0 elsewhere, so that scores are that value times the other's. */
static double first_dim(tess_place place, const void *user)
{
    return place.dim == 0 ? *(const double *)user : 0;
}

/* dim 0 holds the row's entry of a list. */
static double listed(tess_place place, const void *user)
{
    return place.dim == 0 ? ((const double *)user)[place.row] : 0;
}

static double entry(tess_place place, const void *user)
{
    return ((const double *)user)[place.row];
}

static void make_uniform(tess_scene *s)
{
    tess_scene_set_all(s, TESS_CASE_Q, 0);
}

/* O of one element and LSE of its row. */
static void expect_row(const tess_scene *s, int64_t row, int64_t head, double o, double lse)
{
    char what[64];
    const double allowed = tess_scene_allows(s, 0, fabs(o), o);

    snprintf(what, sizeof what, "O of row %d, head %d", (int)row, (int)head);
    tess_scene_expect(s, what, tess_scene_o(s, 0, row, head, 0), o, o == 0 ? 0 : allowed);
    snprintf(what, sizeof what, "LSE of row %d, head %d", (int)row, (int)head);
    tess_scene_expect(s, what, tess_scene_lse(s, 0, row, head), lse,
                      tess_scene_allows_lse(s, isfinite(lse) ? lse : 0));
}

/* ---- Empty sets ------------------------------------------------------------------------------ */

static double block_of_four(tess_place place, const void *user)
{
    (void)user;
    return place.row < 4 && place.dim < 4 ? 0 : -(double)INFINITY;
}

/* A mask that forbids everything for some rows: NaN. */
static void pytorch_103963(const tess_subject *subject)
{
    for (size_t t = 0; t < COUNT(types); t++)
        for (int splits = 1; splits <= 4; splits += 3) {
            tess_scene *s =
                tess_scene_make(subject, "fwd b1 hq1 q8 k8 d8 %s bias splits=%d", types[t], splits);

            tess_scene_set(s, TESS_CASE_BIAS, block_of_four, NULL);
            if (tess_scene_run(s) && tess_scene_is_right(s))
                for (int row = 4; row < 8; row++)
                    expect_row(s, row, 0, 0, -(double)INFINITY);
            tess_scene_free(s);
        }
}

/* Fewer keys than queries under causal: a tile count below zero. */
static void flash_attention_1778(const tess_subject *subject)
{
    static const double values[] = {1, 2, 3}, o[] = {0, 0, 0, 1, 1.5, 2}, n[] = {0, 0, 0, 1, 2, 3};

    for (int splits = 1; splits <= 4; splits += 3) {
        tess_scene *s =
            tess_scene_make(subject, "fwd b1 hq1 q6 k3 d4 dv1 f32 causal splits=%d", splits);

        make_uniform(s);
        tess_scene_set(s, TESS_CASE_V, entry, values);
        if (tess_scene_run(s))
            for (int row = 0; row < 6; row++)
                expect_row(s, row, 0, o[row], log(n[row]));
        tess_scene_free(s);
    }
}

/* ---- Data that must not matter --------------------------------------------------------------- */

static double hide_second(tess_place place, const void *user)
{
    (void)user;
    return place.dim == 1 ? -(double)INFINITY : 0;
}

static double count_up(tess_place place, const void *user)
{
    (void)user;
    return (double)(4 * place.row + place.dim);
}

/* NaN and Inf at keys that every row masks. A bias of -infinity is added to the score, so that only
 * a score that is a number becomes absent by it; keys that causal and window hide hold NaN in every
 * test. */
static void pytorch_101967(const tess_subject *subject)
{
    static const double junk[] = {5, (double)NAN, (double)INFINITY, -(double)INFINITY, 1e30};

    for (size_t t = 0; t < COUNT(types); t++)
        for (size_t j = 0; j < COUNT(junk); j++) {
            tess_scene *s = tess_scene_make(subject, "fwd b1 hq1 q2 k2 d4 %s bias", types[t]);

            tess_scene_set(s, TESS_CASE_Q, count_up, NULL);
            tess_scene_set(s, TESS_CASE_K, count_up, NULL);
            tess_scene_set(s, TESS_CASE_V, count_up, NULL);
            tess_scene_set(s, TESS_CASE_BIAS, hide_second, NULL);
            for (int d = 0; d < 4; d++) {
                tess_scene_put(s, TESS_CASE_V, (tess_place){0, 0, 1, d}, junk[j]);
                if (isfinite(junk[j]) && t != 1)
                    tess_scene_put(s, TESS_CASE_K, (tess_place){0, 0, 1, d}, junk[j]);
            }
            if (tess_scene_run(s))
                for (int row = 0; row < 2; row++)
                    for (int d = 0; d < 4; d++)
                        tess_scene_expect(s, "O", tess_scene_o(s, 0, row, 0, d), d, 0);
            tess_scene_free(s);
        }
}

/* Junk behind the used length of a cache. */
static void flash_attention_1745(const tess_subject *subject)
{
    for (size_t t = 0; t < COUNT(types); t++) {
        tess_scene *s = tess_scene_make(subject, "fwd b2 hq1 q3 k3 usedk=1,3 d64 %s", types[t]);

        tess_scene_set_all(s, TESS_CASE_Q, 0.5);
        tess_scene_set_all(s, TESS_CASE_K, 0.25);
        tess_scene_set_all(s, TESS_CASE_V, 0.25);
        if (tess_scene_run(s))
            for (int b = 0; b < 2; b++)
                for (int row = 0; row < 3; row++) {
                    tess_scene_expect(s, "O", tess_scene_o(s, b, row, 0, 63), 0.25, 0);
                    tess_scene_expect(s, "LSE", tess_scene_lse(s, b, row, 0), 1 + log(1 + 2 * b),
                                      1e-4);
                }
        tess_scene_free(s);
    }
}

/* A NaN in Q is the answer of exactly its row. */
static void pytorch_141128(const tess_subject *subject)
{
    for (size_t t = 0; t < COUNT(types); t++) {
        tess_scene *s = tess_scene_make(subject, "fwd b2 hq4 q16 k16 d8 %s", types[t]);

        for (int d = 0; d < 8; d++)
            tess_scene_put(s, TESS_CASE_Q, (tess_place){0, 1, 5, d}, (double)NAN);
        if (tess_scene_run(s) && tess_scene_is_right(s))
            for (int d = 0; d < 8; d++)
                if (!isnan(tess_scene_o(s, 0, 5, 1, d)) || !isnan(tess_scene_lse(s, 0, 5, 1)))
                    tess_scene_fail(s, "row 5 of head 1 is not NaN");
        tess_scene_free(s);
    }
}

/* What an earlier call left behind, in scratch memory above all. */
static void flashinfer_1046(const tess_subject *subject)
{
    tess_scene *a = tess_scene_make(subject, "fwd hq16 hk4 lensq=1x7 lensk=33,11x5,12 d32 f16 "
                                             "splits=2");
    tess_scene *b = tess_scene_make(subject, "fwd hq16 hk4 lensq=1x7 lensk=33,11x5,12 d32 f16 "
                                             "splits=2 seed=2");
    tess_scene *alone = tess_scene_make(subject, "fwd hq16 hk4 lensq=1x7 lensk=33,11x5,12 d32 f16 "
                                                 "splits=2 seed=2");

    tess_scene_set_all(a, TESS_CASE_Q, (double)NAN);
    tess_scene_set_all(a, TESS_CASE_K, (double)NAN);
    tess_scene_set_all(a, TESS_CASE_V, (double)NAN);
    if (tess_scene_run(alone) && tess_scene_is_right(alone) && tess_scene_run(a)) {
        b->queue = a->queue;
        b->borrows_queue = true;
        for (int round = 0; round < 50; round++)
            if (!tess_scene_run(a) || !tess_scene_run(b) ||
                !tess_scene_same_bits(b, round % 7, alone, round % 7, "after a call full of NaN"))
                break;
    }
    tess_scene_free(b);
    tess_scene_free(a);
    tess_scene_free(alone);
}

/* ---- Range and precision --------------------------------------------------------------------- */

/* Huge equal inputs: a maximum rounded otherwise than the scores it is taken of. */
static void pytorch_121558(const tess_subject *subject)
{
    static const double huge = 133120, lse = 141767475200.0;
    static const char *const wide[] = {"bf16", "f32"};

    for (size_t t = 0; t < COUNT(wide); t++)
        for (int columns = 1; columns <= 129; columns += columns == 1 ? 1 : 127)
            for (int rows = 1; rows <= 13; rows += 12) {
                tess_scene *s =
                    tess_scene_make(subject, "fwd b1 hq1 q%d k%d d64 %s", rows, columns, wide[t]);

                tess_scene_set_all(s, TESS_CASE_Q, huge);
                tess_scene_set_all(s, TESS_CASE_K, huge);
                tess_scene_set_all(s, TESS_CASE_V, huge);
                if (tess_scene_run(s)) {
                    tess_scene_expect(s, "O", tess_scene_o(s, 0, rows - 1, 0, 63), huge,
                                      columns == 129 && t == 1 ? huge * 0x1p-21 : 0);
                    tess_scene_expect(s, "LSE", tess_scene_lse(s, 0, rows - 1, 0), lse,
                                      lse * 0x1p-20);
                }
                tess_scene_free(s);
            }
}

/* All scores below what somebody took for minus infinity. */
static void flashinfer_4267(const tess_subject *subject)
{
    static const double query = 256, keys[] = {-256, -258, -260, -262}, values[] = {1, 2, 3, 4};

    for (size_t t = 0; t < COUNT(types); t++) {
        tess_scene *s = tess_scene_make(subject, "fwd b1 hq1 q3 k4 d64 dv2 %s scale=1", types[t]);

        tess_scene_set(s, TESS_CASE_Q, first_dim, &query);
        tess_scene_set(s, TESS_CASE_K, listed, keys);
        tess_scene_set(s, TESS_CASE_V, entry, values);
        if (tess_scene_run(s))
            for (int row = 0; row < 3; row++) {
                tess_scene_expect(s, "O", tess_scene_o(s, 0, row, 0, 1), 1, 0);
                tess_scene_expect(s, "LSE", tess_scene_lse(s, 0, row, 0), -65536, 0.07);
            }
        tess_scene_free(s);
    }
}

/* The maximum of a tile that a row does not see, kept as if it were one. */
static void flash_attention_2082(const tess_subject *subject)
{
    static const double query = -25, key = 40;

    for (size_t t = 0; t < COUNT(types); t++) {
        const double factor = t == 0 ? 1 : 0.125;
        tess_scene *s = tess_scene_make(
            subject, "fwd b1 hq14 hk2 q88 k448 d64 dv1 %s causal scale=1", types[t]);

        tess_scene_set(s, TESS_CASE_Q, first_dim, &query);
        tess_scene_set(s, TESS_CASE_K, first_dim, &key);
        tess_scene_set(s, TESS_CASE_V, ramp, &factor);
        if (tess_scene_run(s))
            for (int row = 0; row < 88; row++)
                for (int head = 0; head < 14; head++)
                    expect_row(s, row, head, (row + 360) / 2.0 * factor, -1000 + log(row + 361));
        tess_scene_free(s);
    }
}

static double band_of_ten(tess_place place, const void *user)
{
    (void)user;
    return place.dim <= place.row && place.dim > place.row - 10 ? 0 : -(double)INFINITY;
}

/* First tiles that are masked as a whole: the same as mask and as window. */
static void pytorch_127055(const tess_subject *subject)
{
    static const double one = 1;
    static const char *const spellings[] = {"bias", "causal window=9,-1", "window=9,0",
                                            "bias splits=5"};

    for (size_t i = 0; i < COUNT(spellings); i++) {
        tess_scene *s = tess_scene_make(subject, "fwd b1 hq1 q600 k600 d2 f32 %s", spellings[i]);

        make_uniform(s);
        tess_scene_set(s, TESS_CASE_V, ramp, &one);
        if (s->c.line.bias)
            tess_scene_set(s, TESS_CASE_BIAS, band_of_ten, NULL);
        if (tess_scene_run(s))
            for (int row = 0; row < 600; row++)
                expect_row(s, row, 0, row < 9 ? row / 2.0 : row - 4.5, log(row < 9 ? row + 1 : 10));
        tess_scene_free(s);
    }
}

/* Sums kept in 16 bits: of weights, and of weighted values. */
static void candle_3727(const tess_subject *subject)
{
    for (size_t t = 0; t < COUNT(types); t++) {
        tess_scene *ones = tess_scene_make(subject, "fwd b1 hq1 q2 k4096 d64 %s", types[t]);
        tess_scene *large = tess_scene_make(subject, "fwd b1 hq1 q9 k256 d64 %s", types[t]);
        const double value = t == 2 ? 59904 : 60000; /* what the type can hold */

        make_uniform(ones);
        make_uniform(large);
        tess_scene_set_all(ones, TESS_CASE_V, 1);
        tess_scene_set_all(large, TESS_CASE_V, value);
        if (tess_scene_run(ones) && tess_scene_run(large)) {
            tess_scene_expect(ones, "O", tess_scene_o(ones, 0, 1, 0, 9), 1, t ? 0 : 1e-6);
            tess_scene_expect(ones, "LSE", tess_scene_lse(ones, 0, 1, 0), log(4096), 1e-4);
            tess_scene_expect(large, "O", tess_scene_o(large, 0, 8, 0, 63), value, 0);
            tess_scene_expect(large, "LSE", tess_scene_lse(large, 0, 8, 0), log(256), 1e-4);
        }
        tess_scene_free(ones);
        tess_scene_free(large);
    }
}

/* Scores that overflow 16 bits before the scale is applied. */
static void paddle_41933(const tess_subject *subject)
{
    static const double one = 1;

    for (size_t t = 0; t < COUNT(types); t++) {
        tess_scene *s = tess_scene_make(subject, "fwd b1 hq1 q5 k64 d192 %s", types[t]);

        tess_scene_set_all(s, TESS_CASE_Q, 20);
        tess_scene_set_all(s, TESS_CASE_K, 20);
        tess_scene_set(s, TESS_CASE_V, ramp, &one);
        if (tess_scene_run(s)) {
            tess_scene_expect(s, "O", tess_scene_o(s, 0, 4, 0, 191), 31.5, 1e-4);
            tess_scene_expect(s, "LSE", tess_scene_lse(s, 0, 4, 0), 76800 / sqrt(192) + log(64),
                              tess_scene_allows_lse(s, 5546.7215));
        }
        tess_scene_free(s);
    }
}

/* A negative scale: the maximum is that of the scaled scores. */
static void pytorch_105202(const tess_subject *subject)
{
    static const double keys[] = {-1000, 1000, 999}, values[] = {1, 2, 3};

    for (size_t t = 0; t < COUNT(types); t++) {
        tess_scene *s = tess_scene_make(subject, "fwd b1 hq1 q1 k3 d1 %s scale=-1", types[t]);

        tess_scene_set_all(s, TESS_CASE_Q, 1);
        tess_scene_set(s, TESS_CASE_K, listed, keys);
        tess_scene_set(s, TESS_CASE_V, entry, values);
        if (tess_scene_run(s)) {
            tess_scene_expect(s, "O", tess_scene_o(s, 0, 0, 0, 0), 1, 0);
            /* bf16 holds -1000 as it is. */
            tess_scene_expect(s, "LSE", tess_scene_lse(s, 0, 0, 0), 1000, 1e-3);
        }
        tess_scene_free(s);
    }
}

/* An exponential that stops falling before it reaches zero. */
static void funes_160(const tess_subject *subject)
{
    static const double keys[] = {-80, -87.4, -103.9, -104.1, -200, -1e30};
    static const double values[] = {0, 3e38};
    double before = (double)INFINITY;

    for (size_t i = 0; i < COUNT(keys); i++) {
        const double both[] = {0, keys[i]};
        tess_scene *s = tess_scene_make(subject, "fwd b1 hq1 q1 k2 d1 f32 scale=1");

        tess_scene_set_all(s, TESS_CASE_Q, 1);
        tess_scene_set(s, TESS_CASE_K, listed, both);
        tess_scene_set(s, TESS_CASE_V, entry, values);
        if (tess_scene_run(s)) {
            const double o = tess_scene_o(s, 0, 0, 0, 0), truth = 3e38 * exp(keys[i]);

            tess_scene_expect(s, "LSE", tess_scene_lse(s, 0, 0, 0), 0, 1e-6);
            if (!(o <= before) || o < 0)
                tess_scene_fail(s, "O is %g at %g and was %g before", o, keys[i], before);
            if (i == 0)
                tess_scene_expect(s, "O", o, truth, truth * 1e-4);
            if (keys[i] <= -200)
                tess_scene_expect(s, "O", o, 0, 1e-30);
            before = o;
        }
        tess_scene_free(s);
    }
}

/* Masks made of a type's most negative number are finite scores: a row that has only those is the
 * plain mean, another one does not see them. The largest positive one wins. Not of one report:
 * frameworks write masks so. Shares are merged by their LSE, which at such sizes resolves nothing;
 * then any mean of V will do. */
static double finite_mask(tess_place place, const void *user)
{
    const double extreme = *(const double *)user;

    if (place.row == 0)
        return extreme;
    if (place.row == 1)
        return place.dim == 3 ? 0 : extreme;
    if (place.row == 2)
        return place.dim % 2 ? extreme : 0;
    return place.dim == 5 ? -extreme : 0;
}

static void expect_finite_masks(tess_scene *s, int columns)
{
    double even = 0;

    if (!tess_scene_run(s))
        return;
    for (int j = 0; j < columns; j += 2)
        even += j / (double)((columns + 1) / 2);
    tess_scene_expect(
        s, "O of a row of lowest scores", tess_scene_o(s, 0, 0, 0, 0), (columns - 1) / 2.0,
        s->c.line.splits > 1 ? (columns - 1) / 2.0 : tess_scene_allows(s, 0, columns, 0));
    tess_scene_expect(s, "O of a row with one score", tess_scene_o(s, 0, 1, 0, 0), 3, 3 * 0x1p-21);
    tess_scene_expect(s, "O of a row with half its scores", tess_scene_o(s, 0, 2, 0, 0), even,
                      tess_scene_allows(s, 0, columns, 0));
    tess_scene_expect(s, "O of a row with a highest score", tess_scene_o(s, 0, 3, 0, 0), 5,
                      5 * 0x1p-21);
    for (int row = 0; row < 4; row++)
        if (!isfinite(tess_scene_lse(s, 0, row, 0)))
            tess_scene_fail(s, "LSE of row %d is %g", row, tess_scene_lse(s, 0, row, 0));
}

static void finite_masks(const tess_subject *subject)
{
    static const struct {
        const char *type;
        double lowest;
    } masks[] = {{"f32", -(double)FLT_MAX}, {"bf16", -0x1.fep127}, /* bf16's lowest */
                 {"f32", -0x1.fep127},      {"f32", -1e38},        {"f32", -1e30},
                 {"f16", -65504},           {"f32", -1e9}};
    static const int columns[] = {7, 48, 200};
    static const double one = 1;

    for (size_t t = 0; t < COUNT(types); t++)
        for (size_t m = 0; m < COUNT(masks); m++)
            for (size_t c = 0; c < COUNT(columns); c++)
                for (int splits = 1; splits <= 3; splits += 2) {
                    tess_scene *s =
                        tess_scene_make(subject, "fwd b1 hq1 q4 k%d d8 %s bias=%s splits=%d",
                                        columns[c], types[t], masks[m].type, splits);

                    make_uniform(s);
                    tess_scene_set(s, TESS_CASE_V, ramp, &one);
                    tess_scene_set(s, TESS_CASE_BIAS, finite_mask, &masks[m].lowest);
                    expect_finite_masks(s, columns[c]);
                    tess_scene_free(s);
                }
}

/* ---- Where masks lie ------------------------------------------------------------------------- */

static void expect_means(const tess_subject *subject, const char *line, const double *o,
                         const double *n, int rows)
{
    static const double one = 1;
    tess_scene *s = tess_scene_make(subject, "%s", line);

    make_uniform(s);
    tess_scene_set(s, TESS_CASE_V, ramp, &one);
    if (tess_scene_run(s))
        for (int row = 0; row < rows; row++)
            expect_row(s, row, 0, o[row], log(n[row]));
    tess_scene_free(s);
}

/* The diagonal ends in the last corner when there are more keys than queries. */
static void pytorch_144858(const tess_subject *subject)
{
    static const double one[] = {3.5}, one_n[] = {8}, two[] = {1.5, 2}, two_n[] = {4, 5};

    expect_means(subject, "fwd b1 hq1 q1 k8 d4 f32 causal", one, one_n, 1);
    expect_means(subject, "fwd b1 hq1 q2 k5 d4 f16 causal", two, two_n, 2);
}

/* A bound as long as the keys, and longer than 32 bits can add to. */
static void flash_attention_895(const tess_subject *subject)
{
    static const double all[] = {1.5, 1.5, 1.5, 1.5, 1.5, 1.5, 1.5, 1.5, 1.5, 1.5};
    static const double all_n[] = {4, 4, 4, 4, 4, 4, 4, 4, 4, 4};
    static const double four[] = {0, 0, 0, 0.5, 1, 1.5, 1.5, 1.5, 1.5, 1.5};
    static const double four_n[] = {0, 0, 1, 2, 3, 4, 4, 4, 4, 4};

    expect_means(subject, "fwd b1 hq1 q10 k4 d4 f32 window=-1,9", all, all_n, 10);
    expect_means(subject, "fwd b1 hq1 q10 k4 d4 f32 window=-1,10", all, all_n, 10);
    expect_means(subject, "fwd b1 hq1 q10 k4 d4 f32 window=-1,2147483647", all, all_n, 10);
    expect_means(subject, "fwd b1 hq1 q10 k4 d4 f32 window=2147483647,-1", all, all_n, 10);
    expect_means(subject, "fwd b1 hq1 q10 k4 d4 f32 window=9223372036854775807,9223372036854775807",
                 all, all_n, 10);
    expect_means(subject, "fwd b1 hq1 q10 k4 d4 f32 window=-1,4", four, four_n, 10);
}

/* A right bound of zero is a bound. */
static void flash_attention_2574(const tess_subject *subject)
{
    static const double three[] = {0, 0.5, 1, 1.5, 2.5, 3.5, 4.5, 5.5};
    static const double three_n[] = {1, 2, 3, 4, 4, 4, 4, 4};
    static const double self[] = {0, 1, 2, 3, 4, 5, 6, 7}, self_n[] = {1, 1, 1, 1, 1, 1, 1, 1};
    static const double rest[] = {3.5, 4, 4.5, 5, 5.5, 6, 6.5, 7};
    static const double rest_n[] = {8, 7, 6, 5, 4, 3, 2, 1};

    expect_means(subject, "fwd b1 hq1 q8 k8 d4 f32 window=3,0", three, three_n, 8);
    expect_means(subject, "fwd b1 hq1 q8 k8 d4 f16 window=0,0", self, self_n, 8);
    expect_means(subject, "fwd b1 hq1 q8 k8 d4 bf16 window=0,-1", rest, rest_n, 8);
}

/* A window of W keys has W keys. */
static void transformers_39408(const tess_subject *subject)
{
    static const int widths[] = {1, 2, 31, 32, 33, 64, 65, 128, 129};

    for (size_t w = 0; w < COUNT(widths); w++) {
        tess_scene *s = tess_scene_make(subject, "fwd b1 hq1 q300 k300 d4 f32 causal window=%d,-1",
                                        widths[w] - 1);

        make_uniform(s);
        tess_scene_set_all(s, TESS_CASE_V, 1);
        if (tess_scene_run(s))
            for (int row = 0; row < 300; row++)
                tess_scene_expect(s, "number of keys", round(exp(tess_scene_lse(s, 0, row, 0))),
                                  row + 1 < widths[w] ? row + 1 : widths[w], 0);
        tess_scene_free(s);
    }
}

/* A window without causal over split keys: its first rows start far to the right. */
static void flashinfer_4972(const tess_subject *subject)
{
    static const double factor = 1 / 4096.0;
    static const int splits[] = {0, 1, 2, 5, 16};

    for (size_t i = 0; i < COUNT(splits); i++) {
        tess_scene *s = tess_scene_make(
            subject,
            "fwd b1 hq2 hk1 q300 k4096 usedk=4096 page=16 d8 dv1 f32 window=333,-1 splits=%d",
            splits[i]);

        make_uniform(s);
        tess_scene_set(s, TESS_CASE_V, ramp, &factor);
        if (tess_scene_run(s))
            for (int row = 0; row < 300; row++)
                expect_row(s, row, 1, (row + 3463 + 4095) / 2.0 * factor,
                           log(4095 - (row + 3463) + 1));
        tess_scene_free(s);
    }
}

static double every_other(tess_place place, const void *user)
{
    const bool is_seen = place.row % 2 == 0 ? place.dim >= 128 : place.dim < 32;

    (void)user;
    return is_seen ? 0 : -(double)INFINITY;
}

/* Whether a tile can be left out, decided from one of its rows. */
static void ik_llama_1880(const tess_subject *subject)
{
    static const double one = 1;

    for (size_t t = 0; t < COUNT(types); t++) {
        tess_scene *s = tess_scene_make(subject, "fwd b1 hq1 q64 k256 d8 %s bias", types[t]);

        make_uniform(s);
        tess_scene_set(s, TESS_CASE_V, ramp, &one);
        tess_scene_set(s, TESS_CASE_BIAS, every_other, NULL);
        if (tess_scene_run(s))
            for (int row = 0; row < 64; row++)
                expect_row(s, row, 0, row % 2 ? 15.5 : 191.5, log(row % 2 ? 32 : 128));
        tess_scene_free(s);
    }
}

/* ---- Modifiers and sinks --------------------------------------------------------------------- */

/* A softcap does not turn an absent column into a finite score. */
static void flash_attention_1025(const tess_subject *subject)
{
    static const double values[] = {1, 1000};

    for (size_t t = 0; t < COUNT(types); t++) {
        tess_scene *s =
            tess_scene_make(subject, "fwd b1 hq1 q2 k2 d1 %s causal softcap=1", types[t]);

        make_uniform(s);
        tess_scene_set(s, TESS_CASE_V, entry, values);
        if (tess_scene_run(s)) {
            tess_scene_expect(s, "O", tess_scene_o(s, 0, 0, 0, 0), 1, 0);
            tess_scene_expect(s, "LSE", tess_scene_lse(s, 0, 0, 0), 0, 0);
            expect_row(s, 1, 0, 500.5, log(2));
        }
        tess_scene_free(s);
    }
}

/* Nor the padding of the last tile. */
static void llama_29034(const tess_subject *subject)
{
    static const int columns[] = {65, 1, 47, 48, 49, 63, 64, 127, 129, 193};

    for (size_t c = 0; c < COUNT(columns); c++) {
        tess_scene *s = tess_scene_make(subject, "fwd b1 hq1 q3 k%d d8 f16 softcap=2", columns[c]);

        make_uniform(s);
        tess_scene_set_all(s, TESS_CASE_V, 1);
        if (tess_scene_run(s)) {
            tess_scene_expect(s, "O", tess_scene_o(s, 0, 2, 0, 0), 1, 0);
            tess_scene_expect(s, "LSE", tess_scene_lse(s, 0, 2, 0), log(columns[c]), 1e-4);
        }
        tess_scene_free(s);
    }
}

static double halving(tess_place place, const void *user)
{
    (void)user;
    return ldexp(1, -(int)place.head - 1);
}

/* Slopes of heads that were folded into the rows. */
static void flash_attention_540(const tess_subject *subject)
{
    static const double o[] = {30.458508, 28.487812, 25.031745, 21.301357,
                               18.784307, 17.410423, 16.707549, 16.354069};
    static const double one = 1;
    static const char *const masks[] = {"causal", "", "window=40,0", "causal splits=2"};

    for (size_t m = 0; m < COUNT(masks); m++) {
        tess_scene *s =
            tess_scene_make(subject, "fwd b1 hq8 hk2 q1 k33 d8 dv1 f32 alibi %s", masks[m]);

        make_uniform(s);
        tess_scene_set(s, TESS_CASE_V, ramp, &one);
        tess_scene_set(s, TESS_CASE_SLOPES, halving, NULL);
        if (tess_scene_run(s))
            for (int head = 0; head < 8; head++)
                tess_scene_expect(s, "O", tess_scene_o(s, 0, 0, head, 0), o[head], 1e-4);
        tess_scene_free(s);
    }
}

/* A sink without keys, and sinks far above and below the scores. */
static void flash_attention_2752(const tess_subject *subject)
{
    static const double sinks[] = {0.5, 100, -100, 1.3862943611198906};
    static const double o[] = {0.708125, 0, 1, 0.5}, lse[] = {1.731429, 100, 1.386294, 2.079442};
    tess_scene *empty = tess_scene_make(subject, "fwd b1 hq1 q2 k128 usedk=0 d8 f32 sink");

    tess_scene_set_all(empty, TESS_CASE_SINK, 0.5);
    if (tess_scene_run(empty))
        for (int row = 0; row < 2; row++) {
            tess_scene_expect(empty, "O", tess_scene_o(empty, 0, row, 0, 7), 0, 0);
            tess_scene_expect(empty, "LSE", tess_scene_lse(empty, 0, row, 0), 0.5, 1e-6);
        }
    tess_scene_free(empty);
    for (size_t i = 0; i < COUNT(sinks); i++) {
        tess_scene *s = tess_scene_make(subject, "fwd b1 hq1 q1 k4 d8 f32 sink");

        make_uniform(s);
        tess_scene_set_all(s, TESS_CASE_V, 1);
        tess_scene_set_all(s, TESS_CASE_SINK, sinks[i]);
        if (tess_scene_run(s)) {
            tess_scene_expect(s, "O", tess_scene_o(s, 0, 0, 0, 7), o[i], i == 1 ? 2e-43 : 1e-5);
            tess_scene_expect(s, "LSE", tess_scene_lse(s, 0, 0, 0), lse[i], 1e-4);
        }
        tess_scene_free(s);
    }
}

/* A sink counts once, however many shares the keys have and whichever of them see something. */
static void rocm_libraries_12227(const tess_subject *subject)
{
    static const int splits[] = {1, 2, 4, 8, 16};

    for (size_t i = 0; i < COUNT(splits); i++)
        for (int cap = 0; cap <= 30; cap += 30)
            for (int used = 0; used <= 256; used += 256) {
                tess_scene *s = tess_scene_make(subject,
                                                "fwd b1 hq1 q1 k256 usedk=%d d8 f32 sink causal "
                                                "window=3,-1 splits=%d softcap=%d",
                                                used, splits[i], cap);

                make_uniform(s);
                tess_scene_set_all(s, TESS_CASE_V, 1);
                tess_scene_set_all(s, TESS_CASE_SINK, log(4));
                if (tess_scene_run(s))
                    expect_row(s, 0, 0, used ? 0.5 : 0, log(used ? 8 : 4));
                tess_scene_free(s);
            }
}

/* ---- LSE ------------------------------------------------------------------------------------- */

/* Natural logarithms, the maximum included. */
static void flash_attention_404(const tess_subject *subject)
{
    static const double three = 3, minus_two = -2;
    tess_scene *one = tess_scene_make(subject, "fwd b1 hq1 q1 k1 d8 f32 scale=1");
    tess_scene *seven = tess_scene_make(subject, "fwd b1 hq1 q1 k7 d8 f32 scale=1");

    tess_scene_set_all(one, TESS_CASE_Q, 1);
    tess_scene_set_all(seven, TESS_CASE_Q, 1);
    tess_scene_set(one, TESS_CASE_K, first_dim, &three);
    tess_scene_set(seven, TESS_CASE_K, first_dim, &minus_two);
    if (tess_scene_run(one))
        tess_scene_expect(one, "LSE", tess_scene_lse(one, 0, 0, 0), 3, 1e-6);
    if (tess_scene_run(seven))
        tess_scene_expect(seven, "LSE", tess_scene_lse(seven, 0, 0, 0), -2 + log(7), 1e-6);
    tess_scene_free(one);
    tess_scene_free(seven);
}

/* Shares that see nothing must not write over the one that does. */
static void sgl_kernel_xpu_487(const tess_subject *subject)
{
    static const double one = 1;

    for (int splits = 2; splits <= 32; splits *= 4) {
        tess_scene *s = tess_scene_make(
            subject, "fwd b1 hq1 q1 k5000 d4 dv1 f32 causal window=31,-1 splits=%d", splits);

        make_uniform(s);
        tess_scene_set(s, TESS_CASE_V, ramp, &one);
        for (int round = 0; round < 50 && tess_scene_run(s); round++) {
            tess_scene_expect(s, "O", tess_scene_o(s, 0, 0, 0, 0), 4983.5, 4983.5 * 1e-6);
            tess_scene_expect(s, "LSE", tess_scene_lse(s, 0, 0, 0), log(32), 1e-5);
        }
        tess_scene_free(s);
    }
}

/* Heads flagged as folded into the rows, rows that were not. */
static void flash_attention_2528(const tess_subject *subject)
{
    static const double one = 1;

    for (size_t t = 0; t < 2; t++) {
        tess_scene *s =
            tess_scene_make(subject, "fwd b1 hq4 hk1 q300 k300 d4 dv1 %s causal", types[t]);

        make_uniform(s);
        tess_scene_set(s, TESS_CASE_V, ramp, &one);
        if (tess_scene_run(s))
            for (int row = 0; row < 300; row++)
                for (int head = 0; head < 4; head++)
                    expect_row(s, row, head, row / 2.0, log(row + 1));
        tess_scene_free(s);
    }
}

#define TEST(name)  \
    {               \
#name, name \
    }

static const tess_scene_test tests[] = {
    TEST(pytorch_103963),       TEST(flash_attention_1778),
    TEST(pytorch_101967),       TEST(flash_attention_1745),
    TEST(pytorch_141128),       TEST(flashinfer_1046),
    TEST(pytorch_121558),       TEST(flashinfer_4267),
    TEST(flash_attention_2082), TEST(pytorch_127055),
    TEST(candle_3727),          TEST(paddle_41933),
    TEST(pytorch_105202),       TEST(funes_160),
    TEST(finite_masks),         TEST(pytorch_144858),
    TEST(flash_attention_895),  TEST(flash_attention_2574),
    TEST(transformers_39408),   TEST(flashinfer_4972),
    TEST(ik_llama_1880),        TEST(flash_attention_1025),
    TEST(llama_29034),          TEST(flash_attention_540),
    TEST(flash_attention_2752), TEST(rocm_libraries_12227),
    TEST(flash_attention_404),  TEST(sgl_kernel_xpu_487),
    TEST(flash_attention_2528),
};

int main(int argc, char **argv)
{
    return tess_scene_main(tests, COUNT(tests), argc, argv);
}
