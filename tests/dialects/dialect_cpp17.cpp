/* SPDX-License-Identifier: Apache-2.0
 * C++17's answers. */
#include "probe.h"

#include <type_traits>

static_assert(std::is_standard_layout<tess_args>::value && std::is_trivial<tess_args>::value,
              "the block is copied to devices byte by byte");

extern "C" void probe_cpp17(tess_args args, tess_u32 *exact, tess_f32 *near);

extern "C" void probe_cpp17(tess_args args, tess_u32 *exact, tess_f32 *near)
{
    for (tess_u32 i = 0; i < PROBE_EXACT_KINDS * PROBE_INDICES; i++)
        exact[i] = probe_exact(args, i / PROBE_INDICES, i % PROBE_INDICES);
    for (tess_u32 i = 0; i < PROBE_NEAR_KINDS * PROBE_INDICES; i++)
        near[i] = probe_near(i / PROBE_INDICES, i % PROBE_INDICES);
}
