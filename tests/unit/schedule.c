/* SPDX-License-Identifier: Apache-2.0
 * Schedules: the kernel's block of numbers, the splits, and a workspace without a shared byte. */
#include "core/schedule/schedule.h"

#include "core/base/alloc.h"
#include "tests/kit/random.h"
#include "tests/unit/support.h"

static const char call[] = "a_test";

/* A kernel that exists on paper; its scratch is set by a test. */
static size_t scratch_wanted;

static size_t paper_scratch(int64_t head_dim, int64_t head_dim_v)
{
    (void)head_dim;
    (void)head_dim_v;
    return scratch_wanted;
}

static const tess_kernel paper = {.name = "fwd_paper_f32_m16n64",
                                  .pass = TESS_PASS_FORWARD,
                                  .dtypes = 1u << TESS_F32,
                                  .max_head_dim = 512,
                                  .tile_rows = 16,
                                  .tile_columns = 64,
                                  .scratch = paper_scratch};

static const tess_kernel paper_backward = {.name = "bwd_paper_f32_m16n64",
                                           .pass = TESS_PASS_BACKWARD,
                                           .dtypes = 1u << TESS_F32,
                                           .max_head_dim = 512,
                                           .tile_rows = 16,
                                           .tile_columns = 64,
                                           .scratch = paper_scratch};

static const tess_kernel *paper_of(const tess_problem *problem)
{
    return problem->pass == TESS_PASS_FORWARD ? &paper : &paper_backward;
}

static tess_problem problem_of(const tess_attention_desc *desc)
{
    tess_problem problem;

    assert_fine(NULL, tess_problem_make(NULL, call, desc, &problem));
    return problem;
}

static tess_problem dense(int64_t batch, int64_t rows, int64_t columns, int64_t heads,
                          int64_t heads_kv, int64_t dim)
{
    const tess_attention_desc desc = {
        TESS_STRUCT(tess_attention_desc),
        .q = tess_layout_packed(TESS_F32, batch, rows, heads, dim),
        .k = tess_layout_packed(TESS_F32, batch, columns, heads_kv, dim),
        .v = tess_layout_packed(TESS_F32, batch, columns, heads_kv, dim),
        .o = tess_layout_packed(TESS_F32, batch, rows, heads, dim)};

    return problem_of(&desc);
}

static tess_schedule schedule_of(const tess_problem *problem, int32_t units, int32_t workers)
{
    const tess_caps caps = {.units = units, .architecture = "paper"};
    tess_schedule schedule;

    assert_fine(NULL, tess_schedule_make(NULL, call, problem, paper_of(problem), &caps, workers,
                                         &schedule));
    return schedule;
}

