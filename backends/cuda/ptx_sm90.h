/* SPDX-License-Identifier: Apache-2.0
 * Instructions that only chips of 9.0 have (sm_90a), one inline function each; with ptx.h the only
 * place with asm on NVIDIA. */
#ifndef TESSERA_BACKENDS_CUDA_PTX_SM90_H
#define TESSERA_BACKENDS_CUDA_PTX_SM90_H

#include "backends/cuda/ptx.h"

/* Addresses of shared memory are as tess_ptx_shared_address() gives them. Plain loads and stores
 * reach memory by one way, wgmma and bulk copies by another, the async proxy; between the two
 * stands a fence. */

/* ---- mbarrier: 8 bytes of shared memory that count arrivals and bytes, phase by phase ---- */

/* A phase is over after `arrivals` of them and all bytes that were announced in it. */
TESS_PTX void tess_ptx_mbarrier_init(tess_u32 barrier, tess_u32 arrivals)
{
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(arrivals)
                 : "memory");
}

/* Makes what was initialised known to the async proxy; a barrier of the block follows. */
TESS_PTX void tess_ptx_fence_mbarrier_init()
{
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}

TESS_PTX void tess_ptx_mbarrier_arrive(tess_u32 barrier)
{
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
}

/* Arrives, and announces bytes that bulk copies will bring. */
TESS_PTX void tess_ptx_mbarrier_arrive_expect_tx(tess_u32 barrier, tess_u32 bytes)
{
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes)
                 : "memory");
}

/* Waits until the phase of this parity is over: 0 for the first, 1 for the second, 0 for the third
 * ... Parity 1 of a fresh barrier is over. */
TESS_PTX void tess_ptx_mbarrier_wait(tess_u32 barrier, tess_u32 parity)
{
    tess_u32 is_over;
    do {
        asm volatile("{\n"
                     ".reg .pred p;\n"
                     "mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\n"
                     "selp.u32 %0, 1, 0, p;\n"
                     "}"
                     : "=r"(is_over)
                     : "r"(barrier), "r"(parity)
                     : "memory");
    } while (!is_over);
}

/* This thread's stores to shared memory come before what the async proxy reads behind the next
 * barrier. */
TESS_PTX void tess_ptx_fence_proxy_async()
{
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

/* ---- Named barriers, 1 ... 15 (0 is the block's), each of a multiple of 32 threads ---- */

TESS_PTX void tess_ptx_bar_sync(tess_u32 name, tess_u32 threads)
{
    asm volatile("bar.sync %0, %1;" ::"r"(name), "r"(threads) : "memory");
}

/* Counts as arrived and goes on. */
TESS_PTX void tess_ptx_bar_arrive(tess_u32 name, tess_u32 threads)
{
    asm volatile("bar.arrive %0, %1;" ::"r"(name), "r"(threads) : "memory");
}

/* Waits, and says whether x holds in any of the threads. */
TESS_PTX bool tess_ptx_bar_red_or(tess_u32 name, tess_u32 threads, bool x)
{
    tess_u32 any;
    asm volatile("{\n"
                 ".reg .pred p, q;\n"
                 "setp.ne.u32 p, %1, 0;\n"
                 "bar.red.or.pred q, %2, %3, p;\n"
                 "selp.u32 %0, 1, 0, q;\n"
                 "}"
                 : "=r"(any)
                 : "r"((tess_u32)x), "r"(name), "r"(threads)
                 : "memory");
    return any != 0;
}

/* memory += value; returns what it was. */
TESS_PTX tess_u32 tess_ptx_atom_shared_add(tess_u32 to, tess_u32 value)
{
    tess_u32 before;
    asm volatile("atom.shared::cta.add.u32 %0, [%1], %2;"
                 : "=r"(before)
                 : "r"(to), "r"(value)
                 : "memory");
    return before;
}

/* ---- Registers move between the warp groups of a block ---- */

template <int COUNT> TESS_PTX void tess_ptx_setmaxnreg_dec()
{
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(COUNT));
}
template <int COUNT> TESS_PTX void tess_ptx_setmaxnreg_inc()
{
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(COUNT));
}

/* ---- Bulk copies of a box of a tensor (TMA) ---- */

/* Starts the copy of the box whose first element has these coordinates, innermost first; what lies
 * outside of the tensor is zeros. The bytes count at `barrier` when they have landed. One thread
 * calls it. */
