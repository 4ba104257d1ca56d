/* SPDX-License-Identifier: Apache-2.0
 * Which device a program gets, tried with three backends of which two are made up. */
#include "tests/unit/support.h"

#include "core/runtime/registry.h"

#include <stdatomic.h>
#include <time.h>

/* ---- Two made-up backends -------------------------------------------------------------------- */

enum { MOST_DEVICES = 3 };

typedef struct fake {
    int32_t devices;
    bool is_broken[MOST_DEVICES]; /* present, and its facts say that it cannot be opened */
    bool is_mute[MOST_DEVICES];   /* not even its facts can be had */
    tess_status open_fails;
    bool is_slow; /* to open, so that others come meanwhile */
    atomic_int counted, opened, closed;
} fake;

static fake fast, slow;

struct tess_backend_device {
    fake *of;
};

static struct tess_backend_device fast_device = {&fast}, slow_device = {&slow};

static int32_t count_fake(const fake *f, const char *name, tess_text *out_why)
{
    if (f->devices == 0)
        tess_text_add(out_why, "lib%s.so: cannot open shared object file", name);
    return f->devices;
}

static tess_status fake_info(const fake *f, const char *name, const tess_open *open, int32_t index,
                             tess_device_info *out_info)
{
    if (index < 0)
        index = (int32_t)strtol(open->rest, NULL, 10);
    if (index >= f->devices)
        return tess_fail(open->host, TESS_UNAVAILABLE, "tess_device_open: %s has %d devices", name,
                         f->devices);
    if (f->is_mute[index])
        return tess_fail(open->host, TESS_DEVICE_FAILED, "%s: FAKE_ERROR_MUTE (7)", name);
    snprintf(out_info->name, sizeof out_info->name, "%s:%d", name, index);
    out_info->kind = TESS_DEVICE_GPU;
    out_info->available = !f->is_broken[index];
    if (f->is_broken[index])
        snprintf(out_info->reason, sizeof out_info->reason, "too old");
    return TESS_OK;
}

static tess_status open_fake(fake *f, const tess_open *open, tess_backend_device *device,
                             tess_backend_device **out_device)
{
    if (f->open_fails != TESS_OK)
        return tess_fail(open->host, f->open_fails, "tess_device_open: FAKE_ERROR_OPEN (9)");
    f->opened++;
    if (f->is_slow)
        nanosleep(&(struct timespec){.tv_nsec = 10 * 1000 * 1000}, NULL);
    *out_device = device;
    return TESS_OK;
}

static int32_t fast_count(const tess_open *open, tess_text *out_why)
{
    (void)open;
    fast.counted++;
    return count_fake(&fast, "fast", out_why);
}

static int32_t slow_count(const tess_open *open, tess_text *out_why)
{
    (void)open;
    slow.counted++;
    return count_fake(&slow, "slow", out_why);
}

static tess_status fast_info(const tess_open *open, int32_t index, tess_device_info *out_info)
{
    return fake_info(&fast, "fast", open, index, out_info);
}

static tess_status slow_info(const tess_open *open, int32_t index, tess_device_info *out_info)
{
    return fake_info(&slow, "slow", open, index, out_info);
}

static tess_status fast_open(const tess_open *open, tess_backend_device **out_device)
{
    return open_fake(&fast, open, &fast_device, out_device);
}

static tess_status slow_open(const tess_open *open, tess_backend_device **out_device)
{
    return open_fake(&slow, open, &slow_device, out_device);
}

static void close_fake(tess_backend_device *device)
{
    device->of->closed++;
}

static const tess_backend fast_backend = {.name = "fast",
                                          .priority = 20,
                                          .count = fast_count,
                                          .info = fast_info,
                                          .open = fast_open,
                                          .close = close_fake};
static const tess_backend slow_backend = {.name = "slow",
                                          .priority = 10,
                                          .count = slow_count,
                                          .info = slow_info,
                                          .open = slow_open,
                                          .close = close_fake};

/* The program's own table: with it the library's, which is a file by itself, is not linked. */
const tess_backend *const *tess_registry(size_t *out_count)
{
    static const tess_backend *const table[] = {&fast_backend, &slow_backend, &tess_backend_cpu};

    *out_count = sizeof table / sizeof table[0];
    return table;
}

/* ---- A context of a list and an environment -------------------------------------------------- */

static tess_context *context_of(const char *list)
{
    const tess_context_desc desc = {TESS_STRUCT(tess_context_desc), .backends = list};
    tess_context *context = NULL;

    assert_fine(NULL, tess_context_create(&desc, &context));
    return context;
}

