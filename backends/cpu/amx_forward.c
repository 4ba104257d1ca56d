/* SPDX-License-Identifier: Apache-2.0
 * The forward kernel on AMX tiles: bf16 products in tiles, the softmax in AVX-512. */
#include "backends/cpu/amx.h"

#include <tessera/attention.h>

/* The map.
 *
 *     for each block of columns, as large as stays in a core's own cache
 *         lay V^T, and K where it cannot be used as it lies             once for all panels
 *         for each panel of 32 rows, for each tile of 64 columns
 *             S^T = K Q^T             2 blocks of 2 x 2 tiles of sums; K streams past the first
 * cache hook, masks                                               only where there are any P^T =
 * 2^(S^T - shift), its sum                            fp32; P^T rounded to bf16 O^T += V^T P^T a
 * block for each 32 dims; V^T streams past the first cache
 *
 * The three steps of three tiles run at once: the products S(i + 1) and O(i - 1) are instructions
 * with long latencies, and the weights of tile i fill the time between them (fill_weights). So S
 * and P are held twice.
 *
 * The shift is not the maximum. It is the maximum of the first tile in which a row sees anything,
 * and stays, because fp32 and bf16 have the same exponents: a weight of 2^50 is as exact as one of
 * 2^-50. Only when a tile's sum leaves 2^LAG_LIMIT, or is no number, the shift grows to the tile's
 * maximum and the tile is weighed again (raise_shift). That saves a pass over all scores.
 *
 * Scratch: per panel Q^T, O^T, shift and sum; then the block of columns, S, P, the bias, and rows
 * on the way in and out.
 *
 * The bits of a row depend on the row and its columns alone, as in forward_tmpl.c: every lane has
 * its own shift, and what a row does not see adds exactly zero. */

#define LAG_LIMIT 0x1p60f

/* An output this small may have lost what tiles do not compute with: see is_flushed(). */
#define FLUSH_LIMIT 0x1p-90f

enum {
    TALL_PANELS = 16,
    LOW_PANELS = 4,
    BLOCK_BYTES = 256 * 1024, /* of K and V^T */
    BLOCK_COLUMNS = 2048,     /* at most */
    TILE_SCORES = TILE_COLUMNS * PANEL,
    NEAR_ROW = 512 /* most bytes from a row of K to the next for it to be used as it lies */
};

struct panel {
    bf16 *query;        /* [dims / 32][2] tiles of [16 pairs of dims][row] */
    float *output;      /* [dims / 32] blocks of [dim][row], not yet divided by the sum */
    float *shift, *sum; /* [row] */
    tess_row_tile rows; /* folded */
    tess_column_walk walk;
    bool is_settled;         /* every row has a shift */
    struct row_at at[PANEL]; /* past the end, the last row again */
    bool has_seen;
    struct seen seen[PANEL]; /* once some tile has to know */
};

/* Columns whose operands are laid out. */
struct columns {
    int64_t first, end; /* tiles */
    bf16 *k;            /* [tile][16 columns][dims / 32] tiles of [column][32 dims] */
    bf16 *v;            /* [tile][32 columns][dims / 16] tiles of [dim][32 columns] */
};

struct state {
    const tess_cpu_work *work;
    const tess_args *args;
    struct hook hook;
    float factor;          /* turns what is in S into units of log2 */
    bool keeps_k;          /* whole tiles of K are used as they lie */
    int64_t steps, blocks; /* head_dim and head_dim_v in units of 32 */
    int64_t limit;         /* one past the last column that any row sees */
    struct panel *panels;
    int count; /* of panels */
    struct columns columns;
    float *score[2]; /* [32 columns] blocks of [column][row] */
    bf16 *weight[2]; /* [32 columns][2] tiles of [16 pairs of columns][row] */
    float *bias;     /* [column][row] */
    float *rows;     /* [VEC_LANES][longest row]; spare for 64 rows of bf16 as well */
};

/* ---- scratch
 * ------------------------------------------------------------------------------------- */

