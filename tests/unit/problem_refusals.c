/* SPDX-License-Identifier: Apache-2.0
 * Everything a descriptor may not say is refused by name, value and what is accepted. */
#include "tests/unit/support.h"

#include <math.h>

/* The small problem with room for everything that may hang off a descriptor. */
typedef struct fixture {
    tess_attention_desc desc;
    tess_gradient_desc gradients;
    tess_varlen varlen;
    tess_paging paging;
    tess_bias bias;
    tess_scaling scaling;
    tess_program program;
} fixture;

static const int64_t MOST = INT32_MAX;
static const int64_t FAR = (int64_t)1 << 60;

/* ---- What the table makes wrong -----------------------------------------------------------------
 */

static void heads(tess_attention_desc *d, int64_t heads_q, int64_t heads_kv)
{
    d->q.heads = d->o.heads = heads_q;
    d->k.heads = d->v.heads = heads_kv;
}

static void dtypes(tess_attention_desc *d, tess_dtype inputs, tess_dtype output)
{
    d->q.dtype = d->k.dtype = d->v.dtype = inputs;
    d->o.dtype = output;
}

static tess_layout *lse(tess_attention_desc *d)
{
    d->lse = tess_layout_packed(TESS_F32, SMALL_BATCH, SMALL_ROWS, SMALL_HEADS, 1);
    return &d->lse;
}

/* Three sequences behind each other, both sides. */
static tess_varlen *packed(fixture *f)
{
    f->varlen = (tess_varlen){TESS_STRUCT(tess_varlen), .sequences = 3, .max_seqlen_q = 4,
                              .max_seqlen_k = 5,
                              .present = TESS_VARLEN_CU_SEQLENS_Q | TESS_VARLEN_CU_SEQLENS_K};
    f->desc.varlen = &f->varlen;
    f->desc.q.batch = f->desc.o.batch = f->desc.k.batch = f->desc.v.batch = 1;
    return &f->varlen;
}

/* Used lengths of tensors that stay as they are. */
static tess_varlen *padded(fixture *f)
{
    f->varlen = (tess_varlen){TESS_STRUCT(tess_varlen), .sequences = SMALL_BATCH,
                              .present = TESS_VARLEN_SEQUSED_Q | TESS_VARLEN_SEQUSED_K};
    f->desc.varlen = &f->varlen;
    return &f->varlen;
}

/* Nine pages; the layouts of K and V are of the pool. */
static tess_paging *paged(fixture *f)
{
    padded(f);
    f->paging = (tess_paging){TESS_STRUCT(tess_paging), .max_pages = 4};
    f->desc.paging = &f->paging;
    f->desc.k.batch = f->desc.v.batch = 9;
    return &f->paging;
}

static tess_bias *biased(fixture *f)
{
    f->bias = (tess_bias){TESS_STRUCT(tess_bias),
                          .tensor_stride = {SMALL_HEADS * 35, 35, 7, 1},
                          .slope_stride = {SMALL_HEADS, 1},
                          .sink_stride = 1,
                          .present = TESS_BIAS_TENSOR | TESS_BIAS_ALIBI | TESS_BIAS_SINK,
                          .tensor_dtype = TESS_F32};
    f->desc.bias = &f->bias;
    return &f->bias;
}

/* A bias of everything but one kind, of which nothing is said. */
static tess_bias *without(fixture *f, uint32_t bit)
{
    tess_bias *const bias = biased(f);

    bias->present &= ~bit;
    if (bit == TESS_BIAS_TENSOR) {
        memset(bias->tensor_stride, 0, sizeof bias->tensor_stride);
        bias->tensor_dtype = 0;
    } else if (bit == TESS_BIAS_ALIBI) {
        memset(bias->slope_stride, 0, sizeof bias->slope_stride);
    } else {
        bias->sink_stride = 0;
    }
    return bias;
}

/* A bias whose gradient is summed over the batch. */
static tess_gradient_desc *dbias(fixture *f, int64_t head, int64_t row, int64_t column)
{
    biased(f);
    f->gradients.dbias_stride[1] = head;
    f->gradients.dbias_stride[2] = row;
    f->gradients.dbias_stride[3] = column;
    return &f->gradients;
}

static tess_scaling *scaled(fixture *f)
{
    dtypes(&f->desc, TESS_E4M3, TESS_BF16);
    f->scaling = (tess_scaling){TESS_STRUCT(tess_scaling)};
    f->desc.scaling = &f->scaling;
    return &f->scaling;
}

static tess_program *programmed(fixture *f)
{
    f->program = (tess_program){TESS_STRUCT(tess_program)};
    f->desc.program = &f->program;
    return &f->program;
}

/* ---- The table: its lines, by their number in the file --------------------------------------- */

