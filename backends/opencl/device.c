/* SPDX-License-Identifier: Apache-2.0
 * OpenCL devices: naming, describing, opening. */
#include "backends/opencl/backend.h"

#include "backends/opencl/cache.h"
#include "core/base/alloc.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static const char opening[] = "tess_device_open";

/* ---- Finding --------------------------------------------------------------------------------- */

int32_t tess_cl_count(const tess_open *open, tess_text *out_why)
{
    const tess_cl_driver *driver = tess_cl_driver_find(open->host, open->env, out_why);

    return driver ? driver->count : 0;
}

/* A name behind "opencl:", taken apart: "", "SLUG", "NUMBER", "SLUG:INDEX", "NUMBER:INDEX". */
typedef struct wanted {
    char platform[24]; /* "" for the first device of all */
    int32_t number;    /* of the platform, -1 when it is a slug */
    int32_t ordinal;
} wanted;

static bool read_number(const char *text, size_t length, int32_t *out_number)
{
    int32_t number = 0;

    if (length == 0 || length > 6)
        return false;
    for (size_t i = 0; i < length; i++) {
        if (text[i] < '0' || text[i] > '9')
            return false;
        number = number * 10 + (text[i] - '0');
    }
    *out_number = number;
    return true;
}

static bool read_name(const char *rest, wanted *out)
{
    const size_t length = strcspn(rest, ":@"); /* behind '@' is what tells wrapped devices apart */
    const char *const behind = rest + length;

    memset(out, 0, sizeof *out);
    out->number = -1;
    if (rest[0] == '\0')
        return true;
    if (length == 0 || length >= sizeof out->platform)
        return false;
    memcpy(out->platform, rest, length);
    read_number(rest, length, &out->number);
    if (behind[0] != ':')
        return true;
    return read_number(behind + 1, strcspn(behind + 1, "@"), &out->ordinal);
}

static bool is_meant(const wanted *name, const tess_cl_place *place)
{
    if (place->ordinal != name->ordinal)
        return false;
    if (name->number >= 0)
        return place->number == name->number;
    return name->platform[0] == '\0' || strcmp(place->slug, name->platform) == 0;
}

/* "opencl:pocl:0, opencl:rusticl:0" */
static void write_names(const tess_cl_driver *driver, tess_text *out_text)
{
    for (int32_t i = 0; i < driver->count; i++)
        tess_text_add(out_text, "%sopencl:%s:%" PRId32, i ? ", " : "", driver->places[i].slug,
                      driver->places[i].ordinal);
}

/* The driver, and which of its devices is number `index`, or what open->rest names. */
static tess_status find(const tess_open *open, int32_t index, const tess_cl_driver **out_driver,
                        const tess_cl_place **out_place)
{
    char why[512] = "", names[512];
    tess_text text = tess_text_in(why, sizeof why), list = tess_text_in(names, sizeof names);
    const tess_cl_driver *driver;
    wanted name;

    if (!read_name(open->rest, &name))
        return tess_fail(open->host, TESS_INVALID,
                         "%s: \"opencl:%s\" is no device; behind the colon opencl takes a platform "
                         "and the number of its device: pocl:0, 0:0",
                         opening, open->rest);
    driver = tess_cl_driver_find(open->host, open->env, &text);
    if (!driver)
        return tess_fail(open->host, TESS_UNAVAILABLE, "%s: \"opencl\" is not there: %s", opening,
                         why);
    *out_driver = driver;
    for (int32_t i = 0; i < driver->count; i++) {
        if (index < 0 ? !is_meant(&name, &driver->places[i]) : i != index)
            continue;
        *out_place = &driver->places[i];
        return TESS_OK;
    }
    write_names(driver, &list);
    return tess_fail(open->host, TESS_UNAVAILABLE, "%s: \"opencl:%s\" is not there; there %s %s",
                     opening, open->rest, driver->count == 1 ? "is" : "are", names);
}

/* ---- Facts ----------------------------------------------------------------------------------- */

