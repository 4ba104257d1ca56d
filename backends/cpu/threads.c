/* SPDX-License-Identifier: Apache-2.0
 * Running work items on the threads a call may use. */
#include "backends/cpu/threads.h"

static void run_alone(int64_t items, void (*work)(void *user, int64_t item, int32_t worker),
                      void *user)
{
    for (int64_t item = 0; item < items; item++)
        work(user, item, 0);
}

#ifdef _OPENMP

#include <omp.h>
#include <stdatomic.h>
#include <unistd.h>

/* The process that first used a thread pool, 0 before. A fact about the OpenMP runtime, of which a
 * process has one, so not a member of any context. */
static atomic_int pool_owner;

/* Whether this process may use more than one thread. */
static int may_use_pool(void)
{
    const int self = (int)getpid();
    int owner = 0;

    return atomic_compare_exchange_strong(&pool_owner, &owner, self) || owner == self;
}

int32_t tess_cpu_default_threads(void)
{
    return (int32_t)omp_get_max_threads();
}

void tess_cpu_for_each(int64_t items, int32_t workers,
                       void (*work)(void *user, int64_t item, int32_t worker), void *user)
{
    if (workers > items)
        workers = (int32_t)items;
    if (workers <= 1 || !may_use_pool()) {
        run_alone(items, work, user);
        return;
    }
#pragma omp parallel for schedule(dynamic, 1) num_threads(workers)
    for (int64_t item = 0; item < items; item++)
        work(user, item, (int32_t)omp_get_thread_num());
}

#else

int32_t tess_cpu_default_threads(void)
{
    return 1;
}

void tess_cpu_for_each(int64_t items, int32_t workers,
                       void (*work)(void *user, int64_t item, int32_t worker), void *user)
{
    (void)workers;
    run_alone(items, work, user);
}

#endif
