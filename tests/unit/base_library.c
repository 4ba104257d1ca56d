/* SPDX-License-Identifier: Apache-2.0
 * A library is found by the first of its names that works, and its absence has a reason. */
#include "core/base/library.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#define ABSENT "libtessera_absent.so.1"
#define ABSENT_TOO "/nowhere/libtessera_absent.so"

/* The C library's mathematics, which every machine has under one of these names. */
static const char *const present[] = {ABSENT, "libm.so.6", "libc.so", NULL};
static const char *const absent[] = {ABSENT, ABSENT_TOO, NULL};

typedef double (*function_of_one)(double);

static void a_function_can_be_called(void **state)
{
    void *library = NULL;

    (void)state;
    assert_int_equal(tess_library_open(NULL, present, &library, NULL, 0), TESS_OK);
    assert_non_null(library);

    const function_of_one floor_of = (function_of_one)tess_library_symbol(library, "floor");

    assert_non_null(floor_of);
    assert_true(floor_of(2.75) == 2.0);
    tess_library_close(library);
}

static void a_missing_function_is_null(void **state)
{
    void *library = NULL;

    (void)state;
    assert_int_equal(tess_library_open(NULL, present, &library, NULL, 0), TESS_OK);
    assert_null(tess_library_symbol(library, "tessera_has_no_such_function"));
    tess_library_close(library);
}

static void each_name_says_why_it_failed(void **state)
{
    char untouched;
    void *library = &untouched;
    char why[512];

    (void)state;
    assert_int_equal(tess_library_open(NULL, absent, &library, why, sizeof why), TESS_UNAVAILABLE);
    assert_ptr_equal(library, &untouched);

    char *const second = strchr(why, '\n');

    assert_non_null(second);
    *second = '\0';
    assert_non_null(strstr(why, ABSENT ": cannot open shared object file"));
    assert_non_null(strstr(second + 1, ABSENT_TOO ": cannot open shared object file"));
    assert_null(strchr(second + 1, '\n'));
}

static void a_small_buffer_cuts_the_reason(void **state)
{
    void *library = NULL;
    char why[8];

    (void)state;
    memset(why, '#', sizeof why);
    assert_int_equal(tess_library_open(NULL, absent, &library, why, 6), TESS_UNAVAILABLE);
    assert_string_equal(why, "libte");
    assert_int_equal(why[6], '#');
    assert_int_equal(tess_library_open(NULL, absent, &library, NULL, 0), TESS_UNAVAILABLE);
}

static void success_leaves_no_reason(void **state)
{
    void *library = NULL;
    char why[64] = "garbage";
    static const char *const one_name[] = {"libm.so.6", NULL};
    static const char *const no_name[] = {NULL};

    (void)state;
    assert_int_equal(tess_library_open(NULL, no_name, &library, why, sizeof why), TESS_UNAVAILABLE);
    assert_string_equal(why, "");
    assert_int_equal(tess_library_open(NULL, one_name, &library, why, sizeof why), TESS_OK);
    assert_string_equal(why, "");
    tess_library_close(library);
}

static void closing_nothing_is_fine(void **state)
{
    (void)state;
    tess_library_close(NULL);
}

static void keep_lines(void *user, tess_log_level level, const char *line)
{
    char *const text = user;
    const size_t length = strlen(text);

    assert_int_equal(level, TESS_LOG_DEBUG);
    snprintf(text + length, 1024 - length, "%s\n", line);
}

static void openings_are_traced(void **state)
{
    char text[1024] = "";
    const tess_host host = {.log = keep_lines, .log_user = text, .trace = TESS_TRACE_DRIVER};
    void *library = NULL;

    (void)state;
    assert_int_equal(tess_library_open(&host, present, &library, NULL, 0), TESS_OK);
    assert_ptr_equal(strstr(text, "tessera,driver,open," ABSENT ",\"" ABSENT ": cannot"), text);
    assert_non_null(strstr(text, "\ntessera,driver,open,lib"));
    assert_non_null(strstr(text, ",ok\n"));
    tess_library_close(library);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_function_can_be_called),
        cmocka_unit_test(a_missing_function_is_null),
        cmocka_unit_test(each_name_says_why_it_failed),
        cmocka_unit_test(a_small_buffer_cuts_the_reason),
        cmocka_unit_test(success_leaves_no_reason),
        cmocka_unit_test(closing_nothing_is_fine),
        cmocka_unit_test(openings_are_traced),
    };
    const int failed = cmocka_run_group_tests(tests, NULL, NULL);

    return failed != 0;
}