static int64_t block_tiles(int64_t head_dim, int64_t head_dim_v)
{
    const int64_t bytes = (pairs_of(head_dim) + pairs_of(head_dim_v)) * PAIR * 2;
    return tess_min_i64(BLOCK_BYTES / bytes, BLOCK_COLUMNS) / TILE_COLUMNS;
}

static float *lay_panel(float *from, int64_t steps, int64_t blocks, struct panel *panel)
{
    panel->query = take_halves(&from, steps * 2 * HALVES);
    panel->output = take(&from, blocks * BLOCK);
    panel->shift = take(&from, PANEL);
    panel->sum = take(&from, PANEL);
    return from;
}

static float *lay_shared(float *from, int64_t head_dim, int64_t head_dim_v, struct state *state)
{
    const int64_t columns = block_tiles(head_dim, head_dim_v) * TILE_COLUMNS;

    for (int i = 0; i < 2; i++) {
        state->score[i] = take(&from, TILE_SCORES);
        state->weight[i] = take_halves(&from, TILE_SCORES);
    }
    state->bias = take(&from, TILE_SCORES);
    state->rows = take(&from, TILE_COLUMNS * MOST_DIM / 2);
    state->columns.k = take_halves(&from, columns * pairs_of(head_dim) * PAIR);
    state->columns.v = take_halves(&from, columns * pairs_of(head_dim_v) * PAIR);
    return from;
}

static size_t scratch_size(int panels, int64_t head_dim, int64_t head_dim_v)
{
    const int64_t steps = pairs_of(head_dim), blocks = pairs_of(head_dim_v);
    const int64_t columns = block_tiles(head_dim, head_dim_v) * TILE_COLUMNS;
    const int64_t panel = steps * HALVES + blocks * BLOCK + 2 * PANEL;
    const int64_t shared =
        4 * TILE_SCORES + TILE_COLUMNS * MOST_DIM / 2 + columns * (steps + blocks) * PAIR / 2;
    return (size_t)(panels * panel + shared) * sizeof(float);
}

/* ---- operands
 * ------------------------------------------------------------------------------------ */

static void load_columns(struct state *state, int64_t first, int64_t end)
{
    const tess_cpu_work *work = state->work;
    const tess_args *args = state->args;
    const bf16 *row[TILE_COLUMNS];
    bf16 *const spare = (bf16 *)(void *)state->rows;
    bf16 *k = state->columns.k, *v = state->columns.v;

    state->columns.first = first;
    state->columns.end = end;
    for (int64_t t = first; t < end; t++) {
        const int64_t column = t * TILE_COLUMNS;
        const int64_t count = tess_min_i64(TILE_COLUMNS, state->limit - column);
        find_columns(work, work->v, args->v_stride, column, count, args->head_dim_v, spare, row);
        for (int j = 0; j < TILE_COLUMNS; j += PAIR, v += state->blocks * 2 * HALVES)
            lay_across(row + j, args->head_dim_v, v);
        if (!state->keeps_k || count < TILE_COLUMNS) {
            find_columns(work, work->k, args->k_stride, column, count, args->head_dim, spare, row);
            for (int j = 0; j < TILE_COLUMNS; j += EDGE)
                lay_rows(row + j, args->head_dim, k + j * state->steps * PAIR, HALVES);
        }
        k += TILE_COLUMNS * state->steps * PAIR;
    }
}

/* The first 32 columns of a tile of K; the others follow at *out_next bytes. */
static struct left k_of(const struct state *state, int64_t tile, int64_t *out_next)
{
    const int64_t column = tile * TILE_COLUMNS;
    const int64_t row = state->args->k_stride[1] * 2, set = state->steps * HALVES * 2;

    if (state->keeps_k && column + TILE_COLUMNS <= state->limit) {
        *out_next = PANEL * row;
        return (struct left){state->work->k + column * row, row, 64, EDGE * row};
    }
    *out_next = 2 * set;
    return (struct left){(const char *)state->columns.k +
                             (tile - state->columns.first) * TILE_COLUMNS * state->steps * PAIR * 2,
                         64, HALVES * 2, set};
}

