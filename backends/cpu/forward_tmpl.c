/* SPDX-License-Identifier: Apache-2.0
 * The vector forward kernels: a lane is a row, scores and output are held transposed. */
#include TESS_VEC_HEADER

#include "backends/cpu/lanes.h"

#include <tessera/attention.h>

/* Compiled once per instruction set with TESS_VEC_HEADER and TESS_VEC.
 *
 * The map. Rows sit in lanes and each row is alone in its lane, so the softmax needs no sum or
 * maximum across lanes, K and V are read one element at a time from wherever they lie, and only Q
 * and O are transposed, once each.
 *
 *     for each tile of columns in this item's share            locate: pointers to its rows of K, V
 *         for each panel of rows (VEC_WIDE vectors)
 *             score[column][row] = sum over d of k[column][d] * query[d][row]
 *                 registers: VEC_WIDE_KEYS x VEC_WIDE sums, one pass over d
 *             the hook: softcap, ALiBi, bias                   only where a problem has them
 *             masks                                            only in tiles that need them
 *             maximum, shift, weight = 2^(score - shift), sum  one vector of rows at a time
 *             output[d][row] += sum over columns of v[column][d] * weight[column][row]
 *                 registers: VEC_WIDE_DIMS x VEC_WIDE sums, one pass over the tile's columns
 *
 * Several panels make a tile of rows, so that what is done to K and V once per tile (finding,
 * widening or copying their rows) is shared. Problems of few rows have kernels of their own,
 * decode_tmpl.c, with the same bits.
 *
 * Scratch, in this order: per panel query, output, shift, sum; then what all panels share: scores
 * (which become weights), the bias, rows of K and V in fp32, and rows on the way in and out.
 *
 * The bits of a row depend on the row and its columns alone: every sum runs in the order of d, or
 * of the column within its tile; tiles lie on a fixed grid; a column that a row does not see adds
 * exactly zero; a row that need not be rescaled is multiplied by exactly one.
 *
 * Tried and lost (Zen 3, AVX2; shares of the FMA peak of the same run): the passes inlined into one
 * function (0.63 for 0.79: gcc keeps a vector of another pass in a register and reads Q from memory
 * four times); inner loops not unrolled (-2 %: their exits are mispredicted); tiles of 24, 36, 72
 * or 96 columns (-3 % to +1 %); the weights of all panels before their outputs (0); prefetching
 * the next tile to the first-level cache (+-1 %, -10 % for rows 4 KB apart); an Estrin polynomial
 * in the exponential (+0.5 %, but half an ulp worse). With AVX-512: 8 columns by 3 vectors (-2 % on
 * Zen 4, -4 % to -8 % on Emerald Rapids), 12 by 2 (-4 %), degree 5 in the exponential (+0.5 %, but
 * an ulp worse), flushing subnormal weights by the control register instead of a comparison (0).
 * Sums that start from minus the shift, and no maximum until a tile's weights sum up to 2^40, spare
 * two instructions of 12 (+1.4 % with 64 dims, +0.6 % with 128), but then equal columns of large
 * scores weigh 2^-13 or so more in one tile than in another, where now they are exactly equal. */

enum { PANEL_ROWS = VEC_WIDE * VEC_LANES };

/* Columns rounded up to whole chains of sums: admit(). */
static inline int whole_chains(int columns)
{
    return (columns + 3) / 4 * 4;
}

/* ---- scratch --------------------------------------------------------------------------------- */

/* Some vectors of rows. Arrays are [...][rows of the panel]. */
struct panel {
    float *query;          /* [head_dim], scaled */
    float *output;         /* [head_dim_v], not yet divided by the sum */
    float *shift, *sum;    /* the recurrence of core/portable/online_softmax.h, a row per lane */
    int64_t first, end;    /* folded rows; the lanes past the end repeat the last one */
    tess_column_walk walk; /* the tiles of columns that these rows meet */
    bool is_started, is_finished;
    struct row_at rows[PANEL_ROWS];
    struct seen seen[PANEL_ROWS];
};

struct tile {
    int64_t first;                /* column */
    int count;                    /* columns of it that exist and are wanted */
    const float *k[TILE_COLUMNS]; /* their rows in fp32, the elements next to each other */
    const float *v[TILE_COLUMNS];
    int ends[MOST_VECTORS]; /* columns of it that some row of each vector of the panel sees */
};