TESS_PTX void tess_ptx_cp_async_bulk_tensor_4d(tess_u32 to, const void *map, tess_u32 barrier,
                                               tess_i32 dim, tess_i32 row, tess_i32 head,
                                               tess_i32 batch)
{
    asm volatile("cp.async.bulk.tensor.4d.shared::cluster.global.mbarrier::complete_tx::bytes "
                 "[%0], [%1, {%3, %4, %5, %6}], [%2];" ::"r"(to),
                 "l"(map), "r"(barrier), "r"(dim), "r"(row), "r"(head), "r"(batch)
                 : "memory");
}

TESS_PTX void tess_ptx_prefetch_tensormap(const void *map)
{
    asm volatile("prefetch.tensormap [%0];" ::"l"(map) : "memory");
}

/* ---- wgmma: a product of a warp group (128 threads), asynchronous ---- */

/* Before the first product, and whenever registers of one were touched since. */
TESS_PTX void tess_ptx_wgmma_fence()
{
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}
TESS_PTX void tess_ptx_wgmma_commit_group()
{
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}
template <int PENDING> TESS_PTX void tess_ptx_wgmma_wait_group()
{
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(PENDING) : "memory");
}

/* Keeps the compiler from moving reads and writes of these registers over this place: it does not
 * know how long a product writes them. */
template <int N> TESS_PTX void tess_ptx_wgmma_hold(tess_f32 (&d)[N][4])
{
#pragma unroll
    for (int i = 0; i < 4 * N; i++)
        asm volatile("" : "+f"(d[i / 4][i % 4])::"memory");
}

/* Keeps the compiler from holding what it knows of memory in registers over this place. */
TESS_PTX void tess_ptx_settle()
{
    asm volatile("" ::: "memory");
}

/* An operand in shared memory, in panels of 128 bytes a row whose chunks of 16 bytes are
 * exchanged: chunk c of row r lies at c ^ (r % 8), as a bulk copy with 128-byte swizzle puts it.
 * Panels lie on multiples of 1024. panel_bytes: from one panel to the next, for operands that lie
 * across; by rows the distance is the caller's to add. (PTX ISA 9.0, 9.7.15.5.1.2.) */
TESS_PTX tess_u64 tess_ptx_wgmma_descriptor(tess_u32 address, tess_u32 panel_bytes)
{
    return (tess_u64)(address >> 4) | (tess_u64)(panel_bytes >> 4) << 16 |
           (tess_u64)(1024u >> 4) << 32 | (tess_u64)1 << 62;
}

/* d (64 x 8 N) = or += a b, 16 deep. Lane l of warp w holds of d rows 16 w + l / 4 (d[n][0, 1]) and
 * that + 8 (d[n][2, 3]), columns 8 n + 2 (l % 4) and the next; of an a in registers what a lane
 * holds of mma.sync's. rows(): both operands lie by rows in shared memory. across(): a in
 * registers, the depth of b is rows of shared memory. Set where IS_FIRST, else added to. */
template <int DTYPE, int N> struct tess_ptx_wgmma;

#define TESS_PTX_D4(j) "+f"(d[j][0]), "+f"(d[j][1]), "+f"(d[j][2]), "+f"(d[j][3])
#define TESS_PTX_D16(j) TESS_PTX_D4(j), TESS_PTX_D4(j + 1), TESS_PTX_D4(j + 2), TESS_PTX_D4(j + 3)
#define TESS_PTX_D24(j) TESS_PTX_D16(j), TESS_PTX_D4(j + 4), TESS_PTX_D4(j + 5)
#define TESS_PTX_D32(j) TESS_PTX_D16(j), TESS_PTX_D16(j + 4)
#define TESS_PTX_D48(j) TESS_PTX_D32(j), TESS_PTX_D16(j + 8)
#define TESS_PTX_D64(j) TESS_PTX_D32(j), TESS_PTX_D32(j + 8)
#define TESS_PTX_D96(j) TESS_PTX_D64(j), TESS_PTX_D32(j + 16)
#define TESS_PTX_D128(j) TESS_PTX_D64(j), TESS_PTX_D64(j + 16)

#define TESS_PTX_R10(t)                                                                    \
    "%" #t "0, %" #t "1, %" #t "2, %" #t "3, %" #t "4, %" #t "5, %" #t "6, %" #t "7, %" #t \
    "8, %" #t "9"
