/* SPDX-License-Identifier: Apache-2.0
 * Plans: one problem bound to one kernel, one schedule and one workspace layout. */
#include "core/base/alloc.h"
#include "core/base/log.h"
#include "core/runtime/select.h"
#include "core/runtime/take.h"

#include <inttypes.h>
#include <string.h>

/* What the environment may add to a problem that left it open. */
static void apply_environment(const tess_env *env, tess_problem *problem)
{
    if (env->deterministic)
        problem->flags |= TESS_DETERMINISTIC;
    if (problem->num_splits == 0)
        problem->num_splits = env->splits;
}

/* The text of a plan that no kernel takes: the problem, then every kernel with its reason. */
static tess_status fail_unsupported(const tess_plan *plan, const char *call,
                                    const tess_problem *problem)
{
    const tess_device *device = plan->device;
    char line[1024], reasons[6144];
    tess_text line_text = tess_text_in(line, sizeof line);
    tess_text reason_text = tess_text_in(reasons, sizeof reasons);

    tess_problem_write(problem, &line_text);
    tess_select_write(plan->candidates, plan->candidate_count, &reason_text);
    if (plan->candidate_count == 0)
        tess_text_add(&reason_text, "\n    this backend has no %s kernel yet",
                      problem->pass == TESS_PASS_FORWARD ? "forward" : "backward");
    return tess_fail(&device->context->host, TESS_UNSUPPORTED,
                     "%s: no kernel on %s (%s) for \"%s\"%s", call, device->name,
                     device->backend->caps(device->opened)->architecture, line, reasons);
}

static void trace_plan(const tess_plan *plan)
{
    const tess_host *host = &plan->device->context->host;
    char line[1024], reason[256];
    tess_text text = tess_text_in(line, sizeof line);

    if (!tess_trace_shows(host, TESS_TRACE_PLAN) && !tess_trace_shows(host, TESS_TRACE_REFUSE))
        return;
    tess_problem_write(&plan->schedule.problem, &text);
    tess_trace(host, TESS_TRACE_PLAN, "%s,%s,\"%s\",splits=%" PRId64 ",workspace=%zu",
               plan->device->name, plan->schedule.kernel->name, line,
               (int64_t)plan->schedule.args.splits, plan->schedule.workspace_size);
    for (size_t i = 0; i < plan->candidate_count; i++) {
        const tess_candidate *candidate = &plan->candidates[i];
        tess_text why = tess_text_in(reason, sizeof reason);
        if (candidate->refusal.code == TESS_ACCEPTED)
            continue;
        tess_refusal_write(&candidate->refusal, candidate->kernel, &why);
        tess_trace(host, TESS_TRACE_REFUSE, "%s,%s,\"%s\",%s", plan->device->name,
                   candidate->kernel->name, line, reason);
    }
}

/* Chooses a kernel and lays out the schedule; the plan owns whatever was made when this fails. */
static tess_status fill(tess_plan *plan, const char *call, const tess_problem *problem)
{
    const tess_device *device = plan->device;
    const tess_backend *backend = device->backend;
    const tess_host *host = &device->context->host;
    const tess_caps *caps = backend->caps(device->opened);
    const int32_t workers = backend->workers ? backend->workers(device->opened) : 0;
    size_t count;
    const tess_kernel *kernels = backend->kernels(&count), *chosen;

    plan->candidate_count = tess_select_count(kernels, count, problem->pass);
    if (plan->candidate_count > 0) {
        plan->candidates = tess_alloc_array(host, plan->candidate_count, sizeof *plan->candidates);
        if (!plan->candidates)
            return tess_fail(host, TESS_NO_MEMORY, "%s: no memory for %zu bytes", call,
                             plan->candidate_count * sizeof *plan->candidates);
    }
    chosen =
        tess_select(kernels, count, device->context->env.kernel, problem, caps, plan->candidates);
    if (!chosen)
        return fail_unsupported(plan, call, problem);
    TESS_TRY(tess_schedule_make(host, call, problem, chosen, caps, workers, &plan->schedule));
    return backend->prepare(device->opened, &plan->schedule, &plan->prepared);
}

static tess_status create(tess_device *device, const char *call, const tess_problem *problem,
                          tess_plan **out_plan)
{
    const tess_host *host = &device->context->host;
    tess_plan *plan = tess_alloc_zero(host, sizeof *plan);
    tess_status status;

    if (!plan)
        return tess_fail(host, TESS_NO_MEMORY, "%s: no memory for %zu bytes", call, sizeof *plan);
    plan->device = device;
    status = fill(plan, call, problem);
    if (status != TESS_OK) {
        tess_plan_destroy(plan);
        return status;
    }
    trace_plan(plan);
    *out_plan = plan;
    return TESS_OK;
}

