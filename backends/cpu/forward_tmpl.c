/* SPDX-License-Identifier: Apache-2.0
 * The vector forward kernels: a lane is a row, scores and output are held transposed. */
#include TESS_VEC_HEADER

#include "backends/cpu/access.h"

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
 * widening or copying their rows) is shared. The short kernel is one panel of one vector.
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
 * or 96 columns (-3 % to +1 %); the weights of all panels before their outputs (0); copying K and V
 * always (-4 % at 64 dims in place); prefetching the next tile (+-1 %, -10 % for rows 4 KB apart);
 * an Estrin polynomial in the exponential (+0.5 %, but half an ulp worse). */

enum { TILE_COLUMNS = 48, ALIGN_FLOATS = 16, MOST_VECTORS = 4, MOST_SUMS = 12 };

#if defined(__GNUC__)
#define KERNEL_INLINE static inline __attribute__((always_inline))
#define KERNEL_APART static __attribute__((noinline))
#if defined(__clang__)
#define KERNEL_UNROLL_4 _Pragma("clang loop unroll_count(4)")
#else
#define KERNEL_UNROLL_4 _Pragma("GCC unroll 4")
#endif
#else
#define KERNEL_INLINE static inline
#define KERNEL_APART static
#define KERNEL_UNROLL_4
#endif

/* ---- rows and scratch ------------------------------------------------------------------------ */

/* Where a folded row is: walked along, since a division per row and tile would show. */
struct place {
    int64_t query, head; /* head within the group */
};

static struct place place_of(int64_t folded_row, int64_t group)
{
    const struct place place = {tess_walk_query(folded_row, group),
                                tess_walk_head(folded_row, group)};
    return place;
}

static struct place next_place(struct place place, int64_t group)
{
    const bool is_last_head = place.head + 1 == group;
    const struct place next = {place.query + is_last_head, is_last_head ? 0 : place.head + 1};
    return next;
}

/* Arrays [...][rows of the panel] of one panel. */
struct panel {
    float *query;          /* [head_dim], scaled */
    float *output;         /* [head_dim_v], not yet divided by the sum */
    float *shift, *sum;    /* the recurrence of core/portable/online_softmax.h, a row per lane */
    tess_row_tile rows;    /* folded rows; the lanes past the end repeat the last one */
    tess_column_walk walk; /* the tiles of columns that these rows meet */
    int64_t end;           /* one past the last column that any of them sees */
};

struct tile {
    int64_t first;                /* column */
    int count;                    /* columns of it that exist and are wanted */
    const float *k[TILE_COLUMNS]; /* their rows in fp32, the elements next to each other */
    const float *v[TILE_COLUMNS];
};

/* What all panels share. */
struct shared {
    float *score; /* [TILE_COLUMNS][rows of a panel]; the weights afterwards */
    float *bias;  /* the same */
    float *k, *v; /* [TILE_COLUMNS][pitch()]: rows that cannot be used where they are */
    float *rows;  /* [VEC_LANES][pitch()] of the longest row */
};

static int64_t padded(int64_t count)
{
    return (count + ALIGN_FLOATS - 1) / ALIGN_FLOATS * ALIGN_FLOATS;
}

/* Floats from one copied row to the next: an odd number of cache lines, so that an element of all
 * rows is spread over all sets of the cache. */
static int64_t pitch(int64_t count)
{
    return (padded(count) / ALIGN_FLOATS | 1) * ALIGN_FLOATS;
}

static float *take(float **free_floats, int64_t count)
{
    float *const taken = *free_floats;
    *free_floats += padded(count);
    return taken;
}

static int64_t longest_row(int64_t head_dim, int64_t head_dim_v)
{
    return tess_max_i64(tess_max_i64(head_dim, head_dim_v), TILE_COLUMNS);
}

/* Floats of scratch; lay_panel() and lay_shared() take exactly these. */
static size_t scratch_size(int vectors, int panels, int64_t head_dim, int64_t head_dim_v)
{
    const int64_t rows = vectors * VEC_LANES;
    const int64_t panel = padded(head_dim * rows) + padded(head_dim_v * rows) + 2 * padded(rows);
    const int64_t shared = 2 * padded(TILE_COLUMNS * rows) + TILE_COLUMNS * pitch(head_dim) +
                           TILE_COLUMNS * pitch(head_dim_v) +
                           VEC_LANES * pitch(longest_row(head_dim, head_dim_v));
    return (size_t)(panels * panel + shared) * sizeof(float);
}