/* What will be needed next and nobody has asked for yet. */
struct ahead {
    int64_t column, columns_end;    /* of the next tile: rows of K and V */
    const struct row_at *q, *q_end; /* rows of Q of the next panel */
    const struct row_at *o, *o_end; /* rows of O of a panel that is nearly done */
};

/* What all panels share. */
struct shared {
    float *score; /* [TILE_COLUMNS][rows of a panel]; the weights afterwards */
    float *bias;  /* the same */
    float *k, *v; /* [TILE_COLUMNS][pitch()]: rows that cannot be used where they are */
    float *rows;  /* [VEC_LANES][longest_row()] */
};

/* Floats from one copied row to the next: an odd number of cache lines, so that an element of all
 * rows is spread over all sets of the cache. */
static int64_t pitch(int64_t count)
{
    return (padded(count) / ALIGN_FLOATS | 1) * ALIGN_FLOATS;
}

/* Floats of scratch; lay_panel() and lay_shared() take exactly these. */
static size_t scratch_size(int vectors, int panels, int64_t head_dim, int64_t head_dim_v)
{
    const int64_t rows = vectors * VEC_LANES;
    const int64_t panel = padded(head_dim * rows) + padded(head_dim_v * rows) + 2 * padded(rows);
    const int64_t shared = 2 * padded(TILE_COLUMNS * rows) + TILE_COLUMNS * pitch(head_dim) +
                           TILE_COLUMNS * pitch(head_dim_v) +
                           VEC_LANES * longest_row(head_dim, head_dim_v);
    return (size_t)(panels * panel + shared) * sizeof(float);
}

static void lay_panel(float **free_floats, const tess_args *args, int rows, struct panel *panel)
{
    panel->query = take(free_floats, (int64_t)args->head_dim * rows);
    panel->output = take(free_floats, (int64_t)args->head_dim_v * rows);
    panel->shift = take(free_floats, rows);
    panel->sum = take(free_floats, rows);
}

static struct shared lay_shared(float **free_floats, const tess_args *args, int rows)
{
    struct shared shared;
    shared.score = take(free_floats, (int64_t)TILE_COLUMNS * rows);
    shared.bias = take(free_floats, (int64_t)TILE_COLUMNS * rows);
    shared.k = take(free_floats, TILE_COLUMNS * pitch(args->head_dim));
    shared.v = take(free_floats, TILE_COLUMNS * pitch(args->head_dim_v));
    shared.rows = *free_floats;
    return shared;
}

/* ---- scores besides their product ------------------------------------------------------------ */

static void apply_hook(const struct hook *hook, const tess_cpu_work *work,
                       const struct panel *panel, const struct tile *tile,
                       const struct shared *shared, int vectors)
{
    const vec zero = vec_set(0.0f);
    float slopes[VEC_LANES] = {0}, distances[VEC_LANES] = {0};

    if (hook->has_bias)
        load_bias(work, panel->rows, vectors, tile->first, tile->count, shared->rows, shared->bias);
    for (int v = 0; v < vectors; v++) {
        if (hook->has_slopes)
            load_slopes(work, panel->rows + v * VEC_LANES, tile->first, slopes, distances);
        const vec slope = vec_load(slopes), distance = vec_load(distances);
        for (int j = 0; j < tile->count; j++) {
            float *const at = shared->score + (j * vectors + v) * VEC_LANES;
            const vec bias =
                hook->has_bias ? vec_load(shared->bias + (j * vectors + v) * VEC_LANES) : zero;
            const vec away = vec_sub(distance, vec_set((float)j));
            vec_store(at, in_log2(hook_score(hook, vec_load(at), slope, away, bias).score));
        }
    }
}

/* Scores of columns that a row does not see become -inf: selected, never added, so that nothing an
 * absent column holds survives. One vector of rows, `count` columns. */
static void hide_absent(const struct panel *panel, const struct tile *tile, float *score, int count,
                        int v, int vectors)
{
    const vec absent = vec_set(TESS_NEG_INF);
    float firsts[VEC_LANES], ends[VEC_LANES];

    load_seen(panel->seen + v * VEC_LANES, tile->first, firsts, ends);
    const vec first = vec_load(firsts), end = vec_load(ends);
    for (int j = 0; j < count; j++) {
        float *const at = score + (j * vectors + v) * VEC_LANES;
        vec_store(at, vec_select(is_seen(first, end, j), vec_load(at), absent));
    }
}

