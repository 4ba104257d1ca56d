/* SPDX-License-Identifier: Apache-2.0
 * tessera check: problems run and held against attention in float64. */
#include "tests/kit/check.h"

#include "tests/kit/generate.h"
#include "tests/kit/sabotage.h"
#include "tests/kit/shrink.h"
#include "tools/args.h"
#include "tools/facts.h"
#include "tools/file.h"
#include "tools/json.h"
#include "tools/problems.h"
#include "tools/progress.h"
#include "tools/session.h"

#include <inttypes.h>
#include <stdlib.h>

typedef struct check_options {
    const char *device, *kernel, *data, *sabotage, *report;
    tool_integer random;
    tool_seed seed;
    bool all_rows, no_shrink, json, quiet;
} check_options;

#define AT(member) offsetof(check_options, member)

static const tool_option options[] = {
    {"device", 'd', TOOL_TEXT, AT(device), "NAME", "device, as \"tessera devices\" lists them", 0,
     0, NULL},
    {"kernel", 'k', TOOL_TEXT, AT(kernel), "GLOB", "check each kernel whose name matches", 0, 0,
     NULL},
    {"data", 'D', TOOL_TEXT, AT(data), "FILE",
     "read problems from FILE, or from the list of that name", 0, 0, NULL},
    {"random", 'r', TOOL_INTEGER, AT(random), "N", "check N random problems too", 0, 100000000,
     NULL},
    {"seed", 's', TOOL_SEED, AT(seed), "S", "where the random problems start; 1 if not given", 0, 0,
     NULL},
    {"sabotage", '\0', TOOL_TEXT, AT(sabotage), "MODE",
     "falsify each result first, to see that the comparison catches it; \"any\" draws a mode that "
     "fits, \"list\" lists them",
     0, 0, NULL},
    {"report", 'o', TOOL_TEXT, AT(report), "FILE",
     "write the device, the library and every result to FILE too, as one JSON object", 0, 0, NULL},
    {"all-rows", '\0', TOOL_FLAG, AT(all_rows), NULL,
     "compare every row of long problems too, however long that takes", 0, 0, NULL},
    {"no-shrink", '\0', TOOL_FLAG, AT(no_shrink), NULL,
     "do not look for a smaller problem that fails as well", 0, 0, NULL},
    {"quiet", 'q', TOOL_FLAG, AT(quiet), NULL, "print failures and the summary only", 0, 0, NULL},
    {"json", 'j', TOOL_FLAG, AT(json), NULL, "print one JSON object", 0, 0, NULL},
};

/* Shrinking runs a problem many times: the first few failures tell enough. */
enum { MOST_SHRUNK = 5, DEFAULT_RANDOM = 100, MOST_KERNELS = 512 };

typedef struct checking {
    tool_session session;
    const check_options *given;
    tess_check_options how;
    int64_t count[TESS_CHECK_MISTRUSTED + 1]; /* by verdict */
    int64_t invalid;                          /* of the failures: lines that are wrong themselves */
    bool is_out_of_memory;
    int shrunk;
    json_t *results; /* NULL: nobody wants them as JSON */
    bool is_short;   /* few problems: every refusal may be told in full */
    tool_progress progress;
    int64_t done;
} checking;

enum { SHORT = 3 };

static tess_check_report report;

/* Whether the last line was wrong itself, so that nothing was tried. */
static bool is_invalid(void)
{
    return report.verdict == TESS_CHECK_FAIL && report.status == TESS_INVALID;
}

/* ---- Saying it ------------------------------------------------------------------------------- */

/* Whether a verdict is what ought to happen: a falsified result must fail. */
static const char *verdict_word(const checking *c, tess_check_verdict verdict)
{
    if (c->given->sabotage && verdict == TESS_CHECK_FAIL)
        return "caught";
    if (c->given->sabotage && verdict == TESS_CHECK_PASS)
        return "MISSED";
    if (verdict == TESS_CHECK_FAIL)
        return is_invalid() ? "INVALID" : "FAIL";
    return tess_check_verdict_name(verdict);
}

