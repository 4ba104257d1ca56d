/* SPDX-License-Identifier: Apache-2.0
 * A GPU backend: what a vendor brings (kernels, images, numbers), and the entries all share. */
#ifndef TESSERA_BACKENDS_GPU_HOST_BACKEND_H
#define TESSERA_BACKENDS_GPU_HOST_BACKEND_H

#include "backends/backend.h"
#include "backends/gpu/host/driver.h"
#include "backends/gpu/kernels.h"

/* ---- What a vendor brings ---------------------------------------------------------------------
 */

/* One compiled kernel: a line of a .def file. */
typedef struct tess_gpu_kernel {
    const char *name;   /* the symbol in its image */
    const char *source; /* whose images it is in: "simt" */
    int32_t pass;
    tess_gpu_role role;
    uint32_t dtypes;
    int64_t max_head_dim;
    int64_t tile_rows, tile_columns;
    int64_t most_rows;
    uint32_t threads;
    uint32_t shared; /* dynamic, in bytes */
    int32_t priority;
    bool takes_maps; /* has the fourth parameter */
} tess_gpu_kernel;

/* Bit of tess_caps.features: the device has an image of the kernels that take maps. */
enum { TESS_GPU_TAKES_MAPS = 1 };

/* One source compiled for one architecture, embedded. */
typedef struct tess_gpu_image {
    const char *source;       /* "simt" */
    const char *architecture; /* "sm_80", "compute_80", "gfx942" */
    const void *data;
    const uint64_t *size;
} tess_gpu_image;

/* Attributes of a device that the host asks for; each vendor has its own numbers for them. */
typedef enum tess_gpu_attribute {
    TESS_GPU_UNITS,
    TESS_GPU_WAVE,
    TESS_GPU_SHARED_MEMORY, /* per block, the most one may ask for */
    TESS_GPU_CACHE,
    TESS_GPU_MAJOR,
    TESS_GPU_MINOR,
    TESS_GPU_READS_HOST, /* any host address may be used on the device */
    TESS_GPU_ATTRIBUTES
} tess_gpu_attribute;

typedef struct tess_gpu_vendor tess_gpu_vendor;
struct tess_gpu_vendor {
    const char *name;  /* of the backend: "cuda" */
    const char *brand; /* "CUDA": in texts */
    tess_gpu_library *library;
    const char *(*path)(const tess_env *env); /* of the driver, as the user asks for it */
    const int *attribute;                     /* the driver's numbers, by tess_gpu_attribute */
    int matrix_lanes; /* of a wave, as matrix kernels need it; 0: as the image's chip has it */

    /* The chip: "sm_90", "gfx942". Its numbers are in out_caps already. */
    tess_status (*architecture)(const tess_gpu_driver *driver, const tess_open *open,
                                const char *call, int device, char out_name[64]);

    /* How well an image suits a chip, 0: not at all; the largest is taken. */
    int (*suits)(const tess_gpu_image *image, const char *architecture, const tess_env *env);

    const tess_gpu_kernel *kernels;
    size_t kernel_count;
    const tess_gpu_image *images;
    size_t image_count;
};

/* ---- What is behind the contract's opaque names -----------------------------------------------
 */

struct tess_backend_device {
    const tess_gpu_vendor *vendor;
    const tess_gpu_driver *driver;
    const tess_host *host;
    const tess_env *env;
    int ordinal; /* as users count */
    int handle;  /* as the driver does */
    void *context;
    tess_caps caps;
    char architecture[64];
    bool reads_host;

    pthread_mutex_t lock; /* guards the two below */
    void **modules;       /* of each image, NULL until a plan needs it */
    void **functions;     /* of each kernel, likewise */
};

struct tess_backend_queue {
    tess_backend_device *device;
    void *stream; /* NULL is one too: the default stream of a wrapped queue */
    bool owns_stream;
    void *scratch;
    size_t scratch_size;
    bool scratch_is_async; /* it came from the stream's own pool */
};

struct tess_backend_event {
    tess_backend_device *device;
    void *event;
};

/* One kernel of a plan with its own block of numbers. */
typedef struct tess_gpu_step {
    const tess_gpu_kernel *kernel;
    void *function;
    tess_args args;
    tess_gpu_run run;
    uint32_t grid;
} tess_gpu_step;

/* Delta, main, redo, two of dQ and three reductions. */
enum { TESS_GPU_MOST_STEPS = 8 };

struct tess_prepared {
    tess_backend_device *device;
    const char *call; /* the public function that runs it */
    int count;
    tess_gpu_step steps[TESS_GPU_MOST_STEPS];
};

/* ---- Shared entries ---------------------------------------------------------------------------
 */

/* Makes a device current on this thread until tess_gpu_leave(), which brings back what was. */
typedef struct tess_gpu_scope {
    const tess_backend_device *device;
    const char *call; /* the public function, the first word of failures */
    int before;
    bool is_inside;
} tess_gpu_scope;

tess_status tess_gpu_enter(tess_gpu_scope *scope, const tess_backend_device *device,
                           const char *call);

/* Returns status, or the failure to leave when status is TESS_OK. What could not be entered need
 * not be left: what ends an object goes on either way, since most handles know where they are. */
tess_status tess_gpu_leave(const tess_gpu_scope *scope, tess_status status);

/* A driver call within a scope. */
#define TESS_GPU_IN(scope, field, ...) \
    TESS_GPU_ASK((scope)->device->driver, (scope)->device->host, (scope)->call, field, __VA_ARGS__)

