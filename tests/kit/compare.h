/* SPDX-License-Identifier: Apache-2.0
 * How far a result may be from the truth, and whether it is. The one home of every tolerance. */
#ifndef TESSERA_TESTS_KIT_COMPARE_H
#define TESSERA_TESTS_KIT_COMPARE_H

#include "tests/kit/case.h"
#include "tests/kit/oracle.h"

/* Budget of one element type of the inputs: an element may be off by
 *
 *     a * scale + r * |expected| + score * magnitude * scale + floor
 *
 * scale      largest |V| that the row admits (gradients: largest magnitude before cancellation)
 * magnitude  largest size of a score of the row before cancellation (gradients: and of any LSE)
 * floor      below the least number of the types involved, where nothing can be resolved
 *
 * a and r stand for rounding the weights and the result to the storage type, and for fp32 sums:
 * a few times the storage type's last place. `score` is what fp32 resolves of a score: a dot of
 * products that cancel has lost what its parts had, as 4.5 standard deviations of a sum of d
 * roundings come to 2^-23 of the parts' absolute sum at any d. LSE gets the same term. Over a
 * whole tensor, the largest error may be `naive` times that of naive attention in the storage type,
 * plus `ulps` last places of the storage type, plus the score term. */
typedef struct tess_budget {
    tess_dtype dtype;
    double a, r, score;
    double lse_a, lse_r;
    double naive, naive_gradient, ulps; /* naive 0: not compared */
} tess_budget;

const tess_budget *tess_budget_of(tess_dtype dtype, uint32_t flags);

/* Where the worst element is and what it holds. */
typedef struct tess_worst {
    const char *tensor;
    int64_t sequence, row, head, dim;
    double got, expected, allowed;
    double share; /* error over allowed; above 1: wrong. Infinity where NaN or Inf do not match */
} tess_worst;

/* What a comparison found. */
typedef struct tess_comparison {
    bool is_good;
    tess_worst o, lse;     /* of a backward pass o is the worst element of any gradient */
    int64_t wrong;         /* elements outside their budget, or written or unwritten wrongly */
    int64_t elements;      /* compared */
    double error;          /* largest absolute error of O, or of the gradient next below */
    double naive_error;    /* that of naive attention, where it was computed; of the gradient that
                              comes nearest to what it allows */
    double relative_share; /* error over what naive attention allows */
} tess_comparison;

/* Compares the outputs in host memory with the oracle's: values, where NaN and infinities are,
 * which elements were written, that the others still hold their pattern, that inputs are what they
 * were.
 *
 * wants_lse  LSE was asked for; else it must be untouched
 * text       receives what is wrong, several lines; nothing when all is good */
tess_comparison tess_compare_forward(const tess_case *c, const tess_oracle *oracle, bool wants_lse,
                                     tess_text *text);

/* The same for gradients. Elements that get nothing must be 0; NaN and infinities must be where the
 * oracle has any, though one may stand for another: where a weight vanishes in fp32 but not in
 * float64, a product with an infinity is NaN. */
tess_comparison tess_compare_backward(const tess_case *c, const tess_oracle_gradients *gradients,
                                      tess_text *text);

/* Whether two images of an output hold the same bits; names the first difference. */
bool tess_compare_bits(const tess_case *c, int which, const char *before, const char *what,
                       tess_text *text);

#endif
