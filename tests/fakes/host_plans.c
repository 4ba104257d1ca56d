/* SPDX-License-Identifier: Apache-2.0
 * Plans of GPU backends on look-alike drivers: which steps, on how many items, with what numbers.
 */
#include "tests/fakes/world.h"

#include <tessera/interop_cuda.h>
#include <tessera/interop_hip.h>

#define COUNT(list) (sizeof(list) / sizeof *(list))

/* The small problem with other lengths. */
static tess_attention_desc desc_of(int64_t rows, int64_t columns)
{
    tess_attention_desc desc = small_desc();

    desc.q = tess_layout_packed(TESS_F32, SMALL_BATCH, rows, SMALL_HEADS, SMALL_DIM);
    desc.k = tess_layout_packed(TESS_F32, SMALL_BATCH, columns, SMALL_HEADS_KV, SMALL_DIM);
    desc.v = tess_layout_packed(TESS_F32, SMALL_BATCH, columns, SMALL_HEADS_KV, SMALL_DIM_V);
    desc.o = tess_layout_packed(TESS_F32, SMALL_BATCH, rows, SMALL_HEADS, SMALL_DIM_V);
    return desc;
}

/* Whether the recorded launches, from `first` on, are these kernels and no more. */
static void assert_launched(int64_t first, const char *const *kernels)
{
    int64_t count = 0;

    for (; kernels[count]; count++) {
        assert_true(first + count < fake->launches);
        assert_string_equal(fake->launch[first + count].kernel, kernels[count]);
        assert_int_equal(fake->launch[first + count].run.step, count);
    }
    assert_int_equal(fake->launches - first, count);
}

/* Plans, runs with a workspace of the plan's size, waits. */
static void run_forward(fake_world *w, const tess_attention_desc *desc, fake_tensors *t)
{
    tess_plan *plan = NULL;

    assert_fine(w->context, tess_plan_create_forward(w->device, desc, &plan));
    assert_fine(w->context, fake_tensors_make(w->device, tess_plan_workspace_size(plan), t));
    assert_fine(w->context, tess_plan_run_forward(plan, w->queue, &t->args));
    assert_fine(w->context, tess_queue_wait(w->queue));
    fake_tensors_free(w->device, t);
    tess_plan_destroy(plan);
}

/* ---- Forward --------------------------------------------------------------------------------- */

static void one_kernel_where_one_does(void **state)
{
    static const char *const steps[] = {"fwd_some_any_m16n32", NULL};
    const tess_attention_desc desc = small_desc();
    const fake_launch *l = &fake->launch[0];
    fake_tensors t;
    fake_world w;

    (void)state;
    fake_world_open(&w);
    run_forward(&w, &desc, &t);
    assert_launched(0, steps);
    /* 2 sequences, 3 key heads, 5 rows x 2 heads of a group in tiles of 16 */
    assert_int_equal(l->run.items, 6);
    assert_int_equal(l->run.first_item, 0);
    assert_int_equal(l->grid[0], 6);
    assert_int_equal(l->block[0], 128);
    assert_int_equal(l->args.tile_rows, 16);
    assert_int_equal(l->args.tile_columns, 32);
    assert_int_equal(l->args.row_tiles, 1);
    assert_ptr_equal(l->addresses.at[TESS_AT_Q], t.q);
    assert_ptr_equal(l->addresses.at[TESS_AT_O], t.o);
    assert_ptr_equal(l->addresses.at[TESS_AT_LSE], t.lse);
    assert_null(l->addresses.at[TESS_AT_BIAS]);
    assert_ptr_equal(l->stream, fake->launch[0].stream);
    fake_world_close(&w);
}

static void splits_are_combined(void **state)
{
    static const char *const steps[] = {"fwd_some_any_m16n32", "fwd_combine_m8", NULL};
    tess_attention_desc desc = desc_of(SMALL_ROWS, 200);
    fake_tensors t;
    fake_world w;

    (void)state;
    fake_world_open(&w);
    desc.num_splits = 3;
    run_forward(&w, &desc, &t);
    assert_launched(0, steps);
    assert_int_equal(fake->launch[0].run.items, 18);
    assert_int_equal(fake->launch[0].args.splits, 3);
    assert_int_equal(fake->launch[1].run.items, 2 * 3 * 2); /* 10 folded rows in tiles of 8 */
    assert_int_equal(fake->launch[1].args.row_tiles, 2);
    assert_int_equal(fake->launch[1].args.tile_rows, 8);
    assert_true(t.workspace_size >= 3 * 2 * 5 * 6 * (SMALL_DIM_V + 1) * sizeof(float));
    assert_ptr_equal(fake->launch[1].addresses.at[TESS_AT_WORKSPACE],
                     fake->launch[0].addresses.at[TESS_AT_WORKSPACE]);
    fake_world_close(&w);
}

