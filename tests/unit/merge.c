/* SPDX-License-Identifier: Apache-2.0
 * Merging partial results: what is refused, what is exact, and that no grouping matters.
 *
 * Usage: merge [DEVICE], one that takes host addresses; the CPU without. */
#include "tests/unit/support.h"

#include <math.h>

enum { BATCH = 2, SEQLEN = 3, HEADS = 4, DIM = 5, PARTS = 3 };
enum { PART = BATCH * SEQLEN * HEADS * DIM, ROWS = BATCH * SEQLEN * HEADS };

static const int64_t FAR = (int64_t)1 << 60;
static const char call[] = "tess_queue_merge";

/* Three parts of (2, 3, 4, 5), with room between one tensor and the next. */
typedef struct memory {
    float o_part[PARTS * PART], gap_a[PART];
    float lse_part[PARTS * ROWS], gap_b[PART];
    float o[PART], gap_c[PART];
    float lse[ROWS], gap_d[PART];
} memory;

typedef struct fixture {
    world w;
    memory m;
    tess_merge_desc desc;
    tess_merge_args args;
} fixture;

static tess_merge_desc desc_of(int64_t parts, int64_t rows, int64_t dim)
{
    const tess_layout o = tess_layout_packed(TESS_F32, 1, rows, 1, dim);
    const tess_layout lse = tess_layout_packed(TESS_F32, 1, rows, 1, 1);

    return (tess_merge_desc){TESS_STRUCT(tess_merge_desc), parts, o, lse, rows * dim, rows, o, lse};
}

static void fill(fixture *f)
{
    draw_all((float *)(void *)&f->m, sizeof f->m / sizeof(float), 7);
    f->desc = (tess_merge_desc){TESS_STRUCT(tess_merge_desc),
                                .parts = PARTS,
                                .o_part = tess_layout_packed(TESS_F32, BATCH, SEQLEN, HEADS, DIM),
                                .lse_part = tess_layout_by_head(TESS_F32, BATCH, SEQLEN, HEADS, 1),
                                .o_part_stride = PART,
                                .lse_part_stride = ROWS,
                                .o = tess_layout_packed(TESS_F32, BATCH, SEQLEN, HEADS, DIM),
                                .lse = tess_layout_by_head(TESS_F32, BATCH, SEQLEN, HEADS, 1)};
    f->args =
        (tess_merge_args){TESS_STRUCT(tess_merge_args), .o_part = {f->m.o_part, 0},
                          .lse_part = {f->m.lse_part, 0}, .o = {f->m.o, 0}, .lse = {f->m.lse, 0}};
}

static fixture fixed;
static const char *device = "cpu";

static int set_up(void **state)
{
    *state = &fixed;
    world_open_on(&fixed.w, device, 2);
    fill(&fixed);
    return 0;
}

static int tear_down(void **state)
{
    fixture *const f = *state;
    world_close(&f->w);
    return 0;
}

/* ---- Refusals -------------------------------------------------------------------------------- */

static const struct {
    int line;
    const char *pieces, *change;
} refusals[] = {
#define REFUSED(pieces, ...) {__LINE__, pieces, #__VA_ARGS__},
#include "tests/unit/merge_refusals.def"
#undef REFUSED
};

static void apply(fixture *f, int line)
{
    tess_merge_desc *const d = &f->desc;
    tess_merge_args *const a = &f->args;
    memory *const m = &f->m;

    switch (line) {
#define REFUSED(pieces, ...) \
    case __LINE__:           \
        __VA_ARGS__;         \
        break;
#include "tests/unit/merge_refusals.def"
#undef REFUSED
    default:
        fail_msg("no line %d", line);
    }
}

