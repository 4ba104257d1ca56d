/* SPDX-License-Identifier: Apache-2.0
 * The CPU as a backend: one device, ordinary memory, queues that run at once. */
#include "backends/cpu/backend.h"

#include "backends/cpu/isa.h"
#include "backends/cpu/threads.h"
#include "core/base/alloc.h"

#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

/* A run below this is over before a second thread has woken up (two cores of an EPYC 7003 wake in
 * about 5 microseconds, 100,000 multiply-adds at full speed). */
static const double least_flops_per_thread = 2e5;

enum { MOST_HEAD_DIM = 512 };

/* ---- Kernel records ------------------------------------------------------------------------ */

/* Lines of kernels.def by instruction set: kept where meson built it, else nothing. */
#define KEEP(...) __VA_ARGS__
#define DROP(...)
#define IF_SCALAR KEEP
#define IF_PORTABLE KEEP
#ifdef TESS_CPU_HAS_NEON
#define IF_NEON KEEP
#else
#define IF_NEON DROP
#endif
#ifdef TESS_CPU_HAS_SVE
#define IF_SVE KEEP
#else
#define IF_SVE DROP
#endif
#ifdef TESS_CPU_HAS_AVX2
#define IF_AVX2 KEEP
#else
#define IF_AVX2 DROP
#endif
#ifdef TESS_CPU_HAS_AVX512
#define IF_AVX512 KEEP
#else
#define IF_AVX512 DROP
#endif

#ifdef TESS_CPU_HAS_AMX
#define IF_AMX KEEP
#else
#define IF_AMX DROP
#endif

/* What kernels of an instruction set take, where it is not everything, and what it is called. */
enum {
    DTYPES_ALL = 1u << TESS_F32 | 1u << TESS_F16 | 1u << TESS_BF16,
    DTYPES_SCALAR = DTYPES_ALL,
    DTYPES_PORTABLE = DTYPES_ALL,
    DTYPES_NEON = DTYPES_ALL,
    DTYPES_SVE = DTYPES_ALL,
    DTYPES_AVX2 = DTYPES_ALL,
    DTYPES_AVX512 = DTYPES_ALL,
    DTYPES_AMX = 1u << TESS_BF16
};
enum {
    DIM_SCALAR = MOST_HEAD_DIM,
    DIM_PORTABLE = MOST_HEAD_DIM,
    DIM_NEON = MOST_HEAD_DIM,
    DIM_SVE = MOST_HEAD_DIM,
    DIM_AVX2 = MOST_HEAD_DIM,
    DIM_AVX512 = MOST_HEAD_DIM,
    DIM_AMX = 256
};
#define NAME_SCALAR "SCALAR"
#define NAME_PORTABLE "PORTABLE"
#define NAME_NEON "NEON"
#define NAME_SVE "SVE of 256 bits"
#define NAME_AVX2 "AVX2"
#define NAME_AVX512 "AVX512"
#define NAME_AMX "AMX with BF16, and the system's permission for it"

/* The typed function behind a record's entry. */
typedef struct entry {
    tess_cpu_forward_fn forward; /* one of the two */
    tess_cpu_backward_fns backward;
} entry;

#define TESS_CPU_KERNEL(kernel_name, isa, rows, columns, most, function, scratch_function, rank) \
    IF_##isa(static const entry entry_##kernel_name = {.forward = function};)
#include "backends/cpu/kernels.def"
#undef TESS_CPU_KERNEL

#define TESS_CPU_KERNEL(kernel_name, isa, rows, columns, most, function, scratch_function, rank) \
    IF_##isa(static const entry entry_##kernel_name = {                                          \
                 .backward = {function, function##_dot, function##_put_sum}};)
#include "backends/cpu/backward.def"
#undef TESS_CPU_KERNEL

/* Dense lengths, packed ones and used ones, but not paged: two sequences may share a page, and its
 * gradient would belong to both. */
static tess_refusal accept_backward(const tess_kernel *kernel, const tess_problem *problem,
                                    const tess_caps *caps)
{
    (void)caps;
    if (tess_problem_is_paged(problem))
        return (tess_refusal){TESS_REFUSED_PAGING, problem->page_size, 0};
    /* dO is an operand of the products, like Q, K and V; questions in general leave it open. */
    if (problem->d_o.dtype && !(kernel->dtypes & 1u << problem->d_o.dtype))
        return (tess_refusal){TESS_REFUSED_DTYPE, problem->d_o.dtype, kernel->dtypes};
    return (tess_refusal){TESS_ACCEPTED, 0, 0};
}

#define RECORD(kernel_name, which, isa, rows, columns, most, scratch_function, rank, question) \
    {.name = #kernel_name,                                                                     \
     .pass = which,                                                                            \
     .priority = rank,                                                                         \
     .features = TESS_CPU_##isa,                                                               \
     .feature_name = NAME_##isa,                                                               \
     .arithmetic = TESS_CPU_##isa,                                                             \
     .dtypes = DTYPES_##isa,                                                                   \
     .max_head_dim = DIM_##isa,                                                                \
     .max_folded_rows = most,                                                                  \
     .tile_rows = rows,                                                                        \
     .tile_columns = columns,                                                                  \
     .scratch = scratch_function,                                                              \
     .accept = question,                                                                       \
     .entry = &entry_##kernel_name},

static const tess_kernel kernel_table[] = {
#define TESS_CPU_KERNEL(name, isa, rows, columns, most, function, scratch, rank) \
    IF_##isa(RECORD(name, TESS_PASS_FORWARD, isa, rows, columns, most, scratch, rank, NULL))
#include "backends/cpu/kernels.def"
#undef TESS_CPU_KERNEL
#define TESS_CPU_KERNEL(name, isa, rows, columns, most, function, scratch, rank)       \
    IF_##isa(RECORD(name, TESS_PASS_BACKWARD, isa, rows, columns, most, scratch, rank, \
                    accept_backward))
#include "backends/cpu/backward.def"
#undef TESS_CPU_KERNEL
};

