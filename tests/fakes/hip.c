/* SPDX-License-Identifier: Apache-2.0
 * A look-alike libamdhip64.so: the calls of backends/gpu/host/calls.def under AMD's names. */
#include "tests/fakes/engine.h"

#include <stdio.h>
#include <string.h>

/* HIP has no stack of contexts: a thread has a device. */
static _Thread_local int device_now;

static int current(void)
{
    return device_now;
}

static int check_stream(const char *call, void *stream)
{
    const fake_object *object = stream ? fake_object_of(stream, FAKE_STREAM, call) : NULL;

    if (stream && !object)
        return FAKE_INVALID_HANDLE;
    if (object && fake_device_of(object) != device_now)
        return fake_complain(FAKE_INVALID_CONTEXT, "%s: the stream is of device %d, current is %d",
                             call, fake_device_of(object), device_now);
    return FAKE_SUCCESS;
}

/* Waiting for a stream that is being captured spoils the capture. */
static int check_capture(const char *call)
{
    if (!fake.is_capturing)
        return FAKE_SUCCESS;
    return fake_complain(FAKE_CAPTURE_UNSUPPORTED, "%s: a stream is being captured", call);
}

ENTRY int hipInit(unsigned flags)
{
    BEGIN("hipInit");
    return flags ? FAKE_INVALID_VALUE : fake.devices ? FAKE_SUCCESS : FAKE_INVALID_DEVICE;
}

ENTRY int hipDriverGetVersion(int *version)
{
    BEGIN("hipDriverGetVersion");
    *version = fake.version ? fake.version : 60342134;
    return FAKE_SUCCESS;
}

ENTRY int hipGetDeviceCount(int *count)
{
    BEGIN("hipGetDeviceCount");
    *count = fake.devices;
    return FAKE_SUCCESS;
}

ENTRY int hipDeviceGet(int *device, int ordinal)
{
    BEGIN("hipDeviceGet");
    if (ordinal < 0 || ordinal >= fake.devices)
        return FAKE_INVALID_DEVICE;
    *device = ordinal;
    return FAKE_SUCCESS;
}

ENTRY int hipDeviceGetName(char *name, int size, int device)
{
    BEGIN("hipDeviceGetName");
    snprintf(name, (size_t)size, "%s", fake.chip[device].name);
    return FAKE_SUCCESS;
}

ENTRY int hipDeviceTotalMem(size_t *size, int device)
{
    BEGIN("hipDeviceTotalMem");
    *size = fake.chip[device].memory;
    return FAKE_SUCCESS;
}

ENTRY int hipDeviceGetAttribute(int *value, int attribute, int device)
{
    const fake_chip *chip = &fake.chip[device];

    BEGIN("hipDeviceGetAttribute");
    switch (attribute) {
    case 87:
        *value = chip->wave;
        break;
    case 63:
        *value = chip->units;
        break;
    case 19:
        *value = 4 << 20;
        break;
    case 65:
        *value = chip->reads_host;
        break;
    case 74:
        *value = chip->shared_memory;
        break;
    default:
        return fake_complain(FAKE_INVALID_VALUE, "attribute %d was not expected", attribute);
    }
    return FAKE_SUCCESS;
}

/* 1472 bytes, the chip's name at 1160; both as since 6.0. */
ENTRY int hipGetDevicePropertiesR0600(void *properties, int device)
{
    BEGIN("hipGetDevicePropertiesR0600");
    memset(properties, 0, 1472);
    snprintf((char *)properties + 1160, 256, "%s", fake.chip[device].gcn);
    return FAKE_SUCCESS;
}

ENTRY int hipGetDevice(int *device)
{
    BEGIN("hipGetDevice");
    *device = device_now;
    return FAKE_SUCCESS;
}

ENTRY int hipSetDevice(int device)
{
    BEGIN("hipSetDevice");
    if (device < 0 || device >= fake.devices)
        return FAKE_INVALID_DEVICE;
    device_now = device;
    return FAKE_SUCCESS;
}

/* ---- Memory ---------------------------------------------------------------------------------- */

