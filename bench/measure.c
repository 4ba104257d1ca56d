/* SPDX-License-Identifier: Apache-2.0
 * Timing on machines that are not quiet. */
#include "bench/measure.h"

#include "bench/clock.h"
#include "bench/peak.h"
#include "bench/team.h"

#include <math.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>

/* Below this many rounds a spread says nothing; above the other number it says no more. */
enum { LEAST_ROUNDS = 5, MOST_ROUNDS = 1000 };

/* A run this long is hardly hurt by an interruption, but would shut others out. */
#define LONGEST_REALTIME 0.3

/* Everything measured beside one window of one candidate. */
typedef struct readings {
    double ghz, flops, bytes;
} readings;

/* One candidate with its samples, one of each kind for every round. */
typedef struct track {
    const tess_measure_candidate *candidate;
    double estimate; /* seconds of one run */
    int64_t times;   /* runs in a window */
    double *seconds, *cycles, *ghz, *flops, *bytes, *possible_flops, *possible_bytes;
} track;

enum { SAMPLE_KINDS = 7 };

typedef struct measurement {
    tess_measure_options options; /* defaults filled in */
    track *tracks;
    size_t count;
    double *samples;
    int64_t rounds; /* done */
    bool is_realtime;
} measurement;

/* ---- Real-time priority ---------------------------------------------------------------------- */

typedef struct priority {
    bool is_wanted;
    int failures;
} priority;

static void set_priority(void *user, int thread, int threads)
{
    priority *const p = user;
    struct sched_param parameter = {0};

    (void)thread;
    (void)threads;
    if (p->is_wanted)
        parameter.sched_priority = sched_get_priority_min(SCHED_FIFO);
    if (sched_setscheduler(0, p->is_wanted ? SCHED_FIFO : SCHED_OTHER, &parameter) != 0)
#ifdef _OPENMP
#pragma omp atomic
#endif
        p->failures++;
}

bool tess_measure_realtime(int threads, bool is_wanted)
{
    priority p = {is_wanted, 0};

    if (is_wanted && threads > tess_team_cores())
        return false;
    tess_team(threads, set_priority, &p);
    if (is_wanted && p.failures > 0) {
        p = (priority){false, 0};
        tess_team(threads, set_priority, &p);
        return false;
    }
    return p.failures == 0;
}

/* ---- Readings -------------------------------------------------------------------------------- */

static void add_clock(void *user, int thread, int threads)
{
    const double ghz = tess_clock_ghz() / threads;

    (void)thread;
#ifdef _OPENMP
#pragma omp atomic
#endif
    *(double *)user += ghz;
}

static readings read_machine(const measurement *m, const tess_measure_candidate *candidate)
{
    readings r = {0};

    if (candidate->peak_bytes)
        r.bytes = candidate->peak_bytes(candidate->user);
    if (candidate->peak_flops)
        r.flops = candidate->peak_flops(candidate->user);
    if (m->options.threads > 0)
        tess_team(m->options.threads, add_clock, &r.ghz);
    return r;
}

static double larger(double a, double b)
{
    return a > b ? a : b;
}

/* ---- Rounds ---------------------------------------------------------------------------------- */

static bool run(const track *t, int64_t times, double *out_seconds)
{
    return t->candidate->run(t->candidate->user, times, out_seconds);
}

/* The number of runs doubles until a window is full enough to tell its length. */
static bool estimate(const measurement *m, track *t)
{
    const double window = m->options.window_seconds;
    double seconds;
    int64_t times = 1;

    for (;; times *= 2) {
        if (!run(t, times, &seconds))
            return false;
        if (seconds > window / 4 || times > 1000000)
            break;
    }
    t->estimate = seconds / (double)times;
    t->times = t->estimate > 0 ? (int64_t)(window / t->estimate) : times;
    if (t->times < 1 || m->options.is_cold)
        t->times = 1;
    return true;
}

static bool window(measurement *m, track *t)
{
    const readings before = read_machine(m, t->candidate);
    readings after;
    double seconds;

    if (m->options.is_cold) {
        if (!tess_peak_flush(m->options.threads))
            return false;
    } else if (t->estimate < 2 * m->options.window_seconds) {
        /* The ceilings' loops have used the caches; a run that is long beside them fills its own.
         */
        if (!run(t, 1, &seconds))
            return false;
    }
    if (!run(t, t->times, &seconds))
        return false;
    after = read_machine(m, t->candidate);

    seconds /= (double)t->times;
    t->seconds[m->rounds] = seconds;
    t->ghz[m->rounds] = larger(before.ghz, after.ghz);
    t->cycles[m->rounds] = seconds * t->ghz[m->rounds] * 1e9;
    t->flops[m->rounds] = larger(before.flops, after.flops);
    t->bytes[m->rounds] = larger(before.bytes, after.bytes);
    t->possible_flops[m->rounds] = seconds * t->flops[m->rounds];
    t->possible_bytes[m->rounds] = seconds * t->bytes[m->rounds];
    return true;
}

/* Whether another round is due after `elapsed` seconds. Slow candidates get fewer than the least
 * number when that would take many times what was asked for; the count of rounds tells. */
static bool is_due(const measurement *m, double elapsed)
{
    const tess_measure_options *const o = &m->options;

    if (o->rounds > 0)
        return m->rounds < o->rounds;
    if (m->rounds >= MOST_ROUNDS)
        return false;
    return elapsed < o->seconds || (m->rounds < LEAST_ROUNDS && elapsed < 4 * o->seconds) ||
           m->rounds == 0;
}

