/* SPDX-License-Identifier: Apache-2.0
 * What the vector kernels share: rows in and out, the hook, the intervals, the product of scores.
 */
#ifndef TESSERA_BACKENDS_CPU_LANES_H
#define TESSERA_BACKENDS_CPU_LANES_H

#include "backends/cpu/access.h"

/* Included behind TESS_VEC_HEADER by files that are compiled once per instruction set; everything
 * is static inline, like access.h.
 *
 * A panel is VEC_WIDE (or one) vectors of folded rows, a row per lane. Arrays of a panel are held
 * transposed, [element][row], so that nothing is ever summed across lanes. */

/* Columns of a tile, where the file that includes this does not say otherwise. */
#ifndef KERNEL_TILE_COLUMNS
#define KERNEL_TILE_COLUMNS 48
#endif

enum {
    TILE_COLUMNS = KERNEL_TILE_COLUMNS,
    ALIGN_FLOATS = 16,
    MOST_VECTORS = 4,
    MOST_SUMS = 12,
    FETCH_ROWS = 8 /* that loads and stores of rows look ahead */
};

#if defined(__GNUC__)
#define KERNEL_INLINE static inline __attribute__((always_inline))
#define KERNEL_APART static __attribute__((noinline))
#if defined(__clang__)
#define KERNEL_UNROLL_4 _Pragma("clang loop unroll_count(4)")
#else
#define KERNEL_UNROLL_4 _Pragma("GCC unroll 4")
#endif
#define KERNEL_FETCH(address, is_write, locality) __builtin_prefetch(address, is_write, locality)
#else
#define KERNEL_INLINE static inline
#define KERNEL_APART static
#define KERNEL_UNROLL_4
#define KERNEL_FETCH(address, is_write, locality) ((void)(address))
#endif

/* ---- scratch --------------------------------------------------------------------------------- */

static inline int64_t padded(int64_t count)
{
    return (count + ALIGN_FLOATS - 1) / ALIGN_FLOATS * ALIGN_FLOATS;
}

static inline float *take(float **free_floats, int64_t count)
{
    float *const taken = *free_floats;
    *free_floats += padded(count);
    return taken;
}

/* Pitch of a buffer that holds any row of the problem, or a tile's width of a bias row. */
static inline int64_t longest_row(int64_t head_dim, int64_t head_dim_v)
{
    return padded(tess_max_i64(tess_max_i64(head_dim, head_dim_v), TILE_COLUMNS));
}

/* ---- the user's rows, in and out ------------------------------------------------------------- */

/* `count` elements of a row as fp32. Reads nothing past the last of them: tensors may end at the
 * end of a mapping. */
static inline void widen(const char *base, int64_t index, int64_t stride, int64_t count,
                         int32_t dtype, float *out)
{
    int64_t d = 0;

    if (stride == 1 && dtype == TESS_F32) {
        for (; d + VEC_LANES <= count; d += VEC_LANES)
            vec_store(out + d, vec_load((const float *)(const void *)(base + (index + d) * 4)));
    } else if (stride == 1 && dtype == TESS_F16) {
        for (; d + VEC_LANES <= count; d += VEC_LANES)
            vec_store(out + d, vec_load_f16(base + (index + d) * 2));
    } else if (stride == 1) {
        for (; d + VEC_LANES <= count; d += VEC_LANES)
            vec_store(out + d, vec_load_bf16(base + (index + d) * 2));
    }
    for (; d < count; d++)
        out[d] = tess_cpu_load(base, index + d * stride, dtype);
}

/* How a row is asked for: to be read soon, to be read after much else, to be written. */
enum fetch { FETCH_READ, FETCH_NEAR, FETCH_WRITE };

/* Asks for a row that is read, or written, a few rows later. In the usual layouts the rows of one
 * head are a query apart, a distance that the hardware does not foresee. */
