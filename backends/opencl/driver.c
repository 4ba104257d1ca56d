/* SPDX-License-Identifier: Apache-2.0
 * Finding the OpenCL loader and the devices behind it; what its error numbers mean. */
#include "backends/opencl/driver.h"

#include "core/base/error.h"
#include "core/base/library.h"
#include "core/base/log.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const call_names[] = {
#define TESS_CL_CALL(field, name, result, parameters) #name,
#include "backends/opencl/calls.def"
#undef TESS_CL_CALL
};

/* ---- Errors ---------------------------------------------------------------------------------- */

static const struct {
    tess_cl_code code;
    const char *name;
} error_names[] = {
#define TESS_CL_ERROR(code, name) {code, #name},
#include "backends/opencl/errors.def"
#undef TESS_CL_ERROR
};

void tess_cl_write_error(tess_cl_code code, tess_text *out_text)
{
    const char *name = "an error without a name";

    for (size_t i = 0; i < sizeof error_names / sizeof error_names[0]; i++)
        if (error_names[i].code == code)
            name = error_names[i].name;
    tess_text_add(out_text, "%s (%d)", name, (int)code);
}

static tess_status status_of(tess_cl_code code)
{
    switch (code) {
    case TESS_CL_ALLOCATION_FAILURE:
    case TESS_CL_OUT_OF_HOST_MEMORY:
    case TESS_CL_INVALID_BUFFER_SIZE: /* above what the device allocates at once */
        return TESS_NO_MEMORY;
    default:
        return TESS_DEVICE_FAILED;
    }
}

tess_status tess_cl_answer(const tess_host *host, const char *call, tess_cl_call which,
                           tess_cl_code code)
{
    char error[128];
    tess_text text = tess_text_in(error, sizeof error);

    if (tess_trace_shows(host, TESS_TRACE_DRIVER))
        tess_trace(host, TESS_TRACE_DRIVER, "%s,%d", call_names[which], (int)code);
    if (code == TESS_CL_SUCCESS)
        return TESS_OK;
    tess_cl_write_error(code, &text);
    return tess_fail(host, status_of(code), "%s: %s says %s", call, call_names[which], error);
}

/* ---- Platforms and devices ------------------------------------------------------------------- */

/* What people call platforms whose own name is long; others are called by its first word. */
static void write_slug(const char *name, char *out_slug, size_t size)
{
    static const char *const known[][2] = {{"Portable Computing Language", "pocl"},
                                           {"NVIDIA", "nvidia"},
                                           {"AMD", "amd"},
                                           {"Intel", "intel"},
                                           {"ARM", "arm"},
                                           {"QUALCOMM", "qualcomm"}};
    size_t length = 0;

    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++) {
        if (strncmp(name, known[i][0], strlen(known[i][0])) == 0) {
            snprintf(out_slug, size, "%s", known[i][1]);
            return;
        }
    }
    for (; *name && length + 1 < size; name++) {
        const char c = *name >= 'A' && *name <= 'Z' ? (char)(*name - 'A' + 'a') : *name;
        const bool is_letter = c >= 'a' && c <= 'z';
        if (is_letter || (length > 0 && c >= '0' && c <= '9'))
            out_slug[length++] = c;
        else if (length > 0)
            break;
    }
    out_slug[length] = '\0';
    if (length == 0)
        snprintf(out_slug, size, "platform");
}

enum { MOST_PLATFORMS = 16 };

typedef struct platform {
    void *id;
    uint32_t found; /* place among those of the loader */
    char slug[24];
} platform;

static int compare_platforms(const void *a, const void *b)
{
    const platform *const one = a, *const other = b;
    const int order = strcmp(one->slug, other->slug);

    if (order != 0)
        return order;
    return one->found < other->found ? -1 : 1;
}

/* Names are to last: platforms sorted by slug, and a second one of the same slug gets a number. */
static void sort_platforms(platform *platforms, uint32_t count)
{
    uint32_t same = 1;

    qsort(platforms, count, sizeof *platforms, compare_platforms);
    for (uint32_t i = 1; i < count; i++) {
        char base[24];
        memcpy(base, platforms[i - same].slug, sizeof base);
        if (strcmp(base, platforms[i].slug) != 0) {
            same = 1;
            continue;
        }
        same++;
        snprintf(platforms[i].slug, sizeof platforms[i].slug, "%.16s-%u", base, (unsigned)same);
    }
}

static void add_devices(tess_cl_driver *driver, const platform *from, int32_t number)
{
    void *devices[TESS_CL_MOST_DEVICES];
    uint32_t count = 0;

    if (driver->devices(from->id, TESS_CL_TYPE_ALL, TESS_CL_MOST_DEVICES, devices, &count) !=
        TESS_CL_SUCCESS)
        return; /* a platform without a device says so by an error */
    if (count > TESS_CL_MOST_DEVICES)
        count = TESS_CL_MOST_DEVICES;
    for (uint32_t i = 0; i < count && driver->count < TESS_CL_MOST_DEVICES; i++) {
        tess_cl_place *const place = &driver->places[driver->count++];
        place->platform = from->id;
        place->device = devices[i];
        place->number = number;
        place->ordinal = (int32_t)i;
        memcpy(place->slug, from->slug, sizeof place->slug);
    }
}

