/* SPDX-License-Identifier: Apache-2.0
 * The OpenCL backend against a look-alike loader: devices and their names, what a launch gets,
 * programs kept on disk, contexts of the caller's, and every call failing in turn. */
#include "core/base/library.h"
#include "core/runtime/objects.h"
#include "tests/fakes/fake_opencl.h"
#include "tests/unit/support.h"

#include <dirent.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <tessera/interop_opencl.h>
#include <unistd.h>

#define COUNT(list) (sizeof(list) / sizeof *(list))

static fake_opencl *fake;
static const char *library;
static char folder[256]; /* of compiled programs, where a test wants one */

/* A loader's devices are listed once per name of its file; `how` many dots make it another name. */
static void use_loader(int how)
{
    char path[512];
    const char *const slash = strrchr(library, '/');

    snprintf(path, sizeof path, "%.*s", (int)(slash - library), library);
    for (int i = 0; i < how; i++)
        strcat(path, "/.");
    strcat(path, slash);
    setenv("TESSERA_OPENCL_LIBRARY", path, 1);
    fake->reset();
}

static tess_context *make_context(tally *memory)
{
    const tess_context_desc desc = {TESS_STRUCT(tess_context_desc), .allocate = tally_allocate,
                                    .release = tally_release, .memory_user = memory};
    tess_context *context = NULL;

    assert_fine(NULL, tess_context_create(&desc, &context));
    return context;
}

static int64_t left(void)
{
    return fake->contexts + fake->queues + fake->buffers + fake->programs + fake->kernels +
           fake->events;
}

static void assert_driver_is_empty(const char *after)
{
    if (left() != 0 || fake->complaint[0])
        fail_msg("after %s: %d objects are left; %s", after, (int)left(), fake->complaint);
}

/* ---- A whole life ---------------------------------------------------------------------------- */

enum { BYTES = 1 << 16 };

typedef struct life {
    tess_context *context;
    tess_device *device;
    tess_queue *queue;
    tess_plan *forward, *backward;
    tess_event *start, *end;
    void *memory[12];
} life;

static tess_attention_desc desc_of(void)
{
    tess_attention_desc desc = small_desc();

    desc.k = tess_layout_packed(TESS_F32, SMALL_BATCH, 200, SMALL_HEADS_KV, SMALL_DIM);
    desc.v = tess_layout_packed(TESS_F32, SMALL_BATCH, 200, SMALL_HEADS_KV, SMALL_DIM_V);
    desc.num_splits = 2;
    return desc;
}

static tess_status make(life *l)
{
    const tess_attention_desc desc = desc_of();

    TESS_TRY(tess_device_open(l->context, "opencl", &l->device));
    TESS_TRY(tess_queue_create(l->device, &l->queue));
    TESS_TRY(tess_event_create(l->device, &l->start));
    TESS_TRY(tess_event_create(l->device, &l->end));
    TESS_TRY(tess_plan_create_forward(l->device, &desc, &l->forward));
    TESS_TRY(tess_plan_create_backward(l->device, &desc, NULL, &l->backward));
    for (size_t i = 0; i < COUNT(l->memory); i++)
        TESS_TRY(tess_device_allocate(l->device, BYTES, &l->memory[i]));
    return TESS_OK;
}

static tess_forward_args forward_args(const life *l)
{
    return (tess_forward_args){TESS_STRUCT(tess_forward_args), .q = {l->memory[0], 64},
                               .k = {l->memory[1], 0},         .v = {l->memory[2], 128},
                               .o = {l->memory[3], 0},         .lse = {l->memory[4], 0}};
}

static tess_status run(life *l)
{
    const tess_forward_args f = forward_args(l);
    const tess_backward_args b = {TESS_STRUCT(tess_backward_args),
                                  .q = f.q,
                                  .k = f.k,
                                  .v = f.v,
                                  .o = {f.o.base, 0},
                                  .lse = {f.lse.base, 0},
                                  .d_o = {l->memory[5], 0},
                                  .dq = {l->memory[6], 0},
                                  .dk = {l->memory[7], 0},
                                  .dv = {l->memory[8], 0}};
    char bytes[64] = "";
    double seconds;

    TESS_TRY(tess_queue_upload(l->queue, l->memory[0], bytes, sizeof bytes));
    TESS_TRY(tess_event_record(l->start, l->queue));
    TESS_TRY(tess_plan_run_forward(l->forward, l->queue, &f));
    TESS_TRY(tess_plan_run_backward(l->backward, l->queue, &b));
    TESS_TRY(tess_event_record(l->end, l->queue));
    TESS_TRY(tess_event_record(l->end, l->queue)); /* once more: the first one goes */
    TESS_TRY(tess_event_elapsed(l->start, l->end, &seconds));
    TESS_TRY(tess_queue_download(l->queue, bytes, l->memory[3], sizeof bytes));
    return tess_queue_wait(l->queue);
}

