/* SPDX-License-Identifier: Apache-2.0
 * What the program lent us: its allocator, its log, and how much it wants to hear. */
#ifndef TESSERA_CORE_BASE_HOST_H
#define TESSERA_CORE_BASE_HOST_H

#include <tessera/context.h>

#include <stdint.h>

/* Categories of trace lines; bits of tess_host.trace, in the order TESSERA_TRACE lists them. */
enum {
    TESS_TRACE_PLAN = 1u << 0,   /* what was planned, and the kernel and schedule it got */
    TESS_TRACE_REFUSE = 1u << 1, /* every kernel that said no, and why */
    TESS_TRACE_EXEC = 1u << 2,   /* every run, with its time where one is known */
    TESS_TRACE_DRIVER = 1u << 3  /* libraries opened, driver calls made */
};

/* Embedded in the context and passed everywhere as const: base knows no context. Fixed once the
 * context has been created, so that any thread may read it without a lock.
 *
 * Functions of base that take a host also take NULL, which stands for the C library's allocator and
 * no log: the state of affairs before a context exists. */
typedef struct tess_host {
    tess_allocate_fn allocate; /* NULL: the C library; both of these or neither */
    tess_release_fn release;
    void *memory_user;
    tess_log_fn log; /* NULL: lines go nowhere */
    void *log_user;
    tess_log_level
        log_level;  /* TESS_LOG_DEFAULT means off here: the environment was asked before */
    uint32_t trace; /* bits TESS_TRACE_*; independent of log_level */
} tess_host;

#endif
