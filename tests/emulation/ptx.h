/* SPDX-License-Identifier: Apache-2.0
 * The instructions of backends/cuda/ptx.h on the fibers of emulate.h, written from the tables of
 * the PTX ISA: what the matrix kernels run on where there is no GPU. Include it first: it takes the
 * place of that header. */
#ifndef TESSERA_BACKENDS_CUDA_PTX_H
#define TESSERA_BACKENDS_CUDA_PTX_H

#include "core/portable/convert.h"
#include "tests/emulation/emulate.h"

#include <cstring>
#include <vector>

#define TESS_PTX static inline

/* ---- Shared memory: an address is the distance from its start ---- */

/* Told of every plain store to shared memory, where somebody wants to know. */
static void (*tess_ptx_on_store)(tess_u32 to, tess_u32 bytes);

static inline char *tess_ptx_at(tess_u32 address)
{
    return static_cast<char *>(tess_emulated_shared(1)) + address;
}

TESS_PTX tess_u32 tess_ptx_shared_address(const void *shared)
{
    return static_cast<tess_u32>(static_cast<const char *>(shared) - tess_ptx_at(0));
}

TESS_PTX void tess_ptx_st_shared_32(tess_u32 to, tess_u32 value)
{
    if (tess_ptx_on_store)
        tess_ptx_on_store(to, 4);
    std::memcpy(tess_ptx_at(to), &value, sizeof value);
}
TESS_PTX void tess_ptx_st_shared_f32(tess_u32 to, tess_f32 value)
{
    std::memcpy(tess_ptx_at(to), &value, sizeof value);
}
TESS_PTX tess_f32 tess_ptx_ld_shared_f32(tess_u32 from)
{
    tess_f32 value;
    std::memcpy(&value, tess_ptx_at(from), sizeof value);
    return value;
}
TESS_PTX void tess_ptx_ld_shared_128(tess_u32 (&to)[4], tess_u32 from)
{
    if (from % 16 != 0)
        tess_emulated_fail("ld.shared.v4: the address is no multiple of 16");
    std::memcpy(to, tess_ptx_at(from), 16);
}
TESS_PTX void tess_ptx_st_global_128(void *to, const tess_u32 (&from)[4])
{
    if (reinterpret_cast<tess_u64>(to) % 16 != 0)
        tess_emulated_fail("st.global.v4: the address is no multiple of 16");
    std::memcpy(to, from, 16);
}

/* ---- cp.async: a copy may land at any time from its issue to its wait. Until then the place holds
 * NaN: a reader too early and a writer over what is still read both show. ---- */

struct tess_ptx_copy {
    tess_u32 to;
    const void *from;
    tess_u32 bytes, size; /* what is read, what is written */
};
struct tess_ptx_copies {
    std::vector<std::vector<tess_ptx_copy>> groups; /* the last one is open */
    tess_ptx_copies() : groups(1) {}
};
static inline tess_ptx_copies &tess_ptx_own_copies()
{
    static tess_ptx_copies lanes[TESS_EMULATED_MOST_LANES];
    return lanes[tess_emulated_thread()];
}

static inline void tess_ptx_cp_async(tess_u32 to, const void *from, tess_u32 bytes, tess_u32 size)
{
    if (to % size != 0 || (bytes > 0 && reinterpret_cast<tess_u64>(from) % size != 0))
        tess_emulated_fail("cp.async: an address is no multiple of the size");
    if (bytes > size)
        tess_emulated_fail("cp.async: more bytes than the size");
    std::memset(tess_ptx_at(to), 0xFF, size);
    tess_ptx_own_copies().groups.back().push_back({to, from, bytes, size});
}
TESS_PTX void tess_ptx_cp_async_16(tess_u32 to, const void *from, tess_u32 bytes)
{
    tess_ptx_cp_async(to, from, bytes, 16);
}
TESS_PTX void tess_ptx_cp_async_4(tess_u32 to, const void *from, tess_u32 bytes)
{
    tess_ptx_cp_async(to, from, bytes, 4);
}
TESS_PTX void tess_ptx_cp_async_commit_group()
{
    tess_ptx_own_copies().groups.emplace_back();
}
template <int PENDING> TESS_PTX void tess_ptx_cp_async_wait_group()
{
    auto &groups = tess_ptx_own_copies().groups;
    while (groups.size() > PENDING + 1) {
        for (const tess_ptx_copy &copy : groups.front()) {
            std::memset(tess_ptx_at(copy.to), 0, copy.size);
            if (tess_ptx_on_store)
                tess_ptx_on_store(copy.to, copy.size);
            if (copy.bytes > 0)
                std::memcpy(tess_ptx_at(copy.to), copy.from, copy.bytes);
        }
        groups.erase(groups.begin());
    }
}

