/* SPDX-License-Identifier: Apache-2.0
 * The oracle's gradients: the chain rule over the materialised scores of one row after the other.
 */
#include "tests/kit/oracle.h"

#include "tests/kit/number.h"
#include "tests/kit/oracle_row.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* fp32's least number, and its least normal one, below which an exponential may be taken for 0. */
#define LEAST 0x1p-149
#define LEAST_NORMAL 0x1p-126

/* What 1 - t^2 may be off by where t is known to a last place of fp32: twice that, and the rounding
 * of the square. */
#define CAP_ERROR 0x1p-22

/* What one pass needs besides the work. */
typedef struct pass {
    tess_oracle_work *w;
    tess_oracle_gradients *out;
    tess_layout d_o_layout, lse_layout;
    tess_in d_o, d_lse;
    double *d_o_row, *o_row;  /* dim_v each */
    double *k_largest;        /* of each column, finite values only */
    double delta, delta_size; /* dot(dO, O) - dLSE, and the same before cancellation */
    double delta_lost; /* what of it may be below the least numbers, of fp32 and of O's type */
    double d_lse_row;
    double d_o_largest, q_largest; /* of the row, finite values only */
    double scores;                 /* size of the row's scores, plus that of its LSE */
    double chained;                /* the same, for what goes through the softcap's derivative */
    double budget, cost;           /* multiply-adds, of the forward pass; 0: no limit */
    double rows_taken;             /* chance of a row of a pair that is too long; above 1: all */
    bool is_complete;              /* no pair was left out so far */
    tess_oracle_naive_sums naive;  /* scratch NULL: not wanted */
} pass;

static bool is_unset(const tess_layout *layout)
{
    static const tess_layout unset;

    return memcmp(layout, &unset, sizeof unset) == 0;
}

static double largest_of(const double *values, int64_t count)
{
    double largest = 0;

    for (int64_t i = 0; i < count; i++)
        if (isfinite(values[i]) && fabs(values[i]) > largest)
            largest = fabs(values[i]);
    return largest;
}

/* ---- Gradients as arrays --------------------------------------------------------------------- */

static int64_t rows_of(const tess_oracle_gradient *g)
{
    return g->extent[0] * g->extent[1] * g->extent[2];
}

static bool allocate(tess_oracle_gradient *g, bool is_wanted, int64_t a, int64_t b, int64_t c,
                     int64_t d)
{
    const int64_t extent[4] = {a, b, c, d};
    const size_t count = (size_t)(a * b * c * d) + 1, rows = (size_t)(a * b * c) + 1;

    memcpy(g->extent, extent, sizeof extent);
    if (!is_wanted)
        return true;
    g->value = calloc(count, sizeof *g->value);
    g->magnitude = calloc(count, sizeof *g->magnitude);
    g->scores = calloc(rows, sizeof *g->scores);
    g->underflow = calloc(rows, sizeof *g->underflow);
    g->is_known = calloc(rows, sizeof *g->is_known);
    return g->value && g->magnitude && g->scores && g->underflow && g->is_known;
}

static void release(tess_oracle_gradient *g)
{
    free(g->value);
    free(g->magnitude);
    free(g->scores);
    free(g->underflow);
    free(g->is_known);
}

/* What a term brings to its row besides itself. */
static void note_row(tess_oracle_gradient *g, int64_t row, double scores, double underflow)
{
    g->scores[row] = fmax(g->scores[row], scores);
    g->underflow[row] += underflow;
}

/* Adds a term to one element; an index on an axis of extent 1 counts as 0, so that broadcast axes
 * are summed. */
static void add(const pass *p, tess_oracle_gradient *g, const int64_t index[4], double term,
                double size, double underflow)
{
    int64_t place = 0;

    if (!g->value)
        return;
    for (int axis = 0; axis < 4; axis++)
        place = place * g->extent[axis] + (g->extent[axis] == 1 ? 0 : index[axis]);
    g->value[place] += term;
    g->magnitude[place] += size;
    note_row(g, place / g->extent[3], p->scores, underflow);
}

