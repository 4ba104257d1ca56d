/* SPDX-License-Identifier: Apache-2.0
 * Programs: the text of a kernel with its numbers, compiled by the driver or taken from the cache.
 */
#include "backends/opencl/backend.h"

#include "backends/opencl/cache.h"
#include "core/base/alloc.h"
#include "core/base/log.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

enum { MOST_OPTIONS = 512 };

/* No option that lets the compiler ignore infinities or reorder sums: infinities carry meaning in
 * masks. */
static void write_options(const tess_cl_kernel *kernel, tess_dtype dtype, char out[MOST_OPTIONS])
{
    tess_text text = tess_text_in(out, MOST_OPTIONS);

    tess_text_add(&text,
                  "-cl-std=CL1.2 -DTESS_CL_NAME=%s -DTESS_CL_DIMS=%" PRId64
                  " -DTESS_CL_ROWS=%" PRId64 " -DTESS_CL_COLUMNS=%" PRId64
                  " -DTESS_CL_GROUP=%" PRIu32 " -DTESS_CL_LOCAL=%" PRId64,
                  kernel->name, kernel->max_head_dim, kernel->tile_rows, kernel->tile_columns,
                  kernel->group, kernel->local);
    if (kernel->by_dtype)
        tess_text_add(&text, " -DTESS_CL_DTYPE=%d", (int)dtype);
}

/* What is being compiled. */
typedef struct making {
    tess_backend_device *device;
    const char *call;
    const tess_cl_kernel *kernel;
    tess_cl_key key;
} making;

