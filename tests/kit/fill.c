/* SPDX-License-Identifier: Apache-2.0
 * Input distributions: each element's value is a function of the seed and of which element it is.
 */
#include "tests/kit/fill.h"

#include "tests/kit/number.h"
#include "tests/kit/random.h"
#include "tests/kit/shape.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const char *const names[TESS_FILL_COUNT] = {
    "normal", "uniform",   "ones", "equal", "dominate", "ascending", "descending", "huge",
    "spike",  "subnormal", "nan",  "inf",   "zero",     "grid",      "holes"};

/* The gap by which one score dominates: far enough for exp() to vanish in fp32. */
#define DOMINANT 150.0

const char *tess_fill_name(int kind)
{
    return kind >= 0 && kind < TESS_FILL_COUNT ? names[kind] : NULL;
}

/* ---- Numbers from a place -------------------------------------------------------------------- */

static uint64_t hash_of_head(const tess_fill *fill, int tensor, tess_place p)
{
    const uint64_t h = tess_random_mix(fill->seed, (uint64_t)tensor);

    return tess_random_mix(h, (uint64_t)p.sequence << 32 | (uint64_t)p.head);
}

static uint64_t hash_within(uint64_t of_head, tess_place p)
{
    return tess_random_mix(of_head, (uint64_t)p.row << 32 | (uint64_t)p.dim);
}

static uint64_t hash(const tess_fill *fill, int tensor, tess_place p)
{
    return hash_within(hash_of_head(fill, tensor, p), p);
}

/* The sum of four 16-bit numbers, centred, with variance 1: a bell in integer arithmetic, since
 * log() and cos() differ between C libraries. Reaches 3.46. */
static uint64_t bell_sum(uint64_t h)
{
    return (h & 0xFFFF) + (h >> 16 & 0xFFFF) + (h >> 32 & 0xFFFF) + (h >> 48);
}

static double bell_of_sum(uint64_t sum)
{
    return ((double)sum - 2.0 * 65535.0) * (1.7320508075688772 / 65536.0);
}

static double bell(uint64_t h)
{
    return bell_of_sum(bell_sum(h));
}

static double between(uint64_t h)
{
    return (double)(h >> 11) * 0x1p-52 - 1;
}

static double small_integer(uint64_t h)
{
    return (double)(int64_t)(h % 17) - 8;
}

static bool is_place(tess_place a, tess_place b)
{
    return a.sequence == b.sequence && a.head == b.head && a.row == b.row && a.dim == b.dim;
}

/* A number below the least normal one of the storage type, never 0. */
static double subnormal(const tess_fill *fill, uint64_t h)
{
    const double steps = 1 / tess_number_ulp(fill->line->dtype) - 1;
    const double size = 1 + floor((double)(h >> 12) * 0x1p-52 * steps);

    return (h & 1 ? -size : size) * tess_number_least(fill->line->dtype);
}

/* ---- Choices made once ----------------------------------------------------------------------- */

/* A used element of one tensor; of the first sequence that has any, when some do not. */
static tess_place choose_place(const tess_line *line, int tensor, tess_random *random)
{
    const bool is_q = tensor == TESS_FILLED_Q || tensor == TESS_FILLED_D_O;
    const bool has_dim_v = tensor == TESS_FILLED_V || tensor == TESS_FILLED_D_O;
    const int64_t heads = is_q ? line->heads_q : line->heads_kv;
    const int64_t dims = has_dim_v ? line->head_dim_v : line->head_dim;
    int64_t sequence = tess_random_below(random, line->batch > 0 ? line->batch : 1), rows = 0;

    for (int64_t tries = 0; tries < line->batch && tries < 1000; tries++) {
        rows =
            is_q ? tess_shape_used_rows(line, sequence) : tess_shape_used_columns(line, sequence);
        if (rows > 0)
            break;
        sequence = (sequence + 1) % line->batch;
    }
    return (tess_place){sequence, tess_random_below(random, heads > 0 ? heads : 1),
                        tess_random_below(random, rows > 0 ? rows : 1),
                        tess_random_below(random, dims)};
}