static void end(life *l)
{
    for (size_t i = 0; l->device && i < COUNT(l->memory); i++)
        tess_device_release(l->device, l->memory[i], BYTES);
    tess_event_destroy(l->start);
    tess_event_destroy(l->end);
    tess_plan_destroy(l->forward);
    tess_plan_destroy(l->backward);
    tess_queue_destroy(l->queue);
    tess_context_destroy(l->context);
}

static tess_status live(tally *memory, char *text, size_t size)
{
    life l;
    tess_status status;

    memset(&l, 0, sizeof l);
    l.context = make_context(memory);
    status = make(&l);
    if (status == TESS_OK)
        status = run(&l);
    text[0] = '\0';
    if (status != TESS_OK)
        tess_context_error(l.context, text, size);
    end(&l);
    return status;
}

/* ---- What a launch gets ---------------------------------------------------------------------- */

static void a_launch_gets_numbers_buffers_and_offsets(void **state)
{
    tally memory = TALLY_EMPTY;
    const fake_cl_launch *launch;
    void *handles[3];
    life l;

    (void)state;
    use_loader(0);
    memset(&l, 0, sizeof l);
    l.context = make_context(&memory);
    assert_fine(l.context, make(&l));
    memcpy(handles, l.memory, sizeof handles);
    assert_fine(l.context, run(&l));
    assert_true(fake->launches >= 5); /* main, redo, combine; delta, main, dQ */
    launch = &fake->launch[0];
    assert_int_equal(launch->parameters, 1 + 2 * (TESS_AT_WORKSPACE + 1) + 2);
    assert_ptr_equal(launch->parameter[1].value.object, handles[0]);
    assert_int_equal(launch->parameter[2].value.number, 64);
    assert_ptr_equal(launch->parameter[5].value.object, handles[2]);
    assert_int_equal(launch->parameter[6].value.number, 128);
    assert_null(launch->parameter[1 + 2 * TESS_AT_BIAS].value.object);
    assert_non_null(launch->parameter[1 + 2 * TESS_AT_WORKSPACE].value.object);
    assert_int_equal(launch->args.head_dim, SMALL_DIM);
    assert_int_equal(launch->args.splits, 2);
    assert_int_equal(launch->parameter[launch->parameters - 2].value.number, 0);
    assert_int_equal((size_t)launch->parameter[launch->parameters - 1].value.number * launch->local,
                     launch->global);
    launch = &fake->launch[fake->launches - 1];
    assert_int_equal(launch->parameters, 1 + 2 * TESS_AT_COUNT + 2);
    assert_non_null(strstr(fake->options, "-cl-std=CL1.2"));
    assert_null(strstr(fake->options, "fast"));
    end(&l);
    assert_nothing_is_left(&memory);
    assert_driver_is_empty("a life");
}

/* A workspace of the caller's begins on the next cache line. */
static void a_workspace_is_aligned(void **state)
{
    tally memory = TALLY_EMPTY;
    tess_forward_args args;
    life l;

    (void)state;
    use_loader(0);
    memset(&l, 0, sizeof l);
    l.context = make_context(&memory);
    assert_fine(l.context, make(&l));
    args = forward_args(&l);
    args.workspace = (tess_out){l.memory[9], 8};
    args.workspace_size = BYTES - 8;
    assert_true(tess_plan_workspace_size(l.forward) <= args.workspace_size);
    assert_fine(l.context, tess_plan_run_forward(l.forward, l.queue, &args));
    assert_ptr_equal(fake->launch[0].parameter[1 + 2 * TESS_AT_WORKSPACE].value.object,
                     l.memory[9]);
    assert_int_equal(fake->launch[0].parameter[2 + 2 * TESS_AT_WORKSPACE].value.number, 64);
    end(&l);
    assert_nothing_is_left(&memory);
    assert_driver_is_empty("a life");
}

