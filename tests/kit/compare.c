/* SPDX-License-Identifier: Apache-2.0
 * Budgets, and comparing results with the oracle's. */
#include "tests/kit/compare.h"

#include "tests/kit/compare_common.h"
#include "tests/kit/number.h"
#include "tests/kit/shape.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- The table ------------------------------------------------------------------------------- */

#define FP32_SCORE 0x1p-23
#define TF32_SCORE 0x1p-11 /* both factors of every product rounded to 11 bits */

static const tess_budget budgets[] = {
    {TESS_F32, 1e-5, 1e-5, FP32_SCORE, 1e-4, 0x1p-20, 2, 3, 4},
    {TESS_F16, 1e-3, 2e-3, FP32_SCORE, 1e-4, 0x1p-20, 2, 3, 4},
    {TESS_BF16, 8e-3, 1.6e-2, FP32_SCORE, 1e-4, 0x1p-20, 2, 3, 4},
    /* Naive attention would flush most weights of an FP8 softmax to zero: no yardstick. */
    {TESS_E4M3, 0.05, 0, FP32_SCORE, 2e-3, 0x1p-9, 0, 0, 0},
    {TESS_E5M2, 0.05, 0, FP32_SCORE, 2e-3, 0x1p-9, 0, 0, 0},
};

/* f32 with TESS_ALLOW_TF32: TF32 has the mantissa of f16. */
static const tess_budget tf32 = {TESS_F32, 1e-3, 2e-3, TF32_SCORE, 1e-4, TF32_SCORE, 0, 0, 0};

const tess_budget *tess_budget_of(tess_dtype dtype, uint32_t flags)
{
    if (dtype == TESS_F32 && (flags & TESS_ALLOW_TF32))
        return &tf32;
    for (size_t i = 0; i < sizeof budgets / sizeof *budgets; i++)
        if (budgets[i].dtype == dtype)
            return &budgets[i];
    return &budgets[0];
}

/* ---- State of one comparison ----------------------------------------------------------------- */

enum { SHOWN_PROBLEMS = 12 };

typedef tess_comparing comparing;

static const tess_oracle_row *row_of(const comparing *k, int64_t batch, int64_t seqlen,
                                     int64_t head)
{
    const tess_oracle *o = k->oracle;

    return &o->row[(batch * o->seqlen + seqlen) * o->heads + head];
}

static double expected_o(const comparing *k, int64_t batch, int64_t seqlen, int64_t head,
                         int64_t dim)
{
    const tess_oracle *o = k->oracle;

    return o->o[((batch * o->seqlen + seqlen) * o->heads + head) * o->head_dim_v + dim];
}

bool tess_compare_may_show(comparing *k)
{
    k->result.wrong++;
    k->result.is_good = false;
    if (k->shown == SHOWN_PROBLEMS)
        tess_text_add(k->text, "  ... and more\n");
    return k->shown++ < SHOWN_PROBLEMS;
}

void tess_compare_note_worst(const comparing *k, tess_worst *worst, const tess_worst *here)
{
    if (here->share > worst->share || worst->share < 0) {
        *worst = *here;
        worst->sequence = k->sequence;
        worst->row = k->row;
    }
}

/* ---- What may be ----------------------------------------------------------------------------- */

/* What exact arithmetic would leave of a weighted mean of n values: half the least number of O's
 * type, and what n fp32 products and sums may lose below fp32's own. */
static double floor_of(const comparing *k, const tess_oracle_row *row)
{
    return tess_number_least(tess_shape_o_dtype(&k->c->line)) / 2 +
           (double)(row->columns + 1) * tess_number_least(TESS_F32);
}

/* The maximum times log2(e) of a row whose weight is all on one column, where LSE is the maximum.
 */
static double exponent_of(const tess_oracle_row *row)
{
    return fabs(row->lse) * 1.4426950408889634;
}

/* Whether all the weight is on one column, so that O is that column's V to the bit: the others are
 * below what exp() resolves in fp32, whatever fp32 makes of the scores. Between 2^10 and 2^24 the
 * definition lets exp2(s*c - m*c) be off by the rounding of m*c, which cancels in the quotient but
 * not in a rounded weight. */
static bool is_one_value(const tess_oracle_row *row)
{
    const double exponent = exponent_of(row);

    return row->columns > 0 && row->sole_column >= 0 &&
           row->lead > 110 + 4 * FP32_SCORE * row->magnitude &&
           (exponent < 0x1p10 || exponent > 0x1.1p24);
}

