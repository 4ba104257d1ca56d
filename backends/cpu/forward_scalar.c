/* SPDX-License-Identifier: Apache-2.0
 * The executable specification of the forward pass: the tile walk, the recurrence, no more. */
#include "backends/cpu/pair.h"

#include <tessera/attention.h>

/* for each row of the tile
 *     for each tile of columns in this item's share
 *         scores of the columns the row sees        dot, scale, softcap, ALiBi, bias
 *         admit the tile                            the shift moves, earlier output is rescaled
 *         output += weight * V                      absent columns are skipped, not multiplied by 0
 *     sink, division by the sum
 *
 * Compiled without contraction of a * b + c, so that every machine gives the same bits up to its
 * exp2 and tanh. The vector kernels (forward_tmpl.c) are the same loops turned inside out, and are
 * tested against this file. */

enum { TILE_COLUMNS = 64 };

/* The score of one pair in units of log2. */
static float score(const tess_cpu_work *work, int64_t folded_row, int64_t column)
{
    return tess_os_score(tess_cpu_score_of(work, folded_row, column).natural);
}

/* output += weight * V[column] */
static void add_value(const tess_cpu_work *work, int64_t column, float weight, float *output)
{
    const tess_args *args = work->args;
    const int64_t v = tess_cpu_column(work, args->v_stride, column);

    for (int64_t d = 0; d < args->head_dim_v; d++)
        output[d] += weight * tess_cpu_load(work->v, v + d * args->v_stride[3], args->dtype);
}

static void multiply(float *output, int64_t count, float factor)
{
    for (int64_t d = 0; d < count; d++)
        output[d] *= factor;
}

static tess_os_row add_tile(const tess_cpu_work *work, int64_t folded_row, tess_os_row row,
                            tess_cpu_span columns, float *scores, float *output)
{
    float max = TESS_NEG_INF, weights = 0.0f;

    for (int64_t column = columns.first; column < columns.end; column++) {
        const float s = score(work, folded_row, column);
        scores[column - columns.first] = s;
        max = tess_max(s, max);
    }

    const tess_os_step step = tess_os_admit(row, max);
    multiply(output, work->args->head_dim_v, step.rescale);

    for (int64_t column = columns.first; column < columns.end; column++) {
        const float s = scores[column - columns.first];
        const float weight = tess_os_weight(s, step.shift);
        if (s == TESS_NEG_INF)
            continue;
        weights += weight;
        add_value(work, column, weight, output);
    }
    return tess_os_advance(row, step, max, weights);
}

static float sink_of(const tess_cpu_work *work, int64_t folded_row)
{
    const tess_args *args = work->args;
    return work->sink[tess_walk_head(folded_row, args->group) * args->sink_stride];
}

static bool all_finite(const float *values, int64_t count)
{
    for (int64_t d = 0; d < count; d++)
        if (!tess_is_finite(values[d]))
            return false;
    return true;
}

size_t tess_cpu_fwd_scalar_scratch(int64_t head_dim, int64_t head_dim_v)
{
    (void)head_dim;
    return (TILE_COLUMNS + (size_t)head_dim_v) * sizeof(float);
}

void tess_cpu_fwd_scalar(const tess_cpu_work *work)
{
    const tess_args *args = work->args;
    const tess_column_walk walk = tess_cpu_columns(work);
    float *const scores = work->scratch;
    float *const output = scores + TILE_COLUMNS;

    for (int64_t f = work->tile.first; f < work->tile.end; f++) {
        tess_os_row row = tess_os_empty();
        for (int64_t d = 0; d < args->head_dim_v; d++)
            output[d] = 0.0f;

        for (int64_t tile = walk.first; tile < walk.end; tile++) {
            const tess_cpu_span columns = {tile * TILE_COLUMNS, (tile + 1) * TILE_COLUMNS};
            row = add_tile(work, f, row, tess_cpu_seen(work, f, columns), scores, output);
        }
        if (work->sink) {
            const tess_os_sunk sunk = tess_os_sink(row, sink_of(work, f));
            multiply(output, args->head_dim_v, sunk.rescale);
            row = sunk.row;
        }
        multiply(output, args->head_dim_v, tess_os_inverse(row.sum));

        /* Nothing absent was read, but values near the end of the range can overflow before the
         * division. */
        if (!all_finite(output, args->head_dim_v) && !(args->flags & TESS_ALLOW_NONFINITE_SPREAD))
            tess_cpu_forward_row(work, f, output);
        else
            tess_cpu_put_row(work, f, output, tess_os_lse(row));
    }
}

/* The largest score and the sum of weights first, so that the second pass adds finished shares of
 * the output: no sum of it exceeds the largest value. */
void tess_cpu_forward_row(const tess_cpu_work *work, int64_t folded_row, float *o)
{
    const tess_args *args = work->args;
    const tess_column_walk walk = tess_cpu_columns(work);
    const tess_cpu_span share = {walk.first * args->tile_columns, walk.end * args->tile_columns};
    const tess_cpu_span columns = tess_cpu_seen(work, folded_row, share);
    const float sink = work->sink ? tess_os_score(sink_of(work, folded_row)) : TESS_NEG_INF;
    tess_os_row row = {sink, 0.0f};

    for (int64_t column = columns.first; column < columns.end; column++)
        row.shift = tess_max(score(work, folded_row, column), row.shift);

    const float shift = tess_os_shift(row.shift);
    row.sum = tess_os_weight(sink, shift);
    for (int64_t column = columns.first; column < columns.end; column++)
        row.sum += tess_os_weight(score(work, folded_row, column), shift);

    const float inverse = tess_os_inverse(row.sum);
    for (int64_t d = 0; d < args->head_dim_v; d++)
        o[d] = 0.0f;
    for (int64_t column = columns.first; column < columns.end; column++) {
        const float s = score(work, folded_row, column);
        if (s != TESS_NEG_INF)
            add_value(work, column, tess_os_weight(s, shift) * inverse, o);
    }
    tess_cpu_put_row(work, folded_row, o, tess_os_lse(row));
}
