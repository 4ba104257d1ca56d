/* SPDX-License-Identifier: Apache-2.0
 * Callers of every age: each growing struct shorter, longer, longer and used, and without its size.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <tessera/tessera.h>

enum { ROWS = 4, HEADS = 2, DIM = 16, COUNT = ROWS * HEADS * DIM, NEWER = 24 };

/* One growing struct, inside a call that is right when the struct is as this header has it. */
typedef struct growing {
    const char *type;
    size_t size;
    size_t
        shorter; /* a caller who knows only this much means the same; 0: every member is needed */
    void (*fill)(void *given);
    tess_status (*call)(void *given);
    bool is_output;        /* the library writes it: members it does not know become zero */
    tess_status otherwise; /* what the right call may give instead of TESS_OK, where nothing can
                              serve it yet */
} growing;

static struct {
    tess_context *context;
    tess_device *device;
    tess_queue *queue;
    tess_plan *forward, *backward; /* backward is NULL where no backend has one */
    float q[COUNT], k[COUNT], v[COUNT], o[COUNT], lse[ROWS * HEADS];
    float d_o[COUNT], dq[COUNT], dk[COUNT], dv[COUNT];
} world;

static tess_layout shape(void)
{
    return tess_layout_packed(TESS_F32, 1, ROWS, HEADS, DIM);
}

static tess_layout lse_shape(void)
{
    return tess_layout_by_head(TESS_F32, 1, ROWS, HEADS, 1);
}

static tess_attention_desc attention(void)
{
    return (tess_attention_desc){TESS_STRUCT(tess_attention_desc), .q = shape(), .k = shape(),
                                 .v = shape(), .o = shape()};
}

/* Makes a plan and drops it; the plan must be made exactly when the call says so. */
static tess_status plan(const tess_attention_desc *desc)
{
    tess_plan *made = NULL;
    const tess_status status = tess_plan_create_forward(world.device, desc, &made);

    assert_int_equal(status == TESS_OK, made != NULL);
    tess_plan_destroy(made);
    return status;
}

static void fill_context_desc(void *given)
{
    *(tess_context_desc *)given = (tess_context_desc){TESS_STRUCT(tess_context_desc),
                                                      .backends = "cpu", .log_level = TESS_LOG_OFF};
}

static tess_status call_context_desc(void *given)
{
    tess_context *made = NULL;
    const tess_status status = tess_context_create(given, &made);

    assert_int_equal(status == TESS_OK, made != NULL);
    tess_context_destroy(made);
    return status;
}

static void fill_device_info(void *given)
{
    *(tess_device_info *)given = (tess_device_info){TESS_STRUCT(tess_device_info)};
}

static tess_status call_device_info(void *given)
{
    const tess_status listed = tess_context_device_info(world.context, 0, given);

    assert_int_equal(tess_device_get_info(world.device, given), listed);
    return listed;
}

static void fill_attention_desc(void *given)
{
    *(tess_attention_desc *)given = attention();
}

static tess_status call_attention_desc(void *given)
{
    return plan(given);
}

static void fill_varlen(void *given)
{
    *(tess_varlen *)given =
        (tess_varlen){TESS_STRUCT(tess_varlen), .sequences = 1, .present = TESS_VARLEN_SEQUSED_K};
}

static tess_status call_varlen(void *given)
{
    tess_attention_desc desc = attention();

    desc.varlen = given;
    return plan(&desc);
}

static void fill_paging(void *given)
{
    *(tess_paging *)given = (tess_paging){TESS_STRUCT(tess_paging), .max_pages = 3};
}

static tess_status call_paging(void *given)
{
    tess_attention_desc desc = attention();

    desc.k = desc.v = tess_layout_packed(TESS_F32, 5, 16, HEADS, DIM);
    desc.paging = given;
    return plan(&desc);
}

static void fill_bias(void *given)
{
    *(tess_bias *)given =
        (tess_bias){TESS_STRUCT(tess_bias), .sink_stride = 1, .present = TESS_BIAS_SINK};
}

static tess_status call_bias(void *given)
{
    tess_attention_desc desc = attention();

    desc.bias = given;
    return plan(&desc);
}

static void fill_scaling(void *given)
{
    *(tess_scaling *)given = (tess_scaling){TESS_STRUCT(tess_scaling)};
}

static tess_status call_scaling(void *given)
{
    tess_attention_desc desc = attention();

    desc.q.dtype = desc.k.dtype = desc.v.dtype = TESS_E4M3;
    desc.scaling = given;
    return plan(&desc);
}

static void fill_program(void *given)
{
    *(tess_program *)given = (tess_program){TESS_STRUCT(tess_program), .score = "score"};
}

static tess_status call_program(void *given)
{
    tess_attention_desc desc = attention();

    desc.program = given;
    return plan(&desc);
}

static void fill_gradient_desc(void *given)
{
    *(tess_gradient_desc *)given = (tess_gradient_desc){TESS_STRUCT(tess_gradient_desc)};
}

