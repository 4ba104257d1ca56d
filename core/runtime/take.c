/* SPDX-License-Identifier: Apache-2.0
 * Reading a caller's versioned struct, whatever its age. */
#include "core/runtime/take.h"

#include "core/base/error.h"

#include <stdint.h>
#include <string.h>

/* No struct of this library will ever be larger: a bigger number is a forgotten struct_size. */
enum { MOST_STRUCT_SIZE = 1 << 16 };

tess_status tess_take_size(const tess_host *host, const char *call, const char *name, size_t given,
                           size_t size)
{
    if (given <= sizeof given || given > MOST_STRUCT_SIZE)
        return tess_fail(host, TESS_INVALID,
                         "%s: %s.struct_size is %zu; it takes the struct's own size, %zu in this "
                         "version",
                         call, name, given, size);
    return TESS_OK;
}

tess_status tess_take(const tess_host *host, const char *call, const char *name, const void *given,
                      size_t size, void *out_struct)
{
    const unsigned char *bytes = given;
    size_t given_size;

    memcpy(&given_size, given, sizeof given_size);
    TESS_TRY(tess_take_size(host, call, name, given_size, size));
    for (size_t i = size; i < given_size; i++)
        if (bytes[i] != 0)
            return tess_fail(host, TESS_TOO_NEW,
                             "%s: %s has a member set at byte %zu, but this version of the library "
                             "knows %zu bytes only; use a newer library or leave that member zero",
                             call, name, i, size);
    memset(out_struct, 0, size);
    memcpy(out_struct, given, given_size < size ? given_size : size);
    memcpy(out_struct, &size, sizeof size);
    return TESS_OK;
}

tess_status tess_take_attention_desc(const tess_host *host, const char *call,
                                     const tess_attention_desc *given, tess_taken_desc *out_taken)
{
    tess_attention_desc *desc = &out_taken->desc;

    if (!given)
        return tess_fail(host, TESS_INVALID, "%s: desc is NULL; it takes a descriptor", call);
    TESS_TRY(tess_take(host, call, "desc", given, sizeof *desc, desc));
    if (desc->varlen) {
        TESS_TRY(tess_take(host, call, "varlen", desc->varlen, sizeof out_taken->varlen,
                           &out_taken->varlen));
        desc->varlen = &out_taken->varlen;
    }
    if (desc->paging) {
        TESS_TRY(tess_take(host, call, "paging", desc->paging, sizeof out_taken->paging,
                           &out_taken->paging));
        desc->paging = &out_taken->paging;
    }
    if (desc->bias) {
        TESS_TRY(
            tess_take(host, call, "bias", desc->bias, sizeof out_taken->bias, &out_taken->bias));
        desc->bias = &out_taken->bias;
    }
    if (desc->scaling) {
        TESS_TRY(tess_take(host, call, "scaling", desc->scaling, sizeof out_taken->scaling,
                           &out_taken->scaling));
        desc->scaling = &out_taken->scaling;
    }
    if (desc->program) {
        TESS_TRY(tess_take(host, call, "program", desc->program, sizeof out_taken->program,
                           &out_taken->program));
        desc->program = &out_taken->program;
    }
    return TESS_OK;
}
