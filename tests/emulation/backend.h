/* SPDX-License-Identifier: Apache-2.0
 * A backend for tests: the GPU host code over a driver whose devices are fibers of the host. */
#ifndef TESSERA_TESTS_EMULATION_BACKEND_H
#define TESSERA_TESTS_EMULATION_BACKEND_H

#include "backends/backend.h"

/* Its devices are the targets that were linked (target.h). A program that links this has it, and
 * nothing else, in its registry.
 *
 * TESSERA_EMULATED_ORDER is forward, backward or random (the default): the order of blocks, waves
 * and lanes; TESSERA_EMULATED_SEED a number that random orders start from. */
extern const tess_backend tess_backend_emulation;

#endif
