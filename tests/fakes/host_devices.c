/* SPDX-License-Identifier: Apache-2.0
 * Devices, memory, queues and events of GPU backends, on look-alike drivers. */
#include "backends/cuda/driver.h"
#include "backends/hip/driver.h"
#include "tests/fakes/world.h"

#include <pthread.h>
#include <tessera/interop_cuda.h>
#include <tessera/interop_hip.h>

#define COUNT(list) (sizeof(list) / sizeof *(list))

/* ---- Drivers that are not there -------------------------------------------------------------- */

/* Opens the vendor's device in a context of its own, which must fail. */
static void assert_unavailable(const char *name, tess_status wanted, const char *pieces)
{
    tess_context *context = NULL;
    tess_device *device = NULL;

    assert_fine(NULL, tess_context_create(NULL, &context));
    assert_refused(context, tess_device_open(context, name, &device), wanted, "tess_device_open",
                   pieces, pieces);
    assert_null(device);
    tess_context_destroy(context);
}

/* Opens without a wish: the CPU is what is left. */
static void assert_falls_back_to_the_cpu(void)
{
    tess_device_info info = {TESS_STRUCT(tess_device_info)};
    tess_context *context = NULL;
    tess_device *device = NULL;

    assert_fine(NULL, tess_context_create(NULL, &context));
    assert_fine(context, tess_device_open(context, NULL, &device));
    assert_fine(context, tess_device_get_info(device, &info));
    assert_string_equal(info.name, "cpu");
    tess_context_destroy(context);
}

/* With another file in the place of the driver. */
static void with_library(const char *path, void (*check)(void))
{
    const char *const variable = fake_either("TESSERA_CUDA_LIBRARY", "TESSERA_HIP_LIBRARY");
    char before[512];

    snprintf(before, sizeof before, "%s", getenv(variable));
    setenv(variable, path, 1);
    check();
    setenv(variable, before, 1);
}

static void check_absent(void)
{
    assert_unavailable(fake_vendor, TESS_UNAVAILABLE, "is not there: no|driver|/nowhere/at_all.so");
    assert_falls_back_to_the_cpu();
}

static void check_stranger(void)
{
    assert_unavailable(fake_vendor, TESS_UNAVAILABLE,
                       fake_either("driver has no cuInit", "driver has no hipInit"));
    assert_falls_back_to_the_cpu();
}

static void a_missing_driver_is_a_reason(void **state)
{
    (void)state;
    with_library("/nowhere/at_all.so", check_absent);
    with_library("libm.so.6", check_stranger);
}

static void a_driver_without_devices_is_a_reason(void **state)
{
    (void)state;
    fake->reset();
    fake->devices = 0;
    assert_unavailable(fake_vendor, TESS_UNAVAILABLE, "is not there");
    assert_falls_back_to_the_cpu();
    fake->reset();
}

/* ---- Names and facts ------------------------------------------------------------------------- */

static void names_lead_to_devices(void **state)
{
    char name[32];
    tess_device *first = NULL, *again = NULL, *second = NULL, *best = NULL;
    fake_world w;

    (void)state;
    fake_world_open(&w);
    snprintf(name, sizeof name, "%s:0", fake_vendor);
    assert_fine(w.context, tess_device_open(w.context, name, &again));
    assert_ptr_equal(again, w.device);
    snprintf(name, sizeof name, "%s:1", fake_vendor);
    assert_fine(w.context, tess_device_open(w.context, name, &second));
    assert_ptr_not_equal(second, w.device);
    assert_fine(w.context, tess_device_open(w.context, NULL, &best)); /* a GPU before the CPU */
    assert_ptr_equal(best, w.device);
    snprintf(name, sizeof name, "%s:2", fake_vendor);
    assert_refused(w.context, tess_device_open(w.context, name, &first), TESS_UNAVAILABLE,
                   "tess_device_open", "the driver has 2 devices", "one too many");
    snprintf(name, sizeof name, "%s:x", fake_vendor);
    assert_refused(w.context, tess_device_open(w.context, name, &first), TESS_INVALID,
                   "tess_device_open", "is no device|takes a number", "no number");
    fake_world_close(&w);
}

static void devices_say_what_they_are(void **state)
{
    tess_device_info info = {TESS_STRUCT(tess_device_info)};
    fake_world w;

    (void)state;
    fake_world_open(&w);
    assert_fine(w.context, tess_device_get_info(w.device, &info));
    assert_int_equal(info.kind, TESS_DEVICE_GPU);
    assert_int_equal(info.units, 132);
    assert_int_equal(info.lanes, fake_is_hip() ? 64 : 32);
    assert_int_equal(info.memory, (int64_t)1 << 30);
    assert_int_equal(info.available, 1);
    assert_string_equal(info.description, "Look-alike");
    assert_string_equal(info.architecture, fake_either("sm_90", "gfx942"));
    assert_string_equal(w.device->name, fake_either("cuda:0", "hip:0"));
    fake_world_close(&w);
}

