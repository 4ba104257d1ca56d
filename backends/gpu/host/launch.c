/* SPDX-License-Identifier: Apache-2.0
 * Running a plan: addresses looked at, steps put into the stream. Allocates nothing, waits for
 * nothing, so that it may be captured into a graph. */
#include "backends/gpu/host/backend.h"

#include <inttypes.h>

/* ---- Addresses ------------------------------------------------------------------------------- */

/* Of cuPointerGetAttribute() and hipPointerGetAttribute(). */
enum { POINTER_MEMORY_TYPE = 2, POINTER_IS_MANAGED = 8, POINTER_DEVICE = 9, MEMORY_OF_DEVICE = 2 };

/* Whether memory is a device's alone: what the driver pinned or manages is everybody's. */
static bool is_of_device(const tess_gpu_driver *driver, void *address)
{
    unsigned type = 0, is_managed = 0;

    return driver->pointer_attribute(&type, POINTER_MEMORY_TYPE, address) == TESS_GPU_SUCCESS &&
           type == MEMORY_OF_DEVICE &&
           driver->pointer_attribute(&is_managed, POINTER_IS_MANAGED, address) ==
               TESS_GPU_SUCCESS &&
           !is_managed;
}

/* Memory of another device is refused although a kernel might reach it: what is meant is rarely
 * that. One question is enough for what is right, since every launch pays for it. */
tess_status tess_gpu_check_address(const tess_gpu_scope *scope, const char *name, void *address)
{
    const tess_backend_device *device = scope->device;
    const tess_gpu_driver *driver = device->driver;
    int ordinal = device->ordinal, code;

    if (!address || !driver->pointer_attribute)
        return TESS_OK;
    code = driver->pointer_attribute(&ordinal, POINTER_DEVICE, address);
    if (code == TESS_GPU_INVALID_VALUE && !device->reads_host)
        return tess_fail(device->host, TESS_INVALID,
                         "%s: %s is at %p, which the %s driver does not know; it takes memory of "
                         "%s:%d, not of the host",
                         scope->call, name, address, device->vendor->brand, device->vendor->name,
                         device->ordinal);
    if (code != TESS_GPU_SUCCESS || ordinal == device->ordinal || !is_of_device(driver, address))
        return TESS_OK;
    return tess_fail(device->host, TESS_INVALID, "%s: %s is memory of %s:%d; the queue is of %s:%d",
                     scope->call, name, device->vendor->name, ordinal, device->vendor->name,
                     device->ordinal);
}

static tess_status check_addresses(const tess_gpu_scope *scope,
                                   const tess_address addresses[TESS_AT_COUNT])
{
    for (int i = 0; i < TESS_AT_COUNT; i++)
        TESS_TRY(tess_gpu_check_address(scope, tess_address_names[i], addresses[i].base));
    return TESS_OK;
}

/* ---- Steps ----------------------------------------------------------------------------------- */

static tess_status launch_step(const tess_gpu_scope *scope, const tess_gpu_step *step,
                               tess_gpu_addresses *addresses, void *stream)
{
    /* The driver reads these and copies them before it returns; its interface lacks the const. */
    tess_args args = step->args;
    tess_gpu_run run = step->run;
    tess_gpu_maps maps;
    void *parameters[] = {&args, addresses, &run, &maps}; /* kernels without the last ignore it */

    if (step->kernel->takes_maps) {
        bool has_maps = false;
        maps = (tess_gpu_maps){.k = {{0}}, .v = {{0}}};
        TESS_TRY(tess_gpu_describe(scope, &args, addresses, &maps, &has_maps));
        run.has_maps = has_maps;
    }
    return TESS_GPU_IN(scope, launch, step->function, step->grid, 1, 1, step->kernel->threads, 1, 1,
                       step->kernel->shared, stream, parameters, NULL);
}

static tess_status launch_all(const tess_gpu_scope *scope, const tess_prepared *prepared,
                              const tess_address addresses[TESS_AT_COUNT], void *stream)
{
    tess_gpu_addresses block;

    TESS_TRY(check_addresses(scope, addresses));
    for (int i = 0; i < TESS_AT_COUNT; i++)
        block.at[i] = addresses[i].base;
    for (int i = 0; i < prepared->count; i++)
        TESS_TRY(launch_step(scope, &prepared->steps[i], &block, stream));
    return TESS_OK;
}

tess_status tess_gpu_launch(tess_backend_queue *queue, const tess_prepared *prepared,
                            const tess_address addresses[TESS_AT_COUNT])
{
    tess_gpu_scope scope;

    TESS_TRY(tess_gpu_enter(&scope, queue->device, prepared->call));
    return tess_gpu_leave(&scope, launch_all(&scope, prepared, addresses, queue->stream));
}