/* ---- what comes next ------------------------------------------------------------------------- */

/* Asks for a few rows. Called between the products, so that the time rows take to arrive is hidden
 * behind them: AVX2 on Zen 4 +3 % to +6 %. With AVX-512 it was -1 % to +3 % there but -1 % to -4 %
 * on Emerald Rapids. K and V go to the second-level cache only: a tile of long rows is as large as
 * the first. */
KERNEL_APART void fetch_ahead(const tess_cpu_work *work, struct ahead *ahead, int count)
{
    const tess_args *args = work->args;

    for (int i = 0; i < count && ahead->column < ahead->columns_end; i++, ahead->column++) {
        fetch(work->k, tess_cpu_column(work, args->k_stride, ahead->column), args->k_stride[3],
              args->head_dim, args->dtype, FETCH_NEAR);
        fetch(work->v, tess_cpu_column(work, args->v_stride, ahead->column), args->v_stride[3],
              args->head_dim_v, args->dtype, FETCH_NEAR);
    }
    for (int i = 0; i < count && ahead->q < ahead->q_end; i++, ahead->q++)
        fetch(work->q, row_index(args->q_stride, *ahead->q), args->q_stride[3], args->head_dim,
              args->dtype, FETCH_NEAR);
    for (int i = 0; i < count && ahead->o < ahead->o_end; i++, ahead->o++)
        fetch(work->o, row_index(args->o_stride, *ahead->o), args->o_stride[3], args->head_dim_v,
              args->o_dtype, FETCH_WRITE);
}

/* ---- the three passes over a tile ------------------------------------------------------------ */

/* Admits a tile's scores for one vector of rows, as tess_os_admit() and tess_os_advance() do, and
 * turns them into weights. `count` is a multiple of 4: the columns are summed in 4 chains. */
KERNEL_INLINE void admit(struct panel *panel, float *score, int count, int64_t head_dim_v, int v,
                         const int vectors)
{
    const int step = vectors * VEC_LANES;
    const vec negative_infinity = vec_set(TESS_NEG_INF);
    float *const at_shift = panel->shift + v * VEC_LANES, *const at_sum =
                                                              panel->sum + v * VEC_LANES;
    vec shift = vec_load(at_shift), sum = vec_load(at_sum);
    vec part[4];

    score += v * VEC_LANES;
    for (int i = 0; i < 4; i++)
        part[i] = negative_infinity;
    for (int j = 0; j < count; j += 4)
        for (int i = 0; i < 4; i++)
            part[i] = vec_max(part[i], vec_load(score + (j + i) * step));
    const vec max = vec_max(vec_max(part[0], part[1]), vec_max(part[2], part[3]));

    const vec_mask grows = vec_less(vec_add(shift, vec_set(TESS_OS_LAG)), max);
    if (vec_any(grows)) {
        const vec next = vec_select(grows, max, shift);
        const vec rescale = vec_select(grows, vec_exp2(vec_sub(shift, next)), vec_set(1.0f));
        float *const output = panel->output + v * VEC_LANES;
        for (int64_t d = 0; d < head_dim_v; d++)
            vec_store(output + d * step, vec_mul(rescale, vec_load(output + d * step)));
        sum = vec_mul(sum, rescale);
        shift = next;
    }

    const vec_mask is_empty = vec_equal(shift, negative_infinity);
    const vec used = vec_select(is_empty, vec_set(0.0f), shift); /* tess_os_shift() */
    for (int i = 0; i < 4; i++)
        part[i] = vec_set(0.0f);
    for (int j = 0; j < count; j += 4)
        for (int i = 0; i < 4; i++) {
            float *const at = score + (j + i) * step;
            const vec weight = vec_exp2(vec_sub(vec_load(at), used));
            part[i] = vec_add(part[i], weight);
            vec_store(at, weight);
        }
    sum = vec_add(sum, vec_add(vec_add(part[0], part[1]), vec_add(part[2], part[3])));
    vec_store(at_shift, shift);
    vec_store(at_sum, sum);
}

