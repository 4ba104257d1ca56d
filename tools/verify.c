/* SPDX-License-Identifier: Apache-2.0
 * Results of tessera run against float64 attention and against the answer in the input file. */
#include "tools/verify.h"

#include "tests/kit/compare.h"
#include "tests/kit/number.h"
#include "tools/json.h"
#include "tools/progress.h"

#include <inttypes.h>
#include <math.h>

/* Multiply-adds of the reference after which rows are sampled: about a second of one core. */
#define SAMPLE_BUDGET 1e9

/* Everything one comparison looks at. */
typedef struct comparing {
    const tool_job *job;
    const tess_oracle *oracle;
    tess_budget budget;
} comparing;

static double larger(double a, double b)
{
    return a > b ? a : b;
}

/* The budget of the inputs' type and of the output's, whichever is wider. */
static tess_budget budget_of(const tess_attention_desc *desc)
{
    const tess_budget *const in = tess_budget_of(desc->q.dtype, desc->flags);
    const tess_budget *const out = tess_budget_of(desc->o.dtype, desc->flags);
    tess_budget budget = *in;

    budget.a = larger(in->a, out->a);
    budget.r = larger(in->r, out->r);
    return budget;
}

/* What an element of O may be off by: the bound that the kit states for whole test cases. */
static double allowance(const comparing *c, const tess_oracle_row *row, double expected)
{
    const tess_budget *const b = &c->budget;

    if (row->columns == 0)
        return 0;
    return b->a * row->value_scale + b->r * fabs(expected) +
           b->score * row->magnitude * row->value_scale + tess_number_least(c->job->desc.o.dtype);
}

static double lse_allowance(const comparing *c, double expected)
{
    return isfinite(expected) ? c->budget.lse_a + c->budget.lse_r * fabs(expected) : 0;
}

static bool is_same_nonfinite(double got, double expected)
{
    return isnan(expected) ? isnan(got) : !isfinite(expected) && got == expected;
}

/* Adds one element to a finding. */
static void look(tool_finding *f, const int64_t at[4], double got, double expected, double allowed)
{
    const bool is_same = is_same_nonfinite(got, expected);
    const double error = is_same                               ? 0
                         : isfinite(got) && isfinite(expected) ? fabs(got - expected)
                                                               : (double)INFINITY;
    /* Worst is what strays furthest for what it is allowed; a tie goes to the first. */
    const bool is_worse =
        f->elements == 0 || error * larger(f->allowed, 1e-300) > f->error * larger(allowed, 1e-300);

    f->elements++;
    f->wrong += error > allowed;
    f->largest_error = larger(f->largest_error, error);
    if (!is_worse)
        return;
    for (int i = 0; i < 4; i++)
        f->at[i] = at[i];
    f->error = error;
    f->allowed = allowed;
    f->got = got;
    f->expected = expected;
}

static double element(const tool_tensor *tensor, const tess_layout *layout, const int64_t at[4])
{
    return tool_tensor_value(tensor, at[0] * layout->batch_stride + at[1] * layout->head_stride +
                                         at[2] * layout->seqlen_stride +
                                         at[3] * layout->dim_stride);
}

static const tess_oracle_row *row_at(const tess_oracle *o, const int64_t at[4])
{
    return &o->row[(at[0] * o->seqlen + at[2]) * o->heads + at[1]];
}

/* Steps to the next row (b, h, i); false behind the last. */
static bool next_row(const tess_layout *o, int64_t at[4])
{
    if (++at[2] < o->seqlen)
        return true;
    at[2] = 0;
    if (++at[1] < o->heads)
        return true;
    at[1] = 0;
    return ++at[0] < o->batch;
}

/* ---- Against float64 ------------------------------------------------------------------------- */

static void compare_o(const comparing *c, tool_finding *f)
{
    const tess_oracle *const oracle = c->oracle;
    const tess_layout *const o = &c->job->desc.o;
    int64_t at[4] = {0, 0, 0, 0};

    if (o->batch * o->heads * o->seqlen == 0)
        return;
    do {
        const tess_oracle_row *const row = row_at(oracle, at);

        if (row->state != TESS_ROW_KNOWN)
            continue;
        for (at[3] = 0; at[3] < o->head_dim; at[3]++) {
            const double expected =
                oracle->o[((at[0] * o->seqlen + at[2]) * o->heads + at[1]) * o->head_dim + at[3]];

            look(f, at, element(&c->job->o, o, at), expected, allowance(c, row, expected));
        }
        at[3] = 0;
    } while (next_row(o, at));
}

