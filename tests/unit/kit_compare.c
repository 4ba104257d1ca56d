/* SPDX-License-Identifier: Apache-2.0
 * The comparison: passes what is right by construction, catches everything that was made wrong. */
#include "tests/kit/compare.h"

#include "tests/kit/generate.h"
#include "tests/kit/number.h"
#include "tests/kit/sabotage.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A case whose outputs are the oracle's, rounded. */
static struct subject {
    tess_case c;
    tess_oracle oracle;
    char text[8192];
} s;

static void end(void)
{
    tess_oracle_release(&s.oracle);
    tess_case_free(&s.c);
}

static bool begin_line(const tess_line *line)
{
    const tess_oracle_options options = {.wants_naive = true};
    tess_forward_args args;

    end();
    if (!tess_case_make(line, &s.c, NULL))
        return false;
    args = tess_case_host_forward_args(&s.c);
    assert_true(tess_oracle_forward(&s.c.desc, &args, &options, &s.oracle));
    tess_sabotage_write(&s.c, &s.oracle);
    return true;
}

static void begin(const char *text)
{
    tess_line line;

    assert_int_equal(tess_line_read(text, &line, NULL), TESS_OK);
    assert_true(begin_line(&line));
}

static tess_comparison compare(void)
{
    tess_text text = tess_text_in(s.text, sizeof s.text);

    return tess_compare_forward(&s.c, &s.oracle, true, &text);
}

/* The comparison complains, and its text holds a word. */
static void expect_wrong(const char *word)
{
    const tess_comparison result = compare();

    assert_false(result.is_good);
    assert_true(result.wrong > 0);
    if (!strstr(s.text, word)) {
        print_error("\"%s\" lacks \"%s\"\n", s.text, word);
        fail();
    }
}

static char *o_at(int64_t batch, int64_t seqlen, int64_t head, int64_t dim)
{
    return tess_case_element(&s.c.tensor[TESS_CASE_O], batch, seqlen, head, dim);
}

static void test_right_passes(void **state)
{
    int compared = 0;

    (void)state;
    for (uint64_t seed = 0; seed < 300; seed++) {
        tess_line line;
        tess_comparison result;

        tess_generate_line(seed, &line);
        if (tess_line_cost(&line) > 2e5 || !begin_line(&line))
            continue;
        result = compare();
        if (!result.is_good) {
            char text[4096];
            tess_text out = tess_text_in(text, sizeof text);

            tess_line_write(&line, &out);
            print_error("%s\n%s", text, s.text);
            fail();
        }
        assert_true(result.o.share <= 1 && result.lse.share <= 1 && result.relative_share <= 1);
        compared++;
    }
    end();
    assert_true(compared > 100);
}

