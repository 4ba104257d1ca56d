/* SPDX-License-Identifier: Apache-2.0
 * Work of a problem in flops and bytes: for schedules, rooflines and shares of peak. */
#include "core/schedule/cost.h"

#include "core/portable/visible.h"

/* Sum over x = 0 ... n of clamp(x, 0, most); 0 for negative n. In doubles: exact up to 2^53, and a
 * cost needs no more. */
static double clamped_sum(double n, double most)
{
    if (n < 0.0)
        return 0.0;
    if (n <= most)
        return n * (n + 1.0) / 2.0;
    return most * (most + 1.0) / 2.0 + (n - most) * most;
}

/* Sum over the rows i of clamp(i + offset, 0, columns). */
static double clamped_rows(int64_t rows, int64_t offset, int64_t columns)
{
    const double last = (double)rows - 1.0 + (double)offset;
    return clamped_sum(last, (double)columns) - clamped_sum((double)offset - 1.0, (double)columns);
}

/* A row's columns run from clamp(i + D - left) to clamp(i + D + right + 1), and clamping keeps
 * their order, so the sum over rows is the difference of two sums. */
double tess_cost_pairs(int64_t rows, int64_t columns, uint32_t mask, int64_t window_left,
                       int64_t window_right)
{
    const tess_visible visible = tess_visible_make(
        rows, columns, (mask & TESS_MASK_CAUSAL) != 0, (mask & TESS_MASK_TOP_LEFT) != 0,
        (mask & TESS_MASK_WINDOW) != 0, window_left, window_right);
    double ends = (double)rows * (double)columns, firsts = 0.0;

    if (visible.right < TESS_UNBOUNDED)
        ends = clamped_rows(rows, visible.diagonal + visible.right + 1, columns);
    if (visible.left < TESS_UNBOUNDED)
        firsts = clamped_rows(rows, visible.diagonal - visible.left, columns);
    return ends > firsts ? ends - firsts : 0.0;
}

/* Length of sequence i: what is used of it, else its own, else the common one. */
static int64_t length_of(const tess_lengths *lens, const tess_lengths *used, int64_t i,
                         int64_t common)
{
    if (used->runs)
        return tess_lengths_at(used, i);
    return lens->runs ? tess_lengths_at(lens, i) : common;
}

tess_cost tess_cost_of(const tess_line *line)
{
    const double head_dim = (double)line->head_dim, head_dim_v = (double)line->head_dim_v;
    const double heads_q = (double)line->heads_q, heads_kv = (double)line->heads_kv;
    const double size = (double)tess_dtype_size(line->dtype);
    const double o_size = line->o_dtype ? (double)tess_dtype_size(line->o_dtype) : size;
    const bool is_uniform = !line->lens_q.runs && !line->lens_k.runs && !line->used_q.runs &&
                            !line->used_k.runs;
    const int64_t distinct = is_uniform ? (line->batch > 0) : line->batch;
    double pairs = 0.0, rows = 0.0, columns = 0.0;
    tess_cost cost;

    for (int64_t i = 0; i < distinct; i++) {
        const int64_t r = length_of(&line->lens_q, &line->used_q, i, line->seqlen_q);
        const int64_t c = length_of(&line->lens_k, &line->used_k, i, line->seqlen_k);
        pairs += tess_cost_pairs(r, c, line->mask, line->window_left, line->window_right);
        rows += (double)r;
        columns += (double)c;
    }
    if (is_uniform) {
        pairs *= (double)line->batch;
        rows *= (double)line->batch;
        columns *= (double)line->batch;
    }

    cost.pairs = pairs * heads_q;
    if (line->backward) {
        /* S and dQ, dK over head_dim; dP and dV over head_dim_v; reads also O, dO and LSE */
        cost.flops = 2.0 * (3.0 * head_dim + 2.0 * head_dim_v) * cost.pairs;
        cost.bytes = 2.0 * size * (rows * heads_q * (head_dim + head_dim_v) +
                                   columns * heads_kv * (head_dim + head_dim_v)) +
                     rows * heads_q * 4.0;
    } else {
        cost.flops = 2.0 * (head_dim + head_dim_v) * cost.pairs;
        cost.bytes = size * (rows * heads_q * head_dim +
                             columns * heads_kv * (head_dim + head_dim_v)) +
                     o_size * rows * heads_q * head_dim_v + rows * heads_q * 4.0;
    }
    return cost;
}