/* In one buffer an output may lie beside an input, not on it. */
static void tensors_of_one_buffer_may_not_overlap(void **state)
{
    tally memory = TALLY_EMPTY;
    tess_forward_args args;
    life l;

    (void)state;
    use_loader(0);
    memset(&l, 0, sizeof l);
    l.context = make_context(&memory);
    assert_fine(l.context, make(&l));
    args = forward_args(&l);
    args.o = (tess_out){l.memory[0], 128};
    assert_refused(l.context, tess_plan_run_forward(l.forward, l.queue, &args), TESS_INVALID,
                   "tess_plan_run_forward", "o shares memory with q", "O on Q");
    args.o.offset = BYTES / 2;
    assert_fine(l.context, tess_plan_run_forward(l.forward, l.queue, &args));
    end(&l);
    assert_nothing_is_left(&memory);
    assert_driver_is_empty("an overlap");
}

static void *run_often(void *user)
{
    life *const l = user;
    const tess_forward_args args = forward_args(l);
    tess_queue *queue = NULL;

    if (tess_queue_create(l->device, &queue) != TESS_OK)
        return user;
    for (int i = 0; i < 200; i++)
        if (tess_plan_run_forward(l->forward, queue, &args) != TESS_OK)
            return user;
    tess_queue_destroy(queue);
    return NULL;
}

static void threads_share_a_plan(void **state)
{
    tally memory = TALLY_EMPTY;
    pthread_t threads[4];
    void *result;
    life l;

    (void)state;
    use_loader(0);
    memset(&l, 0, sizeof l);
    l.context = make_context(&memory);
    assert_fine(l.context, make(&l));
    for (size_t i = 0; i < COUNT(threads); i++)
        assert_int_equal(pthread_create(&threads[i], NULL, run_often, &l), 0);
    for (size_t i = 0; i < COUNT(threads); i++) {
        assert_int_equal(pthread_join(threads[i], &result), 0);
        assert_null(result);
    }
    end(&l);
    assert_nothing_is_left(&memory);
    assert_driver_is_empty("threads");
}

/* ---- Devices and names ----------------------------------------------------------------------- */

static void assert_name(tess_context *context, const char *asked, const char *wanted)
{
    tess_device *device = NULL;

    assert_fine(context, tess_device_open(context, asked, &device));
    assert_string_equal(device->name, wanted);
}

static void devices_are_named_by_platform(void **state)
{
    static const char *const strange[] = {"opencl::0", "opencl:nvidia:", "opencl:nvidia:x",
                                          "opencl:a-platform-that-nobody-has-made"};
    tally memory = TALLY_EMPTY;
    tess_device *device = NULL;
    tess_context *context;

    (void)state;
    use_loader(1);
    fake->platforms = 4;
    fake->platform[0] = "rusticl";
    fake->platform[1] = "NVIDIA CUDA";
    fake->platform[2] = "Intel(R) OpenCL Graphics";
    fake->platform[3] = "Intel(R) OpenCL";
    fake->devices = 2;
    context = make_context(&memory);
    assert_name(context, "opencl", "opencl:intel:0"); /* sorted, so the same on every start */
    assert_name(context, "opencl:intel", "opencl:intel:0");
    assert_name(context, "opencl:intel-2:1", "opencl:intel-2:1");
    assert_name(context, "opencl:nvidia:1", "opencl:nvidia:1");
    assert_name(context, "opencl:3:0", "opencl:rusticl:0");
    assert_name(context, "opencl:2", "opencl:nvidia:0");
    assert_refused(context, tess_device_open(context, "opencl:pocl:0", &device), TESS_UNAVAILABLE,
                   "tess_device_open", "\"opencl:pocl:0\" is not there|opencl:rusticl:1", "pocl");
    assert_refused(context, tess_device_open(context, "opencl:intel:2", &device), TESS_UNAVAILABLE,
                   "tess_device_open", "is not there", "a third device");
    for (size_t i = 0; i < COUNT(strange); i++) {
        const tess_status status = tess_device_open(context, strange[i], &device);
        assert_true(status == TESS_INVALID || status == TESS_UNAVAILABLE);
    }
    tess_context_destroy(context);
    assert_nothing_is_left(&memory);
    assert_driver_is_empty("names");
}

