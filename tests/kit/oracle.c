/* SPDX-License-Identifier: Apache-2.0
 * The oracle's forward pass: every row in float64, or a sample of rows where that would take long.
 */
#include "tests/kit/oracle.h"

#include "tests/kit/oracle_row.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static tess_oracle_inputs forward_inputs(const tess_forward_args *a)
{
    return (tess_oracle_inputs){
        a->q,         a->k,         a->v,          a->cu_seqlens_q, a->cu_seqlens_k,
        a->seqused_q, a->seqused_k, a->page_table, a->bias,         a->alibi_slopes,
        a->sink,      a->q_descale, a->k_descale,  a->v_descale};
}

/* Multiply-adds over used lengths; masks only make it less. */
static double cost_of(tess_oracle_work *w)
{
    double cost = 0;

    for (int64_t b = 0; b < w->sequences; b++) {
        tess_oracle_take_sequence(w, b);
        cost += (double)w->rows * (double)w->columns;
    }
    return cost * (double)w->heads_q * (double)(w->dim + w->dim_v);
}

double tess_oracle_cost(const tess_attention_desc *desc, const tess_forward_args *args)
{
    const tess_oracle_inputs inputs = forward_inputs(args);
    tess_oracle_work work;
    const bool has_memory = tess_oracle_begin(&work, desc, &inputs, NULL, false);
    const double cost = has_memory ? cost_of(&work) : (double)INFINITY;

    tess_oracle_end(&work);
    return cost;
}

/* ---- Which rows ------------------------------------------------------------------------------ */

/* A number in [0, 1) that depends on where a row is and on nothing else, so that a sample is the
 * same on every run. */
static double chance_of(int64_t sequence, int64_t head, int64_t row)
{
    uint64_t x = (uint64_t)sequence * UINT64_C(0x9E3779B97F4A7C15) +
                 (uint64_t)head * UINT64_C(0xC2B2AE3D27D4EB4F) + (uint64_t)row + 1;

    x = (x ^ x >> 30) * UINT64_C(0xBF58476D1CE4E5B9);
    x = (x ^ x >> 27) * UINT64_C(0x94D049BB133111EB);
    x ^= x >> 31;
    return (double)(x >> 11) * 0x1p-53;
}

/* What share of (sequence, head) pairs and of rows within a pair the budget pays for. Loading keys
 * and values of a pair costs as much as a row or two, so both are thinned out. */
typedef struct sample {
    double pairs, rows;
} sample;

static sample sample_of(tess_oracle_work *w, double budget)
{
    const double cost = cost_of(w);

    if (budget <= 0 || cost <= budget)
        return (sample){2, 2}; /* everything, whatever the chance */
    return (sample){sqrt(budget / cost), sqrt(budget / cost)};
}

/* First and last sequences, heads and rows are where mistakes live, so they are always taken. */
static bool takes_pair(const tess_oracle_work *w, sample s, int64_t head)
{
    const int64_t b = w->sequence;

    if ((b == 0 || b == w->sequences - 1) && (head == 0 || head == w->heads_q - 1))
        return true;
    return chance_of(b, head, -1) < s.pairs;
}

static bool takes_row(const tess_oracle_work *w, sample s, int64_t head, int64_t row)
{
    return row == 0 || row == w->rows - 1 || chance_of(w->sequence, head, row) < s.rows;
}

/* ---- One row --------------------------------------------------------------------------------- */

/* O of the row at hand, not rounded. */
static void accumulate(tess_oracle_work *w, double *restrict o)
{
    const int64_t dim_v = w->dim_v, tile = w->fault.forget_rescale;
    double running = -(double)INFINITY;

    for (int64_t d = 0; d < dim_v; d++)
        o[d] = w->is_nan ? (double)NAN : 0;
    if (w->is_nan || w->count == 0)
        return;
    for (int64_t n = 0; n < w->count; n++) {
        const double *restrict v = w->v + w->column[n] * dim_v;
        double weight = w->weight[n];

        /* The mistake: what was added under an earlier maximum is not scaled to the later one. */
        if (tile > 0) {
            if (n % tile == 0)
                for (int64_t next = n; next < w->count && next < n + tile; next++)
                    running = fmax(running, w->score[next]);
            weight = exp(w->score[n] - running);
        }
        for (int64_t d = 0; d < dim_v; d++)
            o[d] += weight * v[d];
    }
    for (int64_t d = 0; d < dim_v; d++)
        o[d] /= w->sum;
}

