/* SPDX-License-Identifier: Apache-2.0
 * The kit's own conversions: every code of every narrow type, every rounding between neighbours. */
#include "tests/kit/number.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <string.h>

static const struct narrow {
    tess_dtype dtype;
    uint32_t codes, sign;
    uint32_t largest; /* code of the largest finite value */
} narrow[] = {
    {TESS_F16, 1u << 16, 0x8000, 0x7BFF},
    {TESS_BF16, 1u << 16, 0x8000, 0x7F7F},
    {TESS_E4M3, 1u << 8, 0x80, 0x7E},
    {TESS_E5M2, 1u << 8, 0x80, 0x7B},
};

enum { NARROW = sizeof narrow / sizeof *narrow };

/* Every code that is no NaN comes back; NaN comes back as NaN of the same sign. */
static void test_every_code(void **state)
{
    (void)state;
    for (int n = 0; n < NARROW; n++) {
        for (uint32_t code = 0; code < narrow[n].codes; code++) {
            const double value = tess_number_decode(narrow[n].dtype, code);
            const uint32_t back = tess_number_encode(narrow[n].dtype, value);

            if (isnan(value))
                assert_true(isnan(tess_number_decode(narrow[n].dtype, back)));
            else
                assert_int_equal(back, code);
        }
    }
}

/* The same values through memory, where f16 and bf16 have a short cut. */
static void test_load(void **state)
{
    (void)state;
    for (int n = 0; n < NARROW; n++) {
        for (uint32_t code = 0; code < narrow[n].codes; code++) {
            const double value = tess_number_decode(narrow[n].dtype, code);
            char memory[5] = {0};
            double loaded;

            tess_number_set_bits(narrow[n].dtype, memory + 1, code); /* not aligned */
            loaded = tess_number_load(narrow[n].dtype, memory + 1);
            assert_int_equal(tess_number_bits(narrow[n].dtype, memory + 1), code);
            assert_true(isnan(value) ? isnan(loaded) : memcmp(&loaded, &value, sizeof value) == 0);
            if (!isnan(value)) {
                tess_number_store(narrow[n].dtype, memory + 1, value);
                assert_int_equal(tess_number_bits(narrow[n].dtype, memory + 1), code);
            }
        }
    }
}

/* Codes of positive values are in the order of the values, so that neighbours are code and code+1:
 * what lies between rounds to the nearer, the middle to the even code. */
static void test_ties(void **state)
{
    (void)state;
    for (int n = 0; n < NARROW; n++) {
        const tess_dtype dtype = narrow[n].dtype;

        for (uint32_t code = 0; code < narrow[n].largest; code++) {
            const double low = tess_number_decode(dtype, code);
            const double high = tess_number_decode(dtype, code + 1), middle = (low + high) / 2;
            const uint32_t even = code % 2 == 0 ? code : code + 1;

            assert_true(low < high);
            assert_int_equal(tess_number_encode(dtype, middle), even);
            assert_int_equal(tess_number_encode(dtype, nextafter(middle, 0)), code);
            assert_int_equal(tess_number_encode(dtype, nextafter(middle, high)), code + 1);
            assert_int_equal(tess_number_encode(dtype, -middle), even | narrow[n].sign);
        }
    }
}

static void test_overflow(void **state)
{
    (void)state;
    for (int n = 0; n < NARROW; n++) {
        const tess_dtype dtype = narrow[n].dtype;
        const double largest = tess_number_decode(dtype, narrow[n].largest);
        const double step = largest - tess_number_decode(dtype, narrow[n].largest - 1);
        const double past = largest + step / 2; /* the first that rounds up */

        assert_true(tess_number_most(dtype) == largest);
        assert_int_equal(tess_number_encode(dtype, nextafter(past, 0)), narrow[n].largest);
        if (dtype == TESS_E4M3) {
            assert_int_equal(tess_number_encode(dtype, past), narrow[n].largest);
            assert_int_equal(tess_number_encode(dtype, 1e300), narrow[n].largest);
            assert_int_equal(tess_number_encode(dtype, (double)INFINITY), 0x7F);
            assert_int_equal(tess_number_encode(dtype, -(double)INFINITY), 0xFF);
        } else {
            assert_int_equal(tess_number_encode(dtype, past), narrow[n].largest + 1);
            assert_int_equal(tess_number_encode(dtype, 1e300), narrow[n].largest + 1);
            assert_true(tess_number_decode(dtype, narrow[n].largest + 1) == (double)INFINITY);
        }
        assert_true(isnan(tess_number_round(dtype, (double)NAN)));
        assert_int_equal(tess_number_encode(dtype, 1e-300), 0);
        assert_int_equal(tess_number_encode(dtype, -1e-300), narrow[n].sign);
    }
}

