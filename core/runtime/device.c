/* SPDX-License-Identifier: Apache-2.0
 * Devices: the list a person sees, opening by name, memory. */
#include "core/base/alloc.h"
#include "core/base/log.h"
#include "core/runtime/registry.h"
#include "core/runtime/take.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <tessera/interop_opencl.h>

static tess_open open_of(const tess_context *context, const char *rest)
{
    return (tess_open){&context->host, &context->env, rest, context->threads};
}

/* Devices of a backend that the context may use; 0 with the reason written. */
static int32_t count_devices(const tess_context *context, const tess_backend *backend,
                             tess_text *out_why)
{
    const tess_open open = open_of(context, "");

    if (tess_registry_allows(context, backend))
        return backend->count(&open, out_why);
    tess_text_add(out_why, "excluded by the context's backend list \"%s\"", context->backends);
    return 0;
}

/* What a person is told of one device. A device that cannot say what it is does not hide the
 * others. */
static void describe_device(const tess_context *context, const tess_backend *backend, int32_t index,
                            tess_device_info *out_info)
{
    const tess_open open = open_of(context, "");

    memset(out_info, 0, sizeof *out_info);
    if (backend->info(&open, index, out_info) == TESS_OK)
        return;
    memset(out_info, 0, sizeof *out_info);
    snprintf(out_info->name, sizeof out_info->name, "%s:%" PRId32, backend->name, index);
    tess_error_text(&context->host, out_info->reason, sizeof out_info->reason);
}

/* Counts the places of the list up to `index` that are available, or those that are not. A backend
 * without a device has one place, which says why. True when place `index` was reached. */
static bool walk(const tess_context *context, bool is_available, size_t index, size_t *seen,
                 tess_device_info *out_info)
{
    const tess_backend *backend;

    for (size_t b = 0; (backend = tess_registry_at(context, b)) != NULL; b++) {
        char why[sizeof out_info->reason];
        tess_text text = tess_text_in(why, sizeof why);
        const int32_t count = count_devices(context, backend, &text);

        for (int32_t i = 0; i < count; i++) {
            describe_device(context, backend, i, out_info);
            if ((out_info->available != 0) == is_available && (*seen)++ == index)
                return true;
        }
        if (count > 0 || is_available)
            continue;
        memset(out_info, 0, sizeof *out_info);
        snprintf(out_info->name, sizeof out_info->name, "%s", backend->name);
        snprintf(out_info->reason, sizeof out_info->reason, "%s", why);
        if ((*seen)++ == index)
            return true;
    }
    return false;
}

/* Place `index` of the list: what can be opened first, in the context's order of preference. */
static bool find_place(const tess_context *context, size_t index, tess_device_info *out_info)
{
    size_t seen = 0;

    return walk(context, true, index, &seen, out_info) ||
           walk(context, false, index, &seen, out_info);
}

size_t tess_context_device_count(tess_context *context)
{
    const tess_backend *backend;
    size_t places = 0;

    for (size_t b = 0; context && (backend = tess_registry_at(context, b)) != NULL; b++) {
        tess_text nowhere = tess_text_in(NULL, 0);
        const int32_t count = count_devices(context, backend, &nowhere);
        places += count > 0 ? (size_t)count : 1;
    }
    return places;
}

/* Hands a struct of this library's size to a caller whose struct may be shorter or, of a later
 * version, longer. Unlike one that is read, it need not have been cleared. */
static tess_status give_info(const tess_host *host, const char *call, const tess_device_info *info,
                             tess_device_info *out_info)
{
    const size_t given = out_info->struct_size, own = sizeof *info;
    char *const bytes = (char *)out_info;

    TESS_TRY(tess_take_size(host, call, "info", given, own));
    memcpy(bytes + sizeof given, (const char *)info + sizeof given,
           (given < own ? given : own) - sizeof given);
    if (given > own)
        memset(bytes + own, 0, given - own);
    return TESS_OK;
}

tess_status tess_context_device_info(tess_context *context, size_t index, tess_device_info *info)
{
    static const char call[] = "tess_context_device_info";
    tess_device_info found;

    TESS_TRY(tess_need(context, call, "context"));
    if (!info)
        return tess_fail(&context->host, TESS_INVALID, "%s: info is NULL", call);
    if (!find_place(context, index, &found))
        return tess_fail(&context->host, TESS_INVALID, "%s: index is %zu; it takes 0 to %zu", call,
                         index, tess_context_device_count(context) - 1);
    return give_info(&context->host, call, &found, info);
}

