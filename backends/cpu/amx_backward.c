/* SPDX-License-Identifier: Apache-2.0
 * The backward kernel on AMX tiles: five bf16 products in tiles, what lies between in AVX-512. */
#include "backends/cpu/amx.h"
#include "backends/cpu/backward.h"

#include <tessera/attention.h>

/* The map; see amx.h for operands and backward.h for the mathematics.
 *
 *     lay K, V and K^T of the item's columns; zero dK and dV
 *     for each block of rows that sees one of them
 *         lay Q and dO twice: summed over dims, and summed over rows
 *         for each tile of 64 columns
 *             for each panel of the block that sees the tile
 *                 S^T = K Q^T, dP^T = V dO^T             blocks of 2 x 2 tiles of sums
 *                 P^T = 2^(S^T - lse), dS^T = P^T (dP^T - delta)   hook and masks here
 *                 dQ^T += K^T dS^T                       dS^T as pairs of columns
 *             dV += P^T dO, dK += dS^T Q                 all panels at once: rows of P^T and dS^T
 *                                                        are rows of a first operand as they come
 *         add dQ to the item's dQ
 *     write dK and dV
 *
 * P and dS are rounded to bf16, all sums are fp32. K and Q are not scaled; dQ and dK are, on their
 * way out. The order of every sum depends on the problem alone.
 *
 * Absent pairs get P = dS = 0 by selection; 0 times a non-finite value is seen in the finished row
 * or column, which is then computed again pair by pair, as in backward_tmpl.c. So are those that
 * may have lost what tiles do not compute with, numbers below 2^-126. */

enum {
    MOST_PANELS = 8,
    SHARE_TILES = TESS_SHARE_COLUMNS / TILE_COLUMNS,
    TILE_SCORES = TILE_COLUMNS * PANEL,
    BLOCK_ELEMENTS = 4 * PANEL * 256 /* rows times dims of Q and dO in a block of rows */
};

/* Results all of whose elements are smaller may have been flushed, if an input is that small. */
#define FLUSH_LIMIT 0x1p-90f
#define TINY_INPUT 0x1p-60f

/* A block of rows. Arrays [panel] unless it says otherwise. */
struct rows {
    int64_t first, end;   /* folded */
    int panels, capacity; /* that have rows; of a whole block */
    struct row_at at[MOST_PANELS * PANEL];
    struct seen seen[MOST_PANELS * PANEL]; /* an absent row, or one of LSE -inf, sees nothing */
    tess_column_walk walk[MOST_PANELS];
    bf16 *query, *d_o;             /* [dims / 32][2] tiles of [16 pairs of dims][row] */
    bf16 *query_pairs, *d_o_pairs; /* [dims / 32][panel][2] tiles of [16 pairs of rows][dim] */
    float *dq;                     /* [dims / 32] blocks of [dim][row] */
    float *lse, *delta, *dslope;   /* [row]; an empty row has LSE +inf, so that P is 0 */
};

/* The item's columns. Arrays [tile]. */
struct columns {
    bf16 *k, *v;    /* [16 columns][dims / 32] tiles of [column][32 dims] */
    bf16 *across;   /* K: [32 columns][dims / 16] tiles of [dim][32 columns] */
    float *dk, *dv; /* [32 columns][dims / 32] blocks of [column][dim] */
};

/* A tile of columns against the block. */
struct pairs {
    int64_t first;   /* column */
    int count;       /* columns that exist */
    float *score;    /* of a panel, [32 columns] blocks of [column][row]: S, then P */
    float *gradient; /* the same: dP, then dS */
    float *bias;     /* [column][row of a panel]; dBias afterwards */
    bf16 *weight;    /* P: [16 columns][panel] tiles of [column][32 rows] */
    bf16 *spread;    /* dS: the same */
    bf16 *gather;    /* dS of a panel: [32 columns][2] tiles of [16 pairs of columns][row] */
};

struct state {
    const tess_cpu_backward_work *work;
    const tess_args *args;
    struct hook hook;
    float factor;           /* without a hook: turns S into units of log2 */
    int64_t steps, steps_v; /* head_dim and head_dim_v in units of 32 */
    struct rows rows;
    struct columns columns;
    struct pairs pairs;
    float *spare; /* [VEC_LANES][longest row]; 64 rows of bf16 */
    int has_tiny; /* whether an input is tiny: -1 until somebody asks */
};

