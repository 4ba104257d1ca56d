/* SPDX-License-Identifier: Apache-2.0
 * The lane seam on no device at all: lanes are fibers of the host (tests/emulation/emulate.h). */
#ifndef VENDOR_LANE_H
#define VENDOR_LANE_H

#include "backends/gpu/kernels.h"
#include "tests/emulation/emulate.h"

#include "core/portable/convert.h"

#define TESS_DEVICE static inline
#define TESS_DEVICE_MEMBER inline
#define TESS_UNROLL
#define TESS_NO_UNROLL

/* What a lane is called with, in one block of memory. */
struct tess_emulated_arguments {
    tess_args args;
    tess_gpu_addresses addresses;
    tess_gpu_run run;
    tess_gpu_maps maps; /* of kernels that have the fourth parameter */
};

/* Defines a kernel; the body follows. A lane finds its arguments behind one pointer. */
#define TESS_KERNEL(name, threads, resident)                                            \
    static void name##_body(const tess_args &args, const tess_gpu_addresses &addresses, \
                            const tess_gpu_run &run);                                   \
    extern "C" void name(const void *arguments);                                        \
    extern "C" void name(const void *arguments)                                         \
    {                                                                                   \
        const tess_emulated_arguments *a =                                              \
            static_cast<const tess_emulated_arguments *>(arguments);                    \
        name##_body(a->args, a->addresses, a->run);                                     \
    }                                                                                   \
    static void name##_body(const tess_args &args, const tess_gpu_addresses &addresses, \
                            const tess_gpu_run &run)

#define TESS_KERNEL_WITH_MAPS(name, threads, resident)                                  \
    static void name##_body(const tess_args &args, const tess_gpu_addresses &addresses, \
                            const tess_gpu_run &run, const tess_gpu_maps &maps);        \
    extern "C" void name(const void *arguments);                                        \
    extern "C" void name(const void *arguments)                                         \
    {                                                                                   \
        const tess_emulated_arguments *a =                                              \
            static_cast<const tess_emulated_arguments *>(arguments);                    \
        name##_body(a->args, a->addresses, a->run, a->maps);                            \
    }                                                                                   \
    static void name##_body(const tess_args &args, const tess_gpu_addresses &addresses, \
                            const tess_gpu_run &run, const tess_gpu_maps &maps)

TESS_DEVICE tess_u32 tess_thread(void)
{
    return tess_emulated_thread();
}
TESS_DEVICE tess_u32 tess_block(void)
{
    return tess_emulated_block();
}
TESS_DEVICE tess_u32 tess_blocks(void)
{
    return tess_emulated_blocks();
}
TESS_DEVICE void tess_barrier(void)
{
    tess_emulated_barrier();
}

/* The exchange of a whole wave. */
TESS_DEVICE void tess_exchange_together(const tess_emulated_part *parts, tess_u32 lanes,
                                        tess_u32 mask)
{
    for (tess_u32 lane = 0; lane < lanes; lane++)
        *static_cast<float *>(parts[lane].out) = *static_cast<const float *>(parts[lane ^ mask].in);
}
template <int MASK> TESS_DEVICE float tess_exchange(float value)
{
    float other;
    static_assert(MASK > 0 && MASK < 32, "the narrowest wave has 32 lanes");
    tess_emulated_collective(tess_exchange_together, MASK, &value, &other);
    return other;
}

template <class MEMORY> TESS_DEVICE MEMORY *tess_shared(void)
{
    return static_cast<MEMORY *>(tess_emulated_shared(sizeof(MEMORY)));
}

TESS_DEVICE float tess_widen_f16(tess_u32 bits)
{
    return tess_f32_from_f16(bits);
}
TESS_DEVICE tess_u32 tess_narrow_f16(float value)
{
    return tess_f16_from_f32(value);
}

#endif