typedef struct refusal {
    int line;
    bool is_backward;
    tess_status status;
    const char *pieces, *change;
} refusal;

static const refusal refusals[] = {
#define REFUSED(status, pieces, ...) {__LINE__, false, TESS_##status, pieces, #__VA_ARGS__},
#define REFUSED_BACKWARD(status, pieces, ...) {__LINE__, true, TESS_##status, pieces, #__VA_ARGS__},
#include "tests/unit/problem_refusals.def"
#undef REFUSED
#undef REFUSED_BACKWARD
};

enum { REFUSALS = sizeof refusals / sizeof refusals[0] };

/* The small problem, made wrong by a line of the table; right with line 0. */
static void make(fixture *f, int line)
{
    tess_attention_desc *const d = &f->desc;
    tess_gradient_desc *const g = &f->gradients;

    memset(f, 0, sizeof *f);
    *d = small_desc();
    g->struct_size = sizeof *g;
    switch (line) {
#define REFUSED(status, pieces, ...) \
    case __LINE__:                   \
        __VA_ARGS__;                 \
        break;
#define REFUSED_BACKWARD(status, pieces, ...) REFUSED(status, pieces, __VA_ARGS__)
#include "tests/unit/problem_refusals.def"
#undef REFUSED
#undef REFUSED_BACKWARD
    default:
        break;
    }
}

static const char *name_of(const refusal *r)
{
    static char name[256];

    snprintf(name, sizeof name, "problem_refusals.def:%d: %s", r->line, r->change);
    return name;
}

/* ---- Tests ----------------------------------------------------------------------------------- */

static void nothing_is_planned(void **state)
{
    world w;

    (void)state;
    world_open(&w, 1);
    for (int i = 0; i < REFUSALS; i++) {
        const refusal *const r = &refusals[i];
        tess_plan *const untouched = (tess_plan *)(void *)&w;
        const int64_t blocks = w.memory.blocks;
        tess_plan *plan = untouched;
        fixture f;

        make(&f, r->line);
        if (!r->is_backward) {
            assert_refused(w.context, tess_plan_create_forward(w.device, &f.desc, &plan), r->status,
                           "tess_plan_create_forward", r->pieces, name_of(r));
            assert_ptr_equal(plan, untouched);
        }
        /* The backward pass sees the same descriptor through the same eyes. */
        if (r->is_backward || r->status == TESS_INVALID) {
            assert_refused(w.context,
                           tess_plan_create_backward(w.device, &f.desc, &f.gradients, &plan),
                           r->status, "tess_plan_create_backward", r->pieces, name_of(r));
            assert_ptr_equal(plan, untouched);
        }
        assert_int_equal(w.memory.blocks, blocks);
    }
    world_close(&w);
}

/* What the table starts from is right, so each line is refused for what it changes. */
static void the_next_right_one_is(void **state)
{
    world w;

    (void)state;
    world_open(&w, 1);
    for (int kind = 0; kind < 6; kind++) {
        tess_plan *plan = NULL;
        fixture f;

        make(&f, 0);
        if (kind == 1)
            packed(&f);
        if (kind == 2)
            padded(&f);
        if (kind == 3)
            paged(&f);
        if (kind == 4)
            biased(&f);
        if (kind == 5)
            lse(&f.desc);
        assert_fine(w.context, tess_plan_create_forward(w.device, &f.desc, &plan));
        assert_non_null(plan);
        tess_plan_destroy(plan);
    }
    world_close(&w);
}

/* Legal, and easily refused by mistake. */
static void what_is_unusual_but_right_is_planned(void **state)
{
    world w;

    (void)state;
    world_open(&w, 1);
    for (int kind = 0; kind < 12; kind++) {
        tess_plan *plan = NULL;
        fixture f;
        tess_attention_desc *const d = &f.desc;

        make(&f, 0);
        switch (kind) {
        case 0: /* inputs that repeat, run backwards, or lie far apart */
            d->q.batch_stride = 0;
            d->k.seqlen_stride = -d->k.seqlen_stride;
            d->v.head_stride = (int64_t)1 << 40;
            break;
        case 1:
            d->softmax_scale = -3.5f;
            d->softcap = 1e-30f;
            break;
        case 2:
            d->flags = TESS_SCALE_IS_SET; /* a scale of 0 */
            break;
        case 3:
            d->mask = TESS_MASK_WINDOW | TESS_MASK_CAUSAL | TESS_MASK_TOP_LEFT;
            d->window_left = INT64_MAX;
            d->window_right = INT64_MIN;
            break;
        case 4:
            d->num_splits = 65536;
            break;
        case 5:
            heads(d, 0, 0);
            break;
        case 6:
            d->q.batch = d->k.batch = d->v.batch = d->o.batch = 0;
            break;
        case 7:
            d->k.seqlen = d->v.seqlen = 0;
            break;
        case 8: /* an output that runs backwards */
            d->o.head_stride = -d->o.head_stride;
            d->o.dim_stride = -1;
            break;
        case 9: /* a program that says nothing */
            programmed(&f);
            break;
        case 10: /* strides that are never taken */
            d->q.batch = d->k.batch = d->v.batch = d->o.batch = 1;
            d->q.batch_stride = d->o.batch_stride = INT64_MIN;
            break;
        case 11: /* an empty batch of packed sequences */
            packed(&f)->sequences = 0;
            f.varlen.max_seqlen_q = f.varlen.max_seqlen_k = 0;
            break;
        default:
            break;
        }
        assert_fine(w.context, tess_plan_create_forward(w.device, &f.desc, &plan));
        tess_plan_destroy(plan);
    }
    world_close(&w);
}

