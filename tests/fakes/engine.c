/* SPDX-License-Identifier: Apache-2.0
 * Objects, memory and launches of the look-alike drivers. */
#include "tests/fakes/engine.h"

#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Exported by name, so that a test finds it: the rest of these files is hidden. */
__attribute__((visibility("default"))) fake_state fake;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static fake_vendor self;

/* ---- Calls ----------------------------------------------------------------------------------- */

int fake_begin(const char *name)
{
    int code = FAKE_SUCCESS;

    pthread_mutex_lock(&lock);
    snprintf(fake.call[fake.calls % FAKE_CALLS], sizeof fake.call[0], "%s", name);
    fake.calls++;
    if (fake.calls == fake.fails_at) {
        code = fake.failure;
        fake.failed++;
        snprintf(fake.failed_call, sizeof fake.failed_call, "%s", name);
    }
    pthread_mutex_unlock(&lock);
    return code;
}

void fake_wait(void)
{
    pthread_mutex_lock(&lock);
    fake.waits++;
    pthread_mutex_unlock(&lock);
}

int fake_complain(int code, const char *format, ...)
{
    va_list arguments;

    pthread_mutex_lock(&lock);
    if (!fake.complaint[0]) {
        va_start(arguments, format);
        vsnprintf(fake.complaint, sizeof fake.complaint, format, arguments);
        va_end(arguments);
    }
    pthread_mutex_unlock(&lock);
    return code;
}

/* ---- Objects --------------------------------------------------------------------------------- */

typedef struct function {
    struct fake_object *module;
    const fake_kernel *kernel;
    unsigned most_dynamic; /* as opted in */
    struct function *next;
} function;

struct fake_object {
    fake_kind kind;
    int device;
    fake_image *image;   /* of a module */
    function *functions; /* likewise */
    fake_object *next;
};

static fake_object *objects;

static int64_t *count_of(fake_kind kind)
{
    return kind == FAKE_CONTEXT  ? &fake.contexts
           : kind == FAKE_STREAM ? &fake.streams
           : kind == FAKE_EVENT  ? &fake.events
                                 : &fake.modules;
}

fake_object *fake_make(fake_kind kind, int device)
{
    fake_object *object = calloc(1, sizeof *object);

    object->kind = kind;
    object->device = device;
    pthread_mutex_lock(&lock);
    object->next = objects;
    objects = object;
    ++*count_of(kind);
    pthread_mutex_unlock(&lock);
    return object;
}

fake_object *fake_object_of(void *handle, fake_kind kind, const char *what)
{
    fake_object *object;

    pthread_mutex_lock(&lock);
    for (object = objects; object && object != handle; object = object->next)
        continue;
    pthread_mutex_unlock(&lock);
    if (object && object->kind == kind)
        return object;
    fake_complain(0, "%s: the handle is none of ours, or has been destroyed", what);
    return NULL;
}

int fake_device_of(const fake_object *object)
{
    return object->device;
}

static void free_object(fake_object *object)
{
    while (object->functions) {
        function *next = object->functions->next;
        free(object->functions);
        object->functions = next;
    }
    free(object->image);
    free(object);
}

void fake_end(fake_object *object)
{
    fake_object **at;

    pthread_mutex_lock(&lock);
    for (at = &objects; *at != object; at = &(*at)->next)
        continue;
    *at = object->next;
    --*count_of(object->kind);
    pthread_mutex_unlock(&lock);
    free_object(object);
}

/* ---- Memory ---------------------------------------------------------------------------------- */

typedef struct block {
    char *data;
    size_t size;
    int device;
    bool is_async;
    struct block *next;
} block;

static block *blocks;

/* Bytes of a device that are taken. With the lock held. */
static size_t taken(int device)
{
    size_t size = 0;

    for (const block *b = blocks; b; b = b->next)
        size += b->device == device ? b->size : 0;
    return size;
}

int fake_allocate(int device, size_t size, bool is_async, void **out_memory)
{
    block *b;

    if (size == 0)
        return FAKE_INVALID_VALUE;
    pthread_mutex_lock(&lock);
    if (size > fake.chip[device].memory - taken(device)) {
        pthread_mutex_unlock(&lock);
        return FAKE_OUT_OF_MEMORY;
    }
    b = calloc(1, sizeof *b);
    if (posix_memalign((void **)&b->data, 256, size) != 0)
        abort();
    memset(b->data, 0xa5, size < 1 << 20 ? size : 1 << 20); /* nothing is zero by itself */
    b->size = size;
    b->device = device;
    b->is_async = is_async;
    b->next = blocks;
    blocks = b;
    fake.blocks++;
    fake.bytes += size;
    pthread_mutex_unlock(&lock);
    *out_memory = b->data;
    return FAKE_SUCCESS;
}

