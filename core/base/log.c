/* SPDX-License-Identifier: Apache-2.0
 * What the library says while it works: complete lines to the program's callback, or nothing. */
#include "core/base/log.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* A word for each trace bit, in the order of the bits and of TESSERA_TRACE. */
static const char *const categories[] = {"plan", "refuse", "exec", "driver"};

static const char *category_name(uint32_t category)
{
    for (size_t i = 0; i < sizeof categories / sizeof categories[0]; i++)
        if (category & (1u << i))
            return categories[i];
    return "unknown";
}

static const char *level_name(tess_log_level level)
{
    switch (level) {
    case TESS_LOG_ERROR:
        return "error";
    case TESS_LOG_WARN:
        return "warn";
    case TESS_LOG_INFO:
        return "info";
    default:
        return "debug";
    }
}

bool tess_log_shows(const tess_host *host, tess_log_level level)
{
    return host != NULL && host->log != NULL && level >= TESS_LOG_ERROR && level <= host->log_level;
}

void tess_log_text(const tess_host *host, tess_log_level level, char *text)
{
    if (!tess_log_shows(host, level))
        return;
    for (char *line = text; line != NULL;) {
        char *end = strchr(line, '\n');

        if (end != NULL)
            *end++ = '\0';
        host->log(host->log_user, level, line);
        line = end;
    }
}

void tess_log(const tess_host *host, tess_log_level level, const char *format, ...)
{
    char text[TESS_LOG_LENGTH + 1];
    va_list arguments;

    if (!tess_log_shows(host, level))
        return;
    va_start(arguments, format);
    if (vsnprintf(text, sizeof text, format, arguments) >= 0)
        tess_log_text(host, level, text);
    va_end(arguments);
}

bool tess_trace_shows(const tess_host *host, uint32_t category)
{
    return host != NULL && host->log != NULL && (host->trace & category) != 0;
}

void tess_trace(const tess_host *host, uint32_t category, const char *format, ...)
{
    char line[TESS_LOG_LENGTH + 1];
    va_list arguments;

    if (!tess_trace_shows(host, category))
        return;

    const int start = snprintf(line, sizeof line, "tessera,%s,", category_name(category));

    va_start(arguments, format);
    const int added = vsnprintf(line + start, sizeof line - (size_t)start, format, arguments);
    va_end(arguments);
    if (added < 0)
        return;
    for (char *newline = line; (newline = strchr(newline, '\n')) != NULL;)
        *newline = ' ';
    host->log(host->log_user, TESS_LOG_DEBUG, line);
}

void tess_log_to_stderr(void *user, tess_log_level level, const char *line)
{
    /* Room for the longest line, its prefix and its newline. */
    char text[TESS_LOG_LENGTH + 32];
    const bool is_trace = strncmp(line, "tessera,", 8) == 0;
    int length;

    (void)user;
    if (is_trace)
        length = snprintf(text, sizeof text, "%s\n", line);
    else
        length = snprintf(text, sizeof text, "tessera: %s: %s\n", level_name(level), line);
    if (length < 0)
        return;
    if ((size_t)length >= sizeof text) {
        length = (int)sizeof text - 1;
        text[length - 1] = '\n';
    }
    /* stderr is unbuffered, so this is one write(2); there is nobody to tell when it fails. */
    (void)fwrite(text, 1, (size_t)length, stderr);
}
