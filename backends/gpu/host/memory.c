/* SPDX-License-Identifier: Apache-2.0
 * Device memory, and copies between it and the host. */
#include "backends/gpu/host/backend.h"

/* Drivers refuse to allocate nothing; the interface allows it. */
static size_t at_least_one(size_t size)
{
    return size ? size : 1;
}

tess_status tess_gpu_allocate(tess_backend_device *device, size_t size, void **out_memory)
{
    tess_gpu_scope scope;
    void *memory = NULL;
    tess_status status;

    TESS_TRY(tess_gpu_enter(&scope, device, "tess_device_allocate"));
    status = TESS_GPU_IN(&scope, allocate, &memory, at_least_one(size));
    if (status == TESS_NO_MEMORY) {
        char text[512];
        tess_error_text(device->host, text, sizeof text);
        status = tess_fail(device->host, status, "%s; %zu bytes were asked for", text, size);
    }
    status = tess_gpu_leave(&scope, status);
    if (status == TESS_OK)
        *out_memory = memory;
    else if (memory)
        tess_gpu_release(device, memory, size);
    return status;
}

void tess_gpu_release(tess_backend_device *device, void *memory, size_t size)
{
    tess_gpu_scope scope;

    (void)size;
    tess_gpu_enter(&scope, device, "tess_device_release");
    tess_gpu_leave(&scope, TESS_GPU_IN(&scope, release, memory));
}

/* The caller may change host memory when this returns. The driver promises that of pageable memory
 * only, and whether this is pinned is not for us to ask; so it waits. */
tess_status tess_gpu_upload(tess_backend_queue *queue, void *device_memory, const void *host_memory,
                            size_t size)
{
    tess_gpu_scope scope;
    tess_status status;

    TESS_TRY(tess_gpu_enter(&scope, queue->device, "tess_queue_upload"));
    status = TESS_GPU_IN(&scope, copy_to, device_memory, host_memory, size, queue->stream);
    if (status == TESS_OK)
        status = TESS_GPU_IN(&scope, stream_wait, queue->stream);
    return tess_gpu_leave(&scope, status);
}

tess_status tess_gpu_download(tess_backend_queue *queue, void *host_memory,
                              const void *device_memory, size_t size)
{
    void *const from = (void *)(uintptr_t)device_memory; /* drivers count addresses as numbers */
    tess_gpu_scope scope;
    tess_status status;

    TESS_TRY(tess_gpu_enter(&scope, queue->device, "tess_queue_download"));
    status = TESS_GPU_IN(&scope, copy_from, host_memory, from, size, queue->stream);
    if (status == TESS_OK)
        status = TESS_GPU_IN(&scope, stream_wait, queue->stream);
    return tess_gpu_leave(&scope, status);
}