static int set_up(void **state)
{
    (void)state;
    memset(&fast, 0, sizeof fast);
    memset(&slow, 0, sizeof slow);
    fast.devices = 2;
    slow.devices = 1;
    unsetenv("TESSERA_BACKEND");
    return 0;
}

/* The name of the device that `name` opens. */
static const char *opened(tess_context *context, const char *name)
{
    tess_device *device = NULL;

    assert_fine(context, tess_device_open(context, name, &device));
    return device->name;
}

/* The names of the list, '*' behind those that can be opened. */
static const char *list_of(tess_context *context)
{
    static char names[512];
    tess_text text = tess_text_in(names, sizeof names);
    const size_t count = tess_context_device_count(context);

    for (size_t i = 0; i < count; i++) {
        tess_device_info info = {TESS_STRUCT(tess_device_info)};
        assert_fine(context, tess_context_device_info(context, i, &info));
        assert_int_equal(info.available == 0, info.reason[0] != '\0');
        tess_text_add(&text, "%s%s%s", i ? " " : "", info.name, info.available ? "*" : "");
    }
    return names;
}

/* ---- Tests ----------------------------------------------------------------------------------- */

static void without_a_wish_the_best_that_opens_is_taken(void **state)
{
    tess_context *const context = context_of(NULL);

    (void)state;
    assert_string_equal(opened(context, NULL), "fast:0");
    fast.is_broken[0] = true;
    assert_string_equal(opened(context, NULL), "fast:1");
    fast.devices = 0;
    assert_string_equal(opened(context, NULL), "slow:0");
    slow.open_fails = TESS_DEVICE_FAILED;
    tess_context_destroy(context);

    tess_context *const other = context_of(NULL);
    assert_string_equal(opened(other, NULL), "cpu");
    tess_context_destroy(other);
}

static void the_list_of_the_program_is_an_order(void **state)
{
    static const struct {
        const char *allowed, *first, *list;
    } cases[] = {{NULL, "fast:0", "fast:0* fast:1* slow:0* cpu*"},
                 {"cpu,fast", "cpu", "cpu* fast:0* fast:1* slow"},
                 {"slow , fast", "slow:0", "slow:0* fast:0* fast:1* cpu"},
                 {"cpu,cpu,slow,cpu", "cpu", "cpu* slow:0* fast"},
                 {"slow", "slow:0", "slow:0* fast cpu"}};

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        tess_context *const context = context_of(cases[i].allowed);
        assert_string_equal(list_of(context), cases[i].list);
        assert_string_equal(opened(context, NULL), cases[i].first);
        tess_context_destroy(context);
    }
}

static void what_can_be_opened_comes_first(void **state)
{
    tess_context *const context = context_of(NULL);

    (void)state;
    fast.is_broken[0] = true;
    slow.devices = 0;
    assert_string_equal(list_of(context), "fast:1* cpu* fast:0 slow");
    fast.is_broken[0] = false;
    fast.is_mute[0] = true; /* one that fails does not hide the other */
    assert_string_equal(list_of(context), "fast:1* cpu* fast:0 slow");
    assert_string_equal(opened(context, NULL), "fast:1");
    tess_context_destroy(context);
}

static void the_list_says_why_not(void **state)
{
    tess_device_info info = {TESS_STRUCT(tess_device_info)};
    tess_context *const context = context_of("cpu,fast");

    (void)state;
    fast.devices = 0;
    assert_fine(context, tess_context_device_info(context, 1, &info));
    assert_string_equal(info.name, "fast");
    assert_string_equal(info.reason, "libfast.so: cannot open shared object file");
    assert_fine(context, tess_context_device_info(context, 2, &info));
    assert_string_equal(info.name, "slow");
    assert_true(holds_pieces(info.reason, "excluded|cpu,fast"));
    assert_refused(context, tess_context_device_info(context, 3, &info), TESS_INVALID,
                   "tess_context_device_info", "index is 3|0 to 2", "past the end");
    tess_context_destroy(context);
}

/* Asking a driver may load a library; one that the program excluded must not be. */
static void an_excluded_backend_is_never_asked(void **state)
{
    tess_context *const context = context_of("cpu");
    tess_device *device = NULL;

    (void)state;
    tess_context_device_count(context);
    assert_string_equal(opened(context, NULL), "cpu");
    assert_refused(context, tess_device_open(context, "fast:1", &device), TESS_INVALID,
                   "tess_device_open", "\"fast:1\" is excluded|\"cpu\"", "excluded");
    assert_null(device);
    assert_int_equal(fast.counted + slow.counted + fast.opened + slow.opened, 0);
    tess_context_destroy(context);
}