static void the_block_repeats_the_problem(void **state)
{
    const tess_bias bias = {TESS_STRUCT(tess_bias),
                            .tensor_stride = {1, 2, 3, 4},
                            .slope_stride = {5, 6},
                            .sink_stride = 7,
                            .present = TESS_BIAS_TENSOR | TESS_BIAS_ALIBI | TESS_BIAS_SINK,
                            .tensor_dtype = TESS_BF16};
    tess_attention_desc desc = small_desc();

    (void)state;
    desc.bias = &bias;
    desc.mask = TESS_MASK_WINDOW | TESS_MASK_CAUSAL;
    desc.window_left = 4;
    desc.window_right = 1;
    desc.softcap = 2;
    desc.softmax_scale = -0.25f;
    desc.lse = tess_layout_packed(TESS_F32, SMALL_BATCH, SMALL_ROWS, SMALL_HEADS, 1);

    const tess_problem p = problem_of(&desc);
    const tess_schedule s = schedule_of(&p, 4, 2);
    const tess_args *const a = &s.args;

    assert_memory_equal(a->q_stride, ((tess_i64[]){240, 48, 8, 1}), sizeof a->q_stride);
    assert_memory_equal(a->k_stride, ((tess_i64[]){168, 24, 8, 1}), sizeof a->k_stride);
    assert_memory_equal(a->v_stride, ((tess_i64[]){84, 12, 4, 1}), sizeof a->v_stride);
    assert_memory_equal(a->o_stride, ((tess_i64[]){120, 24, 4, 1}), sizeof a->o_stride);
    assert_memory_equal(a->lse_stride, ((tess_i64[]){30, 6, 1}), sizeof a->lse_stride);
    assert_memory_equal(a->bias_stride, ((tess_i64[]){1, 2, 3, 4}), sizeof a->bias_stride);
    assert_memory_equal(a->slope_stride, ((tess_i64[]){5, 6}), sizeof a->slope_stride);
    assert_int_equal(a->sink_stride, 7);
    assert_int_equal(a->sequences, SMALL_BATCH);
    assert_int_equal(a->rows, SMALL_ROWS);
    assert_int_equal(a->columns, SMALL_COLUMNS);
    assert_int_equal(a->heads_q, SMALL_HEADS);
    assert_int_equal(a->heads_kv, SMALL_HEADS_KV);
    assert_int_equal(a->group, 2);
    assert_int_equal(a->head_dim, SMALL_DIM);
    assert_int_equal(a->head_dim_v, SMALL_DIM_V);
    assert_int_equal(a->window_left, 4);
    assert_int_equal(a->window_right, 1);
    assert_int_equal(a->mask, TESS_MASK_WINDOW | TESS_MASK_CAUSAL);
    assert_int_equal(a->bias, bias.present);
    assert_int_equal(a->bias_dtype, TESS_BF16);
    assert_true(a->scale == -0.25f && a->softcap == 2.0f);
    assert_int_equal(a->tile_rows, 16);
    assert_int_equal(a->tile_columns, 64);
    assert_int_equal(a->row_tiles, 1); /* 5 rows of 2 heads */
    assert_int_equal(a->page_size, 0);
    assert_int_equal(s.work_items, SMALL_BATCH * SMALL_HEADS_KV);
    assert_true(s.cost.pairs > 0);
    assert_ptr_equal(s.kernel, &paper);
}

static void packed_and_paged_extents_reach_the_block(void **state)
{
    const tess_varlen varlen = {TESS_STRUCT(tess_varlen), .sequences = 3, .max_seqlen_q = 40,
                                .present = TESS_VARLEN_CU_SEQLENS_Q | TESS_VARLEN_SEQUSED_K,
                                .index_dtype = TESS_I64};
    const tess_paging paging = {TESS_STRUCT(tess_paging), .max_pages = 4, .table_stride = 9};
    const tess_attention_desc desc = {TESS_STRUCT(tess_attention_desc),
                                      .q = tess_layout_packed(TESS_F32, 1, 100, 4, 8),
                                      .k = tess_layout_packed(TESS_F32, 70, 16, 2, 8),
                                      .v = tess_layout_packed(TESS_F32, 70, 16, 2, 8),
                                      .o = tess_layout_packed(TESS_F32, 1, 100, 4, 8),
                                      .varlen = &varlen,
                                      .paging = &paging};
    const tess_problem p = problem_of(&desc);
    const tess_args a = schedule_of(&p, 4, 1).args;

    (void)state;
    assert_int_equal(a.sequences, 3);
    assert_int_equal(a.rows, 40);
    assert_int_equal(a.total_rows, 100);
    assert_int_equal(a.columns, 64);
    assert_int_equal(a.pages, 70);
    assert_int_equal(a.page_size, 16);
    assert_int_equal(a.page_table_stride, 9);
    assert_int_equal(a.max_pages, 4);
    assert_int_equal(a.index_is_64, 1);
    assert_int_equal(a.varlen, varlen.present);
    assert_int_equal(a.row_tiles, 5); /* 40 rows of 2 heads in tiles of 16 */
}

/* ---- Splits ------------------------------------------------------------------------------------
 */

static void asked_for_splits_are_given_up_to_one_per_tile(void **state)
{
    static const struct {
        int64_t columns, asked, wanted;
    } cases[] = {{640, 1, 1},   {640, 2, 2},      {640, 10, 10},
                 {640, 11, 10}, {640, 65536, 10}, {641, 65536, 11},
                 {0, 65536, 1}, {1, 7, 1},        {INT32_MAX, 999, 999}};

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        tess_problem p = dense(1, 1, cases[i].columns, 1, 1, 8);

        p.num_splits = cases[i].asked;
        assert_int_equal(schedule_of(&p, 8, 1).args.splits, cases[i].wanted);
        p.flags = TESS_BATCH_INVARIANT; /* a wish is not a look at the batch */
        assert_int_equal(schedule_of(&p, 8, 1).args.splits, cases[i].wanted);
    }
}

