/* SPDX-License-Identifier: Apache-2.0
 * What this machine can do at this moment: the ceilings that kernels are held against. */
#ifndef TESSERA_BENCH_PEAK_H
#define TESSERA_BENCH_PEAK_H

#include <tessera/tessera.h>

#include <stdbool.h>
#include <stddef.h>

/* Instruction sets with loops of their own, named as the library names them: "avx512", "avx2",
 * "neon", "amx", "portable". NULL past the last. */
const char *tess_peak_isa(size_t index);

/* Whether this build and this machine have it. */
bool tess_peak_has(const char *isa);

/* The best one here. */
const char *tess_peak_best(void);

/* The one that kernels of a device are held against: the library's own cpu device keeps to its
 * level, while a processor behind another driver may use all it has. NULL: not this machine's
 * processor, so that nothing here says what it can do. */
const char *tess_peak_of_device(const tess_device_info *info);

/* In what follows `isa` may be NULL for the best; a name without loops of its own ("scalar") counts
 * as "portable", and so does one this machine does not have. Threads are OpenMP's; 0 counts as 1.
 * Every call takes one to eight milliseconds. */

/* Flops per second of multiply-adds (two flops each) that touch registers only: fp32, but bf16 with
 * fp32 sums for "amx". */
double tess_peak_fma(int threads, const char *isa);

/* The same per cycle of one core: a power of two, found by timing and the clock once per process;
 * 0 where the clock is unknown. */
double tess_peak_flops_per_cycle(const char *isa);

/* Bytes per second of reading a buffer again and again.
 *
 * bytes  of all threads together: each reads its own part. Small parts stay in private caches.
 *        Limited to TESS_PEAK_LEAST per thread below and TESS_PEAK_MOST above
 *
 * 0 when memory runs out. */
double tess_peak_read(size_t bytes, int threads, const char *isa);

/* Bytes per second of copying one half of a buffer to the other, read and written bytes together;
 * what a cache reads only to overwrite it is not counted. As tess_peak_read(). */
double tess_peak_copy(size_t bytes, int threads, const char *isa);

#define TESS_PEAK_LEAST ((size_t)8 << 10)
#define TESS_PEAK_MOST ((size_t)256 << 20)

/* Overwrites at least twice the last cache level that this machine admits to have, so that what was
 * there is gone; between 32 and 256 MB. False when memory runs out. */
bool tess_peak_flush(int threads);

/* Frees the buffer that the three above keep from call to call. */
void tess_peak_release(void);

#endif