/* A kernel that lets non-finite numbers spread is followed by one that does their tiles again. */
static void what_spreads_is_done_again(void **state)
{
    static const char *const steps[] = {"fwd_checked_f16_m64n64", "fwd_redo", "fwd_combine_m8",
                                        NULL};
    static const char *const spread[] = {"fwd_checked_f16_m64n64", "fwd_combine_m8", NULL};
    const tess_dtype dtype = TESS_F16;
    tess_attention_desc desc = {TESS_STRUCT(tess_attention_desc),
                                .q = tess_layout_packed(dtype, 1, 65, 2, 16),
                                .k = tess_layout_packed(dtype, 1, 300, 2, 16),
                                .v = tess_layout_packed(dtype, 1, 300, 2, 16),
                                .o = tess_layout_packed(dtype, 1, 65, 2, 16),
                                .num_splits = 2};
    const fake_launch *l = fake->launch;
    fake_tensors t;
    fake_world w;

    (void)state;
    fake_world_open(&w);
    run_forward(&w, &desc, &t);
    assert_launched(0, steps);
    assert_int_equal(l[0].run.items, 2 * 2 * 2);
    assert_int_equal(l[0].shared, 61440);
    assert_int_equal(l[1].run.items, l[0].run.items);
    assert_memory_equal(&l[1].args, &l[0].args, sizeof l[0].args); /* the same tiles */
    assert_true(l[0].args.redo != l[0].args.partial_o);
    desc.flags = TESS_ALLOW_NONFINITE_SPREAD;
    run_forward(&w, &desc, &t);
    assert_launched(3, spread);
    fake_world_close(&w);
}

static void an_empty_problem_launches_nothing(void **state)
{
    const tess_attention_desc desc = desc_of(0, SMALL_COLUMNS);
    fake_tensors t;
    fake_world w;

    (void)state;
    fake_world_open(&w);
    run_forward(&w, &desc, &t);
    assert_int_equal(fake->launches, 0);
    fake_world_close(&w);
}

/* A short problem gets the short kernel. */
static void a_short_problem_gets_the_short_kernel(void **state)
{
    static const char *const steps[] = {"fwd_short_any_m4n32", NULL};
    const tess_attention_desc desc = desc_of(2, SMALL_COLUMNS);
    fake_tensors t;
    fake_world w;

    (void)state;
    fake_world_open(&w);
    run_forward(&w, &desc, &t);
    assert_launched(0, steps);
    assert_int_equal(fake->launch[0].block[0], 64);
    fake_world_close(&w);
}

/* ---- Backward -------------------------------------------------------------------------------- */

/* Every tensor of a backward pass in one block of device memory. */
static tess_backward_args backward_args(char *base, bool has_bias)
{
    tess_backward_args a = {TESS_STRUCT(tess_backward_args)};
    int64_t at = 0;

#define PLACE(member) a.member.base = base + FAKE_TENSOR_BYTES * at++
    PLACE(q);
    PLACE(k);
    PLACE(v);
    PLACE(o);
    PLACE(lse);
    PLACE(d_o);
    PLACE(dq);
    PLACE(dk);
    PLACE(dv);
    if (has_bias) {
        PLACE(bias);
        PLACE(alibi_slopes);
        PLACE(sink);
        PLACE(dbias);
        PLACE(dalibi_slopes);
        PLACE(dsink);
    }
#undef PLACE
    return a;
}

static void run_backward(fake_world *w, const tess_attention_desc *desc,
                         const tess_gradient_desc *gradients)
{
    enum { BYTES = 16 * FAKE_TENSOR_BYTES };
    void *memory = NULL;
    tess_backward_args args;
    tess_plan *plan = NULL;

    assert_fine(w->context, tess_plan_create_backward(w->device, desc, gradients, &plan));
    assert_fine(w->context, tess_device_allocate(w->device, BYTES, &memory));
    args = backward_args(memory, desc->bias != NULL);
    if (gradients && !(gradients->wanted & TESS_GRADIENT_Q))
        args.dq.base = NULL;
    assert_fine(w->context, tess_plan_run_backward(plan, w->queue, &args));
    assert_fine(w->context, tess_queue_wait(w->queue));
    tess_device_release(w->device, memory, BYTES);
    tess_plan_destroy(plan);
}

