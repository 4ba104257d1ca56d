/* SPDX-License-Identifier: Apache-2.0
 * How a call fails: one status for the program, one text for a person, kept per thread. */
#ifndef TESSERA_CORE_BASE_ERROR_H
#define TESSERA_CORE_BASE_ERROR_H

#include "core/base/host.h"

#include <stddef.h>

/* Longest text kept; what is longer is cut. Promised by tess_context_error(). */
enum { TESS_ERROR_LENGTH = 8191 };

/* Formats a text, stores it as this thread's last failure, logs it at error level and returns
 * status, which is never TESS_OK. The text says which call, which argument, the value seen, the
 * value wanted and the next step, and has no newline at its end:
 *
 *     return tess_fail(host, TESS_INVALID, "tess_queue_create: out_queue is NULL");
 *
 * host may be NULL before a context exists. With TESS_DEBUG_ABORT defined, TESS_INTERNAL traps. */
tess_status tess_fail(const tess_host *host, tess_status status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* The text of this thread's last failure, if it was host's; with host NULL, whoever's it was.
 *
 * text  receives at most size bytes including the terminating zero; may be NULL when size is 0
 *
 * Returns the length of the whole text without its terminating zero, 0 when there is none. One text
 * is kept per thread, so a failure of another host replaces it. */
size_t tess_error_text(const tess_host *host, char *text, size_t size);

/* Called when a context is destroyed, so that a new one at the same address does not inherit its
 * text on this thread. The text itself stays for those who ask with NULL. */
void tess_error_forget(const tess_host *host);

/* Returns a failed status unchanged; its text was recorded where it failed. */
#define TESS_TRY(expression)                              \
    do {                                                  \
        const tess_status tess_try_status = (expression); \
        if (tess_try_status != TESS_OK)                   \
            return tess_try_status;                       \
    } while (0)

#endif