/* The loader's devices; false with the reason when there is none. */
static bool list_devices(tess_cl_driver *driver, tess_text *out_why)
{
    void *ids[MOST_PLATFORMS];
    platform platforms[MOST_PLATFORMS];
    char name[128];
    uint32_t count = 0, named = 0;
    const tess_cl_code code = driver->platforms(MOST_PLATFORMS, ids, &count);

    if (code == TESS_CL_NO_PLATFORM || (code == TESS_CL_SUCCESS && count == 0)) {
        tess_text_add(out_why, "the OpenCL loader finds no platform: no driver is installed, or "
                               "OCL_ICD_VENDORS leads past it");
        return false;
    }
    if (code != TESS_CL_SUCCESS) {
        tess_text_add(out_why, "clGetPlatformIDs says ");
        tess_cl_write_error(code, out_why);
        return false;
    }
    if (count > MOST_PLATFORMS)
        count = MOST_PLATFORMS;
    for (uint32_t i = 0; i < count; i++) {
        platform *const next = &platforms[named];
        next->id = ids[i];
        next->found = i;
        if (driver->platform_info(ids[i], TESS_CL_PLATFORM_NAME, sizeof name, name, NULL) !=
            TESS_CL_SUCCESS)
            continue; /* what cannot even say its name is broken */
        name[sizeof name - 1] = '\0';
        write_slug(name, next->slug, sizeof next->slug);
        named++;
    }
    sort_platforms(platforms, named);
    for (uint32_t i = 0; i < named; i++)
        add_devices(driver, &platforms[i], (int32_t)i);
    if (driver->count == 0)
        tess_text_add(out_why, "the OpenCL loader finds %u platform%s without a device",
                      (unsigned)count, count == 1 ? "" : "s");
    return driver->count > 0;
}

/* ---- Loading --------------------------------------------------------------------------------- */

static const struct {
    const char *name;
    size_t offset;
} symbols[] = {
#define TESS_CL_CALL(field, name, result, parameters) {#name, offsetof(tess_cl_driver, field)},
#include "backends/opencl/calls.def"
#undef TESS_CL_CALL
};

/* False with the name of the first call that is missing. */
static bool fill(void *opened, tess_cl_driver *driver, const char **out_missing)
{
    for (int i = 0; i < TESS_CL_CALLS; i++) {
        const tess_symbol symbol = tess_library_symbol(opened, symbols[i].name);

        *out_missing = symbols[i].name;
        if (!symbol)
            return false;
        /* Every member is a pointer to some function, and all of them look alike. */
        memcpy((char *)driver + symbols[i].offset, &symbol, sizeof symbol);
    }
    return true;
}

/* Opens, fills and asks a loader. Not under the lock, since it logs. */
static bool load(const tess_host *host, const char *path, tess_cl_driver *out_driver,
                 tess_text *out_why)
{
    static const char *const names[] = {"libOpenCL.so.1", "libOpenCL.so", NULL};
    const char *const own[] = {path, NULL};
    const char *missing;
    char why[512];
    void *opened;

    memset(out_driver, 0, sizeof *out_driver);
    if (tess_library_open(host, path[0] ? own : names, &opened, why, sizeof why) != TESS_OK) {
        why[strcspn(why, "\n")] = '\0'; /* the first name is the usual one */
        tess_text_add(out_why, "no OpenCL loader: %s", why);
        return false;
    }
    if (!fill(opened, out_driver, &missing)) {
        tess_text_add(out_why,
                      "the OpenCL loader has no %s: it is older than OpenCL 1.2, or "
                      "TESSERA_OPENCL_LIBRARY names no loader",
                      missing);
        tess_library_close(opened);
        return false;
    }
    /* Open from here on: drivers that have been asked keep threads of their own. */
    return list_devices(out_driver, out_why);
}

enum { MOST_DRIVERS = 8 };

static struct {
    char path[TESS_ENV_SIZE]; /* as asked for, "" for the usual names */
    tess_cl_driver driver;
} found[MOST_DRIVERS];
static int found_count;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* guards the two above */

/* Called with the lock held. */
static const tess_cl_driver *find_loaded(const char *path)
{
    for (int i = 0; i < found_count; i++)
        if (strcmp(found[i].path, path) == 0)
            return &found[i].driver;
    return NULL;
}

/* Keeps what was loaded, unless another thread was faster; NULL when there is no room. */
static const tess_cl_driver *keep(const char *path, const tess_cl_driver *loaded)
{
    const tess_cl_driver *driver;

    pthread_mutex_lock(&lock);
    driver = find_loaded(path);
    if (!driver && found_count < MOST_DRIVERS) {
        snprintf(found[found_count].path, sizeof found[found_count].path, "%s", path);
        found[found_count].driver = *loaded;
        driver = &found[found_count++].driver;
    }
    pthread_mutex_unlock(&lock);
    return driver;
}

const tess_cl_driver *tess_cl_driver_find(const tess_host *host, const tess_env *env,
                                          tess_text *out_why)
{
    const char *const path = env->opencl_library;
    const tess_cl_driver *driver;
    tess_cl_driver loaded;

    pthread_mutex_lock(&lock);
    driver = find_loaded(path);
    pthread_mutex_unlock(&lock);
    if (driver || !load(host, path, &loaded, out_why))
        return driver;
    driver = keep(path, &loaded);
    if (!driver)
        tess_text_add(out_why,
                      "TESSERA_OPENCL_LIBRARY has named %d loaders in this process; no more fit",
                      MOST_DRIVERS);
    return driver;
}
