/* SPDX-License-Identifier: Apache-2.0
 * The oracle against numbers worked out by hand, in closed form. */
#include "tests/kit/oracle.h"

#include "tests/kit/number.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <string.h>

enum { MOST = 1 << 16 };

/* One problem, small enough to live in static arrays. */
static struct problem {
    tess_attention_desc desc;
    tess_forward_args args;
    tess_varlen varlen;
    tess_paging paging;
    tess_bias bias;
    tess_oracle_fault fault;
    float q[MOST], k[MOST], v[MOST], bias_values[MOST], slopes[64], sink[64];
    int32_t cu_q[8], cu_k[8], used_q[8], used_k[8], table[64];
    tess_oracle result;
} p;

/* b, q, k, hq, hk, d and dv in this order; everything zero: scores 0, default scale. */
static void begin(int64_t b, int64_t rows, int64_t columns, int64_t hq, int64_t hk, int64_t d,
                  int64_t dv)
{
    tess_oracle_release(&p.result);
    memset(&p, 0, sizeof p);
    p.desc = (tess_attention_desc){TESS_STRUCT(tess_attention_desc),
                                   .q = tess_layout_packed(TESS_F32, b, rows, hq, d),
                                   .k = tess_layout_packed(TESS_F32, b, columns, hk, d),
                                   .v = tess_layout_packed(TESS_F32, b, columns, hk, dv),
                                   .o = tess_layout_packed(TESS_F32, b, rows, hq, dv)};
    p.args = (tess_forward_args){TESS_STRUCT(tess_forward_args), .q = {p.q, 0}, .k = {p.k, 0},
                                 .v = {p.v, 0}};
    p.varlen = (tess_varlen){TESS_STRUCT(tess_varlen), .sequences = b};
    p.paging = (tess_paging){TESS_STRUCT(tess_paging)};
    p.bias = (tess_bias){TESS_STRUCT(tess_bias)};
    for (int64_t j = 0; j < b * columns * hk * dv && j < MOST; j++)
        p.v[j] = (float)(j / (hk * dv) % (columns > 0 ? columns : 1)); /* V_j = j */
}

static void scale(double value)
{
    p.desc.softmax_scale = (float)value;
    p.desc.flags |= TESS_SCALE_IS_SET;
}

static void window(int64_t left, int64_t right)
{
    p.desc.mask |= TESS_MASK_WINDOW;
    p.desc.window_left = left;
    p.desc.window_right = right;
}

static void sink(double value)
{
    p.sink[0] = (float)value;
    p.bias.present |= TESS_BIAS_SINK;
    p.args.sink = (tess_in){p.sink, 0};
    p.desc.bias = &p.bias;
}

static void run(void)
{
    const tess_oracle_options options = {.fault = &p.fault, .wants_naive = true};

    tess_oracle_release(&p.result);
    assert_true(tess_oracle_forward(&p.desc, &p.args, &options, &p.result));
}

/* O and LSE of one row. A tolerance of 0 asks for the very number. */
static void expect_row(int64_t row, int64_t head, double o, double lse, double tolerance)
{
    const int64_t n = row * p.result.heads + head;
    const double got = p.result.o[n * p.result.head_dim_v], got_lse = p.result.row[n].lse;

    if (!(fabs(got - o) <= tolerance) || (lse != got_lse && !(fabs(got_lse - lse) <= tolerance))) {
        print_error("row %d head %d: O %.12g, LSE %.12g; expected %.12g, %.12g\n", (int)row,
                    (int)head, got, got_lse, o, lse);
        fail();
    }
}

static void expect_rows(int count, const double *o, const double *lse)
{
    for (int i = 0; i < count; i++)
        expect_row(i, 0, o[i], lse ? lse[i] : p.result.row[i].lse, 1e-12);
}

/* ---- Masks ----------------------------------------------------------------------------------- */

