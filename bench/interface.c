/* SPDX-License-Identifier: Apache-2.0
 * The library's public functions as a table, of this build or of another. */
#include "bench/interface.h"

#include "core/base/library.h"

#include <string.h>

const tess_interface tess_interface_here = {
#define X(member, function) .member = function,
    TESS_INTERFACE(X)
#undef X
};

/* Assigns a function without naming its type: a pointer to one function is as good as another. */
static int assign(void *library, const char *name, void *member, size_t size)
{
    const tess_symbol symbol = tess_library_symbol(library, name);

    if (symbol)
        memcpy(member, &symbol, size);
    return symbol != NULL;
}

tess_status tess_interface_open(const tess_host *host, const char *path, void **out_library,
                                tess_interface *out, tess_text *why)
{
    const char *const names[] = {path, NULL};
    tess_interface found = {0};
    char reason[512] = "";
    void *library;

    if (tess_library_open(host, names, &library, reason, sizeof reason) != TESS_OK) {
        tess_text_add(why, "%s", reason);
        return TESS_UNAVAILABLE;
    }
#define X(member, function)                                                          \
    if (!assign(library, #function, &found.member, sizeof found.member)) {           \
        tess_text_add(why, "%s has no %s(): it is of another age", path, #function); \
        tess_library_close(library);                                                 \
        return TESS_UNAVAILABLE;                                                     \
    }
    TESS_INTERFACE(X)
#undef X
    *out = found;
    *out_library = library;
    return TESS_OK;
}
