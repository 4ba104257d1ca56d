/* SPDX-License-Identifier: Apache-2.0
 * One side of a comparison. */
#include "bench/side.h"

#include "bench/clock.h"
#include "core/base/env.h"
#include "core/base/library.h"
#include "core/runtime/objects.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Keeps what the library said of a failed call. */
static tess_status keep_error(tess_side *side, tess_status status)
{
    side->status = status;
    if (side->call.context_error(side->context, side->why, sizeof side->why) == 0)
        snprintf(side->why, sizeof side->why, "%s", tess_status_name(status));
    return status;
}

/* ---- Opening --------------------------------------------------------------------------------- */

/* Another build reads the kernel's name from the environment like any program; what stood there
 * before is put back. */
static tess_status create_context(tess_side *side, const tess_context_desc *desc)
{
    const char *const name = "TESSERA_KERNEL";
    const char *const current = tess_env_current(name);
    char before[TESS_ENV_SIZE];
    tess_status status;

    if (!side->candidate.kernel)
        return side->call.context_create(desc, &side->context);
    snprintf(before, sizeof before, "%s", current ? current : "");
    if (setenv(name, side->candidate.kernel, 1) != 0)
        return TESS_NO_MEMORY;
    status = side->call.context_create(desc, &side->context);
    if (current)
        setenv(name, before, 1);
    else
        unsetenv(name);
    return status;
}

static tess_status open_own(tess_side *side, tess_context *context, const tess_device_info *info)
{
    const int32_t threads = side->candidate.threads ? side->candidate.threads : info->units;
    const tess_context_desc desc = {TESS_STRUCT(tess_context_desc), .threads = threads};
    tess_text why = tess_text_in(side->why, sizeof side->why);
    tess_status status;

    /* Device memory of one library means nothing to another. */
    if (info->kind != TESS_DEVICE_CPU) {
        tess_text_add(&why, "another library or thread count can be compared on the cpu only");
        return side->status = TESS_UNSUPPORTED;
    }
    if (side->candidate.library) {
        status = tess_interface_open(&context->host, side->candidate.library, &side->library,
                                     &side->call, &why);
        if (status != TESS_OK)
            return side->status = status;
    }
    side->owns_context = true;
    status = create_context(side, &desc);
    if (status == TESS_OK)
        status = side->call.device_open(side->context, info->name, &side->device);
    return status == TESS_OK ? TESS_OK : keep_error(side, status);
}

tess_status tess_side_open(tess_side *side, tess_context *context, tess_device *device,
                           const tess_bench_candidate *candidate, size_t index)
{
    tess_device_info info = {TESS_STRUCT(tess_device_info)};
    tess_status status = tess_device_get_info(device, &info);

    side->candidate = *candidate;
    side->call = tess_interface_here;
    if (candidate->name)
        snprintf(side->name, sizeof side->name, "%s", candidate->name);
    else
        snprintf(side->name, sizeof side->name, "%c", (char)('A' + (char)index));
    if (status != TESS_OK)
        return keep_error(side, status);
    if (candidate->library || candidate->threads) {
        if (open_own(side, context, &info) != TESS_OK)
            return side->status;
    } else {
        side->context = context;
        side->device = device;
    }
    side->info.struct_size = sizeof side->info;
    status = side->call.device_get_info(side->device, &side->info);
    if (status == TESS_OK)
        status = side->call.queue_create(side->device, &side->queue);
    if (status != TESS_OK)
        return keep_error(side, status);
    /* Events see the device's own time, without that of getting there and back. */
    if (side->info.kind != TESS_DEVICE_CPU &&
        (side->call.event_create(side->device, &side->start) != TESS_OK ||
         side->call.event_create(side->device, &side->stop) != TESS_OK)) {
        side->call.event_destroy(side->start);
        side->start = NULL;
    }
    return TESS_OK;
}

void tess_side_close(tess_side *side)
{
    if (side->queue) {
        tess_side_drop(side);
        side->call.event_destroy(side->start);
        side->call.event_destroy(side->stop);
        side->call.queue_destroy(side->queue);
    }
    if (side->owns_context)
        side->call.context_destroy(side->context);
    tess_library_close(side->library);
    memset(side, 0, sizeof *side);
}

/* ---- Planning -------------------------------------------------------------------------------- */

