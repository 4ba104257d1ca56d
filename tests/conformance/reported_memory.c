/* SPDX-License-Identifier: Apache-2.0
 * Reported faults of addresses: strides, pages, gaps, scratch memory, counts, heads that do not
 * divide.
 */
#include "tests/conformance/scene.h"
#include "tests/kit/check.h"
#include "tests/kit/number.h"
#include "tests/kit/shape.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define COUNT(list) (sizeof(list) / sizeof *(list))

/* ---- Lines in a loop ------------------------------------------------------------------------- */

static void check_line(const tess_subject *subject, const char *text)
{
    static tess_check_report report;
    char why[512];
    tess_text reason = tess_text_in(why, sizeof why);
    tess_line line;

    if (tess_line_read(text, &line, &reason) != TESS_OK)
        tess_scene_fail(NULL, "\"%s\": %s", text, why);
    else if (tess_check_line(subject->device, &line, NULL, &report) == TESS_CHECK_FAIL)
        tess_scene_fail(NULL, "\"%s\"\n%s", text, report.text);
}

/* Decoding while the cache grows, the schedule choosing the splits, scratch memory full of NaN. */
static void torchtitan_3235(const tess_subject *subject)
{
    static const int pages[] = {16, 256};

    for (int length = 1; length <= 1100; length += 1 + length / 6)
        for (size_t p = 0; p < COUNT(pages); p++) {
            char text[256];

            snprintf(text, sizeof text,
                     "fwd b8 hq4 hk1 q1 k%d usedk=%d,%d,1,%d,0,%d,%d,%d page=%d d16 f16 seed=%d",
                     length, length, length / 2, (length + 1) / 2, length, length / 3, length,
                     pages[p], length);
            check_line(subject, text);
        }
}

/* More batches, sequences and splits than 16 bits count. */
static void pytorch_142228(const tess_subject *subject)
{
    check_line(subject, "fwd b65535 hq1 q1 k2 d2 f32");
    check_line(subject, "fwd b65536 hq1 q2 k1 d2 f16 causal");
    check_line(subject, "fwd b70001 hq1 q1 k3 d2 bf16 splits=2");
    check_line(subject, "fwd hq1 lensq=1x80000 lensk=2x80000 d2 f32");
    check_line(subject, "fwd b1 hq70001 hk1 q1 k2 d2 f16");
    check_line(subject, "fwd b1 hq1 q70001 k2 d2 f16");
}

/* ---- Far apart ------------------------------------------------------------------------------- */

/* A tensor of f16 whose batch entries lie 2^30 elements apart, filled with number + batch. */
static bool make_far(tess_buffer *buffer, tess_layout *layout, double number)
{
    const tess_layout packed = tess_layout_packed(TESS_F16, 5, 3, 2, 128);

    *layout = packed;
    layout->batch_stride = INT64_C(1) << 30;
    if (!tess_buffer_make((size_t)(4 * layout->batch_stride + packed.batch_stride) * 2, buffer))
        return false;
    for (int64_t b = 0; b < 5; b++)
        for (int64_t i = 0; i < packed.batch_stride; i++)
            tess_number_store(TESS_F16, buffer->data + (b * layout->batch_stride + i) * 2,
                              number + (double)b);
    return true;
}

