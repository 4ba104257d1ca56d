/* SPDX-License-Identifier: Apache-2.0
 * The OpenCL loader as a table of functions, the devices behind it, what its errors mean. */
#ifndef TESSERA_BACKENDS_OPENCL_DRIVER_H
#define TESSERA_BACKENDS_OPENCL_DRIVER_H

#include "core/base/env.h"
#include "core/base/host.h"
#include "core/base/text.h"

#include <stdbool.h>
#include <stdint.h>

typedef int32_t tess_cl_code;

/* Numbers of OpenCL 1.2's interface; no header of it is needed. */
enum {
    TESS_CL_SUCCESS = 0,
    TESS_CL_DEVICE_NOT_FOUND = -1,
    TESS_CL_ALLOCATION_FAILURE = -4,
    TESS_CL_OUT_OF_RESOURCES = -5,
    TESS_CL_OUT_OF_HOST_MEMORY = -6,
    TESS_CL_NO_PROFILING = -7,
    TESS_CL_INVALID_BUFFER_SIZE = -61,
    TESS_CL_NO_PLATFORM = -1001,

    TESS_CL_PLATFORM_VERSION = 0x0901,
    TESS_CL_PLATFORM_NAME = 0x0902,

    TESS_CL_TYPE_CPU = 1 << 1,
    TESS_CL_TYPE_GPU = 1 << 2,

    TESS_CL_DEVICE_TYPE = 0x1000,
    TESS_CL_DEVICE_UNITS = 0x1002,
    TESS_CL_DEVICE_GROUP_SIZE = 0x1004,
    TESS_CL_DEVICE_VECTOR = 0x100A, /* preferred floats of a vector */
    TESS_CL_DEVICE_MOST_ALLOCATION = 0x1010,
    TESS_CL_DEVICE_CACHE = 0x101E,
    TESS_CL_DEVICE_MEMORY = 0x101F,
    TESS_CL_DEVICE_LOCAL_MEMORY = 0x1023,
    TESS_CL_DEVICE_ENDIAN_LITTLE = 0x1026,
    TESS_CL_DEVICE_AVAILABLE = 0x1027,
    TESS_CL_DEVICE_COMPILER = 0x1028,
    TESS_CL_DEVICE_NAME = 0x102B,
    TESS_CL_DRIVER_VERSION = 0x102D,
    TESS_CL_DEVICE_VERSION = 0x102F,

    TESS_CL_CONTEXT_DEVICES = 0x1081,
    TESS_CL_CONTEXT_PLATFORM = 0x1084,
    TESS_CL_QUEUE_CONTEXT = 0x1090,
    TESS_CL_QUEUE_DEVICE = 0x1091,
    TESS_CL_QUEUE_PROPERTIES = 0x1093,
    TESS_CL_QUEUE_OUT_OF_ORDER = 1 << 0,
    TESS_CL_QUEUE_PROFILING = 1 << 1,

    TESS_CL_MEMORY_READ_WRITE = 1 << 0,
    TESS_CL_MEMORY_READ_ONLY = 1 << 2,
    TESS_CL_MEMORY_COPY = 1 << 5,

    TESS_CL_PROGRAM_BINARY_SIZES = 0x1165,
    TESS_CL_PROGRAM_BINARIES = 0x1166,
    TESS_CL_BUILD_LOG = 0x1183,
    TESS_CL_EVENT_END = 0x1283
};
#define TESS_CL_TYPE_ALL 0xFFFFFFFFu

typedef enum tess_cl_call {
#define TESS_CL_CALL(field, name, result, parameters) TESS_CL_CALL_##field,
#include "backends/opencl/calls.def"
#undef TESS_CL_CALL
    TESS_CL_CALLS
} tess_cl_call;

/* A device as it is named: "opencl:pocl:0" is the first one of the platform "pocl". */
typedef struct tess_cl_place {
    void *platform, *device;
    char slug[24];   /* of the platform */
    int32_t number;  /* of the platform, as they are sorted */
    int32_t ordinal; /* of the device on its platform */
} tess_cl_place;

enum { TESS_CL_MOST_DEVICES = 32 };

/* A loader, or one driver by itself. Filled once, never closed: drivers keep threads. */
typedef struct tess_cl_driver {
#define TESS_CL_CALL(field, name, result, parameters) result(*field) parameters;
#include "backends/opencl/calls.def"
#undef TESS_CL_CALL
    tess_cl_place places[TESS_CL_MOST_DEVICES]; /* by platform, as sorted */
    int32_t count;
} tess_cl_driver;

/* The driver and its devices, found the first time; NULL with the reason written, which may be
 * another one the next time. Threads: any. */
const tess_cl_driver *tess_cl_driver_find(const tess_host *host, const tess_env *env,
                                          tess_text *out_why);

/* Appends "CL_INVALID_BINARY (-42)". */
void tess_cl_write_error(tess_cl_code code, tess_text *out_text);

/* The answer of one driver call: TESS_OK, or the recorded failure of the public function `call`. */
tess_status tess_cl_answer(const tess_host *host, const char *call, tess_cl_call which,
                           tess_cl_code code);

/* Makes one driver call that returns a code, by its field, and turns its answer into a status. */
#define TESS_CL_ASK(driver, host, call, field, ...) \
    tess_cl_answer(host, call, TESS_CL_CALL_##field, (driver)->field(__VA_ARGS__))

#endif
