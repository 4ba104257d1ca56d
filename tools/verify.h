/* SPDX-License-Identifier: Apache-2.0
 * Results of tessera run against float64 attention and against the answer in the input file. */
#ifndef TESSERA_TOOLS_VERIFY_H
#define TESSERA_TOOLS_VERIFY_H

#include "tools/job.h"

#include <jansson.h>

/* One tensor compared with one truth. */
typedef struct tool_finding {
    const char *tensor, *truth; /* "o" against "float64" */
    int64_t elements, wrong;    /* compared, and outside their budget */
    int64_t at[4];              /* of the worst: batch, head, row, dim (-1 for lse) */
    double error, allowed;      /* of the worst, which has the largest error for what is allowed */
    double got, expected;
    double largest_error; /* of any element */
} tool_finding;

enum { TOOL_FINDINGS = 4 };

typedef struct tool_verdict {
    tool_finding finding[TOOL_FINDINGS];
    int count;
    int64_t rows, known; /* rows of the result, and how many the reference computed */
    double seconds;
    bool is_good;
} tool_verdict;

/* Compares. all_rows: however long it takes; else long problems are sampled. Returns TOOL_OK with
 * a verdict, whatever it says, or an exit code after a complaint. */
int tool_verify(const tool_job *job, bool all_rows, tool_verdict *out);

void tool_verdict_print(const tool_verdict *verdict);
json_t *tool_verdict_json(const tool_verdict *verdict);

#endif
