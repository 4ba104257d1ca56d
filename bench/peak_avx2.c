/* SPDX-License-Identifier: Apache-2.0
 * Ceilings with AVX2 and FMA. */
#include <immintrin.h>

#define ISA avx2
#define lane __m256
#define word __m256i
#define SET(x) _mm256_set1_ps(x)
#define FMA(a, b, c) _mm256_fmadd_ps(a, b, c)
#define LOAD(p) _mm256_load_si256((const __m256i *)(const void *)(p))
#define STORE(p, w) _mm256_store_si256((__m256i *)(void *)(p), w)
#define OR(a, b) _mm256_or_si256(a, b)
/* 16 registers; two units with a latency of 4 or 5 cycles need 10. */
#define CHAINS(E) E(0) E(1) E(2) E(3) E(4) E(5) E(6) E(7) E(8) E(9) E(10) E(11)

#include "bench/peak_body.h"
