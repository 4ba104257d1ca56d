/* SPDX-License-Identifier: Apache-2.0
 * The decode kernels: few rows against many columns, at the speed at which K and V arrive. */
#include TESS_VEC_HEADER

#include "backends/cpu/lanes.h"

#include <tessera/attention.h>

/* Compiled once per instruction set with TESS_VEC_HEADER and TESS_VEC.
 *
 * The map of the kernels of exact order (fwd_decode_*); those of dots (fwd_dots_*) differ in their
 * scores alone. All rows of a key head share one pass over its K and V, whose rows are read where
 * they lie, once, each as a whole. For scores a lane is a column, for the output it is a dim:
 *
 *     for each tile of columns in this item's share            locate: pointers to its rows of K, V
 *         score[row][column] = sum over d of k[column][d] * query[row][d]
 *             registers: VEC_LANES columns x VEC_LANES elements of K, turned on their way in, and
 *             a sum for each row and vector of columns; the query is broadcast
 *         the hook: softcap, ALiBi, bias                       only where a problem has them
 *         masks                                                only in tiles that need them
 *         maximum, shift, weight = 2^(score - shift), sum      one row at a time
 *         output[row][d] += sum over columns of weight[row][column] * v[column][d]
 *             registers: a sum for each row and vector of dims; the weight is broadcast
 *
 * While a row of this tile is used, the same row of the next one is asked for: rows of a head may
 * lie far apart, which no hardware foresees.
 *
 * Every sum runs in the same order as in the wide kernels (forward_tmpl.c): over d, over the column
 * within its tile on the same grid, over the columns' weights in 4 chains. So a row has the same
 * bits in a prompt and in a step of its own.
 *
 * The kernels of dots give that up where nobody asked for it (TESS_BATCH_INVARIANT): a score is a
 * sum of sums of every 16th element or so, which takes 2 shuffles per column where turning K takes
 * 32 (128 dims, AVX-512). With a cache in L3 they are 1.2 to 1.3 times as fast with one to four
 * rows; from five rows on multiply-adds bind and the others are as fast or faster. */

enum {
    MOST_ROWS = 16,
    /* What of K is turned at a time: a cache line of each row, so that no line is needed twice.
     * Rows a power of two apart, as those of a head among others are, share a set of the cache. */
    LINE_WORDS = 16,
    MOST_CHUNK = 8,    /* rows at a time, */
    MOST_TURNED = 12,  /* with so many vectors of columns for scores, */
    MOST_GATHERED = 8, /* and of dims for the output */
    /* In the kernels of dots: most rows, and columns at a time. */
    DOT_ROWS = 4,
    DOT_COLUMNS = VEC_LANES < 8 ? 8 : VEC_LANES
};

/* Rows of K or V. The first `whole` elements of each are used where they lie; the others, which do
 * not fill vectors or are not next to each other, are copied as fp32. */
struct operand {
    const char *base;
    const tess_i64 *stride;
    int64_t dims, whole;
    int32_t dtype;
    float *copy; /* [TILE_COLUMNS][pitch], zeros behind the elements */
    int64_t pitch;
    const char *copied[TILE_COLUMNS]; /* its rows */
};

/* A row against the whole share. */
struct row {
    struct row_at at;
    struct seen seen; /* of this share */
    float shift, sum; /* the recurrence of core/portable/online_softmax.h */
};

struct tile {
    int64_t first; /* column */
    int count;     /* columns of it that exist and are wanted; behind them the last is repeated */
    const char *k[TILE_COLUMNS], *v[TILE_COLUMNS];
};

struct state {
    const tess_cpu_work *work;
    struct hook hook;
    struct operand k, v;
    int count;                         /* rows */
    int64_t query_pitch, output_pitch; /* floats from row to row */
    float *query, *output;             /* [MOST_ROWS][pitch], zeros behind the elements */
    float *score;                      /* [MOST_ROWS][TILE_COLUMNS]; the weights afterwards */
    float *bias;                       /* [TILE_COLUMNS] of one row */
    float *turned;                     /* [2 * LINE_WORDS][TILE_COLUMNS]: a line of each row of K */
    bool has_dots;                     /* scores are dot products along the rows: */
    float *packed;                     /* the query, parts of all rows side by side */
    float *wide;                       /* [DOT_COLUMNS][row_pitch()]: rows of K as fp32 */
    float *dots;                       /* [TILE_COLUMNS][dot_rows()]; of one row, `score` */
    struct row row[MOST_ROWS];
};

/* ---- scratch --------------------------------------------------------------------------------- */

/* A row of `whole` elements and `padded` others. */
static int64_t row_pitch(int64_t dims)
{
    return padded(dims) + ALIGN_FLOATS;
}

