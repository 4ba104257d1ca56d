/* SPDX-License-Identifier: Apache-2.0
 * Elements past 2^31 give the bits of a small buffer: every stride in turn, and 2^32 bytes too. */
#include "tests/conformance/scene.h"
#include "tests/kit/number.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define COUNT(list) (sizeof(list) / sizeof *(list))

enum { BATCH = 3, ROWS = 5, COLUMNS = 37, HEADS = 2, DIMS = 12 };

/* Axes whose stride is made large. */
enum { FAR_BATCH, FAR_SEQLEN, FAR_HEAD, FAR_DIM, FAR_AXES };

/* A tensor that takes memory only where it is touched. */
typedef struct far_tensor {
    tess_buffer buffer;
    tess_layout layout;
} far_tensor;

static tess_layout stretch(tess_layout l, int axis, int64_t reach)
{
    int64_t *const stride[] = {&l.batch_stride, &l.seqlen_stride, &l.head_stride, &l.dim_stride};
    const int64_t extent[] = {l.batch, l.seqlen, l.heads, l.head_dim};

    /* The other axes keep their packed strides, within one step of the far one. */
    *stride[axis] = reach / (extent[axis] - 1) + l.batch * l.batch_stride;
    return l;
}

static bool make(far_tensor *t, tess_layout layout)
{
    const int64_t last =
        (layout.batch - 1) * layout.batch_stride + (layout.seqlen - 1) * layout.seqlen_stride +
        (layout.heads - 1) * layout.head_stride + (layout.head_dim - 1) * layout.dim_stride;

    t->layout = layout;
    return tess_buffer_make((size_t)(last + 1) * tess_dtype_size(layout.dtype), &t->buffer);
}

static char *element(const far_tensor *t, int64_t b, int64_t s, int64_t h, int64_t d)
{
    const tess_layout *l = &t->layout;
    const int64_t at =
        b * l->batch_stride + s * l->seqlen_stride + h * l->head_stride + d * l->dim_stride;

    return t->buffer.data + at * (int64_t)tess_dtype_size(l->dtype);
}

static void fill(far_tensor *t, int salt)
{
    for (int64_t b = 0; b < t->layout.batch; b++)
        for (int64_t s = 0; s < t->layout.seqlen; s++)
            for (int64_t h = 0; h < t->layout.heads; h++)
                for (int64_t d = 0; d < t->layout.head_dim; d++)
                    tess_number_store(t->layout.dtype, element(t, b, s, h, d),
                                      (double)((b * 31 + s * 17 + h * 7 + d * 5 + salt) % 23 - 11) /
                                          8);
}

/* q, k, v, o. */
static bool run(const tess_subject *subject, const far_tensor t[4])
{
    const tess_attention_desc desc = {TESS_STRUCT(tess_attention_desc),
                                      .q = t[0].layout,
                                      .k = t[1].layout,
                                      .v = t[2].layout,
                                      .o = t[3].layout,
                                      .mask = TESS_MASK_CAUSAL};
    const tess_forward_args args = {TESS_STRUCT(tess_forward_args), .q = {t[0].buffer.data, 0},
                                    .k = {t[1].buffer.data, 0}, .v = {t[2].buffer.data, 0},
                                    .o = {t[3].buffer.data, 0}};
    tess_plan *plan = NULL;
    tess_queue *queue = NULL;
    bool is_good = tess_plan_create_forward(subject->device, &desc, &plan) == TESS_OK &&
                   tess_queue_create(subject->device, &queue) == TESS_OK &&
                   tess_plan_run_forward(plan, queue, &args) == TESS_OK;

    if (!is_good) {
        char text[512];

        tess_context_error(NULL, text, sizeof text);
        tess_scene_fail(NULL, "%s", text);
    }
    tess_plan_destroy(plan);
    tess_queue_destroy(queue);
    return is_good;
}