static double seconds(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

/* ---- From the text --------------------------------------------------------------------------- */

enum { LOG_LINES = 6 };

/* Cuts a build log behind its first lines. */
static void cut_log(char *log)
{
    int lines = 0;

    for (char *c = log; *c; c++) {
        if (*c == '\n' && ++lines == LOG_LINES) {
            *c = '\0';
            return;
        }
    }
}

/* The failure of clBuildProgram() with what the compiler said. */
static tess_status fail_build(const making *m, void *program, tess_cl_code code)
{
    const tess_backend_device *const device = m->device;
    const tess_host *const host = device->host;
    char error[128], text[2048] = "no log";
    tess_text in = tess_text_in(error, sizeof error);
    size_t size = 0;
    char *log = NULL;

    tess_cl_write_error(code, &in);
    if (device->driver->build_info(program, device->place.device, TESS_CL_BUILD_LOG, 0, NULL,
                                   &size) == TESS_CL_SUCCESS &&
        size > 1)
        log = tess_alloc_zero(host, size + 1);
    if (log && device->driver->build_info(program, device->place.device, TESS_CL_BUILD_LOG, size,
                                          log, NULL) == TESS_CL_SUCCESS) {
        cut_log(log);
        snprintf(text, sizeof text, "%s", log);
    }
    tess_release(host, log, size + 1);
    return tess_fail(host, code == TESS_CL_OUT_OF_HOST_MEMORY ? TESS_NO_MEMORY : TESS_DEVICE_FAILED,
                     "%s: clBuildProgram says %s of %s with %s on %s: %s", m->call, error,
                     m->kernel->name, m->key.options, device->name, text);
}

static tess_status build(const making *m, void *program)
{
    const tess_backend_device *const device = m->device;
    const tess_cl_code code = device->driver->program_build(program, 1, &device->place.device,
                                                            m->key.options, NULL, NULL);

    tess_trace(device->host, TESS_TRACE_DRIVER, "clBuildProgram,%d,%s", (int)code, m->kernel->name);
    return code == TESS_CL_SUCCESS ? TESS_OK : fail_build(m, program, code);
}

static tess_status from_source(const making *m, void **out_program)
{
    const tess_backend_device *const device = m->device;
    const char *text = m->key.source;
    tess_cl_code code = TESS_CL_SUCCESS;
    void *const program =
        device->driver->program_from_source(device->context, 1, &text, &m->key.source_size, &code);
    tess_status status;

    TESS_TRY(tess_cl_answer(device->host, m->call, TESS_CL_CALL_program_from_source, code));
    status = build(m, program);
    if (status == TESS_OK)
        *out_program = program;
    else
        (void)device->driver->program_release(program);
    return status;
}

/* ---- From the cache -------------------------------------------------------------------------- */

/* NULL when there is nothing that the driver takes. */
static void *from_cache(const making *m)
{
    const tess_backend_device *const device = m->device;
    const tess_cl_driver *const driver = device->driver;
    tess_cl_code status = TESS_CL_SUCCESS, code = TESS_CL_SUCCESS;
    unsigned char *binary;
    const unsigned char *given;
    void *program;
    size_t size;

    if (!tess_cl_cache_read(device->host, device->cache, &m->key, &binary, &size))
        return NULL;
    given = binary;
    program = driver->program_from_binary(device->context, 1, &device->place.device, &size, &given,
                                          &status, &code);
    tess_release(device->host, binary, size);
    if (code == TESS_CL_SUCCESS && status == TESS_CL_SUCCESS &&
        driver->program_build(program, 1, &device->place.device, m->key.options, NULL, NULL) ==
            TESS_CL_SUCCESS)
        return program;
    if (program)
        (void)driver->program_release(program);
    tess_log(device->host, TESS_LOG_WARN,
             "%s: the driver does not take the stored program of %s; it is made anew", device->name,
             m->kernel->name);
    tess_cl_cache_remove(device->cache, &m->key);
    return NULL;
}

/* A driver that does not give its binary away is no failure. */
static void to_cache(const making *m, void *program)
{
    const tess_backend_device *const device = m->device;
    const tess_cl_driver *const driver = device->driver;
    unsigned char *binary;
    size_t size = 0;

    if (!device->cache[0] ||
        driver->program_info(program, TESS_CL_PROGRAM_BINARY_SIZES, sizeof size, &size, NULL) !=
            TESS_CL_SUCCESS ||
        size == 0)
        return;
    binary = tess_alloc(device->host, size);
    if (!binary)
        return;
    if (driver->program_info(program, TESS_CL_PROGRAM_BINARIES, sizeof binary, &binary, NULL) ==
        TESS_CL_SUCCESS)
        tess_cl_cache_write(device->host, device->cache, &m->key, binary, size);
    tess_release(device->host, binary, size);
}

/* ---- Either ---------------------------------------------------------------------------------- */

static tess_status make(const making *m, void **out_program)
{
    const double start = seconds();

    *out_program = from_cache(m);
    if (*out_program)
        return TESS_OK;
    TESS_TRY(from_source(m, out_program));
    to_cache(m, *out_program);
    tess_log(m->device->host, TESS_LOG_INFO, "%s: %s compiled in %.2f s", m->device->name,
             m->kernel->name, seconds() - start);
    return TESS_OK;
}

/* The lock is not held while it compiles, since that logs; of two threads that want the same
 * program at once, the later one gives its own up. */
tess_status tess_cl_program(tess_backend_device *device, const char *call,
                            const tess_cl_kernel *kernel, tess_dtype dtype, void **out_program)
{
    void **const known = &device->programs[(size_t)(kernel - tess_cl_kernels) * TESS_CL_DTYPES +
                                           (kernel->by_dtype ? (size_t)dtype : 0)];
    char options[MOST_OPTIONS];
    const making m = {
        device,
        call,
        kernel,
        {kernel->source->text, (size_t)*kernel->source->size, options, device->identity}};
    void *made = NULL;

    pthread_mutex_lock(&device->lock);
    *out_program = *known;
    pthread_mutex_unlock(&device->lock);
    if (*out_program)
        return TESS_OK;
    write_options(kernel, dtype, options);
    TESS_TRY(make(&m, &made));
    pthread_mutex_lock(&device->lock);
    if (!*known) {
        *known = made;
        made = NULL;
    }
    *out_program = *known;
    pthread_mutex_unlock(&device->lock);
    return made ? TESS_CL_OF(device, call, program_release, made) : TESS_OK;
}
