/* SPDX-License-Identifier: Apache-2.0
 * The vector backward kernels: a lane is a row for scores and dQ, an element for dK and dV. */
#include TESS_VEC_HEADER

#include "backends/cpu/backward.h"
#include "backends/cpu/lanes.h"

#include <tessera/attention.h>

/* Compiled once per instruction set with TESS_VEC_HEADER and TESS_VEC.
 *
 * The map. Of the five matrix products of a pair of tiles three have rows in lanes, as in
 * forward_tmpl.c, and need Q and dO transposed; the two that sum over rows have elements in lanes.
 *
 *     widen K and V of the item's columns                          share: k, v; zero dk, dv
 *     for each block of rows that sees one of them
 *         load Q and dO twice: transposed, and by rows             block: query, d_o, ..._rows
 *         for each tile of columns
 *             for each panel of the block that sees the tile
 *                 S[column][row]  = sum over d of k[column][d] * query[d][row]
 *                 dP[column][row] = sum over d of v[column][d] * d_o[d][row]
 *                 P = 2^(S - lse), dS = P (dP - delta)             in place; hook and masks here
 *                 dq[d][row] += sum over columns of k[column][d] * dS[column][row]
 *                     registers, all three: VEC_WIDE_KEYS (or _DIMS) x VEC_WIDE sums
 *             dv[column][d] += sum over rows of P[column][row] * d_o_rows[row][d]
 *             dk[column][d] += sum over rows of dS[column][row] * query_rows[row][d]
 *                 registers: VEC_SPREAD_KEYS x VEC_SPREAD sums, one pass over all rows of the block
 *         add dq to the item's dQ
 *     write dk and dv
 *
 * The scale: Q transposed has it (and log2(e) without a hook), Q by rows and K do not; dQ and dK
 * get it on their way out.
 *
 * Sums run in the order of d, of the column within its tile, of the row within its block; blocks
 * and tiles lie on fixed grids and follow each other in order. So the bits depend on the problem
 * alone.
 *
 * Absent pairs get P = dS = 0 by selection. That keeps what they hold out of dBias and dSlope, and
 * out of everything else when it is finite; 0 times a non-finite value is seen in the finished row
 * or column, which is then computed again pair by pair. */

enum {
    PANEL_ROWS = VEC_WIDE * VEC_LANES,
    BLOCK_ROWS = PANEL_ROWS * VEC_BLOCK_PANELS,
    SHARE_COLUMNS = TESS_SHARE_COLUMNS / TILE_COLUMNS * TILE_COLUMNS,
    BLOCK_FLOATS = 96 * 1024, /* of Q, dO and dQ of a block, to stay in a core's own cache */
    SPARE_DIMS = 8            /* dq is gathered in whole groups of dims */
};

/* ---- scratch --------------------------------------------------------------------------------- */

/* Some panels of rows. A panel's part of a transposed array follows the last one's. */
struct block {
    int64_t first, end; /* folded rows; the lanes past the end are absent */
    int panels;         /* of it that have rows */
    int capacity;       /* rows of a whole block: block_panels() of them */
    struct row_at rows[BLOCK_ROWS];
    struct seen seen[BLOCK_ROWS];            /* an absent row, or one of LSE -inf, sees nothing */
    tess_column_walk walk[VEC_BLOCK_PANELS]; /* tiles of the item that each panel sees */
    float *query, *d_o;                      /* [panel][dim][row of the panel]; query is scaled */
    float *dq;                               /* [panel][dim][row of the panel] */
    float *query_rows, *d_o_rows;            /* [group of elements][row][element]: spread_all() */
    float *lse, *delta;                      /* [row]; an empty row has LSE +inf, so that P is 0 */
    float *dslope;                           /* [row]: what each adds to its head's */
};

/* The columns of the item, rows of padded(head_dim or head_dim_v) floats, zero behind the end. */
struct share {
    float *k, *v, *dk, *dv;
};

/* A tile of columns, and what its pairs have. */
struct pairs {
    int64_t first;                /* column */
    int count;                    /* columns of it that exist */
    const float *k[TILE_COLUMNS]; /* their rows */
    const float *v[TILE_COLUMNS];
    /* Columns of it that some row of each vector of the block sees. Within a panel ends grow. */
    int ends[VEC_BLOCK_PANELS * VEC_WIDE];
    float *weight;   /* [column][row of the block]: scores, then P */
    float *gradient; /* the same: dP, then dS */
    float *bias;     /* [column][row of a panel]; dBias afterwards */
};

struct state {
    const tess_cpu_backward_work *work;
    const tess_args *args;
    struct hook hook;
    struct block block;
    struct share share;
    struct pairs pairs;
    float *rows; /* [VEC_LANES][longest_row()] */
};

