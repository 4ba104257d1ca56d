/* SPDX-License-Identifier: Apache-2.0
 * One row of the oracle: which columns it admits, their scores, their weights. */
#include "tests/kit/oracle_row.h"

#include "tests/kit/number.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- Reading --------------------------------------------------------------------------------- */

static const char *address(tess_in tensor, int64_t element, size_t size)
{
    return (const char *)tensor.base + tensor.offset + element * (int64_t)size;
}

void tess_oracle_read(const tess_layout *layout, tess_in tensor, int64_t batch, int64_t seqlen,
                      int64_t head, double factor, double *out)
{
    const size_t size = tess_dtype_size(layout->dtype);
    const int64_t first =
        batch * layout->batch_stride + seqlen * layout->seqlen_stride + head * layout->head_stride;
    const char *at = address(tensor, first, size);

    for (int64_t d = 0; d < layout->head_dim; d++)
        out[d] =
            tess_number_load(layout->dtype, at + d * layout->dim_stride * (int64_t)size) * factor;
}

static int64_t read_index(tess_dtype dtype, tess_in array, int64_t element)
{
    const tess_dtype type = dtype == TESS_I64 ? TESS_I64 : TESS_I32;
    int32_t small;
    int64_t large;

    if (type == TESS_I64) {
        memcpy(&large, address(array, element, sizeof large), sizeof large);
        return large;
    }
    memcpy(&small, address(array, element, sizeof small), sizeof small);
    return small;
}

static double read_float(tess_dtype dtype, tess_in array, int64_t element)
{
    return tess_number_load(dtype, address(array, element, tess_dtype_size(dtype)));
}

/* Descale factor of one row of one of q, k, v. */
static double factor_of(const tess_oracle_work *w, tess_in factors, const int64_t stride[3],
                        int64_t rows_per_block, int64_t head, int64_t row)
{
    const int64_t block = rows_per_block > 0 ? row / rows_per_block : 0;

    if (!w->desc->scaling || !factors.base)
        return 1;
    return read_float(TESS_F32, factors,
                      w->sequence * stride[0] + head * stride[1] + block * stride[2]);
}

double tess_oracle_bias(const tess_oracle_work *w, int64_t head, int64_t row, int64_t column)
{
    const tess_bias *bias = w->desc->bias;

    if (!bias || !(bias->present & TESS_BIAS_TENSOR))
        return 0;
    return read_float(bias->tensor_dtype, w->in.bias,
                      w->sequence * bias->tensor_stride[0] + head * bias->tensor_stride[1] +
                          row * bias->tensor_stride[2] + column * bias->tensor_stride[3]);
}

double tess_oracle_slope(const tess_oracle_work *w, int64_t head)
{
    const tess_bias *bias = w->desc->bias;

    if (!bias || !(bias->present & TESS_BIAS_ALIBI))
        return 0;
    return read_float(TESS_F32, w->in.alibi_slopes,
                      w->sequence * bias->slope_stride[0] + head * bias->slope_stride[1]);
}

int64_t tess_oracle_key_head(const tess_oracle_work *w, int64_t head)
{
    return w->fault.interleave_heads ? head % w->heads_kv : head / w->group;
}

/* ---- Sequences ------------------------------------------------------------------------------- */

void tess_oracle_take_sequence(tess_oracle_work *w, int64_t sequence)
{
    const tess_attention_desc *desc = w->desc;
    const tess_varlen *varlen = desc->varlen;
    const uint32_t present = varlen ? varlen->present : 0;
    const tess_dtype index = varlen ? varlen->index_dtype : TESS_I32;

    w->sequence = sequence;
    w->q_batch = w->k_batch = sequence;
    w->q_start = w->k_start = 0;
    w->rows = desc->q.seqlen;
    w->columns = w->max_columns;
    if (present & TESS_VARLEN_CU_SEQLENS_Q) {
        w->q_batch = 0;
        w->q_start = read_index(index, w->in.cu_seqlens_q, sequence);
        w->rows = read_index(index, w->in.cu_seqlens_q, sequence + 1) - w->q_start;
    }
    if (present & TESS_VARLEN_CU_SEQLENS_K) {
        w->k_batch = 0;
        w->k_start = read_index(index, w->in.cu_seqlens_k, sequence);
        w->columns = read_index(index, w->in.cu_seqlens_k, sequence + 1) - w->k_start;
    }
    if (present & TESS_VARLEN_SEQUSED_Q)
        w->rows = read_index(index, w->in.seqused_q, sequence);
    if (present & TESS_VARLEN_SEQUSED_K)
        w->columns = read_index(index, w->in.seqused_k, sequence);
    w->offset = desc->mask & TESS_MASK_TOP_LEFT ? 0 : w->columns - w->rows;
    w->columns = w->columns > w->fault.drop_columns ? w->columns - w->fault.drop_columns : 0;
}

