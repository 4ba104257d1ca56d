/* SPDX-License-Identifier: Apache-2.0
 * Results wrong on purpose, so that a comparison which cannot see them is found out. */
#ifndef TESSERA_TESTS_KIT_SABOTAGE_H
#define TESSERA_TESTS_KIT_SABOTAGE_H

#include "tests/kit/case.h"
#include "tests/kit/oracle.h"

/* Modes:
 *
 *     drop-last-tile    the last 16 columns of every sequence are missing
 *     shift-mask        causal and window bounds lie one column further
 *     forget-mask       what a mask hides counts with a score of 0
 *     forget-rescale    sums of earlier tiles keep their old maximum
 *     swap-heads        heads 0 and 1 of the output change places
 *     interleave-heads  query head h reads key head h % heads_kv
 *     wrong-scale       softmax_scale is an eighth too large
 *     ignore-softcap, ignore-alibi, ignore-bias, ignore-sink
 *     late-softcap      softcap after ALiBi and bias
 *     alibi-from-start  ALiBi distances without D
 *     twice-sink        the sink enters the denominator twice
 *     base2-lse         LSE in base 2
 *     empty-lse         LSE of empty rows is +infinity
 *     unwritten-row     one row of O was not written
 *     unwritten-lse     one LSE was not written
 *     hide-nan          rows that must be NaN are zero
 *     spread-nan        a row that must not be NaN is
 *     canary            a byte in front of O was overwritten
 *     gap               an element of O between its rows was overwritten
 *     input             a byte of Q was overwritten
 *
 * In gradients swap-heads is of dQ, gap and canary are of dK or what there is instead, and there
 * are besides:
 *
 *     forget-delta      g = P dP
 *     ignore-dlse       dLSE counts as 0
 *     forget-cap-slope  the softcap's derivative is 1
 *     forget-scale      dQ and dK without softmax_scale
 *     forget-group      dK and dV of one query head of each group alone
 *     unwritten-key     one row of dK or dV was not written
 */
const char *tess_sabotage_name(int index); /* NULL past the last */

/* Falsifies the outputs in host memory.
 *
 * mode      a mode's name, or "any": one of those that apply to the line, drawn by its seed
 * oracle    of the case as it is
 * out_name  receives the mode's name
 *
 * Returns false, with the reason in `why`, when this case could not have revealed the mistake: the
 * line lacks what the mode falsifies, or the data makes no difference that any budget could catch.
 */
bool tess_sabotage(tess_case *c, const tess_oracle *oracle, const char *mode, char *out_name,
                   size_t name_size, tess_text *why);

/* The same for the gradients of a backward line. */
bool tess_sabotage_backward(tess_case *c, const tess_oracle_gradients *truth, const char *mode,
                            char *out_name, size_t name_size, tess_text *why);

/* Says in `why` that a mode does not apply, or that there is none of that name; false. */
bool tess_sabotage_refuse(const char *name, tess_text *why);

/* Writes an oracle's gradients into the outputs in host memory, rounded as a device would. */
void tess_sabotage_write_gradients(tess_case *c, const tess_oracle_gradients *gradients);

/* Writes an oracle's rows into the outputs in host memory, rounded as a device would. Tests of the
 * comparison begin with this: a right result by construction. */
void tess_sabotage_write(tess_case *c, const tess_oracle *oracle);

#endif
