/* SPDX-License-Identifier: Apache-2.0
 * One work item of the CPU: a tile of rows against a share of the columns, addresses resolved. */
#ifndef TESSERA_BACKENDS_CPU_WORK_H
#define TESSERA_BACKENDS_CPU_WORK_H

#include "core/portable/args.h"
#include "core/portable/online_softmax.h"
#include "core/portable/visible.h"
#include "core/portable/walk.h"

#include <stdbool.h>
#include <stddef.h>

/* Every forward kernel of the CPU takes this and nothing else. Folded row f of the tile is query
 * f / group of head f % group of the group (core/portable/walk.h). Addresses are of the element
 * named; strides are in args. */
typedef struct tess_cpu_work {
    const tess_args *args;
    const char *q;        /* query 0, first head of the group */
    const char *k, *v;    /* column 0 of the key head; with pages: slot 0 of page 0 of the pool */
    const int32_t *pages; /* this sequence's row of the page table, or NULL; entries are valid */
    char *o;              /* query 0, first head of the group */
    float *lse;           /* the same, or NULL when not wanted */
    const char *bias;     /* row 0, column 0, first head of the group, or NULL */
    const float *slopes;  /* first head of the group, or NULL */
    const float *sink;    /* first head of the group; NULL when absent and in every split but one */
    tess_visible visible;
    tess_row_tile tile; /* folded rows to compute */
    int64_t split, splits;

    /* With splits > 1 the result goes here instead of o and lse: fp32, of query 0 and the first
     * head of the group; one query is heads_q rows of head_dim_v (of one LSE) further. */
    float *partial_o, *partial_lse;

    void *scratch; /* this worker's, args->scratch_size bytes, aligned to 64 */
} tess_cpu_work;

typedef void (*tess_cpu_forward_fn)(const tess_cpu_work *work);

/* Bytes of scratch a kernel needs for these dimensions. */
typedef size_t (*tess_cpu_scratch_fn)(int64_t head_dim, int64_t head_dim_v);

/* Columns of one work item, from the walk: the tiles first ... end - 1 of the column grid. */
static inline tess_column_walk tess_cpu_columns(const tess_cpu_work *work)
{
    const tess_args *args = work->args;
    return tess_walk_columns(work->visible, tess_walk_query(work->tile.first, args->group),
                             tess_walk_query(work->tile.end - 1, args->group), args->tile_columns,
                             work->split, work->splits);
}

/* The kernels of kernels.def; which of them are built depends on the machine built for. */
#define TESS_CPU_KERNEL(name, isa, tile_rows, tile_columns, most_rows, function, scratch, \
                        priority)                                                         \
    void function(const tess_cpu_work *work);                                             \
    size_t scratch(int64_t head_dim, int64_t head_dim_v);
#include "backends/cpu/kernels.def"
#undef TESS_CPU_KERNEL

#endif
