/* SPDX-License-Identifier: Apache-2.0
 * Results of benchmarks as a table and as JSON. */
#include "bench/report.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- JSON ------------------------------------------------------------------------------------ */

/* JSON has no NaN, and a ceiling that was not measured is no 0. */
static void set_real(json_t *object, const char *key, double value)
{
    json_object_set_new(object, key, isfinite(value) && value > 0 ? json_real(value) : json_null());
}

/* Names from drivers and lines need not be UTF-8; what is not becomes '?'. */
static void set_text(json_t *object, const char *key, const char *text)
{
    json_t *string = json_string(text);

    if (!string) {
        char copy[1024];
        snprintf(copy, sizeof copy, "%s", text);
        for (char *at = copy; *at; at++)
            if (*at & '\x80')
                *at = '?';
        string = json_string(copy);
    }
    json_object_set_new(object, key, string);
}

static void set_problem(json_t *object, const tess_line *line)
{
    tess_text measure = tess_text_in(NULL, 0), text;
    char *data;

    tess_line_write(line, &measure);
    data = malloc(measure.length + 1);
    if (!data)
        return;
    text = tess_text_in(data, measure.length + 1);
    tess_line_write(line, &text);
    set_text(object, "problem", data);
    free(data);
}

/* A spread under a name: NAME (the median), NAME_p10, NAME_p90. */
static void set_spread(json_t *object, const char *name, const tess_spread *spread)
{
    char key[64];

    set_real(object, name, spread->median);
    snprintf(key, sizeof key, "%s_p10", name);
    set_real(object, key, spread->p10);
    snprintf(key, sizeof key, "%s_p90", name);
    set_real(object, key, spread->p90);
}

static const char *check_name(tess_bench_check check)
{
    return check == TESS_BENCH_CHECKED ? "passed" : check == TESS_BENCH_WRONG ? "failed" : "none";
}

static const char *status_name(tess_status status)
{
    return status == TESS_BENCH_STOPPED ? "STOPPED" : tess_status_name(status);
}

static void set_identity(json_t *row, const tess_bench_result *r)
{
    set_problem(row, r->line);
    set_text(row, "candidate", r->candidate);
    set_text(row, "device", r->device);
    set_text(row, "description", r->description);
    set_text(row, "machine", r->machine);
    set_text(row, "kernel", r->kernel);
    set_text(row, "isa", r->isa);
    json_object_set_new(row, "threads", json_integer(r->threads));
    set_text(row, "status", status_name(r->status));
    set_text(row, "why", r->why);
    set_text(row, "check", check_name(r->check));
    json_object_set_new(row, "check_rows", json_integer(r->check_rows));
    json_object_set_new(row, "check_share",
                        isfinite(r->check_share) ? json_real(r->check_share) : json_null());
}

json_t *tess_report_row(const tess_bench_result *result)
{
    const tess_measured *const m = &result->measured;
    json_t *const row = json_object();

    if (!row)
        return NULL;
    set_identity(row, result);
    set_real(row, "seconds_median", m->seconds.median);
    set_real(row, "seconds_p10", m->seconds.p10);
    set_real(row, "seconds_p90", m->seconds.p90);
    set_real(row, "seconds_best", m->seconds.least);
    set_spread(row, "speedup", &m->speedup);
    set_real(row, "flops", result->flops);
    set_real(row, "flops_per_second", result->flops_per_second);
    set_spread(row, "peak_flops_per_second", &m->peak_flops);
    set_spread(row, "share_of_peak", &result->share_of_peak);
    set_real(row, "peak_flops_per_cycle", result->flops_per_cycle);
    set_spread(row, "share_of_peak_per_cycle", &result->share_of_peak_per_cycle);
    set_spread(row, "clock_ghz", &m->clock_ghz);
    set_real(row, "bytes", result->bytes);
    set_real(row, "bytes_per_second", result->bytes_per_second);
    set_spread(row, "peak_bytes_per_second", &m->peak_bytes);
    set_spread(row, "share_of_bandwidth", &result->share_of_bandwidth);
    json_object_set_new(row, "peak_bytes_buffer",
                        json_integer((json_int_t)result->peak_bytes_buffer));
    json_object_set_new(row, "rounds", json_integer(m->seconds.count));
    json_object_set_new(row, "runs_per_window", json_integer(m->runs_per_window));
    json_object_set_new(row, "is_cold", json_boolean(result->is_cold));
    json_object_set_new(row, "is_realtime", json_boolean(m->is_realtime));
    return row;
}