static struct panel lay_panel(float **free_floats, const tess_args *args, int rows)
{
    struct panel panel = {0};
    panel.query = take(free_floats, (int64_t)args->head_dim * rows);
    panel.output = take(free_floats, (int64_t)args->head_dim_v * rows);
    panel.shift = take(free_floats, rows);
    panel.sum = take(free_floats, rows);
    return panel;
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

/* ---- the user's rows, in and out ------------------------------------------------------------- */

/* Rows of a tensor, or of a part of each. */
struct view {
    const char *base;
    int64_t stride; /* from one element of a row to the next */
    int64_t count;  /* elements of a row */
    int32_t dtype;
    int64_t query_stride, head_stride; /* from one row to the next; where many are read */
};

/* Copies the row whose first element is `index` as fp32. Reads nothing past the last element:
 * tensors may end at the end of a mapping. */
static void widen(const struct view *view, int64_t index, float *out)
{
    const char *const at = view->base + index * tess_cpu_element_size(view->dtype);
    const int64_t whole = view->stride == 1 ? view->count - VEC_LANES : -1;
    int64_t d = 0;

    if (view->dtype == TESS_F32) {
        for (; d <= whole; d += VEC_LANES)
            vec_store(out + d, vec_load((const float *)(const void *)(at + d * 4)));
    } else if (view->dtype == TESS_F16) {
        for (; d <= whole; d += VEC_LANES)
            vec_store(out + d, vec_load_f16(at + d * 2));
    } else {
        for (; d <= whole; d += VEC_LANES)
            vec_store(out + d, vec_load_bf16(at + d * 2));
    }
    for (; d < view->count; d++)
        out[d] = tess_cpu_load(at, d * view->stride, view->dtype);
}

/* The other way, for results with their elements next to each other. */
static void narrow(char *at, int64_t count, int32_t dtype, const float *in)
{
    int64_t d = 0;

    if (dtype == TESS_F32) {
        for (; d + VEC_LANES <= count; d += VEC_LANES)
            vec_store((float *)(void *)(at + d * 4), vec_load(in + d));
    } else if (dtype == TESS_F16) {
        for (; d + VEC_LANES <= count; d += VEC_LANES)
            vec_store_f16(at + d * 2, vec_load(in + d));
    } else {
        for (; d + VEC_LANES <= count; d += VEC_LANES)
            vec_store_bf16(at + d * 2, vec_load(in + d));
    }
    for (; d < count; d++)
        tess_cpu_store(at, d, dtype, in[d]);
}

/* out[element][row] = factor * element of row, for all rows of a panel. Rows are copied first even
 * where they could be used as they are: read one after another they stream in, read side by side
 * they do not (-5 % on short problems). */
static void transpose_in(const struct view *view, tess_row_tile rows, int64_t group, int vectors,
                         float factor, float *copies, float *out)
{
    const int64_t step = pitch(view->count);
    struct place place = place_of(rows.first, group);
    int64_t f = rows.first;

    for (int v = 0; v < vectors; v++) {
        for (int lane = 0; lane < VEC_LANES; lane++) {
            widen(view, place.query * view->query_stride + place.head * view->head_stride,
                  copies + lane * step);
            if (++f < rows.end)
                place = next_place(place, group);
        }
        for (int64_t d = 0; d < view->count; d += VEC_LANES) {
            vec block[VEC_LANES];
            for (int lane = 0; lane < VEC_LANES; lane++)
                block[lane] = vec_load(copies + lane * step + d);
            vec_transpose(block);
            for (int i = 0; i < VEC_LANES && d + i < view->count; i++)
                vec_store(out + ((d + i) * vectors + v) * VEC_LANES,
                          vec_mul(block[i], vec_set(factor)));
        }
    }
}

/* ---- what happens to scores besides scaling -------------------------------------------------- */

/* Scores come in units of log2. Without a hook the whole factor scale * log2(e) goes into Q, its
 * sign included, so negative and zero scales are nothing special. With one, Q takes the scale and
 * the hook ends with log2(e). A scale so far from 1 that Q times it could leave the range of fp32
 * is left to the hook as well, and Q takes only its sign. */
struct hook {
    bool is_needed;
    float query_factor;
    float scale; /* of the score, in the hook; 1 when Q has it */
    float softcap, softcap_inverse;
};

static struct hook make_hook(const tess_cpu_work *work)
{
    const float scale = work->args->scale, size = tess_abs(scale);
    const bool is_extreme = !(size >= 0x1p-40f && size <= 0x1p40f) && scale != 0.0f;
    struct hook hook;

