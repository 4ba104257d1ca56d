/* SPDX-License-Identifier: Apache-2.0
 * Cases: guards that guard, layouts that are legal, data that is the same wherever it lies. */
#include "tests/kit/case.h"

#include "tests/kit/draw.h"
#include "tests/kit/fill.h"
#include "tests/kit/generate.h"
#include "tests/kit/number.h"
#include "tests/kit/oracle.h"
#include "tests/kit/shape.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <inttypes.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

/* ---- Guards ---------------------------------------------------------------------------------- */

/* Whether reading one byte ends a process. */
static bool faults(const volatile char *address)
{
    const pid_t child = fork();
    int status = 0;

    assert_true(child >= 0);
    if (child == 0) {
        /* The test framework and sanitizers have handlers of their own, which would report it. */
        signal(SIGSEGV, SIG_DFL);
        signal(SIGBUS, SIG_DFL);
        _exit(*address == 1 ? 2 : 0);
    }
    waitpid(child, &status, 0);
    return WIFSIGNALED(status);
}

static void test_guards(void **state)
{
    static const size_t sizes[] = {0, 1, 2, 63, 4096, 4097, 100000};

    (void)state;
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        tess_buffer buffer;
        uint64_t hash;

        assert_true(tess_buffer_make(sizes[i], &buffer));
        memset(buffer.data, 1, sizes[i]);
        assert_true(faults(buffer.data + sizes[i]));
        assert_false(sizes[i] > 0 && faults(buffer.data + sizes[i] - 1));
        assert_true(buffer.data - buffer.map >= TESS_CANARY);
        assert_true(tess_buffer_is_intact(&buffer));
        hash = tess_buffer_hash(&buffer);
        if (sizes[i] > 0) {
            buffer.data[sizes[i] - 1] ^= 4;
            assert_true(tess_buffer_hash(&buffer) != hash);
        }
        buffer.data[-1] ^= 1;
        assert_false(tess_buffer_is_intact(&buffer));
        tess_buffer_free(&buffer);
        tess_buffer_free(&buffer);
    }
}

/* ---- Layouts --------------------------------------------------------------------------------- */

static int64_t element_of(const tess_drawn *drawn, int64_t b, int64_t s, int64_t h, int64_t d)
{
    const tess_layout *l = &drawn->layout;

    return drawn->origin + b * l->batch_stride + s * l->seqlen_stride + h * l->head_stride +
           d * l->dim_stride;
}

/* Every element lies in the memory that was asked for; those of outputs all in different places. */
static void check_drawn(const tess_drawn *drawn, bool is_output)
{
    const tess_layout *l = &drawn->layout;
    unsigned char *seen = calloc((size_t)drawn->elements + 1, 1);
    bool last = drawn->elements == 0;

    assert_non_null(seen);
    for (int64_t b = 0; b < l->batch; b++)
        for (int64_t s = 0; s < l->seqlen; s++)
            for (int64_t h = 0; h < l->heads; h++)
                for (int64_t d = 0; d < l->head_dim; d++) {
                    const int64_t element = element_of(drawn, b, s, h, d);

                    assert_true(element >= 0 && element < drawn->elements);
                    assert_false(is_output && seen[element]);
                    seen[element] = 1;
                    last = last || element == drawn->elements - 1;
                }
    assert_true(last); /* or the guard page would be too far away */
    free(seen);
}

static void test_draw(void **state)
{
    int zero = 0, negative = 0, far_dim = 0;

    (void)state;
    for (uint64_t seed = 0; seed < 4000; seed++) {
        tess_random random = tess_random_start(seed, 1);
        const tess_layout extents = {.batch = tess_random_below(&random, 4),
                                     .seqlen = tess_random_below(&random, 5),
                                     .heads = tess_random_below(&random, 4),
                                     .head_dim = 1 + tess_random_below(&random, 6),
                                     .dtype = TESS_F16};
        const bool is_output = tess_random_once_in(&random, 2);
        const int kind = (int)tess_random_below(&random, 3);
        const tess_drawn drawn = tess_draw_layout(kind, &random, extents, is_output);

        check_drawn(&drawn, is_output);
        zero += drawn.layout.seqlen_stride == 0;
        negative += drawn.layout.head_stride < 0;
        far_dim += drawn.layout.dim_stride > 1;
    }
    assert_true(zero > 50 && negative > 50 && far_dim > 50);
}

