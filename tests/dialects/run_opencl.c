/* SPDX-License-Identifier: Apache-2.0
 * Runs dialect_opencl.cl on every OpenCL device here and compares with the C11 build. */
#include "compare.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The calls of OpenCL 1.2 this program makes, loaded at run time: it builds without the headers,
 * and a machine without OpenCL is a skip and not a missing test. Objects are opaque pointers. */
#define CALLS(X)                                                                                   \
    X(int, clGetPlatformIDs, (tess_u32 count, void **platforms, tess_u32 *found))                  \
    X(int, clGetDeviceIDs,                                                                         \
      (void *platform, tess_u64 type, tess_u32 count, void **devices, tess_u32 *found))            \
    X(int, clGetDeviceInfo, (void *device, tess_u32 what, size_t size, void *value, size_t *used)) \
    X(void *, clCreateContext,                                                                     \
      (const intptr_t *properties, tess_u32 count, void **devices, void (*notify)(void),           \
       void *user, int *error))                                                                    \
    X(void *, clCreateCommandQueue, (void *context, void *device, tess_u64 flags, int *error))     \
    X(void *, clCreateProgramWithSource,                                                           \
      (void *context, tess_u32 count, const char **texts, const size_t *sizes, int *error))        \
    X(int, clBuildProgram,                                                                         \
      (void *program, tess_u32 count, void **devices, const char *options, void (*notify)(void),   \
       void *user))                                                                                \
    X(int, clGetProgramBuildInfo,                                                                  \
      (void *program, void *device, tess_u32 what, size_t size, void *value, size_t *used))        \
    X(void *, clCreateKernel, (void *program, const char *name, int *error))                       \
    X(void *, clCreateBuffer,                                                                      \
      (void *context, tess_u64 flags, size_t size, void *host, int *error))                        \
    X(int, clSetKernelArg, (void *kernel, tess_u32 index, size_t size, const void *value))         \
    X(int, clEnqueueNDRangeKernel,                                                                 \
      (void *queue, void *kernel, tess_u32 axes, const size_t *offset, const size_t *global,       \
       const size_t *local, tess_u32 waits, void **wait, void **event))                            \
    X(int, clEnqueueReadBuffer,                                                                    \
      (void *queue, void *buffer, tess_u32 blocking, size_t offset, size_t size, void *host,       \
       tess_u32 waits, void **wait, void **event))                                                 \
    X(int, clReleaseMemObject, (void *object))                                                     \
    X(int, clReleaseKernel, (void *object))                                                        \
    X(int, clReleaseProgram, (void *object))                                                       \
    X(int, clReleaseCommandQueue, (void *object))                                                  \
    X(int, clReleaseContext, (void *object))

#define DECLARE(result, name, arguments) static result(*name) arguments;
CALLS(DECLARE)

enum { SKIP = 77, MOST = 16, DEVICE_NAME = 0x102b, BUILD_LOG = 0x1183 };

