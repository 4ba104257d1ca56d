/* SPDX-License-Identifier: Apache-2.0
 * Descriptors and arguments full of garbage: never a crash, and what is refused writes nothing. */
#include "tests/kit/case.h"
#include "tests/kit/generate.h"
#include "tests/kit/random.h"
#include "tests/kit/shape.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { SECONDS = 4, MOST_FAILURES = 10, TEXT_SIZE = 8192 };

static int failures;
static long tried, planned, ran;

static void fail(const char *what)
{
    char text[TEXT_SIZE] = "";

    tess_context_error(NULL, text, sizeof text);
    if (failures++ < MOST_FAILURES)
        printf("FAIL descriptor: %s (turn %ld, last error \"%.300s\")\n", what, tried, text);
}

/* ---- Garbage --------------------------------------------------------------------------------- */

/* Numbers that overflow, are off by one, or are merely odd. */
static uint64_t odd_number(tess_random *random)
{
    static const uint64_t odd[] = {0,
                                   1,
                                   2,
                                   3,
                                   7,
                                   64,
                                   UINT64_MAX,
                                   UINT64_MAX - 1,
                                   INT64_MAX,
                                   (uint64_t)INT64_MAX + 1,
                                   INT32_MAX,
                                   (uint64_t)INT32_MAX + 1,
                                   UINT32_MAX,
                                   UINT64_C(1) << 40,
                                   UINT64_C(1) << 59,
                                   UINT64_C(1) << 60,
                                   UINT64_C(1) << 62,
                                   0x7F800000,
                                   0xFF800000,
                                   0x7FC00000,
                                   65537};

    if (tess_random_once_in(random, 5))
        return tess_random_next(random);
    if (tess_random_once_in(random, 3))
        return (uint64_t)tess_random_below(random, 40);
    return odd[tess_random_below(random, sizeof odd / sizeof *odd)];
}

/* Overwrites some aligned words of a struct, its first member, the size, excepted most of the time.
 * Pointers among them are put back by the caller. */
static void scribble(tess_random *random, void *at, size_t size, size_t first)
{
    const int64_t changes = 1 + tess_random_below(random, 3);

    for (int64_t i = 0; i < changes; i++) {
        const uint64_t number = odd_number(random);
        const size_t width = size - first >= 8 && tess_random_once_in(random, 2) ? 8 : 4;
        const size_t word = (size_t)tess_random_below(random, (int64_t)((size - first) / width));

        memcpy((char *)at + first + word * width, &number, width);
    }
}

/* A descriptor and everything it points to. */
typedef struct description {
    tess_attention_desc desc;
    tess_varlen varlen;
    tess_paging paging;
    tess_bias bias;
    tess_scaling scaling;
    tess_program program;
    tess_gradient_desc gradients;
} description;

static void take(const tess_case *c, description *d)
{
    memset(d, 0, sizeof *d);
    d->desc = c->desc;
    d->varlen = c->varlen;
    d->paging = c->paging;
    d->bias = c->bias;
    d->scaling = (tess_scaling){TESS_STRUCT(tess_scaling)};
    d->program = (tess_program){TESS_STRUCT(tess_program)};
    d->gradients = c->gradients;
    if (!d->gradients.struct_size)
        d->gradients.struct_size = sizeof d->gradients;
    if (!d->varlen.struct_size)
        d->varlen.struct_size = sizeof d->varlen;
    if (!d->paging.struct_size)
        d->paging.struct_size = sizeof d->paging;
    if (!d->bias.struct_size)
        d->bias.struct_size = sizeof d->bias;
}

/* Points the descriptor at its parts: those of the case, or any. */
static void connect(tess_random *random, const tess_case *c, description *d, bool is_any)
{
    tess_attention_desc *desc = &d->desc;

    desc->varlen = c->desc.varlen ? &d->varlen : NULL;
    desc->paging = c->desc.paging ? &d->paging : NULL;
    desc->bias = c->desc.bias ? &d->bias : NULL;
    desc->scaling = NULL;
    desc->program = NULL;
    if (!is_any)
        return;
    desc->varlen = tess_random_once_in(random, 2) ? &d->varlen : desc->varlen;
    desc->paging = tess_random_once_in(random, 3) ? &d->paging : desc->paging;
    desc->bias = tess_random_once_in(random, 2) ? &d->bias : desc->bias;
    desc->scaling = tess_random_once_in(random, 6) ? &d->scaling : NULL;
    desc->program = tess_random_once_in(random, 9) ? &d->program : NULL;
}

static void spoil(tess_random *random, description *d)
{
    const struct {
        void *at;
        size_t size;
    } parts[] = {{&d->desc, sizeof d->desc},       {&d->desc, sizeof d->desc},
                 {&d->desc, sizeof d->desc},       {&d->varlen, sizeof d->varlen},
                 {&d->paging, sizeof d->paging},   {&d->bias, sizeof d->bias},
                 {&d->scaling, sizeof d->scaling}, {&d->gradients, sizeof d->gradients}};
    const int64_t which = tess_random_below(random, sizeof parts / sizeof *parts);

    scribble(random, parts[which].at, parts[which].size, tess_random_once_in(random, 30) ? 0 : 8);
    /* Host copies are addresses: there or not, nothing in between. */
    d->varlen.host_cu_seqlens_q = d->varlen.host_cu_seqlens_k = NULL;
    d->varlen.host_seqused_q = d->varlen.host_seqused_k = NULL;
}