static void compare_lse(const comparing *c, tool_finding *f)
{
    const tess_layout *const o = &c->job->desc.o;
    int64_t at[4] = {0, 0, 0, -1};

    if (o->batch * o->heads * o->seqlen == 0)
        return;
    do {
        const tess_oracle_row *const row = row_at(c->oracle, at);

        if (row->state == TESS_ROW_KNOWN)
            look(f, at,
                 tool_tensor_value(&c->job->lse, (at[0] * o->heads + at[1]) * o->seqlen + at[2]),
                 row->lse, lse_allowance(c, row->lse));
    } while (next_row(o, at));
}

/* ---- Against the answer in the file ---------------------------------------------------------- */

/* The answer was computed by somebody with roundings of their own: both may be off. */
static void compare_expected_o(const comparing *c, const tess_layout *layout, tool_finding *f)
{
    const tool_job *const job = c->job;
    const tess_budget *const theirs = tess_budget_of(layout->dtype, job->desc.flags);
    const tess_layout *const o = &job->desc.o;
    int64_t at[4] = {0, 0, 0, 0};

    if (o->batch * o->heads * o->seqlen == 0)
        return;
    do {
        const tess_oracle_row *const row = row_at(c->oracle, at);

        if (row->state != TESS_ROW_KNOWN)
            continue;
        for (at[3] = 0; at[3] < o->head_dim; at[3]++) {
            const double expected = element(&job->expected_o, layout, at);
            const double ours = allowance(c, row, expected);
            const double other =
                row->columns == 0 ? 0 : theirs->a * row->value_scale + theirs->r * fabs(expected);

            look(f, at, element(&job->o, o, at), expected, ours + larger(ours, other));
        }
        at[3] = 0;
    } while (next_row(o, at));
}

static void compare_expected_lse(const comparing *c, tool_finding *f)
{
    const tess_layout *const o = &c->job->desc.o;
    const tool_tensor *const theirs = &c->job->expected_lse;
    int64_t at[4] = {0, 0, 0, -1};

    if (o->batch * o->heads * o->seqlen == 0)
        return;
    do {
        const int64_t index = (at[0] * o->heads + at[1]) * o->seqlen + at[2];
        const double expected = tool_tensor_value(theirs, index);

        if (row_at(c->oracle, at)->state == TESS_ROW_KNOWN)
            look(f, at, tool_tensor_value(&c->job->lse, index), expected,
                 2 * lse_allowance(c, expected));
    } while (next_row(o, at));
}

/* Whether an answer has the extents of the result. */
static int check_expected(const tool_job *job, tess_layout *out_layout)
{
    const tess_layout *const o = &job->desc.o;
    char theirs[256], ours[256];
    tess_text their_text = tess_text_in(theirs, sizeof theirs);
    tess_text our_text = tess_text_in(ours, sizeof ours);

    if (job->expected_o.data &&
        (!tool_job_view(job, &job->expected_o, out_layout) || out_layout->batch != o->batch ||
         out_layout->seqlen != o->seqlen || out_layout->heads != o->heads ||
         out_layout->head_dim != o->head_dim)) {
        tool_tensor_write_shape(job->expected_o.shape, job->expected_o.rank, &their_text);
        tool_tensor_write_shape(job->o.shape, job->o.rank, &our_text);
        return tool_fail(TOOL_USAGE, "the expected output has shape %s but the result has %s",
                         theirs, ours);
    }
    if (job->expected_lse.data &&
        job->expected_lse.size / tess_dtype_size(job->expected_lse.dtype) !=
            job->lse.size / sizeof(float))
        return tool_fail(TOOL_USAGE, "the expected lse has %zu elements but the result has %zu",
                         job->expected_lse.size / tess_dtype_size(job->expected_lse.dtype),
                         job->lse.size / sizeof(float));
    return TOOL_OK;
}

static tool_finding *add_finding(tool_verdict *verdict, const char *tensor, const char *truth)
{
    tool_finding *const f = &verdict->finding[verdict->count++];

    *f = (tool_finding){.tensor = tensor, .truth = truth};
    return f;
}