static void test_draw_sparse(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < 200; seed++) {
        tess_random random = tess_random_start(seed, 2);
        const tess_layout extents = {.batch = 1 + tess_random_below(&random, 3),
                                     .seqlen = 1 + tess_random_below(&random, 9),
                                     .heads = 1 + tess_random_below(&random, 3),
                                     .head_dim = 8,
                                     .dtype = TESS_F32};
        const tess_drawn drawn = tess_draw_layout(TESS_LAYOUT_SPARSE, &random, extents, true);
        const tess_layout *l = &drawn.layout;

        if (l->batch * l->seqlen * l->heads > 1)
            assert_true(drawn.elements > INT64_C(1) << 31);
        assert_true(element_of(&drawn, l->batch - 1, l->seqlen - 1, l->heads - 1, 7) ==
                    drawn.elements - 1);
    }
}

/* ---- Data ------------------------------------------------------------------------------------ */

static void make(const char *text, tess_case *c)
{
    char buffer[1024];
    tess_text why = tess_text_in(buffer, sizeof buffer);
    tess_line line;

    if (tess_line_read(text, &line, &why) != TESS_OK || !tess_case_make(&line, c, &why)) {
        print_error("%s: %s\n", text, buffer);
        fail();
    }
}

/* O of every used row, in the order of sequences, rows, heads. */
static void results_of(const char *text, double **out, int64_t *out_count)
{
    tess_case c;
    tess_forward_args args;
    tess_oracle oracle;
    int64_t count = 0;

    make(text, &c);
    args = tess_case_host_forward_args(&c);
    assert_true(tess_oracle_forward(&c.desc, &args, NULL, &oracle));
    *out = malloc((size_t)(oracle.known * oracle.head_dim_v + 1) * sizeof **out);
    assert_non_null(*out);
    for (int64_t b = 0; b < c.line.batch; b++)
        for (int64_t i = 0; i < tess_shape_used_rows(&c.line, b); i++) {
            int64_t batch, seqlen;

            tess_case_row_place(&c, b, i, &batch, &seqlen);
            for (int64_t n = 0; n < oracle.heads * oracle.head_dim_v; n++)
                (*out)[count++] =
                    oracle
                        .o[(batch * oracle.seqlen + seqlen) * oracle.heads * oracle.head_dim_v + n];
        }
    *out_count = count;
    tess_oracle_release(&oracle);
    tess_case_free(&c);
}

/* The same numbers, however they lie in memory. */
static void test_same_everywhere(void **state)
{
    static const char *const lines[] = {
        "fwd b3 hq4 hk2 q5 k7 d8 dv3 f16 causal",
        "fwd b3 hq4 hk2 q5 k7 d8 dv3 f16 causal layout=bhsd",
        "fwd b3 hq4 hk2 q5 k7 d8 dv3 f16 causal layout=sparse",
        "fwd b3 hq4 hk2 q9 k11 d8 dv3 f16 causal usedq=5x3 usedk=7x3",
        "fwd b3 hq4 hk2 q5 k7 d8 dv3 f16 causal page=2",
        "fwd b3 hq4 hk2 q5 k7 d8 dv3 f16 causal page=256 usedk=7x3",
        "fwd hq4 hk2 d8 dv3 f16 causal lensq=5x3 lensk=7x3",
        "fwd hq4 hk2 d8 dv3 f16 causal lensq=5x3 lensk=7x3 gap=3 index=i64",
        "fwd hq4 hk2 d8 dv3 f16 causal lensq=5x3 k7 page=3",
    };
    double *first, *other;
    int64_t first_count, other_count;

    (void)state;
    results_of(lines[0], &first, &first_count);
    assert_int_equal(first_count, 3 * 5 * 4 * 3);
    for (size_t i = 1; i < sizeof lines / sizeof *lines; i++) {
        results_of(lines[i], &other, &other_count);
        assert_int_equal(first_count, other_count);
        assert_memory_equal(first, other, (size_t)first_count * sizeof *first);
        free(other);
    }
    free(first);
}

/* With no NaN among the elements in use, none reaches the result: poison lies only where no row
 * looks. And there is poison: every case with unused storage holds some. */