static void write_replay(const checking *c, const char *line, tess_text *out)
{
    tess_text_add(out, "tessera check --device %s", c->session.device->name);
    if (report.kernel[0] && c->given->kernel)
        tess_text_add(out, " --kernel %s", report.kernel);
    tess_text_add(out, " \"%s\"", line);
}

static void print_result(const checking *c, const char *line, tess_check_verdict verdict)
{
    const bool is_failure = !c->given->sabotage && verdict == TESS_CHECK_FAIL;
    const bool is_hole = c->given->sabotage && verdict == TESS_CHECK_PASS;

    if (c->given->quiet && !is_failure && !is_hole)
        return;
    printf("%-10s %-28s ", verdict_word(c, verdict),
           report.kernel[0] ? report.kernel
           : c->how.kernel  ? c->how.kernel
                            : "-");
    if (c->given->sabotage)
        printf("%-17s ", report.sabotage[0] ? report.sabotage : "-");
    else if (verdict != TESS_CHECK_PASS)
        printf("%17s  ", "");
    else if (report.comparison.elements == 0)
        printf("%17s  ", "no rows");
    else
        printf("%5.1f %% of budget  ", 100 * report.comparison.o.share);
    printf("%s\n", line);
}

/* The report's text, each line a little further in. */
static void print_reason(const char *text)
{
    while (*text) {
        const int length = (int)strcspn(text, "\n");

        printf("    %.*s\n", length, text);
        text += length + (text[length] == '\n');
    }
}

static void print_failure(const checking *c, const char *line, const char *smaller)
{
    static char replay[TOOL_LINE_SIZE + 256];
    tess_text text = tess_text_in(replay, sizeof replay);

    print_reason(report.text);
    if (is_invalid())
        return; /* again it would be as wrong */
    write_replay(c, line, &text);
    printf("    again:   %s\n", replay);
    if (!smaller[0])
        return;
    text = tess_text_in(replay, sizeof replay);
    write_replay(c, smaller, &text);
    printf("    smaller: %s\n", replay);
}

/* Why a problem was not checked. Of a long list of refusals that says the same again and again for
 * every problem of a long run, only the part about the kernel that was asked for. */
static void explain_verdict(const checking *c, tess_check_verdict verdict)
{
    const char *name = c->how.kernel ? strstr(report.text, c->how.kernel) : NULL;
    const char *reason = name ? name + strlen(c->how.kernel) : NULL;

    if (verdict == TESS_CHECK_REFUSED && reason) {
        reason += strspn(reason, " ");
        printf("    %.*s\n", (int)strcspn(reason, "\n"), reason);
    } else if (verdict == TESS_CHECK_SKIP || c->is_short) {
        print_reason(report.text);
    }
}

static json_t *result_json(const char *line, const char *smaller, const char *kernel)
{
    json_t *object = json_object();
    const tess_worst *const worst = &report.comparison.o;

    tool_json_set(object, "problem", tool_json_text(line));
    tool_json_set(object, "verdict",
                  json_string(is_invalid() ? "invalid" : tess_check_verdict_name(report.verdict)));
    tool_json_set(object, "kernel",
                  tool_json_maybe_text(report.kernel[0] ? report.kernel : kernel));
    tool_json_set(object, "share_of_budget",
                  worst->share >= 0 ? tool_json_real(worst->share) : json_null());
    tool_json_set(object, "largest_error", tool_json_real(report.comparison.error));
    tool_json_set(object, "lse_share_of_budget",
                  report.comparison.lse.share >= 0 ? tool_json_real(report.comparison.lse.share)
                                                   : json_null());
    tool_json_set(object, "wrong", json_integer(report.comparison.wrong));
    tool_json_set(object, "rows_compared", json_integer(report.rows_known));
    tool_json_set(object, "seconds", tool_json_real(report.seconds));
    tool_json_set(object, "oracle_seconds", tool_json_real(report.oracle_seconds));
    tool_json_set(object, "workspace", json_integer((json_int_t)report.workspace_size));
    tool_json_set(object, "sabotage",
                  report.sabotage[0] ? json_string(report.sabotage) : json_null());
    tool_json_set(object, "text", tool_json_text(report.text));
    tool_json_set(object, "smaller", smaller[0] ? tool_json_text(smaller) : json_null());
    return object;
}

