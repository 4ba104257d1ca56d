/* SPDX-License-Identifier: Apache-2.0
 * Ceilings with AVX-512. */
#include <immintrin.h>

#define ISA avx512
#define lane __m512
#define word __m512i
#define SET(x) _mm512_set1_ps(x)
#define FMA(a, b, c) _mm512_fmadd_ps(a, b, c)
#define LOAD(p) _mm512_load_si512((const void *)(p))
#define STORE(p, w) _mm512_store_si512((void *)(p), w)
#define OR(a, b) _mm512_or_si512(a, b)
/* 32 registers; two units with a latency of 4 cycles need 8. */
#define CHAINS(E) \
    E(0) E(1) E(2) E(3) E(4) E(5) E(6) E(7) E(8) E(9) E(10) E(11) E(12) E(13) E(14) E(15)

#include "bench/peak_body.h"
