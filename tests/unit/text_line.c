/* SPDX-License-Identifier: Apache-2.0
 * Problem lines: what is read, what is refused and how, and that writing and reading are inverse.
 */
#include "core/schedule/problem_text.h"

#include "tests/kit/generate.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <locale.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SIZE = 8192 };

static tess_line read_line(const char *text)
{
    char buffer[SIZE];
    tess_text why = tess_text_in(buffer, sizeof buffer);
    tess_line line;

    if (tess_line_read(text, &line, &why) != TESS_OK) {
        print_error("\"%s\": %s\n", text, buffer);
        fail();
    }
    return line;
}

static void expect_text(const tess_line *line, const char *expected)
{
    char buffer[SIZE];
    tess_text out = tess_text_in(buffer, sizeof buffer);

    tess_line_write(line, &out);
    assert_int_equal(out.length, strlen(buffer));
    assert_string_equal(buffer, expected);
}

static void assert_lengths_equal(const tess_lengths *a, const tess_lengths *b)
{
    assert_int_equal(a->runs, b->runs);
    for (int32_t run = 0; run < a->runs; run++) {
        assert_int_equal(a->value[run], b->value[run]);
        assert_int_equal(a->count[run], b->count[run]);
    }
}

/* Member by member: padding may differ. */
static void assert_lines_equal(const tess_line *a, const tess_line *b)
{
    assert_int_equal(a->backward, b->backward);
    assert_int_equal(a->batch, b->batch);
    assert_int_equal(a->heads_q, b->heads_q);
    assert_int_equal(a->heads_kv, b->heads_kv);
    assert_int_equal(a->seqlen_q, b->seqlen_q);
    assert_int_equal(a->seqlen_k, b->seqlen_k);
    assert_int_equal(a->head_dim, b->head_dim);
    assert_int_equal(a->head_dim_v, b->head_dim_v);
    assert_int_equal(a->dtype, b->dtype);
    assert_int_equal(a->o_dtype, b->o_dtype);
    assert_int_equal(a->mask, b->mask);
    assert_int_equal(a->window_left, b->window_left);
    assert_int_equal(a->window_right, b->window_right);
    assert_int_equal(a->scale_is_set, b->scale_is_set);
    assert_memory_equal(&a->softmax_scale, &b->softmax_scale, sizeof(float));
    assert_memory_equal(&a->softcap, &b->softcap, sizeof(float));
    assert_int_equal(a->bias, b->bias);
    assert_int_equal(a->bias_dtype, b->bias_dtype);
    assert_int_equal(a->bias_broadcast, b->bias_broadcast);
    assert_int_equal(a->flags, b->flags);
    assert_int_equal(a->splits, b->splits);
    assert_lengths_equal(&a->lens_q, &b->lens_q);
    assert_lengths_equal(&a->lens_k, &b->lens_k);
    assert_lengths_equal(&a->used_q, &b->used_q);
    assert_lengths_equal(&a->used_k, &b->used_k);
    assert_int_equal(a->page_size, b->page_size);
    assert_int_equal(a->index_dtype, b->index_dtype);
    assert_int_equal(a->gap, b->gap);
    assert_int_equal(a->layout, b->layout);
    assert_string_equal(a->fill, b->fill);
    assert_true(a->seed == b->seed);
}

static void test_default(void **state)
{
    tess_line line;
    const tess_line read = read_line("fwd");

    (void)state;
    tess_line_default(&line);
    assert_lines_equal(&line, &read);
    expect_text(&line, "fwd b1 hq1 q1 k1 d64 f32");
}

