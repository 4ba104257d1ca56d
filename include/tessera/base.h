/* SPDX-License-Identifier: Apache-2.0
 * Words every other header uses: version, export mark, status codes, element types. */
#ifndef TESSERA_BASE_H
#define TESSERA_BASE_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The one home of the version number; the build reads it from here. */
#define TESS_VERSION_MAJOR 0
#define TESS_VERSION_MINOR 1
#define TESS_VERSION_PATCH 0
#define TESS_VERSION (TESS_VERSION_MAJOR * 1000000 + TESS_VERSION_MINOR * 1000 + TESS_VERSION_PATCH)

/* Marks a function that the shared library exports. Everything else is hidden. */
#if defined(_WIN32) && defined(TESS_BUILDING)
#define TESS_API __declspec(dllexport)
#elif defined(__GNUC__)
#define TESS_API __attribute__((visibility("default")))
#else
#define TESS_API
#endif

/* First member of every growing struct. A growing struct starts with its own size, means "default"
 * by zero in every other member, has no padding, and only ever gains members at its end:
 *
 *     tess_attention_desc desc = { TESS_STRUCT(tess_attention_desc), .q = shape, ... };
 *
 * A program compiled against an older header passes a shorter struct and gets defaults for what it
 * does not know. A program compiled against a newer header is served as long as the members this
 * library does not know are zero; otherwise the call fails with TESS_TOO_NEW. A forgotten
 * struct_size is TESS_INVALID. */
#define TESS_STRUCT(type) .struct_size = sizeof(type)

/* What the caller should do about a failed call. The text of tess_context_error() says what
 * happened. */
typedef int32_t tess_status;
enum {
    TESS_OK = 0,
    TESS_INVALID = 1,       /* the call is wrong: fix the caller */
    TESS_UNSUPPORTED = 2,   /* the call is right, nothing here can do it: try another device */
    TESS_UNAVAILABLE = 3,   /* the driver or the device is not there */
    TESS_NO_MEMORY = 4,     /* memory ran out; nothing was lost, the call may be repeated */
    TESS_DEVICE_FAILED = 5, /* the driver said no; its own name and number are in the text */
    TESS_TOO_NEW = 6,       /* a member set by the caller is unknown to this library */
    TESS_INTERNAL = 7       /* our mistake; the text asks for a report */
};

/* Element types. Zero is "not set", which is an error wherever a type is required. */
typedef int32_t tess_dtype;
enum {
    TESS_DTYPE_NONE = 0,
    TESS_F32 = 1,
    TESS_F16 = 2,  /* IEEE 754 binary16 */
    TESS_BF16 = 3, /* the upper half of a binary32 */
    TESS_E4M3 = 4, /* OCP FP8, 4 exponent bits, no infinity */
    TESS_E5M2 = 5, /* OCP FP8, 5 exponent bits */
    TESS_I32 = 6,  /* index arrays only */
    TESS_I64 = 7   /* index arrays only */
};

/* Version of the library that is running, as TESS_VERSION; compare with the macro to see a mismatch
 * with the header. Threads: any. */
TESS_API int32_t tess_version(void);

/* Short name of a status, "TESS_INVALID" for example; "TESS_UNKNOWN" for a number that is none.
 * Never NULL, never freed. Threads: any. */
TESS_API const char *tess_status_name(tess_status status);

/* Name of an element type as the problem text spells it ("f32", "bf16"); "none" for a number that
 * is no type. Never NULL, never freed. Threads: any. */
TESS_API const char *tess_dtype_name(tess_dtype dtype);

/* Bytes of one element; 0 for a number that is no type. Threads: any. */
TESS_API size_t tess_dtype_size(tess_dtype dtype);

#ifdef __cplusplus
}
#endif

#endif
