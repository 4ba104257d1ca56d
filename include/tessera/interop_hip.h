/* SPDX-License-Identifier: Apache-2.0
 * Streams of a program that uses HIP itself. Handles are void pointers: no vendor's header is
 * needed. */
#ifndef TESSERA_INTEROP_HIP_H
#define TESSERA_INTEROP_HIP_H

#include "device.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Makes a queue of a stream of the caller's. Its work is put into that stream, in order with
 * everything else there; the library never waits for it unless the name of a call says so.
 * Destroying the queue leaves the stream as it is and does not wait for it.
 *
 * While the stream is being captured into a graph, plans run with a workspace of the caller's only.
 *
 * device     of the "hip" backend, the one the stream is of
 * stream     hipStream_t; NULL is the default stream. Must outlive
 *            the queue
 * out_queue  receives the queue, to be freed with tess_queue_destroy(); untouched on failure
 *
 * Fails with TESS_INVALID for a device of another backend and, where the driver can tell, for a
 * stream of another device; TESS_NO_MEMORY, TESS_DEVICE_FAILED. Threads: any. */
TESS_API tess_status tess_queue_wrap_hip(tess_device *device, void *stream, tess_queue **out_queue);

#ifdef __cplusplus
}
#endif

#endif
