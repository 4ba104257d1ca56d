/* SPDX-License-Identifier: Apache-2.0
 * Time, and how many cycles a core makes of it. The one file of the harness with assembly: a
 * compiler would fold the chains that tell the clock. */
#include "bench/clock.h"

#include <errno.h>
#include <stdint.h>
#include <time.h>

double tess_clock_seconds(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

void tess_clock_sleep(double seconds)
{
    struct timespec left;

    if (!(seconds > 0))
        return;
    left.tv_sec = (time_t)seconds;
    left.tv_nsec = (long)((seconds - (double)left.tv_sec) * 1e9);
    while (nanosleep(&left, &left) != 0 && errno == EINTR)
        continue;
}

#if defined(__x86_64__) || defined(__aarch64__)

/* Links of the chain in one round of the loop. The loop's own instructions run beside it. */
enum { LINKS = 16 };

/* x86-64: imul of registers takes 3 cycles on every core since 2008 (Intel since Nehalem, AMD since
 * Zen). A chain of additions would not do: newer cores fold those of constants away.
 * AArch64: multiplication takes 2 to 5 cycles depending on the core, but adding registers takes 1
 * everywhere. */
static uint64_t chain(uint64_t value, int64_t rounds)
{
#define FOUR(link) link link link link
    for (int64_t i = 0; i < rounds; i++)
#if defined(__x86_64__)
        __asm__ volatile(FOUR(FOUR("imul %0, %0\n\t")) : "+r"(value) : : "cc");
#else
        __asm__ volatile(FOUR(FOUR("add %0, %0, %0\n\t")) : "+r"(value));
#endif
#undef FOUR
    return value;
}

double tess_clock_ghz(void)
{
#if defined(__x86_64__)
    const double cycles_per_link = 3;
#else
    const double cycles_per_link = 1;
#endif
    /* About 7 microseconds each: an interruption spoils one of them, the fastest is the truth. */
    const int64_t rounds = (int64_t)(20000 / (LINKS * cycles_per_link));
    double best = 0;

    for (int attempt = 0; attempt < 3; attempt++) {
        const double start = tess_clock_seconds();
        (void)chain(3, rounds);
        const double seconds = tess_clock_seconds() - start;
        const double ghz = (double)(rounds * LINKS) * cycles_per_link / seconds * 1e-9;
        if (seconds > 0 && ghz > best)
            best = ghz;
    }
    return best;
}

#else

double tess_clock_ghz(void)
{
    return 0;
}

#endif
