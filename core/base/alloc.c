/* SPDX-License-Identifier: Apache-2.0
 * Host memory through the program's allocator, and arithmetic on sizes that cannot wrap. */
#include "core/base/alloc.h"

#include <stdlib.h>
#include <string.h>

void *tess_default_allocate(void *user, size_t size, size_t alignment)
{
    void *memory = NULL;

    (void)user;
    /* Not aligned_alloc: C11 leaves sizes that are no multiple of the alignment undefined. */
    return posix_memalign(&memory, alignment, size) == 0 ? memory : NULL;
}

void tess_default_release(void *user, void *memory, size_t size)
{
    (void)user;
    (void)size;
    free(memory);
}

/* A program's allocator is never asked for 0 bytes, and so never told to release 0. */
static size_t at_least_one(size_t size)
{
    return size == 0 ? 1 : size;
}

void *tess_alloc(const tess_host *host, size_t size)
{
    if (host == NULL || host->allocate == NULL)
        return tess_default_allocate(NULL, at_least_one(size), TESS_ALIGNMENT);
    return host->allocate(host->memory_user, at_least_one(size), TESS_ALIGNMENT);
}

void *tess_alloc_zero(const tess_host *host, size_t size)
{
    void *memory = tess_alloc(host, size);

    if (memory != NULL)
        memset(memory, 0, at_least_one(size));
    return memory;
}

void *tess_alloc_array(const tess_host *host, size_t count, size_t size)
{
    size_t total;

    if (!tess_multiply(count, size, &total))
        return NULL;
    return tess_alloc_zero(host, total);
}

void tess_release(const tess_host *host, void *memory, size_t size)
{
    if (memory == NULL)
        return;
    if (host == NULL || host->release == NULL)
        tess_default_release(NULL, memory, at_least_one(size));
    else
        host->release(host->memory_user, memory, at_least_one(size));
}

bool tess_multiply(size_t a, size_t b, size_t *out)
{
    size_t product;

    if (__builtin_mul_overflow(a, b, &product))
        return false;
    *out = product;
    return true;
}

bool tess_add(size_t a, size_t b, size_t *out)
{
    size_t sum;

    if (__builtin_add_overflow(a, b, &sum))
        return false;
    *out = sum;
    return true;
}

bool tess_multiply_i64(int64_t a, int64_t b, int64_t *out)
{
    int64_t product;

    if (__builtin_mul_overflow(a, b, &product))
        return false;
    *out = product;
    return true;
}

bool tess_add_i64(int64_t a, int64_t b, int64_t *out)
{
    int64_t sum;

    if (__builtin_add_overflow(a, b, &sum))
        return false;
    *out = sum;
    return true;
}