/* Panels of a block: as many as stay in the cache. A property of the kernel and the dims. */
static int block_panels(int64_t head_dim, int64_t head_dim_v)
{
    const int64_t floats = PANEL_ROWS * (3 * head_dim + 2 * head_dim_v);
    return (int)tess_max_i64(tess_min_i64(BLOCK_FLOATS / floats, VEC_BLOCK_PANELS), 1);
}

/* Lays the scratch out; with `from` null, only its size counts. */
static int64_t lay_scratch(float *from, int64_t head_dim, int64_t head_dim_v, struct state *state)
{
    const int64_t rows = (int64_t)block_panels(head_dim, head_dim_v) * PANEL_ROWS;
    const int64_t width = padded(head_dim), width_v = padded(head_dim_v);
    const int64_t count[] = {
        rows * head_dim,
        rows * head_dim_v,
        rows * (head_dim + SPARE_DIMS),
        rows * width,
        rows * width_v,
        BLOCK_ROWS,
        BLOCK_ROWS,
        BLOCK_ROWS,
        SHARE_COLUMNS * width,
        SHARE_COLUMNS * width_v,
        SHARE_COLUMNS * width,
        SHARE_COLUMNS * width_v,
        TILE_COLUMNS * BLOCK_ROWS,
        TILE_COLUMNS * BLOCK_ROWS,
        TILE_COLUMNS * PANEL_ROWS,
        VEC_LANES * longest_row(head_dim, head_dim_v),
    };
    float **const array[] = {
        &state->block.query,    &state->block.d_o,
        &state->block.dq,       &state->block.query_rows,
        &state->block.d_o_rows, &state->block.lse,
        &state->block.delta,    &state->block.dslope,
        &state->share.k,        &state->share.v,
        &state->share.dk,       &state->share.dv,
        &state->pairs.weight,   &state->pairs.gradient,
        &state->pairs.bias,     &state->rows,
    };
    int64_t floats = 0;

    for (size_t i = 0; i < sizeof array / sizeof array[0]; i++) {
        *array[i] = from ? from + floats : NULL;
        floats += padded(count[i]);
    }
    return floats;
}

static void clear(float *values, int64_t count)
{
    for (int64_t i = 0; i < count; i++)
        values[i] = 0.0f;
}

/* ---- the columns of the item ----------------------------------------------------------------- */

/* Rows of K or V in columns of the item. */
static void load_columns(const struct state *state, const char *base, const tess_i64 stride[4],
                         int64_t count, float *out)
{
    const tess_cpu_backward_work *work = state->work;
    const int32_t dtype = state->args->dtype;
    const int64_t pitch = padded(count);

    for (int64_t column = work->first; column < work->end; column++, out += pitch) {
        const int64_t ahead = tess_min_i64(column + FETCH_ROWS, work->end - 1);
        fetch(base, tess_cpu_column(&work->at, stride, ahead), stride[3], count, dtype, FETCH_READ);
        widen(base, tess_cpu_column(&work->at, stride, column), stride[3], count, dtype, out);
    }
}

static void load_share(const struct state *state)
{
    const tess_args *args = state->args;
    const tess_cpu_work *at = &state->work->at;

    load_columns(state, at->k, args->k_stride, args->head_dim, state->share.k);
    load_columns(state, at->v, args->v_stride, args->head_dim_v, state->share.v);
    clear(state->share.dk, SHARE_COLUMNS * padded(args->head_dim));
    clear(state->share.dv, SHARE_COLUMNS * padded(args->head_dim_v));
}

/* Multiplies a finished row and says whether all of it is finite: 0 * x is NaN exactly for a
 * non-finite x, and NaN stays in the sum. */
static bool scale_row(float *row, int64_t count, float factor)
{
    vec fault = vec_set(0.0f);
    float faults[VEC_LANES];
    bool is_finite = true;

    for (int64_t d = 0; d < count; d += VEC_LANES) {
        const vec x = vec_mul(vec_load(row + d), vec_set(factor));
        fault = vec_fma(x, vec_set(0.0f), fault);
        vec_store(row + d, x);
    }
    vec_store(faults, fault);
    for (int lane = 0; lane < VEC_LANES; lane++)
        is_finite = is_finite && faults[lane] == 0.0f;
    return is_finite;
}

static void put_row(char *base, int64_t index, int64_t stride, int64_t count, int32_t dtype,
                    const float *row)
{
    if (stride == 1) {
        narrow(base, index, count, dtype, row);
        return;
    }
    for (int64_t d = 0; d < count; d++)
        tess_cpu_store(base, index + d * stride, dtype, row[d]);
}

