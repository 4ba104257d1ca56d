/* SPDX-License-Identifier: Apache-2.0
 * Forces every kernel record by its name: against the oracle, the plainest kernel, and its twin. */
#include "core/runtime/objects.h"
#include "tests/conformance/family.h"
#include "tests/conformance/scene.h"
#include "tests/kit/check.h"
#include "tests/kit/generate.h"
#include "tests/kit/number.h"
#include "tests/kit/random.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define COUNT(list) (sizeof(list) / sizeof *(list))

enum { LINE_SIZE = 8192 };

/* Shapes that every kernel takes, those for short problems too: at most 4 folded rows. */
static const char *const short_lines[] = {
    "fwd b1 hq1 q1 k1 d1 f32",
    "fwd b2 hq2 hk2 q1 k130 d64 f32",
    "fwd b2 hq4 hk1 q1 k97 d128 f16",
    "fwd b2 hq4 hk1 q1 k48 d80 bf16 causal",
    "fwd b1 hq2 hk2 q4 k49 d33 bf16 causal",
    "fwd b1 hq2 hk1 q2 k300 d40 dv72 f16 splits=3",
    "fwd b1 hq1 q3 k64 d256 f32 window=20,3",
    "fwd b3 hq2 hk1 q2 k100 usedk=100,0,47 page=16 d64 f16",
    "fwd hq4 hk2 lensq=1,0,2 lensk=50,9,200 d16 f32 causal alibi",
    "fwd b2 hq3 hk1 q1 k70 d24 f32 bias sink softcap=3",
    "fwd b2 hq2 hk2 q2 k70 d24 bf16 layout=strided seed=4",
    "fwd b1 hq2 hk1 q2 k60 d16 f16 fill=nan",
    "fwd b1 hq2 hk1 q2 k200 d16 f32 fill=ascending",
    "fwd b1 hq2 hk1 q2 k200 d16 bf16 fill=huge",
    "fwd b1 hq2 hk1 q2 k256 d16 f32 fill=equal splits=1",
    "fwd b1 hq2 hk1 q2 k0 d16 f32",
    "fwd b1 hq1 q2 k70 d16 f16 of=f32 scale=-0.5",
};

/* For the kernels of few rows: every number of rows that is computed at once and one beside it,
 * dims that fill lines, pairs and vectors or do not, pages that tiles begin and end in. */
static const char *const few_lines[] = {
    "fwd b1 hq3 hk1 q1 k47 d32 f32",
    "fwd b1 hq5 hk1 q1 k49 d31 dv33 f32 causal",
    "fwd b1 hq6 hk1 q1 k95 d96 dv40 bf16",
    "fwd b1 hq7 hk1 q1 k97 d72 f16 alibi",
    "fwd b2 hq16 hk2 q1 k145 d128 bf16",
    "fwd b1 hq9 hk1 q1 k65 d17 dv47 bf16 bias",
    "fwd b1 hq5 hk1 q2 k144 d65 f16 causal",
    "fwd b1 hq11 hk1 q1 k33 d16 dv15 f32 sink",
    "fwd b1 hq2 hk1 q6 k51 d112 dv1 bf16 causal softcap=4",
    "fwd b1 hq13 hk1 q1 k193 d48 f32 window=60,0",
    "fwd b1 hq2 hk1 q7 k400 d63 f32 causal splits=5",
    "fwd b1 hq15 hk1 q1 k48 d2 dv512 f16",
    "fwd b1 hq4 hk1 q4 k500 d512 dv8 bf16 window=100,2 splits=3",
    "fwd b3 hq8 hk1 q2 k150 usedk=150,1,97 page=1 d64 f32",
    "fwd b3 hq8 hk1 q2 k150 usedk=150,1,97 page=7 d40 bf16 causal",
    "fwd b2 hq8 hk1 q1 k200 usedk=200,49 page=48 d128 f16 splits=2",
    "fwd b2 hq12 hk1 q1 k90 d24 f16 layout=strided seed=5",
    "fwd b1 hq16 hk1 q1 k150 d40 bf16 fill=nan",
    "fwd b1 hq8 hk1 q2 k150 d32 f32 causal fill=inf",
    "fwd b1 hq8 hk1 q2 k200 d64 bf16 fill=ascending",
    "fwd b1 hq1 q1 k95 d40 dv17 bf16 alibi",
    "fwd b1 hq1 q1 k49 d31 f16 sink",
    "fwd b1 hq2 hk1 q1 k97 d72 f32 bias",
    "fwd b1 hq3 hk1 q1 k145 d96 f16 softcap=4",
    "fwd b2 hq4 hk1 q1 k65 d65 bf16",
    "fwd b2 hq4 hk2 q2 k50 d48 f32 causal",
    "fwd b1 hq1 q3 k90 d128 bf16 window=20,1 splits=2",
    "fwd b2 hq3 hk1 q1 k200 usedk=200,49 page=7 d80 bf16",
    "fwd b2 hq4 hk1 q1 k90 d24 f16 layout=strided seed=6",
    "fwd b1 hq2 hk1 q2 k150 d96 f32 causal fill=inf",
    "fwd b1 hq3 hk1 q1 k150 d64 bf16 fill=nan",
};