json_t *tess_report_json(const tess_bench_result *results, size_t count)
{
    json_t *const document = json_object(), *const rows = json_array(),
                  *const machine = json_object();
    const int32_t version = tess_version();
    char text[32];

    snprintf(text, sizeof text, "%" PRId32 ".%" PRId32 ".%" PRId32, version / 1000000,
             version / 1000 % 1000, version % 1000);
    set_text(machine, "library", text);
    if (count > 0) {
        set_text(machine, "device", results[0].device);
        set_text(machine, "description", results[0].description);
        set_text(machine, "machine", results[0].machine);
        set_text(machine, "isa", results[0].isa);
        json_object_set_new(machine, "threads", json_integer(results[0].threads));
    }
    for (size_t i = 0; i < count; i++)
        json_array_append_new(rows, tess_report_row(&results[i]));
    json_object_set_new(document, "version", json_integer(1));
    json_object_set_new(document, "machine", machine);
    json_object_set_new(document, "results", rows);
    return document;
}

json_t *tess_report_ceilings(const tess_ceilings *ceilings)
{
    json_t *const object = json_object(), *const memory = json_array();

    set_text(object, "isa", ceilings->isa);
    json_object_set_new(object, "threads", json_integer(ceilings->threads));
    set_spread(object, "flops_per_second", &ceilings->flops);
    set_real(object, "flops_per_cycle", ceilings->flops_per_cycle);
    set_spread(object, "clock_ghz", &ceilings->clock_ghz);
    json_object_set_new(object, "rounds", json_integer(ceilings->flops.count));
    json_object_set_new(object, "is_realtime", json_boolean(ceilings->is_realtime));
    for (size_t i = 0; i < ceilings->memory_count; i++) {
        const tess_ceiling *const at = &ceilings->memory[i];
        json_t *const row = json_object();

        json_object_set_new(row, "bytes", json_integer((json_int_t)at->bytes));
        set_spread(row, "read_bytes_per_second", &at->read);
        set_spread(row, "copy_bytes_per_second", &at->copy);
        json_array_append_new(memory, row);
    }
    json_object_set_new(object, "memory", memory);
    return object;
}

/* ---- Table ----------------------------------------------------------------------------------- */

enum {
    NAME,
    TIME,
    TIME_SPREAD,
    RATE,
    SHARE,
    SHARE_SPREAD,
    PER_CYCLE,
    BYTES,
    BANDWIDTH,
    SPEEDUP,
    SPEEDUP_SPREAD,
    ROUNDS,
    CHECK,
    COLUMNS
};

static const char *const titles[COLUMNS] = {
    "kernel", "median",  "p10-p90",  "Gflop/s", "of peak", "p10-p90", "per cycle",
    "GB/s",   "of read", "speed-up", "p10-p90", "rounds",  "error"};

typedef char cell[128];

/* Three digits that a person can compare, with one unit for a number and its spread. */
static double scale_of(double seconds, const char **out_unit)
{
    *out_unit = seconds < 1e-3 ? "us" : seconds < 1 ? "ms" : "s";
    return seconds < 1e-3 ? 1e6 : seconds < 1 ? 1e3 : 1;
}

static int digits(double value)
{
    return value >= 99.95 ? 0 : value >= 9.995 ? 1 : 2;
}

static void put_number(cell out, double value)
{
    if (value > 0)
        snprintf(out, sizeof(cell), "%.*f", digits(value), value);
}

static void put_range(cell out, double low, double high)
{
    if (high > 0)
        snprintf(out, sizeof(cell), "%.*f-%.*f", digits(high), low, digits(high), high);
}

static void put_share(cell out, cell out_spread, const tess_spread *share)
{
    if (share->count == 0)
        return;
    snprintf(out, sizeof(cell), "%.1f %%", 100 * share->median);
    if (out_spread) {
        const int places = share->p90 < 0.0995 ? 1 : 0;
        snprintf(out_spread, sizeof(cell), "%.*f-%.*f", places, 100 * share->p10, places,
                 100 * share->p90);
    }
}

static void put_name(cell out, const tess_bench_result *r)
{
    const char *const kernel = r->kernel[0] ? r->kernel : "no kernel";

    /* A candidate is often called by its kernel. */
    if (!r->candidate[0] || strcmp(r->candidate, kernel) == 0)
        snprintf(out, sizeof(cell), "%s", kernel);
    else
        snprintf(out, sizeof(cell), "%.15s: %s", r->candidate, kernel);
}