void tess_oracle_place(const tess_oracle_work *w, int64_t column, int64_t *out_batch,
                       int64_t *out_seqlen)
{
    const tess_paging *paging = w->desc->paging;
    const int64_t page_size = w->desc->k.seqlen;

    if (!paging) {
        *out_batch = w->k_batch;
        *out_seqlen = w->k_start + column;
        return;
    }
    *out_batch =
        read_index(TESS_I32, w->in.page_table,
                   w->sequence * (paging->table_stride ? paging->table_stride : paging->max_pages) +
                       column / page_size);
    *out_seqlen = column % page_size;
}

void tess_oracle_take_head(tess_oracle_work *w, int64_t kv_head)
{
    const tess_scaling *s = w->desc->scaling;
    const int64_t columns = w->columns, dim = w->dim, dim_v = w->dim_v;

    w->kv_head = kv_head;
    for (int64_t j = 0; j < columns; j++) {
        double *v = w->v + j * dim_v, *k = w->k ? w->k + j * dim : w->q;
        double largest = 0;
        int64_t batch, seqlen;

        tess_oracle_place(w, j, &batch, &seqlen);
        tess_oracle_read(
            &w->desc->k, w->in.k, batch, seqlen, kv_head,
            s ? factor_of(w, w->in.k_descale, s->k_stride, s->k_rows_per_block, kv_head, j) : 1, k);
        tess_oracle_read(
            &w->desc->v, w->in.v, batch, seqlen, kv_head,
            s ? factor_of(w, w->in.v_descale, s->v_stride, s->v_rows_per_block, kv_head, j) : 1, v);
        for (int64_t d = 0; d < dim; d++)
            w->k_turned[d * columns + j] = k[d];
        for (int64_t d = 0; d < dim_v; d++)
            if (isfinite(v[d]) && fabs(v[d]) > largest)
                largest = fabs(v[d]);
        w->v_largest[j] = largest;
    }
}

/* ---- Rows ------------------------------------------------------------------------------------ */

/* A window bound as a number that can be added to a position without wrapping. */
static int64_t clamp_bound(int64_t bound)
{
    return bound > INT32_MAX ? INT32_MAX : bound;
}

static bool is_admitted(const tess_oracle_work *w, int64_t i, int64_t j)
{
    const tess_attention_desc *desc = w->desc;
    const int64_t diagonal = i + w->offset + w->fault.shift_mask;

    if (w->fault.absent_is_zero)
        return true;
    if ((desc->mask & TESS_MASK_CAUSAL) && j > diagonal)
        return false;
    if (desc->mask & TESS_MASK_WINDOW) {
        if (desc->window_left >= 0 && j < diagonal - clamp_bound(desc->window_left))
            return false;
        if (desc->window_right >= 0 && j > diagonal + clamp_bound(desc->window_right))
            return false;
    }
    return true;
}

/* Dots of the row with columns first ... last, and the sums of the products' absolute values, which
 * say how much of fp32 a dot that cancels has lost. Columns are the inner loop: each dot is added
 * up in the order of d, as written, and the compiler can still compute several columns at once. */
