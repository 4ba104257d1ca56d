/* SPDX-License-Identifier: Apache-2.0
 * Work of a problem in flops and bytes: for schedules, rooflines and shares of peak. */
#ifndef TESSERA_CORE_SCHEDULE_COST_H
#define TESSERA_CORE_SCHEDULE_COST_H

#include "core/schedule/problem_text.h"

/* Counts admitted pairs only: a causal problem does about half the flops of a full one. */
typedef struct tess_cost {
    double pairs; /* admitted (row, column) pairs, over all sequences and query heads */
    double flops; /* forward 2 (head_dim + head_dim_v) per pair; backward 2 (3 head_dim + 2
                     head_dim_v) */
    double bytes; /* least traffic: every input read once, every output written once */
} tess_cost;

/* Exact for the lengths in the line. Costs time proportional to the number of distinct sequences,
 * not to their lengths. */
tess_cost tess_cost_of(const tess_line *line);

/* Admitted pairs of one sequence and one head. */
double tess_cost_pairs(int64_t rows, int64_t columns, uint32_t mask, int64_t window_left,
                       int64_t window_right);

#endif
