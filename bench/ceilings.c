/* SPDX-License-Identifier: Apache-2.0
 * All ceilings of the machine at once. */
#include "bench/ceilings.h"

#include "bench/clock.h"
#include "bench/measure.h"
#include "bench/peak.h"

#include <stdlib.h>
#include <unistd.h>

enum { LEAST_ROUNDS = 5, MOST_ROUNDS = 200 };

#define SMALLEST_PART ((size_t)16 << 10)

/* Samples of one kind, one for every round. */
typedef double samples[MOST_ROUNDS];

typedef struct survey {
    samples flops, ghz;
    samples read[TESS_CEILINGS_MEMORY], copy[TESS_CEILINGS_MEMORY];
    size_t rounds;
} survey;

static void go_round(survey *s, const tess_ceilings *ceilings)
{
    const size_t round = s->rounds++;
    const double before = tess_clock_ghz();
    double after;

    s->flops[round] = tess_peak_fma(ceilings->threads, ceilings->isa);
    after = tess_clock_ghz();
    s->ghz[round] = before > after ? before : after;
    for (size_t i = 0; i < ceilings->memory_count; i++) {
        const size_t bytes = ceilings->memory[i].bytes;
        s->read[i][round] = tess_peak_read(bytes, ceilings->threads, ceilings->isa);
        s->copy[i][round] = tess_peak_copy(bytes, ceilings->threads, ceilings->isa);
        tess_clock_sleep(0.0005);
    }
}

static bool summarize(const survey *s, tess_ceilings *out)
{
    bool is_good = tess_spread_of(s->flops, s->rounds, &out->flops) &&
                   tess_spread_of(s->ghz, s->rounds, &out->clock_ghz);

    for (size_t i = 0; is_good && i < out->memory_count; i++)
        is_good = tess_spread_of(s->read[i], s->rounds, &out->memory[i].read) &&
                  tess_spread_of(s->copy[i], s->rounds, &out->memory[i].copy);
    return is_good;
}

bool tess_ceilings_measure(int threads, const char *isa, double seconds, tess_ceilings *out)
{
    const double started = tess_clock_seconds();
    survey *const s = calloc(1, sizeof *s);
    bool is_good;

    *out = (tess_ceilings){.isa = isa && tess_peak_has(isa) ? isa : tess_peak_best(),
                           .threads = threads > 1 ? threads : 1};
    if (!s)
        return false;
    for (size_t part = SMALLEST_PART;
         part * (size_t)out->threads <= TESS_PEAK_MOST && out->memory_count < TESS_CEILINGS_MEMORY;
         part *= 2)
        out->memory[out->memory_count++].bytes = part * (size_t)out->threads;
    /* The buffer is made once, at its largest, before anything is timed. */
    is_good = tess_peak_read(TESS_PEAK_MOST, out->threads, out->isa) > 0;
    out->is_realtime = is_good && tess_measure_realtime(out->threads, true);
    out->flops_per_cycle = tess_peak_flops_per_cycle(out->isa);
    while (
        is_good && s->rounds < MOST_ROUNDS &&
        (s->rounds < LEAST_ROUNDS || tess_clock_seconds() - started < (seconds > 0 ? seconds : 1)))
        go_round(s, out);
    if (out->is_realtime)
        tess_measure_realtime(out->threads, false);
    is_good = is_good && summarize(s, out);
    free(s);
    tess_peak_release();
    return is_good;
}

/* ---- Levels ---------------------------------------------------------------------------------- */

/* Bytes of a cache of this machine; 0: none, or it does not say. */
static size_t cache_size(int level)
{
#ifdef _SC_LEVEL1_DCACHE_SIZE
    const int names[] = {_SC_LEVEL1_DCACHE_SIZE, _SC_LEVEL2_CACHE_SIZE, _SC_LEVEL3_CACHE_SIZE};
    const long size = sysconf(names[level]);

    return size > 0 ? (size_t)size : 0;
#else
    (void)level;
    return 0;
#endif
}

static void add_level(tess_levels *levels, const char *name, size_t bytes)
{
    if (bytes > 0 && bytes <= TESS_PEAK_MOST)
        levels->level[levels->count++] = (tess_level){.name = name, .bytes = bytes};
}

/* The first two belong to a core each, the third to all. Half of one holds all of a buffer, and
 * four times all second ones leave little of it there. */
static void list_levels(tess_levels *levels)
{
    const size_t threads = (size_t)levels->threads;
    const size_t first = cache_size(0), second = cache_size(1), third = cache_size(2);
    const size_t beyond = 4 * threads * second;

    add_level(levels, "L1", first / 2 * threads);
    add_level(levels, "L2", second / 2 * threads);
    add_level(levels, "L3", beyond < third / 2 ? beyond : third / 2);
    add_level(levels, "memory", TESS_PEAK_MOST);
}

bool tess_levels_measure(int threads, const char *isa, tess_levels *out)
{
    enum { ROUNDS = 9 };
    double read[TESS_LEVELS][ROUNDS];
    bool is_good, is_realtime;

    *out = (tess_levels){.threads = threads > 1 ? threads : 1};
    list_levels(out);
    is_good = tess_peak_read(TESS_PEAK_MOST, out->threads, isa) > 0; /* makes the buffer */
    is_realtime = is_good && tess_measure_realtime(out->threads, true);
    for (int round = 0; is_good && round < ROUNDS; round++) {
        for (size_t i = 0; i < out->count; i++)
            read[i][round] = tess_peak_read(out->level[i].bytes, out->threads, isa);
        tess_clock_sleep(0.0005);
    }
    if (is_realtime)
        tess_measure_realtime(out->threads, false);
    for (size_t i = 0; is_good && i < out->count; i++)
        is_good = tess_spread_of(read[i], ROUNDS, &out->level[i].read);
    return is_good;
}