static void compute_dots(tess_oracle_work *w, int64_t first, int64_t last)
{
    double *restrict dots = w->dots, *restrict sizes = w->sizes;
    int64_t d = 0;

    for (int64_t j = first; j <= last; j++)
        dots[j] = sizes[j] = 0;
    for (int64_t j = first; w->squares && j <= last; j++)
        w->squares[j] = 0;
    for (; d + 2 <= w->dim; d += 2) {
        const double *restrict k0 = w->k_turned + d * w->columns, *restrict k1 = k0 + w->columns;
        const double q0 = w->q[d], q1 = w->q[d + 1];

        for (int64_t j = first; j <= last; j++) {
            const double p0 = q0 * k0[j], p1 = q1 * k1[j];

            dots[j] = dots[j] + p0 + p1;
            sizes[j] = sizes[j] + fabs(p0) + fabs(p1);
        }
        for (int64_t j = first; w->squares && j <= last; j++)
            w->squares[j] += 2 * dots[j] * dots[j];
    }
    for (; d < w->dim; d++) {
        const double *restrict k0 = w->k_turned + d * w->columns;
        const double q0 = w->q[d];

        for (int64_t j = first; j <= last; j++) {
            dots[j] += q0 * k0[j];
            sizes[j] += fabs(q0 * k0[j]);
        }
        for (int64_t j = first; w->squares && j <= last; j++)
            w->squares[j] += dots[j] * dots[j];
    }
}

static double largest_of(double a, double b)
{
    return fabs(b) > a && isfinite(b) ? fabs(b) : a;
}

/* The score of one admitted column, in the order of the definition. */
static double score_of(tess_oracle_work *w, int64_t j, double slope, double *out_raw)
{
    const bool cap_last = w->fault.cap_after_bias;
    const int64_t offset = w->fault.alibi_from_start ? 0 : w->offset;
    double s = w->scale * w->dots[j];

    *out_raw = s;
    w->magnitude = largest_of(w->magnitude, w->scale * w->sizes[j]);
    if (w->squares)
        w->walk = largest_of(w->walk, w->scale * sqrt(w->squares[j]));
    if (w->softcap > 0 && !cap_last)
        s = w->softcap * tanh(s / w->softcap);
    if (w->desc->bias) {
        const double distance = fabs((double)(w->row + offset - j));
        const double bias = tess_oracle_bias(w, w->head, w->row, j);

        if (w->desc->bias->present & TESS_BIAS_ALIBI) {
            w->magnitude = largest_of(w->magnitude, slope * distance);
            s -= slope * distance;
        }
        if (w->desc->bias->present & TESS_BIAS_TENSOR) {
            w->magnitude = largest_of(w->magnitude, bias);
            s += bias;
        }
        w->magnitude = largest_of(w->magnitude, s);
    }
    if (w->softcap > 0 && cap_last)
        s = w->softcap * tanh(s / w->softcap);
    return s;
}

/* Maximum, sum and LSE over the scores and the sink. */
static void normalise(tess_oracle_work *w)
{
    double second = -INFINITY;

    w->max = w->has_sink ? w->sink : -(double)INFINITY;
    w->leader = -1;
    for (int64_t n = 0; n < w->count; n++) {
        const double s = w->score[n];

        if (s > w->max) {
            second = w->max;
            w->max = s;
            w->leader = n;
        } else if (s > second) {
            second = s;
        }
    }
    w->lead = w->max - second; /* infinity minus a finite number, or NaN where nothing is */
    w->sum = 0;
    w->lse = w->is_nan ? (double)NAN : -(double)INFINITY;
    if (w->is_nan || (w->count == 0 && !w->has_sink))
        return;
    for (int64_t n = 0; n < w->count; n++) {
        w->weight[n] = exp(w->score[n] - w->max);
        w->sum += w->weight[n];
    }
    if (w->has_sink)
        w->sum += exp(w->sink - w->max) * (w->fault.drop_sink_sum ? 2 : 1);
    w->lse = w->max + log(w->sum);
}

