/* SPDX-License-Identifier: Apache-2.0
 * The numbers of a device that kernels and schedules are chosen by. */
#ifndef TESSERA_CORE_SCHEDULE_CAPS_H
#define TESSERA_CORE_SCHEDULE_CAPS_H

#include <stdint.h>

typedef struct tess_caps {
    int64_t cache;         /* bytes of the last private cache level; 0: unknown */
    int64_t shared_memory; /* bytes of on-chip memory a work-group may use */
    int32_t units;         /* compute units; on the CPU: threads */
    int32_t lanes;         /* fp32 elements of one vector or wave */
    uint32_t features;     /* bits whose meaning is the backend's: instruction sets, matrix units */
    const char *architecture; /* "avx512", "sm_90": for messages */
} tess_caps;

#endif