    hook.softcap = work->args->softcap;
    hook.softcap_inverse = 1.0f / tess_max(0x1p-126f, hook.softcap);
    hook.is_needed = hook.softcap > 0.0f || work->slopes || work->bias || is_extreme;
    hook.scale = is_extreme ? size : 1.0f;
    hook.query_factor = is_extreme ? (scale < 0.0f ? -1.0f : 1.0f) : scale;
    if (!hook.is_needed)
        hook.query_factor *= TESS_LOG2_E;
    return hook;
}

/* tanh with at most 3 ulp of error. Near 0 an odd polynomial of degree 11, fitted on [0, 0.625]
 * (relative error 5e-9 before rounding); beyond it 1 - 2 / (e^2x + 1), whose difference has lost
 * its cancellation. At 10 it is 1 already; stopping there keeps the exponential in range. */
static vec hyperbolic_tangent(vec x)
{
    const vec square = vec_mul(x, x), size = vec_min(vec_set(10.0f), vec_abs(x));
    const vec power = vec_exp2(vec_mul(size, vec_set(2.0f * TESS_LOG2_E)));
    const vec far = vec_sub(vec_set(1.0f), vec_div(vec_set(2.0f), vec_add(power, vec_set(1.0f))));
    vec near = vec_fma(square, vec_set(-0.0057049864f), vec_set(0.0206390861f));
    near = vec_fma(near, square, vec_set(-0.0537397154f));
    near = vec_fma(near, square, vec_set(0.133314416f));
    near = vec_fma(near, square, vec_set(-0.333332807f));
    near = vec_fma(vec_mul(x, square), near, x);
    return vec_select(vec_less(size, vec_set(0.625f)), near, vec_copysign(far, x));
}

/* slope and distance from column 0 of the tile to the column each row faces */
static void locate_alibi(const tess_cpu_work *work, const struct panel *panel, int64_t first_column,
                         int rows, float *slope, float *distance)
{
    struct place place = place_of(panel->rows.first, work->args->group);

    for (int i = 0; i < rows; i++) {
        slope[i] = work->slopes[place.head * work->args->slope_stride[1]];
        distance[i] = (float)(place.query + work->visible.diagonal - first_column);
        if (panel->rows.first + i + 1 < panel->rows.end)
            place = next_place(place, work->args->group);
    }
}

/* tess_os_score(): what is finite stays finite, since masks are often made of a type's most
 * negative number. */
static vec in_log2(vec natural)
{
    const vec most = vec_set(TESS_MAX_F32);
    const vec score = vec_mul(natural, vec_set(TESS_LOG2_E));
    const vec_mask is_finite = vec_less(vec_abs(natural), vec_set(-TESS_NEG_INF));
    const vec within = vec_min(vec_max(score, vec_sub(vec_set(0.0f), most)), most);

    return vec_select(is_finite, within, score);
}

/* Everything between Q K^T and the softmax but masks, in this order. Score programs belong between
 * the bias and the last factor. */
static void apply_hook(const struct hook *hook, const tess_cpu_work *work,
                       const struct panel *panel, const struct tile *tile,
                       const struct shared *shared, int vectors)
{
    const tess_args *args = work->args;
    float slope[MOST_VECTORS * VEC_LANES], distance[MOST_VECTORS * VEC_LANES];

    if (work->slopes)
        locate_alibi(work, panel, tile->first, vectors * VEC_LANES, slope, distance);
    if (work->bias) {
        const int64_t first = tile->first * args->bias_stride[3];
        const struct view view = {
            work->bias + first * tess_cpu_element_size(args->bias_dtype),
            args->bias_stride[3],
            tile->count,
            args->bias_dtype,
            args->bias_stride[2],
            args->bias_stride[1],
        };
        transpose_in(&view, panel->rows, args->group, vectors, 1.0f, shared->rows, shared->bias);
    }
    for (int j = 0; j < tile->count; j++) {
        for (int v = 0; v < vectors; v++) {
            float *const at = shared->score + (j * vectors + v) * VEC_LANES;
            vec s = vec_mul(vec_load(at), vec_set(hook->scale));
            if (hook->softcap > 0.0f)
                s = vec_mul(vec_set(hook->softcap),
                            hyperbolic_tangent(vec_mul(s, vec_set(hook->softcap_inverse))));
            if (work->slopes) {
                const vec away = vec_sub(vec_load(distance + v * VEC_LANES), vec_set((float)j));
                s = vec_sub(s, vec_mul(vec_load(slope + v * VEC_LANES), vec_abs(away)));
            }
            if (work->bias)
                s = vec_add(s, vec_load(shared->bias + (j * vectors + v) * VEC_LANES));
            vec_store(at, in_log2(s));
        }
    }
}

static float within_tile(int64_t column, const struct tile *tile)
{
    return (float)tess_max_i64(tess_min_i64(column - tile->first, TILE_COLUMNS), 0);
}

/* Scores of columns that a row does not see become -inf: selected, never added, so that nothing an
 * absent column holds survives. */
static void hide_absent(const tess_cpu_work *work, const struct panel *panel,
                        const struct tile *tile, float *score, int vectors)
{
    const int64_t group = work->args->group;
    const vec absent = vec_set(TESS_NEG_INF);
    struct place place = place_of(panel->rows.first, group);
    int64_t f = panel->rows.first;

    for (int v = 0; v < vectors; v++) {
        float firsts[VEC_LANES], ends[VEC_LANES];
        for (int lane = 0; lane < VEC_LANES; lane++) {
            firsts[lane] = within_tile(tess_visible_first(work->visible, place.query), tile);
            ends[lane] = within_tile(tess_visible_end(work->visible, place.query), tile);
            if (++f < panel->rows.end)
                place = next_place(place, group);
        }
        const vec first = vec_load(firsts), end = vec_load(ends);
        for (int j = 0; j < tile->count; j++) {
            float *const at = score + (j * vectors + v) * VEC_LANES;
            const vec column = vec_set((float)j + 0.5f);
            const vec_mask is_seen = vec_both(vec_less(first, column), vec_less(column, end));
            vec_store(at, vec_select(is_seen, vec_load(at), absent));
        }
    }
}

/* ---- the three passes over a tile ------------------------------------------------------------ */

/* score[key][row] for `keys` columns. */
KERNEL_INLINE void multiply_keys(const float *query, const float *const *key, int64_t head_dim,
                                 float *score, const int vectors, const int keys)
{
    vec sum[MOST_SUMS][MOST_VECTORS];

    for (int i = 0; i < keys; i++)
        for (int v = 0; v < vectors; v++)
            sum[i][v] = vec_set(0.0f);
    KERNEL_UNROLL_4
    for (int64_t d = 0; d < head_dim; d++, query += vectors * VEC_LANES) {
        vec q[MOST_VECTORS];
        for (int v = 0; v < vectors; v++)
            q[v] = vec_load(query + v * VEC_LANES);
        for (int i = 0; i < keys; i++) {
            const vec k = vec_broadcast(key[i] + d);
            for (int v = 0; v < vectors; v++)
                sum[i][v] = vec_fma(k, q[v], sum[i][v]);
        }
    }
    for (int i = 0; i < keys; i++)
        for (int v = 0; v < vectors; v++)
            vec_store(score + (i * vectors + v) * VEC_LANES, sum[i][v]);
}

/* output[dim][row] += sum over columns, for `dims` dims from `dim` on. The tile is summed by itself
 * first: the error of a long row then grows with the number of tiles, not of columns. */
KERNEL_INLINE void multiply_values(const float *weight, const struct tile *tile, int64_t dim,
                                   float *output, const int vectors, const int dims)
{
    vec sum[MOST_SUMS][MOST_VECTORS];

    for (int i = 0; i < dims; i++)
        for (int v = 0; v < vectors; v++)
            sum[i][v] = vec_set(0.0f);
    KERNEL_UNROLL_4
    for (int j = 0; j < tile->count; j++, weight += vectors * VEC_LANES) {
        const float *const value = tile->v[j] + dim;
        vec w[MOST_VECTORS];
        for (int v = 0; v < vectors; v++)
            w[v] = vec_load(weight + v * VEC_LANES);
        for (int i = 0; i < dims; i++) {
            const vec x = vec_broadcast(value + i);
            for (int v = 0; v < vectors; v++)
                sum[i][v] = vec_fma(x, w[v], sum[i][v]);
        }
    }
    output += dim * vectors * VEC_LANES;
    for (int i = 0; i < dims; i++)
        for (int v = 0; v < vectors; v++) {
            float *const at = output + (i * vectors + v) * VEC_LANES;
            vec_store(at, vec_add(sum[i][v], vec_load(at)));
        }
}

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

KERNEL_INLINE void all_keys(const struct panel *panel, const struct tile *tile, int64_t head_dim,
                            float *score, const int vectors, const int keys)
{
    for (int j = 0; j < tile->count; j += keys)
        multiply_keys(panel->query, tile->k + j, head_dim, score + j * vectors * VEC_LANES, vectors,
                      keys);
}

KERNEL_INLINE void all_values(const struct panel *panel, const struct tile *tile,
                              int64_t head_dim_v, const float *weight, const int vectors,
                              const int dims)
{
    int64_t d = 0;

    /* When 2 dims would be left over, two fours are faster than a six and two single ones. */
    for (; d + dims <= head_dim_v && d + dims + 2 != head_dim_v; d += dims)
        multiply_values(weight, tile, d, panel->output, vectors, dims);
    for (; d + 4 <= head_dim_v; d += 4)
        multiply_values(weight, tile, d, panel->output, vectors, 4);
    for (; d < head_dim_v; d++)
        multiply_values(weight, tile, d, panel->output, vectors, 1);
}

/* Each pass is a function of its own in two copies, wide and short, with the shape a constant in
 * each: all their loops over sums unroll, and no value of another pass competes for registers. */
KERNEL_APART void score_tile(const struct panel *panel, const struct tile *tile, int64_t head_dim,
                             float *score, int vectors)
{
    if (vectors == VEC_WIDE)
        all_keys(panel, tile, head_dim, score, VEC_WIDE, VEC_WIDE_KEYS);
    else
        all_keys(panel, tile, head_dim, score, 1, VEC_SHORT_KEYS);
}

KERNEL_APART void weigh_tile(struct panel *panel, int count, int64_t head_dim_v, float *score,
                             int vectors)
{
    if (vectors == VEC_WIDE)
        for (int v = 0; v < VEC_WIDE; v++)
            admit(panel, score, count, head_dim_v, v, VEC_WIDE);
    else
        admit(panel, score, count, head_dim_v, 0, 1);
}

KERNEL_APART void gather_tile(const struct panel *panel, const struct tile *tile,
                              int64_t head_dim_v, const float *weight, int vectors)
{
    if (vectors == VEC_WIDE)
        all_values(panel, tile, head_dim_v, weight, VEC_WIDE, VEC_WIDE_DIMS);
    else
        all_values(panel, tile, head_dim_v, weight, 1, VEC_SHORT_DIMS);
}

/* ---- a panel and a tile ---------------------------------------------------------------------- */

static void start_panel(const tess_cpu_work *work, struct panel *panel, const struct shared *shared,
                        float query_factor, int vectors)
{
    const tess_args *args = work->args;
    const int64_t first = tess_walk_query(panel->rows.first, args->group);
    const int64_t last = tess_walk_query(panel->rows.end - 1, args->group);
    const struct view view = {work->q,     args->q_stride[3], args->head_dim,
                              args->dtype, args->q_stride[1], args->q_stride[2]};

    transpose_in(&view, panel->rows, args->group, vectors, query_factor, shared->rows,
                 panel->query);
    for (int v = 0; v < vectors; v++) {
        vec_store(panel->shift + v * VEC_LANES, vec_set(TESS_NEG_INF));
        vec_store(panel->sum + v * VEC_LANES, vec_set(0.0f));
    }
    for (int64_t d = 0; d < (int64_t)args->head_dim_v * vectors; d++)
        vec_store(panel->output + d * VEC_LANES, vec_set(0.0f));
    panel->walk = tess_walk_columns(work->visible, first, last, TILE_COLUMNS, 0, 1);
    panel->end = tess_visible_end(work->visible, last);
}

/* Rows of K or V that lie 4 KB or more apart share few sets of the first-level cache and take a
 * page each, and every panel would pay for that again: with several panels they are copied. Zen 3,
 * 8 heads side by side, 1024 columns of 128 dims: 0.70 of the FMA peak in place, 0.77 copied. */
enum { SCATTERED_FLOATS = 1024 };

/* Pointers to a tile's rows of K or V. */
static void locate(const tess_cpu_work *work, const struct view *view, const tess_i64 stride[4],
                   const struct tile *tile, bool is_reused, float *copy, const float **row)
{
    const bool is_scattered = stride[1] >= SCATTERED_FLOATS || stride[1] <= -SCATTERED_FLOATS;
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
        widen(view, tess_cpu_column(work, stride, tile->first + j), copy);
        row[j] = copy;
    }
}