/* ---- Shrinking ------------------------------------------------------------------------------- */

static bool still_fails(void *user, const tess_line *line)
{
    static tess_check_report asked;
    checking *const c = user;

    tool_progress_step(&c->progress, c->done, "looking for a smaller problem");
    return tess_check_line(c->session.device, line, &c->how, &asked) == TESS_CHECK_FAIL;
}

/* Writes a smaller line that fails too into data, nothing when there is none. */
static void shrink(checking *c, const tess_line *line, char *data, size_t size)
{
    tess_line smallest = *line;
    char before[TOOL_LINE_SIZE];

    tess_shrink(&smallest, still_fails, c, 0);
    tool_problem_text(line, before, sizeof before);
    tool_problem_text(&smallest, data, size);
    if (strcmp(before, data) == 0)
        data[0] = '\0';
    tool_progress_clear(&c->progress);
}

/* ---- Checking -------------------------------------------------------------------------------- */

static void check_one(checking *c, const tess_line *line, const char *kernel)
{
    static char text[TOOL_LINE_SIZE], smaller[TOOL_LINE_SIZE];
    tess_check_verdict verdict;
    bool wants_shrink;

    if (kernel)
        tool_session_restrict(&c->session, kernel);
    c->how.kernel = kernel;
    verdict = tess_check_line(c->session.device, line, &c->how, &report);
    c->count[verdict]++;
    c->invalid += is_invalid();
    c->is_out_of_memory |= report.status == TESS_NO_MEMORY;
    wants_shrink =
        verdict == TESS_CHECK_FAIL && !is_invalid() && !c->given->no_shrink && !c->given->sabotage;
    tool_problem_text(line, text, sizeof text);
    smaller[0] = '\0';
    tool_progress_clear(&c->progress);
    if (!c->given->json)
        print_result(c, text, verdict);
    if (wants_shrink && c->shrunk++ < MOST_SHRUNK)
        shrink(c, line, smaller, sizeof smaller);
    if (c->results)
        json_array_append_new(c->results, result_json(text, smaller, kernel));
    if (c->given->json)
        return;
    if (verdict == TESS_CHECK_FAIL && !c->given->sabotage)
        print_failure(c, text, smaller);
    else if (!c->given->quiet && (verdict == TESS_CHECK_SKIP || verdict == TESS_CHECK_REFUSED))
        explain_verdict(c, verdict);
}

/* Checks a line on every kernel that --kernel names, or on the one the library chooses. */
static void check_line(checking *c, const tess_line *line)
{
    const tess_kernel *kernels[MOST_KERNELS];
    char detail[96];
    size_t count;

    snprintf(detail, sizeof detail, "%" PRId64 " of %" PRId64 ", %" PRId64 " failed", c->done,
             c->progress.total, c->count[TESS_CHECK_FAIL]);
    tool_progress_step(&c->progress, c->done++, detail);
    if (!c->given->kernel) {
        check_one(c, line, NULL);
        return;
    }
    count =
        tool_session_kernels(&c->session, line->backward ? TESS_PASS_BACKWARD : TESS_PASS_FORWARD,
                             c->given->kernel, kernels, MOST_KERNELS);
    for (size_t i = 0; i < count; i++)
        check_one(c, line, kernels[i]->name);
}

static void check_all(checking *c, const tool_problems *problems, int64_t random)
{
    const uint64_t seed = c->given->seed.is_set ? c->given->seed.value : 1;

    c->is_short = (int64_t)problems->count + random <= SHORT;
    tool_progress_start(&c->progress, "checking", (int64_t)problems->count + random);
    for (size_t i = 0; i < problems->count; i++)
        check_line(c, &problems->lines[i]);
    for (int64_t i = 0; i < random; i++) {
        tess_line line;

        tess_generate_any_line(seed + (uint64_t)i, &line);
        check_line(c, &line);
    }
    tool_progress_clear(&c->progress);
}