/* One row of dq, dk or dv, -1 when that gradient is not wanted. */
static int64_t row_of(const tess_oracle_gradient *g, int64_t batch, int64_t seqlen, int64_t head)
{
    return g->value ? (batch * g->extent[1] + seqlen) * g->extent[2] + head : -1;
}

static void add_row(tess_oracle_gradient *g, int64_t row, const double term[2],
                    const double *values, double scores, double underflow)
{
    double *restrict value, *restrict magnitude;
    const double factor = term[0], size = term[1];

    if (row < 0)
        return;
    value = g->value + row * g->extent[3];
    magnitude = g->magnitude + row * g->extent[3];
    for (int64_t d = 0; d < g->extent[3]; d++) {
        value[d] += factor * values[d];
        magnitude[d] += size * fabs(values[d]);
    }
    note_row(g, row, scores, underflow);
}

/* ---- One row --------------------------------------------------------------------------------- */

/* dO, O and Delta of the row at hand. O is itself a sum that may cancel, so that the size of Delta
 * is that of its parts. */
static void prepare_row(pass *p)
{
    tess_oracle_work *w = p->w;
    const int64_t seqlen = w->q_start + w->row;
    double sizes = 0, all_values = 0, upstream = 0;

    tess_oracle_read(&p->d_o_layout, p->d_o, w->q_batch, seqlen, w->head, 1, p->d_o_row);
    p->d_lse_row = 0;
    if (p->d_lse.base)
        tess_oracle_read(&p->lse_layout, p->d_lse, w->q_batch, seqlen, w->head, 1, &p->d_lse_row);
    for (int64_t d = 0; d < w->dim_v; d++)
        p->o_row[d] = w->is_nan ? (double)NAN : 0;
    for (int64_t n = 0; n < w->count && !w->is_nan; n++) {
        const double weight = w->weight[n] / w->sum, *v = w->v + w->column[n] * w->dim_v;

        for (int64_t d = 0; d < w->dim_v; d++) {
            p->o_row[d] += weight * v[d];
            sizes += weight * fabs(p->d_o_row[d] * v[d]);
            all_values += fabs(p->d_o_row[d] * v[d]);
        }
    }
    p->delta = -p->d_lse_row;
    p->delta_size = fabs(p->d_lse_row) + sizes;
    for (int64_t d = 0; d < w->dim_v; d++) {
        p->delta += p->d_o_row[d] * p->o_row[d];
        upstream += fabs(p->d_o_row[d]);
    }
    p->delta_lost =
        LEAST_NORMAL * all_values + upstream * (tess_number_least(w->desc->o.dtype) / 2 + LEAST);
    if (!isfinite(p->delta_lost))
        p->delta_lost = 0;
    if (w->fault.forget_delta)
        p->delta = 0;
    p->d_o_largest = largest_of(p->d_o_row, w->dim_v);
    p->q_largest = largest_of(w->q, w->dim);
    /* Each of d sums rounds what was summed so far: 4.5 standard deviations of that come to the
     * score budget times the root of the sum of their squares. Where the parts are alike this is
     * what their absolute sum says; where one of the first dwarfs the others, it is more. */
    p->scores = fmax(w->magnitude, w->walk) + (isfinite(w->lse) ? fabs(w->lse) : 0);
    /* The derivative 1 - tanh^2(s / cap) is off by at most 2 / cap times what s is, relatively. */
    p->chained = p->scores + (w->softcap > 0 ? 2 * fmax(w->magnitude, w->walk) / w->softcap : 0);
}

/* Of one admitted pair: P, g = P (dP - Delta), its size before cancellation, and what fp32 loses of
 * it below its least numbers: a product of each dim, the products that make g, and P itself. */
typedef struct pair {
    double weight, g, g_size, underflow;
} pair;

static pair pair_of(const pass *p, int64_t n)
{
    const tess_oracle_work *w = p->w;
    const double *v = w->v + w->column[n] * w->dim_v;
    const double weight = w->is_nan ? (double)NAN : w->weight[n] / w->sum;
    double dot = 0, size = 0;

    for (int64_t d = 0; d < w->dim_v; d++) {
        dot += p->d_o_row[d] * v[d];
        size += fabs(p->d_o_row[d] * v[d]);
    }
    size += p->delta_size;
    return (pair){weight, weight * (dot - p->delta), weight * size,
                  LEAST * (double)(2 * w->dim_v + 2) + fmin(weight, 1) * p->delta_lost +
                      (isfinite(size) ? LEAST_NORMAL * size : 0)};
}