static void few_rows_are_split_unless_bits_must_not_depend_on_it(void **state)
{
    tess_problem p = dense(1, 1, 100000, 1, 1, 8);

    (void)state;
    assert_int_equal(schedule_of(&p, 8, 8).args.splits, 16);
    assert_int_equal(schedule_of(&p, 1, 1).args.splits, 1);
    p.flags = TESS_BATCH_INVARIANT;
    for (int32_t units = 1; units < 1000; units = units * 3 + 1)
        assert_int_equal(schedule_of(&p, units, 1).args.splits, 1);
}

/* ---- The workspace --------------------------------------------------------------------------- */

typedef struct region {
    int64_t first, end;
} region;

static void check_workspace(const tess_schedule *s)
{
    const tess_args *const a = &s->args;
    const int64_t rows = tess_problem_total_rows(&s->problem) * a->heads_q * a->splits;
    region regions[5];
    int count = 0;

    if (s->workers) {
        assert_true(a->scratch_size >= (int64_t)scratch_wanted);
        assert_true(a->scratch_size >= a->head_dim_v * 4); /* what merging needs */
        assert_int_equal(a->scratch_size % TESS_ALIGNMENT, 0);
        regions[count++] =
            (region){a->sequence_list, a->sequence_list + (2 * a->sequences + 1) * 8};
        regions[count++] = (region){a->scratch, a->scratch + s->workers * a->scratch_size};
    }
    if (s->problem.pass == TESS_PASS_BACKWARD) {
        regions[count++] = (region){a->delta, a->delta + rows * 4};
        regions[count++] =
            (region){a->partial_dq, a->partial_dq + rows * a->dq_buffers * a->head_dim * 4};
        assert_true(a->dq_buffers >= 1);
        if (s->problem.gradients & TESS_GRADIENT_ALIBI)
            regions[count++] =
                (region){a->partial_bias, a->partial_bias + s->work_items * s->problem.group * 4};
    } else if (a->splits > 1) {
        regions[count++] = (region){a->partial_o, a->partial_o + rows * a->head_dim_v * 4};
        regions[count++] = (region){a->partial_lse, a->partial_lse + rows * 4};
    }
    if (count == 0)
        assert_int_equal(s->workspace_size, 0);
    for (int i = 0; i < count; i++) {
        assert_int_equal(regions[i].first % TESS_ALIGNMENT, 0);
        assert_true(regions[i].first >= 0);
        if (regions[i].end == regions[i].first)
            continue;
        /* What aligning the caller's address may skip is left over at the end. */
        assert_true(regions[i].end + TESS_ALIGNMENT - 1 <= (int64_t)s->workspace_size);
        for (int j = 0; j < i; j++)
            assert_true(regions[i].end <= regions[j].first || regions[j].end <= regions[i].first);
    }
}

static void no_two_regions_share_a_byte(void **state)
{
    tess_random random = tess_random_start(1, 4);
    int split = 0;

    (void)state;
    for (int i = 0; i < 2000; i++) {
        const int64_t heads_kv = 1 + tess_random_below(&random, 4);
        tess_problem p =
            dense(tess_random_below(&random, 5), tess_random_below(&random, 50),
                  tess_random_below(&random, 3000), heads_kv * (1 + tess_random_below(&random, 5)),
                  heads_kv, 1 + tess_random_below(&random, 300));
        p.num_splits = tess_random_below(&random, 20);
        scratch_wanted = (size_t)tess_random_below(&random, 3000);

        const tess_schedule s = schedule_of(&p, 1 + (int32_t)tess_random_below(&random, 64),
                                            (int32_t)tess_random_below(&random, 20));
        check_workspace(&s);
        split += s.args.splits > 1;
    }
    scratch_wanted = 0;
    assert_true(split > 200);
}