int fake_free(void *memory, bool is_async)
{
    block **at, *b;

    if (!memory)
        return FAKE_SUCCESS;
    pthread_mutex_lock(&lock);
    for (at = &blocks; *at && (*at)->data != (char *)memory; at = &(*at)->next)
        continue;
    b = *at;
    if (b) {
        *at = b->next;
        fake.blocks--;
        fake.bytes -= b->size;
    }
    pthread_mutex_unlock(&lock);
    if (!b)
        return fake_complain(FAKE_INVALID_VALUE, "memory is freed that was not allocated");
    if (b->is_async != is_async)
        fake_complain(0, "memory of a stream's pool and other memory are freed alike");
    free(b->data);
    free(b);
    return FAKE_SUCCESS;
}

int fake_owner(const void *address, size_t size)
{
    int device = -1;

    pthread_mutex_lock(&lock);
    for (const block *b = blocks; b; b = b->next)
        if ((const char *)address >= b->data && (const char *)address + size <= b->data + b->size)
            device = b->device;
    pthread_mutex_unlock(&lock);
    return device;
}

int fake_copy(void *to, const void *from, size_t size, const void *on_device)
{
    if (fake_owner(on_device, size) < 0)
        return fake_complain(FAKE_INVALID_VALUE, "a copy leaves the device's memory");
    memcpy(to, from, size);
    return FAKE_SUCCESS;
}

/* ---- Modules and functions ------------------------------------------------------------------- */

int fake_load(int device, const void *data, const char *architecture, void **out_module)
{
    fake_image *image = calloc(1, sizeof *image);
    fake_object *module;

    if (!fake_image_read(data, image)) {
        free(image);
        return FAKE_INVALID_IMAGE;
    }
    /* Machine code runs on its own generation only: sm_80 on sm_86, gfx942 on gfx942. */
    if (image->architecture[0] &&
        strncmp(image->architecture, architecture,
                image->architecture[0] == 's' ? 4 : sizeof image->architecture) != 0) {
        free(image);
        return FAKE_NO_BINARY;
    }
    module = fake_make(FAKE_MODULE, device);
    module->image = image;
    *out_module = module;
    return FAKE_SUCCESS;
}

int fake_unload(void *module)
{
    fake_object *object = fake_object_of(module, FAKE_MODULE, "unloading a module");

    if (!object)
        return FAKE_INVALID_HANDLE;
    fake_end(object);
    return FAKE_SUCCESS;
}

int fake_find(void *module, const char *name, void **out_function)
{
    fake_object *object = fake_object_of(module, FAKE_MODULE, "looking for a function");

    if (!object)
        return FAKE_INVALID_HANDLE;
    for (int i = 0; i < object->image->count; i++) {
        function *f;

        if (strcmp(object->image->kernels[i].name, name) != 0)
            continue;
        f = calloc(1, sizeof *f);
        f->module = object;
        f->kernel = &object->image->kernels[i];
        f->most_dynamic = self.shared_unasked;
        pthread_mutex_lock(&lock);
        f->next = object->functions;
        object->functions = f;
        pthread_mutex_unlock(&lock);
        *out_function = f;
        return FAKE_SUCCESS;
    }
    return FAKE_NOT_FOUND;
}

/* NULL, with a complaint, unless a live module has it. */
static function *function_of(void *handle)
{
    function *found = NULL;

    pthread_mutex_lock(&lock);
    for (fake_object *o = objects; o; o = o->next)
        for (function *f = o->functions; f; f = f->next)
            if (f == handle)
                found = f;
    pthread_mutex_unlock(&lock);
    if (!found)
        fake_complain(0, "a function is none of ours, or its module was unloaded");
    return found;
}

int fake_function_set(void *handle, int value)
{
    function *f = function_of(handle);

    if (!f)
        return FAKE_INVALID_HANDLE;
    if (value < 0 || value > fake.chip[f->module->device].shared_memory)
        return FAKE_INVALID_VALUE;
    f->most_dynamic = (unsigned)value;
    return FAKE_SUCCESS;
}

/* ---- Launches -------------------------------------------------------------------------------- */

