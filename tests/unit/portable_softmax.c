/* SPDX-License-Identifier: Apache-2.0
 * Laws of the recurrence: tiling, absent columns, huge and non-finite scores, sinks and merges. */
#include "core/portable/online_softmax.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include <float.h>
#include <stdlib.h>

enum { MOST = 300 };

/* A row as a kernel computes it: one value column stands for all of them. */
struct row {
    tess_os_row state;
    tess_f32 output; /* not yet divided by the sum */
};

static struct row start(void)
{
    const struct row row = {tess_os_empty(), 0.0f};
    return row;
}

static struct row add_tile(struct row row, const tess_f32 *scores, const tess_f32 *values,
                           int columns)
{
    tess_f32 max = TESS_NEG_INF, weights = 0.0f, product = 0.0f;

    for (int j = 0; j < columns; j++)
        max = tess_max(max, scores[j]);
    const tess_os_step step = tess_os_admit(row.state, max);
    for (int j = 0; j < columns; j++) {
        const tess_f32 weight = tess_os_weight(scores[j], step.shift);
        weights += weight;
        product += weight * values[j];
    }
    row.output = row.output * step.rescale + product;
    row.state = tess_os_advance(row.state, step, max, weights);
    return row;
}

static struct row add_tiles(struct row row, const tess_f32 *scores, const tess_f32 *values,
                            int columns, int width)
{
    for (int j = 0; j < columns; j += width)
        row = add_tile(row, scores + j, values + j, columns - j < width ? columns - j : width);
    return row;
}

static struct row add_sink(struct row row, tess_f32 sink)
{
    const tess_os_sunk sunk = tess_os_sink(row.state, sink);
    row.output *= sunk.rescale;
    row.state = sunk.row;
    return row;
}

static tess_f32 output_of(struct row row)
{
    return row.output * tess_os_inverse(row.state.sum);
}

/* The definition, in double and in two passes. A sink is in natural units. */
struct answer {
    double output, lse;
};

static struct answer define(const tess_f32 *scores, const tess_f32 *values, int columns,
                            double sink)
{
    double max = sink / log(2.0), sum = 0.0, product = 0.0;
    struct answer answer = {0.0, -HUGE_VAL};

    for (int j = 0; j < columns; j++)
        max = fmax(max, (double)scores[j]);
    if (max == -HUGE_VAL)
        return answer;
    sum = exp2(sink / log(2.0) - max);
    for (int j = 0; j < columns; j++) {
        const double weight = exp2((double)scores[j] - max);
        sum += weight;
        product += weight * (double)values[j];
    }
    answer.output = product / sum;
    answer.lse = (max + log2(sum)) * log(2.0);
    return answer;
}

static void expect_near(double got, double want, double tolerance)
{
    if (got == want)
        return;
    if (!(fabs(got - want) <= tolerance))
        fail_msg("got %.9g, want %.9g within %.3g", got, want, tolerance);
}

/* Values lie in -1 ... 1. A score of size s is known to s * 2^-24, and so is its weight. */
static void expect_answer(struct row row, struct answer answer)
{
    const double size = isinf(answer.lse) ? 0.0 : fabs(answer.lse);

    expect_near((double)output_of(row), answer.output, 4e-6);
    expect_near((double)tess_os_lse(row.state), answer.lse, 2e-6 + size * 0x1p-22);
}

static void expect_same(struct row got, struct row want)
{
    assert_int_equal(tess_bits(got.state.shift), tess_bits(want.state.shift));
    assert_int_equal(tess_bits(got.state.sum), tess_bits(want.state.sum));
    assert_int_equal(tess_bits(got.output), tess_bits(want.output));
}

static tess_u32 random_below(tess_u64 *seed, tess_u32 end)
{
    *seed = *seed * 6364136223846793005u + 1442695040888963407u;
    return (tess_u32)(*seed >> 33) % end;
}

static tess_f32 random_unit(tess_u64 *seed) /* -1 ... 1 */
{
    return (tess_f32)random_below(seed, 1u << 24) * 0x1p-23f - 1.0f;
}

