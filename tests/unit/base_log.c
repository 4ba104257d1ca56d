/* SPDX-License-Identifier: Apache-2.0
 * Lines reach the program whole, only when asked for, and stderr in one write each. */
#include "core/base/log.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

enum { KEPT = 8 };

/* Keeps the lines it is given and their levels. */
typedef struct log_of_test {
    int count;
    tess_log_level levels[KEPT];
    char lines[KEPT][TESS_LOG_LENGTH + 1];
} log_of_test;

static log_of_test seen;

static void keep_line(void *user, tess_log_level level, const char *line)
{
    log_of_test *const log = user;

    assert_true(log->count < KEPT);
    log->levels[log->count] = level;
    snprintf(log->lines[log->count++], sizeof log->lines[0], "%s", line);
}

static int clear(void **state)
{
    (void)state;
    memset(&seen, 0, sizeof seen);
    return 0;
}

static tess_host host_at(tess_log_level level, uint32_t trace)
{
    return (tess_host){.log = keep_line, .log_user = &seen, .log_level = level, .trace = trace};
}

static void a_level_shows_itself_and_everything_above(void **state)
{
    (void)state;
    for (tess_log_level level = TESS_LOG_DEFAULT; level <= TESS_LOG_DEBUG; level++)
        for (tess_log_level line = TESS_LOG_ERROR; line <= TESS_LOG_DEBUG; line++) {
            const tess_host host = host_at(level, 0);

            clear(NULL);
            tess_log(&host, line, "line %d", line);
            assert_int_equal(tess_log_shows(&host, line), line <= level);
            assert_int_equal(seen.count, line <= level);
            if (line <= level)
                assert_int_equal(seen.levels[0], line);
        }
}

static void a_host_without_a_log_is_silent(void **state)
{
    const tess_host mute = {.log_level = TESS_LOG_DEBUG, .trace = UINT32_MAX};

    (void)state;
    assert_false(tess_log_shows(&mute, TESS_LOG_ERROR));
    assert_false(tess_log_shows(NULL, TESS_LOG_ERROR));
    assert_false(tess_trace_shows(&mute, TESS_TRACE_EXEC));
    assert_false(tess_trace_shows(NULL, TESS_TRACE_EXEC));
    tess_log(&mute, TESS_LOG_ERROR, "to nobody");
    tess_log(NULL, TESS_LOG_ERROR, "to nobody");
    tess_trace(&mute, TESS_TRACE_EXEC, "to nobody");
    tess_trace(NULL, TESS_TRACE_EXEC, "to nobody");
}

static void each_line_is_a_call(void **state)
{
    const tess_host host = host_at(TESS_LOG_INFO, 0);

    (void)state;
    tess_log(&host, TESS_LOG_INFO, "one\n\n%s", "three");
    assert_int_equal(seen.count, 3);
    assert_string_equal(seen.lines[0], "one");
    assert_string_equal(seen.lines[1], "");
    assert_string_equal(seen.lines[2], "three");
}

static void a_line_too_long_is_cut(void **state)
{
    static char longer[TESS_LOG_LENGTH + 100];
    const tess_host host = host_at(TESS_LOG_INFO, TESS_TRACE_PLAN);

    (void)state;
    memset(longer, 'x', sizeof longer - 1);
    tess_log(&host, TESS_LOG_INFO, "%s", longer);
    tess_trace(&host, TESS_TRACE_PLAN, "%s", longer);
    assert_int_equal(seen.count, 2);
    assert_int_equal(strlen(seen.lines[0]), TESS_LOG_LENGTH);
    assert_int_equal(strlen(seen.lines[1]), TESS_LOG_LENGTH);
}

static void a_trace_names_its_category(void **state)
{
    const tess_host host = host_at(TESS_LOG_OFF, UINT32_MAX);

    (void)state;
    tess_trace(&host, TESS_TRACE_PLAN, "cpu,%d", 1);
    tess_trace(&host, TESS_TRACE_REFUSE, "cpu");
    tess_trace(&host, TESS_TRACE_EXEC, "cuda:0,\"fwd b2\",%s", "0.412ms");
    tess_trace(&host, TESS_TRACE_DRIVER, "two\nlines");
    assert_int_equal(seen.count, 4);
    assert_string_equal(seen.lines[0], "tessera,plan,cpu,1");
    assert_string_equal(seen.lines[1], "tessera,refuse,cpu");
    assert_string_equal(seen.lines[2], "tessera,exec,cuda:0,\"fwd b2\",0.412ms");
    assert_string_equal(seen.lines[3], "tessera,driver,two lines");
    for (int i = 0; i < 4; i++)
        assert_int_equal(seen.levels[i], TESS_LOG_DEBUG);
}

