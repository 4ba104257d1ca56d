/* SPDX-License-Identifier: Apache-2.0
 * Every variable: what it takes, what it refuses and in which words, and names nobody knows. */
#include "core/base/env.h"

#include "core/base/error.h"
#include "core/base/log.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

extern char **environ;

/* Takes every TESSERA_ variable away, those of whoever runs the tests included. */
static int clear(void **state)
{
    (void)state;
    for (char **line = environ; *line != NULL;) {
        char name[256];

        snprintf(name, sizeof name, "%.*s", (int)strcspn(*line, "="), *line);
        if (strncmp(name, "TESSERA_", 8) == 0) {
            assert_int_equal(unsetenv(name), 0);
            line = environ; /* it has been moved together */
        } else {
            line++;
        }
    }
    return 0;
}

static void set(const char *name, const char *value)
{
    assert_int_equal(setenv(name, value, 1), 0);
}

/* Reads with one variable set. */
static tess_env read_with(const char *name, const char *value)
{
    tess_env env;

    clear(NULL);
    set(name, value);
    if (tess_env_read(NULL, &env) != TESS_OK)
        fail_msg("%s=%s is refused", name, value);
    return env;
}

static void assert_refused(const char *name, const char *value, const char *text)
{
    tess_env env;
    tess_env before;
    char said[1024];

    memset(&env, 0x5a, sizeof env);
    before = env;
    clear(NULL);
    set(name, value);
    assert_int_equal(tess_env_read(NULL, &env), TESS_INVALID);
    assert_memory_equal(&env, &before, sizeof env);
    tess_error_text(NULL, said, sizeof said);
    assert_string_equal(said, text);
}

static void assert_all_unset(const tess_env *env)
{
    assert_string_equal(env->backend, "");
    assert_string_equal(env->kernel, "");
    assert_int_equal(env->cpu_isa, 0);
    assert_int_equal(env->threads, 0);
    assert_int_equal(env->splits, 0);
    assert_false(env->deterministic);
    assert_int_equal(env->log, TESS_LOG_DEFAULT);
    assert_int_equal(env->trace, 0);
}

static void nothing_set_is_all_zero(void **state)
{
    tess_env env;

    (void)state;
    memset(&env, 0x5a, sizeof env);
    assert_int_equal(tess_env_read(NULL, &env), TESS_OK);
    assert_all_unset(&env);
}

static void set_to_nothing_is_not_set(void **state)
{
    tess_env env;

    (void)state;
    for (size_t i = 0; i < tess_env_count(); i++)
        set(tess_env_entry_at(i)->name, "");
    assert_int_equal(tess_env_read(NULL, &env), TESS_OK);
    assert_all_unset(&env);
}

static void all_are_read_together(void **state)
{
    tess_env env;

    (void)state;
    set("TESSERA_BACKEND", "opencl:pocl:0");
    set("TESSERA_KERNEL", "fwd_*_d128");
    set("TESSERA_CPU_ISA", "avx2");
    set("TESSERA_THREADS", "8");
    set("TESSERA_SPLITS", "3");
    set("TESSERA_DETERMINISTIC", "1");
    set("TESSERA_LOG", "warn");
    set("TESSERA_TRACE", "refuse,driver");
    assert_int_equal(tess_env_read(NULL, &env), TESS_OK);
    assert_string_equal(env.backend, "opencl:pocl:0");
    assert_string_equal(env.kernel, "fwd_*_d128");
    assert_int_equal(env.cpu_isa, TESS_ENV_ISA_AVX2);
    assert_int_equal(env.threads, 8);
    assert_int_equal(env.splits, 3);
    assert_true(env.deterministic);
    assert_int_equal(env.log, TESS_LOG_WARN);
    assert_int_equal(env.trace, TESS_TRACE_REFUSE | TESS_TRACE_DRIVER);
}

static void text_is_copied(void **state)
{
    const tess_env env = read_with("TESSERA_BACKEND", "cuda,cpu");

    (void)state;
    set("TESSERA_BACKEND", "hip");
    assert_string_equal(env.backend, "cuda,cpu");
}

