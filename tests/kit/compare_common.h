/* SPDX-License-Identifier: Apache-2.0
 * What comparing a forward result and comparing gradients share. */
#ifndef TESSERA_TESTS_KIT_COMPARE_COMMON_H
#define TESSERA_TESTS_KIT_COMPARE_COMMON_H

#include "tests/kit/compare.h"

/* State of one comparison. */
typedef struct tess_comparing {
    const tess_case *c;
    const tess_oracle *oracle;              /* of a forward pass */
    const tess_oracle_gradients *gradients; /* of a backward pass */
    const tess_budget *budget;
    tess_comparison result;
    double largest_scale, largest_score; /* over all rows: score * magnitude * scale */
    int64_t sequence, row;               /* being compared */
    int shown;
    tess_text *text;
} tess_comparing;

/* Counts a fault; whether there is room for a line about it, as long as there are few. */
bool tess_compare_may_show(tess_comparing *k);

/* Keeps the element at hand when none was worse. */
void tess_compare_note_worst(const tess_comparing *k, tess_worst *worst, const tess_worst *here);

/* Whether NaN and infinities may reach rows of their tile: the caller allowed it and they are in
 * the data. In storage that no row may use, which always holds some, they may not. */
bool tess_compare_may_spread(const tess_comparing *k);

/* Whether an element of an output still holds its pattern. */
bool tess_compare_is_unwritten(const tess_tensor *t, const char *element);

/* Marks elements that the library was to write, in an array of one byte per element of a buffer. */
typedef void (*tess_mark_fn)(const tess_comparing *k, const tess_tensor *t, unsigned char *written);

void tess_compare_mark(const tess_tensor *t, const char *element, unsigned char *written);

/* Those of a tensor of queries: all used rows. */
void tess_compare_mark_rows(const tess_comparing *k, const tess_tensor *t, unsigned char *written);

/* Faults where an output was written and mark, which may be NULL, does not say so: gaps between
 * strides, rows past the used length, outputs that were not wanted. */
void tess_compare_gaps(tess_comparing *k, int which, tess_mark_fn mark);

/* Faults where memory in front of a tensor, or an input, was overwritten. */
void tess_compare_surroundings(tess_comparing *k);

#endif
