/* SPDX-License-Identifier: Apache-2.0
 * The language of kernels for AMD where lanes are fibers of the host: takes the place of
 * backends/hip/vendor/kernel.h. */
#ifndef VENDOR_KERNEL_H
#define VENDOR_KERNEL_H

#include "backends/gpu/kernels.h"
#include "tests/emulation/amd/builtins.h"

#define TESS_DEVICE static inline
/* The same members are compiled for every target, and are not the same. */
#define TESS_DEVICE_MEMBER __attribute__((internal_linkage)) inline
#define TESS_UNROLL
#define TESS_NO_UNROLL
#define TESS_GLOBAL

/* What a lane is called with, in one block of memory. */
struct tess_emulated_arguments {
    tess_args args;
    tess_gpu_addresses addresses;
    tess_gpu_run run;
};

/* Every target has a kernel of the same name: its own begins with the target's. */
#define TESS_EMULATED_JOIN(target, name) target##_##name
#define TESS_EMULATED_NAME(target, name) TESS_EMULATED_JOIN(target, name)

/* Defines a kernel; the body follows. A lane finds its arguments behind one pointer. */
#define TESS_KERNEL(name, threads, resident)                                            \
    static void name##_body(const tess_args &args, const tess_gpu_addresses &addresses, \
                            const tess_gpu_run &run);                                   \
    extern "C" void TESS_EMULATED_NAME(TESS_EMULATED_TARGET, name)(const void *given);  \
    extern "C" void TESS_EMULATED_NAME(TESS_EMULATED_TARGET, name)(const void *given)   \
    {                                                                                   \
        const auto *a = static_cast<const tess_emulated_arguments *>(given);            \
        name##_body(a->args, a->addresses, a->run);                                     \
    }                                                                                   \
    static void name##_body(const tess_args &args, const tess_gpu_addresses &addresses, \
                            const tess_gpu_run &run)
#define TESS_KERNEL_OF_WAVES(name, threads, waves) TESS_KERNEL(name, threads, 1)

template <class MEMORY> TESS_DEVICE MEMORY *tess_shared(void)
{
    return static_cast<MEMORY *>(tess_emulated_shared(sizeof(MEMORY)));
}

#endif
