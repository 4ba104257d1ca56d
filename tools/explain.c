/* SPDX-License-Identifier: Apache-2.0
 * tessera explain: which kernel takes a problem, how it cuts it up, and why others refused. */
#include "core/runtime/select.h"
#include "tools/args.h"
#include "tools/describe.h"
#include "tools/json.h"
#include "tools/problems.h"
#include "tools/session.h"
#include "tools/svg.h"

#include <inttypes.h>
#include <stdlib.h>

typedef struct explain_options {
    const char *device, *kernel, *data, *svg;
    tool_integer sequence;
    bool json;
} explain_options;

static const tool_option options[] = {
    {"device", 'd', TOOL_TEXT, offsetof(explain_options, device), "NAME",
     "explain for this device, as \"tessera devices\" lists them", 0, 0, NULL},
    {"kernel", 'k', TOOL_TEXT, offsetof(explain_options, kernel), "GLOB",
     "only kernels whose name matches may be chosen", 0, 0, NULL},
    {"data", 'D', TOOL_TEXT, offsetof(explain_options, data), "FILE",
     "read problems from FILE, or from the list of that name", 0, 0, NULL},
    {"sequence", 'n', TOOL_INTEGER, offsetof(explain_options, sequence), "N",
     "draw the tile map of this sequence; 0 when not given", 0, 2147483647, NULL},
    {"svg", 's', TOOL_TEXT, offsetof(explain_options, svg), "FILE",
     "draw the tile map into FILE too; one problem only", 0, 0, NULL},
    {"json", 'j', TOOL_FLAG, offsetof(explain_options, json), NULL,
     "print JSON: an object for one problem, an array for several", 0, 0, NULL},
};

/* Cells of the map drawn as text: with numbers when it is small. */
enum { NUMBERED_CELLS = 16, LETTER_CELLS = 32 };

/* One problem on one device. */
typedef struct explanation {
    const tess_line *line;
    const tool_session *session;
    char text[TOOL_LINE_SIZE];
    tess_plan *plan; /* NULL: refused */
    tess_candidate *candidates;
    size_t candidate_count;
    tool_tiles tiles;
    tool_tile_totals totals;
} explanation;

/* ---- Planning -------------------------------------------------------------------------------- */

/* Asks every kernel once more, for the reasons that a plan which was not made cannot tell. */
static int ask_kernels(explanation *e, const tess_attention_desc *desc)
{
    const tess_device *const device = e->session->device;
    size_t count;
    const tess_kernel *const kernels = device->backend->kernels(&count);
    tess_problem problem;
    const tess_status status =
        tess_problem_make(&device->context->host, "tessera explain", desc, &problem);

    if (status != TESS_OK)
        return tool_fail_library(device->context, status);
    problem.pass = e->line->backward ? TESS_PASS_BACKWARD : TESS_PASS_FORWARD;
    if (e->line->backward && !problem.gradients)
        problem.gradients = TESS_GRADIENT_Q | TESS_GRADIENT_K | TESS_GRADIENT_V;
    e->candidate_count = tess_select_count(kernels, count, problem.pass);
    e->candidates = tool_allocate(e->candidate_count * sizeof *e->candidates, "the refusals");
    if (!e->candidates)
        return TOOL_BROKEN;
    tess_select(kernels, count, device->context->env.kernel, &problem,
                device->backend->caps(device->opened), e->candidates);
    return TOOL_OK;
}

/* Plans the problem. A refusal by every kernel is an answer, not a failure: TOOL_OK without a plan.
 */
static int plan(explanation *e)
{
    tess_device *const device = e->session->device;
    tool_descriptor described;
    tess_status status;
    int result = tool_describe(e->line, &described);

    if (result != TOOL_OK)
        return result;
    status = e->line->backward ? tess_plan_create_backward(device, &described.desc, NULL, &e->plan)
                               : tess_plan_create_forward(device, &described.desc, &e->plan);
    if (status == TESS_OK || status == TESS_UNSUPPORTED)
        result = ask_kernels(e, &described.desc);
    else
        result = tool_fail_library(device->context, status);
    tool_descriptor_release(&described);
    return result;
}