static void fill(tess_u64 *seed, tess_f32 *scores, tess_f32 *values, int columns, tess_f32 scale)
{
    for (int j = 0; j < columns; j++) {
        scores[j] = scale * random_unit(seed);
        values[j] = random_unit(seed);
    }
}

static void any_tiling_equals_two_passes(void **state)
{
    static const tess_f32 scales[] = {0.0f, 1.0f, 20.0f, 1000.0f, 1e8f, 1e30f};
    static const int widths[] = {1, 2, 3, 7, 16, 64, 128, MOST};
    tess_f32 scores[MOST], values[MOST];
    tess_u64 seed = 1;

    (void)state;
    for (size_t s = 0; s < sizeof scales / sizeof scales[0]; s++)
        for (int columns = 1; columns <= MOST; columns += 13) {
            fill(&seed, scores, values, columns, scales[s]);
            const struct answer answer = define(scores, values, columns, -HUGE_VAL);
            for (size_t w = 0; w < sizeof widths / sizeof widths[0]; w++)
                expect_answer(add_tiles(start(), scores, values, columns, widths[w]), answer);
            for (int trial = 0; trial < 8; trial++) { /* tiles of unequal width */
                struct row row = start();
                for (int j = 0, width; j < columns; j += width) {
                    width = 1 + (int)random_below(&seed, (tess_u32)(columns - j));
                    row = add_tile(row, scores + j, values + j, width);
                }
                expect_answer(row, answer);
            }
        }
}

static int ascending(const void *a, const void *b)
{
    const tess_f32 x = *(const tess_f32 *)a, y = *(const tess_f32 *)b;
    return (x > y) - (x < y);
}

/* Rising scores rescale as often as can be, falling ones never. */
static void rising_and_falling_scores(void **state)
{
    tess_f32 scores[MOST], values[MOST], falling[MOST], falling_values[MOST];
    tess_u64 seed = 2;

    (void)state;
    fill(&seed, scores, values, MOST, 500.0f);
    qsort(scores, MOST, sizeof scores[0], ascending);
    for (int j = 0; j < MOST; j++) {
        falling[j] = scores[MOST - 1 - j];
        falling_values[j] = values[MOST - 1 - j];
    }
    const struct answer answer = define(scores, values, MOST, -HUGE_VAL);
    for (int width = 1; width <= MOST; width += 7) {
        const struct row row = add_tiles(start(), falling, falling_values, MOST, width);
        expect_answer(add_tiles(start(), scores, values, MOST, width), answer);
        expect_answer(row, answer);
        assert_true(row.state.shift == falling[0]);
    }
}

/* The shift trails the true maximum by TESS_OS_LAG at most, is a score that was seen, and moves
 * only when it must; so no weight is above 2^TESS_OS_LAG and the largest is at least 1. */
static void the_shift_lags_by_so_much(void **state)
{
    tess_u64 seed = 3;

    (void)state;
    for (int trial = 0; trial < 200; trial++) {
        tess_os_row row = tess_os_empty();
        tess_f32 highest = TESS_NEG_INF;
        for (int tile = 0; tile < 50; tile++) {
            const tess_f32 max = 6.0f * random_unit(&seed) + (tess_f32)tile;
            const tess_os_step step = tess_os_admit(row, max);
            const tess_os_row next = tess_os_advance(row, step, max, 1.0f);

            highest = tess_max(highest, max);
            assert_true(next.shift == step.shift);
            assert_true(next.shift <= highest && highest <= next.shift + TESS_OS_LAG);
            assert_true(next.shift == row.shift || next.shift == max);
            if (next.shift == row.shift)
                assert_true(step.rescale == 1.0f);
            else if (tile > 0)
                assert_true(step.rescale <= exp2f(-TESS_OS_LAG));
            row = next;
        }
    }
}

