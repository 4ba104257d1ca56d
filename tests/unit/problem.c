/* SPDX-License-Identifier: Apache-2.0
 * What a descriptor becomes: defaults filled in, bounds taken, equal meanings made equal. */
#include "core/schedule/problem.h"

#include "tests/unit/support.h"

#include <math.h>

static const char call[] = "a_test";

static tess_problem problem_of(const tess_attention_desc *desc)
{
    tess_problem problem;

    assert_fine(NULL, tess_problem_make(NULL, call, desc, &problem));
    return problem;
}

/* Three sequences of 9 rows and 11 columns in all. */
static tess_varlen packed_varlen(void)
{
    return (tess_varlen){TESS_STRUCT(tess_varlen), .sequences = 3, .max_seqlen_q = 4,
                         .max_seqlen_k = 5,
                         .present = TESS_VARLEN_CU_SEQLENS_Q | TESS_VARLEN_CU_SEQLENS_K};
}

static tess_attention_desc packed_desc(const tess_varlen *varlen)
{
    return (tess_attention_desc){TESS_STRUCT(tess_attention_desc),
                                 .q = tess_layout_packed(TESS_F16, 1, 9, 4, 8),
                                 .k = tess_layout_packed(TESS_F16, 1, 11, 2, 8),
                                 .v = tess_layout_packed(TESS_F16, 1, 11, 2, 8),
                                 .o = tess_layout_packed(TESS_F32, 1, 9, 4, 8),
                                 .varlen = varlen};
}

static void a_dense_problem_takes_its_extents(void **state)
{
    const tess_attention_desc desc = small_desc();
    const tess_problem p = problem_of(&desc);

    (void)state;
    assert_int_equal(p.pass, TESS_PASS_FORWARD);
    assert_int_equal(p.sequences, SMALL_BATCH);
    assert_int_equal(p.rows, SMALL_ROWS);
    assert_int_equal(p.columns, SMALL_COLUMNS);
    assert_int_equal(p.heads_q, SMALL_HEADS);
    assert_int_equal(p.heads_kv, SMALL_HEADS_KV);
    assert_int_equal(p.group, SMALL_HEADS / SMALL_HEADS_KV);
    assert_int_equal(p.head_dim, SMALL_DIM);
    assert_int_equal(p.head_dim_v, SMALL_DIM_V);
    assert_int_equal(p.dtype, TESS_F32);
    assert_int_equal(p.o_dtype, TESS_F32);
    assert_int_equal(p.page_size, 0);
    assert_int_equal(p.num_splits, 0);
    assert_false(p.has_program || p.has_scaling);
    assert_int_equal(tess_problem_total_rows(&p), SMALL_BATCH * SMALL_ROWS);
}

static void the_scale_is_what_was_meant(void **state)
{
    static const struct {
        float given;
        uint32_t flags;
        bool is_default;
    } cases[] = {{0.0f, 0, true},  {0.0f, TESS_SCALE_IS_SET, false}, {-0.5f, 0, false},
                 {2.0f, 0, false}, {2.0f, TESS_SCALE_IS_SET, false}, {1e-45f, 0, false}};

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        tess_attention_desc desc = small_desc();
        desc.softmax_scale = cases[i].given;
        desc.flags = cases[i].flags | TESS_DETERMINISTIC;

        const tess_problem p = problem_of(&desc);
        const float wanted = cases[i].is_default ? (float)(1 / sqrt(SMALL_DIM)) : cases[i].given;

        assert_memory_equal(&p.scale, &wanted, sizeof wanted);
        assert_int_equal(p.flags, TESS_DETERMINISTIC); /* the other bit has been acted on */
    }
}