KERNEL_INLINE void fetch(const char *base, int64_t index, int64_t stride, int64_t count,
                         int32_t dtype, const enum fetch how)
{
    const int64_t size = tess_cpu_element_size(dtype);
    const char *const row = base + index * size;

    if (stride != 1)
        return;
    for (int64_t byte = 0; byte < count * size; byte += 64) {
        if (how == FETCH_WRITE)
            KERNEL_FETCH(row + byte, 1, 3);
        else if (how == FETCH_NEAR)
            KERNEL_FETCH(row + byte, 0, 2);
        else
            KERNEL_FETCH(row + byte, 0, 3);
    }
}

/* The other way, for results. */
static inline void narrow(char *base, int64_t index, int64_t count, int32_t dtype, const float *in)
{
    int64_t d = 0;

    if (dtype == TESS_F32) {
        for (; d + VEC_LANES <= count; d += VEC_LANES)
            vec_store((float *)(void *)(base + (index + d) * 4), vec_load(in + d));
    } else if (dtype == TESS_F16) {
        for (; d + VEC_LANES <= count; d += VEC_LANES)
            vec_store_f16(base + (index + d) * 2, vec_load(in + d));
    } else {
        for (; d + VEC_LANES <= count; d += VEC_LANES)
            vec_store_bf16(base + (index + d) * 2, vec_load(in + d));
    }
    for (; d < count; d++)
        tess_cpu_store(base, index + d, dtype, in[d]);
}

/* Where the rows of a panel lie in a tensor, and which of their elements are wanted. */
struct view {
    const char *base;
    tess_i64 query_stride, head_stride; /* in elements */
    tess_i64 stride;                    /* from one element to the next */
    int64_t count;                      /* elements of each row */
    int32_t dtype;
};

/* The folded rows first ... end - 1 in `count` lanes; lanes past the end repeat the last row. Found
 * once per panel: a division per row and use was a tenth of a tile's time. */
struct row_at {
    int64_t query, head;
};

static inline void locate_rows(int64_t first, int64_t end, int64_t group, int count,
                               struct row_at *rows)
{
    struct row_at at = {tess_walk_query(first, group), tess_walk_head(first, group)};

    for (int i = 0; i < count; i++) {
        rows[i] = at;
        if (first + i + 1 >= end)
            continue;
        at.head++;
        if (at.head == group) {
            at.head = 0;
            at.query++;
        }
    }
}

/* Index of a row's first element. */
static inline int64_t view_index(struct view view, struct row_at at)
{
    return at.query * view.query_stride + at.head * view.head_stride;
}

/* The same, of a tensor laid out as Q. */
static inline int64_t row_index(const tess_i64 stride[4], struct row_at at)
{
    return at.query * stride[1] + at.head * stride[2];
}

/* A finished row, to the user's tensors or to the partial results of a split, without the first
 * `done` elements: those are where they belong. */
static inline void put_result(const tess_cpu_work *work, struct row_at at, int64_t folded_row,
                              const float *o, float lse, int64_t done)
{
    const tess_args *args = work->args;

    if (work->splits > 1 || args->o_stride[3] != 1) {
        tess_cpu_put_row(work, folded_row, o, lse);
        return;
    }
    narrow(work->o, row_index(args->o_stride, at) + done, args->head_dim_v - done, args->o_dtype,
           o + done);
    if (work->lse)
        work->lse[at.query * args->lse_stride[1] + at.head * args->lse_stride[2]] = lse;
}

/* out[element * out_pitch + lane] = factor * element of a vector of rows. */
static inline void transpose_rows(const float *row, int64_t count, float factor, float *out,
                                  int64_t out_pitch)
{
    const int64_t pitch = padded(count);

    for (int64_t d = 0; d < count; d += VEC_LANES) {
        vec block[VEC_LANES];
        for (int lane = 0; lane < VEC_LANES; lane++)
            block[lane] = vec_load(row + lane * pitch + d);
        vec_transpose(block);
        for (int i = 0; i < VEC_LANES && d + i < count; i++)
            vec_store(out + (d + i) * out_pitch, vec_mul(block[i], vec_set(factor)));
    }
}

