/* SPDX-License-Identifier: Apache-2.0
 * Where samples lie: pure functions, so that tests can hold them to known answers. */
#ifndef TESSERA_BENCH_SPREAD_H
#define TESSERA_BENCH_SPREAD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Where samples lie. All zero when there are none. */
typedef struct tess_spread {
    double least, p10, median, p90, most;
    int64_t count;
} tess_spread;

/* The sample below which `share` of them lie, between neighbours by linear interpolation; sorted
 * ascending, count at least 1, share from 0 to 1. */
double tess_spread_at(const double *sorted, size_t count, double share);

/* Sorts a copy; samples that are not finite and positive are left out, for they were not measured.
 * False, and *out all zero, when memory runs out. */
bool tess_spread_of(const double *samples, size_t count, tess_spread *out);

/* The spread of numerator[i] / denominator[i]: samples of one round are compared with each other
 * only. */
bool tess_spread_of_ratios(const double *numerator, const double *denominator, size_t count,
                           tess_spread *out);

/* The spread of amount / x for samples x that lie as given: the least becomes the most. */
tess_spread tess_spread_under(double amount, const tess_spread *spread);

#endif