static void no_two_regions_of_a_backward_pass_share_a_byte(void **state)
{
    tess_random random = tess_random_start(1, 5);

    (void)state;
    for (int i = 0; i < 2000; i++) {
        const int64_t heads_kv = 1 + tess_random_below(&random, 4);
        const tess_gradient_desc wanted = {TESS_STRUCT(tess_gradient_desc)};
        tess_problem p =
            dense(tess_random_below(&random, 5), tess_random_below(&random, 50),
                  tess_random_below(&random, 9000), heads_kv * (1 + tess_random_below(&random, 5)),
                  heads_kv, 1 + tess_random_below(&random, 300));

        assert_fine(NULL, tess_problem_add_gradients(NULL, call, &wanted, &p));
        if (tess_random_once_in(&random, 2))
            p.gradients |= TESS_GRADIENT_ALIBI;
        if (tess_random_once_in(&random, 2))
            p.flags |= TESS_BATCH_INVARIANT;
        scratch_wanted = (size_t)tess_random_below(&random, 3000);

        const tess_schedule s = schedule_of(&p, 1 + (int32_t)tess_random_below(&random, 64),
                                            (int32_t)tess_random_below(&random, 20));
        check_workspace(&s);
    }
    scratch_wanted = 0;
}

static void one_split_needs_no_partial_results(void **state)
{
    const tess_problem p = dense(4, 100, 100, 4, 4, 64);

    (void)state;
    assert_int_equal(schedule_of(&p, 1, 0).workspace_size, 0);
}

static void only_rows_count_in_the_workspace(void **state)
{
    tess_problem few = dense(1, 1000, 1000, 2, 2, 64), many = dense(1, 1000, 100000, 2, 2, 64);

    (void)state;
    few.num_splits = many.num_splits = 8;
    assert_int_equal(schedule_of(&few, 1, 4).workspace_size,
                     schedule_of(&many, 1, 4).workspace_size);
}

/* ---- Products that leave 64 bits ------------------------------------------------------------- */

static void assert_too_large(const tess_problem *problem, int32_t workers, const char *pieces)
{
    const tess_caps caps = {.units = 1};
    tess_schedule schedule;

    memset(&schedule, 0x5a, sizeof schedule);
    assert_refused(
        NULL, tess_schedule_make(NULL, call, problem, paper_of(problem), &caps, workers, &schedule),
        TESS_INVALID, call, pieces, pieces);
    assert_int_equal(*(const unsigned char *)&schedule, 0x5a);
}

static void products_out_of_range_are_refused(void **state)
{
    const int64_t most = INT32_MAX;
    tess_problem p = dense(1, 1, 1, 1, 1, 8);

    (void)state;
    p.sequences = p.heads_kv = p.rows = most;
    assert_too_large(&p, 1, "sequences x heads x row tiles leaves 64 bits");

    p = dense(1, 1, 1, 1, 1, 8); /* items fit, items x splits do not */
    p.sequences = p.heads_kv = most;
    p.columns = most;
    p.num_splits = 65536;
    assert_too_large(&p, 1, "workspace of 65536 splits leaves 64 bits");

    p = dense(1, 1, 1, 1, 1, 8); /* items of a backward pass are shares of the columns */
    p.pass = TESS_PASS_BACKWARD;
    p.sequences = p.heads_kv = p.columns = most;
    assert_too_large(&p, 1, "sequences x heads x shares of the columns leaves 64 bits");

    p = dense(1, 1, 1, 1, 1, 8); /* rows x heads x splits */
    p.q.batch = p.q.seqlen = most;
    p.heads_q = most;
    p.columns = most;
    p.num_splits = 2;
    assert_too_large(&p, 1, "workspace of 2 splits leaves 64 bits");

    p = dense(1, 1, 1, 1, 1, 8); /* scratch x workers */
    scratch_wanted = SIZE_MAX / 16;
    assert_too_large(&p, 64, "leaves 64 bits");
    scratch_wanted = 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_block_repeats_the_problem),
        cmocka_unit_test(packed_and_paged_extents_reach_the_block),
        cmocka_unit_test(asked_for_splits_are_given_up_to_one_per_tile),
        cmocka_unit_test(few_rows_are_split_unless_bits_must_not_depend_on_it),
        cmocka_unit_test(no_two_regions_share_a_byte),
        cmocka_unit_test(no_two_regions_of_a_backward_pass_share_a_byte),
        cmocka_unit_test(one_split_needs_no_partial_results),
        cmocka_unit_test(only_rows_count_in_the_workspace),
        cmocka_unit_test(products_out_of_range_are_refused),
    };
    const int failed = cmocka_run_group_tests(tests, NULL, NULL);

    return failed != 0;
}
