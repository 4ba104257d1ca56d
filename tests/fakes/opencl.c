/* SPDX-License-Identifier: Apache-2.0
 * A look-alike OpenCL loader; the calls are those of backends/opencl/calls.def. */
#include "tests/fakes/fake_opencl.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define EXPORT __attribute__((visibility("default")))

typedef int32_t code;

static void reset(void);
EXPORT fake_opencl fake = {.reset = reset};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static void reset(void)
{
    memset(&fake, 0, sizeof fake);
    fake.reset = reset;
    fake.platforms = 1;
    fake.platform[0] = "Portable Computing Language";
    fake.devices = 1;
    fake.local_memory = 65536;
    fake.type = 1 << 2; /* a GPU */
    fake.group = 256;
    fake.is_available = fake.has_compiler = 1;
    fake.driver_version = "1.0";
    fake.failure = FAKE_CL_OUT_OF_RESOURCES;
}

/* ---- Calls that fail ------------------------------------------------------------------------- */

static void complain(const char *what)
{
    if (!fake.complaint[0])
        snprintf(fake.complaint, sizeof fake.complaint, "%s", what);
}

/* Counts a call; whether it is the one to fail. */
static bool fails(const char *call)
{
    bool is_turn;

    pthread_mutex_lock(&lock);
    is_turn = ++fake.calls == fake.fails_at;
    if (is_turn)
        snprintf(fake.failed_call, sizeof fake.failed_call, "%s", call);
    pthread_mutex_unlock(&lock);
    return is_turn;
}

#define MAY_FAIL()       \
    if (fails(__func__)) \
    return fake.failure

/* ---- Objects --------------------------------------------------------------------------------- */

typedef enum object_kind { CONTEXT = 1, QUEUE, BUFFER, PROGRAM, KERNEL, EVENT } object_kind;

typedef struct object {
    object_kind kind;
    int references;
    struct object *of; /* context of a queue, program of a kernel */
    void *device;
    uint64_t properties;
    size_t size;
    char *data; /* of a buffer, or the text of a program */
    bool is_built;
    char name[64];
    int parameters;
    fake_parameter parameter[FAKE_PARAMETERS];
    pthread_t setter; /* who began to set parameters, until they are launched */
    bool is_being_set;
} object;

static int64_t *count_of(object_kind kind)
{
    switch (kind) {
    case CONTEXT:
        return &fake.contexts;
    case QUEUE:
        return &fake.queues;
    case BUFFER:
        return &fake.buffers;
    case PROGRAM:
        return &fake.programs;
    case KERNEL:
        return &fake.kernels;
    default:
        return &fake.events;
    }
}

static object *create(object_kind kind)
{
    object *o = calloc(1, sizeof *o);

    if (!o)
        return NULL;
    o->kind = kind;
    o->references = 1;
    pthread_mutex_lock(&lock);
    ++*count_of(kind);
    pthread_mutex_unlock(&lock);
    return o;
}

static code release(object *o, object_kind kind, const char *call)
{
    const bool is_turn = fails(call); /* what is released is gone even then */

    if (!o || o->kind != kind) {
        complain("something is released that is not one of its kind");
        return -30;
    }
    if (--o->references == 0) {
        pthread_mutex_lock(&lock);
        --*count_of(kind);
        pthread_mutex_unlock(&lock);
        free(o->data);
        free(o);
    }
    return is_turn ? fake.failure : 0;
}

static code give(size_t size, void *out, size_t *out_size, const void *value, size_t value_size)
{
    if (out_size)
        *out_size = value_size;
    if (out && size < value_size)
        return FAKE_CL_INVALID_VALUE;
    if (out)
        memcpy(out, value, value_size);
    return 0;
}

static code give_text(size_t size, void *out, size_t *out_size, const char *text)
{
    return give(size, out, out_size, text, strlen(text) + 1);
}

/* ---- Platforms and devices ------------------------------------------------------------------- */

static char platform_ids[FAKE_PLATFORMS], device_ids[FAKE_PLATFORMS][4];

EXPORT code clGetPlatformIDs(uint32_t entries, void **out_platforms, uint32_t *out_count)
{
    MAY_FAIL();
    *out_count = (uint32_t)fake.platforms;
    if (fake.platforms == 0)
        return FAKE_CL_NO_PLATFORM;
    for (uint32_t i = 0; i < entries && i < (uint32_t)fake.platforms; i++)
        out_platforms[i] = &platform_ids[i];
    return 0;
}