/* What a context is told of OpenCL when it is not to be had. */
static void assert_absent(const char *pieces)
{
    tally memory = TALLY_EMPTY;
    tess_device *device = NULL;
    tess_context *context = make_context(&memory);

    assert_refused(context, tess_device_open(context, "opencl", &device), TESS_UNAVAILABLE,
                   "tess_device_open", pieces, pieces);
    tess_context_destroy(context);
    assert_nothing_is_left(&memory);
    assert_driver_is_empty(pieces);
}

static void what_is_not_there_has_a_reason(void **state)
{
    (void)state;
    use_loader(2);
    fake->platforms = 0;
    assert_absent("finds no platform|OCL_ICD_VENDORS");
    fake->platforms = 2;
    fake->platform[1] = "Clover";
    fake->devices = 0;
    assert_absent("2 platforms without a device");
    fake->reset();
    fake->fails_at = 1;
    assert_absent("clGetPlatformIDs says CL_OUT_OF_RESOURCES (-5)");
    setenv("TESSERA_OPENCL_LIBRARY", "/nowhere/libOpenCL.so", 1);
    assert_absent("no OpenCL loader|/nowhere/libOpenCL.so");
    setenv("TESSERA_OPENCL_LIBRARY", "libm.so.6", 1);
    assert_absent("has no clGetPlatformIDs");
}

static void a_device_that_cannot_be_used_has_a_reason(void **state)
{
    (void)state;
    use_loader(0);
    fake->is_available = 0;
    assert_absent("cannot be used|not available");
    fake->reset();
    fake->has_compiler = 0;
    assert_absent("cannot be used|has no compiler");
    fake->reset();
    fake->local_memory = 16384;
    assert_absent("cannot be used|16384 bytes of local memory");
    fake->reset();
    fake->group = 64;
    assert_absent("cannot be used|at most 64 work-items");
}

static void a_failed_compile_shows_the_log(void **state)
{
    tally memory = TALLY_EMPTY;
    tess_context *context;
    tess_device *device = NULL;
    tess_plan *plan = NULL;
    const tess_attention_desc desc = desc_of();
    char text[4096];

    (void)state;
    use_loader(0);
    fake->build_log = "one\ntwo\nthree\nfour\nfive\nsix\nseven\n";
    context = make_context(&memory);
    assert_fine(context, tess_device_open(context, "opencl", &device));
    assert_refused(context, tess_plan_create_forward(device, &desc, &plan), TESS_DEVICE_FAILED,
                   "tess_plan_create_forward",
                   "clBuildProgram says CL_BUILD_PROGRAM_FAILURE (-11)|-cl-std=CL1.2|one\ntwo|six",
                   "a compile");
    tess_context_error(context, text, sizeof text);
    assert_null(strstr(text, "seven"));
    assert_null(plan);
    tess_context_destroy(context);
    assert_nothing_is_left(&memory);
    assert_driver_is_empty("a failed compile");
}

/* ---- Programs on disk ------------------------------------------------------------------------ */

/* Files of the folder; with size 0 they are only counted, else each is overwritten or cut. */
typedef void (*file_fn)(const char *path);

static int each_file(file_fn visit)
{
    DIR *const directory = opendir(folder);
    const struct dirent *entry;
    int count = 0;

    while (directory && (entry = readdir(directory)) != NULL) {
        char path[1024];

        if (entry->d_name[0] == '.')
            continue;
        snprintf(path, sizeof path, "%s/%s", folder, entry->d_name);
        if (visit)
            visit(path);
        count++;
    }
    if (directory)
        closedir(directory);
    return count;
}

static void remove_file(const char *path)
{
    assert_int_equal(unlink(path), 0);
}

static void spoil_last_byte(const char *path)
{
    const int file = open(path, O_RDWR);
    struct stat about;

    assert_int_equal(fstat(file, &about), 0);
    assert_int_equal(pwrite(file, "!", 1, about.st_size - 1), 1);
    close(file);
}

static void cut_file(const char *path)
{
    assert_int_equal(truncate(path, 30), 0);
}

/* Lives once; programs made from their texts and from binaries. */
static void live_counted(int64_t *out_source, int64_t *out_binary)
{
    tally memory = TALLY_EMPTY;
    char text[4096];

    fake->from_source = fake->from_binary = 0;
    if (live(&memory, text, sizeof text) != TESS_OK)
        fail_msg("%s", text);
    assert_nothing_is_left(&memory);
    assert_driver_is_empty("a life with a cache");
    *out_source = fake->from_source;
    *out_binary = fake->from_binary;
}

