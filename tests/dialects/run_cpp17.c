/* SPDX-License-Identifier: Apache-2.0
 * Compares the answers of the C++17 build with those of the C11 build. */
#include "compare.h"

void probe_cpp17(tess_args args, tess_u32 *exact, tess_f32 *near);

int main(void)
{
    static tess_u32 exact[PROBE_EXACT_COUNT];
    static tess_f32 near[PROBE_NEAR_COUNT];

    probe_cpp17(probe_block(), exact, near);
    return probe_compare("cpp17", exact, near) != 0;
}