static void record(const tess_oracle_work *w, tess_oracle_row *row)
{
    row->state = TESS_ROW_KNOWN;
    row->lse = w->lse;
    row->magnitude = w->magnitude;
    row->columns = w->count;
    row->lead = w->lead;
    row->sole_column = w->leader < 0 ? -1 : (int32_t)w->column[w->leader];
    row->value_scale = 0;
    for (int64_t n = 0; n < w->count; n++)
        row->value_scale = fmax(row->value_scale, w->v_largest[w->column[n]]);
}

static double naive_gap(const double *naive, const double *o, int64_t count)
{
    double worst = 0;

    for (int64_t d = 0; d < count; d++)
        if (isfinite(o[d]) && !(fabs(naive[d] - o[d]) <= worst))
            worst = isfinite(naive[d]) ? fabs(naive[d] - o[d]) : worst;
    return worst;
}

/* ---- All of them ----------------------------------------------------------------------------- */

static bool allocate(tess_oracle *out, const tess_attention_desc *desc)
{
    int64_t rows;

    memset(out, 0, sizeof *out);
    out->batch = desc->o.batch;
    out->seqlen = desc->o.seqlen;
    out->heads = desc->o.heads;
    out->head_dim_v = desc->o.head_dim;
    rows = out->batch * out->seqlen * out->heads;
    out->row = calloc((size_t)(rows > 0 ? rows : 1), sizeof *out->row);
    out->o = calloc((size_t)(rows > 0 ? rows * out->head_dim_v : 1), sizeof *out->o);
    return out->row && out->o;
}

/* What one head's rows need besides the work. */
typedef struct pass {
    tess_oracle *out;
    sample sample;
    float *scratch;
    double *naive; /* NULL: not wanted */
} pass;

static void run_head(tess_oracle_work *w, const pass *p, int64_t head, bool is_taken)
{
    tess_oracle *out = p->out;

    for (int64_t i = 0; i < w->rows; i++) {
        const int64_t place = (w->q_batch * out->seqlen + w->q_start + i) * out->heads + head;
        double *o = out->o + place * out->head_dim_v;

        out->row[place].state = TESS_ROW_SKIPPED;
        if (!is_taken || !takes_row(w, p->sample, head, i))
            continue;
        tess_oracle_take_row(w, i, head);
        accumulate(w, o);
        record(w, &out->row[place]);
        out->known++;
        if (p->naive && !w->is_nan) {
            tess_oracle_naive_row(w, p->scratch, p->naive);
            out->naive_error = fmax(out->naive_error, naive_gap(p->naive, o, out->head_dim_v));
        }
    }
}

static void run_sequence(tess_oracle_work *w, const pass *p)
{
    int64_t loaded = -1;

    for (int64_t head = 0; head < w->heads_q && w->rows > 0; head++) {
        const bool is_taken = takes_pair(w, p->sample, head);
        const int64_t kv_head = tess_oracle_key_head(w, head);

        if (is_taken && kv_head != loaded) {
            tess_oracle_take_head(w, kv_head);
            loaded = kv_head;
        }
        run_head(w, p, head, is_taken);
    }
}

bool tess_oracle_forward(const tess_attention_desc *desc, const tess_forward_args *args,
                         const tess_oracle_options *options, tess_oracle *out)
{
    const tess_oracle_inputs inputs = forward_inputs(args);
    const tess_oracle_options defaults = {0};
    const tess_oracle_options *o = options ? options : &defaults;
    tess_oracle_work work;
    pass p = {.out = out};
    bool is_done = tess_oracle_begin(&work, desc, &inputs, o->fault, false) && allocate(out, desc);

    if (is_done && o->wants_naive) {
        p.scratch = malloc((size_t)tess_oracle_naive_scratch(&work) * sizeof *p.scratch);
        p.naive = malloc((size_t)out->head_dim_v * sizeof *p.naive);
        is_done = p.scratch && p.naive;
    }
    if (is_done) {
        p.sample = sample_of(&work, o->budget);
        for (int64_t b = 0; b < work.sequences; b++) {
            tess_oracle_take_sequence(&work, b);
            run_sequence(&work, &p);
        }
    }
    free(p.scratch);
    free(p.naive);
    tess_oracle_end(&work);
    if (!is_done)
        tess_oracle_release(out);
    return is_done;
}

void tess_oracle_release(tess_oracle *oracle)
{
    free(oracle->o);
    free(oracle->row);
    memset(oracle, 0, sizeof *oracle);
}
