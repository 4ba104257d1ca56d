/* SPDX-License-Identifier: Apache-2.0
 * HIP's answers, one lane for each index; no HIP header, so that stock clang compiles it. */
#include "probe.h"

extern "C" __attribute__((global)) void probe(tess_args args, tess_u32 *exact, tess_f32 *near)
{
    const tess_u32 index =
        __builtin_amdgcn_workgroup_id_x() * 64u + __builtin_amdgcn_workitem_id_x();

    for (tess_u32 kind = 0; kind < PROBE_EXACT_KINDS; kind++)
        exact[kind * PROBE_INDICES + index] = probe_exact(args, kind, index);
    for (tess_u32 kind = 0; kind < PROBE_NEAR_KINDS; kind++)
        near[kind * PROBE_INDICES + index] = probe_near(kind, index);
}