/* ---- scratch
 * ------------------------------------------------------------------------------------- */

static int block_panels(int64_t head_dim, int64_t head_dim_v)
{
    const int64_t dims = (pairs_of(head_dim) + pairs_of(head_dim_v)) * PAIR;
    return (int)tess_max_i64(tess_min_i64(BLOCK_ELEMENTS / (PANEL * dims), MOST_PANELS), 1);
}

/* Lays the scratch out and returns its end; with `from` null only that counts. */
static int64_t lay_scratch(float *from, int64_t head_dim, int64_t head_dim_v, struct state *state)
{
    const int64_t steps = pairs_of(head_dim), steps_v = pairs_of(head_dim_v);
    const int64_t panels = block_panels(head_dim, head_dim_v), rows = panels * PANEL;
    const int64_t columns = SHARE_TILES * TILE_COLUMNS;
    struct rows *const r = &state->rows;
    struct columns *const c = &state->columns;
    struct pairs *const p = &state->pairs;
    bf16 **const halves[] = {&r->query, &r->query_pairs, &r->d_o,    &r->d_o_pairs, &c->k,
                             &c->v,     &c->across,      &p->weight, &p->spread,    &p->gather};
    const int64_t half_counts[] = {rows * steps * PAIR,    rows * steps * PAIR,
                                   rows * steps_v * PAIR,  rows * steps_v * PAIR,
                                   columns * steps * PAIR, columns * steps_v * PAIR,
                                   columns * steps * PAIR, TILE_COLUMNS * rows,
                                   TILE_COLUMNS * rows,    TILE_SCORES};
    float **const floats[] = {&r->dq, &r->lse,   &r->delta,    &r->dslope, &c->dk,
                              &c->dv, &p->score, &p->gradient, &p->bias,   &state->spare};
    const int64_t float_counts[] = {rows * steps * PAIR,
                                    rows,
                                    rows,
                                    rows,
                                    columns * steps * PAIR,
                                    columns * steps_v * PAIR,
                                    TILE_SCORES,
                                    TILE_SCORES,
                                    TILE_SCORES,
                                    TILE_COLUMNS * MOST_DIM / 2};
    int64_t at = 0;

    for (size_t i = 0; i < sizeof halves / sizeof *halves; i++) {
        *halves[i] = from ? (bf16 *)(void *)(from + at) : NULL;
        at += padded(half_counts[i] / 2);
    }
    for (size_t i = 0; i < sizeof floats / sizeof *floats; i++) {
        *floats[i] = from ? from + at : NULL;
        at += padded(float_counts[i]);
    }
    return at;
}

static void clear(float *values, int64_t count)
{
    for (int64_t i = 0; i < count; i += VEC_LANES)
        vec_store(values + i, vec_set(0.0f));
}

/* ---- operands
 * ------------------------------------------------------------------------------------ */

static void load_columns(struct state *state)
{
    const tess_cpu_backward_work *work = state->work;
    const tess_args *args = state->args;
    const struct columns *c = &state->columns;
    const bf16 *row[TILE_COLUMNS];
    bf16 *const spare = (bf16 *)(void *)state->spare;

    for (int64_t column = work->first; column < work->end; column += TILE_COLUMNS) {
        const int64_t count = tess_min_i64(TILE_COLUMNS, work->end - column);
        const int64_t inside = (column - work->first) * PAIR;
        bf16 *const k = c->k + inside * state->steps, *const v = c->v + inside * state->steps_v;
        bf16 *const across = c->across + inside * state->steps;

        find_columns(&work->at, work->at.k, args->k_stride, column, count, args->head_dim, spare,
                     row);
        for (int j = 0; j < TILE_COLUMNS; j += EDGE)
            lay_rows(row + j, args->head_dim, k + j * state->steps * PAIR, HALVES);
        for (int j = 0; j < TILE_COLUMNS; j += PAIR)
            lay_across(row + j, args->head_dim, across + j * state->steps * PAIR);
        find_columns(&work->at, work->at.v, args->v_stride, column, count, args->head_dim_v, spare,
                     row);
        for (int j = 0; j < TILE_COLUMNS; j += EDGE)
            lay_rows(row + j, args->head_dim_v, v + j * state->steps_v * PAIR, HALVES);
    }
    clear(c->dk, SHARE_TILES * TILE_COLUMNS * state->steps * PAIR);
    clear(c->dv, SHARE_TILES * TILE_COLUMNS * state->steps_v * PAIR);
}