static const char *const long_lines[] = {
    "fwd b1 hq2 hk1 q130 k200 d64 f32",
    "fwd b1 hq2 hk1 q130 k200 d64 f16 causal",
    "fwd b1 hq2 hk1 q130 k200 d64 bf16 window=50,9",
    "fwd b1 hq6 hk2 q65 k65 d40 dv96 f32 causal alibi softcap=9",
    "fwd b1 hq1 q97 k49 d128 bf16 causal",
    "fwd b1 hq1 q257 k31 d7 f16 topleft causal",
    "fwd hq4 hk1 lensq=40,0,129 lensk=70,9,129 d32 f32 causal sink",
    "fwd b2 hq4 hk2 q70 k150 usedk=150,49 page=16 d32 bf16 splits=2",
    "fwd b2 hq2 hk1 q70 k150 d32 f16 layout=strided causal bias seed=7",
    "fwd b1 hq2 hk1 q70 k70 d32 f32 causal fill=nan",
    "fwd b1 hq2 hk1 q70 k150 d32 f32 fill=descending",
    "fwd b1 hq2 hk1 q70 k256 d32 f16 fill=dominate",
};

/* Backward kernels take any shape. */
static const char *const backward_lines[] = {
    "bwd b1 hq1 q1 k1 d1 f32",
    "bwd b2 hq4 hk2 q33 k65 d64 f32 causal",
    "bwd b2 hq4 hk1 q130 k97 d40 dv72 f16",
    "bwd b1 hq3 hk1 q97 k129 d128 bf16 causal",
    "bwd b1 hq1 q257 k31 d7 f16 topleft causal",
    "bwd b1 hq2 hk1 q129 k530 d16 f32 window=50,9",
    "bwd b1 hq2 hk1 q9 k4271 d8 f32 causal",
    "bwd b1 hq6 hk2 q65 k65 d40 dv96 f32 causal alibi softcap=9",
    "bwd b2 hq4 hk2 q40 k50 d16 bf16 bias sink alibi softcap=2 seed=2",
    "bwd b3 hq4 hk2 q40 k50 d16 f32 bias biasbcast=bhij seed=3",
    "bwd hq4 hk1 lensq=40,0,129 lensk=70,9,129 d32 f32 causal sink",
    "bwd hq4 hk2 lensq=3,9,40 lensk=40,9,3 gap=2 usedq=3,0,31 usedk=9,9,3 d16 f16",
    "bwd b2 hq2 hk1 q70 k150 d32 f16 layout=strided causal bias seed=7",
    "bwd b2 hq4 hk2 q30 k40 d24 bf16 layout=strided seed=8",
    "bwd b1 hq2 hk1 q70 k70 d32 f32 causal fill=nan",
    "bwd b1 hq2 hk1 q70 k70 d32 bf16 fill=inf seed=3",
    "bwd b1 hq2 hk1 q70 k150 d32 f32 fill=huge",
    "bwd b1 hq2 hk1 q70 k256 d32 f16 fill=dominate",
    "bwd b1 hq2 hk1 q70 k50 d16 f32 scale=-0.5",
    "bwd b2 hq4 hk2 q5 k0 d16 f32",
};

/* ---- Records --------------------------------------------------------------------------------- */

/* A record of a device and what became of it. */
typedef struct record {
    const tess_kernel *kernel;
    tess_subject subject; /* whose context takes only this kernel; no device: cannot run here */
    int lines;
} record;

typedef struct record_set {
    record *all;
    size_t count;
    int failed;
} record_set;