static void the_lag_is_exact_at_its_edge(void **state)
{
    const tess_os_row row = {4.0f, 1.0f};
    const tess_f32 edge = 4.0f + TESS_OS_LAG, beyond = nextafterf(edge, INFINITY);

    (void)state;
    assert_true(tess_os_admit(row, edge).shift == 4.0f);
    assert_true(tess_os_admit(row, edge).rescale == 1.0f);
    assert_true(tess_os_admit(row, beyond).shift == beyond);
    assert_true(tess_os_admit(row, beyond).rescale == exp2f(4.0f - beyond));
}

/* A common factor of all weights cancels without a trace: on a grid, and in steps too small for the
 * sums to round differently, adding a constant to all scores changes no bit of the sum. */
static void a_constant_moves_only_the_shift(void **state)
{
    tess_f32 scores[MOST], values[MOST], moved[MOST];
    tess_u64 seed = 4;

    (void)state;
    for (int constant = -100000; constant <= 100000; constant += 12500) {
        for (int j = 0; j < MOST; j++) {
            scores[j] = (tess_f32)random_below(&seed, 256) * 0.125f;
            moved[j] = scores[j] + (tess_f32)constant;
            values[j] = random_unit(&seed);
        }
        const struct row plain = add_tiles(start(), scores, values, MOST, 16);
        const struct row shifted = add_tiles(start(), moved, values, MOST, 16);
        assert_int_equal(tess_bits(shifted.state.sum), tess_bits(plain.state.sum));
        assert_int_equal(tess_bits(shifted.output), tess_bits(plain.output));
        assert_true(shifted.state.shift == plain.state.shift + (tess_f32)constant);
    }
}

/* What a kernel may rely on when it fuses a weight into exp2(score * c - shift * c): no step hands
 * out a shift of -inf, and the first tile does not touch what was gathered before. */
static void a_step_is_safe_before_the_first_score(void **state)
{
    const tess_os_step nothing = tess_os_admit(tess_os_empty(), TESS_NEG_INF);
    const tess_os_step first = tess_os_admit(tess_os_empty(), -5.0f);

    (void)state;
    assert_true(nothing.shift == 0.0f && nothing.rescale == 1.0f);
    assert_int_equal(tess_bits(tess_exp2(TESS_NEG_INF - nothing.shift)), 0);
    assert_true(first.shift == -5.0f && first.rescale == 1.0f);
    assert_true(tess_os_admit(tess_os_empty(), NAN).shift == 0.0f);
}

static void expect_empty(struct row row)
{
    assert_int_equal(tess_bits(output_of(row)), 0); /* +0, not -0 */
    assert_true(tess_os_lse(row.state) == TESS_NEG_INF);
    assert_true(row.state.sum == 0.0f && row.state.shift == TESS_NEG_INF);
}

static void a_row_without_columns_is_zero(void **state)
{
    tess_f32 scores[32], values[32];

    (void)state;
    for (int j = 0; j < 32; j++) {
        scores[j] = TESS_NEG_INF;
        values[j] = -1.0f - (tess_f32)j;
    }
    expect_empty(start());
    for (int width = 1; width <= 32; width++)
        expect_empty(add_tiles(start(), scores, values, 32, width));
}

/* Tiles in which a row sees nothing leave no trace, wherever they come. */
static void masked_tiles_change_no_bit(void **state)
{
    tess_f32 scores[64], values[64];
    const tess_f32 masked[16] = {
        TESS_NEG_INF, TESS_NEG_INF, TESS_NEG_INF, TESS_NEG_INF, TESS_NEG_INF, TESS_NEG_INF,
        TESS_NEG_INF, TESS_NEG_INF, TESS_NEG_INF, TESS_NEG_INF, TESS_NEG_INF, TESS_NEG_INF,
        TESS_NEG_INF, TESS_NEG_INF, TESS_NEG_INF, TESS_NEG_INF,
    };
    tess_u64 seed = 5;

    (void)state;
    for (int where = 0; where < 1 << 5; where++) { /* a bit for each gap between tiles */
        struct row row = start(), plain = start();
        fill(&seed, scores, values, 64, 40.0f);
        for (int tile = 0; tile <= 4; tile++) {
            if (where >> tile & 1)
                row = add_tile(add_tile(row, masked, values, 16), masked, values, 16);
            if (tile == 4)
                break;
            row = add_tile(row, scores + 16 * tile, values + 16 * tile, 16);
            plain = add_tile(plain, scores + 16 * tile, values + 16 * tile, 16);
        }
        expect_same(row, plain);
    }
}