/* What the rows of a block have besides elements. */
static void load_statistics(const struct state *state, struct rows *rows)
{
    const tess_cpu_backward_work *work = state->work;
    const float unit = state->hook.is_needed ? 1.0f : TESS_LOG2_E;
    const int count = rows->panels * PANEL;

    locate_rows(rows->first, rows->end, state->args->group, count, rows->at);
    for (int r = 0; r < count; r++) {
        const struct row_at at = rows->at[r];
        float lse = TESS_NEG_INF;
        rows->seen[r] = (struct seen){0, 0};
        rows->delta[r] = 0.0f;
        rows->dslope[r] = 0.0f;
        if (rows->first + r < rows->end) {
            lse = work->at.lse[at.query * state->args->lse_stride[1] +
                               at.head * state->args->lse_stride[2]];
            rows->delta[r] = work->delta[at.query * state->args->heads_q + at.head];
        }
        if (lse != TESS_NEG_INF)
            rows->seen[r] = find_seen(&work->at, at);
        rows->lse[r] = lse == TESS_NEG_INF ? -TESS_NEG_INF : lse * unit;
    }
}

/* The tiles of the item that the rows first ... last see. */
static tess_column_walk item_walk(const struct state *state, int64_t first, int64_t last)
{
    const tess_cpu_backward_work *work = state->work;
    tess_column_walk walk =
        tess_walk_columns(work->at.visible, tess_walk_query(first, state->args->group),
                          tess_walk_query(last, state->args->group), TILE_COLUMNS, 0, 1);

    walk.first = tess_max_i64(walk.first, work->first / TILE_COLUMNS);
    walk.end = tess_min_i64(walk.end, (work->end + TILE_COLUMNS - 1) / TILE_COLUMNS);
    return walk;
}

/* One panel's rows of Q or dO in both forms. */
static void load_panel(const struct state *state, struct view view, int panel, bf16 *dims,
                       bf16 *pairs)
{
    const struct rows *const rows = &state->rows;
    const int64_t steps = pairs_of(view.count), first = rows->first + panel * PANEL;
    const bf16 *row[PANEL];

    find_rows(view, rows->at + panel * PANEL, rows->end - first, (bf16 *)(void *)state->spare, row);
    dims += panel * steps * 2 * HALVES;
    lay_dims(row, view.count, dims, 2 * HALVES);
    lay_dims(row + EDGE, view.count, dims + HALVES, 2 * HALVES);
    lay_pairs(row, view.count, pairs + panel * 2 * HALVES, rows->capacity * 2 * HALVES);
}

static void load_rows(struct state *state)
{
    const tess_args *args = state->args;
    const tess_cpu_backward_work *work = state->work;
    struct rows *const rows = &state->rows;
    const struct view q = {work->at.q,        args->q_stride[1], args->q_stride[2],
                           args->q_stride[3], args->head_dim,    args->dtype};
    const struct view d_o = {work->d_o,          args->do_stride[1], args->do_stride[2],
                             args->do_stride[3], args->head_dim_v,   args->do_dtype};

    load_statistics(state, rows);
    for (int p = 0; p < rows->panels; p++) {
        const int64_t first = rows->first + p * PANEL;
        rows->walk[p] = item_walk(state, first, tess_min_i64(first + PANEL, rows->end) - 1);
        load_panel(state, q, p, rows->query, rows->query_pairs);
        load_panel(state, d_o, p, rows->d_o, rows->d_o_pairs);
    }
    clear(rows->dq, rows->panels * PANEL * state->steps * PAIR);
}

/* ---- from S and dP to P and dS
 * ------------------------------------------------------------------- */

/* Where column j of a tile is in S, for the first 16 rows; the others are a tile further. */
KERNEL_INLINE int64_t score_at(int64_t j)
{
    return j / EDGE * 2 * SUMS + j % EDGE * EDGE;
}

/* Words of two vectors of bf16, one behind the other, next to each other. */
KERNEL_INLINE __m512i interleave(__m512i halves)
{
    const __m512i order =
        _mm512_set_epi16(31, 15, 30, 14, 29, 13, 28, 12, 27, 11, 26, 10, 25, 9, 24, 8, 23, 7, 22, 6,
                         21, 5, 20, 4, 19, 3, 18, 2, 17, 1, 16, 0);
    return _mm512_permutexvar_epi16(order, halves);
}

