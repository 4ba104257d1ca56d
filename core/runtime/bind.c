/* SPDX-License-Identifier: Apache-2.0
 * From the caller's arguments to addresses: what is missing, superfluous, misaligned, overlapping.
 */
#include "core/runtime/bind.h"

#include "core/base/alloc.h"
#include "core/base/log.h"
#include "core/schedule/layout.h"

#include <inttypes.h>
#include <string.h>

tess_layout tess_bind_vector(tess_dtype dtype, int64_t count)
{
    return (tess_layout){1, count, 1, 1, 0, 1, 0, 0, dtype, 0};
}

static uintptr_t address_of(const tess_binding *binding)
{
    return (uintptr_t)binding->base + (uintptr_t)binding->offset;
}

static tess_status check_one(const tess_host *host, const char *call, const tess_binding *b)
{
    const int64_t size = (int64_t)tess_dtype_size(b->layout.dtype);
    const bool is_empty = tess_layout_is_empty(&b->layout);

    if (!b->is_wanted) {
        if (b->base || b->offset)
            return tess_fail(
                host, TESS_INVALID,
                "%s: %s is given but the descriptor does not ask for it; it takes NULL", call,
                b->name);
        return TESS_OK;
    }
    if (!b->base) {
        if (b->is_optional || is_empty)
            return TESS_OK;
        return tess_fail(host, TESS_INVALID, "%s: %s is NULL but the descriptor asks for it", call,
                         b->name);
    }
    if (b->offset % size != 0)
        return tess_fail(host, TESS_INVALID,
                         "%s: %s.offset is %" PRId64 " bytes; it takes a multiple of the element's "
                         "%" PRId64,
                         call, b->name, b->offset, size);
    return TESS_OK;
}

/* Only where addresses are plain: an OpenCL buffer's handle says nothing about its alignment. */
static tess_status check_alignment(const tess_host *host, const char *call, const tess_binding *b)
{
    const uintptr_t size = tess_dtype_size(b->layout.dtype);

    if (b->base && address_of(b) % size != 0)
        return tess_fail(host, TESS_INVALID,
                         "%s: %s is at an address that is no multiple of its element's %zu bytes",
                         call, b->name, (size_t)size);
    return TESS_OK;
}

tess_status tess_bind_check(const tess_host *host, const char *call, bool is_plain,
                            const tess_binding *binding)
{
    TESS_TRY(check_one(host, call, binding));
    return is_plain ? check_alignment(host, call, binding) : TESS_OK;
}

static bool is_bound(const tess_binding *b)
{
    return b->is_wanted && b->base && !tess_layout_is_empty(&b->layout);
}

/* Every output against every other binding. Where addresses are not plain, those of one buffer are
 * compared by their offsets; whether two buffers share memory is the caller's to know. */
static tess_status check_overlap(const tess_host *host, const char *call, bool is_plain,
                                 const tess_binding bindings[TESS_AT_COUNT])
{
    for (int i = 0; i < TESS_AT_COUNT; i++) {
        if (!bindings[i].is_output || !is_bound(&bindings[i]))
            continue;
        for (int j = 0; j < TESS_AT_COUNT; j++) {
            const bool was_compared = bindings[j].is_output && j <= i;
            if (was_compared || !is_bound(&bindings[j]) ||
                (!is_plain && bindings[i].base != bindings[j].base))
                continue;
            if (tess_layouts_may_overlap(&bindings[i].layout, address_of(&bindings[i]),
                                         &bindings[j].layout, address_of(&bindings[j])))
                return tess_fail(host, TESS_INVALID,
                                 "%s: %s shares memory with %s; outputs must not overlap inputs or "
                                 "each other",
                                 call, bindings[i].name, bindings[j].name);
        }
    }
    return TESS_OK;
}