static size_t scratch_size(int64_t head_dim, int64_t head_dim_v)
{
    const int64_t rows = MOST_ROWS * (row_pitch(head_dim) + row_pitch(head_dim_v) + TILE_COLUMNS);
    const int64_t copies = TILE_COLUMNS * (padded(head_dim) + padded(head_dim_v));
    const int64_t dots = (DOT_ROWS + DOT_COLUMNS) * row_pitch(head_dim) +
                         padded(TILE_COLUMNS * DOT_ROWS + VEC_LANES);
    return (size_t)(rows + (1 + 2 * LINE_WORDS) * TILE_COLUMNS + dots + copies) * sizeof(float);
}

static void clear(float *values, int64_t count)
{
    for (int64_t i = 0; i < count; i++)
        values[i] = 0.0f;
}

static void lay_operand(struct operand *operand, const char *base, const tess_i64 *stride,
                        int64_t dims, int32_t dtype, int64_t step, float **free_floats)
{
    operand->base = base;
    operand->stride = stride;
    operand->dims = dims;
    operand->whole = stride[3] == 1 ? dims - dims % step : 0;
    operand->dtype = dtype;
    operand->pitch = padded(dims - operand->whole);
    operand->copy = take(free_floats, TILE_COLUMNS * padded(dims));
    clear(operand->copy, TILE_COLUMNS * operand->pitch);
    for (int j = 0; j < TILE_COLUMNS; j++)
        operand->copied[j] = (const char *)(operand->copy + j * operand->pitch);
}

static void lay_scratch(struct state *state)
{
    const tess_cpu_work *work = state->work;
    const tess_args *args = work->args;
    float *free_floats = work->scratch;

    state->query_pitch = row_pitch(args->head_dim);
    state->output_pitch = row_pitch(args->head_dim_v);
    state->query = take(&free_floats, MOST_ROWS * state->query_pitch);
    state->output = take(&free_floats, MOST_ROWS * state->output_pitch);
    state->score = take(&free_floats, MOST_ROWS * TILE_COLUMNS);
    state->bias = take(&free_floats, TILE_COLUMNS);
    state->turned = take(&free_floats, 2 * LINE_WORDS * TILE_COLUMNS);
    state->packed = take(&free_floats, DOT_ROWS * row_pitch(args->head_dim));
    state->wide = take(&free_floats, DOT_COLUMNS * row_pitch(args->head_dim));
    state->dots = take(&free_floats, TILE_COLUMNS * DOT_ROWS + VEC_LANES);
    if (work->tile.end - work->tile.first == 1)
        state->dots = state->score;
    /* Elements of K are turned by the 4 bytes, or multiplied by the line of fp32. */
    lay_operand(&state->k, work->k, args->k_stride, args->head_dim, args->dtype,
                state->has_dots           ? tess_max_i64(LINE_WORDS, 2 * VEC_LANES)
                : args->dtype == TESS_F32 ? VEC_LANES
                                          : 2 * VEC_LANES,
                &free_floats);
    lay_operand(&state->v, work->v, args->v_stride, args->head_dim_v, args->dtype,
                args->dtype == TESS_BF16 ? 2 * VEC_LANES : VEC_LANES, &free_floats);
}

/* ---- a tile's rows of K and V ---------------------------------------------------------------- */

static void locate_columns(const tess_cpu_work *work, const struct operand *operand,
                           const struct tile *tile, const char **row)
{
    const int64_t size = tess_cpu_element_size(operand->dtype);
    const int64_t step = operand->stride[1] * size;
    int j = 0;

    if (!work->pages) {
        const char *at = operand->base + tile->first * step;
        for (; j < tile->count; j++, at += step)
            row[j] = at;
    } else {
        /* A division per column would show. */
        const int64_t page_size = work->args->page_size;
        int64_t page = tile->first / page_size, slot = tile->first % page_size;
        for (; j < tile->count; page++, slot = 0) {
            const char *const at = operand->base + work->pages[page] * operand->stride[0] * size;
            for (; slot < page_size && j < tile->count; slot++, j++)
                row[j] = at + slot * step;
        }
    }
    for (; j < TILE_COLUMNS; j++)
        row[j] = row[j - 1];
}

static void locate_tile(const struct state *state, int64_t first, int64_t end, struct tile *tile)
{
    tile->first = first;
    tile->count = (int)tess_min_i64(TILE_COLUMNS, end - first);
    locate_columns(state->work, &state->k, tile, tile->k);
    locate_columns(state->work, &state->v, tile, tile->v);
}