/* The few members of a problem that kernels are chosen by. */
static tess_refusal asked(const record *r, const tess_line *line)
{
    const tess_problem problem = {.pass = line->backward ? TESS_PASS_BACKWARD : TESS_PASS_FORWARD,
                                  .page_size = line->page_size,
                                  .rows = line->seqlen_q + line->gap,
                                  .columns = line->seqlen_k + line->gap,
                                  .group = line->heads_kv ? line->heads_q / line->heads_kv : 1,
                                  .heads_q = line->heads_q,
                                  .heads_kv = line->heads_kv,
                                  .head_dim = line->head_dim,
                                  .head_dim_v = line->head_dim_v,
                                  .dtype = line->dtype};
    const tess_device *device = r->subject.device;

    return tess_kernel_accepts(r->kernel, &problem, device->backend->caps(device->opened));
}

static bool takes(const record *r, const tess_line *line)
{
    return asked(r, line).code == TESS_ACCEPTED;
}

/* Whether a kernel takes one type of Q, K and V only. Then lines get that type, and backward ones
 * may be refused: the data of some has a wider dO, which only the seed says. */
static bool is_narrow(const record *r)
{
    return !(r->kernel->dtypes & 1u << TESS_F32);
}

static void narrow(const record *r, tess_line *line)
{
    for (tess_dtype dtype = TESS_F16; dtype <= TESS_BF16 && is_narrow(r); dtype++)
        if (r->kernel->dtypes & 1u << dtype)
            line->dtype = dtype;
    if (is_narrow(r) && line->backward)
        line->o_dtype = TESS_DTYPE_NONE; /* dO is like O */
}

static bool is_this_machine_able(const record *r, char *why, size_t why_size)
{
    tess_text reason = tess_text_in(why, why_size);
    tess_refusal refusal;
    tess_line line;

    tess_line_default(&line);
    line.backward = r->kernel->pass == TESS_PASS_BACKWARD;
    narrow(r, &line);
    refusal = asked(r, &line);
    if (refusal.code == TESS_ACCEPTED)
        return true;
    tess_refusal_write(&refusal, r->kernel, &reason);
    return false;
}

/* Opens a context per record, with TESSERA_KERNEL naming it. */
static void open_all(record_set *set, const tess_subject *subject)
{
    char why[640];

    for (size_t i = 0; i < set->count; i++) {
        record *r = &set->all[i];

        setenv("TESSERA_KERNEL", r->kernel->name, 1);
        if (!tess_subject_open(subject->info.name, NULL, 0, &r->subject, why, sizeof why)) {
            printf("FAIL records: %s\n", why);
            set->failed++;
        } else if (!is_this_machine_able(r, why, sizeof why)) {
            printf("skip %s: %s\n", r->kernel->name, why);
            tess_subject_close(&r->subject);
        }
    }
    unsetenv("TESSERA_KERNEL");
}

/* ---- Against the oracle ---------------------------------------------------------------------- */

static void read_line(const char *text, tess_line *out)
{
    char why[512] = "";
    tess_text reason = tess_text_in(why, sizeof why);

    if (tess_line_read(text, out, &reason) == TESS_OK)
        return;
    printf("FAIL records: \"%s\": %s\n", text, why);
    exit(TESS_TEST_FAILED);
}

enum { MOST_SEEDS = 16 };

static void check(record_set *set, record *r, tess_line *line)
{
    static tess_check_report report;
    const tess_check_options options = {.kernel = r->kernel->name};
    tess_check_verdict verdict = tess_check_line(r->subject.device, line, &options, &report);
    char data[LINE_SIZE];
    tess_text text = tess_text_in(data, sizeof data);

    for (int i = 0; i < MOST_SEEDS && verdict == TESS_CHECK_REFUSED && is_narrow(r); i++) {
        line->seed++;
        verdict = tess_check_line(r->subject.device, line, &options, &report);
    }
    r->lines += verdict == TESS_CHECK_PASS;
    if (verdict == TESS_CHECK_PASS)
        return;
    tess_line_write(line, &text);
    printf("FAIL records: kernel %s, verdict %s\n  replay \"%s\"\n%s", r->kernel->name,
           tess_check_verdict_name(verdict), data, report.text);
    set->failed++;
}

/* Makes a random line one that a kernel for short problems takes. */
static bool shorten(const record *r, tess_line *line)
{
    const int64_t most = r->kernel->max_folded_rows;

    tess_family_widen_type(line);
    if (most == 0 || takes(r, line))
        return takes(r, line);
    if (line->lens_q.runs || line->used_q.runs || line->heads_kv == 0)
        return false;
    if (line->heads_q / line->heads_kv > most)
        line->heads_q = line->heads_kv * most;
    line->seqlen_q = most / (line->heads_q / line->heads_kv);
    return takes(r, line);
}