void tess_oracle_take_row(tess_oracle_work *w, int64_t row, int64_t head)
{
    const tess_scaling *s = w->desc->scaling;
    const tess_bias *bias = w->desc->bias;
    const double slope = tess_oracle_slope(w, head);
    int64_t first = -1, last = -2;

    w->row = row;
    w->head = head;
    w->count = 0;
    w->magnitude = w->walk = 0;
    w->is_nan = false;
    tess_oracle_read(
        &w->desc->q, w->in.q, w->q_batch, w->q_start + row, head,
        s ? factor_of(w, w->in.q_descale, s->q_stride, s->q_rows_per_block, head, row) : 1, w->q);
    for (int64_t j = 0; j < w->columns; j++) {
        if (is_admitted(w, row, j)) {
            first = first < 0 ? j : first;
            last = j;
        }
    }
    if (first >= 0)
        compute_dots(w, first, last);
    for (int64_t j = first; first >= 0 && j <= last; j++) {
        double raw, score;

        if (!is_admitted(w, row, j))
            continue;
        score = score_of(w, j, slope, &raw);
        if (score == -(double)INFINITY)
            continue;
        if (isnan(score) || score == (double)INFINITY)
            w->is_nan = true;
        w->column[w->count] = j;
        w->raw[w->count] = raw;
        w->score[w->count] = score;
        w->count++;
    }
    w->has_sink = bias && (bias->present & TESS_BIAS_SINK);
    if (w->has_sink) {
        w->sink = read_float(TESS_F32, w->in.sink, head * bias->sink_stride);
        w->magnitude = largest_of(w->magnitude, w->sink);
        if (isnan(w->sink) || w->sink == (double)INFINITY)
            w->is_nan = true;
        if (w->sink == -(double)INFINITY)
            w->has_sink = false; /* adds nothing */
    }
    if (w->fault.absent_is_zero)
        for (int64_t n = 0; n < w->count; n++) {
            tess_oracle_fault fault = w->fault;

            w->fault.absent_is_zero = false;
            if (!is_admitted(w, row, w->column[n]))
                w->score[n] = 0;
            w->fault = fault;
        }
    normalise(w);
}

/* ---- Beginning and end ----------------------------------------------------------------------- */

static double *reals(int64_t count)
{
    return malloc((size_t)(count > 0 ? count : 1) * sizeof(double));
}

static int64_t largest_columns(tess_oracle_work *w)
{
    int64_t largest = 0;

    for (int64_t b = 0; b < w->sequences; b++) {
        tess_oracle_take_sequence(w, b);
        if (w->columns > largest)
            largest = w->columns;
    }
    return largest;
}

bool tess_oracle_begin(tess_oracle_work *w, const tess_attention_desc *desc,
                       const tess_oracle_inputs *inputs, const tess_oracle_fault *fault,
                       bool wants_k)
{
    const bool scale_is_set = (desc->flags & TESS_SCALE_IS_SET) || desc->softmax_scale != 0;
    int64_t columns;

    memset(w, 0, sizeof *w);
    w->desc = desc;
    w->in = *inputs;
    w->fault = fault ? *fault : (tess_oracle_fault){0};
    w->sequences = desc->varlen ? desc->varlen->sequences : desc->q.batch;
    w->heads_q = desc->q.heads;
    w->heads_kv = desc->k.heads;
    w->group = w->heads_kv > 0 ? w->heads_q / w->heads_kv : 1;
    w->dim = desc->q.head_dim;
    w->dim_v = desc->v.head_dim;
    w->max_columns = desc->k.seqlen;
    if (desc->paging) {
        w->max_columns = desc->paging->max_pages * desc->k.seqlen;
        if (desc->varlen && desc->varlen->max_seqlen_k > 0 &&
            desc->varlen->max_seqlen_k < w->max_columns)
            w->max_columns = desc->varlen->max_seqlen_k;
    }
    w->scale = scale_is_set ? (double)desc->softmax_scale : 1 / sqrt((double)w->dim);
    w->softcap = (double)desc->softcap;

    columns = largest_columns(w);
    w->k_turned = reals(columns * w->dim);
    w->v = reals(columns * w->dim_v);
    w->v_largest = reals(columns);
    w->k = wants_k ? reals(columns * w->dim) : NULL;
    w->q = reals(w->dim);
    w->dots = reals(columns);
    w->sizes = reals(columns);
    w->squares = wants_k ? reals(columns) : NULL;
    w->column = malloc((size_t)(columns > 0 ? columns : 1) * sizeof *w->column);
    w->raw = reals(columns);
    w->score = reals(columns);
    w->weight = reals(columns);
    return w->k_turned && w->v && w->v_largest && (w->k || !wants_k) && w->q && w->dots &&
           w->sizes && (w->squares || !wants_k) && w->column && w->raw && w->score && w->weight;
}

void tess_oracle_end(tess_oracle_work *w)
{
    free(w->k_turned);
    free(w->v);
    free(w->v_largest);
    free(w->k);
    free(w->q);
    free(w->dots);
    free(w->sizes);
    free(w->squares);
    free(w->column);
    free(w->raw);
    free(w->score);
    free(w->weight);
    memset(w, 0, sizeof *w);
}