/* Where the operands of two columns, 2 * pair and the next, go. */
struct operands {
    bf16 *weight, *spread, *gather;
};

KERNEL_INLINE struct operands operands_of(const struct state *state, int panel, int pair)
{
    const struct pairs *const pairs = &state->pairs;
    const int64_t at =
        (pair / 8 * (int64_t)state->rows.capacity + panel) * HALVES + pair % 8 * 2 * PAIR;
    return (struct operands){pairs->weight + at, pairs->spread + at,
                             pairs->gather + pair / 16 * 2 * HALVES + pair % 16 * PAIR};
}

/* Rounds P and dS of two columns and lays them out: even[row vector], odd[...]. */
KERNEL_INLINE void put_operands(struct operands to, const vec p_even[2], const vec p_odd[2],
                                const vec ds_even[2], const vec ds_odd[2])
{
    _mm512_store_si512(to.weight, round_both(p_even[0], p_even[1]));
    _mm512_store_si512(to.weight + PAIR, round_both(p_odd[0], p_odd[1]));
    _mm512_store_si512(to.spread, round_both(ds_even[0], ds_even[1]));
    _mm512_store_si512(to.spread + PAIR, round_both(ds_odd[0], ds_odd[1]));
    for (int v = 0; v < 2; v++)
        _mm512_store_si512(to.gather + v * HALVES, interleave(round_both(ds_even[v], ds_odd[v])));
}

/* Where there is no hook and nothing is absent. */
static void weigh_plain(const struct state *state, int panel)
{
    const struct pairs *const pairs = &state->pairs;
    const vec factor = vec_set(state->factor);
    vec lse[2], delta[2];

    for (int v = 0; v < 2; v++) {
        lse[v] = vec_sub(vec_set(0.0f), vec_load(state->rows.lse + panel * PANEL + v * VEC_LANES));
        delta[v] = vec_load(state->rows.delta + panel * PANEL + v * VEC_LANES);
    }
    for (int pair = 0; pair < TILE_COLUMNS / 2; pair++) {
        const int64_t at = score_at(2 * pair);
        vec p[2][2], ds[2][2]; /* [even, odd][row vector] */
        for (int odd = 0; odd < 2; odd++)
            for (int v = 0; v < 2; v++) {
                const int64_t from = at + odd * EDGE + v * SUMS;
                p[odd][v] = weight_of(vec_fma(vec_load(pairs->score + from), factor, lse[v]));
                ds[odd][v] =
                    vec_mul(p[odd][v], vec_sub(vec_load(pairs->gradient + from), delta[v]));
            }
        put_operands(operands_of(state, panel, pair), p[0], p[1], ds[0], ds[1]);
    }
}

/* Everywhere else, one vector of rows, in place. With a hook, scores and LSE are in natural units
 * until their difference is taken, as in the scalar kernel. */
static void weigh_vector(const struct state *state, int panel, int v)
{
    const struct hook *const hook = &state->hook;
    const struct pairs *const pairs = &state->pairs;
    const int row = panel * PANEL + v * VEC_LANES;
    const vec lse = vec_load(state->rows.lse + row), delta = vec_load(state->rows.delta + row);
    const vec zero = vec_set(0.0f), absent = vec_set(TESS_NEG_INF);
    float firsts[VEC_LANES], ends[VEC_LANES];
    float slopes[VEC_LANES] = {0}, distances[VEC_LANES] = {0};
    vec dslope = vec_load(state->rows.dslope + row);

    load_seen(state->rows.seen + row, pairs->first, firsts, ends);
    const vec seen_first = vec_load(firsts), seen_end = vec_load(ends);
    if (hook->has_slopes)
        load_slopes(&state->work->at, state->rows.at + row, pairs->first, slopes, distances);
    for (int j = 0; j < TILE_COLUMNS; j++) {
        float *const at_score = pairs->score + score_at(j) + v * SUMS;
        float *const at_gradient = pairs->gradient + score_at(j) + v * SUMS;
        float *const at_bias = pairs->bias + j * PANEL + v * VEC_LANES;
        const vec distance = vec_sub(vec_load(distances), vec_set((float)j));
        struct hooked s = {vec_load(at_score), vec_set(1.0f)};
        vec power;

        if (hook->is_needed)
            s = hook_score(hook, s.score, vec_load(slopes), distance,
                           hook->has_bias && j < pairs->count ? vec_load(at_bias) : zero);
        s.score = vec_select(is_seen(seen_first, seen_end, j), s.score, absent);
        const vec_mask is_absent = vec_equal(s.score, absent);
        if (hook->is_needed)
            power = vec_mul(vec_sub(s.score, lse), vec_set(TESS_LOG2_E));
        else
            power = vec_fma(s.score, vec_set(state->factor), vec_sub(zero, lse));
        const vec p = vec_select(is_absent, zero, weight_of(power));
        const vec g =
            vec_select(is_absent, zero, vec_mul(p, vec_sub(vec_load(at_gradient), delta)));

        dslope = vec_sub(dslope, vec_mul(g, vec_abs(distance)));
        if (state->work->dbias)
            vec_store(at_bias, g);
        vec_store(at_score, p);
        vec_store(at_gradient, vec_select(is_absent, zero, vec_mul(g, s.cap_slope)));
    }
    vec_store(state->rows.dslope + row, dslope);
}