static void test_poison(void **state)
{
    int poisoned = 0;

    (void)state;
    for (uint64_t seed = 0; seed < 300; seed++) {
        tess_line line;
        tess_case c;
        tess_forward_args args;
        tess_oracle oracle;

        tess_generate_line(seed, &line);
        if (strcmp(line.fill, "nan") == 0 || strcmp(line.fill, "inf") == 0 ||
            tess_line_cost(&line) > 3e5)
            continue;
        assert_true(tess_case_make(&line, &c, NULL));
        args = tess_case_host_forward_args(&c);
        assert_true(tess_oracle_forward(&c.desc, &args, NULL, &oracle));
        for (int64_t n = 0; n < oracle.batch * oracle.seqlen * oracle.heads; n++) {
            const tess_oracle_row *row = &oracle.row[n];

            assert_true(row->state == TESS_ROW_UNUSED || !isnan(row->lse));
            for (int64_t d = 0; d < oracle.head_dim_v; d++)
                assert_true(isfinite(oracle.o[n * oracle.head_dim_v + d]));
        }
        for (size_t i = 0; i < c.tensor[TESS_CASE_K].buffer.size; i += 4)
            if (!c.tensor[TESS_CASE_K].buffer.is_sparse &&
                c.tensor[TESS_CASE_K].layout.dtype == TESS_F32 &&
                isnan(tess_number_load(TESS_F32, c.tensor[TESS_CASE_K].buffer.data + i))) {
                poisoned++;
                break;
            }
        tess_oracle_release(&oracle);
        tess_case_free(&c);
    }
    assert_true(poisoned > 20);
}

/* ---- Fills ----------------------------------------------------------------------------------- */

/* Numbers pinned once, so that a failing line fails in the same way on every machine. */
static void test_same_bits(void **state)
{
    static const struct {
        const char *text;
        uint64_t q, v;
    } pinned[] = {
        {"fwd b2 hq2 q5 k6 d4", UINT64_C(0xFABE55D3C66E182D), UINT64_C(0xC61A239815ED1C3B)},
        {"fwd b2 hq2 q5 k6 d4 bf16 fill=huge seed=9", UINT64_C(0x20249D72A745F0),
         UINT64_C(0x71A6C532E36FA555)},
        {"fwd b2 hq2 q5 k6 d4 f16 fill=subnormal seed=3", UINT64_C(0xD5E8C8D4DACE5A5D),
         UINT64_C(0xFF8DA73365FE91BC)},
    };
    bool is_same = true;

    (void)state;
    for (size_t i = 0; i < sizeof pinned / sizeof *pinned; i++) {
        tess_case c;

        make(pinned[i].text, &c);
        if (c.tensor[TESS_CASE_Q].hash != pinned[i].q ||
            c.tensor[TESS_CASE_V].hash != pinned[i].v) {
            print_error("{\"%s\", UINT64_C(0x%" PRIX64 "), UINT64_C(0x%" PRIX64 ")},\n",
                        pinned[i].text, c.tensor[TESS_CASE_Q].hash, c.tensor[TESS_CASE_V].hash);
            is_same = false;
        }
        tess_case_free(&c);
    }
    assert_true(is_same);
}

static void test_known_answers(void **state)
{
    double *o;
    int64_t count;
    tess_case c;
    tess_forward_args args;
    tess_oracle oracle;

    (void)state;
    results_of("fwd b1 hq2 q8 k64 d16 fill=ones seed=4", &o, &count);
    for (int64_t n = 0; n < count; n++)
        assert_true(fabs(o[n] - 1) < 1e-14);
    free(o);
    /* Equal scores: sums of integers over a power of two. */
    for (int seed = 0; seed < 4; seed++) {
        char text[64];

        snprintf(text, sizeof text, "fwd b1 q3 k64 d16 fill=equal seed=%d", seed);
        results_of(text, &o, &count);
        for (int64_t n = 0; n < count; n++)
            assert_true(o[n] * 64 == floor(o[n] * 64));
        free(o);
    }
    make("fwd b2 hq4 hk2 q9 k33 d16 fill=dominate seed=5", &c);
    args = tess_case_host_forward_args(&c);
    assert_true(tess_oracle_forward(&c.desc, &args, NULL, &oracle));
    for (int64_t n = 0; n < 2 * 9 * 4; n++) {
        int64_t batch, seqlen;

        assert_true(oracle.row[n].lead > 110);
        tess_case_column_place(&c, n / 36, oracle.row[n].sole_column, &batch, &seqlen);
        for (int64_t d = 0; d < 16; d++)
            assert_true(
                fabs(oracle.o[n * 16 + d] -
                     tess_number_load(TESS_F32, tess_case_element(&c.tensor[TESS_CASE_V], batch,
                                                                  seqlen, n % 4 / 2, d))) < 1e-40);
    }
    tess_oracle_release(&oracle);
    tess_case_free(&c);
}