static void text_has_room_for_255_bytes(void **state)
{
    char value[TESS_ENV_SIZE + 1];

    (void)state;
    memset(value, 'k', sizeof value);
    value[255] = '\0';
    assert_string_equal(read_with("TESSERA_BACKEND", value).backend, value);
    assert_string_equal(read_with("TESSERA_KERNEL", value).kernel, value);
    value[255] = 'k';
    value[256] = '\0';
    assert_refused("TESSERA_BACKEND", value,
                   "tess_context_create: TESSERA_BACKEND is 256 bytes long, "
                   "\"kkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkk...\"; it takes a device name (cpu, cuda:1, "
                   "opencl:pocl:0) or a comma list of backends (cuda,cpu), up to 255 bytes");
    assert_refused("TESSERA_KERNEL", value,
                   "tess_context_create: TESSERA_KERNEL is 256 bytes long, "
                   "\"kkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkk...\"; it takes a pattern of kernel names, "
                   "where * is any run and ? any one byte, up to 255 bytes");
}

static void integers_have_a_range(void **state)
{
    (void)state;
    assert_int_equal(read_with("TESSERA_THREADS", "1").threads, 1);
    assert_int_equal(read_with("TESSERA_THREADS", "1024").threads, 1024);
    assert_int_equal(read_with("TESSERA_THREADS", "0012").threads, 12);
    assert_int_equal(read_with("TESSERA_SPLITS", "1").splits, 1);
    assert_int_equal(read_with("TESSERA_SPLITS", "65536").splits, 65536);
}

static void malformed_integers_are_refused(void **state)
{
    static const char *const malformed[] = {"0",
                                            "-1",
                                            "+4",
                                            " 4",
                                            "4 ",
                                            "4x",
                                            "x4",
                                            "1e3",
                                            "0x8",
                                            "4.0",
                                            "1,2",
                                            "70000",
                                            "18446744073709551617",
                                            "99999999999999999999999999"};
    char text[256];

    (void)state;
    for (size_t i = 0; i < sizeof malformed / sizeof malformed[0]; i++) {
        snprintf(text, sizeof text,
                 "tess_context_create: TESSERA_THREADS is \"%s\"; it takes 1 to 1024",
                 malformed[i]);
        assert_refused("TESSERA_THREADS", malformed[i], text);
        snprintf(text, sizeof text,
                 "tess_context_create: TESSERA_SPLITS is \"%s\"; it takes 1 to 65536",
                 malformed[i]);
        assert_refused("TESSERA_SPLITS", malformed[i], text);
    }
    assert_refused("TESSERA_THREADS", "1025",
                   "tess_context_create: TESSERA_THREADS is \"1025\"; it takes 1 to 1024");
    assert_refused("TESSERA_SPLITS", "65537",
                   "tess_context_create: TESSERA_SPLITS is \"65537\"; it takes 1 to 65536");
}

static void a_switch_set_to_0_is_off(void **state)
{
    (void)state;
    assert_false(read_with("TESSERA_DETERMINISTIC", "0").deterministic);
    assert_true(read_with("TESSERA_DETERMINISTIC", "1").deterministic);
    assert_refused("TESSERA_DETERMINISTIC", "true",
                   "tess_context_create: TESSERA_DETERMINISTIC is \"true\"; it takes 0 or 1");
    assert_refused("TESSERA_DETERMINISTIC", "2",
                   "tess_context_create: TESSERA_DETERMINISTIC is \"2\"; it takes 0 or 1");
    assert_refused("TESSERA_DETERMINISTIC", "01",
                   "tess_context_create: TESSERA_DETERMINISTIC is \"01\"; it takes 0 or 1");
}

static void a_level_is_a_log_level(void **state)
{
    (void)state;
    assert_int_equal(read_with("TESSERA_LOG", "off").log, TESS_LOG_OFF);
    assert_int_equal(read_with("TESSERA_LOG", "error").log, TESS_LOG_ERROR);
    assert_int_equal(read_with("TESSERA_LOG", "warn").log, TESS_LOG_WARN);
    assert_int_equal(read_with("TESSERA_LOG", "info").log, TESS_LOG_INFO);
    assert_int_equal(read_with("TESSERA_LOG", "debug").log, TESS_LOG_DEBUG);
}