static int explain(explanation *e, const explain_options *given)
{
    const int64_t sequence = given->sequence.is_set ? given->sequence.value : 0;
    const int result = plan(e);

    if (result != TOOL_OK || !e->plan)
        return result;
    if (sequence > 0 && sequence >= e->line->batch)
        return tool_fail(TOOL_USAGE,
                         "--sequence is %" PRId64 " but the problem has %" PRId64
                         " sequences, counted from 0",
                         sequence, e->line->batch);
    if (e->line->batch > 0)
        tool_tiles_make(&e->plan->schedule, e->line, sequence, &e->tiles);
    e->totals = tool_tiles_total(&e->plan->schedule, e->line);
    return TOOL_OK;
}

static void forget(explanation *e)
{
    tess_plan_destroy(e->plan);
    free(e->candidates);
}

/* ---- JSON ------------------------------------------------------------------------------------ */

static const char *code_name(tess_refusal_code code)
{
    static const char *const names[] = {
        [TESS_ACCEPTED] = "accepted",         [TESS_REFUSED_PASS] = "pass",
        [TESS_REFUSED_DTYPE] = "dtype",       [TESS_REFUSED_HEAD_DIM] = "head_dim",
        [TESS_REFUSED_FEATURE] = "feature",   [TESS_REFUSED_ROWS] = "rows",
        [TESS_REFUSED_SCALING] = "scaling",   [TESS_REFUSED_PROGRAM] = "program",
        [TESS_REFUSED_GRADIENT] = "gradient", [TESS_REFUSED_NAME] = "name",
        [TESS_REFUSED_PAGING] = "paging",     [TESS_REFUSED_SCORES] = "scores",
        [TESS_REFUSED_WAVE] = "wave",         [TESS_REFUSED_SHARED] = "shared_memory",
        [TESS_REFUSED_BITS] = "bits",         [TESS_REFUSED_OUTRANKED] = "outranked"};
    const size_t index = (size_t)code;

    return index < sizeof names / sizeof names[0] && names[index] ? names[index] : "other";
}

static json_t *refusals_json(const explanation *e)
{
    json_t *array = json_array();

    for (size_t i = 0; i < e->candidate_count; i++) {
        const tess_candidate *candidate = &e->candidates[i];
        char reason[256];
        tess_text text = tess_text_in(reason, sizeof reason);
        json_t *object;

        if (candidate->refusal.code == TESS_ACCEPTED)
            continue;
        tess_refusal_write(&candidate->refusal, candidate->kernel, &text);
        object = json_object();
        tool_json_set(object, "kernel", tool_json_text(candidate->kernel->name));
        tool_json_set(object, "code", json_string(code_name(candidate->refusal.code)));
        tool_json_set(object, "reason", tool_json_text(reason));
        json_array_append_new(array, object);
    }
    return array;
}

/* Cells of each kind in the map scaled to at most `most` cells a side. */
static json_t *drawn_json(const tool_tiles *tiles, int64_t most)
{
    const int64_t scale = tool_tiles_scale(tiles, most);
    json_int_t count[3] = {0, 0, 0};

    for (int64_t row = 0; row * scale < tiles->row_tiles; row++)
        for (int64_t column = 0; column * scale < tiles->column_tiles; column++)
            count[tool_tiles_cell(tiles, scale, row, column)]++;
    return json_pack("{s:I, s:I, s:I, s:I}", "scale", (json_int_t)scale, "skipped",
                     count[TOOL_TILE_SKIPPED], "masked", count[TOOL_TILE_MASKED], "full",
                     count[TOOL_TILE_FULL]);
}

static json_t *map_json(const tool_tiles *tiles)
{
    return json_pack("{s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:o}", "sequence",
                     (json_int_t)tiles->sequence, "rows", (json_int_t)tiles->rows, "columns",
                     (json_int_t)tiles->columns, "group", (json_int_t)tiles->group, "row_tiles",
                     (json_int_t)tiles->row_tiles, "column_tiles", (json_int_t)tiles->column_tiles,
                     "skipped", (json_int_t)tiles->skipped, "masked", (json_int_t)tiles->masked,
                     "full", (json_int_t)tiles->full, "drawn", drawn_json(tiles, TOOL_SVG_CELLS));
}

