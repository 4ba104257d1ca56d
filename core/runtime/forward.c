/* SPDX-License-Identifier: Apache-2.0
 * Running a forward plan: arguments checked, addresses bound, handed to the backend. */
#include "core/base/log.h"
#include "core/runtime/bind.h"
#include "core/runtime/take.h"

#include <string.h>

/* clang-format off */
#define INPUT(member, index, wanted, shape)                                                       \
    {#member, index, args->member.base, args->member.offset, shape, false, (wanted) != 0, false}
#define OUTPUT(member, index, optional, shape)                                                    \
    {#member, index, args->member.base, args->member.offset, shape, true, true, optional}
/* clang-format on */

/* The score bias as a tensor: (sequence, row, head, column) in the order of tess_layout's axes. */
static tess_layout bias_layout(const tess_problem *p)
{
    return (tess_layout){p->sequences,
                         p->rows,
                         p->heads_q,
                         p->columns,
                         p->bias_stride[0],
                         p->bias_stride[2],
                         p->bias_stride[1],
                         p->bias_stride[3],
                         p->bias_dtype ? p->bias_dtype : TESS_F32,
                         0};
}

static tess_status bind(const tess_plan *plan, const char *call, const tess_forward_args *args,
                        tess_address out_addresses[TESS_AT_COUNT])
{
    const tess_problem *p = &plan->schedule.problem;
    const tess_layout offsets = tess_bind_vector(p->index_dtype, p->sequences + 1);
    const tess_layout lengths = tess_bind_vector(p->index_dtype, p->sequences);
    const tess_layout table = {1, p->sequences, 1, p->max_pages, 0, p->table_stride, 0,
                               1, TESS_I32,     0};
    const tess_layout slopes = {p->sequences,       1, p->heads_q, 1, p->slope_stride[0], 0,
                                p->slope_stride[1], 0, TESS_F32,   0};
    const tess_layout sinks = {1, 1, p->heads_q, 1, 0, 0, p->sink_stride, 0, TESS_F32, 0};
    const tess_layout scale = tess_bind_vector(TESS_F32, 0);
    const tess_layout bytes = tess_bind_vector(TESS_E4M3, (int64_t)plan->schedule.workspace_size);
    const tess_binding bindings[] = {
        INPUT(q, TESS_AT_Q, true, p->q),
        INPUT(k, TESS_AT_K, true, p->k),
        INPUT(v, TESS_AT_V, true, p->v),
        OUTPUT(o, TESS_AT_O, false, p->o),
        OUTPUT(lse, TESS_AT_LSE, true, p->lse),
        INPUT(cu_seqlens_q, TESS_AT_CU_SEQLENS_Q, p->varlen & TESS_VARLEN_CU_SEQLENS_Q, offsets),
        INPUT(cu_seqlens_k, TESS_AT_CU_SEQLENS_K, p->varlen & TESS_VARLEN_CU_SEQLENS_K, offsets),
        INPUT(seqused_q, TESS_AT_SEQUSED_Q, p->varlen & TESS_VARLEN_SEQUSED_Q, lengths),
        INPUT(seqused_k, TESS_AT_SEQUSED_K, p->varlen & TESS_VARLEN_SEQUSED_K, lengths),
        INPUT(page_table, TESS_AT_PAGE_TABLE, tess_problem_is_paged(p), table),
        INPUT(bias, TESS_AT_BIAS, p->bias & TESS_BIAS_TENSOR, bias_layout(p)),
        INPUT(alibi_slopes, TESS_AT_ALIBI_SLOPES, p->bias & TESS_BIAS_ALIBI, slopes),
        INPUT(sink, TESS_AT_SINK, p->bias & TESS_BIAS_SINK, sinks),
        INPUT(q_descale, TESS_AT_Q_DESCALE, p->has_scaling, scale),
        INPUT(k_descale, TESS_AT_K_DESCALE, p->has_scaling, scale),
        INPUT(v_descale, TESS_AT_V_DESCALE, p->has_scaling, scale),
        OUTPUT(workspace, TESS_AT_WORKSPACE, true, bytes),
    };

    return tess_bind(plan, call, bindings, sizeof bindings / sizeof bindings[0], out_addresses);
}

static void trace_run(const tess_plan *plan)
{
    const tess_host *host = &plan->device->context->host;
    char line[1024];
    tess_text text = tess_text_in(line, sizeof line);

    if (!tess_trace_shows(host, TESS_TRACE_EXEC))
        return;
    tess_problem_write(&plan->schedule.problem, &text);
    tess_trace(host, TESS_TRACE_EXEC, "%s,%s,\"%s\"", plan->device->name,
               plan->schedule.kernel->name, line);
}

tess_status tess_plan_run_forward(const tess_plan *plan, tess_queue *queue,
                                  const tess_forward_args *args)
{
    static const char call[] = "tess_plan_run_forward";
    const tess_host *host;
    tess_address addresses[TESS_AT_COUNT];
    tess_forward_args taken;

    TESS_TRY(tess_need(plan, call, "plan"));
    TESS_TRY(tess_need(queue, call, "queue"));
    host = &plan->device->context->host;
    if (plan->schedule.problem.pass != TESS_PASS_FORWARD)
        return tess_fail(host, TESS_INVALID, "%s: plan is of a backward pass", call);
    TESS_TRY(tess_need_same_device(call, "plan", plan->device, "queue", queue->device));
    if (!args)
        return tess_fail(host, TESS_INVALID, "%s: args is NULL; it takes the tensors' addresses",
                         call);
    TESS_TRY(tess_take(host, call, "args", args, sizeof taken, &taken));
    memset(addresses, 0, sizeof addresses);
    TESS_TRY(bind(plan, call, &taken, addresses));
    TESS_TRY(
        tess_bind_workspace(plan, queue, call, &taken.workspace, taken.workspace_size, addresses));
    trace_run(plan);
    return plan->device->backend->launch(queue->opened, plan->prepared, addresses);
}
