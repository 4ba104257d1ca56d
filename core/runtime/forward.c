/* SPDX-License-Identifier: Apache-2.0
 * Running a forward plan: arguments checked, addresses bound, handed to the backend. */
#include "core/runtime/take.h"
#include "core/runtime/tensors.h"

#include <string.h>

static const char call[] = "tess_plan_run_forward";

tess_status tess_plan_run_forward(const tess_plan *plan, tess_queue *queue,
                                  const tess_forward_args *args)
{
    tess_binding bindings[TESS_AT_COUNT];
    tess_address addresses[TESS_AT_COUNT];
    tess_forward_args a;

    TESS_TRY(tess_bind_check_call(plan, queue, call, TESS_PASS_FORWARD, args));
    TESS_TRY(tess_take(&plan->device->context->host, call, "args", args, sizeof a, &a));
    tess_tensors_of(&plan->schedule, bindings);

#define BIND(at, member)                         \
    bindings[TESS_AT_##at].base = a.member.base; \
    bindings[TESS_AT_##at].offset = a.member.offset
    BIND(Q, q);
    BIND(K, k);
    BIND(V, v);
    BIND(O, o);
    BIND(LSE, lse);
    BIND(CU_SEQLENS_Q, cu_seqlens_q);
    BIND(CU_SEQLENS_K, cu_seqlens_k);
    BIND(SEQUSED_Q, seqused_q);
    BIND(SEQUSED_K, seqused_k);
    BIND(PAGE_TABLE, page_table);
    BIND(BIAS, bias);
    BIND(ALIBI_SLOPES, alibi_slopes);
    BIND(SINK, sink);
    BIND(Q_DESCALE, q_descale);
    BIND(K_DESCALE, k_descale);
    BIND(V_DESCALE, v_descale);
    BIND(WORKSPACE, workspace);
#undef BIND

    memset(addresses, 0, sizeof addresses);
    TESS_TRY(tess_bind(plan, call, bindings, addresses));
    return tess_bind_launch(plan, queue, call, &a.workspace, a.workspace_size, addresses);
}