static void test_every_word(void **state)
{
    static const char text[] =
        "bwd hq8 hk2 q9 k12 d40 dv72 f16 of=f32 causal topleft window=-1,2147483647 scale=-0.125 "
        "softcap=30 alibi sink bias=bf16 biasbcast=bij splits=65536 lensq=3,0x2,4 lensk=7x4 "
        "usedq=3,0x2,1 usedk=5x3,0 index=i64 deterministic invariant tf32 spread gap=2 "
        "layout=strided fill=huge seed=18446744073709551615";
    const tess_line line = read_line(text);

    (void)state;
    assert_true(line.backward);
    assert_int_equal(line.batch, 4);
    assert_int_equal(line.heads_q, 8);
    assert_int_equal(line.heads_kv, 2);
    assert_int_equal(line.seqlen_q, 9);
    assert_int_equal(line.seqlen_k, 12);
    assert_int_equal(line.head_dim, 40);
    assert_int_equal(line.head_dim_v, 72);
    assert_int_equal(line.dtype, TESS_F16);
    assert_int_equal(line.o_dtype, TESS_F32);
    assert_int_equal(line.mask, TESS_MASK_CAUSAL | TESS_MASK_WINDOW | TESS_MASK_TOP_LEFT);
    assert_int_equal(line.window_left, -1);
    assert_int_equal(line.window_right, 2147483647);
    assert_true(line.scale_is_set && line.softmax_scale == -0.125f && line.softcap == 30);
    assert_int_equal(line.bias, TESS_BIAS_TENSOR | TESS_BIAS_ALIBI | TESS_BIAS_SINK);
    assert_int_equal(line.bias_dtype, TESS_BF16);
    assert_int_equal(line.bias_broadcast, 1 | 4 | 8);
    assert_int_equal(line.flags, TESS_DETERMINISTIC | TESS_BATCH_INVARIANT | TESS_ALLOW_TF32 |
                                     TESS_ALLOW_NONFINITE_SPREAD);
    assert_int_equal(line.splits, 65536);
    assert_int_equal(line.index_dtype, TESS_I64);
    assert_int_equal(line.gap, 2);
    assert_int_equal(line.layout, TESS_LAYOUT_STRIDED);
    assert_string_equal(line.fill, "huge");
    assert_true(line.seed == UINT64_MAX);
    expect_text(&line, text);
}

/* Words in any order, blanks of any kind, defaults from other words. */
static void test_defaults_from_words(void **state)
{
    tess_line line = read_line("  fwd\tseed=3 d96 \n q7 hq6 causal b2\r\n");

    (void)state;
    expect_text(&line, "fwd b2 hq6 q7 k7 d96 f32 causal seed=3");
    line = read_line("fwd lensk=5,9 q2");
    expect_text(&line, "fwd hq1 q2 d64 f32 lensk=5,9");
    assert_int_equal(line.batch, 2);
    assert_int_equal(line.seqlen_k, 9);
    line = read_line("fwd lensq=5,9");
    assert_int_equal(line.seqlen_q, 9);
    assert_int_equal(line.seqlen_k, 9);
    line = read_line("fwd b3 usedk=1,2,3 k5 page=2 e4m3 of=bf16");
    expect_text(&line, "fwd b3 hq1 q1 k5 d64 e4m3 of=bf16 usedk=1,2,3 page=2");
    line = read_line("fwd hq0 hk0 b0 q0 k0 scale=0 bias layout=bhsd");
    expect_text(&line, "fwd b0 hq0 q0 k0 d64 f32 scale=0 bias layout=bhsd");
    assert_true(line.scale_is_set);
}

static void test_lengths(void **state)
{
    tess_lengths lengths = {.runs = 0};
    const tess_line line = read_line("fwd lensq=16x80000");

    (void)state;
    assert_int_equal(line.batch, 80000);
    assert_int_equal(line.lens_q.runs, 1);
    assert_int_equal(tess_lengths_total(&line.lens_q), 16 * 80000);
    assert_true(tess_lengths_add(&lengths, 3, 2));
    assert_true(tess_lengths_add(&lengths, 3, 1));
    assert_true(tess_lengths_add(&lengths, 9, 0));
    assert_true(tess_lengths_add(&lengths, 0, 5));
    assert_int_equal(lengths.runs, 2);
    assert_int_equal(tess_lengths_count(&lengths), 8);
    assert_int_equal(tess_lengths_at(&lengths, 2), 3);
    assert_int_equal(tess_lengths_at(&lengths, 3), 0);
    assert_int_equal(tess_lengths_max(&lengths), 3);
    assert_int_equal(tess_lengths_total(&lengths), 9);
    for (int i = 2; i < TESS_LINE_RUNS; i++)
        assert_true(tess_lengths_add(&lengths, i, 1));
    assert_false(tess_lengths_add(&lengths, 1000, 1));
    assert_true(tess_lengths_add(&lengths, TESS_LINE_RUNS - 1, 1)); /* the last run again */
}

