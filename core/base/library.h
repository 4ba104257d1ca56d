/* SPDX-License-Identifier: Apache-2.0
 * Opening drivers at run time, so that the library starts on machines without them. */
#ifndef TESSERA_CORE_BASE_LIBRARY_H
#define TESSERA_CORE_BASE_LIBRARY_H

#include "core/base/host.h"

#include <stddef.h>

/* A function of a library before it is cast to its own type. C has no cast from a data pointer to a
 * function pointer, so the conversion happens once, in library.c. */
typedef void (*tess_symbol)(void);

/* Opens the first of several names that can be opened.
 *
 * names        file names or paths in order of preference, ended by NULL
 * out_library  receives a handle for tess_library_close(); untouched on failure
 * why          receives on failure what the loader said of each name, a line each, cut to why_size;
 *              may be NULL when why_size is 0
 *
 * Returns TESS_UNAVAILABLE when none can be opened. That is an answer and not yet a failed call: it
 * is traced under "driver", and the caller decides whether it becomes a tess_fail(). */
tess_status tess_library_open(const tess_host *host, const char *const *names, void **out_library,
                              char *why, size_t why_size);

/* A function of an open library, NULL when it has none of that name. Ask for the versioned name
 * ("cuMemAlloc_v2"): the macros of a vendor's header, which would choose it, are not here. */
tess_symbol tess_library_symbol(void *library, const char *name);

/* Closes a library; its functions must not be called any more. NULL is fine. */
void tess_library_close(void *library);

#endif
