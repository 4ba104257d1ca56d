/* SPDX-License-Identifier: Apache-2.0
 * Choosing among kernels: priority, ties, patterns, and a reason from everyone who said no. */
#include "core/runtime/select.h"

#include "tests/unit/support.h"

enum { FEATURE_A = 1u << 0, FEATURE_B = 1u << 1 };

/* A question of the backend's own: even head sizes only. */
static tess_refusal even_only(const tess_kernel *kernel, const tess_problem *problem,
                              const tess_caps *caps)
{
    (void)kernel;
    (void)caps;
    if (problem->head_dim % 2 != 0)
        return (tess_refusal){TESS_REFUSED_HEAD_DIM, problem->head_dim, problem->head_dim - 1};
    return (tess_refusal){TESS_ACCEPTED, 0, 0};
}

#define FLOATS (1u << TESS_F32 | 1u << TESS_F16 | 1u << TESS_BF16)

static const tess_kernel kernels[] = {
    {.name = "fwd_plain_any", .priority = 0, .dtypes = FLOATS, .max_head_dim = 512},
    {.name = "bwd_plain_any",
     .pass = TESS_PASS_BACKWARD,
     .priority = 99,
     .dtypes = FLOATS,
     .max_head_dim = 512},
    {.name = "fwd_twin_first", .priority = 10, .dtypes = FLOATS, .max_head_dim = 256},
    {.name = "fwd_twin_second", .priority = 10, .dtypes = FLOATS, .max_head_dim = 256},
    {.name = "fwd_wide_f16",
     .priority = 20,
     .dtypes = 1u << TESS_F16,
     .max_head_dim = 128,
     .features = FEATURE_A,
     .feature_name = "wide"},
    {.name = "fwd_short_f32",
     .priority = 30,
     .dtypes = 1u << TESS_F32,
     .max_head_dim = 64,
     .max_folded_rows = 8},
    {.name = "fwd_even_bf16",
     .priority = 40,
     .dtypes = 1u << TESS_BF16,
     .max_head_dim = 512,
     .features = FEATURE_A | FEATURE_B,
     .feature_name = "even",
     .accept = even_only},
};

enum { KERNELS = sizeof kernels / sizeof kernels[0], FORWARD = KERNELS - 1 };

static tess_problem problem_of(tess_dtype dtype, int64_t rows, int64_t head_dim, int64_t head_dim_v)
{
    return (tess_problem){
        .rows = rows, .group = 1, .dtype = dtype, .head_dim = head_dim, .head_dim_v = head_dim_v};
}

typedef struct choice {
    const char *name; /* "" when all refused */
    tess_candidate candidates[FORWARD];
} choice;

static choice choose(const tess_problem *problem, uint32_t features, const char *glob)
{
    const tess_caps caps = {.features = features};
    choice made;
    const tess_kernel *const chosen =
        tess_select(kernels, KERNELS, glob, problem, &caps, made.candidates);

    made.name = chosen ? chosen->name : "";
    return made;
}

/* The answer of one kernel. */
static tess_refusal answer(const choice *made, const char *name)
{
    for (int i = 0; i < FORWARD; i++)
        if (strcmp(made->candidates[i].kernel->name, name) == 0)
            return made->candidates[i].refusal;
    fail_msg("%s was not asked", name);
    return (tess_refusal){TESS_ACCEPTED, 0, 0};
}

static void assert_answer(const choice *made, const char *name, tess_refusal_code code,
                          int64_t seen, int64_t limit)
{
    const tess_refusal refusal = answer(made, name);

    assert_int_equal(refusal.code, code);
    assert_int_equal(refusal.seen, seen);
    assert_int_equal(refusal.limit, limit);
}

static void the_largest_priority_wins(void **state)
{
    const tess_problem f16 = problem_of(TESS_F16, 100, 64, 64);
    const tess_problem short_f32 = problem_of(TESS_F32, 8, 64, 64);

    (void)state;
    assert_string_equal(choose(&f16, FEATURE_A, NULL).name, "fwd_wide_f16");
    assert_string_equal(choose(&short_f32, 0, NULL).name, "fwd_short_f32");
}

static void the_first_line_wins_among_equals(void **state)
{
    const tess_problem p = problem_of(TESS_F32, 100, 64, 64);
    const choice made = choose(&p, 0, NULL);

    (void)state;
    assert_string_equal(made.name, "fwd_twin_first");
    assert_answer(&made, "fwd_twin_first", TESS_ACCEPTED, 0, 0);
    assert_answer(&made, "fwd_twin_second", TESS_REFUSED_OUTRANKED, 10, 10);
    assert_answer(&made, "fwd_plain_any", TESS_REFUSED_OUTRANKED, 0, 10);
}