static void test_causal_alignment(void **state)
{
    static const double two[] = {1.5, 2.0};
    static const double six[] = {0, 0, 0, 1, 1.5, 2};
    const double lse[] = {
        -(double)INFINITY, -(double)INFINITY, -(double)INFINITY, 0, log(2), log(3)};

    (void)state;
    begin(1, 1, 8, 1, 1, 4, 1);
    p.desc.mask = TESS_MASK_CAUSAL;
    run();
    expect_row(0, 0, 3.5, log(8), 1e-12);
    begin(1, 2, 5, 1, 1, 4, 1);
    p.desc.mask = TESS_MASK_CAUSAL;
    run();
    expect_rows(2, two, NULL);
    begin(1, 6, 3, 1, 1, 4, 1);
    for (int j = 0; j < 3; j++)
        p.v[j] = (float)(j + 1);
    p.desc.mask = TESS_MASK_CAUSAL;
    run();
    expect_rows(6, six, lse);
    for (int i = 0; i < 3; i++)
        assert_false(signbit(p.result.o[i]));
    /* From the top left corner instead, row i sees columns 0 ... i. */
    begin(1, 6, 3, 1, 1, 4, 1);
    p.desc.mask = TESS_MASK_CAUSAL | TESS_MASK_TOP_LEFT;
    run();
    expect_row(0, 0, 0, 0, 1e-12);
    expect_row(1, 0, 0.5, log(2), 1e-12);
    expect_row(5, 0, 1, log(3), 1e-12);
}

/* Bounds that reach past both ends, and more rows than columns. */
static void test_window_extremes(void **state)
{
    static const int64_t all[] = {9, 10, INT32_MAX, INT64_MAX};
    static const double four[] = {0, 0, 0, 0.5, 1, 1.5, 1.5, 1.5, 1.5, 1.5};

    (void)state;
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        begin(1, 10, 4, 1, 1, 4, 1);
        window(-1, all[i]);
        run();
        for (int row = 0; row < 10; row++)
            expect_row(row, 0, 1.5, log(4), 1e-12);
        begin(1, 10, 4, 1, 1, 4, 1);
        window(all[i], -1);
        run();
        expect_row(9, 0, 1.5, log(4), 1e-12);
    }
    begin(1, 10, 4, 1, 1, 4, 1);
    window(-1, 4);
    run();
    expect_rows(10, four, NULL);
    assert_true(p.result.row[1].lse == -(double)INFINITY);
    assert_int_equal(p.result.row[1].columns, 0);
}

static void test_window_zero(void **state)
{
    static const double left[] = {0, .5, 1, 1.5, 2.5, 3.5, 4.5, 5.5};
    static const double counts[] = {1, 2, 3, 4, 4, 4, 4, 4};

    (void)state;
    begin(1, 8, 8, 1, 1, 4, 1);
    window(3, 0);
    run();
    for (int i = 0; i < 8; i++)
        expect_row(i, 0, left[i], log(counts[i]), 1e-12);
    begin(1, 8, 8, 1, 1, 4, 1);
    window(0, 0);
    run();
    for (int i = 0; i < 8; i++)
        expect_row(i, 0, i, 0, 0);
    begin(1, 8, 8, 1, 1, 4, 1);
    window(0, -1);
    run();
    for (int i = 0; i < 8; i++)
        expect_row(i, 0, (i + 7) / 2.0, log(8 - i), 1e-12);
}

/* ---- Scores ---------------------------------------------------------------------------------- */

static void test_order_of_softcap(void **state)
{
    (void)state;
    begin(1, 2, 2, 1, 1, 1, 1);
    p.v[0] = 1;
    p.v[1] = 1000;
    p.desc.mask = TESS_MASK_CAUSAL;
    p.desc.softcap = 1;
    run();
    expect_row(0, 0, 1, 0, 0);
    expect_row(1, 0, 500.5, log(2), 1e-12);
    /* No mask: padding of a last tile would count if it were capped. */
    begin(1, 1, 65, 1, 1, 1, 1);
    for (int j = 0; j < 65; j++)
        p.v[j] = 1;
    p.desc.softcap = 2;
    run();
    expect_row(0, 0, 1, 4.174387269895637, 1e-12);
    /* Capped, then scaled by nothing else: 30 tanh(60 / 30). */
    begin(1, 1, 1, 1, 1, 1, 1);
    p.q[0] = 60;
    p.k[0] = 1;
    p.desc.softcap = 30;
    run();
    expect_row(0, 0, 0, 30 * tanh(2), 1e-12);
}