static void a_chip_without_kernels_says_so(void **state)
{
    tess_device_info info = {TESS_STRUCT(tess_device_info)};
    tess_context *context = NULL;

    (void)state;
    fake->reset();
    fake->devices = 1;
    fake->chip[0].major = 7;
    fake->chip[0].minor = 5;
    snprintf(fake->chip[0].gcn, sizeof fake->chip[0].gcn, "gfx1030");
    assert_unavailable(fake_vendor, TESS_UNAVAILABLE,
                       fake_either("cannot be used: the chip is sm_75|sm_80 sm_90 compute_80",
                                   "cannot be used: the chip is gfx1030|gfx90a gfx942"));
    assert_fine(NULL, tess_context_create(NULL, &context));
    for (size_t i = 0; i < tess_context_device_count(context); i++) {
        assert_fine(context, tess_context_device_info(context, i, &info));
        if (strncmp(info.name, fake_vendor, strlen(fake_vendor)) == 0) {
            assert_int_equal(info.available, 0);
            assert_non_null(strstr(info.reason, "the chip is"));
        }
    }
    tess_context_destroy(context);
    assert_falls_back_to_the_cpu();
    fake->reset();
}

/* ---- Choice of images ------------------------------------------------------------------------ */

static const char *chosen(const char *chip, int64_t forced)
{
    static const char *const built[] = {"sm_80",  "sm_86",      "sm_90",
                                        "sm_90a", "compute_80", "compute_90"};
    tess_env env;
    const char *best = "none";
    int best_suits = 0;

    memset(&env, 0, sizeof env);
    env.cuda_arch = forced;
    for (size_t i = 0; i < COUNT(built); i++) {
        const tess_gpu_image image = {.architecture = built[i]};
        const int suits = tess_cuda_suits(&image, chip, &env);

        if (suits > best_suits) {
            best_suits = suits;
            best = built[i];
        }
    }
    return best;
}

static void images_suit_chips(void **state)
{
    static const struct {
        const char *chip;
        int64_t forced;
        const char *image;
    } cases[] = {
        {"sm_75", 0, "none"},         {"sm_80", 0, "sm_80"},       {"sm_86", 0, "sm_86"},
        {"sm_87", 0, "sm_86"},        {"sm_89", 0, "sm_86"},       {"sm_90", 0, "sm_90a"},
        {"sm_100", 0, "compute_90"},  {"sm_120", 0, "compute_90"}, {"sm_90", 80, "compute_80"},
        {"sm_100", 80, "compute_80"}, {"sm_80", 90, "none"},       {"sm_90", 90, "sm_90a"},
        {"sm_89", 80, "sm_80"},       {"sm_90", 86, "none"},
    };

    (void)state;
    for (size_t i = 0; i < COUNT(cases); i++)
        assert_string_equal(chosen(cases[i].chip, cases[i].forced), cases[i].image);
}

/* ---- Memory ---------------------------------------------------------------------------------- */

static void memory_goes_there_and_back(void **state)
{
    static const char sent[] = "all of it";
    char back[sizeof sent] = "";
    void *memory = NULL, *nothing = NULL;
    fake_world w;

    (void)state;
    fake_world_open(&w);
    assert_fine(w.context, tess_device_allocate(w.device, sizeof sent, &memory));
    assert_fine(w.context, tess_device_allocate(w.device, 0, &nothing));
    assert_int_equal((uintptr_t)memory % 64, 0);
    assert_fine(w.context, tess_queue_upload(w.queue, memory, sent, sizeof sent));
    assert_true(fake->waits >= 1); /* the sender may change it now */
    assert_fine(w.context, tess_queue_download(w.queue, back, memory, sizeof back));
    assert_string_equal(back, sent);
    tess_device_release(w.device, memory, sizeof sent);
    tess_device_release(w.device, nothing, 0);
    fake_world_close(&w);
}

static void a_full_device_stays_usable(void **state)
{
    const size_t all = (size_t)1 << 30;
    void *memory = NULL, *more = NULL;
    fake_world w;

    (void)state;
    fake_world_open(&w);
    assert_refused(w.context, tess_device_allocate(w.device, all + 1, &memory), TESS_NO_MEMORY,
                   "tess_device_allocate",
                   fake_either("cuMemAlloc_v2 says CUDA_ERROR_OUT_OF_MEMORY (2)|1073741825 bytes",
                               "hipMalloc says hipErrorOutOfMemory (2)|1073741825 bytes"),
                   "too much");
    assert_null(memory);
    assert_fine(w.context, tess_device_allocate(w.device, all, &memory));
    assert_refused(w.context, tess_device_allocate(w.device, 1, &more), TESS_NO_MEMORY,
                   "tess_device_allocate", fake_either("OUT_OF_MEMORY", "OutOfMemory"), "one more");
    tess_device_release(w.device, memory, all);
    assert_fine(w.context, tess_device_allocate(w.device, 1, &more));
    tess_device_release(w.device, more, 1);
    fake_world_close(&w);
}

/* ---- Queues ---------------------------------------------------------------------------------- */

static tess_status wrap(tess_device *device, void *stream, tess_queue **out_queue)
{
    return fake_is_hip() ? tess_queue_wrap_hip(device, stream, out_queue)
                         : tess_queue_wrap_cuda(device, stream, out_queue);
}