static void only_chosen_categories_are_traced(void **state)
{
    (void)state;
    for (uint32_t chosen = 0; chosen < 16; chosen++)
        for (uint32_t category = TESS_TRACE_PLAN; category <= TESS_TRACE_DRIVER; category <<= 1) {
            const tess_host host = host_at(TESS_LOG_DEBUG, chosen);
            const bool is_chosen = (chosen & category) != 0;

            clear(NULL);
            tess_trace(&host, category, "x");
            assert_int_equal(seen.count, is_chosen);
            assert_int_equal(tess_trace_shows(&host, category), is_chosen);
        }
}

/* What a call of the sink writes to stderr, as a text of the caller's. */
static void catch_stderr(tess_log_level level, const char *line, char *text, size_t size)
{
    int ends[2];
    const int kept = dup(STDERR_FILENO);

    assert_true(kept >= 0);
    assert_int_equal(pipe(ends), 0);
    assert_true(dup2(ends[1], STDERR_FILENO) >= 0);
    tess_log_to_stderr(NULL, level, line);
    assert_true(dup2(kept, STDERR_FILENO) >= 0);
    close(kept);
    close(ends[1]);

    size_t length = 0;

    for (;;) {
        const ssize_t got = read(ends[0], text + length, size - 1 - length);

        assert_true(got >= 0);
        if (got == 0)
            break;
        length += (size_t)got;
    }
    close(ends[0]);
    text[length] = '\0';
}

static void the_sink_says_who_speaks(void **state)
{
    char text[256];

    (void)state;
    catch_stderr(TESS_LOG_ERROR, "a %s line", text, sizeof text);
    assert_string_equal(text, "tessera: error: a %s line\n");
    catch_stderr(TESS_LOG_WARN, "x", text, sizeof text);
    assert_string_equal(text, "tessera: warn: x\n");
    catch_stderr(TESS_LOG_INFO, "x", text, sizeof text);
    assert_string_equal(text, "tessera: info: x\n");
    catch_stderr(TESS_LOG_DEBUG, "x", text, sizeof text);
    assert_string_equal(text, "tessera: debug: x\n");
    catch_stderr(TESS_LOG_DEBUG, "tessera,exec,cpu", text, sizeof text);
    assert_string_equal(text, "tessera,exec,cpu\n");
}

static void the_sink_ends_every_line(void **state)
{
    static char line[2 * TESS_LOG_LENGTH];
    static char text[4 * TESS_LOG_LENGTH];

    (void)state;
    memset(line, 'x', TESS_LOG_LENGTH);
    catch_stderr(TESS_LOG_ERROR, line, text, sizeof text);
    assert_int_equal(strlen(text), strlen("tessera: error: \n") + TESS_LOG_LENGTH);
    memset(line, 'x', sizeof line - 1); /* longer than the library ever writes */
    catch_stderr(TESS_LOG_ERROR, line, text, sizeof text);
    assert_true(strlen(text) < sizeof line);
    assert_int_equal(text[strlen(text) - 1], '\n');
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(a_level_shows_itself_and_everything_above, clear),
        cmocka_unit_test_setup(a_host_without_a_log_is_silent, clear),
        cmocka_unit_test_setup(each_line_is_a_call, clear),
        cmocka_unit_test_setup(a_line_too_long_is_cut, clear),
        cmocka_unit_test_setup(a_trace_names_its_category, clear),
        cmocka_unit_test_setup(only_chosen_categories_are_traced, clear),
        cmocka_unit_test_setup(the_sink_says_who_speaks, clear),
        cmocka_unit_test_setup(the_sink_ends_every_line, clear),
    };
    const int failed = cmocka_run_group_tests(tests, NULL, NULL);

    return failed != 0;
}