/* Adds the panel's dBias, transposed back, row after row: rows may share their sums. */
static void put_dbias(const struct state *state, int panel)
{
    const tess_args *args = state->args;
    const struct pairs *const pairs = &state->pairs;

    for (int v = 0; v < 2; v++) {
        const int inside = panel * PANEL + v * VEC_LANES;
        const int64_t first = state->rows.first + inside;
        for (int j = 0; j < TILE_COLUMNS; j += VEC_LANES) {
            vec block[VEC_LANES];
            for (int i = 0; i < VEC_LANES; i++)
                block[i] = vec_load(pairs->bias + (j + i) * PANEL + v * VEC_LANES);
            vec_transpose(block);
            for (int lane = 0; lane < VEC_LANES; lane++)
                vec_store(state->spare + lane * TILE_COLUMNS + j, block[lane]);
        }
        for (int lane = 0; lane < VEC_LANES && first + lane < state->rows.end; lane++) {
            const float *const row = state->spare + lane * TILE_COLUMNS;
            const struct row_at at = state->rows.at[inside + lane];
            float *const to = state->work->dbias + at.head * args->dbias_stride[1] +
                              at.query * args->dbias_stride[2] +
                              pairs->first * args->dbias_stride[3];
            for (int j = 0; j < pairs->count; j++)
                to[j * args->dbias_stride[3]] += row[j];
        }
    }
}

/* Lays out what weigh_vector() left. */
static void lay_weighed(const struct state *state, int panel)
{
    const struct pairs *const pairs = &state->pairs;

    for (int pair = 0; pair < TILE_COLUMNS / 2; pair++) {
        const int64_t at = score_at(2 * pair);
        vec p[2][2], ds[2][2];
        for (int odd = 0; odd < 2; odd++)
            for (int v = 0; v < 2; v++) {
                p[odd][v] = vec_load(pairs->score + at + odd * EDGE + v * SUMS);
                ds[odd][v] = vec_load(pairs->gradient + at + odd * EDGE + v * SUMS);
            }
        put_operands(operands_of(state, panel, pair), p[0], p[1], ds[0], ds[1]);
    }
}

static void weigh_panel(const struct state *state, int panel, bool is_masked)
{
    if (!is_masked && !state->hook.is_needed) {
        weigh_plain(state, panel);
        return;
    }
    if (state->hook.has_bias)
        load_bias(&state->work->at, state->rows.at + panel * PANEL, 2, state->pairs.first,
                  state->pairs.count, state->spare, state->pairs.bias);
    for (int v = 0; v < 2; v++)
        weigh_vector(state, panel, v);
    if (state->work->dbias)
        put_dbias(state, panel);
    lay_weighed(state, panel);
}

/* ---- products
 * ------------------------------------------------------------------------------------ */

/* S or dP: 64 columns of `left`, tiles of 32 dims, times a panel of rows. */
static void multiply_columns(const bf16 *left, const bf16 *right, int64_t steps, float *sum)
{
    const int64_t set = steps * HALVES;

    for (int i = 0; i < 2; i++)
        multiply((struct left){(const char *)(left + 2 * i * set), 64, HALVES * 2, set * 2}, right,
                 steps, sum + i * BLOCK, false, fill_nothing, NULL, 0);
}

