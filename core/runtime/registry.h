/* SPDX-License-Identifier: Apache-2.0
 * Backends by name: what was compiled in, what a context allows, which device a name means. */
#ifndef TESSERA_CORE_RUNTIME_REGISTRY_H
#define TESSERA_CORE_RUNTIME_REGISTRY_H

#include "core/runtime/objects.h"

/* Backends that were compiled in, by priority. */
const tess_backend *const *tess_registry(size_t *out_count);

/* The backend of a device name ("cuda:1": that of "cuda") and what follows the colon; NULL when
 * there is none, or a colon and nothing behind it. */
const tess_backend *tess_registry_find(const char *device_name, const char **out_rest);

/* Appends the names of all backends: "cuda, hip or cpu". */
void tess_registry_write(tess_text *out_text);

/* The name most likely meant, or NULL. */
const char *tess_registry_nearest(const char *word);

/* Whether a device's name is of a backend that other builds of the library have and this one has
 * not: the program is right, the device is not there. */
bool tess_registry_is_elsewhere(const char *device_name);

/* Checks a comma list of device names; `what` is who gave it ("TESSERA_BACKEND"). */
tess_status tess_registry_check_list(const tess_host *host, const char *call, const char *what,
                                     const char *list);

/* The index-th name of a comma list, blanks trimmed; false past the end. Names longer than size
 * are cut, and then match no backend. */
bool tess_list_at(const char *list, size_t index, char *out_name, size_t size);

/* Whether a context's allow list admits a backend. */
bool tess_registry_allows(const tess_context *context, const tess_backend *backend);

/* The backends in the order this context prefers them: as its allow list names them, else by
 * priority; those it excludes come last. NULL past the end. */
const tess_backend *tess_registry_at(const tess_context *context, size_t index);

#endif
