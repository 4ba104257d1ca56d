/* SPDX-License-Identifier: Apache-2.0
 * Every tensor a problem has: its name, its shape, whether it is asked for. */
#ifndef TESSERA_CORE_RUNTIME_TENSORS_H
#define TESSERA_CORE_RUNTIME_TENSORS_H

#include "core/runtime/bind.h"

/* Fills one binding per address of enum tess_address_index with everything except where it is
 * (base, offset). The workspace is an output like others: it must not share memory with anything.
 */
void tess_tensors_of(const tess_schedule *schedule, tess_binding out_bindings[TESS_AT_COUNT]);

#endif
