/* SPDX-License-Identifier: Apache-2.0
 * Ceilings with what the compiler makes of vectors for its base instruction set. There is no fused
 * multiply-add in plain x86-64; a product and a sum count two flops all the same. */
#include <stdint.h>

typedef float lane __attribute__((vector_size(16)));
typedef uint32_t word __attribute__((vector_size(16)));

#define ISA portable
#define SET(x) ((lane){(x), (x), (x), (x)})
#define FMA(a, b, c) ((a) * (b) + (c))
#define LOAD(p) (*(const word *)(const void *)(p))
#define STORE(p, w) (*(word *)(void *)(p) = (w))
#define OR(a, b) ((a) | (b))
/* 16 registers on x86-64, where product and sum add their latencies. */
#define CHAINS(E) E(0) E(1) E(2) E(3) E(4) E(5) E(6) E(7) E(8) E(9) E(10) E(11) E(12)

#include "bench/peak_body.h"
