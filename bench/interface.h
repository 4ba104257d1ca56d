/* SPDX-License-Identifier: Apache-2.0
 * The library's public functions as a table, so that another build of it can be timed beside this
 * one: what the public interface promises is all that is used of either. */
#ifndef TESSERA_BENCH_INTERFACE_H
#define TESSERA_BENCH_INTERFACE_H

#include "core/base/host.h"
#include "core/base/text.h"

#include <tessera/tessera.h>

/* X(member, function): the type is that of the declaration this build was compiled with. */
#define TESS_INTERFACE(X)                              \
    X(version, tess_version)                           \
    X(context_create, tess_context_create)             \
    X(context_destroy, tess_context_destroy)           \
    X(context_error, tess_context_error)               \
    X(device_open, tess_device_open)                   \
    X(device_get_info, tess_device_get_info)           \
    X(device_allocate, tess_device_allocate)           \
    X(device_release, tess_device_release)             \
    X(queue_create, tess_queue_create)                 \
    X(queue_destroy, tess_queue_destroy)               \
    X(queue_wait, tess_queue_wait)                     \
    X(event_create, tess_event_create)                 \
    X(event_destroy, tess_event_destroy)               \
    X(event_record, tess_event_record)                 \
    X(event_elapsed, tess_event_elapsed)               \
    X(plan_create_forward, tess_plan_create_forward)   \
    X(plan_create_backward, tess_plan_create_backward) \
    X(plan_destroy, tess_plan_destroy)                 \
    X(plan_workspace_size, tess_plan_workspace_size)   \
    X(plan_describe, tess_plan_describe)               \
    X(plan_run_forward, tess_plan_run_forward)         \
    X(plan_run_backward, tess_plan_run_backward)

/* typeof is not C11, so that the types of the members are written out. */
typedef struct tess_interface {
    int32_t (*version)(void);
    tess_status (*context_create)(const tess_context_desc *, tess_context **);
    void (*context_destroy)(tess_context *);
    size_t (*context_error)(const tess_context *, char *, size_t);
    tess_status (*device_open)(tess_context *, const char *, tess_device **);
    tess_status (*device_get_info)(const tess_device *, tess_device_info *);
    tess_status (*device_allocate)(tess_device *, size_t, void **);
    void (*device_release)(tess_device *, void *, size_t);
    tess_status (*queue_create)(tess_device *, tess_queue **);
    void (*queue_destroy)(tess_queue *);
    tess_status (*queue_wait)(tess_queue *);
    tess_status (*event_create)(tess_device *, tess_event **);
    void (*event_destroy)(tess_event *);
    tess_status (*event_record)(tess_event *, tess_queue *);
    tess_status (*event_elapsed)(tess_event *, tess_event *, double *);
    tess_status (*plan_create_forward)(tess_device *, const tess_attention_desc *, tess_plan **);
    tess_status (*plan_create_backward)(tess_device *, const tess_attention_desc *,
                                        const tess_gradient_desc *, tess_plan **);
    void (*plan_destroy)(tess_plan *);
    size_t (*plan_workspace_size)(const tess_plan *);
    size_t (*plan_describe)(const tess_plan *, char *, size_t);
    tess_status (*plan_run_forward)(const tess_plan *, tess_queue *, const tess_forward_args *);
    tess_status (*plan_run_backward)(const tess_plan *, tess_queue *, const tess_backward_args *);
} tess_interface;

/* The functions of this build. */
extern const tess_interface tess_interface_here;

/* Opens another build.
 *
 * host         whose log and trace hear of it
 * path         of a libtessera.so
 * out_library  for tess_library_close(), after everything made through *out is gone
 * why          receives the reason of a failure
 *
 * Fails with TESS_UNAVAILABLE when it cannot be opened or lacks one of the functions. */
tess_status tess_interface_open(const tess_host *host, const char *path, void **out_library,
                                tess_interface *out, tess_text *why);

#endif
