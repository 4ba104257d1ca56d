/* SPDX-License-Identifier: Apache-2.0
 * tessera devices: what can be opened here, and why the rest cannot. */
#include "tools/args.h"
#include "tools/facts.h"
#include "tools/json.h"
#include "tools/session.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

typedef struct devices_options {
    bool json, kernels, measure;
} devices_options;

static const tool_option options[] = {
    {"kernels", 'k', TOOL_FLAG, offsetof(devices_options, kernels), NULL,
     "list every kernel of each device: what it takes and whether this device can run it", 0, 0,
     NULL},
    {"measure", 'm', TOOL_FLAG, offsetof(devices_options, measure), NULL,
     "copy 64 MiB to each device and back, and print how fast that went", 0, 0, NULL},
    {"json", 'j', TOOL_FLAG, offsetof(devices_options, json), NULL, "print one JSON array", 0, 0,
     NULL},
};

static void write_dtypes(uint32_t dtypes, tess_text *out)
{
    for (int dtype = TESS_F32; dtype <= TESS_E5M2; dtype++)
        if (dtypes >> dtype & 1)
            tess_text_add(out, "%s%s", out->length ? "," : "", tess_dtype_name(dtype));
}

/* "16.0 GiB", "512 KiB"; sizes of memories are powers of two or near them. */
static const char *size_text(int64_t bytes, char *data, size_t size)
{
    static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB"};
    double value = (double)bytes;
    size_t unit = 0;

    while (value >= 1024 && unit + 1 < sizeof units / sizeof units[0]) {
        value /= 1024;
        unit++;
    }
    snprintf(data, size, value < 10 && unit ? "%.1f %s" : "%.0f %s", value, units[unit]);
    return data;
}

/* ---- Kernels --------------------------------------------------------------------------------- */

static bool can_run(const tess_kernel *kernel, const tess_caps *caps)
{
    return (kernel->features & ~caps->features) == 0;
}

static json_t *kernels_json(const tess_device *device)
{
    size_t count;
    const tess_kernel *const kernels = device->backend->kernels(&count);
    const tess_caps *const caps = device->backend->caps(device->opened);
    json_t *array = json_array();

    for (size_t i = 0; i < count; i++) {
        char dtypes[64];
        tess_text text = tess_text_in(dtypes, sizeof dtypes);

        write_dtypes(kernels[i].dtypes, &text);
        json_array_append_new(
            array,
            json_pack("{s:s, s:s, s:s, s:I, s:I, s:I, s:i, s:b, s:s?}", "name", kernels[i].name,
                      "pass", kernels[i].pass == TESS_PASS_FORWARD ? "forward" : "backward",
                      "dtypes", dtypes, "max_head_dim", (json_int_t)kernels[i].max_head_dim,
                      "tile_rows", (json_int_t)kernels[i].tile_rows, "tile_columns",
                      (json_int_t)kernels[i].tile_columns, "priority", (int)kernels[i].priority,
                      "runs_here", (int)can_run(&kernels[i], caps), "needs",
                      kernels[i].feature_name));
    }
    return array;
}

static void print_kernels(const tess_device *device)
{
    size_t count;
    const tess_kernel *const kernels = device->backend->kernels(&count);
    const tess_caps *const caps = device->backend->caps(device->opened);

    printf("    %-36s %-14s %8s %9s  %s\n", "kernel", "types", "dims to", "tile", "here");
    for (size_t i = 0; i < count; i++) {
        char dtypes[64], tile[48];
        tess_text text = tess_text_in(dtypes, sizeof dtypes);

        write_dtypes(kernels[i].dtypes, &text);
        snprintf(tile, sizeof tile, "%" PRId64 "x%" PRId64, kernels[i].tile_rows,
                 kernels[i].tile_columns);
        printf("    %-36s %-14s %8" PRId64 " %9s  %s%s\n", kernels[i].name, dtypes,
               kernels[i].max_head_dim, tile, can_run(&kernels[i], caps) ? "yes" : "no: needs ",
               can_run(&kernels[i], caps) ? ""
               : kernels[i].feature_name  ? kernels[i].feature_name
                                          : "what this device lacks");
    }
}

/* ---- Copies ---------------------------------------------------------------------------------- */

enum { COPY_BYTES = 64 << 20, COPY_ROUNDS = 7 };

/* Bytes per second between the host and a device, medians. */
typedef struct copy_speed {
    double to, from;
} copy_speed;

