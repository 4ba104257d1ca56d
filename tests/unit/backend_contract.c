/* SPDX-License-Identifier: Apache-2.0
 * What every backend owes the core, asked of each that was compiled in. */
#include "core/base/alloc.h"
#include "core/runtime/registry.h"
#include "tests/unit/support.h"

/* Calls `check` with every backend. */
static void each_backend(void (*check)(const tess_backend *backend))
{
    size_t count = 0;
    const tess_backend *const *const table = tess_registry(&count);

    for (size_t i = 0; i < count; i++)
        check(table[i]);
}

/* ---- Entries --------------------------------------------------------------------------------- */

static void check_entries(const tess_backend *b)
{
    const bool times = b->event_create != NULL;

    assert_non_null(b->name);
    assert_non_null(b->count);
    assert_non_null(b->info);
    assert_non_null(b->open);
    assert_non_null(b->close);
    assert_non_null(b->caps);
    assert_non_null(b->kernels);
    assert_non_null(b->prepare);
    assert_non_null(b->launch);
    assert_non_null(b->discard);
    assert_non_null(b->allocate);
    assert_non_null(b->release);
    assert_non_null(b->queue_create);
    assert_non_null(b->queue_destroy);
    assert_non_null(b->queue_wait);
    assert_non_null(b->upload);
    assert_non_null(b->download);
    /* All four, or the device cannot time. */
    assert_int_equal(b->event_destroy != NULL, times);
    assert_int_equal(b->event_record != NULL, times);
    assert_int_equal(b->event_elapsed != NULL, times);
    assert_true(b->priority >= 0);
}

static void every_required_entry_is_there(void **state)
{
    (void)state;
    each_backend(check_entries);
}

/* ---- Kernel records -------------------------------------------------------------------------- */

/* The next word of a name that is cut at underscores; false past the end. */
static bool next_word(const char **name, char word[32])
{
    const size_t length = strcspn(*name, "_");

    if (**name == '\0')
        return false;
    assert_in_range(length, 1, 31);
    memcpy(word, *name, length);
    word[length] = '\0';
    *name += length + ((*name)[length] == '_');
    return true;
}

static tess_dtype dtype_named(const char *word)
{
    for (tess_dtype dtype = TESS_F32; dtype <= TESS_E5M2; dtype++)
        if (strcmp(word, tess_dtype_name(dtype)) == 0)
            return dtype;
    return TESS_DTYPE_NONE;
}

/* pass_technique_..._type_..._mRnC: the record must do what its name says. */
static void check_name(const tess_kernel *k)
{
    char tile[32], word[32];
    const char *at = k->name;
    int words = 0;
    bool names_type = false;

    assert_int_equal(strspn(k->name, "abcdefghijklmnopqrstuvwxyz0123456789_"), strlen(k->name));
    assert_true(strlen(k->name) < 64);
    snprintf(tile, sizeof tile, "m%dn%d", (int)k->tile_rows, (int)k->tile_columns);
    while (next_word(&at, word)) {
        const tess_dtype dtype = dtype_named(word);

        if (words++ == 0)
            assert_string_equal(word, k->pass == TESS_PASS_FORWARD ? "fwd" : "bwd");
        names_type |= dtype != TESS_DTYPE_NONE || strcmp(word, "any") == 0;
        if (dtype != TESS_DTYPE_NONE)
            assert_int_equal(k->dtypes, 1u << dtype);
        if (strcmp(word, "any") == 0)
            assert_true((k->dtypes & (k->dtypes - 1)) != 0); /* more than one */
    }
    assert_true(words >= 4);
    assert_true(names_type);
    assert_string_equal(word, tile);
}

static void check_kernels(const tess_backend *b)
{
    size_t count = 0;
    const tess_kernel *const table = b->kernels(&count);

    assert_true(count >= 1);
    for (size_t i = 0; i < count; i++) {
        const tess_kernel *const k = &table[i];

        assert_true(k->pass == TESS_PASS_FORWARD || k->pass == TESS_PASS_BACKWARD);
        check_name(k);
        assert_non_null(k->entry);
        assert_true(k->dtypes != 0);
        assert_int_equal(k->dtypes & ~(1u << TESS_F32 | 1u << TESS_F16 | 1u << TESS_BF16 |
                                       1u << TESS_E4M3 | 1u << TESS_E5M2),
                         0);
        assert_true(k->max_head_dim >= 1);
        assert_true(k->max_folded_rows >= 0);
        assert_true(k->tile_rows >= 1 && k->tile_columns >= 1);
        assert_true(k->features == 0 || (k->feature_name && k->feature_name[0]));
        assert_ptr_equal(b->kernels(&count), table); /* the same table every time */
    }
}

static void every_record_does_what_its_name_says(void **state)
{
    (void)state;
    each_backend(check_kernels);
}

/* Within a backend: CUDA and HIP compile the same lines, and a name means the same on both. */
static void check_names_differ(const tess_backend *b)
{
    size_t count = 0;
    const tess_kernel *const table = b->kernels(&count);

    for (size_t i = 0; i < count; i++)
        for (size_t j = i + 1; j < count; j++)
            assert_string_not_equal(table[i].name, table[j].name);
}

static void no_two_kernels_share_a_name(void **state)
{
    (void)state;
    each_backend(check_names_differ);
}

