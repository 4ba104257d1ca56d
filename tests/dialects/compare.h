/* SPDX-License-Identifier: Apache-2.0
 * Holds the answers of a dialect against those of the C11 build. */
#ifndef TESSERA_TESTS_DIALECTS_COMPARE_H
#define TESSERA_TESTS_DIALECTS_COMPARE_H

#include "probe.h"

/* A block in which every member probe_args() reads is a different number. */
tess_args probe_block(void);

/* Fills `exact` and `near` as a device does: [kind][index]. */
void probe_all(tess_u32 *exact, tess_f32 *near);

/* Prints the first few differences, each with its kind and index; returns how many there are. */
int probe_compare(const char *name, const tess_u32 *exact, const tess_f32 *near);

enum {
    PROBE_EXACT_COUNT = PROBE_EXACT_KINDS * PROBE_INDICES,
    PROBE_NEAR_COUNT = PROBE_NEAR_KINDS * PROBE_INDICES
};

#endif
