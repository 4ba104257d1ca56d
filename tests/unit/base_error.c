/* SPDX-License-Identifier: Apache-2.0
 * A failure's text is kept per thread and per context, whole, and handed out without overruns. */
#include "core/base/error.h"

#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

static const tess_host first;
static const tess_host second;

/* The text of a host's last failure, in a buffer that the next call overwrites. */
static const char *text_of(const tess_host *host)
{
    static char text[TESS_ERROR_LENGTH + 1];
    const size_t length = tess_error_text(host, text, sizeof text);

    assert_int_equal(length, strlen(text));
    return text;
}

static int forget_everything(void **state)
{
    (void)state;
    tess_fail(NULL, TESS_INVALID, "%s", "");
    return 0;
}

static void there_is_no_text_before_a_failure(void **state)
{
    char text[8] = "garbage";

    (void)state;
    assert_int_equal(tess_error_text(NULL, NULL, 0), 0);
    assert_int_equal(tess_error_text(&first, text, sizeof text), 0);
    assert_string_equal(text, "");
}

static void a_failure_returns_its_status_and_keeps_its_text(void **state)
{
    (void)state;
    assert_int_equal(tess_fail(&first, TESS_UNSUPPORTED, "q.seqlen is %d", 12), TESS_UNSUPPORTED);
    assert_string_equal(text_of(&first), "q.seqlen is 12");
    assert_string_equal(text_of(NULL), "q.seqlen is 12");
    assert_int_equal(tess_fail(&first, TESS_NO_MEMORY, "later"), TESS_NO_MEMORY);
    assert_string_equal(text_of(&first), "later");
}

static void a_text_belongs_to_its_host(void **state)
{
    (void)state;
    tess_fail(&first, TESS_INVALID, "of the first");
    assert_string_equal(text_of(&second), "");
    tess_fail(&second, TESS_INVALID, "of the second");
    assert_string_equal(text_of(&first), "");
    assert_string_equal(text_of(&second), "of the second");
    assert_string_equal(text_of(NULL), "of the second");
}

static void a_text_without_host_is_found_without_host(void **state)
{
    (void)state;
    tess_fail(NULL, TESS_INVALID, "before there was a context");
    assert_string_equal(text_of(NULL), "before there was a context");
    assert_string_equal(text_of(&first), "");
}

static void a_new_host_does_not_inherit(void **state)
{
    (void)state;
    tess_fail(&first, TESS_INVALID, "of a context now gone");
    tess_error_forget(&second);
    assert_string_equal(text_of(&first), "of a context now gone");
    tess_error_forget(&first);
    assert_string_equal(text_of(&first), "");
    assert_string_equal(text_of(NULL), "of a context now gone");
}

static void a_small_buffer_gets_the_beginning(void **state)
{
    char text[8];

    (void)state;
    tess_fail(&first, TESS_INVALID, "0123456789");
    for (size_t size = 0; size <= sizeof text; size++) {
        memset(text, '#', sizeof text);
        assert_int_equal(tess_error_text(&first, text, size), 10);
        if (size > 0) {
            assert_int_equal(strlen(text), size - 1);
            assert_memory_equal(text, "0123456789", size - 1);
        }
        for (size_t i = size; i < sizeof text; i++)
            assert_int_equal(text[i], '#');
    }
    assert_int_equal(tess_error_text(&first, NULL, 0), 10);
}

static void a_text_is_kept_up_to_its_promised_length(void **state)
{
    static char longer[TESS_ERROR_LENGTH + 100];

    (void)state;
    memset(longer, 'x', sizeof longer - 1);
    tess_fail(&first, TESS_INVALID, "%s", longer);
    assert_int_equal(strlen(text_of(&first)), TESS_ERROR_LENGTH);
    assert_int_equal(TESS_ERROR_LENGTH, 8191); /* the number in tess_context_error()'s comment */
    longer[TESS_ERROR_LENGTH] = '\0';
    tess_fail(&first, TESS_INVALID, "%s", longer);
    assert_string_equal(text_of(&first), longer);
}

static tess_status fails_if(tess_status status, int *reached)
{
    TESS_TRY(status);
    (*reached)++;
    return TESS_OK;
}

static void try_returns_a_failed_status(void **state)
{
    int reached = 0;

    (void)state;
    assert_int_equal(fails_if(TESS_DEVICE_FAILED, &reached), TESS_DEVICE_FAILED);
    assert_int_equal(reached, 0);
    assert_int_equal(fails_if(TESS_OK, &reached), TESS_OK);
    assert_int_equal(reached, 1);
}

/* Keeps the lines it is given and their levels. */
typedef struct log_of_test {
    int count;
    tess_log_level level;
    char lines[4][64];
} log_of_test;

