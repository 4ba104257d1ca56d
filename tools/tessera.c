/* SPDX-License-Identifier: Apache-2.0
 * The command: finds the verb and hands over; complaints and exit codes. */
#include "tools/args.h"
#include "tools/json.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const tool_verb *const tool_verbs[] = {&tool_run,     &tool_check,   &tool_bench,
                                       &tool_explain, &tool_devices, &tool_env};
const size_t tool_verb_count = sizeof tool_verbs / sizeof tool_verbs[0];

static const char *current_verb;

void tool_set_verb(const char *name)
{
    current_verb = name;
}

int tool_fail(int code, const char *format, ...)
{
    va_list arguments;

    fflush(stdout);
    fprintf(stderr, current_verb ? "tessera %s: " : "tessera: ", current_verb);
    va_start(arguments, format);
    vfprintf(stderr, format, arguments);
    va_end(arguments);
    fputc('\n', stderr);
    return code;
}

int tool_exit_code(tess_status status)
{
    switch (status) {
    case TESS_OK:
        return TOOL_OK;
    case TESS_INVALID:
    case TESS_TOO_NEW:
        return TOOL_USAGE;
    case TESS_UNSUPPORTED:
    case TESS_UNAVAILABLE:
        return TOOL_UNAVAILABLE;
    default:
        return TOOL_BROKEN;
    }
}

int tool_fail_library(const tess_context *context, tess_status status)
{
    /* As long as the library keeps texts: a list of refusals must not lose its end. */
    static char text[8192];

    if (tess_context_error(context, text, sizeof text) == 0)
        snprintf(text, sizeof text, "failed with %s and no text", tess_status_name(status));
    return tool_fail(tool_exit_code(status), "%s", text);
}

const char *tool_printable(const char *text, char *data, size_t size)
{
    size_t i = 0;

    for (; text[i] && i + 1 < size; i++)
        data[i] = (unsigned char)text[i] < ' ' || text[i] == 127 ? '?' : text[i];
    data[i] = '\0';
    return data;
}

const char *tool_amount(double value, char *data, size_t size)
{
    static const char *const letters[] = {"", "k", "M", "G", "T", "P", "E"};
    size_t letter = 0;

    while (value >= 999.5 && letter + 1 < sizeof letters / sizeof letters[0]) {
        value /= 1000;
        letter++;
    }
    snprintf(data, size, value < 10 && letter ? "%.2f %s" : "%.4g %s", value, letters[letter]);
    return data;
}

bool tool_ends_with(const char *text, const char *end)
{
    const size_t length = strlen(text), tail = strlen(end);

    return length >= tail && strcmp(text + length - tail, end) == 0;
}

void *tool_allocate(size_t size, const char *what)
{
    void *memory = malloc(size ? size : 1);

    if (!memory)
        tool_fail(TOOL_BROKEN, "no memory for %s (%zu bytes)", what, size);
    return memory;
}

static const tool_verb *find_verb(const char *name)
{
    for (size_t i = 0; i < tool_verb_count; i++)
        if (strcmp(tool_verbs[i]->name, name) == 0)
            return tool_verbs[i];
    return NULL;
}

static void print_help(FILE *out)
{
    fprintf(out, "usage: tessera VERB [ARGUMENT...]\n"
                 "       tessera help VERB\n"
                 "       tessera --version\n"
                 "\n"
                 "Exact attention on CPUs and GPUs, and why it went the way it did.\n"
                 "\n");
    for (size_t i = 0; i < tool_verb_count; i++)
        fprintf(out, "  %-9s %s\n", tool_verbs[i]->name, tool_verbs[i]->summary);
    fprintf(out,
            "\n"
            "A PROBLEM is one line of words, for example\n"
            "\n"
            "  fwd b1 hq8 hk8 q4096 k4096 d128 f32 causal\n"
            "\n"
            "Exit status: 0 fine, 1 results differ or a check failed, 2 wrong usage or input,\n"
            "3 no such device or no kernel for it, 4 out of memory or a device failed.\n");
}

static int refuse_verb(const char *word)
{
    const char *names[8], *nearest;
    char list[128];
    tess_text text = tess_text_in(list, sizeof list);

    for (size_t i = 0; i < tool_verb_count; i++) {
        names[i] = tool_verbs[i]->name;
        tess_text_add(&text, "%s%s", names[i], i + 1 < tool_verb_count ? ", " : " and help");
    }
    nearest = tess_text_nearest(word, names, tool_verb_count);
    if (nearest)
        return tool_fail(TOOL_USAGE, "\"%s\" is no verb; did you mean \"%s\"? The verbs are %s",
                         word, nearest, list);
    return tool_fail(TOOL_USAGE, "\"%s\" is no verb; the verbs are %s", word, list);
}

static void write_version(char *data, size_t size)
{
    const int32_t version = tess_version();

    snprintf(data, size, "%d.%d.%d", (int)(version / 1000000), (int)(version / 1000 % 1000),
             (int)(version % 1000));
}

static int print_help_json(void)
{
    json_t *const document = json_object(), *const verbs = json_array();
    char version[40];

    write_version(version, sizeof version);
    for (size_t i = 0; i < tool_verb_count; i++) {
        json_t *const verb = json_object();

        tool_json_set(verb, "name", json_string(tool_verbs[i]->name));
        tool_json_set(verb, "summary", json_string(tool_verbs[i]->summary));
        tool_json_set(verb, "usage", json_string(tool_verbs[i]->usage));
        json_array_append_new(verbs, verb);
    }
    tool_json_set(document, "version", json_string(version));
    tool_json_set(document, "verbs", verbs);
    return tool_json_print(document);
}

static int help(int argc, char **argv)
{
    const tool_verb *verb;

    if (argc < 2) {
        print_help(stdout);
        return TOOL_OK;
    }
    if (strcmp(argv[1], "--json") == 0)
        return print_help_json();
    verb = find_verb(argv[1]);
    if (!verb)
        return refuse_verb(argv[1]);
    tool_args_help(verb);
    return TOOL_OK;
}

static int dispatch(int argc, char **argv)
{
    const tool_verb *verb;
    char version[40];

    if (argc < 2) {
        print_help(stderr);
        return TOOL_USAGE;
    }
    if (strcmp(argv[1], "--version") == 0 || strcmp(argv[1], "-V") == 0) {
        write_version(version, sizeof version);
        printf("tessera %s\n", version);
        return TOOL_OK;
    }
    if (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0 ||
        strcmp(argv[1], "help") == 0)
        return help(argc - 1, argv + 1);
    if (argv[1][0] == '-')
        return tool_fail(TOOL_USAGE,
                         "%s comes before a verb; only --help and --version may. \"tessera help\" "
                         "lists the verbs",
                         argv[1]);
    verb = find_verb(argv[1]);
    if (!verb)
        return refuse_verb(argv[1]);
    tool_set_verb(verb->name);
    return verb->main(argc - 1, argv + 1);
}

int main(int argc, char **argv)
{
    const int code = dispatch(argc, argv);

    /* A full disk or a closed pipe shows only here. */
    if (fflush(stdout) != 0 || ferror(stdout)) {
        tool_fail(TOOL_BROKEN, "standard output could not be written");
        return code == TOOL_OK ? TOOL_BROKEN : code;
    }
    return code;
}