static const tess_kernel *kernels(size_t *out_count)
{
    *out_count = sizeof kernel_table / sizeof kernel_table[0];
    return kernel_table;
}

/* ---- Device -------------------------------------------------------------------------------- */

static int32_t count(const tess_open *open, tess_text *out_why)
{
    (void)open;
    (void)out_why;
    return 1;
}

static int64_t system_number(int name)
{
    const long value = sysconf(name);
    return value > 0 ? value : 0;
}

static int64_t cache_size(void)
{
#ifdef _SC_LEVEL2_CACHE_SIZE
    return system_number(_SC_LEVEL2_CACHE_SIZE);
#else
    return 0;
#endif
}

static tess_caps caps_of(const tess_open *open)
{
    const uint32_t features = tess_cpu_isa(open->env->cpu_isa);

    return (tess_caps){
        .cache = cache_size(),
        .units = open->threads ? open->threads : tess_cpu_default_threads(),
        .lanes = tess_cpu_isa_lanes(features),
        .features = features,
        .architecture = tess_cpu_isa_name(features),
    };
}

/* "cpu" is the whole name: there is no second one and nothing behind a colon. */
static tess_status check_rest(const tess_open *open)
{
    if (open->rest[0] && strcmp(open->rest, "0") != 0)
        return tess_fail(
            open->host, TESS_UNAVAILABLE,
            "tess_device_open: \"cpu:%s\" is not there; the CPU is one device, \"cpu\"",
            open->rest);
    return TESS_OK;
}

static tess_status info(const tess_open *open, int32_t index, tess_device_info *out_info)
{
    const tess_caps caps = caps_of(open);

    if (index < 0)
        TESS_TRY(check_rest(open));
    out_info->memory = system_number(_SC_PHYS_PAGES) * system_number(_SC_PAGESIZE);
    out_info->cache = caps.cache;
    out_info->kind = TESS_DEVICE_CPU;
    out_info->units = caps.units;
    out_info->lanes = caps.lanes;
    out_info->available = 1;
    snprintf(out_info->name, sizeof out_info->name, "cpu");
    tess_cpu_brand(out_info->description, sizeof out_info->description);
    if (!out_info->description[0])
        snprintf(out_info->description, sizeof out_info->description, "CPU");
#ifdef TESS_AMX_EMULATED
    if (caps.features & TESS_CPU_AMX)
        strncat(out_info->description, ", AMX emulated",
                sizeof out_info->description - strlen(out_info->description) - 1);
#endif
    snprintf(out_info->architecture, sizeof out_info->architecture, "%s", caps.architecture);
    return TESS_OK;
}

static tess_status open_device(const tess_open *open, tess_backend_device **out_device)
{
    tess_backend_device *device;

    TESS_TRY(check_rest(open));
    device = tess_alloc_zero(open->host, sizeof *device);
    if (!device)
        return tess_fail(open->host, TESS_NO_MEMORY, "tess_device_open: no memory for %zu bytes",
                         sizeof *device);
    device->host = open->host;
    device->caps = caps_of(open);
    *out_device = device;
    return TESS_OK;
}

static void close_device(tess_backend_device *device)
{
    tess_release(device->host, device, sizeof *device);
}

static const tess_caps *caps(const tess_backend_device *device)
{
    return &device->caps;
}

static int32_t workers(const tess_backend_device *device)
{
    return device->caps.units;
}

static tess_status allocate(tess_backend_device *device, size_t size, void **out_memory)
{
    void *memory = tess_alloc(device->host, size);

    if (!memory)
        return tess_fail(device->host, TESS_NO_MEMORY,
                         "tess_device_allocate: no memory for %zu bytes", size);
    *out_memory = memory;
    return TESS_OK;
}

static void release(tess_backend_device *device, void *memory, size_t size)
{
    tess_release(device->host, memory, size);
}

/* ---- Plans --------------------------------------------------------------------------------- */

