/* SPDX-License-Identifier: Apache-2.0
 * Scenes: making, filling, running, reading and judging them. */
#include "tests/conformance/scene.h"

#include "tests/kit/compare.h"
#include "tests/kit/number.h"
#include "tests/kit/shape.h"

#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { TEXT_SIZE = 8192, MOST_SHOWN = 5 }; /* failures of one test on one device */

/* ---- Failures -------------------------------------------------------------------------------- */

static const char *running = "";
static const tess_subject *running_on;
static int failures, failures_here; /* in all; of the running test */

void tess_scene_fail(const tess_scene *scene, const char *format, ...)
{
    va_list arguments;

    failures++;
    if (failures_here++ >= MOST_SHOWN)
        return;
    printf("FAIL %s on %s: ", running, running_on ? running_on->label : "nothing");
    va_start(arguments, format);
    vprintf(format, arguments);
    va_end(arguments);
    if (scene) {
        char data[TEXT_SIZE];
        tess_text text = tess_text_in(data, sizeof data);

        tess_line_write(&scene->c.line, &text);
        printf(" in \"%s\"", data);
    }
    printf("\n");
}

void tess_scene_expect(const tess_scene *scene, const char *what, double got, double expected,
                       double allowed)
{
    if (got == expected && (allowed > 0 || signbit(got) == signbit(expected)))
        return;
    if (isfinite(got) && isfinite(expected) && fabs(got - expected) <= allowed)
        return;
    if (isnan(got) && isnan(expected))
        return;
    tess_scene_fail(scene, "%s is %.9g; expected %.9g within %.3g", what, got, expected, allowed);
}

static _Noreturn void give_up(const char *what, const char *why)
{
    printf("FAIL %s: %s: %s\n", running, what, why);
    exit(TESS_TEST_FAILED);
}

/* ---- Making ---------------------------------------------------------------------------------- */

#if defined(__GNUC__)
__attribute__((format(printf, 3, 0)))
#endif
static tess_scene *
make(const tess_subject *subject, bool from_lse, const char *format, va_list arguments)
{
    tess_scene *scene = calloc(1, sizeof *scene);
    char line_text[TEXT_SIZE], why[1024] = "";
    tess_text reason = tess_text_in(why, sizeof why);
    tess_line line;

    vsnprintf(line_text, sizeof line_text, format, arguments);
    if (!scene)
        give_up(line_text, "no memory");
    scene->subject = subject;
    if (tess_line_read(line_text, &line, &reason) != TESS_OK ||
        !tess_case_make_plain(&line, from_lse, &scene->c, &reason))
        give_up(line_text, why);
    return scene;
}

tess_scene *tess_scene_make(const tess_subject *subject, const char *format, ...)
{
    tess_scene *scene;
    va_list arguments;

    va_start(arguments, format);
    scene = make(subject, false, format, arguments);
    va_end(arguments);
    return scene;
}

tess_scene *tess_scene_make_backward(const tess_subject *subject, bool from_lse, const char *format,
                                     ...)
{
    tess_scene *scene;
    va_list arguments;

    va_start(arguments, format);
    scene = make(subject, from_lse, format, arguments);
    va_end(arguments);
    return scene;
}

void tess_scene_free(tess_scene *scene)
{
    if (!scene)
        return;
    tess_case_drop(&scene->c, scene->subject->device);
    tess_plan_destroy(scene->plan);
    if (!scene->borrows_queue)
        tess_queue_destroy(scene->queue);
    tess_case_free(&scene->c);
    free(scene);
}

/* ---- Numbers --------------------------------------------------------------------------------- */

static bool is_of_heads(int which)
{
    return which == TESS_CASE_SLOPES || which == TESS_CASE_SINK || which == TESS_CASE_DSLOPES ||
           which == TESS_CASE_DSINK;
}

static bool is_of_keys(int which)
{
    return which == TESS_CASE_K || which == TESS_CASE_V || which == TESS_CASE_DK ||
           which == TESS_CASE_DV;
}

