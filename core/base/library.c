/* SPDX-License-Identifier: Apache-2.0
 * Opening drivers at run time, so that the library starts on machines without them. */
#include "core/base/library.h"

#include "core/base/log.h"
#include "core/base/text.h"

#include <dlfcn.h>
#include <string.h>

tess_status tess_library_open(const tess_host *host, const char *const *names, void **out_library,
                              char *why, size_t why_size)
{
    tess_text reasons = tess_text_in(why, why_size);

    for (; *names != NULL; names++) {
        /* NOW: a driver that lacks something says so here and not in the middle of a run. LOCAL:
         * its symbols must not meet those of another driver, or the program's. */
        void *const library = dlopen(*names, RTLD_NOW | RTLD_LOCAL);

        if (library != NULL) {
            tess_trace(host, TESS_TRACE_DRIVER, "open,%s,ok", *names);
            *out_library = library;
            return TESS_OK;
        }

        /* dlerror forgets what it has told, so it is asked once. It names the file. */
        const char *const error = dlerror();
        const char *const reason = error != NULL ? error : "cannot be opened";

        tess_trace(host, TESS_TRACE_DRIVER, "open,%s,\"%s\"", *names, reason);
        tess_text_add(&reasons, "%s%s", reasons.length > 0 ? "\n" : "", reason);
    }
    return TESS_UNAVAILABLE;
}

tess_symbol tess_library_symbol(void *library, const char *name)
{
    void *const address = dlsym(library, name);
    tess_symbol symbol = NULL;

    /* POSIX promises that both kinds of pointer look alike; C has no cast that says so. */
    _Static_assert(sizeof symbol == sizeof address, "dlsym returns functions as data pointers");
    memcpy(&symbol, &address, sizeof symbol);
    return symbol;
}

void tess_library_close(void *library)
{
    if (library != NULL)
        dlclose(library);
}