static void every_wrong_merge_is_refused(void **state)
{
    static memory before, right;
    fixture *const f = *state;

    before = f->m;
    assert_fine(f->w.context, tess_queue_merge(f->w.queue, &f->desc, &f->args));
    right = f->m;
    for (size_t i = 0; i < sizeof refusals / sizeof refusals[0]; i++) {
        char name[256];

        fill(f);
        apply(f, refusals[i].line);
        snprintf(name, sizeof name, "merge_refusals.def:%d: %s", refusals[i].line,
                 refusals[i].change);
        assert_refused(f->w.context, tess_queue_merge(f->w.queue, &f->desc, &f->args), TESS_INVALID,
                       call, refusals[i].pieces, name);
        assert_memory_equal(&f->m, &before, sizeof before);
        fill(f);
        assert_fine(f->w.context, tess_queue_merge(f->w.queue, &f->desc, &f->args));
        assert_memory_equal(&f->m, &right, sizeof right);
    }
}

static void what_is_missing_or_too_new_is_named(void **state)
{
    fixture *const f = *state;
    union {
        tess_merge_args args;
        unsigned char bytes[sizeof(tess_merge_args) + 16];
    } later;

    assert_refused(NULL, tess_queue_merge(NULL, &f->desc, &f->args), TESS_INVALID, call,
                   "queue is NULL", "no queue");
    assert_refused(f->w.context, tess_queue_merge(f->w.queue, NULL, &f->args), TESS_INVALID, call,
                   "desc is NULL", "no descriptor");
    assert_refused(f->w.context, tess_queue_merge(f->w.queue, &f->desc, NULL), TESS_INVALID, call,
                   "args is NULL", "no arguments");
    memset(&later, 0, sizeof later);
    later.args = f->args;
    later.args.struct_size = sizeof later;
    assert_fine(f->w.context, tess_queue_merge(f->w.queue, &f->desc, &later.args));
    later.bytes[sizeof later - 1] = 1;
    assert_refused(f->w.context, tess_queue_merge(f->w.queue, &f->desc, &later.args), TESS_TOO_NEW,
                   call, "args has a member set at byte", "a new member");
}

/* ---- What is exact --------------------------------------------------------------------------- */

/* Merges `parts` parts of one row of one dimension. */
static void merge_row(fixture *f, int parts, const float *o, const float *lse, float *out_o,
                      float *out_lse)
{
    const tess_merge_desc desc = desc_of(parts, 1, 1);
    const tess_merge_args args = {
        TESS_STRUCT(tess_merge_args), {o, 0}, {lse, 0}, {out_o, 0}, {out_lse, 0}};

    assert_fine(f->w.context, tess_queue_merge(f->w.queue, &desc, &args));
}

static void known_answers(void **state)
{
    static const struct {
        int parts;
        float o[4], lse[4], wanted_o, wanted_lse, tolerance;
    } cases[] = {
        {2, {0, 0}, {-INFINITY, -INFINITY}, 0, -INFINITY, 0},
        {2, {5, 7}, {-INFINITY, 1}, 7, 1, 0},
        {2, {NAN, 7}, {-INFINITY, 1}, 7, 1, 0}, /* whatever the O of an empty part holds */
        {2, {INFINITY, 7}, {-INFINITY, 1}, 7, 1, 0},
        {3, {NAN, NAN, -INFINITY}, {-INFINITY, -INFINITY, -INFINITY}, 0, -INFINITY, 0},
        {2, {1, 3}, {0, 1.09861229f}, 2.5f, 1.38629436f, 1e-6f}, /* natural logarithms */
        {2, {1, 3}, {0, 0}, 2, 0.693147181f, 1e-7f},
        {4, {1, 2, 3, 4}, {5, 5, 5, 5}, 2.5f, 6.38629436f, 1e-6f},
        {1, {-3.25f}, {-70000}, -3.25f, -70000, 0},
        {2, {1, 3}, {100000, 100001}, 2.46211716f, 100001.313f, 1e-2f},
        {2, {1, 3}, {-100000, -100001}, 1.53788284f, -99999.687f, 1e-2f},
        {2, {1, 3}, {3e38f, -3e38f}, 1, 3e38f, 0},
        {2, {8, 3}, {0, -200}, 8, 0, 0}, /* a part that is there and weighs nothing */
    };
    fixture *const f = *state;

    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        float o = 42, lse = 42;

        merge_row(f, cases[i].parts, cases[i].o, cases[i].lse, &o, &lse);
        if (!(fabsf(o - cases[i].wanted_o) <=
              (cases[i].tolerance > 1e-3f ? 1e-6f : cases[i].tolerance)))
            fail_msg("case %zu: O is %g, not %g", i, (double)o, (double)cases[i].wanted_o);
        if (!(lse == cases[i].wanted_lse || fabsf(lse - cases[i].wanted_lse) <= cases[i].tolerance))
            fail_msg("case %zu: LSE is %g, not %g", i, (double)lse, (double)cases[i].wanted_lse);
        if (o == 0.0f)
            assert_false(signbit(o));
    }
}

