/* SPDX-License-Identifier: Apache-2.0
 * Work of a problem in flops and bytes: for schedules, rooflines and shares of peak. */
#include "core/schedule/cost.h"

#include "core/portable/visible.h"

/* Sum over x = 0 ... n of clamp(x, 0, most); 0 for negative n. */
static int64_t clamped_sum(int64_t n, int64_t most)
{
    if (n < 0)
        return 0;
    if (n <= most)
        return n * (n + 1) / 2;
    return most * (most + 1) / 2 + (n - most) * most;
}

/* Sum over the rows i of clamp(i + offset, 0, columns). Extents and bounds are below 2^31, so the
 * offset is below 2^32 and the sums stay below 2^63. */
static int64_t clamped_rows(int64_t rows, int64_t offset, int64_t columns)
{
    return clamped_sum(rows - 1 + offset, columns) - clamped_sum(offset - 1, columns);
}

/* A row's columns run from clamp(i + D - left) to clamp(i + D + right + 1), and clamping keeps
 * their order, so the sum over rows is the difference of two sums. */
double tess_cost_pairs(int64_t rows, int64_t columns, uint32_t mask, int64_t window_left,
                       int64_t window_right)
{
    const tess_visible visible = tess_visible_make(
        rows, columns, (mask & TESS_MASK_CAUSAL) != 0, (mask & TESS_MASK_TOP_LEFT) != 0,
        (mask & TESS_MASK_WINDOW) != 0, window_left, window_right);
    int64_t ends = rows * columns, firsts = 0;

    if (visible.right < TESS_UNBOUNDED)
        ends = clamped_rows(rows, visible.diagonal + visible.right + 1, columns);
    if (visible.left < TESS_UNBOUNDED)
        firsts = clamped_rows(rows, visible.diagonal - visible.left, columns);
    return (double)tess_max_i64(ends - firsts, 0);
}

/* The length of sequence `index` and how many sequences from there on share it: what is used of
 * them, else their own, else the common one. */
static int64_t length_at(const tess_lengths *used, const tess_lengths *lens, int64_t common,
                         int64_t index, int64_t *out_left)
{
    const tess_lengths *list = used->runs ? used : lens;

    for (int32_t run = 0; run < list->runs; run++) {
        if (index < list->count[run]) {
            *out_left = list->count[run] - index;
            return list->value[run];
        }
        index -= list->count[run];
    }
    *out_left = INT64_MAX; /* no list, or past its end */
    return list->runs ? 0 : common;
}

tess_cost tess_cost_of(const tess_line *line)
{
    const double head_dim = (double)line->head_dim, head_dim_v = (double)line->head_dim_v;
    const double heads_q = (double)line->heads_q, heads_kv = (double)line->heads_kv;
    const double size = (double)tess_dtype_size(line->dtype);
    const double o_size = line->o_dtype ? (double)tess_dtype_size(line->o_dtype) : size;
    double pairs = 0.0, rows = 0.0, columns = 0.0;
    int64_t equal; /* sequences from i on with the same two lengths */
    tess_cost cost;

    for (int64_t i = 0; i < line->batch; i += equal) {
        int64_t equal_k;
        const int64_t r = length_at(&line->used_q, &line->lens_q, line->seqlen_q, i, &equal);
        const int64_t c = length_at(&line->used_k, &line->lens_k, line->seqlen_k, i, &equal_k);
        equal = tess_min_i64(tess_min_i64(equal, equal_k), line->batch - i);
        pairs += (double)equal *
                 tess_cost_pairs(r, c, line->mask, line->window_left, line->window_right);
        rows += (double)equal * (double)r;
        columns += (double)equal * (double)c;
    }

    cost.pairs = pairs * heads_q;
    if (line->backward) {
        /* S and dQ, dK over head_dim; dP and dV over head_dim_v; reads also O, dO and LSE */
        cost.flops = 2.0 * (3.0 * head_dim + 2.0 * head_dim_v) * cost.pairs;
        cost.bytes = 2.0 * size *
                         (rows * heads_q * (head_dim + head_dim_v) +
                          columns * heads_kv * (head_dim + head_dim_v)) +
                     rows * heads_q * 4.0;
    } else {
        cost.flops = 2.0 * (head_dim + head_dim_v) * cost.pairs;
        cost.bytes =
            size * (rows * heads_q * head_dim + columns * heads_kv * (head_dim + head_dim_v)) +
            o_size * rows * heads_q * head_dim_v + rows * heads_q * 4.0;
    }
    return cost;
}
