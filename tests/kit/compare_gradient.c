/* SPDX-License-Identifier: Apache-2.0
 * Comparing gradients with the oracle's. */
#include "tests/kit/compare_common.h"
#include "tests/kit/number.h"
#include "tests/kit/shape.h"

#include <inttypes.h>
#include <math.h>

/* One gradient: where the library put it, what it should be, what is known so far. */
typedef struct subject {
    int which; /* TESS_CASE_... */
    const tess_tensor *tensor;
    const tess_oracle_gradient *truth;
    double naive_error;                             /* below 0: not compared with naive */
    double error, largest_magnitude, largest_doubt; /* of known elements */
} subject;

/* What may be: rounding of the terms and of the result, what fp32 resolves of the scores in them,
 * and what is below the least numbers. A sum of nothing is 0. */
static double allowance(const tess_comparing *k, const subject *s, int64_t row, int64_t element)
{
    const tess_budget *b = k->budget;
    const double magnitude = s->truth->magnitude[element];

    if (magnitude == 0)
        return 0;
    return (b->a + b->score * s->truth->scores[row]) * magnitude +
           b->r * fabs(s->truth->value[element]) + s->truth->underflow[row] +
           tess_number_least(s->tensor->layout.dtype) / 2;
}

/* Whether an infinity is what a value that near becomes in the output's type. */
static bool is_overflow(const subject *s, double got, double expected, double allowed)
{
    const double rounded = tess_number_round(s->tensor->layout.dtype, fabs(expected) + allowed);

    return isinf(got) && isinf(rounded) && signbit(got) == signbit(expected);
}

static double share_of(const tess_comparing *k, const subject *s, const tess_worst *w)
{
    const double error = fabs(w->got - w->expected);

    if (!isfinite(w->expected))
        return isfinite(w->got) ? (double)INFINITY : 0;
    if (!isfinite(w->got))
        return tess_compare_may_spread(k) || is_overflow(s, w->got, w->expected, w->allowed)
                   ? 0
                   : (double)INFINITY;
    if (error <= w->allowed)
        return w->allowed > 0 ? error / w->allowed : 0;
    return w->allowed > 0 ? error / w->allowed : (double)INFINITY;
}

static void show(tess_comparing *k, const tess_worst *w, const char *what)
{
    tess_text_add(k->text,
                  "  %s[sequence %" PRId64 ", row %" PRId64 ", head %" PRId64 ", dim %" PRId64
                  "] is %.9g, expected %.9g%s",
                  w->tensor, k->sequence, k->row, w->head, w->dim, w->got, w->expected, what);
    if (isfinite(w->got) && isfinite(w->expected))
        tess_text_add(k->text, ", off by %.3g, allowed %.3g", fabs(w->got - w->expected),
                      w->allowed);
    tess_text_add(k->text, "\n");
}

/* One element: `at` in memory, number `row` * dims + `d` of the oracle. */
static void compare_element(tess_comparing *k, subject *s, const char *at, int64_t row, int64_t d,
                            tess_worst here)
{
    const int64_t element = row * s->truth->extent[3] + d;
    const tess_dtype dtype = s->tensor->layout.dtype;

    k->result.elements++;
    here.tensor = s->tensor->name;
    here.got = tess_number_load(dtype, at);
    here.expected = s->truth->is_known[row] ? s->truth->value[element] : here.got;
    if (tess_compare_is_unwritten(s->tensor, at)) {
        here.share = (double)INFINITY;
        tess_compare_note_worst(k, &k->result.o, &here);
        if (tess_compare_may_show(k))
            show(k, &here, " and was never written");
        return;
    }
    if (!s->truth->is_known[row])
        return;
    here.allowed = allowance(k, s, row, element);
    here.share = share_of(k, s, &here);
    if (isfinite(here.got) && isfinite(here.expected)) {
        const double magnitude = s->truth->magnitude[element];

        s->error = fmax(s->error, fabs(here.got - here.expected));
        s->largest_magnitude = fmax(s->largest_magnitude, magnitude);
        s->largest_doubt =
            fmax(s->largest_doubt,
                 k->budget->score * s->truth->scores[row] * magnitude + s->truth->underflow[row]);
    }
    tess_compare_note_worst(k, &k->result.o, &here);
    if (here.share > 1 && tess_compare_may_show(k))
        show(k, &here, "");
}

/* ---- Walking over a gradient ----------------------------------------------------------------- */

static void compare_heads(tess_comparing *k, subject *s, int64_t batch, int64_t seqlen)
{
    const tess_layout *l = &s->tensor->layout;

    for (int64_t h = 0; h < l->heads; h++)
        for (int64_t d = 0; d < l->head_dim; d++)
            compare_element(k, s, tess_case_element(s->tensor, batch, seqlen, h, d),
                            (batch * l->seqlen + seqlen) * l->heads + h, d,
                            (tess_worst){.head = h, .dim = d});
}

