/* SPDX-License-Identifier: Apache-2.0
 * What one row attends to: the keys of largest weight, with their words when the file has them. */
#ifndef TESSERA_TOOLS_ATTEND_H
#define TESSERA_TOOLS_ATTEND_H

#include "tools/job.h"

#include <jansson.h>

/* Whether --explain-row ("batch,head,row") names a row of the job; an exit code. */
int tool_attend_check(const tool_job *job, const char *place);

/* Computes the row that --explain-row names in float64 from Q and K, and prints
 * it, or adds it to `object` when that is not NULL. Returns an exit code. */
int tool_attend(const tool_job *job, const char *place, int64_t top, json_t *object);

#endif