static void copy_rest(const struct operand *operand, const char *const *row, int count)
{
    if (operand->whole == operand->dims)
        return;
    for (int j = 0; j < count; j++)
        /* NOLINTNEXTLINE(clang-analyzer-core.CallAndMessage): locate_columns() filled every row */
        widen(row[j], operand->whole * operand->stride[3], operand->stride[3],
              operand->dims - operand->whole, operand->dtype, operand->copy + j * operand->pitch);
}

/* ---- scores ---------------------------------------------------------------------------------- */

/* turned[element][column] = element of the column's row, of `words` times 4 bytes at `at`. */
KERNEL_INLINE void turn_type(const char *const *row, const char *const *next, int64_t at, int words,
                             int count, float *turned, const int32_t dtype)
{
    for (int j = 0; j < count; j += VEC_LANES) {
        for (int i = 0; i < VEC_LANES; i++)
            KERNEL_FETCH(next[j + i] + at, 0, 2);
        for (int w = 0; w < words; w += VEC_LANES) {
            vec word[VEC_LANES];
            for (int i = 0; i < VEC_LANES; i++)
                word[i] = vec_load_words(row[j + i] + at + w * 4);
            vec_transpose(word);
            for (int i = 0; i < VEC_LANES; i++) {
                float *const to = turned + (w + i) * TILE_COLUMNS * (dtype == TESS_F32 ? 1 : 2) + j;
                vec first = word[i], second;
                if (dtype == TESS_F16)
                    vec_split_f16(word[i], &first, &second);
                else if (dtype == TESS_BF16)
                    vec_split_bf16(word[i], &first, &second);
                vec_store(to, first);
                if (dtype != TESS_F32)
                    vec_store(to + TILE_COLUMNS, second);
            }
        }
    }
}

KERNEL_APART void turn(const char *const *row, const char *const *next, int64_t at, int words,
                       int count, float *turned, int32_t dtype)
{
    if (dtype == TESS_F32)
        turn_type(row, next, at, words, count, turned, TESS_F32);
    else if (dtype == TESS_F16)
        turn_type(row, next, at, words, count, turned, TESS_F16);
    else
        turn_type(row, next, at, words, count, turned, TESS_BF16);
}

/* score[row][column] += sum over `dims` elements, for `rows` rows and `vectors` vectors of columns
 * at a time. */
KERNEL_INLINE void multiply_turned(const float *query, int64_t pitch, const float *turned,
                                   int64_t dims, float *score, const int rows, const int vectors)
{
    for (int j = 0; j < TILE_COLUMNS; j += vectors * VEC_LANES) {
        vec sum[MOST_CHUNK][MOST_TURNED];

        for (int r = 0; r < rows; r++)
            for (int x = 0; x < vectors; x++)
                sum[r][x] = vec_load(score + r * TILE_COLUMNS + j + x * VEC_LANES);
        KERNEL_UNROLL_4
        for (int64_t d = 0; d < dims; d++) {
            const float *const at = turned + d * TILE_COLUMNS + j;
            vec k[MOST_TURNED];
            for (int x = 0; x < vectors; x++)
                k[x] = vec_load(at + x * VEC_LANES);
            for (int r = 0; r < rows; r++) {
                const vec q = vec_broadcast(query + r * pitch + d);
                for (int x = 0; x < vectors; x++)
                    sum[r][x] = vec_fma(k[x], q, sum[r][x]);
            }
        }
        for (int r = 0; r < rows; r++)
            for (int x = 0; x < vectors; x++)
                vec_store(score + r * TILE_COLUMNS + j + x * VEC_LANES, sum[r][x]);
    }
}

/* `vectors` vectors of elements. Those of bf16 come in pairs of vectors, the even elements and the
 * odd ones: that is a shift and a mask, where their own order would take a shuffle more. */
KERNEL_INLINE void load_elements(const char *at, vec *out, const int32_t dtype, const int vectors)
{
    for (int x = 0; x < vectors; x++) {
        if (dtype == TESS_F32)
            out[x] = vec_load_words(at + x * VEC_LANES * 4);
        else if (dtype == TESS_F16)
            out[x] = vec_load_f16(at + x * VEC_LANES * 2);
        else if (x % 2 == 0)
            vec_split_bf16(vec_load_words(at + x * VEC_LANES * 2), out + x, out + x + 1);
    }
}

/* ---- scores as dot products ------------------------------------------------------------------ */

/* The lanes of a vector are `rows` rows of VEC_LANES / rows dims each: a part of a row of K is
 * loaded once for all of them, and the query is packed like that. Each column has one sum;
 * neighbours are added at the end, until there is one number for each row and column. */

