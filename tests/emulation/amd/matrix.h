/* SPDX-License-Identifier: Apache-2.0
 * AMD's matrix instructions on the fibers of emulate.h: which lane holds which numbers. */
#ifndef TESSERA_TESTS_EMULATION_AMD_MATRIX_H
#define TESSERA_TESTS_EMULATION_AMD_MATRIX_H

#include "core/portable/convert.h"
#include "tests/emulation/emulate.h"

#include <cstring>

/* D = A B + C with A of SIDE x K, B of K x SIDE. A lane holds `each` numbers of A and of B and
 * `sums` of C and D. From AMD's ISA documents and matrix instruction calculator. */
struct tess_amd_matrix {
    uint32_t lanes, side, depth, each, sums;
    bool is_bf16;
    bool flushes; /* numbers of A and B below the normal ones are zero, and so are such sums */
    /* Of element e of A in a lane: the row is lane % side; of B: the column is. */
    uint32_t (*k_of)(uint32_t lane, uint32_t e);
    /* Of sum r: the column is lane % side. */
    uint32_t (*row_of)(uint32_t lane, uint32_t r);
};

/* A lane's operands. */
struct tess_amd_operands {
    unsigned short a[16], b[16];
    tess_f32 c[16];
};

/* Values of all 16-bit codes, made when first asked for. */
static inline const tess_f32 *tess_amd_values(bool is_bf16, bool flushes)
{
    static tess_f32 values[2][2][65536];
    static bool is_made[2][2];
    tess_f32 *const own = values[is_bf16][flushes];

    for (tess_u32 code = 0; !is_made[is_bf16][flushes] && code < 65536; code++) {
        const bool is_small = (code & (is_bf16 ? 0x7F80u : 0x7C00u)) == 0u;
        own[code] = is_bf16 ? tess_f32_from_bf16(code) : tess_f32_from_f16(code);
        if (flushes && is_small)
            own[code] = 0.0f;
    }
    is_made[is_bf16][flushes] = true;
    return own;
}

static inline void tess_amd_multiply(const tess_emulated_part *parts, uint32_t lanes,
                                     const tess_amd_matrix &m)
{
    static tess_f32 a[32][32], b[32][32], d[32][32]; /* a by rows; b by depth */
    const tess_f32 *const values = tess_amd_values(m.is_bf16, m.flushes);

    if (lanes != m.lanes)
        tess_emulated_fail("a matrix instruction of another width of waves");
    for (uint32_t lane = 0; lane < lanes; lane++) {
        const auto &in = *static_cast<const tess_amd_operands *>(parts[lane].in);
        for (uint32_t e = 0; e < m.each; e++) {
            a[lane % m.side][m.k_of(lane, e)] = values[in.a[e]];
            b[m.k_of(lane, e)][lane % m.side] = values[in.b[e]];
        }
        for (uint32_t r = 0; r < m.sums; r++)
            d[m.row_of(lane, r)][lane % m.side] = in.c[r];
    }
    for (uint32_t i = 0; i < m.side; i++)
        for (uint32_t k = 0; k < m.depth; k++)
            for (uint32_t j = 0; j < 32; j++) /* all, so that they are computed side by side */
                d[i][j] += a[i][k] * b[k][j];
    for (uint32_t lane = 0; lane < lanes; lane++)
        for (uint32_t r = 0; r < m.sums; r++) {
            const tess_f32 x = d[m.row_of(lane, r)][lane % m.side];
            static_cast<tess_f32 *>(parts[lane].out)[r] =
                m.flushes && tess_abs(x) < 1.17549435e-38f ? 0.0f : x;
        }
}

/* ---- MFMA of CDNA: waves of 64 ---- */

template <uint32_t SIDE, uint32_t EACH>
static inline uint32_t tess_mfma_k(uint32_t lane, uint32_t e)
{
    return EACH * (lane / SIDE) + e;
}
static inline uint32_t tess_mfma_row_32(uint32_t lane, uint32_t r)
{
    return 8 * (r / 4) + 4 * (lane / 32) + r % 4;
}
static inline uint32_t tess_mfma_row_16(uint32_t lane, uint32_t r)
{
    return 4 * (lane / 16) + r;
}
template <uint32_t SIDE, uint32_t EACH>
constexpr tess_amd_matrix tess_mfma(bool is_bf16, bool flushes)
{
    return {64,
            SIDE,
            EACH * 64 / SIDE,
            EACH,
            SIDE * SIDE / 64,
            is_bf16,
            flushes,
            tess_mfma_k<SIDE, EACH>,
            SIDE == 32 ? tess_mfma_row_32 : tess_mfma_row_16};
}