static double score_spread(const char *text, bool *out_rises, bool *out_falls)
{
    tess_case c;
    double largest = 0, previous = 0;

    make(text, &c);
    *out_rises = *out_falls = true;
    for (int64_t j = 0; j < 100; j++) {
        const tess_layout *l = &c.tensor[TESS_CASE_K].layout;
        double dot = 0;

        for (int64_t d = 0; d < l->head_dim; d++)
            dot +=
                tess_number_load(l->dtype, tess_case_element(&c.tensor[TESS_CASE_Q], 0, 0, 0, d)) *
                tess_number_load(l->dtype, tess_case_element(&c.tensor[TESS_CASE_K], 0, j, 0, d));
        dot /= sqrt((double)l->head_dim);
        largest = fmax(largest, fabs(dot));
        /* By tile of 16; within one, noise may turn neighbours around. */
        if (j % 16 == 0) {
            *out_rises = *out_rises && (j == 0 || dot > previous);
            *out_falls = *out_falls && (j == 0 || dot < previous);
            previous = dot;
        }
    }
    tess_case_free(&c);
    return largest;
}

static void test_shapes_of_scores(void **state)
{
    bool rises, falls;

    (void)state;
    score_spread("fwd b1 q1 k100 d64 bf16 fill=ascending", &rises, &falls);
    assert_true(rises && !falls);
    score_spread("fwd b1 q1 k100 d64 bf16 fill=descending", &rises, &falls);
    assert_true(falls && !rises);
    assert_true(score_spread("fwd b1 q1 k100 d64 fill=huge", &rises, &falls) > 100);
    assert_true(score_spread("fwd b1 q1 k100 d64 fill=zero", &rises, &falls) == 0);
}

/* One NaN, in one element that counts. */
static void test_one_nan(void **state)
{
    (void)state;
    for (int seed = 0; seed < 40; seed++) {
        char text[96];
        tess_case c;
        int found = 0;

        snprintf(text, sizeof text, "fwd b2 hq4 hk2 q5 k6 d3 fill=%s seed=%d",
                 seed % 2 ? "nan" : "inf", seed);
        make(text, &c);
        for (int which = TESS_CASE_Q; which <= TESS_CASE_V; which++)
            for (size_t i = 0; i < c.tensor[which].buffer.size; i += 4)
                found += !isfinite(tess_number_load(TESS_F32, c.tensor[which].buffer.data + i));
        assert_int_equal(found, 1);
        tess_case_free(&c);
    }
}

static void test_unknown_fill(void **state)
{
    char buffer[512];
    tess_text why = tess_text_in(buffer, sizeof buffer);
    tess_line line;
    tess_case c;

    (void)state;
    assert_int_equal(tess_line_read("fwd fill=norml", &line, NULL), TESS_OK);
    assert_false(tess_case_make(&line, &c, &why));
    assert_non_null(strstr(buffer, "norml"));
    assert_non_null(strstr(buffer, "normal"));
    tess_case_free(&c);
}

/* Values from a table are those computed one by one. */
static void test_table(void **state)
{
    static const tess_dtype dtypes[] = {TESS_F32, TESS_F16, TESS_BF16};
    const tess_place place = {3, 1, 70000, 5};
    uint32_t bits[100];
    tess_line line;
    tess_fill fill;

    (void)state;
    tess_line_default(&line);
    line.seed = 11;
    assert_true(tess_fill_make(&line, &fill, NULL));
    for (size_t i = 0; i < sizeof dtypes / sizeof *dtypes; i++) {
        uint32_t *const table = tess_fill_table(&fill, dtypes[i]);

        assert_non_null(table);
        for (int tensor = TESS_FILLED_Q; tensor <= TESS_FILLED_V; tensor++) {
            tess_fill_bits(&fill, table, tensor, place, 100, bits);
            for (int64_t d = 0; d < 100; d++)
                assert_int_equal(
                    bits[d],
                    tess_number_encode(dtypes[i],
                                       tess_fill_value(&fill, tensor,
                                                       (tess_place){place.sequence, place.head,
                                                                    place.row, place.dim + d})));
        }
        free(table);
    }
    memcpy(line.fill, "ones", sizeof "ones");
    assert_true(tess_fill_make(&line, &fill, NULL));
    assert_null(tess_fill_table(&fill, TESS_BF16));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_guards),        cmocka_unit_test(test_draw),
        cmocka_unit_test(test_draw_sparse),   cmocka_unit_test(test_same_everywhere),
        cmocka_unit_test(test_poison),        cmocka_unit_test(test_same_bits),
        cmocka_unit_test(test_known_answers), cmocka_unit_test(test_shapes_of_scores),
        cmocka_unit_test(test_one_nan),       cmocka_unit_test(test_unknown_fill),
        cmocka_unit_test(test_table),
    };
    const int failed = cmocka_run_group_tests_name("kit_case", tests, NULL, NULL);

    return failed != 0;
}
