/* SPDX-License-Identifier: Apache-2.0
 * Shares of the columns: their number changes nothing, and merging parts gives the whole. */
#include "tests/conformance/scene.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define COUNT(list) (sizeof(list) / sizeof *(list))

static const char *const types[] = {"f32", "f16", "bf16"};

/* ---- The number of shares -------------------------------------------------------------------- */

/* Score and value bound what the budgets are made of. */
static void expect_near(const tess_scene *a, const tess_scene *b, double score, double value)
{
    const double allowed = 2 * tess_scene_allows(a, score, value, value);
    const double allowed_lse = 2 * tess_scene_allows_lse(a, score);

    if (!(tess_scene_distance(a, b) <= allowed))
        tess_scene_fail(b, "O is %g from that of one share; %g is allowed",
                        tess_scene_distance(a, b), allowed);
    if (!(tess_scene_distance_lse(a, b) <= allowed_lse))
        tess_scene_fail(b, "LSE is %g from that of one share; %g is allowed",
                        tess_scene_distance_lse(a, b), allowed_lse);
}

static void counts(const tess_subject *subject)
{
    static const char *const problems[] = {
        "b1 hq4 hk1 q1 k500 d16",
        "b2 hq2 hk2 q37 k200 d16 causal",
        "b1 hq2 hk1 q9 k300 d33 window=70,20 sink",
        "b2 hq4 hk2 q1 k257 usedk=257,60 page=16 d16",
        "hq4 hk1 lensq=1,0,40 lensk=150,9,3 d8 causal alibi",
        "b1 hq2 hk2 q5 k3 d8 causal",
        "b1 hq2 hk1 q5 k150 d8 bias fill=holes",
        "b1 hq2 hk1 q5 k150 d8 fill=ascending sink",
    };
    /* Up to twice the tiles, primes, more than the head dim, more than the columns. */
    static const int splits[] = {0, 2, 3, 4, 5, 7, 11, 13, 17, 23, 64, 600, 65536};

    for (size_t p = 0; p < COUNT(problems); p++)
        for (size_t t = 0; t < COUNT(types); t++) {
            tess_scene *one = tess_scene_make(subject, "fwd %s %s splits=1", problems[p], types[t]);
            const bool is_run = tess_scene_run(one) && tess_scene_is_right(one);

            for (size_t i = 0; is_run && i < COUNT(splits); i++) {
                tess_scene *s = tess_scene_make(subject, "fwd %s %s splits=%d", problems[p],
                                                types[t], splits[i]);

                if (tess_scene_run(s))
                    expect_near(one, s, 100, 3.5);
                tess_scene_free(s);
            }
            tess_scene_free(one);
        }
}

/* ---- Merging by hand ------------------------------------------------------------------------- */

enum { ROWS = 7, HEADS = 4, DIMS = 12, COLUMNS = 100, MOST_PARTS = 8 };
enum { O_SIZE = ROWS * HEADS * DIMS, LSE_SIZE = ROWS * HEADS };

/* Partial results, each packed: O (1, ROWS, HEADS, DIMS), LSE (1, ROWS, HEADS). */
typedef struct parts {
    int count;
    float o[MOST_PARTS][O_SIZE], lse[MOST_PARTS][LSE_SIZE];
} parts;

/* A device's copy of host memory. */
static void *upload(const tess_subject *subject, tess_queue *queue, const void *host, size_t size)
{
    void *memory = NULL;

    if (tess_device_allocate(subject->device, size, &memory) != TESS_OK ||
        tess_queue_upload(queue, memory, host, size) != TESS_OK)
        tess_scene_fail(NULL, "no device memory for %zu bytes", size);
    return memory;
}

