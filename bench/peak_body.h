/* SPDX-License-Identifier: Apache-2.0
 * The loops behind the ceilings, compiled once for each instruction set. The file that includes
 * this has defined:
 *
 *     lane, word           vectors of float and of 32-bit integers
 *     SET(x)               a lane full of x
 *     FMA(a, b, c)         a * b + c
 *     LOAD(p) STORE(p, w)  a word at an aligned address
 *     OR(a, b)             of words
 *     CHAINS(EACH)         EACH(0) EACH(1) ...: independent sums, as many as hide the latency of
 *                          FMA on every unit and still fit the registers beside two operands
 *     ISA                  the name
 */
#include "bench/peak_loops.h"

/* Every chain runs towards 1 and stays there: no infinities, and none of the subnormal numbers that
 * some cores are slow with. */
static float fma_loop(int64_t rounds)
{
    const lane factor = SET(0.5f), term = SET(0.5f);
    union {
        lane vector;
        float element[sizeof(lane) / sizeof(float)];
    } sum;
#define EACH(i) lane chain##i = SET(0.5f + 0.01f * (float)(i));
    CHAINS(EACH)
#undef EACH

    for (int64_t round = 0; round < rounds; round++) {
#define EACH(i) chain##i = FMA(chain##i, factor, term);
        CHAINS(EACH)
#undef EACH
    }
    sum.vector = SET(0.0f);
#define EACH(i) sum.vector = FMA(chain##i, factor, sum.vector);
    CHAINS(EACH)
#undef EACH
    return sum.element[0];
}

/* Bitwise or has a latency of one cycle and a unit to spare everywhere, so loads set the pace. */
static uint32_t read_loop(const void *from, size_t size)
{
    const char *at = from;
    const char *const end = at + size;
    union {
        word vector;
        uint32_t element[sizeof(word) / sizeof(uint32_t)];
    } bits;
    word a = LOAD(at), b = a, c = a, d = a;

    for (; at < end; at += 8 * sizeof(word)) {
        a = OR(a, LOAD(at));
        b = OR(b, LOAD(at + sizeof(word)));
        c = OR(c, LOAD(at + 2 * sizeof(word)));
        d = OR(d, LOAD(at + 3 * sizeof(word)));
        a = OR(a, LOAD(at + 4 * sizeof(word)));
        b = OR(b, LOAD(at + 5 * sizeof(word)));
        c = OR(c, LOAD(at + 6 * sizeof(word)));
        d = OR(d, LOAD(at + 7 * sizeof(word)));
    }
    bits.vector = OR(OR(a, b), OR(c, d));
    return bits.element[0];
}

static void copy_loop(void *to, const void *from, size_t size)
{
    const char *at = from;
    const char *const end = at + size;
    char *target = to;

    for (; at < end; at += 4 * sizeof(word), target += 4 * sizeof(word)) {
        const word a = LOAD(at), b = LOAD(at + sizeof(word));
        const word c = LOAD(at + 2 * sizeof(word)), d = LOAD(at + 3 * sizeof(word));

        STORE(target, a);
        STORE(target + sizeof(word), b);
        STORE(target + 2 * sizeof(word), c);
        STORE(target + 3 * sizeof(word), d);
    }
}

#define EACH(i) +1
#define JOIN_(a, b) a##b
#define JOIN(a, b) JOIN_(a, b)
#define TEXT_(a) #a
#define TEXT(a) TEXT_(a)

const tess_peak_loops JOIN(tess_peak_loops_,
                           ISA) = {TEXT(ISA), 2.0 * sizeof(lane) / sizeof(float) * (0 CHAINS(EACH)),
                                   fma_loop, read_loop, copy_loop};