tess_status tess_plan_create_forward(tess_device *device, const tess_attention_desc *desc,
                                     tess_plan **out_plan)
{
    static const char call[] = "tess_plan_create_forward";
    const tess_host *host;
    tess_taken_desc taken;
    tess_problem problem;

    TESS_TRY(tess_need(device, call, "device"));
    host = &device->context->host;
    if (!out_plan)
        return tess_fail(host, TESS_INVALID, "%s: out_plan is NULL", call);
    TESS_TRY(tess_take_attention_desc(host, call, desc, &taken));
    TESS_TRY(tess_problem_make(host, call, &taken.desc, &problem));
    apply_environment(&device->context->env, &problem);
    return create(device, call, &problem, out_plan);
}

tess_status tess_plan_create_backward(tess_device *device, const tess_attention_desc *desc,
                                      const tess_gradient_desc *gradients, tess_plan **out_plan)
{
    static const char call[] = "tess_plan_create_backward";
    const tess_host *host;
    tess_taken_desc taken;
    tess_gradient_desc wanted;
    tess_problem problem;

    TESS_TRY(tess_need(device, call, "device"));
    host = &device->context->host;
    if (!out_plan)
        return tess_fail(host, TESS_INVALID, "%s: out_plan is NULL", call);
    memset(&wanted, 0, sizeof wanted);
    if (gradients)
        TESS_TRY(tess_take(host, call, "gradients", gradients, sizeof wanted, &wanted));
    TESS_TRY(tess_take_attention_desc(host, call, desc, &taken));
    TESS_TRY(tess_problem_make(host, call, &taken.desc, &problem));
    TESS_TRY(tess_problem_add_gradients(host, call, &wanted, &problem));
    apply_environment(&device->context->env, &problem);
    return create(device, call, &problem, out_plan);
}

void tess_plan_destroy(tess_plan *plan)
{
    const tess_host *host;

    if (!plan)
        return;
    host = &plan->device->context->host;
    if (plan->prepared)
        plan->device->backend->discard(plan->prepared);
    tess_release(host, plan->candidates, plan->candidate_count * sizeof *plan->candidates);
    tess_release(host, plan, sizeof *plan);
}

size_t tess_plan_workspace_size(const tess_plan *plan)
{
    return plan ? plan->schedule.workspace_size : 0;
}

static void write_schedule(const tess_schedule *s, tess_text *out)
{
    tess_text_add(out,
                  "\n  schedule   %" PRId64 " work items: %" PRId64 " sequences x %" PRId64
                  " key heads x ",
                  s->work_items, s->problem.sequences, s->problem.heads_kv);
    if (s->problem.pass == TESS_PASS_FORWARD)
        tess_text_add(out, "%" PRId64 " row tiles x %" PRId64 " splits", (int64_t)s->args.row_tiles,
                      (int64_t)s->args.splits);
    else
        tess_text_add(out, "shares of %" PRId64 " columns, %" PRId64 " sums of dQ",
                      (int64_t)s->args.share_columns, (int64_t)s->args.dq_buffers);
    tess_text_add(out, ", %" PRId64 " query heads folded into the rows", s->problem.group);
}

size_t tess_plan_describe(const tess_plan *plan, char *text, size_t size)
{
    const tess_schedule *s;
    tess_text out = tess_text_in(text, size);

    if (!plan)
        return 0;
    s = &plan->schedule;
    tess_problem_write(&s->problem, &out);
    if (s->problem.varlen)
        tess_text_add(&out, "\n  lengths    at most those of the line: each run brings its own");
    tess_text_add(&out, "\n  device     %s (%s)", plan->device->name,
                  plan->device->backend->caps(plan->device->opened)->architecture);
    tess_text_add(&out, "\n  kernel     %s", s->kernel->name);
    tess_text_add(&out, "\n  tile       %" PRId64 " rows x %" PRId64 " columns",
                  (int64_t)s->args.tile_rows, (int64_t)s->args.tile_columns);
    write_schedule(s, &out);
    tess_text_add(&out, "\n  workspace  %zu bytes", s->workspace_size);
    tess_text_add(&out, "\n  cost       %s%.4g flops, %.4g bytes",
                  s->problem.varlen ? "at most " : "", s->cost.flops, s->cost.bytes);
    if (plan->candidate_count > 1) {
        tess_text_add(&out, "\n  not taken");
        tess_select_write(plan->candidates, plan->candidate_count, &out);
    }
    return out.length;
}
