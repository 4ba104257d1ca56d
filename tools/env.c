/* SPDX-License-Identifier: Apache-2.0
 * tessera env: every environment variable the library reads, and what it is set to. */
#include "core/base/env.h"

#include "core/base/error.h"
#include "tools/args.h"
#include "tools/json.h"

typedef struct env_options {
    bool json;
} env_options;

static const tool_option options[] = {
    {"json", 'j', TOOL_FLAG, offsetof(env_options, json), NULL, "print one JSON array", 0, 0, NULL},
};

static json_t *env_json(void)
{
    json_t *array = json_array();

    for (size_t i = 0; i < tess_env_count(); i++) {
        const tess_env_entry *entry = tess_env_entry_at(i);
        json_t *object = json_object();

        tool_json_set(object, "name", json_string(entry->name));
        tool_json_set(object, "type", json_string(entry->type));
        tool_json_set(object, "default", json_string(entry->fallback));
        tool_json_set(object, "current", tool_json_maybe_text(tess_env_current(entry->name)));
        tool_json_set(object, "accepted", json_string(entry->accepted));
        tool_json_set(object, "help", json_string(entry->help));
        json_array_append_new(array, object);
    }
    return array;
}

static void print_entry(const tess_env_entry *entry)
{
    const char *const current = tess_env_current(entry->name);
    char shown[300];

    printf("%s  (%s)\n", entry->name, entry->type);
    if (current)
        printf("    current  %s\n", tool_printable(current, shown, sizeof shown));
    else
        printf("    current  not set\n");
    printf("    default  %s\n    takes    %s\n", entry->fallback, entry->accepted);
    printf("    ");
    tool_args_wrap(entry->help, 4, 4);
}

static void warn(void *user, tess_log_level level, const char *line)
{
    (void)user;
    (void)level;
    fprintf(stderr, "tessera env: %s\n", line);
}

/* A wrong value makes every other verb fail, so it is worth an exit code here too. */
static int check_values(void)
{
    const tess_host host = {.log = warn, .log_level = TESS_LOG_WARN};
    char text[1024];
    tess_env env;

    tess_env_warn_unknown(&host);
    if (tess_env_read(NULL, &env) == TESS_OK)
        return TOOL_OK;
    tess_error_text(NULL, text, sizeof text);
    return tool_fail(TOOL_USAGE, "%s", text);
}

static int env_main(int argc, char **argv)
{
    env_options given = {false};
    bool done;
    int first = argc, result = tool_args_read(&tool_env, argc, argv, &given, &first, &done);

    if (result != TOOL_OK || done)
        return result;
    if (first < argc)
        return tool_fail(TOOL_USAGE, "takes no arguments, but was given \"%s\"", argv[first]);
    if (given.json) {
        result = tool_json_print(env_json());
    } else {
        for (size_t i = 0; i < tess_env_count(); i++) {
            if (i)
                putchar('\n');
            print_entry(tess_env_entry_at(i));
        }
    }
    return result == TOOL_OK ? check_values() : result;
}

const tool_verb tool_env = {
    .name = "env",
    .summary = "list the environment variables, their types, defaults and values",
    .usage = "[--json]",
    .details = "Lists every environment variable the library reads. A value that is not accepted\n"
               "is complained about and makes the exit status 2; so does every other verb.",
    .options = options,
    .option_count = sizeof options / sizeof options[0],
    .main = env_main,
};
