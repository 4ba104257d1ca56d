/* SPDX-License-Identifier: Apache-2.0
 * Queues: streams of our own or the caller's, and the scratch memory that belongs to them. */
#include "backends/gpu/host/backend.h"

#include "core/base/alloc.h"

enum { STREAM_NON_BLOCKING = 1 }; /* does not wait for the default stream, nor it for this one */

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

static void unmake(tess_backend_queue *queue)
{
    tess_release(queue->device->host, queue, sizeof *queue);
}

static tess_status create_stream(const tess_gpu_scope *scope, tess_backend_queue *queue)
{
    TESS_TRY(TESS_GPU_IN(scope, stream_create, &queue->stream, STREAM_NON_BLOCKING));
    queue->owns_stream = true;
    return TESS_OK;
}

tess_status tess_gpu_queue_create(tess_backend_device *device, tess_backend_queue **out_queue)
{
    static const char call[] = "tess_queue_create";
    tess_backend_queue *queue = make(device, call);
    tess_gpu_scope scope;
    tess_status status;

    if (!queue)
        return TESS_NO_MEMORY;
    status = tess_gpu_enter(&scope, device, call);
    if (status == TESS_OK)
        status = tess_gpu_leave(&scope, create_stream(&scope, queue));
    if (status != TESS_OK) {
        tess_gpu_queue_destroy(queue);
        return status;
    }
    *out_queue = queue;
    return TESS_OK;
}

/* ---- Streams of the caller ------------------------------------------------------------------- */

/* Whether a stream is of this device, where the driver can tell. The default stream is everybody's.
 */
static tess_status check_owner(const tess_gpu_scope *scope, void *stream)
{
    const tess_backend_device *device = scope->device;
    const tess_gpu_driver *driver = device->driver;
    void *context = device->context;
    int handle = device->ordinal;

    if (!stream)
        return TESS_OK;
    if (driver->stream_context)
        TESS_TRY(TESS_GPU_IN(scope, stream_context, stream, &context));
    if (driver->stream_device)
        TESS_TRY(TESS_GPU_IN(scope, stream_device, stream, &handle));
    if (context == device->context && handle == device->ordinal)
        return TESS_OK;
    return tess_fail(device->host, TESS_INVALID,
                     "%s: stream is of another device or context than %s:%d; it takes one of that "
                     "device's primary context, as the runtime library makes them",
                     scope->call, device->vendor->name, device->ordinal);
}

tess_status tess_gpu_queue_wrap(tess_backend_device *device, const char *call, void *stream,
                                tess_backend_queue **out_queue)
{
    tess_backend_queue *queue = make(device, call);
    tess_gpu_scope scope;
    tess_status status;

    if (!queue)
        return TESS_NO_MEMORY;
    queue->stream = stream;
    status = tess_gpu_enter(&scope, device, call);
    if (status == TESS_OK)
        status = tess_gpu_leave(&scope, check_owner(&scope, stream));
    if (status != TESS_OK) {
        tess_gpu_queue_destroy(queue);
        return status;
    }
    *out_queue = queue;
    return TESS_OK;
}

tess_status tess_gpu_is_capturing(const tess_gpu_scope *scope, void *stream, bool *out_is)
{
    int capture = 0; /* 1: recording, 2: recording that has gone wrong */

    if (scope->device->driver->stream_is_capturing)
        TESS_TRY(TESS_GPU_IN(scope, stream_is_capturing, stream, &capture));
    *out_is = capture != 0;
    return TESS_OK;
}

/* ---- Scratch --------------------------------------------------------------------------------- */

/* Gives scratch back in the order of the stream, or, where memory knows no order, once it is idle.
 */
static tess_status drop_scratch(const tess_gpu_scope *scope, tess_backend_queue *queue)
{
    void *const memory = queue->scratch;

    if (!memory)
        return TESS_OK;
    queue->scratch = NULL;
    queue->scratch_size = 0;
    if (queue->scratch_is_async)
        return TESS_GPU_IN(scope, release_async, memory, queue->stream);

    const tess_status status = TESS_GPU_IN(scope, stream_wait, queue->stream);
    const tess_status freed = TESS_GPU_IN(scope, release, memory); /* in any case */
    return status != TESS_OK ? status : freed;
}

static tess_status grow_scratch(const tess_gpu_scope *scope, tess_backend_queue *queue, size_t size)
{
    const tess_gpu_driver *driver = scope->device->driver;
    int code = TESS_GPU_NOT_SUPPORTED;

    TESS_TRY(drop_scratch(scope, queue));
    queue->scratch_is_async = driver->allocate_async && driver->release_async;
    if (queue->scratch_is_async)
        code = driver->allocate_async(&queue->scratch, size, queue->stream);
    if (code == TESS_GPU_NOT_SUPPORTED) { /* the driver knows the call, the device does not */
        queue->scratch_is_async = false;
        if (driver->forget_error)
            driver->forget_error();
        TESS_TRY(TESS_GPU_IN(scope, allocate, &queue->scratch, size));
    } else {
        TESS_TRY(tess_gpu_answer(driver, scope->device->host, scope->call,
                                 TESS_GPU_CALL_allocate_async, code));
    }
    queue->scratch_size = size;
    return TESS_OK;
}

static tess_status find_scratch(const tess_gpu_scope *scope, tess_backend_queue *queue, size_t size)
{
    bool is_capturing;

    TESS_TRY(tess_gpu_is_capturing(scope, queue->stream, &is_capturing));
    if (is_capturing)
        return tess_fail(scope->device->host, TESS_INVALID,
                         "%s: workspace is NULL in a stream that is being captured; there it takes "
                         "%zu bytes of the caller's (tess_plan_workspace_size)",
                         scope->call, size);
    return size > queue->scratch_size ? grow_scratch(scope, queue, size) : TESS_OK;
}

tess_status tess_gpu_scratch(tess_backend_queue *queue, const char *call, size_t size,
                             void **out_memory)
{
    tess_gpu_scope scope;

    TESS_TRY(tess_gpu_enter(&scope, queue->device, call));
    TESS_TRY(tess_gpu_leave(&scope, find_scratch(&scope, queue, size)));
    *out_memory = queue->scratch;
    return TESS_OK;
}

/* ---- Waiting, ending ------------------------------------------------------------------------- */

tess_status tess_gpu_queue_wait(tess_backend_queue *queue)
{
    tess_gpu_scope scope;

    TESS_TRY(tess_gpu_enter(&scope, queue->device, "tess_queue_wait"));
    return tess_gpu_leave(&scope, TESS_GPU_IN(&scope, stream_wait, queue->stream));
}

/* A wrapped stream's work goes on: waiting for it is its owner's business, and wrong while it is
 * being captured. */
static void end(const tess_gpu_scope *scope, tess_backend_queue *queue)
{
    if (queue->owns_stream)
        (void)TESS_GPU_IN(scope, stream_wait, queue->stream);
    (void)drop_scratch(scope, queue);
    if (queue->owns_stream)
        (void)TESS_GPU_IN(scope, stream_destroy, queue->stream);
}

void tess_gpu_queue_destroy(tess_backend_queue *queue)
{
    tess_gpu_scope scope;

    tess_gpu_enter(&scope, queue->device, "tess_queue_destroy");
    end(&scope, queue);
    tess_gpu_leave(&scope, TESS_OK);
    unmake(queue);
}
