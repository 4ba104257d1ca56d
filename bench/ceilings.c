/* SPDX-License-Identifier: Apache-2.0
 * All ceilings of the machine at once. */
#include "bench/ceilings.h"

#include "bench/clock.h"
#include "bench/measure.h"
#include "bench/peak.h"

#include <stdlib.h>

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
