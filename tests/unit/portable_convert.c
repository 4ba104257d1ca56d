/* SPDX-License-Identifier: Apache-2.0
 * The storage types against independent arithmetic: every code, every tie, and random numbers. */
#include "core/portable/convert.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include <float.h>
#include <stdlib.h>

/* One storage type as its numbers, not as its code. */
struct format {
    const char *name;
    int exponent_bits, mantissa_bits;
    tess_u32 largest;  /* code of the largest finite number */
    tess_u32 overflow; /* what a number beyond it becomes */
    tess_u32 sign;
    int has_infinity;
    tess_f32 (*decode)(tess_u32 bits);
    tess_u32 (*encode)(tess_f32 value);
};

static const struct format f16 = {
    "f16", 5, 10, 0x7bffu, 0x7c00u, 0x8000u, 1, tess_f32_from_f16, tess_f16_from_f32};
static const struct format bf16 = {
    "bf16", 8, 7, 0x7f7fu, 0x7f80u, 0x8000u, 1, tess_f32_from_bf16, tess_bf16_from_f32};
static const struct format e4m3 = {
    "e4m3", 4, 3, 0x7eu, 0x7eu, 0x80u, 0, tess_f32_from_e4m3, tess_e4m3_from_f32};
static const struct format e5m2 = {
    "e5m2", 5, 2, 0x7bu, 0x7cu, 0x80u, 1, tess_f32_from_e5m2, tess_e5m2_from_f32};

static const struct format *const formats[] = {&f16, &bf16, &e4m3, &e5m2};
enum { FORMATS = sizeof formats / sizeof formats[0], MOST_CODES = 0x8001 };

/* Value of a finite code without sign. The code one past the largest is allowed too: it is where
 * the next number would be, which is what decides between the largest and an overflow. */
static double value_of(const struct format *format, tess_u32 code)
{
    const int bias = (1 << (format->exponent_bits - 1)) - 1;
    const int exponent = (int)(code >> format->mantissa_bits);
    const double fraction =
        ldexp((double)(code & ((1u << format->mantissa_bits) - 1u)), -format->mantissa_bits);

    if (exponent == 0)
        return ldexp(fraction, 1 - bias);
    return ldexp(1.0 + fraction, exponent - bias);
}

/* Ascending values of all codes of a format, with the one past the largest. */
static void tabulate(const struct format *format, double *values)
{
    for (tess_u32 code = 0; code <= format->largest + 1u; code++)
        values[code] = value_of(format, code);
}

/* Nearest code by searching the table; ties to the even code. The differences are exact in double,
 * or so lopsided that their rounding decides nothing. */
static tess_u32 nearest(const struct format *format, const double *values, double value)
{
    const tess_u32 sign = signbit(value) ? format->sign : 0u;
    const double size = fabs(value);
    tess_u32 low = 0, high = format->largest + 1u;

    if (size >= values[high])
        return sign | format->overflow;
    while (high - low > 1u) {
        const tess_u32 middle = (low + high) / 2u;
        if (values[middle] <= size)
            low = middle;
        else
            high = middle;
    }
    const double below = size - values[low], above = values[high] - size;
    const tess_u32 code = below < above || (below == above && low % 2u == 0u) ? low : high;
    return sign | (code <= format->largest ? code : format->overflow);
}

static double table[FORMATS][MOST_CODES];

static int make_tables(void **state)
{
    (void)state;
    for (size_t f = 0; f < FORMATS; f++)
        tabulate(formats[f], table[f]);
    return 0;
}

/* Fails with the number in question; a plain assertion would show only the two codes. */
static void expect_code(const struct format *format, const double *values, tess_f32 value)
{
    const tess_u32 got = format->encode(value);
    const tess_u32 want = nearest(format, values, (double)value);
    if (got != want)
        fail_msg("%s of %a (0x%08x) is 0x%x, should be 0x%x", format->name, (double)value,
                 tess_bits(value), got, want);
}

static void every_code_decodes(void **state)
{
    (void)state;
    for (size_t f = 0; f < FORMATS; f++) {
        const struct format *format = formats[f];
        for (tess_u32 code = 0; code < format->sign; code++) {
            const tess_f32 plus = format->decode(code);
            const tess_f32 minus = format->decode(code | format->sign);

            assert_int_equal(tess_bits(minus), tess_bits(plus) | TESS_SIGN_32);
            assert_int_equal(tess_bits(plus) & TESS_SIGN_32, 0);
            if (code <= format->largest)
                assert_true((double)plus == value_of(format, code));
            else if (format->has_infinity && code == format->largest + 1u)
                assert_int_equal(tess_bits(plus), TESS_INF_32);
            else
                assert_true(tess_is_nan(plus));
        }
    }
    assert_true(tess_f32_from_f16(f16.largest) == 65504.0f);
    assert_true(tess_f32_from_e4m3(e4m3.largest) == 448.0f);
    assert_true(tess_f32_from_e5m2(e5m2.largest) == 57344.0f);
    assert_true(tess_f32_from_e4m3(1) == 0x1p-9f);
    assert_true(tess_f32_from_e5m2(1) == 0x1p-16f);
}

static void every_number_survives_a_round_trip(void **state)
{
    (void)state;
    for (size_t f = 0; f < FORMATS; f++) {
        const struct format *format = formats[f];
        const tess_u32 end = format->largest + (format->has_infinity ? 1u : 0u);
        for (tess_u32 code = 0; code <= end; code++) {
            assert_int_equal(format->encode(format->decode(code)), code);
            assert_int_equal(format->encode(format->decode(code | format->sign)),
                             code | format->sign);
        }
    }
}