static void test_alibi_grouped(void **state)
{
    static const double expected[] = {30.458508, 28.487812, 25.031745, 21.301357,
                                      18.784307, 17.410423, 16.707549, 16.354069};

    (void)state;
    begin(1, 1, 33, 8, 2, 4, 1);
    for (int h = 0; h < 8; h++)
        p.slopes[h] = ldexpf(1, -(h + 1));
    p.bias.present = TESS_BIAS_ALIBI;
    p.bias.slope_stride[1] = 1;
    p.args.alibi_slopes = (tess_in){p.slopes, 0};
    p.desc.bias = &p.bias;
    p.desc.mask = TESS_MASK_CAUSAL;
    run();
    for (int h = 0; h < 8; h++)
        expect_row(0, h, expected[h], p.result.row[h].lse, 5e-7);
}

static void test_sink(void **state)
{
    static const double sinks[] = {0.5, 100, -100, 1.3862943649291992};
    static const double o[] = {0.708125, 0, 1, 0.5}, lse[] = {1.731429, 100, 1.386294, 2.079442};

    (void)state;
    for (int n = 0; n < 4; n++) {
        begin(1, 1, 4, 1, 1, 4, 1);
        for (int j = 0; j < 4; j++)
            p.v[j] = 1;
        sink(sinks[n]);
        run();
        expect_row(0, 0, o[n], lse[n], 5e-7);
    }
    /* No column at all: the sink is alone, and O is +0. */
    begin(1, 1, 4, 1, 1, 4, 1);
    p.varlen.present = TESS_VARLEN_SEQUSED_K;
    p.args.seqused_k = (tess_in){p.used_k, 0};
    p.desc.varlen = &p.varlen;
    sink(0.5);
    run();
    expect_row(0, 0, 0, 0.5, 0);
    /* Minus infinity adds nothing, plus infinity makes the row NaN. */
    begin(1, 1, 4, 1, 1, 4, 1);
    sink(-(double)INFINITY);
    run();
    expect_row(0, 0, 1.5, log(4), 1e-12);
    sink((double)INFINITY);
    run();
    assert_true(isnan(p.result.o[0]) && isnan(p.result.row[0].lse));
}

static void test_sink_and_window(void **state)
{
    (void)state;
    for (int capped = 0; capped < 2; capped++) {
        begin(1, 1, 256, 1, 1, 4, 1);
        for (int j = 0; j < 256; j++)
            p.v[j] = 1;
        p.desc.mask = TESS_MASK_CAUSAL;
        window(3, -1);
        p.desc.softcap = capped ? 30 : 0;
        sink(log(4));
        run();
        expect_row(0, 0, 0.5, log(8), 1e-7);
    }
}

static void test_lse(void **state)
{
    (void)state;
    begin(1, 1, 1, 1, 1, 1, 1);
    p.q[0] = 3;
    p.k[0] = 1;
    run();
    expect_row(0, 0, 0, 3, 0);
    begin(1, 1, 7, 1, 1, 1, 1);
    p.q[0] = 1;
    for (int j = 0; j < 7; j++)
        p.k[j] = -2;
    run();
    expect_row(0, 0, 3, -0.054089850, 5e-9);
}

static void test_ranges(void **state)
{
    (void)state;
    /* Scores of -65536 and below are scores, not masks. */
    begin(1, 1, 4, 1, 1, 64, 1);
    scale(1);
    p.q[0] = 256;
    for (int j = 0; j < 4; j++) {
        p.k[64 * j] = (float)-(256 + 2 * j);
        p.v[j] = (float)(j + 1);
    }
    run();
    expect_row(0, 0, 1, -65536, 0);
    /* A negative scale turns the order around. */
    begin(1, 1, 3, 1, 1, 1, 1);
    scale(-1);
    p.q[0] = 1;
    p.k[0] = -1000;
    p.k[1] = 1000;
    p.k[2] = 999;
    for (int j = 0; j < 3; j++)
        p.v[j] = (float)(j + 1);
    run();
    expect_row(0, 0, 1, 1000, 0);
    /* A scale of zero is a scale. */
    begin(1, 1, 3, 1, 1, 1, 1);
    scale(0);
    p.q[0] = p.k[0] = 5;
    run();
    expect_row(0, 0, 1, log(3), 1e-12);
    /* Weights fall to nothing, not to the least number. */
    begin(1, 1, 2, 1, 1, 1, 1);
    scale(1);
    p.q[0] = 1;
    p.k[1] = -200;
    p.v[0] = 0;
    p.v[1] = 3e38f;
    run();
    assert_true(p.result.o[0] < 1e-30 && p.result.o[0] > 0);
}