tess_status tess_bind_check_call(const tess_plan *plan, const tess_queue *queue, const char *call,
                                 int32_t pass, const void *args)
{
    const tess_host *host;

    TESS_TRY(tess_need(plan, call, "plan"));
    TESS_TRY(tess_need(queue, call, "queue"));
    host = &plan->device->context->host;
    if (plan->schedule.problem.pass != pass)
        return tess_fail(host, TESS_INVALID, "%s: plan is of a %s pass", call,
                         pass == TESS_PASS_FORWARD ? "backward" : "forward");
    TESS_TRY(tess_need_same_device(call, "plan", plan->device, "queue", queue->device));
    if (!args)
        return tess_fail(host, TESS_INVALID, "%s: args is NULL; it takes the tensors' addresses",
                         call);
    return TESS_OK;
}

tess_status tess_bind(const tess_plan *plan, const char *call,
                      const tess_binding bindings[TESS_AT_COUNT],
                      tess_address out_addresses[TESS_AT_COUNT])
{
    const tess_host *host = &plan->device->context->host;
    const bool is_plain = plan->device->backend->has_plain_addresses;

    for (int i = 0; i < TESS_AT_COUNT; i++)
        TESS_TRY(tess_bind_check(host, call, is_plain, &bindings[i]));
    TESS_TRY(check_overlap(host, call, is_plain, bindings));
    for (int i = 0; i < TESS_AT_COUNT; i++) {
        if (!bindings[i].is_wanted || !bindings[i].base)
            continue;
        /* The one place where an input loses its const: launch takes one array for both kinds. */
        out_addresses[i].base =
            (void *)(is_plain ? address_of(&bindings[i]) : (uintptr_t)bindings[i].base);
        out_addresses[i].offset = is_plain ? 0 : bindings[i].offset;
    }
    return TESS_OK;
}

/* The queue's own memory, where it has some. */
static tess_status find_scratch(const tess_plan *plan, tess_queue *queue, const char *call,
                                void **out_memory)
{
    const tess_backend *backend = plan->device->backend;
    const size_t wanted = plan->schedule.workspace_size;

    if (!backend->scratch)
        return tess_fail(&plan->device->context->host, TESS_UNSUPPORTED,
                         "%s: workspace is NULL but queues of %s have no scratch of their own; it "
                         "takes %zu bytes (tess_plan_workspace_size)",
                         call, plan->device->name, wanted);
    return backend->scratch(queue->opened, call, wanted, out_memory);
}

static tess_status bind_workspace(const tess_plan *plan, tess_queue *queue, const char *call,
                                  const tess_out *workspace, size_t size, tess_address *out_address)
{
    const tess_host *host = &plan->device->context->host;
    const tess_backend *backend = plan->device->backend;
    const size_t wanted = plan->schedule.workspace_size;

    if (workspace->base && size < wanted)
        return tess_fail(host, TESS_INVALID,
                         "%s: workspace_size is %zu; the plan needs %zu bytes "
                         "(tess_plan_workspace_size)",
                         call, size, wanted);
    if (!workspace->base && (size != 0 || workspace->offset != 0))
        return tess_fail(host, TESS_INVALID,
                         "%s: workspace is NULL but workspace_size is %zu and its offset %" PRId64
                         "; they take 0 there",
                         call, size, workspace->offset);
    if (wanted == 0)
        return TESS_OK;
    if (!workspace->base)
        return find_scratch(plan, queue, call, &out_address->base);
    if (!backend->has_plain_addresses) {
        *out_address = (tess_address){workspace->base, workspace->offset};
        return TESS_OK;
    }
    /* workspace_size holds the bytes that this may skip. */
    const uintptr_t start = (uintptr_t)workspace->base + (uintptr_t)workspace->offset;
    out_address->base = (void *)((start + TESS_ALIGNMENT - 1) / TESS_ALIGNMENT * TESS_ALIGNMENT);
    return TESS_OK;
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

tess_status tess_bind_launch(const tess_plan *plan, tess_queue *queue, const char *call,
                             const tess_out *workspace, size_t size,
                             tess_address addresses[TESS_AT_COUNT])
{
    TESS_TRY(bind_workspace(plan, queue, call, workspace, size, &addresses[TESS_AT_WORKSPACE]));
    trace_run(plan);
    return plan->device->backend->launch(queue->opened, plan->prepared, addresses);
}
