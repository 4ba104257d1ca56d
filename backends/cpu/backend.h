/* SPDX-License-Identifier: Apache-2.0
 * What the CPU backend's own files share. */
#ifndef TESSERA_BACKENDS_CPU_BACKEND_H
#define TESSERA_BACKENDS_CPU_BACKEND_H

#include "backends/backend.h"
#include "backends/cpu/backward.h"
#include "backends/cpu/threads.h"

struct tess_backend_device {
    const tess_host *host;
    tess_caps caps;
    bool has_default_threads; /* neither the program nor the environment said how many */
};

struct tess_backend_queue {
    tess_backend_device *device;
    void *scratch; /* grows, never shrinks */
    size_t scratch_size;
};

struct tess_prepared {
    const tess_host *host;
    const tess_schedule *schedule; /* the plan's, which outlives this */
    tess_cpu_forward_fn forward;   /* one of the two */
    tess_cpu_backward_fns backward;
    int32_t threads; /* that the problem is worth */
    bool may_shrink; /* nobody said how many: what OpenMP would use when it is called counts too */
};

/* Threads for a call that begins now. */
static inline int32_t tess_cpu_threads_now(const tess_prepared *prepared)
{
    const int32_t most = prepared->may_shrink ? tess_cpu_default_threads() : prepared->threads;
    return prepared->threads < most ? prepared->threads : most;
}

/* The forward pass (forward.c). */
tess_status tess_cpu_launch_forward(const tess_prepared *prepared,
                                    const tess_address addresses[TESS_AT_COUNT]);

/* The backward pass (backward.c). */
tess_status tess_cpu_launch_backward(const tess_prepared *prepared,
                                     const tess_address addresses[TESS_AT_COUNT]);

/* The union of partial results of one row: the sum of exp(lse - max) over its parts. */
typedef struct tess_cpu_union {
    float max; /* of the parts' LSEs; -inf when all are empty */
    float sum;
} tess_cpu_union;

/* The union of `parts` fp32 LSEs, `stride` elements apart; its LSE; the weight of one part. */
tess_cpu_union tess_cpu_unite(int64_t parts, const char *lses, int64_t stride);
float tess_cpu_union_lse(tess_cpu_union all);
float tess_cpu_union_weight(tess_cpu_union all, float lse);

/* Merging partial results for the API (merge.c). */
tess_status tess_cpu_merge(tess_backend_queue *queue, const tess_merge_desc *desc,
                           const tess_merge_args *args);

#endif