/* Rows as they are computed: 1, 2 or 4. */
static int dot_rows(int count)
{
    return count > 2 ? 4 : count;
}

/* Floats of a packed row: what is read in place, and the others. */
static int64_t packed_pitch(const struct operand *k)
{
    return k->whole + k->pitch;
}

/* Rows of K come as their storage has them: pairs of bf16 are split into vectors of the even and of
 * the odd elements. */
static int64_t stored_dim(const struct operand *k, int64_t at)
{
    const int64_t inside = at % (2 * VEC_LANES);

    if (k->dtype != TESS_BF16 || at >= k->whole)
        return at;
    return at - inside + inside % VEC_LANES * 2 + inside / VEC_LANES;
}

static void pack_query(struct state *state)
{
    const struct operand *const k = &state->k;
    const int rows = dot_rows(state->count), part = VEC_LANES / rows;

    for (int r = 0; r < rows; r++)
        for (int64_t d = 0; d < packed_pitch(k); d++) {
            const int64_t dim = stored_dim(k, d);
            const bool is_there = r < state->count && dim < k->dims;
            state->packed[(d / part * rows + r) * part + d % part] =
                is_there ? state->query[r * state->query_pitch + dim] : 0.0f;
        }
}

/* Adds `dims` dims of DOT_COLUMNS columns to their sums; `next` has the rows that are asked for
 * meanwhile, or is null. */
KERNEL_INLINE void add_dots(const float *query, const float *const *key, const char *const *next,
                            int64_t dims, vec sum[DOT_COLUMNS], const int rows)
{
    const int part = VEC_LANES / rows;

    for (int64_t d = 0; d < dims; d += LINE_WORDS) {
        if (next)
            for (int i = 0; i < DOT_COLUMNS; i++)
                KERNEL_FETCH(next[i] + d * 4, 0, 2);
        for (int x = 0; x < LINE_WORDS; x += part, query += VEC_LANES) {
            const vec q = vec_load(query);
            for (int i = 0; i < DOT_COLUMNS; i++)
                sum[i] = vec_fma(vec_repeat(key[i] + d + x, rows), q, sum[i]);
        }
    }
}

/* dots[column][row] of DOT_COLUMNS columns from `column` of the tile on. */
KERNEL_INLINE void dot_columns(const struct state *state, const float *const *key,
                               const char *const *next, int column, float *dots, const int rows)
{
    const struct operand *const k = &state->k;
    const float *rest[DOT_COLUMNS];
    vec sum[DOT_COLUMNS];
    int count = DOT_COLUMNS;

    for (int i = 0; i < DOT_COLUMNS; i++)
        sum[i] = vec_set(0.0f);
    if (next)
        add_dots(state->packed, key, next, k->whole, sum, rows);
    else
        add_dots(state->packed, key, NULL, k->whole, sum, rows);
    if (k->pitch) {
        for (int i = 0; i < DOT_COLUMNS; i++)
            rest[i] = k->copy + (column + i) * k->pitch;
        add_dots(state->packed + k->whole * rows, rest, NULL, k->pitch, sum, rows);
    }
    for (int width = rows; width < VEC_LANES; width *= 2) {
        count /= 2;
        for (int i = 0; i < count; i++)
            sum[i] = vec_fold(sum[2 * i], sum[2 * i + 1]);
    }
    for (int i = 0; i < count; i++)
        vec_store(dots + i * VEC_LANES, sum[i]);
}

/* For a constant number of rows. */
#define DOTS(rows)                                                                   \
    KERNEL_APART void dot_##rows(const struct state *state, const float *const *key, \
                                 const char *const *next, int column)                \
    {                                                                                \
        dot_columns(state, key, next, column, state->dots + column * (rows), rows);  \
    }

DOTS(1)
DOTS(2)
DOTS(4)

/* Rows of 16-bit elements as fp32, in the order of stored_dim(). */
KERNEL_INLINE void widen_type(const struct state *state, const char *const *row,
                              const char *const *next, const int32_t dtype)
{
    for (int i = 0; i < DOT_COLUMNS; i++) {
        float *const to = state->wide + i * row_pitch(state->k.dims);
        for (int64_t d = 0; d < state->k.whole; d += 2 * VEC_LANES) {
            vec pair[2];
            KERNEL_FETCH(next[i] + d * 2, 0, 2);
            load_elements(row[i] + d * 2, pair, dtype, 2);
            vec_store(to + d, pair[0]);
            vec_store(to + d + VEC_LANES, pair[1]);
        }
    }
}

