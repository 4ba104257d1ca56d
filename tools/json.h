/* SPDX-License-Identifier: Apache-2.0
 * Small helpers around the JSON library: numbers that may be infinite, text that may be broken. */
#ifndef TESSERA_TOOLS_JSON_H
#define TESSERA_TOOLS_JSON_H

#include "tools/tool.h"

#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

/* JSON has no infinities and no NaN: they become null. */
static inline json_t *tool_json_real(double value)
{
    return isfinite(value) ? json_real(value) : json_null();
}

/* Text from arguments, file names and drivers need not be UTF-8; what is not becomes '?'. */
static inline json_t *tool_json_text(const char *text)
{
    char copy[1024];
    size_t length = 0;
    json_t *string = json_string(text);

    if (string)
        return string;
    for (; text[length] && length + 1 < sizeof copy; length++)
        copy[length] = text[length];
    copy[length] = '\0';
    for (char *at = copy; *at; at++)
        if (*at & '\x80')
            *at = '?';
    return json_string(copy);
}

/* NULL becomes null. */
static inline json_t *tool_json_maybe_text(const char *text)
{
    return text ? tool_json_text(text) : json_null();
}

static inline void tool_json_set(json_t *object, const char *key, json_t *value)
{
    /* A member lost to a lack of memory is noticed when the document is printed: it is short of a
     * promised key, and memory is then gone for printing too. */
    (void)json_object_set_new(object, key, value);
}

/* Prints the one document of a --json run and drops it. */
static inline int tool_json_print(json_t *document)
{
    const int failed =
        !document || json_dumpf(document, stdout, JSON_INDENT(2) | JSON_REAL_PRECISION(12)) != 0;

    json_decref(document);
    if (failed)
        return tool_fail(TOOL_BROKEN, "the JSON document could not be written: out of memory, or "
                                      "standard output does not take it");
    putchar('\n');
    return TOOL_OK;
}

#endif
