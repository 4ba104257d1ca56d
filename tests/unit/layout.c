/* SPDX-License-Identifier: Apache-2.0
 * Strided tensors held against a list of every element they have. */
#include "core/schedule/layout.h"

#include "tests/kit/random.h"
#include "tests/unit/support.h"

/* Bytes 0 ... 2 * MIDDLE around an address in the middle. */
enum { MIDDLE = 8192, BYTES = 2 * MIDDLE };

/* How often each byte is part of an element of the tensor whose element (0,0,0,0) is at MIDDLE. */
static void mark(const tess_layout *layout, int64_t at, unsigned char counts[BYTES])
{
    const int64_t size = (int64_t)tess_dtype_size(layout->dtype);

    memset(counts, 0, BYTES);
    for (int64_t b = 0; b < layout->batch; b++)
        for (int64_t s = 0; s < layout->seqlen; s++)
            for (int64_t h = 0; h < layout->heads; h++)
                for (int64_t d = 0; d < layout->head_dim; d++)
                    for (int64_t byte = 0; byte < size; byte++) {
                        const int64_t place =
                            at + byte +
                            size * (b * layout->batch_stride + s * layout->seqlen_stride +
                                    h * layout->head_stride + d * layout->dim_stride);
                        assert_in_range(place, 0, BYTES - 1);
                        counts[place]++;
                    }
}

static bool overlaps_itself(const tess_layout *layout)
{
    unsigned char counts[BYTES];

    mark(layout, MIDDLE, counts);
    for (int i = 0; i < BYTES; i++)
        if (counts[i] > 1)
            return true;
    return false;
}

static bool overlap(const tess_layout *a, int64_t a_at, const tess_layout *b, int64_t b_at)
{
    unsigned char of_a[BYTES], of_b[BYTES];

    mark(a, a_at, of_a);
    mark(b, b_at, of_b);
    for (int i = 0; i < BYTES; i++)
        if (of_a[i] && of_b[i])
            return true;
    return false;
}

static tess_layout draw_layout(tess_random *random, int64_t most_stride)
{
    static const tess_dtype dtypes[] = {TESS_E4M3, TESS_F16, TESS_F32, TESS_I64};
    int64_t extent[4], stride[4];

    for (int axis = 0; axis < 4; axis++) {
        extent[axis] = tess_random_below(random, 5);
        if (extent[axis] == 0 && !tess_random_once_in(random, 8))
            extent[axis] = 1;
        stride[axis] = tess_random_below(random, 2 * most_stride + 1) - most_stride;
    }
    return (tess_layout){extent[0], extent[1], extent[2],
                         extent[3], stride[0], stride[1],
                         stride[2], stride[3], dtypes[tess_random_below(random, 4)],
                         0};
}

/* A view that does not overlap itself: axes nested in a drawn order, with gaps and signs. */
static tess_layout draw_nested(tess_random *random)
{
    tess_layout layout = draw_layout(random, 1);
    int64_t *const strides[4] = {&layout.batch_stride, &layout.seqlen_stride, &layout.head_stride,
                                 &layout.dim_stride};
    int64_t extent[4], ignored[4], step = 1 + tess_random_below(random, 2);
    int left = 15;

    tess_layout_axes(&layout, extent, ignored);
    while (left) {
        const int axis = (int)tess_random_below(random, 4);
        if (!(left & 1 << axis))
            continue;
        left &= ~(1 << axis);
        *strides[axis] = tess_random_once_in(random, 3) ? -step : step;
        if (extent[axis] > 1)
            step = step * extent[axis] + tess_random_below(random, 2);
    }
    return layout;
}

static void knows_every_tensor_that_overlaps_itself(void **state)
{
    tess_random random = tess_random_start(1, 1);
    int overlapping = 0, apart = 0;

    (void)state;
    for (int i = 0; i < 4000; i++) {
        const tess_layout layout = draw_layout(&random, i % 2 ? 6 : 40);
        const bool truth = overlaps_itself(&layout);

        if (truth)
            assert_true(tess_layout_overlaps_itself(&layout));
        overlapping += truth;
        apart += !truth && !tess_layout_overlaps_itself(&layout);
    }
    assert_true(overlapping > 500 && apart > 500); /* the draw reaches both */
}