static void gradients_take_three_steps(void **state)
{
    static const char *const steps[] = {"bwd_delta_m8", "bwd_some_any_m32n16", "bwd_dq_m16n16",
                                        NULL};
    const tess_attention_desc desc = desc_of(SMALL_ROWS, 40);
    const fake_launch *l = fake->launch;
    fake_world w;

    (void)state;
    fake_world_open(&w);
    run_backward(&w, &desc, NULL);
    assert_launched(0, steps);
    assert_int_equal(l[0].run.items, 2 * 3 * 2);
    assert_int_equal(l[1].run.items, 2 * 3 * 3); /* 40 columns in shares of 16 */
    assert_int_equal(l[1].args.share_columns, 16);
    assert_int_equal(l[1].args.dq_buffers, 0); /* dQ has a kernel of its own */
    assert_int_equal(l[2].run.items, 2 * 3 * 1);
    assert_int_equal(l[2].args.tile_rows, 16);
    fake_world_close(&w);
}

static void every_gradient_has_its_step(void **state)
{
    static const char *const steps[] = {"bwd_delta_m8",
                                        "bwd_some_any_m32n16",
                                        "bwd_dq_m16n16",
                                        "bwd_dbias_m16n16",
                                        "bwd_dslope",
                                        "bwd_dsink",
                                        NULL};
    const tess_bias bias = {TESS_STRUCT(tess_bias),
                            .tensor_stride = {0, SMALL_ROWS * 40, 40, 1},
                            .slope_stride = {0, 1},
                            .sink_stride = 1,
                            .present = TESS_BIAS_TENSOR | TESS_BIAS_ALIBI | TESS_BIAS_SINK,
                            .tensor_dtype = TESS_F32};
    const tess_gradient_desc wanted = {
        TESS_STRUCT(tess_gradient_desc), .dbias_stride = {0, SMALL_ROWS * 40, 40, 1},
        .wanted = TESS_GRADIENT_Q | TESS_GRADIENT_K | TESS_GRADIENT_V | TESS_GRADIENT_BIAS |
                  TESS_GRADIENT_ALIBI | TESS_GRADIENT_SINK};
    tess_attention_desc desc = desc_of(SMALL_ROWS, 40);
    const fake_launch *l = fake->launch;
    fake_world w;

    (void)state;
    fake_world_open(&w);
    desc.bias = &bias;
    run_backward(&w, &desc, &wanted);
    assert_launched(0, steps);
    assert_int_equal(l[3].run.items, 1 * 6 * 1 * 3); /* summed over sequences; 40 columns by 16 */
    assert_int_equal(l[4].run.items, 6);
    assert_int_equal(l[5].run.items, 6);
    fake_world_close(&w);
}

static tess_attention_desc desc_in(tess_dtype dtype)
{
    tess_attention_desc desc = desc_of(SMALL_ROWS, 200);

    desc.q.dtype = desc.k.dtype = desc.v.dtype = desc.o.dtype = dtype;
    return desc;
}

/* Flags of the tiles of dQ lie behind those of the main kernel; kernels on matrix units need a wave
 * that not every chip has. */
static void gradients_that_spread_are_done_again(void **state)
{
    static const char *const of_32[] = {"bwd_delta_m8", "bwd_checked_f16_m32n64",
                                        "bwd_redo",     "bwd_dq_checked_f16_m64n32",
                                        "bwd_redo_dq",  NULL};
    static const char *const of_64[] = {"bwd_delta_m8", "bwd_checked_f16_m32n64", "bwd_redo",
                                        "bwd_dq_m16n16", NULL};
    static const char *const spread[] = {"bwd_delta_m8", "bwd_checked_f16_m32n64",
                                         "bwd_dq_checked_f16_m64n32", NULL};
    const bool has_matrix = strcmp(fake_vendor, "cuda") == 0;
    tess_attention_desc desc = desc_in(TESS_F16);
    const fake_launch *l = fake->launch;
    fake_world w;

    (void)state;
    fake_world_open(&w);
    run_backward(&w, &desc, NULL);
    assert_launched(0, has_matrix ? of_32 : of_64);
    assert_int_equal(l[1].run.items, 2 * 3 * 4); /* 200 columns in shares of 64 */
    assert_memory_equal(&l[2].args, &l[1].args, sizeof l[1].args);
    assert_int_equal(l[2].run.items, l[1].run.items);
    if (has_matrix) {
        assert_int_equal(l[3].run.items, 2 * 3 * 1); /* 10 folded rows in tiles of 64 */
        assert_int_equal(l[3].args.redo, l[1].args.redo + 4 * l[1].run.items);
        assert_true(l[3].args.redo + 4 * l[3].run.items <= l[3].args.delta);
        assert_memory_equal(&l[4].args, &l[3].args, sizeof l[3].args);
        desc.flags = TESS_ALLOW_NONFINITE_SPREAD;
        run_backward(&w, &desc, NULL);
        assert_launched(5, spread);
    }
    fake_world_close(&w);
}

