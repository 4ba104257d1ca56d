/* SPDX-License-Identifier: Apache-2.0
 * Devices of a GPU driver: counting, describing, opening, and being current on a thread. */
#include "backends/gpu/host/backend.h"

#include "core/base/alloc.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static const char opening[] = "tess_device_open";

/* ---- Being current --------------------------------------------------------------------------- */

tess_status tess_gpu_enter(tess_gpu_scope *scope, const tess_backend_device *device,
                           const char *call)
{
    *scope = (tess_gpu_scope){device, call, device->ordinal, false};
    if (device->driver->context_push) {
        TESS_TRY(TESS_GPU_IN(scope, context_push, device->context));
    } else {
        TESS_TRY(TESS_GPU_IN(scope, current_get, &scope->before));
        if (scope->before != device->ordinal)
            TESS_TRY(TESS_GPU_IN(scope, current_set, device->ordinal));
    }
    scope->is_inside = true;
    return TESS_OK;
}

static tess_status leave(const tess_gpu_scope *scope)
{
    void *popped;

    if (!scope->is_inside)
        return TESS_OK;
    if (scope->device->driver->context_pop)
        return TESS_GPU_IN(scope, context_pop, &popped);
    return scope->before == scope->device->ordinal ? TESS_OK
                                                   : TESS_GPU_IN(scope, current_set, scope->before);
}

/* A failure to leave must not hide why the call failed, whose text is the thread's last. */
tess_status tess_gpu_leave(const tess_gpu_scope *scope, tess_status status)
{
    char text[TESS_ERROR_LENGTH + 1];

    if (status == TESS_OK)
        return leave(scope);
    tess_error_text(scope->device->host, text, sizeof text);
    return leave(scope) == TESS_OK ? status : tess_fail(scope->device->host, status, "%s", text);
}

/* ---- Facts ----------------------------------------------------------------------------------- */

typedef struct facts {
    int handle;
    tess_caps caps;
    size_t memory;
    int reads_host;
    char name[128];
    char architecture[64];
} facts;

static tess_status ask(const tess_gpu_vendor *vendor, const tess_gpu_driver *driver,
                       const tess_open *open, int handle, tess_gpu_attribute which, int *out_value)
{
    return TESS_GPU_ASK(driver, open->host, opening, device_attribute, out_value,
                        vendor->attribute[which], handle);
}

/* Whether there are images of kernels that take maps, which are for some chips only. */
static bool has_map_kernels(const tess_gpu_vendor *vendor, const tess_open *open,
                            const char *architecture)
{
    for (size_t i = 0; i < vendor->kernel_count; i++)
        if (vendor->kernels[i].takes_maps)
            return tess_gpu_choose(vendor, vendor->kernels[i].source, architecture, open->env);
    return false;
}

static tess_status learn(const tess_gpu_vendor *vendor, const tess_gpu_driver *driver,
                         const tess_open *open, int ordinal, facts *out)
{
    const tess_host *host = open->host;
    int units, wave, shared, cache;

    memset(out, 0, sizeof *out);
    TESS_TRY(TESS_GPU_ASK(driver, host, opening, device_get, &out->handle, ordinal));
    TESS_TRY(TESS_GPU_ASK(driver, host, opening, device_name, out->name, (int)sizeof out->name,
                          out->handle));
    TESS_TRY(TESS_GPU_ASK(driver, host, opening, device_memory, &out->memory, out->handle));
    TESS_TRY(ask(vendor, driver, open, out->handle, TESS_GPU_UNITS, &units));
    TESS_TRY(ask(vendor, driver, open, out->handle, TESS_GPU_WAVE, &wave));
    TESS_TRY(ask(vendor, driver, open, out->handle, TESS_GPU_SHARED_MEMORY, &shared));
    TESS_TRY(ask(vendor, driver, open, out->handle, TESS_GPU_CACHE, &cache));
    TESS_TRY(ask(vendor, driver, open, out->handle, TESS_GPU_READS_HOST, &out->reads_host));
    TESS_TRY(vendor->architecture(driver, open, opening, out->handle, out->architecture));
    out->caps = (tess_caps){.cache = cache, .shared_memory = shared, .units = units, .lanes = wave};
    if (has_map_kernels(vendor, open, out->architecture))
        out->caps.features = TESS_GPU_TAKES_MAPS;
    return TESS_OK;
}

