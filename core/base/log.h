/* SPDX-License-Identifier: Apache-2.0
 * What the library says while it works: complete lines to the program's callback, or nothing. */
#ifndef TESSERA_CORE_BASE_LOG_H
#define TESSERA_CORE_BASE_LOG_H

#include "core/base/host.h"

#include <stdbool.h>
#include <stdint.h>

/* Longest line; what is longer is cut. As long as a failure's text, which is logged whole. */
enum { TESS_LOG_LENGTH = 8191 };

/* Whether a line of this level would reach anybody: ask before preparing an expensive one. */
bool tess_log_shows(const tess_host *host, tess_log_level level);

/* Logs one line, or each of several when the text contains newlines. */
void tess_log(const tess_host *host, tess_log_level level, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* Logs a finished text. It is cut into lines in place, so its newlines are gone afterwards. */
void tess_log_text(const tess_host *host, tess_log_level level, char *text);

/* Whether trace lines of this category, one TESS_TRACE_ bit, would reach anybody. */
bool tess_trace_shows(const tess_host *host, uint32_t category);

/* Writes one line "tessera,<category>,..." for programs to read: fields separated by commas, the
 * problem in quotes. Goes to the log callback at debug level whatever log_level is; a newline in a
 * field becomes a space. */
void tess_trace(const tess_host *host, uint32_t category, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* A tess_log_fn that writes "tessera: <level>: <line>" to stderr, in one write so that lines of
 * several threads do not mix; trace lines say who they are and stay as they are. The context
 * installs it when the environment asks for a log and the program gave no callback. */
void tess_log_to_stderr(void *user, tess_log_level level, const char *line);

#endif
