/* SPDX-License-Identifier: Apache-2.0
 * A backend for tests: the GPU host code over a driver whose devices are fibers of the host. */
#include "tests/emulation/backend.h"

#include "backends/gpu/host/records.h"
#include "core/runtime/registry.h"
#include "tests/emulation/emulate.h"
#include "tests/emulation/map.h"
#include "tests/emulation/target.h"
#include "tests/kit/guard.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* The plan, its steps, grids and arguments are those that real devices get: everything above the
 * driver is the library's own. The driver below is as short as it can be, for the drivers that
 * answer with errors are in tests/fakes. */

enum { UNITS = 3 };

/* Error numbers of this driver. */
enum { FAILED = 999 };

/* ---- The driver -------------------------------------------------------------------------------
 */

static int current_device;
static char failure[256] = "no failure";

static int init(unsigned flags)
{
    (void)flags;
    return TESS_GPU_SUCCESS;
}

static int version(int *out_version)
{
    *out_version = 1;
    return TESS_GPU_SUCCESS;
}

static int device_count(int *out_count)
{
    *out_count = tess_emulated_target_count;
    return TESS_GPU_SUCCESS;
}

static int device_get(int *out_device, int ordinal)
{
    *out_device = ordinal;
    return TESS_GPU_SUCCESS;
}

static int device_name(char *name, int size, int device)
{
    const tess_emulated_target *target = &tess_emulated_targets[device];

    snprintf(name, (size_t)size, "fibers in waves of %u", target->wave);
    return TESS_GPU_SUCCESS;
}

static int device_memory(size_t *out_size, int device)
{
    (void)device;
    *out_size = (size_t)1 << 30;
    return TESS_GPU_SUCCESS;
}

static int device_attribute(int *out_value, int attribute, int device)
{
    const tess_emulated_target *target = &tess_emulated_targets[device];
    const int values[TESS_GPU_ATTRIBUTES] = {
        [TESS_GPU_UNITS] = UNITS,
        [TESS_GPU_WAVE] = (int)target->wave,
        [TESS_GPU_SHARED_MEMORY] = (int)target->shared_memory,
        [TESS_GPU_READS_HOST] = 1,
    };

    *out_value = values[attribute];
    return TESS_GPU_SUCCESS;
}

static int current_get(int *out_device)
{
    *out_device = current_device;
    return TESS_GPU_SUCCESS;
}

static int current_set(int device)
{
    current_device = device;
    return TESS_GPU_SUCCESS;
}

/* Device memory ends at a page that nobody may touch. Its buffer is kept in front of the address,
 * where the canaries are: behind them, in the same page or the one before. */
typedef struct allocation {
    tess_buffer buffer;
    struct allocation *next;
} allocation;

static allocation *allocations;

static int allocate(void **out_memory, size_t size)
{
    allocation *a = malloc(sizeof *a);

    size = (size + 63) / 64 * 64; /* the interface promises this alignment */
    if (!a || !tess_buffer_make(size, &a->buffer)) {
        free(a);
        return TESS_GPU_OUT_OF_MEMORY;
    }
    a->next = allocations;
    allocations = a;
    *out_memory = a->buffer.data;
    return TESS_GPU_SUCCESS;
}

static int release(void *memory)
{
    int code = TESS_GPU_SUCCESS;

    for (allocation **at = &allocations; *at; at = &(*at)->next) {
        allocation *a = *at;
        if (a->buffer.data != memory)
            continue;
        if (!tess_buffer_is_intact(&a->buffer)) {
            snprintf(failure, sizeof failure, "memory in front of %p was overwritten", memory);
            code = FAILED;
        }
        *at = a->next;
        tess_buffer_free(&a->buffer);
        free(a);
        return code;
    }
    return memory ? TESS_GPU_INVALID_VALUE : TESS_GPU_SUCCESS;
}

static int copy_to(void *to, const void *from, size_t size, void *stream)
{
    (void)stream;
    memcpy(to, from, size);
    return TESS_GPU_SUCCESS;
}

static int copy_from(void *to, void *from, size_t size, void *stream)
{
    return copy_to(to, from, size, stream);
}

static int stream_create(void **out_stream, unsigned flags)
{
    (void)flags;
    *out_stream = &current_device; /* any address: everything runs where it is called */
    return TESS_GPU_SUCCESS;
}

static int stream_ignore(void *stream)
{
    (void)stream;
    return TESS_GPU_SUCCESS;
}

static int event_create(void **out_event, unsigned flags)
{
    (void)flags;
    *out_event = calloc(1, sizeof(struct timespec));
    return *out_event ? TESS_GPU_SUCCESS : TESS_GPU_OUT_OF_MEMORY;
}

static int event_destroy(void *event)
{
    free(event);
    return TESS_GPU_SUCCESS;
}

static int event_record(void *event, void *stream)
{
    (void)stream;
    clock_gettime(CLOCK_MONOTONIC, event);
    return TESS_GPU_SUCCESS;
}

static int event_wait(void *event)
{
    (void)event;
    return TESS_GPU_SUCCESS;
}