/* The first 32 dims of a tile of V^T; the others follow at 2 tiles. */
static struct left v_of(const struct state *state, int64_t tile)
{
    const int64_t half = state->blocks * 2 * HALVES * 2;
    return (struct left){(const char *)state->columns.v + (tile - state->columns.first) * 2 * half,
                         64, half, HALVES * 2};
}

static void start_panel(const struct state *state, struct panel *panel)
{
    const tess_cpu_work *work = state->work;
    const tess_args *args = state->args;
    const int64_t first = panel->rows.first, end = panel->rows.end;
    const struct view q = {work->q,           args->q_stride[1], args->q_stride[2],
                           args->q_stride[3], args->head_dim,    args->dtype};
    const bf16 *row[PANEL];

    locate_rows(first, end, args->group, PANEL, panel->at);
    find_rows(q, panel->at, end - first, (bf16 *)(void *)state->rows, row);
    lay_dims(row, args->head_dim, panel->query, 2 * HALVES);
    lay_dims(row + EDGE, args->head_dim, panel->query + HALVES, 2 * HALVES);
    for (int i = 0; i < PANEL; i++) {
        panel->shift[i] = TESS_NEG_INF;
        panel->sum[i] = 0.0f;
    }
    for (int64_t i = 0; i < state->blocks * BLOCK; i += VEC_LANES)
        vec_store(panel->output + i, vec_set(0.0f));
    panel->is_settled = false;
    panel->has_seen = false;
    panel->walk = tess_walk_columns(work->visible, panel->at[0].query, panel->at[PANEL - 1].query,
                                    TILE_COLUMNS, 0, 1);
}

/* ---- scores
 * -------------------------------------------------------------------------------------- */

/* Where column j of a tile is in S, for the first 16 rows; the others are a tile further. */
KERNEL_INLINE int64_t score_at(int64_t j)
{
    return j / EDGE * 2 * SUMS + j % EDGE * EDGE;
}

static void apply_hook(const struct state *state, const struct panel *panel, int64_t tile,
                       float *score)
{
    const tess_cpu_work *work = state->work;
    const struct hook *const hook = &state->hook;
    const int64_t first = tile * TILE_COLUMNS;
    const int count = (int)tess_min_i64(TILE_COLUMNS, state->limit - first);

    if (hook->has_bias)
        load_bias(work, panel->at, 2, first, count, state->rows, state->bias);
    for (int v = 0; v < 2; v++) {
        float slopes[VEC_LANES] = {0}, distances[VEC_LANES] = {0};
        if (hook->has_slopes)
            load_slopes(work, panel->at + v * VEC_LANES, first, slopes, distances);
        for (int j = 0; j < count; j++) {
            float *const at = score + score_at(j) + v * SUMS;
            const vec distance = vec_sub(vec_load(distances), vec_set((float)j));
            const vec bias =
                hook->has_bias ? vec_load(state->bias + j * PANEL + v * VEC_LANES) : vec_set(0.0f);
            vec_store(
                at,
                in_log2(hook_score(hook, vec_load(at), vec_load(slopes), distance, bias).score));
        }
    }
}

/* Scores of columns that a row does not see become -inf: selected, never added, so that nothing an
 * absent column holds survives. */
static void hide_absent(const struct state *state, struct panel *panel, int64_t tile, float *score)
{
    for (int i = 0; i < PANEL && !panel->has_seen; i++)
        panel->seen[i] = find_seen(state->work, panel->at[i]);
    panel->has_seen = true;
    for (int v = 0; v < 2; v++) {
        float firsts[VEC_LANES], ends[VEC_LANES];
        load_seen(panel->seen + v * VEC_LANES, tile * TILE_COLUMNS, firsts, ends);
        const vec first = vec_load(firsts), end = vec_load(ends);
        for (int j = 0; j < TILE_COLUMNS; j++) {
            float *const at = score + score_at(j) + v * SUMS;
            vec_store(at, vec_select(is_seen(first, end, j), vec_load(at), vec_set(TESS_NEG_INF)));
        }
    }
}

