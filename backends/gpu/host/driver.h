/* SPDX-License-Identifier: Apache-2.0
 * A GPU driver as a table of functions: CUDA's and HIP's have one shape, so host code is shared. */
#ifndef TESSERA_BACKENDS_GPU_HOST_DRIVER_H
#define TESSERA_BACKENDS_GPU_HOST_DRIVER_H

#include "core/base/host.h"
#include "core/base/library.h"
#include "core/base/text.h"

#include <pthread.h>
#include <stdbool.h>

/* Numbers that both vendors use alike; everything else is told by the driver's own name. */
enum {
    TESS_GPU_SUCCESS = 0,
    TESS_GPU_INVALID_VALUE = 1,
    TESS_GPU_OUT_OF_MEMORY = 2,
    TESS_GPU_NOT_INITIALISED = 3,
    TESS_GPU_NO_DEVICE = 100,
    TESS_GPU_NOT_SUPPORTED = 801
};

typedef enum tess_gpu_call {
#define TESS_GPU_CALL(field, cuda, hip, presence, parameters) TESS_GPU_CALL_##field,
#include "backends/gpu/host/calls.def"
#undef TESS_GPU_CALL
    TESS_GPU_CALLS
} tess_gpu_call;

/* The calls of calls.def. Filled once, never freed: drivers keep threads of their own. */
typedef struct tess_gpu_driver {
#define TESS_GPU_CALL(field, cuda, hip, presence, parameters) int(*field) parameters;
#include "backends/gpu/host/calls.def"
#undef TESS_GPU_CALL
    const char *symbol[TESS_GPU_CALLS]; /* what the call is named, NULL where it has no name */
    const char *(*name_of)(int code);   /* HIP's error_name and error_text return their text */
    const char *(*text_of)(int code);
    int installed; /* the driver's version as it counts it; 0 when it does not say */
} tess_gpu_driver;

/* One line of calls.def for one vendor. */
typedef struct tess_gpu_symbol {
    const char *name;
    size_t offset; /* of the field */
    bool is_required;
} tess_gpu_symbol;

enum { TESS_GPU_DRIVERS = 4 };

/* A vendor's driver library: how it is found, and those that were. */
typedef struct tess_gpu_library {
    const char *vendor;            /* "NVIDIA": for messages */
    const char *variable;          /* the environment variable that names another file */
    const char *const *names;      /* ended by NULL */
    const tess_gpu_symbol *calls;  /* TESS_GPU_CALLS of them */
    const char *name_of, *text_of; /* symbols of the functions that return text, or NULL */

    pthread_mutex_t lock;
    struct tess_gpu_found {
        char path[256]; /* as asked for, "" for `names` */
        tess_gpu_driver driver;
    } found[TESS_GPU_DRIVERS];
    int count;
} tess_gpu_library;

/* The driver, opened and initialised the first time; NULL with the reason written, which may be
 * another one the next time. path, or "", is what the library's variable says. Threads: any. */
const tess_gpu_driver *tess_gpu_driver_find(tess_gpu_library *library, const tess_host *host,
                                            const char *path, tess_text *out_why);

/* Appends "CUDA_ERROR_INVALID_IMAGE (200): device kernel image is invalid". */
void tess_gpu_write_error(const tess_gpu_driver *driver, int code, tess_text *out_text);

/* The answer of one driver call: TESS_OK, or the recorded failure of the public function `call`:
 * out of memory is TESS_NO_MEMORY, everything else TESS_DEVICE_FAILED. */
tess_status tess_gpu_answer(const tess_gpu_driver *driver, const tess_host *host, const char *call,
                            tess_gpu_call which, int code);

/* Makes one driver call, by its field, and turns its answer into a status. */
#define TESS_GPU_ASK(driver, host, call, field, ...) \
    tess_gpu_answer(driver, host, call, TESS_GPU_CALL_##field, (driver)->field(__VA_ARGS__))

#endif