static int event_elapsed(float *out_milliseconds, void *start, void *end)
{
    const struct timespec *a = start, *b = end;

    *out_milliseconds =
        (float)(1e3 * (double)(b->tv_sec - a->tv_sec) + 1e-6 * (double)(b->tv_nsec - a->tv_nsec));
    return TESS_GPU_SUCCESS;
}

static int module_load(void **out_module, const void *image, unsigned count, int *options,
                       void **values)
{
    (void)image;
    (void)count;
    (void)options;
    (void)values;
    *out_module = &current_device; /* any address */
    return TESS_GPU_SUCCESS;
}

static int module_function(void **out_function, void *module, const char *name)
{
    const tess_emulated_target *target = &tess_emulated_targets[current_device];

    (void)module;
    for (size_t i = 0; i < target->count; i++) {
        if (strcmp(target->functions[i].name, name) == 0) {
            /* handles are not const */
            *out_function = (void *)(uintptr_t)&target->functions[i];
            return TESS_GPU_SUCCESS;
        }
    }
    return FAILED;
}

static tess_emulated_order order_of(const char *text)
{
    if (text && strcmp(text, "forward") == 0)
        return TESS_EMULATED_FORWARD;
    if (text && strcmp(text, "backward") == 0)
        return TESS_EMULATED_BACKWARD;
    return TESS_EMULATED_RANDOM;
}

/* Grids are cut down at random, so that blocks take several items each. */
static uint32_t blocks_of(unsigned grid, uint64_t seed)
{
    const uint32_t most = grid < 16 ? grid : 16;

    return seed % 2 ? grid : 1 + (uint32_t)(seed / 2 % most);
}

/* The parameters of every kernel, as the emulated kernel takes them (vendor/lane.h). */
typedef struct arguments {
    tess_args args;
    tess_gpu_addresses addresses;
    tess_gpu_run run;
    tess_gpu_maps maps;
} arguments;

static int launch(void *function, unsigned grid_x, unsigned grid_y, unsigned grid_z,
                  unsigned block_x, unsigned block_y, unsigned block_z, unsigned shared,
                  void *stream, void **parameters, void **extra)
{
    static uint64_t launches;
    const char *const seed = getenv("TESSERA_EMULATED_SEED");
    const tess_emulated_function *const f = function;
    arguments a = {*(const tess_args *)parameters[0], *(const tess_gpu_addresses *)parameters[1],
                   *(const tess_gpu_run *)parameters[2], .maps = {.k = {.of_driver = {0}}}};
    tess_emulated_launch launch = {
        .kernel = f->kernel,
        .arguments = &a,
        .threads = block_x,
        .wave = tess_emulated_targets[current_device].wave,
        .shared_size = shared,
        .order = order_of(getenv("TESSERA_EMULATED_ORDER")),
        .seed = (seed ? strtoull(seed, NULL, 10) : 0) + launches++,
    };
    const char *text;

    (void)stream;
    (void)extra;
    launch.blocks = blocks_of(grid_x, launch.seed);
    if (a.run.has_maps)
        a.maps = *(const tess_gpu_maps *)parameters[3];
    if (grid_y != 1 || grid_z != 1 || block_y != 1 || block_z != 1 || grid_x == 0)
        return TESS_GPU_INVALID_VALUE;
    text = tess_emulate(&launch);
    if (!text)
        return TESS_GPU_SUCCESS;
    snprintf(failure, sizeof failure, "%s: %s (launch %llu)", f->name, text,
             (unsigned long long)launch.seed);
    return FAILED;
}

static int error_name(int code, const char **out_name)
{
    *out_name = code == TESS_GPU_OUT_OF_MEMORY ? "EMULATION_OUT_OF_MEMORY" : "EMULATION_FAILED";
    return TESS_GPU_SUCCESS;
}

static int error_text(int code, const char **out_text)
{
    (void)code;
    *out_text = failure;
    return TESS_GPU_SUCCESS;
}

/* ---- The vendor -------------------------------------------------------------------------------
 */

/* Found before anybody looks: a driver that is no library. */
static tess_gpu_library library = {
    .vendor = "emulation",
    .variable = "nothing",
    .lock = PTHREAD_MUTEX_INITIALIZER,
    .count = 1,
    .found[0].driver = {.init = init,
                        .version = version,
                        .device_count = device_count,
                        .device_get = device_get,
                        .device_name = device_name,
                        .device_memory = device_memory,
                        .device_attribute = device_attribute,
                        .current_get = current_get,
                        .current_set = current_set,
                        .allocate = allocate,
                        .release = release,
                        .copy_to = copy_to,
                        .copy_from = copy_from,
                        .stream_create = stream_create,
                        .stream_destroy = stream_ignore,
                        .stream_wait = stream_ignore,
                        .event_create = event_create,
                        .event_destroy = event_destroy,
                        .event_record = event_record,
                        .event_wait = event_wait,
                        .event_elapsed = event_elapsed,
                        .module_load = module_load,
                        .module_unload = stream_ignore,
                        .module_function = module_function,
                        .launch = launch,
                        .tensor_map = tess_emulated_map_encode,
                        .error_name = error_name,
                        .error_text = error_text,
                        .symbol =
                            {
#define TESS_GPU_CALL(field, cuda, hip, presence, parameters) #field,
#include "backends/gpu/host/calls.def"
#undef TESS_GPU_CALL
                            }},
};

