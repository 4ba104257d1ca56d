/* SPDX-License-Identifier: Apache-2.0
 * Random problems, drawn by strata so that the rare shapes are not rare. */
#ifndef TESSERA_TESTS_KIT_GENERATE_H
#define TESSERA_TESTS_KIT_GENERATE_H

#include "core/schedule/problem_text.h"

/* Multiply-adds a drawn problem may cost, counted with 16 more per score for its exponential. */
#define TESS_GENERATE_COST 2e7

/* The forward problem number `seed`: the same one everywhere. Every option of the grammar occurs,
 * alone and with the others, as far as they do not contradict each other. */
void tess_generate_line(uint64_t seed, tess_line *out_line);

/* The backward problem number `seed`, seldom paged, which some backends refuse; and one of either
 * pass, a quarter of them backward. */
void tess_generate_backward_line(uint64_t seed, tess_line *out_line);
void tess_generate_any_line(uint64_t seed, tess_line *out_line);

#endif