static char *element_at(const tess_scene *scene, int which, tess_place p)
{
    const tess_case *c = &scene->c;
    const tess_tensor *t = &c->tensor[which];
    int64_t batch, seqlen;

    if (which == TESS_CASE_BIAS || which == TESS_CASE_DBIAS)
        return tess_case_element(t, p.sequence, p.row, p.head, p.dim);
    if (is_of_heads(which))
        return tess_case_element(t, t->layout.batch > 1 ? p.sequence : 0, 0, p.head, 0);
    if (is_of_keys(which))
        tess_case_column_place(c, p.sequence, p.row, &batch, &seqlen);
    else
        tess_case_row_place(c, p.sequence, p.row, &batch, &seqlen);
    return tess_case_element(t, batch, seqlen, p.head, p.dim);
}

static void store(tess_scene *scene, int which, tess_place place, double value)
{
    tess_number_store(scene->c.tensor[which].layout.dtype, element_at(scene, which, place), value);
}

static void note_hash(tess_scene *scene, int which)
{
    scene->c.tensor[which].hash = tess_tensor_hash(&scene->c.tensor[which]);
}

void tess_scene_put(tess_scene *scene, int which, tess_place place, double value)
{
    store(scene, which, place, value);
    note_hash(scene, which);
}

double tess_scene_get(const tess_scene *scene, int which, tess_place place)
{
    return tess_number_load(scene->c.tensor[which].layout.dtype, element_at(scene, which, place));
}

/* Rows and dims of a tensor as tess_scene_set() counts them. */
static void extents_of(const tess_scene *scene, int which, int64_t sequence, int64_t *out_rows,
                       int64_t *out_dims)
{
    const tess_layout *l = &scene->c.tensor[which].layout;
    const bool is_keys = which == TESS_CASE_K || which == TESS_CASE_V;

    *out_rows = l->seqlen;
    *out_dims = l->head_dim;
    if (which == TESS_CASE_Q || which == TESS_CASE_D_O || which == TESS_CASE_D_LSE)
        *out_rows = tess_shape_used_rows(&scene->c.line, sequence);
    if (is_keys)
        *out_rows = tess_shape_used_columns(&scene->c.line, sequence);
}

void tess_scene_set(tess_scene *scene, int which, tess_scene_fn value, const void *user)
{
    const tess_layout *l = &scene->c.tensor[which].layout;
    const bool is_keys = which == TESS_CASE_K || which == TESS_CASE_V;
    const int64_t sequences =
        which == TESS_CASE_BIAS || is_of_heads(which) ? l->batch : scene->c.line.batch;

    if (!scene->c.tensor[which].is_present)
        give_up("tess_scene_set", "the line has no such tensor");
    for (int64_t b = 0; b < sequences; b++) {
        int64_t rows, dims;

        extents_of(scene, which, b, &rows, &dims);
        for (int64_t i = 0; i < rows; i++) {
            if (is_keys && !tess_shape_is_seen(&scene->c.line, b, i))
                continue;
            for (int64_t h = 0; h < l->heads; h++)
                for (int64_t d = 0; d < dims; d++) {
                    const tess_place place = {b, h, i, d};

                    store(scene, which, place, value(place, user));
                }
        }
    }
    note_hash(scene, which);
}

static double constant(tess_place place, const void *user)
{
    (void)place;
    return *(const double *)user;
}

void tess_scene_set_all(tess_scene *scene, int which, double value)
{
    tess_scene_set(scene, which, constant, &value);
}

/* Copies rows 0 ... rows - 1 of one tensor, every head, dims 0 ... dims - 1. */
static void copy_tensor(const tess_scene *from, int64_t from_sequence, tess_scene *to,
                        int64_t to_sequence, int which, const int64_t extent[3])
{
    if (!from->c.tensor[which].is_present || !to->c.tensor[which].is_present)
        return;
    for (int64_t i = 0; i < extent[0]; i++)
        for (int64_t h = 0; h < extent[1]; h++)
            for (int64_t d = 0; d < extent[2]; d++)
                store(to, which, (tess_place){to_sequence, h, i, d},
                      tess_scene_get(from, which, (tess_place){from_sequence, h, i, d}));
    note_hash(to, which);
}

