/* SPDX-License-Identifier: Apache-2.0
 * From a line that fails to a small one that still fails. */
#ifndef TESSERA_TESTS_KIT_SHRINK_H
#define TESSERA_TESTS_KIT_SHRINK_H

#include "core/schedule/problem_text.h"

/* Whether a line still shows what is being looked for. */
typedef bool (*tess_shrink_fn)(void *user, const tess_line *line);

/* Tries simpler lines, an option dropped, a length halved, a layout packed, as long as one still
 * fails. Every step makes the line smaller by a measure that cannot fall for ever, so that it ends;
 * it also ends after `limit` questions (0: 500).
 *
 * line  fails already; replaced by the smallest line found, which fails too
 *
 * Returns how many questions were asked. */
int tess_shrink(tess_line *line, tess_shrink_fn still_fails, void *user, int limit);

#endif