static void finish_scores(const struct state *state, struct panel *panel, int64_t tile,
                          float *score)
{
    if (state->hook.is_needed)
        apply_hook(state, panel, tile, score);
    if (tess_walk_is_masked(panel->walk, tile))
        hide_absent(state, panel, tile, score);
}

/* The largest score of each of 16 rows, in units of log2. */
static vec largest(const float *score, float factor)
{
    vec part[4];

    for (int i = 0; i < 4; i++)
        part[i] = vec_set(TESS_NEG_INF);
    for (int j = 0; j < TILE_COLUMNS; j += 4)
        for (int i = 0; i < 4; i++)
            part[i] = vec_max(part[i], vec_load(score + score_at(j + i)));
    return vec_mul(vec_max(vec_max(part[0], part[1]), vec_max(part[2], part[3])), vec_set(factor));
}

/* Gives rows that have none yet a shift. */
static void settle(const struct state *state, struct panel *panel, const float *score)
{
    bool is_settled = true;

    for (int v = 0; v < 2; v++) {
        const vec shift = vec_load(panel->shift + v * VEC_LANES);
        const vec_mask is_open = vec_equal(shift, vec_set(TESS_NEG_INF));
        const vec next = vec_select(is_open, largest(score + v * SUMS, state->factor), shift);
        vec_store(panel->shift + v * VEC_LANES, next);
        is_settled = is_settled && !vec_any(vec_equal(next, vec_set(TESS_NEG_INF)));
    }
    panel->is_settled = is_settled;
}

/* ---- weights
 * ------------------------------------------------------------------------------------- */

/* The weights of a tile in the making: pairs of columns of the whole panel, one after the other. */
struct weighing {
    const float *score;
    bf16 *weight;
    int done;
    vec factor, minus_shift[2], sum[2];
};

/* NOLINTBEGIN(readability-non-const-parameter): what is made of the weights is written there */
KERNEL_INLINE struct weighing start_weights(const struct state *state, const struct panel *panel,
                                            const float *score, bf16 *weight)
{
    struct weighing w = {score,           weight,         0, vec_set(state->factor),
                         {vec_set(0.0f)}, {vec_set(0.0f)}};

    for (int v = 0; v < 2; v++) {
        const vec shift = vec_load(panel->shift + v * VEC_LANES);
        const vec_mask is_empty = vec_equal(shift, vec_set(TESS_NEG_INF));
        w.minus_shift[v] = vec_sub(vec_set(0.0f), vec_select(is_empty, vec_set(0.0f), shift));
        w.sum[v] = vec_set(0.0f);
    }
    return w;
}
/* NOLINTEND(readability-non-const-parameter) */

KERNEL_INLINE void weigh_pair(struct weighing *w)
{
    const int pair = w->done++;
    const float *const score = w->score + pair / 8 * 2 * SUMS + pair % 8 * PAIR;
    bf16 *const weight = w->weight + pair / 16 * 2 * HALVES + pair % 16 * PAIR;

    for (int v = 0; v < 2; v++) {
        const float *const at = score + v * SUMS;
        const vec even = weight_of(vec_fma(vec_load(at), w->factor, w->minus_shift[v]));
        const vec odd = weight_of(vec_fma(vec_load(at + EDGE), w->factor, w->minus_shift[v]));
        w->sum[v] = vec_add(w->sum[v], vec_add(even, odd));
        _mm512_store_si512(weight + v * HALVES, pair_weights(even, odd));
    }
}

KERNEL_INLINE void fill_weights(void *user, int most)
{
    struct weighing *const w = user;

    for (int i = 0; i < most; i++)
        if (w->done < TILE_COLUMNS / 2)
            weigh_pair(w);
}

KERNEL_INLINE void finish_weights(struct weighing *w)
{
    while (w->done < TILE_COLUMNS / 2)
        weigh_pair(w);
}

/* Which rows' sums say that their shift is too low. */
static bool is_too_low(const struct weighing *w)
{
    const vec limit = vec_set(LAG_LIMIT);
    return !(vec_less(w->sum[0], limit) == 0xffff && vec_less(w->sum[1], limit) == 0xffff);
}