static void a_nan_that_is_there_stays(void **state)
{
    fixture *const f = *state;
    float o = 42, lse = 42;

    merge_row(f, 2, (float[]){NAN, 1}, (float[]){0, 0}, &o, &lse);
    assert_true(isnan(o));
    assert_true(fabsf(lse - 0.6931472f) < 1e-6f);
    merge_row(f, 2, (float[]){2, 1}, (float[]){NAN, 0}, &o, &lse);
    assert_true(isnan(o) && isnan(lse));
    merge_row(f, 2, (float[]){2, 1}, (float[]){0, NAN}, &o, &lse);
    assert_true(isnan(o) && isnan(lse));
    merge_row(f, 2, (float[]){2, 1}, (float[]){-INFINITY, NAN}, &o, &lse);
    assert_true(isnan(o) && isnan(lse));
}

static void one_part_is_copied(void **state)
{
    fixture *const f = *state;

    f->desc.parts = 1;
    f->desc.o_part_stride = INT64_MIN; /* the way to a second part is never taken */
    f->desc.lse_part_stride = INT64_MAX;
    assert_fine(f->w.context, tess_queue_merge(f->w.queue, &f->desc, &f->args));
    assert_memory_equal(f->m.o, f->m.o_part, sizeof f->m.o);
    for (int i = 0; i < ROWS; i++)
        assert_true(fabsf(f->m.lse[i] - f->m.lse_part[i]) <= 1e-7f);
}

/* ---- Against double precision, many parts, every grouping ------------------------------------ */

enum { MANY = 300, WIDTH = 7 };

/* The rule of the header for one row, in double precision. */
static void reference(const float *o, const float *lse, int parts, double *out_o, double *out_lse)
{
    double most = -INFINITY, sum = 0;

    for (int p = 0; p < parts; p++)
        most = lse[p] > most ? (double)lse[p] : most;
    for (int d = 0; d < WIDTH; d++)
        out_o[d] = 0;
    for (int p = 0; p < parts && most > -INFINITY; p++) {
        const double weight = exp((double)lse[p] - most);
        sum += weight;
        for (int d = 0; d < WIDTH; d++)
            out_o[d] += weight > 0 ? weight * (double)o[p * WIDTH + d] : 0;
    }
    for (int d = 0; d < WIDTH && sum > 0; d++)
        out_o[d] /= sum;
    *out_lse = most + log(sum);
}

static void draw_parts(float o[MANY * WIDTH], float lse[MANY], uint64_t seed)
{
    draw_all(o, MANY * WIDTH, seed);
    for (int p = 0; p < MANY; p++) {
        lse[p] = 20 * drawn(seed + 1, (uint64_t)p);
        if (p % 5 == 2) {
            lse[p] = -INFINITY;
            o[p * WIDTH] = NAN; /* junk */
        }
    }
}

