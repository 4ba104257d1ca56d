/* SPDX-License-Identifier: Apache-2.0
 * A look-alike libcuda.so.1: the calls of backends/gpu/host/calls.def under NVIDIA's names. */
#include "tests/fakes/engine.h"

#include <stdio.h>
#include <string.h>

/* ---- Contexts: a stack per thread ------------------------------------------------------------ */

enum { MOST_DEPTH = 16 };

static _Thread_local fake_object *stack[MOST_DEPTH];
static _Thread_local int depth;

static fake_object *primary[FAKE_DEVICES];
static int retained[FAKE_DEVICES];

static fake_object *current(void)
{
    return depth ? stack[depth - 1] : NULL;
}

static int stack_depth(void)
{
    return depth;
}

/* Whether some context is current, and a handle's device is its. */
static int check_current(const char *call, const fake_object *object)
{
    if (!current() && fake.failed) /* the failure was to make one current */
        return FAKE_INVALID_CONTEXT;
    if (!current())
        return fake_complain(FAKE_INVALID_CONTEXT, "%s: no context is current", call);
    if (object && fake_device_of(object) != fake_device_of(current()))
        return fake_complain(FAKE_INVALID_CONTEXT, "%s: the handle is of device %d, current is %d",
                             call, fake_device_of(object), fake_device_of(current()));
    return FAKE_SUCCESS;
}

/* The same for a stream; NULL is the current context's own. */
static int check_stream(const char *call, void *stream)
{
    const fake_object *object = stream ? fake_object_of(stream, FAKE_STREAM, call) : NULL;

    if (stream && !object)
        return FAKE_INVALID_HANDLE;
    return check_current(call, object);
}

/* Waiting for a stream that is being captured spoils the capture. */
static int check_capture(const char *call)
{
    if (!fake.is_capturing)
        return FAKE_SUCCESS;
    return fake_complain(FAKE_CAPTURE_UNSUPPORTED, "%s: a stream is being captured", call);
}

ENTRY int cuInit(unsigned flags)
{
    BEGIN("cuInit");
    return flags ? FAKE_INVALID_VALUE : fake.devices ? FAKE_SUCCESS : FAKE_NO_DEVICE;
}

ENTRY int cuDriverGetVersion(int *version)
{
    BEGIN("cuDriverGetVersion");
    *version = fake.version ? fake.version : 13000;
    return FAKE_SUCCESS;
}

ENTRY int cuDeviceGetCount(int *count)
{
    BEGIN("cuDeviceGetCount");
    *count = fake.devices;
    return FAKE_SUCCESS;
}

ENTRY int cuDeviceGet(int *device, int ordinal)
{
    BEGIN("cuDeviceGet");
    if (ordinal < 0 || ordinal >= fake.devices)
        return FAKE_INVALID_DEVICE;
    *device = ordinal;
    return FAKE_SUCCESS;
}

ENTRY int cuDeviceGetName(char *name, int size, int device)
{
    BEGIN("cuDeviceGetName");
    snprintf(name, (size_t)size, "%s", fake.chip[device].name);
    return FAKE_SUCCESS;
}

ENTRY int cuDeviceTotalMem_v2(size_t *size, int device)
{
    BEGIN("cuDeviceTotalMem_v2");
    *size = fake.chip[device].memory;
    return FAKE_SUCCESS;
}

ENTRY int cuDeviceGetAttribute(int *value, int attribute, int device)
{
    const fake_chip *chip = &fake.chip[device];

    BEGIN("cuDeviceGetAttribute");
    switch (attribute) {
    case 10:
        *value = chip->wave;
        break;
    case 16:
        *value = chip->units;
        break;
    case 38:
        *value = 50 << 20;
        break;
    case 75:
        *value = chip->major;
        break;
    case 76:
        *value = chip->minor;
        break;
    case 88:
        *value = chip->reads_host;
        break;
    case 97:
        *value = chip->shared_memory;
        break;
    default:
        return fake_complain(FAKE_INVALID_VALUE, "attribute %d was not expected", attribute);
    }
    return FAKE_SUCCESS;
}