static void malformed_levels_are_refused(void **state)
{
    static const char *const malformed[] = {"verbos", "or",    "of",    "offf", "Off",
                                            "1",      "warn ", " warn", ",",    "warn,info"};
    char text[256];

    (void)state;
    for (size_t i = 0; i < sizeof malformed / sizeof malformed[0]; i++) {
        snprintf(text, sizeof text,
                 "tess_context_create: TESSERA_LOG is \"%s\"; it takes off, error, warn, info or "
                 "debug",
                 malformed[i]);
        assert_refused("TESSERA_LOG", malformed[i], text);
    }
}

static void an_instruction_set_has_its_number(void **state)
{
    (void)state;
    assert_int_equal(read_with("TESSERA_CPU_ISA", "scalar").cpu_isa, TESS_ENV_ISA_SCALAR);
    assert_int_equal(read_with("TESSERA_CPU_ISA", "portable").cpu_isa, TESS_ENV_ISA_PORTABLE);
    assert_int_equal(read_with("TESSERA_CPU_ISA", "neon").cpu_isa, TESS_ENV_ISA_NEON);
    assert_int_equal(read_with("TESSERA_CPU_ISA", "sve").cpu_isa, TESS_ENV_ISA_SVE);
    assert_int_equal(read_with("TESSERA_CPU_ISA", "avx2").cpu_isa, TESS_ENV_ISA_AVX2);
    assert_int_equal(read_with("TESSERA_CPU_ISA", "avx512").cpu_isa, TESS_ENV_ISA_AVX512);
    assert_int_equal(read_with("TESSERA_CPU_ISA", "amx").cpu_isa, TESS_ENV_ISA_AMX);
    assert_refused("TESSERA_CPU_ISA", "sse2",
                   "tess_context_create: TESSERA_CPU_ISA is \"sse2\"; it takes scalar, portable, "
                   "neon, sve, avx2, avx512 or amx");
    assert_refused("TESSERA_CPU_ISA", "avx",
                   "tess_context_create: TESSERA_CPU_ISA is \"avx\"; it takes scalar, portable, "
                   "neon, sve, avx2, avx512 or amx");
}

static void trace_words_are_bits(void **state)
{
    (void)state;
    assert_int_equal(read_with("TESSERA_TRACE", "plan").trace, TESS_TRACE_PLAN);
    assert_int_equal(read_with("TESSERA_TRACE", "refuse").trace, TESS_TRACE_REFUSE);
    assert_int_equal(read_with("TESSERA_TRACE", "exec").trace, TESS_TRACE_EXEC);
    assert_int_equal(read_with("TESSERA_TRACE", "driver").trace, TESS_TRACE_DRIVER);
    assert_int_equal(read_with("TESSERA_TRACE", "driver,plan").trace,
                     TESS_TRACE_DRIVER | TESS_TRACE_PLAN);
    assert_int_equal(read_with("TESSERA_TRACE", " plan, exec ").trace,
                     TESS_TRACE_PLAN | TESS_TRACE_EXEC);
    assert_int_equal(read_with("TESSERA_TRACE", "exec,exec").trace, TESS_TRACE_EXEC);
}

static void malformed_traces_are_refused(void **state)
{
    static const char *const malformed[] = {"all",   "plan,",     ",plan",    "plan,,exec", " ",
                                            "1",     "plan exec", ",",        "or",         "PLAN",
                                            "plans", "plan;exec", "plan,exce"};
    char text[256];

    (void)state;
    for (size_t i = 0; i < sizeof malformed / sizeof malformed[0]; i++) {
        snprintf(text, sizeof text,
                 "tess_context_create: TESSERA_TRACE is \"%s\"; it takes plan, refuse, exec or "
                 "driver, several separated by commas",
                 malformed[i]);
        assert_refused("TESSERA_TRACE", malformed[i], text);
    }
}

