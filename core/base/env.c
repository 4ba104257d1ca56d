/* SPDX-License-Identifier: Apache-2.0
 * The environment variables: read once per context, checked, copied; the only door to getenv. */
#include "core/base/env.h"

#include "core/base/error.h"
#include "core/base/log.h"
#include "core/base/text.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* POSIX leaves its declaration to those who use it. */
extern char **environ;

typedef enum kind { TEXT, INTEGER, SWITCH, CHOICE, SET } kind;

/* What the parser needs, beside what people are shown. */
typedef struct variable {
    kind kind;
    size_t offset; /* of its member of tess_env */
    tess_env_entry shown;
} variable;

static const char PREFIX[] = "TESSERA_";

#define KIND_NAME_TEXT "text"
#define KIND_NAME_INTEGER "integer"
#define KIND_NAME_SWITCH "switch"
#define KIND_NAME_CHOICE "choice"
#define KIND_NAME_SET "set"

static const variable variables[] = {
#define TESS_ENV(kind, member, name, accepted, fallback, help) \
    {kind, offsetof(tess_env, member), {name, KIND_NAME_##kind, fallback, accepted, help}},
#include "core/base/env.def"
#undef TESS_ENV
};

enum { VARIABLES = sizeof variables / sizeof variables[0] };

/* A run of bytes inside a longer text. */
typedef struct piece {
    const char *start;
    size_t length;
} piece;

static bool is_same(piece a, const char *word, size_t length)
{
    return a.length == length && memcmp(a.start, word, length) == 0;
}

/* Place of a word, counted from 1, in a list as people write it: "off, error or debug"; 0 when it
 * is not there. */
static int32_t place_of(piece word, const char *list)
{
    int32_t place = 0;

    for (;;) {
        list += strspn(list, ", ");
        if (*list == '\0')
            return 0;

        const size_t length = strcspn(list, ", ");

        if (length != 2 || memcmp(list, "or", 2) != 0) {
            place++;
            if (is_same(word, list, length))
                return place;
        }
        list += length;
    }
}

static bool parse_text(const char *value, char *out_text)
{
    const size_t length = strlen(value);

    if (length >= TESS_ENV_SIZE)
        return false;
    memcpy(out_text, value, length + 1);
    return true;
}

/* Digits only: strtoll would also take blanks, signs and whatever follows. */
static bool parse_integer(const char *value, const char *accepted, int64_t *out_integer)
{
    /* The range is ours, "LOW to HIGH", so it needs no checks. */
    const char *const high = strchr(accepted, 't') + 2;
    const int64_t least = strtoll(accepted, NULL, 10);
    const int64_t most = strtoll(high, NULL, 10);
    int64_t integer = 0;

    for (; *value != '\0'; value++) {
        if (*value < '0' || *value > '9')
            return false;
        integer = integer * 10 + (*value - '0');
        if (integer > most)
            return false; /* before the next digit can overflow it */
    }
    if (integer < least)
        return false;
    *out_integer = integer;
    return true;
}

static bool parse_switch(const char *value, bool *out_switch)
{
    if (strcmp(value, "0") != 0 && strcmp(value, "1") != 0)
        return false;
    *out_switch = value[0] == '1';
    return true;
}

static bool parse_choice(const char *value, const char *accepted, int32_t *out_choice)
{
    const int32_t place = place_of((piece){value, strlen(value)}, accepted);

    if (place == 0)
        return false;
    *out_choice = place;
    return true;
}

/* Blanks around commas are allowed: the list is often pasted from a sentence. */
static bool parse_set(const char *value, const char *accepted, uint32_t *out_set)
{
    uint32_t set = 0;

    for (;;) {
        value += strspn(value, " ");

        const size_t length = strcspn(value, ", ");
        const int32_t place = place_of((piece){value, length}, accepted);

        if (place == 0)
            return false;
        set |= 1u << (place - 1);
        value += length;
        value += strspn(value, " ");
        if (*value == '\0')
            break;
        if (*value++ != ',')
            return false;
    }
    *out_set = set;
    return true;
}

/* member is the one of tess_env that belongs to the variable. */
static bool parse(const variable *entry, const char *value, void *member)
{
    switch (entry->kind) {
    case TEXT:
        return parse_text(value, member);
    case INTEGER:
        return parse_integer(value, entry->shown.accepted, member);
    case SWITCH:
        return parse_switch(value, member);
    case CHOICE:
        return parse_choice(value, entry->shown.accepted, member);
    case SET:
        return parse_set(value, entry->shown.accepted, member);
    }
    return false;
}

static tess_status refuse(const tess_host *host, const variable *entry, const char *value)
{
    const char *const name = entry->shown.name;
    const char *const accepted = entry->shown.accepted;

    switch (entry->kind) {
    case TEXT:
        return tess_fail(host, TESS_INVALID,
                         "tess_context_create: %s is %zu bytes long, \"%.32s...\"; it takes %s, up "
                         "to %d bytes",
                         name, strlen(value), value, accepted, TESS_ENV_SIZE - 1);
    case SET:
        return tess_fail(host, TESS_INVALID,
                         "tess_context_create: %s is \"%s\"; it takes %s, several separated by "
                         "commas",
                         name, value, accepted);
    default:
        return tess_fail(host, TESS_INVALID, "tess_context_create: %s is \"%s\"; it takes %s", name,
                         value, accepted);
    }
}

tess_status tess_env_read(const tess_host *host, tess_env *out_env)
{
    tess_env env = {0};

    for (size_t i = 0; i < VARIABLES; i++) {
        const char *const value = getenv(variables[i].shown.name);

        /* Empty is how a shell un-sets a variable for one command. */
        if (value == NULL || value[0] == '\0')
            continue;
        if (!parse(&variables[i], value, (char *)&env + variables[i].offset))
            return refuse(host, &variables[i], value);
    }
    *out_env = env;
    return TESS_OK;
}

static bool is_known(piece name)
{
    for (size_t i = 0; i < VARIABLES; i++)
        if (is_same(name, variables[i].shown.name, strlen(variables[i].shown.name)))
            return true;
    return false;
}

/* Compares what follows the prefix: counted in, it would make strangers look alike. */
static const char *nearest_name(piece name)
{
    const size_t prefix = sizeof PREFIX - 1;
    const char *words[VARIABLES];
    char word[64];

    if (name.length - prefix >= sizeof word)
        return NULL;
    snprintf(word, sizeof word, "%.*s", (int)(name.length - prefix), name.start + prefix);
    for (size_t i = 0; i < VARIABLES; i++)
        words[i] = variables[i].shown.name + prefix;
    return tess_text_nearest(word, words, VARIABLES);
}

static void warn_unknown(const tess_host *host, piece name)
{
    const char *const nearest = nearest_name(name);

    if (nearest != NULL)
        tess_log(host, TESS_LOG_WARN,
                 "tess_context_create: %.*s is not a variable of tessera; did you mean %s%s?",
                 (int)name.length, name.start, PREFIX, nearest);
    else
        tess_log(host, TESS_LOG_WARN,
                 "tess_context_create: %.*s is not a variable of tessera; docs/environment.md "
                 "lists them",
                 (int)name.length, name.start);
}

void tess_env_warn_unknown(const tess_host *host)
{
    if (!tess_log_shows(host, TESS_LOG_WARN) || environ == NULL)
        return;
    for (char *const *line = environ; *line != NULL; line++) {
        const piece name = {*line, strcspn(*line, "=")};

        if (strncmp(name.start, PREFIX, sizeof PREFIX - 1) == 0 && !is_known(name))
            warn_unknown(host, name);
    }
}

size_t tess_env_count(void)
{
    return VARIABLES;
}

const tess_env_entry *tess_env_entry_at(size_t index)
{
    return &variables[index].shown;
}

const char *tess_env_current(const char *name)
{
    return getenv(name);
}