static tess_status call_gradient_desc(void *given)
{
    const tess_attention_desc desc = attention();
    tess_plan *made = NULL;
    const tess_status status = tess_plan_create_backward(world.device, &desc, given, &made);

    assert_int_equal(status == TESS_OK, made != NULL);
    tess_plan_destroy(made);
    return status;
}

static void fill_forward_args(void *given)
{
    *(tess_forward_args *)given = (tess_forward_args){TESS_STRUCT(tess_forward_args),
                                                      .q.base = world.q,
                                                      .k.base = world.k,
                                                      .v.base = world.v,
                                                      .o.base = world.o,
                                                      .lse.base = world.lse};
}

static tess_status call_forward_args(void *given)
{
    return tess_plan_run_forward(world.forward, world.queue, given);
}

static void fill_backward_args(void *given)
{
    *(tess_backward_args *)given = (tess_backward_args){TESS_STRUCT(tess_backward_args),
                                                        .q.base = world.q,
                                                        .k.base = world.k,
                                                        .v.base = world.v,
                                                        .o.base = world.o,
                                                        .lse.base = world.lse,
                                                        .d_o.base = world.d_o,
                                                        .dq.base = world.dq,
                                                        .dk.base = world.dk,
                                                        .dv.base = world.dv};
}

static tess_status call_backward_args(void *given)
{
    return tess_plan_run_backward(world.backward, world.queue, given);
}

static tess_merge_desc merge(void)
{
    return (tess_merge_desc){TESS_STRUCT(tess_merge_desc), .parts = 1,   .o_part = shape(),
                             .lse_part = lse_shape(),      .o = shape(), .lse = lse_shape()};
}

static tess_merge_args merge_args(void)
{
    return (tess_merge_args){TESS_STRUCT(tess_merge_args), .o_part.base = world.q,
                             .lse_part.base = world.k, .o.base = world.o};
}

static void fill_merge_desc(void *given)
{
    *(tess_merge_desc *)given = merge();
}

static tess_status call_merge_desc(void *given)
{
    const tess_merge_args args = merge_args();

    return tess_queue_merge(world.queue, given, &args);
}

static void fill_merge_args(void *given)
{
    *(tess_merge_args *)given = merge_args();
}

static tess_status call_merge_args(void *given)
{
    const tess_merge_desc desc = merge();

    return tess_queue_merge(world.queue, &desc, given);
}

/* The given struct; the first member that a shorter caller may lack, with all after it. */
#define SUBJECT(noun, first_missing, is_output, otherwise)                                     \
    {                                                                                          \
        "tess_" #noun, sizeof(tess_##noun), offsetof(tess_##noun, first_missing), fill_##noun, \
            call_##noun, is_output, otherwise                                                  \
    }

static growing subjects[] = {
    SUBJECT(context_desc, log_level, false, TESS_OK),
    SUBJECT(device_info, description, true, TESS_OK),
    SUBJECT(attention_desc, softmax_scale, false, TESS_OK),
    SUBJECT(varlen, index_dtype, false, TESS_OK),
    SUBJECT(paging, table_stride, false, TESS_OK),
    SUBJECT(bias, tensor_dtype, false, TESS_OK),
    SUBJECT(scaling, q_rows_per_block, false, TESS_UNSUPPORTED),
    SUBJECT(program, mask, false, TESS_UNSUPPORTED),
    SUBJECT(gradient_desc, dbias_stride, false, TESS_UNSUPPORTED),
    SUBJECT(forward_args, cu_seqlens_q, false, TESS_OK),
    SUBJECT(backward_args, dbias, false, TESS_OK),
    {"tess_merge_desc", sizeof(tess_merge_desc), 0, fill_merge_desc, call_merge_desc, false,
     TESS_OK},
    SUBJECT(merge_args, lse, false, TESS_OK),
};

enum { SUBJECTS = sizeof subjects / sizeof subjects[0] };

static const struct {
    const char *type;
    size_t size;
} ages[] = {
#define FROZEN(type, size)
#define AGE(type, size) {#type, size},
#define MEMBER(type, member, offset)
#define CONSTANT(name, value)
#include "interface.def"
};

/* The struct of a caller whose header gives it `size` bytes: in memory of exactly that size, so
 * that a sanitizer sees a read behind it. `tail` is the last byte of a longer one. */
static tess_status call_at(const growing *subject, size_t struct_size, size_t size,
                           unsigned char tail)
{
    const size_t largest = size > subject->size ? size : subject->size;
    unsigned char *whole = calloc(1, largest), *given = malloc(size);
    tess_status status;

    assert_non_null(whole);
    assert_non_null(given);
    subject->fill(whole);
    memcpy(whole, &struct_size, sizeof struct_size);
    memcpy(given, whole, size);
    if (size > subject->size)
        given[size - 1] = tail;
    status = subject->call(given);
    if (size > subject->size)
        assert_int_equal(given[size - 1], subject->is_output ? 0 : tail);
    free(whole);
    free(given);
    return status;
}

/* What a caller of this very header gets. */
static tess_status status_today(const growing *subject)
{
    return call_at(subject, subject->size, subject->size, 0);
}