/* Whether every other source of kernels has an image for the chip; else why not. */
static bool has_images(const tess_gpu_vendor *vendor, const tess_open *open,
                       const char *architecture, tess_text *out_why)
{
    for (size_t i = 0; i < vendor->kernel_count; i++) {
        if (vendor->kernels[i].takes_maps ||
            tess_gpu_choose(vendor, vendor->kernels[i].source, architecture, open->env))
            continue;
        tess_text_add(out_why, "the chip is %s; this build has kernels for", architecture);
        for (size_t j = 0; j < vendor->image_count; j++)
            if (strcmp(vendor->images[j].source, vendor->kernels[i].source) == 0)
                tess_text_add(out_why, " %s", vendor->images[j].architecture);
        if (open->env->cuda_arch)
            tess_text_add(out_why, ", TESSERA_CUDA_ARCH is %" PRId64, open->env->cuda_arch);
        return false;
    }
    return true;
}

/* ---- Finding --------------------------------------------------------------------------------- */

/* Devices of the driver; 0 with the reason written. */
static int32_t count_devices(const tess_gpu_vendor *vendor, const tess_open *open,
                             const tess_gpu_driver **out_driver, tess_text *out_why)
{
    const tess_gpu_driver *driver =
        tess_gpu_driver_find(vendor->library, open->host, vendor->path(open->env), out_why);
    int count = 0, code;

    *out_driver = driver;
    if (!driver)
        return 0;
    code = driver->device_count(&count);
    if (code != TESS_GPU_SUCCESS) {
        tess_text_add(out_why, "%s says ", driver->symbol[TESS_GPU_CALL_device_count]);
        tess_gpu_write_error(driver, code, out_why);
        return 0;
    }
    if (count == 0)
        tess_text_add(out_why, "the %s driver has no device", vendor->library->vendor);
    return count;
}

int32_t tess_gpu_count(const tess_gpu_vendor *vendor, const tess_open *open, tess_text *out_why)
{
    const tess_gpu_driver *driver;

    return count_devices(vendor, open, &driver, out_why);
}

/* The number behind the colon; none is 0. Numbers above every count stay above. */
static bool read_ordinal(const char *rest, int32_t *out_ordinal)
{
    int32_t number = 0;

    if (strlen(rest) > 6 || rest[strspn(rest, "0123456789")])
        return false;
    for (; *rest; rest++)
        number = number * 10 + (*rest - '0');
    *out_ordinal = number;
    return true;
}

/* The driver, and which of its devices open->rest names. */
static tess_status find(const tess_gpu_vendor *vendor, const tess_open *open, int32_t *ordinal,
                        const tess_gpu_driver **out_driver)
{
    char why[512] = "";
    tess_text text = tess_text_in(why, sizeof why);
    const int32_t count = count_devices(vendor, open, out_driver, &text);

    if (*ordinal < 0 && !read_ordinal(open->rest, ordinal))
        return tess_fail(open->host, TESS_INVALID,
                         "%s: \"%s:%s\" is no device; behind the colon %s takes a number from 0",
                         opening, vendor->name, open->rest, vendor->name);
    if (count == 0)
        return tess_fail(open->host, TESS_UNAVAILABLE, "%s: \"%s\" is not there: %s", opening,
                         vendor->name, why);
    if (*ordinal >= count)
        return tess_fail(open->host, TESS_UNAVAILABLE,
                         "%s: \"%s:%" PRId32 "\" is not there; the driver has %" PRId32
                         " device%s, %s:0%s",
                         opening, vendor->name, *ordinal, count, count == 1 ? "" : "s",
                         vendor->name, count == 1 ? "" : " the first");
    return TESS_OK;
}

