/* SPDX-License-Identifier: Apache-2.0
 * Contexts: what a descriptor and the environment may say, and what a failed creation leaves. */
#include "core/runtime/objects.h"
#include "core/runtime/registry.h"
#include "tests/unit/support.h"

static void *give_memory(void *user, size_t size, size_t alignment)
{
    return tally_allocate(user, size, alignment);
}

static void take_memory(void *user, void *memory, size_t size)
{
    tally_release(user, memory, size);
}

/* ---- Refusals, a line each ------------------------------------------------------------------- */

static char too_long[TESS_ENV_SIZE + 1];

typedef struct wrong_desc {
    tess_context_desc desc;
    const char *pieces;
} wrong_desc;

static void a_wrong_descriptor_makes_no_context(void **state)
{
    static const size_t size = sizeof(tess_context_desc);
    const wrong_desc cases[] = {
        {{.struct_size = 0}, "desc.struct_size is 0|the struct's own size"},
        {{.struct_size = 8}, "desc.struct_size is 8|the struct's own size"},
        {{.struct_size = (size_t)1 << 40}, "desc.struct_size is 1099511627776"},
        {{size, .allocate = give_memory}, "desc.release is NULL but desc.allocate is not"},
        {{size, .release = take_memory}, "desc.allocate is NULL but desc.release is not"},
        {{size, .log_level = -1}, "desc.log_level is -1|0 (default) to 5"},
        {{size, .log_level = 6}, "desc.log_level is 6|0 (default) to 5"},
        {{size, .threads = -1}, "desc.threads is -1|0 (default) to 1024"},
        {{size, .threads = 1025}, "desc.threads is 1025|0 (default) to 1024"},
        {{size, .threads = INT32_MIN}, "desc.threads is -2147483648"},
        {{size, .backends = ""}, "desc.backends is \"\"|it takes|cpu"},
        {{size, .backends = "cpi"}, "desc.backends is \"cpi\"|did you mean cpu?"},
        {{size, .backends = "cpu,"}, "desc.backends names \"\"|cpu"},
        {{size, .backends = "cpu;cpu"}, "desc.backends is \"cpu;cpu\""},
        {{size, .backends = "cpu:0"}, "desc.backends is \"cpu:0\"|not single devices"},
        {{size, .backends = too_long}, "desc.backends is 256 bytes long|at most 255"},
    };
    tess_context *const untouched = (tess_context *)(void *)too_long;

    (void)state;
    memset(too_long, 'c', sizeof too_long - 1);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        tess_context *context = untouched;

        assert_refused(NULL, tess_context_create(&cases[i].desc, &context), TESS_INVALID,
                       "tess_context_create", cases[i].pieces, cases[i].pieces);
        assert_ptr_equal(context, untouched);
    }
    assert_refused(NULL, tess_context_create(NULL, NULL), TESS_INVALID, "tess_context_create",
                   "out_context is NULL", "nowhere to put it");
}

static void a_wrong_variable_makes_no_context(void **state)
{
    static const struct {
        const char *name, *value, *pieces;
    } cases[] = {
        {"TESSERA_THREADS", "0", "TESSERA_THREADS is \"0\"|1 to 1024"},
        {"TESSERA_THREADS", "1025", "TESSERA_THREADS is \"1025\"|1 to 1024"},
        {"TESSERA_THREADS", "four", "TESSERA_THREADS is \"four\"|1 to 1024"},
        {"TESSERA_THREADS", "-1", "TESSERA_THREADS is \"-1\""},
        {"TESSERA_SPLITS", "65537", "TESSERA_SPLITS is \"65537\"|1 to 65536"},
        {"TESSERA_LOG", "verbos", "TESSERA_LOG is \"verbos\"|off, error, warn, info or debug"},
        {"TESSERA_TRACE", "plan,exek", "TESSERA_TRACE is \"plan,exek\"|plan, refuse, exec"},
        {"TESSERA_DETERMINISTIC", "yes", "TESSERA_DETERMINISTIC is \"yes\"|0 or 1"},
        {"TESSERA_CPU_ISA", "avx3", "TESSERA_CPU_ISA is \"avx3\"|scalar|avx2"},
    };
    tally memory = TALLY_EMPTY;
    const tess_context_desc desc = {TESS_STRUCT(tess_context_desc), .allocate = give_memory,
                                    .release = take_memory, .memory_user = &memory};

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        tess_context *context = NULL;

        setenv(cases[i].name, cases[i].value, 1);
        assert_refused(NULL, tess_context_create(&desc, &context), TESS_INVALID,
                       "tess_context_create", cases[i].pieces, cases[i].value);
        unsetenv(cases[i].name);
        assert_null(context);
        assert_nothing_is_left(&memory);
        assert_fine(NULL, tess_context_create(&desc, &context)); /* and the next one works */
        tess_context_destroy(context);
    }
}