void tess_scene_copy(const tess_scene *from, int64_t from_sequence, tess_scene *to,
                     int64_t to_sequence)
{
    const tess_line *line = &from->c.line;
    const int64_t rows = tess_shape_used_rows(line, from_sequence);
    const int64_t columns = tess_shape_used_columns(line, from_sequence);
    const struct {
        int which;
        int64_t extent[3];
    } tensors[] = {
        {TESS_CASE_Q, {rows, line->heads_q, line->head_dim}},
        {TESS_CASE_K, {columns, line->heads_kv, line->head_dim}},
        {TESS_CASE_V, {columns, line->heads_kv, line->head_dim_v}},
        {TESS_CASE_BIAS, {rows, line->heads_q, columns}},
        {TESS_CASE_SLOPES, {1, line->heads_q, 1}},
        {TESS_CASE_SINK, {1, line->heads_q, 1}},
        {TESS_CASE_D_O, {rows, line->heads_q, line->head_dim_v}},
        {TESS_CASE_D_LSE, {rows, line->heads_q, 1}},
    };

    for (size_t t = 0; t < sizeof tensors / sizeof *tensors; t++)
        copy_tensor(from, from_sequence, to, to_sequence, tensors[t].which, tensors[t].extent);
}

void tess_scene_clean(tess_scene *scene)
{
    static const int floats[] = {TESS_CASE_Q,    TESS_CASE_K,      TESS_CASE_V,
                                 TESS_CASE_BIAS, TESS_CASE_SLOPES, TESS_CASE_SINK};

    for (size_t i = 0; i < sizeof floats / sizeof *floats; i++) {
        tess_tensor *t = &scene->c.tensor[floats[i]];

        if (!t->is_present || t->buffer.is_sparse)
            continue;
        for (size_t at = 0; at < t->buffer.size; at += t->element_size)
            if (!isfinite(tess_number_load(t->layout.dtype, t->buffer.data + at)))
                tess_number_store(t->layout.dtype, t->buffer.data + at, 0);
        note_hash(scene, floats[i]);
    }
}

/* ---- Running --------------------------------------------------------------------------------- */

static bool check(tess_scene *scene, tess_status status, const char *what)
{
    char text[1024];

    if (status == TESS_OK)
        return true;
    tess_context_error(NULL, text, sizeof text);
    tess_scene_fail(scene, "%s: %s", what, text);
    return false;
}

static tess_status plan(tess_scene *scene)
{
    tess_case *c = &scene->c;
    tess_device *device = scene->subject->device;

    return c->line.backward
               ? tess_plan_create_backward(device, &c->desc, &c->gradients, &scene->plan)
               : tess_plan_create_forward(device, &c->desc, &scene->plan);
}

static tess_status launch(tess_scene *scene)
{
    const tess_forward_args forward = tess_case_forward_args(&scene->c, true);

    if (scene->c.line.backward) {
        const tess_backward_args backward = tess_case_backward_args(&scene->c);

        return tess_plan_run_backward(scene->plan, scene->queue, &backward);
    }
    return tess_plan_run_forward(scene->plan, scene->queue, &forward);
}

/* Tensors on the device, outputs fresh; of a backward line O and LSE made. */
static bool begin(tess_scene *scene)
{
    char why[1024] = "";
    tess_text reason = tess_text_in(why, sizeof why);
    tess_case *c = &scene->c;
    tess_device *device = scene->subject->device;

    tess_case_drop(c, device);
    if (!tess_case_upload(c, device, scene->queue, &reason) ||
        (c->line.backward && tess_case_run_forward(c, device, scene->queue, &reason) != TESS_OK) ||
        !tess_case_reset(c, scene->queue, &reason)) {
        tess_scene_fail(scene, "%s", why);
        return false;
    }
    return true;
}

bool tess_scene_run(tess_scene *scene)
{
    char why[1024] = "";
    tess_text reason = tess_text_in(why, sizeof why);
    tess_device *device = scene->subject->device;

    if (!scene->plan && !check(scene, plan(scene), "tess_plan_create"))
        return false;
    if (!scene->queue &&
        !check(scene, tess_queue_create(device, &scene->queue), "tess_queue_create"))
        return false;
    if (!begin(scene) || !check(scene, launch(scene), "tess_plan_run") ||
        !check(scene, tess_queue_wait(scene->queue), "tess_queue_wait"))
        return false;
    if (!tess_case_download(&scene->c, scene->queue, &reason)) {
        tess_scene_fail(scene, "%s", why);
        return false;
    }
    return true;
}