int tool_verify(const tool_job *job, bool all_rows, tool_verdict *out)
{
    const tess_forward_args args = tool_job_host_args(job);
    const tess_oracle_options options = {.budget = all_rows ? 0 : SAMPLE_BUDGET};
    tess_layout expected_layout = {0};
    tess_oracle oracle;
    const comparing c = {job, &oracle, budget_of(&job->desc)};
    const double start = tool_clock();
    int result = check_expected(job, &expected_layout);

    *out = (tool_verdict){.is_good = true};
    if (result != TOOL_OK)
        return result;
    if (!tess_oracle_forward(&job->desc, &args, &options, &oracle))
        return tool_fail(TOOL_BROKEN, "no memory for the float64 reference");
    compare_o(&c, add_finding(out, "o", "float64"));
    compare_lse(&c, add_finding(out, "lse", "float64"));
    if (job->expected_o.data)
        compare_expected_o(&c, &expected_layout, add_finding(out, "o", "file"));
    if (job->expected_lse.data)
        compare_expected_lse(&c, add_finding(out, "lse", "file"));
    out->rows = oracle.batch * oracle.seqlen * oracle.heads;
    out->known = oracle.known;
    out->seconds = tool_clock() - start;
    for (int i = 0; i < out->count; i++)
        out->is_good = out->is_good && out->finding[i].wrong == 0;
    tess_oracle_release(&oracle);
    return TOOL_OK;
}

/* ---- Saying it ------------------------------------------------------------------------------- */

static void print_finding(const tool_finding *f, bool is_first)
{
    char name[48];

    snprintf(name, sizeof name, "%s against %s", f->tensor,
             f->truth[0] == 'f' && f->truth[1] == 'l' ? "float64" : "the file's");
    printf("%-10s%-22s ", is_first ? "verify" : "", name);
    if (f->elements == 0) {
        printf("nothing to compare\n");
        return;
    }
    printf("worst error %.2e of %.2e allowed  %s\n", f->error, f->allowed,
           f->wrong ? "FAIL" : "pass");
    if (!f->wrong)
        return;
    printf("%33s%" PRId64 " of %" PRId64 " elements are off; at batch %" PRId64 ", head %" PRId64
           ", row %" PRId64,
           "", f->wrong, f->elements, f->at[0], f->at[1], f->at[2]);
    if (f->at[3] >= 0)
        printf(", dim %" PRId64, f->at[3]);
    printf(": %.9g, expected %.9g\n", f->got, f->expected);
}

void tool_verdict_print(const tool_verdict *verdict)
{
    for (int i = 0; i < verdict->count; i++)
        print_finding(&verdict->finding[i], i == 0);
    if (verdict->known < verdict->rows)
        printf("%10s%" PRId64 " of %" PRId64 " rows compared, the problem is long; --verify-all "
               "compares all\n",
               "", verdict->known, verdict->rows);
    printf("%s\n", verdict->is_good ? "PASS" : "FAIL");
}

json_t *tool_verdict_json(const tool_verdict *verdict)
{
    json_t *object = json_object(), *array = json_array();

    for (int i = 0; i < verdict->count; i++) {
        const tool_finding *const f = &verdict->finding[i];
        json_t *one = json_object(), *at = json_array();

        tool_json_set(one, "tensor", json_string(f->tensor));
        tool_json_set(one, "against", json_string(f->truth));
        tool_json_set(one, "passed", json_boolean(f->wrong == 0));
        tool_json_set(one, "elements", json_integer(f->elements));
        tool_json_set(one, "wrong", json_integer(f->wrong));
        tool_json_set(one, "largest_error", tool_json_real(f->largest_error));
        tool_json_set(one, "worst_error", tool_json_real(f->error));
        tool_json_set(one, "worst_allowed", tool_json_real(f->allowed));
        tool_json_set(one, "worst_got", tool_json_real(f->got));
        tool_json_set(one, "worst_expected", tool_json_real(f->expected));
        for (int axis = 0; axis < (f->at[3] < 0 ? 3 : 4); axis++)
            json_array_append_new(at, json_integer(f->at[axis]));
        tool_json_set(one, "worst_at", at); /* batch, head, row, dim */
        json_array_append_new(array, one);
    }
    tool_json_set(object, "passed", json_boolean(verdict->is_good));
    tool_json_set(object, "rows", json_integer(verdict->rows));
    tool_json_set(object, "rows_compared", json_integer(verdict->known));
    tool_json_set(object, "seconds", tool_json_real(verdict->seconds));
    tool_json_set(object, "findings", array);
    return object;
}
