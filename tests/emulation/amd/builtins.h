/* SPDX-License-Identifier: Apache-2.0
 * The compiler's builtins for AMD GPUs on the fibers of emulate.h: what kernels for them run on
 * where there is no such GPU. */
#ifndef TESSERA_TESTS_EMULATION_AMD_BUILTINS_H
#define TESSERA_TESTS_EMULATION_AMD_BUILTINS_H

#include "core/portable/convert.h"
#include "tests/emulation/amd/matrix.h"
#include "tests/emulation/emulate.h"

#include <cmath>
#include <cstring>

/* ---- Where a lane is ---- */

#define __builtin_amdgcn_workitem_id_x() tess_emulated_thread()
#define __builtin_amdgcn_workgroup_id_x() tess_emulated_block()
#define __builtin_amdgcn_implicitarg_ptr() tess_amd_hidden_arguments()

/* The number of blocks is the first of the hidden arguments. */
static inline const void *tess_amd_hidden_arguments()
{
    static uint32_t blocks;
    blocks = tess_emulated_blocks();
    return &blocks;
}

/* ---- Waiting ---- */

#define __builtin_amdgcn_fence(...) static_cast<void>(0)
#define __builtin_amdgcn_s_barrier() tess_emulated_barrier()
#define __builtin_amdgcn_sched_group_barrier(...) static_cast<void>(0)
#define __builtin_amdgcn_sched_barrier(...) static_cast<void>(0)
#define __builtin_amdgcn_s_setprio(...) static_cast<void>(0)

/* ---- Between lanes ---- */

struct tess_amd_words {
    uint32_t at[4];
};
static inline const tess_amd_words &tess_amd_in(const tess_emulated_part *parts, uint32_t lane)
{
    return *static_cast<const tess_amd_words *>(parts[lane].in);
}
static inline void tess_amd_put(const tess_emulated_part *parts, uint32_t lane, uint64_t value)
{
    *static_cast<uint64_t *>(parts[lane].out) = value;
}
static inline uint64_t tess_amd_collective(tess_emulated_together together, uint32_t number,
                                           tess_amd_words in)
{
    uint64_t out;
    tess_emulated_collective(together, number, &in, &out);
    return out;
}

/* Bit mode, in groups of 32 lanes: from ((lane & and) | or) ^ xor. */
static inline void tess_amd_swizzle_together(const tess_emulated_part *parts, uint32_t lanes,
                                             uint32_t pattern)
{
    if (pattern >> 15)
        tess_emulated_fail("ds_swizzle: only the bit mode is known here");
    for (uint32_t lane = 0; lane < lanes; lane++) {
        const uint32_t from = ((lane & pattern & 31u) | (pattern >> 5 & 31u)) ^ (pattern >> 10);
        tess_amd_put(parts, lane, tess_amd_in(parts, lane / 32 * 32 + from).at[0]);
    }
}
static inline int tess_amd_swizzle(int value, uint32_t pattern)
{
    return static_cast<int>(tess_amd_collective(tess_amd_swizzle_together, pattern,
                                                {{static_cast<uint32_t>(value), 0, 0, 0}}));
}
#define __builtin_amdgcn_ds_swizzle(value, pattern) tess_amd_swizzle(value, pattern)

/* From the lane whose number times four is the address. */
static inline void tess_amd_bpermute_together(const tess_emulated_part *parts, uint32_t lanes,
                                              uint32_t)
{
    for (uint32_t lane = 0; lane < lanes; lane++) {
        const uint32_t address = tess_amd_in(parts, lane).at[0];
        if (address % 4 != 0 || address / 4 >= lanes)
            tess_emulated_fail("ds_bpermute: an address is that of no lane");
        tess_amd_put(parts, lane, tess_amd_in(parts, address / 4).at[1]);
    }
}
static inline int tess_amd_bpermute(int address, int value)
{
    return static_cast<int>(tess_amd_collective(
        tess_amd_bpermute_together, 0,
        {{static_cast<uint32_t>(address), static_cast<uint32_t>(value), 0, 0}}));
}
#define __builtin_amdgcn_ds_bpermute(address, value) tess_amd_bpermute(address, value)