static const char *output_at(const tess_scene *scene, int which, int64_t sequence, int64_t row,
                             int64_t head, int64_t dim)
{
    int64_t batch, seqlen;

    tess_case_row_place(&scene->c, sequence, row, &batch, &seqlen);
    return tess_case_element(&scene->c.tensor[which], batch, seqlen, head, dim);
}

double tess_scene_o(const tess_scene *scene, int64_t sequence, int64_t row, int64_t head,
                    int64_t dim)
{
    return tess_number_load(scene->c.tensor[TESS_CASE_O].layout.dtype,
                            output_at(scene, TESS_CASE_O, sequence, row, head, dim));
}

double tess_scene_lse(const tess_scene *scene, int64_t sequence, int64_t row, int64_t head)
{
    return tess_number_load(TESS_F32, output_at(scene, TESS_CASE_LSE, sequence, row, head, 0));
}

/* ---- Judging --------------------------------------------------------------------------------- */

static tess_comparison compare_forward(const tess_scene *scene, tess_text *reason)
{
    const tess_forward_args args = tess_case_host_forward_args(&scene->c);
    const tess_oracle_options options = {.wants_naive = true};
    tess_comparison comparison;
    tess_oracle oracle;

    if (!tess_oracle_forward(&scene->c.desc, &args, &options, &oracle))
        give_up("tess_oracle_forward", "no memory");
    comparison = tess_compare_forward(&scene->c, &oracle, true, reason);
    tess_oracle_release(&oracle);
    return comparison;
}

static tess_comparison compare_backward(const tess_scene *scene, tess_text *reason)
{
    const tess_backward_args args = tess_case_host_backward_args(&scene->c);
    const tess_oracle_options options = {.wants_naive = true};
    const tess_case *c = &scene->c;
    tess_comparison comparison;
    tess_oracle_gradients oracle;

    if (!tess_oracle_backward(&c->desc, &c->gradients, &args, &options, &oracle))
        give_up("tess_oracle_backward", "no memory");
    comparison = tess_compare_backward(c, &oracle, reason);
    tess_oracle_gradients_release(&oracle);
    return comparison;
}

bool tess_scene_is_right(tess_scene *scene)
{
    char why[2048] = "";
    tess_text reason = tess_text_in(why, sizeof why);
    const tess_comparison comparison =
        scene->c.line.backward ? compare_backward(scene, &reason) : compare_forward(scene, &reason);

    if (!comparison.is_good)
        tess_scene_fail(scene, "the oracle disagrees\n%s", why);
    return comparison.is_good;
}

bool tess_scene_same_gradients(const tess_scene *a, int64_t sequence_a, const tess_scene *b,
                               int64_t sequence_b, const char *what)
{
    static const int gradients[] = {TESS_CASE_DQ, TESS_CASE_DK, TESS_CASE_DV};

    for (size_t g = 0; g < sizeof gradients / sizeof *gradients; g++) {
        const int which = gradients[g];
        const tess_tensor *t = &a->c.tensor[which];
        const int64_t rows = which == TESS_CASE_DQ
                                 ? tess_shape_used_rows(&a->c.line, sequence_a)
                                 : tess_shape_used_columns(&a->c.line, sequence_a);

        for (int64_t i = 0; i < rows; i++)
            for (int64_t h = 0; h < t->layout.heads; h++)
                for (int64_t d = 0; d < t->layout.head_dim; d++) {
                    const tess_place in_a = {sequence_a, h, i, d}, in_b = {sequence_b, h, i, d};

                    if (tess_number_bits(t->layout.dtype, element_at(a, which, in_a)) ==
                        tess_number_bits(t->layout.dtype, element_at(b, which, in_b)))
                        continue;
                    tess_scene_fail(a,
                                    "%s: %s of sequence %" PRId64 ", row %" PRId64 ", head %" PRId64
                                    ", dim %" PRId64 " is %.9g and not %.9g",
                                    what, t->name, sequence_a, i, h, d,
                                    tess_scene_get(a, which, in_a), tess_scene_get(b, which, in_b));
                    return false;
                }
    }
    return true;
}

