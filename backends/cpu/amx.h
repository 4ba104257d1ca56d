/* SPDX-License-Identifier: Apache-2.0
 * What the two AMX kernels share: operands made of the user's rows, the 2 x 2 product, weights.
 */
#ifndef TESSERA_BACKENDS_CPU_AMX_H
#define TESSERA_BACKENDS_CPU_AMX_H

#define KERNEL_TILE_COLUMNS 64

#include "backends/cpu/vec_avx512.h"

#include "backends/cpu/lanes.h"
#include "backends/cpu/tile.h"

/* Scores are held transposed, S^T = K Q^T: a row of a tile is a column of the problem, and its 16
 * lanes are rows of the problem. So the softmax never works across lanes, K is a first operand just
 * as the user has it, and the weights become a second operand (pairs of columns next to each other)
 * by one shift and one merge.
 *
 * A panel is 32 folded rows, two tiles wide. Every product is made of blocks of 2 x 2 tiles of
 * sums, whose four tiles lie one after the other. */
enum {
    EDGE = 16,            /* rows of a tile, and its fp32 columns */
    PANEL = 2 * EDGE,     /* folded rows of a panel */
    PAIR = 32,            /* bf16 elements of a tile's row */
    HALVES = EDGE * PAIR, /* bf16 elements of a tile */
    SUMS = EDGE * EDGE,   /* fp32 elements of a tile */
    BLOCK = 4 * SUMS,     /* of a 2 x 2 block */
    MOST_DIM = 256
};

typedef uint16_t bf16;

static inline int64_t pairs_of(int64_t dims)
{
    return (dims + PAIR - 1) / PAIR;
}

/* ---- the user's rows ---------------------------------------------------------------------------
 */

/* What is read where there is no row. */
static const bf16 no_row[MOST_DIM] = {0};

/* A row with its elements next to each other: the user's own, or copied to *spare. */
static inline const bf16 *straighten(const char *base, int64_t index, int64_t stride, int64_t dims,
                                     bf16 **spare)
{
    const bf16 *const row = (const bf16 *)(const void *)base + index;
    bf16 *const copy = *spare;

    if (stride == 1)
        return row;
    for (int64_t d = 0; d < dims; d++)
        copy[d] = row[d * stride];
    *spare += MOST_DIM;
    return copy;
}

/* Rows of K or V in a tile of columns, of which `count` exist. */
static inline void find_columns(const tess_cpu_work *work, const char *base,
                                const tess_i64 stride[4], int64_t first, int64_t count,
                                int64_t dims, bf16 *spare, const bf16 *row[TILE_COLUMNS])
{
    for (int j = 0; j < TILE_COLUMNS; j++)
        row[j] = j < count ? straighten(base, tess_cpu_column(work, stride, first + j), stride[3],
                                        dims, &spare)
                           : no_row;
}

/* Folded rows of a panel in a tensor like Q; those past `count` are zero. */
static inline void find_rows(struct view view, const struct row_at *at, int64_t count, bf16 *spare,
                             const bf16 *row[PANEL])
{
    for (int i = 0; i < PANEL; i++)
        row[i] = i < count ? straighten(view.base, view_index(view, at[i]), view.stride, view.count,
                                        &spare)
                           : no_row;
}

/* ---- operands
 * ------------------------------------------------------------------------------------ */

/* Which of the elements d ... d + 31 exist. */
KERNEL_INLINE __mmask32 those_of(int64_t d, int64_t dims)
{
    return dims - d >= PAIR ? ~(__mmask32)0 : ((__mmask32)1 << (dims - d)) - (__mmask32)1;
}

/* Elements d ... d + 31 of a row, zeros behind the last; reads nothing there. */
KERNEL_INLINE __m512i load_pair(const bf16 *row, int64_t d, int64_t dims)
{
    return _mm512_maskz_loadu_epi16(those_of(d, dims), row + d);
}

KERNEL_INLINE void transpose_words(__m512i word[EDGE])
{
    vec lane[EDGE];

    for (int i = 0; i < EDGE; i++)
        lane[i] = _mm512_castsi512_ps(word[i]);
    vec_transpose(lane);
    for (int i = 0; i < EDGE; i++)
        word[i] = _mm512_castps_si512(lane[i]);
}