static bool go_round(measurement *m)
{
    /* Who goes first changes, so that nobody always runs on a rested or a tired machine. */
    for (size_t i = 0; i < m->count; i++)
        if (!window(m, &m->tracks[(i + (size_t)m->rounds) % m->count]))
            return false;
    m->rounds++;
    return true;
}

static bool go_all_rounds(measurement *m, double started)
{
    const tess_measure_options *const o = &m->options;
    const double first = tess_clock_seconds();
    double now = first;

    while (is_due(m, now - started)) {
        const double round_started = now;
        if (!go_round(m))
            return false;
        now = tess_clock_seconds();
        /* A pause, in proportion but short, keeps real-time windows from shutting others out. */
        tess_clock_sleep(fmin(0.25 * (now - round_started), 0.1));
        now = tess_clock_seconds();
        if (o->proceed) {
            const double share = (now - started) / o->seconds;
            const double guess = share < 1 ? (double)m->rounds / share : (double)m->rounds;
            if (!o->proceed(o->user, m->rounds, o->rounds > 0 ? o->rounds : (int64_t)guess))
                break;
        }
    }
    return true;
}

/* ---- The whole ------------------------------------------------------------------------------- */

static bool make(measurement *m, const tess_measure_candidate *candidates,
                 const tess_measure_options *options)
{
    tess_measure_options *const o = &m->options;
    size_t room;

    *o = *options;
    if (!(o->seconds > 0))
        o->seconds = (double)m->count;
    if (!(o->window_seconds > 0))
        o->window_seconds = 0.005;
    room = (size_t)(o->rounds > 0 ? o->rounds : MOST_ROUNDS);
    m->tracks = calloc(m->count, sizeof *m->tracks);
    m->samples = calloc(m->count * SAMPLE_KINDS, room * sizeof *m->samples);
    if (!m->tracks || !m->samples)
        return false;
    for (size_t i = 0; i < m->count; i++) {
        double *const samples = m->samples + i * SAMPLE_KINDS * room;
        m->tracks[i] = (track){.candidate = &candidates[i],
                               .seconds = samples,
                               .cycles = samples + room,
                               .ghz = samples + 2 * room,
                               .flops = samples + 3 * room,
                               .bytes = samples + 4 * room,
                               .possible_flops = samples + 5 * room,
                               .possible_bytes = samples + 6 * room};
    }
    return true;
}

static bool summarize(const measurement *m, size_t index, tess_measured *out)
{
    const track *const t = &m->tracks[index];
    const size_t rounds = (size_t)m->rounds;

    out->runs_per_window = t->times;
    out->is_realtime = m->is_realtime;
    return tess_spread_of(t->seconds, rounds, &out->seconds) &&
           tess_spread_of(t->cycles, rounds, &out->cycles) &&
           tess_spread_of(t->ghz, rounds, &out->clock_ghz) &&
           tess_spread_of(t->flops, rounds, &out->peak_flops) &&
           tess_spread_of(t->bytes, rounds, &out->peak_bytes) &&
           tess_spread_of(t->possible_flops, rounds, &out->possible_flops) &&
           tess_spread_of(t->possible_bytes, rounds, &out->possible_bytes) &&
           tess_spread_of_ratios(m->tracks[0].seconds, t->seconds, rounds, &out->speedup);
}

/* The first run of each pays for fresh pages, a sleeping team and a cold branch predictor. It goes
 * at ordinary priority, for nobody knows yet how long it takes. */
static bool warm_up(const measurement *m, double *out_longest)
{
    *out_longest = 0;
    for (size_t i = 0; i < m->count; i++) {
        double seconds;
        if (!run(&m->tracks[i], 1, &seconds))
            return false;
        *out_longest = larger(*out_longest, seconds);
    }
    return true;
}

static bool estimate_all(const measurement *m, double *out_longest)
{
    *out_longest = 0;
    for (size_t i = 0; i < m->count; i++) {
        if (!estimate(m, &m->tracks[i]))
            return false;
        *out_longest = larger(*out_longest, m->tracks[i].estimate);
    }
    return true;
}

static void set_realtime(measurement *m, bool is_wanted)
{
    if (m->is_realtime == is_wanted)
        return;
    m->is_realtime = tess_measure_realtime(m->options.threads, is_wanted) && is_wanted;
}

static bool measure(measurement *m)
{
    const bool may_ask = !m->options.no_realtime && m->options.threads > 0;
    const double started = tess_clock_seconds();
    double longest;
    bool is_good = warm_up(m, &longest);

    /* On a crowded machine that run may have taken many times its due. */
    set_realtime(m, is_good && may_ask && longest < 10 * LONGEST_REALTIME);
    is_good = is_good && estimate_all(m, &longest);
    if (longest > LONGEST_REALTIME)
        set_realtime(m, false);
    is_good = is_good && go_all_rounds(m, started);
    return is_good;
}

bool tess_measure(const tess_measure_candidate *candidates, size_t count,
                  const tess_measure_options *options, tess_measured *out)
{
    measurement m = {.count = count};
    bool is_good = make(&m, candidates, options) && measure(&m);

    memset(out, 0, count * sizeof *out);
    for (size_t i = 0; is_good && i < count; i++)
        is_good = summarize(&m, i, &out[i]);
    set_realtime(&m, false);
    if (!is_good)
        memset(out, 0, count * sizeof *out);
    free(m.tracks);
    free(m.samples);
    return is_good;
}
