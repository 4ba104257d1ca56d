/* SPDX-License-Identifier: Apache-2.0
 * The CPU as a device: its facts, to callers of every age, and its memory. */
#include "tests/unit/support.h"

static const char list_call[] = "tess_context_device_info", open_call[] = "tess_device_get_info";

static void the_list_and_the_device_agree(void **state)
{
    tess_device_info listed = {TESS_STRUCT(tess_device_info)}, open = listed;
    world w;

    (void)state;
    world_open(&w, 3);
    assert_true(tess_context_device_count(w.context) >= 1);
    assert_fine(w.context, tess_context_device_info(w.context, 0, &listed));
    assert_fine(w.context, tess_device_get_info(w.device, &open));
    if (strcmp(listed.name, "cpu") == 0)
        assert_memory_equal(&listed, &open, sizeof open);
    assert_string_equal(open.name, "cpu");
    assert_int_equal(open.kind, TESS_DEVICE_CPU);
    assert_int_equal(open.available, 1);
    assert_int_equal(open.units, 3);
    assert_true(open.lanes >= 1);
    assert_true(open.memory > 0);
    assert_true(open.architecture[0] != '\0' && open.description[0] != '\0');
    assert_string_equal(open.reason, "");
    world_close(&w);
}

/* An older, shorter caller gets what fits and nothing behind it. */
static void a_shorter_caller_gets_what_it_knows(void **state)
{
    world w;

    (void)state;
    world_open(&w, 2);
    for (size_t size = sizeof(size_t) + 8; size < sizeof(tess_device_info); size += 8) {
        tess_device_info whole = {TESS_STRUCT(tess_device_info)};
        unsigned char part[sizeof(tess_device_info)];

        memset(part, 0xee, sizeof part);
        memcpy(part, &size, sizeof size);
        assert_fine(w.context, tess_device_get_info(w.device, &whole));
        assert_fine(w.context, tess_device_get_info(w.device, (tess_device_info *)(void *)part));
        assert_memory_equal(part, &size, sizeof size); /* the caller's own number stays */
        assert_memory_equal(part + sizeof size, (unsigned char *)&whole + sizeof size,
                            size - sizeof size);
        for (size_t i = size; i < sizeof part; i++)
            assert_int_equal(part[i], 0xee);
    }
    world_close(&w);
}

/* A newer, longer caller need not have cleared what the library is to write. */
static void a_longer_caller_gets_zeros(void **state)
{
    enum { LATER = sizeof(tess_device_info) + 40, ROOM = LATER + 16 };
    union {
        tess_device_info info;
        unsigned char bytes[ROOM];
    } later;
    world w;

    (void)state;
    world_open(&w, 2);
    for (int which = 0; which < 2; which++) {
        memset(&later, 0xee, sizeof later);
        later.info.struct_size = LATER;
        assert_fine(w.context, which ? tess_device_get_info(w.device, &later.info)
                                     : tess_context_device_info(w.context, 0, &later.info));
        assert_int_equal(later.info.struct_size, LATER);
        assert_int_equal(later.info.available, 1);
        for (size_t i = sizeof later.info; i < LATER; i++)
            assert_int_equal(later.bytes[i], 0);
        for (size_t i = LATER; i < ROOM; i++)
            assert_int_equal(later.bytes[i], 0xee);
    }
    world_close(&w);
}

static void wrong_questions_are_refused(void **state)
{
    static const size_t wrong[] = {0, 1, 8, 65537, SIZE_MAX};
    tess_device_info info = {TESS_STRUCT(tess_device_info)}, untouched;
    world w;

    (void)state;
    world_open(&w, 1);

    const size_t count = tess_context_device_count(w.context);
    char pieces[64];

    snprintf(pieces, sizeof pieces, "index is %zu|0 to %zu", count, count - 1);
    memset(&info.memory, 0xee, sizeof info - sizeof info.struct_size);
    untouched = info;
    assert_refused(w.context, tess_context_device_info(w.context, count, &info), TESS_INVALID,
                   list_call, pieces, "past the end");
    assert_refused(w.context, tess_context_device_info(w.context, SIZE_MAX, &info), TESS_INVALID,
                   list_call, "index is 18446744073709551615", "far past the end");
    assert_refused(w.context, tess_context_device_info(w.context, 0, NULL), TESS_INVALID, list_call,
                   "info is NULL", "nowhere to put it");
    assert_refused(w.context, tess_device_get_info(w.device, NULL), TESS_INVALID, open_call,
                   "info is NULL", "nowhere to put it");
    assert_memory_equal(&info, &untouched, sizeof info);
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        info.struct_size = untouched.struct_size = wrong[i];
        snprintf(pieces, sizeof pieces, "info.struct_size is %zu", wrong[i]);
        assert_refused(w.context, tess_context_device_info(w.context, 0, &info), TESS_INVALID,
                       list_call, pieces, "struct_size");
        assert_refused(w.context, tess_device_get_info(w.device, &info), TESS_INVALID, open_call,
                       pieces, "struct_size");
        assert_memory_equal(&info, &untouched, sizeof info);
    }
    world_close(&w);
}