typedef struct facts {
    uint64_t type, memory, cache, local;
    size_t group;
    uint32_t units, vector;
    uint32_t is_available, has_compiler, is_little; /* cl_bool */
    char name[128], version[128], driver[128], platform[128];
} facts;

static tess_status ask(const tess_cl_driver *driver, const tess_host *host, void *device,
                       uint32_t what, size_t size, void *out)
{
    return TESS_CL_ASK(driver, host, opening, device_info, device, what, size, out, NULL);
}

/* Texts of drivers may be longer than any place for them; those are then unknown. */
static void ask_text(const tess_cl_driver *driver, void *device, uint32_t what, char out[128])
{
    if (driver->device_info(device, what, 128, out, NULL) != TESS_CL_SUCCESS)
        snprintf(out, 128, "unknown");
    out[127] = '\0';
}

static tess_status learn(const tess_cl_driver *driver, const tess_host *host,
                         const tess_cl_place *place, facts *out)
{
    void *device;

    assert(place); /* said for analysers, who do not follow it there */
    device = place->device;
    memset(out, 0, sizeof *out);
#define ASK(what, member) \
    TESS_TRY(ask(driver, host, device, what, sizeof out->member, &out->member))
    ASK(TESS_CL_DEVICE_TYPE, type);
    ASK(TESS_CL_DEVICE_MEMORY, memory);
    ASK(TESS_CL_DEVICE_CACHE, cache);
    ASK(TESS_CL_DEVICE_LOCAL_MEMORY, local);
    ASK(TESS_CL_DEVICE_GROUP_SIZE, group);
    ASK(TESS_CL_DEVICE_UNITS, units);
    ASK(TESS_CL_DEVICE_VECTOR, vector);
    ASK(TESS_CL_DEVICE_AVAILABLE, is_available);
    ASK(TESS_CL_DEVICE_COMPILER, has_compiler);
    ASK(TESS_CL_DEVICE_ENDIAN_LITTLE, is_little);
#undef ASK
    ask_text(driver, device, TESS_CL_DEVICE_NAME, out->name);
    ask_text(driver, device, TESS_CL_DEVICE_VERSION, out->version);
    ask_text(driver, device, TESS_CL_DRIVER_VERSION, out->driver);
    if (driver->platform_info(place->platform, TESS_CL_PLATFORM_VERSION, sizeof out->platform,
                              out->platform, NULL) != TESS_CL_SUCCESS)
        snprintf(out->platform, sizeof out->platform, "unknown");
    out->platform[sizeof out->platform - 1] = '\0';
    return TESS_OK;
}

static tess_caps caps_of(const facts *f)
{
    return (tess_caps){.cache = (int64_t)f->cache,
                       .shared_memory = (int64_t)f->local,
                       .units = (int32_t)f->units,
                       .lanes = (int32_t)f->vector,
                       .features = f->type & TESS_CL_TYPE_CPU ? TESS_CL_CPU : TESS_CL_ANY};
}

/* Work-items of the largest group that every pass has a kernel for. */
enum { NEEDED_GROUP = 128, NEEDED_LOCAL = 32768 };

/* Whether a device can be used; else why not. */
static bool is_usable(const facts *f, tess_text *out_why)
{
    if (!f->is_available)
        tess_text_add(out_why, "the driver says that %s is not available", f->name);
    else if (!f->has_compiler)
        tess_text_add(out_why, "the driver of %s has no compiler", f->name);
    else if (!f->is_little)
        tess_text_add(out_why, "%s is big-endian", f->name);
    else if (f->group < NEEDED_GROUP)
        tess_text_add(out_why, "%s has work-groups of at most %zu work-items; kernels need %d",
                      f->name, f->group, NEEDED_GROUP);
    else if (f->local < NEEDED_LOCAL)
        tess_text_add(out_why, "%s has %" PRIu64 " bytes of local memory; kernels need %d", f->name,
                      f->local, NEEDED_LOCAL);
    else
        return true;
    return false;
}