bool tess_fill_make(const tess_line *line, tess_fill *out, tess_text *why)
{
    static const double amplitudes[] = {8, 16, 32, 64, 256};
    tess_random random = tess_random_start(line->seed, 0xF111);
    tess_random upstream = tess_random_start(line->seed, 0xF112);

    memset(out, 0, sizeof *out);
    out->line = line;
    out->seed = line->seed;
    out->root = sqrt((double)line->head_dim);
    out->kind = -1;
    for (int i = 0; i < TESS_FILL_COUNT; i++)
        if (strcmp(names[i], line->fill) == 0)
            out->kind = i;
    if (out->kind < 0) {
        tess_text_add(why, "fill=%s is no fill; the fills are", line->fill);
        for (int i = 0; i < TESS_FILL_COUNT; i++)
            tess_text_add(why, " %s", names[i]);
        return false;
    }
    out->amplitude = amplitudes[tess_random_below(&random, tess_shape_is_fp8(line->dtype) ? 3 : 5)];
    out->on_keys = tess_random_once_in(&random, 2);
    out->special_tensor = TESS_FILLED_Q + (int)tess_random_below(&random, 3);
    if (line->backward && tess_random_once_in(&upstream, 4))
        out->special_tensor = TESS_FILLED_D_O;
    out->special = choose_place(line, out->special_tensor, &random);
    for (int i = 0; i < 3; i++)
        out->outlier[i] = choose_place(line, TESS_FILLED_Q + i, &random);
    return true;
}

/* ---- Values ---------------------------------------------------------------------------------- */

/* Scores made of one dimension: Q holds 16 there, K the wanted score over 16. The scale is taken
 * to be the default one; another only stretches the pattern. */
static double steered(const tess_fill *fill, int tensor, tess_place p, double score, uint64_t h)
{
    const double rest = fill->kind == TESS_FILL_DOMINATE ? 0 : 0.125 * bell(h);

    if (tensor == TESS_FILLED_Q)
        return p.dim == 0 ? 16 : bell(h);
    return p.dim == 0 ? score * fill->root / 16 : rest;
}

/* A ramp over the columns, a quarter per column until it would overflow narrow types. */
static double ramp(const tess_fill *fill, int64_t column)
{
    const double columns = (double)(fill->line->seqlen_k > 1 ? fill->line->seqlen_k : 1);
    const double step = fmin(0.25, 200 / columns);

    return (double)column * step;
}

static double spike_or(const tess_fill *fill, int tensor, tess_place p, double value)
{
    if (!is_place(p, fill->outlier[tensor - TESS_FILLED_Q]))
        return value;
    return tess_shape_is_fp8(fill->line->dtype) ? 100 : 1000;
}

/* Elements of Q, K and V. */
static double operand(const tess_fill *fill, int tensor, tess_place p)
{
    const uint64_t h = hash(fill, tensor, p);
    const bool is_v = tensor == TESS_FILLED_V;
    const bool is_special = tensor == fill->special_tensor && is_place(p, fill->special);
    uint64_t chosen;
    int64_t columns;

    switch (fill->kind) {
    case TESS_FILL_UNIFORM:
        return between(h);
    case TESS_FILL_ONES:
        return is_v ? 1 : bell(h);
    case TESS_FILL_EQUAL:
        if (is_v)
            return small_integer(h);
        return (tensor == TESS_FILLED_K) == fill->on_keys ? 0 : bell(h);
    case TESS_FILL_DOMINATE:
        columns = tess_shape_used_columns(fill->line, p.sequence);
        chosen = hash(fill, -1, (tess_place){p.sequence, p.head, 0, 0});
        if (is_v || columns < 1)
            return bell(h);
        return steered(fill, tensor, p,
                       p.row == (int64_t)(chosen % (uint64_t)columns) ? DOMINANT : 0, h);
    case TESS_FILL_ASCENDING:
        return is_v ? bell(h) : steered(fill, tensor, p, ramp(fill, p.row), h);
    case TESS_FILL_DESCENDING:
        return is_v ? bell(h) : steered(fill, tensor, p, -ramp(fill, p.row), h);
    case TESS_FILL_HUGE:
        return is_v ? bell(h) : fill->amplitude * bell(h);
    case TESS_FILL_SPIKE:
        return spike_or(fill, tensor, p, bell(h));
    case TESS_FILL_SUBNORMAL:
        return is_v || fill->on_keys ? subnormal(fill, h) : bell(h);
    case TESS_FILL_NAN:
        return is_special ? (double)NAN : bell(h);
    case TESS_FILL_INF:
        /* Scores stay small, so that no weight vanishes: 0 times infinity would hide the sign. */
        if (is_special)
            return h & 1 ? (double)INFINITY : -(double)INFINITY;
        return is_v ? bell(h) : 0.5 * between(h);
    case TESS_FILL_ZERO:
        return 0;
    case TESS_FILL_GRID:
        return ((double)(int64_t)(h % 33) - 16) / 8;
    default:
        return bell(h);
    }
}