/* dQ of a panel. */
static void gather(const struct state *state, int panel, const bf16 *across)
{
    const int64_t half = state->steps * 2 * HALVES;
    float *dq = state->rows.dq + panel * PANEL * state->steps * PAIR;

    for (int64_t b = 0; b < state->steps; b++, across += 2 * HALVES, dq += BLOCK)
        multiply((struct left){(const char *)across, 64, half * 2, HALVES * 2}, state->pairs.gather,
                 2, dq, true, fill_nothing, NULL, 0);
}

/* dK or dV of a tile, from the panels first ... end - 1. */
static void spread(const struct state *state, const bf16 *left, const bf16 *right, int64_t steps,
                   int first, int end, float *sum)
{
    const int64_t set = (int64_t)state->rows.capacity * HALVES;

    for (int i = 0; i < 2; i++, left += 2 * set)
        for (int64_t b = 0; b < steps; b++, sum += BLOCK)
            multiply((struct left){(const char *)(left + first * HALVES), 64, HALVES * 2, set * 2},
                     right + (b * state->rows.capacity + first) * 2 * HALVES, end - first, sum,
                     true, fill_nothing, NULL, 0);
}

static void add_panel(const struct state *state, int panel, int64_t inside)
{
    const struct rows *const rows = &state->rows;
    const int64_t at = inside * PAIR, row = (int64_t)panel * PANEL * PAIR;
    const int64_t tile = state->pairs.first / TILE_COLUMNS;

    multiply_columns(state->columns.k + at * state->steps, rows->query + row * state->steps,
                     state->steps, state->pairs.score);
    multiply_columns(state->columns.v + at * state->steps_v, rows->d_o + row * state->steps_v,
                     state->steps_v, state->pairs.gradient);
    weigh_panel(state, panel, tess_walk_is_masked(rows->walk[panel], tile));
    tile_fence();
    if (state->args->gradients & TESS_GRADIENT_Q)
        gather(state, panel, state->columns.across + at * state->steps);
}

static void add_tile(struct state *state, int64_t tile)
{
    const tess_cpu_backward_work *work = state->work;
    const struct rows *const rows = &state->rows;
    struct pairs *const pairs = &state->pairs;
    const int64_t inside = tile * TILE_COLUMNS - work->first;
    int first = -1, end = -1; /* panels: those that see a tile are next to each other */

    pairs->first = tile * TILE_COLUMNS;
    pairs->count = (int)tess_min_i64(TILE_COLUMNS, work->end - pairs->first);
    for (int p = 0; p < rows->panels; p++) {
        if (tile < rows->walk[p].first || tile >= rows->walk[p].end)
            continue;
        add_panel(state, p, inside);
        first = first < 0 ? p : first;
        end = p + 1;
    }
    if (first < 0)
        return;
    if (work->dv)
        spread(state, pairs->weight, rows->d_o_pairs, state->steps_v, first, end,
               state->columns.dv + inside * state->steps_v * PAIR);
    if (work->dk)
        spread(state, pairs->spread, rows->query_pairs, state->steps, first, end,
               state->columns.dk + inside * state->steps * PAIR);
}

/* ---- the way out
 * --------------------------------------------------------------------------------- */

static bool is_tiny(float x)
{
    return x != 0.0f && tess_abs(x) < TINY_INPUT;
}

/* Whether any element of `count` rows is. */
static bool has_tiny_row(struct view view, int64_t group, int64_t count)
{
    for (int64_t f = 0; f < count; f++) {
        const struct row_at at = {tess_walk_query(f, group), tess_walk_head(f, group)};
        const int64_t index = view_index(view, at);
        for (int64_t d = 0; d < view.count; d++)
            if (is_tiny(tess_cpu_load(view.base, index + d * view.stride, view.dtype)))
                return true;
    }
    return false;
}

static bool has_tiny_column(const struct state *state, const char *base, const tess_i64 stride[4],
                            int64_t dims)
{
    for (int64_t j = state->work->first; j < state->work->end; j++) {
        const int64_t index = tess_cpu_column(&state->work->at, stride, j);
        for (int64_t d = 0; d < dims; d++)
            if (is_tiny(tess_cpu_load(base, index + d * stride[3], state->args->dtype)))
                return true;
    }
    return false;
}