/* ---- ldmatrix ---- */

static inline void tess_ptx_ldmatrix_together(const tess_emulated_part *parts, tess_u32,
                                              tess_u32 is_transposed)
{
    for (tess_u32 i = 0; i < 4; i++) {
        unsigned short matrix[8][8];
        for (tess_u32 row = 0; row < 8; row++) {
            const tess_u32 from = *static_cast<const tess_u32 *>(parts[8 * i + row].in);
            if (from % 16 != 0)
                tess_emulated_fail("ldmatrix: an address is no multiple of 16");
            std::memcpy(matrix[row], tess_ptx_at(from), 16);
        }
        for (tess_u32 lane = 0; lane < 32; lane++) {
            const tess_u32 g = lane / 4, t = 2 * (lane % 4);
            const tess_u32 low = is_transposed ? matrix[t][g] : matrix[g][t];
            const tess_u32 high = is_transposed ? matrix[t + 1][g] : matrix[g][t + 1];
            static_cast<tess_u32 *>(parts[lane].out)[i] = low | high << 16;
        }
    }
}
TESS_PTX void tess_ptx_ldmatrix_x4(tess_u32 (&to)[4], tess_u32 from)
{
    tess_emulated_collective(tess_ptx_ldmatrix_together, 0, &from, to);
}
TESS_PTX void tess_ptx_ldmatrix_x4_trans(tess_u32 (&to)[4], tess_u32 from)
{
    tess_emulated_collective(tess_ptx_ldmatrix_together, 1, &from, to);
}

/* ---- mma.sync m16n8k16 ---- */

struct tess_ptx_operands {
    tess_u32 a[4], b[2];
    tess_f32 c[4];
};

static inline void tess_ptx_mma_together(const tess_emulated_part *parts, tess_u32,
                                         tess_u32 is_bf16)
{
    static tess_f32 a[16][16], b[16][8];
    const auto widen = [&](tess_u32 pair, tess_u32 which) {
        const tess_u32 bits = pair >> 16 * which & 0xFFFFu;
        return is_bf16 ? tess_f32_from_bf16(bits) : tess_f32_from_f16(bits);
    };

    for (tess_u32 lane = 0; lane < 32; lane++) {
        const auto &in = *static_cast<const tess_ptx_operands *>(parts[lane].in);
        const tess_u32 g = lane / 4, t = lane % 4;
        for (tess_u32 i = 0; i < 4; i++)
            for (tess_u32 half = 0; half < 2; half++)
                a[g + 8 * (i % 2)][2 * t + 8 * (i / 2) + half] = widen(in.a[i], half);
        for (tess_u32 i = 0; i < 2; i++)
            for (tess_u32 half = 0; half < 2; half++)
                b[2 * t + 8 * i + half][g] = widen(in.b[i], half);
    }
    for (tess_u32 lane = 0; lane < 32; lane++) {
        const auto &in = *static_cast<const tess_ptx_operands *>(parts[lane].in);
        for (tess_u32 i = 0; i < 4; i++) {
            const tess_u32 row = lane / 4 + 8 * (i / 2), column = 2 * (lane % 4) + i % 2;
            tess_f32 sum = in.c[i];
            for (tess_u32 k = 0; k < 16; k++)
                sum += a[row][k] * b[k][column];
            static_cast<tess_f32 *>(parts[lane].out)[i] = sum;
        }
    }
}
static inline void tess_ptx_mma(tess_f32 (&c)[4], const tess_u32 (&a)[4], tess_u32 b0, tess_u32 b1,
                                tess_u32 is_bf16)
{
    tess_ptx_operands in = {{a[0], a[1], a[2], a[3]}, {b0, b1}, {c[0], c[1], c[2], c[3]}};
    tess_emulated_collective(tess_ptx_mma_together, is_bf16, &in, c);
}
TESS_PTX void tess_ptx_mma_m16n8k16_f16(tess_f32 (&c)[4], const tess_u32 (&a)[4], tess_u32 b0,
                                        tess_u32 b1)
{
    tess_ptx_mma(c, a, b0, b1, 0);
}
TESS_PTX void tess_ptx_mma_m16n8k16_bf16(tess_f32 (&c)[4], const tess_u32 (&a)[4], tess_u32 b0,
                                         tess_u32 b1)
{
    tess_ptx_mma(c, a, b0, b1, 1);
}