static void add_tile(const tess_cpu_work *work, struct panel *panel, struct tile *tile,
                     const struct hook *hook, const struct shared *shared, int vectors)
{
    const tess_args *args = work->args;
    int count = (int)tess_min_i64(TILE_COLUMNS, panel->end - tile->first);

    tile->count = count;
    score_tile(panel, tile, args->head_dim, shared->score, vectors);
    if (hook->is_needed)
        apply_hook(hook, work, panel, tile, shared, vectors);
    if (tess_walk_is_masked(panel->walk, tile->first / TILE_COLUMNS))
        hide_absent(work, panel, tile, shared->score, vectors);
    for (; count % 4; count++)
        for (int v = 0; v < vectors; v++)
            vec_store(shared->score + (count * vectors + v) * VEC_LANES, vec_set(TESS_NEG_INF));
    weigh_tile(panel, count, args->head_dim_v, shared->score, vectors);
    gather_tile(panel, tile, args->head_dim_v, shared->score, vectors);
}

/* ---- the way out ----------------------------------------------------------------------------- */

static void put_row(const tess_cpu_work *work, struct place place, int64_t folded_row,
                    const float *o, float lse)
{
    const tess_args *args = work->args;
    const int64_t index = place.query * args->o_stride[1] + place.head * args->o_stride[2];

    if (work->splits > 1 || args->o_stride[3] != 1) {
        tess_cpu_put_row(work, folded_row, o, lse);
        return;
    }
    narrow(work->o + index * tess_cpu_element_size(args->o_dtype), args->head_dim_v, args->o_dtype,
           o);
    if (work->lse)
        work->lse[place.query * args->lse_stride[1] + place.head * args->lse_stride[2]] = lse;
}