/* A line that is refused; the message holds each of the pieces, up to the first NULL. */
static void expect_refused(const char *text, const char *const pieces[4])
{
    char buffer[SIZE];
    tess_text why = tess_text_in(buffer, sizeof buffer);
    tess_line line, before;

    tess_line_default(&line);
    line.seed = 77;
    before = line;
    assert_int_equal(tess_line_read(text, &line, &why), TESS_INVALID);
    assert_int_equal(tess_line_read(text, &line, NULL), TESS_INVALID);
    assert_lines_equal(&line, &before);
    for (int i = 0; i < 4 && pieces[i]; i++) {
        if (!strstr(buffer, pieces[i])) {
            print_error("\"%s\" gives \"%s\", which lacks \"%s\"\n", text, buffer, pieces[i]);
            fail();
        }
    }
    assert_null(strchr(buffer, '\n'));
}

static void test_refusals(void **state)
{
    static const struct {
        const char *text;
        const char *pieces[4];
    } cases[] = {
        {"", {"empty", "fwd or bwd"}},
        {"   \n", {"empty"}},
        {"b2 fwd", {"\"b2\"", "first word", "fwd or bwd"}},
        {"fwd bwd", {"\"bwd\"", "only the first word"}},
        {"fwd casual", {"\"casual\"", "did you mean \"causal\"?"}},
        {"fwd widnow=1,2", {"\"widnow=1,2\"", "did you mean \"window\"?"}},
        {"fwd qqqqqqqq", {"\"qqqqqqqq\"", "words are", "softcap="}},
        {"fwd b", {"\"b\"", "b takes", "0 to 2147483647"}},
        {"fwd b-1", {"\"b-1\"", "0 to 2147483647"}},
        {"fwd q2147483648", {"\"q2147483648\"", "0 to 2147483647"}},
        {"fwd q99999999999999999999999", {"0 to 2147483647"}},
        {"fwd d0", {"\"d0\"", "1 to 2147483647"}},
        {"fwd dv0", {"\"dv0\"", "1 to 2147483647"}},
        {"fwd hq3x", {"\"hq3x\""}},
        {"fwd f64", {"\"f64\"", "f32"}},
        {"fwd f32 bf16", {"\"bf16\"", "twice", "f32"}},
        {"fwd b2 b2", {"\"b2\"", "twice"}},
        {"fwd of=e4m3", {"\"of=e4m3\"", "f32, f16 or bf16"}},
        {"fwd of", {"\"of\"", "f32, f16 or bf16"}},
        {"fwd causal=1", {"\"causal=1\"", "takes no value"}},
        {"fwd f32=", {"\"f32=\"", "takes no value"}},
        {"fwd window=3", {"\"window=3\"", "two whole numbers"}},
        {"fwd window=3,", {"two whole numbers"}},
        {"fwd window=,3", {"two whole numbers"}},
        {"fwd window=1,2,3", {"two whole numbers"}},
        {"fwd scale=", {"finite number"}},
        {"fwd scale=nan", {"\"scale=nan\"", "finite number"}},
        {"fwd scale=inf", {"finite number"}},
        {"fwd scale=1e39", {"finite number"}},
        {"fwd scale=0x1p3", {"finite number"}},
        {"fwd scale=1,5", {"finite number"}},
        {"fwd scale=1.2.3", {"finite number"}},
        {"fwd softcap=-1", {"\"softcap=-1\"", "not negative"}},
        {"fwd bias=e4m3", {"f32, f16 or bf16"}},
        {"fwd bias biasbcast=bb", {"each once"}},
        {"fwd bias biasbcast=k", {"b, h, i, j"}},
        {"fwd bias biasbcast=", {"b, h, i, j"}},
        {"fwd biasbcast=b", {"biasbcast", "needs bias"}},
        {"fwd splits", {"\"splits\"", "0 to 65536", "splits=16"}},
        {"fwd splits=65537", {"0 to 65536"}},
        {"fwd lensq=", {"lensq takes", "3,4,0x5"}},
        {"fwd lensq=3,,4", {"lensq takes"}},
        {"fwd lensq=3x0", {"lensq takes"}},
        {"fwd lensq=3x", {"lensq takes"}},
        {"fwd lensq=-3", {"lensq takes"}},
        {"fwd lensq=1x2147483647,2", {"lensq takes"}},
        {"fwd b3 lensq=3,4", {"lensq lists 2", "there are 3"}},
        {"fwd lensq=3,4 lensk=1", {"lensk lists 1", "there are 2"}},
        {"fwd q3 lensq=3,4", {"lensq has a length of 4", "q3"}},
        {"fwd b2 q5 usedq=3", {"usedq lists 1", "there are 2"}},
        {"fwd b2 q5 usedq=3,6", {"usedq", "sequence 1 uses 6", "length is 5"}},
        {"fwd lensk=2,4,4 usedk=2,4,5", {"sequence 2 uses 5", "length is 4"}},
        {"fwd page=0", {"1 to 2147483647"}},
        {"fwd page=4 lensk=3", {"page= and lensk=", "usedk="}},
        {"fwd index=i16", {"i32 or i64"}},
        {"fwd gap=1", {"gap= needs packed sequences"}},
        {"fwd layout=bsh", {"bshd, bhsd, strided or sparse"}},
        {"fwd fill=", {"23 small letters"}},
        {"fwd fill=abcdefghijklmnopqrstuvwx", {"23 small letters"}},
        {"fwd fill=A", {"small letters"}},
        {"fwd seed=-1", {"18446744073709551615"}},
        {"fwd seed=18446744073709551616", {"18446744073709551615"}},
    };

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        expect_refused(cases[i].text, cases[i].pieces);
}

