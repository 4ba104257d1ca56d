/* SPDX-License-Identifier: Apache-2.0
 * Queues, copies and events. */
#include "tests/unit/support.h"

#include <time.h>

static void what_is_uploaded_comes_back(void **state)
{
    enum { SIZE = 1000 };
    unsigned char sent[SIZE], back[SIZE + 1] = {0};
    void *memory = NULL;
    world w;

    (void)state;
    world_open(&w, 1);
    assert_fine(w.context, tess_device_allocate(w.device, SIZE, &memory));
    for (int i = 0; i < SIZE; i++)
        sent[i] = (unsigned char)(i * 7);
    back[SIZE] = 0xcc;
    assert_fine(w.context, tess_queue_upload(w.queue, memory, sent, SIZE));
    memset(sent, 0, sizeof sent); /* the host's memory may change at once */
    assert_fine(w.context, tess_queue_download(w.queue, back, memory, SIZE));
    for (int i = 0; i < SIZE; i++)
        assert_int_equal(back[i], (unsigned char)(i * 7));
    assert_int_equal(back[SIZE], 0xcc);
    assert_fine(w.context, tess_queue_wait(w.queue));
    tess_device_release(w.device, memory, SIZE);
    world_close(&w);
}

static void a_copy_of_nothing_needs_nothing(void **state)
{
    world w;

    (void)state;
    world_open(&w, 1);
    assert_fine(w.context, tess_queue_upload(w.queue, NULL, NULL, 0));
    assert_fine(w.context, tess_queue_download(w.queue, NULL, NULL, 0));
    world_close(&w);
}

static void a_copy_of_something_needs_both_ends(void **state)
{
    char here[8] = "1234567", there[8] = "abcdefg";
    world w;

    (void)state;
    world_open(&w, 1);
    assert_refused(w.context, tess_queue_upload(w.queue, NULL, here, 8), TESS_INVALID,
                   "tess_queue_upload", "device_memory is NULL but size is 8", "no destination");
    assert_refused(w.context, tess_queue_upload(w.queue, there, NULL, 8), TESS_INVALID,
                   "tess_queue_upload", "host_memory is NULL but size is 8", "no source");
    assert_refused(w.context, tess_queue_download(w.queue, NULL, there, 8), TESS_INVALID,
                   "tess_queue_download", "host_memory is NULL but size is 8", "no destination");
    assert_refused(w.context, tess_queue_download(w.queue, here, NULL, 8), TESS_INVALID,
                   "tess_queue_download", "device_memory is NULL but size is 8", "no source");
    assert_string_equal(here, "1234567");
    assert_string_equal(there, "abcdefg");
    world_close(&w);
}

static void objects_that_are_not_there_are_named(void **state)
{
    tess_queue *queue = NULL;
    tess_event *event = NULL;
    double seconds = 0;
    char byte = 0;
    world w;

    (void)state;
    world_open(&w, 1);
    assert_fine(w.context, tess_event_create(w.device, &event));
    assert_refused(NULL, tess_queue_create(NULL, &queue), TESS_INVALID, "tess_queue_create",
                   "device is NULL", "no device");
    assert_refused(w.context, tess_queue_create(w.device, NULL), TESS_INVALID, "tess_queue_create",
                   "out_queue is NULL", "nowhere to put it");
    assert_refused(NULL, tess_queue_wait(NULL), TESS_INVALID, "tess_queue_wait", "queue is NULL",
                   "no queue");
    assert_refused(NULL, tess_queue_upload(NULL, &byte, &byte, 0), TESS_INVALID,
                   "tess_queue_upload", "queue is NULL", "no queue");
    assert_refused(NULL, tess_queue_download(NULL, &byte, &byte, 1), TESS_INVALID,
                   "tess_queue_download", "queue is NULL", "no queue");
    assert_refused(NULL, tess_event_create(NULL, &event), TESS_INVALID, "tess_event_create",
                   "device is NULL", "no device");
    assert_refused(w.context, tess_event_create(w.device, NULL), TESS_INVALID, "tess_event_create",
                   "out_event is NULL", "nowhere to put it");
    assert_refused(NULL, tess_event_record(NULL, w.queue), TESS_INVALID, "tess_event_record",
                   "event is NULL", "no event");
    assert_refused(NULL, tess_event_record(event, NULL), TESS_INVALID, "tess_event_record",
                   "queue is NULL", "no queue");
    assert_refused(NULL, tess_event_elapsed(NULL, event, &seconds), TESS_INVALID,
                   "tess_event_elapsed", "start is NULL", "no start");
    assert_refused(NULL, tess_event_elapsed(event, NULL, &seconds), TESS_INVALID,
                   "tess_event_elapsed", "end is NULL", "no end");
    tess_event_destroy(event);
    tess_event_destroy(NULL);
    tess_queue_destroy(NULL);
    world_close(&w);
}