static void keep_line(void *user, tess_log_level level, const char *line)
{
    log_of_test *const log = user;

    assert_true(log->count < 4);
    log->level = level;
    snprintf(log->lines[log->count++], sizeof log->lines[0], "%s", line);
}

static void a_failure_is_logged_line_by_line(void **state)
{
    log_of_test log = {0};
    const tess_host host = {.log = keep_line, .log_user = &log, .log_level = TESS_LOG_ERROR};

    (void)state;
    tess_fail(&host, TESS_UNSUPPORTED, "no kernel:\n    one %d\n    two", 1);
    assert_int_equal(log.count, 3);
    assert_int_equal(log.level, TESS_LOG_ERROR);
    assert_string_equal(log.lines[0], "no kernel:");
    assert_string_equal(log.lines[1], "    one 1");
    assert_string_equal(log.lines[2], "    two");
    assert_string_equal(text_of(&host), "no kernel:\n    one 1\n    two");
}

static void a_silent_host_still_keeps_the_text(void **state)
{
    log_of_test log = {0};
    const tess_host host = {.log = keep_line, .log_user = &log, .log_level = TESS_LOG_OFF};

    (void)state;
    tess_fail(&host, TESS_INVALID, "quietly");
    assert_int_equal(log.count, 0);
    assert_string_equal(text_of(&host), "quietly");
}

/* What another thread saw of the errors, brought home: cmocka's asserts work in the main thread
 * only. */
typedef struct witness {
    pthread_barrier_t *both_failed;
    const char *text;
    size_t before;
    char after[64];
} witness;

static void *fail_and_look(void *user)
{
    witness *const seen = user;

    seen->before = tess_error_text(NULL, NULL, 0);
    tess_fail(&first, TESS_INVALID, "%s", seen->text);
    pthread_barrier_wait(seen->both_failed);
    tess_error_text(&first, seen->after, sizeof seen->after);
    return NULL;
}

static void each_thread_sees_its_own_failures(void **state)
{
    pthread_barrier_t both_failed;
    pthread_t threads[2];
    witness seen[2] = {{.text = "of thread 0", .before = 1}, {.text = "of thread 1", .before = 1}};

    (void)state;
    tess_fail(&first, TESS_INVALID, "of the main thread");
    assert_int_equal(pthread_barrier_init(&both_failed, NULL, 2), 0);
    for (int i = 0; i < 2; i++) {
        seen[i].both_failed = &both_failed;
        assert_int_equal(pthread_create(&threads[i], NULL, fail_and_look, &seen[i]), 0);
    }
    for (int i = 0; i < 2; i++)
        assert_int_equal(pthread_join(threads[i], NULL), 0);
    pthread_barrier_destroy(&both_failed);

    for (int i = 0; i < 2; i++) {
        assert_int_equal(seen[i].before, 0);
        assert_string_equal(seen[i].after, seen[i].text);
    }
    assert_string_equal(text_of(&first), "of the main thread");
}

/* Built with -Ddebug_abort=true our own mistakes stop the program where they are found; built
 * without, never. */
static void an_internal_error_traps_when_asked_to(void **state)
{
    int status = 0;

    (void)state;
    const pid_t child = fork();

    assert_true(child >= 0);
    if (child == 0) {
        signal(SIGILL, SIG_DFL); /* cmocka would catch it and carry on */
        tess_fail(NULL, TESS_INVALID, "not ours");
        close(STDERR_FILENO); /* a sanitizer would report the trap at length */
        tess_fail(NULL, TESS_INTERNAL, "ours");
        _exit(0);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
#ifdef TESS_DEBUG_ABORT
    assert_int_not_equal(status, 0);
#else
    assert_int_equal(status, 0);
#endif
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(there_is_no_text_before_a_failure),
        cmocka_unit_test_setup(a_failure_returns_its_status_and_keeps_its_text, forget_everything),
        cmocka_unit_test_setup(a_text_belongs_to_its_host, forget_everything),
        cmocka_unit_test_setup(a_text_without_host_is_found_without_host, forget_everything),
        cmocka_unit_test_setup(a_new_host_does_not_inherit, forget_everything),
        cmocka_unit_test_setup(a_small_buffer_gets_the_beginning, forget_everything),
        cmocka_unit_test_setup(a_text_is_kept_up_to_its_promised_length, forget_everything),
        cmocka_unit_test_setup(try_returns_a_failed_status, forget_everything),
        cmocka_unit_test_setup(a_failure_is_logged_line_by_line, forget_everything),
        cmocka_unit_test_setup(a_silent_host_still_keeps_the_text, forget_everything),
        cmocka_unit_test_setup(each_thread_sees_its_own_failures, forget_everything),
        cmocka_unit_test_setup(an_internal_error_traps_when_asked_to, forget_everything),
    };
    const int failed = cmocka_run_group_tests(tests, NULL, NULL);

    return failed != 0;
}
