/* SPDX-License-Identifier: Apache-2.0
 * Faults of gradients that users of other libraries reported, with the results due. */
#include "tests/conformance/scene.h"

#include <math.h>
#include <stdio.h>

/* Each test is named after the first public issue or pull request that its input comes from. Masks
 * that those wrote as functions are bias tensors of -infinity here. */

#define COUNT(list) (sizeof(list) / sizeof *(list))

static const char *const types[] = {"f32", "f16", "bf16"};

static double gradient(const tess_scene *s, int which, int64_t sequence, int64_t row, int64_t head,
                       int64_t dim)
{
    return tess_scene_get(s, which, (tess_place){sequence, head, row, dim});
}

/* Every element of one row, of every head. */
static void expect_row(const tess_scene *s, const char *what, int which, int64_t sequence,
                       int64_t row, double expected, double allowed)
{
    const tess_layout *l = &s->c.tensor[which].layout;

    for (int64_t h = 0; h < l->heads; h++)
        for (int64_t d = 0; d < l->head_dim; d++) {
            const double got = gradient(s, which, sequence, row, h, d);

            if (!(fabs(got - expected) <= allowed)) {
                tess_scene_fail(s, "%s of sequence %d, row %d, head %d, dim %d is %g, not %g", what,
                                (int)sequence, (int)row, (int)h, (int)d, got, expected);
                return;
            }
        }
}

static void expect_rows(const tess_scene *s, const char *what, int which, int64_t sequence,
                        int64_t first, int64_t end, double expected, double allowed)
{
    for (int64_t row = first; row < end; row++)
        expect_row(s, what, which, sequence, row, expected, allowed);
}

/* Puts a value in dim 0 and 0 elsewhere, so that scores are that value times the other's. */
static double first_dim(tess_place place, const void *user)
{
    return place.dim == 0 ? *(const double *)user : 0;
}

/* ---- Empty sets ------------------------------------------------------------------------------ */

/* No keys at all. */
static void flash_attention_2470(const tess_subject *subject)
{
    for (size_t t = 0; t < COUNT(types); t++)
        for (int causal = 0; causal < 2; causal++) {
            tess_scene *s = tess_scene_make_backward(
                subject, false, "bwd b2 hq4 hk2 q5 k0 d64 %s %s", types[t], causal ? "causal" : "");

            tess_scene_set_all(s, TESS_CASE_D_O, 1);
            if (tess_scene_run(s) && tess_scene_is_right(s))
                for (int b = 0; b < 2; b++)
                    expect_rows(s, "dQ", TESS_CASE_DQ, b, 0, 5, 0, 0);
            tess_scene_free(s);
        }
}

/* Keys without queries: accumulators that nobody started. */
static void flash_attention_2421(const tess_subject *subject)
{
    static const char *const heads[] = {"hq2 hk2", "hq4 hk1"};

    for (int dims = 64; dims <= 128; dims += 64)
        for (int causal = 0; causal < 2; causal++)
            for (size_t h = 0; h < COUNT(heads); h++) {
                tess_scene *s = tess_scene_make_backward(
                    subject, false, "bwd %s lensq=150,0,150 lensk=100,100,100 d%d %s %s", heads[h],
                    dims, types[h + (size_t)causal], causal ? "causal" : "");

                if (tess_scene_run(s) && tess_scene_is_right(s)) {
                    expect_rows(s, "dK", TESS_CASE_DK, 1, 0, 100, 0, 0);
                    expect_rows(s, "dV", TESS_CASE_DV, 1, 0, 100, 0, 0);
                }
                tess_scene_free(s);
            }
}

static double threefold(tess_place place, const void *user)
{
    const tess_scene *s = user;

    return 3 * tess_scene_get(s, TESS_CASE_Q, place);
}

/* Many queries, one key, causal: rows whose LSE is -infinity. */
static void flash_attention_443(const tess_subject *subject)
{
    static const int rows[] = {76, 34, 146};
    tess_scene *s = tess_scene_make_backward(subject, false,
                                             "bwd hq1 lensq=76,34,146 lensk=1,1,1 d32 f16 causal");

    tess_scene_set(s, TESS_CASE_Q, threefold, s);
    tess_scene_set_all(s, TESS_CASE_D_O, 1);
    if (tess_scene_run(s) && tess_scene_is_right(s))
        for (int b = 0; b < 3; b++) {
            expect_rows(s, "dQ", TESS_CASE_DQ, b, 0, rows[b] - 1, 0, 0);
            expect_row(s, "dQ", TESS_CASE_DQ, b, rows[b] - 1, 0, 1e-3);
            expect_row(s, "dV", TESS_CASE_DV, b, 0, 1, 0);
        }
    tess_scene_free(s);
}

