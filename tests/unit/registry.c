/* SPDX-License-Identifier: Apache-2.0
 * Names of backends and devices: the table that was compiled in, and lists of them as text. */
#include "core/runtime/registry.h"

#include "tests/unit/support.h"

static void the_table_is_in_order_of_priority(void **state)
{
    size_t count = 0;
    const tess_backend *const *const table = tess_registry(&count);

    (void)state;
    assert_true(count >= 1);
    for (size_t i = 1; i < count; i++)
        assert_true(table[i - 1]->priority > table[i]->priority);
    if (strcmp(table[count - 1]->name, "opencl") == 0)
        count--; /* which may be this CPU by a slower way, so it is only used when it is named */
    assert_string_equal(table[count - 1]->name, "cpu"); /* always there, never preferred */
}

static void names_are_words_that_can_be_typed(void **state)
{
    size_t count = 0;
    const tess_backend *const *const table = tess_registry(&count);

    (void)state;
    for (size_t i = 0; i < count; i++) {
        const char *const name = table[i]->name, *rest = NULL;

        assert_true(strlen(name) > 0 && strlen(name) < 16);
        assert_int_equal(strspn(name, "abcdefghijklmnopqrstuvwxyz0123456789"), strlen(name));
        assert_ptr_equal(tess_registry_find(name, &rest), table[i]);
        assert_string_equal(rest, "");
        for (size_t j = 0; j < i; j++)
            assert_string_not_equal(name, table[j]->name);
    }
}

static void a_device_name_is_a_backend_and_the_rest(void **state)
{
    static const struct {
        const char *name, *rest; /* NULL: no such backend */
    } cases[] = {{"cpu", ""},   {"cpu:0", "0"}, {"cpu:a:b", "a:b"}, {"cpu:", NULL},
                 {"cp", NULL},  {"cpuu", NULL}, {"", NULL},         {":0", NULL},
                 {"Cpu", NULL}, {" cpu", NULL}, {"cpu ", NULL},     {"cpu,cpu", NULL},
                 {"cpu0", NULL}};

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const char *rest = NULL;
        const tess_backend *const found = tess_registry_find(cases[i].name, &rest);

        if (cases[i].rest) {
            assert_non_null(found);
            assert_string_equal(rest, cases[i].rest);
        } else if (found) {
            fail_msg("\"%s\" is no device", cases[i].name);
        }
    }
}

static void lists_are_cut_at_commas_and_trimmed(void **state)
{
    static const struct {
        const char *list;
        const char *names[4];
    } cases[] = {{"a", {"a"}},     {"a,b", {"a", "b"}}, {" a , b:1 ,  c", {"a", "b:1", "c"}},
                 {"", {""}},       {",", {"", ""}},     {"a,,b", {"a", "", "b"}},
                 {"a b", {"a b"}}, {"  ", {""}}};
    char name[64];

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        size_t count = 0;

        while (count < 4 && cases[i].names[count]) {
            assert_true(tess_list_at(cases[i].list, count, name, sizeof name));
            assert_string_equal(name, cases[i].names[count]);
            count++;
        }
        assert_false(tess_list_at(cases[i].list, count, name, sizeof name));
        assert_false(tess_list_at(cases[i].list, count + 1, name, sizeof name));
    }
}

static void a_name_that_is_too_long_is_cut(void **state)
{
    char name[4] = "xyz";

    (void)state;
    assert_true(tess_list_at("abcdefgh,b", 0, name, sizeof name));
    assert_string_equal(name, "abc");
    assert_true(tess_list_at("abcdefgh,b", 1, name, sizeof name));
    assert_string_equal(name, "b");
}

static void a_list_is_refused_for_its_first_wrong_name(void **state)
{
    char longest[400];

    (void)state;
    assert_int_equal(tess_registry_check_list(NULL, "a_test", "x", "cpu"), TESS_OK);
    assert_int_equal(tess_registry_check_list(NULL, "a_test", "x", "cpu, cpu:0 ,cpu"), TESS_OK);
    assert_refused(NULL, tess_registry_check_list(NULL, "a_test", "x", "cpu,cpi,gpx"), TESS_INVALID,
                   "a_test", "x names \"cpi\"|it takes|cpu|did you mean cpu?", "a typo");
    assert_refused(NULL, tess_registry_check_list(NULL, "a_test", "x", "toaster"), TESS_INVALID,
                   "a_test", "x is \"toaster\"|it takes", "far from everything");
    assert_refused(NULL, tess_registry_check_list(NULL, "a_test", "x", "cpu,"), TESS_INVALID,
                   "a_test", "x names \"\"", "an empty name");
    memset(longest, 'c', sizeof longest - 1);
    longest[sizeof longest - 1] = '\0';
    assert_refused(NULL, tess_registry_check_list(NULL, "a_test", "x", longest), TESS_INVALID,
                   "a_test", "x is \"ccc", "a long name");
}

static void the_sentence_lists_every_backend(void **state)
{
    char text[256], last[64];
    tess_text out = tess_text_in(text, sizeof text);
    size_t count = 0;
    const tess_backend *const *const table = tess_registry(&count);

    (void)state;
    tess_registry_write(&out);
    snprintf(last, sizeof last, " or %s", table[count - 1]->name);
    for (size_t i = 0; i < count; i++)
        assert_non_null(strstr(text, table[i]->name));
    assert_true(count == 1 || strstr(text, last));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_table_is_in_order_of_priority),
        cmocka_unit_test(names_are_words_that_can_be_typed),
        cmocka_unit_test(a_device_name_is_a_backend_and_the_rest),
        cmocka_unit_test(lists_are_cut_at_commas_and_trimmed),
        cmocka_unit_test(a_name_that_is_too_long_is_cut),
        cmocka_unit_test(a_list_is_refused_for_its_first_wrong_name),
        cmocka_unit_test(the_sentence_lists_every_backend),
    };
    const int failed = cmocka_run_group_tests(tests, NULL, NULL);

    return failed != 0;
}
