/* SPDX-License-Identifier: Apache-2.0
 * The same work on several threads, with OpenMP or without: the library's own kind of team. */
#ifndef TESSERA_BENCH_TEAM_H
#define TESSERA_BENCH_TEAM_H

typedef void (*tess_team_work)(void *user, int thread, int threads);

/* Calls work once on each of `threads` threads, of which there may turn out to be fewer; returns
 * when all are done. */
void tess_team(int threads, tess_team_work work, void *user);

/* Within tess_team(): waits for the others. */
void tess_team_meet(void);

/* Processors this process may run on. */
int tess_team_cores(void);

#endif
