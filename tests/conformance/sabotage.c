/* SPDX-License-Identifier: Apache-2.0
 * Tests the tests: every kind of wrong result must be caught, on several lines each. */
#include "tests/kit/sabotage.h"

#include "tests/conformance/subject.h"
#include "tests/kit/check.h"
#include "tests/kit/generate.h"

#include <stdio.h>
#include <string.h>

enum { LEAST_CAUGHT = 3, LINE_SIZE = 8192 };

/* Among them every mode finds several lines that it shows in. */
static const char *const lines[] = {
    "fwd b2 hq4 hk2 q33 k65 d32 f32",
    "fwd b2 hq4 hk2 q33 k65 d32 bf16 causal",
    "fwd b1 hq6 hk2 q50 k50 d24 f16 causal",
    "fwd b1 hq2 hk1 q40 k90 d16 f32 window=9,3",
    "fwd b1 hq4 hk2 q40 k90 d16 f16 window=20,0 softcap=2",
    "fwd b2 hq4 hk4 q17 k70 d16 bf16 softcap=1 alibi",
    "fwd b1 hq4 hk1 q20 k64 d16 f32 alibi causal fill=huge",
    "fwd b1 hq2 hk1 q9 k60 d16 f32 alibi scale=0",
    "fwd b1 hq3 hk1 q30 k9 d8 f16 alibi",
    "fwd b1 hq4 hk2 q3 k40 d16 bf16 alibi sink scale=0.01",
    "fwd b1 hq4 hk2 q12 k30 d16 f32 alibi softcap=1",
    "fwd b1 hq2 hk2 q12 k30 d16 f32 bias softcap=0.5 scale=2",
    "fwd b2 hq4 hk2 q7 k33 d16 f32 bias softcap=1 scale=1",
    "fwd b2 hq4 hk2 q9 k64 d16 f16 bias=f16 biasbcast=b softcap=2 scale=-0.5",
    "fwd b2 hq3 hk1 q5 k20 d8 f32 sink causal scale=2",
    "fwd b1 hq2 hk2 q9 k12 d8 f16 sink scale=0.01",
    "fwd b1 hq2 hk2 q9 k12 d8 bf16 sink alibi",
    "fwd b2 hq2 hk1 q40 k9 d8 f32 causal",
    "fwd b2 hq2 hk1 q40 k9 d8 bf16 causal fill=equal",
    "fwd b2 hq2 hk1 q9 k9 usedk=0,9 d8 f16",
    "fwd b2 hq2 hk1 q5 k130 d16 f32 fill=ascending",
    "fwd b2 hq2 hk1 q5 k130 d16 f16 fill=ascending splits=2",
    "fwd b2 hq2 hk1 q5 k130 d16 bf16 fill=ascending causal",
    "fwd b1 hq2 hk1 q20 k40 d16 f32 fill=nan",
    "fwd b1 hq2 hk1 q20 k20 d16 f16 fill=nan causal seed=2",
    "fwd b2 hq2 hk1 q20 k20 d16 bf16 fill=nan causal seed=4",
    "fwd b2 hq2 hk1 q20 k20 d16 f32 fill=inf causal seed=5",
    "fwd hq4 hk2 lensq=9,0,20 lensk=30,4,20 d16 f32 causal gap=2 alibi",
    "fwd hq4 hk2 lensq=9,0,20 lensk=30,4,20 d16 f16 layout=strided sink seed=3",
    "fwd b2 hq4 hk2 q3 k50 usedk=50,21 page=16 d16 bf16 causal layout=strided seed=4",
    "fwd b2 hq4 hk2 q13 k50 d16 f32 layout=strided seed=6 bias",
    "bwd b2 hq4 hk2 q33 k65 d32 f32",
    "bwd b2 hq4 hk2 q33 k65 d32 f32 causal seed=2",
    "bwd b1 hq6 hk2 q50 k50 d24 f16 causal seed=3",
    "bwd b1 hq6 hk3 q9 k12 d8 bf16 causal seed=4",
    "bwd b1 hq4 hk2 q5 k40 d16 f32 window=9,3 layout=strided seed=5",
    "bwd b1 hq4 hk4 q17 k30 d16 f32 softcap=1 alibi seed=6",
    "bwd b1 hq4 hk1 q9 k30 d16 f16 softcap=0.5 scale=1 seed=7",
    "bwd b2 hq2 hk2 q7 k12 d16 f32 bias softcap=0.5 scale=1 seed=8",
    "bwd b1 hq3 hk1 q12 k9 d8 bf16 softcap=1 scale=1 bias seed=9",
    "bwd b2 hq2 hk1 q5 k7 d8 f32 sink alibi causal seed=10",
    "bwd b1 hq4 hk2 q3 k9 d16 bf16 sink bias biasbcast=bi seed=11",
    "bwd hq4 hk2 lensq=9,0,20 lensk=30,4,20 d16 f32 causal gap=2 alibi seed=12",
    "bwd b1 hq2 hk1 q20 k20 d16 f32 fill=nan causal seed=13",
    "bwd b2 hq2 hk1 q20 k20 d16 bf16 fill=nan causal seed=14",
    "bwd b1 hq2 hk1 q20 k40 d16 f16 fill=inf causal seed=15",
};

