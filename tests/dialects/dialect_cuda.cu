/* SPDX-License-Identifier: Apache-2.0
 * CUDA's answers, one thread for each index. */
#include "probe.h"

extern "C" __global__ void probe(tess_args args, tess_u32 *exact, tess_f32 *near)
{
    const tess_u32 index = blockIdx.x * blockDim.x + threadIdx.x;

    for (tess_u32 kind = 0; kind < PROBE_EXACT_KINDS; kind++)
        exact[kind * PROBE_INDICES + index] = probe_exact(args, kind, index);
    for (tess_u32 kind = 0; kind < PROBE_NEAR_KINDS; kind++)
        near[kind * PROBE_INDICES + index] = probe_near(kind, index);
}
