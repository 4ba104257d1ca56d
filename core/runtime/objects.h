/* SPDX-License-Identifier: Apache-2.0
 * The objects behind the API's opaque names. */
#ifndef TESSERA_CORE_RUNTIME_OBJECTS_H
#define TESSERA_CORE_RUNTIME_OBJECTS_H

#include "backends/backend.h"

#include <pthread.h>

struct tess_device {
    tess_context *context;
    const tess_backend *backend;
    tess_backend_device *opened;
    tess_device *next;
    char name[64]; /* canonical: "cpu", "cuda:1" */
};

struct tess_context {
    tess_host host;
    tess_env env;
    char backends[TESS_ENV_SIZE]; /* the allow list as given, "" for all */
    int32_t threads;
    pthread_mutex_t lock; /* guards the device list; never held while anything is logged */
    tess_device *devices;
};

struct tess_queue {
    tess_device *device;
    tess_backend_queue *opened;
};

struct tess_event {
    tess_device *device;
    tess_backend_event *opened;
    int32_t is_recorded;
};

/* A kernel that was asked and what it answered. */
typedef struct tess_candidate {
    const tess_kernel *kernel;
    tess_refusal refusal;
} tess_candidate;

/* Fails when the caller passes no object, as one does who overlooked that creating it failed. There
 * is no context to keep the text, so it is found with tess_context_error(NULL, ...). */
static inline tess_status tess_need(const void *object, const char *call, const char *name)
{
    if (!object)
        return tess_fail(NULL, TESS_INVALID, "%s: %s is NULL; it takes one that was created", call,
                         name);
    return TESS_OK;
}

/* Fails unless both objects are of one device, and says so when only their names are the same. */
tess_status tess_need_same_device(const char *call, const char *name, const tess_device *device,
                                  const char *other_name, const tess_device *other);

struct tess_plan {
    tess_device *device;
    tess_schedule schedule;
    tess_prepared *prepared;
    tess_candidate
        *candidates; /* every kernel of the backend for this pass, the chosen among them */
    size_t candidate_count;
};

#endif
