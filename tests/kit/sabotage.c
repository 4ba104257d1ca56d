/* SPDX-License-Identifier: Apache-2.0
 * Results wrong on purpose: the oracle under a falsified description, or outputs tampered with. */
#include "tests/kit/sabotage.h"

#include "tests/kit/number.h"
#include "tests/kit/random.h"
#include "tests/kit/sabotage_common.h"
#include "tests/kit/shape.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { TILE = 16 };

/* A falsified pass: description, mistake, and the result that they give. */
typedef struct forgery {
    tess_case *c;
    const tess_oracle *truth;
    tess_attention_desc desc;
    tess_forward_args args;
    tess_bias bias;
    tess_oracle_fault fault;
} forgery;

typedef struct mode {
    const char *name;
    bool (*applies)(const tess_line *line);
    void (*falsify)(forgery *f);                                /* before the oracle runs again */
    void (*rewrite)(const tess_line *line, tess_oracle *wrong); /* of a copy of the truth */
    bool (*tamper)(tess_case *c); /* with host memory; false: nowhere */
} mode;

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
static void forget_rescale(forgery *f)
{
    f->fault.forget_rescale = TILE;
}
static void interleave_heads(forgery *f)
{
    f->fault.interleave_heads = true;
}
static void late_softcap(forgery *f)
{
    f->fault.cap_after_bias = true;
}
static void alibi_from_start(forgery *f)
{
    f->fault.alibi_from_start = true;
}
static void twice_sink(forgery *f)
{
    f->fault.drop_sink_sum = true;
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
    const tess_line *line = &f->c->line;
    const double scale =
        line->scale_is_set ? (double)line->softmax_scale : 1 / sqrt((double)line->head_dim);

    f->desc.softmax_scale = (float)(scale * 1.125);
    f->desc.flags |= TESS_SCALE_IS_SET;
}

/* ---- Rewritten results ----------------------------------------------------------------------- */

static int64_t row_count(const tess_oracle *o)
{
    return o->batch * o->seqlen * o->heads;
}

static void swap_heads(const tess_line *line, tess_oracle *wrong)
{
    const int64_t dims = wrong->head_dim_v;

    (void)line;
    for (int64_t n = 0; n < row_count(wrong); n += wrong->heads) {
        const tess_oracle_row row = wrong->row[n];

        for (int64_t d = 0; d < dims; d++) {
            const double o = wrong->o[n * dims + d];

            wrong->o[n * dims + d] = wrong->o[(n + 1) * dims + d];
            wrong->o[(n + 1) * dims + d] = o;
        }
        wrong->row[n] = wrong->row[n + 1];
        wrong->row[n + 1] = row;
    }
}

static void base2_lse(const tess_line *line, tess_oracle *wrong)
{
    (void)line;
    for (int64_t n = 0; n < row_count(wrong); n++)
        wrong->row[n].lse *= 1.4426950408889634;
}

static void empty_lse(const tess_line *line, tess_oracle *wrong)
{
    (void)line;
    for (int64_t n = 0; n < row_count(wrong); n++)
        if (wrong->row[n].lse == -(double)INFINITY)
            wrong->row[n].lse = (double)INFINITY;
}

static void set_row(tess_oracle *wrong, int64_t n, double value)
{
    wrong->row[n].lse = value;
    for (int64_t d = 0; d < wrong->head_dim_v; d++)
        wrong->o[n * wrong->head_dim_v + d] = value;
}

static void hide_nan(const tess_line *line, tess_oracle *wrong)
{
    (void)line;
    for (int64_t n = 0; n < row_count(wrong); n++)
        if (wrong->row[n].state == TESS_ROW_KNOWN &&
            (isnan(wrong->row[n].lse) || !isfinite(wrong->o[n * wrong->head_dim_v])))
            set_row(wrong, n, 0);
}