/* Rows of dK or dV; `base` is null when they are not wanted. */
static void put_column(const struct state *state, char *base, const tess_i64 stride[4],
                       int64_t column, int64_t count, int32_t dtype, const float *row)
{
    const int64_t ahead = tess_min_i64(column + FETCH_ROWS, state->work->end - 1);

    if (!base)
        return;
    fetch(base, ahead * stride[1], stride[3], count, dtype, FETCH_WRITE);
    put_row(base, column * stride[1], stride[3], count, dtype, row);
}

static void put_share(const struct state *state)
{
    const tess_cpu_backward_work *work = state->work;
    const tess_args *args = state->args;
    const bool may_spread = (args->flags & TESS_ALLOW_NONFINITE_SPREAD) != 0;
    float *dk = state->share.dk, *dv = state->share.dv;

    for (int64_t column = work->first; column < work->end; column++) {
        const bool dk_is_finite = scale_row(dk, args->head_dim, args->scale);
        const bool dv_is_finite = scale_row(dv, args->head_dim_v, 1.0f);

        if (!(dk_is_finite && dv_is_finite) && !may_spread)
            tess_cpu_backward_column(work, column, dk, dv);
        put_column(state, work->dk, args->dk_stride, column, args->head_dim, args->dk_dtype, dk);
        put_column(state, work->dv, args->dv_stride, column, args->head_dim_v, args->dv_dtype, dv);
        dk += padded(args->head_dim);
        dv += padded(args->head_dim_v);
    }
}

/* ---- a block of rows ---------------------------------------------------------------------------
 */

/* Floats before element `vector * VEC_LANES` of row 0 in an array [group of
 * elements][row][element]. A group is VEC_SPREAD vectors wide; behind the last whole one they are
 * one vector wide. */
static int64_t group_at(const struct state *state, int vector)
{
    return (int64_t)state->block.capacity * vector * VEC_LANES;
}

static int count_vectors(int64_t count)
{
    return (int)((count + VEC_LANES - 1) / VEC_LANES);
}

/* One vector of rows as fp32, zeros behind their elements and for absent rows: where they lie when
 * that is what they are, else copied to `copy`. */
static void widen_rows(const struct block *block, struct view view, int inside, float *copy,
                       const float *row[VEC_LANES])
{
    const int64_t pitch = padded(view.count);
    const bool in_place = view.dtype == TESS_F32 && view.stride == 1 && view.count % VEC_LANES == 0;

    for (int lane = 0; lane < VEC_LANES; lane++) {
        const int64_t index = view_index(view, block->rows[inside + lane]);
        const int ahead = inside + lane + FETCH_ROWS;
        float *const to = copy + lane * pitch;
        if (ahead < block->panels * PANEL_ROWS)
            fetch(view.base, view_index(view, block->rows[ahead]), view.stride, view.count,
                  view.dtype, FETCH_READ);
        row[lane] = to;
        if (block->first + inside + lane >= block->end) {
            clear(to, pitch);
        } else if (in_place) {
            row[lane] = (const float *)(const void *)(view.base + index * 4);
        } else {
            widen(view.base, index, view.stride, view.count, view.dtype, to);
            clear(to + view.count, pitch - view.count);
        }
    }
}

/* VEC_LANES elements of one vector of rows, in both forms. The first `count` of them exist. */
KERNEL_INLINE void load_square(const float *const row[VEC_LANES], int64_t d, int64_t count,
                               float factor, float *transposed, float *by_rows, const int wide)
{
    vec square[VEC_LANES];

    for (int lane = 0; lane < VEC_LANES; lane++) {
        square[lane] = vec_load(row[lane] + d);
        vec_store(by_rows + lane * wide * VEC_LANES, square[lane]);
    }
    vec_transpose(square);
    for (int i = 0; i < VEC_LANES; i++)
        if (i < count)
            vec_store(transposed + i * PANEL_ROWS, vec_mul(square[i], vec_set(factor)));
}

/* Loads one panel's rows of a tensor in both forms. */
static void load_panel(const struct state *state, struct view view, int panel, float factor,
                       float *transposed, float *by_rows)
{
    const int vectors = count_vectors(view.count);
    const float *row[VEC_LANES];

    for (int v = 0; v < VEC_WIDE; v++) {
        const int inside = panel * PANEL_ROWS + v * VEC_LANES;
        float *const across = transposed + v * VEC_LANES;
        int x = 0;
        widen_rows(&state->block, view, inside, state->rows, row);
        for (; x + VEC_SPREAD <= vectors; x += VEC_SPREAD)
            for (int i = 0; i < VEC_SPREAD; i++) {
                const int64_t d = (x + i) * VEC_LANES;
                load_square(row, d, view.count - d, factor, across + d * PANEL_ROWS,
                            by_rows + group_at(state, x) + (inside * VEC_SPREAD + i) * VEC_LANES,
                            VEC_SPREAD);
            }
        for (; x < vectors; x++) {
            const int64_t d = x * VEC_LANES;
            load_square(row, d, view.count - d, factor, across + d * PANEL_ROWS,
                        by_rows + group_at(state, x) + inside * VEC_LANES, 1);
        }
    }
}