static void many_parts_follow_the_rule(void **state)
{
    fixture *const f = *state;
    float o[MANY * WIDTH], lse[MANY], got[WIDTH], got_lse;
    double wanted[WIDTH], wanted_lse;

    for (int parts = 1; parts <= MANY; parts = parts * 3 / 2 + 1) {
        const tess_merge_desc desc = desc_of(parts, 1, WIDTH);
        const tess_merge_args args = {
            TESS_STRUCT(tess_merge_args), {o, 0}, {lse, 0}, {got, 0}, {&got_lse, 0}};

        draw_parts(o, lse, (uint64_t)parts);
        reference(o, lse, parts, wanted, &wanted_lse);
        assert_fine(f->w.context, tess_queue_merge(f->w.queue, &desc, &args));
        for (int d = 0; d < WIDTH; d++)
            assert_true(fabs((double)got[d] - wanted[d]) < 2e-6);
        assert_true(fabs((double)got_lse - wanted_lse) < 1e-4);
    }
}

/* Merges parts first ... end - 1 into place `to` of other arrays. */
static void merge_some(fixture *f, const float *o, const float *lse, int first, int end,
                       float *out_o, float *out_lse)
{
    const tess_merge_desc desc = desc_of(end - first, 1, WIDTH);
    const tess_merge_args args = {TESS_STRUCT(tess_merge_args),
                                  {o + first * WIDTH, 0},
                                  {lse + first, 0},
                                  {out_o, 0},
                                  {out_lse, 0}};

    assert_fine(f->w.context, tess_queue_merge(f->w.queue, &desc, &args));
}

static void no_grouping_matters(void **state)
{
    fixture *const f = *state;
    float o[MANY * WIDTH], lse[MANY], whole[WIDTH], whole_lse;

    draw_parts(o, lse, 99);
    merge_some(f, o, lse, 0, MANY, whole, &whole_lse);
    for (int size = 1; size < MANY; size = size * 2 + 1) {
        float mid_o[MANY * WIDTH], mid_lse[MANY], got[WIDTH], got_lse;
        int groups = 0;

        for (int first = 0; first < MANY; first += size, groups++)
            merge_some(f, o, lse, first, first + size < MANY ? first + size : MANY,
                       mid_o + groups * WIDTH, mid_lse + groups);
        merge_some(f, mid_o, mid_lse, 0, groups, got, &got_lse);
        for (int d = 0; d < WIDTH; d++)
            assert_true(fabsf(got[d] - whole[d]) < 2e-6f);
        assert_true(fabsf(got_lse - whole_lse) < 1e-4f);
    }
}

static void no_order_matters(void **state)
{
    fixture *const f = *state;
    float o[MANY * WIDTH], lse[MANY], forward[WIDTH], backward[WIDTH], lse_a, lse_b;

    draw_parts(o, lse, 5);
    merge_some(f, o, lse, 0, MANY, forward, &lse_a);

    tess_merge_desc desc = desc_of(MANY, 1, WIDTH);
    desc.o_part_stride = -WIDTH;
    desc.lse_part_stride = -1;
    const tess_merge_args args = {TESS_STRUCT(tess_merge_args),
                                  {o, (MANY - 1) * WIDTH * 4},
                                  {lse, (MANY - 1) * 4},
                                  {backward, 0},
                                  {&lse_b, 0}};
    assert_fine(f->w.context, tess_queue_merge(f->w.queue, &desc, &args));
    for (int d = 0; d < WIDTH; d++)
        assert_true(fabsf(forward[d] - backward[d]) < 2e-6f);
    assert_true(fabsf(lse_a - lse_b) < 1e-4f);
}

/* ---- Types and strides ----------------------------------------------------------------------- */

