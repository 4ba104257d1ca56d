/* SPDX-License-Identifier: Apache-2.0
 * Checking one problem line on one device: the one entry of tests, benchmarks and the command. */
#ifndef TESSERA_TESTS_KIT_CHECK_H
#define TESSERA_TESTS_KIT_CHECK_H

#include "core/schedule/problem_text.h"
#include "tests/kit/compare.h"

#include <tessera/tessera.h>

typedef enum tess_check_verdict {
    TESS_CHECK_PASS,
    TESS_CHECK_FAIL,
    TESS_CHECK_REFUSED, /* TESS_UNSUPPORTED; the reason is in the report */
    TESS_CHECK_SKIP,    /* this machine cannot try it: no memory for the tensors, another kernel */
    TESS_CHECK_MISTRUSTED /* this line could not have revealed the sabotage */
} tess_check_verdict;

/* How to check. All zero is a good choice. */
typedef struct tess_check_options {
    const char *kernel;   /* glob that the plan's kernel must match, else SKIP; NULL: any. Which
                             kernel is taken is TESSERA_KERNEL's business, read by the context */
    const char *sabotage; /* a mode of sabotage.h, or "any": the result is falsified before it is
                             compared, FAIL is then what should happen and PASS is a hole */
    double budget;        /* multiply-adds the oracle may spend before it samples rows; 0: 3e8 */
    bool once;            /* one run: no repetition, no second workspace, no run without LSE */
} tess_check_options;

enum { TESS_REPORT_SIZE = 8192, TESS_REPORT_KERNEL = 96 };

typedef struct tess_check_report {
    tess_check_verdict verdict;
    tess_status status; /* what stood in the way: TESS_INVALID when the line itself is wrong */
    tess_comparison comparison;
    double seconds; /* of the last run, waited for */
    double oracle_seconds;
    int64_t rows_known; /* rows the oracle computed, the others were left out by the budget */
    size_t workspace_size;
    char kernel[TESS_REPORT_KERNEL]; /* "" when there is no plan */
    char sabotage[32];               /* the mode that was used, "" for none */
    char text[TESS_REPORT_SIZE];     /* why, for every verdict but PASS; several lines */
} tess_check_report;

/* Makes the line's data, runs it, compares it with the oracle, then runs it again and again: into a
 * workspace of NaN, into the queue's own, and without LSE, which must all give the same bits. A
 * backward line runs the forward pass first, for the O and LSE that it starts from.
 *
 * device  open; used by this call alone, through a queue of its own
 * report  every member is written */
tess_check_verdict tess_check_line(tess_device *device, const tess_line *line,
                                   const tess_check_options *options, tess_check_report *report);

/* "pass", "fail", "refused", "skip", "mistrusted". */
const char *tess_check_verdict_name(tess_check_verdict verdict);

#endif
