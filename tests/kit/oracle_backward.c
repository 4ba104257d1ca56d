/* SPDX-License-Identifier: Apache-2.0
 * The oracle's gradients: the chain rule over the materialised scores of one row after the other.
 */
#include "tests/kit/oracle.h"

#include "tests/kit/oracle_row.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* What one pass needs besides the work. */
typedef struct pass {
    tess_oracle_work *w;
    tess_oracle_gradients *out;
    tess_layout d_o_layout, lse_layout;
    tess_in d_o, d_lse;
    double *d_o_row, *o_row;  /* dim_v each */
    double delta, delta_size; /* dot(dO, O) - dLSE, and the same before cancellation */
    double d_lse_row;
} pass;

static bool is_unset(const tess_layout *layout)
{
    static const tess_layout unset;

    return memcmp(layout, &unset, sizeof unset) == 0;
}

/* ---- Gradients as arrays --------------------------------------------------------------------- */

static bool allocate(tess_oracle_gradient *g, bool is_wanted, int64_t a, int64_t b, int64_t c,
                     int64_t d)
{
    const int64_t extent[4] = {a, b, c, d};
    const size_t count = (size_t)(a * b * c * d);

    memcpy(g->extent, extent, sizeof extent);
    if (!is_wanted)
        return true;
    g->value = calloc(count > 0 ? count : 1, sizeof *g->value);
    g->magnitude = calloc(count > 0 ? count : 1, sizeof *g->magnitude);
    return g->value && g->magnitude;
}

/* Adds a term to one element; an index on an axis of extent 1 counts as 0, so that broadcast axes
 * are summed. */
static void add(tess_oracle_gradient *g, const int64_t index[4], double term, double size)
{
    int64_t place = 0;

    if (!g->value)
        return;
    for (int axis = 0; axis < 4; axis++)
        place = place * g->extent[axis] + (g->extent[axis] == 1 ? 0 : index[axis]);
    g->value[place] += term;
    g->magnitude[place] += size;
}

/* The first element of one row of dq, dk or dv, -1 when that gradient is not wanted. */
static int64_t row_of(const tess_oracle_gradient *g, int64_t batch, int64_t seqlen, int64_t head)
{
    if (!g->value)
        return -1;
    return ((batch * g->extent[1] + seqlen) * g->extent[2] + head) * g->extent[3];
}

static void add_row(tess_oracle_gradient *g, int64_t place, double factor, double size,
                    const double *values)
{
    if (place < 0)
        return;
    for (int64_t d = 0; d < g->extent[3]; d++) {
        g->value[place + d] += factor * values[d];
        g->magnitude[place + d] += size * fabs(values[d]);
    }
}

/* ---- One row --------------------------------------------------------------------------------- */

/* dO, O and Delta of the row at hand. */
static void prepare_row(pass *p)
{
    tess_oracle_work *w = p->w;
    const int64_t seqlen = w->q_start + w->row;

    tess_oracle_read(&p->d_o_layout, p->d_o, w->q_batch, seqlen, w->head, 1, p->d_o_row);
    p->d_lse_row = 0;
    if (p->d_lse.base)
        tess_oracle_read(&p->lse_layout, p->d_lse, w->q_batch, seqlen, w->head, 1, &p->d_lse_row);
    for (int64_t d = 0; d < w->dim_v; d++)
        p->o_row[d] = w->is_nan ? (double)NAN : 0;
    for (int64_t n = 0; n < w->count && !w->is_nan; n++)
        for (int64_t d = 0; d < w->dim_v; d++)
            p->o_row[d] += w->weight[n] / w->sum * w->v[w->column[n] * w->dim_v + d];
    p->delta = -p->d_lse_row;
    p->delta_size = fabs(p->d_lse_row);
    for (int64_t d = 0; d < w->dim_v; d++) {
        p->delta += p->d_o_row[d] * p->o_row[d];
        p->delta_size += fabs(p->d_o_row[d] * p->o_row[d]);
    }
}