/* out[lane][d] = factor[lane] * output[d][lane] for VEC_LANES dims, of which `count` exist. Returns
 * `fault` with NaN put where an element is not finite: 0 * x is NaN exactly for such an x. */
KERNEL_INLINE vec transpose_out(const float *output, int64_t step, int count, vec factor, vec fault,
                                float *out, int64_t out_step)
{
    vec block[VEC_LANES];

    for (int i = 0; i < VEC_LANES; i++) {
        const int64_t at = i < count ? i : count - 1;
        block[i] = vec_mul(vec_load(output + at * step), factor);
        fault = vec_fma(block[i], vec_set(0.0f), fault);
    }
    vec_transpose(block);
    for (int lane = 0; lane < VEC_LANES; lane++)
        vec_store(out + lane * out_step, block[lane]);
    return fault;
}

/* Divides by the sum, writes one vector of rows, and recomputes those that came out non-finite:
 * what an absent column holds reaches a row only as 0 * Inf or 0 * NaN, never unseen. */
static void finish_vector(const tess_cpu_work *work, const struct panel *panel, float *row, int v,
                          int vectors)
{
    const tess_args *args = work->args;
    const int64_t dims = args->head_dim_v, step = vectors * VEC_LANES, row_step = pitch(dims);
    const int64_t first = panel->rows.first + v * VEC_LANES;
    const int valid = (int)tess_min_i64(VEC_LANES, panel->rows.end - first);
    const float *output = panel->output + v * VEC_LANES;
    float factors[VEC_LANES] = {0}, lse[VEC_LANES] = {0}, faults[VEC_LANES];
    struct place place = place_of(first, args->group);
    struct place at = place;
    int64_t d = 0;

    for (int lane = 0; lane < valid; lane++, at = next_place(at, args->group)) {
        tess_os_row state = {panel->shift[v * VEC_LANES + lane], panel->sum[v * VEC_LANES + lane]};
        factors[lane] = 1.0f;
        if (work->sink) {
            const tess_os_sunk sunk = tess_os_sink(state, work->sink[at.head * args->sink_stride]);
            factors[lane] = sunk.rescale;
            state = sunk.row;
        }
        factors[lane] *= tess_os_inverse(state.sum);
        lse[lane] = tess_os_lse(state);
    }

    const vec factor = vec_load(factors);
    vec fault = vec_mul(vec_load(panel->sum + v * VEC_LANES), vec_set(0.0f));
    for (; d + VEC_LANES <= dims; d += VEC_LANES, output += VEC_LANES * step)
        fault = transpose_out(output, step, VEC_LANES, factor, fault, row + d, row_step);
    if (d < dims)
        fault = transpose_out(output, step, (int)(dims - d), factor, fault, row + d, row_step);
    vec_store(faults, fault);

    for (int lane = 0; lane < valid; lane++, place = next_place(place, args->group)) {
        float *const o = row + lane * row_step;
        if (faults[lane] != 0.0f && !(args->flags & TESS_ALLOW_NONFINITE_SPREAD))
            tess_cpu_forward_row(work, first + lane, o);
        else
            put_row(work, place, first + lane, o, lse[lane]);
    }
}