/* Keys of -(100 + j % 4) times 8: the numbers of a reported gradient fault, forward side. */
static void test_far_below_zero(void **state)
{
    (void)state;
    begin(1, 64, 64, 1, 1, 64, 1);
    for (int i = 0; i < 64; i++) {
        p.q[64 * i] = 8;
        p.k[64 * i] = (float)-(100 + i % 4);
        p.v[i] = (float)(i % 3);
    }
    run();
    for (int i = 0; i < 64; i++)
        expect_row(i, 0, 0.963198, -96.787222, 1e-6);
}

static double element(int64_t row, int64_t head, int64_t dim)
{
    return p.result.o[(row * p.result.heads + head) * p.result.head_dim_v + dim];
}

/* ---- Absent and not a number ----------------------------------------------------------------- */

static void test_absent(void **state)
{
    static const float bad[] = {NAN, INFINITY, -INFINITY, 1e30f};

    (void)state;
    for (size_t n = 0; n < sizeof bad / sizeof *bad; n++) {
        begin(1, 2, 2, 1, 1, 4, 4);
        for (int i = 0; i < 8; i++)
            p.q[i] = p.k[i] = p.v[i] = (float)i;
        for (int i = 4; i < 8; i++)
            p.k[i] = p.v[i] = bad[n];
        /* A bias of minus infinity forbids column 1 to both rows, though K and V are bad there. */
        p.bias_values[1] = -INFINITY;
        p.bias.present = TESS_BIAS_TENSOR;
        p.bias.tensor_dtype = TESS_F32;
        p.bias.tensor_stride[3] = 1;
        p.args.bias = (tess_in){p.bias_values, 0};
        p.desc.bias = &p.bias;
        run();
        /* NaN + -infinity is NaN, and +infinity + -infinity too: there the score is what decides.
         */
        if (isnan(bad[n]) || isinf(bad[n]))
            continue;
        for (int i = 0; i < 2; i++)
            for (int d = 0; d < 4; d++)
                assert_true(element(i, 0, d) == (double)d);
    }
    /* A mask decides before any score. */
    for (size_t n = 0; n < sizeof bad / sizeof *bad; n++) {
        begin(1, 2, 3, 1, 1, 4, 4);
        p.desc.mask = TESS_MASK_CAUSAL;
        for (int d = 0; d < 4; d++)
            p.k[8 + d] = p.v[8 + d] = bad[n];
        run();
        assert_true(element(0, 0, 0) == 0.5); /* columns 0 and 1 */
        assert_true(isnan(bad[n]) ? isnan(element(1, 0, 0)) : !(element(1, 0, 0) < 1e20));
    }
}

static void test_not_a_number(void **state)
{
    (void)state;
    begin(2, 4, 4, 2, 1, 4, 4);
    p.q[(1 * 4 + 2) * 8 + 4] = NAN; /* sequence 1, row 2, head 1 */
    run();
    for (int64_t row = 0; row < 8; row++)
        for (int64_t head = 0; head < 2; head++) {
            const bool is_bad = row == 6 && head == 1;

            assert_int_equal(isnan(element(row, head, 0)), is_bad);
            assert_int_equal(isnan(p.result.row[row * 2 + head].lse), is_bad);
        }
    /* An infinite score is no number to divide by; an infinite V is just a large one. */
    begin(1, 2, 2, 1, 1, 1, 2);
    p.q[0] = 1;
    p.k[1] = INFINITY;
    run();
    assert_true(isnan(element(0, 0, 0)) && isnan(element(1, 0, 0))); /* 0 * infinity as well */
    begin(1, 1, 2, 1, 1, 1, 2);
    p.v[2] = -INFINITY;
    run();
    assert_true(element(0, 0, 0) == -(double)INFINITY && element(0, 0, 1) == 0.5);
    assert_true(p.result.row[0].lse == log(2));
}

/* ---- Layouts --------------------------------------------------------------------------------- */

