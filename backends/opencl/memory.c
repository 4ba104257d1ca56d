/* SPDX-License-Identifier: Apache-2.0
 * Buffers, and copies between them and the host. */
#include "backends/opencl/backend.h"

tess_status tess_cl_buffer(const tess_backend_device *device, const char *call, uint64_t flags,
                           size_t size, const void *from, void **out_buffer)
{
    tess_cl_code code = TESS_CL_SUCCESS;
    /* The driver copies what it is given; its interface lacks the const. */
    void *const host = (void *)(uintptr_t)from;
    void *const buffer = device->driver->buffer_create(
        device->context, flags | (from ? TESS_CL_MEMORY_COPY : 0), size ? size : 1, host, &code);

    TESS_TRY(tess_cl_answer(device->host, call, TESS_CL_CALL_buffer_create, code));
    *out_buffer = buffer;
    return TESS_OK;
}

tess_status tess_cl_allocate(tess_backend_device *device, size_t size, void **out_memory)
{
    const tess_status status = tess_cl_buffer(device, "tess_device_allocate",
                                              TESS_CL_MEMORY_READ_WRITE, size, NULL, out_memory);
    char text[512];

    if (status != TESS_NO_MEMORY)
        return status;
    tess_error_text(device->host, text, sizeof text);
    return tess_fail(device->host, status, "%s; %zu bytes were asked for", text, size);
}

void tess_cl_release(tess_backend_device *device, void *memory, size_t size)
{
    (void)size;
    (void)TESS_CL_OF(device, "tess_device_release", buffer_release, memory);
}

/* The caller may change host memory when this returns, so it waits. */
tess_status tess_cl_upload(tess_backend_queue *queue, void *device_memory, const void *host_memory,
                           size_t size)
{
    return TESS_CL_OF(queue->device, "tess_queue_upload", buffer_write, queue->queue, device_memory,
                      1, 0, size, host_memory, 0, NULL, NULL);
}

tess_status tess_cl_download(tess_backend_queue *queue, void *host_memory,
                             const void *device_memory, size_t size)
{
    void *const from = (void *)(uintptr_t)device_memory; /* an object's handle, not an address */

    return TESS_CL_OF(queue->device, "tess_queue_download", buffer_read, queue->queue, from, 1, 0,
                      size, host_memory, 0, NULL, NULL);
}