ENTRY int cuDevicePrimaryCtxRetain(void **context, int device)
{
    BEGIN("cuDevicePrimaryCtxRetain");
    if (retained[device]++ == 0)
        primary[device] = fake_make(FAKE_CONTEXT, device);
    *context = primary[device];
    return FAKE_SUCCESS;
}

ENTRY int cuDevicePrimaryCtxRelease_v2(int device)
{
    const int failure = fake_begin("cuDevicePrimaryCtxRelease_v2");

    if (retained[device] == 0)
        return fake_complain(FAKE_INVALID_CONTEXT, "a context is released that is not held");
    if (--retained[device] == 0)
        fake_end(primary[device]);
    return failure;
}

ENTRY int cuCtxPushCurrent_v2(void *context)
{
    fake_object *object;

    BEGIN("cuCtxPushCurrent_v2");
    object = fake_object_of(context, FAKE_CONTEXT, "cuCtxPushCurrent_v2");
    if (!object || depth == MOST_DEPTH)
        return FAKE_INVALID_CONTEXT;
    stack[depth++] = object;
    return FAKE_SUCCESS;
}

ENTRY int cuCtxPopCurrent_v2(void **context)
{
    const int failure = fake_begin("cuCtxPopCurrent_v2");

    if (depth == 0)
        return fake_complain(FAKE_INVALID_CONTEXT, "more contexts popped than pushed");
    *context = stack[--depth];
    return failure;
}

/* ---- Memory ---------------------------------------------------------------------------------- */

ENTRY int cuMemAlloc_v2(void **memory, size_t size)
{
    BEGIN("cuMemAlloc_v2");
    CHECK(check_current("cuMemAlloc_v2", NULL));
    CHECK(check_capture("cuMemAlloc_v2"));
    return fake_allocate(fake_device_of(current()), size, false, memory);
}

ENTRY int cuMemFree_v2(void *memory)
{
    const int failure = fake_begin("cuMemFree_v2"), code = fake_free(memory, false);

    return failure ? failure : code;
}

ENTRY int cuMemAllocAsync(void **memory, size_t size, void *stream)
{
    BEGIN("cuMemAllocAsync");
    if (fake.has_no_pools)
        return FAKE_NOT_SUPPORTED;
    CHECK(check_stream("cuMemAllocAsync", stream));
    CHECK(check_capture("cuMemAllocAsync"));
    return fake_allocate(fake_device_of(current()), size, true, memory);
}

ENTRY int cuMemFreeAsync(void *memory, void *stream)
{
    const int failure = fake_begin("cuMemFreeAsync"), code = fake_free(memory, true);

    CHECK(check_stream("cuMemFreeAsync", stream));
    return failure ? failure : code;
}

ENTRY int cuMemcpyHtoDAsync_v2(void *to, const void *from, size_t size, void *stream)
{
    BEGIN("cuMemcpyHtoDAsync_v2");
    CHECK(check_stream("cuMemcpyHtoDAsync_v2", stream));
    return fake_copy(to, from, size, to);
}

ENTRY int cuMemcpyDtoHAsync_v2(void *to, void *from, size_t size, void *stream)
{
    BEGIN("cuMemcpyDtoHAsync_v2");
    CHECK(check_stream("cuMemcpyDtoHAsync_v2", stream));
    return fake_copy(to, from, size, from);
}

ENTRY int cuPointerGetAttribute(void *value, int attribute, void *memory)
{
    const int owner = fake_owner(memory, 1);
    const unsigned number = attribute == 2 ? 2u : attribute == 9 ? (unsigned)owner : 0u;

    BEGIN("cuPointerGetAttribute");
    if (owner < 0)
        return FAKE_INVALID_VALUE;
    memcpy(value, &number, sizeof number);
    return FAKE_SUCCESS;
}

/* ---- Streams and events ---------------------------------------------------------------------- */

static void *foreign_stream(int device)
{
    return fake_make(FAKE_STREAM, device);
}