/* 16 rows as a first operand: tiles [dims / 32], `step` elements apart, of [row][32 dims]. */
static inline void lay_rows(const bf16 *const *row, int64_t dims, bf16 *tile, int64_t step)
{
    for (int64_t d = 0; d < dims; d += PAIR, tile += step)
        for (int i = 0; i < EDGE; i++)
            _mm512_store_si512(tile + i * PAIR, load_pair(row[i], d, dims));
}

/* 16 rows as a second operand that is summed over dims: tiles of [16 pairs of dims][row]. */
static inline void lay_dims(const bf16 *const *row, int64_t dims, bf16 *tile, int64_t step)
{
    for (int64_t d = 0; d < dims; d += PAIR, tile += step) {
        __m512i word[EDGE];
        for (int i = 0; i < EDGE; i++)
            word[i] = load_pair(row[i], d, dims);
        transpose_words(word);
        for (int i = 0; i < EDGE; i++)
            _mm512_store_si512(tile + i * PAIR, word[i]);
    }
}

/* Elements of two rows next to each other. Word w of `low` and `high` is of dim
 * 8 (w / 4) + w % 4, and 4 more. */
KERNEL_INLINE void pair_rows(const bf16 *even, const bf16 *odd, int64_t d, int64_t dims,
                             __m512i *low, __m512i *high)
{
    const __m512i a = load_pair(even, d, dims), b = load_pair(odd, d, dims);

    *low = _mm512_unpacklo_epi16(a, b);
    *high = _mm512_unpackhi_epi16(a, b);
}

/* 32 rows transposed, as a first operand that is summed over them: pairs of tiles of
 * [16 dims][32 rows], for each 32 dims. */
static inline void lay_across(const bf16 *const *row, int64_t dims, bf16 *tile)
{
    for (int64_t d = 0; d < dims; d += PAIR, tile += 2 * HALVES) {
        __m512i low[EDGE], high[EDGE];
        for (int i = 0; i < EDGE; i++)
            pair_rows(row[2 * i], row[2 * i + 1], d, dims, &low[i], &high[i]);
        transpose_words(low);
        transpose_words(high);
        for (int w = 0; w < EDGE; w++) {
            bf16 *const to = tile + (8 * (w / 4) + w % 4) * PAIR;
            _mm512_store_si512(to, low[w]);
            _mm512_store_si512(to + 4 * PAIR, high[w]);
        }
    }
}

/* 32 rows as a second operand that is summed over them: pairs of tiles of [16 pairs of rows][16
 * dims], for each 32 dims, `step` elements apart. */
static inline void lay_pairs(const bf16 *const *row, int64_t dims, bf16 *tile, int64_t step)
{
    const __m512i first = _mm512_set_epi64(11, 10, 3, 2, 9, 8, 1, 0);
    const __m512i second = _mm512_set_epi64(15, 14, 7, 6, 13, 12, 5, 4);

    for (int64_t d = 0; d < dims; d += PAIR, tile += step)
        for (int i = 0; i < EDGE; i++) {
            __m512i low, high;
            pair_rows(row[2 * i], row[2 * i + 1], d, dims, &low, &high);
            _mm512_store_si512(tile + i * PAIR, _mm512_permutex2var_epi64(low, first, high));
            _mm512_store_si512(tile + HALVES + i * PAIR,
                               _mm512_permutex2var_epi64(low, second, high));
        }
}

/* ---- products
 * ------------------------------------------------------------------------------------ */

/* A first operand of 32 rows: where it is and, in bytes, from a row to the next, from 32 summed
 * elements to the next, from the first 16 rows to the others. */
struct left {
    const char *at;
    int64_t row, step, other;
};

/* Done between the instructions of a product: `most` times at most. */
typedef void (*filler_fn)(void *user, int most);

static inline void fill_nothing(void *user, int most)
{
    (void)user;
    (void)most;
}

/* A block of sums: sum[2][2] (+)= left[2] right[2], over `steps` pairs of right tiles. A filler is
 * called after each instruction, `fill` times in all per step. */