KERNEL_INLINE void all_keys(const tess_cpu_work *work, const struct panel *panel,
                            const struct tile *tile, struct ahead *ahead, float *score,
                            const int vectors, const int keys)
{
    const int64_t head_dim = work->args->head_dim;
    const int rows = vectors * VEC_LANES;

    for (int j = 0; j < tile->count; j += keys) {

        fetch_ahead(work, ahead, VEC_FETCH);
        multiply_keys_seen(panel->query, rows, tile->k + j, head_dim, score + j * rows, rows,
                           tile->ends, j, vectors, keys);
    }
}

KERNEL_INLINE void all_values(const tess_cpu_work *work, const struct panel *panel,
                              const struct tile *tile, struct ahead *ahead, const float *weight,
                              const int vectors, const int dims, const int is_stepped)
{
    const int64_t head_dim_v = work->args->head_dim_v;
    int64_t d = 0;

    /* Two groups of 4 behind the whole ones where 8 dims are left, not one group and 2 single dims,
     * each of which takes as long as a group of 4. */
    for (; d + dims <= head_dim_v && !(dims == 6 && head_dim_v - d == 8); d += dims) {
        fetch_ahead(work, ahead, VEC_FETCH);
        multiply_values(weight, vectors * VEC_LANES, tile->v, tile->ends, d, panel->output, vectors,
                        dims, is_stepped);
    }
    for (; d + 4 <= head_dim_v; d += 4)
        multiply_values(weight, vectors * VEC_LANES, tile->v, tile->ends, d, panel->output, vectors,
                        4, is_stepped);
    for (; d < head_dim_v; d++)
        multiply_values(weight, vectors * VEC_LANES, tile->v, tile->ends, d, panel->output, vectors,
                        1, is_stepped);
}

/* Each pass is a function of its own with the shape a constant in it: all loops over sums unroll,
 * and no value of another pass competes for registers. */
KERNEL_APART void score_tile(const tess_cpu_work *work, const struct panel *panel,
                             const struct tile *tile, struct ahead *ahead, float *score)
{
    all_keys(work, panel, tile, ahead, score, VEC_WIDE, VEC_WIDE_KEYS);
}

KERNEL_APART void weigh_tile(struct panel *panel, const struct tile *tile, int64_t head_dim_v,
                             float *score)
{
    for (int v = 0; v < VEC_WIDE; v++)
        admit(panel, score, whole_chains(tile->ends[v]), head_dim_v, v, VEC_WIDE);
}

KERNEL_APART void gather_tile(const tess_cpu_work *work, const struct panel *panel,
                              const struct tile *tile, struct ahead *ahead, const float *weight)
{
    all_values(work, panel, tile, ahead, weight, VEC_WIDE, VEC_WIDE_DIMS, 0);
}

/* Where the vectors of a wide panel see different numbers of columns. */
KERNEL_APART void gather_steps(const tess_cpu_work *work, const struct panel *panel,
                               const struct tile *tile, struct ahead *ahead, const float *weight)
{
    all_values(work, panel, tile, ahead, weight, VEC_WIDE, VEC_WIDE_DIMS, 1);
}

/* ---- a panel and a tile ---------------------------------------------------------------------- */

/* The panel of the folded rows first ... end - 1. */
static void place_panel(const tess_cpu_work *work, struct panel *panel, int64_t first, int64_t end,
                        int vectors)
{
    const int64_t group = work->args->group;

    panel->first = first;
    panel->end = end;
    panel->walk = tess_walk_columns(work->visible, tess_walk_query(first, group),
                                    tess_walk_query(end - 1, group), TILE_COLUMNS, 0, 1);
    panel->is_started = panel->is_finished = false;
    locate_rows(first, end, group, vectors * VEC_LANES, panel->rows);
    for (int r = 0; r < vectors * VEC_LANES; r++)
        panel->seen[r] = find_seen(work, panel->rows[r]);
}

static void start_panel(const tess_cpu_work *work, struct panel *panel, const struct shared *shared,
                        float query_factor, int vectors)
{
    const tess_args *args = work->args;
    const struct view view = {work->q,           args->q_stride[1], args->q_stride[2],
                              args->q_stride[3], args->head_dim,    args->dtype};

    transpose_in(view, panel->rows, vectors, query_factor, shared->rows, panel->query);
    for (int v = 0; v < vectors; v++) {
        vec_store(panel->shift + v * VEC_LANES, vec_set(TESS_NEG_INF));
        vec_store(panel->sum + v * VEC_LANES, vec_set(0.0f));
    }
    for (int64_t d = 0; d < (int64_t)args->head_dim_v * vectors; d++)
        vec_store(panel->output + d * VEC_LANES, vec_set(0.0f));
    panel->is_started = true;
}

