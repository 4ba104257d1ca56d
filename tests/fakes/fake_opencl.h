/* SPDX-License-Identifier: Apache-2.0
 * A look-alike OpenCL loader: objects that are counted, buffers in memory of the host, a record of
 * launches, and failures on command.
 *
 *     fake_opencl *fake = dlsym(dlopen(path, RTLD_NOW), "fake");
 *     fake->reset();
 *     fake->fails_at = 7;      the seventh call from now answers fake->failure
 *
 * What no driver would forgive is answered with an error and noted in fake->complaint. */
#ifndef TESSERA_TESTS_FAKES_FAKE_OPENCL_H
#define TESSERA_TESTS_FAKES_FAKE_OPENCL_H

#include "core/portable/args.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { FAKE_PARAMETERS = 64, FAKE_CL_LAUNCHES = 64, FAKE_PLATFORMS = 4 };

typedef struct fake_parameter {
    size_t size;
    union {
        void *object;
        int64_t number;
    } value;
} fake_parameter;

typedef struct fake_cl_launch {
    char kernel[64];
    void *queue;
    size_t global, local;
    int parameters;
    fake_parameter parameter[FAKE_PARAMETERS];
    tess_args args;
} fake_cl_launch;

typedef struct fake_opencl {
    void (*reset)(void);

    /* What is there. */
    int platforms;                        /* 0: clGetPlatformIDs says -1001 */
    const char *platform[FAKE_PLATFORMS]; /* names */
    int devices;                          /* of each platform */
    uint64_t local_memory, type;
    size_t group;
    uint32_t is_available, has_compiler;
    const char *driver_version;
    const char *build_log; /* not NULL: nothing compiles, and this is why */
    bool refuses_binaries, hides_binaries;

    int64_t calls, fails_at;
    int failure;
    char failed_call[64];

    /* Objects that are alive. */
    int64_t contexts, queues, buffers, programs, kernels, events;
    int64_t from_source, from_binary; /* programs made */
    char options[512];                /* of the last build */
    int launches;
    fake_cl_launch launch[FAKE_CL_LAUNCHES];
    char complaint[256]; /* the first one */
} fake_opencl;

/* Numbers of the interface. */
enum {
    FAKE_CL_OUT_OF_RESOURCES = -5,
    FAKE_CL_OUT_OF_HOST_MEMORY = -6,
    FAKE_CL_BUILD_FAILURE = -11,
    FAKE_CL_INVALID_VALUE = -30,
    FAKE_CL_NO_PLATFORM = -1001
};

#endif
