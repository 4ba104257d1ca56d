/* SPDX-License-Identifier: Apache-2.0
 * What this machine can do at this moment. */
#include "bench/peak.h"

#include "bench/clock.h"
#include "bench/peak_loops.h"
#include "bench/team.h"

#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Long enough for the clock's microsecond not to matter, short enough to fit in a quiet moment. */
#define WINDOW 0.001

/* ---- Instruction sets ------------------------------------------------------------------------ */

/* Best first. */
static const tess_peak_loops *const all_loops[] = {
#ifdef TESS_PEAK_AVX512
    &tess_peak_loops_avx512,
#endif
#ifdef TESS_PEAK_AVX2
    &tess_peak_loops_avx2,
#endif
#ifdef TESS_PEAK_NEON
    &tess_peak_loops_neon,
#endif
#ifdef TESS_PEAK_AMX
    &tess_peak_loops_amx, /* bf16 only, so never the best that all types have */
#endif
    &tess_peak_loops_portable,
};

enum { LOOPS = sizeof all_loops / sizeof all_loops[0] };

static bool is_here(const char *isa)
{
#if defined(__x86_64__) || defined(__i386__)
    if (strcmp(isa, "avx512") == 0)
        return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") &&
               __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl");
#ifdef TESS_PEAK_AMX
    if (strcmp(isa, "amx") == 0)
        return tess_peak_amx_is_here();
#endif
    if (strcmp(isa, "avx2") == 0)
        return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
#endif
    return strcmp(isa, "portable") == 0 || strcmp(isa, "neon") == 0;
}

static int place_of(const char *isa)
{
    if (!isa)
        isa = tess_peak_best();
    for (int i = 0; i < LOOPS; i++)
        if (strcmp(all_loops[i]->isa, isa) == 0 && is_here(isa))
            return i;
    return LOOPS - 1;
}

const char *tess_peak_isa(size_t index)
{
    return index < LOOPS ? all_loops[index]->isa : NULL;
}

bool tess_peak_has(const char *isa)
{
    for (int i = 0; i < LOOPS; i++)
        if (strcmp(all_loops[i]->isa, isa) == 0)
            return is_here(isa);
    return false;
}

const char *tess_peak_best(void)
{
    for (int i = 0; i < LOOPS; i++)
        if (is_here(all_loops[i]->isa))
            return all_loops[i]->isa;
    return "portable";
}

const char *tess_peak_of_device(const tess_device_info *info)
{
    if (info->kind != TESS_DEVICE_CPU)
        return NULL;
    if (strcmp(info->name, "cpu") != 0) /* its architecture is a driver's word */
        return tess_peak_best();
    return tess_peak_has(info->architecture) ? info->architecture : "portable";
}

/* ---- Multiply-adds --------------------------------------------------------------------------- */

/* One window of a team. Rates of threads add up, so one that is held up for a while costs its own
 * share and not that of all. */
typedef struct rates {
    const tess_peak_loops *loops;
    double total;
    size_t part; /* bytes of one thread's part of the buffer */
    bool is_copy;
} rates;

/* Keeps the results of loops alive. */
static void use(double value)
{
    volatile double sink = value;

    (void)sink;
}

static void add_rate(rates *r, double rate)
{
#ifdef _OPENMP
#pragma omp atomic
#endif
    r->total += rate;
}

/* After a while of memory traffic or idling, multipliers come to full rate only after two
 * milliseconds (seen on Zen 3: 75 % in the first, 90 % in the second, at an unchanged clock). So a
 * thread's rate is that of the best of some windows: a ceiling is what the machine can do. */
enum { FMA_WINDOWS = 3 };

static void run_fma(void *user, int thread, int threads)
{
    rates *const r = user;
    const int64_t chunk = 2000; /* rounds; about 10 microseconds */
    double best = 0;

    (void)thread;
    (void)threads;
    use((double)r->loops->fma(chunk));
    tess_team_meet();
    for (int window = 0; window < FMA_WINDOWS; window++) {
        const double start = tess_clock_seconds();
        double seconds, rate;
        int64_t chunks = 0;

        do {
            use((double)r->loops->fma(chunk));
            chunks++;
            seconds = tess_clock_seconds() - start;
        } while (seconds < WINDOW);
        rate = (double)(chunk * chunks) * r->loops->flops / seconds;
        if (rate > best)
            best = rate;
    }
    add_rate(r, best);
}

double tess_peak_fma(int threads, const char *isa)
{
    rates r = {.loops = all_loops[place_of(isa)]};

    tess_team(threads, run_fma, &r);
    return r.total;
}

double tess_peak_flops_per_cycle(const char *isa)
{
    static double known[LOOPS];
    const int place = place_of(isa);
    double best = 0;

    if (known[place] > 0)
        return known[place];
    for (int attempt = 0; attempt < 5; attempt++) {
        const double before = tess_clock_ghz();
        const double rate = tess_peak_fma(1, isa);
        const double after = tess_clock_ghz();
        const double ghz = before > after ? before : after;

        if (ghz > 0 && rate * 1e-9 / ghz > best)
            best = rate * 1e-9 / ghz;
    }
    /* Units are counted in powers of two, and the best of many windows is not far from full rate.
     */
    if (best > 0)
        known[place] = exp2(round(log2(best)));
    return known[place];
}

