/* SPDX-License-Identifier: Apache-2.0
 * Gradients wrong on purpose: the oracle under a falsified description, or outputs tampered with.
 */
#include "tests/kit/number.h"
#include "tests/kit/random.h"
#include "tests/kit/sabotage.h"
#include "tests/kit/sabotage_common.h"
#include "tests/kit/shape.h"

#include <stdio.h>

enum { TILE = 16, GRADIENTS = 6 };

/* A falsified pass: description, mistake, and the gradients that they give. */
typedef struct forgery {
    const tess_line *line;
    tess_attention_desc desc;
    tess_backward_args args;
    tess_bias bias;
    tess_oracle_fault fault;
} forgery;

typedef struct mode {
    const char *name;
    bool (*applies)(const tess_line *line);
    void (*falsify)(forgery *f); /* before the oracle runs again */
    bool (*tamper)(tess_case *c, const tess_oracle_gradients *truth); /* with host memory */
} mode;

static const int gradient_tensors[GRADIENTS] = {
    TESS_CASE_DQ, TESS_CASE_DK, TESS_CASE_DV, TESS_CASE_DBIAS, TESS_CASE_DSLOPES, TESS_CASE_DSINK};

static const tess_oracle_gradient *gradient_of(const tess_oracle_gradients *g, int index)
{
    const tess_oracle_gradient *const all[GRADIENTS] = {&g->dq,    &g->dk,     &g->dv,
                                                        &g->dbias, &g->dslope, &g->dsink};

    return all[index];
}

/* ---- Falsified descriptions ------------------------------------------------------------------ */

static void drop_last_tile(forgery *f)
{
    f->fault.drop_columns = TILE;
}
static void shift_mask(forgery *f)
{
    f->fault.shift_mask = 1;
}
static void forget_mask(forgery *f)
{
    f->fault.absent_is_zero = true;
}
static void interleave_heads(forgery *f)
{
    f->fault.interleave_heads = true;
}
static void alibi_from_start(forgery *f)
{
    f->fault.alibi_from_start = true;
}
static void twice_sink(forgery *f)
{
    f->fault.drop_sink_sum = true;
}
static void forget_delta(forgery *f)
{
    f->fault.forget_delta = true;
}
static void forget_cap_slope(forgery *f)
{
    f->fault.forget_cap_slope = true;
}
static void forget_scale(forgery *f)
{
    f->fault.forget_scale = true;
}
static void forget_group(forgery *f)
{
    f->fault.forget_group = true;
}
static void ignore_dlse(forgery *f)
{
    f->args.d_lse = (tess_in){NULL, 0};
}
static void ignore_softcap(forgery *f)
{
    f->desc.softcap = 0;
}
static void ignore_alibi(forgery *f)
{
    f->bias.present &= ~(uint32_t)TESS_BIAS_ALIBI;
}
static void ignore_bias(forgery *f)
{
    f->bias.present &= ~(uint32_t)TESS_BIAS_TENSOR;
}
static void ignore_sink(forgery *f)
{
    f->bias.present &= ~(uint32_t)TESS_BIAS_SINK;
}

static void wrong_scale(forgery *f)
{
    const double scale = f->line->scale_is_set ? (double)f->line->softmax_scale
                                               : 1 / sqrt((double)f->line->head_dim);

    f->desc.softmax_scale = (float)(scale * 1.125);
    f->desc.flags |= TESS_SCALE_IS_SET;
}

/* ---- Tampering ------------------------------------------------------------------------------- */

/* The first gradient there is, keys before queries; NULL when none has an element. */
static tess_tensor *any_gradient(tess_case *c)
{
    static const int order[] = {TESS_CASE_DK,    TESS_CASE_DV,      TESS_CASE_DQ,
                                TESS_CASE_DBIAS, TESS_CASE_DSLOPES, TESS_CASE_DSINK};

    for (size_t i = 0; i < sizeof order / sizeof *order; i++) {
        tess_tensor *t = &c->tensor[order[i]];

        if (t->is_present && t->buffer.size > 0)
            return t;
    }
    return NULL;
}

