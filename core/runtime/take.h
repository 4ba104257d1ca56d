/* SPDX-License-Identifier: Apache-2.0
 * Reading a caller's versioned struct, whatever its age. */
#ifndef TESSERA_CORE_RUNTIME_TAKE_H
#define TESSERA_CORE_RUNTIME_TAKE_H

#include "core/base/host.h"

#include <stddef.h>
#include <tessera/attention.h>

/* Copies the caller's struct into one of this library's size: missing members become zero, unknown
 * members must be zero.
 *
 * call, name  for the text: "tess_plan_create_forward", "desc"
 * given       begins with its struct_size; not NULL
 * size        sizeof this library's struct, at out_struct
 *
 * Fails with TESS_INVALID (no plausible struct_size) or TESS_TOO_NEW. */
tess_status tess_take(const tess_host *host, const char *call, const char *name, const void *given,
                      size_t size, void *out_struct);

/* Whether a struct_size can be one at all: TESS_INVALID for what was forgotten or never set. */
tess_status tess_take_size(const tess_host *host, const char *call, const char *name, size_t given,
                           size_t size);

/* A descriptor with everything that hangs off it, at this library's age. */
typedef struct tess_taken_desc {
    tess_attention_desc desc; /* its pointers lead into this struct */
    tess_varlen varlen;
    tess_paging paging;
    tess_bias bias;
    tess_scaling scaling;
    tess_program program;
} tess_taken_desc;

tess_status tess_take_attention_desc(const tess_host *host, const char *call,
                                     const tess_attention_desc *given, tess_taken_desc *out_taken);

#endif