/* What one admitted column adds everywhere. */
static void add_column(pass *p, int64_t n)
{
    tess_oracle_work *w = p->w;
    tess_oracle_gradients *out = p->out;
    const int64_t j = w->column[n];
    const double weight = w->is_nan ? (double)NAN : w->weight[n] / w->sum;
    const double *v = w->v + j * w->dim_v;
    double dot = 0, size = 0, g, g_size, derivative = 1;
    int64_t batch, seqlen;

    tess_oracle_place(w, j, &batch, &seqlen);
    for (int64_t d = 0; d < w->dim_v; d++) {
        dot += p->d_o_row[d] * v[d];
        size += fabs(p->d_o_row[d] * v[d]);
    }
    g = weight * (dot - p->delta);
    g_size = weight * (size + p->delta_size);
    add_row(&out->dv, row_of(&out->dv, batch, seqlen, w->kv_head), weight, weight, p->d_o_row);

    add(&out->dbias, (int64_t[4]){w->sequence, w->head, w->row, j}, g, g_size);
    if (out->dslope.value) {
        const double distance = fabs((double)(w->row + w->offset - j));

        add(&out->dslope, (int64_t[4]){w->sequence, w->head, 0, 0}, -distance * g,
            distance * g_size);
    }
    if (w->softcap > 0) {
        const double t = tanh(w->raw[n] / w->softcap);

        derivative = 1 - t * t;
    }
    g *= derivative * w->scale;
    g_size *= derivative * fabs(w->scale);
    add_row(&out->dq, row_of(&out->dq, w->q_batch, w->q_start + w->row, w->head), g, g_size,
            w->k + j * w->dim);
    add_row(&out->dk, row_of(&out->dk, batch, seqlen, w->kv_head), g, g_size, w->q);
}

static void run_row(pass *p)
{
    tess_oracle_work *w = p->w;

    prepare_row(p);
    for (int64_t n = 0; n < w->count; n++)
        add_column(p, n);
    if (w->has_sink) {
        const double weight = w->is_nan ? (double)NAN : exp(w->sink - w->max) / w->sum;

        add(&p->out->dsink, (int64_t[4]){w->head, 0, 0, 0}, -weight * p->delta,
            weight * p->delta_size);
    }
    p->out->score_magnitude = fmax(p->out->score_magnitude, w->magnitude);
    if (isfinite(w->lse))
        p->out->score_magnitude = fmax(p->out->score_magnitude, fabs(w->lse));
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
    const uint32_t asked = gradients ? gradients->wanted : 0, wanted = asked ? asked : three;
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
                    bias->slope_stride[0] ? w->sequences : 1,
                    bias->slope_stride[1] ? w->heads_q : 1, 1, 1) &&
           allocate(&out->dsink, wanted & TESS_GRADIENT_SINK, bias->sink_stride ? w->heads_q : 1, 1,
                    1, 1);
}

static void run_sequence(pass *p, int64_t sequence)
{
    tess_oracle_work *w = p->w;
    int64_t loaded = -1;

    tess_oracle_take_sequence(w, sequence);
    for (int64_t head = 0; head < w->heads_q; head++) {
        const int64_t kv_head = tess_oracle_key_head(w, head);

        if (kv_head != loaded)
            tess_oracle_take_head(w, kv_head);
        loaded = kv_head;
        for (int64_t row = 0; row < w->rows; row++) {
            tess_oracle_take_row(w, row, head);
            run_row(p);
        }
    }
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

bool tess_oracle_backward(const tess_attention_desc *desc, const tess_gradient_desc *gradients,
                          const tess_backward_args *args, tess_oracle_gradients *out)
{
    const tess_oracle_inputs inputs = backward_inputs(args);
    const tess_layout *o = &desc->o;
    tess_oracle_work work;
    pass p = {.w = &work, .out = out, .d_o = args->d_o, .d_lse = args->d_lse};
    bool is_done;

    memset(out, 0, sizeof *out);
    p.d_o_layout = gradients && !is_unset(&gradients->d_o) ? gradients->d_o : *o;
    p.lse_layout = desc->lse;
    if (is_unset(&desc->lse)) /* packed (batch, heads, seqlen) */
        p.lse_layout = (tess_layout){.batch = o->batch,
                                     .seqlen = o->seqlen,
                                     .heads = o->heads,
                                     .head_dim = 1,
                                     .batch_stride = o->heads * o->seqlen,
                                     .head_stride = o->seqlen,
                                     .seqlen_stride = 1,
                                     .dtype = TESS_F32};
    is_done =
        tess_oracle_begin(&work, desc, &inputs, NULL, true) && allocate_all(&work, gradients, out);
    p.d_o_row = malloc((size_t)desc->v.head_dim * sizeof *p.d_o_row);
    p.o_row = malloc((size_t)desc->v.head_dim * sizeof *p.o_row);
    is_done = is_done && p.d_o_row && p.o_row;
    for (int64_t b = 0; is_done && b < work.sequences; b++)
        run_sequence(&p, b);
    free(p.d_o_row);
    free(p.o_row);
    tess_oracle_end(&work);
    if (!is_done)
        tess_oracle_gradients_release(out);
    return is_done;
}

void tess_oracle_gradients_release(tess_oracle_gradients *gradients)
{
    tess_oracle_gradient *const all[] = {&gradients->dq,    &gradients->dk,     &gradients->dv,
                                         &gradients->dbias, &gradients->dslope, &gradients->dsink};

    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        free(all[i]->value);
        free(all[i]->magnitude);
    }
    memset(gradients, 0, sizeof *gradients);
}
