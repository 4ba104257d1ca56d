/* SPDX-License-Identifier: Apache-2.0
 * Devices: finding them, opening them, their memory, queues and events. */
#ifndef TESSERA_DEVICE_H
#define TESSERA_DEVICE_H

#include "context.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Opaque. A device belongs to its context and is closed with it; opening the same name twice gives
 * the same device. */
typedef struct tess_device tess_device;

/* Opaque. In-order work on one device. One thread at a time per queue; different queues are
 * independent. On the CPU a call returns when its work is done. */
typedef struct tess_queue tess_queue;

/* Opaque. A point in a queue's work, for timing. */
typedef struct tess_event tess_event;

/* What kind of machine a device is. */
typedef int32_t tess_device_kind;
enum { TESS_DEVICE_CPU = 1, TESS_DEVICE_GPU = 2, TESS_DEVICE_OTHER = 3 };

/* Facts about a device. The library fills as many members as the caller's struct_size covers. */
typedef struct tess_device_info {
    size_t struct_size;    /* sizeof(tess_device_info), set by the caller */
    int64_t memory;        /* bytes of device memory (CPU: of main memory); 0 when unknown */
    int64_t shared_memory; /* bytes of on-chip memory a work-group may use; 0 where there is none */
    int64_t cache;         /* bytes of the last private cache level; 0 when unknown */
    tess_device_kind kind; /* TESS_DEVICE_... */
    int32_t units;         /* compute units; on the CPU the threads one call may use */
    int32_t lanes;         /* fp32 elements of one vector or wave */
    int32_t available;     /* 1 when the device can be opened, 0 when `reason` says why not */
    char name[64];         /* what tess_device_open() takes: "cpu", "cuda:1" */
    char description[128]; /* what the vendor calls it */
    char architecture[64]; /* instruction set or chip family: "avx512", "sm_90" */
    char reason[256];      /* why it cannot be opened; empty when it can */
    int64_t driver; /* the driver's version, as the driver counts; 0: none, or it does not say */
} tess_device_info;

/* Number of devices, those that cannot be opened included (one line per backend that found none).
 * Probes each backend the first time, which may load a driver library.
 *
 * Returns 0 only when memory runs out. Threads: any. */
TESS_API size_t tess_context_device_count(tess_context *context);

/* Facts about one device of the list.
 *
 * index  less than tess_context_device_count(); the best device that can be opened comes first
 * info   struct_size set by the caller; the other members are written
 *
 * Fails with TESS_INVALID. Threads: any. */
TESS_API tess_status tess_context_device_info(tess_context *context, size_t index,
                                              tess_device_info *info);

/* Opens a device.
 *
 * name        "cpu", "cuda", "cuda:1", "opencl:pocl:0". NULL asks TESSERA_BACKEND and, where that
 *             is not set, takes the first device of the list that opens. TESSERA_BACKEND with one
 *             name is a hard choice; a comma list is an order of preference
 * out_device  receives a device owned by the context; untouched on failure
 *
 * Fails with TESS_INVALID for a name that no backend has (the text offers the nearest one) or that
 * the context's backend list excludes, TESS_UNAVAILABLE with the reason when the device is not
 * there, TESS_NO_MEMORY, TESS_DEVICE_FAILED. Threads: any. */
TESS_API tess_status tess_device_open(tess_context *context, const char *name,
                                      tess_device **out_device);

/* Facts about an open device; as tess_context_device_info(). Threads: any. */
TESS_API tess_status tess_device_get_info(const tess_device *device, tess_device_info *info);

/* Allocates device memory; on the CPU this is ordinary memory of the context's allocator.
 *
 * size        bytes; 0 is allowed and gives an address that must not be used
 * out_memory  receives the address, aligned to 64 bytes, to be freed with
 *             tess_device_release(); untouched on failure
 *
 * Fails with TESS_NO_MEMORY, TESS_DEVICE_FAILED. Threads: any. */
TESS_API tess_status tess_device_allocate(tess_device *device, size_t size, void **out_memory);

/* Releases memory of tess_device_allocate(); size is the size asked for. The device must be done
 * with it. NULL is fine. Threads: any. */
TESS_API void tess_device_release(tess_device *device, void *memory, size_t size);

/* Creates a queue.
 *
 * out_queue  receives the queue, to be freed with tess_queue_destroy(); untouched on failure
 *
 * Fails with TESS_NO_MEMORY, TESS_DEVICE_FAILED. Threads: any. */
TESS_API tess_status tess_queue_create(tess_device *device, tess_queue **out_queue);

/* Waits for the queue's work, then frees it and its scratch memory. NULL is fine.
 * Threads: no other call may use the queue. */
TESS_API void tess_queue_destroy(tess_queue *queue);

/* Waits until all work put into the queue is done.
 *
 * Fails with TESS_DEVICE_FAILED when some of that work failed. */
TESS_API tess_status tess_queue_wait(tess_queue *queue);

/* Copies host memory to the device, in the order of the queue. The host memory may be changed as
 * soon as the call returns.
 *
 * device_memory  destination; on the CPU any address
 * host_memory    source; must not overlap the destination
 * size           bytes; 0 does nothing
 *
 * Fails with TESS_INVALID for a NULL address with a size, TESS_DEVICE_FAILED. */
TESS_API tess_status tess_queue_upload(tess_queue *queue, void *device_memory,
                                       const void *host_memory, size_t size);

/* Copies device memory to the host; waits for the queue first. As tess_queue_upload(). */
TESS_API tess_status tess_queue_download(tess_queue *queue, void *host_memory,
                                         const void *device_memory, size_t size);

/* Creates an event of a device, to be freed with tess_event_destroy(); untouched on failure.
 *
 * Fails with TESS_NO_MEMORY, TESS_UNSUPPORTED when the device cannot time, TESS_DEVICE_FAILED.
 * Threads: any. */
TESS_API tess_status tess_event_create(tess_device *device, tess_event **out_event);

/* Frees an event. NULL is fine. Threads: no other call may use the event. */
TESS_API void tess_event_destroy(tess_event *event);

/* Marks this point of the queue's work; an event may be recorded again.
 *
 * Fails with TESS_INVALID when event and queue are of different devices, TESS_DEVICE_FAILED. */
TESS_API tess_status tess_event_record(tess_event *event, tess_queue *queue);

/* Time between two recorded points. Waits until both are reached.
 *
 * out_seconds  receives end minus start, in seconds; untouched on failure
 *
 * Fails with TESS_INVALID when one was never recorded or the devices differ, TESS_DEVICE_FAILED. */
TESS_API tess_status tess_event_elapsed(tess_event *start, tess_event *end, double *out_seconds);

#ifdef __cplusplus
}
#endif

#endif