/* out[element][row] = factor * element of row, for all rows of a panel. Rows are copied first even
 * where they could be used as they are: read one after another they stream in, read side by side
 * they do not (-5 % on short problems). */
static inline void transpose_in(struct view view, const struct row_at *rows, int vectors,
                                float factor, float *row, float *out)
{
    const int64_t pitch = padded(view.count);
    const struct row_at *const last = rows + vectors * VEC_LANES - 1;

    for (int v = 0; v < vectors; v++, rows += VEC_LANES) {
        for (int lane = 0; lane < VEC_LANES; lane++) {
            const struct row_at *const at = rows + lane;
            const struct row_at ahead = last - at < FETCH_ROWS ? *last : at[FETCH_ROWS];
            fetch(view.base, view_index(view, ahead), view.stride, view.count, view.dtype,
                  FETCH_READ);
            widen(view.base, view_index(view, *at), view.stride, view.count, view.dtype,
                  row + lane * pitch);
        }
        transpose_rows(row, view.count, factor, out + v * VEC_LANES, vectors * VEC_LANES);
    }
}

/* ---- what happens to scores besides scaling -------------------------------------------------- */

/* Scores come in units of log2. Without a hook the whole factor scale * log2(e) goes into Q, its
 * sign included, so negative and zero scales are nothing special. With one, Q takes the scale and
 * the hook ends with log2(e). A scale so far from 1 that Q times it could leave the range of fp32
 * is left to the hook as well, and Q takes only its sign. */
struct hook {
    bool is_needed, has_slopes, has_bias;
    float query_factor;
    float scale; /* of the score, in the hook; 1 when Q has it */
    float softcap, softcap_inverse;
};

static inline struct hook make_hook(const tess_cpu_work *work)
{
    const float scale = work->args->scale, size = tess_abs(scale);
    const bool is_extreme = !(size >= 0x1p-40f && size <= 0x1p40f) && scale != 0.0f;
    struct hook hook = {0};

    hook.softcap = work->args->softcap;
    hook.softcap_inverse = tess_max(0x1p-126f, hook.softcap);
    hook.softcap_inverse = 1.0f / hook.softcap_inverse;
    hook.has_slopes = work->slopes != NULL;
    hook.has_bias = work->bias != NULL;
    hook.is_needed = hook.softcap > 0.0f || hook.has_slopes || hook.has_bias || is_extreme;
    hook.scale = is_extreme ? size : 1.0f;
    hook.query_factor = is_extreme ? (scale < 0.0f ? -1.0f : 1.0f) : scale;
    if (!hook.is_needed)
        hook.query_factor *= TESS_LOG2_E;
    return hook;
}

/* tanh with at most 3 ulp of error. Near 0 an odd polynomial of degree 11, fitted on [0, 0.625]
 * (relative error 5e-9 before rounding); beyond it 1 - 2 / (e^2x + 1), whose difference has lost
 * its cancellation. At 10 it is 1 already; stopping there keeps the exponential in range. */
static inline vec hyperbolic_tangent(vec x)
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

struct hooked {
    vec score;     /* natural units */
    vec cap_slope; /* derivative of the softcap; the forward pass does not ask */
};

/* Everything between Q K^T and the softmax but masks, in this order; score programs belong behind
 * the bias. */
KERNEL_INLINE struct hooked hook_score(const struct hook *hook, vec dot, vec slope, vec distance,
                                       vec bias)
{
    struct hooked s = {vec_mul(dot, vec_set(hook->scale)), vec_set(1.0f)};

    if (hook->softcap > 0.0f) {
        const vec capped = hyperbolic_tangent(vec_mul(s.score, vec_set(hook->softcap_inverse)));
        s.score = vec_mul(vec_set(hook->softcap), capped);
        s.cap_slope = vec_sub(s.cap_slope, vec_mul(capped, capped));
    }
    if (hook->has_slopes)
        s.score = vec_sub(s.score, vec_mul(slope, vec_abs(distance)));
    if (hook->has_bias)
        s.score = vec_add(s.score, bias);
    return s;
}

