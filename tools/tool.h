/* SPDX-License-Identifier: Apache-2.0
 * What the verbs of the command share: exit codes, the verb table, complaints. */
#ifndef TESSERA_TOOLS_TOOL_H
#define TESSERA_TOOLS_TOOL_H

#include "core/base/text.h"

#include <stdbool.h>
#include <stddef.h>
#include <tessera/tessera.h>

/* How the command ends; promised by the manual. */
enum {
    TOOL_OK = 0,
    TOOL_DIFFERS = 1,     /* a check or a verification failed */
    TOOL_USAGE = 2,       /* wrong usage or bad input */
    TOOL_UNAVAILABLE = 3, /* no such device here, or no kernel takes the problem */
    TOOL_BROKEN = 4       /* memory ran out, a device failed, output could not be written */
};

typedef struct tool_option tool_option; /* args.h */

typedef struct tool_verb {
    const char *name;
    const char *summary; /* one line of the list of verbs */
    const char *usage;   /* what follows "tessera NAME " */
    const char *details; /* paragraphs under the usage in the help */
    const tool_option *options;
    size_t option_count;
    int (*main)(int argc, char **argv); /* argv[0] is the verb; returns an exit code */
} tool_verb;

extern const tool_verb tool_run, tool_check, tool_bench, tool_explain, tool_devices, tool_env;

/* Every verb, in the order of the help. */
extern const tool_verb *const tool_verbs[];
extern const size_t tool_verb_count;

/* Prints "tessera VERB: " and the text to stderr; returns code. The verb is the one that
 * tool_set_verb() named, none before that. */
int tool_fail(int code, const char *format, ...) __attribute__((format(printf, 2, 3)));
void tool_set_verb(const char *name);

/* Prints the library's own text of a failed call; returns the exit code of its status. */
int tool_fail_library(const tess_context *context, tess_status status);

/* The exit code a status stands for. */
int tool_exit_code(tess_status status);

/* Copies text into data, at most size bytes with its terminating zero, with every control character
 * replaced by '?': names and tokens come from files, and a terminal obeys what it is sent. Returns
 * data. */
const char *tool_printable(const char *text, char *data, size_t size);

/* Writes "36.08 M" or "740 " into data, to be followed by a unit; returns data. */
const char *tool_amount(double value, char *data, size_t size);

/* Whether a text ends in another. */
bool tool_ends_with(const char *text, const char *end);

/* malloc() that complains; NULL after the complaint. 0 bytes give an address too. */
void *tool_allocate(size_t size, const char *what);

#endif
