/* SPDX-License-Identifier: Apache-2.0
 * What is in the tensors of a test: distributions by name, the same bits on every machine. */
#ifndef TESSERA_TESTS_KIT_FILL_H
#define TESSERA_TESTS_KIT_FILL_H

#include "core/schedule/problem_text.h"

/* Names, as fill= takes them:
 *
 *     normal      bell-shaped, variance 1
 *     uniform     between -1 and 1
 *     ones        V is 1, so O is 1
 *     equal       every score is 0 and V holds small integers: the mean, exactly
 *     dominate    one column's score is 150 above the others: O is that row of V, exactly
 *     ascending   scores rise with the column: a new maximum in every tile
 *     descending  scores fall with the column: never a new maximum
 *     huge        scores of hundreds up to hundreds of thousands
 *     spike       normal with one outlier in each of Q, K and V
 *     subnormal   V, or everything, below the least normal number
 *     nan, inf    one of them in one element that counts
 *     zero        all zero
 *     grid        multiples of 1/8 between -2 and 2: dots and shifts are exact
 *     holes       normal; the bias holds -infinity here and there and for whole rows
 */
enum {
    TESS_FILL_NORMAL,
    TESS_FILL_UNIFORM,
    TESS_FILL_ONES,
    TESS_FILL_EQUAL,
    TESS_FILL_DOMINATE,
    TESS_FILL_ASCENDING,
    TESS_FILL_DESCENDING,
    TESS_FILL_HUGE,
    TESS_FILL_SPIKE,
    TESS_FILL_SUBNORMAL,
    TESS_FILL_NAN,
    TESS_FILL_INF,
    TESS_FILL_ZERO,
    TESS_FILL_GRID,
    TESS_FILL_HOLES,
    TESS_FILL_COUNT
};

/* The tensors that are filled. */
enum {
    TESS_FILLED_Q,
    TESS_FILLED_K,
    TESS_FILLED_V,
    TESS_FILLED_BIAS,
    TESS_FILLED_SLOPES,
    TESS_FILLED_SINK,
    TESS_FILLED_D_O,
    TESS_FILLED_D_LSE
};

/* An element, by what it is and not by where it lies: every layout of a problem holds the same
 * numbers. Bias: row i, column j in `dim`. */
typedef struct tess_place {
    int64_t sequence, head, row, dim;
} tess_place;

typedef struct tess_fill {
    const tess_line *line;
    int kind;
    uint64_t seed;
    double root;      /* of head_dim: what the default scale divides by */
    double amplitude; /* huge */
    bool on_keys;     /* a choice between the two ways a fill has */
    int special_tensor;
    tess_place special;    /* where the NaN, infinity or outlier is */
    tess_place outlier[3]; /* of Q, K, V */
} tess_fill;

const char *tess_fill_name(int kind); /* NULL past the last */

/* False when the line's fill= is no name; `why` then lists the names. */
bool tess_fill_make(const tess_line *line, tess_fill *out, tess_text *why);

/* The same numbers for tensors of many elements: most of the time goes into rounding, and the
 * normal fill has few different values. A table of them for Q, K, V or dO in a storage type; NULL
 * when the fill is another. The caller frees it. */
uint32_t *tess_fill_table(const tess_fill *fill, tess_dtype dtype);

/* The bits of `count` elements of a row from `place` on. */
void tess_fill_bits(const tess_fill *fill, const uint32_t *table, int tensor, tess_place place,
                    int64_t count, uint32_t *out_bits);

/* The value of one element, not yet rounded to the storage type. */
double tess_fill_value(const tess_fill *fill, int tensor, tess_place place);

#endif