/* dq, dk, dv: of every used row or column, those that nobody sees too. */
static void compare_rows(tess_comparing *k, subject *s)
{
    const tess_line *line = &k->c->line;
    const bool is_q = s->which == TESS_CASE_DQ;

    for (k->sequence = 0; k->sequence < line->batch; k->sequence++) {
        const int64_t rows = is_q ? tess_shape_used_rows(line, k->sequence)
                                  : tess_shape_used_columns(line, k->sequence);

        for (k->row = 0; k->row < rows; k->row++) {
            int64_t batch, seqlen;

            if (is_q)
                tess_case_row_place(k->c, k->sequence, k->row, &batch, &seqlen);
            else
                tess_case_column_place(k->c, k->sequence, k->row, &batch, &seqlen);
            compare_heads(k, s, batch, seqlen);
        }
    }
}

/* What is added to scores: every element there is, the extents being (b, h, i, j). */
static void compare_sides(tess_comparing *k, subject *s)
{
    const tess_layout *l = &s->tensor->layout;

    for (k->sequence = 0; k->sequence < l->batch; k->sequence++)
        for (int64_t h = 0; h < l->heads; h++)
            for (k->row = 0; k->row < l->seqlen; k->row++)
                for (int64_t d = 0; d < l->head_dim; d++)
                    compare_element(k, s, tess_case_element(s->tensor, k->sequence, k->row, h, d),
                                    (k->sequence * l->heads + h) * l->seqlen + k->row, d,
                                    (tess_worst){.head = h, .dim = d});
}

static void mark_columns(const tess_comparing *k, const tess_tensor *t, unsigned char *written)
{
    const tess_line *line = &k->c->line;

    for (int64_t b = 0; b < line->batch; b++)
        for (int64_t j = 0; j < tess_shape_used_columns(line, b); j++) {
            int64_t batch, seqlen;

            tess_case_column_place(k->c, b, j, &batch, &seqlen);
            for (int64_t h = 0; h < t->layout.heads; h++)
                for (int64_t d = 0; d < t->layout.head_dim; d++)
                    tess_compare_mark(t, tess_case_element(t, batch, seqlen, h, d), written);
        }
}

static void mark_all(const tess_comparing *k, const tess_tensor *t, unsigned char *written)
{
    (void)k;
    for (int64_t b = 0; b < t->layout.batch; b++)
        for (int64_t s = 0; s < t->layout.seqlen; s++)
            for (int64_t h = 0; h < t->layout.heads; h++)
                for (int64_t d = 0; d < t->layout.head_dim; d++)
                    tess_compare_mark(t, tess_case_element(t, b, s, h, d), written);
}

/* ---- All of them ----------------------------------------------------------------------------- */

static void compare_with_naive(tess_comparing *k, const subject *s)
{
    const tess_budget *b = k->budget;
    const double allowed = b->naive_gradient * s->naive_error +
                           b->ulps * tess_number_ulp(b->dtype) * s->largest_magnitude +
                           s->largest_doubt + tess_number_least(s->tensor->layout.dtype);

    if (b->naive_gradient == 0 || s->naive_error < 0)
        return;
    if (s->error / allowed > k->result.relative_share) {
        k->result.relative_share = s->error / allowed;
        k->result.error = s->error;
        k->result.naive_error = s->naive_error;
    }
    if (s->error > allowed && tess_compare_may_show(k))
        tess_text_add(k->text,
                      "  largest error of %s is %.3g; naive attention in %s is off by %.3g, which "
                      "allows %.3g\n",
                      s->tensor->name, s->error, tess_dtype_name(b->dtype), s->naive_error,
                      allowed);
}

tess_comparison tess_compare_backward(const tess_case *c, const tess_oracle_gradients *gradients,
                                      tess_text *text)
{
    tess_comparing k = {.c = c,
                        .gradients = gradients,
                        .budget = tess_budget_of(c->line.dtype, c->line.flags),
                        .result = {.is_good = true, .o.share = -1, .lse.share = -1},
                        .text = text};
    const struct {
        int which;
        const tess_oracle_gradient *truth;
        double naive_error;
        tess_mark_fn mark;
    } all[] = {
        {TESS_CASE_DQ, &gradients->dq, gradients->naive_dq, tess_compare_mark_rows},
        {TESS_CASE_DK, &gradients->dk, gradients->naive_dk, mark_columns},
        {TESS_CASE_DV, &gradients->dv, gradients->naive_dv, mark_columns},
        {TESS_CASE_DBIAS, &gradients->dbias, -1, mark_all},
        {TESS_CASE_DSLOPES, &gradients->dslope, -1, mark_all},
        {TESS_CASE_DSINK, &gradients->dsink, -1, mark_all},
    };

    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        subject s = {.which = all[i].which,
                     .tensor = &c->tensor[all[i].which],
                     .truth = all[i].truth,
                     .naive_error = all[i].naive_error};

        if (!s.tensor->is_present)
            continue;
        if (s.which == TESS_CASE_DQ || s.which == TESS_CASE_DK || s.which == TESS_CASE_DV)
            compare_rows(&k, &s);
        else
            compare_sides(&k, &s);
        compare_with_naive(&k, &s);
        tess_compare_gaps(&k, s.which, all[i].mark);
    }
    tess_compare_surroundings(&k);
    return k.result;
}
