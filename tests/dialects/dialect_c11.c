/* SPDX-License-Identifier: Apache-2.0
 * C11's answers, which the other dialects are compared with. */
#include "compare.h"

#include <float.h>
#include <stdio.h>
#include <string.h>

tess_args probe_block(void)
{
    tess_args args;

    memset(&args, 0, sizeof args);
    args.q_stride[0] = 101;
    args.o_stride[3] = 102;
    args.sink_stride = (tess_i64)103 << 32;
    args.total_columns = 104;
    args.window_right = -105;
    args.splits = 106;
    args.scratch_size = (tess_i64)107 << 32;
    args.head_dim = 108;
    args.flags = 0x80000109u;
    args.softcap = 110.5f;
    return args;
}

void probe_all(tess_u32 *exact, tess_f32 *near)
{
    const tess_args args = probe_block();

    for (tess_u32 i = 0; i < PROBE_EXACT_COUNT; i++)
        exact[i] = probe_exact(args, i / PROBE_INDICES, i % PROBE_INDICES);
    for (tess_u32 i = 0; i < PROBE_NEAR_COUNT; i++)
        near[i] = probe_near(i / PROBE_INDICES, i % PROBE_INDICES);
}

/* OpenCL allows exp2 and log2 3 ulp (3.6e-7) and tanh 5; a fused multiply-add moves a score of 46
 * by 2e-6 and its weight by as much. A logarithm near zero is a difference of larger numbers, so it
 * is measured against 1. */
static int is_near(tess_u32 kind, tess_f32 got, tess_f32 want)
{
    const tess_f32 size = (PROBE_LOGARITHMS >> kind & 1u) != 0u ? 1.0f : FLT_MIN;

    if (tess_is_nan(got) || tess_is_nan(want))
        return tess_is_nan(got) && tess_is_nan(want);
    return got == want || fabsf(got - want) <= 4e-6f * fmaxf(fabsf(want), size);
}

int probe_compare(const char *name, const tess_u32 *exact, const tess_f32 *near)
{
    static tess_u32 want_exact[PROBE_EXACT_COUNT];
    static tess_f32 want_near[PROBE_NEAR_COUNT];
    int wrong = 0;

    probe_all(want_exact, want_near);
    for (tess_u32 i = 0; i < PROBE_EXACT_COUNT; i++)
        if (exact[i] != want_exact[i] && wrong++ < 10)
            printf("%s: exact %u of %u: 0x%08x, C11 has 0x%08x\n", name, i / PROBE_INDICES,
                   i % PROBE_INDICES, exact[i], want_exact[i]);
    for (tess_u32 i = 0; i < PROBE_NEAR_COUNT; i++)
        if (!is_near(i / PROBE_INDICES, near[i], want_near[i]) && wrong++ < 10)
            printf("%s: near %u of %u: %.9g, C11 has %.9g\n", name, i / PROBE_INDICES,
                   i % PROBE_INDICES, (double)near[i], (double)want_near[i]);
    printf("%s: %d of %d answers differ\n", name, wrong, PROBE_EXACT_COUNT + PROBE_NEAR_COUNT);
    return wrong;
}