/* Whether two heads of a row of dQ are known and plainly not the same. */
static bool are_apart(const tess_case *c, const tess_oracle_gradient *g, int64_t row)
{
    const double share = tess_plain_difference(c->line.dtype);
    const int64_t dims = g->extent[3];

    for (int64_t d = 0; d < dims && g->is_known[row] && g->is_known[row + 1]; d++) {
        const double *a = g->value + row * dims, *b = a + dims;
        const double size = fmax(g->magnitude[row * dims + d], g->magnitude[(row + 1) * dims + d]);

        if (g->scores[row] < 1e4 && tess_differs(a[d], b[d], 2 * share * size + 1e-30))
            return true;
    }
    return false;
}

static void swap_row(tess_tensor *t, int64_t batch, int64_t seqlen)
{
    const tess_dtype dtype = t->layout.dtype;

    for (int64_t d = 0; d < t->layout.head_dim; d++) {
        char *first = tess_case_element(t, batch, seqlen, 0, d);
        char *second = tess_case_element(t, batch, seqlen, 1, d);
        const uint32_t bits = tess_number_bits(dtype, first);

        tess_number_set_bits(dtype, first, tess_number_bits(dtype, second));
        tess_number_set_bits(dtype, second, bits);
    }
}

static bool swap_heads(tess_case *c, const tess_oracle_gradients *truth)
{
    tess_tensor *t = &c->tensor[TESS_CASE_DQ];
    bool is_shown = false;

    /* First whether it would show, then the deed. */
    for (int pass = 0; pass < 2 && t->is_present && (pass == 0 || is_shown); pass++)
        for (int64_t b = 0; b < c->line.batch; b++)
            for (int64_t i = 0; i < tess_shape_used_rows(&c->line, b); i++) {
                const tess_layout *l = &t->layout;
                int64_t batch, seqlen;

                tess_case_row_place(c, b, i, &batch, &seqlen);
                if (pass == 1)
                    swap_row(t, batch, seqlen);
                else
                    is_shown = is_shown ||
                               are_apart(c, &truth->dq, (batch * l->seqlen + seqlen) * l->heads);
            }
    return is_shown;
}

static bool unwritten_key(tess_case *c, const tess_oracle_gradients *truth)
{
    tess_tensor *t = &c->tensor[c->tensor[TESS_CASE_DK].is_present ? TESS_CASE_DK : TESS_CASE_DV];
    tess_random random = tess_random_start(c->line.seed, 0x5AB3);
    int64_t batch, seqlen;

    (void)truth;
    if (!t->is_present || t->layout.heads == 0)
        return false;
    for (int64_t b = 0; b < c->line.batch; b++) {
        const int64_t columns = tess_shape_used_columns(&c->line, b);

        if (columns == 0)
            continue;
        tess_case_column_place(c, b, tess_random_below(&random, columns), &batch, &seqlen);
        for (int64_t d = 0; d < t->layout.head_dim; d++)
            tess_number_set_bits(t->layout.dtype,
                                 tess_case_element(t, batch, seqlen, t->layout.heads - 1, d),
                                 tess_number_prefill(t->layout.dtype));
        return true;
    }
    return false;
}

/* Puts a number where there is NaN, or NaN where there is a number: the first such place. */
static bool change_nan(tess_case *c, const tess_oracle_gradients *truth, bool wants_nan)
{
    tess_tensor *t = &c->tensor[TESS_CASE_DQ];
    const tess_oracle_gradient *g = &truth->dq;

    for (int64_t b = 0; t->is_present && b < c->line.batch; b++)
        for (int64_t i = 0; i < tess_shape_used_rows(&c->line, b); i++) {
            int64_t batch, seqlen, row;

            tess_case_row_place(c, b, i, &batch, &seqlen);
            row = (batch * g->extent[1] + seqlen) * g->extent[2];
            if (!g->is_known[row] || isfinite(g->value[row * g->extent[3]]) != wants_nan)
                continue;
            tess_number_store(t->layout.dtype, tess_case_element(t, batch, seqlen, 0, 0),
                              wants_nan ? (double)NAN : 0);
            return true;
        }
    return false;
}

static bool hide_nan(tess_case *c, const tess_oracle_gradients *truth)
{
    return change_nan(c, truth, false);
}
static bool spread_nan(tess_case *c, const tess_oracle_gradients *truth)
{
    return !(c->line.flags & TESS_ALLOW_NONFINITE_SPREAD) && change_nan(c, truth, true);
}

static bool canary(tess_case *c, const tess_oracle_gradients *truth)
{
    tess_tensor *t = any_gradient(c);

    (void)truth;
    if (t)
        t->buffer.data[-1] ^= 1;
    return t != NULL;
}