/* Somebody takes every plain problem: the first record of the CPU asks for nothing. */
static void the_cpu_has_a_kernel_without_conditions(void **state)
{
    size_t count = 0;
    const tess_kernel *const table = tess_backend_cpu.kernels(&count);
    int unconditional = 0;

    (void)state;
    for (size_t i = 0; i < count; i++)
        unconditional += table[i].features == 0 && table[i].max_folded_rows == 0 &&
                         table[i].accept == NULL && table[i].max_head_dim >= 256 &&
                         (table[i].dtypes & 0xe) == 0xe && table[i].pass == TESS_PASS_FORWARD;
    assert_true(unconditional >= 1);
}

/* ---- Devices, memory and queues -------------------------------------------------------------- */

typedef struct subject {
    tally memory;
    tess_host host;
    tess_env env;
    tess_open open;
} subject;

static void subject_make(subject *s)
{
    memset(s, 0, sizeof *s);
    s->memory = (tally)TALLY_EMPTY;
    s->host = (tess_host){
        .allocate = tally_allocate, .release = tally_release, .memory_user = &s->memory};
    s->open = (tess_open){&s->host, &s->env, "", 2};
}

/* 0 devices come with a reason; each device there is can say what it is. */
static void check_devices(const tess_backend *b)
{
    char why[256] = "";
    tess_text text = tess_text_in(why, sizeof why);
    subject s;
    int32_t count;

    subject_make(&s);
    count = b->count(&s.open, &text);
    assert_true(count >= 0);
    assert_int_equal(count == 0, why[0] != '\0');
    for (int32_t i = 0; i < count; i++) {
        tess_device_info info;

        memset(&info, 0, sizeof info);
        assert_int_equal(b->info(&s.open, i, &info), TESS_OK);
        assert_int_equal(strncmp(info.name, b->name, strlen(b->name)), 0);
        assert_int_equal(info.available == 0, info.reason[0] != '\0');
        assert_true(info.kind >= TESS_DEVICE_CPU && info.kind <= TESS_DEVICE_OTHER);
        assert_true(info.units >= 1 && info.lanes >= 1);
        assert_true(info.memory >= 0 && info.cache >= 0 && info.shared_memory >= 0);
    }
    assert_nothing_is_left(&s.memory);
}

static void devices_say_what_they_are(void **state)
{
    (void)state;
    each_backend(check_devices);
}

static void check_scratch(const tess_backend *b, tess_backend_queue *queue)
{
    void *small = NULL, *large = NULL, *again = NULL;

    assert_int_equal(b->scratch(queue, "a_test", 1, &small), TESS_OK);
    assert_non_null(small);
    assert_int_equal(b->scratch(queue, "a_test", 100000, &large), TESS_OK);
    assert_non_null(large);
    assert_int_equal(b->scratch(queue, "a_test", 50000, &again), TESS_OK);
    assert_ptr_equal(large, again); /* it grows and never shrinks */
    if (b->has_plain_addresses)
        assert_int_equal((uintptr_t)large % TESS_ALIGNMENT, 0);
}

static void check_queue(const tess_backend *b, tess_backend_device *device)
{
    static const char sent[8] = "1234567";
    char back[8] = "";
    tess_backend_queue *queue = NULL;
    void *memory = NULL;

    assert_int_equal(b->queue_create(device, &queue), TESS_OK);
    assert_int_equal(b->queue_wait(queue), TESS_OK); /* an empty one */
    if (b->scratch)
        check_scratch(b, queue);
    assert_int_equal(b->allocate(device, sizeof sent, &memory), TESS_OK);
    assert_int_equal(b->upload(queue, memory, sent, sizeof sent), TESS_OK);
    assert_int_equal(b->download(queue, back, memory, sizeof back), TESS_OK);
    assert_string_equal(back, sent);
    assert_int_equal(b->queue_wait(queue), TESS_OK);
    b->release(device, memory, sizeof sent);
    b->queue_destroy(queue);
}

/* Opened twice from one description, closed, nothing left. */
static void check_life(const tess_backend *b)
{
    char why[256];
    tess_text text = tess_text_in(why, sizeof why);
    tess_device_info info;
    subject s;

    subject_make(&s);
    memset(&info, 0, sizeof info);
    if (b->count(&s.open, &text) == 0 || b->info(&s.open, 0, &info) != TESS_OK || !info.available) {
        print_message("%s: nothing to open here: %s%s\n", b->name, why, info.reason);
        return;
    }
    for (int i = 0; i < 2; i++) {
        tess_backend_device *device = NULL;

        assert_int_equal(b->open(&s.open, &device), TESS_OK);

        const tess_caps *const caps = b->caps(device);

        assert_true(caps->units >= 1 && caps->lanes >= 1 && caps->cache >= 0);
        assert_true(caps->architecture && caps->architecture[0]);
        if (b->workers)
            assert_true(b->workers(device) >= 1);
        check_queue(b, device);
        b->close(device);
    }
    assert_nothing_is_left(&s.memory);
}

static void devices_and_queues_leave_nothing_behind(void **state)
{
    (void)state;
    each_backend(check_life);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_required_entry_is_there),
        cmocka_unit_test(every_record_does_what_its_name_says),
        cmocka_unit_test(no_two_kernels_share_a_name),
        cmocka_unit_test(the_cpu_has_a_kernel_without_conditions),
        cmocka_unit_test(devices_say_what_they_are),
        cmocka_unit_test(devices_and_queues_leave_nothing_behind),
    };
    const int failed = cmocka_run_group_tests(tests, NULL, NULL);

    return failed != 0;
}