/* The subject of a test, which is skipped where no plan takes the struct. */
static const growing *reachable(const growing *subject)
{
    if (subject->call == call_backward_args && !world.backward)
        skip();
    return subject;
}

static void serves_today(void **state)
{
    const growing *subject = reachable(*state);
    const tess_status status = status_today(subject);

    if (status != subject->otherwise)
        assert_int_equal(status, TESS_OK);
}

static void serves_older(void **state)
{
    const growing *subject = reachable(*state);
    const tess_status today = status_today(subject);

    for (size_t i = 0; i < sizeof ages / sizeof ages[0]; i++)
        if (strcmp(ages[i].type, subject->type) == 0)
            assert_int_equal(call_at(subject, ages[i].size, ages[i].size, 0), today);
    if (subject->shorter > 0)
        assert_int_equal(call_at(subject, subject->shorter, subject->shorter, 0), today);
}

static void serves_newer_while_unused(void **state)
{
    const growing *subject = reachable(*state);

    assert_int_equal(call_at(subject, subject->size + NEWER, subject->size + NEWER, 0),
                     status_today(subject));
}

static void refuses_newer_in_use(void **state)
{
    const growing *subject = reachable(*state);
    char text[512];

    for (size_t more = 1; more <= NEWER; more++) {
        const size_t size = subject->size + more;

        if (subject->is_output) {
            /* The library fills it, so that what was in it means nothing. */
            assert_int_equal(call_at(subject, size, size, 1), TESS_OK);
            continue;
        }
        assert_int_equal(call_at(subject, size, size, 1), TESS_TOO_NEW);
        assert_true(tess_context_error(NULL, text, sizeof text) > 0);
        assert_non_null(strstr(text, "newer"));
    }
}

static void refuses_forgotten_size(void **state)
{
    const growing *subject = reachable(*state);
    const size_t forgotten[] = {0, 1, sizeof(size_t), SIZE_MAX, 0xa5a5a5a5};
    char text[512];

    for (size_t i = 0; i < sizeof forgotten / sizeof forgotten[0]; i++) {
        assert_int_equal(call_at(subject, forgotten[i], subject->size, 0), TESS_INVALID);
        assert_true(tess_context_error(NULL, text, sizeof text) > 0);
        assert_non_null(strstr(text, "struct_size"));
    }
}

/* A struct the library writes: nothing behind a shorter caller's end, everything before it. */
static void writes_no_more_than_known(void **state)
{
    const size_t known = offsetof(tess_device_info, architecture);
    union {
        tess_device_info info;
        unsigned char bytes[sizeof(tess_device_info)];
    } given;

    (void)state;
    memset(&given, 0, sizeof given);
    memset(given.bytes + known, 0x5a, sizeof given - known);
    given.info.struct_size = known;
    assert_int_equal(tess_device_get_info(world.device, &given.info), TESS_OK);
    assert_string_equal(given.info.name, "cpu");
    assert_int_equal(given.info.struct_size, known);
    for (size_t i = known; i < sizeof given; i++)
        assert_int_equal(given.bytes[i], 0x5a);
}

static int set_up(void **state)
{
    const tess_attention_desc desc = attention();
    tess_status status;

    (void)state;
    assert_int_equal(tess_context_create(NULL, &world.context), TESS_OK);
    assert_int_equal(tess_device_open(world.context, "cpu", &world.device), TESS_OK);
    assert_int_equal(tess_queue_create(world.device, &world.queue), TESS_OK);
    assert_int_equal(tess_plan_create_forward(world.device, &desc, &world.forward), TESS_OK);
    status = tess_plan_create_backward(world.device, &desc, NULL, &world.backward);
    if (status != TESS_UNSUPPORTED)
        assert_int_equal(status, TESS_OK);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    tess_plan_destroy(world.backward);
    tess_plan_destroy(world.forward);
    tess_queue_destroy(world.queue);
    tess_context_destroy(world.context);
    return 0;
}

int main(void)
{
    static const struct {
        const char *words;
        CMUnitTestFunction run;
    } laws[] = {
        {"of today", serves_today},
        {"shorter", serves_older},
        {"longer and zero", serves_newer_while_unused},
        {"longer and set", refuses_newer_in_use},
        {"without its size", refuses_forgotten_size},
    };
    enum { LAWS = sizeof laws / sizeof laws[0] };
    static char names[SUBJECTS * LAWS][64];
    struct CMUnitTest tests[SUBJECTS * LAWS + 1];
    size_t count = 0;

    for (size_t s = 0; s < SUBJECTS; s++)
        for (size_t l = 0; l < LAWS; l++, count++) {
            snprintf(names[count], sizeof names[count], "%s %s", subjects[s].type, laws[l].words);
            tests[count] = (struct CMUnitTest){names[count], laws[l].run, NULL, NULL, &subjects[s]};
        }
    tests[count++] = (struct CMUnitTest)cmocka_unit_test(writes_no_more_than_known);
    return _cmocka_run_group_tests("struct_ages", tests, count, set_up, tear_down);
}
