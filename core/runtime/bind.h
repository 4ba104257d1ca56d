/* SPDX-License-Identifier: Apache-2.0
 * From the caller's arguments to addresses: what is missing, superfluous, misaligned, overlapping.
 */
#ifndef TESSERA_CORE_RUNTIME_BIND_H
#define TESSERA_CORE_RUNTIME_BIND_H

#include "core/runtime/objects.h"

/* One tensor of a call. */
typedef struct tess_binding {
    const char *name;
    enum tess_address_index at;
    const void *base;
    int64_t offset;
    tess_layout layout; /* what of it may be touched; dtype included */
    bool is_output;
    bool is_wanted;   /* the descriptor asks for it */
    bool is_optional; /* NULL is fine although it is wanted */
} tess_binding;

/* Whether the plan, the queue and the arguments of a run go together. */
tess_status tess_bind_check_call(const tess_plan *plan, const tess_queue *queue, const char *call,
                                 int32_t pass, const void *args);

/* Checks the address of one tensor by itself; is_plain: it is one that can be computed with. */
tess_status tess_bind_check(const tess_host *host, const char *call, bool is_plain,
                            const tess_binding *binding);

/* Checks every binding and writes the addresses. Overlap is looked for among plain addresses, and
 * within one buffer where there are buffers. Fails with TESS_INVALID naming the argument. */
tess_status tess_bind(const tess_plan *plan, const char *call,
                      const tess_binding bindings[TESS_AT_COUNT],
                      tess_address out_addresses[TESS_AT_COUNT]);

/* Checks or finds the workspace, writes its address, aligned, and launches. That it shares no
 * memory with anything is a matter of tess_bind(), to which it is one output more. */
tess_status tess_bind_launch(const tess_plan *plan, tess_queue *queue, const char *call,
                             const tess_out *workspace, size_t size,
                             tess_address addresses[TESS_AT_COUNT]);

/* Layouts of the tensors that have no tess_layout of their own. */
tess_layout tess_bind_vector(tess_dtype dtype, int64_t count);

#endif