/* Every mode is caught wherever it claims to show, and it shows in the line made for it. */
static void test_sabotage(void **state)
{
    static const struct {
        const char *mode, *line;
    } made_for[] = {
        {"drop-last-tile", "fwd b2 hq2 q20 k40 d16"},
        {"shift-mask", "fwd b2 hq2 q20 k40 d16 causal bf16"},
        {"forget-mask", "fwd b2 hq2 q20 k40 d16 window=3,3 f16"},
        {"forget-rescale", "fwd b2 hq2 q20 k70 d16 fill=ascending"},
        {"swap-heads", "fwd b2 hq3 hk1 q5 k40 d16"},
        {"interleave-heads", "fwd b2 hq4 hk2 q5 k40 d16"},
        {"wrong-scale", "fwd b2 hq2 q20 k40 d16 f16"},
        {"ignore-softcap", "fwd b2 hq2 q20 k40 d16 softcap=1"},
        {"ignore-alibi", "fwd b2 hq2 q20 k40 d16 alibi"},
        {"ignore-bias", "fwd b2 hq2 q20 k40 d16 bias"},
        {"ignore-sink", "fwd b2 hq2 q20 k40 d16 sink"},
        {"late-softcap", "fwd b2 hq2 q20 k40 d16 softcap=2 alibi"},
        {"alibi-from-start", "fwd b2 hq2 q20 k40 d16 alibi"},
        {"twice-sink", "fwd b2 hq2 q20 k40 d16 sink"},
        {"base2-lse", "fwd b2 hq2 q20 k40 d16 bf16"},
        {"empty-lse", "fwd b2 hq2 q20 k4 d16 causal"},
        {"unwritten-row", "fwd b2 hq2 q20 k40 d16"},
        {"unwritten-lse", "fwd b2 hq2 q20 k40 d16"},
        {"hide-nan", "fwd b2 hq2 q20 k40 d16 fill=nan"},
        {"spread-nan", "fwd b2 hq2 q20 k40 d16"},
        {"canary", "fwd b2 hq2 q20 k40 d16"},
        {"gap", "fwd hq2 lensq=3,4 lensk=5,6 gap=1 d16"},
        {"input", "fwd b2 hq2 q20 k40 d16"},
    };
    const int count = (int)(sizeof made_for / sizeof *made_for);

    (void)state;
    /* A mode without a line is not tested; those from here on falsify gradients alone, and
     * tests/conformance/sabotage.c has their lines. */
    assert_string_equal(tess_sabotage_name(count), "forget-delta");
    for (int i = 0; i < count; i++) {
        char name[32], why[512];
        tess_text text = tess_text_in(why, sizeof why);

        assert_string_equal(made_for[i].mode, tess_sabotage_name(i));
        begin(made_for[i].line);
        if (!tess_sabotage(&s.c, &s.oracle, made_for[i].mode, name, sizeof name, &text)) {
            print_error("%s on \"%s\": %s", made_for[i].mode, made_for[i].line, why);
            fail();
        }
        assert_string_equal(name, made_for[i].mode);
        if (compare().is_good) {
            print_error("%s on \"%s\" was not caught\n", name, made_for[i].line);
            fail();
        }
    }
    end();
}

/* Random lines: a mode that says it shows must be caught; one that says it does not changes
 * nothing. */
static void test_sabotage_anywhere(void **state)
{
    int committed = 0, mistrusted = 0;

    (void)state;
    for (uint64_t seed = 1000; seed < 1400; seed++) {
        const char *mode = tess_sabotage_name((int)(seed % 23));
        char name[32], why[512];
        tess_text text = tess_text_in(why, sizeof why);
        tess_line line;

        tess_generate_line(seed, &line);
        if (tess_line_cost(&line) > 3e5 || !begin_line(&line))
            continue;
        if (tess_sabotage(&s.c, &s.oracle, mode, name, sizeof name, &text)) {
            committed++;
            if (compare().is_good) {
                char written[4096];
                tess_text out = tess_text_in(written, sizeof written);

                tess_line_write(&line, &out);
                print_error("%s on \"%s\" was not caught\n", name, written);
                fail();
            }
        } else {
            mistrusted++;
            assert_true(compare().is_good);
            assert_true(text.length > 0);
        }
    }
    end();
    assert_true(committed > 50 && mistrusted > 20);
}

static void test_unknown_sabotage(void **state)
{
    char name[32], why[2048];
    tess_text text = tess_text_in(why, sizeof why);

    (void)state;
    begin("fwd b1 q3 k3 d4");
    assert_false(tess_sabotage(&s.c, &s.oracle, "shift-maks", name, sizeof name, &text));
    assert_non_null(strstr(why, "shift-mask"));
    text = tess_text_in(why, sizeof why);
    assert_false(tess_sabotage(&s.c, &s.oracle, "ignore-sink", name, sizeof name, &text));
    assert_true(tess_sabotage(&s.c, &s.oracle, "any", name, sizeof name, &text));
    assert_string_not_equal(name, "any");
    end();
}

/* ---- One element at a time ------------------------------------------------------------------- */