/* Three packed sequences and a gap, with used lengths, against their parts. */
static void test_packed(void **state)
{
    static const int32_t cu_q[] = {0, 4, 8, 12}, cu_k[] = {0, 7, 7, 12};

    (void)state;
    begin(1, 13, 12, 2, 1, 2, 1);
    memcpy(p.cu_q, cu_q, sizeof cu_q);
    memcpy(p.cu_k, cu_k, sizeof cu_k);
    p.used_q[0] = 3;
    p.used_q[1] = 2;
    p.used_q[2] = 4;
    p.varlen.sequences = 3;
    p.varlen.max_seqlen_q = 4;
    p.varlen.max_seqlen_k = 7;
    p.varlen.present = TESS_VARLEN_CU_SEQLENS_Q | TESS_VARLEN_CU_SEQLENS_K | TESS_VARLEN_SEQUSED_Q;
    p.args.cu_seqlens_q = (tess_in){p.cu_q, 0};
    p.args.cu_seqlens_k = (tess_in){p.cu_k, 0};
    p.args.seqused_q = (tess_in){p.used_q, 0};
    p.desc.varlen = &p.varlen;
    p.desc.mask = TESS_MASK_CAUSAL;
    run();
    expect_row(0, 1, 2, log(5), 1e-12); /* D = 7 - 3: row 0 sees columns 0 ... 4 */
    expect_row(2, 0, 3, log(7), 1e-12);
    assert_int_equal(p.result.row[3 * 2].state, TESS_ROW_UNUSED);
    expect_row(4, 0, 0, -(double)INFINITY, 0); /* no columns */
    assert_int_equal(p.result.row[6 * 2].state, TESS_ROW_UNUSED);
    expect_row(8, 0, 7.5, log(2), 1e-12); /* D = 5 - 4; its columns hold 7 ... 11 */
    expect_row(11, 0, 9, log(5), 1e-12);
    assert_int_equal(p.result.row[12 * 2].state, TESS_ROW_UNUSED);
    assert_int_equal(p.result.known, 9 * 2);
}

static void test_paged(void **state)
{
    static const int32_t table[] = {5, 2, 7, 0, 3, -1, -1, -1};

    (void)state;
    begin(1, 1, 4, 1, 1, 2, 1); /* the pool replaces k and v */
    p.desc.q.batch = p.desc.o.batch = 2;
    p.desc.k = tess_layout_packed(TESS_F32, 8, 2, 1, 2);
    p.desc.v = tess_layout_packed(TESS_F32, 8, 2, 1, 1);
    for (int n = 0; n < 16; n++)
        p.v[n] = (float)n; /* slot s of page g holds 2 g + s */
    memcpy(p.table, table, sizeof table);
    p.paging.max_pages = 3;
    p.paging.table_stride = 4;
    p.used_k[0] = 5;
    p.used_k[1] = 1;
    p.varlen.sequences = 2;
    p.varlen.present = TESS_VARLEN_SEQUSED_K;
    p.args.seqused_k = (tess_in){p.used_k, 0};
    p.args.page_table = (tess_in){p.table, 0};
    p.desc.varlen = &p.varlen;
    p.desc.paging = &p.paging;
    run();
    expect_row(0, 0, (10 + 11 + 4 + 5 + 14) / 5.0, log(5), 1e-12);
    expect_row(1, 0, 6, 0, 0); /* page 3, slot 0 */
}

/* Strides: K repeated along the sequence, V backwards, heads read in groups. */
static void test_strides(void **state)
{
    (void)state;
    begin(1, 1, 3, 4, 2, 1, 1);
    p.q[2] = 1; /* head 2 reads key head 1 */
    p.k[0] = 2;
    p.k[1] = 3;
    p.desc.k.seqlen_stride = 0;
    p.v[0] = 30;
    p.v[1] = 20;
    p.v[2] = 10;
    p.args.v.offset = 2 * (int64_t)sizeof(float);
    p.desc.v.seqlen_stride = -1;
    p.desc.v.head_stride = 0;
    run();
    expect_row(0, 0, 20, log(3), 1e-12);
    expect_row(0, 2, 20, 3 + log(3), 1e-12);
    assert_true(p.result.row[2].lead == 0);
}

static void test_scaling(void **state)
{
    static float kd[8], vd[8];
    static uint8_t one[4096];
    static tess_scaling scaling;

    (void)state;
    begin(2, 1, 100, 8, 4, 4, 1);
    memset(one, (int)tess_number_encode(TESS_E4M3, 1), sizeof one);
    for (int b = 0; b < 2; b++)
        for (int h = 0; h < 4; h++) {
            kd[b * 4 + h] = ldexpf(1, -(h + 3 * b));
            vd[b * 4 + h] = (float)(1 + h + 8 * b);
        }
    p.desc.q.dtype = p.desc.k.dtype = p.desc.v.dtype = TESS_E4M3;
    p.args.q = p.args.k = p.args.v = (tess_in){one, 0};
    scaling =
        (tess_scaling){TESS_STRUCT(tess_scaling), .k_stride = {4, 1, 0}, .v_stride = {4, 1, 0}};
    p.desc.scaling = &scaling;
    p.args.k_descale = (tess_in){kd, 0};
    p.args.v_descale = (tess_in){vd, 0};
    scale(1);
    run();
    for (int b = 0; b < 2; b++)
        for (int h = 0; h < 8; h++)
            expect_row(b, h, (double)vd[b * 4 + h / 2], 4 * (double)kd[b * 4 + h / 2] + log(100),
                       1e-12);
}

