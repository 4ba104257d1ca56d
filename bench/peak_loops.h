/* SPDX-License-Identifier: Apache-2.0
 * The loops behind the ceilings: one record for each instruction set. */
#ifndef TESSERA_BENCH_PEAK_LOOPS_H
#define TESSERA_BENCH_PEAK_LOOPS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct tess_peak_loops {
    const char *isa;
    double flops; /* of one round of fma() */

    /* Multiplies and adds in registers. What it returns means nothing but must be used. */
    float (*fma)(int64_t rounds);

    /* Reads a buffer; copies one. Aligned to 64 bytes, sizes a multiple of TESS_PEAK_BLOCK. */
    uint32_t (*read)(const void *from, size_t size);
    void (*copy)(void *to, const void *from, size_t size);
} tess_peak_loops;

enum { TESS_PEAK_BLOCK = 1024 };

/* Each exists where its file was compiled; meson.build says so with TESS_PEAK_AVX2 and so on. */
extern const tess_peak_loops tess_peak_loops_portable;
extern const tess_peak_loops tess_peak_loops_avx2;
extern const tess_peak_loops tess_peak_loops_avx512;
extern const tess_peak_loops tess_peak_loops_neon;
extern const tess_peak_loops tess_peak_loops_amx;

/* Whether this process may use tiles. */
bool tess_peak_amx_is_here(void);

#endif
