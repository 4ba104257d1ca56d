/* SPDX-License-Identifier: Apache-2.0
 * The problems of one run of the command: from its arguments and from files of lines. */
#include "tools/problems.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { WHY_SIZE = 2048, PATH_SIZE = 4096 };

int tool_problems_add(tool_problems *problems, const tess_line *line)
{
    if (problems->count == problems->room) {
        const size_t room = problems->room ? 2 * problems->room : 16;
        tess_line *lines = realloc(problems->lines, room * sizeof *lines);

        if (!lines)
            return tool_fail(TOOL_BROKEN, "no memory for %zu problems", room);
        problems->lines = lines;
        problems->room = room;
    }
    problems->lines[problems->count++] = *line;
    return TOOL_OK;
}

void tool_problems_release(tool_problems *problems)
{
    free(problems->lines);
    memset(problems, 0, sizeof *problems);
}

const char *tool_problem_text(const tess_line *line, char *data, size_t size)
{
    tess_text text = tess_text_in(data, size);

    tess_line_write(line, &text);
    return data;
}

static int add_text(tool_problems *problems, const char *where, const char *text)
{
    tess_line line;
    char why[WHY_SIZE], shown[256];
    tess_text reason = tess_text_in(why, sizeof why);

    if (tess_line_read(text, &line, &reason) != TESS_OK)
        return tool_fail(TOOL_USAGE, "%s \"%s\": %s", where,
                         tool_printable(text, shown, sizeof shown), why);
    return tool_problems_add(problems, &line);
}

static int starts_problem(const char *argument)
{
    argument += strspn(argument, " \t");
    return (strncmp(argument, "fwd", 3) == 0 || strncmp(argument, "bwd", 3) == 0) &&
           strchr(" \t\n", argument[3]);
}

int tool_problems_add_arguments(tool_problems *problems, int count, char **arguments)
{
    static char joined[TOOL_LINE_SIZE];

    for (int i = 0; i < count;) {
        tess_text text = tess_text_in(joined, sizeof joined);
        int result;

        do
            tess_text_add(&text, text.length ? " %s" : "%s", arguments[i++]);
        while (i < count && !starts_problem(arguments[i]));
        if (text.length >= sizeof joined)
            return tool_fail(TOOL_USAGE, "a problem is longer than %d bytes", TOOL_LINE_SIZE - 1);
        result = add_text(problems, "problem", joined);
        if (result != TOOL_OK)
            return result;
    }
    return TOOL_OK;
}

/* ---- Finding lists --------------------------------------------------------------------------- */

static int is_file(const char *path)
{
    struct stat status;

    return stat(path, &status) == 0 && !S_ISDIR(status.st_mode);
}

/* Where lists are: in the source tree, and below the prefix of an installation. The harness and the
 * tests may both have one of the same name. */
static const char *const tree_folders[] = {"tests/data", "bench/suites"};
static const char *const installed_folders[] = {"share/tessera/tests", "share/tessera/problems"};

/* Looks for a list below a folder, first among those of `kind`. */
static int find_below(const char *folder, const char *name, tool_lists kind, char *path,
                      size_t size)
{
    for (int i = 0; i < 4; i++) {
        const int which = (i / 2) ^ (kind == TOOL_LISTS_OF_BENCH);
        const char *const *const folders = i % 2 ? installed_folders : tree_folders;

        snprintf(path, size, "%s%s/%s.problems", folder, folders[which], name);
        if (is_file(path))
            return 1;
    }
    return 0;
}

/* Looks for a list by name: below the working directory, in the installation that the running
 * program is part of, and in the source tree around its build directory. The program carries no
 * paths of the machine that built it. */
static int find_list(const char *name, tool_lists kind, char *path, size_t size)
{
    char program[PATH_SIZE - 512];
    const ssize_t length = readlink("/proc/self/exe", program, sizeof program - 1);

    if (find_below("", name, kind, path, size))
        return 1;
    if (length <= 0)
        return 0;
    program[length] = '\0';
    for (int level = 0; level < 5 && strrchr(program, '/'); level++) {
        strrchr(program, '/')[1] = '\0';
        if (find_below(program, name, kind, path, size))
            return 1;
        *strrchr(program, '/') = '\0';
    }
    return 0;
}

static FILE *open_list(const char *name, tool_lists kind, char *path, size_t size)
{
    if (strcmp(name, "-") == 0) {
        snprintf(path, size, "standard input");
        return stdin;
    }
    snprintf(path, size, "%s", name);
    if (is_file(path) || strchr(name, '/'))
        return fopen(path, "r");
    if (strlen(name) < 256 && find_list(name, kind, path, size))
        return fopen(path, "r");
    snprintf(path, size, "%s", name);
    errno = ENOENT;
    return NULL;
}

static int read_list(tool_problems *problems, FILE *file, const char *path)
{
    char *text = NULL;
    size_t room = 0;
    int result = TOOL_OK;

    for (int number = 1; result == TOOL_OK && getline(&text, &room, file) >= 0; number++) {
        char where[PATH_SIZE + 16];

        text[strcspn(text, "#\r\n")] = '\0';
        if (text[strspn(text, " \t")] == '\0')
            continue;
        snprintf(where, sizeof where, "%s:%d:", path, number);
        result = add_text(problems, where, text);
    }
    free(text);
    if (result == TOOL_OK && ferror(file))
        return tool_fail(TOOL_USAGE, "%s: %s", path, strerror(errno));
    return result;
}

int tool_problems_add_file(tool_problems *problems, const char *name, tool_lists kind)
{
    char path[PATH_SIZE];
    FILE *file = open_list(name, kind, path, sizeof path);
    int result;

    if (!file)
        return tool_fail(TOOL_USAGE,
                         "--data is \"%s\": %s; it takes a file of problem lines, or the name of a "
                         "list such as smoke (tests/data/smoke.problems)",
                         name, strerror(errno));
    result = read_list(problems, file, path);
    if (file != stdin)
        fclose(file);
    return result;
}
