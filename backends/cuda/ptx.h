/* SPDX-License-Identifier: Apache-2.0
 * One inline function per PTX instruction, named for it; the only place with asm on NVIDIA. */
#ifndef TESSERA_BACKENDS_CUDA_PTX_H
#define TESSERA_BACKENDS_CUDA_PTX_H

#include "core/portable/dialect.h"

/* "PTX ISA" is NVIDIA's document of that name, 9.0. An instruction that reads or writes memory is
 * volatile, so that the compiler leaves it between the barriers; arithmetic is not, so that it may
 * be moved and merged. */
#define TESS_PTX static __device__ __forceinline__

/* Address of a place in shared memory, as the instructions below take it. */
TESS_PTX tess_u32 tess_ptx_shared_address(const void *shared)
{
    return (tess_u32)__cvta_generic_to_shared(shared);
}

/* ---- cp.async (sm_80): global to shared memory without passing through registers ---- */

/* Copies `bytes` (0 ... 16) of 16 and zeroes the rest. Both addresses are multiples of 16; .cg
 * keeps the line out of the first cache level. Nothing is read when bytes is 0. */
TESS_PTX void tess_ptx_cp_async_16(tess_u32 to, const void *from, tess_u32 bytes)
{
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "r"(bytes)
                 : "memory");
}

/* The same of 4 bytes, by way of the first cache level: bytes is 0 or 4. */
TESS_PTX void tess_ptx_cp_async_4(tess_u32 to, const void *from, tess_u32 bytes)
{
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(to), "l"(from), "r"(bytes)
                 : "memory");
}

/* Closes this thread's group of copies. */
TESS_PTX void tess_ptx_cp_async_commit_group()
{
    asm volatile("cp.async.commit_group;" ::: "memory");
}

/* Waits until at most PENDING of this thread's groups are under way. */
template <int PENDING> TESS_PTX void tess_ptx_cp_async_wait_group()
{
    asm volatile("cp.async.wait_group %0;" ::"n"(PENDING) : "memory");
}

/* ---- shared memory and matrices ---- */

/* Four 8 x 8 matrices of 16-bit numbers. Lanes 8i ... 8i + 7 give the addresses of the rows of
 * matrix i, multiples of 16. Register i of lane l: row l / 4, columns 2 (l % 4) and the next. */
TESS_PTX void tess_ptx_ldmatrix_x4(tess_u32 (&to)[4], tess_u32 from)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
                 : "r"(from)
                 : "memory");
}

/* The same, each matrix transposed: rows 2 (l % 4) and the next, column l / 4. */
TESS_PTX void tess_ptx_ldmatrix_x4_trans(tess_u32 (&to)[4], tess_u32 from)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
                 : "r"(from)
                 : "memory");
}

TESS_PTX void tess_ptx_st_shared_32(tess_u32 to, tess_u32 value)
{
    asm volatile("st.shared.b32 [%0], %1;" ::"r"(to), "r"(value) : "memory");
}

TESS_PTX void tess_ptx_st_shared_f32(tess_u32 to, tess_f32 value)
{
    asm volatile("st.shared.f32 [%0], %1;" ::"r"(to), "f"(value) : "memory");
}

TESS_PTX tess_f32 tess_ptx_ld_shared_f32(tess_u32 from)
{
    tess_f32 value;
    asm volatile("ld.shared.f32 %0, [%1];" : "=f"(value) : "r"(from) : "memory");
    return value;
}

TESS_PTX void tess_ptx_ld_shared_128(tess_u32 (&to)[4], tess_u32 from)
{
    asm volatile("ld.shared.v4.b32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
                 : "r"(from)
                 : "memory");
}

/* ---- mma.sync (sm_80): c += a b, a 16 x 16 by rows, b 16 x 8 by columns, c 16 x 8 of f32 ----
 * With g = lane / 4 and t = lane % 4:
 *   a  register i: row g + 8 (i % 2), columns 2t + 8 (i / 2) and the next
 *   b  register i: rows 2t + 8i and the next, column g
 *   c  register i: row g + 8 (i / 2), column 2t + i % 2 */
