/* SPDX-License-Identifier: Apache-2.0
 * tessera bench: how fast problems run, beside what the machine can do at that moment. */
#include "bench/bench.h"

#include "bench/report.h"
#include "tools/args.h"
#include "tools/describe.h"
#include "tools/json.h"
#include "tools/problems.h"
#include "tools/progress.h"
#include "tools/session.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct bench_options {
    const char *device, *kernel, *data, *compare, *library, *threads;
    tool_real seconds;
    bool cold, no_check, json, quiet;
} bench_options;

#define AT(member) offsetof(bench_options, member)

static const tool_option options[] = {
    {"device", 'd', TOOL_TEXT, AT(device), "NAME", "device, as \"tessera devices\" lists them", 0,
     0, NULL},
    {"kernel", 'k', TOOL_TEXT, AT(kernel), "GLOB",
     "time each kernel whose name matches, side by side; at most 8", 0, 0, NULL},
    {"compare", 'c', TOOL_TEXT, AT(compare), "KERNEL_A",
     "time two kernels in turn; KERNEL_B is the argument behind it, or follows a comma", 0, 0,
     NULL},
    {"library", 'l', TOOL_TEXT, AT(library), "FILE",
     "time the libtessera.so of another build in turn with this one", 0, 0, NULL},
    {"threads", 't', TOOL_TEXT, AT(threads), "N,M...",
     "time each number of threads in turn: how well a problem spreads over cores", 0, 0, NULL},
    {"data", 'D', TOOL_TEXT, AT(data), "FILE",
     "read problems from FILE, or from the list of that name", 0, 0, NULL},
    {"seconds", 's', TOOL_REAL, AT(seconds), "T", "for each problem and kernel; 1 if not given", 0,
     0, NULL},
    {"cold", '\0', TOOL_FLAG, AT(cold), NULL, "flush the caches before every run", 0, 0, NULL},
    {"no-check", '\0', TOOL_FLAG, AT(no_check), NULL, "do not compare with float64 before timing",
     0, 0, NULL},
    {"quiet", 'q', TOOL_FLAG, AT(quiet), NULL, "print no table", 0, 0, NULL},
    {"json", 'j', TOOL_FLAG, AT(json), NULL,
     "print one JSON array, an object per problem and "
     "kernel",
     0, 0, NULL},
};

/* ---- Kernels --------------------------------------------------------------------------------- */

typedef struct contenders {
    tess_bench_candidate candidate[TESS_BENCH_CANDIDATES];
    size_t count;
    bool is_chosen; /* by name: one that does not take a problem is no failure of the others */
    char pair[256];
    char threads[TESS_BENCH_CANDIDATES][32];
} contenders;

static int refuse_kernel(const tool_session *session, const char *name)
{
    static char list[8192];
    tess_text text = tess_text_in(list, sizeof list);

    tool_session_suggest(session, name, &text);
    return tool_fail(TOOL_USAGE, "--compare: no kernel is called \"%s\"%s", name, list);
}

static bool exists(const tool_session *session, const char *glob)
{
    const tess_kernel *one;

    return tool_session_kernels(session, TESS_PASS_FORWARD, glob, &one, 1) ||
           tool_session_kernels(session, TESS_PASS_BACKWARD, glob, &one, 1);
}

static int choose_pair(const tool_session *session, const char *pair, contenders *out)
{
    char *comma;

    if (strlen(pair) >= sizeof out->pair)
        return refuse_kernel(session, pair);
    memcpy(out->pair, pair, strlen(pair) + 1);
    comma = strchr(out->pair, ',');
    if (!comma)
        return tool_fail(TOOL_USAGE, "--compare needs two kernels: --compare A B");
    *comma = '\0';
    if (!exists(session, out->pair))
        return refuse_kernel(session, out->pair);
    if (!exists(session, comma + 1))
        return refuse_kernel(session, comma + 1);
    out->candidate[0] = (tess_bench_candidate){.name = out->pair, .kernel = out->pair};
    out->candidate[1] = (tess_bench_candidate){.name = comma + 1, .kernel = comma + 1};
    out->count = 2;
    return TOOL_OK;
}

/* Whether a kernel takes one of the problems at least. */
static bool is_of_use(tool_session *session, const tool_problems *problems, const char *kernel)
{
    bool is_taken = false;

    tool_session_restrict(session, kernel);
    for (size_t i = 0; i < problems->count && !is_taken; i++) {
        tool_descriptor described;
        tess_plan *plan = NULL;

        if (tool_describe(&problems->lines[i], &described) == TOOL_OK)
            is_taken =
                (problems->lines[i].backward
                     ? tess_plan_create_backward(session->device, &described.desc, NULL, &plan)
                     : tess_plan_create_forward(session->device, &described.desc, &plan)) ==
                TESS_OK;
        tess_plan_destroy(plan);
        tool_descriptor_release(&described);
    }
    tool_session_restrict(session, NULL);
    return is_taken;
}