static void a_window_counts_only_where_it_is_asked_for(void **state)
{
    tess_attention_desc desc = small_desc();

    (void)state;
    tess_problem p = problem_of(&desc);
    assert_true(p.window_left < 0 && p.window_right < 0);
    desc.mask = TESS_MASK_WINDOW;
    p = problem_of(&desc); /* both bounds 0: the diagonal alone */
    assert_int_equal(p.window_left, 0);
    assert_int_equal(p.window_right, 0);
    desc.window_left = 3;
    desc.window_right = -1;
    p = problem_of(&desc);
    assert_int_equal(p.window_left, 3);
    assert_int_equal(p.window_right, -1);
    assert_int_equal(p.mask, TESS_MASK_WINDOW);
}

static void the_default_lse_is_packed_heads_before_rows(void **state)
{
    const tess_varlen varlen = packed_varlen();
    const tess_attention_desc dense = small_desc(), packed = packed_desc(&varlen);
    tess_problem p = problem_of(&dense);

    (void)state;
    assert_int_equal(p.lse.dtype, TESS_F32);
    assert_int_equal(p.lse.batch_stride, SMALL_HEADS * SMALL_ROWS);
    assert_int_equal(p.lse.head_stride, SMALL_ROWS);
    assert_int_equal(p.lse.seqlen_stride, 1);
    p = problem_of(&packed); /* (heads, total) */
    assert_int_equal(p.lse.head_stride, 9);
    assert_int_equal(p.lse.seqlen_stride, 1);

    tess_attention_desc given = dense;
    given.lse = tess_layout_packed(TESS_F32, SMALL_BATCH, SMALL_ROWS, SMALL_HEADS, 1);
    p = problem_of(&given);
    assert_int_equal(p.lse.seqlen_stride, SMALL_HEADS);
    assert_int_equal(p.lse.head_stride, 1);
}

static void packed_lengths_are_bounded_by_both_bounds(void **state)
{
    tess_varlen varlen = packed_varlen();
    const tess_attention_desc desc = packed_desc(&varlen);
    tess_problem p = problem_of(&desc);

    (void)state;
    assert_int_equal(p.sequences, 3);
    assert_int_equal(p.rows, 4);
    assert_int_equal(p.columns, 5);
    assert_int_equal(p.index_dtype, TESS_I32);
    assert_int_equal(tess_problem_total_rows(&p), 9);
    assert_true(tess_problem_is_packed_q(&p) && tess_problem_is_packed_k(&p));
    varlen.max_seqlen_q = varlen.max_seqlen_k = INT32_MAX;
    varlen.index_dtype = TESS_I64;
    p = problem_of(&desc); /* no sequence is longer than all of them */
    assert_int_equal(p.rows, 9);
    assert_int_equal(p.columns, 11);
    assert_int_equal(p.index_dtype, TESS_I64);
}

static void one_side_may_be_packed_alone(void **state)
{
    const tess_varlen varlen = {TESS_STRUCT(tess_varlen), .sequences = SMALL_BATCH,
                                .max_seqlen_q = 4, .present = TESS_VARLEN_CU_SEQLENS_Q};
    tess_attention_desc desc = small_desc();

    (void)state;
    desc.varlen = &varlen;
    desc.q = tess_layout_packed(TESS_F32, 1, 6, SMALL_HEADS, SMALL_DIM);
    desc.o = tess_layout_packed(TESS_F32, 1, 6, SMALL_HEADS, SMALL_DIM_V);

    const tess_problem p = problem_of(&desc);

    assert_int_equal(p.rows, 4);
    assert_int_equal(p.columns, SMALL_COLUMNS);
    assert_true(tess_problem_is_packed_q(&p) && !tess_problem_is_packed_k(&p));
}

