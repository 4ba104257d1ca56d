/* SPDX-License-Identifier: Apache-2.0
 * Instruction sets of this machine, as bits of tess_caps.features. */
#ifndef TESSERA_BACKENDS_CPU_ISA_H
#define TESSERA_BACKENDS_CPU_ISA_H

#include "core/base/env.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* One bit per level that kernels.def names. The scalar kernel needs none of them. */
enum {
    TESS_CPU_SCALAR = 0,
    TESS_CPU_PORTABLE = 1u << 0, /* C that the compiler vectorises for its base instruction set */
    TESS_CPU_NEON = 1u << 1,
    TESS_CPU_AVX2 = 1u << 2,   /* with FMA and F16C */
    TESS_CPU_AVX512 = 1u << 3, /* F, DQ, BW and VL */
    TESS_CPU_AMX = 1u << 4,    /* tiles of BF16, with AVX-512 and its BF16 */
    TESS_CPU_SVE = 1u << 5     /* with vectors of TESS_CPU_SVE_BITS */
};

/* The kernels are compiled for this length. */
enum { TESS_CPU_SVE_BITS = 256 };

/* What the machine and the operating system allow, below the ceiling of TESSERA_CPU_ISA (0: no
 * ceiling). Cheap: reads registers. */
uint32_t tess_cpu_isa(int32_t ceiling);

/* Whether AMX tiles may be used (amx_isa.c): the processor has them and the operating system gave
 * its permission, which is asked for once. In a build that emulates them: whether `ceiling` names
 * them. */
bool tess_cpu_has_amx(int32_t ceiling);

/* What the vendor calls the processor; "" where it does not say. */
void tess_cpu_brand(char *out_text, size_t size);

/* The name of the highest level in features, and how many fp32 elements its vectors hold. */
const char *tess_cpu_isa_name(uint32_t features);
int32_t tess_cpu_isa_lanes(uint32_t features);

#endif