ENTRY int cuStreamCreate(void **stream, unsigned flags)
{
    BEGIN("cuStreamCreate");
    CHECK(check_current("cuStreamCreate", NULL));
    if (flags > 1)
        return FAKE_INVALID_VALUE;
    *stream = fake_make(FAKE_STREAM, fake_device_of(current()));
    return FAKE_SUCCESS;
}

ENTRY int cuStreamDestroy_v2(void *stream)
{
    const int failure = fake_begin("cuStreamDestroy_v2");
    fake_object *object = fake_object_of(stream, FAKE_STREAM, "cuStreamDestroy_v2");

    if (!object)
        return FAKE_INVALID_HANDLE;
    fake_end(object);
    return failure;
}

ENTRY int cuStreamSynchronize(void *stream)
{
    BEGIN("cuStreamSynchronize");
    CHECK(check_stream("cuStreamSynchronize", stream));
    CHECK(check_capture("cuStreamSynchronize"));
    fake.waits++;
    return FAKE_SUCCESS;
}

ENTRY int cuStreamIsCapturing(void *stream, int *status)
{
    BEGIN("cuStreamIsCapturing");
    CHECK(check_stream("cuStreamIsCapturing", stream));
    *status = fake.is_capturing;
    return FAKE_SUCCESS;
}

ENTRY int cuStreamGetCtx(void *stream, void **context)
{
    const fake_object *object;

    BEGIN("cuStreamGetCtx");
    object = fake_object_of(stream, FAKE_STREAM, "cuStreamGetCtx");
    if (!object)
        return FAKE_INVALID_HANDLE;
    *context = retained[fake_device_of(object)] ? primary[fake_device_of(object)] : NULL;
    return FAKE_SUCCESS;
}

ENTRY int cuEventCreate(void **event, unsigned flags)
{
    BEGIN("cuEventCreate");
    CHECK(check_current("cuEventCreate", NULL));
    if (flags != 0)
        return FAKE_INVALID_VALUE;
    *event = fake_make(FAKE_EVENT, fake_device_of(current()));
    return FAKE_SUCCESS;
}

ENTRY int cuEventDestroy_v2(void *event)
{
    const int failure = fake_begin("cuEventDestroy_v2");
    fake_object *object = fake_object_of(event, FAKE_EVENT, "cuEventDestroy_v2");

    if (!object)
        return FAKE_INVALID_HANDLE;
    fake_end(object);
    return failure;
}

ENTRY int cuEventRecord(void *event, void *stream)
{
    BEGIN("cuEventRecord");
    CHECK(check_stream("cuEventRecord", stream));
    return fake_object_of(event, FAKE_EVENT, "cuEventRecord") ? FAKE_SUCCESS : FAKE_INVALID_HANDLE;
}

ENTRY int cuEventSynchronize(void *event)
{
    BEGIN("cuEventSynchronize");
    fake.waits++;
    return fake_object_of(event, FAKE_EVENT, "cuEventSynchronize") ? FAKE_SUCCESS
                                                                   : FAKE_INVALID_HANDLE;
}

ENTRY int cuEventElapsedTime(float *milliseconds, void *start, void *end)
{
    BEGIN("cuEventElapsedTime");
    if (!fake_object_of(start, FAKE_EVENT, "cuEventElapsedTime") ||
        !fake_object_of(end, FAKE_EVENT, "cuEventElapsedTime"))
        return FAKE_INVALID_HANDLE;
    *milliseconds = 2.5f;
    return FAKE_SUCCESS;
}

/* ---- Modules --------------------------------------------------------------------------------- */

ENTRY int cuModuleLoadDataEx(void **module, const void *image, unsigned count, int *options,
                             void **values)
{
    char chip[32];

    BEGIN("cuModuleLoadDataEx");
    CHECK(check_current("cuModuleLoadDataEx", NULL));
    for (unsigned i = 0; i < count; i++)
        if (options[i] == 5)
            snprintf(values[i], 32, "look-alike compiler");
    snprintf(chip, sizeof chip, "sm_%d",
             fake.chip[fake_device_of(current())].major * 10 +
                 fake.chip[fake_device_of(current())].minor);
    return fake_load(fake_device_of(current()), image, chip, module);
}