/* What one admitted column adds everywhere. */
static void add_column(pass *p, int64_t n)
{
    tess_oracle_work *w = p->w;
    tess_oracle_gradients *out = p->out;
    const int64_t j = w->column[n], index[4] = {w->sequence, w->head, w->row, j};
    const pair at = pair_of(p, n);
    const double weight[2] = {at.weight, at.weight},
                 distance = fabs((double)(w->row + w->offset - j));
    const double scale = w->fault.forget_scale ? 1 : w->scale;
    const bool is_dropped = w->fault.forget_group && w->head % w->group != w->group - 1;
    double chained[2] = {at.g * scale, at.g_size * fabs(scale)}, cap_error = 0, lost;
    int64_t batch, seqlen;

    if (w->softcap > 0 && !w->fault.forget_cap_slope) {
        const double t = tanh(w->raw[n] / w->softcap);

        cap_error = isfinite(chained[1]) ? chained[1] * CAP_ERROR : 0;
        chained[0] *= 1 - t * t;
        chained[1] *= 1 - t * t;
    }
    lost = at.underflow * fabs(scale) + cap_error + LEAST;
    add_row(&out->dq, row_of(&out->dq, w->q_batch, w->q_start + w->row, w->head), chained,
            w->k + j * w->dim, p->chained, lost * p->k_largest[j] + LEAST);
    if (p->rows_taken < 1)
        return; /* the rest needs every row */
    add(p, &out->dbias, index, at.g, at.g_size, at.underflow);
    add(p, &out->dslope, index, -distance * at.g, distance * at.g_size, distance * at.underflow);
    if (is_dropped)
        return;
    tess_oracle_place(w, j, &batch, &seqlen);
    add_row(&out->dv, row_of(&out->dv, batch, seqlen, w->kv_head), weight, p->d_o_row, p->scores,
            LEAST_NORMAL * p->d_o_largest + LEAST);
    add_row(&out->dk, row_of(&out->dk, batch, seqlen, w->kv_head), chained, w->q, p->chained,
            lost * p->q_largest + LEAST);
}

static double gap(const float *naive, const double *value, int64_t count, double worst)
{
    for (int64_t d = 0; d < count; d++)
        if (isfinite(naive[d]) && isfinite(value[d]))
            worst = fmax(worst, fabs((double)naive[d] - value[d]));
    return worst;
}

static void run_row(pass *p)
{
    tess_oracle_work *w = p->w;
    tess_oracle_gradients *out = p->out;
    const int64_t row = row_of(&out->dq, w->q_batch, w->q_start + w->row, w->head);

    prepare_row(p);
    for (int64_t n = 0; n < w->count; n++)
        add_column(p, n);
    if (w->has_sink && p->rows_taken >= 1) {
        const double weight = w->is_nan ? (double)NAN : exp(w->sink - w->max) / w->sum;

        add(p, &out->dsink, (int64_t[4]){w->head, 0, 0, 0}, -weight * p->delta,
            weight * p->delta_size, p->delta_lost + LEAST_NORMAL * p->delta_size + LEAST);
    }
    if (row >= 0)
        out->dq.is_known[row] = true;
    out->known++;
    if (p->naive.scratch && !w->is_nan) {
        tess_oracle_naive_backward_row(w, p->d_o_row, p->d_lse_row, &p->naive);
        if (row >= 0)
            out->naive_dq = gap(p->naive.dq, out->dq.value + row * w->dim, w->dim, out->naive_dq);
    }
    out->score_magnitude = fmax(out->score_magnitude, w->magnitude);
    if (isfinite(w->lse))
        out->score_magnitude = fmax(out->score_magnitude, fabs(w->lse));
}

/* ---- One key head ---------------------------------------------------------------------------- */