static json_t *explanation_json(const explanation *e)
{
    json_t *object = json_object();
    const tess_cost cost = tess_cost_of(e->line);

    tool_json_set(object, "problem", tool_json_text(e->text));
    tool_json_set(object, "pass", json_string(e->line->backward ? "backward" : "forward"));
    tool_json_set(object, "device", tool_json_text(e->session->device->name));
    tool_json_set(object, "architecture", tool_json_text(e->session->info.architecture));
    tool_json_set(object, "supported", json_boolean(e->plan != NULL));
    tool_json_set(object, "pairs", tool_json_real(cost.pairs));
    tool_json_set(object, "flops", tool_json_real(cost.flops));
    tool_json_set(object, "bytes", tool_json_real(cost.bytes));
    tool_json_set(object, "refusals", refusals_json(e));
    tool_json_set(object, "kernel",
                  e->plan ? tool_json_text(e->plan->schedule.kernel->name) : json_null());
    if (!e->plan)
        return object;
    tool_json_set(object, "tile_rows", json_integer(e->plan->schedule.args.tile_rows));
    tool_json_set(object, "tile_columns", json_integer(e->plan->schedule.args.tile_columns));
    tool_json_set(object, "splits", json_integer(e->plan->schedule.args.splits));
    tool_json_set(object, "work_items", json_integer(e->plan->schedule.work_items));
    tool_json_set(object, "workers", json_integer(e->plan->schedule.workers));
    tool_json_set(object, "workspace", json_integer((json_int_t)tess_plan_workspace_size(e->plan)));
    tool_json_set(object, "tiles",
                  json_pack("{s:f, s:f, s:f}", "skipped", e->totals.skipped, "masked",
                            e->totals.masked, "full", e->totals.full));
    tool_json_set(object, "tile_map", e->line->batch > 0 ? map_json(&e->tiles) : json_null());
    return object;
}

/* ---- Text ------------------------------------------------------------------------------------ */

static const char LETTERS[] = {
    [TOOL_TILE_SKIPPED] = '.', [TOOL_TILE_MASKED] = '+', [TOOL_TILE_FULL] = '#'};

static void print_row_label(const tool_tiles *tiles, int64_t first_place, int64_t last_place)
{
    const int64_t first = tess_walk_query(tool_tiles_rows(tiles, first_place).first, tiles->group);
    const int64_t last = tess_walk_query(tool_tiles_rows(tiles, last_place).end - 1, tiles->group);
    char label[64];

    snprintf(label, sizeof label, "%" PRId64 "-%" PRId64, first, last);
    printf("  %15s  ", label);
}

/* A map small enough for the number of each tile in the order of work. */
static void print_numbered(const tool_tiles *tiles)
{
    printf("  %15s  ", "rows \\ columns");
    for (int64_t column = 0; column < tiles->column_tiles; column++)
        printf("%5" PRId64 " ", column * tiles->tile_columns);
    putchar('\n');
    for (int64_t place = 0; place < tiles->row_tiles; place++) {
        int64_t last_split = 0;

        print_row_label(tiles, place, place);
        for (int64_t column = 0; column < tiles->column_tiles; column++) {
            int64_t split, order;
            const tool_tile tile = tool_tiles_at(tiles, place, column, &split, &order);
            /* A bar where the next share of the columns begins. */
            const char bar = tile != TOOL_TILE_SKIPPED && split != last_split ? '|' : ' ';

            if (tile == TOOL_TILE_SKIPPED) {
                printf("%5s ", ".");
                continue;
            }
            last_split = split;
            printf("%c%3" PRId64 "%c ", bar, order, LETTERS[tile]);
        }
        putchar('\n');
    }
}

