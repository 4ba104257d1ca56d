/* SPDX-License-Identifier: Apache-2.0
 * The backward pass: no backend has one, so each must refuse it with a reason and write nothing. */
#include "tests/conformance/subject.h"
#include "tests/kit/case.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const lines[] = {
    "fwd b1 hq1 q16 k16 d64 f32",
    "fwd b2 hq4 hk2 q16 k70 d128 bf16 causal",
    "fwd b2 hq4 hk2 q5 k70 d40 dv72 f16 window=3,0 softcap=3 sink alibi bias",
    "fwd hq4 hk2 lensq=3,0,5 lensk=9,4,5 d64 f16 causal deterministic",
    "fwd b2 hq4 hk1 q1 k70 usedk=70,3 page=16 d64 bf16",
    "fwd b2 hq2 q0 k0 d8 f32",
};

/* The gradients that a user may ask for. */
static const uint32_t wanted[] = {
    0,
    TESS_GRADIENT_Q,
    TESS_GRADIENT_K | TESS_GRADIENT_V,
    TESS_GRADIENT_Q | TESS_GRADIENT_K | TESS_GRADIENT_V | TESS_GRADIENT_FROM_LSE,
};

static bool make(const char *text, tess_case *c)
{
    char why[1024];
    tess_text reason = tess_text_in(why, sizeof why);
    tess_line line;

    if (tess_line_read(text, &line, &reason) == TESS_OK && tess_case_make(&line, c, &reason))
        return true;
    printf("FAIL c700_backward: \"%s\": %s\n", text, why);
    return false;
}

/* A refusal names the problem and gives a reason; the plan stays what it was. */
static int refuse(const tess_subject *subject, const tess_case *c, const char *text, uint32_t bits)
{
    const tess_gradient_desc gradients = {TESS_STRUCT(tess_gradient_desc), .wanted = bits};
    tess_plan *const mark = (tess_plan *)(uintptr_t)64;
    tess_plan *plan = mark;
    char why[8192] = "";
    const tess_status status =
        tess_plan_create_backward(subject->device, &c->desc, bits ? &gradients : NULL, &plan);

    tess_context_error(subject->context, why, sizeof why);
    if (status == TESS_UNSUPPORTED && plan == mark && strstr(why, "bwd") && strstr(why, "\n"))
        return 0;
    printf("FAIL c700_backward on %s: \"%s\", gradients 0x%x: %s%s, text \"%s\"\n", subject->label,
           text, bits, tess_status_name(status), plan == mark ? "" : ", plan was written", why);
    return 1;
}

static bool is_as_filled(const tess_case *c, const uint64_t before[TESS_CASE_TENSORS])
{
    for (int i = 0; i < TESS_CASE_TENSORS; i++)
        if (c->tensor[i].is_present && tess_tensor_hash(&c->tensor[i]) != before[i])
            return false;
    return true;
}

/* A forward plan is no backward plan, and running it as one writes nothing. */
static int run_forward_plan(const tess_subject *subject, tess_case *c, const char *text)
{
    uint64_t before[TESS_CASE_TENSORS];
    tess_backward_args args = {TESS_STRUCT(tess_backward_args)};
    tess_plan *plan = NULL;
    tess_queue *queue = NULL;
    tess_status status = tess_plan_create_forward(subject->device, &c->desc, &plan);
    int failed = 0;

    for (int i = 0; i < TESS_CASE_TENSORS; i++)
        before[i] = c->tensor[i].is_present ? tess_tensor_hash(&c->tensor[i]) : 0;
    if (status == TESS_OK)
        status = tess_queue_create(subject->device, &queue);
    if (status == TESS_OK)
        status = tess_plan_run_backward(plan, queue, &args);
    if (status != TESS_INVALID || !is_as_filled(c, before)) {
        printf("FAIL c700_backward on %s: \"%s\": a forward plan run backward gives %s\n",
               subject->label, text, tess_status_name(status));
        failed = 1;
    }
    tess_plan_destroy(plan);
    tess_queue_destroy(queue);
    return failed;
}

static int run(const tess_subject *subject, void *user)
{
    int failed = 0;

    (void)user;
    for (size_t i = 0; i < sizeof lines / sizeof *lines; i++) {
        tess_case *c = calloc(1, sizeof *c);

        if (!c || !make(lines[i], c)) {
            free(c);
            return TESS_TEST_FAILED;
        }
        for (size_t w = 0; w < sizeof wanted / sizeof *wanted; w++)
            failed += refuse(subject, c, lines[i], wanted[w]);
        failed += run_forward_plan(subject, c, lines[i]);
        tess_case_free(c);
        free(c);
    }
    printf("c700_backward on %s: %zu problems refused, %d wrong\n", subject->label,
           sizeof lines / sizeof *lines, failed);
    return failed ? TESS_TEST_FAILED : TESS_TEST_PASSED;
}

int main(int argc, char **argv)
{
    return tess_subjects_each(argc > 1 ? argv[1] : NULL, run, NULL);
}