static void names_of_one_device_are_one_device(void **state)
{
    tess_context *const context = context_of(NULL);
    tess_device *a = NULL, *b = NULL, *c = NULL;

    (void)state;
    assert_fine(context, tess_device_open(context, "fast", &a));
    assert_fine(context, tess_device_open(context, "fast:0", &b));
    assert_fine(context, tess_device_open(context, "fast:1", &c));
    assert_ptr_equal(a, b);
    assert_ptr_not_equal(a, c);
    assert_int_equal(fast.opened, 2);
    assert_fine(context, tess_device_open(context, "cpu", &a));
    assert_fine(context, tess_device_open(context, "cpu:0", &b));
    assert_ptr_equal(a, b);
    tess_context_destroy(context);
    assert_int_equal(fast.closed, 2);
}

static void a_name_is_a_hard_choice(void **state)
{
    tess_context *const context = context_of(NULL);
    tess_device *device = NULL;

    (void)state;
    assert_refused(context, tess_device_open(context, "fast:9", &device), TESS_UNAVAILABLE,
                   "tess_device_open", "fast has 2 devices", "not there");
    fast.open_fails = TESS_DEVICE_FAILED;
    assert_refused(context, tess_device_open(context, "fast", &device), TESS_DEVICE_FAILED,
                   "tess_device_open", "FAKE_ERROR_OPEN (9)", "does not open");
    assert_null(device);
    tess_context_destroy(context);
}

static void one_word_in_the_environment_is_a_hard_choice_too(void **state)
{
    tess_device *device = NULL;

    (void)state;
    setenv("TESSERA_BACKEND", "slow", 1);
    tess_context *context = context_of(NULL);
    assert_string_equal(opened(context, NULL), "slow:0");
    assert_string_equal(opened(context, "cpu"), "cpu"); /* the program has the last word */
    slow.devices = 0;
    assert_refused(context, tess_device_open(context, NULL, &device), TESS_UNAVAILABLE,
                   "tess_device_open", "slow has 0 devices", "gone");
    tess_context_destroy(context);

    context = context_of("cpu,fast");
    assert_refused(context, tess_device_open(context, NULL, &device), TESS_INVALID,
                   "tess_device_open", "\"slow\" is excluded|\"cpu,fast\"", "excluded");
    tess_context_destroy(context);
    assert_null(device);
}

static void several_words_in_the_environment_are_an_order(void **state)
{
    (void)state;
    setenv("TESSERA_BACKEND", "slow:0, fast:1,cpu", 1);
    tess_context *context = context_of(NULL);
    assert_string_equal(opened(context, NULL), "slow:0");
    tess_context_destroy(context);
    slow.devices = 0;
    context = context_of(NULL);
    assert_string_equal(opened(context, NULL), "fast:1");
    tess_context_destroy(context);
    fast.open_fails = TESS_DEVICE_FAILED;
    context = context_of(NULL);
    assert_string_equal(opened(context, NULL), "cpu");
    tess_context_destroy(context);
}

static void a_mistyped_name_is_answered_with_the_nearest(void **state)
{
    static const struct {
        const char *name, *pieces;
    } cases[] = {{"fsat", "name is \"fsat\"|fast, slow or cpu|did you mean fast?"},
                 {"fsat:1", "name is \"fsat:1\"|did you mean fast?"},
                 {"CPU", "name is \"CPU\"|did you mean cpu?"},
                 {"cpu:", "name is \"cpu:\"|did you mean cpu?"},
                 {"cp", "name is \"cp\"|did you mean cpu?"},
                 {"", "name is \"\"|fast, slow or cpu"},
                 {":0", "name is \":0\"|fast, slow or cpu"},
                 {"fast,cpu", "name is \"fast,cpu\"|takes one device"}};
    tess_context *const context = context_of(NULL);
    tess_device *device = NULL;

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        assert_refused(context, tess_device_open(context, cases[i].name, &device), TESS_INVALID,
                       "tess_device_open", cases[i].pieces, cases[i].name);
    assert_null(device);
    tess_context_destroy(context);

    setenv("TESSERA_BACKEND", "cpu,fasst", 1);
    tess_context *const other = context_of(NULL);
    assert_refused(other, tess_device_open(other, NULL, &device), TESS_INVALID, "tess_device_open",
                   "TESSERA_BACKEND names \"fasst\"|did you mean fast?", "environment");
    tess_context_destroy(other);
}

static void every_reason_is_told_when_nothing_opens(void **state)
{
    tess_context *const context = context_of("fast,slow");
    tess_device *device = NULL;

    (void)state;
    fast.devices = 0;
    slow.open_fails = TESS_DEVICE_FAILED;
    assert_refused(
        context, tess_device_open(context, NULL, &device), TESS_UNAVAILABLE, "tess_device_open",
        "no device can be opened|slow:0|FAKE_ERROR_OPEN (9)|fast|libfast.so|cpu|excluded",
        "nothing");
    assert_null(device);
    tess_context_destroy(context);
}

