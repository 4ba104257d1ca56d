/* SPDX-License-Identifier: Apache-2.0
 * How a call fails: one status for the program, one text for a person, kept per thread. */
#include "core/base/error.h"

#include "core/base/log.h"

#include <assert.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* The library's only thread-local. No destructor and no pointer into it leaves this file, so a
 * thread may end at any time. */
static _Thread_local struct {
    const tess_host *host; /* compared, never followed: the host may be gone */
    size_t length;
    char text[TESS_ERROR_LENGTH + 1];
} last;

tess_status tess_fail(const tess_host *host, tess_status status, const char *format, ...)
{
    /* Formatted apart from the thread's text: the log cuts it into lines. */
    char text[TESS_ERROR_LENGTH + 1];
    va_list arguments;

    assert(status != TESS_OK);
    va_start(arguments, format);
    if (vsnprintf(text, sizeof text, format, arguments) < 0)
        snprintf(text, sizeof text, "%s", format); /* a text half said beats none */
    va_end(arguments);

    last.host = host;
    last.length = strlen(text);
    memcpy(last.text, text, last.length + 1);
    tess_log_text(host, TESS_LOG_ERROR, text);
#ifdef TESS_DEBUG_ABORT
    if (status == TESS_INTERNAL)
        __builtin_trap();
#endif
    return status;
}

size_t tess_error_text(const tess_host *host, char *text, size_t size)
{
    const size_t length = host == NULL || host == last.host ? last.length : 0;

    if (size > 0) {
        const size_t copied = length < size ? length : size - 1;

        memcpy(text, last.text, copied);
        text[copied] = '\0';
    }
    return length;
}

void tess_error_forget(const tess_host *host)
{
    if (last.host == host)
        last.host = NULL;
}