tess_status tess_device_get_info(const tess_device *device, tess_device_info *info)
{
    static const char call[] = "tess_device_get_info";
    const tess_context *context;
    tess_device_info found;
    const char *rest;
    tess_open open;

    TESS_TRY(tess_need(device, call, "device"));
    context = device->context;
    if (!info)
        return tess_fail(&context->host, TESS_INVALID, "%s: info is NULL", call);
    tess_registry_find(device->name, &rest);
    open = open_of(context, rest);
    memset(&found, 0, sizeof found);
    TESS_TRY(device->backend->info(&open, -1, &found));
    return give_info(&context->host, call, &found, info);
}

/* The open device of that name, or NULL. Called with the lock held. */
static tess_device *find_open(const tess_context *context, const char *name)
{
    tess_device *device = context->devices;

    while (device && strcmp(device->name, name) != 0)
        device = device->next;
    return device;
}

static void close_device(const tess_context *context, tess_device *device)
{
    device->backend->close(device->opened);
    tess_release(&context->host, device, sizeof *device);
}

static tess_status create_device(tess_context *context, const tess_backend *backend,
                                 const char *name, tess_device **out_device)
{
    const tess_host *host = &context->host;
    const char *rest;
    tess_device *device = tess_alloc_zero(host, sizeof *device);
    tess_status status;
    tess_open open;

    if (!device)
        return tess_fail(host, TESS_NO_MEMORY, "tess_device_open: no memory for %zu bytes",
                         sizeof *device);
    tess_registry_find(name, &rest);
    open = open_of(context, rest);
    status = backend->open(&open, &device->opened);
    if (status != TESS_OK) {
        tess_release(host, device, sizeof *device);
        return status;
    }
    device->context = context;
    device->backend = backend;
    snprintf(device->name, sizeof device->name, "%s", name);
    *out_device = device;
    return TESS_OK;
}

/* Puts a device that was just opened into the context's list. Of two threads that open the same
 * device at once, the later one gives its own up. */
static tess_device *keep_device(tess_context *context, tess_device *device)
{
    tess_device *shared;

    pthread_mutex_lock(&context->lock);
    shared = find_open(context, device->name);
    if (!shared) {
        device->next = context->devices;
        context->devices = device;
    }
    pthread_mutex_unlock(&context->lock);
    if (shared)
        close_device(context, device);
    return shared ? shared : device;
}

/* The open device of that name, opened if nobody has. The lock is not held while it opens, since
 * that logs. */
static tess_status share_device(tess_context *context, const tess_backend *backend,
                                const char *name, tess_device **out_device)
{
    tess_device *device = NULL;

    pthread_mutex_lock(&context->lock);
    *out_device = find_open(context, name);
    pthread_mutex_unlock(&context->lock);
    if (*out_device)
        return TESS_OK;
    TESS_TRY(create_device(context, backend, name, &device));
    assert(device); /* said for analysers, who do not follow it there */
    *out_device = keep_device(context, device);
    return TESS_OK;
}

/* Opens one device by any of its names. */
static tess_status open_one(tess_context *context, const char *name, tess_device **out_device)
{
    const char *rest;
    const tess_backend *backend = tess_registry_find(name, &rest);
    tess_device_info info;
    tess_open open;

    if (!backend)
        return tess_fail(&context->host, TESS_UNAVAILABLE,
                         "tess_device_open: \"%s\" is not there; this build of the library has no "
                         "such backend",
                         name);
    open = open_of(context, rest);
    if (!tess_registry_allows(context, backend))
        return tess_fail(
            &context->host, TESS_INVALID,
            "tess_device_open: \"%s\" is excluded by the context's backend list \"%s\"", name,
            context->backends);
    memset(&info, 0, sizeof info);
    TESS_TRY(backend->info(&open, -1, &info)); /* for the one name among them that is its own */
    return share_device(context, backend, info.name, out_device);
}

/* The first of a comma list that opens. Each refusal is told; the last one is the failure. */
static tess_status open_first(tess_context *context, const char *list, tess_device **out_device)
{
    char name[sizeof((tess_device *)0)->name];
    char text[512];
    tess_status status = TESS_UNAVAILABLE;

    for (size_t i = 0; tess_list_at(list, i, name, sizeof name); i++) {
        status = open_one(context, name, out_device);
        if (status == TESS_OK || status == TESS_NO_MEMORY)
            return status;
        tess_error_text(&context->host, text, sizeof text);
        tess_log(&context->host, TESS_LOG_INFO, "%s is not taken: %s", name, text);
    }
    return status;
}