/* Raises the shift of the rows whose sums left the range to the tile's largest score, and weighs
 * the tile again; the other rows get the weights they had. */
static __attribute__((noinline)) void raise_shift(const struct state *state, struct panel *panel,
                                                  const float *score, bf16 *weight,
                                                  float sums[PANEL])
{
    struct weighing again;

    for (int v = 0; v < 2; v++) {
        const vec shift = vec_load(panel->shift + v * VEC_LANES);
        const vec_mask fits = vec_less(vec_load(sums + v * VEC_LANES), vec_set(LAG_LIMIT));
        const vec most = vec_max(largest(score + v * SUMS, state->factor), shift);
        const vec next = vec_select(fits, shift, most);
        const vec rescale = vec_select(fits, vec_set(1.0f), vec_exp2(vec_sub(shift, next)));
        float *const output = panel->output + v * SUMS;
        for (int64_t b = 0; b < state->blocks * 2; b++)
            for (int d = 0; d < EDGE; d++) {
                float *const at = output + b * 2 * SUMS + d * EDGE;
                vec_store(at, vec_mul(vec_load(at), rescale));
            }
        vec_store(panel->sum + v * VEC_LANES,
                  vec_mul(vec_load(panel->sum + v * VEC_LANES), rescale));
        vec_store(panel->shift + v * VEC_LANES, next);
    }
    again = start_weights(state, panel, score, weight);
    finish_weights(&again);
    for (int v = 0; v < 2; v++)
        vec_store(sums + v * VEC_LANES, again.sum[v]);
}

KERNEL_INLINE void add_sums(const struct state *state, struct panel *panel, struct weighing *w)
{
    float sums[PANEL];

    for (int v = 0; v < 2; v++)
        vec_store(sums + v * VEC_LANES, w->sum[v]);
    if (is_too_low(w))
        raise_shift(state, panel, w->score, w->weight, sums);
    for (int v = 0; v < 2; v++) {
        float *const sum = panel->sum + v * VEC_LANES;
        vec_store(sum, vec_add(vec_load(sum), vec_load(sums + v * VEC_LANES)));
    }
}

/* ---- a panel and the laid columns
 * ---------------------------------------------------------------- */

KERNEL_INLINE void multiply_keys_of(const struct state *state, const struct panel *panel,
                                    int64_t tile, float *score, struct weighing *w, const int fill)
{
    int64_t next;
    struct left k = k_of(state, tile, &next);

    for (int i = 0; i < 2; i++, k.at += next, score += BLOCK)
        multiply(k, panel->query, state->steps, score, false, w ? fill_weights : fill_nothing, w,
                 fill);
}

KERNEL_INLINE void multiply_values_of(const struct state *state, const struct panel *panel,
                                      int64_t tile, const bf16 *weight, struct weighing *w,
                                      const int fill)
{
    struct left v = v_of(state, tile);
    float *output = panel->output;

    for (int64_t b = 0; b < state->blocks; b++, v.at += 2 * HALVES * 2, output += BLOCK)
        multiply(v, weight, 2, output, true, w ? fill_weights : fill_nothing, w, fill);
}

/* A tile of a panel; the tiles of all panels of a work item that meet the laid columns follow each
 * other, so that no panel has to wait for another one's last step. */
struct job {
    struct panel *panel; /* NULL past the last */
    int64_t tile, end;   /* of this panel */
};

static struct job job_of(const struct state *state, int p)
{
    for (; p < state->count; p++) {
        struct panel *const panel = &state->panels[p];
        const int64_t first = tess_max_i64(state->columns.first, panel->walk.first);
        const int64_t end = tess_min_i64(state->columns.end, panel->walk.end);
        if (first < end)
            return (struct job){panel, first, end};
    }
    return (struct job){NULL, 0, 0};
}

static struct job next_job(const struct state *state, struct job job)
{
    if (job.tile + 1 < job.end)
        return (struct job){job.panel, job.tile + 1, job.end};
    return job_of(state, (int)(job.panel - state->panels) + 1);
}