/* What the rows of a block have besides elements. */
static void load_statistics(const struct state *state, struct block *block)
{
    const tess_cpu_backward_work *work = state->work;
    const float unit = state->hook.is_needed ? 1.0f : TESS_LOG2_E;
    const int count = block->panels * PANEL_ROWS;

    locate_rows(block->first, block->end, state->args->group, count, block->rows);
    for (int r = 0; r < count; r++) {
        const struct row_at at = block->rows[r];
        float lse = TESS_NEG_INF;
        block->seen[r] = (struct seen){0, 0};
        block->delta[r] = 0.0f;
        block->dslope[r] = 0.0f;
        if (block->first + r < block->end) {
            lse = work->at.lse[at.query * state->args->lse_stride[1] +
                               at.head * state->args->lse_stride[2]];
            block->delta[r] = work->delta[at.query * state->args->heads_q + at.head];
        }
        if (lse != TESS_NEG_INF)
            block->seen[r] = find_seen(&work->at, at);
        block->lse[r] = lse == TESS_NEG_INF ? -TESS_NEG_INF : lse * unit;
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

static void load_block(struct state *state)
{
    const tess_args *args = state->args;
    const tess_cpu_backward_work *work = state->work;
    struct block *block = &state->block;
    load_statistics(state, block);
    const struct view q = {
        work->at.q,        args->q_stride[1], args->q_stride[2],
        args->q_stride[3], args->head_dim,    args->dtype,
    };
    const struct view d_o = {
        work->d_o,          args->do_stride[1], args->do_stride[2],
        args->do_stride[3], args->head_dim_v,   args->do_dtype,
    };

    for (int p = 0; p < block->panels; p++) {
        const int64_t first = block->first + p * PANEL_ROWS;
        const int64_t last = tess_min_i64(first + PANEL_ROWS, block->end) - 1;
        block->walk[p] = item_walk(state, first, last);
        load_panel(state, q, p, state->hook.query_factor,
                   block->query + (int64_t)p * PANEL_ROWS * args->head_dim, block->query_rows);
        load_panel(state, d_o, p, 1.0f, block->d_o + (int64_t)p * PANEL_ROWS * args->head_dim_v,
                   block->d_o_rows);
    }
    clear(block->dq, (int64_t)block->panels * PANEL_ROWS * (args->head_dim + SPARE_DIMS));
}

static float *dq_of(const struct state *state, int panel)
{
    return state->block.dq + (int64_t)panel * PANEL_ROWS * (state->args->head_dim + SPARE_DIMS);
}

static void add_row(float *to, const float *row, int64_t count)
{
    int64_t d = 0;

    for (; d + VEC_LANES <= count; d += VEC_LANES)
        vec_store(to + d, vec_add(vec_load(to + d), vec_load(row + d)));
    for (; d < count; d++)
        to[d] += row[d];
}

static float *dq_row(const struct state *state, int row)
{
    const struct row_at at = state->block.rows[row];
    return state->work->dq + (at.query * state->args->heads_q + at.head) * state->args->head_dim;
}

/* Adds one vector of rows of dq to the item's dQ. */
static void put_dq(const struct state *state, int panel, int v)
{
    const tess_cpu_backward_work *work = state->work;
    const int64_t dims = state->args->head_dim, pitch = padded(dims);
    const int inside = panel * PANEL_ROWS + v * VEC_LANES;
    const int64_t first = state->block.first + inside;
    const float *const dq = dq_of(state, panel) + v * VEC_LANES;
    const bool may_spread = (state->args->flags & TESS_ALLOW_NONFINITE_SPREAD) != 0;
    vec fault = vec_set(0.0f);
    float faults[VEC_LANES];

    for (int lane = 0; lane < VEC_LANES; lane++)
        fetch((const char *)dq_row(state, inside + lane), 0, 1, dims, TESS_F32, FETCH_WRITE);
    for (int64_t d = 0; d < dims; d += VEC_LANES) {
        vec block[VEC_LANES];
        for (int i = 0; i < VEC_LANES; i++) {
            const float *const at = dq + tess_min_i64(d + i, dims - 1) * PANEL_ROWS;
            block[i] = vec_mul(vec_load(at), vec_set(state->args->scale));
            fault = vec_fma(block[i], vec_set(0.0f), fault);
        }
        vec_transpose(block);
        for (int lane = 0; lane < VEC_LANES; lane++)
            vec_store(state->rows + lane * pitch + d, block[lane]);
    }
    vec_store(faults, fault);
    for (int lane = 0; lane < VEC_LANES && first + lane < state->block.end; lane++) {
        float *const row = state->rows + lane * pitch;
        if (faults[lane] != 0.0f && !may_spread)
            tess_cpu_backward_row(work, first + lane, row);
        add_row(dq_row(state, inside + lane), row, dims);
    }
}

static void finish_block(const struct state *state)
{
    const tess_cpu_backward_work *work = state->work;
    const struct block *block = &state->block;

    for (int p = 0; p < block->panels; p++) {
        if (block->walk[p].first >= block->walk[p].end)
            continue;
        for (int v = 0; v < VEC_WIDE && (state->args->gradients & TESS_GRADIENT_Q); v++)
            put_dq(state, p, v);
    }
    for (int64_t r = 0; work->dslope && block->first + r < block->end; r++)
        work->dslope[block->rows[r].head] += block->dslope[r];
}

/* ---- from S and dP to P and dS -----------------------------------------------------------------
 */

/* Where there is no hook and nothing is absent. */
static void weigh_plain(const struct state *state, int panel)
{
    for (int v = 0; v < VEC_WIDE; v++) {
        const int row = panel * PANEL_ROWS + v * VEC_LANES;
        const vec lse = vec_load(state->block.lse + row),
                  delta = vec_load(state->block.delta + row);
        float *weight = state->pairs.weight + row, *gradient = state->pairs.gradient + row;
        for (int j = 0; j < state->pairs.count; j++, weight += BLOCK_ROWS, gradient += BLOCK_ROWS) {
            const vec p = vec_exp2(vec_sub(vec_load(weight), lse));
            vec_store(weight, p);
            vec_store(gradient, vec_mul(p, vec_sub(vec_load(gradient), delta)));
        }
    }
}

/* Everywhere else, one vector of rows. With a hook, scores and LSE are in natural units until their
 * difference is taken, as in the scalar kernel. */
static void weigh_vector(const struct state *state, int panel, int v)
{
    const struct hook *const hook = &state->hook;
    const int row = panel * PANEL_ROWS + v * VEC_LANES;
    float firsts[VEC_LANES], ends[VEC_LANES];
    const vec lse = vec_load(state->block.lse + row), delta = vec_load(state->block.delta + row);
    const vec unit = vec_set(hook->is_needed ? TESS_LOG2_E : 1.0f), zero = vec_set(0.0f);
    float slopes[VEC_LANES] = {0}, distances[VEC_LANES] = {0};
    vec dslope = vec_load(state->block.dslope + row);

    load_seen(state->block.seen + row, state->pairs.first, firsts, ends);
    const vec seen_first = vec_load(firsts), seen_end = vec_load(ends);
    if (hook->has_slopes)
        load_slopes(&state->work->at, state->block.rows + row, state->pairs.first, slopes,
                    distances);
    for (int j = 0; j < state->pairs.count; j++) {
        float *const weight = state->pairs.weight + j * BLOCK_ROWS + row;
        float *const gradient = state->pairs.gradient + j * BLOCK_ROWS + row;
        float *const bias = state->pairs.bias + j * PANEL_ROWS + v * VEC_LANES;
        const vec distance = vec_sub(vec_load(distances), vec_set((float)j));
        const struct hooked s = hook_score(hook, vec_load(weight), vec_load(slopes), distance,
                                           hook->has_bias ? vec_load(bias) : zero);
        const vec score =
            vec_select(is_seen(seen_first, seen_end, j), s.score, vec_set(TESS_NEG_INF));
        const vec_mask is_absent = vec_equal(score, vec_set(TESS_NEG_INF));
        const vec power = vec_exp2(vec_mul(vec_sub(score, lse), unit));
        const vec p = vec_select(is_absent, zero, power);
        const vec raw = vec_mul(p, vec_sub(vec_load(gradient), delta));
        const vec g = vec_select(is_absent, zero, raw);

        dslope = vec_sub(dslope, vec_mul(g, vec_abs(distance)));
        if (state->work->dbias)
            vec_store(bias, g);
        vec_store(weight, p);
        vec_store(gradient, vec_select(is_absent, zero, vec_mul(g, s.cap_slope)));
    }
    vec_store(state->block.dslope + row, dslope);
}

/* Adds the panel's dBias, transposed back, row after row: rows may share their sums. */
static void put_dbias(const struct state *state, int panel)
{
    const tess_args *args = state->args;
    const struct pairs *pairs = &state->pairs;

    for (int v = 0; v < VEC_WIDE; v++) {
        const int inside = panel * PANEL_ROWS + v * VEC_LANES;
        const int64_t first = state->block.first + inside;
        for (int j = 0; j < pairs->count; j += VEC_LANES) {
            vec block[VEC_LANES];
            for (int i = 0; i < VEC_LANES; i++)
                block[i] = vec_load(pairs->bias + (j + i) * PANEL_ROWS + v * VEC_LANES);
            vec_transpose(block);
            for (int lane = 0; lane < VEC_LANES; lane++)
                vec_store(state->rows + lane * TILE_COLUMNS + j, block[lane]);
        }
        for (int lane = 0; lane < VEC_LANES && first + lane < state->block.end; lane++) {
            const float *const row = state->rows + lane * TILE_COLUMNS;
            const struct row_at at = state->block.rows[inside + lane];
            float *const to = state->work->dbias + at.head * args->dbias_stride[1] +
                              at.query * args->dbias_stride[2] +
                              pairs->first * args->dbias_stride[3];
            for (int j = 0; j < pairs->count; j++)
                to[j * args->dbias_stride[3]] += row[j];
        }
    }
}

static void weigh_panel(const struct state *state, int panel, bool is_masked)
{
    if (!is_masked && !state->hook.is_needed) {
        weigh_plain(state, panel);
        return;
    }
    if (state->hook.has_bias)
        load_bias(&state->work->at, state->block.rows + panel * PANEL_ROWS, VEC_WIDE,
                  state->pairs.first, state->pairs.count, state->rows, state->pairs.bias);
    for (int v = 0; v < VEC_WIDE; v++)
        weigh_vector(state, panel, v);
    if (state->work->dbias)
        put_dbias(state, panel);
}

/* ---- the products ------------------------------------------------------------------------------
 */

/* sum[column][element] += sum over rows of factor[column][row] * rows[row][element], for `keys`
 * columns and `vectors` vectors of elements. */
KERNEL_INLINE void spread(const float *factor, const float *rows, int count, float *sum,
                          int64_t pitch, const int vectors, const int keys)
{
    vec part[MOST_SUMS][MOST_VECTORS];

    for (int i = 0; i < keys; i++)
        for (int v = 0; v < vectors; v++)
            part[i][v] = vec_set(0.0f);
    KERNEL_UNROLL_4
    for (int r = 0; r < count; r++, rows += vectors * VEC_LANES) {
        vec x[MOST_VECTORS];
        for (int v = 0; v < vectors; v++)
            x[v] = vec_load(rows + v * VEC_LANES);
        for (int i = 0; i < keys; i++) {
            const vec f = vec_broadcast(factor + i * BLOCK_ROWS + r);
            for (int v = 0; v < vectors; v++)
                part[i][v] = vec_fma(f, x[v], part[i][v]);
        }
    }
    for (int i = 0; i < keys; i++)
        for (int v = 0; v < vectors; v++) {
            float *const at = sum + i * pitch + v * VEC_LANES;
            vec_store(at, vec_add(part[i][v], vec_load(at)));
        }
}

/* NOLINTNEXTLINE(readability-function-size): the last two are constants, not arguments */
KERNEL_INLINE void spread_group(const struct pairs *pairs, const float *factor, const float *rows,
                                int first, int end, float *sum, int64_t pitch, const int vectors,
                                const int keys)
{
    for (int j = 0; j < pairs->count; j += keys) {
        /* Rows that see none of these columns are left out. */
        while (first < end && pairs->ends[first / VEC_LANES] <= j)
            first += VEC_LANES;
        if (first < end)
            spread(factor + j * BLOCK_ROWS + first, rows + first * vectors * VEC_LANES, end - first,
                   sum + j * pitch, pitch, vectors, keys);
    }
}

/* All elements of a tile's dK or dV, from the rows first ... end - 1 of the block. */
KERNEL_APART void spread_all(const struct state *state, const float *factor, const float *rows,
                             int first, int end, int64_t elements, float *sum)
{
    const int vectors = count_vectors(elements);
    const int64_t pitch = padded(elements);
    int x = 0;

    for (; x + VEC_SPREAD <= vectors; x += VEC_SPREAD)
        spread_group(&state->pairs, factor, rows + group_at(state, x), first, end,
                     sum + x * VEC_LANES, pitch, VEC_SPREAD, VEC_SPREAD_KEYS);
    for (; x < vectors; x++)
        spread_group(&state->pairs, factor, rows + group_at(state, x), first, end,
                     sum + x * VEC_LANES, pitch, 1, VEC_SHORT_KEYS);
}

KERNEL_APART void score_all(const float *transposed, const float *const *key, int64_t dims,
                            const int *ends, float *score)
{
    for (int j = 0; j < ends[VEC_WIDE - 1]; j += VEC_WIDE_KEYS)
        multiply_keys_seen(transposed, PANEL_ROWS, key + j, dims, score + j * BLOCK_ROWS,
                           BLOCK_ROWS, ends, j, VEC_WIDE, VEC_WIDE_KEYS);
}

/* All dims of a panel's dQ, in whole groups: behind the last dim they gather what nobody reads. */
KERNEL_INLINE void gather_dims(const struct pairs *pairs, const float *factor, const int *ends,
                               int64_t dims, float *sum, const int is_stepped)
{
    for (int64_t d = 0; d < dims; d += VEC_WIDE_DIMS) {
        if (VEC_WIDE_DIMS > 4 && (d + 4 >= dims || d + 8 == dims)) {
            multiply_values(factor, BLOCK_ROWS, pairs->k, ends, d, sum, VEC_WIDE, 4, is_stepped);
            d -= VEC_WIDE_DIMS - 4;
        } else {
            multiply_values(factor, BLOCK_ROWS, pairs->k, ends, d, sum, VEC_WIDE, VEC_WIDE_DIMS,
                            is_stepped);
        }
    }
}

KERNEL_APART void gather_all(const struct pairs *pairs, const float *factor, const int *ends,
                             int64_t dims, float *sum)
{
    gather_dims(pairs, factor, ends, dims, sum, 0);
}

/* Where the vectors of the panel see different numbers of columns. */
KERNEL_APART void gather_steps(const struct pairs *pairs, const float *factor, const int *ends,
                               int64_t dims, float *sum)
{
    gather_dims(pairs, factor, ends, dims, sum, 1);
}

/* ---- a tile, a block, the item ------------------------------------------------------------------
 */

static void start_tile(struct state *state, int64_t tile)
{
    const tess_cpu_backward_work *work = state->work;
    const int64_t width = padded(state->args->head_dim), width_v = padded(state->args->head_dim_v);
    struct pairs *pairs = &state->pairs;

    pairs->first = tile * TILE_COLUMNS;
    pairs->count = (int)tess_min_i64(TILE_COLUMNS, work->end - pairs->first);
    for (int j = 0; j < TILE_COLUMNS; j++) { /* past the end: scores nobody reads */
        const int64_t inside = pairs->first - work->first + tess_min_i64(j, pairs->count - 1);
        pairs->k[j] = state->share.k + inside * width;
        pairs->v[j] = state->share.v + inside * width_v;
    }
}

/* How many columns of the tile each vector of a panel sees. Absent and empty rows see none,
 * wherever they are; ends that only grow leave out a little less. */
static void clip_panel(struct state *state, int panel, bool is_masked)
{
    struct pairs *pairs = &state->pairs;
    int64_t end = is_masked ? 0 : pairs->count;

    for (int v = panel * VEC_WIDE; v < (panel + 1) * VEC_WIDE; v++) {
        for (int lane = 0; lane < VEC_LANES && is_masked; lane++)
            end = tess_max_i64(end, state->block.seen[v * VEC_LANES + lane].end - pairs->first);
        pairs->ends[v] = (int)tess_min_i64(end, pairs->count);
    }
}

static void add_panel(struct state *state, int panel)
{
    const tess_args *args = state->args;
    const struct block *block = &state->block;
    const struct pairs *pairs = &state->pairs;
    const int *const ends = pairs->ends + panel * VEC_WIDE;
    float *const weight = pairs->weight + panel * PANEL_ROWS;
    float *const gradient = pairs->gradient + panel * PANEL_ROWS;
    const bool is_masked = tess_walk_is_masked(block->walk[panel], pairs->first / TILE_COLUMNS) ||
                           block->first + (panel + 1) * PANEL_ROWS > block->end;

    clip_panel(state, panel, is_masked);
    score_all(block->query + (int64_t)panel * PANEL_ROWS * args->head_dim, pairs->k, args->head_dim,
              ends, weight);
    score_all(block->d_o + (int64_t)panel * PANEL_ROWS * args->head_dim_v, pairs->v,
              args->head_dim_v, ends, gradient);
    weigh_panel(state, panel, is_masked);
    if (!(args->gradients & TESS_GRADIENT_Q))
        return;
    if (ends[0] == ends[VEC_WIDE - 1])
        gather_all(pairs, gradient, ends, args->head_dim, dq_of(state, panel));
    else
        gather_steps(pairs, gradient, ends, args->head_dim, dq_of(state, panel));
}

static void add_tile(struct state *state, int64_t tile)
{
    const tess_args *args = state->args;
    const tess_cpu_backward_work *work = state->work;
    struct pairs *pairs = &state->pairs;
    int first = -1, end = -1; /* panels: those that see a tile are next to each other */

    start_tile(state, tile);
    for (int p = 0; p < state->block.panels; p++) {
        if (tile < state->block.walk[p].first || tile >= state->block.walk[p].end)
            continue;
        add_panel(state, p);
        first = first < 0 ? p : first;
        end = p + 1;
    }
    if (first < 0)
        return;
    if (work->dv)
        spread_all(state, pairs->weight, state->block.d_o_rows, first * PANEL_ROWS,
                   end * PANEL_ROWS, args->head_dim_v,
                   state->share.dv + (pairs->first - work->first) * padded(args->head_dim_v));
    if (work->dk)
        spread_all(state, pairs->gradient, state->block.query_rows, first * PANEL_ROWS,
                   end * PANEL_ROWS, args->head_dim,
                   state->share.dk + (pairs->first - work->first) * padded(args->head_dim));
}

static void backward(const tess_cpu_backward_work *work)
{
    const tess_args *args = work->at.args;
    struct state state = {.work = work, .args = args, .hook = make_hook(&work->at)};
    struct block *block = &state.block;

    block->capacity = block_panels(args->head_dim, args->head_dim_v) * PANEL_ROWS;
    lay_scratch(work->at.scratch, args->head_dim, args->head_dim_v, &state);
    load_share(&state);
    if (work->dslope)
        clear(work->dslope, args->group);
    for (int64_t f = 0; f < work->rows; f += block->capacity) {
        const int64_t end = tess_min_i64(f + block->capacity, work->rows);
        const tess_column_walk walk = item_walk(&state, f, end - 1);
        if (walk.first >= walk.end)
            continue;
        block->first = f;
        block->end = end;
        block->panels = (int)((end - f + PANEL_ROWS - 1) / PANEL_ROWS);
        load_block(&state);
        for (int64_t tile = walk.first; tile < walk.end; tile++)
            add_tile(&state, tile);
        finish_block(&state);
    }
    put_share(&state);
}

/* ---- the launch's passes over the rows ----------------------------------------------------------
 */

/* VEC_LANES elements of a row from element d on, zeros behind the last. */
static inline vec load_part(tess_cpu_row_at row, int64_t d, int64_t count)
{
    float part[VEC_LANES] = {0};

    widen(row.base, row.index + d * row.stride, row.stride, tess_min_i64(count - d, VEC_LANES),
          row.dtype, part);
    return vec_load(part);
}

static float dot(tess_cpu_row_at a, tess_cpu_row_at b, int64_t count)
{
    vec sums = vec_set(0.0f);
    float lanes[VEC_LANES], sum = 0.0f;

    for (int64_t d = 0; d < count; d += VEC_LANES)
        sums = vec_fma(load_part(a, d, count), load_part(b, d, count), sums);
    vec_store(lanes, sums);
    for (int lane = 0; lane < VEC_LANES; lane++)
        sum += lanes[lane];
    return sum;
}

static void put_sum(tess_cpu_row_at to, const float *sums, int64_t buffers, int64_t pitch,
                    int64_t count)
{
    float part[VEC_LANES];

    for (int64_t d = 0; d < count; d += VEC_LANES) {
        const int64_t some = tess_min_i64(count - d, VEC_LANES);
        if (some == VEC_LANES) {
            vec sum = vec_load(sums + d);
            for (int64_t b = 1; b < buffers; b++)
                sum = vec_add(sum, vec_load(sums + b * pitch + d));
            vec_store(part, sum);
        } else {
            for (int64_t i = 0; i < some; i++) {
                part[i] = sums[d + i];
                for (int64_t b = 1; b < buffers; b++)
                    part[i] += sums[b * pitch + d + i];
            }
        }
        put_row(to.base, to.index + d * to.stride, to.stride, some, to.dtype, part);
    }
}

#define KERNEL_NAME(prefix, vec, suffix) prefix##vec##suffix
#define KERNEL(vec, suffix) KERNEL_NAME(tess_cpu_bwd_lanes_, vec, suffix)

void KERNEL(TESS_VEC, )(const tess_cpu_backward_work *work)
{
    backward(work);
}

float KERNEL(TESS_VEC, _dot)(tess_cpu_row_at a, tess_cpu_row_at b, int64_t count)
{
    return dot(a, b, count);
}

void KERNEL(TESS_VEC, _put_sum)(tess_cpu_row_at to, const float *sums, int64_t buffers,
                                int64_t pitch, int64_t count)
{
    put_sum(to, sums, buffers, pitch, count);
}

size_t KERNEL(TESS_VEC, _scratch)(int64_t head_dim, int64_t head_dim_v)
{
    struct state state;
    return (size_t)lay_scratch(NULL, head_dim, head_dim_v, &state) * sizeof(float);
}
