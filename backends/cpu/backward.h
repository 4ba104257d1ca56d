/* SPDX-License-Identifier: Apache-2.0
 * One backward work item of the CPU: a share of the columns of one key head against all its rows.
 */
#ifndef TESSERA_BACKENDS_CPU_BACKWARD_H
#define TESSERA_BACKENDS_CPU_BACKWARD_H

#include "backends/cpu/work.h"

/* Every backward kernel of the CPU takes this and nothing else. The item owns dK and dV of its
 * columns and adds to dQ of every row that sees one of them.
 *
 * With P = exp(score - LSE) recomputed and g = P (dot(dO, V) - delta), delta = dot(dO, O) - dLSE
 * (semantics: docs/numerics.md; "FlashAttention-2", Dao 2023, algorithm 2):
 *
 *     dV_j += P dO_i      dK_j += scale g c Q_i      dQ_i += scale g c K_j
 *
 * where c is the derivative of the softcap; dBias_ij is g, dSlope -= g |i + D - j|. */
typedef struct tess_cpu_backward_work {
    tess_cpu_work at;   /* addresses of the inputs; tile, splits and partial results are not used */
    int64_t first, end; /* the columns; first is on the tile grid */
    int64_t rows;       /* folded rows of the sequence and group */

    const char *d_o;    /* query 0, first head of the group */
    const float *delta; /* the same; one query is heads_q values further, a head 1 */
    float *dq;          /* fp32 sums, the same; a head is head_dim values; this item's to add to */
    char *dk, *dv;      /* column 0 of the key head, or NULL when not wanted */
    float *dbias;       /* row 0, column 0, first head of the group, or NULL; added to */
    float *dslope;      /* this item's sums, one per head of the group, or NULL; written */
} tess_cpu_backward_work;

/* One row of a tensor: elements `stride` apart from element `index` on. */
typedef struct tess_cpu_row_at {
    char *base;
    int64_t index, stride;
    int32_t dtype;
} tess_cpu_row_at;

/* What a kernel brings along. Functions that share an instruction set keep each other company, so
 * that the launch's own passes over the rows are as fast as the kernel.
 *
 * run: one work item.
 * dot: the product of two rows. Its bits do not depend on the strides.
 * put_sum: rounds the sum of `buffers` rows of fp32, `pitch` apart, to a row of a tensor. */
typedef struct tess_cpu_backward_fns {
    void (*run)(const tess_cpu_backward_work *work);
    float (*dot)(tess_cpu_row_at a, tess_cpu_row_at b, int64_t count);
    void (*put_sum)(tess_cpu_row_at to, const float *sums, int64_t buffers, int64_t pitch,
                    int64_t count);
} tess_cpu_backward_fns;

/* Parts of the result computed by themselves, absent pairs skipped: what is computed again when it
 * came out non-finite (backward_scalar.c).
 *
 * column: dK and dV of one column from all rows; the arrays hold head_dim and head_dim_v values.
 * row: what the item's columns add to dQ of one folded row. */
void tess_cpu_backward_column(const tess_cpu_backward_work *work, int64_t column, float *dk,
                              float *dv);
void tess_cpu_backward_row(const tess_cpu_backward_work *work, int64_t folded_row, float *dq);

/* Where a folded row's LSE is, and its delta; times head_dim, its sums of dQ. */
static inline int64_t tess_cpu_backward_lse(const tess_cpu_backward_work *work, int64_t folded_row)
{
    const tess_args *args = work->at.args;
    return tess_walk_query(folded_row, args->group) * args->lse_stride[1] +
           tess_walk_head(folded_row, args->group) * args->lse_stride[2];
}

static inline int64_t tess_cpu_backward_delta(const tess_cpu_backward_work *work,
                                              int64_t folded_row)
{
    const tess_args *args = work->at.args;
    return tess_walk_query(folded_row, args->group) * args->heads_q +
           tess_walk_head(folded_row, args->group);
}

/* The kernels of backward.def; which of them are built depends on the machine built for. */
#define TESS_CPU_KERNEL(name, isa, tile_rows, tile_columns, most_rows, function, scratch,          \
                        priority)                                                                  \
    void function(const tess_cpu_backward_work *work);                                             \
    float function##_dot(tess_cpu_row_at a, tess_cpu_row_at b, int64_t count);                     \
    void function##_put_sum(tess_cpu_row_at to, const float *sums, int64_t buffers, int64_t pitch, \
                            int64_t count);                                                        \
    size_t scratch(int64_t head_dim, int64_t head_dim_v);
#include "backends/cpu/backward.def"
#undef TESS_CPU_KERNEL

#endif