/* Kernels that match and that take one of the problems on this device. */
static int choose_matching(tool_session *session, const tool_problems *problems, const char *glob,
                           contenders *out)
{
    const tess_kernel *kernels[512];

    out->is_chosen = true;
    for (int32_t pass = TESS_PASS_FORWARD; pass <= TESS_PASS_BACKWARD; pass++) {
        const size_t count = tool_session_kernels(session, pass, glob, kernels, 512);

        for (size_t i = 0; i < count; i++) {
            if (!is_of_use(session, problems, kernels[i]->name))
                continue;
            if (out->count == TESS_BENCH_CANDIDATES)
                return tool_fail(TOOL_USAGE,
                                 "--kernel is \"%s\", which more than %d kernels match; \"tessera "
                                 "devices --kernels\" lists them",
                                 glob, TESS_BENCH_CANDIDATES);
            out->candidate[out->count++] =
                (tess_bench_candidate){.name = kernels[i]->name, .kernel = kernels[i]->name};
        }
    }
    if (out->count == 0)
        return tool_fail(
            TOOL_UNAVAILABLE,
            "--kernel is \"%s\"; none of the kernels it matches takes these problems on "
            "%s: \"tessera explain\" says why",
            glob, session->device->name);
    return TOOL_OK;
}

static int choose_threads(const char *list, contenders *out)
{
    int64_t numbers[TESS_BENCH_CANDIDATES];
    const size_t count = tool_args_integers("--threads", list, numbers, TESS_BENCH_CANDIDATES);

    if (count == 0)
        return TOOL_USAGE;
    for (size_t i = 0; i < count; i++) {
        if (numbers[i] < 1 || numbers[i] > INT32_MAX)
            return tool_fail(TOOL_USAGE,
                             "--threads: %" PRId64 " is no number of threads; it takes 1 and more",
                             numbers[i]);
        snprintf(out->threads[i], sizeof out->threads[i], "%" PRId64 " thread%s", numbers[i],
                 numbers[i] == 1 ? "" : "s");
        out->candidate[i] =
            (tess_bench_candidate){.name = out->threads[i], .threads = (int32_t)numbers[i]};
    }
    out->count = count;
    return TOOL_OK;
}

static int choose(tool_session *session, const tool_problems *problems, const bench_options *given,
                  contenders *out)
{
    memset(out, 0, sizeof *out);
    if (!!given->compare + !!given->kernel + !!given->library + !!given->threads > 1)
        return tool_fail(TOOL_USAGE,
                         "--compare, --kernel, --library and --threads exclude each other");
    if (given->threads)
        return choose_threads(given->threads, out);
    if (given->library) {
        out->candidate[0] = (tess_bench_candidate){.name = "this build"};
        out->candidate[1] = (tess_bench_candidate){.name = "library", .library = given->library};
        out->count = 2;
        return TOOL_OK;
    }
    if (given->compare)
        return choose_pair(session, given->compare, out);
    if (given->kernel)
        return choose_matching(session, problems, given->kernel, out);
    return TOOL_OK;
}

/* ---- Timing ---------------------------------------------------------------------------------- */

static bool show_progress(void *user, const tess_bench_progress *progress)
{
    tool_progress *const bar = user;
    /* Thousandths of the whole: lines done, and the share of the one at hand. */
    const double share =
        progress->rounds > 0 ? (double)progress->round / (double)progress->rounds : 0;

    tool_progress_step(bar, (int64_t)(1000 * ((double)progress->line + share)), progress->stage);
    return true;
}

/* What the rows say together. A named kernel that does not take a problem is an answer. A table has
 * told the reasons already. */
static int judge(const tess_bench_result *results, size_t count, bool is_chosen, bool has_table)
{
    int result = TOOL_OK;
    size_t timed = 0;

    for (size_t i = 0; i < count; i++) {
        const tess_bench_result *const r = &results[i];

        if (r->check == TESS_BENCH_WRONG) {
            tool_fail(TOOL_DIFFERS, "%s is wrong: %s", r->kernel[0] ? r->kernel : r->candidate,
                      r->why);
            result = TOOL_DIFFERS;
        } else if (r->status != TESS_OK) {
            if (is_chosen && r->status == TESS_UNSUPPORTED)
                continue;
            if (!has_table)
                tool_fail(0, "%s", r->why);
            if (result == TOOL_OK)
                result = tool_exit_code(r->status);
        } else {
            timed++;
        }
    }
    if (result == TOOL_OK && timed == 0 && count > 0)
        result = TOOL_UNAVAILABLE;
    if (result != TOOL_OK && timed < count)
        tool_fail(0, "%zu of %zu rows have no numbers", count - timed, count);
    return result;
}

static json_t *rows_json(const tess_bench_result *results, size_t count)
{
    json_t *array = json_array();

    for (size_t i = 0; i < count; i++)
        json_array_append_new(array, tess_report_row(&results[i]));
    return array;
}

