/* SPDX-License-Identifier: Apache-2.0
 * The contract: what core asks of a backend. Core has validated every argument before any call. */
#ifndef TESSERA_BACKENDS_BACKEND_H
#define TESSERA_BACKENDS_BACKEND_H

#include "core/base/env.h"
#include "core/base/error.h"
#include "core/base/host.h"
#include "core/schedule/schedule.h"

#include <tessera/tessera.h>

/* Opaque to core; each backend defines its own. */
typedef struct tess_backend_device tess_backend_device;
typedef struct tess_backend_queue tess_backend_queue;
typedef struct tess_backend_event tess_backend_event;
typedef struct tess_prepared tess_prepared;

/* What a backend is opened with. */
typedef struct tess_open {
    const tess_host *host; /* outlives the device */
    const tess_env *env;
    const char *rest; /* what follows "name:" in the device's name, or "" */
    int32_t threads;  /* CPU threads the context allows, 0: as OpenMP says */
} tess_open;

/* One address per entry of enum tess_address_index; NULL where the problem has no such tensor.
 * Offsets are applied. (A backend whose memory is not addressed by pointers reads `offset`.) */
typedef struct tess_address {
    void *base;
    int64_t offset; /* bytes, already within base on backends with plain addresses: then 0 */
} tess_address;

/* Rules:
 * - Validation happens once, in core/runtime. A backend that checks a user's argument is a mistake;
 *   what only it can check (index arrays in device memory, a pointer's device) is the exception.
 * - No delegation to another backend: what one kernel does not take, another record of the same
 *   backend takes, or the plan fails with every reason listed.
 * - The caller's current device, context and stream are as before after each call.
 * - Failures go through tess_fail() with the driver's own name and number.
 * Entries without a comment "NULL: ..." are required. */
typedef struct tess_backend {
    const char *name;            /* "cuda": the word users type and every log line has */
    int32_t priority;            /* larger is tried first when the user did not choose */
    int32_t has_plain_addresses; /* base + offset is formed by core before launch */

    /* Number of devices, 0 with the reason written. Cheap: may load a driver, makes no context. */
    int32_t (*count)(const tess_open *open, tess_text *out_why);

    /* Facts about device `index`, counted as count() does, or, below 0, about the one open->rest
     * names; TESS_UNAVAILABLE with a text when it is not there. `name` is the same however the
     * device was named: core knows open devices by it. */
    tess_status (*info)(const tess_open *open, int32_t index, tess_device_info *out_info);

    tess_status (*open)(const tess_open *open, tess_backend_device **out_device);
    /* A device of a native context of the caller's, and the name core knows it by. NULL: a device
     * has one context, or none */
    tess_status (*device_wrap)(const tess_open *open, const char *call, void *native_context,
                               void *native_device, char out_name[64],
                               tess_backend_device **out_device);
    void (*close)(tess_backend_device *device);
    const tess_caps *(*caps)(const tess_backend_device *device);

    const tess_kernel *(*kernels)(size_t *out_count);      /* the static table of the .def files */
    int32_t (*workers)(const tess_backend_device *device); /* NULL: no per-worker scratch */

    tess_status (*prepare)(tess_backend_device *device, const tess_schedule *schedule,
                           tess_prepared **out_prepared);
    tess_status (*launch)(tess_backend_queue *queue, const tess_prepared *prepared,
                          const tess_address addresses[TESS_AT_COUNT]);
    void (*discard)(tess_prepared *prepared);

    tess_status (*merge)(tess_backend_queue *queue, const tess_merge_desc *desc,
                         const tess_merge_args *args); /* NULL: refused */

    tess_status (*allocate)(tess_backend_device *device, size_t size, void **out_memory);
    void (*release)(tess_backend_device *device, void *memory, size_t size);

    tess_status (*queue_create)(tess_backend_device *device, tess_backend_queue **out_queue);
    /* A queue on a stream of the caller's, which stays his. NULL: there are no native streams */
    tess_status (*queue_wrap)(tess_backend_device *device, const char *call, void *stream,
                              tess_backend_queue **out_queue);
    void (*queue_destroy)(tess_backend_queue *queue);
    tess_status (*queue_wait)(tess_backend_queue *queue);
    tess_status (*upload)(tess_backend_queue *queue, void *device_memory, const void *host_memory,
                          size_t size);
    tess_status (*download)(tess_backend_queue *queue, void *host_memory, const void *device_memory,
                            size_t size);
    /* The queue's own scratch, at least size bytes; grows, waits when it must. `call` is the public
     * function it is for, the first word of a failure's text. NULL: refused. */
    tess_status (*scratch)(tess_backend_queue *queue, const char *call, size_t size,
                           void **out_memory);

    /* NULL (all four): the device cannot time */
    tess_status (*event_create)(tess_backend_device *device, tess_backend_event **out_event);
    void (*event_destroy)(tess_backend_event *event);
    tess_status (*event_record)(tess_backend_event *event, tess_backend_queue *queue);
    tess_status (*event_elapsed)(tess_backend_event *start, tess_backend_event *end,
                                 double *out_seconds);
} tess_backend;

/* Declares every backend that was compiled in. */
#define TESS_BACKEND(name) extern const tess_backend tess_backend_##name;
#include "backends/backends.def"
#undef TESS_BACKEND

#endif