/* -inf in a tile is a column that is not there; its value has no say, and neither has its sign. */
static void minus_infinity_is_absent(void **state)
{
    tess_f32 scores[MOST], values[MOST], kept[MOST], kept_values[MOST];
    tess_u64 seed = 6;

    (void)state;
    for (int trial = 0; trial < 50; trial++) {
        int count = 0;
        fill(&seed, scores, values, MOST, 30.0f);
        for (int j = 0; j < MOST; j++) {
            if (random_below(&seed, 3) == 0) {
                scores[j] = TESS_NEG_INF;
            } else {
                kept[count] = scores[j];
                kept_values[count++] = values[j];
            }
        }
        expect_same(add_tiles(start(), scores, values, MOST, MOST),
                    add_tiles(start(), kept, kept_values, count, MOST));
        expect_answer(add_tiles(start(), scores, values, MOST, 32),
                      define(kept, kept_values, count, -HUGE_VAL));
    }
    assert_int_equal(tess_bits(tess_os_weight(TESS_NEG_INF, 0.0f)), 0);
    assert_int_equal(tess_bits(tess_os_weight(TESS_NEG_INF, -FLT_MAX)), 0);
}

/* Huge and equal is still uniform: people mask with such numbers, and a row that is masked
 * everywhere must be the mean, while a row with one real score must be that one's value. The
 * answers of small integers are exact. */
static void very_negative_scores_are_present(void **state)
{
    static const tess_f32 huge[] = {-1e30f, -1e38f, -FLT_MAX, 1e30f, FLT_MAX};
    tess_f32 scores[64], values[64];

    (void)state;
    for (size_t h = 0; h < sizeof huge / sizeof huge[0]; h++)
        for (int width = 1; width <= 64; width *= 2) {
            for (int j = 0; j < 64; j++) {
                scores[j] = huge[h];
                values[j] = (tess_f32)j;
            }
            struct row row = add_tiles(start(), scores, values, 64, width);
            assert_true(output_of(row) == 31.5f);
            assert_true(row.state.sum == 64.0f);
            assert_true(tess_os_lse(row.state) == huge[h] * TESS_LN_2);

            scores[40] = 3.0f;
            row = add_tiles(start(), scores, values, 64, width);
            if (huge[h] < 0.0f)
                assert_true(output_of(row) == 40.0f);
            else
                expect_near((double)output_of(row), (2016.0 - 40.0) / 63.0, 1e-5);
        }
}

static void scores_of_any_size_enter(void **state)
{
    (void)state;
    assert_true(tess_os_score(1.0f) == TESS_LOG2_E);
    assert_int_equal(tess_bits(tess_os_score(-0.0f)), tess_bits(-0.0f));
    assert_true(tess_os_score(-FLT_MAX) == -FLT_MAX);
    assert_true(tess_os_score(FLT_MAX) == FLT_MAX);
    assert_true(tess_os_score(-3.3895e38f) == -FLT_MAX); /* bf16's most negative */
    assert_true(tess_os_score(-2e38f) == -2e38f * TESS_LOG2_E);
    assert_true(tess_os_score(-INFINITY) == -INFINITY);
    assert_true(tess_os_score(INFINITY) == INFINITY);
    assert_true(tess_is_nan(tess_os_score(NAN)));
}

static void expect_nan(struct row row)
{
    assert_true(tess_is_nan(row.state.sum));
    assert_true(tess_is_nan(output_of(row)));
    assert_true(tess_is_nan(tess_os_lse(row.state)));
}

/* Of either sign, at any place, in any tiling, with a sink or without, among real scores and among
 * absent ones. */
