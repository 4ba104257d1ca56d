/* SPDX-License-Identifier: Apache-2.0
 * Storage types to double and back, written apart from the library's own conversions. */
#ifndef TESSERA_TESTS_KIT_NUMBER_H
#define TESSERA_TESTS_KIT_NUMBER_H

#include <stdbool.h>
#include <stdint.h>
#include <tessera/base.h>

/* The value of a bit pattern; exact. */
double tess_number_decode(tess_dtype dtype, uint32_t bits);

/* The nearest value, ties to even, subnormals kept. What is too large becomes infinite, except in
 * e4m3, which has no infinity and takes its largest value, 448; a NaN or an e4m3 infinity becomes
 * the canonical NaN. */
uint32_t tess_number_encode(tess_dtype dtype, double value);

/* decode(encode(value)). */
double tess_number_round(tess_dtype dtype, double value);

/* One element in memory, of any alignment; the index types are integers. */
double tess_number_load(tess_dtype dtype, const void *element);
void tess_number_store(tess_dtype dtype, void *element, double value);
uint32_t tess_number_bits(tess_dtype dtype, const void *element);
void tess_number_set_bits(tess_dtype dtype, void *element, uint32_t bits);

/* Distance between 1 and the next value above; the smallest value above 0; the largest one. */
double tess_number_ulp(tess_dtype dtype);
double tess_number_least(tess_dtype dtype);
double tess_number_most(tess_dtype dtype);

/* Patterns that are no result of arithmetic: what outputs hold before a run (a signalling NaN where
 * the type has one), and what lies in storage that nobody may use. `which` picks among quiet NaN,
 * signalling NaN and the infinities. */
uint32_t tess_number_prefill(tess_dtype dtype);
uint32_t tess_number_poison(tess_dtype dtype, unsigned which);

#endif
