/* SPDX-License-Identifier: Apache-2.0
 * Running a backward plan. No backend makes one yet, so this can only say what is wrong. */
#include "core/runtime/objects.h"
#include "core/runtime/take.h"

tess_status tess_plan_run_backward(const tess_plan *plan, tess_queue *queue,
                                   const tess_backward_args *args)
{
    static const char call[] = "tess_plan_run_backward";
    const tess_host *host;
    tess_backward_args taken;

    TESS_TRY(tess_need(plan, call, "plan"));
    TESS_TRY(tess_need(queue, call, "queue"));
    host = &plan->device->context->host;
    if (plan->schedule.problem.pass != TESS_PASS_BACKWARD)
        return tess_fail(host, TESS_INVALID, "%s: plan is of a forward pass", call);
    TESS_TRY(tess_need_same_device(call, "plan", plan->device, "queue", queue->device));
    if (!args)
        return tess_fail(host, TESS_INVALID, "%s: args is NULL; it takes the tensors' addresses",
                         call);
    TESS_TRY(tess_take(host, call, "args", args, sizeof taken, &taken));
    return tess_fail(host, TESS_UNSUPPORTED, "%s: %s has no backward kernel", call,
                     plan->device->name);
}