/* The first row that is not NaN, counted from a place that the seed draws. */
static void spread_nan(const tess_line *line, tess_oracle *wrong)
{
    const int64_t count = row_count(wrong);
    tess_random random = tess_random_start(line->seed, 0x5AB0);
    const int64_t start = count > 0 ? tess_random_below(&random, count) : 0;

    for (int64_t n = 0; n < count; n++) {
        const int64_t place = (start + n) % count;

        if (wrong->row[place].state == TESS_ROW_KNOWN && !isnan(wrong->row[place].lse)) {
            set_row(wrong, place, (double)NAN);
            return;
        }
    }
}

/* ---- Tampering ------------------------------------------------------------------------------- */

/* A row in use, drawn by the seed; false when there is none. */
static bool draw_row(const tess_case *c, int64_t *out_batch, int64_t *out_seqlen, int64_t *out_head)
{
    tess_random random = tess_random_start(c->line.seed, 0x5AB1);
    int64_t total = 0, chosen;

    for (int64_t b = 0; b < c->line.batch; b++)
        total += tess_shape_used_rows(&c->line, b);
    if (total == 0 || c->line.heads_q == 0)
        return false;
    chosen = tess_random_below(&random, total);
    *out_head = tess_random_below(&random, c->line.heads_q);
    for (int64_t b = 0; b < c->line.batch; b++) {
        const int64_t rows = tess_shape_used_rows(&c->line, b);

        if (chosen < rows) {
            tess_case_row_place(c, b, chosen, out_batch, out_seqlen);
            return true;
        }
        chosen -= rows;
    }
    return false;
}

static bool unwrite(tess_case *c, int which)
{
    tess_tensor *t = &c->tensor[which];
    int64_t batch, seqlen, head;

    if (!draw_row(c, &batch, &seqlen, &head))
        return false;
    for (int64_t d = 0; d < t->layout.head_dim; d++)
        tess_number_set_bits(t->layout.dtype, tess_case_element(t, batch, seqlen, head, d),
                             tess_number_prefill(t->layout.dtype));
    return true;
}

static bool unwritten_row(tess_case *c)
{
    return unwrite(c, TESS_CASE_O);
}
static bool unwritten_lse(tess_case *c)
{
    return unwrite(c, TESS_CASE_LSE);
}

static bool canary(tess_case *c)
{
    tess_buffer *buffer = &c->tensor[TESS_CASE_O].buffer;

    buffer->data[-1] ^= 1;
    return true;
}

/* Overwrites the first element that still holds its pattern, if any: it is in a gap. */
static bool gap(tess_case *c)
{
    tess_tensor *t = &c->tensor[TESS_CASE_O];

    if (t->buffer.is_sparse)
        return false;
    for (size_t i = 0; i < t->buffer.size; i += t->element_size) {
        char *element = t->buffer.data + i;

        if (tess_number_bits(t->layout.dtype, element) == tess_number_prefill(t->layout.dtype)) {
            tess_number_set_bits(t->layout.dtype, element, 0);
            return true;
        }
    }
    return false;
}

static bool input(tess_case *c)
{
    tess_tensor *t = &c->tensor[TESS_CASE_Q];

    if (t->buffer.size == 0)
        return false;
    *tess_case_element(t, 0, 0, 0, 0) ^= 1;
    return true;
}

/* ---- The modes ------------------------------------------------------------------------------- */

