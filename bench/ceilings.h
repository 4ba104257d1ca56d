/* SPDX-License-Identifier: Apache-2.0
 * All ceilings of the machine at once: the roof of a roofline, without any problem under it. */
#ifndef TESSERA_BENCH_CEILINGS_H
#define TESSERA_BENCH_CEILINGS_H

#include "bench/spread.h"

enum { TESS_CEILINGS_MEMORY = 24 };

/* Bandwidth of buffers of one size. */
typedef struct tess_ceiling {
    size_t bytes;           /* of all threads together, each with its own part */
    tess_spread read, copy; /* bytes per second */
} tess_ceiling;

typedef struct tess_ceilings {
    const char *isa;
    int threads;
    tess_spread flops;      /* fp32 multiply-adds, per second */
    double flops_per_cycle; /* of one core; 0: unknown */
    tess_spread clock_ghz;
    tess_ceiling memory[TESS_CEILINGS_MEMORY]; /* from caches to main memory */
    size_t memory_count;
    bool is_realtime;
} tess_ceilings;

/* Read bandwidth of each level of memory that the machine admits to have: a buffer that fits it and
 * no smaller one. */
enum { TESS_LEVELS = 4 };

typedef struct tess_level {
    const char *name; /* "L1", "L2", "L3", "memory" */
    size_t bytes;     /* of all threads together, each with its own part */
    tess_spread read; /* bytes per second */
} tess_level;

typedef struct tess_levels {
    tess_level level[TESS_LEVELS];
    size_t count;
    int threads;
} tess_levels;

/* Measures them in turn for about a fifth of a second; arguments as below. */
bool tess_levels_measure(int threads, const char *isa, tess_levels *out);

/* Measures them in turn, round after round.
 *
 * threads  of this CPU, at least 1
 * isa      as in peak.h; NULL: the best here
 * seconds  about how long; 0: 1. At least 5 rounds are made
 *
 * False when memory runs out. */
bool tess_ceilings_measure(int threads, const char *isa, double seconds, tess_ceilings *out);

#endif