/* ---- Arithmetic ---- */

static inline tess_f32 tess_ptx_flush(tess_f32 x)
{
    return tess_abs(x) < 1.17549435e-38f ? 0.0f * x : x;
}
TESS_PTX tess_f32 tess_ptx_ex2_approx_ftz(tess_f32 x)
{
    return tess_ptx_flush(tess_exp2(tess_ptx_flush(x)));
}
TESS_PTX tess_f32 tess_ptx_rcp_approx_ftz(tess_f32 x)
{
    return tess_ptx_flush(1.0f / tess_ptx_flush(x));
}
TESS_PTX tess_f32 tess_ptx_max_f32(tess_f32 a, tess_f32 b)
{
    return fmaxf(a, b);
}
TESS_PTX tess_u32 tess_ptx_cvt_rn_f16x2(tess_f32 low, tess_f32 high)
{
    return tess_f16_from_f32(low) | tess_f16_from_f32(high) << 16;
}
TESS_PTX tess_u32 tess_ptx_cvt_rn_bf16x2(tess_f32 low, tess_f32 high)
{
    return tess_bf16_from_f32(low) | tess_bf16_from_f32(high) << 16;
}

/* ---- A wave, a block ---- */

static inline void tess_ptx_vote_together(const tess_emulated_part *parts, tess_u32 lanes, tess_u32)
{
    bool any = false;
    for (tess_u32 lane = 0; lane < lanes; lane++)
        any |= *static_cast<const bool *>(parts[lane].in);
    for (tess_u32 lane = 0; lane < lanes; lane++)
        *static_cast<bool *>(parts[lane].out) = any;
}
TESS_PTX bool tess_ptx_vote_any(bool x)
{
    bool any;
    tess_emulated_collective(tess_ptx_vote_together, 0, &x, &any);
    return any;
}
TESS_PTX void tess_ptx_bar_warp_sync()
{
    (void)tess_ptx_vote_any(false);
}
TESS_PTX bool tess_ptx_barrier_red_or(bool x)
{
    static bool lanes[TESS_EMULATED_MOST_LANES]; /* false outside of this function */
    static tess_u32 threads;
    const tess_u32 own = tess_emulated_thread();
    bool any = false;

    lanes[own] = x;
    threads = threads > own ? threads : own + 1;
    tess_emulated_barrier();
    for (tess_u32 i = 0; i < threads; i++)
        any |= lanes[i];
    tess_emulated_barrier();
    lanes[own] = false;
    return any;
}

/* ---- Between blocks, which run one after the other ---- */

TESS_PTX void tess_ptx_red_add_f32x2(tess_f32 *to, tess_f32 first, tess_f32 second)
{
    if (reinterpret_cast<tess_u64>(to) % 8 != 0)
        tess_emulated_fail("red.v2: the address is no multiple of 8");
    to[0] += first;
    to[1] += second;
}
TESS_PTX tess_u32 tess_ptx_ld_acquire_gpu_32(const tess_u32 *from)
{
    return *from;
}
TESS_PTX void tess_ptx_st_release_gpu_32(tess_u32 *to, tess_u32 value)
{
    *to = value;
}

#endif