TESS_PTX void tess_ptx_mma_m16n8k16_f16(tess_f32 (&c)[4], const tess_u32 (&a)[4], tess_u32 b0,
                                        tess_u32 b1)
{
    asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
        "{%8, %9}, {%0, %1, %2, %3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

TESS_PTX void tess_ptx_mma_m16n8k16_bf16(tess_f32 (&c)[4], const tess_u32 (&a)[4], tess_u32 b0,
                                         tess_u32 b1)
{
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
        "{%8, %9}, {%0, %1, %2, %3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

/* ---- arithmetic ---- */

/* 2^x within 2 ulp; results and arguments below the normal numbers are zero. */
TESS_PTX tess_f32 tess_ptx_ex2_approx_ftz(tess_f32 x)
{
    tess_f32 y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

/* 1 / x within 1 ulp. */
TESS_PTX tess_f32 tess_ptx_rcp_approx_ftz(tess_f32 x)
{
    tess_f32 y;
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

/* Two numbers rounded to nearest even into one register: low in the lower half. */
TESS_PTX tess_u32 tess_ptx_cvt_rn_f16x2(tess_f32 low, tess_f32 high)
{
    tess_u32 pair;
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
    return pair;
}

TESS_PTX tess_u32 tess_ptx_cvt_rn_bf16x2(tess_f32 low, tess_f32 high)
{
    tess_u32 pair;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
    return pair;
}

/* ---- a wave, a block ---- */

/* Whether x holds in any lane of the wave; all take part. */
TESS_PTX bool tess_ptx_vote_any(bool x)
{
    return __any_sync(0xffffffffu, x) != 0;
}

/* Lanes of the wave see each other's shared memory written before. */
TESS_PTX void tess_ptx_bar_warp_sync()
{
    __syncwarp();
}

/* A barrier of the block that says whether x holds in any thread. */
TESS_PTX bool tess_ptx_barrier_red_or(bool x)
{
    return __syncthreads_or(x) != 0;
}

/* The larger; of a number and a NaN the number. */
TESS_PTX tess_f32 tess_ptx_max_f32(tess_f32 a, tess_f32 b)
{
    return fmaxf(a, b);
}

/* Sixteen bytes to global memory. */
TESS_PTX void tess_ptx_st_global_128(void *to, const tess_u32 (&from)[4])
{
    *(uint4 *)to = make_uint4(from[0], from[1], from[2], from[3]);
}

/* ---- between blocks ---- */

/* memory += value, two numbers that lie next to each other. One instruction on sm_90, where `to`
 * is a multiple of 8. */
TESS_PTX void tess_ptx_red_add_f32x2(tess_f32 *to, tess_f32 first, tess_f32 second)
{
#if __CUDA_ARCH__ >= 900
    asm volatile("red.relaxed.gpu.global.add.v2.f32 [%0], {%1, %2};" ::"l"(to), "f"(first),
                 "f"(second)
                 : "memory");
#else
    asm volatile("red.relaxed.gpu.global.add.f32 [%0], %1;" ::"l"(to), "f"(first) : "memory");
    asm volatile("red.relaxed.gpu.global.add.f32 [%0], %1;" ::"l"(to + 1), "f"(second) : "memory");
#endif
}

TESS_PTX tess_u32 tess_ptx_ld_acquire_gpu_32(const tess_u32 *from)
{
    tess_u32 value;
    asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(value) : "l"(from) : "memory");
    return value;
}

TESS_PTX void tess_ptx_st_release_gpu_32(tess_u32 *to, tess_u32 value)
{
    asm volatile("st.release.gpu.global.u32 [%0], %1;" ::"l"(to), "r"(value) : "memory");
}

#endif