/* A number in [0, 1) that depends on where something is and on nothing else. */
static double chance_of(int64_t a, int64_t b, int64_t c)
{
    uint64_t x = (uint64_t)a * UINT64_C(0x9E3779B97F4A7C15) +
                 (uint64_t)b * UINT64_C(0xC2B2AE3D27D4EB4F) + (uint64_t)c + 1;

    x = (x ^ x >> 30) * UINT64_C(0xBF58476D1CE4E5B9);
    x = (x ^ x >> 27) * UINT64_C(0x94D049BB133111EB);
    x ^= x >> 31;
    return (double)(x >> 11) * 0x1p-53;
}

/* Whether the pair at hand is computed at all, and how many of its rows. The first and the last
 * one always are. */
static bool takes_pair(pass *p, int64_t kv_head)
{
    const tess_oracle_work *w = p->w;
    const double cost =
        (double)w->rows * (double)w->columns * (double)w->group * (double)(w->dim + w->dim_v);
    const bool is_first = w->sequence == 0 && kv_head == 0;
    const bool is_last = w->sequence == w->sequences - 1 && kv_head == w->heads_kv - 1;

    p->rows_taken = 2;
    if (p->budget <= 0 || p->cost <= p->budget)
        return true;
    if (cost > p->budget / 2)
        p->rows_taken = p->budget / 4 / cost;
    return is_first || is_last || chance_of(w->sequence, kv_head, -1) < p->budget / p->cost;
}

/* Of the columns of the pair at hand: all its rows have been added. */
static void finish_columns(pass *p)
{
    tess_oracle_work *w = p->w;
    tess_oracle_gradients *out = p->out;

    for (int64_t j = 0; j < w->columns; j++) {
        int64_t batch, seqlen, dk, dv;

        tess_oracle_place(w, j, &batch, &seqlen);
        dk = row_of(&out->dk, batch, seqlen, w->kv_head);
        dv = row_of(&out->dv, batch, seqlen, w->kv_head);
        if (dk >= 0)
            out->dk.is_known[dk] = true;
        if (dv >= 0)
            out->dv.is_known[dv] = true;
        if (!p->naive.scratch || w->desc->paging) /* pages may be shared */
            continue;
        for (int64_t d = 0; dk >= 0 && d < w->dim; d++) {
            float *sum = &p->naive.dk[j * w->dim + d];

            *sum = (float)tess_number_round(w->desc->k.dtype, (double)((float)w->scale * *sum));
        }
        for (int64_t d = 0; dv >= 0 && d < w->dim_v; d++) {
            float *sum = &p->naive.dv[j * w->dim_v + d];

            *sum = (float)tess_number_round(w->desc->v.dtype, (double)*sum);
        }
        if (dk >= 0)
            out->naive_dk =
                gap(p->naive.dk + j * w->dim, out->dk.value + dk * w->dim, w->dim, out->naive_dk);
        if (dv >= 0)
            out->naive_dv = gap(p->naive.dv + j * w->dim_v, out->dv.value + dv * w->dim_v, w->dim_v,
                                out->naive_dv);
    }
}

/* The query heads that read one key head, as the fault may have it. */
static void run_pair(pass *p, int64_t kv_head)
{
    tess_oracle_work *w = p->w;

    tess_oracle_take_head(w, kv_head);
    for (int64_t j = 0; j < w->columns; j++)
        p->k_largest[j] = largest_of(w->k + j * w->dim, w->dim);
    if (p->naive.scratch) {
        memset(p->naive.dk, 0, (size_t)(w->columns * w->dim) * sizeof(float));
        memset(p->naive.dv, 0, (size_t)(w->columns * w->dim_v) * sizeof(float));
    }
    for (int64_t head = 0; head < w->heads_q; head++) {
        if (tess_oracle_key_head(w, head) != kv_head)
            continue;
        for (int64_t row = 0; row < w->rows; row++) {
            if (row > 0 && row < w->rows - 1 && chance_of(w->sequence, head, row) >= p->rows_taken)
                continue;
            tess_oracle_take_row(w, row, head);
            run_row(p);
        }
    }
    if (p->rows_taken >= 1)
        finish_columns(p);
}

