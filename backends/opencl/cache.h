/* SPDX-License-Identifier: Apache-2.0
 * Compiled programs on disk: found by what they were made from and for, believed only when whole.
 */
#ifndef TESSERA_BACKENDS_OPENCL_CACHE_H
#define TESSERA_BACKENDS_OPENCL_CACHE_H

#include "core/base/env.h"
#include "core/base/host.h"

#include <stdbool.h>
#include <stddef.h>

/* The folder to use: TESSERA_CACHE, else $XDG_CACHE_HOME/tessera, else ~/.cache/tessera; "" when
 * TESSERA_CACHE is off or there is no home. */
void tess_cl_cache_folder(const tess_env *env, char *out_folder, size_t size);

/* What a program is made from and for. */
typedef struct tess_cl_key {
    const char *source;
    size_t source_size;
    const char *options;
    const char *identity; /* of device, driver and platform, with versions */
} tess_cl_key;

/* A stored program, to be released with its size; false when there is none, or it is damaged or
 * another's. */
bool tess_cl_cache_read(const tess_host *host, const char *folder, const tess_cl_key *key,
                        unsigned char **out_binary, size_t *out_size);

/* Stores one; what goes wrong is told to the log and costs nothing but time. Files that were not
 * used for longest are removed when all together pass a bound. Processes may share a folder. */
void tess_cl_cache_write(const tess_host *host, const char *folder, const tess_cl_key *key,
                         const unsigned char *binary, size_t size);

/* Removes one, which the driver did not take. */
void tess_cl_cache_remove(const char *folder, const tess_cl_key *key);

#endif