KERNEL_APART void widen_columns(const struct state *state, const char *const *row,
                                const char *const *next)
{
    if (state->k.dtype == TESS_F16)
        widen_type(state, row, next, TESS_F16);
    else
        widen_type(state, row, next, TESS_BF16);
}

/* score[row][column] of dots[column][row]. */
static void turn_dots(const struct state *state, int rows)
{
    for (int j = 0; j < TILE_COLUMNS; j += VEC_LANES) {
        vec column[VEC_LANES];
        for (int i = 0; i < VEC_LANES; i++)
            column[i] = vec_load(state->dots + (j + i) * rows);
        vec_transpose(column);
        for (int i = 0; i < rows; i++)
            vec_store(state->score + i * TILE_COLUMNS + j, column[i]);
    }
}

static void dot_tile(struct state *state, const struct tile *tile, const struct tile *next)
{
    const bool is_fp32 = state->k.dtype == TESS_F32;
    const int rows = dot_rows(state->count);

    for (int j = 0; j < tile->count; j += DOT_COLUMNS) {
        const char *const *const ahead = is_fp32 ? next->k + j : NULL;
        const float *key[DOT_COLUMNS];
        for (int i = 0; i < DOT_COLUMNS; i++)
            key[i] = is_fp32 ? (const float *)(const void *)tile->k[j + i]
                             : state->wide + i * row_pitch(state->k.dims);
        if (!is_fp32)
            widen_columns(state, tile->k + j, next->k + j);
        if (rows == 1)
            dot_1(state, key, ahead, j);
        else if (rows == 2)
            dot_2(state, key, ahead, j);
        else
            dot_4(state, key, ahead, j);
    }
    if (rows > 1)
        turn_dots(state, rows);
}

/* ---- the output ------------------------------------------------------------------------------ */

/* The order of such pairs made that of the dims. */
static void merge_pairs(float *values, int64_t count)
{
    for (int64_t d = 0; d < count; d += 2 * VEC_LANES) {
        float pair[2 * VEC_LANES];
        memcpy(pair, values + d, sizeof pair);
        for (int i = 0; i < VEC_LANES; i++) {
            values[d + 2 * i] = pair[i];
            values[d + 2 * i + 1] = pair[VEC_LANES + i];
        }
    }
}

/* output[row][dim] += sum over columns, for `vectors` vectors of dims. The tile is summed by itself
 * first: the error of a long row then grows with the number of tiles, not of columns. */
KERNEL_INLINE void gather_dims(const float *weight, const char *const *value,
                               const char *const *next, int64_t at, int count, float *output,
                               int64_t pitch, const int32_t dtype, const int rows,
                               const int vectors)
{
    const int64_t step = VEC_LANES * (dtype == TESS_F32 ? 4 : 2);
    vec sum[MOST_CHUNK][MOST_GATHERED];

    for (int r = 0; r < rows; r++)
        for (int x = 0; x < vectors; x++)
            sum[r][x] = vec_set(0.0f);
    for (int j = 0; j < count; j++) {
        vec v[MOST_GATHERED];
        for (int64_t byte = 0; byte < vectors * step; byte += 64)
            KERNEL_FETCH(next[j] + at + byte, 0, 2);
        load_elements(value[j] + at, v, dtype, vectors);
        for (int r = 0; r < rows; r++) {
            const vec w = vec_broadcast(weight + r * TILE_COLUMNS + j);
            for (int x = 0; x < vectors; x++)
                sum[r][x] = vec_fma(v[x], w, sum[r][x]);
        }
    }
    for (int r = 0; r < rows; r++)
        for (int x = 0; x < vectors; x++) {
            float *const to = output + r * pitch + x * VEC_LANES;
            vec_store(to, vec_add(sum[r][x], vec_load(to)));
        }
}

/* All whole groups of `vectors` vectors of dims from d on; returns the first dim behind them. */
KERNEL_INLINE int64_t gather_groups(const struct state *state, const struct tile *tile,
                                    const struct tile *next, int row, int64_t d,
                                    const int32_t dtype, const int rows, const int vectors)
{
    const int64_t size = dtype == TESS_F32 ? 4 : 2;

    for (; d + vectors * VEC_LANES <= state->v.whole; d += vectors * VEC_LANES)
        gather_dims(state->score + row * TILE_COLUMNS, tile->v, next->v, d * size, tile->count,
                    state->output + row * state->output_pitch + d, state->output_pitch, dtype, rows,
                    vectors);
    return d;
}

