/* SPDX-License-Identifier: Apache-2.0
 * Contexts whose GPU backends find look-alike drivers, and kernels that exist by name only. */
#ifndef TESSERA_TESTS_FAKES_WORLD_H
#define TESSERA_TESTS_FAKES_WORLD_H

#include "core/runtime/objects.h"
#include "tests/fakes/fake.h"
#include "tests/unit/support.h"

/* The vendor that the program was started for, "cuda" or "hip", its fake and its variable. */
typedef struct fake_world {
    tally memory;
    tess_context *context;
    tess_device *device;
    tess_queue *queue;
} fake_world;

extern const char *fake_vendor;
extern fake_state *fake;

/* Opens the driver that argv names: program VENDOR LIBRARY. */
void fake_world_start(int argc, char **argv);

static inline bool fake_is_hip(void)
{
    return strcmp(fake_vendor, "hip") == 0;
}

/* "cuInit" on one vendor, "hipInit" on the other. */
static inline const char *fake_either(const char *cuda, const char *hip)
{
    return fake_is_hip() ? hip : cuda;
}

/* A fresh driver, a context, the first device, a queue. */
void fake_world_open(fake_world *w);
/* Everything is gone, here and in the driver; no misuse was noted. */
void fake_world_close(fake_world *w);

/* Device memory for the small problem of tests/unit/support.h. */
typedef struct fake_tensors {
    void *q, *k, *v, *o, *lse, *workspace;
    size_t workspace_size;
    tess_forward_args args;
} fake_tensors;

enum { FAKE_TENSOR_BYTES = 1 << 16 };

/* With a workspace of that size, or none. */
tess_status fake_tensors_make(tess_device *device, size_t workspace_size, fake_tensors *out);
void fake_tensors_free(tess_device *device, fake_tensors *tensors);

#endif
