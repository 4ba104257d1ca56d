/* SPDX-License-Identifier: Apache-2.0
 * Events: points of a stream's work, and the time between two of them. */
#include "backends/gpu/host/backend.h"

#include "core/base/alloc.h"

tess_status tess_gpu_event_create(tess_backend_device *device, tess_backend_event **out_event)
{
    static const char call[] = "tess_event_create";
    tess_backend_event *event = tess_alloc_zero(device->host, sizeof *event);
    tess_gpu_scope scope;
    tess_status status;

    if (!event)
        return tess_fail(device->host, TESS_NO_MEMORY, "%s: no memory for %zu bytes", call,
                         sizeof *event);
    event->device = device;
    status = tess_gpu_enter(&scope, device, call);
    if (status == TESS_OK)
        status = tess_gpu_leave(&scope, TESS_GPU_IN(&scope, event_create, &event->event, 0));
    if (status != TESS_OK) {
        tess_gpu_event_destroy(event);
        return status;
    }
    *out_event = event;
    return TESS_OK;
}

void tess_gpu_event_destroy(tess_backend_event *event)
{
    const tess_host *host = event->device->host;
    tess_gpu_scope scope;

    tess_gpu_enter(&scope, event->device, "tess_event_destroy");
    if (event->event)
        (void)TESS_GPU_IN(&scope, event_destroy, event->event);
    tess_gpu_leave(&scope, TESS_OK);
    tess_release(host, event, sizeof *event);
}

tess_status tess_gpu_event_record(tess_backend_event *event, tess_backend_queue *queue)
{
    tess_gpu_scope scope;

    TESS_TRY(tess_gpu_enter(&scope, queue->device, "tess_event_record"));
    return tess_gpu_leave(&scope, TESS_GPU_IN(&scope, event_record, event->event, queue->stream));
}

static tess_status elapsed(const tess_gpu_scope *scope, tess_backend_event *start,
                           tess_backend_event *end, float *out_milliseconds)
{
    TESS_TRY(TESS_GPU_IN(scope, event_wait, start->event));
    TESS_TRY(TESS_GPU_IN(scope, event_wait, end->event));
    return TESS_GPU_IN(scope, event_elapsed, out_milliseconds, start->event, end->event);
}

tess_status tess_gpu_event_elapsed(tess_backend_event *start, tess_backend_event *end,
                                   double *out_seconds)
{
    float milliseconds = 0.0f;
    tess_gpu_scope scope;
    tess_status status;

    TESS_TRY(tess_gpu_enter(&scope, start->device, "tess_event_elapsed"));
    status = tess_gpu_leave(&scope, elapsed(&scope, start, end, &milliseconds));
    if (status == TESS_OK)
        *out_seconds = 1e-3 * (double)milliseconds;
    return status;
}
