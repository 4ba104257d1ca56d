/* SPDX-License-Identifier: Apache-2.0
 * Tensors described for bulk copies, as the emulated driver describes them. */
#ifndef TESSERA_TESTS_EMULATION_MAP_H
#define TESSERA_TESTS_EMULATION_MAP_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Four dimensions of 16-bit numbers, innermost first; boxes of the first two, written with the
 * 128-byte pattern. Lies in a tess_gpu_map. */
typedef struct tess_emulated_map {
    const char *base;
    uint64_t extent[4];
    uint64_t stride[4]; /* bytes */
    uint32_t box[2];
    uint32_t magic;
} tess_emulated_map;

/* cuTensorMapEncodeTiled(): its rules, and what this library asks of it. 0, or an error. */
int tess_emulated_map_encode(void *map, int type, unsigned rank, void *base, const uint64_t *extent,
                             const uint64_t *stride, const uint32_t *box, const uint32_t *step,
                             int interleave, int swizzle, int promotion, int fill);

size_t tess_emulated_map_bytes(const tess_emulated_map *map); /* of a box */

/* Copies a box from these coordinates on to shared memory; returns its bytes. */
size_t tess_emulated_map_read(const tess_emulated_map *map, const int32_t at[4], char *to);

#ifdef __cplusplus
}
#endif

#endif
