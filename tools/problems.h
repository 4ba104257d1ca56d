/* SPDX-License-Identifier: Apache-2.0
 * The problems of one run of the command: from its arguments and from files of lines. */
#ifndef TESSERA_TOOLS_PROBLEMS_H
#define TESSERA_TOOLS_PROBLEMS_H

#include "core/schedule/problem_text.h"
#include "tools/tool.h"

typedef struct tool_problems {
    tess_line *lines;
    size_t count, room;
} tool_problems;

/* Reads problems from arguments. One argument may hold a whole line or one word of it: each one
 * that starts with fwd or bwd begins a problem. Returns TOOL_OK or, after a complaint, an exit
 * code. */
int tool_problems_add_arguments(tool_problems *problems, int count, char **arguments);

/* Whose lists are meant when both have one of a name. */
typedef enum tool_lists { TOOL_LISTS_OF_TESTS, TOOL_LISTS_OF_BENCH } tool_lists;

/* Reads problems from a file, one a line; '#' starts a comment. "-" is standard input. What is no
 * file but a plain name is looked up as NAME.problems among the lists that come with the sources or
 * the installation. */
int tool_problems_add_file(tool_problems *problems, const char *name, tool_lists kind);

int tool_problems_add(tool_problems *problems, const tess_line *line);
void tool_problems_release(tool_problems *problems);

/* Writes a line into data, cut at size; returns data. */
const char *tool_problem_text(const tess_line *line, char *data, size_t size);

/* Room for every line a person reads; lists of 64 runs in four words fit. */
enum { TOOL_LINE_SIZE = 16384 };

#endif