/* Just inside and just outside the budget of a plain f32 element. */
static void test_budget(void **state)
{
    const tess_oracle_row *row;
    double expected, allowed;

    (void)state;
    begin("fwd b1 hq2 q4 k9 d8");
    row = &s.oracle.row[2 * 2 + 1];
    expected = s.oracle.o[(2 * 2 + 1) * 8 + 3];
    allowed = 1e-5 * row->value_scale + 1e-5 * fabs(expected) +
              0x1p-23 * row->magnitude * row->value_scale;
    tess_number_store(TESS_F32, o_at(0, 2, 1, 3), expected + 0.9 * allowed);
    s.oracle.naive_error = 1;
    assert_true(compare().is_good);
    tess_number_store(TESS_F32, o_at(0, 2, 1, 3), expected + 1.1 * allowed);
    expect_wrong("o[sequence 0, row 2, head 1, dim 3]");
    assert_non_null(strstr(s.text, "row 1, same dim"));
    assert_non_null(strstr(s.text, "dims 1...5"));
    assert_true(fabs(compare().o.share - 1.1) < 0.01);
    assert_true(compare().o.head == 1 && compare().o.dim == 3 && compare().o.row == 2);
    end();
}

/* Within every element's budget, but worse than anyone would do without care. */
static void test_relative(void **state)
{
    (void)state;
    begin("fwd b1 q4 k9 d8");
    for (int64_t n = 0; n < 32; n++)
        tess_number_store(TESS_F32, o_at(0, n / 8, 0, n % 8),
                          s.oracle.o[n] + 9e-6 * s.oracle.row[n / 8].value_scale);
    s.oracle.naive_error = 1e-5;
    assert_true(compare().is_good);
    assert_in_range((int)(100 * compare().relative_share), 40, 99);
    s.oracle.naive_error = 1e-6;
    expect_wrong("naive attention in f32");
    end();
}

static void test_special_values(void **state)
{
    float *o;

    (void)state;
    begin("fwd b1 q6 k3 d4 causal");
    o = (float *)(void *)o_at(0, 0, 0, 0);
    *o = -0.0f; /* an empty row is +0 */
    expect_wrong("row 0");
    *o = 0x1p-149f;
    expect_wrong("row 0");
    *o = 0;
    assert_true(compare().is_good);
    tess_number_store(TESS_F32, tess_case_element(&s.c.tensor[TESS_CASE_LSE], 0, 1, 0, 0), -1e30);
    expect_wrong("lse[sequence 0, row 1");
    begin("fwd b1 q3 k3 d4");
    *(float *)(void *)o_at(0, 1, 0, 2) = NAN;
    expect_wrong("nan");
    begin("fwd b1 q3 k3 d4");
    tess_number_set_bits(TESS_F32, o_at(0, 1, 0, 2), tess_number_prefill(TESS_F32));
    expect_wrong("never written");
    /* An infinity must be the same one. */
    for (int seed = 0; seed < 30; seed++) {
        char text[64];
        bool has_infinity = false;

        snprintf(text, sizeof text, "fwd b1 q3 k3 d4 fill=inf seed=%d", seed);
        begin(text);
        assert_true(compare().is_good);
        for (int64_t n = 0; n < 12 && !has_infinity; n++) {
            has_infinity = isinf(s.oracle.o[n]);
            if (has_infinity)
                tess_number_store(TESS_F32, o_at(0, n / 4, 0, n % 4), -s.oracle.o[n]);
        }
        if (has_infinity)
            expect_wrong("inf");
    }
    end();
}