static void nan_and_plus_infinity_are_not_lost(void **state)
{
    const tess_f32 bad[] = {NAN, -NAN, INFINITY};
    tess_f32 scores[24], values[24];
    tess_u64 seed = 7;

    (void)state;
    for (size_t b = 0; b < 3; b++)
        for (int others = 0; others < 2; others++)
            for (int place = 0; place < 24; place++)
                for (int width = 1; width <= 24; width++) {
                    fill(&seed, scores, values, 24, 50.0f);
                    for (int j = 0; j < 24 && others == 0; j++)
                        scores[j] = TESS_NEG_INF;
                    scores[place] = bad[b];
                    const struct row row = add_tiles(start(), scores, values, 24, width);
                    expect_nan(row);
                    expect_nan(add_sink(row, 1.0f));
                    expect_nan(add_sink(row, 1000.0f));
                    expect_nan(add_sink(row, TESS_NEG_INF));
                }
}

static void a_sink_counts_once_and_has_no_value(void **state)
{
    static const tess_f32 sinks[] = {0.0f, 1.0f, -3.0f, 100.0f, -100.0f, 7.5f, -1e30f};
    tess_f32 scores[MOST], values[MOST];
    tess_u64 seed = 8;

    (void)state;
    for (size_t s = 0; s < sizeof sinks / sizeof sinks[0]; s++)
        for (int columns = 0; columns <= MOST; columns += 30) {
            fill(&seed, scores, values, columns, 12.0f);
            const struct answer answer = define(scores, values, columns, (double)sinks[s]);
            expect_answer(add_sink(add_tiles(start(), scores, values, columns, 32), sinks[s]),
                          answer);
            /* A kernel may as well begin with it. */
            expect_answer(add_tiles(add_sink(start(), sinks[s]), scores, values, columns, 32),
                          answer);
        }
}

static void a_sink_alone(void **state)
{
    static const tess_f32 sinks[] = {0.0f, 100.0f, -100.0f, 1e30f, -1e30f};

    (void)state;
    for (size_t s = 0; s < sizeof sinks / sizeof sinks[0]; s++) {
        const struct row row = add_sink(start(), sinks[s]);
        assert_int_equal(tess_bits(output_of(row)), 0);
        expect_near((double)tess_os_lse(row.state), (double)sinks[s],
                    fabs((double)sinks[s]) * 0x1p-22);
    }
    expect_empty(add_sink(start(), TESS_NEG_INF));
    expect_nan(add_sink(start(), NAN));
    expect_nan(add_sink(start(), INFINITY));
}

static void odd_sinks(void **state)
{
    tess_f32 scores[40], values[40];
    tess_u64 seed = 9;

    (void)state;
    fill(&seed, scores, values, 40, 5.0f);
    const struct row row = add_tiles(start(), scores, values, 40, 8);
    expect_same(add_sink(row, TESS_NEG_INF), row);
    expect_nan(add_sink(row, NAN));
    expect_nan(add_sink(row, INFINITY));
    /* It takes all the weight there is, or none. */
    assert_true(output_of(add_sink(row, 1e30f)) == 0.0f);
    assert_true(tess_bits(output_of(add_sink(row, -1e30f))) == tess_bits(output_of(row)));
    assert_true(tess_is_finite(tess_os_lse(add_sink(row, FLT_MAX).state)));
}

/* A normalised partial result, as split keys, cascades and rings exchange it. */
struct part {
    tess_f32 output, lse;
};

static struct part finish(struct row row)
{
    const struct part part = {output_of(row), tess_os_lse(row.state)};
    return part;
}

static struct part join(struct part a, struct part b)
{
    const tess_os_merged merged = tess_os_merge(a.lse, b.lse);
    struct part part = {0.0f, merged.lse};

    if (a.lse != TESS_NEG_INF)
        part.output += merged.weight_1 * a.output;
    if (b.lse != TESS_NEG_INF)
        part.output += merged.weight_2 * b.output;
    return part;
}

