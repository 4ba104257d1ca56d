/* SPDX-License-Identifier: Apache-2.0
 * Ceilings with Advanced SIMD of AArch64. */
#include <arm_neon.h>

#define ISA neon
#define lane float32x4_t
#define word uint32x4_t
#define SET(x) vdupq_n_f32(x)
#define FMA(a, b, c) vfmaq_f32(c, a, b)
#define LOAD(p) vld1q_u32((const uint32_t *)(const void *)(p))
#define STORE(p, w) vst1q_u32((uint32_t *)(void *)(p), w)
#define OR(a, b) vorrq_u32(a, b)
/* 32 registers; four units with a latency of 4 cycles need 16. */
#define CHAINS(E) \
    E(0)          \
    E(1)          \
    E(2)          \
    E(3) E(4) E(5) E(6) E(7) E(8) E(9) E(10) E(11) E(12) E(13) E(14) E(15) E(16) E(17) E(18) E(19)

#include "bench/peak_body.h"