/* A batch stride of 2^30 elements: batch 4 is not batch 0. Host memory only. */
static void flash_attention_772(const tess_subject *subject)
{
    static uint16_t q[5 * 3 * 2 * 128], o[5 * 3 * 2 * 128];
    tess_attention_desc desc = {TESS_STRUCT(tess_attention_desc)};
    tess_buffer k, v;
    tess_plan *plan = NULL;
    tess_queue *queue = NULL;

    if (subject->info.kind != TESS_DEVICE_CPU)
        return;
    desc.q = desc.o = tess_layout_packed(TESS_F16, 5, 3, 2, 128);
    if (!make_far(&k, &desc.k, 0)) {
        printf("no address space for 8 GiB of keys\n");
        return;
    }
    if (make_far(&v, &desc.v, 1)) {
        const tess_forward_args args = {TESS_STRUCT(tess_forward_args), .q = {q, 0},
                                        .k = {k.data, 0}, .v = {v.data, 0}, .o = {o, 0}};

        if (tess_plan_create_forward(subject->device, &desc, &plan) != TESS_OK ||
            tess_queue_create(subject->device, &queue) != TESS_OK ||
            tess_plan_run_forward(plan, queue, &args) != TESS_OK)
            tess_scene_fail(NULL, "a batch stride of 2^30 elements is refused");
        for (size_t i = 0; i < COUNT(o); i++)
            if (tess_number_load(TESS_F16, &o[i]) != (double)(i / (3 * 2 * 128) + 1)) {
                tess_scene_fail(NULL, "O[%zu] is %g", i, tess_number_load(TESS_F16, &o[i]));
                break;
            }
        tess_plan_destroy(plan);
        tess_queue_destroy(queue);
        tess_buffer_free(&v);
    }
    tess_buffer_free(&k);
}

/* ---- Pages ----------------------------------------------------------------------------------- */

/* Runs a scene's problem once more with other layouts of K and V; O must keep its bits. */
static void expect_same_elsewhere(tess_scene *s, tess_layout k, const void *k_base, tess_layout v,
                                  const void *v_base)
{
    const tess_tensor *o = &s->c.tensor[TESS_CASE_O];
    tess_attention_desc desc = s->c.desc;
    tess_forward_args args = tess_case_host_forward_args(&s->c);
    char *before = malloc(o->buffer.size);
    tess_plan *plan = NULL;

    desc.k = k;
    desc.v = v;
    args.k = (tess_in){k_base, 0};
    args.v = (tess_in){v_base, 0};
    if (!before)
        return;
    memcpy(before, o->buffer.data, o->buffer.size);
    tess_case_prefill(&s->c);
    if (tess_plan_create_forward(s->subject->device, &desc, &plan) != TESS_OK ||
        tess_plan_run_forward(plan, s->queue, &args) != TESS_OK)
        tess_scene_fail(s, "K and V in one place are refused");
    else if (memcmp(before, o->buffer.data, o->buffer.size) != 0)
        tess_scene_fail(s, "K and V in one place give other bits");
    tess_plan_destroy(plan);
    free(before);
}

/* Copies a pool into one where `parts` tensors alternate page by page. */
static tess_layout interleave(const tess_tensor *from, int part, int parts, char *pool)
{
    tess_layout l = from->layout;
    const size_t page = (size_t)(l.seqlen * l.heads * l.head_dim) * from->element_size;

    for (int64_t b = 0; b < l.batch; b++)
        memcpy(pool + ((size_t)b * (size_t)parts + (size_t)part) * page,
               from->buffer.data + (size_t)b * page, page);
    l.batch_stride = parts * l.seqlen * l.heads * l.head_dim;
    return l;
}

/* A page's stride is not its size times the row's stride: K and V share a pool, or layers do. */
static void aiter_3498(const tess_subject *subject)
{
    static const int pages[] = {1, 3, 16, 256};

    if (subject->info.kind != TESS_DEVICE_CPU)
        return; /* places K and V by hand */
    for (size_t p = 0; p < COUNT(pages); p++)
        for (int parts = 2; parts <= 6; parts += 4) {
            tess_scene *s = tess_scene_make(
                subject, "fwd b2 hq4 hk2 q3 k70 usedk=70,37 page=%d d24 f16 causal", pages[p]);
            const tess_tensor *k = &s->c.tensor[TESS_CASE_K], *v = &s->c.tensor[TESS_CASE_V];
            char *pool = malloc((size_t)parts * k->buffer.size);
            const size_t page = (size_t)(pages[p] * 2 * 24 * 2);

            if (pool && tess_scene_run(s) && tess_scene_is_right(s)) {
                memset(pool, 0xFF, (size_t)parts * k->buffer.size);
                const tess_layout in_k = interleave(k, parts - 2, parts, pool);
                const tess_layout in_v = interleave(v, parts - 1, parts, pool);

                expect_same_elsewhere(s, in_k, pool + (size_t)(parts - 2) * page, in_v,
                                      pool + (size_t)(parts - 1) * page);
            }
            free(pool);
            tess_scene_free(s);
        }
}

