/* SPDX-License-Identifier: Apache-2.0
 * Every tensor a problem has: its name, its shape, whether it is asked for. */
#ifndef TESSERA_CORE_RUNTIME_TENSORS_H
#define TESSERA_CORE_RUNTIME_TENSORS_H

#include "core/runtime/bind.h"

/* Fills one binding per address of enum tess_address_index but the workspace's, with everything
 * except where it is (base, offset). */
void tess_tensors_of(const tess_problem *problem, tess_binding out_bindings[TESS_AT_COUNT]);

#endif