/* Whether O is the mean of small integers over a power of two of equal scores. A merge of splits
 * weighs its parts by logarithms, which are not exact. */
static bool is_plain_mean(const comparing *k, const tess_oracle_row *row)
{
    const tess_line *line = &k->c->line;

    return strcmp(line->fill, "equal") == 0 && line->splits == 1 && line->bias == 0 &&
           row->columns > 0 && row->columns <= 1 << 16 && (row->columns & (row->columns - 1)) == 0;
}

/* Rounding an exact result to O's type, and no more. */
static double rounding_of(const comparing *k, double expected)
{
    return fabs(tess_number_round(tess_shape_o_dtype(&k->c->line), expected) - expected);
}

/* What one column's V may be off by. In fp32 a weight that is not quite 1 is multiplied, summed,
 * inverted and multiplied again, and once more where splits are merged: a handful of roundings,
 * below 2^-21. A 16-bit weight next to an fp32 sum adds the rounding of m*c, which a 16-bit result,
 * being that far from the next one, hides and an fp32 result shows. */
static double allowance_of_one_value(const comparing *k, const tess_oracle_row *row,
                                     double expected)
{
    const bool is_narrow = k->c->line.dtype != TESS_F32;
    const double exponent = exponent_of(row);
    const double weight = is_narrow && exponent < 0x1p24 ? exponent * 0x1p-23 : 0;

    if (tess_shape_o_dtype(&k->c->line) != TESS_F32)
        return fabs(expected) * 0x1p-21 + rounding_of(k, expected);
    return fabs(expected) * (0x1p-21 + weight) + floor_of(k, row);
}

static double allowance_of_o(const comparing *k, const tess_oracle_row *row, double expected)
{
    const tess_budget *b = k->budget;
    const bool has_plain_arithmetic = b->naive > 0;

    if (row->columns == 0)
        return 0;
    if (has_plain_arithmetic && is_plain_mean(k, row))
        return rounding_of(k, expected);
    if (has_plain_arithmetic && is_one_value(row))
        return allowance_of_one_value(k, row, expected);
    return b->a * row->value_scale + b->r * fabs(expected) +
           b->score * row->magnitude * row->value_scale + floor_of(k, row);
}

bool tess_compare_may_spread(const comparing *k)
{
    const tess_line *line = &k->c->line;

    return (line->flags & TESS_ALLOW_NONFINITE_SPREAD) &&
           (strcmp(line->fill, "nan") == 0 || strcmp(line->fill, "inf") == 0);
}

/* Error over allowance; NaN must meet NaN, an infinity the same infinity. */
static double share_of(double got, double expected, double allowed)
{
    const double error = fabs(got - expected);

    if (isnan(expected))
        return isnan(got) ? 0 : (double)INFINITY;
    if (isinf(expected))
        return got == expected ? 0 : (double)INFINITY;
    if (!isfinite(got))
        return (double)INFINITY;
    if (error <= allowed)
        return allowed > 0 ? error / allowed : 0;
    return allowed > 0 ? error / allowed : (double)INFINITY;
}

/* ---- Elements -------------------------------------------------------------------------------- */

static void show_row_around(comparing *k, int64_t batch, int64_t seqlen, const tess_worst *w)
{
    const tess_tensor *o = &k->c->tensor[TESS_CASE_O];
    const int64_t dims = o->layout.head_dim;
    const int64_t from = w->dim > 2 ? w->dim - 2 : 0, to = w->dim + 3 < dims ? w->dim + 3 : dims;

    tess_text_add(k->text, "    dims %" PRId64 "...%" PRId64 ":", from, to - 1);
    for (int64_t d = from; d < to; d++)
        tess_text_add(
            k->text, " %.6g (%.6g)",
            tess_number_load(o->layout.dtype, tess_case_element(o, batch, seqlen, w->head, d)),
            expected_o(k, batch, seqlen, w->head, d));
    tess_text_add(k->text, "\n");
    for (int64_t step = -1; step <= 1; step += 2) {
        if (seqlen + step < 0 || seqlen + step >= o->layout.seqlen)
            continue;
        tess_text_add(k->text, "    row %" PRId64 ", same dim: %.6g (%.6g)\n", k->row + step,
                      tess_number_load(o->layout.dtype,
                                       tess_case_element(o, batch, seqlen + step, w->head, w->dim)),
                      expected_o(k, batch, seqlen + step, w->head, w->dim));
    }
}