static void expect_part(struct part got, double output, double lse)
{
    const double size = isinf(lse) ? 0.0 : fabs(lse);
    expect_near((double)got.output, output, 4e-6 * fmax(1.0, fabs(output)));
    expect_near((double)got.lse, lse, 2e-6 + size * 0x1p-21);
}

/* HO-38: two empty states once merged to NaN, and a base 2 logarithm once passed for a natural. */
static void merges_with_known_answers(void **state)
{
    const struct part empty = {0.0f, TESS_NEG_INF}, junk = {5.0f, TESS_NEG_INF};
    const struct part unwritten = {NAN, TESS_NEG_INF};
    const struct part one = {7.0f, 1.0f}, a = {1.0f, 0.0f}, b = {3.0f, 1.09861229f};
    const struct part both = join(empty, empty);
    const struct part kept[] = {join(junk, one), join(one, junk), join(one, unwritten)};

    (void)state;
    assert_int_equal(tess_bits(both.output), 0);
    assert_true(both.lse == TESS_NEG_INF);
    for (size_t i = 0; i < 3; i++)
        assert_true(kept[i].output == 7.0f && kept[i].lse == 1.0f);
    expect_part(join(a, b), 2.5, 1.386294361);
    expect_part(join(b, a), 2.5, 1.386294361);
}

static void an_empty_part_changes_no_bit(void **state)
{
    static const tess_f32 lse[] = {0.0f, 1.0f, -87.3f, 1e-30f, 1e30f, -1e30f, FLT_MAX, -FLT_MAX};

    (void)state;
    for (size_t i = 0; i < sizeof lse / sizeof lse[0]; i++) {
        const tess_os_merged left = tess_os_merge(TESS_NEG_INF, lse[i]);
        const tess_os_merged right = tess_os_merge(lse[i], TESS_NEG_INF);
        assert_true(left.lse == lse[i] && left.weight_1 == 0.0f && left.weight_2 == 1.0f);
        assert_true(right.lse == lse[i] && right.weight_1 == 1.0f && right.weight_2 == 0.0f);
    }
    assert_true(tess_os_merge(TESS_NEG_INF, TESS_NEG_INF).weight_1 == 0.0f);
    assert_true(tess_os_merge(TESS_NEG_INF, TESS_NEG_INF).weight_2 == 0.0f);
}

static void weights_of_a_merge(void **state)
{
    tess_u64 seed = 10;

    (void)state;
    for (int trial = 0; trial < 20000; trial++) {
        const tess_f32 size = exp2f((tess_f32)random_below(&seed, 40) - 10.0f);
        const tess_f32 x = size * random_unit(&seed), y = size * random_unit(&seed);
        const tess_os_merged merged = tess_os_merge(x, y);
        const tess_os_merged mirrored = tess_os_merge(y, x);
        const double share = 1.0 / (1.0 + exp((double)y - (double)x));

        expect_near((double)merged.weight_1, share, 1e-6);
        expect_near((double)merged.weight_2, 1.0 - share, 1e-6);
        assert_true(merged.lse >= tess_max(x, y));
        assert_int_equal(tess_bits(mirrored.lse), tess_bits(merged.lse));
        assert_int_equal(tess_bits(mirrored.weight_1), tess_bits(merged.weight_2));
    }
    assert_true(tess_os_merge(5.0f, 5.0f).weight_1 == 0.5f);
    assert_true(tess_os_merge(FLT_MAX, -FLT_MAX).weight_1 == 1.0f);
    assert_true(tess_os_merge(FLT_MAX, -FLT_MAX).weight_2 == 0.0f);
}

static void merging_does_not_hide_nan(void **state)
{
    const tess_f32 bad[] = {NAN, -NAN, INFINITY};
    const tess_f32 good[] = {0.0f, 1e30f, -1e30f, TESS_NEG_INF, NAN, INFINITY};

    (void)state;
    for (size_t b = 0; b < 3; b++)
        for (size_t g = 0; g < 6; g++) {
            const struct part x = {1.0f, bad[b]}, y = {2.0f, good[g]};
            assert_true(tess_is_nan(join(x, y).lse) && tess_is_nan(join(x, y).output));
            assert_true(tess_is_nan(join(y, x).lse) && tess_is_nan(join(y, x).output));
        }
}