static void sixteen_bits_are_read_and_rounded_once(void **state)
{
    /* 1 and 3 in f16 and in bf16; their mean 2; 1/3 rounded by hand */
    static const struct {
        tess_dtype dtype;
        uint16_t one, three, two, zero, third;
    } types[] = {{TESS_F16, 0x3c00, 0x4200, 0x4000, 0, 0x3555},
                 {TESS_BF16, 0x3f80, 0x4040, 0x4000, 0, 0x3eab}};
    fixture *const f = *state;

    for (size_t t = 0; t < 2; t++) {
        uint16_t parts[3] = {types[t].one, types[t].three, 0}, got = 0xdead;
        const float equal[3] = {0, 0, 0};
        float single = 42;
        tess_merge_desc desc = desc_of(2, 1, 1);
        tess_merge_args args = {
            TESS_STRUCT(tess_merge_args), {parts, 0}, {equal, 0}, {&got, 0}, {NULL, 0}};

        desc.o_part.dtype = desc.o.dtype = types[t].dtype;
        assert_fine(f->w.context, tess_queue_merge(f->w.queue, &desc, &args));
        assert_int_equal(got, types[t].two);
        parts[1] = types[t].zero;
        desc.parts = 3;
        assert_fine(f->w.context, tess_queue_merge(f->w.queue, &desc, &args));
        assert_int_equal(got, types[t].third);
        desc.o.dtype = TESS_F32; /* another type for the result */
        args.o.base = &single;
        assert_fine(f->w.context, tess_queue_merge(f->w.queue, &desc, &args));
        assert_true(fabsf(single - 1.0f / 3) < 1e-7f);
    }
}

/* Parts beside each other in the innermost place, the result with gaps and backwards. */
static void any_strides_give_the_same_bits(void **state)
{
    enum { GAP = 3 };
    fixture *const f = *state;
    static float o_part[PART * PARTS], lse_part[ROWS * PARTS], o[PART * GAP], lse[ROWS * GAP];
    tess_merge_desc desc = f->desc;
    tess_merge_args args = f->args;

    assert_fine(f->w.context, tess_queue_merge(f->w.queue, &f->desc, &f->args));
    for (int p = 0; p < PARTS; p++) {
        for (int i = 0; i < PART; i++)
            o_part[i * PARTS + p] = f->m.o_part[p * PART + i];
        for (int i = 0; i < ROWS; i++)
            lse_part[i * PARTS + p] = f->m.lse_part[p * ROWS + i];
    }
    tess_layout *const layouts[] = {&desc.o_part, &desc.lse_part, &desc.o, &desc.lse};
    for (int i = 0; i < 4; i++) {
        const int64_t by = i < 2 ? PARTS : -GAP;
        layouts[i]->batch_stride *= by;
        layouts[i]->seqlen_stride *= by;
        layouts[i]->head_stride *= by;
        layouts[i]->dim_stride *= by;
    }
    desc.o_part_stride = desc.lse_part_stride = 1;
    args.o_part.base = o_part;
    args.lse_part.base = lse_part;
    args.o = (tess_out){o, (PART - 1) * GAP * 4};
    args.lse = (tess_out){lse, (ROWS - 1) * GAP * 4};
    for (int i = 0; i < PART * GAP; i++)
        o[i] = 77;
    for (int i = 0; i < ROWS * GAP; i++)
        lse[i] = 77;
    assert_fine(f->w.context, tess_queue_merge(f->w.queue, &desc, &args));
    for (int i = 0; i < PART * GAP; i++)
        assert_true(o[i] == (i % GAP ? 77 : f->m.o[PART - 1 - i / GAP]));
    for (int i = 0; i < ROWS * GAP; i++)
        assert_true(lse[i] == (i % GAP ? 77 : f->m.lse[ROWS - 1 - i / GAP]));
}

/* The same part three times is itself, with three times the weight. */
static void a_stride_of_zero_repeats_the_part(void **state)
{
    fixture *const f = *state;

    f->desc.o_part_stride = f->desc.lse_part_stride = 0;
    assert_fine(f->w.context, tess_queue_merge(f->w.queue, &f->desc, &f->args));
    for (int i = 0; i < PART; i++)
        assert_true(fabsf(f->m.o[i] - f->m.o_part[i]) < 1e-6f);
    for (int i = 0; i < ROWS; i++)
        assert_true(fabsf(f->m.lse[i] - f->m.lse_part[i] - 1.0986123f) < 1e-6f);
}