ENTRY int cuModuleUnload(void *module)
{
    const int failure = fake_begin("cuModuleUnload"), code = fake_unload(module);

    return failure ? failure : code;
}

ENTRY int cuModuleGetFunction(void **function, void *module, const char *name)
{
    BEGIN("cuModuleGetFunction");
    return fake_find(module, name, function);
}

ENTRY int cuFuncSetAttribute(void *function, int attribute, int value)
{
    BEGIN("cuFuncSetAttribute");
    return attribute == 8 ? fake_function_set(function, value) : FAKE_INVALID_VALUE;
}

ENTRY int cuLaunchKernel(void *function, unsigned grid_x, unsigned grid_y, unsigned grid_z,
                         unsigned block_x, unsigned block_y, unsigned block_z, unsigned shared,
                         void *stream, void **parameters, void **extra)
{
    const unsigned grid[] = {grid_x, grid_y, grid_z}, block[] = {block_x, block_y, block_z};

    BEGIN("cuLaunchKernel");
    CHECK(check_stream("cuLaunchKernel", stream));
    if (extra)
        return FAKE_INVALID_VALUE;
    return fake_run(function, fake_device_of(current()), grid, block, shared, stream, parameters);
}

/* ---- Errors ---------------------------------------------------------------------------------- */

static const struct {
    int code;
    const char *name, *text;
} errors[] = {
    {FAKE_SUCCESS, "CUDA_SUCCESS", "no error"},
    {FAKE_INVALID_VALUE, "CUDA_ERROR_INVALID_VALUE", "invalid argument"},
    {FAKE_OUT_OF_MEMORY, "CUDA_ERROR_OUT_OF_MEMORY", "out of memory"},
    {FAKE_NO_DEVICE, "CUDA_ERROR_NO_DEVICE", "no CUDA-capable device is detected"},
    {FAKE_INVALID_IMAGE, "CUDA_ERROR_INVALID_IMAGE", "device kernel image is invalid"},
    {FAKE_INVALID_CONTEXT, "CUDA_ERROR_INVALID_CONTEXT", "invalid device context"},
    {FAKE_NO_BINARY, "CUDA_ERROR_NO_BINARY_FOR_GPU",
     "no kernel image is available for execution on the device"},
    {FAKE_INVALID_HANDLE, "CUDA_ERROR_INVALID_HANDLE", "invalid resource handle"},
    {FAKE_NOT_FOUND, "CUDA_ERROR_NOT_FOUND", "named symbol not found"},
    {FAKE_ILLEGAL_ADDRESS, "CUDA_ERROR_ILLEGAL_ADDRESS",
     "an illegal memory access was encountered"},
    {FAKE_NOT_SUPPORTED, "CUDA_ERROR_NOT_SUPPORTED", "operation not supported"},
    {999, "CUDA_ERROR_UNKNOWN", "unknown error"},
};

ENTRY int cuGetErrorName(int code, const char **name)
{
    for (size_t i = 0; i < sizeof errors / sizeof errors[0]; i++)
        if (errors[i].code == code)
            return *name = errors[i].name, FAKE_SUCCESS;
    return FAKE_INVALID_VALUE;
}

ENTRY int cuGetErrorString(int code, const char **text)
{
    for (size_t i = 0; i < sizeof errors / sizeof errors[0]; i++)
        if (errors[i].code == code)
            return *text = errors[i].text, FAKE_SUCCESS;
    return FAKE_INVALID_VALUE;
}

static void forget(void)
{
    memset(retained, 0, sizeof retained);
}

__attribute__((constructor)) static void introduce(void)
{
    fake_introduce(&(fake_vendor){.current = stack_depth,
                                  .foreign_stream = foreign_stream,
                                  .forget = forget,
                                  .shared_unasked = 48 * 1024,
                                  .shared_memory = 227 * 1024,
                                  .wave = 32});
}