/* A wrong word of any length appears in the message, cut but whole enough to be found. */
static void test_long_word(void **state)
{
    char text[4096] = "fwd ", buffer[256];
    tess_text why = tess_text_in(buffer, sizeof buffer);
    tess_line line;

    (void)state;
    memset(text + 4, 'z', 4000);
    assert_int_equal(tess_line_read(text, &line, &why), TESS_INVALID);
    assert_non_null(strstr(buffer, "zzzz...\""));
    assert_true(why.length > sizeof buffer); /* and says that it was cut */
}

static void check_real(float value)
{
    char buffer[SIZE];
    tess_text out = tess_text_in(buffer, sizeof buffer);
    tess_line line, back;

    tess_line_default(&line);
    line.scale_is_set = true;
    line.softmax_scale = value;
    tess_line_write(&line, &out);
    back = read_line(buffer);
    assert_memory_equal(&back.softmax_scale, &value, sizeof value);
}

/* Floats of every exponent come back to the bit, in a locale with a decimal comma too. */
static void test_reals(void **state)
{
    static const char *const locales[] = {"C", "de_DE.UTF-8", "fr_FR.UTF-8"};
    uint32_t bits = 1;

    (void)state;
    for (size_t i = 0; i < sizeof locales / sizeof *locales; i++) {
        if (!setlocale(LC_NUMERIC, locales[i]))
            continue;
        for (int n = 0; n < 20000; n++) {
            float value;

            bits = bits * 1664525 + 1013904223;
            memcpy(&value, &bits, sizeof value);
            if (isfinite(value))
                check_real(value);
        }
        check_real(0x1.fffffep127f);
        check_real(0x1p-149f);
        check_real(-0.0f);
    }
    setlocale(LC_NUMERIC, "C");
}

/* The line of each drawn problem reads back as the problem, and writes as the same line. */
static void test_round_trip(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < 20000; seed++) {
        char first[SIZE], second[SIZE];
        tess_text a = tess_text_in(first, sizeof first), b = tess_text_in(second, sizeof second);
        tess_line line, back;

        tess_generate_line(seed, &line);
        line.backward = seed % 2;
        tess_line_write(&line, &a);
        back = read_line(first);
        assert_lines_equal(&line, &back);
        tess_line_write(&back, &b);
        assert_string_equal(first, second);
    }
}

/* Damaged lines are read or refused, never more than that. */
static void test_damaged(void **state)
{
    uint32_t random = 1;

    (void)state;
    for (uint64_t seed = 0; seed < 3000; seed++) {
        char text[SIZE];
        tess_text out = tess_text_in(text, sizeof text);
        tess_line line;

        tess_generate_line(seed, &line);
        tess_line_write(&line, &out);
        for (int n = 0; n < 3; n++) {
            random = random * 1664525 + 1013904223;
            text[(random >> 8) % out.length] = (char)(32 + random % 95);
        }
        if (tess_line_read(text, &line, NULL) == TESS_OK) {
            char again[SIZE];

            out = tess_text_in(again, sizeof again);
            tess_line_write(&line, &out);
            assert_int_equal(tess_line_read(again, &line, NULL), TESS_OK);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_default),
        cmocka_unit_test(test_every_word),
        cmocka_unit_test(test_defaults_from_words),
        cmocka_unit_test(test_lengths),
        cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_long_word),
        cmocka_unit_test(test_reals),
        cmocka_unit_test(test_round_trip),
        cmocka_unit_test(test_damaged),
    };
    const int failed = cmocka_run_group_tests_name("text_line", tests, NULL, NULL);

    return failed != 0;
}
