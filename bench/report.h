/* SPDX-License-Identifier: Apache-2.0
 * Results of benchmarks as a table for people and as JSON for programs. */
#ifndef TESSERA_BENCH_REPORT_H
#define TESSERA_BENCH_REPORT_H

#include "bench/bench.h"
#include "bench/ceilings.h"

#include <jansson.h>
#include <stdio.h>

/* One object for one row; the keys are described in docs/benchmarking.md. NULL when memory runs
 * out. */
json_t *tess_report_row(const tess_bench_result *result);

/* {"version": 1, "machine": {...}, "results": [...]}: the machine is what matters for reading the
 * numbers. NULL when memory runs out. */
json_t *tess_report_json(const tess_bench_result *results, size_t count);

/* An aligned table: a line for each problem, a row for each candidate. */
void tess_report_table(const tess_bench_result *results, size_t count, FILE *file);

/* One line: how fast each level of memory is read. */
void tess_report_levels(const tess_levels *levels, FILE *file);

/* The ceilings as one object, and as a table. */
json_t *tess_report_ceilings(const tess_ceilings *ceilings);
void tess_report_ceilings_table(const tess_ceilings *ceilings, FILE *file);

#endif