KERNEL_INLINE void gather_type(const struct state *state, const struct tile *tile,
                               const struct tile *next, int row, const int32_t dtype,
                               const int rows, const int vectors)
{
    const struct operand *const v = &state->v;
    int64_t d = 0;

    if (vectors >= 8)
        d = gather_groups(state, tile, next, row, d, dtype, rows, 8);
    if (vectors >= 4)
        d = gather_groups(state, tile, next, row, d, dtype, rows, 4);
    d = gather_groups(state, tile, next, row, d, dtype, rows, 2);
    if (dtype != TESS_BF16)
        d = gather_groups(state, tile, next, row, d, dtype, rows, 1);
    for (; d < v->dims; d += VEC_LANES)
        gather_dims(state->score + row * TILE_COLUMNS, v->copied, v->copied, (d - v->whole) * 4,
                    tile->count, state->output + row * state->output_pitch + d, state->output_pitch,
                    TESS_F32, rows, 1);
}

/* ---- numbers of rows ------------------------------------------------------------------------- */

/* The two products for a constant number of rows. */
#define PRODUCTS(rows, score_vectors, gather_vectors)                                        \
    KERNEL_APART void score_##rows(const struct state *state, int row, int64_t first,        \
                                   int64_t dims)                                             \
    {                                                                                        \
        multiply_turned(state->query + row * state->query_pitch + first, state->query_pitch, \
                        state->turned, dims, state->score + row * TILE_COLUMNS, rows,        \
                        score_vectors);                                                      \
    }                                                                                        \
    KERNEL_APART void gather_##rows(const struct state *state, const struct tile *tile,      \
                                    const struct tile *next, int row)                        \
    {                                                                                        \
        if (state->v.dtype == TESS_F32)                                                      \
            gather_type(state, tile, next, row, TESS_F32, rows, gather_vectors);             \
        else if (state->v.dtype == TESS_F16)                                                 \
            gather_type(state, tile, next, row, TESS_F16, rows, gather_vectors);             \
        else                                                                                 \
            gather_type(state, tile, next, row, TESS_BF16, rows, gather_vectors);            \
    }

PRODUCTS(1, VEC_DECODE_TURNED, 8)
PRODUCTS(2, VEC_DECODE_TURNED, VEC_DECODE_ROWS > 4 ? 8 : 4)
PRODUCTS(4, 3, VEC_DECODE_ROWS > 4 ? 4 : 2)
PRODUCTS(6, 3, 4)
PRODUCTS(8, 3, 2)

/* Rows that are computed at once. Up to one more than there are is computed for nothing: another
 * pass over the tile would cost more. */
struct chunk {
    int rows;
    void (*score)(const struct state *state, int row, int64_t first, int64_t dims);
    void (*gather)(const struct state *state, const struct tile *tile, const struct tile *next,
                   int row);
};

static struct chunk chunk_of(int rows)
{
    if (VEC_DECODE_ROWS > 4 && rows > 6)
        return (struct chunk){8, score_8, gather_8};
    if (VEC_DECODE_ROWS > 4 && rows > 4)
        return (struct chunk){6, score_6, gather_6};
    if (rows > 2)
        return (struct chunk){4, score_4, gather_4};
    if (rows > 1)
        return (struct chunk){2, score_2, gather_2};
    return (struct chunk){1, score_1, gather_1};
}

/* All rows against the elements first ... first + dims - 1, which are turned. */
static void score_rows(const struct state *state, int64_t first, int64_t dims)
{
    for (int r = 0; r < state->count;) {
        const struct chunk chunk = chunk_of(state->count - r);
        chunk.score(state, r, first, dims);
        r += chunk.rows;
    }
}

static void score_tile(const struct state *state, const struct tile *tile, const struct tile *next)
{
    const struct operand *const k = &state->k;
    const int64_t per_word = k->dtype == TESS_F32 ? 1 : 2, step = LINE_WORDS * per_word;

    clear(state->score, MOST_ROWS * TILE_COLUMNS);
    for (int64_t d = 0; d < k->whole; d += step) {
        const int64_t dims = tess_min_i64(step, k->whole - d);
        turn(tile->k, next->k, d * 4 / per_word, (int)(dims / per_word), tile->count, state->turned,
             k->dtype);
        score_rows(state, d, dims);
    }
    for (int64_t d = k->whole; d < k->dims; d += LINE_WORDS) {
        const int64_t dims = tess_min_i64(LINE_WORDS, k->dims - d);
        turn(k->copied, k->copied, (d - k->whole) * 4, (int)dims, tile->count, state->turned,
             TESS_F32);
        score_rows(state, d, dims);
    }
}

static void gather_tile(const struct state *state, const struct tile *tile, const struct tile *next)
{
    for (int r = 0; r < state->count;) {
        const struct chunk chunk = chunk_of(state->count - r);
        chunk.gather(state, tile, next, r);
        r += chunk.rows;
    }
}