static void pages_bound_the_columns(void **state)
{
    tess_paging paging = {TESS_STRUCT(tess_paging), .max_pages = 4};
    tess_varlen varlen = {TESS_STRUCT(tess_varlen), .sequences = SMALL_BATCH,
                          .present = TESS_VARLEN_SEQUSED_K};
    tess_attention_desc desc = small_desc();

    (void)state;
    desc.k.batch = desc.v.batch = 9;
    desc.paging = &paging;
    desc.varlen = &varlen;

    tess_problem p = problem_of(&desc);

    assert_true(tess_problem_is_paged(&p));
    assert_int_equal(p.page_size, SMALL_COLUMNS);
    assert_int_equal(p.columns, 4 * SMALL_COLUMNS);
    assert_int_equal(p.table_stride, 4);
    varlen.max_seqlen_k = 10;
    paging.table_stride = 6;
    p = problem_of(&desc);
    assert_int_equal(p.columns, 10);
    assert_int_equal(p.table_stride, 6);
    varlen.max_seqlen_k = 1000; /* more than there are slots */
    p = problem_of(&desc);
    assert_int_equal(p.columns, 4 * SMALL_COLUMNS);
    desc.varlen = NULL; /* all slots of all pages */
    p = problem_of(&desc);
    assert_int_equal(p.columns, 4 * SMALL_COLUMNS);
    paging.max_pages = INT32_MAX;
    p = problem_of(&desc);
    assert_int_equal(p.columns, INT32_MAX); /* an extent, whatever the product */
}

/* Equal problems are equal bytes: caches and logs rely on it. */
static void equal_meanings_are_equal_bytes(void **state)
{
    tess_attention_desc one = small_desc(), other;
    tess_bias nothing = {TESS_STRUCT(tess_bias)};
    tess_program silent = {TESS_STRUCT(tess_program)};
    const tess_varlen empty = {TESS_STRUCT(tess_varlen), .sequences = 1};

    (void)state;
    one.q = tess_layout_packed(TESS_F32, 1, 1, 4, 8);
    one.k = one.v = tess_layout_packed(TESS_F32, 1, 6, 1, 8);
    one.o = one.q;
    other = one;
    other.q.batch_stride = 77;
    other.q.seqlen_stride = INT64_MIN;
    other.k.head_stride = -1;
    other.o.seqlen_stride = 0;
    other.softmax_scale = (float)(1 / sqrt(8.0));
    other.bias = &nothing;
    other.program = &silent;
    other.varlen = &empty;
    other.lse = tess_layout_by_head(TESS_F32, 1, 1, 4, 1);
    other.lse.dim_stride = 5;

    const tess_problem a = problem_of(&one), b = problem_of(&other);

    assert_memory_equal(&a, &b, sizeof a);
}

static void the_line_says_what_the_problem_is(void **state)
{
    const tess_varlen varlen = packed_varlen();
    const tess_bias bias = {TESS_STRUCT(tess_bias), .tensor_stride = {0, 0, 5, 1},
                            .present = TESS_BIAS_TENSOR, .tensor_dtype = TESS_BF16};
    tess_attention_desc desc = packed_desc(&varlen);
    char text[512], why[256];
    tess_text out = tess_text_in(text, sizeof text), reason = tess_text_in(why, sizeof why);
    tess_line line, read;

    (void)state;
    desc.bias = &bias;
    desc.mask = TESS_MASK_CAUSAL | TESS_MASK_WINDOW;
    desc.window_left = 2;
    desc.softcap = 30;
    desc.num_splits = 3;
    desc.flags = TESS_BATCH_INVARIANT;

    const tess_problem p = problem_of(&desc);

    tess_problem_write(&p, &out);
    assert_true(holds_pieces(text, "fwd|hq4|hk2|d8|f16|of=f32|causal|window=2,0|softcap=30|"
                                   "bias=bf16|splits=3|lensq=4x3|lensk=5x3|invariant"));
    assert_null(strstr(text, "scale=")); /* the default needs no word */
    tess_problem_line(&p, &line);
    if (tess_line_read(text, &read, &reason) != TESS_OK)
        fail_msg("%s: %s", text, why);
    assert_memory_equal(&read, &line, sizeof line);
}