/* Holds for variables yet to be added as well. */
static void every_variable_refuses_nonsense(void **state)
{
    char value[400];
    char text[TESS_ERROR_LENGTH + 1];

    (void)state;
    memset(value, '~', sizeof value);
    value[sizeof value - 1] = '\0';
    for (size_t i = 0; i < tess_env_count(); i++) {
        const tess_env_entry *const entry = tess_env_entry_at(i);
        tess_env env;

        clear(NULL);
        set(entry->name, value);
        assert_int_equal(tess_env_read(NULL, &env), TESS_INVALID);
        tess_error_text(NULL, text, sizeof text);
        assert_non_null(strstr(text, entry->name));
        assert_non_null(strstr(text, "~~~~"));
        assert_non_null(strstr(text, entry->accepted));
    }
}

/* Keeps the lines it is given, one after the other. */
static void keep_lines(void *user, tess_log_level level, const char *line)
{
    char *const text = user;
    const size_t length = strlen(text);

    assert_true(level == TESS_LOG_WARN || level == TESS_LOG_DEBUG || level == TESS_LOG_ERROR);
    snprintf(text + length, 2048 - length, "%s\n", line);
}

static void a_refusal_goes_to_the_hosts_log(void **state)
{
    char text[2048] = "";
    const tess_host host = {.log = keep_lines, .log_user = text, .log_level = TESS_LOG_ERROR};
    tess_env env;

    (void)state;
    set("TESSERA_THREADS", "many");
    assert_int_equal(tess_env_read(&host, &env), TESS_INVALID);
    assert_string_equal(text,
                        "tess_context_create: TESSERA_THREADS is \"many\"; it takes 1 to 1024\n");
}

static void assert_warning(const char *name, const char *wanted)
{
    char text[2048] = "";
    const tess_host host = {.log = keep_lines, .log_user = text, .log_level = TESS_LOG_WARN};

    clear(NULL);
    set(name, "1");
    tess_env_warn_unknown(&host);
    assert_string_equal(text, wanted);
}

static void an_unknown_name_is_a_warning_with_the_nearest(void **state)
{
    (void)state;
    assert_warning("TESSERA_THREAD", "tess_context_create: TESSERA_THREAD is not a variable of "
                                     "tessera; did you mean TESSERA_THREADS?\n");
    assert_warning("TESSERA_TRAEC", "tess_context_create: TESSERA_TRAEC is not a variable of "
                                    "tessera; did you mean TESSERA_TRACE?\n");
    assert_warning("TESSERA_log", "tess_context_create: TESSERA_log is not a variable of "
                                  "tessera; did you mean TESSERA_LOG?\n");
    assert_warning("TESSERA_BACKENDS", "tess_context_create: TESSERA_BACKENDS is not a variable of "
                                       "tessera; did you mean TESSERA_BACKEND?\n");
    assert_warning("TESSERA_COLOUR", "tess_context_create: TESSERA_COLOUR is not a variable of "
                                     "tessera; docs/environment.md lists them\n");
    assert_warning("TESSERA_", "tess_context_create: TESSERA_ is not a variable of "
                               "tessera; docs/environment.md lists them\n");
    assert_warning("TESSERA", ""); /* not ours */
    assert_warning("tessera_log", "");
    assert_warning("TESSERA_LOG", "");
}

static void a_very_long_unknown_name_is_named(void **state)
{
    char name[300];
    char wanted[400];

    (void)state;
    memset(name, 'X', sizeof name);
    memcpy(name, "TESSERA_", 8);
    name[sizeof name - 1] = '\0';
    snprintf(wanted, sizeof wanted,
             "tess_context_create: %s is not a variable of tessera; docs/environment.md lists "
             "them\n",
             name);
    assert_warning(name, wanted);
    unsetenv(name); /* longer than clear() looks */
}

static void no_known_name_is_warned_about(void **state)
{
    char text[2048] = "";
    const tess_host host = {.log = keep_lines, .log_user = text, .log_level = TESS_LOG_DEBUG};

    (void)state;
    for (size_t i = 0; i < tess_env_count(); i++)
        set(tess_env_entry_at(i)->name, "1");
    tess_env_warn_unknown(&host);
    assert_string_equal(text, "");
}

static void a_quiet_log_is_not_warned(void **state)
{
    char text[2048] = "";
    const tess_host host = {.log = keep_lines, .log_user = text, .log_level = TESS_LOG_ERROR};

    (void)state;
    set("TESSERA_COLOUR", "1");
    tess_env_warn_unknown(&host);
    tess_env_warn_unknown(NULL);
    assert_string_equal(text, "");
}

