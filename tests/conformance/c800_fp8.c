/* SPDX-License-Identifier: Apache-2.0
 * FP8 inputs: no backend has a kernel for them, so each must refuse with a reason. */
#include "tests/conformance/family.h"

static void strata(tess_family *family)
{
    tess_family_add(family, "fwd b1 hq1 q16 k16 d64 e4m3");
    tess_family_add(family, "fwd b1 hq1 q16 k16 d64 e5m2");
    tess_family_add(family, "fwd b2 hq4 hk2 q16 k70 d128 e4m3 of=f32 causal");
    tess_family_add(family, "fwd b2 hq4 hk2 q16 k70 d128 e4m3 of=f16 window=3,0 sink");
    tess_family_add(family, "fwd b2 hq4 hk2 q1 k70 usedk=70,3 page=16 d128 e4m3 splits=4");
    tess_family_add(family, "fwd hq4 hk2 lensq=3,0,5 lensk=9,4,5 d64 e5m2 of=bf16 alibi bias");
    tess_family_add(family, "fwd b2 hq2 q0 k0 d8 e4m3");
}

static bool narrow(tess_line *line)
{
    return line->dtype == TESS_E4M3 || line->dtype == TESS_E5M2;
}

int main(int argc, char **argv)
{
    static const tess_family_plan plan = {
        .name = "c800_fp8", .strata = strata, .narrow = narrow, .random = 20, .is_refused = true};

    return tess_family_main(&plan, argc, argv);
}