/* Merges parts first ... end - 1 of `in` into part 0 of `out`. */
static void merge(const tess_subject *subject, const parts *in, int first, int end, parts *out)
{
    const size_t o_size = sizeof in->o, lse_size = sizeof in->lse;
    const tess_merge_desc desc = {TESS_STRUCT(tess_merge_desc),
                                  .parts = end - first,
                                  .o_part = tess_layout_packed(TESS_F32, 1, ROWS, HEADS, DIMS),
                                  .lse_part = tess_layout_packed(TESS_F32, 1, ROWS, HEADS, 1),
                                  .o_part_stride = O_SIZE,
                                  .lse_part_stride = LSE_SIZE,
                                  .o = tess_layout_packed(TESS_F32, 1, ROWS, HEADS, DIMS),
                                  .lse = tess_layout_packed(TESS_F32, 1, ROWS, HEADS, 1)};
    tess_queue *queue = NULL;
    tess_merge_args args = {TESS_STRUCT(tess_merge_args)};
    void *o, *lse;

    if (tess_queue_create(subject->device, &queue) != TESS_OK) {
        tess_scene_fail(NULL, "no queue");
        return;
    }
    o = upload(subject, queue, out->o[0], sizeof out->o[0]);
    lse = upload(subject, queue, out->lse[0], sizeof out->lse[0]);
    args.o_part =
        (tess_in){upload(subject, queue, in->o, o_size), first * (int64_t)sizeof in->o[0]};
    args.lse_part =
        (tess_in){upload(subject, queue, in->lse, lse_size), first * (int64_t)sizeof in->lse[0]};
    args.o.base = o;
    args.lse.base = lse;
    if (tess_queue_merge(queue, &desc, &args) != TESS_OK ||
        tess_queue_download(queue, out->o[0], o, sizeof out->o[0]) != TESS_OK ||
        tess_queue_download(queue, out->lse[0], lse, sizeof out->lse[0]) != TESS_OK)
        tess_scene_fail(NULL, "tess_queue_merge is refused");
    out->count = 1;
    tess_device_release(subject->device, o, sizeof out->o[0]);
    tess_device_release(subject->device, lse, sizeof out->lse[0]);
    tess_device_release(subject->device, (void *)(uintptr_t)args.o_part.base, o_size);
    tess_device_release(subject->device, (void *)(uintptr_t)args.lse_part.base, lse_size);
    tess_queue_destroy(queue);
}

/* Columns first ... of a whole scene. */
typedef struct slice {
    const tess_scene *from;
    int which;
    int64_t first;
} slice;

static double sliced(tess_place p, const void *user)
{
    const slice *s = user;

    if (s->which == TESS_CASE_BIAS)
        p.dim += s->first;
    else if (s->which != TESS_CASE_Q)
        p.row += s->first;
    return tess_scene_get(s->from, s->which, p);
}

/* Attention over columns first ... end - 1 as part number `part`. */
static void compute_part(const tess_scene *whole, const char *options, int first, int end, int part,
                         parts *out)
{
    static const int tensors[] = {TESS_CASE_Q, TESS_CASE_K, TESS_CASE_V, TESS_CASE_BIAS};
    tess_scene *s = tess_scene_make(whole->subject, "fwd b1 hq4 hk2 q7 k%d d16 dv12 f32 bias %s",
                                    end - first, options);

    for (size_t t = 0; t < COUNT(tensors); t++) {
        const slice from = {whole, tensors[t], first};

        tess_scene_set(s, tensors[t], sliced, &from);
    }
    if (tess_scene_run(s))
        for (int i = 0; i < ROWS; i++)
            for (int h = 0; h < HEADS; h++) {
                out->lse[part][i * HEADS + h] = (float)tess_scene_lse(s, 0, i, h);
                for (int d = 0; d < DIMS; d++)
                    out->o[part][(i * HEADS + h) * DIMS + d] = (float)tess_scene_o(s, 0, i, h, d);
            }
    tess_scene_free(s);
}

