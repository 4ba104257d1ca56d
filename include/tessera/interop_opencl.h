/* SPDX-License-Identifier: Apache-2.0
 * Contexts, queues and buffers of a program that uses OpenCL itself. Handles are void pointers: no
 * OpenCL header is needed. */
#ifndef TESSERA_INTEROP_OPENCL_H
#define TESSERA_INTEROP_OPENCL_H

#include "device.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Tensors on OpenCL are buffers: `base` of tess_in and tess_out is a cl_mem, as
 * tess_device_allocate() gives it and as the program's own clCreateBuffer() does, and `offset` the
 * bytes from its start to element (0,0,0,0), a multiple of the element's size. A buffer must be of
 * the context of the plan's device. Plans do not retain buffers; the driver does while commands use
 * them. Outputs may not overlap in a buffer; whether two buffers share memory is the
 * caller's to know. */

/* Makes a device of a context of the caller's, so that its buffers and queues may be used. Wrapping
 * the same context and device again gives the same device. The context is retained until the
 * tessera context is destroyed.
 *
 * context        the tessera context, which must allow the backend "opencl"
 * native_context cl_context
 * native_device  cl_device_id, one of that context's, of a platform of the installed loader
 * out_device     receives a device owned by the context; untouched on failure
 *
 * Fails with TESS_INVALID for handles that do not belong together, TESS_UNAVAILABLE when OpenCL is
 * not there or the device cannot be used (the text says why), TESS_NO_MEMORY, TESS_DEVICE_FAILED.
 * Threads: any. */
TESS_API tess_status tess_device_wrap_opencl(tess_context *context, void *native_context,
                                             void *native_device, tess_device **out_device);

/* Makes a queue of a command queue of the caller's. Its work is put there, in order with everything
 * else; the library never waits for it unless the name of a call says so. Destroying the queue
 * leaves the command queue as it is and does not wait for it. Events need one that was made with
 * CL_QUEUE_PROFILING_ENABLE.
 *
 * device        of tess_device_wrap_opencl(), of the context that the command queue is of
 * native_queue  cl_command_queue, in order; it is retained until the queue is destroyed
 * out_queue     receives the queue, to be freed with tess_queue_destroy(); untouched on failure
 *
 * Fails with TESS_INVALID for a device of another backend, for a command queue of another context
 * or device and for one that runs out of order; TESS_NO_MEMORY, TESS_DEVICE_FAILED. Threads: any.
 */
TESS_API tess_status tess_queue_wrap_opencl(tess_device *device, void *native_queue,
                                            tess_queue **out_queue);

#ifdef __cplusplus
}
#endif

#endif