/* From the other row of 16 of the pair, the lane that a nibble of the selectors says. */
static inline void tess_amd_permlanex16_together(const tess_emulated_part *parts, uint32_t lanes,
                                                 uint32_t)
{
    for (uint32_t lane = 0; lane < lanes; lane++) {
        const tess_amd_words &in = tess_amd_in(parts, lane);
        const uint32_t place = lane % 16;
        const uint32_t nibble = in.at[1 + place / 8] >> 4 * (place % 8) & 15u;
        tess_amd_put(parts, lane, tess_amd_in(parts, (lane / 16 ^ 1) * 16 + nibble).at[0]);
    }
}
static inline uint32_t tess_amd_permlanex16(uint32_t value, uint32_t low, uint32_t high)
{
    return static_cast<uint32_t>(
        tess_amd_collective(tess_amd_permlanex16_together, 0, {{value, low, high, 0}}));
}
#define __builtin_amdgcn_permlanex16(before, value, low, high, invalid, bound) \
    tess_amd_permlanex16(value, low, high)

static inline void tess_amd_first_together(const tess_emulated_part *parts, uint32_t lanes,
                                           uint32_t)
{
    for (uint32_t lane = 0; lane < lanes; lane++)
        tess_amd_put(parts, lane, tess_amd_in(parts, 0).at[0]);
}
/* Kernels say by it that a value is the same in all lanes, and here it has to be. */
static inline void tess_amd_same_together(const tess_emulated_part *parts, uint32_t lanes,
                                          uint32_t number)
{
    for (uint32_t lane = 1; lane < lanes; lane++)
        if (tess_amd_in(parts, lane).at[0] != tess_amd_in(parts, 0).at[0])
            tess_emulated_fail("readfirstlane of a value that differs between lanes");
    tess_amd_first_together(parts, lanes, number);
}
static inline int tess_amd_readfirstlane(int value)
{
    return static_cast<int>(
        tess_amd_collective(tess_amd_same_together, 0, {{static_cast<uint32_t>(value), 0, 0, 0}}));
}
#define __builtin_amdgcn_readfirstlane(value) tess_amd_readfirstlane(value)

static inline void tess_amd_ballot_together(const tess_emulated_part *parts, uint32_t lanes,
                                            uint32_t wanted)
{
    uint64_t all = 0;

    if (lanes != wanted)
        tess_emulated_fail("a ballot of another width of waves");
    for (uint32_t lane = 0; lane < lanes; lane++)
        all |= static_cast<uint64_t>(tess_amd_in(parts, lane).at[0]) << lane;
    for (uint32_t lane = 0; lane < lanes; lane++)
        tess_amd_put(parts, lane, all);
}
static inline uint64_t tess_amd_ballot(bool x, uint32_t lanes)
{
    return tess_amd_collective(tess_amd_ballot_together, lanes, {{x, 0, 0, 0}});
}
#define __builtin_amdgcn_ballot_w64(x) tess_amd_ballot(x, 64)
#define __builtin_amdgcn_ballot_w32(x) static_cast<uint32_t>(tess_amd_ballot(x, 32))

/* ---- Arithmetic of one lane ---- */

/* Bytes 0 ... 3 of the second word and 4 ... 7 of the first. */
static inline uint32_t tess_amd_perm(uint32_t high, uint32_t low, uint32_t selector)
{
    const uint64_t bytes = static_cast<uint64_t>(high) << 32 | low;
    uint32_t out = 0;

    for (uint32_t i = 0; i < 4; i++) {
        const uint32_t which = selector >> 8 * i & 255u;
        if (which > 7)
            tess_emulated_fail("v_perm_b32: only bytes are known here");
        out |= static_cast<uint32_t>(bytes >> 8 * which & 255u) << 8 * i;
    }
    return out;
}
#define __builtin_amdgcn_perm(high, low, selector) tess_amd_perm(high, low, selector)