/* ---- between the products -------------------------------------------------------------------- */

/* A number for each column of a tile. */
static const float numbers[TILE_COLUMNS] = {
    0,  1,  2,  3,  4,  5,  6,  7,  8,  9,  10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23,
    24, 25, 26, 27, 28, 29, 30, 31, 32, 33, 34, 35, 36, 37, 38, 39, 40, 41, 42, 43, 44, 45, 46, 47};

static void hook_row(const struct state *state, const struct tile *tile, struct row_at at,
                     float *score)
{
    const tess_cpu_work *work = state->work;
    const tess_args *args = work->args;
    const vec distance = vec_set((float)(at.query + work->visible.diagonal - tile->first));
    const vec slope = vec_set(work->slopes ? work->slopes[at.head * args->slope_stride[1]] : 0.0f);

    if (work->bias)
        widen(work->bias,
              at.head * args->bias_stride[1] + at.query * args->bias_stride[2] +
                  tile->first * args->bias_stride[3],
              args->bias_stride[3], tile->count, args->bias_dtype, state->bias);
    for (int j = 0; j < tile->count; j += VEC_LANES) {
        const struct hooked hooked =
            hook_score(&state->hook, vec_load(score + j), slope,
                       vec_sub(distance, vec_load(numbers + j)), vec_load(state->bias + j));
        vec_store(score + j, in_log2(hooked.score));
    }
}

/* Scores of columns that the row does not see, or that do not exist, become -inf: selected, never
 * added, so that nothing an absent column holds survives. */
static void hide_absent(const struct tile *tile, struct seen seen, float *score)
{
    const int64_t end = tess_min_i64(seen.end, tile->first + tile->count);
    const vec from =
        vec_set((float)tess_max_i64(tess_min_i64(seen.first - tile->first, TILE_COLUMNS), 0));
    const vec to = vec_set((float)tess_max_i64(end - tile->first, 0));

    for (int j = 0; j < TILE_COLUMNS; j += VEC_LANES) {
        const vec at = vec_add(vec_load(numbers + j), vec_set(0.5f));
        const vec_mask is_seen = vec_both(vec_less(from, at), vec_less(at, to));
        vec_store(score + j, vec_select(is_seen, vec_load(score + j), vec_set(TESS_NEG_INF)));
    }
}

/* Makes a row's scores weights, as tess_os_admit() and tess_os_advance() do. */
static void admit_row(struct row *row, float *score, float *output, int64_t dims)
{
    vec max = vec_load(score);
    float part[4] = {0};

    for (int j = VEC_LANES; j < TILE_COLUMNS; j += VEC_LANES)
        max = vec_max(max, vec_load(score + j));
    const float largest = vec_largest(max);
    if (row->shift + TESS_OS_LAG < largest) {
        float rescale[VEC_LANES];
        const vec factor = vec_exp2(vec_set(row->shift - largest));
        for (int64_t d = 0; d < dims; d += VEC_LANES)
            vec_store(output + d, vec_mul(factor, vec_load(output + d)));
        vec_store(rescale, factor);
        row->sum *= rescale[0];
        row->shift = largest;
    }

    const vec shift = vec_set(tess_os_shift(row->shift));
    for (int j = 0; j < TILE_COLUMNS; j += VEC_LANES)
        vec_store(score + j, vec_exp2(vec_sub(vec_load(score + j), shift)));
    for (int j = 0; j < TILE_COLUMNS; j += 4)
        for (int i = 0; i < 4; i++)
            part[i] += score[j + i];
    row->sum += (part[0] + part[1]) + (part[2] + part[3]);
}

static void weigh_row(struct state *state, const struct tile *tile, int r)
{
    struct row *const row = &state->row[r];
    float *const score = state->score + r * TILE_COLUMNS;

    if (state->hook.is_needed)
        hook_row(state, tile, row->at, score);
    if (row->seen.first > tile->first || row->seen.end < tile->first + TILE_COLUMNS)
        hide_absent(tile, row->seen, score);
    admit_row(row, score, state->output + r * state->output_pitch, state->v.dims);
}

static void add_tile(struct state *state, const struct tile *tile, const struct tile *next)
{
    copy_rest(&state->k, tile->k, tile->count);
    copy_rest(&state->v, tile->v, tile->count);
    if (state->has_dots)
        dot_tile(state, tile, next);
    else
        score_tile(state, tile, next);
    for (int r = 0; r < state->count; r++)
        weigh_row(state, tile, r);
    gather_tile(state, tile, next);
}

/* ---- the way in and out ---------------------------------------------------------------------- */