static tess_device_kind kind_of(const facts *f)
{
    if (f->type & TESS_CL_TYPE_GPU)
        return TESS_DEVICE_GPU;
    return f->type & TESS_CL_TYPE_CPU ? TESS_DEVICE_CPU : TESS_DEVICE_OTHER;
}

tess_status tess_cl_info(const tess_open *open, int32_t index, tess_device_info *out_info)
{
    tess_text why = tess_text_in(out_info->reason, sizeof out_info->reason);
    const tess_cl_driver *driver = NULL;
    const tess_cl_place *place = NULL;
    const char *const mark = index < 0 ? strchr(open->rest, '@') : NULL;
    facts f;

    TESS_TRY(find(open, index, &driver, &place));
    TESS_TRY(learn(driver, open->host, place, &f));
    out_info->memory = (int64_t)f.memory;
    out_info->shared_memory = (int64_t)f.local;
    out_info->cache = (int64_t)f.cache;
    out_info->kind = kind_of(&f);
    out_info->units = (int32_t)f.units;
    out_info->lanes = (int32_t)f.vector;
    snprintf(out_info->name, sizeof out_info->name, "opencl:%s:%" PRId32 "%.24s", place->slug,
             place->ordinal, mark ? mark : "");
    snprintf(out_info->description, sizeof out_info->description, "%s", f.name);
    snprintf(out_info->architecture, sizeof out_info->architecture, "%.63s", f.version);
    out_info->available = is_usable(&f, &why);
    return TESS_OK;
}

/* ---- Opening --------------------------------------------------------------------------------- */

static void destroy(tess_backend_device *device)
{
    tess_release(device->host, device->programs,
                 tess_cl_kernel_count * TESS_CL_DTYPES * sizeof(void *));
    pthread_mutex_destroy(&device->lock);
    tess_release(device->host, device, sizeof *device);
}

/* The context of one device, or the caller's. */
static tess_status make_context(tess_backend_device *device, const char *call, void *native)
{
    const intptr_t properties[] = {TESS_CL_CONTEXT_PLATFORM, (intptr_t)device->place.platform, 0};
    tess_cl_code code = TESS_CL_SUCCESS;

    if (native) {
        TESS_TRY(TESS_CL_OF(device, call, context_retain, native));
        device->context = native;
        return TESS_OK;
    }
    device->context =
        device->driver->context_create(properties, 1, &device->place.device, NULL, NULL, &code);
    return tess_cl_answer(device->host, call, TESS_CL_CALL_context_create, code);
}

static void describe(tess_backend_device *device, const facts *f)
{
    snprintf(device->name, sizeof device->name, "opencl:%s:%" PRId32, device->place.slug,
             device->place.ordinal);
    snprintf(device->architecture, sizeof device->architecture, "%.63s", f->version);
    snprintf(device->identity, sizeof device->identity, "%.127s\n%.127s\n%.127s\n%.120s", f->name,
             f->version, f->driver, f->platform);
    device->caps = caps_of(f);
    device->caps.architecture = device->architecture;
}

/* Opens a device in a context of its own, or in one of the caller's. */
static tess_status make(const tess_open *open, const char *call, const tess_cl_driver *driver,
                        const tess_cl_place *place, void *native, tess_backend_device **out_device)
{
    const size_t programs = tess_cl_kernel_count * TESS_CL_DTYPES;
    char why[256] = "";
    tess_text text = tess_text_in(why, sizeof why);
    tess_backend_device *device;
    tess_status status;
    facts f;

    TESS_TRY(learn(driver, open->host, place, &f));
    if (!is_usable(&f, &text))
        return tess_fail(open->host, TESS_UNAVAILABLE,
                         "%s: \"opencl:%s:%" PRId32 "\" cannot be used: %s", call, place->slug,
                         place->ordinal, why);
    device = tess_alloc_zero(open->host, sizeof *device);
    if (!device)
        return tess_fail(open->host, TESS_NO_MEMORY, "%s: no memory for %zu bytes", call,
                         sizeof *device);
    device->driver = driver;
    device->host = open->host;
    device->env = open->env;
    device->place = *place;
    pthread_mutex_init(&device->lock, NULL);
    describe(device, &f);
    tess_cl_cache_folder(open->env, device->cache, sizeof device->cache);
    device->programs = tess_alloc_array(open->host, programs, sizeof(void *));
    status = device->programs ? make_context(device, call, native)
                              : tess_fail(open->host, TESS_NO_MEMORY, "%s: no memory for %zu bytes",
                                          call, programs * sizeof(void *));
    if (status != TESS_OK) {
        destroy(device);
        return status;
    }
    *out_device = device;
    return TESS_OK;
}

