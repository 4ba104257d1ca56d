/* SPDX-License-Identifier: Apache-2.0
 * One side of a comparison: a build of the library, a context, a kernel, and a plan of the problem
 * at hand. */
#ifndef TESSERA_BENCH_SIDE_H
#define TESSERA_BENCH_SIDE_H

#include "bench/bench.h"
#include "bench/interface.h"
#include "tests/kit/case.h"

typedef struct tess_side {
    tess_bench_candidate candidate;
    char name[64];

    /* For all problems. */
    tess_interface call;
    void *library; /* NULL: this build */
    tess_context *context;
    tess_device *device;
    tess_queue *queue;
    tess_device_info info;
    bool owns_context;
    tess_event *start, *stop; /* NULL: timed by the host's clock */

    /* For one problem. */
    tess_plan *plan;
    bool is_backward;
    tess_forward_args forward; /* one of the two */
    tess_backward_args backward;
    void *workspace;
    size_t workspace_size;
    char kernel[96];
    const char *isa;    /* of the ceilings; NULL: none */
    size_t peak_buffer; /* bytes read for the bandwidth ceiling; 0: none */
    tess_status status; /* why it has no numbers for this problem */
    char why[512];
} tess_side;

/* Opens a side, all zero before. With a library or threads of its own it gets a context of its own,
 * else it shares the one given.
 *
 * index  names it when the candidate has no name: 0 is "A" */
tess_status tess_side_open(tess_side *side, tess_context *context, tess_device *device,
                           const tess_bench_candidate *candidate, size_t index);
void tess_side_close(tess_side *side);

/* Plans a case for this side, whose plan then runs with a workspace of its own. The status and the
 * reason of a failure stay in the side. */
tess_status tess_side_plan(tess_side *side, const tess_case *c);
void tess_side_drop(tess_side *side);

/* Runs the plan `times` times and waits; the seconds may be NULL. */
bool tess_side_run(tess_side *side, int64_t times, double *out_seconds);

#endif
