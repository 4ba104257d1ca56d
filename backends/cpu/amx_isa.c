/* SPDX-License-Identifier: Apache-2.0
 * Whether this process may use AMX tiles. */
/* NOLINTNEXTLINE(bugprone-reserved-identifier): a feature test macro, for syscall() */
#define _DEFAULT_SOURCE
#include "backends/cpu/isa.h"

#include <stdatomic.h>

#ifdef TESS_AMX_EMULATED

bool tess_cpu_has_amx(int32_t ceiling)
{
    /* Far too slow to be chosen where nobody asked for it. */
    return ceiling == TESS_ENV_ISA_AMX && __builtin_cpu_supports("avx512bf16");
}

#elif defined(__x86_64__) && defined(__linux__)

#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>

/* Bits of CPUID leaf 7, of XCR0, and the request of arch_prctl(2) for the state of tiles. */
enum {
    CPUID_BF16 = 1 << 22,
    CPUID_TILE = 1 << 24,
    CPUID_OSXSAVE = 1 << 27,
    XCR0_TILES = 3 << 17,
    REQUEST_PERMISSION = 0x1023,
    TILE_DATA = 18
};

static bool has_instructions(void)
{
    unsigned a, b, c, d, low, high;

    if (!__builtin_cpu_supports("avx512bf16") || !__get_cpuid(1, &a, &b, &c, &d) ||
        !(c & CPUID_OSXSAVE))
        return false;
    __asm__("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    return (low & XCR0_TILES) == XCR0_TILES && __get_cpuid_count(7, 0, &a, &b, &c, &d) &&
           (d & CPUID_BF16) && (d & CPUID_TILE);
}

/* Linux wants to be asked before the first tile is touched, once for all threads; a fact about the
 * process, so not a member of any context. 0: not asked yet; 1: no; 2: yes. */
bool tess_cpu_has_amx(int32_t ceiling)
{
    static atomic_int answer;
    int known = atomic_load(&answer);

    (void)ceiling;
    if (known == 0) {
        const bool may =
            has_instructions() && syscall(SYS_arch_prctl, REQUEST_PERMISSION, TILE_DATA) == 0;
        known = may ? 2 : 1;
        atomic_store(&answer, known);
    }
    return known == 2;
}

#else

bool tess_cpu_has_amx(int32_t ceiling)
{
    (void)ceiling;
    return false;
}

#endif