/* Rows of K or V that lie VEC_SCATTERED floats or more apart share few sets of the caches and take
 * a page each, and every panel pays for that again: with several panels they are copied where that
 * is cheaper. 8 heads side by side, 1024 columns, two threads: AVX2 on Zen 4 +2 % with 64 dims and
 * +10 % with 128, on Emerald Rapids 0 and +3 %. With AVX-512 the products take half the time and
 * the copy the same: on Emerald Rapids -2.5 % to -5 %, on Zen 4 -1 %. */

/* Pointers to a tile's rows of K or V. */
static void locate(const tess_cpu_work *work, const struct view *view, const tess_i64 stride[4],
                   const struct tile *tile, bool is_reused, float *copy, const float **row)
{
    const bool is_scattered =
        VEC_SCATTERED > 0 && (stride[1] < 0 ? -stride[1] : stride[1]) >= VEC_SCATTERED;
    const bool is_fp32_row = view->dtype == TESS_F32 && view->stride == 1;

    if (is_fp32_row && !(is_reused && is_scattered)) {
        const float *const base = (const float *)(const void *)view->base;
        if (work->pages)
            for (int j = 0; j < tile->count; j++)
                row[j] = base + tess_cpu_column(work, stride, tile->first + j);
        else
            for (int j = 0; j < tile->count; j++)
                row[j] = base + (tile->first + j) * stride[1];
        return;
    }
    for (int j = 0; j < tile->count; j++, copy += pitch(view->count)) {
        widen(view->base, tess_cpu_column(work, stride, tile->first + j), view->stride, view->count,
              view->dtype, copy);
        row[j] = copy;
    }
}

/* What of a tile the panel sees: `count` columns, and how many of them each vector of rows. Ends
 * grow with the row, so that a vector's is that of its last row. */
static void clip_tile(const struct panel *panel, struct tile *tile, int vectors)
{
    for (int v = 0; v < vectors; v++) {
        const int64_t end = panel->seen[(v + 1) * VEC_LANES - 1].end - tile->first;
        tile->ends[v] = (int)tess_max_i64(tess_min_i64(end, TILE_COLUMNS), 0);
    }
    tile->count = tile->ends[vectors - 1];
}

static void add_tile(const tess_cpu_work *work, struct panel *panel, struct tile *tile,
                     struct ahead *ahead, const struct hook *hook, const struct shared *shared,
                     int vectors)
{
    const bool is_masked = tess_walk_is_masked(panel->walk, tile->first / TILE_COLUMNS);

    clip_tile(panel, tile, vectors);
    score_tile(work, panel, tile, ahead, shared->score);
    if (hook->is_needed)
        apply_hook(hook, work, panel, tile, shared, vectors);
    for (int v = 0; v < vectors && is_masked; v++)
        hide_absent(panel, tile, shared->score, whole_chains(tile->ends[v]), v, vectors);
    weigh_tile(panel, tile, work->args->head_dim_v, shared->score);
    if (tile->ends[0] == tile->count)
        gather_tile(work, panel, tile, ahead, shared->score);
    else
        gather_steps(work, panel, tile, ahead, shared->score);
}

/* ---- the way out ----------------------------------------------------------------------------- */

/* out[lane][at] = factor[lane] * output[d][lane] for VEC_LANES dims, of which `count` exist.
 * Returns `fault` with NaN put where an element is not finite: 0 * x is NaN exactly for such an x.
 */
KERNEL_INLINE vec transpose_out(const float *output, int64_t step, int count, vec factor, vec fault,
                                float *const *out, int64_t at)
{
    vec block[VEC_LANES];

    for (int i = 0; i < VEC_LANES; i++) {
        const int64_t d = i < count ? i : count - 1;
        block[i] = vec_mul(vec_load(output + d * step), factor);
        fault = vec_fma(block[i], vec_set(0.0f), fault);
    }
    vec_transpose(block);
    for (int lane = 0; lane < VEC_LANES; lane++)
        vec_store(out[lane] + at, block[lane]);
    return fault;
}

