/* SPDX-License-Identifier: Apache-2.0
 * What the look-alike drivers share: objects that are counted, memory of the host that counts as
 * the device's, a record of every call, and failures on command.
 *
 * A test opens the same file as the library under test does and finds `fake` in it:
 *
 *     fake_state *fake = dlsym(dlopen(path, RTLD_NOW), "fake");
 *     fake->reset();
 *     fake->fails_at = 7;      the seventh call from now answers fake->failure
 *
 * What no driver would forgive, such as a launch with another device current, is answered with an
 * error and noted in fake->complaint. */
#ifndef TESSERA_TESTS_FAKES_FAKE_H
#define TESSERA_TESTS_FAKES_FAKE_H

#include "backends/gpu/kernels.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    FAKE_DEVICES = 4,
    FAKE_CALLS = 4096,   /* remembered by name */
    FAKE_LAUNCHES = 256, /* remembered whole */
    FAKE_NAME = 96
};

/* Numbers that CUDA and HIP share. */
enum {
    FAKE_SUCCESS = 0,
    FAKE_INVALID_VALUE = 1,
    FAKE_OUT_OF_MEMORY = 2,
    FAKE_NO_DEVICE = 100,
    FAKE_INVALID_DEVICE = 101,
    FAKE_INVALID_IMAGE = 200,
    FAKE_INVALID_CONTEXT = 201,
    FAKE_NO_BINARY = 209,
    FAKE_INVALID_HANDLE = 400,
    FAKE_NOT_FOUND = 500,
    FAKE_ILLEGAL_ADDRESS = 700,
    FAKE_NOT_SUPPORTED = 801,
    FAKE_CAPTURE_UNSUPPORTED = 900
};

typedef struct fake_launch {
    char kernel[FAKE_NAME];
    int device;
    void *stream;
    unsigned grid[3], block[3], shared;
    bool has_parameters; /* false: the kernel's own list was not read */
    tess_args args;
    tess_gpu_addresses addresses;
    tess_gpu_run run;
} fake_launch;

/* Runs a kernel for the driver, by its name; returns a driver's error number. */
typedef int (*fake_run_fn)(const fake_launch *launch);

typedef struct fake_chip {
    char name[64];
    int major, minor; /* CUDA */
    char gcn[64];     /* HIP: "gfx942:sramecc+:xnack-" */
    int units, wave;
    int shared_memory; /* bytes per block */
    int reads_host;
    size_t memory;
} fake_chip;

typedef struct fake_state {
    void (*reset)(void); /* everything below as at the start; objects are forgotten */

    int devices;
    fake_chip chip[FAKE_DEVICES];
    int version;       /* of the driver */
    bool has_no_pools; /* allocating in stream order is not supported */
    bool is_capturing; /* every stream is being captured */
    fake_run_fn run;   /* NULL: launches are recorded and nothing runs */

    int64_t fails_at; /* the call, counted from 1 since calls was last set; 0: none */
    int failure;      /* what it answers */
    int64_t calls;    /* made so far */
    char call[FAKE_CALLS][40];
    int64_t failed;       /* calls that failed because of fails_at */
    char failed_call[40]; /* the last one of them */

    int64_t contexts, streams, events, modules, blocks; /* not given back */
    size_t bytes;                                       /* of the blocks */
    int64_t waits;                                      /* for streams or events */

    int64_t launches;
    fake_launch launch[FAKE_LAUNCHES];

    char complaint[512]; /* the first misuse; "" when there was none */

    int (*current)(void); /* of this thread: CUDA its stack's depth, HIP its device */
    void *(*foreign_stream)(int device); /* a stream that the program made by itself */
} fake_state;

#endif