static void finish_panel(const tess_cpu_work *work, const struct panel *panel, float *row,
                         int vectors)
{
    for (int v = 0; v < vectors && panel->rows.first + v * VEC_LANES < panel->rows.end; v++)
        finish_vector(work, panel, row, v, vectors);
}

/* ---- a work item ----------------------------------------------------------------------------- */

static void forward(const tess_cpu_work *work, int vectors, int keys)
{
    const tess_args *args = work->args;
    const int rows = vectors * VEC_LANES;
    const tess_column_walk walk = tess_cpu_columns(work);
    const int64_t last_query = tess_walk_query(work->tile.end - 1, args->group);
    const int64_t end = tess_visible_end(work->visible, last_query);
    const struct view k = {.base = work->k,
                           .stride = args->k_stride[3],
                           .count = args->head_dim,
                           .dtype = args->dtype};
    const struct view v = {.base = work->v,
                           .stride = args->v_stride[3],
                           .count = args->head_dim_v,
                           .dtype = args->dtype};
    const struct hook hook = make_hook(work);
    float *free_floats = work->scratch;
    struct panel panels[VEC_WIDE_PANELS];
    struct tile tile;
    int count = 0;

    for (int64_t f = work->tile.first; f < work->tile.end; f += rows, count++) {
        panels[count] = lay_panel(&free_floats, args, rows);
        panels[count].rows.first = f;
        panels[count].rows.end = tess_min_i64(f + rows, work->tile.end);
    }
    const struct shared shared = lay_shared(&free_floats, args, rows);
    for (int p = 0; p < count; p++)
        start_panel(work, &panels[p], &shared, hook.query_factor, vectors);

    for (int64_t t = walk.first; t < walk.end; t++) {
        tile.first = t * TILE_COLUMNS;
        tile.count = (int)tess_min_i64(TILE_COLUMNS, end - tile.first);
        locate(work, &k, args->k_stride, &tile, count > 1, shared.k, tile.k);
        locate(work, &v, args->v_stride, &tile, count > 1, shared.v, tile.v);
        for (int j = tile.count; j % keys; j++) /* scores nobody reads */
            tile.k[j] = tile.k[tile.count - 1];
        for (int p = 0; p < count; p++)
            if (t >= panels[p].walk.first && t < panels[p].walk.end)
                add_tile(work, &panels[p], &tile, &hook, &shared, vectors);
    }
    for (int p = 0; p < count; p++)
        finish_panel(work, &panels[p], shared.rows, vectors);
}

#define KERNEL_NAME(prefix, vec, suffix) prefix##vec##suffix
#define KERNEL(vec, suffix) KERNEL_NAME(tess_cpu_fwd_lanes_, vec, suffix)

void KERNEL(TESS_VEC, _wide)(const tess_cpu_work *work)
{
    forward(work, VEC_WIDE, VEC_WIDE_KEYS);
}
void KERNEL(TESS_VEC, _short)(const tess_cpu_work *work)
{
    forward(work, 1, VEC_SHORT_KEYS);
}

size_t KERNEL(TESS_VEC, _wide_scratch)(int64_t head_dim, int64_t head_dim_v)
{
    return scratch_size(VEC_WIDE, VEC_WIDE_PANELS, head_dim, head_dim_v);
}

size_t KERNEL(TESS_VEC, _short_scratch)(int64_t head_dim, int64_t head_dim_v)
{
    return scratch_size(1, 1, head_dim, head_dim_v);
}