/* However the columns are cut and in whatever order the parts are merged, the whole comes out; one
 * chunk in three is masked to nothing. */
static void chunks_merge_to_the_whole(void **state)
{
    enum { COLUMNS = 100, CHUNKS = 8 };
    tess_f32 scores[COLUMNS], values[COLUMNS];
    tess_u64 seed = 11;

    (void)state;
    for (int trial = 0; trial < 300; trial++)
        for (int chunks = 1; chunks <= CHUNKS; chunks++) {
            struct part parts[CHUNKS], left, right;
            fill(&seed, scores, values, COLUMNS, 25.0f);
            for (int c = 0; c < chunks; c++) {
                const int first = COLUMNS * c / chunks, end = COLUMNS * (c + 1) / chunks;
                const int is_masked = random_below(&seed, 3) == 0;
                for (int j = first; j < end && is_masked; j++)
                    scores[j] = TESS_NEG_INF;
                parts[c] =
                    finish(add_tiles(start(), scores + first, values + first, end - first, 16));
            }
            const struct answer answer = define(scores, values, COLUMNS, -HUGE_VAL);
            left = parts[0];
            right = parts[chunks - 1];
            for (int c = 1; c < chunks; c++) {
                left = join(left, parts[c]);
                right = join(parts[chunks - 1 - c], right);
            }
            expect_part(left, answer.output, answer.lse);
            expect_part(right, answer.output, answer.lse);
        }
}

static void tanh_without_a_library(void **state)
{
    (void)state;
    for (tess_u32 bits = 0; bits < 0x7f800000u; bits += 9973u) {
        const tess_f32 x = tess_from_bits(bits);
        const double want = tanh((double)x);
        expect_near((double)tess_tanh_from_exp2(x), want, want * 5e-7 + 1e-45);
        expect_near((double)tess_tanh_from_exp2(-x), -want, want * 5e-7 + 1e-45);
    }
    assert_int_equal(tess_bits(tess_tanh_from_exp2(-0.0f)), tess_bits(-0.0f));
    assert_true(tess_tanh_from_exp2(INFINITY) == 1.0f);
    assert_true(tess_tanh_from_exp2(-INFINITY) == -1.0f);
    assert_true(tess_is_nan(tess_tanh_from_exp2(NAN)));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(any_tiling_equals_two_passes),
        cmocka_unit_test(rising_and_falling_scores),
        cmocka_unit_test(the_shift_lags_by_so_much),
        cmocka_unit_test(the_lag_is_exact_at_its_edge),
        cmocka_unit_test(a_constant_moves_only_the_shift),
        cmocka_unit_test(a_step_is_safe_before_the_first_score),
        cmocka_unit_test(a_row_without_columns_is_zero),
        cmocka_unit_test(masked_tiles_change_no_bit),
        cmocka_unit_test(minus_infinity_is_absent),
        cmocka_unit_test(very_negative_scores_are_present),
        cmocka_unit_test(scores_of_any_size_enter),
        cmocka_unit_test(nan_and_plus_infinity_are_not_lost),
        cmocka_unit_test(a_sink_counts_once_and_has_no_value),
        cmocka_unit_test(a_sink_alone),
        cmocka_unit_test(odd_sinks),
        cmocka_unit_test(merges_with_known_answers),
        cmocka_unit_test(an_empty_part_changes_no_bit),
        cmocka_unit_test(weights_of_a_merge),
        cmocka_unit_test(merging_does_not_hide_nan),
        cmocka_unit_test(chunks_merge_to_the_whole),
        cmocka_unit_test(tanh_without_a_library),
    };
    const int failed = cmocka_run_group_tests(tests, NULL, NULL);

    return failed != 0;
}