/* `fill` pairs of columns are weighed per step of a product. */
KERNEL_INLINE void add_columns(const struct state *state, const int fill)
{
    struct job before = {NULL, 0, 0}, job = job_of(state, 0);
    int now = 0;

    if (!job.panel)
        return;
    multiply_keys_of(state, job.panel, job.tile, state->score[now], NULL, 0);
    finish_scores(state, job.panel, job.tile, state->score[now]);
    while (job.panel) {
        const struct job next = next_job(state, job);
        struct weighing w;

        if (!job.panel->is_settled)
            settle(state, job.panel, state->score[now]);
        w = start_weights(state, job.panel, state->score[now], state->weight[now]);
        tile_fence();
        if (next.panel)
            multiply_keys_of(state, next.panel, next.tile, state->score[!now], &w, fill);
        if (before.panel)
            multiply_values_of(state, before.panel, before.tile, state->weight[!now], &w, fill);
        finish_weights(&w);
        add_sums(state, job.panel, &w);
        if (next.panel)
            finish_scores(state, next.panel, next.tile, state->score[!now]);
        before = job;
        job = next;
        now = !now;
    }
    tile_fence();
    multiply_values_of(state, before.panel, before.tile, state->weight[!now], NULL, 0);
}

#define ADD_COLUMNS(name, fill)                                           \
    static __attribute__((noinline)) void name(const struct state *state) \
    {                                                                     \
        add_columns(state, fill);                                         \
    }

ADD_COLUMNS(add_columns_fill_1, 1)
ADD_COLUMNS(add_columns_fill_2, 2)
ADD_COLUMNS(add_columns_fill_3, 3)
ADD_COLUMNS(add_columns_fill_4, 4)
ADD_COLUMNS(add_columns_fill_8, 8)

/* A tile's 32 pairs of columns, spread evenly over the steps of its products. */
static void add_all(const struct state *state)
{
    const int64_t steps = 2 * (state->steps + state->blocks);
    const int64_t fill = (TILE_COLUMNS / 2 + steps - 1) / steps;

    if (fill <= 1)
        add_columns_fill_1(state);
    else if (fill == 2)
        add_columns_fill_2(state);
    else if (fill == 3)
        add_columns_fill_3(state);
    else if (fill == 4)
        add_columns_fill_4(state);
    else
        add_columns_fill_8(state);
}

/* ---- the way out
 * --------------------------------------------------------------------------------- */

/* Whether a row may have lost numbers that tiles take as 0, those below 2^-126: only if all of its
 * output is tiny although it sees a V that is not 0. */
static bool is_flushed(const struct state *state, struct seen seen, const float *o)
{
    const tess_args *args = state->args;
    const tess_column_walk walk = tess_cpu_columns(state->work);
    const int64_t first = tess_max_i64(seen.first, walk.first * TILE_COLUMNS);
    const int64_t end = tess_min_i64(seen.end, walk.end * TILE_COLUMNS);

    for (int64_t d = 0; d < args->head_dim_v; d++)
        if (tess_abs(o[d]) >= FLUSH_LIMIT)
            return false;
    for (int64_t j = first; j < end; j++) {
        const int64_t v = tess_cpu_column(state->work, args->v_stride, j);
        for (int64_t d = 0; d < args->head_dim_v; d++)
            if (tess_cpu_load(state->work->v, v + d * args->v_stride[3], args->dtype) != 0.0f)
                return true;
    }
    return false;
}

static void put_row(const tess_cpu_work *work, struct row_at at, int64_t folded_row, const float *o,
                    float lse)
{
    const tess_args *args = work->args;
    const int64_t index = at.query * args->o_stride[1] + at.head * args->o_stride[2];

    if (work->splits > 1 || args->o_stride[3] != 1) {
        tess_cpu_put_row(work, folded_row, o, lse);
        return;
    }
    if (args->o_dtype == TESS_BF16)
        round_row((bf16 *)(void *)work->o + index, args->head_dim_v, o);
    else
        narrow(work->o, index, args->head_dim_v, args->o_dtype, o);
    if (work->lse)
        work->lse[at.query * args->lse_stride[1] + at.head * args->lse_stride[2]] = lse;
}