/* Overwrites the first element that still holds its pattern, if any: it is in a gap. */
static bool gap(tess_case *c, const tess_oracle_gradients *truth)
{
    tess_tensor *t = any_gradient(c);

    (void)truth;
    for (size_t i = 0; t && !t->buffer.is_sparse && i < t->buffer.size; i += t->element_size) {
        char *element = t->buffer.data + i;

        if (tess_number_bits(t->layout.dtype, element) == tess_number_prefill(t->layout.dtype)) {
            tess_number_set_bits(t->layout.dtype, element, 0);
            return true;
        }
    }
    return false;
}

static bool input(tess_case *c, const tess_oracle_gradients *truth)
{
    tess_tensor *t = &c->tensor[TESS_CASE_D_O];

    (void)truth;
    if (t->buffer.size == 0)
        return false;
    *tess_case_element(t, 0, 0, 0, 0) ^= 1;
    return true;
}

/* ---- The modes ------------------------------------------------------------------------------- */

static const mode modes[] = {
    {"drop-last-tile", tess_line_always, drop_last_tile, NULL},
    {"shift-mask", tess_line_has_mask, shift_mask, NULL},
    {"forget-mask", tess_line_has_mask, forget_mask, NULL},
    {"swap-heads", tess_line_has_heads, NULL, swap_heads},
    {"interleave-heads", tess_line_has_groups, interleave_heads, NULL},
    {"wrong-scale", tess_line_always, wrong_scale, NULL},
    {"ignore-softcap", tess_line_has_softcap, ignore_softcap, NULL},
    {"ignore-alibi", tess_line_has_alibi, ignore_alibi, NULL},
    {"ignore-bias", tess_line_has_tensor, ignore_bias, NULL},
    {"ignore-sink", tess_line_has_sink, ignore_sink, NULL},
    {"alibi-from-start", tess_line_has_offset_alibi, alibi_from_start, NULL},
    {"twice-sink", tess_line_has_sink, twice_sink, NULL},
    {"hide-nan", tess_line_is_nan_fill, NULL, hide_nan},
    {"spread-nan", tess_line_always, NULL, spread_nan},
    {"canary", tess_line_always, NULL, canary},
    {"gap", tess_line_always, NULL, gap},
    {"input", tess_line_always, NULL, input},
    {"forget-delta", tess_line_always, forget_delta, NULL},
    {"ignore-dlse", tess_line_always, ignore_dlse, NULL},
    {"forget-cap-slope", tess_line_has_softcap, forget_cap_slope, NULL},
    {"forget-scale", tess_line_always, forget_scale, NULL},
    {"forget-group", tess_line_has_group, forget_group, NULL},
    {"unwritten-key", tess_line_always, NULL, unwritten_key},
};

enum { MODES = sizeof modes / sizeof *modes };

/* ---- Whether it shows ------------------------------------------------------------------------ */

/* Whether the library writes this row at all: those past used lengths say nothing. The oracle never
 * adds to them, so that both gradients are 0 there. */
static bool row_shows(const tess_oracle_gradient *a, const tess_oracle_gradient *b, int64_t row,
                      double share)
{
    const double scores = 0x1p-19 * fmax(a->scores[row], b->scores[row]);
    const int64_t dims = a->extent[3];

    if (!a->is_known[row] || !b->is_known[row] || scores > 0.1)
        return false;
    for (int64_t d = 0; d < dims; d++) {
        const int64_t n = row * dims + d;
        const double size = fmax(a->magnitude[n], b->magnitude[n]);
        const double lost = 4 * fmax(a->underflow[row], b->underflow[row]);

        if (isfinite(a->value[n]) != isfinite(b->value[n]))
            return true;
        if (isfinite(a->value[n]) &&
            tess_differs(a->value[n], b->value[n], (share + scores) * size + lost + 1e-30))
            return true;
    }
    return false;
}

static bool shows(const tess_oracle_gradients *truth, const tess_oracle_gradients *wrong,
                  const tess_line *line)
{
    const double share = tess_plain_difference(line->dtype);

    for (int i = 0; i < GRADIENTS; i++) {
        const tess_oracle_gradient *a = gradient_of(truth, i), *b = gradient_of(wrong, i);

        for (int64_t row = 0; a->value && row < a->extent[0] * a->extent[1] * a->extent[2]; row++)
            if (row_shows(a, b, row, share))
                return true;
    }
    return false;
}