static inline float tess_amd_flush(float x)
{
    return std::fabs(x) < 1.17549435e-38f ? 0.0f * x : x;
}
#define __builtin_amdgcn_exp2f(x) tess_amd_flush(exp2f(tess_amd_flush(x)))
#define __builtin_amdgcn_rcpf(x) tess_amd_flush(1.0f / tess_amd_flush(x))

/* What clang calls for a conversion to bf16, and the runtime of older gccs lacks. */
#if defined(__gfx950__)
extern "C" __attribute__((weak)) __bf16 __truncsfbf2(float x)
{
    return __builtin_bit_cast(__bf16, static_cast<unsigned short>(tess_bf16_from_f32(x)));
}
#endif

/* ---- Matrices ---- */

/* CDNA 2 takes 16-bit numbers below the normal ones as zero. */
#if defined(__gfx90a__)
#define TESS_AMD_HERE TESS_AMD_FLUSHES
#else
#define TESS_AMD_HERE 0
#endif
#define TESS_AMD_MFMA(kind, a, b, c) tess_amd_matrix_builtin((kind) | TESS_AMD_HERE, a, b, c)

#define __builtin_amdgcn_mfma_f32_32x32x8f16(a, b, c, x, y, z) \
    TESS_AMD_MFMA(TESS_MFMA_32X32X8, a, b, c)
#define __builtin_amdgcn_mfma_f32_32x32x8bf16_1k(a, b, c, x, y, z) \
    TESS_AMD_MFMA(TESS_MFMA_32X32X8 | TESS_AMD_BF16, a, b, c)
#define __builtin_amdgcn_mfma_f32_16x16x16f16(a, b, c, x, y, z) \
    TESS_AMD_MFMA(TESS_MFMA_16X16X16, a, b, c)
#define __builtin_amdgcn_mfma_f32_16x16x16bf16_1k(a, b, c, x, y, z) \
    TESS_AMD_MFMA(TESS_MFMA_16X16X16 | TESS_AMD_BF16, a, b, c)
#define __builtin_amdgcn_mfma_f32_32x32x16_f16(a, b, c, x, y, z) \
    TESS_AMD_MFMA(TESS_MFMA_32X32X16, a, b, c)
#define __builtin_amdgcn_mfma_f32_32x32x16_bf16(a, b, c, x, y, z) \
    TESS_AMD_MFMA(TESS_MFMA_32X32X16 | TESS_AMD_BF16, a, b, c)
#define __builtin_amdgcn_mfma_f32_16x16x32_f16(a, b, c, x, y, z) \
    TESS_AMD_MFMA(TESS_MFMA_16X16X32, a, b, c)
#define __builtin_amdgcn_mfma_f32_16x16x32_bf16(a, b, c, x, y, z) \
    TESS_AMD_MFMA(TESS_MFMA_16X16X32 | TESS_AMD_BF16, a, b, c)
#define __builtin_amdgcn_wmma_f32_16x16x16_f16_w32(a, b, c) \
    tess_amd_matrix_builtin(TESS_WMMA_RDNA3, a, b, c)
#define __builtin_amdgcn_wmma_f32_16x16x16_bf16_w32(a, b, c) \
    tess_amd_matrix_builtin(TESS_WMMA_RDNA3 | TESS_AMD_BF16, a, b, c)
#define __builtin_amdgcn_wmma_f32_16x16x16_f16_w32_gfx12(a, b, c) \
    tess_amd_matrix_builtin(TESS_WMMA_RDNA4, a, b, c)
#define __builtin_amdgcn_wmma_f32_16x16x16_bf16_w32_gfx12(a, b, c) \
    tess_amd_matrix_builtin(TESS_WMMA_RDNA4 | TESS_AMD_BF16, a, b, c)

#endif
