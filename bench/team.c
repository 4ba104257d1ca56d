/* SPDX-License-Identifier: Apache-2.0
 * The same work on several threads, with OpenMP or without. */
#include "bench/team.h"

#ifdef _OPENMP

#include <omp.h>

void tess_team(int threads, tess_team_work work, void *user)
{
#pragma omp parallel num_threads(threads > 1 ? threads : 1)
    work(user, omp_get_thread_num(), omp_get_num_threads());
}

void tess_team_meet(void)
{
#pragma omp barrier
}

int tess_team_cores(void)
{
    return omp_get_num_procs();
}

#else

void tess_team(int threads, tess_team_work work, void *user)
{
    (void)threads;
    work(user, 0, 1);
}

void tess_team_meet(void) {}

int tess_team_cores(void)
{
    return 1;
}

#endif