/* Of one vector of rows: what each output is multiplied by, and its LSE. */
static void close_rows(const tess_cpu_work *work, const struct panel *panel, int v, int valid,
                       float factors[VEC_LANES], float lse[VEC_LANES])
{
    for (int lane = 0; lane < valid; lane++) {
        tess_os_row state = {panel->shift[v * VEC_LANES + lane], panel->sum[v * VEC_LANES + lane]};
        factors[lane] = 1.0f;
        if (work->sink) {
            const struct row_at at = panel->rows[v * VEC_LANES + lane];
            const tess_os_sunk sunk =
                tess_os_sink(state, work->sink[at.head * work->args->sink_stride]);
            factors[lane] = sunk.rescale;
            state = sunk.row;
        }
        factors[lane] *= tess_os_inverse(state.sum);
        lse[lane] = tess_os_lse(state);
    }
}

/* Divides by the sum, writes one vector of rows, and recomputes those that came out non-finite:
 * what an absent column holds reaches a row only as 0 * Inf or 0 * NaN, never unseen. fp32 rows are
 * written where they belong, by the vector; what is behind their last vector, and all others, by
 * way of `row`. */
static void finish_vector(const tess_cpu_work *work, const struct panel *panel, float *row, int v,
                          int vectors)
{
    const tess_args *args = work->args;
    const int64_t dims = args->head_dim_v, step = vectors * VEC_LANES, row_step = padded(dims);
    const int64_t first = panel->first + v * VEC_LANES;
    const int valid = (int)tess_min_i64(VEC_LANES, panel->end - first);
    const bool is_direct = work->splits == 1 && args->o_stride[3] == 1 && args->o_dtype == TESS_F32;
    const int64_t direct = is_direct ? dims - dims % VEC_LANES : 0;
    const struct row_at *const rows = panel->rows + v * VEC_LANES;
    const float *output = panel->output + v * VEC_LANES;
    float factors[VEC_LANES] = {0}, lse[VEC_LANES] = {0}, faults[VEC_LANES];
    float *at[VEC_LANES], *to[VEC_LANES]; /* rows on their way, and where they go directly */
    int64_t d = 0;

    for (int lane = 0; lane < VEC_LANES; lane++) {
        to[lane] = at[lane] = row + lane * row_step;
        if (is_direct && lane < valid)
            to[lane] = (float *)(void *)work->o + row_index(args->o_stride, rows[lane]);
    }
    close_rows(work, panel, v, valid, factors, lse);

    const vec factor = vec_load(factors);
    vec fault = vec_mul(vec_load(panel->sum + v * VEC_LANES), vec_set(0.0f));
    for (; d < direct; d += VEC_LANES, output += VEC_LANES * step)
        fault = transpose_out(output, step, VEC_LANES, factor, fault, to, d);
    for (; d + VEC_LANES <= dims; d += VEC_LANES, output += VEC_LANES * step)
        fault = transpose_out(output, step, VEC_LANES, factor, fault, at, d);
    if (d < dims)
        fault = transpose_out(output, step, (int)(dims - d), factor, fault, at, d);
    vec_store(faults, fault);

    for (int lane = 0; lane < valid; lane++) {
        if (faults[lane] != 0.0f && !(args->flags & TESS_ALLOW_NONFINITE_SPREAD))
            tess_cpu_forward_row(work, first + lane, at[lane]);
        else
            put_result(work, rows[lane], first + lane, at[lane], lse[lane], direct);
    }
}

static void finish_panel(const tess_cpu_work *work, struct panel *panel, float *row, int vectors)
{
    for (int v = 0; v < vectors && panel->first + v * VEC_LANES < panel->end; v++)
        finish_vector(work, panel, row, v, vectors);
    panel->is_finished = true;
}

/* ---- a work item ----------------------------------------------------------------------------- */

struct item {
    const tess_cpu_work *work;
    tess_column_walk walk;
    int64_t end; /* one past the last column that any row sees */
    struct hook hook;
    struct shared shared;
    struct panel panels[VEC_WIDE_PANELS];
    struct tile tile;
    struct ahead ahead;
    int count; /* panels */
};

