/* SPDX-License-Identifier: Apache-2.0
 * Memory that notices when somebody reads or writes beside it. */
#ifndef TESSERA_TESTS_KIT_GUARD_H
#define TESSERA_TESTS_KIT_GUARD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Bytes in front of every buffer that must keep their pattern, and behind its copy on a device. */
enum { TESS_CANARY = 64 };

/* `size` bytes at `data`. The first byte behind them is in a page that nobody may touch, so that a
 * read past the end faults; the bytes in front of them are canaries. */
typedef struct tess_buffer {
    char *data;
    size_t size;
    char *map; /* the canaries begin here; data - map of them */
    void *region;
    size_t region_size;
    bool is_sparse; /* set by its owner: much larger than what is used of it, never walk over all */
} tess_buffer;

/* Memory is taken where it is touched. False when the address space is not there; *out is then all
 * zero. */
bool tess_buffer_make(size_t size, tess_buffer *out);
void tess_buffer_free(tess_buffer *buffer);

/* Bytes that can be touched before the system kills processes for want of memory, about; infinity
 * where it does not tell. */
double tess_memory_available(void);

/* Whether every canary still stands. */
bool tess_buffer_is_intact(const tess_buffer *buffer);

/* Writes `size` bytes of canary, and compares. */
void tess_canary_write(char *bytes, size_t size);
bool tess_canary_holds(const char *bytes, size_t size);

/* Fingerprint of all bytes; of a sparse buffer 0. */
uint64_t tess_buffer_hash(const tess_buffer *buffer);

#endif