/* Whether a result of this size may have lost what tiles take as 0. */
static bool is_flushed(struct state *state, float size)
{
    const tess_cpu_backward_work *work = state->work;
    const tess_args *args = state->args;

    if (size >= FLUSH_LIMIT)
        return false;
    if (state->has_tiny < 0) {
        const struct view q = {work->at.q,        args->q_stride[1], args->q_stride[2],
                               args->q_stride[3], args->head_dim,    args->dtype};
        const struct view d_o = {work->d_o,          args->do_stride[1], args->do_stride[2],
                                 args->do_stride[3], args->head_dim_v,   args->do_dtype};
        state->has_tiny = has_tiny_column(state, work->at.v, args->v_stride, args->head_dim_v) ||
                          has_tiny_column(state, work->at.k, args->k_stride, args->head_dim) ||
                          has_tiny_row(d_o, args->group, work->rows) ||
                          has_tiny_row(q, args->group, work->rows);
    }
    return state->has_tiny > 0;
}

static void add_row(float *to, const float *row, int64_t count)
{
    int64_t d = 0;

    for (; d + VEC_LANES <= count; d += VEC_LANES)
        vec_store(to + d, vec_add(vec_load(to + d), vec_load(row + d)));
    for (; d < count; d++)
        to[d] += row[d];
}

/* Adds 16 rows of dq to the item's dQ. */
static void put_dq(struct state *state, int panel, int v)
{
    const tess_cpu_backward_work *work = state->work;
    const tess_args *args = state->args;
    const int64_t pitch = state->steps * PAIR;
    const int inside = panel * PANEL + v * VEC_LANES;
    const int64_t first = state->rows.first + inside;
    const float *const dq = state->rows.dq + panel * PANEL * pitch + v * SUMS;
    const bool may_spread = (args->flags & TESS_ALLOW_NONFINITE_SPREAD) != 0;
    vec fault = vec_set(0.0f), size = vec_set(0.0f);
    float faults[VEC_LANES], sizes[VEC_LANES];

    for (int64_t b = 0; b < state->steps * 2; b++) {
        vec block[VEC_LANES];
        for (int i = 0; i < EDGE; i++) {
            block[i] = vec_mul(vec_load(dq + b * 2 * SUMS + i * EDGE), vec_set(args->scale));
            fault = vec_fma(block[i], vec_set(0.0f), fault);
            size = _mm512_range_ps(size, block[i], 0xb);
        }
        vec_transpose(block);
        for (int lane = 0; lane < VEC_LANES; lane++)
            vec_store(state->spare + lane * pitch + b * EDGE, block[lane]);
    }
    vec_store(faults, fault);
    vec_store(sizes, size);
    for (int lane = 0; lane < VEC_LANES && first + lane < state->rows.end; lane++) {
        const struct row_at at = state->rows.at[inside + lane];
        float *const row = state->spare + lane * pitch;
        if ((faults[lane] != 0.0f && !may_spread) || is_flushed(state, sizes[lane]))
            tess_cpu_backward_row(work, first + lane, row);
        add_row(work->dq + (at.query * args->heads_q + at.head) * args->head_dim, row,
                args->head_dim);
    }
}

static void finish_rows(struct state *state)
{
    const tess_cpu_backward_work *work = state->work;
    const struct rows *const rows = &state->rows;

    for (int p = 0; p < rows->panels; p++) {
        if (rows->walk[p].first >= rows->walk[p].end)
            continue;
        for (int v = 0; v < 2 && (state->args->gradients & TESS_GRADIENT_Q); v++)
            put_dq(state, p, v);
    }
    for (int64_t r = 0; work->dslope && rows->first + r < rows->end; r++)
        work->dslope[rows->at[r].head] += rows->dslope[r];
}

/* Row `inside` of dK or dV out of its blocks, times the factor; *size grows to its largest element,
 * or NaN if one is not finite. */
static void take_column(const float *sums, int64_t inside, int64_t steps, float factor, float *row,
                        float *size, bool *is_finite)
{
    vec fault = vec_set(0.0f), most = vec_set(0.0f);
    float faults[VEC_LANES], sizes[VEC_LANES];

    sums +=
        inside / PANEL * steps * BLOCK + inside % PANEL / EDGE * 2 * SUMS + inside % EDGE * EDGE;
    for (int64_t b = 0; b < steps; b++, sums += BLOCK)
        for (int v = 0; v < 2; v++) {
            const vec x = vec_mul(vec_load(sums + v * SUMS), vec_set(factor));
            fault = vec_fma(x, vec_set(0.0f), fault);
            most = _mm512_range_ps(most, x, 0xb);
            vec_store(row + b * PAIR + v * EDGE, x);
        }
    vec_store(faults, fault);
    vec_store(sizes, most);
    *is_finite = true;
    *size = 0.0f;
    for (int lane = 0; lane < VEC_LANES; lane++) {
        *is_finite = *is_finite && faults[lane] == 0.0f;
        *size = tess_max(*size, sizes[lane]);
    }
}