static void gradients_default_to_the_three(void **state)
{
    const tess_attention_desc desc = small_desc();
    tess_gradient_desc wanted = {TESS_STRUCT(tess_gradient_desc)};
    tess_problem p = problem_of(&desc);

    (void)state;
    assert_fine(NULL, tess_problem_add_gradients(NULL, call, &wanted, &p));
    assert_int_equal(p.pass, TESS_PASS_BACKWARD);
    assert_int_equal(p.gradients, TESS_GRADIENT_Q | TESS_GRADIENT_K | TESS_GRADIENT_V);
    assert_memory_equal(&p.d_o, &p.o, sizeof p.o);
    assert_memory_equal(&p.dq, &p.q, sizeof p.q);
    assert_memory_equal(&p.dk, &p.k, sizeof p.k);
    assert_memory_equal(&p.dv, &p.v, sizeof p.v);
}

static void a_given_gradient_layout_is_taken(void **state)
{
    tess_attention_desc desc = small_desc();
    tess_gradient_desc wanted = {TESS_STRUCT(tess_gradient_desc)};

    (void)state;
    desc.k.head_stride = 0; /* shared by the heads: its gradient cannot lie like it */
    wanted.dk =
        tess_layout_by_head(TESS_F32, SMALL_BATCH, SMALL_COLUMNS, SMALL_HEADS_KV, SMALL_DIM);
    wanted.d_o = desc.o;
    wanted.d_o.batch_stride = wanted.d_o.seqlen_stride = 0; /* one dO for all is an input */
    wanted.d_o.head_stride = wanted.d_o.dim_stride = 0;

    tess_problem p = problem_of(&desc);

    assert_fine(NULL, tess_problem_add_gradients(NULL, call, &wanted, &p));
    assert_int_equal(p.dk.head_stride, SMALL_COLUMNS * SMALL_DIM);
    assert_int_equal(p.d_o.dim_stride, 0);
}

/* A tensor that overlaps itself needs no gradient layout when its gradient is not wanted. */
static void only_wanted_gradients_need_a_layout(void **state)
{
    tess_attention_desc desc = small_desc();
    tess_gradient_desc wanted = {TESS_STRUCT(tess_gradient_desc), .wanted = TESS_GRADIENT_Q};

    (void)state;
    desc.k.head_stride = desc.v.batch_stride = 0;

    tess_problem p = problem_of(&desc);

    assert_fine(NULL, tess_problem_add_gradients(NULL, call, &wanted, &p));
    assert_int_equal(p.gradients, TESS_GRADIENT_Q);
}

static void a_summed_bias_axis_has_stride_zero(void **state)
{
    const tess_bias bias = {TESS_STRUCT(tess_bias), .tensor_stride = {0, 35, 7, 1},
                            .present = TESS_BIAS_TENSOR, .tensor_dtype = TESS_F32};
    tess_attention_desc desc = small_desc();
    tess_gradient_desc wanted = {TESS_STRUCT(tess_gradient_desc), .dbias_stride = {0, 35, 7, 1},
                                 .wanted = TESS_GRADIENT_BIAS};

    (void)state;
    desc.bias = &bias;

    tess_problem p = problem_of(&desc);

    assert_fine(NULL, tess_problem_add_gradients(NULL, call, &wanted, &p));
    assert_memory_equal(p.dbias_stride, wanted.dbias_stride, sizeof p.dbias_stride);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_dense_problem_takes_its_extents),
        cmocka_unit_test(the_scale_is_what_was_meant),
        cmocka_unit_test(a_window_counts_only_where_it_is_asked_for),
        cmocka_unit_test(the_default_lse_is_packed_heads_before_rows),
        cmocka_unit_test(packed_lengths_are_bounded_by_both_bounds),
        cmocka_unit_test(one_side_may_be_packed_alone),
        cmocka_unit_test(pages_bound_the_columns),
        cmocka_unit_test(equal_meanings_are_equal_bytes),
        cmocka_unit_test(the_line_says_what_the_problem_is),
        cmocka_unit_test(gradients_default_to_the_three),
        cmocka_unit_test(a_given_gradient_layout_is_taken),
        cmocka_unit_test(only_wanted_gradients_need_a_layout),
        cmocka_unit_test(a_summed_bias_axis_has_stride_zero),
    };
    const int failed = cmocka_run_group_tests(tests, NULL, NULL);

    return failed != 0;
}