static void print_letters(const tool_tiles *tiles)
{
    const int64_t scale = tool_tiles_scale(tiles, LETTER_CELLS);

    for (int64_t row = 0; row * scale < tiles->row_tiles; row++) {
        const int64_t last = tess_min_i64((row + 1) * scale, tiles->row_tiles) - 1;

        print_row_label(tiles, row * scale, last);
        for (int64_t column = 0; column * scale < tiles->column_tiles; column++) {
            const char letter = LETTERS[tool_tiles_cell(tiles, scale, row, column)];

            printf("%c%c", letter, letter);
        }
        putchar('\n');
    }
    if (scale > 1)
        printf("  each mark stands for up to %" PRId64 " x %" PRId64
               " tiles; a mixture is shown as masked\n",
               scale, scale);
}

static void print_map(const tool_tiles *tiles)
{
    const bool is_small =
        tiles->row_tiles <= NUMBERED_CELLS && tiles->column_tiles <= NUMBERED_CELLS;

    printf("\ntile map of sequence %" PRId64 ", one key head%s: %" PRId64 " full, %" PRId64
           " masked, %" PRId64 " skipped\n",
           tiles->sequence, tiles->group > 1 ? " and its query heads" : "", tiles->full,
           tiles->masked, tiles->skipped);
    if (tiles->row_tiles == 0 || tiles->column_tiles == 0) {
        printf("  it has no tiles\n");
        return;
    }
    if (is_small)
        print_numbered(tiles);
    else
        print_letters(tiles);
    printf("  # full, no mask work   + masked, tested row by row   . skipped, never loaded%s\n",
           is_small ? "\n  numbers give the order of work" : "");
    if (is_small && tiles->splits > 1)
        printf("  a bar stands where the next share of the columns begins\n");
}

static void print_refusals(const explanation *e)
{
    bool is_first = true;

    for (size_t i = 0; i < e->candidate_count; i++) {
        const tess_candidate *candidate = &e->candidates[i];
        char reason[256];
        tess_text text = tess_text_in(reason, sizeof reason);

        if (candidate->refusal.code == TESS_ACCEPTED)
            continue;
        tess_refusal_write(&candidate->refusal, candidate->kernel, &text);
        printf("%s    %-32s %s\n",
               !is_first ? ""
               : e->plan ? "\nother kernels\n"
                         : "\nkernels\n",
               candidate->kernel->name, reason);
        is_first = false;
    }
}

static void print_schedule(const explanation *e)
{
    const tess_schedule *const schedule = &e->plan->schedule;
    char flops[32], bytes[32], pairs[32];
    const tess_cost cost = tess_cost_of(e->line);
    const double all = e->totals.skipped + e->totals.masked + e->totals.full;

    printf("kernel      %s\n", schedule->kernel->name);
    printf("tile        %" PRId64 " rows x %" PRId64 " columns\n",
           (int64_t)schedule->args.tile_rows, (int64_t)schedule->args.tile_columns);
    printf("splits      %" PRId64 "%s\n", (int64_t)schedule->args.splits,
           schedule->args.splits > 1 ? " shares of the columns, merged afterwards" : "");
    printf("work        %" PRId64 " items", schedule->work_items);
    if (schedule->workers)
        printf(" for %d workers", (int)schedule->workers);
    printf("\nworkspace   %zu bytes\n", tess_plan_workspace_size(e->plan));
    printf(
        "cost        %sflop, %sB at least, %spairs", tool_amount(cost.flops, flops, sizeof flops),
        tool_amount(cost.bytes, bytes, sizeof bytes), tool_amount(cost.pairs, pairs, sizeof pairs));
    if (cost.bytes > 0)
        printf("; %.3g flop per byte", cost.flops / cost.bytes);
    putchar('\n');
    if (all > 0)
        printf("tiles       %.0f in all: %.1f %% full, %.1f %% masked, %.1f %% skipped\n", all,
               100 * e->totals.full / all, 100 * e->totals.masked / all,
               100 * e->totals.skipped / all);
}

static void print_explanation(const explanation *e)
{
    printf("problem     %s\ndevice      %s (%s)\n", e->text, e->session->device->name,
           e->session->info.architecture);
    if (!e->plan) {
        printf("kernel      none: every kernel refuses\n");
        print_refusals(e);
        return;
    }
    print_schedule(e);
    print_refusals(e);
    if (e->line->batch > 0)
        print_map(&e->tiles);
}