/* ---- Who has the last word ------------------------------------------------------------------- */

static void the_program_has_the_last_word(void **state)
{
    const tess_context_desc desc = {TESS_STRUCT(tess_context_desc), .threads = 3,
                                    .log_level = TESS_LOG_OFF};
    tess_context *context = NULL;

    (void)state;
    setenv("TESSERA_THREADS", "5", 1);
    setenv("TESSERA_LOG", "error", 1);
    assert_fine(NULL, tess_context_create(NULL, &context));
    assert_int_equal(context->threads, 5);
    assert_int_equal(context->host.log_level, TESS_LOG_ERROR);
    tess_context_destroy(context);
    assert_fine(NULL, tess_context_create(&desc, &context));
    assert_int_equal(context->threads, 3);
    assert_int_equal(context->host.log_level, TESS_LOG_OFF);
    tess_context_destroy(context);
    unsetenv("TESSERA_THREADS");
    unsetenv("TESSERA_LOG");
}

static void the_environment_is_read_once(void **state)
{
    tess_device_info info = {TESS_STRUCT(tess_device_info)};
    tess_context *context = NULL;
    tess_device *device = NULL;

    (void)state;
    setenv("TESSERA_THREADS", "7", 1);
    assert_fine(NULL, tess_context_create(NULL, &context));
    setenv("TESSERA_THREADS", "2", 1);
    setenv("TESSERA_BACKEND", "toaster", 1);
    assert_fine(context, tess_device_open(context, NULL, &device));
    assert_fine(context, tess_device_get_info(device, &info));
    assert_int_equal(info.units, 7);
    unsetenv("TESSERA_THREADS");
    unsetenv("TESSERA_BACKEND");
    tess_context_destroy(context);
}

static void copy_line(void *user, tess_log_level level, const char *line)
{
    (void)level;
    snprintf(user, 256, "%s", line);
}

static void a_failure_is_logged_as_it_is_kept(void **state)
{
    char line[256] = "", text[256];
    const tess_context_desc desc = {TESS_STRUCT(tess_context_desc), .log = copy_line,
                                    .log_user = line, .log_level = TESS_LOG_ERROR};
    tess_context *context = NULL;
    tess_device *device = NULL;

    (void)state;
    assert_fine(NULL, tess_context_create(&desc, &context));
    assert_int_equal(tess_device_open(context, "toaster", &device), TESS_INVALID);
    tess_context_error(context, text, sizeof text);
    assert_string_equal(line, text);
    tess_context_destroy(context);
}

/* ---- Texts of contexts that are gone --------------------------------------------------------- */

/* An allocator with one place for everything: contexts follow each other at one address. */
static void *one_place(void *user, size_t size, size_t alignment)
{
    (void)alignment;
    return size <= 16384 ? user : NULL;
}

static void forget_it(void *user, void *memory, size_t size)
{
    (void)size;
    assert_ptr_equal(user, memory);
}

static void a_context_does_not_inherit_a_text(void **state)
{
    static _Alignas(4096) char place[16384];
    const tess_context_desc desc = {TESS_STRUCT(tess_context_desc), .allocate = one_place,
                                    .release = forget_it, .memory_user = place};
    tess_context_desc wrong = desc;
    tess_context *context = NULL;

    (void)state;
    wrong.backends = "toaster"; /* found only after the context has its place */
    assert_int_equal(tess_context_create(&wrong, &context), TESS_INVALID);
    assert_true(tess_context_error(NULL, NULL, 0) > 0);
    assert_fine(NULL, tess_context_create(&desc, &context));
    assert_int_equal(tess_context_error(context, NULL, 0), 0);

    tess_device *device = NULL;
    assert_int_equal(tess_device_open(context, "toaster", &device), TESS_INVALID);
    assert_true(tess_context_error(context, NULL, 0) > 0);
    tess_context_destroy(context);
    assert_fine(NULL, tess_context_create(&desc, &context));
    assert_int_equal(tess_context_error(context, NULL, 0), 0);
    tess_context_destroy(context);
}