static void memory_is_not_a_reason_to_take_another(void **state)
{
    tess_context *const context = context_of(NULL);
    tess_device *device = NULL;

    (void)state;
    fast.open_fails = TESS_NO_MEMORY;
    assert_refused(context, tess_device_open(context, NULL, &device), TESS_NO_MEMORY,
                   "tess_device_open", "FAKE_ERROR_OPEN", "no memory");
    setenv("TESSERA_BACKEND", "fast,cpu", 1);
    tess_context *const other = context_of(NULL);
    assert_refused(other, tess_device_open(other, NULL, &device), TESS_NO_MEMORY,
                   "tess_device_open", "FAKE_ERROR_OPEN", "no memory");
    tess_context_destroy(other);
    tess_context_destroy(context);
}

/* ---- Opening from several threads ------------------------------------------------------------ */

typedef struct opener {
    pthread_barrier_t *start;
    tess_context *context;
    tess_device *device;
} opener;

static void *open_at_once(void *user)
{
    opener *const o = user;

    pthread_barrier_wait(o->start);
    tess_device_open(o->context, "fast", &o->device);
    return NULL;
}

static void threads_that_open_one_device_get_the_same(void **state)
{
    enum { THREADS = 8 };
    pthread_barrier_t start;
    pthread_t threads[THREADS];
    opener openers[THREADS];

    (void)state;
    assert_int_equal(pthread_barrier_init(&start, NULL, THREADS), 0);
    fast.is_slow = true;
    for (int round = 0; round < 5; round++) {
        tess_context *const context = context_of(NULL);
        for (int i = 0; i < THREADS; i++) {
            openers[i] = (opener){&start, context, NULL};
            assert_int_equal(pthread_create(&threads[i], NULL, open_at_once, &openers[i]), 0);
        }
        for (int i = 0; i < THREADS; i++)
            pthread_join(threads[i], NULL);
        for (int i = 0; i < THREADS; i++) {
            assert_non_null(openers[i].device);
            assert_ptr_equal(openers[i].device, openers[0].device);
        }
        tess_context_destroy(context);
        assert_int_equal(fast.opened, fast.closed);
    }
    pthread_barrier_destroy(&start);
}

/* ---- The log is never called under a lock ---------------------------------------------------- */

static tess_context *watched;
static int lines_seen;

static void try_lock(void *user, tess_log_level level, const char *line)
{
    (void)user;
    (void)level;
    (void)line;
    if (!watched)
        return;
    lines_seen++;
    assert_int_equal(pthread_mutex_trylock(&watched->lock), 0);
    pthread_mutex_unlock(&watched->lock);
}

static void nothing_is_logged_under_the_lock(void **state)
{
    const tess_context_desc desc = {TESS_STRUCT(tess_context_desc), .log = try_lock,
                                    .log_level = TESS_LOG_DEBUG};
    tess_context *context = NULL;
    tess_device *device = NULL;

    (void)state;
    assert_fine(NULL, tess_context_create(&desc, &context));
    watched = context;
    fast.open_fails = slow.open_fails = TESS_DEVICE_FAILED;
    assert_fine(context, tess_device_open(context, NULL, &device));
    tess_device_open(context, "fast", &device);
    assert_true(lines_seen >= 4);
    watched = NULL;
    tess_context_destroy(context);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(without_a_wish_the_best_that_opens_is_taken, set_up),
        cmocka_unit_test_setup(the_list_of_the_program_is_an_order, set_up),
        cmocka_unit_test_setup(what_can_be_opened_comes_first, set_up),
        cmocka_unit_test_setup(the_list_says_why_not, set_up),
        cmocka_unit_test_setup(an_excluded_backend_is_never_asked, set_up),
        cmocka_unit_test_setup(names_of_one_device_are_one_device, set_up),
        cmocka_unit_test_setup(a_name_is_a_hard_choice, set_up),
        cmocka_unit_test_setup(one_word_in_the_environment_is_a_hard_choice_too, set_up),
        cmocka_unit_test_setup(several_words_in_the_environment_are_an_order, set_up),
        cmocka_unit_test_setup(a_mistyped_name_is_answered_with_the_nearest, set_up),
        cmocka_unit_test_setup(every_reason_is_told_when_nothing_opens, set_up),
        cmocka_unit_test_setup(memory_is_not_a_reason_to_take_another, set_up),
        cmocka_unit_test_setup(threads_that_open_one_device_get_the_same, set_up),
        cmocka_unit_test_setup(nothing_is_logged_under_the_lock, set_up),
    };
    const int failed = cmocka_run_group_tests(tests, NULL, NULL);

    return failed != 0;
}