enum { LINES = sizeof lines / sizeof *lines };

typedef struct tally {
    const tess_subject *subject;
    tess_check_report report;
    int caught, missed;
} tally;

/* Falsifies the result of one line. */
static void try_line(tally *t, const tess_line *line, const char *mode)
{
    const tess_check_options options = {.sabotage = mode, .once = true};
    const tess_check_verdict verdict =
        tess_check_line(t->subject->device, line, &options, &t->report);
    char data[LINE_SIZE];
    tess_text text = tess_text_in(data, sizeof data);

    t->caught += verdict == TESS_CHECK_FAIL;
    if (verdict != TESS_CHECK_PASS)
        return;
    t->missed++;
    tess_line_write(line, &text);
    printf("FAIL sabotage on %s: %s was not noticed in \"%s\"\n", t->subject->label,
           t->report.sabotage, data);
}

static bool read_lines(tess_line out[LINES])
{
    char why[512];

    for (int i = 0; i < LINES; i++) {
        tess_text reason = tess_text_in(why, sizeof why);

        if (tess_line_read(lines[i], &out[i], &reason) != TESS_OK) {
            printf("FAIL sabotage: \"%s\": %s\n", lines[i], why);
            return false;
        }
    }
    return true;
}

/* What is falsified must have been right, or nothing is shown. */
static int check_untouched(tally *t, const tess_line read[LINES])
{
    const tess_check_options once = {.once = true};
    int failed = 0;

    for (int i = 0; i < LINES; i++)
        if (tess_check_line(t->subject->device, &read[i], &once, &t->report) != TESS_CHECK_PASS) {
            printf("FAIL sabotage on %s: \"%s\" is %s without any\n%s", t->subject->label, lines[i],
                   tess_check_verdict_name(t->report.verdict), t->report.text);
            failed++;
        }
    return failed;
}

static int run(const tess_subject *subject, void *user)
{
    static tess_line read[LINES];
    const int random = tess_test_number("TESSERA_TEST_RANDOM", 60);
    tally t = {.subject = subject};
    int failed, total = 0;

    (void)user;
    if (!read_lines(read))
        return TESS_TEST_FAILED;
    failed = check_untouched(&t, read);
    for (int m = 0; tess_sabotage_name(m); m++) {
        t.caught = t.missed = 0;
        for (int i = 0; i < LINES; i++)
            try_line(&t, &read[i], tess_sabotage_name(m));
        if (t.caught < LEAST_CAUGHT) {
            printf("FAIL sabotage on %s: %s was caught %d times; %d is the least\n", subject->label,
                   tess_sabotage_name(m), t.caught, LEAST_CAUGHT);
            failed++;
        }
        failed += t.missed;
        total += t.caught;
    }
    t.missed = 0;
    for (int i = 0; i < random; i++) {
        tess_line line;

        tess_generate_any_line((uint64_t)(1000 + i), &line);
        if (line.dtype == TESS_F32 || line.dtype == TESS_F16 || line.dtype == TESS_BF16)
            try_line(&t, &line, "any");
    }
    printf("sabotage on %s: %d results falsified and caught, %d missed\n", subject->label, total,
           failed + t.missed);
    return failed + t.missed ? TESS_TEST_FAILED : TESS_TEST_PASSED;
}

int main(int argc, char **argv)
{
    return tess_subjects_each(argc > 1 ? argv[1] : NULL, run, NULL);
}