/* Everyone of the pass is asked, in the order of the table, and nobody of the other pass. */
static void kernels_of_the_other_pass_are_not_asked(void **state)
{
    tess_problem p = problem_of(TESS_F32, 1, 8, 8);
    const choice made = choose(&p, 0, NULL);
    tess_candidate backward[1];

    (void)state;
    assert_int_equal(tess_select_count(kernels, KERNELS, TESS_PASS_FORWARD), FORWARD);
    assert_int_equal(tess_select_count(kernels, KERNELS, TESS_PASS_BACKWARD), 1);
    assert_string_equal(made.candidates[0].kernel->name, "fwd_plain_any");
    assert_string_equal(made.candidates[1].kernel->name, "fwd_twin_first");
    p.pass = TESS_PASS_BACKWARD;
    assert_ptr_equal(tess_select(kernels, KERNELS, NULL, &p, &(tess_caps){0}, backward),
                     &kernels[1]);
    assert_null(tess_select(kernels, 1, NULL, &p, &(tess_caps){0}, NULL));
}

static void every_limit_is_a_reason_with_both_numbers(void **state)
{
    tess_problem p = problem_of(TESS_F16, 100, 64, 300);
    choice made = choose(&p, 0, NULL);

    (void)state;
    assert_answer(&made, "fwd_twin_first", TESS_REFUSED_HEAD_DIM, 300, 256);
    assert_answer(&made, "fwd_wide_f16", TESS_REFUSED_FEATURE, 0, FEATURE_A);
    assert_answer(&made, "fwd_short_f32", TESS_REFUSED_DTYPE, TESS_F16, 1 << TESS_F32);
    assert_answer(&made, "fwd_plain_any", TESS_ACCEPTED, 0, 0);

    p = problem_of(TESS_F32, 3, 16, 16); /* three rows of three heads */
    p.group = 3;
    made = choose(&p, FEATURE_B, NULL);
    assert_answer(&made, "fwd_short_f32", TESS_REFUSED_ROWS, 9, 8);
    assert_answer(&made, "fwd_even_bf16", TESS_REFUSED_FEATURE, FEATURE_B, FEATURE_A | FEATURE_B);

    p = problem_of(TESS_BF16, 3, 15, 16); /* the backend's own question comes last */
    made = choose(&p, FEATURE_A | FEATURE_B, NULL);
    assert_answer(&made, "fwd_even_bf16", TESS_REFUSED_HEAD_DIM, 15, 14);
    assert_string_equal(made.name, "fwd_twin_first");
    p.head_dim = 14;
    assert_string_equal(choose(&p, FEATURE_A | FEATURE_B, NULL).name, "fwd_even_bf16");
}

/* Few rows of a batch have the bits that they have beside many. */
static void batch_invariance_takes_short_kernels_of_the_same_bits(void **state)
{
    tess_kernel some[] = {
        {.name = "any", .priority = 1, .dtypes = FLOATS, .max_head_dim = 64, .arithmetic = 3},
        {.name = "short",
         .priority = 2,
         .dtypes = FLOATS,
         .max_head_dim = 64,
         .max_folded_rows = 8},
    };
    tess_problem p = problem_of(TESS_F32, 4, 8, 8);
    tess_candidate made[2];

    (void)state;
    for (int invariant = 0; invariant < 2; invariant++)
        for (uint32_t arithmetic = 0; arithmetic < 5; arithmetic++) {
            const bool takes = !invariant || arithmetic == 3;

            p.flags = invariant ? TESS_BATCH_INVARIANT : 0;
            some[1].arithmetic = arithmetic;
            assert_ptr_equal(tess_select(some, 2, NULL, &p, &(tess_caps){0}, made), &some[takes]);
            assert_int_equal(made[1].refusal.code, takes ? TESS_ACCEPTED : TESS_REFUSED_BITS);
        }
    some[0].arithmetic = some[1].arithmetic = 0; /* no promise is no equality */
    assert_ptr_equal(tess_select(some, 2, NULL, &p, &(tess_caps){0}, made), &some[0]);
    /* Where somebody named the short one there is no other to be equal to. */
    assert_ptr_equal(tess_select(some, 2, "short", &p, &(tess_caps){0}, made), &some[1]);
}

static void what_no_kernel_does_is_refused_by_all(void **state)
{
    tess_problem program = problem_of(TESS_F32, 1, 8, 8), scaling = program, wide = program;

    (void)state;
    program.has_program = true;
    scaling.has_scaling = true;
    wide.head_dim_v = 513;

    choice made = choose(&program, ~0u, NULL);
    assert_string_equal(made.name, "");
    for (int i = 0; i < FORWARD; i++)
        assert_int_equal(made.candidates[i].refusal.code, TESS_REFUSED_PROGRAM);
    made = choose(&scaling, ~0u, NULL);
    assert_string_equal(made.name, "");
    assert_answer(&made, "fwd_plain_any", TESS_REFUSED_SCALING, 0, 0);
    made = choose(&wide, ~0u, NULL);
    assert_string_equal(made.name, "");
    assert_answer(&made, "fwd_plain_any", TESS_REFUSED_HEAD_DIM, 513, 512);
}