static void assert_lives(int64_t source, int64_t binary, const char *what)
{
    int64_t from_source, from_binary;

    live_counted(&from_source, &from_binary);
    if (from_source != source || from_binary != binary)
        fail_msg("%s: %d programs from texts and %d from binaries, not %d and %d", what,
                 (int)from_source, (int)from_binary, (int)source, (int)binary);
}

static void programs_are_kept_on_disk(void **state)
{
    int64_t programs, none;

    (void)state;
    use_loader(0);
    setenv("TESSERA_CACHE", folder, 1);
    each_file(remove_file);
    live_counted(&programs, &none);
    assert_true(programs > 3);
    assert_int_equal(none, 0);
    assert_int_equal(each_file(NULL), programs);
    assert_lives(0, programs, "the second time");
    each_file(spoil_last_byte);
    assert_lives(programs, 0, "spoiled files");
    assert_lives(0, programs, "after that");
    each_file(cut_file);
    assert_lives(programs, 0, "cut files");
    fake->refuses_binaries = true;
    assert_lives(programs, 0, "a driver that refuses");
    fake->refuses_binaries = false;
    assert_lives(0, programs, "and then does not");
    fake->driver_version = "1.1";
    assert_lives(programs, 0, "another driver");
    assert_int_equal(each_file(NULL), 2 * programs);
    fake->driver_version = "1.2";
    fake->hides_binaries = true;
    assert_lives(programs, 0, "a driver that gives no binary");
    assert_int_equal(each_file(NULL), 2 * programs);
    fake->hides_binaries = false;
    setenv("TESSERA_CACHE", "off", 1);
    assert_lives(programs, 0, "no cache");
    setenv("TESSERA_CACHE", "/proc/no-such-folder/here", 1);
    assert_lives(programs, 0, "a folder that cannot be made");
    setenv("TESSERA_CACHE", "off", 1);
    each_file(remove_file);
}

/* Two files of 200 MB, empty but for their size: the older one goes, and then the other. */
static void the_cache_is_bounded(void **state)
{
    static const char *const names[] = {"opencl-old", "opencl-older", "another-program"};
    char paths[3][512];
    int64_t programs, none;

    (void)state;
    use_loader(0);
    each_file(remove_file);
    for (int i = 0; i < 3; i++) {
        const struct timespec times[2] = {{1000000 - 1000 * i, 0}, {1000000 - 1000 * i, 0}};
        int file;

        snprintf(paths[i], sizeof paths[i], "%s/%s", folder, names[i]);
        file = open(paths[i], O_WRONLY | O_CREAT, 0600);
        assert_int_equal(ftruncate(file, 200 << 20), 0);
        assert_int_equal(futimens(file, times), 0);
        close(file);
    }
    setenv("TESSERA_CACHE", folder, 1);
    live_counted(&programs, &none);
    assert_int_equal(access(paths[0], F_OK), 0);  /* fits beside them */
    assert_int_equal(access(paths[1], F_OK), -1); /* was used longest ago */
    assert_int_equal(access(paths[2], F_OK), 0);  /* is nobody's business */
    assert_int_equal(each_file(NULL), programs + 2);
    setenv("TESSERA_CACHE", "off", 1);
    each_file(remove_file);
}

/* ---- Contexts of the caller's ---------------------------------------------------------------- */

typedef void *(*create_context_fn)(const intptr_t *, uint32_t, void *const *, void *, void *,
                                   int32_t *);
typedef void *(*create_queue_fn)(void *, void *, uint64_t, int32_t *);
typedef int32_t (*release_fn)(void *);
typedef int32_t (*devices_fn)(void *, uint64_t, uint32_t, void **, uint32_t *);
typedef int32_t (*platforms_fn)(uint32_t, void **, uint32_t *);

static void *opened;

static tess_symbol symbol(const char *name)
{
    tess_symbol function = tess_library_symbol(opened, name);

    assert_non_null(function);
    return function;
}