ENTRY int hipMalloc(void **memory, size_t size)
{
    BEGIN("hipMalloc");
    CHECK(check_capture("hipMalloc"));
    return fake_allocate(device_now, size, false, memory);
}

ENTRY int hipFree(void *memory)
{
    const int failure = fake_begin("hipFree"), code = fake_free(memory, false);

    return failure ? failure : code;
}

ENTRY int hipMallocAsync(void **memory, size_t size, void *stream)
{
    BEGIN("hipMallocAsync");
    if (fake.has_no_pools)
        return FAKE_NOT_SUPPORTED;
    CHECK(check_stream("hipMallocAsync", stream));
    CHECK(check_capture("hipMallocAsync"));
    return fake_allocate(device_now, size, true, memory);
}

ENTRY int hipFreeAsync(void *memory, void *stream)
{
    const int failure = fake_begin("hipFreeAsync"), code = fake_free(memory, true);

    CHECK(check_stream("hipFreeAsync", stream));
    return failure ? failure : code;
}

ENTRY int hipMemcpyHtoDAsync(void *to, const void *from, size_t size, void *stream)
{
    BEGIN("hipMemcpyHtoDAsync");
    CHECK(check_stream("hipMemcpyHtoDAsync", stream));
    return fake_copy(to, from, size, to);
}

ENTRY int hipMemcpyDtoHAsync(void *to, void *from, size_t size, void *stream)
{
    BEGIN("hipMemcpyDtoHAsync");
    CHECK(check_stream("hipMemcpyDtoHAsync", stream));
    return fake_copy(to, from, size, from);
}

