/* SPDX-License-Identifier: Apache-2.0
 * Command-line options as a table: one line each is parsed, explained and suggested from. */
#include "tools/args.h"

#include <errno.h>
#include <getopt.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_OPTIONS = 64, HELP_COLUMN = 26, HELP_WIDTH = 98 };

/* What getopt_long() reports for the options of the table: their index above every character. */
enum { FIRST_CODE = 1000 };

/* ---- Help ------------------------------------------------------------------------------------ */

void tool_args_wrap(const char *text, int column, int indent)
{
    while (*text) {
        const char *space = text;
        int length;

        while (*space == ' ')
            space++;
        text = space;
        length = (int)strcspn(text, " \n");
        if (column > indent && column + 1 + length > HELP_WIDTH) {
            printf("\n%*s", indent, "");
            column = indent;
        } else if (column > indent) {
            putchar(' ');
            column++;
        }
        printf("%.*s", length, text);
        column += length;
        text += length;
        if (*text == '\n') {
            printf("\n%*s", text[1] && text[1] != '\n' ? indent : 0, "");
            column = indent;
            text++;
        }
    }
    putchar('\n');
}

static void print_option(const tool_option *option)
{
    char left[64];
    tess_text text = tess_text_in(left, sizeof left);

    if (option->letter)
        tess_text_add(&text, "  -%c, --%s", option->letter, option->name);
    else
        tess_text_add(&text, "      --%s", option->name);
    if (option->argument)
        tess_text_add(&text, " %s", option->argument);
    if (text.length + 2 > HELP_COLUMN)
        printf("%s\n%*s", left, HELP_COLUMN, "");
    else
        printf("%-*s", HELP_COLUMN, left);
    tool_args_wrap(option->help, HELP_COLUMN, HELP_COLUMN);
}

void tool_args_help(const tool_verb *verb)
{
    printf("usage: tessera %s ", verb->name);
    tool_args_wrap(verb->usage, (int)(16 + strlen(verb->name)), (int)(16 + strlen(verb->name)));
    printf("\n%s\n\n", verb->details);
    for (size_t i = 0; i < verb->option_count; i++)
        print_option(&verb->options[i]);
    printf("  -h, --help              this text\n");
}

/* ---- Values ---------------------------------------------------------------------------------- */

static bool is_end(const char *end, const char *start, char also)
{
    return end != start && (*end == '\0' || *end == also);
}

/* Reads one whole number; strtoll() itself would take blanks and "0x". */
static bool read_integer(const char *text, const char **out_end, int64_t *out_value)
{
    char *end;
    long long value;

    if (*text != '-' && (*text < '0' || *text > '9'))
        return false;
    errno = 0;
    value = strtoll(text, &end, 10);
    *out_end = end;
    *out_value = value;
    return errno == 0;
}

static bool read_real(const char *text, const char **out_end, double *out_value)
{
    char *end;

    if (*text == ' ' || *text == '\t' || *text == '\n')
        return false;
    *out_value = strtod(text, &end);
    *out_end = end;
    return isfinite(*out_value);
}

static bool read_seed(const char *text, uint64_t *out_value)
{
    char *end;

    if (*text < '0' || *text > '9')
        return false;
    errno = 0;
    *out_value = strtoull(text, &end, 10);
    return errno == 0 && *end == '\0';
}

size_t tool_args_integers(const char *option, const char *text, int64_t *values, size_t most)
{
    const char *at = text, *end = text;
    size_t count = 0;

    while (count < most && read_integer(at, &end, &values[count]) && is_end(end, at, ',')) {
        count++;
        if (*end == '\0')
            return count;
        at = end + 1;
    }
    tool_fail(TOOL_USAGE, "--%s is \"%s\"; it takes up to %zu whole numbers separated by commas",
              option, text, most);
    return 0;
}

size_t tool_args_reals(const char *option, const char *text, double *values, size_t most)
{
    const char *at = text, *end = text;
    size_t count = 0;

    while (count < most && read_real(at, &end, &values[count]) && is_end(end, at, ',')) {
        count++;
        if (*end == '\0')
            return count;
        at = end + 1;
    }
    tool_fail(TOOL_USAGE, "--%s is \"%s\"; it takes up to %zu finite numbers separated by commas",
              option, text, most);
    return 0;
}

/* Splits "bshd|bhsd" into its words inside `data`. */
static size_t split_choices(const char *choices, char *data, size_t size, const char **words,
                            size_t most)
{
    size_t count = 0;
    char *save = NULL;

    snprintf(data, size, "%s", choices);
    for (char *word = strtok_r(data, "|", &save); word && count < most;
         word = strtok_r(NULL, "|", &save))
        words[count++] = word;
    return count;
}

static bool is_among(const char *word, const char *const *words, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (strcmp(word, words[i]) == 0)
            return true;
    return false;
}

static int read_choice(const tool_option *option, const char *text, void *value)
{
    char data[256], accepted[320];
    const char *words[32], *nearest;
    const size_t count = split_choices(option->choices, data, sizeof data, words, 32);
    tess_text list = tess_text_in(accepted, sizeof accepted);

    if (is_among(text, words, count)) {
        memcpy(value, &text, sizeof text);
        return TOOL_OK;
    }
    for (size_t i = 0; i < count; i++)
        tess_text_add(&list, "%s%s", i == 0 ? "" : i + 1 < count ? ", " : " or ", words[i]);
    nearest = tess_text_nearest(text, words, count);
    if (nearest)
        return tool_fail(TOOL_USAGE, "--%s is \"%s\"; did you mean \"%s\"? It takes %s",
                         option->name, text, nearest, accepted);
    return tool_fail(TOOL_USAGE, "--%s is \"%s\"; it takes %s", option->name, text, accepted);
}