/* ---- Sampling and the naive reference -------------------------------------------------------- */

static void test_sampling(void **state)
{
    const tess_oracle_options options = {.budget = 2e5};
    tess_oracle sampled;
    int64_t known = 0;

    (void)state;
    begin(2, 64, 64, 4, 2, 16, 16);
    for (int n = 0; n < 2 * 64 * 4 * 16; n++)
        p.q[n] = (float)(n % 7) - 3;
    for (int n = 0; n < 2 * 64 * 2 * 16; n++)
        p.k[n] = (float)(n % 5) - 2;
    run();
    assert_int_equal(p.result.known, 2 * 64 * 4);
    assert_true(p.result.naive_error > 0 && p.result.naive_error < 1e-4);
    assert_true(tess_oracle_cost(&p.desc, &p.args) == 2.0 * 64 * 64 * 4 * 32);
    assert_true(tess_oracle_forward(&p.desc, &p.args, &options, &sampled));
    for (int64_t n = 0; n < 2 * 64 * 4; n++) {
        assert_int_not_equal(sampled.row[n].state, TESS_ROW_UNUSED);
        if (sampled.row[n].state != TESS_ROW_KNOWN)
            continue;
        known++;
        assert_true(sampled.row[n].lse == p.result.row[n].lse);
        assert_memory_equal(&sampled.o[n * 16], &p.result.o[n * 16], 16 * sizeof(double));
    }
    assert_int_equal(known, sampled.known);
    assert_in_range(known, 8, 300);
    assert_int_equal(sampled.row[0].state, TESS_ROW_KNOWN);
    assert_int_equal(sampled.row[2 * 64 * 4 - 1].state, TESS_ROW_KNOWN);
    tess_oracle_release(&sampled);
}

/* What the budgets are made of: magnitudes, leads, the largest V in sight. */
static void test_row_facts(void **state)
{
    (void)state;
    begin(1, 2, 3, 1, 1, 2, 2);
    scale(0.5);
    p.desc.mask = TESS_MASK_CAUSAL;
    p.q[0] = p.q[2] = 10;
    p.q[1] = p.q[3] = -10;
    p.k[0] = p.k[1] = 7; /* cancels: 35 - 35 */
    p.k[2] = 1;
    p.k[4] = 4;
    p.v[4] = 100;
    run();
    assert_true(p.result.row[0].magnitude == 70);
    assert_true(p.result.row[0].lead == 5 && p.result.row[0].sole_column == 1);
    assert_true(p.result.row[0].value_scale == 1);
    assert_int_equal(p.result.row[0].columns, 2);
    assert_true(p.result.row[1].lead == 15 && p.result.row[1].sole_column == 2);
    assert_true(p.result.row[1].value_scale == 100);
    tess_oracle_release(&p.result);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_causal_alignment), cmocka_unit_test(test_window_extremes),
        cmocka_unit_test(test_window_zero),      cmocka_unit_test(test_order_of_softcap),
        cmocka_unit_test(test_alibi_grouped),    cmocka_unit_test(test_sink),
        cmocka_unit_test(test_sink_and_window),  cmocka_unit_test(test_lse),
        cmocka_unit_test(test_ranges),           cmocka_unit_test(test_far_below_zero),
        cmocka_unit_test(test_absent),           cmocka_unit_test(test_not_a_number),
        cmocka_unit_test(test_packed),           cmocka_unit_test(test_paged),
        cmocka_unit_test(test_strides),          cmocka_unit_test(test_scaling),
        cmocka_unit_test(test_sampling),         cmocka_unit_test(test_row_facts),
    };
    const int failed = cmocka_run_group_tests_name("kit_oracle", tests, NULL, NULL);

    return failed != 0;
}