/* Without a wish of anybody's: the first of the list that opens. */
static tess_status open_best(tess_context *context, tess_device **out_device)
{
    const tess_host *host = &context->host;
    char reasons[2048], error[512];
    tess_text text = tess_text_in(reasons, sizeof reasons);
    tess_device_info info;

    for (size_t i = 0; find_place(context, i, &info); i++) {
        tess_status status = TESS_UNAVAILABLE;
        if (info.available) {
            status = open_one(context, info.name, out_device);
            if (status == TESS_OK)
                tess_log(host, TESS_LOG_INFO, "device %s chosen", info.name);
            if (status == TESS_OK || status == TESS_NO_MEMORY)
                return status;
            tess_error_text(host, error, sizeof error);
        }
        tess_log(host, TESS_LOG_INFO, "%s is not taken: %s", info.name,
                 info.available ? error : info.reason);
        tess_text_add(&text, "\n    %-10s %s", info.name, info.available ? error : info.reason);
    }
    return tess_fail(host, TESS_UNAVAILABLE, "tess_device_open: no device can be opened%s",
                     reasons);
}

tess_status tess_device_open(tess_context *context, const char *name, tess_device **out_device)
{
    static const char call[] = "tess_device_open";
    const char *list;
    tess_device *device = NULL;
    tess_status status;
    bool is_chosen; /* by the program or by its user */

    TESS_TRY(tess_need(context, call, "context"));
    list = name ? name : context->env.backend;
    is_chosen = name || context->env.backend[0];
    if (!out_device)
        return tess_fail(&context->host, TESS_INVALID, "%s: out_device is NULL", call);
    if (name && strchr(name, ','))
        return tess_fail(&context->host, TESS_INVALID,
                         "%s: name is \"%s\"; it takes one device (a list goes into "
                         "TESSERA_BACKEND or desc.backends)",
                         call, name);
    if (is_chosen)
        TESS_TRY(tess_registry_check_list(&context->host, call, name ? "name" : "TESSERA_BACKEND",
                                          list));
    status = is_chosen ? open_first(context, list, &device) : open_best(context, &device);
    if (status == TESS_OK)
        *out_device = device;
    return status;
}

/* ---- Native contexts ------------------------------------------------------------------------- */

tess_status tess_device_wrap_opencl(tess_context *context, void *native_context,
                                    void *native_device, tess_device **out_device)
{
    static const char call[] = "tess_device_wrap_opencl";
    const tess_backend *backend;
    const tess_host *host;
    const char *rest;
    tess_device *device;
    tess_status status;
    tess_open open;

    TESS_TRY(tess_need(context, call, "context"));
    host = &context->host;
    backend = tess_registry_find("opencl", &rest);
    if (!native_context || !native_device || !out_device)
        return tess_fail(host, TESS_INVALID, "%s: %s is NULL", call,
                         !native_context  ? "native_context"
                         : !native_device ? "native_device"
                                          : "out_device");
    if (!backend)
        return tess_fail(host, TESS_UNAVAILABLE,
                         "%s: this build of the library has no OpenCL backend", call);
    if (!tess_registry_allows(context, backend))
        return tess_fail(host, TESS_INVALID,
                         "%s: \"opencl\" is excluded by the context's backend list \"%s\"", call,
                         context->backends);
    device = tess_alloc_zero(host, sizeof *device);
    if (!device)
        return tess_fail(host, TESS_NO_MEMORY, "%s: no memory for %zu bytes", call, sizeof *device);
    open = open_of(context, "");
    device->context = context;
    device->backend = backend;
    status = backend->device_wrap(&open, call, native_context, native_device, device->name,
                                  &device->opened);
    if (status != TESS_OK) {
        tess_release(host, device, sizeof *device);
        return status;
    }
    *out_device = keep_device(context, device);
    return TESS_OK;
}

tess_status tess_need_same_device(const char *call, const char *name, const tess_device *device,
                                  const char *other_name, const tess_device *other)
{
    if (device == other)
        return TESS_OK;
    return tess_fail(&device->context->host, TESS_INVALID, "%s: %s is of %s but %s is of %s%s",
                     call, name, device->name, other_name, other->name,
                     device->context == other->context ? "" : " of another context");
}

tess_status tess_device_allocate(tess_device *device, size_t size, void **out_memory)
{
    TESS_TRY(tess_need(device, "tess_device_allocate", "device"));
    if (!out_memory)
        return tess_fail(&device->context->host, TESS_INVALID,
                         "tess_device_allocate: out_memory is NULL");
    return device->backend->allocate(device->opened, size, out_memory);
}

void tess_device_release(tess_device *device, void *memory, size_t size)
{
    if (memory)
        device->backend->release(device->opened, memory, size);
}
