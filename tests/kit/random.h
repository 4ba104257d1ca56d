/* SPDX-License-Identifier: Apache-2.0
 * Random numbers that are the same bits on every machine: integers only. */
#ifndef TESSERA_TESTS_KIT_RANDOM_H
#define TESSERA_TESTS_KIT_RANDOM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A sequence of numbers. */
typedef struct tess_random {
    uint64_t state;
} tess_random;

/* Mixes two words into one (splitmix64's finaliser): a number that depends on a place and not on
 * how many were drawn before it. */
static inline uint64_t tess_random_mix(uint64_t a, uint64_t b)
{
    uint64_t x = a + UINT64_C(0x9E3779B97F4A7C15) * (b + 1);

    x = (x ^ x >> 30) * UINT64_C(0xBF58476D1CE4E5B9);
    x = (x ^ x >> 27) * UINT64_C(0x94D049BB133111EB);
    return x ^ x >> 31;
}

/* A sequence of its own for every (seed, purpose), so that a change in how one thing is drawn does
 * not change the others. */
static inline tess_random tess_random_start(uint64_t seed, uint64_t purpose)
{
    return (tess_random){tess_random_mix(tess_random_mix(seed, purpose), 0x7E55)};
}

static inline uint64_t tess_random_next(tess_random *random)
{
    random->state += UINT64_C(0x9E3779B97F4A7C15);
    return tess_random_mix(random->state, 0);
}

/* Less than `count`, which is not 0. */
static inline int64_t tess_random_below(tess_random *random, int64_t count)
{
    return (int64_t)(tess_random_next(random) % (uint64_t)count);
}

/* True once in `count` times; true `percent` times in 100. */
static inline bool tess_random_once_in(tess_random *random, int64_t count)
{
    return tess_random_below(random, count) == 0;
}

static inline bool tess_random_percent(tess_random *random, int64_t percent)
{
    return tess_random_below(random, 100) < percent;
}

#endif
