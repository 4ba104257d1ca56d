/* SPDX-License-Identifier: Apache-2.0
 * Time, and how many cycles a core makes of it. */
#ifndef TESSERA_BENCH_CLOCK_H
#define TESSERA_BENCH_CLOCK_H

/* Seconds of a clock that never goes back. */
double tess_clock_seconds(void);

/* Sleeps, so that other programs get their turn between windows. */
void tess_clock_sleep(double seconds);

/* Cycles per nanosecond of the core this thread runs on, over the next 20 microseconds or so: times
 * a chain of instructions of known latency, each of which needs the one before. Needs no privileges
 * and no counters, which virtual machines hide. 0 where no such chain is written yet. */
double tess_clock_ghz(void);

#endif