static void a_text_belongs_to_its_context(void **state)
{
    tess_context *a = NULL, *b = NULL;
    tess_device *device = NULL;

    (void)state;
    assert_fine(NULL, tess_context_create(NULL, &a));
    assert_fine(NULL, tess_context_create(NULL, &b));
    assert_int_equal(tess_device_open(a, "toaster", &device), TESS_INVALID);
    assert_true(tess_context_error(a, NULL, 0) > 0);
    assert_int_equal(tess_context_error(b, NULL, 0), 0);
    assert_int_equal(tess_context_error(NULL, NULL, 0), tess_context_error(a, NULL, 0));
    tess_context_destroy(a);
    tess_context_destroy(b);
    tess_context_destroy(NULL);
}

/* ---- Small words ----------------------------------------------------------------------------- */

static void names_of_statuses_and_types(void **state)
{
    static const char *const statuses[] = {
        "TESS_OK",        "TESS_INVALID",       "TESS_UNSUPPORTED", "TESS_UNAVAILABLE",
        "TESS_NO_MEMORY", "TESS_DEVICE_FAILED", "TESS_TOO_NEW",     "TESS_INTERNAL"};
    static const char *const types[] = {"none", "f32", "f16", "bf16", "e4m3", "e5m2", "i32", "i64"};
    static const size_t sizes[] = {0, 4, 2, 2, 1, 1, 4, 8};
    static const int32_t strangers[] = {-1, 8, INT32_MAX, INT32_MIN};

    (void)state;
    for (int32_t i = 0; i < 8; i++) {
        assert_string_equal(tess_status_name(i), statuses[i]);
        assert_string_equal(tess_dtype_name(i), types[i]);
        assert_int_equal(tess_dtype_size(i), sizes[i]);
    }
    for (size_t i = 0; i < 4; i++) {
        assert_string_equal(tess_status_name(strangers[i]), "TESS_UNKNOWN");
        assert_string_equal(tess_dtype_name(strangers[i]), "none");
        assert_int_equal(tess_dtype_size(strangers[i]), 0);
    }
    assert_int_equal(tess_version(), TESS_VERSION);
}

/* A program that prefers devices which this build cannot have is right; they are not there. */
static void a_backend_of_another_build_is_not_there(void **state)
{
    static const char *const names[] = {"opencl", "hip", "cuda"};
    char list[32], name[16], text[64];
    const tess_context_desc desc = {TESS_STRUCT(tess_context_desc), .backends = list};
    tess_device *device = NULL;
    tess_context *context;
    const char *rest;
    size_t i = 0;

    (void)state;
    while (i < 3 && tess_registry_find(names[i], &rest))
        i++;
    if (i == 3)
        skip(); /* this build has them all */
    snprintf(list, sizeof list, "%s,cpu", names[i]);
    snprintf(name, sizeof name, "%s:0", names[i]);
    snprintf(text, sizeof text, "\"%s\" is not there", name);
    assert_int_equal(tess_context_create(&desc, &context), TESS_OK);
    assert_refused(context, tess_device_open(context, name, &device), TESS_UNAVAILABLE,
                   "tess_device_open", text, "no such backend");
    assert_null(device);
    assert_int_equal(tess_device_open(context, NULL, &device), TESS_OK);
    assert_string_equal(device->name, "cpu");
    tess_context_destroy(context);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_wrong_descriptor_makes_no_context),
        cmocka_unit_test(a_wrong_variable_makes_no_context),
        cmocka_unit_test(the_program_has_the_last_word),
        cmocka_unit_test(the_environment_is_read_once),
        cmocka_unit_test(a_failure_is_logged_as_it_is_kept),
        cmocka_unit_test(a_context_does_not_inherit_a_text),
        cmocka_unit_test(a_text_belongs_to_its_context),
        cmocka_unit_test(names_of_statuses_and_types),
        cmocka_unit_test(a_backend_of_another_build_is_not_there),
    };
    const int failed = cmocka_run_group_tests(tests, NULL, NULL);

    return failed != 0;
}