/* Logarithm to base 2 of a positive number; -inf of 0; the rest does not matter. With m in
 * [0.75, 1.5) and t = (m - 1) / (m + 1), that is 2 atanh(t) / ln 2, |t| <= 0.2: error 2e-9 before
 * rounding. */
static vec logarithm(vec x)
{
    const vec m = _mm512_getmant_ps(x, _MM_MANT_NORM_p75_1p5, _MM_MANT_SIGN_zero);
    const vec e = _mm512_getexp_ps(vec_div(x, m));
    const vec t = vec_div(vec_sub(m, vec_set(1.0f)), vec_add(m, vec_set(1.0f)));
    const vec square = vec_mul(t, t);
    vec p = vec_fma(square, vec_set(0x1.484b14p-2f), vec_set(0x1.a61762p-2f));

    p = vec_fma(p, square, vec_set(0x1.2776c6p-1f));
    p = vec_fma(p, square, vec_set(0x1.ec709ep-1f));
    p = vec_fma(p, square, vec_set(0x1.715476p1f));
    return vec_select(vec_equal(x, vec_set(0.0f)), vec_set(TESS_NEG_INF), vec_fma(p, t, e));
}

/* What 16 rows are multiplied by, and their LSE; as tess_os_inverse() and tess_os_lse(). */
static void finish_softmax(const struct state *state, const struct panel *panel, int inside,
                           float factors[VEC_LANES], float lse[VEC_LANES])
{
    const tess_cpu_work *work = state->work;
    const vec shift = vec_load(panel->shift + inside), sum = vec_load(panel->sum + inside);
    const vec_mask is_empty = vec_equal(sum, vec_set(0.0f));
    const vec log2 = vec_add(shift, logarithm(sum));

    vec_store(lse, vec_select(is_empty, vec_set(TESS_NEG_INF), vec_mul(log2, vec_set(TESS_LN_2))));
    vec_store(factors, vec_select(is_empty, vec_set(0.0f), vec_div(vec_set(1.0f), sum)));
    for (int lane = 0; lane < VEC_LANES && work->sink; lane++) {
        const int64_t head = panel->at[inside + lane].head;
        const tess_os_row row = {panel->shift[inside + lane], panel->sum[inside + lane]};
        const tess_os_sunk sunk = tess_os_sink(row, work->sink[head * work->args->sink_stride]);
        factors[lane] = sunk.rescale * tess_os_inverse(sunk.row.sum);
        lse[lane] = tess_os_lse(sunk.row);
    }
}

/* Rows of O one after the other, as fp32. Returns what is not 0 in lanes that have something
 * non-finite; the largest size of each goes to *out_size. */
static vec transpose_out(const struct state *state, const struct panel *panel, int v, vec factor,
                         vec *out_size)
{
    const int64_t pitch = state->blocks * PAIR;
    vec fault = vec_mul(vec_load(panel->sum + v * VEC_LANES), vec_set(0.0f));
    vec size = vec_set(0.0f);

    for (int64_t b = 0; b < state->blocks * 2; b++) {
        const float *const output = panel->output + b * 2 * SUMS + v * SUMS;
        vec block[VEC_LANES];
        for (int d = 0; d < EDGE; d++) {
            block[d] = vec_mul(vec_load(output + d * EDGE), factor);
            fault = vec_fma(block[d], vec_set(0.0f), fault);
            size = _mm512_range_ps(size, block[d], 0xb); /* the larger size, without its sign */
        }
        vec_transpose(block);
        for (int lane = 0; lane < VEC_LANES; lane++)
            vec_store(state->rows + lane * pitch + b * EDGE, block[lane]);
    }
    *out_size = size;
    return fault;
}

/* Divides by the sum, writes 16 rows, and recomputes those that came out non-finite or lost
 * something to the tiles: what an absent column holds reaches a row only as 0 * Inf or 0 * NaN,
 * never unseen. */