static void events_measure_the_time_between(void **state)
{
    const struct timespec pause = {.tv_nsec = 20 * 1000 * 1000};
    tess_event *start = NULL, *end = NULL;
    double seconds = -1, again = -1;
    world w;

    (void)state;
    world_open(&w, 1);
    assert_fine(w.context, tess_event_create(w.device, &start));
    assert_fine(w.context, tess_event_create(w.device, &end));
    assert_fine(w.context, tess_event_record(start, w.queue));
    nanosleep(&pause, NULL);
    assert_fine(w.context, tess_event_record(end, w.queue));
    assert_fine(w.context, tess_event_elapsed(start, end, &seconds));
    assert_true(seconds >= 0.019 && seconds < 10);
    assert_fine(w.context, tess_event_elapsed(end, start, &again));
    assert_true(again == -seconds);
    assert_fine(w.context, tess_event_record(start, w.queue)); /* an event may be used again */
    assert_fine(w.context, tess_event_elapsed(start, end, &again));
    assert_true(again <= 0 && again > -10);
    tess_event_destroy(start);
    tess_event_destroy(end);
    world_close(&w);
}

static void an_event_that_was_never_recorded_has_no_time(void **state)
{
    tess_event *recorded = NULL, *blank = NULL;
    double seconds = 42;
    world w;

    (void)state;
    world_open(&w, 1);
    assert_fine(w.context, tess_event_create(w.device, &recorded));
    assert_fine(w.context, tess_event_create(w.device, &blank));
    assert_fine(w.context, tess_event_record(recorded, w.queue));
    assert_refused(w.context, tess_event_elapsed(blank, recorded, &seconds), TESS_INVALID,
                   "tess_event_elapsed", "start was never recorded", "start");
    assert_refused(w.context, tess_event_elapsed(recorded, blank, &seconds), TESS_INVALID,
                   "tess_event_elapsed", "end was never recorded", "end");
    assert_refused(w.context, tess_event_elapsed(recorded, recorded, NULL), TESS_INVALID,
                   "tess_event_elapsed", "out_seconds is NULL", "nowhere to put it");
    assert_true(seconds == 42);
    tess_event_destroy(recorded);
    tess_event_destroy(blank);
    world_close(&w);
}

static void objects_of_two_contexts_do_not_mix(void **state)
{
    tess_event *mine = NULL, *yours = NULL;
    double seconds = 42;
    world a, b;

    (void)state;
    world_open(&a, 1);
    world_open(&b, 1);
    assert_fine(a.context, tess_event_create(a.device, &mine));
    assert_fine(b.context, tess_event_create(b.device, &yours));
    assert_refused(b.context, tess_event_record(mine, b.queue), TESS_INVALID, "tess_event_record",
                   "queue is of cpu|event is of cpu of another context", "foreign queue");
    assert_fine(a.context, tess_event_record(mine, a.queue));
    assert_fine(b.context, tess_event_record(yours, b.queue));
    assert_refused(a.context, tess_event_elapsed(mine, yours, &seconds), TESS_INVALID,
                   "tess_event_elapsed", "start is of cpu|end is of cpu of another context",
                   "foreign event");
    assert_true(seconds == 42);
    tess_event_destroy(mine);
    tess_event_destroy(yours);
    world_close(&a);
    world_close(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_uploaded_comes_back),
        cmocka_unit_test(a_copy_of_nothing_needs_nothing),
        cmocka_unit_test(a_copy_of_something_needs_both_ends),
        cmocka_unit_test(objects_that_are_not_there_are_named),
        cmocka_unit_test(events_measure_the_time_between),
        cmocka_unit_test(an_event_that_was_never_recorded_has_no_time),
        cmocka_unit_test(objects_of_two_contexts_do_not_mix),
    };
    const int failed = cmocka_run_group_tests(tests, NULL, NULL);

    return failed != 0;
}