/* A row of dK or dV; `base` is null when they are not wanted. */
static void put_column(char *base, const tess_i64 stride[4], int64_t column, int64_t count,
                       int32_t dtype, const float *row)
{
    if (!base)
        return;
    if (stride[3] == 1) {
        narrow(base, column * stride[1], count, dtype, row);
        return;
    }
    for (int64_t d = 0; d < count; d++)
        tess_cpu_store(base, column * stride[1] + d * stride[3], dtype, row[d]);
}

static void put_columns(struct state *state)
{
    const tess_cpu_backward_work *work = state->work;
    const tess_args *args = state->args;
    const bool may_spread = (args->flags & TESS_ALLOW_NONFINITE_SPREAD) != 0;
    float *const dk = state->spare, *const dv = state->spare + MOST_DIM;

    for (int64_t column = work->first; column < work->end; column++) {
        const int64_t inside = column - work->first;
        bool dk_is_finite, dv_is_finite;
        float dk_size, dv_size;

        take_column(state->columns.dk, inside, state->steps, args->scale, dk, &dk_size,
                    &dk_is_finite);
        take_column(state->columns.dv, inside, state->steps_v, 1.0f, dv, &dv_size, &dv_is_finite);
        if ((!(dk_is_finite && dv_is_finite) && !may_spread) ||
            is_flushed(state, dk_size < dv_size ? dk_size : dv_size))
            tess_cpu_backward_column(work, column, dk, dv);
        put_column(work->dk, args->dk_stride, column, args->head_dim, args->dk_dtype, dk);
        put_column(work->dv, args->dv_stride, column, args->head_dim_v, args->dv_dtype, dv);
    }
}

/* ---- the item
 * ------------------------------------------------------------------------------------ */

void tess_cpu_bwd_amx(const tess_cpu_backward_work *work)
{
    const tess_args *args = work->at.args;
    struct state state = {.work = work,
                          .args = args,
                          .hook = make_hook(&work->at),
                          .factor = args->scale * TESS_LOG2_E,
                          .steps = pairs_of(args->head_dim),
                          .steps_v = pairs_of(args->head_dim_v),
                          .has_tiny = -1};
    struct rows *const rows = &state.rows;
    const unsigned modes = flush_subnormals();
    int64_t step;

    state.hook.scale = args->scale;
    lay_scratch(work->at.scratch, args->head_dim, args->head_dim_v, &state);
    rows->capacity = block_panels(args->head_dim, args->head_dim_v);
    step = rows->capacity * PANEL;
    load_columns(&state);
    for (int64_t head = 0; work->dslope && head < args->group; head++)
        work->dslope[head] = 0.0f;
    for (int64_t f = 0; f < work->rows; f += step) {
        const int64_t end = tess_min_i64(f + step, work->rows);
        const tess_column_walk walk = item_walk(&state, f, end - 1);
        if (walk.first >= walk.end)
            continue;
        rows->first = f;
        rows->end = end;
        rows->panels = (int)((end - f + PANEL - 1) / PANEL);
        load_rows(&state);
        tile_start();
        tile_fence();
        for (int64_t tile = walk.first; tile < walk.end; tile++)
            add_tile(&state, tile);
        tile_stop();
        restore_modes(modes);
        finish_rows(&state);
        flush_subnormals();
    }
    restore_modes(modes);
    put_columns(&state);
}

float tess_cpu_bwd_amx_dot(tess_cpu_row_at a, tess_cpu_row_at b, int64_t count)
{
    return tess_cpu_bwd_lanes_avx512_dot(a, b, count);
}

void tess_cpu_bwd_amx_put_sum(tess_cpu_row_at to, const float *sums, int64_t buffers, int64_t pitch,
                              int64_t count)
{
    tess_cpu_bwd_lanes_avx512_put_sum(to, sums, buffers, pitch, count);
}

size_t tess_cpu_bwd_amx_scratch(int64_t head_dim, int64_t head_dim_v)
{
    struct state state;
    return (size_t)lay_scratch(NULL, head_dim, head_dim_v, &state) * sizeof(float);
}