EXPORT code clGetPlatformInfo(void *platform, uint32_t what, size_t size, void *out,
                              size_t *out_size)
{
    MAY_FAIL();
    if (what == 0x0902)
        return give_text(size, out, out_size, fake.platform[(char *)platform - platform_ids]);
    return give_text(size, out, out_size, "OpenCL 1.2 fake");
}

EXPORT code clGetDeviceIDs(void *platform, uint64_t type, uint32_t entries, void **out_devices,
                           uint32_t *out_count)
{
    const long number = (char *)platform - platform_ids;

    (void)type;
    MAY_FAIL();
    *out_count = (uint32_t)fake.devices;
    for (uint32_t i = 0; i < entries && i < (uint32_t)fake.devices; i++)
        out_devices[i] = &device_ids[number][i];
    return fake.devices ? 0 : -1;
}

EXPORT code clGetDeviceInfo(void *device, uint32_t what, size_t size, void *out, size_t *out_size)
{
    const uint32_t eight = 8, one = 1;
    const uint64_t gigabyte = 1 << 30;

    (void)device;
    MAY_FAIL();
    switch (what) {
    case 0x1000:
        return give(size, out, out_size, &fake.type, sizeof fake.type);
    case 0x1002:
        return give(size, out, out_size, &eight, sizeof eight);
    case 0x1004:
        return give(size, out, out_size, &fake.group, sizeof fake.group);
    case 0x100A:
    case 0x1026:
        return give(size, out, out_size, &one, sizeof one);
    case 0x101E:
    case 0x101F:
        return give(size, out, out_size, &gigabyte, sizeof gigabyte);
    case 0x1023:
        return give(size, out, out_size, &fake.local_memory, sizeof fake.local_memory);
    case 0x1027:
        return give(size, out, out_size, &fake.is_available, sizeof fake.is_available);
    case 0x1028:
        return give(size, out, out_size, &fake.has_compiler, sizeof fake.has_compiler);
    case 0x102D:
        return give_text(size, out, out_size, fake.driver_version);
    default:
        return give_text(size, out, out_size, "fake device");
    }
}

/* ---- Contexts and queues --------------------------------------------------------------------- */

#define CREATED(o)          \
    *out_code = o ? 0 : -6; \
    return o
#define FAILS_TO_CREATE()         \
    if (fails(__func__)) {        \
        *out_code = fake.failure; \
        return NULL;              \
    }

EXPORT void *clCreateContext(const intptr_t *properties, uint32_t count, void *const *devices,
                             void (*notify)(const char *, const void *, size_t, void *), void *user,
                             code *out_code)
{
    object *o;

    (void)properties;
    (void)notify;
    (void)user;
    FAILS_TO_CREATE();
    o = create(CONTEXT);
    if (o && count == 1)
        o->device = devices[0];
    CREATED(o);
}

EXPORT code clRetainContext(object *context)
{
    MAY_FAIL();
    context->references++;
    return 0;
}

EXPORT code clReleaseContext(object *context)
{
    return release(context, CONTEXT, __func__);
}

EXPORT code clGetContextInfo(object *context, uint32_t what, size_t size, void *out,
                             size_t *out_size)
{
    (void)what;
    MAY_FAIL();
    return give(size, out, out_size, &context->device, sizeof context->device);
}

EXPORT void *clCreateCommandQueue(object *context, void *device, uint64_t properties,
                                  code *out_code)
{
    object *o;

    FAILS_TO_CREATE();
    o = create(QUEUE);
    if (o) {
        o->of = context;
        o->device = device;
        o->properties = properties;
    }
    CREATED(o);
}

EXPORT code clRetainCommandQueue(object *queue)
{
    MAY_FAIL();
    queue->references++;
    return 0;
}

EXPORT code clReleaseCommandQueue(object *queue)
{
    return release(queue, QUEUE, __func__);
}