static void missing_arguments_are_named(void **state)
{
    const tess_attention_desc desc = small_desc();
    tess_plan *plan = NULL;
    world w;

    (void)state;
    world_open(&w, 1);
    assert_refused(w.context, tess_plan_create_forward(w.device, NULL, &plan), TESS_INVALID,
                   "tess_plan_create_forward", "desc is NULL", "no descriptor");
    assert_refused(w.context, tess_plan_create_forward(w.device, &desc, NULL), TESS_INVALID,
                   "tess_plan_create_forward", "out_plan is NULL", "nowhere to put it");
    assert_refused(NULL, tess_plan_create_forward(NULL, &desc, &plan), TESS_INVALID,
                   "tess_plan_create_forward", "device is NULL", "no device");
    assert_refused(w.context, tess_plan_create_backward(w.device, NULL, NULL, &plan), TESS_INVALID,
                   "tess_plan_create_backward", "desc is NULL", "no descriptor");
    assert_refused(w.context, tess_plan_create_backward(w.device, &desc, NULL, NULL), TESS_INVALID,
                   "tess_plan_create_backward", "out_plan is NULL", "nowhere to put it");
    assert_refused(NULL, tess_plan_create_backward(NULL, &desc, NULL, &plan), TESS_INVALID,
                   "tess_plan_create_backward", "device is NULL", "no device");
    assert_null(plan);
    world_close(&w);
}

/* A caller of a later version is served as long as it does not use what is new. */
static void members_from_the_future_are_too_new(void **state)
{
    enum { ROOM = 1024 };
    static const char *const names[] = {"desc", "varlen", "paging", "bias", "scaling", "program"};
    world w;

    (void)state;
    world_open(&w, 1);
    for (int member = 0; member < 6; member++) {
        for (int is_set = 0; is_set < 2; is_set++) {
            union {
                size_t size;
                unsigned char bytes[ROOM];
                tess_attention_desc desc;
                tess_varlen varlen;
                tess_paging paging;
                tess_bias bias;
                tess_scaling scaling;
                tess_program program;
            } later;
            tess_plan *plan = NULL;
            fixture f;
            char pieces[64];

            make(&f, 0);
            paged(&f);
            biased(&f);
            scaled(&f);
            programmed(&f);
            memset(&later, 0, sizeof later);

            const void *const parts[] = {&f.desc, &f.varlen,  &f.paging,
                                         &f.bias, &f.scaling, &f.program};
            size_t size;

            memcpy(&size, parts[member], sizeof size);
            memcpy(&later, parts[member], size);
            later.size = size + 24;
            later.bytes[size + 16] = (unsigned char)is_set;
            f.desc.varlen = member == 1 ? &later.varlen : &f.varlen;
            f.desc.paging = member == 2 ? &later.paging : &f.paging;
            f.desc.bias = member == 3 ? &later.bias : &f.bias;
            f.desc.scaling = member == 4 ? &later.scaling : &f.scaling;
            f.desc.program = member == 5 ? &later.program : &f.program;

            const tess_status status =
                tess_plan_create_forward(w.device, member == 0 ? &later.desc : &f.desc, &plan);

            snprintf(pieces, sizeof pieces, "%s has a member set at byte %zu", names[member],
                     size + 16);
            if (is_set)
                assert_refused(w.context, status, TESS_TOO_NEW, "tess_plan_create_forward", pieces,
                               names[member]);
            else /* FP8 gets as far as being refused by every kernel, or is planned */
                assert_true(status == TESS_UNSUPPORTED || status == TESS_OK);
            tess_plan_destroy(plan);
        }
    }
    world_close(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nothing_is_planned),
        cmocka_unit_test(the_next_right_one_is),
        cmocka_unit_test(what_is_unusual_but_right_is_planned),
        cmocka_unit_test(missing_arguments_are_named),
        cmocka_unit_test(members_from_the_future_are_too_new),
    };
    const int failed = cmocka_run_group_tests(tests, NULL, NULL);

    return failed != 0;
}