static void show(comparing *k, const char *name, const tess_worst *w, const char *what)
{
    tess_text_add(k->text,
                  "  %s[sequence %" PRId64 ", row %" PRId64 ", head %" PRId64 ", dim %" PRId64
                  "] is %.9g, expected %.9g%s",
                  name, k->sequence, k->row, w->head, w->dim, w->got, w->expected, what);
    if (isfinite(w->got) && isfinite(w->expected))
        tess_text_add(k->text, ", off by %.3g, allowed %.3g", fabs(w->got - w->expected),
                      w->allowed);
    tess_text_add(k->text, "\n");
}

bool tess_compare_is_unwritten(const tess_tensor *t, const char *element)
{
    return tess_number_bits(t->layout.dtype, element) == tess_number_prefill(t->layout.dtype);
}

static void compare_o(comparing *k, int64_t batch, int64_t seqlen, int64_t head)
{
    const tess_tensor *t = &k->c->tensor[TESS_CASE_O];
    const tess_oracle_row *row = row_of(k, batch, seqlen, head);

    for (int64_t d = 0; d < t->layout.head_dim; d++) {
        const char *element = tess_case_element(t, batch, seqlen, head, d);
        const double got = tess_number_load(t->layout.dtype, element);
        const double expected =
            row->state == TESS_ROW_KNOWN ? expected_o(k, batch, seqlen, head, d) : got;
        tess_worst here = {.head = head, .dim = d, .got = got, .expected = expected};

        k->result.elements++;
        if (tess_compare_is_unwritten(t, element)) {
            here.share = (double)INFINITY;
            tess_compare_note_worst(k, &k->result.o, &here);
            if (tess_compare_may_show(k))
                show(k, "o", &here, " and was never written");
            continue;
        }
        if (row->state != TESS_ROW_KNOWN)
            continue;
        here.allowed = allowance_of_o(k, row, expected);
        here.share = tess_compare_may_spread(k) && !isfinite(got)
                         ? 0
                         : share_of(got, expected, here.allowed);
        /* An empty row is +0, and -0 compares equal to it. */
        if (row->columns == 0 && signbit(got) && !isnan(expected))
            here.share = (double)INFINITY;
        if (isfinite(got) && isfinite(expected))
            k->result.error = fmax(k->result.error, fabs(got - expected));
        tess_compare_note_worst(k, &k->result.o, &here);
        if (here.share > 1 && tess_compare_may_show(k)) {
            show(k, "o", &here, "");
            if (k->shown == 1)
                show_row_around(k, batch, seqlen, &here);
        }
    }
}

static void compare_lse(comparing *k, int64_t batch, int64_t seqlen, int64_t head)
{
    const tess_tensor *t = &k->c->tensor[TESS_CASE_LSE];
    const tess_oracle_row *row = row_of(k, batch, seqlen, head);
    const char *element = tess_case_element(t, batch, seqlen, head, 0);
    const double got = tess_number_load(TESS_F32, element);
    tess_worst here = {.head = head, .got = got, .expected = row->lse};

    if (row->state != TESS_ROW_KNOWN)
        here.expected = got;
    here.allowed = k->budget->lse_a + k->budget->lse_r * fabs(here.expected) +
                   k->budget->score * row->magnitude;
    here.share = tess_compare_is_unwritten(t, element) ? (double)INFINITY
                                                       : share_of(got, here.expected, here.allowed);
    k->result.elements++;
    tess_compare_note_worst(k, &k->result.lse, &here);
    if (here.share > 1 && tess_compare_may_show(k))
        show(k, "lse", &here,
             tess_compare_is_unwritten(t, element) ? " and was never written" : "");
}

static void compare_rows(comparing *k, bool wants_lse)
{
    const tess_line *line = &k->c->line;

    for (k->sequence = 0; k->sequence < line->batch; k->sequence++) {
        const int64_t rows = tess_shape_used_rows(line, k->sequence);

        for (k->row = 0; k->row < rows; k->row++) {
            int64_t batch, seqlen;

            tess_case_row_place(k->c, k->sequence, k->row, &batch, &seqlen);
            for (int64_t head = 0; head < line->heads_q; head++) {
                const tess_oracle_row *row = row_of(k, batch, seqlen, head);

                k->largest_scale = fmax(k->largest_scale, row->value_scale);
                k->largest_score =
                    fmax(k->largest_score, k->budget->score * row->magnitude * row->value_scale);
                compare_o(k, batch, seqlen, head);
                if (wants_lse)
                    compare_lse(k, batch, seqlen, head);
            }
        }
    }
}