/* ---- WMMA of RDNA: 16 x 16, 16 deep, waves of 32 ---- */

/* RDNA 3: the two halves of the wave hold the same numbers. */
static inline uint32_t tess_wmma3_k(uint32_t, uint32_t e)
{
    return e;
}
static inline uint32_t tess_wmma3_row(uint32_t lane, uint32_t r)
{
    return 2 * r + lane / 16;
}
static inline uint32_t tess_wmma4_k(uint32_t lane, uint32_t e)
{
    return 8 * (e / 4) + 4 * (lane / 16) + e % 4;
}
static inline uint32_t tess_wmma4_row(uint32_t lane, uint32_t r)
{
    return 8 * (lane / 16) + r;
}
constexpr tess_amd_matrix tess_wmma3(bool is_bf16)
{
    return {32, 16, 16, 16, 8, is_bf16, false, tess_wmma3_k, tess_wmma3_row};
}
constexpr tess_amd_matrix tess_wmma4(bool is_bf16)
{
    return {32, 16, 16, 8, 8, is_bf16, false, tess_wmma4_k, tess_wmma4_row};
}

/* What RDNA 3 wants of its operands and what would else go unnoticed. */
static inline void tess_wmma3_check(const tess_emulated_part *parts, uint32_t lanes)
{
    for (uint32_t lane = 0; lane < lanes / 2; lane++)
        if (std::memcmp(parts[lane].in, parts[lane + 16].in, 64) != 0)
            tess_emulated_fail("wmma: the halves of the wave hold different operands");
}

/* ---- The builtins ---- */

enum tess_amd_kind { /* of the collective's number; all lanes come with the same */
                     TESS_MFMA_32X32X8,
                     TESS_MFMA_16X16X16,
                     TESS_MFMA_32X32X16,
                     TESS_MFMA_16X16X32,
                     TESS_WMMA_RDNA3,
                     TESS_WMMA_RDNA4,
                     TESS_AMD_BF16 = 16,
                     TESS_AMD_FLUSHES = 32
};

static inline void tess_amd_together(const tess_emulated_part *parts, uint32_t lanes,
                                     uint32_t number)
{
    const bool is_bf16 = (number & TESS_AMD_BF16) != 0, flushes = (number & TESS_AMD_FLUSHES) != 0;

    switch (number % 16) {
    case TESS_MFMA_32X32X8:
        tess_amd_multiply(parts, lanes, tess_mfma<32, 4>(is_bf16, flushes));
        break;
    case TESS_MFMA_16X16X16:
        tess_amd_multiply(parts, lanes, tess_mfma<16, 4>(is_bf16, flushes));
        break;
    case TESS_MFMA_32X32X16:
        tess_amd_multiply(parts, lanes, tess_mfma<32, 8>(is_bf16, flushes));
        break;
    case TESS_MFMA_16X16X32:
        tess_amd_multiply(parts, lanes, tess_mfma<16, 8>(is_bf16, flushes));
        break;
    case TESS_WMMA_RDNA3:
        tess_wmma3_check(parts, lanes);
        tess_amd_multiply(parts, lanes, tess_wmma3(is_bf16));
        break;
    default:
        tess_amd_multiply(parts, lanes, tess_wmma4(is_bf16));
        break;
    }
}

template <class OPERAND, class SUMS>
static inline SUMS tess_amd_matrix_builtin(uint32_t kind, const OPERAND &a, const OPERAND &b,
                                           const SUMS &c)
{
    tess_amd_operands in = {};
    SUMS out;
    static_assert(sizeof a <= sizeof in.a && sizeof c <= sizeof in.c, "operands of this size");

    std::memcpy(in.a, &a, sizeof a);
    std::memcpy(in.b, &b, sizeof b);
    std::memcpy(in.c, &c, sizeof c);
    tess_emulated_collective(tess_amd_together, kind, &in, &out);
    return out;
}

#endif