static void streams_of_others_are_wrapped(void **state)
{
    const char *const call = fake_either("tess_queue_wrap_cuda", "tess_queue_wrap_hip");
    tess_queue *own = NULL, *standard = NULL, *wrong = NULL;
    tess_device *cpu = NULL;
    fake_world w;
    int64_t waits;

    (void)state;
    fake_world_open(&w);
    waits = fake->waits;
    assert_fine(w.context, wrap(w.device, fake->foreign_stream(0), &own));
    assert_fine(w.context, wrap(w.device, NULL, &standard));
    tess_queue_destroy(own);
    tess_queue_destroy(standard);
    assert_int_equal(fake->waits, waits); /* nothing of theirs was waited for */
    assert_refused(w.context, wrap(w.device, fake->foreign_stream(1), &wrong), TESS_INVALID, call,
                   "stream is of another device", "another device's");
    assert_refused(w.context, wrap(w.device, NULL, NULL), TESS_INVALID, call, "out_queue is NULL",
                   "nowhere");
    assert_refused(NULL, wrap(NULL, NULL, &wrong), TESS_INVALID, call, "device is NULL",
                   "no device");
    assert_fine(w.context, tess_device_open(w.context, "cpu", &cpu));
    assert_refused(
        w.context, wrap(cpu, NULL, &wrong), TESS_INVALID, call,
        fake_either("device is cpu; it takes one of cuda", "device is cpu; it takes one of hip"),
        "the CPU");
    assert_null(wrong);
    assert_int_equal(fake->streams, 3); /* the queue's own, and two of the program's */
    fake->streams -= 2;                 /* which ends them elsewhere */
    fake_world_close(&w);
}

static void events_tell_the_time(void **state)
{
    tess_event *start = NULL, *end = NULL;
    double seconds = 0;
    fake_world w;

    (void)state;
    fake_world_open(&w);
    assert_fine(w.context, tess_event_create(w.device, &start));
    assert_fine(w.context, tess_event_create(w.device, &end));
    assert_fine(w.context, tess_event_record(start, w.queue));
    assert_fine(w.context, tess_event_record(end, w.queue));
    assert_fine(w.context, tess_event_elapsed(start, end, &seconds));
    assert_true(seconds == 2.5e-3);
    tess_event_destroy(start);
    tess_event_destroy(end);
    fake_world_close(&w);
}

/* ---- Threads and devices --------------------------------------------------------------------- */

typedef struct job {
    tess_context *context;
    int number;
    bool is_good;
} job;

static bool work(const job *j)
{
    char name[32], sent[64], back[64];
    tess_device *device = NULL;
    tess_queue *queue = NULL;
    void *memory = NULL;
    bool is_good;

    snprintf(name, sizeof name, "%s:%d", fake_vendor, j->number % 2);
    if (tess_device_open(j->context, name, &device) != TESS_OK ||
        tess_queue_create(device, &queue) != TESS_OK)
        return false;
    is_good = true;
    for (int i = 0; i < 50 && is_good; i++) {
        snprintf(sent, sizeof sent, "%d of %d", i, j->number);
        is_good = tess_device_allocate(device, sizeof sent, &memory) == TESS_OK &&
                  tess_queue_upload(queue, memory, sent, sizeof sent) == TESS_OK &&
                  tess_queue_download(queue, back, memory, sizeof back) == TESS_OK &&
                  strcmp(sent, back) == 0;
        tess_device_release(device, memory, sizeof sent);
    }
    tess_queue_destroy(queue);
    return is_good && fake->current() == 0;
}

static void *run_job(void *user)
{
    job *j = user;

    j->is_good = work(j);
    return NULL;
}

static void threads_share_devices(void **state)
{
    pthread_t threads[4];
    job jobs[COUNT(threads)];
    fake_world w;

    (void)state;
    fake_world_open(&w);
    for (int i = 0; i < (int)COUNT(threads); i++) {
        jobs[i] = (job){w.context, i, false};
        assert_int_equal(pthread_create(&threads[i], NULL, run_job, &jobs[i]), 0);
    }
    for (size_t i = 0; i < COUNT(threads); i++) {
        pthread_join(threads[i], NULL);
        assert_true(jobs[i].is_good);
    }
    fake_world_close(&w);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_missing_driver_is_a_reason),
        cmocka_unit_test(a_driver_without_devices_is_a_reason),
        cmocka_unit_test(names_lead_to_devices),
        cmocka_unit_test(devices_say_what_they_are),
        cmocka_unit_test(a_chip_without_kernels_says_so),
        cmocka_unit_test(images_suit_chips),
        cmocka_unit_test(memory_goes_there_and_back),
        cmocka_unit_test(a_full_device_stays_usable),
        cmocka_unit_test(streams_of_others_are_wrapped),
        cmocka_unit_test(events_tell_the_time),
        cmocka_unit_test(threads_share_devices),
    };

    fake_world_start(argc, argv);
    return cmocka_run_group_tests(tests, NULL, NULL) != 0;
}
