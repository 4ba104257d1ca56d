/* SPDX-License-Identifier: Apache-2.0
 * The same bits every time: run again, with any number of threads, from many threads at once. */
#include "tests/conformance/scene.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>

#define COUNT(list) (sizeof(list) / sizeof *(list))

/* The number of splits is given, or left to a rule that does not look at the threads. */
static const char *const problems[] = {
    "b2 hq4 hk2 q31 k31 d32 f32 causal invariant",
    "b2 hq4 hk2 q33 k64 d32 f16 splits=3",
    "b1 hq4 hk4 q65 k65 d64 bf16 invariant",
    "b3 hq2 hk1 q1 k700 d64 f32 splits=7 sink",
    "hq4 hk1 lensq=34,0,1,100 lensk=34,5,300,100 d32 f16 causal splits=2",
    "b2 hq4 hk2 q9 k200 usedk=200,33 page=16 d32 bf16 causal splits=4",
    "b1 hq8 hk2 q130 k130 d64 f32 causal alibi splits=1",
    "b1 hq1 q3 k40 d16 f32 fill=nan splits=1",
};

static bool expect_same(const tess_scene *a, const tess_scene *b, const char *what)
{
    for (int64_t s = 0; s < a->c.line.batch; s++)
        if (!tess_scene_same_bits(a, s, b, s, what))
            return false;
    return true;
}

static void again(const tess_subject *subject)
{
    for (size_t p = 0; p < COUNT(problems); p++) {
        tess_scene *a = tess_scene_make(subject, "fwd %s", problems[p]);
        tess_scene *b = tess_scene_make(subject, "fwd %s deterministic", problems[p]);

        for (int turn = 0; turn < 10 && tess_scene_run(a) && tess_scene_run(b); turn++)
            if (!expect_same(a, b, "run again"))
                break;
        tess_scene_free(a);
        tess_scene_free(b);
    }
}

/* Contexts that allow other numbers of threads, more than there are rows included. */
static void threads(const tess_subject *subject)
{
    static const int counts[] = {1, 2, 3, 7, 16, 64};

    if (subject->info.kind != TESS_DEVICE_CPU)
        return;
    for (size_t c = 0; c < COUNT(counts); c++) {
        tess_subject other;
        char why[512];

        if (!tess_subject_open("cpu", subject->info.architecture, counts[c], &other, why,
                               sizeof why)) {
            tess_scene_fail(NULL, "%s", why);
            return;
        }
        for (size_t p = 0; p < COUNT(problems); p++) {
            tess_scene *a = tess_scene_make(subject, "fwd %s", problems[p]);
            tess_scene *b = tess_scene_make(&other, "fwd %s", problems[p]);
            char what[64];

            snprintf(what, sizeof what, "with %d threads", counts[c]);
            if (tess_scene_run(a) && tess_scene_run(b))
                expect_same(a, b, what);
            tess_scene_free(a);
            tess_scene_free(b);
        }
        tess_subject_close(&other);
    }
}

/* ---- Many callers ---------------------------------------------------------------------------- */

enum { CALLERS = 8, TURNS = 20 };

/* One caller: its own queue and outputs, the plan of all. */
typedef struct caller {
    const tess_plan *plan;
    tess_scene *scene;
    tess_queue *queue;
    bool has_failed;
} caller;

static void *call(void *user)
{
    caller *c = user;
    const tess_forward_args args = tess_case_forward_args(&c->scene->c, true);

    for (int turn = 0; turn < TURNS; turn++)
        if (tess_plan_run_forward(c->plan, c->queue, &args) != TESS_OK ||
            tess_queue_wait(c->queue) != TESS_OK)
            c->has_failed = true;
    return NULL;
}

/* One plan, run by several threads of the caller's on queues of their own. */
static void callers(const tess_subject *subject)
{
    if (subject->info.kind != TESS_DEVICE_CPU)
        return; /* reads host memory */
    for (size_t p = 0; p < COUNT(problems); p++) {
        tess_scene *first = tess_scene_make(subject, "fwd %s", problems[p]);
        caller all[CALLERS] = {0};
        pthread_t thread[CALLERS];
        int started = 0;

        if (!tess_scene_run(first)) {
            tess_scene_free(first);
            continue;
        }
        for (; started < CALLERS; started++) {
            caller *c = &all[started];

            *c =
                (caller){first->plan, tess_scene_make(subject, "fwd %s", problems[p]), NULL, false};
            if (tess_queue_create(subject->device, &c->queue) != TESS_OK ||
                pthread_create(&thread[started], NULL, call, c) != 0) {
                tess_scene_fail(first, "caller %d could not start", started);
                tess_queue_destroy(c->queue);
                tess_scene_free(c->scene);
                break;
            }
        }
        for (int i = 0; i < started; i++) {
            pthread_join(thread[i], NULL);
            if (all[i].has_failed)
                tess_scene_fail(first, "a run beside others failed");
            else
                expect_same(first, all[i].scene, "beside other callers");
            tess_queue_destroy(all[i].queue);
            tess_scene_free(all[i].scene);
        }
        tess_scene_free(first);
    }
}

/* Inside a parallel region of the caller's, where OpenMP gives no threads of its own. */
static void nested(const tess_subject *subject)
{
    if (subject->info.kind != TESS_DEVICE_CPU)
        return;
    for (size_t p = 0; p < COUNT(problems); p++) {
        tess_scene *first = tess_scene_make(subject, "fwd %s", problems[p]);
        caller all[4] = {0};
        const bool is_run = tess_scene_run(first);

        for (int i = 0; i < 4; i++) {
            all[i] = (caller){first->plan, tess_scene_make(subject, "fwd %s", problems[p]), NULL,
                              !is_run};
            if (tess_queue_create(subject->device, &all[i].queue) != TESS_OK)
                tess_scene_fail(first, "no queue");
        }
#if defined(_OPENMP)
#pragma omp parallel for num_threads(4)
#endif
        for (int i = 0; i < 4; i++)
            if (!all[i].has_failed)
                call(&all[i]);
        for (int i = 0; i < 4; i++) {
            if (!all[i].has_failed)
                expect_same(first, all[i].scene, "inside a parallel region");
            else if (is_run)
                tess_scene_fail(first, "a run inside a parallel region failed");
            tess_queue_destroy(all[i].queue);
            tess_scene_free(all[i].scene);
        }
        tess_scene_free(first);
    }
}

static const tess_scene_test tests[] = {
    {"again", again}, {"threads", threads}, {"callers", callers}, {"nested", nested}};

int main(int argc, char **argv)
{
    return tess_scene_main(tests, COUNT(tests), argc, argv);
}