/* ---- Gaps ------------------------------------------------------------------------------------ */

/* Sequences that do not follow each other: starts 0, 4, 8, lengths 3, 2, 4. */
static void cudnn_frontend_737(const tess_subject *subject)
{
    static const int lengths[] = {3, 2, 4};
    tess_scene *s = tess_scene_make(subject, "fwd hq2 hk1 lensq=4,4,5 usedq=3,2,4 lensk=4,4,5 "
                                             "usedk=3,2,4 d16 f32 causal");

    if (tess_scene_run(s) && tess_scene_is_right(s))
        for (int b = 0; b < 3; b++) {
            tess_scene *alone = tess_scene_make(subject, "fwd b1 hq2 hk1 q%d k%d d16 f32 causal",
                                                lengths[b], lengths[b]);

            for (int i = 0; i < lengths[b]; i++)
                for (int d = 0; d < 16; d++) {
                    static const int tensors[] = {TESS_CASE_Q, TESS_CASE_K, TESS_CASE_V};

                    for (size_t t = 0; t < COUNT(tensors); t++)
                        for (int h = 0; h < (t == 0 ? 2 : 1); h++)
                            tess_scene_put(alone, tensors[t], (tess_place){0, h, i, d},
                                           tess_scene_get(s, tensors[t], (tess_place){b, h, i, d}));
                }
            if (tess_scene_run(alone))
                tess_scene_expect(s, "O", tess_scene_o(s, b, lengths[b] - 1, 1, 15),
                                  tess_scene_o(alone, 0, lengths[b] - 1, 1, 15), 1e-5);
            tess_scene_free(alone);
        }
    tess_scene_free(s);
}

/* One tensor as Q, K and V: inputs may share memory. Not of one report: it is self-attention. */
static void shared_inputs(const tess_subject *subject)
{
    for (int i = 0; i < 6; i++) {
        static const char *const words[] = {"q40 k40 d16 f32 causal", "q129 k129 d8 f16",
                                            "q7 k7 d64 bf16 splits=2"};
        static const int tensors[] = {TESS_CASE_K, TESS_CASE_V};
        tess_scene *s = tess_scene_make(subject, "fwd b2 hq2 hk2 %s layout=%s",
                                        words[i % (int)COUNT(words)], i < 3 ? "bshd" : "bhsd");
        const tess_tensor *q = &s->c.tensor[TESS_CASE_Q];

        for (size_t t = 0; t < COUNT(tensors); t++) {
            tess_tensor *other = &s->c.tensor[tensors[t]];

            memcpy(other->buffer.data, q->buffer.data, q->buffer.size);
            other->hash = tess_tensor_hash(other);
        }
        if (subject->info.kind == TESS_DEVICE_CPU && tess_scene_run(s) && tess_scene_is_right(s))
            expect_same_elsewhere(s, q->layout, q->buffer.data, q->layout, q->buffer.data);
        tess_scene_free(s);
    }
}

/* ---- Requests that must be refused ----------------------------------------------------------- */

/* Heads that do not divide: unwritten heads, reads past the last key head. */
static void flash_linear_attention_1029(const tess_subject *subject)
{
    static const int heads[][2] = {{3, 2}, {33, 2}, {2, 4}, {4, 0}, {0, 2}, {1, 2}};

    for (size_t i = 0; i < COUNT(heads); i++) {
        tess_attention_desc desc = {TESS_STRUCT(tess_attention_desc)};
        tess_plan *const mark = (tess_plan *)(uintptr_t)64;
        tess_plan *plan = mark;
        tess_status status;

        desc.q = desc.o = tess_layout_packed(TESS_F32, 1, 4, heads[i][0], 8);
        desc.k = desc.v = tess_layout_packed(TESS_F32, 1, 4, heads[i][1], 8);
        status = tess_plan_create_forward(subject->device, &desc, &plan);
        if (status != TESS_INVALID || plan != mark)
            tess_scene_fail(NULL, "%d query heads on %d key heads are %s", heads[i][0], heads[i][1],
                            tess_status_name(status));
    }
}

