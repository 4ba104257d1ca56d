/* SPDX-License-Identifier: Apache-2.0
 * Running work items on the threads a call may use. */
#ifndef TESSERA_BACKENDS_CPU_THREADS_H
#define TESSERA_BACKENDS_CPU_THREADS_H

#include <stdint.h>

/* Threads that a call may use when the program and the environment did not say. */
int32_t tess_cpu_default_threads(void);

/* Calls work(user, item, worker) for every item, each exactly once, in ascending order of pick-up;
 * worker is below `workers` and no two calls at once have the same. Returns when all are done.
 *
 * Uses fewer threads than workers when there are fewer items, inside a parallel region of the
 * caller's without nesting (one), and in a child forked from a process that had used threads (one:
 * the pool did not survive the fork and waiting for it would never end). */
void tess_cpu_for_each(int64_t items, int32_t workers,
                       void (*work)(void *user, int64_t item, int32_t worker), void *user);

#endif