#define TESS_PTX_R16 TESS_PTX_R10() ", %10, %11, %12, %13, %14, %15"
#define TESS_PTX_R24 TESS_PTX_R10() ", " TESS_PTX_R10(1) ", %20, %21, %22, %23"
#define TESS_PTX_R30 TESS_PTX_R10() ", " TESS_PTX_R10(1) ", " TESS_PTX_R10(2)
#define TESS_PTX_R60 TESS_PTX_R30 ", " TESS_PTX_R10(3) ", " TESS_PTX_R10(4) ", " TESS_PTX_R10(5)
#define TESS_PTX_R90 TESS_PTX_R60 ", " TESS_PTX_R10(6) ", " TESS_PTX_R10(7) ", " TESS_PTX_R10(8)
#define TESS_PTX_R32 TESS_PTX_R30 ", %30, %31"
#define TESS_PTX_R48 TESS_PTX_R30 ", " TESS_PTX_R10(3) ", %40, %41, %42, %43, %44, %45, %46, %47"
#define TESS_PTX_R64 TESS_PTX_R60 ", %60, %61, %62, %63"
#define TESS_PTX_R96 TESS_PTX_R90 ", %90, %91, %92, %93, %94, %95"
#define TESS_PTX_R128                                                                            \
    TESS_PTX_R90 ", " TESS_PTX_R10(9) ", " TESS_PTX_R10(10) ", " TESS_PTX_R10(11) ", %120, "     \
                                                                                  "%121, %122, " \
                                                                                  "%123, %124, " \
                                                                                  "%125, %126, " \
                                                                                  "%127"

/* COUNT registers of d; the numbers of the operands behind them. */
#define TESS_PTX_WGMMA(NUMBER, TYPE, COLUMNS, COUNT, P0, P1, P2, P3, P4, P5)                   \
    template <> struct tess_ptx_wgmma<NUMBER, COLUMNS / 8> {                                   \
        template <bool IS_FIRST>                                                               \
        static __device__ __forceinline__ void rows(tess_f32 (&d)[COLUMNS / 8][4], tess_u64 a, \
                                                    tess_u64 b)                                \
        {                                                                                      \
            asm volatile("{\n"                                                                 \
                         ".reg .pred p;\n"                                                     \
                         "setp.ne.b32 p, %" #P2 ", 0;\n"                                       \
                         "wgmma.mma_async.sync.aligned.m64n" #COLUMNS "k16.f32." TYPE "." TYPE \
                         " {" TESS_PTX_R##COUNT "}, %" #P0 ", %" #P1 ", p, 1, 1, 0, 0;\n"      \
                                                "}"                                            \
                         : TESS_PTX_D##COUNT(0)                                                \
                         : "l"(a), "l"(b), "n"(IS_FIRST ? 0 : 1));                             \
        }                                                                                      \
        template <bool IS_FIRST>                                                               \
        static __device__ __forceinline__ void across(tess_f32 (&d)[COLUMNS / 8][4],           \
                                                      const tess_u32 (&a)[4], tess_u64 b)      \
        {                                                                                      \
            asm volatile("{\n"                                                                 \
                         ".reg .pred p;\n"                                                     \
                         "setp.ne.b32 p, %" #P5 ", 0;\n"                                       \
                         "wgmma.mma_async.sync.aligned.m64n" #COLUMNS "k16.f32." TYPE "." TYPE \
                         " {" TESS_PTX_R##COUNT "}, {%" #P0 ", %" #P1 ", %" #P2 ", %" #P3      \
                                                "}, %" #P4 ", p, 1, 1, 1;\n"                   \
                                                "}"                                            \
                         : TESS_PTX_D##COUNT(0)                                                \
                         : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b),                 \
                           "n"(IS_FIRST ? 0 : 1));                                             \
        }                                                                                      \
    };

#define TESS_PTX_WGMMAS(NUMBER, TYPE)                               \
    TESS_PTX_WGMMA(NUMBER, TYPE, 48, 24, 24, 25, 26, 27, 28, 29)    \
    TESS_PTX_WGMMA(NUMBER, TYPE, 32, 16, 16, 17, 18, 19, 20, 21)    \
    TESS_PTX_WGMMA(NUMBER, TYPE, 64, 32, 32, 33, 34, 35, 36, 37)    \
    TESS_PTX_WGMMA(NUMBER, TYPE, 96, 48, 48, 49, 50, 51, 52, 53)    \
    TESS_PTX_WGMMA(NUMBER, TYPE, 128, 64, 64, 65, 66, 67, 68, 69)   \
    TESS_PTX_WGMMA(NUMBER, TYPE, 192, 96, 96, 97, 98, 99, 100, 101) \
    TESS_PTX_WGMMA(NUMBER, TYPE, 256, 128, 128, 129, 130, 131, 132, 133)

TESS_PTX_WGMMAS(2, "f16")  /* TESS_F16 */
TESS_PTX_WGMMAS(3, "bf16") /* TESS_BF16 */

#endif