static void expect_same(const far_tensor *near, const far_tensor *far, const char *what)
{
    const size_t size = tess_dtype_size(near->layout.dtype);

    for (int64_t b = 0; b < BATCH; b++)
        for (int64_t s = 0; s < ROWS; s++)
            for (int64_t h = 0; h < HEADS; h++)
                for (int64_t d = 0; d < DIMS; d++)
                    if (memcmp(element(near, b, s, h, d), element(far, b, s, h, d), size) != 0) {
                        tess_scene_fail(NULL, "%s: O[%d][%d][%d][%d] is other bits", what, (int)b,
                                        (int)s, (int)h, (int)d);
                        return;
                    }
}

/* One tensor far, one axis far, just past a border; all others packed. */
static void one(const tess_subject *subject, const far_tensor near[4], int which, int axis,
                int64_t reach)
{
    far_tensor far[4];
    char what[96];

    snprintf(what, sizeof what, "%s with stride %d past 2^%d elements of %s",
             (const char *const[]){"q", "k", "v", "o"}[which], axis, reach >> 32 ? 32 : 31,
             tess_dtype_name(near[0].layout.dtype));
    memcpy(far, near, sizeof far);
    if (!make(&far[which], stretch(near[which].layout, axis, reach))) {
        printf("no address space for %s\n", what);
        return;
    }
    if (which < 3)
        fill(&far[which], which);
    if (which < 3 && make(&far[3], near[3].layout)) {
        if (run(subject, far))
            expect_same(&near[3], &far[3], what);
        tess_buffer_free(&far[3].buffer);
    } else if (which == 3 && run(subject, far)) {
        expect_same(&near[3], &far[3], what);
    }
    tess_buffer_free(&far[which].buffer);
}

static void every_stride(const tess_subject *subject)
{
    static const tess_dtype types[] = {TESS_F16, TESS_F32};
    static const int64_t reaches[] = {(INT64_C(1) << 31) + 100, (INT64_C(1) << 32) + 100};

    if (subject->info.kind != TESS_DEVICE_CPU)
        return; /* only host memory can be sparse */
    for (size_t t = 0; t < COUNT(types); t++) {
        far_tensor near[4];
        bool is_made = true;

        for (int i = 0; i < 4; i++) {
            const int64_t rows = i == 1 || i == 2 ? COLUMNS : ROWS;

            is_made &= make(&near[i], tess_layout_packed(types[t], BATCH, rows, HEADS, DIMS));
            if (is_made)
                fill(&near[i], i);
        }
        if (is_made && run(subject, near))
            for (int which = 0; which < 4; which++)
                for (int axis = 0; axis < FAR_AXES; axis++)
                    for (size_t r = 0; r < COUNT(reaches); r++)
                        one(subject, near, which, axis, reaches[r]);
        for (int i = 0; i < 4; i++)
            tess_buffer_free(&near[i].buffer);
    }
}

/* The kit's own far layouts, paged and packed ones included. */
static void layouts(const tess_subject *subject)
{
    static const char *const problems[] = {
        "b3 hq4 hk2 q9 k50 d16 f16 causal", "b2 hq2 hk1 q3 k60 usedk=60,33 page=16 d16 bf16",
        "hq2 hk1 lensq=5,0,20 lensk=9,4,60 d16 f32 causal", "b4 hq3 hk1 q1 k70 d24 f16 splits=3"};

    for (size_t p = 0; p < COUNT(problems); p++)
        for (int seed = 1; seed <= 3; seed++) {
            tess_scene *near =
                tess_scene_make(subject, "fwd %s invariant seed=%d", problems[p], seed);
            tess_scene *far = tess_scene_make(subject, "fwd %s invariant seed=%d layout=sparse",
                                              problems[p], seed);

            if (tess_scene_run(near) && tess_scene_run(far))
                for (int64_t b = 0; b < near->c.line.batch; b++)
                    if (!tess_scene_same_bits(near, b, far, b, "near and far"))
                        break;
            tess_scene_free(near);
            tess_scene_free(far);
        }
}

static const tess_scene_test tests[] = {{"every_stride", every_stride}, {"layouts", layouts}};

int main(int argc, char **argv)
{
    return tess_scene_main(tests, COUNT(tests), argc, argv);
}
