/* SPDX-License-Identifier: Apache-2.0
 * The backends that were compiled in. Apart from what asks it, so that a test can bring its own. */
#include "core/runtime/registry.h"

/* In order of priority; a test holds the table to it. */
static const tess_backend *const backends[] = {
#define TESS_BACKEND(name) &tess_backend_##name,
#include "backends/backends.def"
#undef TESS_BACKEND
};

const tess_backend *const *tess_registry(size_t *out_count)
{
    *out_count = sizeof backends / sizeof backends[0];
    return backends;
}