/* e4m3 at the places where encoders go wrong. */
static void test_e4m3_spots(void **state)
{
    static const double values[] = {240, 248, 256, 288, 304, 432, 447, 448, 463, 500};
    static const double expected[] = {240, 256, 256, 288, 320, 448, 448, 448, 448, 448};

    (void)state;
    for (size_t i = 0; i < sizeof values / sizeof *values; i++)
        assert_true(tess_number_round(TESS_E4M3, values[i]) == expected[i]);
    assert_true(tess_number_round(TESS_E4M3, 0x1p-9) == 0x1p-9);
    assert_true(tess_number_round(TESS_E4M3, 0x1p-10) == 0);
    assert_true(tess_number_round(TESS_E4M3, nextafter(0x1p-10, 1)) == 0x1p-9);
    assert_true(signbit(tess_number_round(TESS_E4M3, -0.0)));
    assert_true(isnan(tess_number_decode(TESS_E4M3, 0x7F)));
    assert_true(isnan(tess_number_decode(TESS_E4M3, 0xFF)));
    assert_true(tess_number_decode(TESS_E4M3, 0x7E) == 448);
    assert_true(tess_number_decode(TESS_E4M3, 0x01) == 0x1p-9);
}

/* f32 is what the compiler's cast does. */
static void test_f32(void **state)
{
    uint64_t random = 1;

    (void)state;
    for (int n = 0; n < 200000; n++) {
        double value;
        float cast;
        uint32_t bits;

        random = random * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
        value = ldexp((double)(int64_t)random, (int)(random >> 40 & 0x1FF) - 256 - 63);
        cast = (float)value;
        memcpy(&bits, &cast, sizeof bits);
        assert_int_equal(tess_number_encode(TESS_F32, value), bits);
        assert_true(tess_number_decode(TESS_F32, bits) == (double)cast);
    }
}

static void test_constants(void **state)
{
    (void)state;
    assert_true(tess_number_ulp(TESS_F32) == 0x1p-23);
    assert_true(tess_number_ulp(TESS_F16) == 0x1p-10);
    assert_true(tess_number_ulp(TESS_BF16) == 0x1p-7);
    assert_true(tess_number_least(TESS_F16) == 0x1p-24);
    assert_true(tess_number_least(TESS_F32) == 0x1p-149);
    for (int n = 0; n < NARROW; n++) {
        const tess_dtype dtype = narrow[n].dtype;

        assert_true(isnan(tess_number_decode(dtype, tess_number_prefill(dtype))));
        for (unsigned which = 0; which < 4; which++)
            assert_true(tess_number_poison(dtype, which) < narrow[n].codes);
        assert_true(isnan(tess_number_decode(dtype, tess_number_poison(dtype, 0))));
        assert_true(isnan(tess_number_decode(dtype, tess_number_poison(dtype, 1))));
    }
    assert_true(tess_number_decode(TESS_F16, tess_number_poison(TESS_F16, 2)) == (double)INFINITY);
    assert_true(tess_number_decode(TESS_BF16, tess_number_poison(TESS_BF16, 3)) ==
                -(double)INFINITY);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_code), cmocka_unit_test(test_load),
        cmocka_unit_test(test_ties),       cmocka_unit_test(test_overflow),
        cmocka_unit_test(test_e4m3_spots), cmocka_unit_test(test_f32),
        cmocka_unit_test(test_constants),
    };
    const int failed = cmocka_run_group_tests_name("kit_number", tests, NULL, NULL);

    return failed != 0;
}