static int read_value(const tool_option *option, const char *text, void *value)
{
    const char *end = text;
    tool_integer integer = {0, true};
    tool_real real = {0, true};
    tool_seed seed = {0, true};
    const bool yes = true;

    switch (option->kind) {
    case TOOL_FLAG:
        memcpy(value, &yes, sizeof yes);
        return TOOL_OK;
    case TOOL_TEXT:
        memcpy(value, &text, sizeof text);
        return TOOL_OK;
    case TOOL_INTEGER:
        if (!read_integer(text, &end, &integer.value) || *end || integer.value < option->least ||
            integer.value > option->most)
            return tool_fail(TOOL_USAGE,
                             "--%s is \"%s\"; it takes a whole number from %" PRId64 " to %" PRId64,
                             option->name, text, option->least, option->most);
        memcpy(value, &integer, sizeof integer);
        return TOOL_OK;
    case TOOL_REAL:
        if (!read_real(text, &end, &real.value) || !is_end(end, text, '\0'))
            return tool_fail(TOOL_USAGE, "--%s is \"%s\"; it takes a finite number", option->name,
                             text);
        memcpy(value, &real, sizeof real);
        return TOOL_OK;
    case TOOL_SEED:
        if (!read_seed(text, &seed.value))
            return tool_fail(TOOL_USAGE,
                             "--%s is \"%s\"; it takes a whole number from 0 to %" PRIu64,
                             option->name, text, UINT64_MAX);
        memcpy(value, &seed, sizeof seed);
        return TOOL_OK;
    case TOOL_CHOICE:
        return read_choice(option, text, value);
    }
    return TOOL_OK;
}

/* ---- Parsing --------------------------------------------------------------------------------- */

/* What getopt_long() wants to know, made from the table. */
typedef struct getopt_tables {
    struct option longs[MOST_OPTIONS + 2];
    char shorts[3 * MOST_OPTIONS];
} getopt_tables;

static void fill_tables(const tool_verb *verb, getopt_tables *tables)
{
    tess_text shorts = tess_text_in(tables->shorts, sizeof tables->shorts);

    /* The colon makes a missing value look different from an unknown option. */
    tess_text_add(&shorts, ":h");
    memset(tables->longs, 0, sizeof tables->longs);
    for (size_t i = 0; i < verb->option_count && i < MOST_OPTIONS; i++) {
        const tool_option *option = &verb->options[i];
        const int takes = option->argument ? required_argument : no_argument;

        tables->longs[i] = (struct option){option->name, takes, NULL, FIRST_CODE + (int)i};
        if (option->letter)
            tess_text_add(&shorts, "%c%s", option->letter, option->argument ? ":" : "");
    }
    tables->longs[verb->option_count] = (struct option){"help", no_argument, NULL, 'h'};
}

static const tool_option *option_of(const tool_verb *verb, int code)
{
    if (code >= FIRST_CODE)
        return &verb->options[code - FIRST_CODE];
    for (size_t i = 0; i < verb->option_count; i++)
        if (verb->options[i].letter == code)
            return &verb->options[i];
    return NULL;
}

static int refuse_option(const tool_verb *verb, const char *given)
{
    const char *names[MOST_OPTIONS + 1], *nearest;
    char word[64];
    size_t length = strcspn(given, "=");

    if (given[0] != '-' || given[1] != '-') {
        const int letter = optopt >= ' ' && optopt < 127 ? optopt : '?';

        return tool_fail(TOOL_USAGE, "-%c is no option; \"tessera help %s\" lists them", letter,
                         verb->name);
    }
    if (length >= sizeof word)
        length = sizeof word - 1;
    memcpy(word, given, length);
    word[length] = '\0';
    for (size_t i = 0; i < verb->option_count; i++) {
        /* getopt_long() also reports a value given to a flag, and a beginning that several share.
         */
        if (strcmp(word + 2, verb->options[i].name) == 0)
            return tool_fail(TOOL_USAGE, "%s takes no value, but was given \"%s\"", word,
                             given + length + 1);
        names[i] = verb->options[i].name;
    }
    names[verb->option_count] = "help";
    nearest = tess_text_nearest(word + 2, names, verb->option_count + 1);
    if (nearest)
        return tool_fail(TOOL_USAGE, "%s is no option; did you mean --%s?", word, nearest);
    return tool_fail(TOOL_USAGE, "%s is no option; \"tessera help %s\" lists them", word,
                     verb->name);
}

static int refuse_missing(const tool_verb *verb)
{
    const tool_option *option = option_of(verb, optopt);

    return tool_fail(TOOL_USAGE, "--%s needs a value: %s", option ? option->name : "?",
                     option ? option->argument : "?");
}

int tool_args_read(const tool_verb *verb, int argc, char **argv, void *values, int *out_first,
                   bool *out_done)
{
    getopt_tables tables;
    int code;

    fill_tables(verb, &tables);
    *out_done = false;
    opterr = 0; /* the complaints are ours */
    optind = 0; /* main() has parsed an argument vector of its own */
    while ((code = getopt_long(argc, argv, tables.shorts, tables.longs, NULL)) != -1) {
        const tool_option *option;
        int result;

        if (code == 'h') {
            tool_args_help(verb);
            *out_done = true;
            return TOOL_OK;
        }
        if (code == '?')
            return refuse_option(verb, argv[optind - 1]);
        if (code == ':')
            return refuse_missing(verb);
        option = option_of(verb, code);
        if (!option)
            continue;
        result = read_value(option, optarg, (char *)values + option->offset);
        if (result != TOOL_OK)
            return result;
    }
    *out_first = optind;
    return TOOL_OK;
}