/* Whether the kernel's own list of parameters is the one that the host passes. */
static int check_parameters(const fake_kernel *k)
{
    static const unsigned sizes[] = {sizeof(tess_args), sizeof(tess_gpu_addresses),
                                     sizeof(tess_gpu_run), sizeof(tess_gpu_maps)};
    const unsigned count = strncmp(k->name, "fwd_hopper_", 11) == 0 ? 4 : 3;
    unsigned offset = 0;

    for (unsigned i = 0; i < count; offset += sizes[i++]) {
        if (i == 3) /* aligned where it lies, not by its distance from the first */
            offset = k->parameter_offset[i];
        if (k->parameters && (k->parameters != count || k->parameter_size[i] != sizes[i] ||
                              k->parameter_offset[i] != offset))
            return fake_complain(FAKE_INVALID_VALUE,
                                 "%s takes %u parameters, number %u of %u bytes at %u; the host "
                                 "passes %u, this one of %u bytes at %u",
                                 k->name, k->parameters, i, k->parameter_size[i],
                                 k->parameter_offset[i], count, sizes[i], offset);
    }
    if (k->parameter_bytes && k->parameter_bytes != offset)
        return fake_complain(FAKE_INVALID_VALUE, "%s takes %u bytes of parameters, not %u", k->name,
                             k->parameter_bytes, offset);
    return FAKE_SUCCESS;
}

static int check_launch(const function *f, const unsigned grid[3], const unsigned block_size[3],
                        unsigned shared)
{
    const fake_kernel *k = f->kernel;
    const fake_chip *chip = &fake.chip[f->module->device];
    const unsigned threads = block_size[0] * block_size[1] * block_size[2];

    if (grid[0] == 0 || grid[1] == 0 || grid[2] == 0 || grid[0] > INT32_MAX)
        return fake_complain(FAKE_INVALID_VALUE, "%s: a grid of %u x %u x %u", k->name, grid[0],
                             grid[1], grid[2]);
    if (threads == 0 || threads > 1024 || threads % (unsigned)chip->wave != 0)
        return fake_complain(FAKE_INVALID_VALUE, "%s: %u threads, waves of %d", k->name, threads,
                             chip->wave);
    if (k->most_threads && threads > k->most_threads)
        return fake_complain(FAKE_INVALID_VALUE, "%s: %u threads, compiled for %u", k->name,
                             threads, k->most_threads);
    if (shared > f->most_dynamic)
        return fake_complain(FAKE_INVALID_VALUE, "%s: %u bytes of shared memory, opted in for %u",
                             k->name, shared, f->most_dynamic);
    if (k->shared + shared > (unsigned)chip->shared_memory)
        return fake_complain(FAKE_INVALID_VALUE, "%s: %u + %u bytes of shared memory of %d",
                             k->name, k->shared, shared, chip->shared_memory);
    return check_parameters(k);
}

int fake_run(void *handle, int current_device, const unsigned grid[3], const unsigned block_size[3],
             unsigned shared, void *stream, void **parameters)
{
    function *f = function_of(handle);
    fake_launch launch = {.stream = stream, .shared = shared, .has_parameters = true};
    int code;

    if (!f)
        return FAKE_INVALID_HANDLE;
    if (f->module->device != current_device)
        return fake_complain(FAKE_INVALID_CONTEXT, "%s: launched with device %d current, not %d",
                             f->kernel->name, current_device, f->module->device);
    code = check_launch(f, grid, block_size, shared);
    if (code != FAKE_SUCCESS)
        return code;
    snprintf(launch.kernel, sizeof launch.kernel, "%s", f->kernel->name);
    launch.device = current_device;
    memcpy(launch.grid, grid, sizeof launch.grid);
    memcpy(launch.block, block_size, sizeof launch.block);
    memcpy(&launch.args, parameters[0], sizeof launch.args);
    memcpy(&launch.addresses, parameters[1], sizeof launch.addresses);
    memcpy(&launch.run, parameters[2], sizeof launch.run);
    pthread_mutex_lock(&lock);
    fake.launch[fake.launches % FAKE_LAUNCHES] = launch;
    fake.launches++;
    pthread_mutex_unlock(&lock);
    return fake.run ? fake.run(&launch) : FAKE_SUCCESS;
}

/* ---- A fresh start --------------------------------------------------------------------------- */

static void reset(void)
{
    const fake_run_fn run = fake.run;

    while (objects)
        fake_end(objects);
    while (blocks)
        fake_free(blocks->data, blocks->is_async);
    if (self.forget)
        self.forget();
    memset(&fake, 0, sizeof fake);
    fake.reset = reset;
    fake.current = self.current;
    fake.foreign_stream = self.foreign_stream;
    fake.run = run;
    fake.devices = 2;
    fake.failure = 999;
    for (int i = 0; i < FAKE_DEVICES; i++)
        fake.chip[i] = (fake_chip){.name = "Look-alike",
                                   .major = 9,
                                   .gcn = "gfx942:sramecc+:xnack-",
                                   .units = 132,
                                   .wave = self.wave,
                                   .shared_memory = self.shared_memory,
                                   .memory = (size_t)1 << 30};
}

void fake_introduce(const fake_vendor *vendor)
{
    self = *vendor;
    reset();
}