static void run_sequence(pass *p, int64_t sequence)
{
    tess_oracle_work *w = p->w;

    tess_oracle_take_sequence(w, sequence);
    for (int64_t kv_head = 0; kv_head < w->heads_kv; kv_head++) {
        const bool is_taken = takes_pair(p, kv_head);

        if (is_taken)
            run_pair(p, kv_head);
        p->is_complete = p->is_complete && is_taken && p->rows_taken >= 1;
    }
}

/* ---- All of them ----------------------------------------------------------------------------- */

/* The longest sequence's rows and columns: extents of a bias. */
static void bounds_of(tess_oracle_work *w, int64_t *out_rows, int64_t *out_columns)
{
    const tess_varlen *v = w->desc->varlen;
    const uint32_t present = v ? v->present : 0;

    *out_rows = present & TESS_VARLEN_CU_SEQLENS_Q ? v->max_seqlen_q : w->desc->q.seqlen;
    *out_columns = present & TESS_VARLEN_CU_SEQLENS_K ? v->max_seqlen_k : w->max_columns;
}

static bool allocate_all(tess_oracle_work *w, const tess_gradient_desc *gradients,
                         tess_oracle_gradients *out)
{
    const uint32_t three = TESS_GRADIENT_Q | TESS_GRADIENT_K | TESS_GRADIENT_V;
    const uint32_t asked = gradients ? gradients->wanted : 0;
    const uint32_t wanted = asked & ~(uint32_t)TESS_GRADIENT_FROM_LSE ? asked : three;
    const tess_attention_desc *d = w->desc;
    const tess_bias none = {0}, *bias = d->bias ? d->bias : &none;
    const int64_t none_stride[4] = {0};
    const int64_t *stride = gradients ? gradients->dbias_stride : none_stride;
    int64_t rows, columns;

    bounds_of(w, &rows, &columns);
    return allocate(&out->dq, wanted & TESS_GRADIENT_Q, d->q.batch, d->q.seqlen, w->heads_q,
                    w->dim) &&
           allocate(&out->dk, wanted & TESS_GRADIENT_K, d->k.batch, d->k.seqlen, w->heads_kv,
                    w->dim) &&
           allocate(&out->dv, wanted & TESS_GRADIENT_V, d->k.batch, d->k.seqlen, w->heads_kv,
                    w->dim_v) &&
           allocate(&out->dbias, wanted & TESS_GRADIENT_BIAS, stride[0] ? w->sequences : 1,
                    stride[1] ? w->heads_q : 1, stride[2] ? rows : 1, stride[3] ? columns : 1) &&
           allocate(&out->dslope, wanted & TESS_GRADIENT_ALIBI,
                    bias->slope_stride[0] ? w->sequences : 1, w->heads_q, 1, 1) &&
           allocate(&out->dsink, wanted & TESS_GRADIENT_SINK, w->heads_q, 1, 1, 1);
}

static tess_oracle_inputs backward_inputs(const tess_backward_args *a)
{
    return (tess_oracle_inputs){.q = a->q,
                                .k = a->k,
                                .v = a->v,
                                .cu_seqlens_q = a->cu_seqlens_q,
                                .cu_seqlens_k = a->cu_seqlens_k,
                                .seqused_q = a->seqused_q,
                                .seqused_k = a->seqused_k,
                                .page_table = a->page_table,
                                .bias = a->bias,
                                .alibi_slopes = a->alibi_slopes,
                                .sink = a->sink,
                                .q_descale = a->q_descale,
                                .k_descale = a->k_descale,
                                .v_descale = a->v_descale};
}

static void take_layouts(pass *p, const tess_attention_desc *desc,
                         const tess_gradient_desc *gradients)
{
    const tess_layout *o = &desc->o;

    p->d_o_layout = gradients && !is_unset(&gradients->d_o) ? gradients->d_o : *o;
    p->lse_layout = desc->lse;
    if (is_unset(&desc->lse)) /* packed (batch, heads, seqlen) */
        p->lse_layout = (tess_layout){.batch = o->batch,
                                      .seqlen = o->seqlen,
                                      .heads = o->heads,
                                      .head_dim = 1,
                                      .batch_stride = o->heads * o->seqlen,
                                      .head_stride = o->seqlen,
                                      .seqlen_stride = 1,
                                      .dtype = TESS_F32};
}