/* Sums in an order of chance are for those who do not ask for equal bits. */
static void dq_is_added_where_bits_may_differ(void **state)
{
    static const char *const adds[] = {"bwd_delta_m8", "bwd_clear_dq",     "bwd_adds_bf16_m32n64",
                                       "bwd_redo",     "bwd_finish_dq_m8", NULL};
    static const char *const keys[] = {"bwd_delta_m8", "bwd_adds_bf16_m32n64", "bwd_redo", NULL};
    static const char *const owns[] = {"bwd_delta_m8", "bwd_some_any_m32n16", "bwd_dq_m16n16",
                                       NULL};
    const tess_gradient_desc of_keys = {TESS_STRUCT(tess_gradient_desc),
                                        .wanted = TESS_GRADIENT_K | TESS_GRADIENT_V};
    tess_attention_desc desc = desc_in(TESS_BF16);
    const fake_launch *l = fake->launch;
    fake_world w;

    (void)state;
    fake_world_open(&w);
    run_backward(&w, &desc, NULL);
    assert_launched(0, adds);
    assert_int_equal(l[1].run.items, 1); /* 2 x 5 rows of 6 heads: less than 1024 units */
    assert_int_equal(l[2].args.dq_buffers, 1);
    assert_int_equal(l[2].args.partial_dq % 16, 0);
    assert_int_equal(l[4].run.items, 2 * 3 * 2);
    run_backward(&w, &desc, &of_keys);
    assert_launched(5, keys);
    desc.flags = TESS_DETERMINISTIC;
    run_backward(&w, &desc, NULL);
    assert_launched(8, owns);
    desc.flags = TESS_BATCH_INVARIANT;
    run_backward(&w, &desc, NULL);
    assert_launched(11, owns);
    fake_world_close(&w);
}

/* What no kernel computes is refused when planned, with both sets of bits. */
static void a_gradient_without_a_kernel_is_refused(void **state)
{
    const tess_bias bias = {TESS_STRUCT(tess_bias), .slope_stride = {0, 1},
                            .present = TESS_BIAS_ALIBI};
    const tess_gradient_desc wanted = {TESS_STRUCT(tess_gradient_desc),
                                       .wanted = TESS_GRADIENT_Q | TESS_GRADIENT_ALIBI};
    tess_attention_desc desc = small_desc();
    tess_plan *plan = NULL;
    fake_world w;

    (void)state;
    fake_world_open(&w);
    desc.q.dtype = desc.k.dtype = desc.v.dtype = desc.o.dtype = TESS_BF16;
    desc.bias = &bias;
    assert_refused(w.context, tess_plan_create_backward(w.device, &desc, &wanted, &plan),
                   TESS_UNSUPPORTED, "tess_plan_create_backward",
                   "gradient bits 0x11 asked for, 0x1 offered", "no dslope for bf16");
    fake_world_close(&w);
}

/* ---- Graphs ---------------------------------------------------------------------------------- */