static double bias_value(const tess_fill *fill, tess_place p)
{
    const uint64_t h = hash(fill, TESS_FILLED_BIAS, p);
    const uint64_t of_row = hash(fill, -2, (tess_place){p.sequence, p.head, p.row, 0});

    if (fill->kind == TESS_FILL_ZERO || fill->kind == TESS_FILL_EQUAL)
        return 0;
    if (fill->kind == TESS_FILL_GRID)
        return ((double)(int64_t)(h % 33) - 16) / 8;
    if (fill->kind == TESS_FILL_HOLES) {
        if (of_row % 5 == 0 || h % 8 == 0)
            return -(double)INFINITY;
        if (h % 8 == 1)
            return -10000;
    }
    return bell(h);
}

/* Mostly powers of two as models use them; now and then negative or none. */
static double slope_value(uint64_t h)
{
    const double slope = ldexp(1, -1 - (int)(h >> 8 & 7));

    if (h % 16 == 0)
        return 0;
    return h % 8 == 1 ? -slope / 16 : slope;
}

static double sink_value(const tess_fill *fill, uint64_t h)
{
    if (fill->kind == TESS_FILL_ZERO || fill->kind == TESS_FILL_GRID)
        return 0;
    if (h % 8 == 0)
        return h & 8 ? 100 : -100;
    return 2 * bell(h);
}

/* Elements of dO and dLSE: as varied as the values are simple. */
static double upstream_value(const tess_fill *fill, int tensor, tess_place p)
{
    const uint64_t h = hash(fill, tensor, p);

    if (tensor == fill->special_tensor && is_place(p, fill->special)) {
        if (fill->kind == TESS_FILL_NAN)
            return (double)NAN;
        if (fill->kind == TESS_FILL_INF)
            return h & 1 ? (double)INFINITY : -(double)INFINITY;
    }
    return fill->kind == TESS_FILL_EQUAL || fill->kind == TESS_FILL_GRID ? small_integer(h)
                                                                         : bell(h);
}

double tess_fill_value(const tess_fill *fill, int tensor, tess_place place)
{
    const uint64_t h = hash(fill, tensor, place);

    switch (tensor) {
    case TESS_FILLED_Q:
    case TESS_FILLED_K:
    case TESS_FILLED_V:
        return operand(fill, tensor, place);
    case TESS_FILLED_BIAS:
        return bias_value(fill, place);
    case TESS_FILLED_SLOPES:
        return slope_value(h);
    case TESS_FILLED_SINK:
        return sink_value(fill, h);
    default:
        return upstream_value(fill, tensor, place);
    }
}

/* ---- Many at once ---------------------------------------------------------------------------- */

enum { BELL_SUMS = 4 * 0xFFFF + 1 };

uint32_t *tess_fill_table(const tess_fill *fill, tess_dtype dtype)
{
    uint32_t *const table =
        fill->kind == TESS_FILL_NORMAL ? malloc(BELL_SUMS * sizeof *table) : NULL;

    for (uint64_t sum = 0; sum < BELL_SUMS && table; sum++)
        table[sum] = tess_number_encode(dtype, bell_of_sum(sum));
    return table;
}

void tess_fill_bits(const tess_fill *fill, const uint32_t *table, int tensor, tess_place place,
                    int64_t count, uint32_t *out_bits)
{
    const uint64_t h = hash_of_head(fill, tensor, place);

    for (int64_t i = 0; i < count; i++, place.dim++)
        out_bits[i] = table[bell_sum(hash_within(h, place))];
}