KERNEL_INLINE void multiply(struct left left, const bf16 *right, int64_t steps, float *sum,
                            bool adds, filler_fn filler, void *user, const int fill)
{
    const char *at = left.at;

    if (adds) {
        tile_load(0, sum, 64);
        tile_load(1, sum + SUMS, 64);
        tile_load(2, sum + 2 * SUMS, 64);
        tile_load(3, sum + 3 * SUMS, 64);
    } else {
        tile_zero(0);
        tile_zero(1);
        tile_zero(2);
        tile_zero(3);
    }
    for (int64_t s = 0; s < steps; s++, at += left.step, right += 2 * HALVES) {
        tile_stream(4, at, left.row);
        tile_load(6, right, 64);
        tile_multiply(0, 4, 6);
        filler(user, fill / 4);
        tile_load(7, right + HALVES, 64);
        tile_multiply(1, 4, 7);
        filler(user, fill * 2 / 4 - fill / 4);
        tile_stream(5, at + left.other, left.row);
        tile_multiply(2, 5, 6);
        filler(user, fill * 3 / 4 - fill * 2 / 4);
        tile_multiply(3, 5, 7);
        filler(user, fill - fill * 3 / 4);
    }
    tile_store(0, sum, 64);
    tile_store(1, sum + SUMS, 64);
    tile_store(2, sum + 2 * SUMS, 64);
    tile_store(3, sum + 3 * SUMS, 64);
}

/* ---- weights
 * ------------------------------------------------------------------------------------- */

/* 2^x for a weight that becomes bf16: degree 4, relative error 3.4e-6, and exactly 1 at 0 and 2 at
 * 1, so that a score next to the shift has weight 1 from either side. Nothing is done about
 * results below the normal numbers: flush_subnormals() has. */
KERNEL_INLINE vec weight_of(vec x)
{
    const vec r = _mm512_reduce_ps(x, _MM_FROUND_TO_NEG_INF | _MM_FROUND_NO_EXC);
    vec p = vec_fma(r, vec_set(0x1.bc31dap-7f), vec_set(0x1.aa3fcap-5f));
    p = vec_fma(p, r, vec_set(0x1.ee5884p-3f));
    p = vec_fma(p, r, vec_set(0x1.62d51cp-1f));
    p = vec_fma(p, r, vec_set(1.0f));
    return _mm512_scalef_ps(p, x);
}

/* Both rounded to bf16, halves up, and laid next to each other. A weight that is NaN may come out
 * as anything: its sum tells. */
KERNEL_INLINE __m512i pair_weights(vec even, vec odd)
{
    const __m512i half = _mm512_set1_epi32(0x8000), upper = _mm512_set1_epi32((int)0xffff0000);
    const __m512i a = _mm512_add_epi32(_mm512_castps_si512(even), half);
    const __m512i b = _mm512_add_epi32(_mm512_castps_si512(odd), half);

    return _mm512_ternarylogic_epi32(_mm512_srli_epi32(a, 16), b, upper, 0xf8); /* a | (b & c) */
}

/* Both rounded to bf16, to nearest even: `a` in front of `b`. Subnormal numbers become 0. */
KERNEL_INLINE __m512i round_both(vec a, vec b)
{
    return (__m512i)_mm512_cvtne2ps_pbh(b, a);
}

/* The first `count` of the floats rounded to a row of the user's. The last whole 32 floats of `in`
 * are read even where fewer are wanted. */
static inline void round_row(bf16 *out, int64_t count, const float *in)
{
    for (int64_t d = 0; d < count; d += PAIR)
        _mm512_mask_storeu_epi16(out + d, those_of(d, count),
                                 round_both(vec_load(in + d), vec_load(in + d + VEC_LANES)));
}

/* A subnormal result costs some processors a hundred cycles, and tiles take it as 0 anyway.
 * Returns what restore_modes() takes. */
static inline unsigned flush_subnormals(void)
{
    const unsigned modes = _mm_getcsr();

    _mm_setcsr(modes | _MM_FLUSH_ZERO_ON);
    return modes;
}

static inline void restore_modes(unsigned modes)
{
    _mm_setcsr(modes);
}

/* Four bytes of a tile's memory are one fp32, eight a pair of bf16; scratch is handed out in fp32.
 */
static inline bf16 *take_halves(float **free_floats, int64_t count)
{
    return (bf16 *)(void *)take(free_floats, (count + 1) / 2);
}

#endif