/* Rows of a tile's columns: where they are, and the next tile's as what comes next. */
static void start_tile(struct item *item, int64_t t, int keys)
{
    const tess_args *args = item->work->args;
    const struct view k = {item->work->k, 0, 0, args->k_stride[3], args->head_dim, args->dtype};
    const struct view v = {item->work->v, 0, 0, args->v_stride[3], args->head_dim_v, args->dtype};
    struct tile *tile = &item->tile;
    const bool is_reused = item->count > 1;

    tile->first = t * TILE_COLUMNS;
    tile->count = (int)tess_min_i64(TILE_COLUMNS, item->end - tile->first);
    locate(item->work, &k, args->k_stride, tile, is_reused, item->shared.k, tile->k);
    locate(item->work, &v, args->v_stride, tile, is_reused, item->shared.v, tile->v);
    for (int j = tile->count; j % keys; j++) /* scores nobody reads */
        tile->k[j] = tile->k[tile->count - 1];
    item->ahead.column = tile->first + TILE_COLUMNS;
    item->ahead.columns_end =
        tess_min_i64(tess_min_i64(t + 2, item->walk.end) * TILE_COLUMNS, item->end);
}

/* One panel's part of a tile. A panel starts at its first tile and is finished at its last. */
static void add_panel(struct item *item, int64_t t, int p, int vectors)
{
    const tess_cpu_work *work = item->work;
    struct panel *panel = &item->panels[p];
    struct ahead *ahead = &item->ahead;
    const bool is_last = t + 1 >= tess_min_i64(panel->walk.end, item->walk.end);

    if (t < panel->walk.first || t >= panel->walk.end)
        return;
    if (!panel->is_started) {
        start_panel(work, panel, &item->shared, item->hook.query_factor, vectors);
        ahead->q = p + 1 < item->count ? panel[1].rows : NULL;
        ahead->q_end = p + 1 < item->count ? ahead->q + vectors * VEC_LANES : NULL;
    }
    if (is_last && work->splits == 1) {
        ahead->o = panel->rows;
        ahead->o_end = ahead->o + (panel->end - panel->first);
    }
    add_tile(work, panel, &item->tile, ahead, &item->hook, &item->shared, vectors);
    if (is_last)
        finish_panel(work, panel, item->shared.rows, vectors);
}

#define KERNEL_NAME(prefix, vec, suffix) prefix##vec##suffix
#define KERNEL(vec, suffix) KERNEL_NAME(tess_cpu_fwd_lanes_, vec, suffix)

void KERNEL(TESS_VEC, _wide)(const tess_cpu_work *work)
{
    const int vectors = VEC_WIDE, keys = VEC_WIDE_KEYS;
    const tess_args *args = work->args;
    const int rows = vectors * VEC_LANES;
    const int64_t last_query = tess_walk_query(work->tile.end - 1, args->group);
    float *free_floats = work->scratch;
    struct item item;

    item.work = work;
    item.walk = tess_cpu_columns(work);
    item.end = tess_visible_end(work->visible, last_query);
    item.hook = make_hook(work);
    item.count = 0;
    for (int64_t f = work->tile.first; f < work->tile.end; f += rows, item.count++) {
        struct panel *const panel = &item.panels[item.count];
        lay_panel(&free_floats, args, rows, panel);
        place_panel(work, panel, f, tess_min_i64(f + rows, work->tile.end), vectors);
    }
    item.shared = lay_shared(&free_floats, args, rows);
    item.ahead = (struct ahead){
        .column = item.walk.first * TILE_COLUMNS,
        .columns_end = tess_min_i64(tess_min_i64(item.walk.first + 1, item.walk.end) * TILE_COLUMNS,
                                    item.end)};
    fetch_ahead(work, &item.ahead, TILE_COLUMNS);
    for (int64_t t = item.walk.first; t < item.walk.end; t++) {
        start_tile(&item, t, keys);
        for (int p = 0; p < item.count; p++)
            add_panel(&item, t, p, vectors);
    }
    for (int p = 0; p < item.count; p++) { /* those without a tile are empty rows */
        if (!item.panels[p].is_started)
            start_panel(work, &item.panels[p], &item.shared, item.hook.query_factor, vectors);
        if (!item.panels[p].is_finished)
            finish_panel(work, &item.panels[p], item.shared.rows, vectors);
    }
}

size_t KERNEL(TESS_VEC, _wide_scratch)(int64_t head_dim, int64_t head_dim_v)
{
    return scratch_size(VEC_WIDE, VEC_WIDE_PANELS, head_dim, head_dim_v);
}