bool tess_scene_same_bits(const tess_scene *a, int64_t sequence_a, const tess_scene *b,
                          int64_t sequence_b, const char *what)
{
    const int64_t rows = tess_shape_used_rows(&a->c.line, sequence_a);
    const tess_dtype dtype = a->c.tensor[TESS_CASE_O].layout.dtype;

    for (int64_t i = 0; i < rows; i++)
        for (int64_t h = 0; h < a->c.line.heads_q; h++)
            for (int64_t d = -1; d < a->c.line.head_dim_v; d++) {
                const int which = d < 0 ? TESS_CASE_LSE : TESS_CASE_O;
                const int64_t dim = d < 0 ? 0 : d;
                const tess_dtype type = d < 0 ? TESS_F32 : dtype;
                const char *at_a = output_at(a, which, sequence_a, i, h, dim);
                const char *at_b = output_at(b, which, sequence_b, i, h, dim);

                if (tess_number_bits(type, at_a) == tess_number_bits(type, at_b))
                    continue;
                tess_scene_fail(a,
                                "%s: %s of sequence %" PRId64 ", row %" PRId64 ", head %" PRId64
                                ", dim %" PRId64 " is %.9g and not %.9g",
                                what, d < 0 ? "LSE" : "O", sequence_a, i, h, dim,
                                tess_number_load(type, at_a), tess_number_load(type, at_b));
                return false;
            }
    return true;
}

double tess_scene_allows(const tess_scene *scene, double score, double value, double expected)
{
    const tess_budget *budget = tess_budget_of(scene->c.line.dtype, scene->c.line.flags);

    return budget->a * value + budget->r * fabs(expected) + budget->score * score * value;
}

double tess_scene_allows_lse(const tess_scene *scene, double expected)
{
    const tess_budget *budget = tess_budget_of(scene->c.line.dtype, scene->c.line.flags);

    return budget->lse_a + budget->lse_r * fabs(expected);
}

static double apart(double a, double b)
{
    if (a == b || (isnan(a) && isnan(b)))
        return 0;
    return isfinite(a) && isfinite(b) ? fabs(a - b) : (double)INFINITY;
}

double tess_scene_distance(const tess_scene *a, const tess_scene *b)
{
    double worst = 0;

    for (int64_t s = 0; s < a->c.line.batch; s++)
        for (int64_t i = 0; i < tess_shape_used_rows(&a->c.line, s); i++)
            for (int64_t h = 0; h < a->c.line.heads_q; h++)
                for (int64_t d = 0; d < a->c.line.head_dim_v; d++)
                    worst = fmax(worst,
                                 apart(tess_scene_o(a, s, i, h, d), tess_scene_o(b, s, i, h, d)));
    return worst;
}

double tess_scene_distance_lse(const tess_scene *a, const tess_scene *b)
{
    double worst = 0;

    for (int64_t s = 0; s < a->c.line.batch; s++)
        for (int64_t i = 0; i < tess_shape_used_rows(&a->c.line, s); i++)
            for (int64_t h = 0; h < a->c.line.heads_q; h++)
                worst = fmax(worst, apart(tess_scene_lse(a, s, i, h), tess_scene_lse(b, s, i, h)));
    return worst;
}

/* ---- Running tests --------------------------------------------------------------------------- */

/* The tests of one program. */
typedef struct program {
    const tess_scene_test *tests;
    size_t count;
    const char *only; /* one test's name, or NULL */
} program;

static int run_all(const tess_subject *subject, void *user)
{
    const program *p = user;
    const int before = failures;
    int ran = 0;

    running_on = subject;
    for (size_t i = 0; i < p->count; i++) {
        if (p->only && strcmp(p->only, p->tests[i].name) != 0)
            continue;
        running = p->tests[i].name;
        failures_here = 0;
        p->tests[i].run(subject);
        if (failures_here > MOST_SHOWN)
            printf("FAIL %s on %s: %d failures in all\n", running, subject->label, failures_here);
        ran++;
        fflush(stdout);
    }
    printf("%d tests on %s, %d failures\n", ran, subject->label, failures - before);
    return failures > before ? TESS_TEST_FAILED : TESS_TEST_PASSED;
}

int tess_scene_main(const tess_scene_test *tests, size_t count, int argc, char **argv)
{
    program p = {tests, count, argc > 2 ? argv[2] : NULL};

    return tess_subjects_each(argc > 1 ? argv[1] : NULL, run_all, &p);
}