static const mode modes[] = {
    {"drop-last-tile", tess_line_always, drop_last_tile, NULL, NULL},
    {"shift-mask", tess_line_has_mask, shift_mask, NULL, NULL},
    {"forget-mask", tess_line_has_mask, forget_mask, NULL, NULL},
    {"forget-rescale", tess_line_always, forget_rescale, NULL, NULL},
    {"swap-heads", tess_line_has_heads, NULL, swap_heads, NULL},
    {"interleave-heads", tess_line_has_groups, interleave_heads, NULL, NULL},
    {"wrong-scale", tess_line_always, wrong_scale, NULL, NULL},
    {"ignore-softcap", tess_line_has_softcap, ignore_softcap, NULL, NULL},
    {"ignore-alibi", tess_line_has_alibi, ignore_alibi, NULL, NULL},
    {"ignore-bias", tess_line_has_tensor, ignore_bias, NULL, NULL},
    {"ignore-sink", tess_line_has_sink, ignore_sink, NULL, NULL},
    {"late-softcap", tess_line_has_softcap_and_bias, late_softcap, NULL, NULL},
    {"alibi-from-start", tess_line_has_offset_alibi, alibi_from_start, NULL, NULL},
    {"twice-sink", tess_line_has_sink, twice_sink, NULL, NULL},
    {"base2-lse", tess_line_always, NULL, base2_lse, NULL},
    {"empty-lse", tess_line_always, NULL, empty_lse, NULL},
    {"unwritten-row", tess_line_always, NULL, NULL, unwritten_row},
    {"unwritten-lse", tess_line_always, NULL, NULL, unwritten_lse},
    {"hide-nan", tess_line_is_nan_fill, NULL, hide_nan, NULL},
    {"spread-nan", tess_line_always, NULL, spread_nan, NULL},
    {"canary", tess_line_always, NULL, NULL, canary},
    {"gap", tess_line_always, NULL, NULL, gap},
    {"input", tess_line_always, NULL, NULL, input},
};

enum { MODES = sizeof modes / sizeof *modes };

/* Modes that gradients alone have. */
static const char *const backward_names[] = {"forget-delta", "ignore-dlse",  "forget-cap-slope",
                                             "forget-scale", "forget-group", "unwritten-key"};

enum { BACKWARD_NAMES = sizeof backward_names / sizeof *backward_names };

const char *tess_sabotage_name(int index)
{
    if (index >= MODES && index < MODES + BACKWARD_NAMES)
        return backward_names[index - MODES];
    return index >= 0 && index < MODES ? modes[index].name : NULL;
}

bool tess_sabotage_refuse(const char *name, tess_text *why)
{
    for (int i = 0; tess_sabotage_name(i); i++)
        if (strcmp(tess_sabotage_name(i), name) == 0) {
            tess_text_add(why, "the line has nothing that %s could falsify\n", name);
            return false;
        }
    tess_text_add(why, "\"%s\" is no sabotage mode; the modes are any", name);
    for (int i = 0; tess_sabotage_name(i); i++)
        tess_text_add(why, " %s", tess_sabotage_name(i));
    tess_text_add(why, "\n");
    return false;
}

/* ---- Whether it shows ------------------------------------------------------------------------ */

static bool row_shows(const tess_oracle *truth, const tess_oracle *wrong, int64_t n,
                      tess_dtype dtype)
{
    const tess_oracle_row *a = &truth->row[n], *b = &wrong->row[n];
    const double relative = tess_plain_difference(dtype);
    const double scores = 0x1p-19 * fmax(a->magnitude, b->magnitude);
    const double scale = fmax(a->value_scale, b->value_scale);
    const int64_t dims = truth->head_dim_v;

    if (a->state != TESS_ROW_KNOWN || b->state != TESS_ROW_KNOWN)
        return false;
    if (tess_differs(a->lse, b->lse, 0.1 + relative * fabs(a->lse) + scores))
        return true;
    /* Where a score resolves less than a weight does, nothing about O is plain. */
    if (scores > 0.1)
        return false;
    for (int64_t d = 0; d < dims; d++)
        if (tess_differs(truth->o[n * dims + d], wrong->o[n * dims + d],
                         (relative + scores) * scale + 1e-30))
            return true;
    return false;
}

static bool shows(const tess_oracle *truth, const tess_oracle *wrong, tess_dtype dtype)
{
    for (int64_t n = 0; n < row_count(truth); n++)
        if (row_shows(truth, wrong, n, dtype))
            return true;
    return false;
}

