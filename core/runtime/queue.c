/* SPDX-License-Identifier: Apache-2.0
 * Queues and events: in-order work on a device, and the time between two points of it. */
#include "core/base/alloc.h"
#include "core/runtime/objects.h"

#include <string.h>
#include <tessera/interop_cuda.h>
#include <tessera/interop_hip.h>
#include <tessera/interop_opencl.h>

static const tess_host *host_of(const tess_device *device)
{
    return &device->context->host;
}

/* The object around a backend's queue, which is still to be made; NULL when there is no memory. */
static tess_queue *make(tess_device *device, const char *call)
{
    tess_queue *queue = tess_alloc_zero(host_of(device), sizeof *queue);

    if (!queue)
        tess_fail(host_of(device), TESS_NO_MEMORY, "%s: no memory for %zu bytes", call,
                  sizeof *queue);
    else
        queue->device = device;
    return queue;
}

/* Hands it out, or frees it when the backend has failed. */
static tess_status finish(tess_queue *queue, tess_status status, tess_queue **out_queue)
{
    if (status == TESS_OK)
        *out_queue = queue;
    else
        tess_release(host_of(queue->device), queue, sizeof *queue);
    return status;
}

tess_status tess_queue_create(tess_device *device, tess_queue **out_queue)
{
    static const char call[] = "tess_queue_create";
    tess_queue *queue;

    TESS_TRY(tess_need(device, call, "device"));
    if (!out_queue)
        return tess_fail(host_of(device), TESS_INVALID, "%s: out_queue is NULL", call);
    queue = make(device, call);
    if (!queue)
        return TESS_NO_MEMORY;
    return finish(queue, device->backend->queue_create(device->opened, &queue->opened), out_queue);
}

/* A queue on a native stream of one vendor. */
static tess_status wrap(tess_device *device, const char *call, const char *backend, void *stream,
                        tess_queue **out_queue)
{
    tess_queue *queue;

    TESS_TRY(tess_need(device, call, "device"));
    if (strcmp(device->backend->name, backend) != 0)
        return tess_fail(host_of(device), TESS_INVALID, "%s: device is %s; it takes one of %s",
                         call, device->name, backend);
    if (!out_queue)
        return tess_fail(host_of(device), TESS_INVALID, "%s: out_queue is NULL", call);
    queue = make(device, call);
    if (!queue)
        return TESS_NO_MEMORY;
    return finish(queue, device->backend->queue_wrap(device->opened, call, stream, &queue->opened),
                  out_queue);
}

tess_status tess_queue_wrap_cuda(tess_device *device, void *stream, tess_queue **out_queue)
{
    return wrap(device, "tess_queue_wrap_cuda", "cuda", stream, out_queue);
}

tess_status tess_queue_wrap_hip(tess_device *device, void *stream, tess_queue **out_queue)
{
    return wrap(device, "tess_queue_wrap_hip", "hip", stream, out_queue);
}

tess_status tess_queue_wrap_opencl(tess_device *device, void *native_queue, tess_queue **out_queue)
{
    return wrap(device, "tess_queue_wrap_opencl", "opencl", native_queue, out_queue);
}

void tess_queue_destroy(tess_queue *queue)
{
    if (!queue)
        return;
    queue->device->backend->queue_destroy(queue->opened);
    tess_release(host_of(queue->device), queue, sizeof *queue);
}

tess_status tess_queue_wait(tess_queue *queue)
{
    TESS_TRY(tess_need(queue, "tess_queue_wait", "queue"));
    return queue->device->backend->queue_wait(queue->opened);
}

/* A copy of nothing needs no addresses; a copy of something needs both. */
static tess_status check_copy(const tess_queue *queue, const char *call, const void *device_memory,
                              const void *host_memory, size_t size)
{
    TESS_TRY(tess_need(queue, call, "queue"));
    if (size != 0 && (!device_memory || !host_memory))
        return tess_fail(host_of(queue->device), TESS_INVALID, "%s: %s is NULL but size is %zu",
                         call, device_memory ? "host_memory" : "device_memory", size);
    return TESS_OK;
}

tess_status tess_queue_upload(tess_queue *queue, void *device_memory, const void *host_memory,
                              size_t size)
{
    TESS_TRY(check_copy(queue, "tess_queue_upload", device_memory, host_memory, size));
    if (size == 0)
        return TESS_OK;
    return queue->device->backend->upload(queue->opened, device_memory, host_memory, size);
}

tess_status tess_queue_download(tess_queue *queue, void *host_memory, const void *device_memory,
                                size_t size)
{
    TESS_TRY(check_copy(queue, "tess_queue_download", device_memory, host_memory, size));
    if (size == 0)
        return TESS_OK;
    return queue->device->backend->download(queue->opened, host_memory, device_memory, size);
}

tess_status tess_event_create(tess_device *device, tess_event **out_event)
{
    static const char call[] = "tess_event_create";
    const tess_host *host;
    tess_event *event;
    tess_status status;

    TESS_TRY(tess_need(device, call, "device"));
    host = host_of(device);
    if (!out_event)
        return tess_fail(host, TESS_INVALID, "%s: out_event is NULL", call);
    if (!device->backend->event_create)
        return tess_fail(host, TESS_UNSUPPORTED, "%s: %s cannot time", call, device->name);
    event = tess_alloc_zero(host, sizeof *event);
    if (!event)
        return tess_fail(host, TESS_NO_MEMORY, "%s: no memory for %zu bytes", call, sizeof *event);
    event->device = device;
    status = device->backend->event_create(device->opened, &event->opened);
    if (status != TESS_OK) {
        tess_release(host, event, sizeof *event);
        return status;
    }
    *out_event = event;
    return TESS_OK;
}

void tess_event_destroy(tess_event *event)
{
    if (!event)
        return;
    event->device->backend->event_destroy(event->opened);
    tess_release(host_of(event->device), event, sizeof *event);
}

tess_status tess_event_record(tess_event *event, tess_queue *queue)
{
    static const char call[] = "tess_event_record";

    TESS_TRY(tess_need(event, call, "event"));
    TESS_TRY(tess_need(queue, call, "queue"));
    TESS_TRY(tess_need_same_device(call, "queue", queue->device, "event", event->device));
    TESS_TRY(event->device->backend->event_record(event->opened, queue->opened));
    event->is_recorded = 1;
    return TESS_OK;
}

tess_status tess_event_elapsed(tess_event *start, tess_event *end, double *out_seconds)
{
    static const char call[] = "tess_event_elapsed";
    const tess_host *host;

    TESS_TRY(tess_need(start, call, "start"));
    TESS_TRY(tess_need(end, call, "end"));
    host = host_of(start->device);
    TESS_TRY(tess_need_same_device(call, "start", start->device, "end", end->device));
    if (!start->is_recorded || !end->is_recorded)
        return tess_fail(host, TESS_INVALID, "%s: %s was never recorded", call,
                         start->is_recorded ? "end" : "start");
    if (!out_seconds)
        return tess_fail(host, TESS_INVALID, "%s: out_seconds is NULL", call);
    return start->device->backend->event_elapsed(start->opened, end->opened, out_seconds);
}
