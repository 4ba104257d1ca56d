/* SPDX-License-Identifier: Apache-2.0
 * Finding a driver, filling its table, and what its error numbers mean. */
#include "backends/gpu/host/driver.h"

#include "core/base/error.h"
#include "core/base/log.h"

#include <stdio.h>
#include <string.h>

/* Writes a function into a member of another function type, all of which look alike. */
static void put_symbol(void *member, tess_symbol symbol)
{
    memcpy(member, &symbol, sizeof symbol);
}

/* False with the name of the first call that is missing. */
static bool fill(const tess_gpu_library *library, void *opened, tess_gpu_driver *driver,
                 const char **out_missing)
{
    for (int i = 0; i < TESS_GPU_CALLS; i++) {
        const tess_gpu_symbol *call = &library->calls[i];
        const tess_symbol symbol = call->name ? tess_library_symbol(opened, call->name) : NULL;

        if (call->name && !symbol && call->is_required) {
            *out_missing = call->name;
            return false;
        }
        driver->symbol[i] = call->name;
        put_symbol((char *)driver + call->offset, symbol);
    }
    if (library->name_of)
        put_symbol(&driver->name_of, tess_library_symbol(opened, library->name_of));
    if (library->text_of)
        put_symbol(&driver->text_of, tess_library_symbol(opened, library->text_of));
    return true;
}

/* A driver that would not start stays open: some do not survive being closed then. */
static bool start(const tess_gpu_library *library, const tess_host *host, tess_gpu_driver *driver,
                  tess_text *out_why)
{
    const int code = driver->init(0);

    tess_trace(host, TESS_TRACE_DRIVER, "%s,%d", driver->symbol[TESS_GPU_CALL_init], code);
    if (code == TESS_GPU_SUCCESS) {
        driver->version(&driver->installed);
        return true;
    }
    tess_text_add(out_why, "the %s driver does not start: %s says ", library->vendor,
                  driver->symbol[TESS_GPU_CALL_init]);
    tess_gpu_write_error(driver, code, out_why);
    return false;
}

/* Opens, fills and starts a driver. Not under the lock, since it logs. */
static bool load(const tess_gpu_library *library, const tess_host *host, const char *path,
                 tess_gpu_driver *out_driver, void **out_opened, tess_text *out_why)
{
    const char *const own[] = {path, NULL};
    const char *missing = NULL;
    char why[512];

    memset(out_driver, 0, sizeof *out_driver);
    if (tess_library_open(host, path[0] ? own : library->names, out_opened, why, sizeof why) !=
        TESS_OK) {
        why[strcspn(why, "\n")] = '\0'; /* the first name is the usual one */
        tess_text_add(out_why, "no %s driver: %s", library->vendor, why);
        return false;
    }
    if (!fill(library, *out_opened, out_driver, &missing)) {
        tess_text_add(out_why, "the %s driver has no %s: it is too old, or %s names no driver",
                      library->vendor, missing, library->variable);
        tess_library_close(*out_opened);
        return false;
    }
    return start(library, host, out_driver, out_why);
}

/* Called with the lock held. */
static const tess_gpu_driver *find_loaded(const tess_gpu_library *library, const char *path)
{
    for (int i = 0; i < library->count; i++)
        if (strcmp(library->found[i].path, path) == 0)
            return &library->found[i].driver;
    return NULL;
}

/* Keeps what was loaded, unless another thread was faster or there is no room. */
static const tess_gpu_driver *keep(tess_gpu_library *library, const char *path,
                                   const tess_gpu_driver *loaded, bool *out_is_kept)
{
    const tess_gpu_driver *driver;

    pthread_mutex_lock(&library->lock);
    driver = find_loaded(library, path);
    *out_is_kept = !driver && library->count < TESS_GPU_DRIVERS;
    if (*out_is_kept) {
        struct tess_gpu_found *place = &library->found[library->count++];
        snprintf(place->path, sizeof place->path, "%s", path);
        place->driver = *loaded;
        driver = &place->driver;
    }
    pthread_mutex_unlock(&library->lock);
    return driver;
}

const tess_gpu_driver *tess_gpu_driver_find(tess_gpu_library *library, const tess_host *host,
                                            const char *path, tess_text *out_why)
{
    const tess_gpu_driver *driver;
    tess_gpu_driver loaded;
    void *opened = NULL;
    bool is_kept;

    pthread_mutex_lock(&library->lock);
    driver = find_loaded(library, path);
    pthread_mutex_unlock(&library->lock);
    if (driver)
        return driver;
    if (!load(library, host, path, &loaded, &opened, out_why))
        return NULL;
    driver = keep(library, path, &loaded, &is_kept);
    if (!is_kept)
        tess_library_close(opened);
    if (!driver)
        tess_text_add(out_why, "%s has named %d different drivers in this process; no more fit",
                      library->variable, TESS_GPU_DRIVERS);
    return driver;
}

/* ---- Errors -------------------------------------------------------------------------------- */

/* After these nothing that the process does with the device succeeds any more: an address fault,
 * an uncorrectable memory error, a kernel that trapped. The numbers are the same on both sides. */
static bool is_lost(int code)
{
    static const int codes[] = {46, 214, 700, 702, 709, 710, 714, 715, 716, 717, 718, 719};

    for (size_t i = 0; i < sizeof codes / sizeof codes[0]; i++)
        if (code == codes[i])
            return true;
    return false;
}

static const char *ask_text(int (*ask)(int, const char **), const char *(*of)(int), int code)
{
    const char *text = NULL;

    if (ask && ask(code, &text) != TESS_GPU_SUCCESS)
        return NULL;
    return !ask && of ? of(code) : text;
}

void tess_gpu_write_error(const tess_gpu_driver *driver, int code, tess_text *out_text)
{
    const char *const name = ask_text(driver->error_name, driver->name_of, code);
    const char *const text = ask_text(driver->error_text, driver->text_of, code);

    tess_text_add(out_text, "%s (%d)", name ? name : "an error without a name", code);
    if (text && name && strcmp(text, name) != 0)
        tess_text_add(out_text, ": %s", text);
}

/* What to do about it, where that is known. */
static const char *advice_for(int code)
{
    if (is_lost(code))
        return "; the device is lost to this process, which has to be started again";
    if (code == TESS_GPU_NOT_INITIALISED)
        return "; a process that has forked cannot go on with its parent's driver";
    return "";
}

tess_status tess_gpu_answer(const tess_gpu_driver *driver, const tess_host *host, const char *call,
                            tess_gpu_call which, int code)
{
    char error[512];
    tess_text text = tess_text_in(error, sizeof error);

    if (tess_trace_shows(host, TESS_TRACE_DRIVER))
        tess_trace(host, TESS_TRACE_DRIVER, "%s,%d", driver->symbol[which], code);
    if (code == TESS_GPU_SUCCESS)
        return TESS_OK;
    tess_gpu_write_error(driver, code, &text);
    return tess_fail(host, code == TESS_GPU_OUT_OF_MEMORY ? TESS_NO_MEMORY : TESS_DEVICE_FAILED,
                     "%s: %s says %s%s", call, driver->symbol[which], error, advice_for(code));
}