/* tess_os_score(): what is finite stays finite, since masks are often made of a type's most
 * negative number. */
static inline vec in_log2(vec natural)
{
    const vec most = vec_set(TESS_MAX_F32);
    const vec score = vec_mul(natural, vec_set(TESS_LOG2_E));
    const vec_mask is_finite = vec_less(vec_abs(natural), vec_set(-TESS_NEG_INF));
    const vec within = vec_min(vec_max(score, vec_sub(vec_set(0.0f), most)), most);

    return vec_select(is_finite, within, score);
}

/* Of one vector of rows: ALiBi's slope of each, and its distance i + D - j from a column. */
static inline void load_slopes(const tess_cpu_work *work, const struct row_at *rows, int64_t column,
                               float slope[VEC_LANES], float distance[VEC_LANES])
{
    for (int lane = 0; lane < VEC_LANES; lane++) {
        slope[lane] = work->slopes[rows[lane].head * work->args->slope_stride[1]];
        distance[lane] = (float)(rows[lane].query + work->visible.diagonal - column);
    }
}

/* bias[column][row] of a panel against `count` columns. */
static inline void load_bias(const tess_cpu_work *work, const struct row_at *rows, int vectors,
                             int64_t column, int count, float *row, float *bias)
{
    const tess_args *args = work->args;
    const int64_t size = tess_cpu_element_size(args->bias_dtype);
    const struct view view = {
        work->bias + column * args->bias_stride[3] * size,
        args->bias_stride[2],
        args->bias_stride[1],
        args->bias_stride[3],
        count,
        args->bias_dtype,
    };
    transpose_in(view, rows, vectors, 1.0f, row, bias);
}

/* The interval of columns that a row sees. */
struct seen {
    int64_t first, end;
};

static inline struct seen find_seen(const tess_cpu_work *work, struct row_at at)
{
    return (struct seen){tess_visible_first(work->visible, at.query),
                         tess_visible_end(work->visible, at.query)};
}

/* The intervals of one vector of rows, counted from a tile's first column. As floats they compare
 * with a column's number in every lane at once. */
static inline void load_seen(const struct seen *seen, int64_t column, float first[VEC_LANES],
                             float end[VEC_LANES])
{
    for (int lane = 0; lane < VEC_LANES; lane++) {
        const int64_t from = seen[lane].first - column, to = seen[lane].end - column;
        first[lane] = (float)(int32_t)tess_max_i64(tess_min_i64(from, TILE_COLUMNS), 0);
        end[lane] = (float)(int32_t)tess_max_i64(tess_min_i64(to, TILE_COLUMNS), 0);
    }
}

KERNEL_INLINE vec_mask is_seen(vec first, vec end, int column)
{
    const vec at = vec_set((float)column + 0.5f);
    return vec_both(vec_less(first, at), vec_less(at, end));
}

/* ---- the products ---------------------------------------------------------------------------- */

/* score[key * pitch + row] = sum over d of key[d] * query[d * rows + row], for `keys` columns: keys
 * x vectors sums in registers, one pass over d. */
