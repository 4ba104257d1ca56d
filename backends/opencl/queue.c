/* SPDX-License-Identifier: Apache-2.0
 * Queues of our own or the caller's, their scratch buffers, and events on them. */
#include "backends/opencl/backend.h"

#include "core/base/alloc.h"

/* NULL when there is no memory, which is then this thread's failure. */
static tess_backend_queue *make(tess_backend_device *device, const char *call)
{
    tess_backend_queue *queue = tess_alloc_zero(device->host, sizeof *queue);

    if (!queue)
        tess_fail(device->host, TESS_NO_MEMORY, "%s: no memory for %zu bytes", call, sizeof *queue);
    else
        queue->device = device;
    return queue;
}

tess_status tess_cl_queue_create(tess_backend_device *device, tess_backend_queue **out_queue)
{
    static const char call[] = "tess_queue_create";
    tess_backend_queue *queue = make(device, call);
    tess_cl_code code = TESS_CL_SUCCESS;
    tess_status status;

    if (!queue)
        return TESS_NO_MEMORY;
    /* In order, as queues are unless asked otherwise; with times, for events. */
    queue->queue = device->driver->queue_create(device->context, device->place.device,
                                                TESS_CL_QUEUE_PROFILING, &code);
    queue->is_own = true;
    status = tess_cl_answer(device->host, call, TESS_CL_CALL_queue_create, code);
    if (status != TESS_OK) {
        tess_release(device->host, queue, sizeof *queue);
        return status;
    }
    *out_queue = queue;
    return TESS_OK;
}

/* ---- Queues of the caller -------------------------------------------------------------------- */

static tess_status check_native(const tess_backend_device *device, const char *call, void *native)
{
    void *context = NULL, *of = NULL;
    uint64_t properties = 0;

    TESS_TRY(TESS_CL_OF(device, call, queue_info, native, TESS_CL_QUEUE_CONTEXT, sizeof context,
                        &context, NULL));
    TESS_TRY(
        TESS_CL_OF(device, call, queue_info, native, TESS_CL_QUEUE_DEVICE, sizeof of, &of, NULL));
    TESS_TRY(TESS_CL_OF(device, call, queue_info, native, TESS_CL_QUEUE_PROPERTIES,
                        sizeof properties, &properties, NULL));
    if (context != device->context || of != device->place.device)
        return tess_fail(device->host, TESS_INVALID,
                         "%s: queue is of another context or device than %s; it takes one of the "
                         "context that tess_device_wrap_opencl() was given",
                         call, device->name);
    if (properties & TESS_CL_QUEUE_OUT_OF_ORDER)
        return tess_fail(device->host, TESS_INVALID,
                         "%s: queue runs its commands out of order; it takes one without "
                         "CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE",
                         call);
    return TESS_OK;
}

tess_status tess_cl_queue_wrap(tess_backend_device *device, const char *call, void *native,
                               tess_backend_queue **out_queue)
{
    tess_backend_queue *queue;
    tess_status status;

    if (!native)
        return tess_fail(device->host, TESS_INVALID,
                         "%s: queue is NULL; it takes a cl_command_queue", call);
    queue = make(device, call);
    if (!queue)
        return TESS_NO_MEMORY;
    queue->queue = native;
    status = check_native(device, call, native);
    if (status == TESS_OK)
        status = TESS_CL_OF(device, call, queue_retain, native);
    if (status != TESS_OK) {
        tess_release(device->host, queue, sizeof *queue);
        return status;
    }
    *out_queue = queue;
    return TESS_OK;
}

/* A wrapped queue's work goes on: waiting for it is its owner's business. The driver keeps buffers
 * for the commands that use them. */
void tess_cl_queue_destroy(tess_backend_queue *queue)
{
    static const char call[] = "tess_queue_destroy";
    tess_backend_device *const device = queue->device;

    if (queue->is_own)
        (void)TESS_CL_OF(device, call, finish, queue->queue);
    if (queue->scratch)
        (void)TESS_CL_OF(device, call, buffer_release, queue->scratch);
    (void)TESS_CL_OF(device, call, queue_release, queue->queue);
    tess_release(device->host, queue, sizeof *queue);
}

tess_status tess_cl_queue_wait(tess_backend_queue *queue)
{
    return TESS_CL_OF(queue->device, "tess_queue_wait", finish, queue->queue);
}

tess_status tess_cl_scratch(tess_backend_queue *queue, const char *call, size_t size,
                            void **out_memory)
{
    const tess_backend_device *const device = queue->device;
    void *const before = queue->scratch;

    if (size > queue->scratch_size) {
        queue->scratch = NULL;
        queue->scratch_size = 0;
        if (before) /* lives on until the commands that use it are done */
            TESS_TRY(TESS_CL_OF(device, call, buffer_release, before));
        TESS_TRY(
            tess_cl_buffer(device, call, TESS_CL_MEMORY_READ_WRITE, size, NULL, &queue->scratch));
        queue->scratch_size = size;
    }
    *out_memory = queue->scratch;
    return TESS_OK;
}

/* ---- Events ---------------------------------------------------------------------------------- */

tess_status tess_cl_event_create(tess_backend_device *device, tess_backend_event **out_event)
{
    tess_backend_event *event = tess_alloc_zero(device->host, sizeof *event);

    if (!event)
        return tess_fail(device->host, TESS_NO_MEMORY, "tess_event_create: no memory for %zu bytes",
                         sizeof *event);
    event->device = device;
    *out_event = event;
    return TESS_OK;
}

void tess_cl_event_destroy(tess_backend_event *event)
{
    if (event->event)
        (void)TESS_CL_OF(event->device, "tess_event_destroy", event_release, event->event);
    tess_release(event->device->host, event, sizeof *event);
}

tess_status tess_cl_event_record(tess_backend_event *event, tess_backend_queue *queue)
{
    static const char call[] = "tess_event_record";
    void *marker = NULL, *const before = event->event;

    TESS_TRY(TESS_CL_OF(queue->device, call, marker, queue->queue, 0, NULL, &marker));
    event->event = marker;
    if (before)
        TESS_TRY(TESS_CL_OF(queue->device, call, event_release, before));
    return TESS_CL_OF(queue->device, call, flush, queue->queue);
}

static tess_status end_of(const tess_backend_event *event, uint64_t *out_nanoseconds)
{
    static const char call[] = "tess_event_elapsed";
    const tess_backend_device *const device = event->device;
    tess_cl_code code;

    TESS_TRY(TESS_CL_OF(device, call, events_wait, 1, &event->event));
    code = device->driver->event_info(event->event, TESS_CL_EVENT_END, sizeof *out_nanoseconds,
                                      out_nanoseconds, NULL);
    if (code == TESS_CL_NO_PROFILING)
        return tess_fail(device->host, TESS_UNSUPPORTED,
                         "%s: the caller's queue keeps no times; it takes one with "
                         "CL_QUEUE_PROFILING_ENABLE",
                         call);
    return tess_cl_answer(device->host, call, TESS_CL_CALL_event_info, code);
}

tess_status tess_cl_event_elapsed(tess_backend_event *start, tess_backend_event *end,
                                  double *out_seconds)
{
    uint64_t from = 0, to = 0;

    TESS_TRY(end_of(start, &from));
    TESS_TRY(end_of(end, &to));
    *out_seconds = to >= from ? 1e-9 * (double)(to - from) : -1e-9 * (double)(from - to);
    return TESS_OK;
}
