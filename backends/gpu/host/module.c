/* SPDX-License-Identifier: Apache-2.0
 * Images: which one a device gets, loading it once, the functions in it. */
#include "backends/gpu/host/backend.h"

#include "core/base/log.h"

#include <inttypes.h>
#include <string.h>

const tess_gpu_image *tess_gpu_choose(const tess_gpu_vendor *vendor, const char *source,
                                      const char *architecture, const tess_env *env)
{
    const tess_gpu_image *best = NULL;
    int best_suits = 0;

    for (size_t i = 0; i < vendor->image_count; i++) {
        const tess_gpu_image *image = &vendor->images[i];
        const int suits =
            strcmp(image->source, source) == 0 ? vendor->suits(image, architecture, env) : 0;
        if (suits > best_suits) {
            best_suits = suits;
            best = image;
        }
    }
    return best;
}

/* Driver options of cuModuleLoadDataEx() and hipModuleLoadDataEx(): where a compiler that runs at
 * load time writes what it dislikes. */
enum { JIT_ERROR_LOG = 5, JIT_ERROR_LOG_SIZE = 6, JIT_LOG_SIZE = 1024 };

/* Loads an image. A failure tells the driver's version, since the usual reason is its age. */
static tess_status load(const tess_gpu_scope *scope, const tess_gpu_image *image, void **out_module)
{
    const tess_gpu_driver *driver = scope->device->driver;
    char log[JIT_LOG_SIZE] = "", error[512];
    tess_text text = tess_text_in(error, sizeof error);
    int options[] = {JIT_ERROR_LOG, JIT_ERROR_LOG_SIZE};
    void *values[] = {log, (void *)(uintptr_t)sizeof log};
    const bool is_compiled = image->architecture[0] == 'c'; /* compute_80: PTX */
    const int code = driver->module_load(out_module, image->data, is_compiled ? 2 : 0,
                                         is_compiled ? options : NULL, is_compiled ? values : NULL);

    tess_trace(scope->device->host, TESS_TRACE_DRIVER, "%s,%d,%s,%s,%" PRIu64,
               driver->symbol[TESS_GPU_CALL_module_load], code, image->source, image->architecture,
               *image->size);
    if (code == TESS_GPU_SUCCESS)
        return TESS_OK;
    tess_gpu_write_error(driver, code, &text);
    return tess_fail(
        scope->device->host, code == TESS_GPU_OUT_OF_MEMORY ? TESS_NO_MEMORY : TESS_DEVICE_FAILED,
        "%s: %s of the %s kernels for %s says %s; the driver is version %d on a %s%s%s",
        scope->call, driver->symbol[TESS_GPU_CALL_module_load], image->source, image->architecture,
        error, driver->installed, scope->device->architecture, log[0] ? ": " : "", log);
}

/* With the device's lock held. */
static tess_status look_up(const tess_gpu_scope *scope, tess_backend_device *device,
                           const tess_gpu_kernel *kernel, void **out_function)
{
    const tess_gpu_vendor *vendor = device->vendor;
    const tess_gpu_image *image =
        tess_gpu_choose(vendor, kernel->source, device->architecture, device->env);
    void **module = &device->modules[image - vendor->images];

    if (!*module)
        TESS_TRY(load(scope, image, module));
    TESS_TRY(TESS_GPU_IN(scope, module_function, out_function, *module, kernel->name));
    if (kernel->shared == 0 || !device->driver->function_set)
        return TESS_OK;
    return TESS_GPU_IN(scope, function_set, *out_function, 8 /* dynamic shared memory */,
                       (int)kernel->shared);
}

tess_status tess_gpu_function(const tess_gpu_scope *scope, tess_backend_device *device,
                              const tess_gpu_kernel *kernel, void **out_function)
{
    void **const known = &device->functions[kernel - device->vendor->kernels];
    void *function = NULL;
    tess_status status = TESS_OK;

    pthread_mutex_lock(&device->lock);
    if (*known)
        function = *known;
    else
        status = look_up(scope, device, kernel, &function);
    if (status == TESS_OK)
        *known = *out_function = function;
    pthread_mutex_unlock(&device->lock);
    return status;
}

void tess_gpu_unload(const tess_gpu_scope *scope, tess_backend_device *device)
{
    for (size_t i = 0; i < device->vendor->image_count; i++)
        if (device->modules[i])
            (void)TESS_GPU_IN(scope, module_unload, device->modules[i]);
}