static void put_check(cell out, const tess_bench_result *r)
{
    if (r->check == TESS_BENCH_UNCHECKED)
        snprintf(out, sizeof(cell), "unchecked");
    else if (r->check == TESS_BENCH_WRONG)
        snprintf(out, sizeof(cell), "WRONG");
    else
        snprintf(out, sizeof(cell), "%.2f", r->check_share);
}

/* `is_alone`: nothing to be faster than. */
static void put_row(cell cells[COLUMNS], const tess_bench_result *r, bool is_alone)
{
    const tess_measured *const m = &r->measured;
    const char *unit;
    const double scale = scale_of(m->seconds.median, &unit);

    memset(cells, 0, COLUMNS * sizeof(cell));
    put_name(cells[NAME], r);
    if (m->seconds.count == 0)
        return;
    snprintf(cells[TIME], sizeof(cell), "%.*f %s", digits(scale * m->seconds.median),
             scale * m->seconds.median, unit);
    put_range(cells[TIME_SPREAD], scale * m->seconds.p10, scale * m->seconds.p90);
    put_number(cells[RATE], 1e-9 * r->flops_per_second);
    put_share(cells[SHARE], cells[SHARE_SPREAD], &r->share_of_peak);
    put_share(cells[PER_CYCLE], NULL, &r->share_of_peak_per_cycle);
    put_number(cells[BYTES], 1e-9 * r->bytes_per_second);
    put_share(cells[BANDWIDTH], NULL, &r->share_of_bandwidth);
    if (!is_alone) {
        snprintf(cells[SPEEDUP], sizeof(cell), "%.3f", m->speedup.median);
        snprintf(cells[SPEEDUP_SPREAD], sizeof(cell), "%.2f-%.2f", m->speedup.p10, m->speedup.p90);
    }
    snprintf(cells[ROUNDS], sizeof(cell), "%" PRId64, m->seconds.count);
    put_check(cells[CHECK], r);
}

static bool is_alone(const tess_bench_result *results, size_t count, size_t i)
{
    return (i == 0 || results[i - 1].line != results[i].line) &&
           (i + 1 == count || results[i + 1].line != results[i].line);
}

static void widen(int widths[COLUMNS], cell cells[COLUMNS])
{
    for (int j = 0; j < COLUMNS; j++)
        if ((int)strlen(cells[j]) > widths[j])
            widths[j] = (int)strlen(cells[j]);
}

/* Columns that hold nothing are left out; their width is 0. Names lean left, numbers right. */
static void print_cells(FILE *file, const int widths[COLUMNS], cell cells[COLUMNS])
{
    int last = COLUMNS - 1;

    while (last > NAME && !cells[last][0])
        last--;
    for (int j = 0; j <= last; j++)
        if (widths[j] > 0)
            fprintf(file, j == NAME && last > NAME ? "  %-*s" : "  %*s",
                    last > NAME ? widths[j] : 0, cells[j]);
    fputc('\n', file);
}

/* The first line of a reason; the others, one for each kernel that refused, are in the JSON. */
static void print_reason(FILE *file, const tess_bench_result *r)
{
    fprintf(file, "    %s: %.*s\n", status_name(r->status), (int)strcspn(r->why, "\n"), r->why);
}

static void print_problem(FILE *file, const tess_line *line)
{
    char data[1024];
    tess_text text = tess_text_in(data, sizeof data);

    tess_line_write(line, &text);
    fprintf(file, "%s%s\n", data, text.length >= sizeof data ? "..." : "");
}

/* Lowest and highest median of all rows. */
typedef struct range {
    double low, high;
} range;

static void extend(range *r, const tess_spread *spread)
{
    if (spread->count == 0)
        return;
    if (r->high == 0 || spread->median < r->low)
        r->low = spread->median;
    if (spread->median > r->high)
        r->high = spread->median;
}

static const char *priority_name(size_t realtime, size_t timed)
{
    return realtime == timed ? "real-time priority"
           : realtime > 0    ? "long runs at ordinary priority, others real-time"
                             : "ordinary priority";
}

