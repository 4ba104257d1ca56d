/* SPDX-License-Identifier: Apache-2.0
 * A problem: a descriptor that has been validated and whose defaults have been filled in. */
#ifndef TESSERA_CORE_SCHEDULE_PROBLEM_H
#define TESSERA_CORE_SCHEDULE_PROBLEM_H

#include "core/base/host.h"
#include "core/schedule/problem_text.h"

#include <stdbool.h>
#include <tessera/attention.h>

enum { TESS_PASS_FORWARD = 0, TESS_PASS_BACKWARD = 1 };

/* Everything a kernel may ask about what is to be computed. No pointers: it may be copied and
 * compared. */
typedef struct tess_problem {
    tess_layout q, k, v, o, lse; /* strides of axes of extent 1 and 0 are set to 0 */
    tess_layout d_o, dq, dk, dv; /* backward only */
    int64_t dbias_stride[4];
    int64_t sequences;
    int64_t rows, columns; /* of a sequence: exact, or the upper bound with lengths */
    int64_t heads_q, heads_kv, group;
    int64_t head_dim, head_dim_v;
    int64_t window_left, window_right;          /* negative: no bound */
    int64_t num_splits;                         /* 0: the schedule decides */
    int64_t page_size, max_pages, table_stride; /* page_size 0: not paged */
    int64_t bias_stride[4], slope_stride[2], sink_stride;
    int32_t pass;
    tess_dtype dtype, o_dtype, bias_dtype, index_dtype;
    uint32_t mask, flags; /* as in the descriptor, TESS_SCALE_IS_SET cleared */
    uint32_t varlen;      /* TESS_VARLEN_... */
    uint32_t bias;        /* TESS_BIAS_... */
    uint32_t gradients;   /* TESS_GRADIENT_..., backward only */
    float scale, softcap;
    bool has_scaling, has_program;
} tess_problem;

/* Validates a descriptor (already brought to this library's age) and fills in defaults. `call` is
 * the public function's name, the first word of every error text. */
tess_status tess_problem_make(const tess_host *host, const char *call,
                              const tess_attention_desc *desc, tess_problem *out_problem);

/* Turns a forward problem into the backward one that wants these gradients. */
tess_status tess_problem_add_gradients(const tess_host *host, const char *call,
                                       const tess_gradient_desc *wanted, tess_problem *problem);

/* The line that names the problem. Lengths that only the device knows appear as their bounds. */
void tess_problem_line(const tess_problem *problem, tess_line *out_line);
void tess_problem_write(const tess_problem *problem, tess_text *out_text);

static inline bool tess_problem_is_packed_q(const tess_problem *problem)
{
    return (problem->varlen & TESS_VARLEN_CU_SEQLENS_Q) != 0;
}

static inline bool tess_problem_is_packed_k(const tess_problem *problem)
{
    return (problem->varlen & TESS_VARLEN_CU_SEQLENS_K) != 0;
}

static inline bool tess_problem_is_paged(const tess_problem *problem)
{
    return problem->page_size > 0;
}

/* Rows of O in memory, over all sequences: packed total or batch x seqlen. */
static inline int64_t tess_problem_total_rows(const tess_problem *problem)
{
    return problem->q.batch * problem->q.seqlen;
}

#endif
