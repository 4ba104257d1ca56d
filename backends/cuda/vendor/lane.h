/* SPDX-License-Identifier: Apache-2.0
 * The lane seam on NVIDIA: what shared device code asks of its vendor. */
#ifndef VENDOR_LANE_H
#define VENDOR_LANE_H

#include "backends/gpu/kernels.h"

#include <cuda_fp16.h>

#define TESS_DEVICE static __device__ __forceinline__
#define TESS_DEVICE_MEMBER __device__ __forceinline__
#define TESS_UNROLL _Pragma("unroll")
#define TESS_NO_UNROLL _Pragma("unroll 1")

/* Defines a kernel; the body follows. `resident` blocks should fit a multiprocessor at once. */
#define TESS_KERNEL(name, threads, resident)                        \
    extern "C" __global__ void __launch_bounds__(threads, resident) \
        name(const __grid_constant__ tess_args args,                \
             const __grid_constant__ tess_gpu_addresses addresses, const tess_gpu_run run)

/* The same with the fourth parameter. */
#define TESS_KERNEL_WITH_MAPS(name, threads, resident)                                     \
    extern "C" __global__ void __launch_bounds__(threads, resident)                        \
        name(const __grid_constant__ tess_args args,                                       \
             const __grid_constant__ tess_gpu_addresses addresses, const tess_gpu_run run, \
             const __grid_constant__ tess_gpu_maps maps)

TESS_DEVICE tess_u32 tess_thread(void)
{
    return threadIdx.x;
}
TESS_DEVICE tess_u32 tess_block(void)
{
    return blockIdx.x;
}
TESS_DEVICE tess_u32 tess_blocks(void)
{
    return gridDim.x;
}

/* Waits for the block; shared memory written before is seen behind it. */
TESS_DEVICE void tess_barrier(void)
{
    __syncthreads();
}

/* The value of lane number (own ^ MASK), MASK below 32; every lane of the wave takes part. */
template <int MASK> TESS_DEVICE float tess_exchange(float value)
{
    return __shfl_xor_sync(0xFFFFFFFFu, value, MASK);
}

/* The block's dynamic shared memory, aligned to 1024 bytes. */
template <class MEMORY> TESS_DEVICE MEMORY *tess_shared(void)
{
    extern __shared__ __align__(1024) char tess_shared_memory[];
    return reinterpret_cast<MEMORY *>(tess_shared_memory);
}

/* f16 by its bits, exactly, and back to nearest even. */
TESS_DEVICE float tess_widen_f16(tess_u32 bits)
{
    return __half2float(__ushort_as_half(static_cast<unsigned short>(bits)));
}
TESS_DEVICE tess_u32 tess_narrow_f16(float value)
{
    return __half_as_ushort(__float2half_rn(value));
}

#endif