static void expect_whole(const tess_scene *whole, const parts *merged, const char *how)
{
    double worst = 0, worst_lse = 0;

    for (int i = 0; i < ROWS; i++)
        for (int h = 0; h < HEADS; h++) {
            const double lse = tess_scene_lse(whole, 0, i, h);
            const double got = (double)merged->lse[0][i * HEADS + h];

            if (lse != got)
                worst_lse = fmax(worst_lse, isfinite(lse) && isfinite(got) ? fabs(lse - got)
                                                                           : (double)INFINITY);
            for (int d = 0; d < DIMS; d++) {
                const double o = tess_scene_o(whole, 0, i, h, d);

                worst = fmax(worst, fabs(o - (double)merged->o[0][(i * HEADS + h) * DIMS + d]));
                if (isnan(merged->o[0][(i * HEADS + h) * DIMS + d]))
                    worst = (double)INFINITY;
            }
        }
    if (!(worst <= 2 * tess_scene_allows(whole, 30, 3.5, 3.5)))
        tess_scene_fail(whole, "O merged %s is %g from the whole", how, worst);
    if (!(worst_lse <= 2 * tess_scene_allows_lse(whole, 30)))
        tess_scene_fail(whole, "LSE merged %s is %g from the whole's", how, worst_lse);
}

/* The first two thirds of the columns are hidden from row 0, the last third from row 1, all of them
 * from row 2. */
static double hidden(tess_place p, const void *user)
{
    const bool is_hidden = (p.row == 0 && p.dim < 66) || (p.row == 1 && p.dim >= 66) || p.row == 2;

    return is_hidden ? -(double)INFINITY : *(const double *)user * (double)(p.dim % 5);
}

/* All at once, one after the other, and two halves. */
static void merging(const tess_subject *subject)
{
    static parts in, out, halves;
    static const char *const options[] = {"", "softcap=4", "scale=-0.5"};

    for (size_t o = 0; o < COUNT(options); o++) {
        const double slope = (double)o / 4;
        tess_scene *whole = tess_scene_make(
            subject, "fwd b1 hq4 hk2 q7 k100 d16 dv12 f32 bias splits=1 %s", options[o]);
        bool is_run;

        tess_scene_set(whole, TESS_CASE_BIAS, hidden, &slope);
        is_run = tess_scene_run(whole) && tess_scene_is_right(whole);
        for (int count = 1; is_run && count <= MOST_PARTS; count++) {
            in.count = count;
            for (int p = 0; p < count; p++)
                compute_part(whole, options[o], COLUMNS * p / count, COLUMNS * (p + 1) / count, p,
                             &in);
            merge(subject, &in, 0, count, &out);
            expect_whole(whole, &out, "at once");
            memcpy(halves.o[0], in.o[0], sizeof in.o[0]);
            memcpy(halves.lse[0], in.lse[0], sizeof in.lse[0]);
            for (int p = 1; p < count; p++) {
                memcpy(halves.o[1], in.o[count - p], sizeof in.o[0]);
                memcpy(halves.lse[1], in.lse[count - p], sizeof in.lse[0]);
                merge(subject, &halves, 0, 2, &out);
                memcpy(halves.o[0], out.o[0], sizeof out.o[0]);
                memcpy(halves.lse[0], out.lse[0], sizeof out.lse[0]);
            }
            expect_whole(whole, &halves, "one after the other, last first");
            if (count < 2)
                continue;
            merge(subject, &in, 0, count / 2, &halves);
            merge(subject, &in, count / 2, count, &out);
            memcpy(halves.o[1], out.o[0], sizeof out.o[0]);
            memcpy(halves.lse[1], out.lse[0], sizeof out.lse[0]);
            merge(subject, &halves, 0, 2, &out);
            expect_whole(whole, &out, "by halves");
        }
        tess_scene_free(whole);
    }
}

static const tess_scene_test tests[] = {{"counts", counts}, {"merging", merging}};

int main(int argc, char **argv)
{
    return tess_scene_main(tests, COUNT(tests), argc, argv);
}