/* Lines of a record's pass that somebody thought of, one after the other; NULL past the last. */
static const char *line_at(const record *r, size_t i)
{
    if (r->kernel->pass == TESS_PASS_BACKWARD)
        return i < COUNT(backward_lines) ? backward_lines[i] : NULL;
    if (i < COUNT(short_lines))
        return short_lines[i];
    i -= COUNT(short_lines);
    if (i < COUNT(few_lines))
        return few_lines[i];
    i -= COUNT(few_lines);
    return i < COUNT(long_lines) ? long_lines[i] : NULL;
}

static void against_oracle(record_set *set, record *r)
{
    const int random = tess_test_number("TESSERA_TEST_RANDOM", 40);
    /* Whatever the seeds bring: every kernel takes the short lines, or all of a backward pass. */
    const int least = r->kernel->pass == TESS_PASS_BACKWARD ? (int)COUNT(backward_lines)
                                                            : (int)COUNT(short_lines);
    tess_random seeds = tess_random_start((uint64_t)tess_test_number("TESSERA_TEST_SEED", 1), 0x4E);
    tess_line line;

    for (size_t i = 0; line_at(r, i); i++) {
        read_line(line_at(r, i), &line);
        narrow(r, &line);
        if (takes(r, &line))
            check(set, r, &line);
    }
    for (int i = 0; i < random; i++) {
        const uint64_t seed = tess_random_next(&seeds) >> 40;

        if (r->kernel->pass == TESS_PASS_BACKWARD)
            tess_generate_backward_line(seed, &line);
        else
            tess_generate_line(seed, &line);
        narrow(r, &line);
        if (shorten(r, &line))
            check(set, r, &line);
    }
    if (r->lines < least) {
        printf("FAIL records: %s passed %d lines only\n", r->kernel->name, r->lines);
        set->failed++;
    }
}

/* ---- Against each other ---------------------------------------------------------------------- */

static void judge(record_set *set, const record *a, const record *b, const char *text,
                  double distance, double allowed)
{
    if (distance <= allowed)
        return;
    printf("FAIL records: %s and %s differ by %g\n  replay \"%s\"\n", a->kernel->name,
           b->kernel->name, distance, text);
    set->failed++;
}

/* The largest difference of two gradients, over the larger of the largest elements and 1. */
static double gradient_distance(const tess_scene *a, const tess_scene *b, int which)
{
    const tess_tensor *t = &a->c.tensor[which], *u = &b->c.tensor[which];
    double worst = 0, largest = 1;

    for (size_t at = 0; at < t->buffer.size; at += t->element_size) {
        const double x = tess_number_load(t->layout.dtype, t->buffer.data + at);
        const double y = tess_number_load(t->layout.dtype, u->buffer.data + at);

        if (x == y || (isnan(x) && isnan(y)))
            continue;
        largest = fmax(largest, fmax(fabs(x), fabs(y)));
        worst = isfinite(x) && isfinite(y) ? fmax(worst, fabs(x - y)) : (double)INFINITY;
    }
    return worst / largest;
}

/* Gradients of two kernels on one line. Both are sums in fp32, rounded once. */
static void compare_backward(record_set *set, const record *a, const record *b, const char *text)
{
    tess_scene *sa, *sb;
    tess_line line;

    read_line(text, &line);
    if (!takes(a, &line) || !takes(b, &line) || strstr(text, "fill="))
        return;
    sa = tess_scene_make_backward(&a->subject, true, "%s invariant", text);
    sb = tess_scene_make_backward(&b->subject, true, "%s invariant", text);
    if (tess_scene_run(sa) && tess_scene_run(sb))
        for (int which = TESS_CASE_DQ; which <= TESS_CASE_DSINK; which++)
            if (sa->c.tensor[which].is_present)
                judge(set, a, b, text, gradient_distance(sa, sb, which),
                      tess_scene_allows(sa, 0, 1, 1));
    tess_scene_free(sa);
    tess_scene_free(sb);
}

