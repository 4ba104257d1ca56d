/* SPDX-License-Identifier: Apache-2.0
 * Guard pages behind buffers, canaries in front of them. */
#include "tests/kit/guard.h"

#include "tests/kit/random.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

void tess_canary_write(char *bytes, size_t size)
{
    for (size_t i = 0; i < size; i++)
        bytes[i] = (char)(0xC5 ^ (i & 7));
}

bool tess_canary_holds(const char *bytes, size_t size)
{
    for (size_t i = 0; i < size; i++)
        if (bytes[i] != (char)(0xC5 ^ (i & 7)))
            return false;
    return true;
}

bool tess_buffer_make(size_t size, tess_buffer *out)
{
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    const size_t used = (size + TESS_CANARY + page - 1) / page * page;
    char *region;

    memset(out, 0, sizeof *out);
    if (size > SIZE_MAX / 4)
        return false;
    region =
        mmap(NULL, used + 2 * page, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (region == MAP_FAILED)
        return false;
    if (mprotect(region + page, used, PROT_READ | PROT_WRITE) != 0) {
        munmap(region, used + 2 * page);
        return false;
    }
    *out = (tess_buffer){.data = region + page + used - size,
                         .size = size,
                         .map = region + page,
                         .region = region,
                         .region_size = used + 2 * page};
    tess_canary_write(out->map, (size_t)(out->data - out->map));
    return true;
}

void tess_buffer_free(tess_buffer *buffer)
{
    if (buffer->region)
        munmap(buffer->region, buffer->region_size);
    memset(buffer, 0, sizeof *buffer);
}

double tess_memory_available(void)
{
    FILE *const file = fopen("/proc/meminfo", "r");
    unsigned long long kibibytes;
    double bytes = (double)INFINITY;
    char line[128];

    if (!file)
        return bytes;
    while (fgets(line, sizeof line, file))
        if (sscanf(line, "MemAvailable: %llu kB", &kibibytes) == 1)
            bytes = 1024.0 * (double)kibibytes;
    fclose(file);
    return bytes;
}

bool tess_buffer_is_intact(const tess_buffer *buffer)
{
    return tess_canary_holds(buffer->map, (size_t)(buffer->data - buffer->map));
}

uint64_t tess_buffer_hash(const tess_buffer *buffer)
{
    uint64_t hash = buffer->size;

    if (buffer->is_sparse)
        return 0;
    for (size_t i = 0; i < buffer->size; i += 8) {
        uint64_t word = 0;

        memcpy(&word, buffer->data + i, buffer->size - i < 8 ? buffer->size - i : 8);
        hash = tess_random_mix(hash, word);
    }
    return hash;
}