static void a_captured_run_allocates_and_waits_for_nothing(void **state)
{
    tess_attention_desc desc = desc_of(SMALL_ROWS, 200);
    tess_plan *plan = NULL;
    fake_tensors t;
    fake_world w;
    int64_t blocks, waits;
    size_t size;

    (void)state;
    fake_world_open(&w);
    desc.num_splits = 3;
    assert_fine(w.context, tess_plan_create_forward(w.device, &desc, &plan));
    size = tess_plan_workspace_size(plan);
    assert_fine(w.context, fake_tensors_make(w.device, size, &t));
    blocks = fake->blocks;
    waits = fake->waits;
    fake->is_capturing = true;
    assert_fine(w.context, tess_plan_run_forward(plan, w.queue, &t.args));
    assert_int_equal(fake->launches, 2);
    assert_int_equal(fake->blocks, blocks);
    assert_int_equal(fake->waits, waits);
    t.args.workspace.base = NULL;
    t.args.workspace_size = 0;
    assert_refused(w.context, tess_plan_run_forward(plan, w.queue, &t.args), TESS_INVALID,
                   "tess_plan_run_forward",
                   "workspace is NULL in a stream that is being captured|bytes of the caller's",
                   "no workspace");
    assert_int_equal(fake->launches, 2);
    fake->is_capturing = false;
    assert_fine(w.context, tess_plan_run_forward(plan, w.queue, &t.args)); /* the queue's own */
    assert_int_equal(fake->launches, 4);
    fake_tensors_free(w.device, &t);
    tess_plan_destroy(plan);
    fake_world_close(&w);
}

/* ---- Scratch --------------------------------------------------------------------------------- */

static void run_with_scratch(fake_world *w, int64_t columns, tess_status wanted)
{
    tess_attention_desc desc = desc_of(40, columns);
    tess_plan *plan = NULL;
    fake_tensors t;

    desc.num_splits = columns / 32;
    assert_fine(w->context, tess_plan_create_forward(w->device, &desc, &plan));
    assert_fine(w->context, fake_tensors_make(w->device, 0, &t));
    if (wanted == TESS_OK)
        assert_fine(w->context, tess_plan_run_forward(plan, w->queue, &t.args));
    else
        assert_refused(w->context, tess_plan_run_forward(plan, w->queue, &t.args), wanted,
                       "tess_plan_run_forward", fake_either("OUT_OF_MEMORY", "OutOfMemory"),
                       "too little memory");
    fake_tensors_free(w->device, &t);
    tess_plan_destroy(plan);
}

static void scratch_grows_and_may_fail(void **state)
{
    fake_world w;

    (void)state;
    for (int has_no_pools = 0; has_no_pools < 2; has_no_pools++) {
        fake_world_open(&w);
        fake->has_no_pools = has_no_pools;
        run_with_scratch(&w, 64, TESS_OK);
        fake->chip[0].memory = 5 * FAKE_TENSOR_BYTES + 40000;
        run_with_scratch(&w, 320, TESS_NO_MEMORY);
        run_with_scratch(&w, 64, TESS_OK); /* nothing is broken */
        fake->chip[0].memory *= 2;
        run_with_scratch(&w, 320, TESS_OK);
        fake_world_close(&w);
    }
}

/* ---- Addresses ------------------------------------------------------------------------------- */

static void memory_of_others_is_refused(void **state)
{
    const tess_attention_desc desc = small_desc();
    static char host[FAKE_TENSOR_BYTES];
    char other_name[16];
    tess_device *other = NULL;
    tess_plan *plan = NULL;
    void *elsewhere = NULL;
    fake_tensors t;
    fake_world w;

    (void)state;
    fake_world_open(&w);
    snprintf(other_name, sizeof other_name, "%s:1", fake_vendor);
    assert_fine(w.context, tess_device_open(w.context, other_name, &other));
    assert_fine(w.context, tess_device_allocate(other, FAKE_TENSOR_BYTES, &elsewhere));
    assert_fine(w.context, tess_plan_create_forward(w.device, &desc, &plan));
    assert_fine(w.context, fake_tensors_make(w.device, 0, &t));
    t.args.k.base = elsewhere;
    assert_refused(w.context, tess_plan_run_forward(plan, w.queue, &t.args), TESS_INVALID,
                   "tess_plan_run_forward",
                   fake_either("k is memory of cuda:1; the queue is of cuda:0",
                               "k is memory of hip:1; the queue is of hip:0"),
                   "another device's");
    t.args.k.base = t.k;
    t.args.v.base = host;
    assert_refused(w.context, tess_plan_run_forward(plan, w.queue, &t.args), TESS_INVALID,
                   "tess_plan_run_forward", "v is at|does not know; it takes memory of",
                   "the host's");
    assert_int_equal(fake->launches, 0);
    tess_device_release(other, elsewhere, FAKE_TENSOR_BYTES);
    fake_tensors_free(w.device, &t);
    tess_plan_destroy(plan);
    fake_world_close(&w);
}

