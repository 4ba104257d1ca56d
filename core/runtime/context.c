/* SPDX-License-Identifier: Apache-2.0
 * The context: settings from the program, then from the environment, then defaults. */
#include "core/base/alloc.h"
#include "core/base/log.h"
#include "core/runtime/registry.h"
#include "core/runtime/take.h"

#include <inttypes.h>
#include <string.h>

enum { MOST_THREADS = 1024 };

static const char call[] = "tess_context_create";

int32_t tess_version(void)
{
    return TESS_VERSION;
}

const char *tess_status_name(tess_status status)
{
    static const char *const names[] = {"TESS_OK",          "TESS_INVALID",   "TESS_UNSUPPORTED",
                                        "TESS_UNAVAILABLE", "TESS_NO_MEMORY", "TESS_DEVICE_FAILED",
                                        "TESS_TOO_NEW",     "TESS_INTERNAL"};
    return status >= 0 && status <= TESS_INTERNAL ? names[status] : "TESS_UNKNOWN";
}

/* Name and size of each element type, by its number. */
static const struct {
    const char *name;
    size_t size;
} dtypes[] = {{"none", 0}, {"f32", 4},  {"f16", 2}, {"bf16", 2},
              {"e4m3", 1}, {"e5m2", 1}, {"i32", 4}, {"i64", 8}};

const char *tess_dtype_name(tess_dtype dtype)
{
    return dtype >= 0 && dtype <= TESS_I64 ? dtypes[dtype].name : "none";
}

size_t tess_dtype_size(tess_dtype dtype)
{
    return dtype >= 0 && dtype <= TESS_I64 ? dtypes[dtype].size : 0;
}

/* The log and allocator come first: everything after may log and allocate. */
static tess_status take_host(const tess_context_desc *desc, tess_host *out_host)
{
    if (!desc->allocate != !desc->release)
        return tess_fail(
            out_host, TESS_INVALID, "%s: desc.%s is NULL but desc.%s is not; give both or neither",
            call, desc->allocate ? "release" : "allocate", desc->allocate ? "allocate" : "release");
    if (desc->log_level < TESS_LOG_DEFAULT || desc->log_level > TESS_LOG_DEBUG)
        return tess_fail(out_host, TESS_INVALID,
                         "%s: desc.log_level is %" PRId32 "; it takes 0 (default) to %d "
                         "(TESS_LOG_DEBUG)",
                         call, desc->log_level, TESS_LOG_DEBUG);
    if (desc->threads < 0 || desc->threads > MOST_THREADS)
        return tess_fail(out_host, TESS_INVALID,
                         "%s: desc.threads is %" PRId32 "; it takes 0 (default) to %d", call,
                         desc->threads, MOST_THREADS);
    out_host->allocate = desc->allocate;
    out_host->release = desc->release;
    out_host->memory_user = desc->memory_user;
    out_host->log = desc->log;
    out_host->log_user = desc->log_user;
    out_host->log_level = desc->log_level;
    return TESS_OK;
}

/* What the program left unset comes from the environment. */
static void fill_from_environment(tess_context *context)
{
    tess_host *host = &context->host;

    if (host->log_level == TESS_LOG_DEFAULT)
        host->log_level = context->env.log ? context->env.log : TESS_LOG_OFF;
    host->trace = context->env.trace;
    if (!host->log && (context->env.log || context->env.trace))
        host->log = tess_log_to_stderr;
    if (context->threads == 0)
        context->threads = (int32_t)context->env.threads;
}

static tess_status take_backends(tess_context *context, const char *list)
{
    if (!list)
        return TESS_OK;
    if (strlen(list) >= sizeof context->backends)
        return tess_fail(&context->host, TESS_INVALID,
                         "%s: desc.backends is %zu bytes long; it takes at most %zu", call,
                         strlen(list), sizeof context->backends - 1);
    if (strchr(list, ':'))
        return tess_fail(&context->host, TESS_INVALID,
                         "%s: desc.backends is \"%s\"; it takes backends, \"cpu\", not single "
                         "devices",
                         call, list);
    strcpy(context->backends, list);
    return tess_registry_check_list(&context->host, call, "desc.backends", list);
}

tess_status tess_context_create(const tess_context_desc *desc, tess_context **out_context)
{
    tess_context_desc taken;
    tess_host host;
    tess_context *context;
    tess_status status;

    memset(&taken, 0, sizeof taken);
    memset(&host, 0, sizeof host);
    if (!out_context)
        return tess_fail(NULL, TESS_INVALID, "%s: out_context is NULL", call);
    if (desc)
        TESS_TRY(tess_take(NULL, call, "desc", desc, sizeof taken, &taken));
    TESS_TRY(take_host(&taken, &host));

    context = tess_alloc_zero(&host, sizeof *context);
    if (!context)
        return tess_fail(&host, TESS_NO_MEMORY, "%s: no memory for %zu bytes", call,
                         sizeof *context);
    context->host = host;
    context->threads = taken.threads;
    status = tess_env_read(&context->host, &context->env);
    if (status == TESS_OK)
        status = take_backends(context, taken.backends);
    if (status != TESS_OK) {
        tess_error_forget(&context->host); /* the next context may come to lie here */
        tess_release(&host, context, sizeof *context);
        return status;
    }
    fill_from_environment(context);
    tess_env_warn_unknown(&context->host);
    pthread_mutex_init(&context->lock, NULL);
    *out_context = context;
    return TESS_OK;
}

void tess_context_destroy(tess_context *context)
{
    tess_host host;

    if (!context)
        return;
    while (context->devices) {
        tess_device *device = context->devices;
        context->devices = device->next;
        device->backend->close(device->opened);
        tess_release(&context->host, device, sizeof *device);
    }
    pthread_mutex_destroy(&context->lock);
    tess_error_forget(&context->host);
    host = context->host;
    tess_release(&host, context, sizeof *context);
}

size_t tess_context_error(const tess_context *context, char *text, size_t size)
{
    return tess_error_text(context ? &context->host : NULL, text, size);
}