/* All 16-bit numbers into the 8-bit types. */
static void wider_codes_narrow(void **state)
{
    (void)state;
    for (size_t from = 0; from < 2; from++)
        for (size_t to = 2; to < 4; to++)
            for (tess_u32 code = 0; code < 0x10000u; code++) {
                const tess_f32 value = formats[from]->decode(code);
                if (!tess_is_nan(value))
                    expect_code(formats[to], table[to], value);
            }
}

/* Between each two neighbours: the tie itself and one f32 step to either side of it. */
static void ties_go_to_even(void **state)
{
    (void)state;
    for (size_t f = 0; f < FORMATS; f++) {
        for (tess_u32 code = 0; code <= formats[f]->largest; code++) {
            const tess_f32 tie = (tess_f32)((table[f][code] + table[f][code + 1u]) / 2.0);
            const tess_f32 near_tie[3] = {nextafterf(tie, 0.0f), tie, nextafterf(tie, INFINITY)};

            assert_true((double)tie * 2.0 == table[f][code] + table[f][code + 1u]);
            for (int i = 0; i < 3; i++) {
                expect_code(formats[f], table[f], near_tie[i]);
                expect_code(formats[f], table[f], -near_tie[i]);
            }
        }
    }
}

static tess_u64 random_bits(tess_u64 *seed) /* splitmix64 */
{
    tess_u64 z = *seed += 0x9e3779b97f4a7c15u;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
}

/* Any bit pattern, and as many more with an exponent near the format's own: most patterns are far
 * beyond an 8-bit type. */
static void random_numbers_round_to_nearest(void **state)
{
    tess_u64 seed = 1;

    (void)state;
    for (size_t f = 0; f < FORMATS; f++) {
        const int span = (1 << formats[f]->exponent_bits) + formats[f]->mantissa_bits + 4;
        for (int i = 0; i < 1 << 21; i++) {
            const tess_u64 bits = random_bits(&seed);
            const tess_f32 any = tess_from_bits((tess_u32)bits);
            const tess_f32 mantissa = tess_from_bits(((tess_u32)bits & 0x807fffffu) | 0x3f800000u);
            const int exponent = (int)((bits >> 32) % (tess_u64)span) - span / 2 - 4;

            if (!tess_is_nan(any))
                expect_code(formats[f], table[f], any);
            expect_code(formats[f], table[f], ldexpf(mantissa, exponent));
        }
    }
}

static void the_ends_of_f32(void **state)
{
    const tess_f32 ends[] = {0.0f, 1e-45f, FLT_MIN, 0x0.fffffep-126f, FLT_MAX, INFINITY};

    (void)state;
    for (size_t i = 0; i < sizeof ends / sizeof ends[0]; i++)
        for (size_t f = 0; f < FORMATS; f++) {
            expect_code(formats[f], table[f], ends[i]);
            expect_code(formats[f], table[f], -ends[i]);
        }
    assert_int_equal(tess_e4m3_from_f32(INFINITY), 0x7e);
    assert_int_equal(tess_e4m3_from_f32(-INFINITY), 0xfe);
    assert_int_equal(tess_e5m2_from_f32(-INFINITY), 0xfc);
    assert_int_equal(tess_f16_from_f32(65519.996f), 0x7bff);
    assert_int_equal(tess_f16_from_f32(65520.0f), 0x7c00);
}

/* Quiet and signalling, with each payload bit alone, and of either sign. */
static void nan_stays_nan(void **state)
{
    (void)state;
    for (int bit = 0; bit < 23; bit++) {
        for (tess_u32 sign = 0; sign < 2; sign++) {
            const tess_f32 nan = tess_from_bits(sign << 31 | TESS_INF_32 | 1u << bit);

            assert_int_equal(tess_e4m3_from_f32(nan), sign << 7 | 0x7fu);
            assert_int_equal(tess_e5m2_from_f32(nan) & 0xfeu, sign << 7 | 0x7eu);
            assert_int_equal(tess_f16_from_f32(nan) & 0xfe00u, sign << 15 | 0x7e00u);
            assert_int_equal(tess_bf16_from_f32(nan) & 0xffc0u, sign << 15 | 0x7fc0u);
        }
    }
    /* The payload moves as it does in hardware, so that the host can predict a device. */
    assert_int_equal(tess_f16_from_f32(tess_from_bits(0x7fc02000u)), 0x7e01);
    assert_int_equal(tess_bf16_from_f32(tess_from_bits(0x7fffffffu)), 0x7fff);
    assert_int_equal(tess_bits(tess_f32_from_f16(0x7c01)), 0x7fc02000);
    assert_int_equal(tess_bits(tess_f32_from_f16(0xfe01)), 0xffc02000);
    assert_int_equal(tess_bits(tess_f32_from_e4m3(0xff)), 0xffc00000);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_code_decodes),
        cmocka_unit_test(every_number_survives_a_round_trip),
        cmocka_unit_test(wider_codes_narrow),
        cmocka_unit_test(ties_go_to_even),
        cmocka_unit_test(random_numbers_round_to_nearest),
        cmocka_unit_test(the_ends_of_f32),
        cmocka_unit_test(nan_stays_nan),
    };
    const int failed = cmocka_run_group_tests(tests, make_tables, NULL);
    return failed != 0;
}