/* ---- What must not have changed -------------------------------------------------------------- */

void tess_compare_mark(const tess_tensor *t, const char *element, unsigned char *written)
{
    written[(size_t)(element - t->buffer.data) / t->element_size] = 1;
}

void tess_compare_mark_rows(const comparing *k, const tess_tensor *t, unsigned char *written)
{
    const tess_line *line = &k->c->line;

    for (int64_t b = 0; b < line->batch; b++)
        for (int64_t i = 0; i < tess_shape_used_rows(line, b); i++) {
            int64_t batch, seqlen;

            tess_case_row_place(k->c, b, i, &batch, &seqlen);
            for (int64_t h = 0; h < t->layout.heads; h++)
                for (int64_t d = 0; d < t->layout.head_dim; d++)
                    tess_compare_mark(t, tess_case_element(t, batch, seqlen, h, d), written);
        }
}

void tess_compare_gaps(comparing *k, int which, tess_mark_fn mark)
{
    const tess_tensor *t = &k->c->tensor[which];
    const size_t count = t->buffer.size / t->element_size;
    unsigned char *written;

    if (t->buffer.is_sparse || count == 0)
        return;
    written = calloc(count, 1);
    if (!written)
        return;
    if (mark)
        mark(k, t, written);
    for (size_t i = 0; i < count; i++)
        if (!written[i] && !tess_compare_is_unwritten(t, t->buffer.data + i * t->element_size) &&
            tess_compare_may_show(k))
            tess_text_add(k->text,
                          "  %s: element %zu of the buffer (origin at %" PRId64
                          ") belongs to no row in use and was overwritten\n",
                          t->name, i, t->origin);
    free(written);
}

void tess_compare_surroundings(comparing *k)
{
    for (int i = 0; i < TESS_CASE_TENSORS; i++) {
        const tess_tensor *t = &k->c->tensor[i];

        if (!t->is_present)
            continue;
        if (!tess_buffer_is_intact(&t->buffer) && tess_compare_may_show(k))
            tess_text_add(k->text, "  memory in front of %s was overwritten\n", t->name);
        if (!t->is_output && tess_tensor_hash(t) != t->hash && tess_compare_may_show(k))
            tess_text_add(k->text, "  %s is an input and was overwritten\n", t->name);
    }
}

static void compare_with_naive(comparing *k)
{
    const tess_budget *b = k->budget;
    const double allowed = b->naive * k->oracle->naive_error +
                           b->ulps * tess_number_ulp(b->dtype) * k->largest_scale +
                           k->largest_score + tess_number_least(b->dtype);

    k->result.naive_error = k->oracle->naive_error;
    if (b->naive == 0)
        return;
    k->result.relative_share = k->result.error / allowed;
    if (k->result.error > allowed && tess_compare_may_show(k))
        tess_text_add(k->text,
                      "  largest error of o is %.3g; naive attention in %s is off by %.3g, which "
                      "allows %.3g\n",
                      k->result.error, tess_dtype_name(b->dtype), k->oracle->naive_error, allowed);
}

tess_comparison tess_compare_forward(const tess_case *c, const tess_oracle *oracle, bool wants_lse,
                                     tess_text *text)
{
    comparing k = {.c = c,
                   .oracle = oracle,
                   .budget = tess_budget_of(c->line.dtype, c->line.flags),
                   .result = {.is_good = true, .o.share = -1, .lse.share = -1},
                   .text = text};

    compare_rows(&k, wants_lse);
    compare_with_naive(&k);
    tess_compare_surroundings(&k);
    tess_compare_gaps(&k, TESS_CASE_O, tess_compare_mark_rows);
    tess_compare_gaps(&k, TESS_CASE_LSE, wants_lse ? tess_compare_mark_rows : NULL);
    return k.result;
}

bool tess_compare_bits(const tess_case *c, int which, const char *before, const char *what,
                       tess_text *text)
{
    const tess_tensor *t = &c->tensor[which];

    if (memcmp(before, t->buffer.data, t->buffer.size) == 0)
        return true;
    for (size_t i = 0; i < t->buffer.size; i += t->element_size) {
        if (memcmp(before + i, t->buffer.data + i, t->element_size) != 0) {
            tess_text_add(text, "  %s: element %zu of the buffer is %.9g and was %.9g %s\n",
                          t->name, i / t->element_size,
                          tess_number_load(t->layout.dtype, t->buffer.data + i),
                          tess_number_load(t->layout.dtype, before + i), what);
            return false;
        }
    }
    return true;
}