static int conclude(const checking *c)
{
    const int64_t *const n = c->count;

    if (n[TESS_CHECK_FAIL] > c->invalid)
        return TOOL_DIFFERS;
    if (c->invalid)
        return tool_fail(TOOL_USAGE, "%" PRId64 " of %" PRId64 " problems invalid", c->invalid,
                         c->done);
    if (n[TESS_CHECK_PASS] == 0 && c->is_out_of_memory)
        return tool_fail(TOOL_BROKEN, "nothing was checked: there is not enough memory");
    if (n[TESS_CHECK_PASS] == 0 && c->done > 0)
        return tool_fail(TOOL_UNAVAILABLE, "nothing was checked: %s refused or skipped everything",
                         c->session.device->name);
    return TOOL_OK;
}

/* Counts and results; the object is the caller's, and the results are no longer the run's. */
static json_t *summary_json(checking *c)
{
    const int64_t *const n = c->count;
    json_t *object = json_object();

    tool_json_set(object, "device", tool_json_text(c->session.device->name));
    tool_json_set(object, "sabotage", tool_json_maybe_text(c->given->sabotage));
    tool_json_set(object, "passed", json_integer(n[TESS_CHECK_PASS]));
    tool_json_set(object, "failed", json_integer(n[TESS_CHECK_FAIL] - c->invalid));
    tool_json_set(object, "invalid", json_integer(c->invalid));
    tool_json_set(object, "refused", json_integer(n[TESS_CHECK_REFUSED]));
    tool_json_set(object, "skipped", json_integer(n[TESS_CHECK_SKIP]));
    tool_json_set(object, "mistrusted", json_integer(n[TESS_CHECK_MISTRUSTED]));
    tool_json_set(object, "results", c->results);
    c->results = NULL;
    return object;
}

/* Writes the summary with facts about the device and the library around it. */
static int write_report(const checking *c, json_t *summary)
{
    json_t *document = json_object();
    char *text, reason[512];
    tess_text why = tess_text_in(reason, sizeof reason);
    tool_writer writer;
    bool is_written;

    tool_json_set(document, "library", tool_library_json());
    tool_json_set(document, "device", tool_device_json(&c->session.info));
    tool_json_set(document, "data", tool_json_maybe_text(c->given->data));
    tool_json_set(document, "check", json_incref(summary));
    text = json_dumps(document, JSON_INDENT(2) | JSON_REAL_PRECISION(12));
    json_decref(document);
    if (!text)
        return tool_fail(TOOL_BROKEN, "no memory for the report");
    is_written = tool_writer_open(c->given->report, &writer, &why);
    if (is_written) {
        tool_writer_put(&writer, text, strlen(text));
        tool_writer_put(&writer, "\n", 1);
        is_written = tool_writer_finish(&writer, &why);
    }
    free(text);
    return is_written ? TOOL_OK : tool_fail(TOOL_BROKEN, "the report: %s", reason);
}

static int summarise(checking *c)
{
    const int64_t *const n = c->count;
    json_t *object = c->results ? summary_json(c) : NULL;

    if (c->given->report) {
        const int result = write_report(c, object);
        if (result != TOOL_OK) {
            json_decref(object);
            return result;
        }
    }
    if (!c->given->json) {
        if (c->given->sabotage)
            printf("sabotage: %" PRId64 " caught, %" PRId64 " missed, %" PRId64
                   " could not have shown it\n",
                   n[TESS_CHECK_FAIL], n[TESS_CHECK_PASS], n[TESS_CHECK_MISTRUSTED]);
        if (n[TESS_CHECK_REFUSED] && !c->is_short && !c->given->quiet)
            printf("\"tessera explain\" says why a problem is refused\n");
        printf("%" PRId64 " passed, %" PRId64 " failed, %" PRId64 " refused, %" PRId64 " skipped",
               n[TESS_CHECK_PASS], n[TESS_CHECK_FAIL] - c->invalid, n[TESS_CHECK_REFUSED],
               n[TESS_CHECK_SKIP] + n[TESS_CHECK_MISTRUSTED]);
        if (c->invalid)
            printf(", %" PRId64 " invalid", c->invalid);
        printf("\n");
        json_decref(object);
        return TOOL_OK;
    }
    return tool_json_print(object);
}