static void never_suspects_nested_axes(void **state)
{
    tess_random random = tess_random_start(2, 1);

    (void)state;
    for (int i = 0; i < 4000; i++) {
        const tess_layout layout = draw_nested(&random);

        assert_false(overlaps_itself(&layout));
        assert_false(tess_layout_overlaps_itself(&layout));
    }
}

static void never_calls_tensors_apart_that_share_a_byte(void **state)
{
    tess_random random = tess_random_start(3, 1);
    int shared = 0, apart = 0, interleaved = 0;

    (void)state;
    for (int i = 0; i < 10000; i++) {
        const tess_layout a = i % 3 ? draw_nested(&random) : draw_layout(&random, 12);
        const tess_layout b = i % 5 ? draw_nested(&random) : draw_layout(&random, 12);
        const int64_t a_at = MIDDLE, b_at = MIDDLE + tess_random_below(&random, 257) - 128;
        const bool says_apart = !tess_layouts_may_overlap(&a, (uintptr_t)a_at, &b, (uintptr_t)b_at);

        assert_int_equal(!says_apart,
                         tess_layouts_may_overlap(&b, (uintptr_t)b_at, &a, (uintptr_t)a_at));
        if (overlap(&a, a_at, &b, b_at)) {
            assert_false(says_apart);
            shared++;
        } else {
            apart += says_apart;
        }
    }
    /* Pairs that only residues can tell apart: both views step over the other's elements. */
    for (int i = 0; i < 10000; i++) {
        const int64_t period = 2 + tess_random_below(&random, 12);
        tess_layout a = draw_nested(&random), b = draw_nested(&random);

        a.head_dim = 1 + tess_random_below(&random, period);
        b.head_dim = 1 + tess_random_below(&random, period);
        a.heads = b.heads = a.batch = b.batch = 1;
        a.seqlen = 2 + tess_random_below(&random, 4);
        b.seqlen = 2 + tess_random_below(&random, 4);
        a.dim_stride = b.dim_stride = 1;
        a.seqlen_stride = b.seqlen_stride = period;
        a.dtype = b.dtype = TESS_F16;

        const int64_t a_at = MIDDLE, b_at = MIDDLE + 2 * tess_random_below(&random, period);
        const bool truth = overlap(&a, a_at, &b, b_at);
        const bool says = tess_layouts_may_overlap(&a, (uintptr_t)a_at, &b, (uintptr_t)b_at);

        if (truth)
            assert_true(says);
        interleaved += !truth && !says;
    }
    assert_true(shared > 1000);
    assert_true(apart > 1000);
    assert_true(interleaved > 1000);
}

/* One buffer with Q, K, V and O beside each other in every row, or in every block of heads. */
static void tells_the_views_of_one_buffer_apart(void **state)
{
    enum { BATCH = 2, SEQLEN = 3, HEADS = 4, DIM = 8, VIEWS = 4 };
    tess_layout rows = tess_layout_packed(TESS_F32, BATCH, SEQLEN, HEADS, DIM);
    tess_layout blocks = tess_layout_by_head(TESS_F32, BATCH, SEQLEN, HEADS, DIM);
    const uintptr_t base = 1u << 20;

    (void)state;
    rows.seqlen_stride *= VIEWS;
    rows.batch_stride *= VIEWS;
    blocks.batch_stride *= VIEWS;
    for (uintptr_t i = 0; i < VIEWS; i++) {
        for (uintptr_t j = 0; j < VIEWS; j++) {
            const uintptr_t row = HEADS * DIM * sizeof(float), block = row * SEQLEN;

            assert_int_equal(tess_layouts_may_overlap(&rows, base + i * row, &rows, base + j * row),
                             i == j);
            assert_int_equal(
                tess_layouts_may_overlap(&blocks, base + i * block, &blocks, base + j * block),
                i == j);
        }
    }
    /* Shifted by one element they meet. */
    assert_true(tess_layouts_may_overlap(&rows, base, &rows, base + (HEADS * DIM - 1) * 4));
    assert_true(
        tess_layouts_may_overlap(&blocks, base, &blocks, base + (HEADS * DIM * SEQLEN - 1) * 4));
}