/* ---- The verb -------------------------------------------------------------------------------- */

static int draw_svg(const explanation *e, const char *path)
{
    char why[512];
    tess_text text = tess_text_in(why, sizeof why);
    const tool_svg_caption caption = {e->text, e->plan->schedule.kernel->name,
                                      e->session->device->name};

    if (tool_svg_write(path, &e->tiles, &caption, &text))
        return TOOL_OK;
    return tool_fail(TOOL_BROKEN, "--svg: %s", why);
}

/* Explains one problem; appends to the array, or prints when there is none. */
static int show(const tool_session *session, const tess_line *line, const explain_options *given,
                json_t *array, bool is_first)
{
    static explanation e;
    int result;

    memset(&e, 0, sizeof e);
    e.line = line;
    e.session = session;
    tool_problem_text(line, e.text, sizeof e.text);
    result = explain(&e, given);
    if (result == TOOL_OK && array)
        json_array_append_new(array, explanation_json(&e));
    if (result == TOOL_OK && !array) {
        if (!is_first)
            putchar('\n');
        print_explanation(&e);
    }
    if (result == TOOL_OK && !e.plan)
        result = tool_fail(TOOL_UNAVAILABLE, "no kernel on %s takes \"%s\"", session->device->name,
                           e.text);
    else if (result == TOOL_OK && given->svg)
        result = draw_svg(&e, given->svg);
    forget(&e);
    return result;
}

static int show_all(const tool_session *session, const tool_problems *problems,
                    const explain_options *given)
{
    json_t *array = given->json ? json_array() : NULL;
    int result = TOOL_OK;

    for (size_t i = 0; i < problems->count && (result == TOOL_OK || result == TOOL_UNAVAILABLE);
         i++) {
        const int one = show(session, &problems->lines[i], given, array, i == 0);

        result = one == TOOL_OK ? result : one;
    }
    if (array && (result == TOOL_OK || result == TOOL_UNAVAILABLE)) {
        json_t *const document = problems->count == 1 ? json_array_get(array, 0) : array;
        const int printed = tool_json_print(json_incref(document));

        result = printed == TOOL_OK ? result : printed;
    }
    json_decref(array);
    return result;
}

static int explain_main(int argc, char **argv)
{
    explain_options given = {.json = false};
    tool_problems problems = {NULL, 0, 0};
    tool_session session;
    bool done;
    int first = argc, result = tool_args_read(&tool_explain, argc, argv, &given, &first, &done);

    if (result != TOOL_OK || done)
        return result;
    result = tool_problems_add_arguments(&problems, argc - first, argv + first);
    if (result == TOOL_OK && given.data)
        result = tool_problems_add_file(&problems, given.data, TOOL_LISTS_OF_TESTS);
    if (result == TOOL_OK && problems.count == 0)
        result = tool_fail(TOOL_USAGE, "needs a PROBLEM, such as \"fwd b1 hq8 q4096 d128 f32 "
                                       "causal\"; \"tessera help explain\" says more");
    if (result == TOOL_OK && given.svg && problems.count > 1)
        result =
            tool_fail(TOOL_USAGE, "--svg draws one problem, but %zu were given", problems.count);
    if (result == TOOL_OK)
        result = tool_session_open(&session, given.device, given.kernel);
    if (result == TOOL_OK) {
        result = show_all(&session, &problems, &given);
        tool_session_close(&session);
    }
    tool_problems_release(&problems);
    return result;
}

const tool_verb tool_explain = {
    .name = "explain",
    .summary = "say which kernel takes a problem, how it is cut into tiles, and why",
    .usage = "PROBLEM... [--data FILE] [--device NAME] [--kernel GLOB] [--sequence N] [--svg FILE] "
             "[--json]",
    .details =
        "Plans a problem without running it, and prints the kernel, its tiles, the schedule,\n"
        "the cost, every kernel that refused with its reason, and the map of tiles: which\n"
        "are skipped, which need masks, which need none. Needs no memory for the tensors.",
    .options = options,
    .option_count = sizeof options / sizeof options[0],
    .main = explain_main,
};