/* ---- Bandwidth ------------------------------------------------------------------------------- */

/* What the loops read and write; kept, since touching fresh pages takes longer than a window. */
static struct {
    char *data;
    size_t size;
} buffer;

static void fill_part(void *user, int thread, int threads)
{
    const size_t part = buffer.size / (size_t)threads;

    (void)user;
    memset(buffer.data + part * (size_t)thread, 0, part);
}

static bool reserve(size_t size, int threads)
{
    void *memory;

    if (size <= buffer.size)
        return true;
    tess_peak_release();
    /* Aligned to large pages, which the kernel hands out here by itself or not at all. */
    if (posix_memalign(&memory, (size_t)2 << 20, size) != 0)
        return false;
    buffer.data = memory;
    buffer.size = size;
    tess_team(threads, fill_part, NULL);
    return true;
}

void tess_peak_release(void)
{
    free(buffer.data);
    buffer.data = NULL;
    buffer.size = 0;
}

/* What is moved between two looks at the clock, and the largest part that a cache may hold. */
#define CHUNK ((size_t)128 << 10)
#define LARGEST_CACHED ((size_t)32 << 20)

/* Reads or copies `size` bytes of a part from `place` on; returns the bytes moved. */
static size_t move(const rates *r, char *part, size_t place, size_t size)
{
    if (!r->is_copy) {
        use((double)r->loops->read(part + place, size));
        return size;
    }
    r->loops->copy(part + r->part / 2 + place, part + place, size);
    return 2 * size;
}

/* The piece of a part that begins at *place and is at most `chunk` long; steps to the next one,
 * back to the first behind the last. */
static size_t move_next(const rates *r, char *part, size_t part_size, size_t chunk, size_t *place)
{
    const size_t left = part_size - *place;
    const size_t moved = move(r, part, *place, chunk < left ? chunk : left);

    *place = chunk < left ? *place + chunk : 0;
    return moved;
}

/* Brings a part into whatever cache holds it. A last level that is fed by what others throw out, or
 * that guesses what will be used again, takes several passes to fill. */
static void warm(const rates *r, char *part, size_t part_size, size_t chunk)
{
    const double start = tess_clock_seconds();

    for (int pass = 0; pass < 6 && (pass == 0 || tess_clock_seconds() - start < 4 * WINDOW);
         pass++) {
        size_t place = 0;

        do
            move_next(r, part, part_size, chunk, &place);
        while (place > 0);
    }
}

static void run_move(void *user, int thread, int threads)
{
    rates *const r = user;
    const size_t part_size = r->is_copy ? r->part / 2 : r->part;
    const size_t chunk = part_size < CHUNK ? part_size : CHUNK;
    char *const part = buffer.data + r->part * (size_t)thread;
    size_t place = 0, moved = 0;
    double start, seconds;

    (void)threads;
    /* A part that no cache holds needs no pass: the window ends long before it comes round to what
     * it has read. */
    if (part_size <= LARGEST_CACHED)
        warm(r, part, part_size, chunk);
    tess_team_meet();
    start = tess_clock_seconds();
    do {
        /* A few passes over a small part for one look at the clock. */
        for (size_t done = 0; done < CHUNK; done += chunk)
            moved += move_next(r, part, part_size, chunk, &place);
        seconds = tess_clock_seconds() - start;
    } while (seconds < WINDOW);
    add_rate(r, (double)moved / seconds);
}

static double bandwidth(size_t bytes, int threads, const char *isa, bool is_copy)
{
    const size_t count = threads > 1 ? (size_t)threads : 1;
    rates r = {.loops = all_loops[place_of(isa)], .is_copy = is_copy};

    if (bytes > TESS_PEAK_MOST)
        bytes = TESS_PEAK_MOST;
    r.part = bytes / count;
    if (r.part < TESS_PEAK_LEAST)
        r.part = TESS_PEAK_LEAST;
    r.part -= r.part % (2 * TESS_PEAK_BLOCK);
    if (!reserve(r.part * count, threads))
        return 0;
    tess_team(threads, run_move, &r);
    return r.total;
}

double tess_peak_read(size_t bytes, int threads, const char *isa)
{
    return bandwidth(bytes, threads, isa, false);
}

double tess_peak_copy(size_t bytes, int threads, const char *isa)
{
    return bandwidth(bytes, threads, isa, true);
}

/* ---- Caches ---------------------------------------------------------------------------------- */

static size_t flush_size(void)
{
    size_t size = (size_t)32 << 20;
    long last = 0;

#ifdef _SC_LEVEL3_CACHE_SIZE
    last = sysconf(_SC_LEVEL3_CACHE_SIZE);
#endif
    if (last > 0 && 2 * (size_t)last > size)
        size = 2 * (size_t)last;
    return size < TESS_PEAK_MOST ? size : TESS_PEAK_MOST;
}

static void touch_part(void *user, int thread, int threads)
{
    const size_t size = *(const size_t *)user / (size_t)threads;
    char *const part = buffer.data + size * (size_t)thread;

    /* Adding forces the line to be read and written; a plain store might bypass the caches. */
    for (size_t i = 0; i < size; i += 64)
        part[i]++;
}

bool tess_peak_flush(int threads)
{
    size_t size = flush_size();

    if (!reserve(size, threads))
        return false;
    tess_team(threads, touch_part, &size);
    return true;
}