/* ---- Doing it -------------------------------------------------------------------------------- */

static bool copy_truth(const tess_oracle *truth, tess_oracle *out)
{
    const size_t rows = (size_t)row_count(truth), dims = (size_t)truth->head_dim_v;

    *out = *truth;
    out->row = malloc((rows + 1) * sizeof *out->row);
    out->o = malloc((rows * dims + 1) * sizeof *out->o);
    if (!out->row || !out->o) {
        tess_oracle_release(out);
        return false;
    }
    memcpy(out->row, truth->row, rows * sizeof *out->row);
    memcpy(out->o, truth->o, rows * dims * sizeof *out->o);
    return true;
}

static bool forge(const mode *m, tess_case *c, const tess_oracle *truth, tess_oracle *out)
{
    forgery f = {.c = c,
                 .truth = truth,
                 .desc = c->desc,
                 .args = tess_case_host_forward_args(c),
                 .bias = c->bias};
    const tess_oracle_options options = {.budget = 3e8, .fault = &f.fault};

    if (m->rewrite) {
        if (!copy_truth(truth, out))
            return false;
        m->rewrite(&c->line, out);
        return true;
    }
    if (f.desc.bias)
        f.desc.bias = &f.bias;
    m->falsify(&f);
    return tess_oracle_forward(&f.desc, &f.args, &options, out);
}

static void write_row(tess_case *c, const tess_oracle *wrong, int64_t b, int64_t s, int64_t h)
{
    tess_tensor *o = &c->tensor[TESS_CASE_O], *lse = &c->tensor[TESS_CASE_LSE];
    const int64_t n = (b * wrong->seqlen + s) * wrong->heads + h;

    if (wrong->row[n].state != TESS_ROW_KNOWN)
        return;
    for (int64_t d = 0; d < wrong->head_dim_v; d++)
        tess_number_store(o->layout.dtype, tess_case_element(o, b, s, h, d),
                          wrong->o[n * wrong->head_dim_v + d]);
    tess_number_store(TESS_F32, tess_case_element(lse, b, s, h, 0), wrong->row[n].lse);
}

void tess_sabotage_write(tess_case *c, const tess_oracle *oracle)
{
    for (int64_t b = 0; b < oracle->batch; b++)
        for (int64_t s = 0; s < oracle->seqlen; s++)
            for (int64_t h = 0; h < oracle->heads; h++)
                write_row(c, oracle, b, s, h);
}

/* One mode; false when it would not show, and then nothing was changed. */
static bool commit(const mode *m, tess_case *c, const tess_oracle *truth)
{
    tess_oracle wrong;
    bool is_shown;

    if (m->tamper)
        return m->tamper(c);
    if (!forge(m, c, truth, &wrong))
        return false;
    is_shown = shows(truth, &wrong, c->line.dtype);
    if (is_shown)
        tess_sabotage_write(c, &wrong);
    tess_oracle_release(&wrong);
    return is_shown;
}

static bool commit_any(tess_case *c, const tess_oracle *truth, char *out_name, size_t name_size)
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

bool tess_sabotage(tess_case *c, const tess_oracle *oracle, const char *name, char *out_name,
                   size_t name_size, tess_text *why)
{
    const mode *chosen = NULL;

    snprintf(out_name, name_size, "%s", name);
    if (strcmp(name, "any") == 0) {
        if (commit_any(c, oracle, out_name, name_size))
            return true;
        tess_text_add(why, "no sabotage would show in this line\n");
        return false;
    }
    for (int i = 0; i < MODES; i++)
        if (strcmp(modes[i].name, name) == 0)
            chosen = &modes[i];
    if (!chosen || !chosen->applies(&c->line))
        return tess_sabotage_refuse(name, why);
    if (commit(chosen, c, oracle))
        return true;
    tess_text_add(why, "with this data %s makes no difference that could be told from rounding\n",
                  name);
    return false;
}
