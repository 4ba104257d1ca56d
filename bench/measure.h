/* SPDX-License-Identifier: Apache-2.0
 * Timing on machines that are not quiet: short windows, candidates in turn, ratios per round. */
#ifndef TESSERA_BENCH_MEASURE_H
#define TESSERA_BENCH_MEASURE_H

#include "bench/spread.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Something that can be timed against others. */
typedef struct tess_measure_candidate {
    const char *name;

    /* Does it `times` times, waits until all are done and writes the seconds they took. False stops
     * the measurement. */
    bool (*run)(void *user, int64_t times, double *out_seconds);
    void *user;

    /* Its ceilings at this very moment, measured in a few milliseconds: flops per second, bytes
     * per second. NULL: none. They are measured on both sides of every window, and
     * the larger reading counts, for a ceiling is what the machine can do. */
    double (*peak_flops)(void *user);
    double (*peak_bytes)(void *user);
} tess_measure_candidate;

typedef struct tess_measure_options {
    double seconds;        /* for everything, warm-up included. 0: 1 per candidate */
    double window_seconds; /* one candidate's share of a round. 0: 0.005. At least one run */
    int64_t rounds;        /* 0: as many as `seconds` holds, at least 5, at most 1000 */
    int threads;           /* of this CPU that candidates use: their clock counts. 0: no clock */
    bool is_cold;          /* flush the caches before every run; a window is then one run */
    bool no_realtime;      /* do not ask for real-time priority */

    /* Asked between rounds; false ends the measurement early, with the rounds that there are. NULL:
     * never. */
    bool (*proceed)(void *user, int64_t round, int64_t rounds);
    void *user;
} tess_measure_options;

/* What one candidate did. Seconds and cycles are those of one run, averaged over its window. */
typedef struct tess_measured {
    tess_spread seconds;
    tess_spread cycles;     /* seconds times the clock beside the window; none without a clock */
    tess_spread clock_ghz;  /* the larger of the readings on both sides */
    tess_spread speedup;    /* seconds of the first candidate over its own, same round */
    tess_spread peak_flops; /* per second */
    tess_spread peak_bytes; /* per second */
    tess_spread possible_flops; /* seconds * peak_flops, same round: what a run leaves room for */
    tess_spread possible_bytes; /* the same for bytes */
    int64_t runs_per_window;
    bool is_realtime; /* windows ran with real-time priority */
} tess_measured;

/* Warms up, then goes round by round: every candidate once in each, in an order that rotates, its
 * ceilings and the clock beside it. Results of one call may be compared with each other; results of
 * two calls may not.
 *
 * out  one for each candidate
 *
 * False when a candidate failed or memory ran out; *out is then all zero. */
bool tess_measure(const tess_measure_candidate *candidates, size_t count,
                  const tess_measure_options *options, tess_measured *out);

/* Asks for real-time priority for this thread and its OpenMP team, or gives it back. False when
 * that is not permitted or would be dangerous: with more threads than cores they could starve each
 * other. */
bool tess_measure_realtime(int threads, bool is_wanted);

#endif