/* What the levels of memory gave in this minute and process: a share of the read bandwidth says
 * nothing of the level. Only the CPU has them. */
static void print_levels(const tess_bench_result *results, size_t count)
{
    tess_levels levels;

    for (size_t i = 0; i < count; i++) {
        if (!results[i].isa[0] || results[i].measured.seconds.count == 0)
            continue;
        if (tess_levels_measure(results[i].threads, results[i].isa, &levels))
            tess_report_levels(&levels, stdout);
        return;
    }
}

static int time_problems(tool_session *session, const tool_problems *problems,
                         const bench_options *given, const contenders *kernels)
{
    tool_progress bar;
    const tess_bench_options how = {.seconds = given->seconds.value,
                                    .is_cold = given->cold,
                                    .no_check = given->no_check,
                                    .candidates = kernels->count ? kernels->candidate : NULL,
                                    .candidate_count = kernels->count,
                                    .progress = show_progress,
                                    .user = &bar};
    const size_t count = tess_bench_result_count(problems->count, &how);
    tess_bench_result *const results = calloc(count + 1, sizeof *results);
    int result, printed = TOOL_OK;

    if (!results)
        return tool_fail(TOOL_BROKEN, "no memory for %zu results", count);
    tool_progress_start(&bar, "timing", 1000 * (int64_t)problems->count);
    (void)tess_bench_lines(session->context, session->device, problems->lines, problems->count,
                           &how, results);
    tool_progress_clear(&bar);
    if (given->json) {
        printed = tool_json_print(rows_json(results, count));
    } else if (!given->quiet) {
        tess_report_table(results, count, stdout);
        print_levels(results, count);
    }
    result = judge(results, count, kernels->is_chosen, !given->json && !given->quiet);
    free(results);
    return result == TOOL_OK ? printed : result;
}

/* ---- The verb -------------------------------------------------------------------------------- */

/* "--compare A B": the table of options knows one value each, so the pair becomes one. */
static int join_pair(int *argc, char **argv, char *pair, size_t size)
{
    for (int i = 1; i + 2 < *argc && strcmp(argv[i], "--") != 0; i++) {
        if (strcmp(argv[i], "--compare") != 0 && strcmp(argv[i], "-c") != 0)
            continue;
        if (strchr(argv[i + 1], ','))
            return TOOL_OK;
        if ((size_t)snprintf(pair, size, "%s,%s", argv[i + 1], argv[i + 2]) >= size)
            return tool_fail(TOOL_USAGE, "--compare: names that long belong to no kernel");
        argv[i + 1] = pair;
        for (int j = i + 2; j < *argc; j++)
            argv[j] = argv[j + 1]; /* the list ends in NULL */
        --*argc;
        return TOOL_OK;
    }
    return TOOL_OK;
}

static int bench_main(int argc, char **argv)
{
    bench_options given = {.json = false};
    tool_problems problems = {NULL, 0, 0};
    tool_session session;
    contenders kernels;
    static char pair[256]; /* argv points to it */
    bool done = false;
    int first, result = join_pair(&argc, argv, pair, sizeof pair);

    first = argc;
    if (result == TOOL_OK)
        result = tool_args_read(&tool_bench, argc, argv, &given, &first, &done);
    if (result != TOOL_OK || done)
        return result;
    result = tool_problems_add_arguments(&problems, argc - first, argv + first);
    if (result == TOOL_OK && given.data)
        result = tool_problems_add_file(&problems, given.data, TOOL_LISTS_OF_BENCH);
    if (result == TOOL_OK && problems.count == 0)
        result = tool_fail(TOOL_USAGE, "needs a PROBLEM, such as \"fwd b1 hq8 q1024 d128 f32 "
                                       "causal\"; \"tessera help bench\" says more");
    if (result == TOOL_OK && given.seconds.is_set && given.seconds.value <= 0)
        result = tool_fail(TOOL_USAGE, "--seconds is %g; it takes a number above 0",
                           given.seconds.value);
    if (result == TOOL_OK)
        result = tool_session_open(&session, given.device, given.kernel);
    if (result == TOOL_OK) {
        result = choose(&session, &problems, &given, &kernels);
        if (result == TOOL_OK)
            result = time_problems(&session, &problems, &given, &kernels);
        tool_session_close(&session);
    }
    tool_problems_release(&problems);
    return result;
}

const tool_verb tool_bench = {
    .name = "bench",
    .summary = "time problems, beside what the machine can do at that moment",
    .usage = "PROBLEM... [--data FILE] [--device NAME] [--kernel GLOB] [--compare KERNEL_A "
             "KERNEL_B] [--library FILE] [--threads N,M...] [--seconds T] [--json]",
    .details =
        "Checks each problem against float64, then times it in short windows, with the fp32\n"
        "and memory ceilings of the machine measured beside each window. Only numbers of one\n"
        "run may be compared: --compare, --kernel, --library and --threads time several in turn.",
    .options = options,
    .option_count = sizeof options / sizeof options[0],
    .main = bench_main,
};