/* ---- Trying ---------------------------------------------------------------------------------- */

/* Whether all tensors of a case lie where and as its own descriptor says: only then do a plan's
 * strides stay within the buffers, and may it be run. */
static bool is_same_memory(const tess_case *c, const description *d)
{
    const tess_attention_desc *a = &c->desc, *b = &d->desc;

    return memcmp(&a->q, &b->q, sizeof a->q) == 0 && memcmp(&a->k, &b->k, sizeof a->k) == 0 &&
           memcmp(&a->v, &b->v, sizeof a->v) == 0 && memcmp(&a->o, &b->o, sizeof a->o) == 0 &&
           memcmp(&a->lse, &b->lse, sizeof a->lse) == 0 && !b->varlen == !a->varlen &&
           (!c->line.backward || memcmp(&c->gradients, &d->gradients, sizeof c->gradients) == 0) &&
           !b->paging == !a->paging && !b->bias == !a->bias &&
           (!a->varlen || memcmp(&c->varlen, &d->varlen, sizeof c->varlen) == 0) &&
           (!a->paging || memcmp(&c->paging, &d->paging, sizeof c->paging) == 0) &&
           (!a->bias || memcmp(&c->bias, &d->bias, sizeof c->bias) == 0);
}

/* What the outputs hold, in one number. */
static uint64_t fingerprint(const tess_case *c)
{
    uint64_t all = 0;

    for (int i = 0; i < TESS_CASE_TENSORS; i++)
        if (c->tensor[i].is_present && c->tensor[i].is_output)
            all = tess_random_mix(all, tess_tensor_hash(&c->tensor[i]));
    return all;
}

static bool are_intact(const tess_case *c)
{
    for (int i = 0; i < TESS_CASE_TENSORS; i++)
        if (c->tensor[i].is_present && !tess_buffer_is_intact(&c->tensor[i].buffer))
            return false;
    return true;
}

/* One input moved, removed or given where none is wanted. */
static void spoil_input(tess_random *random, tess_in *input, const tess_tensor *output)
{
    switch (tess_random_below(random, 3)) {
    case 0:
        *input = (tess_in){NULL, 0};
        break;
    case 1: /* one that the plan wants cannot lie where an output does; another is refused */
        *input = (tess_in){output->buffer.data, 0};
        break;
    default:
        input->offset += 1;
        break;
    }
}

/* An output moved onto another or removed. */
static void spoil_output(tess_random *random, tess_out *output, const tess_out *other)
{
    *output = tess_random_once_in(random, 2) ? *other : (tess_out){NULL, 0};
}

static void spoil_forward(tess_random *random, const tess_case *c, tess_forward_args *args)
{
    tess_in *const inputs[] = {&args->q,
                               &args->k,
                               &args->v,
                               &args->cu_seqlens_q,
                               &args->cu_seqlens_k,
                               &args->seqused_q,
                               &args->seqused_k,
                               &args->page_table,
                               &args->bias,
                               &args->alibi_slopes,
                               &args->sink,
                               &args->q_descale};
    const int64_t which = tess_random_below(random, sizeof inputs / sizeof *inputs);

    if (c->tensor[TESS_CASE_O].buffer.size == 0)
        return; /* nothing overlaps what is empty */
    if (tess_random_once_in(random, 4))
        args->workspace_size = 1;
    else if (tess_random_once_in(random, 3))
        spoil_output(random, &args->o, &args->lse);
    else
        spoil_input(random, inputs[which], &c->tensor[TESS_CASE_O]);
}

static void spoil_backward(tess_random *random, const tess_case *c, tess_backward_args *args)
{
    tess_in *const inputs[] = {&args->q,
                               &args->k,
                               &args->v,
                               &args->o,
                               &args->lse,
                               &args->d_o,
                               &args->cu_seqlens_q,
                               &args->cu_seqlens_k,
                               &args->seqused_q,
                               &args->seqused_k,
                               &args->bias,
                               &args->alibi_slopes,
                               &args->sink,
                               &args->v_descale};
    const int64_t which = tess_random_below(random, sizeof inputs / sizeof *inputs);

    /* nothing overlaps what is empty, and no library can tell that a good address was meant */
    if (!c->tensor[TESS_CASE_DV].is_present || c->tensor[TESS_CASE_DV].buffer.size == 0 ||
        !c->tensor[TESS_CASE_DQ].is_present || c->tensor[TESS_CASE_DQ].buffer.size == 0)
        return;
    if (tess_random_once_in(random, 4))
        args->workspace_size = 1;
    else if (tess_random_once_in(random, 3))
        spoil_output(random, &args->dv, &args->dq);
    else
        spoil_input(random, inputs[which], &c->tensor[TESS_CASE_DV]);
}

