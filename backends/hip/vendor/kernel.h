/* SPDX-License-Identifier: Apache-2.0
 * The language of kernels on AMD: qualifiers, kernels, shared memory. Apart from lane.h, so that
 * tests can put the host's language in its place and keep the rest. */
#ifndef VENDOR_KERNEL_H
#define VENDOR_KERNEL_H

#include "backends/gpu/kernels.h"

#define TESS_DEVICE static __attribute__((device, always_inline)) inline
#define TESS_DEVICE_MEMBER __attribute__((device, always_inline)) inline
#define TESS_UNROLL _Pragma("unroll")
#define TESS_SETTLE() __asm__ volatile("" ::: "memory")
#define TESS_NO_UNROLL _Pragma("nounroll")

/* Defines a kernel; the body follows. The size of the block is said by this attribute: launch
 * bounds are ignored here, and the compiler would spare registers for 1024 lanes. `resident` is a
 * wish for vendors whose blocks share a register file by blocks. */
#define TESS_KERNEL(name, threads, resident)                                                     \
    extern "C" __attribute__((global, amdgpu_flat_work_group_size(threads, threads))) void name( \
        const tess_args args, const tess_gpu_addresses addresses, const tess_gpu_run run)

/* The block's dynamic shared memory, aligned to 16 bytes. */
extern __attribute__((shared, aligned(16))) char tess_shared_memory[];
template <class MEMORY> TESS_DEVICE MEMORY *tess_shared(void)
{
    return reinterpret_cast<MEMORY *>(tess_shared_memory);
}

#endif
