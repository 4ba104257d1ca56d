/* SPDX-License-Identifier: Apache-2.0
 * A schedule: one problem on one kernel, with its tile grid, splits and workspace laid out. */
#ifndef TESSERA_CORE_SCHEDULE_SCHEDULE_H
#define TESSERA_CORE_SCHEDULE_SCHEDULE_H

#include "core/portable/args.h"
#include "core/schedule/cost.h"
#include "core/schedule/kernel.h"

typedef struct tess_schedule {
    const tess_kernel *kernel;
    tess_problem problem;
    tess_args args; /* what the kernel reads */
    /* upper bound: sequences x key heads x row tiles x splits; backward: x shares of columns */
    int64_t work_items;
    int32_t workers;       /* shares of scratch in the workspace; 0: the backend has none */
    size_t workspace_size; /* bytes */
    tess_cost cost;        /* with lengths unknown: of their bounds */
} tess_schedule;

/* "q", "cu_seqlens_k", ...: as members of the arguments are called. */
extern const char *const tess_address_names[TESS_AT_COUNT];

/* Lays out the schedule. Fails with TESS_INVALID when a product leaves 64 bits.
 *
 * workers  how many work items run at once and need scratch of their own */
tess_status tess_schedule_make(const tess_host *host, const char *call, const tess_problem *problem,
                               const tess_kernel *kernel, const tess_caps *caps, int32_t workers,
                               tess_schedule *out_schedule);

#endif