/* Runs a plan of the case itself: as it is, and with spoiled arguments, which must be refused with
 * nothing written unless they are still good. */
static void run(tess_random *random, tess_case *c, const tess_plan *plan, tess_queue *queue)
{
    const bool is_spoiled = tess_random_once_in(random, 2);
    tess_forward_args forward = tess_case_forward_args(c, true);
    tess_backward_args backward = tess_case_backward_args(c);
    tess_status status;
    uint64_t before;

    tess_case_prefill(c);
    before = fingerprint(c);
    if (is_spoiled) {
        spoil_forward(random, c, &forward);
        spoil_backward(random, c, &backward);
    }
    status = c->line.backward ? tess_plan_run_backward(plan, queue, &backward)
                              : tess_plan_run_forward(plan, queue, &forward);
    if (status != TESS_OK && fingerprint(c) != before)
        fail("a refused run wrote something");
    if (!are_intact(c))
        fail("a run wrote in front of a tensor");
    ran += status == TESS_OK;
}

/* Index arrays with a wrong number in them: the CPU must see it before it follows it. */
static void spoil_indices(tess_random *random, tess_case *c)
{
    static const int arrays[] = {TESS_CASE_CU_Q, TESS_CASE_CU_K, TESS_CASE_USED_Q, TESS_CASE_USED_K,
                                 TESS_CASE_TABLE};
    tess_tensor *t = &c->tensor[arrays[tess_random_below(random, sizeof arrays / sizeof *arrays)]];

    if (t->is_present && t->buffer.size > 0)
        scribble(random, t->buffer.data, t->buffer.size, 0);
}

/* Whether a plan may be refused: garbage may, and paged gradients. */
static bool may_refuse(const tess_case *c, bool is_spoiled, tess_status status)
{
    return is_spoiled || (c->line.backward && c->line.page_size && status == TESS_UNSUPPORTED);
}

static void try_one(tess_random *random, tess_device *device, tess_queue *queue, tess_case *c)
{
    description d;
    tess_plan *const mark = (tess_plan *)(uintptr_t)64;
    tess_plan *plan = mark;
    tess_status status;
    const bool is_spoiled = !tess_random_once_in(random, 3);

    tried++;
    take(c, &d);
    if (is_spoiled)
        spoil(random, &d);
    connect(random, c, &d, is_spoiled && tess_random_once_in(random, 4));
    status = c->line.backward ? tess_plan_create_backward(device, &d.desc, &d.gradients, &plan)
                              : tess_plan_create_forward(device, &d.desc, &plan);
    if (status != TESS_OK) {
        if (plan != mark)
            fail("a refused plan was written");
        if (status == TESS_INTERNAL)
            fail("TESS_INTERNAL");
        if (!may_refuse(c, is_spoiled, status))
            fail("a good descriptor was refused");
        return;
    }
    planned++;
    tess_plan_workspace_size(plan);
    tess_plan_describe(plan, NULL, 0);
    if (is_same_memory(c, &d) && tess_plan_workspace_size(plan) < (size_t)1 << 26) {
        if (tess_random_once_in(random, 3))
            spoil_indices(random, c);
        run(random, c, plan, queue);
    }
    tess_plan_destroy(plan);
}

/* A random problem that is cheap and that every CPU takes. */
static void draw(tess_random *random, tess_line *line)
{
    do
        tess_generate_any_line(tess_random_next(random) >> 30, line);
    while (tess_shape_is_fp8(line->dtype) || line->layout == TESS_LAYOUT_SPARSE ||
           tess_line_cost(line) > 2e5);
}

/* A backward line needs the outputs of its forward pass; true for others. */
static bool has_outputs(tess_case *c, tess_device *device, tess_queue *queue)
{
    return !c->line.backward || tess_case_run_forward(c, device, queue, NULL) == TESS_OK;
}

int main(void)
{
    const char *seconds = getenv("TESSERA_FUZZ_SECONDS");
    const time_t end = time(NULL) + (seconds ? atoi(seconds) : SECONDS);
    tess_random random = tess_random_start(1, 0xDE5C);
    tess_context *context = NULL;
    tess_device *device = NULL;
    tess_queue *queue = NULL;

    if (tess_context_create(NULL, &context) != TESS_OK ||
        tess_device_open(context, "cpu", &device) != TESS_OK ||
        tess_queue_create(device, &queue) != TESS_OK) {
        printf("skipped: there is no cpu device\n");
        tess_context_destroy(context);
        return 77;
    }
    for (int turn = 0; failures == 0 && (turn < 20 || time(NULL) < end); turn++) {
        tess_case *c = calloc(1, sizeof *c);
        tess_line line;

        draw(&random, &line);
        if (c && tess_case_make(&line, c, NULL) && has_outputs(c, device, queue))
            for (int i = 0; i < 40; i++)
                try_one(&random, device, queue, c);
        if (c)
            tess_case_free(c);
        free(c);
    }
    printf("%ld descriptors, %ld planned, %ld run, %d failures\n", tried, planned, ran, failures);
    tess_queue_destroy(queue);
    tess_context_destroy(context);
    return failures || ran == 0;
}