static void a_device_that_reads_the_host_may(void **state)
{
    const tess_attention_desc desc = small_desc();
    static char host[FAKE_TENSOR_BYTES];
    tess_context *context = NULL;
    tess_device *device = NULL;
    tess_queue *queue = NULL;
    tess_plan *plan = NULL;
    fake_tensors t;

    (void)state;
    fake->reset();
    fake->chip[0].reads_host = 1;
    assert_fine(NULL, tess_context_create(NULL, &context));
    assert_fine(context, tess_device_open(context, fake_vendor, &device));
    assert_fine(context, tess_queue_create(device, &queue));
    assert_fine(context, tess_plan_create_forward(device, &desc, &plan));
    assert_fine(context, fake_tensors_make(device, 0, &t));
    t.args.v.base = host;
    assert_fine(context, tess_plan_run_forward(plan, queue, &t.args));
    fake_tensors_free(device, &t);
    tess_plan_destroy(plan);
    tess_queue_destroy(queue);
    tess_context_destroy(context);
    assert_string_equal(fake->complaint, "");
}

/* ---- Merging --------------------------------------------------------------------------------- */

/* Three parts of (2, 5, 6, 4) side by side at the places of a forward pass's tensors. */
static tess_merge_desc merge_desc(void)
{
    const tess_layout o = tess_layout_packed(TESS_F16, 2, 5, 6, 4);
    const tess_layout lse = tess_layout_by_head(TESS_F32, 2, 5, 6, 1);
    tess_merge_desc desc = {
        TESS_STRUCT(tess_merge_desc), 3, o, lse, 2 * 5 * 6 * 4, 2 * 5 * 6, o, lse};

    desc.o.dtype = TESS_BF16;
    return desc;
}

static tess_merge_args merge_args(const fake_tensors *t)
{
    return (tess_merge_args){TESS_STRUCT(tess_merge_args), .o_part = {t->q, 8},
                             .lse_part = {t->k, 16}, .o = {t->o, 24}, .lse = {t->lse, 32}};
}

static void a_merge_is_one_launch(void **state)
{
    const tess_merge_desc desc = merge_desc();
    const fake_launch *l = fake->launch;
    tess_merge_args args;
    fake_tensors t;
    fake_world w;

    (void)state;
    fake_world_open(&w);
    assert_fine(w.context, fake_tensors_make(w.device, 0, &t));
    args = merge_args(&t);
    assert_fine(w.context, tess_queue_merge(w.queue, &desc, &args));
    assert_int_equal(fake->launches, 1);
    assert_string_equal(l->kernel, "fwd_merge_m8");
    assert_int_equal(l->run.items, 8); /* 60 rows by 8 */
    assert_int_equal(l->grid[0], 8);
    assert_int_equal(l->block[0], 128);
    assert_ptr_equal(l->addresses.at[TESS_AT_Q], (char *)t.q + 8);
    assert_ptr_equal(l->addresses.at[TESS_AT_K], (char *)t.k + 16);
    assert_ptr_equal(l->addresses.at[TESS_AT_O], (char *)t.o + 24);
    assert_ptr_equal(l->addresses.at[TESS_AT_LSE], (char *)t.lse + 32);
    assert_int_equal(l->args.splits, 3);
    assert_int_equal(l->args.dtype, TESS_F16);
    assert_int_equal(l->args.o_dtype, TESS_BF16);
    assert_int_equal(l->args.partial_o, 240);
    assert_int_equal(l->args.partial_lse, 60);
    assert_int_equal(l->args.q_stride[1], 24);
    assert_int_equal(l->args.k_stride[2], 5);
    args.lse.base = NULL; /* not wanted, whatever its offset is */
    assert_fine(w.context, tess_queue_merge(w.queue, &desc, &args));
    assert_null(fake->launch[1].addresses.at[TESS_AT_LSE]);
    fake_tensors_free(w.device, &t);
    fake_world_close(&w);
}

