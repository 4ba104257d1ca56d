/* SPDX-License-Identifier: Apache-2.0
 * Host memory through the program's allocator, and arithmetic on sizes that cannot wrap. */
#ifndef TESSERA_CORE_BASE_ALLOC_H
#define TESSERA_CORE_BASE_ALLOC_H

#include "core/base/host.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Every block starts on a cache line, which is also the widest vector register. */
enum { TESS_ALIGNMENT = 64 };

/* Allocates at least one byte on a TESS_ALIGNMENT boundary; size 0 counts as 1. Returns NULL when
 * there is none, without recording a failure: the caller knows which call it is and for what.
 * Release with the same size. */
void *tess_alloc(const tess_host *host, size_t size);

/* The same, filled with zeros. */
void *tess_alloc_zero(const tess_host *host, size_t size);

/* count elements of size bytes, filled with zeros; NULL also when the product does not fit. Release
 * with count * size, which is then known to fit. */
void *tess_alloc_array(const tess_host *host, size_t count, size_t size);

/* Gives memory back; size is the size asked for. NULL is fine. */
void tess_release(const tess_host *host, void *memory, size_t size);

/* What a host without an allocator uses: the C library. They ignore user and size. */
void *tess_default_allocate(void *user, size_t size, size_t alignment);
void tess_default_release(void *user, void *memory, size_t size);

/* Checked arithmetic: true and *out written, or false and *out untouched when the result does not
 * fit. Sizes that come from outside are multiplied with these or have been bounded before. */
bool tess_multiply(size_t a, size_t b, size_t *out);
bool tess_add(size_t a, size_t b, size_t *out);
bool tess_multiply_i64(int64_t a, int64_t b, int64_t *out);
bool tess_add_i64(int64_t a, int64_t b, int64_t *out);

#endif