EXPORT code clGetCommandQueueInfo(object *queue, uint32_t what, size_t size, void *out,
                                  size_t *out_size)
{
    MAY_FAIL();
    if (what == 0x1090)
        return give(size, out, out_size, &queue->of, sizeof queue->of);
    if (what == 0x1091)
        return give(size, out, out_size, &queue->device, sizeof queue->device);
    return give(size, out, out_size, &queue->properties, sizeof queue->properties);
}

EXPORT code clFinish(object *queue)
{
    (void)queue;
    MAY_FAIL();
    return 0;
}

EXPORT code clFlush(object *queue)
{
    (void)queue;
    MAY_FAIL();
    return 0;
}

/* ---- Buffers --------------------------------------------------------------------------------- */

EXPORT void *clCreateBuffer(object *context, uint64_t flags, size_t size, void *host,
                            code *out_code)
{
    object *o;

    (void)context;
    FAILS_TO_CREATE();
    if (size == 0)
        complain("a buffer of no bytes");
    o = create(BUFFER);
    if (o) {
        o->size = size;
        o->data = calloc(1, size);
        if (flags & 1 << 5)
            memcpy(o->data, host, size);
    }
    CREATED(o);
}

EXPORT code clReleaseMemObject(object *buffer)
{
    return release(buffer, BUFFER, __func__);
}

EXPORT code clEnqueueWriteBuffer(object *queue, object *buffer, uint32_t is_blocking, size_t offset,
                                 size_t size, const void *from, uint32_t waits, void *const *wait,
                                 void **out_event)
{
    (void)queue;
    (void)waits;
    (void)wait;
    (void)out_event;
    MAY_FAIL();
    if (!is_blocking || offset + size > buffer->size)
        complain("a copy that does not wait or passes the buffer's end");
    else
        memcpy(buffer->data + offset, from, size);
    return 0;
}

EXPORT code clEnqueueReadBuffer(object *queue, object *buffer, uint32_t is_blocking, size_t offset,
                                size_t size, void *to, uint32_t waits, void *const *wait,
                                void **out_event)
{
    (void)queue;
    (void)waits;
    (void)wait;
    (void)out_event;
    MAY_FAIL();
    if (!is_blocking || offset + size > buffer->size)
        complain("a copy that does not wait or passes the buffer's end");
    else
        memcpy(to, buffer->data + offset, size);
    return 0;
}

/* ---- Programs -------------------------------------------------------------------------------- */

EXPORT void *clCreateProgramWithSource(object *context, uint32_t count, const char **texts,
                                       const size_t *lengths, code *out_code)
{
    object *o;

    (void)context;
    FAILS_TO_CREATE();
    if (count != 1 || lengths[0] < 1000 || memcmp(texts[0], "#line 1 ", 8) != 0)
        complain("a text that is none of the library's");
    o = create(PROGRAM);
    fake.from_source++;
    CREATED(o);
}

static const unsigned char BINARY[] = "what a compiler made";

EXPORT void *clCreateProgramWithBinary(object *context, uint32_t count, void *const *devices,
                                       const size_t *lengths, const unsigned char **binaries,
                                       code *out_status, code *out_code)
{
    object *o;

    (void)context;
    (void)count;
    (void)devices;
    FAILS_TO_CREATE();
    if (lengths[0] != sizeof BINARY || memcmp(binaries[0], BINARY, sizeof BINARY) != 0)
        complain("a binary that was never given out");
    if (fake.refuses_binaries) {
        *out_status = *out_code = -42;
        return NULL;
    }
    *out_status = 0;
    o = create(PROGRAM);
    fake.from_binary++;
    CREATED(o);
}

EXPORT code clBuildProgram(object *program, uint32_t count, void *const *devices,
                           const char *options, void (*notify)(void *, void *), void *user)
{
    (void)count;
    (void)devices;
    (void)notify;
    (void)user;
    MAY_FAIL();
    snprintf(fake.options, sizeof fake.options, "%s", options);
    program->is_built = !fake.build_log;
    return fake.build_log ? FAKE_CL_BUILD_FAILURE : 0;
}

EXPORT code clGetProgramInfo(object *program, uint32_t what, size_t size, void *out,
                             size_t *out_size)
{
    const size_t length = fake.hides_binaries ? 0 : sizeof BINARY;

    (void)program;
    MAY_FAIL();
    if (what == 0x1165)
        return give(size, out, out_size, &length, sizeof length);
    memcpy(*(unsigned char **)out, BINARY, sizeof BINARY);
    return 0;
}