static tess_status prepare(tess_backend_device *device, const tess_schedule *schedule,
                           tess_prepared **out_prepared)
{
    const double worth = schedule->cost.flops / least_flops_per_thread;
    tess_prepared *prepared = tess_alloc_zero(device->host, sizeof *prepared);

    if (!prepared)
        return tess_fail(
            device->host, TESS_NO_MEMORY, "tess_plan_create_%s: no memory for %zu bytes",
            schedule->problem.pass == TESS_PASS_FORWARD ? "forward" : "backward", sizeof *prepared);
    prepared->host = device->host;
    prepared->schedule = schedule;
    prepared->forward = ((const entry *)schedule->kernel->entry)->forward;
    prepared->backward = ((const entry *)schedule->kernel->entry)->backward;
    prepared->threads = worth < schedule->workers ? (int32_t)worth : schedule->workers;
    if (prepared->threads < 1)
        prepared->threads = 1;
    *out_prepared = prepared;
    return TESS_OK;
}

static tess_status launch(tess_backend_queue *queue, const tess_prepared *prepared,
                          const tess_address addresses[TESS_AT_COUNT])
{
    (void)queue;
    return prepared->forward ? tess_cpu_launch_forward(prepared, addresses)
                             : tess_cpu_launch_backward(prepared, addresses);
}

static void discard(tess_prepared *prepared)
{
    tess_release(prepared->host, prepared, sizeof *prepared);
}

/* ---- Queues and events --------------------------------------------------------------------- */

static tess_status queue_create(tess_backend_device *device, tess_backend_queue **out_queue)
{
    tess_backend_queue *queue = tess_alloc_zero(device->host, sizeof *queue);

    if (!queue)
        return tess_fail(device->host, TESS_NO_MEMORY, "tess_queue_create: no memory for %zu bytes",
                         sizeof *queue);
    queue->device = device;
    *out_queue = queue;
    return TESS_OK;
}

static void queue_destroy(tess_backend_queue *queue)
{
    const tess_host *host = queue->device->host;

    tess_release(host, queue->scratch, queue->scratch_size);
    tess_release(host, queue, sizeof *queue);
}

static tess_status queue_wait(tess_backend_queue *queue)
{
    (void)queue; /* everything ran where it was called */
    return TESS_OK;
}

static tess_status copy_to(tess_backend_queue *queue, void *device_memory, const void *host_memory,
                           size_t size)
{
    (void)queue;
    memcpy(device_memory, host_memory, size);
    return TESS_OK;
}

static tess_status copy_from(tess_backend_queue *queue, void *host_memory,
                             const void *device_memory, size_t size)
{
    (void)queue;
    memcpy(host_memory, device_memory, size);
    return TESS_OK;
}

static tess_status scratch(tess_backend_queue *queue, const char *call, size_t size,
                           void **out_memory)
{
    const tess_host *host = queue->device->host;
    void *memory;

    if (size > queue->scratch_size) {
        memory = tess_alloc(host, size);
        if (!memory)
            return tess_fail(host, TESS_NO_MEMORY, "%s: no memory for a workspace of %zu bytes",
                             call, size);
        tess_release(host, queue->scratch, queue->scratch_size);
        queue->scratch = memory;
        queue->scratch_size = size;
    }
    *out_memory = queue->scratch;
    return TESS_OK;
}

struct tess_backend_event {
    const tess_host *host;
    struct timespec time;
};

static tess_status event_create(tess_backend_device *device, tess_backend_event **out_event)
{
    tess_backend_event *event = tess_alloc_zero(device->host, sizeof *event);

    if (!event)
        return tess_fail(device->host, TESS_NO_MEMORY, "tess_event_create: no memory for %zu bytes",
                         sizeof *event);
    event->host = device->host;
    *out_event = event;
    return TESS_OK;
}

static void event_destroy(tess_backend_event *event)
{
    tess_release(event->host, event, sizeof *event);
}

static tess_status event_record(tess_backend_event *event, tess_backend_queue *queue)
{
    (void)queue;
    clock_gettime(CLOCK_MONOTONIC, &event->time);
    return TESS_OK;
}

static tess_status event_elapsed(tess_backend_event *start, tess_backend_event *end,
                                 double *out_seconds)
{
    *out_seconds = (double)(end->time.tv_sec - start->time.tv_sec) +
                   1e-9 * (double)(end->time.tv_nsec - start->time.tv_nsec);
    return TESS_OK;
}

const tess_backend tess_backend_cpu = {
    .name = "cpu",
    .priority = 10,
    .has_plain_addresses = 1,
    .count = count,
    .info = info,
    .open = open_device,
    .close = close_device,
    .caps = caps,
    .kernels = kernels,
    .workers = workers,
    .prepare = prepare,
    .launch = launch,
    .discard = discard,
    .merge = tess_cpu_merge,
    .allocate = allocate,
    .release = release,
    .queue_create = queue_create,
    .queue_destroy = queue_destroy,
    .queue_wait = queue_wait,
    .upload = copy_to,
    .download = copy_from,
    .scratch = scratch,
    .event_create = event_create,
    .event_destroy = event_destroy,
    .event_record = event_record,
    .event_elapsed = event_elapsed,
};
