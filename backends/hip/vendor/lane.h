/* SPDX-License-Identifier: Apache-2.0
 * The lane seam on AMD: what shared device code asks of its vendor. No header of the vendor's. */
#ifndef VENDOR_LANE_H
#define VENDOR_LANE_H

#include "vendor/kernel.h"

TESS_DEVICE tess_u32 tess_thread(void)
{
    return __builtin_amdgcn_workitem_id_x();
}
TESS_DEVICE tess_u32 tess_block(void)
{
    return __builtin_amdgcn_workgroup_id_x();
}
/* The number of blocks is the first of the hidden arguments (code object version 5). */
TESS_DEVICE tess_u32 tess_blocks(void)
{
    return *(const tess_u32 *)__builtin_amdgcn_implicitarg_ptr();
}

/* Waits for the block; shared memory written before is seen behind it. The fences say "local", or
 * each barrier would also invalidate caches of global memory. */
TESS_DEVICE void tess_barrier(void)
{
    __builtin_amdgcn_fence(__ATOMIC_RELEASE, "workgroup", "local");
    __builtin_amdgcn_s_barrier();
    __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "workgroup", "local");
}

/* The value of lane number (own ^ MASK), MASK below 32; every lane of the wave takes part. In its
 * bit mode the instruction works on groups of 32 lanes: the lane's number & 0x1F, ^ MASK. */
template <int MASK> TESS_DEVICE float tess_exchange(float value)
{
    return __builtin_bit_cast(
        float, __builtin_amdgcn_ds_swizzle(__builtin_bit_cast(int, value), MASK << 10 | 0x1F));
}

/* f16 by its bits, exactly, and back to nearest even. */
TESS_DEVICE float tess_widen_f16(tess_u32 bits)
{
    return static_cast<float>(__builtin_bit_cast(_Float16, static_cast<unsigned short>(bits)));
}
TESS_DEVICE tess_u32 tess_narrow_f16(float value)
{
    return __builtin_bit_cast(unsigned short, static_cast<_Float16>(value));
}

#endif