/* Zero batch, zero queries; tensors without elements are NULL half of the time. */
static void pytorch_133780(const tess_subject *subject)
{
    for (int seed = 1; seed <= 8; seed++) {
        tess_scene *none = tess_scene_make_backward(
            subject, true, "bwd b0 hq4 hk2 q7 k9 d16 %s seed=%d", types[seed % 3], seed);
        tess_scene *keys = tess_scene_make_backward(
            subject, true, "bwd b3 hq4 hk2 q0 k9 d16 %s seed=%d", types[seed % 3], seed);

        if (tess_scene_run(none))
            tess_scene_is_right(none);
        if (tess_scene_run(keys) && tess_scene_is_right(keys))
            for (int b = 0; b < 3; b++) {
                expect_rows(keys, "dK", TESS_CASE_DK, b, 0, 9, 0, 0);
                expect_rows(keys, "dV", TESS_CASE_DV, b, 0, 9, 0, 0);
            }
        tess_scene_free(none);
        tess_scene_free(keys);
    }
}

static double block_of_four(tess_place place, const void *user)
{
    (void)user;
    return place.row < 4 && place.dim < 4 ? 0 : -(double)INFINITY;
}

/* A mask that forbids everything for some rows. */
static void pytorch_103963(const tess_subject *subject)
{
    for (size_t t = 0; t < COUNT(types); t++) {
        tess_scene *s =
            tess_scene_make_backward(subject, true, "bwd b1 hq1 q8 k8 d8 %s bias", types[t]);

        tess_scene_set(s, TESS_CASE_BIAS, block_of_four, NULL);
        if (tess_scene_run(s) && tess_scene_is_right(s)) {
            expect_rows(s, "dQ", TESS_CASE_DQ, 0, 4, 8, 0, 0);
            expect_rows(s, "dK", TESS_CASE_DK, 0, 4, 8, 0, 0);
            expect_rows(s, "dV", TESS_CASE_DV, 0, 4, 8, 0, 0);
        }
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

/* NaN and Inf at keys that every row masks. */
static void pytorch_101967(const tess_subject *subject)
{
    static const double junk[] = {5, (double)NAN, (double)INFINITY, -(double)INFINITY, 1e30};

    for (size_t t = 0; t < COUNT(types); t++)
        for (size_t j = 0; j < COUNT(junk); j++) {
            tess_scene *s =
                tess_scene_make_backward(subject, false, "bwd b1 hq1 q2 k2 d4 %s bias", types[t]);

            tess_scene_set(s, TESS_CASE_Q, count_up, NULL);
            tess_scene_set(s, TESS_CASE_K, count_up, NULL);
            tess_scene_set(s, TESS_CASE_V, count_up, NULL);
            tess_scene_set(s, TESS_CASE_BIAS, hide_second, NULL);
            for (int d = 0; d < 4; d++)
                tess_scene_put(s, TESS_CASE_V, (tess_place){0, 0, 1, d}, junk[j]);
            if (tess_scene_run(s) && tess_scene_is_right(s)) {
                expect_row(s, "dK", TESS_CASE_DK, 0, 1, 0, 0);
                expect_row(s, "dV", TESS_CASE_DV, 0, 1, 0, 0);
                for (int d = 0; d < 4; d++)
                    if (!isfinite(gradient(s, TESS_CASE_DQ, 0, 1, 0, d)))
                        tess_scene_fail(s, "dQ is not finite");
            }
            tess_scene_free(s);
        }
}

/* Padded columns scored 0 instead of absent, once LSE is far below 0. */
static void pytorch_196678(const tess_subject *subject)
{
    static const int lengths[] = {64, 65, 192, 200, 704};
    static const double query = 8;
    static const double dq[] = {-0.00294417, -0.188427}, dk[] = {-2.480868, -158.776};

    for (size_t n = 0; n < COUNT(lengths); n++)
        for (int wide = 0; wide < (lengths[n] > 200 ? 1 : 2); wide++) {
            tess_scene *s =
                tess_scene_make_backward(subject, false, "bwd b1 hq1 q%d k%d d64 dv%d f32",
                                         lengths[n], lengths[n], wide ? 64 : 1);

            tess_scene_set(s, TESS_CASE_Q, first_dim, &query);
            tess_scene_set_all(s, TESS_CASE_K, 0);
            tess_scene_set_all(s, TESS_CASE_D_O, 1);
            for (int j = 0; j < lengths[n]; j++) {
                tess_scene_put(s, TESS_CASE_K, (tess_place){0, 0, j, 0}, -(100 + j % 4));
                for (int d = 0; d < (wide ? 64 : 1); d++)
                    tess_scene_put(s, TESS_CASE_V, (tess_place){0, 0, j, d}, j % 3);
            }
            if (tess_scene_run(s) && tess_scene_is_right(s) && n == 0) {
                tess_scene_expect(s, "LSE", tess_scene_lse(s, 0, 0, 0), -96.787222, 1e-4);
                tess_scene_expect(s, "O", tess_scene_o(s, 0, 0, 0, 0), 0.963198, 1e-5);
                /* dQ is what sums of size 100 leave; dK, dV are sums over 64 rows. */
                tess_scene_expect(s, "dQ", gradient(s, TESS_CASE_DQ, 0, 0, 0, 0), dq[wide],
                                  wide ? 0.064 : 1e-3);
                tess_scene_expect(s, "dK", gradient(s, TESS_CASE_DK, 0, 0, 0, 0), dk[wide],
                                  wide ? 6e-3 : 1e-4);
                tess_scene_expect(s, "dV", gradient(s, TESS_CASE_DV, 0, 0, 0, 0), 2.575657, 1e-4);
                tess_scene_expect(s, "dV", gradient(s, TESS_CASE_DV, 0, 1, 0, 0), 0.947531, 1e-4);
            }
            tess_scene_free(s);
        }
}

/* ---- Masks and scales ------------------------------------------------------------------------ */

static double negated(tess_place place, const void *user)
{
    return -tess_scene_get(user, TESS_CASE_Q, place);
}

/* A negative scale: the same as a positive one with -Q, whose dQ is negated. */
static void pytorch_105202(const tess_subject *subject)
{
    for (size_t t = 0; t < COUNT(types); t++) {
        tess_scene *a = tess_scene_make_backward(
            subject, true, "bwd b1 hq2 hk1 q130 k130 d64 %s causal scale=-0.125", types[t]);
        tess_scene *b = tess_scene_make_backward(
            subject, true, "bwd b1 hq2 hk1 q130 k130 d64 %s causal scale=0.125", types[t]);

        tess_scene_set(b, TESS_CASE_Q, negated, a);
        if (tess_scene_run(a) && tess_scene_is_right(a) && tess_scene_run(b) &&
            tess_scene_is_right(b))
            for (int i = 0; i < 130; i += 43)
                for (int d = 0; d < 64; d++) {
                    const double dq = gradient(b, TESS_CASE_DQ, 0, i, 1, d);

                    tess_scene_expect(a, "dQ", gradient(a, TESS_CASE_DQ, 0, i, 1, d), -dq,
                                      tess_scene_allows(a, 0, 4, dq));
                    tess_scene_expect(a, "dK", gradient(a, TESS_CASE_DK, 0, i, 0, d),
                                      gradient(b, TESS_CASE_DK, 0, i, 0, d),
                                      tess_scene_allows(a, 0, 8, 1));
                }
        tess_scene_free(a);
        tess_scene_free(b);
    }
}

/* More rows than columns under causal. */
static void flash_attention_1778(const tess_subject *subject)
{
    for (size_t t = 0; t < COUNT(types); t++) {
        tess_scene *s =
            tess_scene_make_backward(subject, true, "bwd b1 hq1 q512 k256 d64 %s causal", types[t]);

        if (tess_scene_run(s) && tess_scene_is_right(s))
            expect_rows(s, "dQ", TESS_CASE_DQ, 0, 0, 256, 0, 0);
        tess_scene_free(s);
    }
}

/* The window of the forward pass holds in the backward pass. One column per row: dV is dO. */
static void mslk_263(const tess_subject *subject)
{
    static const int lefts[] = {0, 16}, rights[] = {-1, 0, 5}, rows[] = {200, 150};

    for (size_t n = 0; n < 12; n++) {
        const int left = lefts[n % 2], right = rights[n / 2 % 3], q = rows[n / 6];
        tess_scene *s =
            tess_scene_make_backward(subject, false, "bwd b1 hq1 q%d k200 d32 %s window=%d,%d", q,
                                     types[n % 3], left, right);
        const bool is_right = tess_scene_run(s) && tess_scene_is_right(s);

        for (int j = 0; is_right && left == 0 && right == 0 && j < 200; j++)
            for (int d = 0; d < 32; d++) {
                const int i = j - (200 - q);
                const double d_o = i < 0 ? 0 : gradient(s, TESS_CASE_D_O, 0, i, 0, d);

                /* P is exp(score - LSE), two roundings from 1. */
                tess_scene_expect(s, "dV", gradient(s, TESS_CASE_DV, 0, j, 0, d), d_o,
                                  tess_scene_allows(s, 8, fabs(d_o), d_o));
                tess_scene_expect(s, "dK", gradient(s, TESS_CASE_DK, 0, j, 0, d), 0,
                                  i < 0 ? 0 : tess_scene_allows(s, 0, 60, 0));
            }
        tess_scene_free(s);
    }
}

static double lower_half(tess_place place, const void *user)
{
    (void)user;
    return place.dim <= place.row ? 0 : -(double)INFINITY;
}

/* A mask given as a bias, and causal: one problem. */
static void flash_attention_2623(const tess_subject *subject)
{
    for (int dims = 64; dims <= 128; dims += 64)
        for (size_t t = 0; t < COUNT(types); t++) {
            tess_scene *bias = tess_scene_make_backward(
                subject, false, "bwd b1 hq1 q150 k150 d%d %s bias", dims, types[t]);
            tess_scene *causal = tess_scene_make_backward(
                subject, false, "bwd b1 hq1 q150 k150 d%d %s causal", dims, types[t]);

            tess_scene_set(bias, TESS_CASE_BIAS, lower_half, NULL);
            if (tess_scene_run(bias) && tess_scene_is_right(bias) && tess_scene_run(causal) &&
                tess_scene_is_right(causal))
                for (int i = 0; i < 150; i += 7)
                    for (int d = 0; d < dims; d++)
                        for (int which = TESS_CASE_DQ; which <= TESS_CASE_DV; which++) {
                            const double b = gradient(causal, which, 0, i, 0, d);

                            tess_scene_expect(bias, bias->c.tensor[which].name,
                                              gradient(bias, which, 0, i, 0, d), b,
                                              tess_scene_allows(bias, 0, 8, b));
                        }
            tess_scene_free(bias);
            tess_scene_free(causal);
        }
}

/* ---- Layouts --------------------------------------------------------------------------------- */

/* Tensors in pairwise different layouts, unit strides along d or not: the bits of packed ones. */
static void flag_attention_45(const tess_subject *subject)
{
    static const char *const options[] = {"", "causal", "alibi causal", "window=9,3 softcap=2"};

    for (int seed = 1; seed <= 12; seed++) {
        char text[256];
        tess_scene *strided, *packed;

        snprintf(text, sizeof text, "bwd b2 hq4 hk2 q17 k33 d32 %s %s invariant seed=%d",
                 types[seed % 3], options[seed % 4], seed);
        strided = tess_scene_make_backward(subject, true, "%s layout=strided", text);
        packed = tess_scene_make_backward(subject, true, "%s", text);
        /* A stride of 0 repeats what was written last: read back what there is. */
        for (int b = 0; b < 2; b++)
            tess_scene_copy(strided, b, packed, b);
        if (tess_scene_run(strided) && tess_scene_run(packed))
            for (int b = 0; b < 2; b++)
                tess_scene_same_gradients(strided, b, packed, b, "any strides and packed");
        tess_scene_free(strided);
        tess_scene_free(packed);
    }
}

/* dO as one number with strides of 0, transposed, and with a gap behind each row. */
static void flash_attention_355(const tess_subject *subject)
{
    for (size_t t = 0; t < COUNT(types); t++)
        for (int causal = 0; causal < 2; causal++) {
            const char *mask = causal ? "causal" : "";
            tess_scene *packed = tess_scene_make_backward(
                subject, false, "bwd b1 hq4 q2 k32 d128 %s %s invariant", types[t], mask);
            tess_scene *repeated = tess_scene_make_backward(
                subject, false, "bwd b1 hq4 q2 k32 d128 %s %s invariant", types[t], mask);
            tess_layout *l = &repeated->c.tensor[TESS_CASE_D_O].layout;

            tess_scene_set_all(packed, TESS_CASE_D_O, 1.5);
            tess_scene_set_all(repeated, TESS_CASE_D_O, 1.5);
            l->batch_stride = l->seqlen_stride = l->head_stride = l->dim_stride = 0;
            repeated->c.gradients.d_o = *l;
            if (tess_scene_run(packed) && tess_scene_is_right(packed) && tess_scene_run(repeated) &&
                tess_scene_is_right(repeated))
                tess_scene_same_gradients(repeated, 0, packed, 0, "dO of strides 0 and packed");
            tess_scene_free(packed);
            tess_scene_free(repeated);
        }
}

/* V of another size than K, with groups. */
static void native_sparse_attention_27(const tess_subject *subject)
{
    static const int dims[][2] = {{64, 128}, {128, 64}, {192, 128}, {40, 72}};

    for (size_t n = 0; n < COUNT(dims); n++)
        for (size_t t = 0; t < COUNT(types); t++) {
            tess_scene *s =
                tess_scene_make_backward(subject, true, "bwd b1 hq12 hk2 q33 k65 d%d dv%d %s",
                                         dims[n][0], dims[n][1], types[t]);

            if (tess_scene_run(s))
                tess_scene_is_right(s);
            tess_scene_free(s);
        }
}

/* Many sequences of one row. */
static void flash_attention_2260(const tess_subject *subject)
{
    tess_scene *s = tess_scene_make_backward(subject, false, "bwd b830 hq16 q1 k1 d16 bf16");

    tess_scene_set_all(s, TESS_CASE_D_O, 1);
    tess_scene_set_all(s, TESS_CASE_V, 0.5);
    if (tess_scene_run(s))
        for (int b = 0; b < 830; b++) {
            expect_row(s, "dV", TESS_CASE_DV, b, 0, 1, 0);
            expect_row(s, "dQ", TESS_CASE_DQ, b, 0, 0, 0);
            expect_row(s, "dK", TESS_CASE_DK, b, 0, 0, 0);
        }
    tess_scene_free(s);
}

/* The last tile of a sequence must not touch the next one. */
static void flash_attention_2497(const tess_subject *subject)
{
    static const int lengths[] = {127, 1, 129, 64, 3};

    for (size_t t = 0; t < COUNT(types); t++)
        for (int causal = 0; causal < 2; causal++) {
            const char *mask = causal ? "causal" : "";
            tess_scene *all = tess_scene_make_backward(
                subject, true,
                "bwd hq4 hk2 lensq=127,1,129,64,3 lensk=127,1,129,64,3 d16 %s %s invariant",
                types[t], mask);
            const bool is_run = tess_scene_run(all) && tess_scene_is_right(all);

            for (int b = 0; is_run && b < 5; b++) {
                tess_scene *one = tess_scene_make_backward(
                    subject, true, "bwd b1 hq4 hk2 q%d k%d d16 %s %s invariant", lengths[b],
                    lengths[b], types[t], mask);

                tess_scene_copy(all, b, one, 0);
                if (tess_scene_run(one))
                    tess_scene_same_gradients(all, b, one, 0, "in a batch and alone");
                tess_scene_free(one);
            }
            tess_scene_free(all);
        }
}

/* ---- Sums ------------------------------------------------------------------------------------ */

static double first_head_large(tess_place place, const void *user)
{
    (void)user;
    return place.head == 0 ? 256 : 1;
}

/* The sum over a group in fp32: one more than a bf16 sum would ever reach. */
static void levanter_449(const tess_subject *subject)
{
    tess_scene *s = tess_scene_make_backward(subject, false, "bwd b1 hq8 hk1 q1 k1 d16 bf16");

    tess_scene_set(s, TESS_CASE_D_O, first_head_large, NULL);
    tess_scene_set_all(s, TESS_CASE_V, 1);
    if (tess_scene_run(s) && tess_scene_is_right(s)) {
        expect_row(s, "dV", TESS_CASE_DV, 0, 0, 264, 0);
        expect_row(s, "dK", TESS_CASE_DK, 0, 0, 0, 0);
        expect_row(s, "dQ", TESS_CASE_DQ, 0, 0, 0, 0);
    }
    tess_scene_free(s);
}

/* The same bits every time, and on any number of threads. */
static void flash_attention_2244(const tess_subject *subject)
{
    static const char *const masks[] = {"causal", "window=100,0", "bias biasbcast=bi"};

    for (size_t m = 0; m < COUNT(masks); m++) {
        tess_scene *first = tess_scene_make_backward(
            subject, false, "bwd b2 hq8 hk2 q160 k300 d64 bf16 deterministic %s", masks[m]);

        if (!tess_scene_run(first)) {
            tess_scene_free(first);
            continue;
        }
        for (int threads = 0; threads <= 7; threads += threads == 2 ? 5 : 1) {
            tess_subject other;
            char why[640];
            tess_scene *again;

            if (threads > 0 && subject->info.kind != TESS_DEVICE_CPU)
                break;
            if (!tess_subject_open(subject->info.name, subject->info.architecture, threads, &other,
                                   why, sizeof why)) {
                tess_scene_fail(first, "%s", why);
                break;
            }
            again = tess_scene_make_backward(
                &other, false, "bwd b2 hq8 hk2 q160 k300 d64 bf16 deterministic %s", masks[m]);
            if (tess_scene_run(again))
                for (int b = 0; b < 2; b++)
                    tess_scene_same_gradients(again, b, first, b, "another number of threads");
            tess_scene_free(again);
            tess_subject_close(&other);
        }
        tess_scene_free(first);
    }
}

/* ---- Through LSE ----------------------------------------------------------------------------- */

/* dLSE alone: with Q = 0 each row pulls towards the mean of its keys. */
static void flash_attention_1817(const tess_subject *subject)
{
    for (size_t t = 0; t < COUNT(types); t++) {
        tess_scene *s =
            tess_scene_make_backward(subject, true, "bwd b1 hq1 q37 k37 d16 %s causal", types[t]);
        double mean = 0;

        tess_scene_set_all(s, TESS_CASE_D_O, 0);
        tess_scene_set_all(s, TESS_CASE_D_LSE, 1);
        if (tess_scene_run(s) && tess_scene_is_right(s))
            expect_rows(s, "dV", TESS_CASE_DV, 0, 0, 37, 0, 0);
        tess_scene_set_all(s, TESS_CASE_Q, 0);
        if (tess_scene_run(s) && tess_scene_is_right(s))
            for (int i = 0; i < 37; i++) {
                mean += (tess_scene_get(s, TESS_CASE_K, (tess_place){0, 0, i, 3}) - mean) / (i + 1);
                tess_scene_expect(s, "dQ", gradient(s, TESS_CASE_DQ, 0, i, 0, 3), 0.25 * mean,
                                  tess_scene_allows(s, 4, 1, 0.25 * mean));
                expect_row(s, "dK", TESS_CASE_DK, 0, i, 0, 0);
            }
        tess_scene_free(s);
    }
}

static const tess_scene_test tests[] = {
    {"flash_attention_2470", flash_attention_2470},
    {"flash_attention_2421", flash_attention_2421},
    {"flash_attention_443", flash_attention_443},
    {"pytorch_133780", pytorch_133780},
    {"pytorch_103963", pytorch_103963},
    {"pytorch_101967", pytorch_101967},
    {"pytorch_196678", pytorch_196678},
    {"pytorch_105202", pytorch_105202},
    {"flash_attention_1778", flash_attention_1778},
    {"mslk_263", mslk_263},
    {"flash_attention_2623", flash_attention_2623},
    {"flag_attention_45", flag_attention_45},
    {"flash_attention_355", flash_attention_355},
    {"native_sparse_attention_27", native_sparse_attention_27},
    {"flash_attention_2260", flash_attention_2260},
    {"flash_attention_2497", flash_attention_2497},
    {"levanter_449", levanter_449},
    {"flash_attention_2244", flash_attention_2244},
    {"flash_attention_1817", flash_attention_1817},
};

int main(int argc, char **argv)
{
    return tess_scene_main(tests, COUNT(tests), argc, argv);
}
