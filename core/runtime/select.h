/* SPDX-License-Identifier: Apache-2.0
 * Choosing a kernel: asks every record, keeps every answer. */
#ifndef TESSERA_CORE_RUNTIME_SELECT_H
#define TESSERA_CORE_RUNTIME_SELECT_H

#include "core/runtime/objects.h"

/* Asks the records of a backend that do this pass. `glob` (TESSERA_KERNEL) is NULL or empty for no
 * restriction. Of the records that accept, the one with the largest priority is chosen, the first
 * line of the .def file among equals; the others are marked outranked.
 *
 * candidates  room for tess_select_count() entries
 *
 * Returns the chosen record, or NULL when all refuse. */
const tess_kernel *tess_select(const tess_kernel *kernels, size_t count, const char *glob,
                               const tess_problem *problem, const tess_caps *caps,
                               tess_candidate *candidates);

/* Records of the pass among `count`. */
size_t tess_select_count(const tess_kernel *kernels, size_t count, int32_t pass);

/* Appends one line per candidate that was refused or outranked: name and reason. */
void tess_select_write(const tess_candidate *candidates, size_t count, tess_text *out_text);

#endif