static void finish_vector(const struct state *state, const struct panel *panel, int v)
{
    const tess_cpu_work *work = state->work;
    const int inside = v * VEC_LANES;
    const int64_t first = panel->rows.first + inside, pitch = state->blocks * PAIR;
    const bool may_spread = (state->args->flags & TESS_ALLOW_NONFINITE_SPREAD) != 0;
    float factors[VEC_LANES], lse[VEC_LANES], faults[VEC_LANES], sizes[VEC_LANES];
    vec size;

    finish_softmax(state, panel, inside, factors, lse);
    vec_store(faults, transpose_out(state, panel, v, vec_load(factors), &size));
    vec_store(sizes, size);
    for (int lane = 0; lane < VEC_LANES && first + lane < panel->rows.end; lane++) {
        const struct row_at at = panel->at[inside + lane];
        float *const o = state->rows + lane * pitch;
        if ((faults[lane] != 0.0f && !may_spread) ||
            (sizes[lane] < FLUSH_LIMIT && is_flushed(state, find_seen(work, at), o)))
            tess_cpu_forward_row(work, first + lane, o);
        else
            put_row(work, at, first + lane, o, lse[lane]);
    }
}

/* ---- a work item
 * --------------------------------------------------------------------------------- */

/* Only a scale that may be multiplied by as it is can do without the hook: masked scores are -inf
 * before that, and stay so. */
static void take_scale(struct state *state)
{
    const float scale = state->args->scale;

    state->hook = make_hook(state->work);
    state->hook.is_needed = state->hook.is_needed || !(scale > 0.0f);
    state->hook.scale = scale;
    state->factor = state->hook.is_needed ? 1.0f : scale * TESS_LOG2_E;
}

static void forward(const tess_cpu_work *work, struct panel *panels)
{
    const tess_args *args = work->args;
    const tess_column_walk walk = tess_cpu_columns(work);
    const int64_t last = tess_walk_query(work->tile.end - 1, args->group);
    const int64_t tiles = block_tiles(args->head_dim, args->head_dim_v);
    struct state state = {.work = work,
                          .args = args,
                          .steps = pairs_of(args->head_dim),
                          .blocks = pairs_of(args->head_dim_v),
                          .limit = tess_visible_end(work->visible, last),
                          .panels = panels};
    const int64_t k_bytes = args->k_stride[1] * 2;
    float *free_floats = work->scratch;
    unsigned modes;

    take_scale(&state);
    state.keeps_k = !work->pages && args->k_stride[3] == 1 && args->head_dim % PAIR == 0 &&
                    k_bytes <= NEAR_ROW && k_bytes >= -NEAR_ROW;
    free_floats = lay_shared(free_floats, args->head_dim, args->head_dim_v, &state);
    for (int64_t f = work->tile.first; f < work->tile.end; f += PANEL) {
        struct panel *const panel = &panels[state.count++];
        free_floats = lay_panel(free_floats, state.steps, state.blocks, panel);
        panel->rows.first = f;
        panel->rows.end = tess_min_i64(f + PANEL, work->tile.end);
        start_panel(&state, panel);
    }
    modes = flush_subnormals();
    tile_start();
    for (int64_t t = walk.first; t < walk.end; t += tiles) {
        load_columns(&state, t, tess_min_i64(t + tiles, walk.end));
        add_all(&state);
    }
    tile_stop();
    restore_modes(modes);
    for (int p = 0; p < state.count; p++)
        for (int v = 0; v < 2 && panels[p].rows.first + v * VEC_LANES < panels[p].rows.end; v++)
            finish_vector(&state, &panels[p], v);
}

void tess_cpu_fwd_amx_tall(const tess_cpu_work *work)
{
    struct panel panels[TALL_PANELS];
    forward(work, panels);
}

void tess_cpu_fwd_amx_low(const tess_cpu_work *work)
{
    struct panel panels[LOW_PANELS];
    forward(work, panels);
}

size_t tess_cpu_fwd_amx_tall_scratch(int64_t head_dim, int64_t head_dim_v)
{
    return scratch_size(TALL_PANELS, head_dim, head_dim_v);
}

size_t tess_cpu_fwd_amx_low_scratch(int64_t head_dim, int64_t head_dim_v)
{
    return scratch_size(LOW_PANELS, head_dim, head_dim_v);
}
