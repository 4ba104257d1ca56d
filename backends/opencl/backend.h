/* SPDX-License-Identifier: Apache-2.0
 * What is behind the contract's opaque names on OpenCL, and what the files of this backend share.
 */
#ifndef TESSERA_BACKENDS_OPENCL_BACKEND_H
#define TESSERA_BACKENDS_OPENCL_BACKEND_H

#include "backends/backend.h"
#include "backends/gpu/kernels.h"
#include "backends/opencl/driver.h"

#include <pthread.h>

/* ---- Kernels --------------------------------------------------------------------------------- */

/* Features of devices that kernels may need. */
enum { TESS_CL_ANY = 0, TESS_CL_CPU = 1u << 0 };

/* One source of kernels, flattened, as embedded by the build. */
typedef struct tess_cl_source {
    const char *name;
    const char *text;
    const uint64_t *size;
} tess_cl_source;

/* One line of kernels.def. */
typedef struct tess_cl_kernel {
    const char *name;
    const tess_cl_source *source;
    int32_t pass;
    tess_gpu_role role;
    uint32_t needs;
    uint32_t dtypes;
    bool by_dtype;
    int64_t max_head_dim;
    int64_t tile_rows, tile_columns;
    uint32_t group;
    int64_t local;
    int64_t most_rows;
    int32_t priority;
} tess_cl_kernel;

/* In the order of kernels.def. */
extern const tess_cl_kernel tess_cl_kernels[];
extern const size_t tess_cl_kernel_count;

/* Whether a kernel can be run on a device with these numbers at all. */
bool tess_cl_fits(const tess_cl_kernel *kernel, const tess_caps *caps);

/* The kernel that plays a role in a problem, of that family (its needs) where there is one; NULL
 * when there is none. */
const tess_cl_kernel *tess_cl_find(tess_gpu_role role, const tess_problem *problem,
                                   const tess_caps *caps, uint32_t family);

/* Whether the kernels beside a main one can do all that a problem asks for. */
tess_refusal tess_cl_accept(const tess_problem *problem, const tess_caps *caps);

/* ---- Objects --------------------------------------------------------------------------------- */

/* Programs of a kernel: one for every storage type, or the first for all. */
enum { TESS_CL_DTYPES = TESS_E5M2 + 1 };

struct tess_backend_device {
    const tess_cl_driver *driver;
    const tess_host *host;
    const tess_env *env;
    tess_cl_place place;
    char name[64]; /* "opencl:pocl:0" */
    void *context;
    tess_caps caps;
    char architecture[64];
    char identity[512]; /* device, driver and platform with their versions: what binaries are for */
    char cache[TESS_ENV_SIZE + 16]; /* folder of compiled programs, "" for none */
    pthread_mutex_t lock;           /* guards programs */
    void **programs;                /* [kernel][TESS_CL_DTYPES], NULL until a plan needs it */
};

struct tess_backend_queue {
    tess_backend_device *device;
    void *queue;
    bool is_own;
    void *scratch; /* a buffer */
    size_t scratch_size;
};

struct tess_backend_event {
    tess_backend_device *device;
    void *event; /* NULL until it is recorded */
};

/* One kernel of a plan with its own block of numbers. */
typedef struct tess_cl_step {
    const tess_cl_kernel *kernel;
    void *function;
    void *args; /* a constant buffer of tess_args */
    int64_t items;
    size_t groups;
} tess_cl_step;

/* Delta, main, redo, dQ and three reductions. */
enum { TESS_CL_MOST_STEPS = 7 };

struct tess_prepared {
    tess_backend_device *device;
    const char *call;     /* the public function that runs it */
    pthread_mutex_t lock; /* setting parameters and enqueueing is one step: kernels hold them */
    int count;
    tess_cl_step steps[TESS_CL_MOST_STEPS];
};

/* A driver call about a device. */
#define TESS_CL_OF(device, call, field, ...) \
    TESS_CL_ASK((device)->driver, (device)->host, call, field, __VA_ARGS__)

/* ---- Entries --------------------------------------------------------------------------------- */

int32_t tess_cl_count(const tess_open *open, tess_text *out_why);
tess_status tess_cl_info(const tess_open *open, int32_t index, tess_device_info *out_info);
tess_status tess_cl_open(const tess_open *open, tess_backend_device **out_device);
tess_status tess_cl_device_wrap(const tess_open *open, const char *call, void *native_context,
                                void *native_device, char out_name[64],
                                tess_backend_device **out_device);
void tess_cl_close(tess_backend_device *device);
const tess_caps *tess_cl_caps(const tess_backend_device *device);

/* The program of a kernel for a storage type: from memory, from the cache on disk, or compiled. It
 * stays the device's. */
tess_status tess_cl_program(tess_backend_device *device, const char *call,
                            const tess_cl_kernel *kernel, tess_dtype dtype, void **out_program);

tess_status tess_cl_prepare(tess_backend_device *device, const tess_schedule *schedule,
                            tess_prepared **out_prepared);
tess_status tess_cl_launch(tess_backend_queue *queue, const tess_prepared *prepared,
                           const tess_address addresses[TESS_AT_COUNT]);
void tess_cl_discard(tess_prepared *prepared);

tess_status tess_cl_allocate(tess_backend_device *device, size_t size, void **out_memory);
void tess_cl_release(tess_backend_device *device, void *memory, size_t size);
tess_status tess_cl_upload(tess_backend_queue *queue, void *device_memory, const void *host_memory,
                           size_t size);
tess_status tess_cl_download(tess_backend_queue *queue, void *host_memory,
                             const void *device_memory, size_t size);

/* A buffer of at least one byte, since drivers refuse to make an empty one. */
tess_status tess_cl_buffer(const tess_backend_device *device, const char *call, uint64_t flags,
                           size_t size, const void *from, void **out_buffer);

tess_status tess_cl_queue_create(tess_backend_device *device, tess_backend_queue **out_queue);
tess_status tess_cl_queue_wrap(tess_backend_device *device, const char *call, void *native,
                               tess_backend_queue **out_queue);
void tess_cl_queue_destroy(tess_backend_queue *queue);
tess_status tess_cl_queue_wait(tess_backend_queue *queue);
tess_status tess_cl_scratch(tess_backend_queue *queue, const char *call, size_t size,
                            void **out_memory);

tess_status tess_cl_event_create(tess_backend_device *device, tess_backend_event **out_event);
void tess_cl_event_destroy(tess_backend_event *event);
tess_status tess_cl_event_record(tess_backend_event *event, tess_backend_queue *queue);
tess_status tess_cl_event_elapsed(tess_backend_event *start, tess_backend_event *end,
                                  double *out_seconds);

#endif
