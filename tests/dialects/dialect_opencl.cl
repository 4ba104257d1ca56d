/* SPDX-License-Identifier: Apache-2.0
 * OpenCL C's answers, one work-item for each index. */
#include "probe.h"

__kernel void probe(const tess_args args, __global tess_u32 *exact, __global tess_f32 *near)
{
    const tess_u32 index = (tess_u32)get_global_id(0);
    tess_u32 kind;

    for (kind = 0; kind < PROBE_EXACT_KINDS; kind++)
        exact[kind * PROBE_INDICES + index] = probe_exact(args, kind, index);
    for (kind = 0; kind < PROBE_NEAR_KINDS; kind++)
        near[kind * PROBE_INDICES + index] = probe_near(kind, index);
}