static void a_reversed_view_lies_below_its_address(void **state)
{
    tess_layout forward = tess_layout_packed(TESS_F16, 1, 4, 1, 8), reversed = forward;
    int64_t lowest = 1, highest = 1;

    (void)state;
    reversed.seqlen_stride = -reversed.seqlen_stride;
    assert_true(tess_layout_reach(&reversed, &lowest, &highest));
    assert_int_equal(lowest, -24);
    assert_int_equal(highest, 7);
    assert_false(tess_layout_overlaps_itself(&reversed));
    assert_true(tess_layouts_may_overlap(&forward, 1000, &reversed, 1000));
    assert_true(tess_layouts_may_overlap(&forward, 1000, &reversed, 1000 + 48 + 62));
    assert_false(tess_layouts_may_overlap(&forward, 1000, &reversed, 1000 + 48 + 64));
    assert_false(tess_layouts_may_overlap(&forward, 1000, &reversed, 1000 - 16));
    assert_true(tess_layouts_may_overlap(&forward, 1000, &reversed, 1000 - 14));
}

static void an_empty_tensor_shares_nothing(void **state)
{
    const tess_layout some = tess_layout_packed(TESS_F32, 2, 2, 2, 2);

    (void)state;
    for (int axis = 0; axis < 4; axis++) {
        tess_layout empty = tess_layout_packed(TESS_F32, axis == 0 ? 0 : 2, axis == 1 ? 0 : 2,
                                               axis == 2 ? 0 : 2, axis == 3 ? 0 : 2);
        assert_true(tess_layout_is_empty(&empty));
        assert_false(tess_layouts_may_overlap(&some, 64, &empty, 64));
        assert_false(tess_layouts_may_overlap(&empty, 64, &some, 64));
        empty.batch_stride = empty.seqlen_stride = empty.head_stride = empty.dim_stride = 0;
        assert_false(tess_layout_overlaps_itself(&empty));
    }
    assert_false(tess_layout_is_empty(&some));
}

/* The stride of an axis with one element means nothing, however wild it is. */
static void a_stride_that_is_never_taken_does_not_count(void **state)
{
    static const int64_t wild[] = {0, 1, -7, INT64_MAX, INT64_MIN, (int64_t)1 << 62};

    (void)state;
    for (size_t i = 0; i < sizeof wild / sizeof wild[0]; i++) {
        const tess_layout one = {1, 1, 1, 1, wild[i], wild[i], wild[i], wild[i], TESS_F32, 0};
        const tess_layout row = {1, 1, 1, 8, wild[i], wild[i], wild[i], 1, TESS_F32, 0};
        int64_t lowest = 1, highest = 1;

        assert_true(tess_layout_reach(&one, &lowest, &highest));
        assert_int_equal(lowest, 0);
        assert_int_equal(highest, 0);
        assert_false(tess_layout_overlaps_itself(&one));
        assert_false(tess_layout_overlaps_itself(&row));
        assert_true(tess_layouts_may_overlap(&one, 4096 + 28, &row, 4096));
        assert_false(tess_layouts_may_overlap(&one, 4096 + 32, &row, 4096));
    }
}