static void a_pattern_excludes_all_other_names(void **state)
{
    const tess_problem p = problem_of(TESS_F32, 4, 64, 64);
    choice made = choose(&p, 0, "fwd_twin_*");

    (void)state;
    assert_string_equal(made.name, "fwd_twin_first");
    assert_answer(&made, "fwd_short_f32", TESS_REFUSED_NAME, 0, 0);
    assert_answer(&made, "fwd_plain_any", TESS_REFUSED_NAME, 0, 0);
    assert_string_equal(choose(&p, 0, "fwd_twin_second").name, "fwd_twin_second");
    assert_string_equal(choose(&p, 0, "*plain*").name, "fwd_plain_any");
    assert_string_equal(choose(&p, 0, "").name, "fwd_short_f32");
    assert_string_equal(choose(&p, 0, "fwd_plain").name, ""); /* the whole name */
    /* A name that matches and refuses for its own reason stays refused: no fallback. */
    made = choose(&p, 0, "fwd_wide_f16");
    assert_string_equal(made.name, "");
    assert_answer(&made, "fwd_wide_f16", TESS_REFUSED_FEATURE, 0, FEATURE_A);
}

static void the_text_has_a_line_for_everyone_who_said_no(void **state)
{
    const tess_problem p = problem_of(TESS_F32, 100, 200, 64);
    const choice made = choose(&p, FEATURE_A | FEATURE_B, NULL);
    char text[2048];
    tess_text out = tess_text_in(text, sizeof text);
    int lines = 0;

    (void)state;
    tess_select_write(made.candidates, FORWARD, &out);
    for (const char *at = text; (at = strstr(at, "\n    ")) != NULL; at++)
        lines++;
    assert_int_equal(lines, FORWARD - 1);
    assert_null(strstr(text, "fwd_twin_first")); /* the chosen one */
    assert_true(holds_pieces(text,
                             "fwd_plain_any|would do; another is preferred (priority 10 over 0)|"
                             "fwd_wide_f16|takes f16, not f32|"
                             "fwd_short_f32|head_dim 200 is above 64|"
                             "fwd_even_bf16|takes bf16, not f32"));
}

/* Each code has words of its own. */
static void every_reason_can_be_said(void **state)
{
    static const struct {
        tess_refusal refusal;
        const char *pieces;
    } cases[] = {
        {{TESS_ACCEPTED, 0, 0}, "accepted"},
        {{TESS_REFUSED_PASS, 0, 0}, "forward pass only"},
        {{TESS_REFUSED_DTYPE, TESS_E4M3, 0}, "takes f32, f16, bf16, not e4m3"},
        {{TESS_REFUSED_HEAD_DIM, 520, 256}, "head_dim 520 is above 256"},
        {{TESS_REFUSED_FEATURE, 0, 1}, "needs wide"},
        {{TESS_REFUSED_ROWS, 9, 8}, "at most 8 rows|not 9"},
        {{TESS_REFUSED_SCORES, 0, 0}, "plain scores only|softcap"},
        {{TESS_REFUSED_WAVE, 64, 32}, "waves of 32 lanes, not 64"},
        {{TESS_REFUSED_SHARED, 1000, 2000}, "needs 2000 bytes|the device has 1000"},
        {{TESS_REFUSED_SCALING, 0, 0}, "descale factors"},
        {{TESS_REFUSED_PROGRAM, 0, 0}, "program"},
        {{TESS_REFUSED_GRADIENT, 0x11, 0x7}, "0x11 asked for, 0x7 offered"},
        {{TESS_REFUSED_BITS, 0, 8}, "at most 8 rows|TESS_BATCH_INVARIANT"},
        {{TESS_REFUSED_NAME, 0, 0}, "TESSERA_KERNEL"},
        {{TESS_REFUSED_OUTRANKED, 1, 2}, "priority 2 over 1"},
    };
    const tess_kernel kernel = {.name = "k", .dtypes = FLOATS, .feature_name = "wide"};

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char text[256];
        tess_text out = tess_text_in(text, sizeof text);

        tess_refusal_write(&cases[i].refusal, &kernel, &out);
        if (!holds_pieces(text, cases[i].pieces))
            fail_msg("\"%s\" does not hold %s", text, cases[i].pieces);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_largest_priority_wins),
        cmocka_unit_test(the_first_line_wins_among_equals),
        cmocka_unit_test(kernels_of_the_other_pass_are_not_asked),
        cmocka_unit_test(every_limit_is_a_reason_with_both_numbers),
        cmocka_unit_test(batch_invariance_takes_short_kernels_of_the_same_bits),
        cmocka_unit_test(what_no_kernel_does_is_refused_by_all),
        cmocka_unit_test(a_pattern_excludes_all_other_names),
        cmocka_unit_test(the_text_has_a_line_for_everyone_who_said_no),
        cmocka_unit_test(every_reason_can_be_said),
    };
    const int failed = cmocka_run_group_tests(tests, NULL, NULL);

    return failed != 0;
}