static const char *path(const tess_env *env)
{
    (void)env;
    return "";
}

static tess_status architecture(const tess_gpu_driver *driver, const tess_open *open,
                                const char *call, int device, char out_name[64])
{
    (void)driver;
    (void)open;
    (void)call;
    snprintf(out_name, 64, "%s", tess_emulated_targets[device].architecture);
    return TESS_OK;
}

static int suits(const tess_gpu_image *image, const char *chip, const tess_env *env)
{
    (void)image;
    (void)chip;
    (void)env;
    return 1;
}

static const int attributes[TESS_GPU_ATTRIBUTES] = {[TESS_GPU_UNITS] = TESS_GPU_UNITS,
                                                    [TESS_GPU_WAVE] = TESS_GPU_WAVE,
                                                    [TESS_GPU_SHARED_MEMORY] =
                                                        TESS_GPU_SHARED_MEMORY,
                                                    [TESS_GPU_CACHE] = TESS_GPU_CACHE,
                                                    [TESS_GPU_MAJOR] = TESS_GPU_MAJOR,
                                                    [TESS_GPU_MINOR] = TESS_GPU_MINOR,
                                                    [TESS_GPU_READS_HOST] = TESS_GPU_READS_HOST};

#define SOURCE "simt"
static const tess_gpu_kernel kernel_table[] = {
#define TESS_GPU_KERNEL TESS_GPU_ENTRY
#include TESS_EMULATED_MATRIX
#ifdef TESS_EMULATED_MAPS
#undef TAKES_MAPS
#define TAKES_MAPS true
#include TESS_EMULATED_MAPS
#undef TAKES_MAPS
#define TAKES_MAPS false
#endif
#include "backends/gpu/simt.def"
#undef TESS_GPU_KERNEL
};

enum kernel_place {
#define TESS_GPU_KERNEL TESS_GPU_PLACE
#include TESS_EMULATED_MATRIX
#ifdef TESS_EMULATED_MAPS
#include TESS_EMULATED_MAPS
#endif
#include "backends/gpu/simt.def"
#undef TESS_GPU_KERNEL
};

static const uint64_t image_size = 1;
static const tess_gpu_image images[] = {{SOURCE, "wave", "", &image_size}};

static const tess_gpu_vendor vendor = {
    .name = "emulation",
    .brand = "emulation",
    .library = &library,
    .path = path,
    .attribute = attributes,
    .matrix_lanes = TESS_EMULATED_MATRIX_LANES,
    .architecture = architecture,
    .suits = suits,
    .kernels = kernel_table,
    .kernel_count = sizeof kernel_table / sizeof kernel_table[0],
    .images = images,
    .image_count = 1,
};

/* ---- The backend ------------------------------------------------------------------------------
 */

static tess_refusal accept(const tess_kernel *kernel, const tess_problem *problem,
                           const tess_caps *caps)
{
    (void)kernel;
    (void)caps;
    return tess_gpu_accept(&vendor, problem);
}

static tess_refusal accept_matrix(const tess_kernel *kernel, const tess_problem *problem,
                                  const tess_caps *caps)
{
    return tess_gpu_accept_matrix(&vendor, kernel, problem, caps);
}

static const tess_kernel records[] = {
#define TABLE kernel_table
#define ACCEPT accept
#define TESS_GPU_KERNEL TESS_GPU_RECORD
#include "backends/gpu/simt.def"
#undef ACCEPT
#define ACCEPT accept_matrix
#include TESS_EMULATED_MATRIX
#ifdef TESS_EMULATED_MAPS
#undef TAKES_MAPS
#define TAKES_MAPS true
#include TESS_EMULATED_MAPS
#undef TAKES_MAPS
#define TAKES_MAPS false
#endif
#undef TESS_GPU_KERNEL
};

static const tess_kernel *kernels(size_t *out_count)
{
    *out_count = sizeof records / sizeof records[0];
    return records;
}

static int32_t count(const tess_open *open, tess_text *out_why)
{
    return tess_gpu_count(&vendor, open, out_why);
}

static tess_status info(const tess_open *open, int32_t index, tess_device_info *out_info)
{
    return tess_gpu_info(&vendor, open, index, out_info);
}

static tess_status open_device(const tess_open *open, tess_backend_device **out_device)
{
    return tess_gpu_open(&vendor, open, out_device);
}

const tess_backend tess_backend_emulation = {
    .name = "emulation",
    .priority = 1,
    .count = count,
    .info = info,
    .open = open_device,
    .kernels = kernels,
    TESS_GPU_ENTRIES,
};

/* The program's own table: with it the library's, which is a file by itself, is not linked. */
const tess_backend *const *tess_registry(size_t *out_count)
{
    static const tess_backend *const table[] = {&tess_backend_emulation, &tess_backend_cpu};

    *out_count = sizeof table / sizeof table[0];
    return table;
}
