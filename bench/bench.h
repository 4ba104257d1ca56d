/* SPDX-License-Identifier: Apache-2.0
 * Benchmarks of problem lines: checked first, then timed against ceilings and against each other.
 */
#ifndef TESSERA_BENCH_BENCH_H
#define TESSERA_BENCH_BENCH_H

#include "bench/measure.h"
#include "core/schedule/problem_text.h"

#include <tessera/tessera.h>

enum { TESS_BENCH_CANDIDATES = 8 };

/* One way to compute the lines; all zero: the library as it is. Candidates are timed in turn within
 * one run, which is the only honest way to compare them. */
typedef struct tess_bench_candidate {
    const char *name;    /* what results call it; NULL: "A", "B", ... */
    const char *kernel;  /* pattern of kernel names, as TESSERA_KERNEL; NULL: any */
    const char *library; /* path of a libtessera.so of another build; NULL: this one */
    int32_t threads;     /* 0: as the device has; else on a context of its own */
} tess_bench_candidate;

typedef enum tess_bench_check {
    TESS_BENCH_UNCHECKED, /* not asked for */
    TESS_BENCH_CHECKED,   /* within its error budget */
    TESS_BENCH_WRONG      /* it is not; not timed */
} tess_bench_check;

/* One line done by one candidate. */
typedef struct tess_bench_result {
    const tess_line *line;  /* the caller's */
    tess_bench_check check; /* of this very problem and kernel, before anything was timed */
    double check_share;     /* largest error over what is allowed */
    int64_t check_rows;     /* rows of O compared; long problems are sampled */

    char candidate[64];
    char device[64];
    char description[128]; /* what the library says of it */
    char machine[96];      /* the processor's name; "" unless the device is this machine's cpu */
    char kernel[96];
    char isa[16]; /* of the ceilings; "" where there are none */
    int32_t threads;

    tess_status status; /* TESS_OK, or why there are no numbers; then `why` says it in words */
    char why[512];

    double flops, bytes;     /* of one run: admitted pairs; least traffic */
    double flops_per_second; /* of the median run, as bytes_per_second */
    double bytes_per_second;
    double flops_per_cycle;    /* one core's peak; 0: unknown */
    size_t peak_bytes_buffer;  /* bytes of the buffer whose reading is the bandwidth ceiling */
    tess_spread share_of_peak; /* of the fp32 FMA rate measured beside each window */
    tess_spread share_of_peak_per_cycle; /* flops / (cycles * flops per cycle * threads) */
    tess_spread share_of_bandwidth;      /* of the read bandwidth measured beside each window */
    tess_measured measured;
    bool is_cold;
} tess_bench_result;

/* Where a run stands; for progress bars. */
typedef struct tess_bench_progress {
    size_t line, lines; /* which of how many */
    const tess_line *problem;
    const char *stage;     /* "making", "checking", "timing" */
    int64_t round, rounds; /* of timing */
} tess_bench_progress;

typedef struct tess_bench_options {
    double seconds;        /* of timing, per line and candidate. 0: 1 */
    double window_seconds; /* 0: 0.005 */
    int64_t rounds;        /* 0: as many as the time allows */
    bool is_cold;          /* caches flushed before every run */
    bool no_check, no_realtime, no_bandwidth, no_peak;
    const tess_bench_candidate *candidates; /* NULL: one, the library as it is */
    size_t candidate_count;                 /* at most TESS_BENCH_CANDIDATES */

    /* Called often, cheaply, never inside a timed window. False ends the run: lines not finished
     * have the status TESS_BENCH_STOPPED. NULL: nobody asks. */
    bool (*progress)(void *user, const tess_bench_progress *progress);
    /* Called when a line is done, with its results. NULL: nobody asks. */
    void (*done)(void *user, const tess_bench_result *results, size_t count);
    void *user;
} tess_bench_options;

/* A status of results only. */
#define TESS_BENCH_STOPPED ((tess_status)-1)

/* Rows that a run of `count` lines gives. */
size_t tess_bench_result_count(size_t count, const tess_bench_options *options);

/* Times lines. The device must be idle, and no other thread may use the context meanwhile.
 *
 * options  NULL: defaults
 * results  tess_bench_result_count() of them: line by line, in each the candidates in their order.
 *          They point to `lines`
 *
 * Returns TESS_OK when every row has its numbers, TESS_INTERNAL when a check failed, else the
 * status of the first row that has none. TESS_INVALID, with nothing written, for options that make
 * no sense. */
tess_status tess_bench_lines(tess_context *context, tess_device *device, const tess_line *lines,
                             size_t count, const tess_bench_options *options,
                             tess_bench_result *results);

#endif