/* ---- Doing it -------------------------------------------------------------------------------- */

static void write_head(tess_tensor *t, const tess_oracle_gradient *g, int64_t row, int64_t batch,
                       int64_t seqlen, int64_t head)
{
    for (int64_t d = 0; d < g->extent[3] && g->is_known[row]; d++)
        tess_number_store(t->layout.dtype, tess_case_element(t, batch, seqlen, head, d),
                          g->value[row * g->extent[3] + d]);
}

/* dq, dk or dv, in its used rows or columns. */
static void write_rows(tess_case *c, tess_tensor *t, const tess_oracle_gradient *g, bool is_q)
{
    const tess_line *line = &c->line;

    for (int64_t b = 0; b < line->batch; b++) {
        const int64_t rows =
            is_q ? tess_shape_used_rows(line, b) : tess_shape_used_columns(line, b);

        for (int64_t i = 0; i < rows; i++) {
            int64_t batch, seqlen;

            if (is_q)
                tess_case_row_place(c, b, i, &batch, &seqlen);
            else
                tess_case_column_place(c, b, i, &batch, &seqlen);
            for (int64_t h = 0; h < t->layout.heads; h++)
                write_head(t, g, (batch * g->extent[1] + seqlen) * g->extent[2] + h, batch, seqlen,
                           h);
        }
    }
}

void tess_sabotage_write_gradients(tess_case *c, const tess_oracle_gradients *gradients)
{
    for (int i = 0; i < GRADIENTS; i++) {
        tess_tensor *t = &c->tensor[gradient_tensors[i]];
        const tess_oracle_gradient *g = gradient_of(gradients, i);
        const tess_layout *l = &t->layout;

        if (!t->is_present)
            continue;
        if (i < 3) {
            write_rows(c, t, g, i == 0);
            continue;
        }
        for (int64_t b = 0; b < l->batch; b++)
            for (int64_t h = 0; h < l->heads; h++)
                for (int64_t s = 0; s < l->seqlen; s++)
                    write_head(t, g, (b * l->heads + h) * l->seqlen + s, b, s, h);
    }
}

/* One mode; false when it would not show, and then no output was changed. */
static bool commit(const mode *m, tess_case *c, const tess_oracle_gradients *truth)
{
    forgery f = {.line = &c->line,
                 .desc = c->desc,
                 .args = tess_case_host_backward_args(c),
                 .bias = c->bias};
    const tess_oracle_options options = {.budget = 1e8, .fault = &f.fault};
    tess_oracle_gradients wrong;
    bool is_shown;

    if (m->tamper)
        return m->tamper(c, truth);
    if (f.desc.bias)
        f.desc.bias = &f.bias;
    m->falsify(&f);
    if (!tess_oracle_backward(&f.desc, &c->gradients, &f.args, &options, &wrong))
        return false;
    is_shown = shows(truth, &wrong, &c->line);
    if (is_shown)
        tess_sabotage_write_gradients(c, &wrong);
    tess_oracle_gradients_release(&wrong);
    return is_shown;
}

static bool commit_any(tess_case *c, const tess_oracle_gradients *truth, char *out_name,
                       size_t name_size)
{
    tess_random random = tess_random_start(c->line.seed, 0x5AB2);
    const int start = (int)tess_random_below(&random, MODES);

    for (int i = 0; i < MODES; i++) {
        const mode *m = &modes[(start + i) % MODES];

        if (m->applies(&c->line) && commit(m, c, truth)) {
            snprintf(out_name, name_size, "%s", m->name);
            return true;
        }
    }
    return false;
}

bool tess_sabotage_backward(tess_case *c, const tess_oracle_gradients *truth, const char *name,
                            char *out_name, size_t name_size, tess_text *why)
{
    const mode *chosen = NULL;

    snprintf(out_name, name_size, "%s", name);
    if (strcmp(name, "any") == 0) {
        if (commit_any(c, truth, out_name, name_size))
            return true;
        tess_text_add(why, "no sabotage would show in this line\n");
        return false;
    }
    for (int i = 0; i < MODES; i++)
        if (strcmp(modes[i].name, name) == 0)
            chosen = &modes[i];
    if (!chosen || !chosen->applies(&c->line))
        return tess_sabotage_refuse(name, why);
    if (commit(chosen, c, truth))
        return true;
    tess_text_add(why, "with this data %s makes no difference that could be told from rounding\n",
                  name);
    return false;
}