static void a_merge_keeps_to_its_device(void **state)
{
    const tess_merge_desc desc = merge_desc();
    static char host[FAKE_TENSOR_BYTES];
    static const char *const names[] = {"o_part is at", "lse_part is at", "o is at", "lse is at"};
    fake_tensors t;
    fake_world w;

    (void)state;
    fake_world_open(&w);
    assert_fine(w.context, fake_tensors_make(w.device, 0, &t));
    for (size_t i = 0; i < COUNT(names); i++) {
        tess_merge_args args = merge_args(&t);

        *(i == 0   ? (void **)(uintptr_t)&args.o_part.base
          : i == 1 ? (void **)(uintptr_t)&args.lse_part.base
          : i == 2 ? &args.o.base
                   : &args.lse.base) = host;
        assert_refused(w.context, tess_queue_merge(w.queue, &desc, &args), TESS_INVALID,
                       "tess_queue_merge", names[i], "the host's");
    }
    assert_int_equal(fake->launches, 0);
    fake_tensors_free(w.device, &t);
    fake_world_close(&w);
}

/* ---- Devices that go ------------------------------------------------------------------------- */

static int lose(const fake_launch *launch)
{
    (void)launch;
    return FAKE_ILLEGAL_ADDRESS;
}

static void a_lost_device_says_so(void **state)
{
    const tess_attention_desc desc = small_desc();
    tess_plan *plan = NULL;
    fake_tensors t;
    fake_world w;

    (void)state;
    fake_world_open(&w);
    assert_fine(w.context, tess_plan_create_forward(w.device, &desc, &plan));
    assert_fine(w.context, fake_tensors_make(w.device, 0, &t));
    fake->run = lose;
    assert_refused(w.context, tess_plan_run_forward(plan, w.queue, &t.args), TESS_DEVICE_FAILED,
                   "tess_plan_run_forward",
                   fake_either("cuLaunchKernel says CUDA_ERROR_ILLEGAL_ADDRESS (700)|is lost",
                               "hipModuleLaunchKernel says hipErrorIllegalAddress (700)|is lost"),
                   "a fault");
    fake->run = NULL;
    fake_tensors_free(w.device, &t);
    tess_plan_destroy(plan);
    fake_world_close(&w);
}

/* ---- Images ---------------------------------------------------------------------------------- */

static int64_t calls_of(const char *name)
{
    int64_t count = 0;

    for (int64_t i = 0; i < fake->calls && i < FAKE_CALLS; i++)
        count += strcmp(fake->call[i], name) == 0;
    return count;
}

static void images_are_loaded_once_per_device(void **state)
{
    const tess_attention_desc desc = small_desc();
    const char *const load = fake_either("cuModuleLoadDataEx", "hipModuleLoadDataEx");
    char name[16];
    tess_device *other = NULL;
    tess_plan *plans[3] = {NULL, NULL, NULL};
    fake_world w;

    (void)state;
    fake_world_open(&w);
    assert_int_equal(calls_of(load), 0); /* opening costs nothing */
    assert_fine(w.context, tess_plan_create_forward(w.device, &desc, &plans[0]));
    assert_fine(w.context, tess_plan_create_forward(w.device, &desc, &plans[1]));
    assert_int_equal(calls_of(load), 1);
    snprintf(name, sizeof name, "%s:1", fake_vendor);
    assert_fine(w.context, tess_device_open(w.context, name, &other));
    assert_fine(w.context, tess_plan_create_forward(other, &desc, &plans[2]));
    assert_int_equal(calls_of(load), 2);
    for (size_t i = 0; i < COUNT(plans); i++)
        tess_plan_destroy(plans[i]);
    fake_world_close(&w);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_kernel_where_one_does),
        cmocka_unit_test(splits_are_combined),
        cmocka_unit_test(what_spreads_is_done_again),
        cmocka_unit_test(an_empty_problem_launches_nothing),
        cmocka_unit_test(a_short_problem_gets_the_short_kernel),
        cmocka_unit_test(gradients_take_three_steps),
        cmocka_unit_test(every_gradient_has_its_step),
        cmocka_unit_test(gradients_that_spread_are_done_again),
        cmocka_unit_test(dq_is_added_where_bits_may_differ),
        cmocka_unit_test(a_gradient_without_a_kernel_is_refused),
        cmocka_unit_test(a_captured_run_allocates_and_waits_for_nothing),
        cmocka_unit_test(scratch_grows_and_may_fail),
        cmocka_unit_test(memory_of_others_is_refused),
        cmocka_unit_test(a_device_that_reads_the_host_may),
        cmocka_unit_test(a_merge_is_one_launch),
        cmocka_unit_test(a_merge_keeps_to_its_device),
        cmocka_unit_test(a_lost_device_says_so),
        cmocka_unit_test(images_are_loaded_once_per_device),
    };

    fake_world_start(argc, argv);
    return cmocka_run_group_tests(tests, NULL, NULL) != 0;
}