/* The word behind "kernel" in the plan's description: all that another build says of it. */
static void note_kernel(tess_side *side)
{
    const char *const mark = "\n  kernel ";
    const size_t size = side->call.plan_describe(side->plan, NULL, 0) + 1;
    char *const text = malloc(size);
    const char *word;

    side->kernel[0] = '\0';
    if (!text)
        return;
    side->call.plan_describe(side->plan, text, size);
    word = strstr(text, mark);
    if (word) {
        word += strlen(mark);
        word += strspn(word, " ");
        snprintf(side->kernel, sizeof side->kernel, "%.*s", (int)strcspn(word, " \n"), word);
    }
    free(text);
}

static tess_status plan_pass(tess_side *side, const tess_case *c)
{
    return c->line.backward
               ? side->call.plan_create_backward(side->device, &c->desc, &c->gradients, &side->plan)
               : side->call.plan_create_forward(side->device, &c->desc, &side->plan);
}

static tess_status create_plan(tess_side *side, const tess_case *c)
{
    tess_env *const env = &side->context->env;
    char before[TESS_ENV_SIZE];
    tess_status status;

    if (side->owns_context || !side->candidate.kernel)
        return plan_pass(side, c);
    /* The very place TESSERA_KERNEL is read into: one context, and its tensors, then serve several
     * kernels. Nothing else uses the context meanwhile. */
    memcpy(before, env->kernel, sizeof before);
    snprintf(env->kernel, sizeof env->kernel, "%s", side->candidate.kernel);
    status = plan_pass(side, c);
    memcpy(env->kernel, before, sizeof before);
    return status;
}

static tess_status make_workspace(tess_side *side)
{
    side->workspace_size = side->call.plan_workspace_size(side->plan);
    if (side->workspace_size == 0)
        return TESS_OK;
    return side->call.device_allocate(side->device, side->workspace_size, &side->workspace);
}

static void take_arguments(tess_side *side, const tess_case *c)
{
    side->is_backward = c->line.backward;
    if (side->is_backward) {
        side->backward = tess_case_backward_args(c);
        side->backward.workspace = (tess_out){side->workspace, 0};
        side->backward.workspace_size = side->workspace_size;
        return;
    }
    /* With LSE: training needs it, and it costs a few bytes per row. */
    side->forward = tess_case_forward_args(c, true);
    side->forward.workspace = (tess_out){side->workspace, 0};
    side->forward.workspace_size = side->workspace_size;
}

tess_status tess_side_plan(tess_side *side, const tess_case *c)
{
    tess_status status;

    side->status = TESS_OK;
    side->why[0] = '\0';
    status = create_plan(side, c);
    if (status == TESS_OK)
        status = make_workspace(side);
    if (status != TESS_OK)
        return keep_error(side, status);
    take_arguments(side, c);
    note_kernel(side);
    return TESS_OK;
}

void tess_side_drop(tess_side *side)
{
    side->call.plan_destroy(side->plan);
    side->plan = NULL;
    side->call.device_release(side->device, side->workspace, side->workspace_size);
    side->workspace = NULL;
    side->workspace_size = 0;
}

/* ---- Running --------------------------------------------------------------------------------- */

static tess_status run_once(tess_side *side)
{
    return side->is_backward
               ? side->call.plan_run_backward(side->plan, side->queue, &side->backward)
               : side->call.plan_run_forward(side->plan, side->queue, &side->forward);
}

bool tess_side_run(tess_side *side, int64_t times, double *out_seconds)
{
    double started = tess_clock_seconds(), seconds;
    tess_status status = TESS_OK;

    if (side->start)
        status = side->call.event_record(side->start, side->queue);
    for (int64_t i = 0; i < times && status == TESS_OK; i++)
        status = run_once(side);
    if (side->start && status == TESS_OK)
        status = side->call.event_record(side->stop, side->queue);
    if (status == TESS_OK)
        status = side->call.queue_wait(side->queue);
    seconds = tess_clock_seconds() - started;
    if (side->start && status == TESS_OK)
        status = side->call.event_elapsed(side->start, side->stop, &seconds);
    if (status != TESS_OK) {
        keep_error(side, status);
        return false;
    }
    if (out_seconds)
        *out_seconds = seconds;
    return true;
}