static void a_context_of_the_callers_is_wrapped(void **state)
{
    tally memory = TALLY_EMPTY;
    tess_context *context;
    tess_device *device = NULL, *again = NULL, *other = NULL;
    tess_device_info info = {TESS_STRUCT(tess_device_info)};
    tess_queue *queue = NULL;
    tess_event *event = NULL, *later = NULL;
    void *platform, *native_device, *native, *stranger, *in_order, *untimed, *unordered;
    uint32_t count;
    int32_t code;
    double seconds;

    (void)state;
    use_loader(0);
    fake->type = 1 << 1; /* a CPU */
    ((platforms_fn)symbol("clGetPlatformIDs"))(1, &platform, &count);
    ((devices_fn)symbol("clGetDeviceIDs"))(platform, ~0ull, 1, &native_device, &count);
    native =
        ((create_context_fn)symbol("clCreateContext"))(NULL, 1, &native_device, NULL, NULL, &code);
    stranger =
        ((create_context_fn)symbol("clCreateContext"))(NULL, 1, &platform, NULL, NULL, &code);
    in_order = ((create_queue_fn)symbol("clCreateCommandQueue"))(native, native_device, 2, &code);
    untimed = ((create_queue_fn)symbol("clCreateCommandQueue"))(native, native_device, 0, &code);
    unordered = ((create_queue_fn)symbol("clCreateCommandQueue"))(native, native_device, 1, &code);

    context = make_context(&memory);
    assert_fine(context, tess_device_wrap_opencl(context, native, native_device, &device));
    assert_fine(context, tess_device_wrap_opencl(context, native, native_device, &again));
    assert_ptr_equal(device, again);
    assert_fine(context, tess_device_open(context, "opencl", &other));
    assert_ptr_not_equal(device, other);
    assert_fine(context, tess_device_get_info(device, &info));
    assert_string_equal(info.name, device->name);
    assert_int_equal(info.kind, TESS_DEVICE_CPU);
    assert_refused(context, tess_device_wrap_opencl(context, stranger, native_device, &again),
                   TESS_INVALID, "tess_device_wrap_opencl", "is not one of native_context's",
                   "a stranger");
    assert_refused(context, tess_device_wrap_opencl(context, native, platform, &again),
                   TESS_INVALID, "tess_device_wrap_opencl", "none of the loader's", "no device");
    assert_refused(context, tess_device_wrap_opencl(context, NULL, native_device, &again),
                   TESS_INVALID, "tess_device_wrap_opencl", "native_context is NULL", "NULL");
    assert_refused(context, tess_device_open(context, "opencl:pocl:0@1", &again), TESS_UNAVAILABLE,
                   "tess_device_open", "tess_device_wrap_opencl", "by a made-up name");

    assert_refused(context, tess_queue_wrap_opencl(other, in_order, &queue), TESS_INVALID,
                   "tess_queue_wrap_opencl", "another context", "the other device");
    assert_refused(context, tess_queue_wrap_opencl(device, unordered, &queue), TESS_INVALID,
                   "tess_queue_wrap_opencl", "out of order", "an unordered queue");
    assert_refused(context, tess_queue_wrap_opencl(device, NULL, &queue), TESS_INVALID,
                   "tess_queue_wrap_opencl", "NULL", "no queue");
    assert_fine(context, tess_event_create(device, &event));
    assert_fine(context, tess_event_create(device, &later));
    assert_fine(context, tess_queue_wrap_opencl(device, untimed, &queue));
    assert_fine(context, tess_event_record(event, queue));
    assert_fine(context, tess_event_record(later, queue));
    assert_refused(context, tess_event_elapsed(event, later, &seconds), TESS_UNSUPPORTED,
                   "tess_event_elapsed", "CL_QUEUE_PROFILING_ENABLE", "no times");
    tess_queue_destroy(queue);
    assert_fine(context, tess_queue_wrap_opencl(device, in_order, &queue));
    tess_queue_destroy(queue);
    tess_event_destroy(event);
    tess_event_destroy(later);
    tess_context_destroy(context);
    assert_nothing_is_left(&memory);
    assert_int_equal(fake->contexts, 2); /* the caller's own */
    assert_int_equal(fake->queues, 3);
    ((release_fn)symbol("clReleaseCommandQueue"))(in_order);
    ((release_fn)symbol("clReleaseCommandQueue"))(untimed);
    ((release_fn)symbol("clReleaseCommandQueue"))(unordered);
    ((release_fn)symbol("clReleaseContext"))(native);
    ((release_fn)symbol("clReleaseContext"))(stranger);
    assert_driver_is_empty("wrapping");
}

/* ---- Failures -------------------------------------------------------------------------------- */