static int load_calls(void)
{
    void *library = dlopen("libOpenCL.so.1", RTLD_NOW);

    if (library == NULL) {
        printf("skipped: %s\n", dlerror());
        return 0;
    }
    /* dlsym returns an object pointer; copying it is how POSIX turns it into a function's. */
#define LOAD(result, name, arguments)                            \
    {                                                            \
        void *found = dlsym(library, #name);                     \
        memcpy(&name, &found, sizeof name);                      \
        if (found == NULL) {                                     \
            printf("skipped: libOpenCL.so.1 lacks %s\n", #name); \
            return 0;                                            \
        }                                                        \
    }
    CALLS(LOAD)
    return 1;
}

/* Everything one device holds, so that one place releases it. */
struct run {
    void *device, *context, *queue, *program, *kernel, *exact, *near;
};

static char *read_text(const char *path)
{
    FILE *file = fopen(path, "rb");
    char *text = calloc(1, 1 << 16);

    if (file == NULL || text == NULL || fread(text, 1, (1 << 16) - 1, file) == 0) {
        printf("cannot read %s\n", path);
        exit(1);
    }
    fclose(file);
    return text;
}

static int build(struct run *run, const char *root)
{
    char path[4096], options[8192];
    static char log[1 << 16];
    int error;

    snprintf(path, sizeof path, "%s/tests/dialects/dialect_opencl.cl", root);
    snprintf(options, sizeof options, "-cl-std=CL1.2 -Werror -I%s -I%s/tests/dialects", root, root);
    char *text = read_text(path);
    const char *texts[] = {text};
    run->program = clCreateProgramWithSource(run->context, 1, texts, NULL, &error);
    free(text);
    if (error == 0)
        error = clBuildProgram(run->program, 1, &run->device, options, NULL, NULL);
    if (error != 0) {
        clGetProgramBuildInfo(run->program, run->device, BUILD_LOG, sizeof log, log, NULL);
        printf("clBuildProgram failed with %d:\n%s\n", error, log);
        return error;
    }
    run->kernel = clCreateKernel(run->program, "probe", &error);
    return error;
}

static int launch(struct run *run, tess_u32 *exact, tess_f32 *near)
{
    const tess_args args = probe_block();
    const size_t indices = PROBE_INDICES;
    const size_t exact_size = PROBE_EXACT_COUNT * sizeof *exact;
    const size_t near_size = PROBE_NEAR_COUNT * sizeof *near;
    int error = 0;

    run->exact = clCreateBuffer(run->context, 1, exact_size, NULL, &error);
    if (error == 0)
        run->near = clCreateBuffer(run->context, 1, near_size, NULL, &error);
    if (error == 0)
        error = clSetKernelArg(run->kernel, 0, sizeof args, &args);
    if (error == 0)
        error = clSetKernelArg(run->kernel, 1, sizeof run->exact, &run->exact);
    if (error == 0)
        error = clSetKernelArg(run->kernel, 2, sizeof run->near, &run->near);
    if (error == 0)
        error =
            clEnqueueNDRangeKernel(run->queue, run->kernel, 1, NULL, &indices, NULL, 0, NULL, NULL);
    if (error == 0)
        error = clEnqueueReadBuffer(run->queue, run->exact, 1, 0, exact_size, exact, 0, NULL, NULL);
    if (error == 0)
        error = clEnqueueReadBuffer(run->queue, run->near, 1, 0, near_size, near, 0, NULL, NULL);
    return error;
}

static void release(struct run *run)
{
    if (run->near != NULL)
        clReleaseMemObject(run->near);
    if (run->exact != NULL)
        clReleaseMemObject(run->exact);
    if (run->kernel != NULL)
        clReleaseKernel(run->kernel);
    if (run->program != NULL)
        clReleaseProgram(run->program);
    if (run->queue != NULL)
        clReleaseCommandQueue(run->queue);
    if (run->context != NULL)
        clReleaseContext(run->context);
}

static int run_device(void *device, const char *root)
{
    static tess_u32 exact[PROBE_EXACT_COUNT];
    static tess_f32 near[PROBE_NEAR_COUNT];
    struct run run = {.device = device};
    char name[256] = "opencl";
    int error;

    clGetDeviceInfo(device, DEVICE_NAME, sizeof name, name, NULL);
    run.context = clCreateContext(NULL, 1, &run.device, NULL, NULL, &error);
    if (error == 0)
        run.queue = clCreateCommandQueue(run.context, run.device, 0, &error);
    if (error == 0)
        error = build(&run, root);
    if (error == 0)
        error = launch(&run, exact, near);
    release(&run);
    if (error != 0) {
        printf("%s: OpenCL error %d\n", name, error);
        return 1;
    }
    return probe_compare(name, exact, near) != 0;
}

int main(int count, char **words)
{
    void *platforms[MOST], *devices[MOST];
    tess_u32 platform_count = 0, device_count = 0, ran = 0;
    int failed = 0;

    if (count != 2) {
        printf("usage: run_opencl ROOT\n");
        return 1;
    }
    if (!load_calls())
        return SKIP;
    if (clGetPlatformIDs(MOST, platforms, &platform_count) != 0)
        platform_count = 0;
    for (tess_u32 p = 0; p < platform_count && p < MOST; p++) {
        if (clGetDeviceIDs(platforms[p], 0xffffffffu, MOST, devices, &device_count) != 0)
            continue;
        for (tess_u32 d = 0; d < device_count && d < MOST; d++, ran++)
            failed |= run_device(devices[d], words[1]);
    }
    if (ran == 0) {
        printf("skipped: libOpenCL.so.1 found no device\n");
        return SKIP;
    }
    return failed;
}
