/* SPDX-License-Identifier: Apache-2.0
 * Running a family: every line on every device, failures replayed and shrunk. */
#include "tests/conformance/family.h"

#include "tests/conformance/subject.h"
#include "tests/kit/check.h"
#include "tests/kit/generate.h"
#include "tests/kit/random.h"
#include "tests/kit/shape.h"
#include "tests/kit/shrink.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { LINE_SIZE = 8192, MOST_SHOWN = 8 };

/* Multiply-adds above which a line is run once only: that a run repeats shows in small ones. */
#define REPEATED_COST 3e6

struct tess_family {
    const tess_family_plan *plan;
    tess_line *lines;
    size_t count, room;
};

/* ---- Lines ----------------------------------------------------------------------------------- */

static void add(tess_family *family, const tess_line *line)
{
    if (family->count == family->room) {
        family->room = family->room ? 2 * family->room : 256;
        family->lines = realloc(family->lines, family->room * sizeof *family->lines);
        if (!family->lines) {
            fprintf(stderr, "no memory for %zu lines\n", family->room);
            exit(TESS_TEST_FAILED);
        }
    }
    family->lines[family->count++] = *line;
}

static void add_text(tess_family *family, const char *where, const char *text)
{
    char why[1024];
    tess_text reason = tess_text_in(why, sizeof why);
    tess_line line;

    if (tess_line_read(text, &line, &reason) != TESS_OK) {
        fprintf(stderr, "%s: \"%s\" cannot be read: %s\n", where, text, why);
        exit(TESS_TEST_FAILED);
    }
    add(family, &line);
}

void tess_family_add(tess_family *family, const char *format, ...)
{
    char text[LINE_SIZE];
    va_list arguments;

    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    add_text(family, family->plan->name, text);
}

void tess_family_add_file(tess_family *family, const char *path)
{
    FILE *file = fopen(path, "r");
    char text[LINE_SIZE], where[512];

    if (!file) {
        fprintf(stderr, "%s: %s\n", path, strerror(errno));
        exit(TESS_TEST_FAILED);
    }
    for (int number = 1; fgets(text, sizeof text, file); number++) {
        text[strcspn(text, "#\r\n")] = '\0';
        if (text[strspn(text, " \t")] == '\0')
            continue;
        snprintf(where, sizeof where, "%s:%d", path, number);
        add_text(family, where, text);
    }
    fclose(file);
}

static uint64_t hash_of(const char *name)
{
    uint64_t hash = 0;

    for (; *name; name++)
        hash = tess_random_mix(hash, (uint64_t)(unsigned char)*name);
    return hash;
}

/* Random lines of the family. Their seeds are short, since people will copy them. */
static void add_random(tess_family *family)
{
    const int count = tess_test_number("TESSERA_TEST_RANDOM", family->plan->random);
    const int seed = tess_test_number("TESSERA_TEST_SEED", 1);
    tess_random random = tess_random_start((uint64_t)seed, hash_of(family->plan->name));

    if (!family->plan->narrow)
        return;
    for (int added = 0, tries = 0; added < count && tries < 100 * count; tries++) {
        tess_line line;

        if (family->plan->is_backward)
            tess_generate_backward_line(tess_random_next(&random) >> 40, &line);
        else
            tess_generate_line(tess_random_next(&random) >> 40, &line);
        if (family->plan->narrow(&line)) {
            add(family, &line);
            added++;
        }
    }
}

void tess_family_widen_type(tess_line *line)
{
    if (!tess_shape_is_fp8(line->dtype))
        return;
    line->dtype = line->dtype == TESS_E4M3 ? TESS_BF16 : TESS_F16;
    if (line->o_dtype != TESS_F32)
        line->o_dtype = TESS_DTYPE_NONE;
}

void tess_family_make_dense(tess_line *line)
{
    line->lens_q.runs = line->lens_k.runs = line->used_q.runs = line->used_k.runs = 0;
    line->page_size = line->gap = 0;
    line->index_dtype = TESS_I32;
}

/* ---- One line -------------------------------------------------------------------------------- */

/* A family on one device. */
typedef struct trial {
    const tess_family *family;
    const tess_subject *subject;
    tess_check_report report;
    int count[TESS_CHECK_MISTRUSTED + 1];
    int failed;
} trial;

/* Whether the verdict is not what this family wants on this device. */
static bool is_wrong(const trial *t, tess_check_verdict verdict)
{
    if (verdict == TESS_CHECK_SKIP)
        return false;
    if (t->family->plan->is_refused)
        return verdict != TESS_CHECK_REFUSED || t->report.text[0] == '\0';
    if (verdict == TESS_CHECK_REFUSED)
        return t->subject->info.kind == TESS_DEVICE_CPU || t->report.text[0] == '\0';
    return verdict != TESS_CHECK_PASS;
}

static bool still_fails(void *user, const tess_line *line)
{
    trial *t = user;

    return is_wrong(t, tess_check_line(t->subject->device, line, NULL, &t->report));
}

static void print_line(const char *what, const tess_line *line)
{
    char data[LINE_SIZE];
    tess_text text = tess_text_in(data, sizeof data);

    tess_line_write(line, &text);
    printf("  %s \"%s\"\n", what, data);
}

static void report(trial *t, const tess_line *line)
{
    tess_line small = *line;

    if (t->failed++ >= MOST_SHOWN)
        return;
    printf("FAIL %s on %s, kernel %s, verdict %s\n", t->family->plan->name, t->subject->label,
           t->report.kernel[0] ? t->report.kernel : "none",
           tess_check_verdict_name(t->report.verdict));
    print_line("replay", line);
    printf("%s", t->report.text);
    if (tess_shrink(&small, still_fails, t, 200) > 0)
        print_line("shrunk", &small);
    fflush(stdout);
}

static double now(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static int run(const tess_subject *subject, void *user)
{
    trial t = {.family = user, .subject = subject};
    const double start = now();
    const size_t share = (size_t)tess_test_number("TESSERA_TEST_SHARE", 1);
    const size_t first = share > 1 ? hash_of(subject->label) % share : 0;
    int lines = 0;

    for (size_t i = first; i<t.family->count; i += share> 1 ? share : 1) {
        const tess_line *line = &t.family->lines[i];
        const tess_check_verdict verdict = tess_check_line(subject->device, line, NULL, &t.report);

        lines++;
        t.count[verdict]++;
        if (is_wrong(&t, verdict))
            report(&t, line);
    }
    printf("%s on %s: %d of %zu lines, %d passed, %d refused, %d skipped, %d wrong, %.1f s\n",
           t.family->plan->name, subject->label, lines, t.family->count, t.count[TESS_CHECK_PASS],
           t.count[TESS_CHECK_REFUSED], t.count[TESS_CHECK_SKIP], t.failed, now() - start);
    if (t.failed)
        return TESS_TEST_FAILED;
    return lines > 0 && t.count[TESS_CHECK_SKIP] == lines ? TESS_TEST_SKIPPED : TESS_TEST_PASSED;
}

int tess_family_main(const tess_family_plan *plan, int argc, char **argv)
{
    tess_family family = {.plan = plan};
    int result;

    plan->strata(&family);
    add_random(&family);
    result = tess_subjects_each(argc > 1 ? argv[1] : NULL, run, &family);
    free(family.lines);
    return result;
}
