/* SPDX-License-Identifier: Apache-2.0
 * Devices: the list a person sees, opening by name, memory. */
#include "core/base/alloc.h"
#include "core/base/log.h"
#include "core/runtime/registry.h"
#include "core/runtime/take.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static tess_open open_of(const tess_context *context, const char *rest)
{
    return (tess_open){&context->host, &context->env, rest, context->threads};
}

/* One place of the list: a backend's device, or the line that says why a backend has none. */
static tess_status describe(const tess_context *context, const tess_backend *backend,
                            int32_t index, int32_t count, const char *why, tess_device_info *info)
{
    const tess_open open = open_of(context, "");

    if (count > 0)
        return backend->info(&open, index, info);
    snprintf(info->name, sizeof info->name, "%s", backend->name);
    snprintf(info->reason, sizeof info->reason, "%s", why);
    return TESS_OK;
}

/* Walks the list up to place `index`; *out_count is the number of places seen. */
static tess_status walk(const tess_context *context, size_t index, size_t *out_count,
                        tess_device_info *info)
{
    size_t backends, seen = 0;
    const tess_backend *const *table = tess_registry(&backends);

    for (size_t b = 0; b < backends; b++) {
        char why[sizeof info->reason] = "";
        tess_text text = tess_text_in(why, sizeof why);
        const tess_open open = open_of(context, "");
        int32_t count = 0;
        size_t places;

        if (tess_registry_allows(context, table[b]))
            count = table[b]->count(&open, &text);
        else
            tess_text_add(&text, "excluded by the context's backend list \"%s\"",
                          context->backends);
        places = count > 0 ? (size_t)count : 1;
        if (info && index < seen + places)
            return describe(context, table[b], (int32_t)(index - seen), count, why, info);
        seen += places;
    }
    *out_count = seen;
    return TESS_OK;
}

size_t tess_context_device_count(tess_context *context)
{
    size_t count = 0;
    walk(context, 0, &count, NULL);
    return count;
}

/* Hands a struct of this library's size to a caller whose struct may be shorter. */
static tess_status give_info(const tess_host *host, const char *call, const tess_device_info *info,
                             tess_device_info *out_info)
{
    tess_device_info taken;
    size_t size;

    TESS_TRY(tess_take(host, call, "info", out_info, sizeof taken, &taken));
    size = out_info->struct_size < sizeof *info ? out_info->struct_size : sizeof *info;
    memcpy((char *)out_info + sizeof size, (const char *)info + sizeof size, size - sizeof size);
    return TESS_OK;
}

tess_status tess_context_device_info(tess_context *context, size_t index, tess_device_info *info)
{
    static const char call[] = "tess_context_device_info";
    tess_device_info found;
    size_t count = 0;

    memset(&found, 0, sizeof found);
    if (!info)
        return tess_fail(&context->host, TESS_INVALID, "%s: info is NULL", call);
    TESS_TRY(walk(context, index, &count, &found));
    if (!found.name[0])
        return tess_fail(&context->host, TESS_INVALID,
                         "%s: index is %zu; it takes 0 to %zu", call, index, count - 1);
    return give_info(&context->host, call, &found, info);
}

tess_status tess_device_get_info(const tess_device *device, tess_device_info *info)
{
    static const char call[] = "tess_device_get_info";
    const tess_context *context = device->context;
    tess_device_info found;
    const char *rest;
    tess_open open;

    if (!info)
        return tess_fail(&context->host, TESS_INVALID, "%s: info is NULL", call);
    tess_registry_find(device->name, &rest);
    open = open_of(context, rest);
    memset(&found, 0, sizeof found);
    TESS_TRY(device->backend->info(&open, -1, &found));
    return give_info(&context->host, call, &found, info);
}

/* Opens one device by its full name. Called with the lock held. */
static tess_status open_one(tess_context *context, const char *name, tess_device **out_device)
{
    const tess_host *host = &context->host;
    const char *rest;
    const tess_backend *backend = tess_registry_find(name, &rest);
    const tess_open open = open_of(context, rest);
    tess_device *device;
    tess_status status;

    if (!tess_registry_allows(context, backend))
        return tess_fail(host, TESS_INVALID,
                         "tess_device_open: \"%s\" is excluded by the context's backend list \"%s\"",
                         name, context->backends);
    for (device = context->devices; device; device = device->next) {
        if (strcmp(device->name, name) == 0) {
            *out_device = device;
            return TESS_OK;
        }
    }
    device = tess_alloc_zero(host, sizeof *device);
    if (!device)
        return tess_fail(host, TESS_NO_MEMORY, "tess_device_open: no memory for %zu bytes",
                         sizeof *device);
    status = backend->open(&open, &device->opened);
    if (status != TESS_OK) {
        tess_release(host, device, sizeof *device);
        return status;
    }
    device->context = context;
    device->backend = backend;
    snprintf(device->name, sizeof device->name, "%s", name);
    device->next = context->devices;
    context->devices = device;
    *out_device = device;
    return TESS_OK;
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

/* Without a wish of anybody's: the best backend whose first device opens. */
static tess_status open_best(tess_context *context, tess_device **out_device)
{
    char text[512];
    size_t count;
    const tess_backend *const *table = tess_registry(&count);
    tess_status status = TESS_UNAVAILABLE;

    for (size_t b = 0; b < count; b++) {
        if (!tess_registry_allows(context, table[b]))
            continue;
        status = open_one(context, table[b]->name, out_device);
        if (status == TESS_OK) {
            tess_log(&context->host, TESS_LOG_INFO, "device %s chosen", table[b]->name);
            return status;
        }
        if (status == TESS_NO_MEMORY)
            return status;
        tess_error_text(&context->host, text, sizeof text);
        tess_log(&context->host, TESS_LOG_INFO, "%s is not taken: %s", table[b]->name, text);
    }
    return status;
}

tess_status tess_device_open(tess_context *context, const char *name, tess_device **out_device)
{
    static const char call[] = "tess_device_open";
    const char *list = name ? name : context->env.backend;
    tess_device *device = NULL;
    tess_status status;

    if (!out_device)
        return tess_fail(&context->host, TESS_INVALID, "%s: out_device is NULL", call);
    if (name && strchr(name, ','))
        return tess_fail(&context->host, TESS_INVALID,
                         "%s: name is \"%s\"; it takes one device (a list goes into "
                         "TESSERA_BACKEND or desc.backends)", call, name);
    if (name || list[0])
        TESS_TRY(tess_registry_check_list(&context->host, call, name ? "name" : "TESSERA_BACKEND",
                                          list));
    pthread_mutex_lock(&context->lock);
    status = name || list[0] ? open_first(context, list, &device) : open_best(context, &device);
    pthread_mutex_unlock(&context->lock);
    if (status == TESS_OK)
        *out_device = device;
    return status;
}

tess_status tess_device_allocate(tess_device *device, size_t size, void **out_memory)
{
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