tess_status tess_gpu_info(const tess_gpu_vendor *vendor, const tess_open *open, int32_t index,
                          tess_device_info *out_info)
{
    const tess_gpu_driver *driver;
    tess_text why = tess_text_in(out_info->reason, sizeof out_info->reason);
    facts f;

    TESS_TRY(find(vendor, open, &index, &driver));
    TESS_TRY(learn(vendor, driver, open, index, &f));
    out_info->memory = (int64_t)f.memory;
    out_info->shared_memory = f.caps.shared_memory;
    out_info->cache = f.caps.cache;
    out_info->kind = TESS_DEVICE_GPU;
    out_info->driver = driver->installed;
    out_info->units = f.caps.units;
    out_info->lanes = f.caps.lanes;
    snprintf(out_info->name, sizeof out_info->name, "%s:%" PRId32, vendor->name, index);
    snprintf(out_info->description, sizeof out_info->description, "%s", f.name);
    snprintf(out_info->architecture, sizeof out_info->architecture, "%s", f.architecture);
    out_info->available = has_images(vendor, open, f.architecture, &why);
    return TESS_OK;
}

/* ---- Opening --------------------------------------------------------------------------------- */

static tess_status make_tables(tess_backend_device *device)
{
    const tess_gpu_vendor *vendor = device->vendor;

    device->modules = tess_alloc_array(device->host, vendor->image_count, sizeof(void *));
    device->functions = tess_alloc_array(device->host, vendor->kernel_count, sizeof(void *));
    if (device->modules && device->functions)
        return TESS_OK;
    return tess_fail(device->host, TESS_NO_MEMORY, "%s: no memory for %zu bytes", opening,
                     (vendor->image_count + vendor->kernel_count) * sizeof(void *));
}

/* The context that the runtime libraries use too, so that their memory and streams are ours. */
static tess_status retain(tess_backend_device *device)
{
    const tess_gpu_driver *driver = device->driver;

    if (!driver->context_retain)
        return TESS_OK;
    return TESS_GPU_ASK(driver, device->host, opening, context_retain, &device->context,
                        device->handle);
}

static void destroy(tess_backend_device *device)
{
    const tess_gpu_vendor *vendor = device->vendor;

    tess_release(device->host, device->modules, vendor->image_count * sizeof(void *));
    tess_release(device->host, device->functions, vendor->kernel_count * sizeof(void *));
    pthread_mutex_destroy(&device->lock);
    tess_release(device->host, device, sizeof *device);
}

static void describe(tess_backend_device *device, const facts *f)
{
    memcpy(device->architecture, f->architecture, sizeof device->architecture);
    device->handle = f->handle;
    device->caps = f->caps;
    device->caps.architecture = device->architecture;
    device->reads_host = f->reads_host != 0;
}

tess_status tess_gpu_open(const tess_gpu_vendor *vendor, const tess_open *open,
                          tess_backend_device **out_device)
{
    char why[256] = "";
    tess_text text = tess_text_in(why, sizeof why);
    const tess_gpu_driver *driver;
    tess_backend_device *device;
    tess_status status;
    int32_t ordinal = -1;
    facts f;

    TESS_TRY(find(vendor, open, &ordinal, &driver));
    TESS_TRY(learn(vendor, driver, open, ordinal, &f));
    if (!has_images(vendor, open, f.architecture, &text))
        return tess_fail(open->host, TESS_UNAVAILABLE, "%s: \"%s:%" PRId32 "\" cannot be used: %s",
                         opening, vendor->name, ordinal, why);
    device = tess_alloc_zero(open->host, sizeof *device);
    if (!device)
        return tess_fail(open->host, TESS_NO_MEMORY, "%s: no memory for %zu bytes", opening,
                         sizeof *device);
    device->vendor = vendor;
    device->driver = driver;
    device->host = open->host;
    device->env = open->env;
    device->ordinal = ordinal;
    pthread_mutex_init(&device->lock, NULL);
    describe(device, &f);
    status = make_tables(device);
    if (status == TESS_OK)
        status = retain(device);
    if (status != TESS_OK) {
        destroy(device);
        return status;
    }
    *out_device = device;
    return TESS_OK;
}

void tess_gpu_close(tess_backend_device *device)
{
    static const char closing[] = "tess_context_destroy";
    const tess_gpu_driver *driver = device->driver;
    tess_gpu_scope scope;

    tess_gpu_enter(&scope, device, closing);
    tess_gpu_unload(&scope, device);
    tess_gpu_leave(&scope, TESS_OK);
    if (driver->context_release)
        TESS_GPU_ASK(driver, device->host, closing, context_release, device->handle);
    destroy(device);
}

const tess_caps *tess_gpu_caps(const tess_backend_device *device)
{
    return &device->caps;
}