/* The function of a kernel on this device; loads its image the first time. In a scope. */
tess_status tess_gpu_function(const tess_gpu_scope *scope, tess_backend_device *device,
                              const tess_gpu_kernel *kernel, void **out_function);

/* The image that this device would load for a source; NULL when none suits it. */
const tess_gpu_image *tess_gpu_choose(const tess_gpu_vendor *vendor, const char *source,
                                      const char *architecture, const tess_env *env);

/* Describes K and V to the unit for bulk copies; *out_has false where they are not for it. */
tess_status tess_gpu_describe(const tess_gpu_scope *scope, const tess_args *args,
                              const tess_gpu_addresses *addresses, tess_gpu_maps *maps,
                              bool *out_has);

/* Unloads what tess_gpu_function() loaded. */
void tess_gpu_unload(const tess_gpu_scope *scope, tess_backend_device *device);

/* The kernel that plays a role in a problem; NULL when there is none. */
const tess_gpu_kernel *tess_gpu_find(const tess_gpu_vendor *vendor, tess_gpu_role role,
                                     const tess_problem *problem);

/* Whether the kernels beside a main one can do all that a problem asks for. */
tess_refusal tess_gpu_accept(const tess_gpu_vendor *vendor, const tess_problem *problem);

/* The same of a kernel on matrix units, whose needs of the device and of the scores come first. A
 * name with the word plain has no place for more than scale x dot. */
tess_refusal tess_gpu_accept_matrix(const tess_gpu_vendor *vendor, const tess_kernel *kernel,
                                    const tess_problem *problem, const tess_caps *caps);

/* Whether a stream is being recorded into a graph, where allocating and waiting are wrong. */
tess_status tess_gpu_is_capturing(const tess_gpu_scope *scope, void *stream, bool *out_is);

int32_t tess_gpu_count(const tess_gpu_vendor *vendor, const tess_open *open, tess_text *out_why);
tess_status tess_gpu_info(const tess_gpu_vendor *vendor, const tess_open *open, int32_t index,
                          tess_device_info *out_info);
tess_status tess_gpu_open(const tess_gpu_vendor *vendor, const tess_open *open,
                          tess_backend_device **out_device);
void tess_gpu_close(tess_backend_device *device);
const tess_caps *tess_gpu_caps(const tess_backend_device *device);

tess_status tess_gpu_prepare(tess_backend_device *device, const tess_schedule *schedule,
                             tess_prepared **out_prepared);
tess_status tess_gpu_launch(tess_backend_queue *queue, const tess_prepared *prepared,
                            const tess_address addresses[TESS_AT_COUNT]);
void tess_gpu_discard(tess_prepared *prepared);

/* Whether memory may be used on the device of the scope, as far as the driver knows; `name` is what
 * the caller calls it. */
tess_status tess_gpu_check_address(const tess_gpu_scope *scope, const char *name, void *address);

tess_status tess_gpu_merge(tess_backend_queue *queue, const tess_merge_desc *desc,
                           const tess_merge_args *args);

tess_status tess_gpu_allocate(tess_backend_device *device, size_t size, void **out_memory);
void tess_gpu_release(tess_backend_device *device, void *memory, size_t size);
tess_status tess_gpu_upload(tess_backend_queue *queue, void *device_memory, const void *host_memory,
                            size_t size);
tess_status tess_gpu_download(tess_backend_queue *queue, void *host_memory,
                              const void *device_memory, size_t size);

tess_status tess_gpu_queue_create(tess_backend_device *device, tess_backend_queue **out_queue);
tess_status tess_gpu_queue_wrap(tess_backend_device *device, const char *call, void *stream,
                                tess_backend_queue **out_queue);
void tess_gpu_queue_destroy(tess_backend_queue *queue);
tess_status tess_gpu_queue_wait(tess_backend_queue *queue);
tess_status tess_gpu_scratch(tess_backend_queue *queue, const char *call, size_t size,
                             void **out_memory);

tess_status tess_gpu_event_create(tess_backend_device *device, tess_backend_event **out_event);
void tess_gpu_event_destroy(tess_backend_event *event);
tess_status tess_gpu_event_record(tess_backend_event *event, tess_backend_queue *queue);
tess_status tess_gpu_event_elapsed(tess_backend_event *start, tess_backend_event *end,
                                   double *out_seconds);

/* Members of a tess_backend that do not know their vendor. */
#define TESS_GPU_ENTRIES                                                                 \
    .has_plain_addresses = 1, .close = tess_gpu_close, .caps = tess_gpu_caps,            \
    .prepare = tess_gpu_prepare, .launch = tess_gpu_launch, .discard = tess_gpu_discard, \
    .merge = tess_gpu_merge, .allocate = tess_gpu_allocate, .release = tess_gpu_release, \
    .upload = tess_gpu_upload, .download = tess_gpu_download,                            \
    .queue_create = tess_gpu_queue_create, .queue_wrap = tess_gpu_queue_wrap,            \
    .queue_destroy = tess_gpu_queue_destroy, .queue_wait = tess_gpu_queue_wait,          \
    .scratch = tess_gpu_scratch, .event_create = tess_gpu_event_create,                  \
    .event_destroy = tess_gpu_event_destroy, .event_record = tess_gpu_event_record,      \
    .event_elapsed = tess_gpu_event_elapsed

#endif
