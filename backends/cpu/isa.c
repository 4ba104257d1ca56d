/* SPDX-License-Identifier: Apache-2.0
 * Instruction sets of this machine, as bits of tess_caps.features. */
#include "backends/cpu/isa.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#if defined(__x86_64__) || defined(__i386__)
#include <cpuid.h>
#endif

#if defined(__aarch64__) && defined(__linux__)
#include <sys/auxv.h>
#include <sys/prctl.h>
#endif

/* Levels in ascending order; the ceiling is a place in it. */
static const struct {
    const char *name;
    uint32_t feature;
    int32_t ceiling; /* the TESSERA_CPU_ISA value that names it */
    int32_t lanes;
} levels[] = {
    {"scalar", TESS_CPU_SCALAR, TESS_ENV_ISA_SCALAR, 1},
    {"portable", TESS_CPU_PORTABLE, TESS_ENV_ISA_PORTABLE, 4},
    {"neon", TESS_CPU_NEON, TESS_ENV_ISA_NEON, 4},
    {"sve", TESS_CPU_SVE, TESS_ENV_ISA_SVE, TESS_CPU_SVE_BITS / 32},
    {"avx2", TESS_CPU_AVX2, TESS_ENV_ISA_AVX2, 8},
    {"avx512", TESS_CPU_AVX512, TESS_ENV_ISA_AVX512, 16},
    {"amx", TESS_CPU_AMX, TESS_ENV_ISA_AMX, 16},
};

enum { LEVELS = sizeof levels / sizeof levels[0] };

#if defined(__x86_64__) || defined(__i386__)
/* By hand: clang 14 has no word for it in __builtin_cpu_supports(). */
static bool has_f16c(void)
{
    unsigned a, b, c, d;
    return __get_cpuid(1, &a, &b, &c, &d) && (c & bit_F16C);
}
#endif

#if defined(__aarch64__)
/* Present, and as long as the kernels were compiled for. */
static bool has_sve(void)
{
#if defined(HWCAP_SVE) && defined(PR_SVE_GET_VL) && defined(PR_SVE_VL_LEN_MASK)
    const int length = getauxval(AT_HWCAP) & HWCAP_SVE ? prctl(PR_SVE_GET_VL) : 0;
    return length > 0 && 8 * (length & PR_SVE_VL_LEN_MASK) == TESS_CPU_SVE_BITS;
#else
    return false;
#endif
}
#endif

static uint32_t detect(int32_t ceiling)
{
    uint32_t features = TESS_CPU_PORTABLE;

    (void)ceiling;
#if defined(__x86_64__) || defined(__i386__)
    /* These also ask whether the operating system saves the registers. */
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && has_f16c())
        features |= TESS_CPU_AVX2;
    if ((features & TESS_CPU_AVX2) && __builtin_cpu_supports("avx512f") &&
        __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512bw") &&
        __builtin_cpu_supports("avx512vl"))
        features |= TESS_CPU_AVX512;
#ifdef TESS_CPU_HAS_AMX
    /* Not asked below the ceiling: permission lasts as long as the process. */
    if ((features & TESS_CPU_AVX512) && (ceiling == 0 || ceiling >= TESS_ENV_ISA_AMX) &&
        tess_cpu_has_amx(ceiling))
        features |= TESS_CPU_AMX;
#endif
#elif defined(__aarch64__)
    features |= TESS_CPU_NEON; /* part of the base architecture */
    if (has_sve())
        features |= TESS_CPU_SVE;
#endif
    return features;
}

uint32_t tess_cpu_isa(int32_t ceiling)
{
    const uint32_t present = detect(ceiling);
    uint32_t allowed = 0;

    for (int i = 0; i < LEVELS; i++)
        if (ceiling == 0 || levels[i].ceiling <= ceiling)
            allowed |= levels[i].feature;
    return present & allowed;
}

static int highest(uint32_t features)
{
    int level = 0;
    for (int i = 1; i < LEVELS; i++)
        if (features & levels[i].feature)
            level = i;
    return level;
}

const char *tess_cpu_isa_name(uint32_t features)
{
    return levels[highest(features)].name;
}

int32_t tess_cpu_isa_lanes(uint32_t features)
{
    return levels[highest(features)].lanes;
}

void tess_cpu_brand(char *out_text, size_t size)
{
    char brand[49] = "";

#if defined(__x86_64__) || defined(__i386__)
    /* Three leaves of 16 bytes each, padded with blanks in front or behind. */
    for (unsigned i = 0; i < 3; i++) {
        unsigned part[4] = {0};
        __get_cpuid(0x80000002u + i, &part[0], &part[1], &part[2], &part[3]);
        memcpy(brand + 16 * i, part, sizeof part);
    }
#endif
    const char *first = brand + strspn(brand, " ");
    size_t length = strlen(first);
    while (length > 0 && first[length - 1] == ' ')
        length--;
    snprintf(out_text, size, "%.*s", (int)length, first);
}