static void load_query(struct state *state, int r)
{
    const tess_args *args = state->work->args;
    const struct row_at at = state->row[r].at;
    float *const query = state->query + r * state->query_pitch;

    widen(state->work->q, at.query * args->q_stride[1] + at.head * args->q_stride[2],
          args->q_stride[3], args->head_dim, args->dtype, query);
    for (int64_t d = 0; d < args->head_dim; d++)
        query[d] *= state->hook.query_factor;
}

static void start(struct state *state, tess_column_walk walk)
{
    const tess_cpu_work *work = state->work;
    const int64_t tile_columns = work->args->tile_columns;
    struct row_at at[MOST_ROWS];

    state->hook = make_hook(work);
    state->count = (int)(work->tile.end - work->tile.first);
    lay_scratch(state);
    clear(state->query, (state->count + 1) * state->query_pitch);
    clear(state->output, (state->count + 1) * state->output_pitch);
    clear(state->bias, TILE_COLUMNS);
    locate_rows(work->tile.first, work->tile.end, work->args->group, MOST_ROWS, at);
    for (int r = 0; r < state->count; r++) {
        const struct seen seen = find_seen(work, at[r]);
        state->row[r] = (struct row){
            .at = at[r],
            .seen = {tess_max_i64(seen.first, walk.first * tile_columns),
                     tess_min_i64(seen.end, walk.end * tile_columns)},
            .shift = TESS_NEG_INF,
        };
        load_query(state, r);
    }
    if (state->has_dots)
        pack_query(state);
}

/* Divides by the sum and writes the row, or recomputes it if it came out non-finite: what an absent
 * column holds reaches a row only as 0 * Inf or 0 * NaN, never unseen. */
static void finish_row(const struct state *state, int r)
{
    const tess_cpu_work *work = state->work;
    const struct row *const row = &state->row[r];
    float *const output = state->output + r * state->output_pitch;
    tess_os_row end = {row->shift, row->sum};
    float rescale = 1.0f, faults[VEC_LANES], all = 0.0f;

    if (work->sink) {
        const tess_os_sunk sunk =
            tess_os_sink(end, work->sink[row->at.head * work->args->sink_stride]);
        rescale = sunk.rescale;
        end = sunk.row;
    }
    const vec factor = vec_set(rescale * tess_os_inverse(end.sum));
    vec fault = vec_mul(vec_set(row->sum), vec_set(0.0f));
    for (int64_t d = 0; d < state->v.dims; d += VEC_LANES) {
        const vec o = vec_mul(vec_load(output + d), factor);
        fault = vec_fma(o, vec_set(0.0f), fault);
        vec_store(output + d, o);
    }
    vec_store(faults, fault);
    for (int i = 0; i < VEC_LANES; i++)
        all += faults[i];
    if (state->v.dtype == TESS_BF16)
        merge_pairs(output, state->v.whole);
    if (all != 0.0f && !(work->args->flags & TESS_ALLOW_NONFINITE_SPREAD))
        tess_cpu_forward_row(work, work->tile.first + r, output);
    else
        put_result(work, row->at, work->tile.first + r, output, tess_os_lse(end), 0);
}

static void decode(const tess_cpu_work *work, bool has_dots)
{
    const tess_column_walk walk = tess_cpu_columns(work);
    struct state state = {.work = work, .has_dots = has_dots};
    struct tile tiles[2];
    int64_t end, column;

    start(&state, walk);
    end = state.row[state.count - 1].seen.end;
    column = state.row[0].seen.first / TILE_COLUMNS * TILE_COLUMNS;
    if (column < end)
        locate_tile(&state, column, end, &tiles[0]);
    for (int now = 0; column < end; now = !now, column += TILE_COLUMNS) {
        const bool is_last = column + TILE_COLUMNS >= end;
        if (!is_last)
            locate_tile(&state, column + TILE_COLUMNS, end, &tiles[!now]);
        add_tile(&state, &tiles[now], &tiles[is_last ? now : !now]);
    }
    for (int r = 0; r < state.count; r++)
        finish_row(&state, r);
}

#define KERNEL_NAME(prefix, vec, suffix) prefix##vec##suffix
#define KERNEL(vec, suffix) KERNEL_NAME(tess_cpu_fwd_decode_, vec, suffix)

void KERNEL(TESS_VEC, )(const tess_cpu_work *work)
{
    decode(work, false);
}

void KERNEL(TESS_VEC, _dots)(const tess_cpu_work *work)
{
    decode(work, true);
}

size_t KERNEL(TESS_VEC, _scratch)(int64_t head_dim, int64_t head_dim_v)
{
    return scratch_size(head_dim, head_dim_v);
}