EXPORT code clGetProgramBuildInfo(object *program, void *device, uint32_t what, size_t size,
                                  void *out, size_t *out_size)
{
    (void)program;
    (void)device;
    (void)what;
    MAY_FAIL();
    return give_text(size, out, out_size, fake.build_log ? fake.build_log : "");
}

EXPORT code clReleaseProgram(object *program)
{
    return release(program, PROGRAM, __func__);
}

/* ---- Kernels --------------------------------------------------------------------------------- */

EXPORT void *clCreateKernel(object *program, const char *name, code *out_code)
{
    object *o;

    FAILS_TO_CREATE();
    if (!program->is_built)
        complain("a kernel of a program that was not built");
    o = create(KERNEL);
    if (o)
        snprintf(o->name, sizeof o->name, "%s", name);
    CREATED(o);
}

EXPORT code clReleaseKernel(object *kernel)
{
    return release(kernel, KERNEL, __func__);
}

EXPORT code clSetKernelArg(object *kernel, uint32_t index, size_t size, const void *value)
{
    MAY_FAIL();
    if (index >= FAKE_PARAMETERS || size != sizeof(int64_t)) {
        complain("a parameter that no kernel has");
        return -51;
    }
    pthread_mutex_lock(&lock);
    if (kernel->is_being_set && index != 0 && !pthread_equal(kernel->setter, pthread_self()))
        complain("two threads set parameters of one kernel");
    kernel->is_being_set = true;
    kernel->setter = pthread_self();
    pthread_mutex_unlock(&lock);
    kernel->parameter[index].size = size;
    memcpy(&kernel->parameter[index].value, value, size);
    if ((int)index + 1 > kernel->parameters)
        kernel->parameters = (int)index + 1;
    return 0;
}

EXPORT code clEnqueueNDRangeKernel(object *queue, object *kernel, uint32_t dimensions,
                                   const size_t *offset, const size_t *global, const size_t *local,
                                   uint32_t waits, void *const *wait, void **out_event)
{
    (void)offset;
    (void)waits;
    (void)wait;
    (void)out_event;
    MAY_FAIL();
    if (dimensions != 1 || global[0] == 0 || global[0] % local[0] != 0)
        complain("an impossible grid");
    pthread_mutex_lock(&lock);
    if (!pthread_equal(kernel->setter, pthread_self()))
        complain("a kernel is launched with another thread's parameters");
    kernel->is_being_set = false;
    if (fake.launches < FAKE_CL_LAUNCHES) {
        fake_cl_launch *const launch = &fake.launch[fake.launches];
        const object *const args = kernel->parameter[0].value.object;

        memcpy(launch->kernel, kernel->name, sizeof launch->kernel);
        launch->queue = queue;
        launch->global = global[0];
        launch->local = local[0];
        launch->parameters = kernel->parameters;
        memcpy(launch->parameter, kernel->parameter, sizeof launch->parameter);
        memcpy(&launch->args, args->data, sizeof launch->args);
    }
    fake.launches++;
    pthread_mutex_unlock(&lock);
    return 0;
}

/* ---- Events ---------------------------------------------------------------------------------- */

EXPORT code clEnqueueMarkerWithWaitList(object *queue, uint32_t waits, void *const *wait,
                                        void **out_event)
{
    object *o;

    (void)waits;
    (void)wait;
    MAY_FAIL();
    o = create(EVENT);
    if (!o)
        return -6;
    o->of = queue;
    o->properties = queue->properties;
    *out_event = o;
    return 0;
}

EXPORT code clWaitForEvents(uint32_t count, void *const *events)
{
    (void)count;
    (void)events;
    MAY_FAIL();
    return 0;
}

EXPORT code clGetEventProfilingInfo(object *event, uint32_t what, size_t size, void *out,
                                    size_t *out_size)
{
    const uint64_t when = (uint64_t)fake.calls * 1000;

    (void)what;
    MAY_FAIL();
    if (!(event->properties & 1 << 1))
        return -7;
    return give(size, out, out_size, &when, sizeof when);
}

EXPORT code clReleaseEvent(object *event)
{
    return release(event, EVENT, __func__);
}