KERNEL_INLINE void multiply_keys(const float *query, int64_t rows, const float *const *key,
                                 int64_t head_dim, float *score, int64_t pitch, const int vectors,
                                 const int keys)
{
    vec sum[MOST_SUMS][MOST_VECTORS];

    for (int i = 0; i < keys; i++)
        for (int v = 0; v < vectors; v++)
            sum[i][v] = vec_set(0.0f);
    KERNEL_UNROLL_4
    for (int64_t d = 0; d < head_dim; d++, query += rows) {
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
            vec_store(score + i * pitch + v * VEC_LANES, sum[i][v]);
}

/* The same, without the vectors of rows that see none of these columns. Rows see more columns the
 * further down they are, so that only leading vectors are left out: `ends` says how many columns of
 * the tile each of them sees, `column` is where these keys start in it. */
KERNEL_INLINE void multiply_keys_seen(const float *query, int64_t rows, const float *const *key,
                                      int64_t head_dim, float *score, int64_t pitch,
                                      const int *ends, int column, const int vectors,
                                      const int keys)
{
    if (vectors > 3 && column >= ends[2])
        multiply_keys(query + 3 * VEC_LANES, rows, key, head_dim, score + 3 * VEC_LANES, pitch,
                      vectors - 3, keys);
    else if (vectors > 2 && column >= ends[1])
        multiply_keys(query + 2 * VEC_LANES, rows, key, head_dim, score + 2 * VEC_LANES, pitch,
                      vectors - 2, keys);
    else if (vectors > 1 && column >= ends[0])
        multiply_keys(query + VEC_LANES, rows, key, head_dim, score + VEC_LANES, pitch, vectors - 1,
                      keys);
    else
        multiply_keys(query, rows, key, head_dim, score, pitch, vectors, keys);
}

/* sum[dim][vector] += value[column][dim] * weight[column][vector] over the columns first ... end -
 * 1, for the vectors from `skip` on. */
KERNEL_INLINE void add_values(vec sum[MOST_SUMS][MOST_VECTORS], const float *weight, int64_t pitch,
                              const float *const *value, int64_t dim, int first, int end,
                              const int skip, const int vectors, const int dims)
{
    weight += first * pitch;
    KERNEL_UNROLL_4
    for (int j = first; j < end; j++, weight += pitch) {
        const float *const at = value[j] + dim;
        vec w[MOST_VECTORS];
        for (int v = skip; v < vectors; v++)
            w[v] = vec_load(weight + v * VEC_LANES);
        for (int i = 0; i < dims; i++) {
            const vec x = vec_broadcast(at + i);
            for (int v = skip; v < vectors; v++)
                sum[i][v] = vec_fma(x, w[v], sum[i][v]);
        }
    }
}

/* output[dim][row] += sum over a tile's columns of value[column][dim] * weight[column * pitch +
 * row], for `dims` dims from `dim` on. The tile is summed by itself first: the error of a long row
 * then grows with the number of tiles, not of columns.
 *
 * ends        columns that each vector of rows sees
 * is_stepped  whether they differ */
KERNEL_INLINE void multiply_values(const float *weight, int64_t pitch, const float *const *value,
                                   const int *ends, int64_t dim, float *output, const int vectors,
                                   const int dims, const int is_stepped)
{
    vec sum[MOST_SUMS][MOST_VECTORS];

    for (int i = 0; i < dims; i++)
        for (int v = 0; v < vectors; v++)
            sum[i][v] = vec_set(0.0f);
    add_values(sum, weight, pitch, value, dim, 0, ends[0], 0, vectors, dims);
    if (is_stepped && vectors > 1)
        add_values(sum, weight, pitch, value, dim, ends[0], ends[1], 1, vectors, dims);
    if (is_stepped && vectors > 2)
        add_values(sum, weight, pitch, value, dim, ends[1], ends[2], 2, vectors, dims);
    if (is_stepped && vectors > 3)
        add_values(sum, weight, pitch, value, dim, ends[2], ends[3], 3, vectors, dims);
    output += dim * vectors * VEC_LANES;
    for (int i = 0; i < dims; i++)
        for (int v = 0; v < vectors; v++) {
            float *const at = output + (i * vectors + v) * VEC_LANES;
            vec_store(at, vec_add(sum[i][v], vec_load(at)));
        }
}

#endif