/* Two kernels on one line: the same bits, or within the budget of one against the truth. */
static void compare(record_set *set, const record *a, const record *b, const char *text,
                    bool wants_bits)
{
    tess_scene *sa, *sb;
    double o, lse;
    tess_line line;

    read_line(text, &line);
    if (!takes(a, &line) || !takes(b, &line) || strstr(text, "fill=huge") ||
        strstr(text, "fill=nan"))
        return;
    sa = tess_scene_make(&a->subject, "%s invariant", text);
    sb = tess_scene_make(&b->subject, "%s invariant", text);
    if (tess_scene_run(sa) && tess_scene_run(sb)) {
        o = tess_scene_distance(sa, sb);
        lse = tess_scene_distance_lse(sa, sb);
        if (wants_bits
                ? o > 0 || lse > 0
                : o > tess_scene_allows(sa, 60, 8, 8) || lse > tess_scene_allows_lse(sa, 60)) {
            printf("FAIL records: %s and %s: O differs by %g, LSE by %g\n  replay \"%s\"\n",
                   a->kernel->name, b->kernel->name, o, lse, text);
            set->failed++;
        }
    }
    tess_scene_free(sa);
    tess_scene_free(sb);
}

/* Kernels that promise the same bits. */
static bool are_twins(const record *a, const record *b)
{
    return a->kernel->arithmetic && a->kernel->arithmetic == b->kernel->arithmetic && a != b;
}

static void against_others(record_set *set, const record *r, const record *plainest)
{
    const bool is_backward = r->kernel->pass == TESS_PASS_BACKWARD;

    for (size_t i = 0; line_at(r, i); i++) {
        const char *text = line_at(r, i);

        if (is_backward) {
            if (r != plainest)
                compare_backward(set, r, plainest, text);
            continue;
        }
        if (r != plainest)
            compare(set, r, plainest, text, false);
        for (size_t j = 0; j < set->count; j++)
            if (set->all[j].subject.device && are_twins(r, &set->all[j]) && &set->all[j] > r)
                compare(set, r, &set->all[j], text, true);
    }
}

/* ---- All of a device ------------------------------------------------------------------------- */

/* The record of least priority that runs here: the one that is read rather than tuned. */
static const record *find_plainest(const record_set *set, int32_t pass)
{
    const record *plainest = NULL;

    for (size_t i = 0; i < set->count; i++)
        if (set->all[i].subject.device && set->all[i].kernel->pass == pass &&
            (!plainest || set->all[i].kernel->priority < plainest->kernel->priority))
            plainest = &set->all[i];
    return plainest;
}

/* `part` of a name: records without it only serve to compare with. */
static int run(const tess_subject *subject, void *part)
{
    size_t count;
    const tess_kernel *kernels = subject->device->backend->kernels(&count);
    record_set set = {calloc(count ? count : 1, sizeof *set.all), 0, 0};
    const record *plainest[2];
    int ran = 0;

    if (!set.all)
        return TESS_TEST_FAILED;
    for (size_t i = 0; i < count; i++)
        if (kernels[i].pass == TESS_PASS_FORWARD || kernels[i].pass == TESS_PASS_BACKWARD)
            set.all[set.count++].kernel = &kernels[i];
    open_all(&set, subject);
    plainest[0] = find_plainest(&set, TESS_PASS_FORWARD);
    plainest[1] = find_plainest(&set, TESS_PASS_BACKWARD);
    for (size_t i = 0; i < set.count; i++) {
        record *r = &set.all[i];

        if (!r->subject.device || (part && !strstr(r->kernel->name, part)))
            continue;
        against_oracle(&set, r);
        against_others(&set, r, plainest[r->kernel->pass == TESS_PASS_BACKWARD]);
        printf("%s: %d lines passed\n", r->kernel->name, r->lines);
        fflush(stdout);
        ran++;
    }
    for (size_t i = 0; i < set.count; i++)
        tess_subject_close(&set.all[i].subject);
    printf("%s: %d of %zu records ran, %d failures\n", subject->info.name, ran, set.count,
           set.failed);
    free(set.all);
    return set.failed ? TESS_TEST_FAILED : ran ? TESS_TEST_PASSED : TESS_TEST_SKIPPED;
}

int main(int argc, char **argv)
{
    char *const part = argc > 2 ? argv[2] : NULL;

    /* Instruction sets are what the records themselves differ in: the device once, with all. */
    if (argc > 1 && strcmp(argv[1], "cpu") == 0) {
        tess_subject subject;
        char why[640];
        int result;

        if (!tess_subject_open("cpu", NULL, 0, &subject, why, sizeof why)) {
            printf("skipped: %s\n", why);
            return TESS_TEST_SKIPPED;
        }
        result = run(&subject, part);
        tess_subject_close(&subject);
        return result;
    }
    return tess_subjects_each(argc > 1 ? argv[1] : NULL, run, part);
}
