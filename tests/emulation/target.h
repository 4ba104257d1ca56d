/* SPDX-License-Identifier: Apache-2.0
 * What an emulated device runs: the kernels in one vendor's spelling for one chip. */
#ifndef TESSERA_TESTS_EMULATION_TARGET_H
#define TESSERA_TESTS_EMULATION_TARGET_H

#include <stddef.h>
#include <stdint.h>

/* What a function handle points to. */
typedef struct tess_emulated_function {
    const char *name;
    void (*kernel)(const void *arguments);
} tess_emulated_function;

typedef struct tess_emulated_target {
    const char *architecture;
    uint32_t wave;
    uint32_t shared_memory; /* of a block, at most */
    const tess_emulated_function *functions;
    size_t count;
} tess_emulated_target;

/* Each vendor's file has these; "emulation:1" is the second of them. */
extern const tess_emulated_target tess_emulated_targets[];
extern const int tess_emulated_target_count;

#endif