/* Calls whose failure has no status to go to, or that have another way out. */
static bool may_be_survived(const char *call)
{
    static const char *const calls[] = {
        "clGetPlatformInfo",  "clGetDeviceInfo",       "clFinish",        "clReleaseContext",
        "clReleaseMemObject", "clReleaseCommandQueue", "clReleaseKernel", "clReleaseProgram",
        "clReleaseEvent",     "clGetProgramInfo",
    };

    for (size_t i = 0; i < COUNT(calls); i++)
        if (strcmp(calls[i], call) == 0)
            return true;
    return false;
}

static void fail_each(int failure, const char *name, tess_status wanted)
{
    tally memory = TALLY_EMPTY;
    char text[8192];
    int64_t calls;

    use_loader(0);
    setenv("TESSERA_CACHE", folder, 1);
    each_file(remove_file);
    assert_int_equal(live(&memory, text, sizeof text), TESS_OK);
    calls = fake->calls;
    assert_true(calls > 100);
    for (int64_t n = 1; n <= calls; n++) {
        tess_status status;

        each_file(remove_file);
        fake->reset();
        fake->fails_at = n;
        fake->failure = failure;
        status = live(&memory, text, sizeof text);
        if (status == TESS_OK && !may_be_survived(fake->failed_call))
            fail_msg("call %d, %s, failed and nobody noticed", (int)n, fake->failed_call);
        else if (status != TESS_OK &&
                 (!strstr(text, fake->failed_call) || !strstr(text, name) || status != wanted))
            fail_msg("%s failed with %s: %s", fake->failed_call, tess_status_name(status), text);
        assert_driver_is_empty(fake->failed_call);
        assert_nothing_is_left(&memory);
    }
    each_file(remove_file);
    setenv("TESSERA_CACHE", "off", 1);
    print_message("%d calls failed in turn\n", (int)calls);
}

static void each_call_fails_in_turn(void **state)
{
    (void)state;
    fail_each(FAKE_CL_OUT_OF_RESOURCES, "CL_OUT_OF_RESOURCES (-5)", TESS_DEVICE_FAILED);
}

static void each_call_runs_out_of_memory_in_turn(void **state)
{
    (void)state;
    fail_each(FAKE_CL_OUT_OF_HOST_MEMORY, "CL_OUT_OF_HOST_MEMORY (-6)", TESS_NO_MEMORY);
}

static void each_allocation_fails_in_turn(void **state)
{
    tally memory = TALLY_EMPTY;
    char text[1024];

    (void)state;
    use_loader(0);
    for (int64_t n = 2;; n++) { /* the first is the context's, whose failure is not of this test */
        tess_status status;

        memory.calls = 0;
        memory.fails_at = n;
        status = live(&memory, text, sizeof text);
        assert_nothing_is_left(&memory);
        assert_driver_is_empty("an allocation");
        if (memory.calls < n) {
            assert_int_equal(status, TESS_OK);
            break;
        }
        assert_int_equal(status, TESS_NO_MEMORY);
    }
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_launch_gets_numbers_buffers_and_offsets),
        cmocka_unit_test(a_workspace_is_aligned),
        cmocka_unit_test(tensors_of_one_buffer_may_not_overlap),
        cmocka_unit_test(threads_share_a_plan),
        cmocka_unit_test(devices_are_named_by_platform),
        cmocka_unit_test(what_is_not_there_has_a_reason),
        cmocka_unit_test(a_device_that_cannot_be_used_has_a_reason),
        cmocka_unit_test(a_failed_compile_shows_the_log),
        cmocka_unit_test(programs_are_kept_on_disk),
        cmocka_unit_test(the_cache_is_bounded),
        cmocka_unit_test(a_context_of_the_callers_is_wrapped),
        cmocka_unit_test(each_call_fails_in_turn),
        cmocka_unit_test(each_call_runs_out_of_memory_in_turn),
        cmocka_unit_test(each_allocation_fails_in_turn),
    };
    int failed;

    if (argc != 2) {
        print_error("usage: %s LIBRARY\n", argv[0]);
        return 1;
    }
    library = argv[1];
    opened = dlopen(library, RTLD_NOW);
    fake = opened ? dlsym(opened, "fake") : NULL;
    snprintf(folder, sizeof folder, "/tmp/tessera-cache-XXXXXX");
    if (!fake || !mkdtemp(folder)) {
        print_error("%s\n", dlerror());
        return 1;
    }
    setenv("TESSERA_CACHE", "off", 1);
    failed = cmocka_run_group_tests(tests, NULL, NULL);
    rmdir(folder);
    return failed != 0;
}