static void a_reach_that_leaves_sixty_bits_is_refused(void **state)
{
    const int64_t most = INT64_MAX / 8;
    int64_t lowest = 77, highest = 77;

    (void)state;
    for (int axis = 0; axis < 4; axis++) {
        tess_layout layout = {2, 2, 2, 2, 0, 0, 0, 0, TESS_F32, 0};
        int64_t *const stride[4] = {&layout.batch_stride, &layout.seqlen_stride,
                                    &layout.head_stride, &layout.dim_stride};
        const int64_t wild[] = {most + 1, -most - 1, INT64_MAX, INT64_MIN};

        for (size_t i = 0; i < sizeof wild / sizeof wild[0]; i++) {
            *stride[axis] = wild[i];
            assert_false(tess_layout_reach(&layout, &lowest, &highest));
        }
        *stride[axis] = most;
        assert_true(tess_layout_reach(&layout, &lowest, &highest));
        assert_int_equal(highest, most);
        *stride[(axis + 1) % 4] = 1; /* the sum is what counts */
        assert_false(tess_layout_reach(&layout, &lowest, &highest));
        *stride[(axis + 1) % 4] = -most; /* the two directions apart: bytes still fit 64 bits */
        assert_true(tess_layout_reach(&layout, &lowest, &highest));
        assert_int_equal(lowest, -most);
        assert_false(tess_layouts_may_overlap(&layout, (uintptr_t)1 << 63,
                                              &(tess_layout){1, 1, 1, 0, 0, 0, 0, 0, TESS_F32, 0},
                                              (uintptr_t)1 << 63));
        assert_true(
            tess_layouts_may_overlap(&layout, (uintptr_t)1 << 63, &layout, (uintptr_t)1 << 63));
    }
    /* Extents near the limit multiply out of range, too. */
    const tess_layout wide = {INT32_MAX, 1, 1, 1, (int64_t)1 << 30, 0, 0, 0, TESS_F32, 0};
    assert_false(tess_layout_reach(&wide, &lowest, &highest));
}

static void the_makers_write_what_the_header_says(void **state)
{
    const tess_layout packed = tess_layout_packed(TESS_BF16, 2, 3, 5, 7);
    const tess_layout by_head = tess_layout_by_head(TESS_F16, 2, 3, 5, 7);

    (void)state;
    assert_memory_equal(&packed, (&(tess_layout){2, 3, 5, 7, 105, 35, 7, 1, TESS_BF16, 0}),
                        sizeof packed);
    assert_memory_equal(&by_head, (&(tess_layout){2, 3, 5, 7, 105, 7, 21, 1, TESS_F16, 0}),
                        sizeof by_head);
}

/* They check nothing, but a product that wraps would look like a stride that is fine. */
static void the_makers_never_wrap(void **state)
{
    const int64_t most = INT32_MAX;
    int64_t lowest, highest;

    (void)state;
    for (int kind = 0; kind < 2; kind++) {
        const tess_layout layout = kind ? tess_layout_packed(TESS_F32, 2, most, most, most)
                                        : tess_layout_by_head(TESS_F32, 2, most, most, most);
        assert_false(tess_layout_reach(&layout, &lowest, &highest));
        assert_int_equal(layout.batch_stride, INT64_MAX);
    }
    const tess_layout wild = tess_layout_packed(TESS_F32, INT64_MAX, INT64_MIN, INT64_MAX, -4);
    assert_int_equal(wild.seqlen, INT64_MIN);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(knows_every_tensor_that_overlaps_itself),
        cmocka_unit_test(never_suspects_nested_axes),
        cmocka_unit_test(never_calls_tensors_apart_that_share_a_byte),
        cmocka_unit_test(tells_the_views_of_one_buffer_apart),
        cmocka_unit_test(a_reversed_view_lies_below_its_address),
        cmocka_unit_test(an_empty_tensor_shares_nothing),
        cmocka_unit_test(a_stride_that_is_never_taken_does_not_count),
        cmocka_unit_test(a_reach_that_leaves_sixty_bits_is_refused),
        cmocka_unit_test(the_makers_write_what_the_header_says),
        cmocka_unit_test(the_makers_never_wrap),
    };
    const int failed = cmocka_run_group_tests(tests, NULL, NULL);

    return failed != 0;
}
