/* SPDX-License-Identifier: Apache-2.0
 * The context: log, allocator, loaded drivers, settings. Everything else is made from one. */
#ifndef TESSERA_CONTEXT_H
#define TESSERA_CONTEXT_H

#include "base.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Opaque. Owns its devices; outlives every queue and plan made from them. */
typedef struct tess_context tess_context;

/* Levels of the log, most important first. A level shows itself and everything above it. */
typedef int32_t tess_log_level;
enum {
    TESS_LOG_DEFAULT = 0, /* what TESSERA_LOG says, else TESS_LOG_OFF */
    TESS_LOG_OFF = 1,
    TESS_LOG_ERROR = 2, /* every failed call, with the text of tess_context_error() */
    TESS_LOG_WARN = 3,  /* the call goes on, something is probably not as meant */
    TESS_LOG_INFO = 4,  /* choices made for the caller: devices, kernels, compilations */
    TESS_LOG_DEBUG = 5
};

/* Receives one complete line without its newline.
 *
 * user   the context descriptor's log_user
 * level  one of TESS_LOG_ERROR ... TESS_LOG_DEBUG
 * line   valid during the call only
 *
 * May be called from any thread that is inside a tessera call, from several at once, never under a
 * lock. It must not call tessera. */
typedef void (*tess_log_fn)(void *user, tess_log_level level, const char *line);

/* Allocates host memory.
 *
 * user       the context descriptor's memory_user
 * size       bytes, never 0
 * alignment  a power of two, at most 4096
 *
 * Returns NULL when there is none, which makes the tessera call fail with TESS_NO_MEMORY. May be
 * called from several threads at once. */
typedef void *(*tess_allocate_fn)(void *user, size_t size, size_t alignment);

/* Releases what tess_allocate_fn returned; size is the one asked for, so pools need no headers. */
typedef void (*tess_release_fn)(void *user, void *memory, size_t size);

/* How a context is to behave. Members left zero are filled from the environment
 * (docs/environment.md), then by the defaults stated here. */
typedef struct tess_context_desc {
    size_t struct_size; /* sizeof(tess_context_desc) */

    tess_log_fn log; /* NULL: lines go nowhere; to stderr when TESSERA_LOG or _TRACE is set */
    void *log_user;

    tess_allocate_fn allocate; /* NULL: the C library; both of allocate and release or neither */
    tess_release_fn release;
    void *memory_user;

    /* Backends that may be opened, in order of preference: "cuda,cpu". NULL: all, best first.
     * Copied. */
    const char *backends;

    tess_log_level log_level;

    /* CPU threads one call may use, 1 to 1024. 0: TESSERA_THREADS, else what OpenMP would use when
     * the device is opened, and fewer after a later omp_set_num_threads(). A call made inside a
     * caller's own parallel region uses one thread unless nested parallelism is on. */
    int32_t threads;
} tess_context_desc;

/* Creates a context: reads the environment, checks it, notes which backends exist. No driver is
 * loaded yet.
 *
 * desc         NULL for defaults; read during the call only
 * out_context  receives the context, to be freed with tess_context_destroy(); untouched on failure
 *
 * Fails with TESS_INVALID when the descriptor or a TESSERA_ variable holds something that is not
 * accepted (the text, from tess_context_error(NULL, ...), names it, its value and what is
 * accepted), TESS_TOO_NEW, TESS_NO_MEMORY. Threads: any. */
TESS_API tess_status tess_context_create(const tess_context_desc *desc, tess_context **out_context);

/* Destroys a context and closes its devices. Queues and plans made from it must be gone. NULL is
 * fine. Threads: no other call may use the context. */
TESS_API void tess_context_destroy(tess_context *context);

/* Text of the last failed call of this thread, which may be several lines.
 *
 * context  a context: the text, if that failure was this context's; NULL: whichever it was
 * text     receives at most size bytes including the terminating zero; may be NULL when size is 0
 *
 * Returns the length of the whole text without its terminating zero, 0 when there is none; so a
 * result >= size says that it was cut. A later successful call does not erase the text, a later
 * failed one of this thread does. Texts are kept up to 8,191 bytes.
 * Threads: any; each sees its own failures only. */
TESS_API size_t tess_context_error(const tess_context *context, char *text, size_t size);

#ifdef __cplusplus
}
#endif

#endif
