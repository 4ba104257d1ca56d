/* SPDX-License-Identifier: Apache-2.0
 * Bounded texts count what they could not hold; suggestions are near; patterns match whole texts.
 */
#include "core/base/text.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

static void pieces_follow_each_other(void **state)
{
    char data[32] = "garbage";
    tess_text text = tess_text_in(data, sizeof data);

    (void)state;
    assert_string_equal(data, "");
    assert_int_equal(text.length, 0);
    tess_text_add(&text, "b%d", 2);
    tess_text_add(&text, "%s", "");
    tess_text_add(&text, " %s", "causal");
    assert_string_equal(data, "b2 causal");
    assert_int_equal(text.length, 9);
}

/* Whatever the size, the buffer holds the beginning and the length is that of the whole. */
static void a_text_cut_anywhere_is_counted_whole(void **state)
{
    static const char whole[] = "one, two, three";

    (void)state;
    for (size_t size = 0; size <= sizeof whole + 1; size++) {
        char data[sizeof whole + 2];

        memset(data, '#', sizeof data);
        tess_text text = tess_text_in(data, size);

        tess_text_add(&text, "one");
        tess_text_add(&text, ", %s", "two");
        tess_text_add(&text, ", three");
        assert_int_equal(text.length, sizeof whole - 1);
        if (size > 0) {
            const size_t kept = size < sizeof whole ? size - 1 : sizeof whole - 1;

            assert_int_equal(strlen(data), kept);
            assert_memory_equal(data, whole, kept);
        }
        for (size_t i = size; i < sizeof data; i++)
            assert_int_equal(data[i], '#');
    }
}

static void measuring_needs_no_buffer(void **state)
{
    tess_text text = tess_text_in(NULL, 0);

    (void)state;
    tess_text_add(&text, "%s", "12345");
    tess_text_add(&text, "%d", 678);
    assert_int_equal(text.length, 8);
}

static const char *const words[] = {"cpu", "cuda", "hip", "opencl", "causal"};

static const char *nearest(const char *word)
{
    return tess_text_nearest(word, words, sizeof words / sizeof words[0]);
}

static void a_mistyping_finds_its_word(void **state)
{
    (void)state;
    assert_string_equal(nearest("cpu"), "cpu");
    assert_string_equal(nearest("cpi"), "cpu");    /* replaced */
    assert_string_equal(nearest("cdua"), "cuda");  /* swapped */
    assert_string_equal(nearest("hp"), "hip");     /* left out */
    assert_string_equal(nearest("cudaa"), "cuda"); /* doubled */
    assert_string_equal(nearest("openlc"), "opencl");
    assert_string_equal(nearest("open_cl"), "opencl");
    assert_string_equal(nearest("CAUSAL"), "causal"); /* case is no distance */
    assert_string_equal(nearest("casaul"), "causal");
}

static void a_stranger_finds_nothing(void **state)
{
    char longest[100];

    (void)state;
    assert_null(nearest(""));
    assert_null(nearest("c"));
    assert_null(nearest("vulkan"));
    assert_null(nearest("metal"));
    assert_null(nearest("gpu0"));
    assert_null(tess_text_nearest("cpu", words, 0));
    memset(longest, 'x', sizeof longest);
    longest[sizeof longest - 1] = '\0';
    assert_null(nearest(longest));
    assert_null(tess_text_nearest("xx", (const char *const[]){longest}, 1));
    longest[63] = '\0'; /* as long as words are compared */
    assert_null(nearest(longest));
    assert_string_equal(tess_text_nearest(longest, (const char *const[]){longest}, 1), longest);
}

static void of_equals_the_first_is_taken(void **state)
{
    static const char *const equals[] = {"bat", "cat", "rat"};

    (void)state;
    assert_string_equal(tess_text_nearest("hat", equals, 3), "bat");
    assert_string_equal(tess_text_nearest("rat", equals, 3), "rat");
}

static void patterns_match_whole_texts(void **state)
{
    static const struct {
        const char *pattern;
        const char *text;
        bool matches;
    } cases[] = {
        {"", "", true},
        {"", "a", false},
        {"a", "", false},
        {"abc", "abc", true},
        {"abc", "abcd", false},
        {"abcd", "abc", false},
        {"*", "", true},
        {"*", "anything", true},
        {"**", "x", true},
        {"?", "", false},
        {"?", "x", true},
        {"?", "xy", false},
        {"*?", "", false},
        {"fwd_*", "fwd_simt_f32", true},
        {"fwd_*", "bwd_simt_f32", false},
        {"*_f32", "fwd_simt_f32", true},
        {"*_f32", "fwd_f32_simt", false},
        {"*f32*", "fwd_f32_simt", true},
        {"fwd_*_d?28_*", "fwd_wgmma_bf16_d128_m128n128", true},
        {"fwd_*_d?28_*", "fwd_wgmma_bf16_d256_m128n128", false},
        {"a*b*c", "aXbXbXc", true},
        {"a*b*c", "aXcXb", false},
        {"*aab", "aaaab", true}, /* the run must grow again after a false start */
        {"*a*ab", "aaaaa", false},
        {"FWD", "fwd", false},
        {"a*****b", "ab", true},
    };

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        if (tess_text_glob(cases[i].pattern, cases[i].text) != cases[i].matches)
            fail_msg("\"%s\" and \"%s\"", cases[i].pattern, cases[i].text);
}

/* Naive backtracking would take longer than the universe has left. */
static void many_stars_stay_cheap(void **state)
{
    char text[4096];
    char pattern[202];

    (void)state;
    memset(text, 'a', sizeof text - 1);
    text[sizeof text - 1] = '\0';
    for (size_t i = 0; i < 200; i += 2) {
        pattern[i] = '*';
        pattern[i + 1] = 'a';
    }
    pattern[200] = 'b';
    pattern[201] = '\0';
    assert_false(tess_text_glob(pattern, text));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pieces_follow_each_other),
        cmocka_unit_test(a_text_cut_anywhere_is_counted_whole),
        cmocka_unit_test(measuring_needs_no_buffer),
        cmocka_unit_test(a_mistyping_finds_its_word),
        cmocka_unit_test(a_stranger_finds_nothing),
        cmocka_unit_test(of_equals_the_first_is_taken),
        cmocka_unit_test(patterns_match_whole_texts),
        cmocka_unit_test(many_stars_stay_cheap),
    };
    const int failed = cmocka_run_group_tests(tests, NULL, NULL);

    return failed != 0;
}