static void every_entry_is_complete(void **state)
{
    (void)state;
    assert_true(tess_env_count() > 0);
    for (size_t i = 0; i < tess_env_count(); i++) {
        const tess_env_entry *const entry = tess_env_entry_at(i);

        assert_int_equal(strncmp(entry->name, "TESSERA_", 8), 0);
        assert_true(strlen(entry->type) > 0);
        assert_true(strlen(entry->fallback) > 0);
        assert_true(strlen(entry->accepted) > 0);
        assert_int_equal(entry->help[strlen(entry->help) - 1], '.');
        for (size_t j = 0; j < i; j++)
            assert_string_not_equal(entry->name, tess_env_entry_at(j)->name);
    }
    assert_string_equal(tess_env_entry_at(0)->name, "TESSERA_BACKEND");
    assert_string_equal(tess_env_entry_at(0)->type, "text");
}

static void the_current_value_is_shown_unchecked(void **state)
{
    (void)state;
    assert_null(tess_env_current("TESSERA_LOG"));
    set("TESSERA_LOG", "verbos");
    assert_string_equal(tess_env_current("TESSERA_LOG"), "verbos");
}

/* The words people choose are the words the lines carry. */
static void a_trace_line_carries_the_word_that_chose_it(void **state)
{
    static const char *const words[] = {"plan", "refuse", "exec", "driver"};

    (void)state;
    for (size_t i = 0; i < 4; i++) {
        char text[2048] = "";
        char wanted[64];
        const tess_host host = {.log = keep_lines,
                                .log_user = text,
                                .trace = read_with("TESSERA_TRACE", words[i]).trace};

        tess_trace(&host, UINT32_C(1) << i, "x");
        snprintf(wanted, sizeof wanted, "tessera,%s,x\n", words[i]);
        assert_string_equal(text, wanted);
    }
}

#define IN_CLEAN_ENVIRONMENT(test) cmocka_unit_test_setup_teardown(test, clear, clear)

int main(void)
{
    const struct CMUnitTest tests[] = {
        IN_CLEAN_ENVIRONMENT(nothing_set_is_all_zero),
        IN_CLEAN_ENVIRONMENT(set_to_nothing_is_not_set),
        IN_CLEAN_ENVIRONMENT(all_are_read_together),
        IN_CLEAN_ENVIRONMENT(text_is_copied),
        IN_CLEAN_ENVIRONMENT(text_has_room_for_255_bytes),
        IN_CLEAN_ENVIRONMENT(integers_have_a_range),
        IN_CLEAN_ENVIRONMENT(malformed_integers_are_refused),
        IN_CLEAN_ENVIRONMENT(a_switch_set_to_0_is_off),
        IN_CLEAN_ENVIRONMENT(a_level_is_a_log_level),
        IN_CLEAN_ENVIRONMENT(malformed_levels_are_refused),
        IN_CLEAN_ENVIRONMENT(an_instruction_set_has_its_number),
        IN_CLEAN_ENVIRONMENT(trace_words_are_bits),
        IN_CLEAN_ENVIRONMENT(malformed_traces_are_refused),
        IN_CLEAN_ENVIRONMENT(every_variable_refuses_nonsense),
        IN_CLEAN_ENVIRONMENT(a_refusal_goes_to_the_hosts_log),
        IN_CLEAN_ENVIRONMENT(an_unknown_name_is_a_warning_with_the_nearest),
        IN_CLEAN_ENVIRONMENT(a_very_long_unknown_name_is_named),
        IN_CLEAN_ENVIRONMENT(no_known_name_is_warned_about),
        IN_CLEAN_ENVIRONMENT(a_quiet_log_is_not_warned),
        IN_CLEAN_ENVIRONMENT(every_entry_is_complete),
        IN_CLEAN_ENVIRONMENT(the_current_value_is_shown_unchecked),
        IN_CLEAN_ENVIRONMENT(a_trace_line_carries_the_word_that_chose_it),
    };
    const int failed = cmocka_run_group_tests(tests, NULL, NULL);

    return failed != 0;
}
