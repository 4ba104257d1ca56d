/* SPDX-License-Identifier: Apache-2.0
 * Tests the emulated builtins of AMD GPUs: each matrix instruction against a layout written down a
 * second time, the other way round: not which numbers a lane holds, but who holds a number. */
#include "tests/emulation/amd/builtins.h"

#include <csetjmp>
#include <cstdarg>
#include <cstddef>

extern "C" {
#include <cmocka.h>
}

namespace
{

/* Where a number of a matrix is: in a lane, and there number `at`. */
struct place {
    uint32_t lane, at;
};

/* MFMA, by the general rule of AMD's "CDNA 3 Instruction Set Architecture", 7.1.4.2, for one block:
 * with N = M columns of H = 4 rows each, M_I = 64 / N. */
template <uint32_t M, uint32_t K> struct mfma {
    enum { SIDE = M, DEPTH = K, LANES = 64, COPIES = 1, EACH = K * M / 64, SUMS = M * M / 64 };
    static place operand(uint32_t side, uint32_t k, uint32_t)
    {
        return {side + M * (k / EACH), k % EACH};
    }
    static place sum(uint32_t i, uint32_t j)
    {
        const uint32_t h = 4, m_i = 64 / M;
        return {j + M * (i / h % m_i), i % h + h * (i / (h * m_i))};
    }
};

/* WMMA of RDNA 3: operands are in both halves of the wave. */
struct wmma_3 {
    enum { SIDE = 16, DEPTH = 16, LANES = 32, COPIES = 2, EACH = 16, SUMS = 8 };
    static place operand(uint32_t side, uint32_t k, uint32_t copy) { return {side + 16 * copy, k}; }
    static place sum(uint32_t i, uint32_t j) { return {j + i % 2 * 16, i / 2}; }
};

struct wmma_4 {
    enum { SIDE = 16, DEPTH = 16, LANES = 32, COPIES = 1, EACH = 8, SUMS = 8 };
    static place operand(uint32_t side, uint32_t k, uint32_t)
    {
        return {side + k / 4 % 2 * 16, k / 8 * 4 + k % 4};
    }
    static place sum(uint32_t i, uint32_t j) { return {j + i / 8 * 16, i % 8}; }
};

/* What lanes have in registers. */
template <uint32_t COUNT> struct numbers {
    unsigned short at[COUNT];
};
template <uint32_t COUNT> struct floats {
    float at[COUNT];
};
template <class LAYOUT> struct setting {
    numbers<LAYOUT::EACH> a[LAYOUT::LANES], b[LAYOUT::LANES];
    floats<LAYOUT::SUMS> c[LAYOUT::LANES];
};

unsigned short narrow(float x, bool is_bf16)
{
    return static_cast<unsigned short>(is_bf16 ? tess_bf16_from_f32(x) : tess_f16_from_f32(x));
}

const char *run(void (*kernel)(const void *), const void *arguments, uint32_t lanes)
{
    tess_emulated_launch launch = {};
    launch.kernel = kernel;
    launch.arguments = arguments;
    launch.blocks = 1;
    launch.threads = launch.wave = lanes;
    launch.shared_size = 16;
    launch.order = TESS_EMULATED_RANDOM;
    return tess_emulate(&launch);
}

/* Small whole numbers, whose products are exact in any order. */
float element(uint32_t matrix, uint32_t row, uint32_t column)
{
    return static_cast<float>((row * 7 + column * 13 + matrix * 5 + row * column) % 15) - 7.0f;
}

template <class LAYOUT> void multiplies(void (*kernel)(const void *), bool is_bf16)
{
    static setting<LAYOUT> s;

    for (uint32_t side = 0; side < LAYOUT::SIDE; side++)
        for (uint32_t k = 0; k < LAYOUT::DEPTH; k++)
            for (uint32_t copy = 0; copy < LAYOUT::COPIES; copy++) {
                const place p = LAYOUT::operand(side, k, copy);
                s.a[p.lane].at[p.at] = narrow(element(0, side, k), is_bf16);
                s.b[p.lane].at[p.at] = narrow(element(1, k, side), is_bf16);
            }
    for (uint32_t i = 0; i < LAYOUT::SIDE; i++)
        for (uint32_t j = 0; j < LAYOUT::SIDE; j++) {
            const place p = LAYOUT::sum(i, j);
            s.c[p.lane].at[p.at] = element(2, i, j);
        }
    assert_null(run(kernel, &s, LAYOUT::LANES));
    for (uint32_t i = 0; i < LAYOUT::SIDE; i++)
        for (uint32_t j = 0; j < LAYOUT::SIDE; j++) {
            const place p = LAYOUT::sum(i, j);
            float wanted = element(2, i, j);
            for (uint32_t k = 0; k < LAYOUT::DEPTH; k++)
                wanted += element(0, i, k) * element(1, k, j);
            assert_true(s.c[p.lane].at[p.at] == wanted);
        }
}

/* One kernel and one test for each instruction. */
#define MATRIX_TEST(name, layout, is_bf16, call)                                                   \
    void run_##name(const void *arguments)                                                         \
    {                                                                                              \
        auto &s = *const_cast<setting<layout> *>(static_cast<const setting<layout> *>(arguments)); \
        const uint32_t lane = tess_emulated_thread();                                              \
        const auto &a = s.a[lane];                                                                 \
        const auto &b = s.b[lane];                                                                 \
        auto &c = s.c[lane];                                                                       \
        c = call;                                                                                  \
    }                                                                                              \
    void name(void **)                                                                             \
    {                                                                                              \
        multiplies<layout>(run_##name, is_bf16);                                                   \
    }

typedef mfma<32, 8> mfma_32x32x8;
typedef mfma<16, 16> mfma_16x16x16;
typedef mfma<32, 16> mfma_32x32x16;
typedef mfma<16, 32> mfma_16x16x32;
MATRIX_TEST(mfma_32x32x8_f16, mfma_32x32x8, false,
            __builtin_amdgcn_mfma_f32_32x32x8f16(a, b, c, 0, 0, 0))
MATRIX_TEST(mfma_32x32x8_bf16, mfma_32x32x8, true,
            __builtin_amdgcn_mfma_f32_32x32x8bf16_1k(a, b, c, 0, 0, 0))
MATRIX_TEST(mfma_16x16x16_f16, mfma_16x16x16, false,
            __builtin_amdgcn_mfma_f32_16x16x16f16(a, b, c, 0, 0, 0))
MATRIX_TEST(mfma_16x16x16_bf16, mfma_16x16x16, true,
            __builtin_amdgcn_mfma_f32_16x16x16bf16_1k(a, b, c, 0, 0, 0))
MATRIX_TEST(mfma_32x32x16_f16, mfma_32x32x16, false,
            __builtin_amdgcn_mfma_f32_32x32x16_f16(a, b, c, 0, 0, 0))
MATRIX_TEST(mfma_32x32x16_bf16, mfma_32x32x16, true,
            __builtin_amdgcn_mfma_f32_32x32x16_bf16(a, b, c, 0, 0, 0))
MATRIX_TEST(mfma_16x16x32_f16, mfma_16x16x32, false,
            __builtin_amdgcn_mfma_f32_16x16x32_f16(a, b, c, 0, 0, 0))
MATRIX_TEST(mfma_16x16x32_bf16, mfma_16x16x32, true,
            __builtin_amdgcn_mfma_f32_16x16x32_bf16(a, b, c, 0, 0, 0))
MATRIX_TEST(wmma_rdna3_f16, wmma_3, false, __builtin_amdgcn_wmma_f32_16x16x16_f16_w32(a, b, c))
MATRIX_TEST(wmma_rdna3_bf16, wmma_3, true, __builtin_amdgcn_wmma_f32_16x16x16_bf16_w32(a, b, c))
MATRIX_TEST(wmma_rdna4_f16, wmma_4, false,
            __builtin_amdgcn_wmma_f32_16x16x16_f16_w32_gfx12(a, b, c))
MATRIX_TEST(wmma_rdna4_bf16, wmma_4, true,
            __builtin_amdgcn_wmma_f32_16x16x16_bf16_w32_gfx12(a, b, c))

/* ---- What else matrix instructions do ---- */

template <uint32_t FLAGS> void multiply_small(const void *arguments)
{
    auto &out = *static_cast<float *const *>(arguments);
    numbers<4> a = {}, b = {};
    floats<16> c = {};

    a.at[0] = 0x0001; /* 2^-24 */
    b.at[0] = 0x3C00; /* 1 */
    c = tess_amd_matrix_builtin(TESS_MFMA_32X32X8 | FLAGS, a, b, c);
    out[tess_emulated_thread()] = c.at[0];
}

void only_gfx90a_flushes(void **)
{
    float out[64];
    float *const arguments = out;

    assert_null(run(multiply_small<0>, &arguments, 64));
    assert_true(out[0] == 2.0f * 5.9604645e-8f); /* both halves of the wave add one */
    assert_null(run(multiply_small<TESS_AMD_FLUSHES>, &arguments, 64));
    assert_true(out[0] == 0.0f);
}

void multiply_halves_that_differ(const void *)
{
    numbers<16> a = {};
    floats<8> c = {};

    a.at[3] = static_cast<unsigned short>(tess_emulated_thread() / 16);
    (void)__builtin_amdgcn_wmma_f32_16x16x16_f16_w32(a, a, c);
}

void multiply_in_another_wave(const void *)
{
    numbers<8> a = {};
    floats<8> c = {};

    (void)__builtin_amdgcn_wmma_f32_16x16x16_f16_w32_gfx12(a, a, c);
}

void mistakes_with_matrices_are_noticed(void **)
{
    const char *text = run(multiply_halves_that_differ, nullptr, 32);

    assert_non_null(text);
    assert_non_null(std::strstr(text, "different operands"));
    text = run(multiply_in_another_wave, nullptr, 64);
    assert_non_null(text);
    assert_non_null(std::strstr(text, "another width"));
}

/* ---- Between lanes ---- */

struct exchanged {
    int swizzled[64], permuted[64];
    uint32_t crossed[64], turned[64];
    uint64_t ballot[64];
    int first[64];
};

void exchange(const void *arguments)
{
    auto &out = *const_cast<exchanged *>(static_cast<const exchanged *>(arguments));
    const uint32_t lane = tess_emulated_thread(), lanes = tess_emulated_wave();
    const int value = static_cast<int>(1000 + lane);

    out.swizzled[lane] = __builtin_amdgcn_ds_swizzle(value, 5 << 10 | 0x1F);
    out.permuted[lane] =
        __builtin_amdgcn_ds_bpermute(static_cast<int>(4 * (lane ^ lanes / 2)), value);
    out.crossed[lane] =
        __builtin_amdgcn_permlanex16(0u, 1000 + lane, 0x76543210u, 0xFEDCBA98u, true, false);
    out.turned[lane] =
        __builtin_amdgcn_permlanex16(0u, 1000 + lane, 0x89ABCDEFu, 0x01234567u, true, false);
    out.ballot[lane] = lanes == 64 ? __builtin_amdgcn_ballot_w64(lane % 3 == 0)
                                   : __builtin_amdgcn_ballot_w32(lane % 3 == 0);
    out.first[lane] = __builtin_amdgcn_readfirstlane(77);
}

void lanes_exchange(void **)
{
    static exchanged out;

    for (uint32_t lanes = 32; lanes <= 64; lanes += 32) {
        assert_null(run(exchange, &out, lanes));
        for (uint32_t lane = 0; lane < lanes; lane++) {
            const uint32_t row = lane / 16, place = lane % 16;
            assert_int_equal(out.swizzled[lane], 1000 + (lane ^ 5));
            assert_int_equal(out.permuted[lane], 1000 + (lane + lanes / 2) % lanes);
            assert_int_equal(out.crossed[lane], 1000 + (row ^ 1) * 16 + place);
            assert_int_equal(out.turned[lane], 1000 + (row ^ 1) * 16 + 15 - place);
            assert_int_equal(out.ballot[lane] >> lane & 1, lane % 3 == 0);
            assert_int_equal(out.first[lane], 77);
        }
    }
}

void read_what_differs(const void *)
{
    (void)__builtin_amdgcn_readfirstlane(static_cast<int>(tess_emulated_thread() / 20));
}
void read_from_no_lane(const void *)
{
    (void)__builtin_amdgcn_ds_bpermute(static_cast<int>(4 * (tess_emulated_thread() + 1)), 0);
}

void mistakes_between_lanes_are_noticed(void **)
{
    const char *text = run(read_what_differs, nullptr, 64);

    assert_non_null(text);
    assert_non_null(std::strstr(text, "differs between lanes"));
    text = run(read_from_no_lane, nullptr, 32);
    assert_non_null(text);
    assert_non_null(std::strstr(text, "of no lane"));
}

void bytes_are_chosen(void **)
{
    assert_int_equal(__builtin_amdgcn_perm(0x77665544u, 0x33221100u, 0x07060302u), 0x77663322u);
    assert_int_equal(__builtin_amdgcn_perm(0x77665544u, 0x33221100u, 0x05040100u), 0x55441100u);
    assert_int_equal(__builtin_amdgcn_perm(0x77665544u, 0x33221100u, 0x00010407u), 0x00114477u);
}

} /* namespace */

int main()
{
    const CMUnitTest tests[] = {
        cmocka_unit_test(mfma_32x32x8_f16),    cmocka_unit_test(mfma_32x32x8_bf16),
        cmocka_unit_test(mfma_16x16x16_f16),   cmocka_unit_test(mfma_16x16x16_bf16),
        cmocka_unit_test(mfma_32x32x16_f16),   cmocka_unit_test(mfma_32x32x16_bf16),
        cmocka_unit_test(mfma_16x16x32_f16),   cmocka_unit_test(mfma_16x16x32_bf16),
        cmocka_unit_test(wmma_rdna3_f16),      cmocka_unit_test(wmma_rdna3_bf16),
        cmocka_unit_test(wmma_rdna4_f16),      cmocka_unit_test(wmma_rdna4_bf16),
        cmocka_unit_test(only_gfx90a_flushes), cmocka_unit_test(mistakes_with_matrices_are_noticed),
        cmocka_unit_test(lanes_exchange),      cmocka_unit_test(mistakes_between_lanes_are_noticed),
        cmocka_unit_test(bytes_are_chosen),
    };

    return cmocka_run_group_tests(tests, NULL, NULL) != 0;
}