/* What the machine was while all this was timed. */
static void print_machine(FILE *file, const tess_bench_result *results, size_t count)
{
    const tess_bench_result *first = NULL;
    range peak = {0, 0}, clock = {0, 0};
    size_t timed = 0, realtime = 0;

    for (size_t i = 0; i < count; i++) {
        const tess_measured *const m = &results[i].measured;

        if (m->seconds.count == 0)
            continue;
        if (!first)
            first = &results[i];
        /* Rows on other numbers of threads have other ceilings; their shares are right. */
        if (results[i].threads == first->threads)
            extend(&peak, &m->peak_flops);
        extend(&clock, &m->clock_ghz);
        timed++;
        realtime += m->is_realtime;
    }
    if (!first)
        return;
    fprintf(file, "%s: %s%s%s", first->device, first->machine, first->machine[0] ? ", " : "",
            first->description);
    if (peak.high > 0)
        fprintf(file,
                "; peak of %s multiply-adds, fp32, on %" PRId32 " thread%s: %.0f-%.0f Gflop/s",
                first->isa, first->threads, first->threads == 1 ? "" : "s", 1e-9 * peak.low,
                1e-9 * peak.high);
    if (clock.high > 0)
        fprintf(file, "; %.2f-%.2f GHz", clock.low, clock.high);
    fprintf(file, "; %s caches; %s\n", first->is_cold ? "cold" : "warm",
            priority_name(realtime, timed));
}

void tess_report_table(const tess_bench_result *results, size_t count, FILE *file)
{
    cell cells[COLUMNS];
    int widths[COLUMNS] = {0};

    for (size_t i = 0; i < count; i++) {
        put_row(cells, &results[i], is_alone(results, count, i));
        widen(widths, cells);
    }
    for (int j = 0; j < COLUMNS; j++) {
        snprintf(cells[j], sizeof(cell), "%s", titles[j]);
        if (widths[j] > 0 && widths[j] < (int)strlen(cells[j]))
            widths[j] = (int)strlen(cells[j]);
    }
    print_cells(file, widths, cells);
    for (size_t i = 0; i < count; i++) {
        const tess_bench_result *const r = &results[i];

        if (i == 0 || results[i - 1].line != r->line)
            print_problem(file, r->line);
        put_row(cells, r, is_alone(results, count, i));
        print_cells(file, widths, cells);
        if (r->status != TESS_OK)
            print_reason(file, r);
    }
    print_machine(file, results, count);
    fputs(
        "error: the largest deviation from float64 over what is allowed; see docs/benchmarking.md "
        "for the other columns\n",
        file);
}

static void print_size(FILE *file, size_t bytes)
{
    if (bytes < (size_t)1 << 20)
        fprintf(file, "%7zu KiB", bytes >> 10);
    else
        fprintf(file, "%7zu MiB", bytes >> 20);
}

void tess_report_levels(const tess_levels *levels, FILE *file)
{
    fprintf(file, "read GB/s on %d thread%s (p10-p90), by the size of the buffer:", levels->threads,
            levels->threads == 1 ? "" : "s");
    for (size_t i = 0; i < levels->count; i++) {
        const tess_level *const at = &levels->level[i];
        const bool is_small = at->bytes < (size_t)1 << 20;

        fprintf(file, "%s %s, %zu %s: %.1f (%.1f-%.1f)", i ? ";" : "", at->name,
                at->bytes >> (is_small ? 10 : 20), is_small ? "KiB" : "MiB", 1e-9 * at->read.median,
                1e-9 * at->read.p10, 1e-9 * at->read.p90);
    }
    fputc('\n', file);
}

void tess_report_ceilings_table(const tess_ceilings *ceilings, FILE *file)
{
    fprintf(file, "%s, %d thread%s, %s priority, %" PRId64 " rounds\n", ceilings->isa,
            ceilings->threads, ceilings->threads == 1 ? "" : "s",
            ceilings->is_realtime ? "real-time" : "ordinary", ceilings->flops.count);
    fprintf(file,
            "fp32 multiply-adds  %.1f Gflop/s (%.1f-%.1f), %.0f flops per cycle and core, "
            "%.2f GHz (%.2f-%.2f)\n",
            1e-9 * ceilings->flops.median, 1e-9 * ceilings->flops.p10, 1e-9 * ceilings->flops.p90,
            ceilings->flops_per_cycle, ceilings->clock_ghz.median, ceilings->clock_ghz.p10,
            ceilings->clock_ghz.p90);
    fprintf(file, "     buffer   read GB/s        p10-p90   copy GB/s        p10-p90\n");
    for (size_t i = 0; i < ceilings->memory_count; i++) {
        const tess_ceiling *const at = &ceilings->memory[i];

        print_size(file, at->bytes);
        fprintf(file, "  %10.1f  %6.1f-%-6.1f  %10.1f  %6.1f-%-6.1f\n", 1e-9 * at->read.median,
                1e-9 * at->read.p10, 1e-9 * at->read.p90, 1e-9 * at->copy.median,
                1e-9 * at->copy.p10, 1e-9 * at->copy.p90);
    }
}
