/* SPDX-License-Identifier: Apache-2.0
 * Every tensor a problem has: its name, its shape, whether it is asked for. */
#include "core/runtime/tensors.h"

#include <string.h>

enum use { INPUT, OUTPUT, OUTPUT_OPTIONAL };

static void put(tess_binding *bindings, enum tess_address_index at, enum use use, bool is_wanted,
                tess_layout layout)
{
    bindings[at] = (tess_binding){
        .name = tess_address_names[at],
        .at = at,
        .layout = layout,
        .is_output = use == OUTPUT || use == OUTPUT_OPTIONAL,
        .is_wanted = is_wanted,
        .is_optional = use == OUTPUT_OPTIONAL,
    };
}

/* A tensor over (sequence, head, row, column) in the order of tess_layout's axes. An axis that is
 * broadcast counts as one element, since it has no other; as none when there is nothing to read. */
static tess_layout bias_layout(const tess_problem *p, const int64_t stride[4], tess_dtype dtype)
{
    return (tess_layout){stride[0] ? p->sequences : p->sequences > 0,
                         stride[2] ? p->rows : p->rows > 0,
                         stride[1] ? p->heads_q : p->heads_q > 0,
                         stride[3] ? p->columns : p->columns > 0,
                         stride[0],
                         stride[2],
                         stride[1],
                         stride[3],
                         dtype ? dtype : TESS_F32,
                         0};
}

/* Its gradient. An axis that is summed has one element even if it sums nothing. */
static tess_layout bias_gradient_layout(const tess_problem *p)
{
    tess_layout layout = bias_layout(p, p->dbias_stride, TESS_F32);

    layout.batch = p->dbias_stride[0] ? layout.batch : 1;
    layout.heads = p->dbias_stride[1] ? layout.heads : 1;
    layout.seqlen = p->dbias_stride[2] ? layout.seqlen : 1;
    layout.head_dim = p->dbias_stride[3] ? layout.head_dim : 1;
    return layout;
}

static void put_arrays(const tess_problem *p, tess_binding *out)
{
    const tess_layout offsets = tess_bind_vector(p->index_dtype, p->sequences + 1);
    const tess_layout lengths = tess_bind_vector(p->index_dtype, p->sequences);
    const tess_layout table = {1, p->sequences, 1, p->max_pages, 0, p->table_stride, 0,
                               1, TESS_I32,     0};

    put(out, TESS_AT_CU_SEQLENS_Q, INPUT, p->varlen & TESS_VARLEN_CU_SEQLENS_Q, offsets);
    put(out, TESS_AT_CU_SEQLENS_K, INPUT, p->varlen & TESS_VARLEN_CU_SEQLENS_K, offsets);
    put(out, TESS_AT_SEQUSED_Q, INPUT, p->varlen & TESS_VARLEN_SEQUSED_Q, lengths);
    put(out, TESS_AT_SEQUSED_K, INPUT, p->varlen & TESS_VARLEN_SEQUSED_K, lengths);
    put(out, TESS_AT_PAGE_TABLE, INPUT, tess_problem_is_paged(p), table);
}

static void put_biases(const tess_problem *p, tess_binding *out)
{
    const tess_layout slopes = {p->sequences,       1, p->heads_q, 1, p->slope_stride[0], 0,
                                p->slope_stride[1], 0, TESS_F32,   0};
    const tess_layout sinks = {1, 1, p->heads_q, 1, 0, 0, p->sink_stride, 0, TESS_F32, 0};
    const tess_layout scale = tess_bind_vector(TESS_F32, 0);

    put(out, TESS_AT_BIAS, INPUT, p->bias & TESS_BIAS_TENSOR,
        bias_layout(p, p->bias_stride, p->bias_dtype));
    put(out, TESS_AT_ALIBI_SLOPES, INPUT, p->bias & TESS_BIAS_ALIBI, slopes);
    put(out, TESS_AT_SINK, INPUT, p->bias & TESS_BIAS_SINK, sinks);
    put(out, TESS_AT_Q_DESCALE, INPUT, p->has_scaling, scale);
    put(out, TESS_AT_K_DESCALE, INPUT, p->has_scaling, scale);
    put(out, TESS_AT_V_DESCALE, INPUT, p->has_scaling, scale);
}

static void put_gradients(const tess_problem *p, tess_binding *out)
{
    const bool is_backward = p->pass == TESS_PASS_BACKWARD;
    const uint32_t wanted = is_backward ? p->gradients : 0;
    const int64_t slope_batch = p->slope_stride[0] ? p->sequences : 1;

    put(out, TESS_AT_D_O, INPUT, is_backward, p->d_o);
    put(out, TESS_AT_D_LSE, INPUT, wanted & TESS_GRADIENT_FROM_LSE, p->lse);
    put(out, TESS_AT_DQ, OUTPUT, wanted & TESS_GRADIENT_Q, p->dq);
    put(out, TESS_AT_DK, OUTPUT, wanted & TESS_GRADIENT_K, p->dk);
    put(out, TESS_AT_DV, OUTPUT, wanted & TESS_GRADIENT_V, p->dv);
    put(out, TESS_AT_DBIAS, OUTPUT, wanted & TESS_GRADIENT_BIAS, bias_gradient_layout(p));
    put(out, TESS_AT_DALIBI_SLOPES, OUTPUT, wanted & TESS_GRADIENT_ALIBI,
        tess_layout_packed(TESS_F32, slope_batch, 1, p->heads_q, 1));
    put(out, TESS_AT_DSINK, OUTPUT, wanted & TESS_GRADIENT_SINK,
        tess_bind_vector(TESS_F32, p->heads_q));
}

void tess_tensors_of(const tess_schedule *schedule, tess_binding out_bindings[TESS_AT_COUNT])
{
    const tess_problem *problem = &schedule->problem;
    const tess_layout bytes = tess_bind_vector(TESS_E4M3, (int64_t)schedule->workspace_size);
    const bool is_forward = problem->pass == TESS_PASS_FORWARD;

    memset(out_bindings, 0, TESS_AT_COUNT * sizeof *out_bindings);
    put(out_bindings, TESS_AT_Q, INPUT, true, problem->q);
    put(out_bindings, TESS_AT_K, INPUT, true, problem->k);
    put(out_bindings, TESS_AT_V, INPUT, true, problem->v);
    put(out_bindings, TESS_AT_O, is_forward ? OUTPUT : INPUT, true, problem->o);
    put(out_bindings, TESS_AT_LSE, is_forward ? OUTPUT_OPTIONAL : INPUT, true, problem->lse);
    put_arrays(problem, out_bindings);
    put_biases(problem, out_bindings);
    put_gradients(problem, out_bindings);
    put(out_bindings, TESS_AT_WORKSPACE, OUTPUT_OPTIONAL, true, bytes);
}