/* ---- Merging --------------------------------------------------------------------------------- */

/* Two parts of one row; O and LSE of the merge. */
static void expect_merge(const tess_subject *subject, const float o[2], const float lse[2],
                         double expected_o, double expected_lse)
{
    const tess_merge_desc desc = {TESS_STRUCT(tess_merge_desc),
                                  .parts = 2,
                                  .o_part = tess_layout_packed(TESS_F32, 1, 1, 1, 1),
                                  .lse_part = tess_layout_packed(TESS_F32, 1, 1, 1, 1),
                                  .o_part_stride = 1,
                                  .lse_part_stride = 1,
                                  .o = tess_layout_packed(TESS_F32, 1, 1, 1, 1),
                                  .lse = tess_layout_packed(TESS_F32, 1, 1, 1, 1)};
    float numbers[] = {o[0], o[1], lse[0], lse[1], (float)NAN, (float)NAN};
    const size_t size = sizeof numbers, each = sizeof *numbers;
    tess_merge_args args = {TESS_STRUCT(tess_merge_args)};
    tess_queue *queue = NULL;
    void *memory = NULL;
    tess_status status;

    if (tess_queue_create(subject->device, &queue) != TESS_OK ||
        tess_device_allocate(subject->device, size, &memory) != TESS_OK ||
        tess_queue_upload(queue, memory, numbers, size) != TESS_OK)
        tess_scene_fail(NULL, "no memory with the parts");
    args.o_part = (tess_in){memory, 0};
    args.lse_part = (tess_in){memory, (int64_t)(2 * each)};
    args.o = (tess_out){memory, (int64_t)(4 * each)};
    args.lse = (tess_out){memory, (int64_t)(5 * each)};
    status = tess_queue_merge(queue, &desc, &args);
    if (status == TESS_OK)
        status = tess_queue_download(queue, numbers, memory, size);
    if (status == TESS_OK)
        status = tess_queue_wait(queue);
    tess_device_release(subject->device, memory, size);
    tess_queue_destroy(queue);
    if (status == TESS_UNSUPPORTED && subject->info.kind != TESS_DEVICE_CPU)
        return; /* a backend may have no merge */
    if (status != TESS_OK)
        tess_scene_fail(NULL, "tess_queue_merge is refused");
    tess_scene_expect(NULL, "merged O", (double)numbers[4], expected_o, expected_o == 0 ? 0 : 1e-6);
    tess_scene_expect(NULL, "merged LSE", (double)numbers[5], expected_lse,
                      isfinite(expected_lse) ? 1e-6 + fabs(expected_lse) * 0x1p-23 : 0);
}

/* Two empty parts, an empty one beside a full one, natural logarithms. */
static void flashinfer_4051(const tess_subject *subject)
{
    const float none = -(float)INFINITY, junk = (float)NAN, three = (float)log(3);

    expect_merge(subject, (const float[]){0, 0}, (const float[]){none, none}, 0, -(double)INFINITY);
    expect_merge(subject, (const float[]){junk, junk}, (const float[]){none, none}, 0,
                 -(double)INFINITY);
    expect_merge(subject, (const float[]){junk, 7}, (const float[]){none, 1}, 7, 1);
    expect_merge(subject, (const float[]){7, junk}, (const float[]){1, none}, 7, 1);
    expect_merge(subject, (const float[]){1, 3}, (const float[]){0, three}, 2.5, log(4));
    expect_merge(subject, (const float[]){1, 3}, (const float[]){-200, 200}, 3, 200);
    expect_merge(subject, (const float[]){4, 8}, (const float[]){-1000, -1000}, 6, -1000 + log(2));
}

#define TEST(name)  \
    {               \
#name, name \
    }

static const tess_scene_test tests[] = {
    TEST(torchtitan_3235), TEST(pytorch_142228),     TEST(flash_attention_772),
    TEST(aiter_3498),      TEST(cudnn_frontend_737), TEST(flash_linear_attention_1029),
    TEST(flashinfer_4051), TEST(shared_inputs),
};

int main(int argc, char **argv)
{
    return tess_scene_main(tests, COUNT(tests), argc, argv);
}