/* Parts with a place for the result between them do not overlap it. */
static void the_result_may_lie_between_the_parts(void **state)
{
    enum { PLACES = PARTS + 1 };
    fixture *const f = *state;
    static float rows[PART * PLACES], lses[ROWS * PLACES];

    assert_fine(f->w.context, tess_queue_merge(f->w.queue, &f->desc, &f->args));
    for (int p = 0; p < PARTS; p++) { /* place 1 is left for the result */
        const int place = p == 0 ? 0 : p + 1;
        memcpy(rows + place * PART, f->m.o_part + p * PART, PART * sizeof(float));
        memcpy(lses + place * ROWS, f->m.lse_part + p * ROWS, ROWS * sizeof(float));
    }

    tess_merge_desc desc = f->desc;
    tess_merge_args args = f->args;
    desc.parts = 2; /* places 0 and 2 */
    desc.o_part_stride = 2 * PART;
    desc.lse_part_stride = 2 * ROWS;
    args.o_part.base = rows;
    args.lse_part.base = lses;
    args.o = (tess_out){rows, PART * 4};
    args.lse = (tess_out){lses, ROWS * 4};
    assert_fine(f->w.context, tess_queue_merge(f->w.queue, &desc, &args));
    f->desc.parts = 2;
    assert_fine(f->w.context, tess_queue_merge(f->w.queue, &f->desc, &f->args));
    assert_memory_equal(rows + PART, f->m.o, sizeof f->m.o);
    assert_memory_equal(lses + ROWS, f->m.lse, sizeof f->m.lse);
}

static void what_is_empty_needs_no_address(void **state)
{
    fixture *const f = *state;

    for (int axis = 0; axis < 3; axis++) {
        tess_merge_desc desc = f->desc;
        tess_layout *const layouts[] = {&desc.o_part, &desc.lse_part, &desc.o, &desc.lse};
        const tess_merge_args args = {TESS_STRUCT(tess_merge_args)};

        for (int i = 0; i < 4; i++)
            *(axis == 0   ? &layouts[i]->batch
              : axis == 1 ? &layouts[i]->seqlen
                          : &layouts[i]->heads) = 0;
        assert_fine(f->w.context, tess_queue_merge(f->w.queue, &desc, &args));
    }
}

static void lse_is_written_only_when_wanted(void **state)
{
    fixture *const f = *state;
    memory before = f->m;

    f->args.lse.base = NULL;
    assert_fine(f->w.context, tess_queue_merge(f->w.queue, &f->desc, &f->args));
    assert_memory_not_equal(f->m.o, before.o, sizeof before.o);
    memcpy(f->m.o, before.o, sizeof before.o);
    assert_memory_equal(&f->m, &before, sizeof before);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(every_wrong_merge_is_refused, set_up, tear_down),
        cmocka_unit_test_setup_teardown(what_is_missing_or_too_new_is_named, set_up, tear_down),
        cmocka_unit_test_setup_teardown(known_answers, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_nan_that_is_there_stays, set_up, tear_down),
        cmocka_unit_test_setup_teardown(one_part_is_copied, set_up, tear_down),
        cmocka_unit_test_setup_teardown(many_parts_follow_the_rule, set_up, tear_down),
        cmocka_unit_test_setup_teardown(no_grouping_matters, set_up, tear_down),
        cmocka_unit_test_setup_teardown(no_order_matters, set_up, tear_down),
        cmocka_unit_test_setup_teardown(sixteen_bits_are_read_and_rounded_once, set_up, tear_down),
        cmocka_unit_test_setup_teardown(any_strides_give_the_same_bits, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_stride_of_zero_repeats_the_part, set_up, tear_down),
        cmocka_unit_test_setup_teardown(the_result_may_lie_between_the_parts, set_up, tear_down),
        cmocka_unit_test_setup_teardown(what_is_empty_needs_no_address, set_up, tear_down),
        cmocka_unit_test_setup_teardown(lse_is_written_only_when_wanted, set_up, tear_down),
    };

    if (argc > 1)
        device = argv[1];
    return cmocka_run_group_tests(tests, NULL, NULL) != 0;
}