static void the_wrong_cpu_is_not_there(void **state)
{
    tess_device *device = NULL;
    world w;

    (void)state;
    world_open(&w, 1);
    assert_refused(w.context, tess_device_open(w.context, "cpu:1", &device), TESS_UNAVAILABLE,
                   "tess_device_open", "\"cpu:1\"|one device, \"cpu\"", "a second one");
    assert_refused(w.context, tess_device_open(w.context, "cpu:pocl:0", &device), TESS_UNAVAILABLE,
                   "tess_device_open", "\"cpu:pocl:0\"", "a part of it");
    assert_refused(w.context, tess_device_open(w.context, "cpu", NULL), TESS_INVALID,
                   "tess_device_open", "out_device is NULL", "nowhere to put it");
    assert_null(device);
    assert_fine(w.context, tess_device_open(w.context, "cpu", &device));
    assert_ptr_equal(device, w.device);
    world_close(&w);
}

static void objects_that_are_not_there_are_named(void **state)
{
    tess_device_info info = {TESS_STRUCT(tess_device_info)};
    tess_device *device = NULL;
    void *memory = NULL;

    (void)state;
    assert_refused(NULL, tess_device_open(NULL, "cpu", &device), TESS_INVALID, "tess_device_open",
                   "context is NULL", "no context");
    assert_refused(NULL, tess_context_device_info(NULL, 0, &info), TESS_INVALID, list_call,
                   "context is NULL", "no context");
    assert_refused(NULL, tess_device_get_info(NULL, &info), TESS_INVALID, open_call,
                   "device is NULL", "no device");
    assert_refused(NULL, tess_device_allocate(NULL, 8, &memory), TESS_INVALID,
                   "tess_device_allocate", "device is NULL", "no device");
    assert_int_equal(tess_context_device_count(NULL), 0);
    tess_device_release(NULL, NULL, 0);
}

static void memory_is_aligned_and_accounted_for(void **state)
{
    static const size_t sizes[] = {0, 1, 63, 64, 65, 4096, 1 << 20};
    void *memory[sizeof sizes / sizeof sizes[0]];
    world w;

    (void)state;
    world_open(&w, 1);

    const int64_t blocks = w.memory.blocks;

    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        assert_fine(w.context, tess_device_allocate(w.device, sizes[i], &memory[i]));
        assert_int_equal((uintptr_t)memory[i] % 64, 0);
        memset(memory[i], 0x11, sizes[i]);
    }
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++)
        tess_device_release(w.device, memory[i], sizes[i]);
    tess_device_release(w.device, NULL, 100);
    assert_int_equal(w.memory.blocks, blocks);

    void *const untouched = &w;
    void *out = untouched;
    assert_refused(w.context, tess_device_allocate(w.device, 8, NULL), TESS_INVALID,
                   "tess_device_allocate", "out_memory is NULL", "nowhere to put it");
    w.memory.fails_at = w.memory.calls + 1;
    assert_refused(w.context, tess_device_allocate(w.device, 12345, &out), TESS_NO_MEMORY,
                   "tess_device_allocate", "12345 bytes", "no memory");
    assert_ptr_equal(out, untouched);
    world_close(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_list_and_the_device_agree),
        cmocka_unit_test(a_shorter_caller_gets_what_it_knows),
        cmocka_unit_test(a_longer_caller_gets_zeros),
        cmocka_unit_test(wrong_questions_are_refused),
        cmocka_unit_test(the_wrong_cpu_is_not_there),
        cmocka_unit_test(objects_that_are_not_there_are_named),
        cmocka_unit_test(memory_is_aligned_and_accounted_for),
    };
    const int failed = cmocka_run_group_tests(tests, NULL, NULL);

    return failed != 0;
}