/* ---- The verb -------------------------------------------------------------------------------- */

static int list_sabotage(bool as_json)
{
    json_t *const names = as_json ? json_array() : NULL;

    for (int i = 0; tess_sabotage_name(i); i++)
        if (as_json)
            json_array_append_new(names, json_string(tess_sabotage_name(i)));
        else
            printf("%s\n", tess_sabotage_name(i));
    return as_json ? tool_json_print(names) : TOOL_OK;
}

static int check_sabotage(const char *mode)
{
    const char *names[65] = {"any"}, *nearest;
    char list[1024];
    tess_text text = tess_text_in(list, sizeof list);
    size_t count = 1;

    for (int i = 0; tess_sabotage_name(i) && count < 65; i++)
        names[count++] = tess_sabotage_name(i);
    for (size_t i = 0; i < count; i++) {
        if (strcmp(mode, names[i]) == 0)
            return TOOL_OK;
        tess_text_add(&text, " %s", names[i]);
    }
    nearest = tess_text_nearest(mode, names, count);
    if (nearest)
        return tool_fail(TOOL_USAGE, "--sabotage is \"%s\"; did you mean \"%s\"? Modes are%s", mode,
                         nearest, list);
    return tool_fail(TOOL_USAGE, "--sabotage is \"%s\"; modes are%s", mode, list);
}

static int gather(const check_options *given, int count, char **arguments, tool_problems *problems)
{
    int result = tool_problems_add_arguments(problems, count, arguments);

    if (result == TOOL_OK && given->data)
        result = tool_problems_add_file(problems, given->data, TOOL_LISTS_OF_TESTS);
    if (result == TOOL_OK && given->sabotage)
        result = check_sabotage(given->sabotage);
    if (result == TOOL_OK && given->seed.is_set && !given->random.is_set && problems->count)
        result = tool_fail(TOOL_USAGE, "--seed is for random problems; it needs --random N");
    return result;
}

static int check_main(int argc, char **argv)
{
    static check_options given;
    static checking c;
    tool_problems problems = {NULL, 0, 0};
    bool done;
    int first = argc, printed,
        result = tool_args_read(&tool_check, argc, argv, &given, &first, &done);
    int64_t random;

    if (result != TOOL_OK || done)
        return result;
    if (given.sabotage && strcmp(given.sabotage, "list") == 0)
        return list_sabotage(given.json);
    result = gather(&given, argc - first, argv + first, &problems);
    random = given.random.is_set            ? given.random.value
             : problems.count || given.data ? 0
                                            : DEFAULT_RANDOM;
    c.given = &given;
    c.how.sabotage = given.sabotage;
    c.how.budget = given.all_rows ? 1e300 : 0;
    if (result == TOOL_OK)
        result = tool_session_open(&c.session, given.device, given.kernel);
    if (result == TOOL_OK) {
        if (given.json || given.report)
            c.results = json_array();
        check_all(&c, &problems, random);
        printed = summarise(&c);
        result = printed == TOOL_OK ? conclude(&c) : printed;
        tool_session_close(&c.session);
    }
    tool_problems_release(&problems);
    return result;
}

const tool_verb tool_check = {
    .name = "check",
    .summary = "run problems and compare with attention in float64",
    .usage = "[PROBLEM...] [--data FILE] [--random N] [--seed S] [--sabotage MODE] [--device NAME] "
             "[--kernel GLOB] [--report FILE] [--json] [--quiet]",
    .details =
        "Makes each problem's data, runs it several times and compares with float64. Prints a\n"
        "line for each; a failure comes with the command that repeats it and with a smaller\n"
        "problem that fails as well. Without problems 100 random ones are checked. The exit\n"
        "status is 1 when anything fails, and so, with --sabotage, it must be; 2 when nothing\n"
        "fails but a problem is invalid.",
    .options = options,
    .option_count = sizeof options / sizeof options[0],
    .main = check_main,
};
