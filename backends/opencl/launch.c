/* SPDX-License-Identifier: Apache-2.0
 * Running a plan: parameters set and steps put into the queue, under the plan's lock. */
#include "backends/opencl/backend.h"

#include "core/base/alloc.h"
#include "core/portable/walk.h"

/* Buffers and offsets of one run. */
typedef struct bound {
    void *buffer[TESS_AT_COUNT];
    int64_t offset[TESS_AT_COUNT];
} bound;

static bound bind(const tess_address addresses[TESS_AT_COUNT])
{
    bound b;

    for (int i = 0; i < TESS_AT_COUNT; i++) {
        b.buffer[i] = addresses[i].base;
        b.offset[i] = addresses[i].base ? addresses[i].offset : 0;
    }
    /* workspace_size holds the bytes that this may skip. */
    b.offset[TESS_AT_WORKSPACE] =
        (b.offset[TESS_AT_WORKSPACE] + TESS_ALIGNMENT - 1) / TESS_ALIGNMENT * TESS_ALIGNMENT;
    return b;
}

/* The parameters of kernels/prelude.h. A buffer that is not there is an address of NULL. */
static tess_status set_parameters(const tess_prepared *prepared, const tess_cl_step *step,
                                  const bound *b)
{
    const tess_backend_device *const device = prepared->device;
    const int last =
        step->kernel->pass == TESS_PASS_FORWARD ? TESS_AT_WORKSPACE : TESS_AT_COUNT - 1;
    const int64_t first_item = 0;
    uint32_t at = 0;

#define SET(value)                                                                             \
    TESS_TRY(TESS_CL_OF(device, prepared->call, argument, step->function, at++, sizeof(value), \
                        &(value)))
    SET(step->args);
    for (int i = 0; i <= last; i++) {
        SET(b->buffer[i]);
        SET(b->offset[i]);
    }
    SET(first_item);
    SET(step->items);
#undef SET
    return TESS_OK;
}

static tess_status launch_step(void *queue, const tess_prepared *prepared, const tess_cl_step *step,
                               const bound *b)
{
    const size_t local = step->kernel->group, global = step->groups * local;

    TESS_TRY(set_parameters(prepared, step, b));
    return TESS_CL_OF(prepared->device, prepared->call, launch, queue, step->function, 1, NULL,
                      &global, &local, 0, NULL, NULL);
}

static tess_status launch_all(tess_backend_queue *queue, const tess_prepared *prepared,
                              const bound *b)
{
    for (int i = 0; i < prepared->count; i++)
        TESS_TRY(launch_step(queue->queue, prepared, &prepared->steps[i], b));
    return TESS_CL_OF(queue->device, prepared->call, flush, queue->queue);
}

tess_status tess_cl_launch(tess_backend_queue *queue, const tess_prepared *prepared,
                           const tess_address addresses[TESS_AT_COUNT])
{
    const bound b = bind(addresses);
    /* The one member of a plan that changes: kernels remember parameters. */
    pthread_mutex_t *const lock = (pthread_mutex_t *)(uintptr_t)&prepared->lock;
    tess_status status;

    pthread_mutex_lock(lock);
    status = launch_all(queue, prepared, &b);
    pthread_mutex_unlock(lock);
    return status;
}