static size_t longest_columns(tess_oracle_work *w)
{
    int64_t longest = 0;

    for (int64_t b = 0; b < w->sequences; b++) {
        tess_oracle_take_sequence(w, b);
        if (w->columns > longest)
            longest = w->columns;
    }
    return (size_t)longest + 1;
}

/* Room for one pair, and what the whole problem costs. */
static bool begin_pass(pass *p, bool wants_naive)
{
    tess_oracle_work *w = p->w;
    const size_t columns = longest_columns(w), dim = (size_t)w->dim, dim_v = (size_t)w->dim_v;
    tess_oracle_naive_sums *n = &p->naive;

    for (int64_t b = 0; b < w->sequences; b++) {
        tess_oracle_take_sequence(w, b);
        p->cost += (double)w->rows * (double)w->columns;
    }
    p->cost *= (double)w->heads_q * (double)(w->dim + w->dim_v);
    p->d_o_row = malloc(dim_v * sizeof *p->d_o_row);
    p->o_row = malloc(dim_v * sizeof *p->o_row);
    p->k_largest = malloc(columns * sizeof *p->k_largest);
    if (!p->d_o_row || !p->o_row || !p->k_largest)
        return false;
    if (!wants_naive)
        return true;
    n->scratch = malloc((size_t)tess_oracle_naive_scratch(w) * sizeof(float));
    n->o = malloc(dim_v * sizeof(float));
    n->dq = malloc(dim * sizeof(float));
    n->dk = malloc(columns * dim * sizeof(float));
    n->dv = malloc(columns * dim_v * sizeof(float));
    return n->scratch && n->o && n->dq && n->dk && n->dv;
}

static void end_pass(pass *p)
{
    free(p->d_o_row);
    free(p->o_row);
    free(p->k_largest);
    free(p->naive.scratch);
    free(p->naive.o);
    free(p->naive.dq);
    free(p->naive.dk);
    free(p->naive.dv);
}

bool tess_oracle_backward(const tess_attention_desc *desc, const tess_gradient_desc *gradients,
                          const tess_backward_args *args, const tess_oracle_options *options,
                          tess_oracle_gradients *out)
{
    const tess_oracle_inputs inputs = backward_inputs(args);
    const tess_oracle_options defaults = {0}, *o = options ? options : &defaults;
    tess_oracle_gradient *const sides[] = {&out->dbias, &out->dslope, &out->dsink};
    tess_oracle_work work;
    pass p = {.w = &work, .out = out, .d_o = args->d_o, .d_lse = args->d_lse, .is_complete = true};
    bool is_done;

    memset(out, 0, sizeof *out);
    out->naive_dq = out->naive_dk = out->naive_dv = o->wants_naive ? 0 : -1;
    take_layouts(&p, desc, gradients);
    p.budget = o->budget;
    is_done = tess_oracle_begin(&work, desc, &inputs, o->fault, true) &&
              allocate_all(&work, gradients, out) && begin_pass(&p, o->wants_naive);
    for (int64_t b = 0; is_done && b < work.sequences; b++)
        run_sequence(&p, b);
    for (size_t i = 0; is_done && i < sizeof sides / sizeof *sides; i++)
        for (int64_t row = 0; sides[i]->value && row < rows_of(sides[i]); row++)
            sides[i]->is_known[row] = p.is_complete;
    end_pass(&p);
    tess_oracle_end(&work);
    if (!is_done)
        tess_oracle_gradients_release(out);
    return is_done;
}

void tess_oracle_gradients_release(tess_oracle_gradients *gradients)
{
    tess_oracle_gradient *const all[] = {&gradients->dq,    &gradients->dk,     &gradients->dv,
                                         &gradients->dbias, &gradients->dslope, &gradients->dsink};

    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        release(all[i]);
    memset(gradients, 0, sizeof *gradients);
}