/* Exactly known results leave no room: one value for one column, the mean of integers. */
static void test_exact(void **state)
{
    static const char *const lines[] = {"fwd b1 q2 k1 d4 f16", "fwd b1 q2 k33 d4 f16 fill=dominate",
                                        "fwd b1 q2 k64 d4 f16 fill=equal splits=1"};

    (void)state;
    for (size_t i = 0; i < sizeof lines / sizeof *lines; i++) {
        uint32_t bits;

        begin(lines[i]);
        assert_true(compare().is_good);
        bits = tess_number_bits(TESS_F16, o_at(0, 1, 0, 2));
        tess_number_set_bits(TESS_F16, o_at(0, 1, 0, 2), bits ^ 1);
        expect_wrong("o[sequence 0, row 1, head 0, dim 2]");
    }
    begin("fwd b1 q2 k63 d4 f16 fill=equal splits=1"); /* no power of two: rounding is allowed */
    tess_number_set_bits(TESS_F16, o_at(0, 1, 0, 2),
                         tess_number_bits(TESS_F16, o_at(0, 1, 0, 2)) ^ 1);
    assert_true(compare().is_good);
    end();
}

/* ---- Surroundings ---------------------------------------------------------------------------- */

static void test_surroundings(void **state)
{
    tess_text text;

    (void)state;
    begin("fwd hq2 lensq=3,4 lensk=5,6 gap=1 d4"); /* rows 3 and 8 of 9 belong to nobody */
    tess_number_store(TESS_F32, o_at(0, 3, 1, 1), 0);
    expect_wrong("belongs to no row");
    begin("fwd b2 q5 k5 usedq=5,2 d4");
    tess_number_store(TESS_F32, tess_case_element(&s.c.tensor[TESS_CASE_LSE], 1, 3, 0, 0), 1);
    expect_wrong("lse: element");
    begin("fwd b1 q5 k5 d4");
    s.c.tensor[TESS_CASE_LSE].buffer.data[-3] ^= 1;
    expect_wrong("memory in front of lse");
    begin("fwd b1 q5 k5 d4 sink");
    s.c.tensor[TESS_CASE_SINK].buffer.data[0] ^= 1;
    expect_wrong("sink is an input");
    /* Without LSE asked for, its memory must be as it was. */
    begin("fwd b1 q5 k5 d4");
    text = tess_text_in(s.text, sizeof s.text);
    assert_false(tess_compare_forward(&s.c, &s.oracle, false, &text).is_good);
    tess_case_prefill(&s.c);
    tess_sabotage_write(&s.c, &s.oracle);
    for (int64_t i = 0; i < 5; i++)
        tess_number_set_bits(TESS_F32, tess_case_element(&s.c.tensor[TESS_CASE_LSE], 0, i, 0, 0),
                             tess_number_prefill(TESS_F32));
    assert_true(tess_compare_forward(&s.c, &s.oracle, false, &text).is_good);
    end();
}

static void test_bits(void **state)
{
    const tess_tensor *o = &s.c.tensor[TESS_CASE_O];
    char *before, buffer[512];
    tess_text text = tess_text_in(buffer, sizeof buffer);

    (void)state;
    begin("fwd b1 q5 k5 d4 bf16");
    before = malloc(o->buffer.size);
    assert_non_null(before);
    memcpy(before, o->buffer.data, o->buffer.size);
    assert_true(tess_compare_bits(&s.c, TESS_CASE_O, before, "before", &text));
    assert_int_equal(text.length, 0);
    o->buffer.data[13] ^= 1;
    assert_false(tess_compare_bits(&s.c, TESS_CASE_O, before, "before", &text));
    assert_non_null(strstr(buffer, "element 6"));
    free(before);
    end();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_right_passes),
        cmocka_unit_test(test_sabotage),
        cmocka_unit_test(test_sabotage_anywhere),
        cmocka_unit_test(test_unknown_sabotage),
        cmocka_unit_test(test_budget),
        cmocka_unit_test(test_relative),
        cmocka_unit_test(test_special_values),
        cmocka_unit_test(test_exact),
        cmocka_unit_test(test_surroundings),
        cmocka_unit_test(test_bits),
    };
    const int failed = cmocka_run_group_tests_name("kit_compare", tests, NULL, NULL);

    return failed != 0;
}