ENTRY int hipPointerGetAttribute(void *value, int attribute, void *memory)
{
    const int owner = fake_owner(memory, 1);
    const unsigned number = attribute == 2 ? 2u : attribute == 9 ? (unsigned)owner : 0u;

    BEGIN("hipPointerGetAttribute");
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

ENTRY int hipStreamCreateWithFlags(void **stream, unsigned flags)
{
    BEGIN("hipStreamCreateWithFlags");
    if (flags > 1)
        return FAKE_INVALID_VALUE;
    *stream = fake_make(FAKE_STREAM, device_now);
    return FAKE_SUCCESS;
}

ENTRY int hipStreamDestroy(void *stream)
{
    const int failure = fake_begin("hipStreamDestroy");
    fake_object *object = fake_object_of(stream, FAKE_STREAM, "hipStreamDestroy");

    if (!object)
        return FAKE_INVALID_HANDLE;
    fake_end(object);
    return failure;
}

ENTRY int hipStreamSynchronize(void *stream)
{
    BEGIN("hipStreamSynchronize");
    CHECK(check_stream("hipStreamSynchronize", stream));
    CHECK(check_capture("hipStreamSynchronize"));
    fake.waits++;
    return FAKE_SUCCESS;
}

ENTRY int hipStreamIsCapturing(void *stream, int *status)
{
    BEGIN("hipStreamIsCapturing");
    CHECK(check_stream("hipStreamIsCapturing", stream));
    *status = fake.is_capturing;
    return FAKE_SUCCESS;
}

ENTRY int hipStreamGetDevice(void *stream, int *device)
{
    const fake_object *object;

    BEGIN("hipStreamGetDevice");
    object = fake_object_of(stream, FAKE_STREAM, "hipStreamGetDevice");
    if (!object)
        return FAKE_INVALID_HANDLE;
    *device = fake_device_of(object);
    return FAKE_SUCCESS;
}

ENTRY int hipEventCreateWithFlags(void **event, unsigned flags)
{
    BEGIN("hipEventCreateWithFlags");
    if (flags != 0)
        return FAKE_INVALID_VALUE;
    *event = fake_make(FAKE_EVENT, device_now);
    return FAKE_SUCCESS;
}

ENTRY int hipEventDestroy(void *event)
{
    const int failure = fake_begin("hipEventDestroy");
    fake_object *object = fake_object_of(event, FAKE_EVENT, "hipEventDestroy");

    if (!object)
        return FAKE_INVALID_HANDLE;
    fake_end(object);
    return failure;
}

ENTRY int hipEventRecord(void *event, void *stream)
{
    BEGIN("hipEventRecord");
    CHECK(check_stream("hipEventRecord", stream));
    return fake_object_of(event, FAKE_EVENT, "hipEventRecord") ? FAKE_SUCCESS : FAKE_INVALID_HANDLE;
}

ENTRY int hipEventSynchronize(void *event)
{
    BEGIN("hipEventSynchronize");
    fake.waits++;
    return fake_object_of(event, FAKE_EVENT, "hipEventSynchronize") ? FAKE_SUCCESS
                                                                    : FAKE_INVALID_HANDLE;
}

ENTRY int hipEventElapsedTime(float *milliseconds, void *start, void *end)
{
    BEGIN("hipEventElapsedTime");
    if (!fake_object_of(start, FAKE_EVENT, "hipEventElapsedTime") ||
        !fake_object_of(end, FAKE_EVENT, "hipEventElapsedTime"))
        return FAKE_INVALID_HANDLE;
    *milliseconds = 2.5f;
    return FAKE_SUCCESS;
}

/* ---- Modules --------------------------------------------------------------------------------- */

ENTRY int hipModuleLoadDataEx(void **module, const void *image, unsigned count, int *options,
                              void **values)
{
    char chip[32];

    BEGIN("hipModuleLoadDataEx");
    for (unsigned i = 0; i < count; i++)
        if (options[i] == 5)
            snprintf(values[i], 32, "look-alike compiler");
    snprintf(chip, sizeof chip, "%.*s", (int)strcspn(fake.chip[device_now].gcn, ":"),
             fake.chip[device_now].gcn);
    return fake_load(device_now, image, chip, module);
}

ENTRY int hipModuleUnload(void *module)
{
    const int failure = fake_begin("hipModuleUnload"), code = fake_unload(module);

    return failure ? failure : code;
}

ENTRY int hipModuleGetFunction(void **function, void *module, const char *name)
{
    BEGIN("hipModuleGetFunction");
    return fake_find(module, name, function);
}

ENTRY int hipModuleLaunchKernel(void *function, unsigned grid_x, unsigned grid_y, unsigned grid_z,
                                unsigned block_x, unsigned block_y, unsigned block_z,
                                unsigned shared, void *stream, void **parameters, void **extra)
{
    const unsigned grid[] = {grid_x, grid_y, grid_z}, block[] = {block_x, block_y, block_z};

    BEGIN("hipModuleLaunchKernel");
    CHECK(check_stream("hipModuleLaunchKernel", stream));
    if (extra)
        return FAKE_INVALID_VALUE;
    return fake_run(function, device_now, grid, block, shared, stream, parameters);
}

/* ---- Errors ---------------------------------------------------------------------------------- */

ENTRY int hipGetLastError(void)
{
    return fake_begin("hipGetLastError");
}

ENTRY const char *hipGetErrorName(int code)
{
    switch (code) {
    case FAKE_SUCCESS:
        return "hipSuccess";
    case FAKE_INVALID_VALUE:
        return "hipErrorInvalidValue";
    case FAKE_OUT_OF_MEMORY:
        return "hipErrorOutOfMemory";
    case FAKE_NO_BINARY:
        return "hipErrorNoBinaryForGpu";
    case FAKE_NOT_FOUND:
        return "hipErrorNotFound";
    case FAKE_ILLEGAL_ADDRESS:
        return "hipErrorIllegalAddress";
    default:
        return "hipErrorUnknown";
    }
}

ENTRY const char *hipGetErrorString(int code)
{
    return code == FAKE_OUT_OF_MEMORY ? "out of memory" : "unknown error";
}

__attribute__((constructor)) static void introduce(void)
{
    fake_introduce(&(fake_vendor){.current = current,
                                  .foreign_stream = foreign_stream,
                                  .shared_unasked = 64 * 1024,
                                  .shared_memory = 64 * 1024,
                                  .wave = 64});
}