tess_status tess_cl_open(const tess_open *open, tess_backend_device **out_device)
{
    const tess_cl_driver *driver = NULL;
    const tess_cl_place *place = NULL;

    if (strchr(open->rest, '@'))
        return tess_fail(open->host, TESS_UNAVAILABLE,
                         "%s: \"opencl:%s\" is not there; contexts of the caller's are opened by "
                         "tess_device_wrap_opencl()",
                         opening, open->rest);
    TESS_TRY(find(open, -1, &driver, &place));
    return make(open, opening, driver, place, NULL, out_device);
}

/* ---- Contexts of the caller ------------------------------------------------------------------ */

enum { MOST_CONTEXT_DEVICES = 64 };

static tess_status check_member(const tess_cl_driver *driver, const tess_host *host,
                                const char *call, void *context, const void *device)
{
    void *members[MOST_CONTEXT_DEVICES];
    size_t size = 0;

    TESS_TRY(TESS_CL_ASK(driver, host, call, context_info, context, TESS_CL_CONTEXT_DEVICES,
                         sizeof members, members, &size));
    for (size_t i = 0; i < size / sizeof members[0]; i++)
        if (members[i] == device)
            return TESS_OK;
    return tess_fail(host, TESS_INVALID, "%s: native_device is not one of native_context's", call);
}

tess_status tess_cl_device_wrap(const tess_open *open, const char *call, void *native_context,
                                void *native_device, char out_name[64],
                                tess_backend_device **out_device)
{
    char why[512] = "";
    tess_text text = tess_text_in(why, sizeof why);
    const tess_cl_driver *driver = tess_cl_driver_find(open->host, open->env, &text);
    const tess_cl_place *place = NULL;

    if (!driver)
        return tess_fail(open->host, TESS_UNAVAILABLE, "%s: \"opencl\" is not there: %s", call,
                         why);
    for (int32_t i = 0; i < driver->count; i++)
        if (driver->places[i].device == native_device)
            place = &driver->places[i];
    if (!place)
        return tess_fail(open->host, TESS_INVALID,
                         "%s: native_device is none of the loader's devices; it takes a "
                         "cl_device_id, not a sub-device",
                         call);
    TESS_TRY(check_member(driver, open->host, call, native_context, native_device));
    TESS_TRY(make(open, call, driver, place, native_context, out_device));
    snprintf((*out_device)->name, sizeof(*out_device)->name, "opencl:%s:%" PRId32 "@%" PRIxPTR,
             place->slug, place->ordinal, (uintptr_t)native_context);
    snprintf(out_name, 64, "%s", (*out_device)->name);
    return TESS_OK;
}

void tess_cl_close(tess_backend_device *device)
{
    static const char closing[] = "tess_context_destroy";

    for (size_t i = 0; i < tess_cl_kernel_count * TESS_CL_DTYPES; i++)
        if (device->programs[i])
            (void)TESS_CL_OF(device, closing, program_release, device->programs[i]);
    (void)TESS_CL_OF(device, closing, context_release, device->context);
    destroy(device);
}

const tess_caps *tess_cl_caps(const tess_backend_device *device)
{
    return &device->caps;
}