static double now(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static int ascending(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

/* The first round of each pair of copies warms up and is not counted. */
static tess_status time_copies(tess_queue *queue, void *memory, char *host, copy_speed *out)
{
    double to[COPY_ROUNDS], from[COPY_ROUNDS];

    for (int i = -1; i < COPY_ROUNDS; i++) {
        const double start = now();
        TESS_TRY(tess_queue_upload(queue, memory, host, COPY_BYTES));
        TESS_TRY(tess_queue_wait(queue));
        const double middle = now();
        TESS_TRY(tess_queue_download(queue, host, memory, COPY_BYTES));
        if (i >= 0) {
            to[i] = COPY_BYTES / (middle - start);
            from[i] = COPY_BYTES / (now() - middle);
        }
    }
    qsort(to, COPY_ROUNDS, sizeof to[0], ascending);
    qsort(from, COPY_ROUNDS, sizeof from[0], ascending);
    *out = (copy_speed){to[COPY_ROUNDS / 2], from[COPY_ROUNDS / 2]};
    return TESS_OK;
}

static tess_status measure(tess_device *device, copy_speed *out)
{
    char *host = malloc(COPY_BYTES);
    void *memory = NULL;
    tess_queue *queue = NULL;
    tess_status status = host ? tess_queue_create(device, &queue) : TESS_NO_MEMORY;

    if (status == TESS_OK)
        status = tess_device_allocate(device, COPY_BYTES, &memory);
    if (status == TESS_OK) {
        memset(host, 1, COPY_BYTES); /* pages that exist */
        status = time_copies(queue, memory, host, out);
    }
    tess_device_release(device, memory, COPY_BYTES);
    tess_queue_destroy(queue);
    free(host);
    return status;
}

/* ---- Devices --------------------------------------------------------------------------------- */

static void print_device(const tess_device_info *info)
{
    char text[32];

    printf("%-14s ", info->name);
    if (!info->available) {
        printf("unavailable: %s\n", info->reason);
        return;
    }
    printf("%s\n%15s%s, %d %s, vectors of %d", info->description[0] ? info->description : "-", "",
           info->architecture, info->units,
           info->kind == TESS_DEVICE_CPU ? (info->units == 1 ? "thread" : "threads") : "units",
           info->lanes);
    if (info->memory)
        printf(", %s memory", size_text(info->memory, text, sizeof text));
    if (info->shared_memory)
        printf(", %s on chip", size_text(info->shared_memory, text, sizeof text));
    if (info->cache)
        printf(", %s cache", size_text(info->cache, text, sizeof text));
    putchar('\n');
}

/* Adds the device to the array, or prints it when there is none. */
static int show(tess_context *context, size_t index, const devices_options *given, json_t *array)
{
    tess_device_info info = {.struct_size = sizeof info};
    tess_device *device = NULL;
    tess_status status = tess_context_device_info(context, index, &info);
    copy_speed speed = {0, 0};
    json_t *object = NULL;

    if (status == TESS_OK && (given->kernels || given->measure) && info.available)
        status = tess_device_open(context, info.name, &device);
    if (status == TESS_OK && given->measure && device)
        status = measure(device, &speed);
    if (status != TESS_OK)
        return tool_fail_library(context, status);
    if (array) {
        object = tool_device_json(&info);
        if (given->kernels)
            tool_json_set(object, "kernels", device ? kernels_json(device) : json_array());
        if (given->measure && device) {
            tool_json_set(object, "bytes_per_second_to", json_real(speed.to));
            tool_json_set(object, "bytes_per_second_from", json_real(speed.from));
        }
        json_array_append_new(array, object);
        return TOOL_OK;
    }
    print_device(&info);
    if (given->measure && device)
        printf("%15s%.1f GB/s from host memory to the device, %.1f GB/s back\n", "",
               1e-9 * speed.to, 1e-9 * speed.from);
    if (given->kernels && device)
        print_kernels(device);
    return TOOL_OK;
}

static int devices_main(int argc, char **argv)
{
    devices_options given = {false, false, false};
    tess_context *context = NULL;
    json_t *array = NULL;
    bool done;
    int first = argc, result = tool_args_read(&tool_devices, argc, argv, &given, &first, &done);
    tess_status status;
    size_t count;

    if (result != TOOL_OK || done)
        return result;
    if (first < argc)
        return tool_fail(TOOL_USAGE, "takes no arguments, but was given \"%s\"", argv[first]);
    status = tess_context_create(NULL, &context);
    if (status != TESS_OK)
        return tool_fail_library(NULL, status);
    if (given.json)
        array = json_array();
    count = tess_context_device_count(context);
    for (size_t i = 0; i < count && result == TOOL_OK; i++)
        result = show(context, i, &given, array);
    if (given.json && result == TOOL_OK)
        result = tool_json_print(array);
    else
        json_decref(array);
    tess_context_destroy(context);
    return result;
}

const tool_verb tool_devices = {
    .name = "devices",
    .summary = "list the devices, those that cannot be opened included",
    .usage = "[--kernels] [--measure] [--json]",
    .details =
        "Lists every device of every backend, best first. A device that cannot be opened is\n"
        "listed with the reason; that is no failure.",
    .options = options,
    .option_count = sizeof options / sizeof options[0],
    .main = devices_main,
};
