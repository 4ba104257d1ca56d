/* SPDX-License-Identifier: Apache-2.0
 * The images of this build on a look-alike driver that reads them: every kernel of the lists is
 * found, and launched with the parameters, threads and shared memory that it was compiled for. */
#include "backends/gpu/host/backend.h"
#include "core/runtime/registry.h"
#include "tests/fakes/fake.h"
#include "tests/unit/support.h"

#include <dlfcn.h>

static const char *vendor;
static fake_state *fake;

#define COUNT(list) (sizeof(list) / sizeof *(list))

/* A chip that each image was built for. */
typedef struct chip {
    int major, minor;
    const char *forced; /* TESSERA_CUDA_ARCH, or NULL */
    const char *gcn;
    int wave, shared_memory;
} chip;

static const chip cuda_chips[] = {{8, 0, NULL, "", 32, 163 * 1024},
                                  {8, 9, NULL, "", 32, 99 * 1024},
                                  {9, 0, NULL, "", 32, 227 * 1024},
                                  {9, 0, "80", "", 32, 227 * 1024},
                                  {10, 0, NULL, "", 32, 227 * 1024}};
static const chip hip_chips[] = {{9, 0, NULL, "gfx90a:sramecc+:xnack-", 64, 64 * 1024},
                                 {9, 0, NULL, "gfx942:sramecc+:xnack-", 64, 64 * 1024},
                                 {9, 0, NULL, "gfx950:sramecc+:xnack-", 64, 160 * 1024},
                                 {11, 0, NULL, "gfx1100", 32, 64 * 1024},
                                 {12, 0, NULL, "gfx1201", 32, 64 * 1024}};

static void become(const chip *c)
{
    fake->reset();
    for (int i = 0; i < FAKE_DEVICES; i++) {
        fake->chip[i].major = c->major;
        fake->chip[i].minor = c->minor;
        fake->chip[i].wave = c->wave;
        fake->chip[i].shared_memory = c->shared_memory;
        snprintf(fake->chip[i].gcn, sizeof fake->chip[i].gcn, "%s", c->gcn);
    }
    if (c->forced)
        setenv("TESSERA_CUDA_ARCH", c->forced, 1);
    else
        unsetenv("TESSERA_CUDA_ARCH");
}

/* A problem that a record takes, small enough for its short ones. */
static tess_attention_desc desc_for(const tess_kernel *kernel)
{
    const tess_dtype dtype = kernel->dtypes & 1u << TESS_F32    ? TESS_F32
                             : kernel->dtypes & 1u << TESS_BF16 ? TESS_BF16
                                                                : TESS_F16;
    const int64_t dim = kernel->max_head_dim < 64 ? kernel->max_head_dim : 64;

    return (tess_attention_desc){TESS_STRUCT(tess_attention_desc),
                                 .q = tess_layout_packed(dtype, 1, 4, 1, dim),
                                 .k = tess_layout_packed(dtype, 1, 600, 1, dim),
                                 .v = tess_layout_packed(dtype, 1, 600, 1, dim),
                                 .o = tess_layout_packed(dtype, 1, 4, 1, dim),
                                 .num_splits = 2};
}

enum { BYTES = 1 << 20 };

static tess_status run(tess_device *device, const tess_kernel *kernel, char *memory)
{
    const tess_attention_desc desc = desc_for(kernel);
    const bool is_forward = kernel->pass == TESS_PASS_FORWARD;
    const tess_forward_args forward = {
        TESS_STRUCT(tess_forward_args), .q = {memory, 0},
        .k = {memory + BYTES, 0},       .v = {memory + 2 * BYTES, 0},
        .o = {memory + 3 * BYTES, 0},   .lse = {memory + 4 * BYTES, 0}};
    const tess_backward_args backward = {TESS_STRUCT(tess_backward_args),
                                         .q = forward.q,
                                         .k = forward.k,
                                         .v = forward.v,
                                         .o = {memory + 3 * BYTES, 0},
                                         .lse = {memory + 4 * BYTES, 0},
                                         .d_o = {memory + 5 * BYTES, 0},
                                         .dq = {memory + 6 * BYTES, 0},
                                         .dk = {memory + 7 * BYTES, 0},
                                         .dv = {memory + 8 * BYTES, 0}};
    tess_queue *queue = NULL;
    tess_plan *plan = NULL;
    tess_status status = tess_queue_create(device, &queue);

    if (status == TESS_OK)
        status = is_forward ? tess_plan_create_forward(device, &desc, &plan)
                            : tess_plan_create_backward(device, &desc, NULL, &plan);
    if (status == TESS_OK)
        status = is_forward ? tess_plan_run_forward(plan, queue, &forward)
                            : tess_plan_run_backward(plan, queue, &backward);
    tess_plan_destroy(plan);
    tess_queue_destroy(queue);
    return status;
}

/* Whether the record itself says that a block of it does not fit on the chip, or is not for it. */
static bool is_for_others(const tess_context *context, const tess_kernel *kernel)
{
    static const char reason[] = " needs ";
    char text[32768];
    const char *at;

    tess_context_error(context, text, sizeof text);
    at = strstr(text, kernel->name);
    return at && strncmp(at + strlen(kernel->name), reason, strlen(reason)) == 0 &&
           (strstr(at, "bytes of shared memory") || strstr(at, "chips of 9.0"));
}

/* One record, forced by its name, on one chip; returns whether it was launched there. A kernel that
 * asks for more than the chip has and does not say so is refused by real drivers: a mistake in its
 * line. */
static bool force(const chip *c, const tess_kernel *kernel)
{
    tess_context *context = NULL;
    tess_device *device = NULL;
    void *memory = NULL;
    int64_t launched = 0;
    tess_status status;

    become(c);
    setenv("TESSERA_KERNEL", kernel->name, 1);
    assert_fine(NULL, tess_context_create(NULL, &context));
    unsetenv("TESSERA_KERNEL");
    assert_fine(context, tess_device_open(context, vendor, &device));
    assert_fine(context, tess_device_allocate(device, 9 * BYTES, &memory));
    status = run(device, kernel, memory);
    if (status != TESS_UNSUPPORTED || !is_for_others(context, kernel))
        assert_fine(context, status);
    for (int64_t i = 0; i < fake->launches && i < FAKE_LAUNCHES; i++)
        launched += strcmp(fake->launch[i].kernel, kernel->name) == 0;
    assert_int_equal(launched, status == TESS_OK);
    assert_string_equal(fake->complaint, "");
    tess_device_release(device, memory, 9 * BYTES);
    tess_context_destroy(context);
    return launched == 1;
}

static const tess_backend *backend(void)
{
    const char *rest;

    return tess_registry_find(vendor, &rest);
}

static void every_record_is_launched_as_it_was_compiled(void **state)
{
    const bool is_hip = strcmp(vendor, "hip") == 0;
    const chip *const chips = is_hip ? hip_chips : cuda_chips;
    const size_t chip_count = is_hip ? COUNT(hip_chips) : COUNT(cuda_chips);
    size_t count = 0;
    const tess_kernel *const records = backend()->kernels(&count);

    (void)state;
    for (size_t i = 0; i < count; i++) {
        size_t launches = 0;

        for (size_t c = 0; c < chip_count; c++)
            launches += force(&chips[c], &records[i]);
        assert_true(launches > 0);
    }
    unsetenv("TESSERA_CUDA_ARCH");
    print_message("%s: %zu records on %zu chips\n", vendor, count, chip_count);
}

/* The one kernel that no record leads to. */
static void merging_is_launched_as_it_was_compiled(void **state)
{
    const tess_layout part = tess_layout_packed(TESS_F32, 1, 8, 1, 1);
    const tess_merge_desc desc = {TESS_STRUCT(tess_merge_desc), 2, part, part, 8, 8, part, part};
    const bool is_hip = strcmp(vendor, "hip") == 0;
    const chip *const chips = is_hip ? hip_chips : cuda_chips;
    const size_t chip_count = is_hip ? COUNT(hip_chips) : COUNT(cuda_chips);

    (void)state;
    for (size_t c = 0; c < chip_count; c++) {
        tess_context *context = NULL;
        tess_device *device = NULL;
        tess_queue *queue = NULL;
        void *memory = NULL;

        become(&chips[c]);
        assert_fine(NULL, tess_context_create(NULL, &context));
        assert_fine(context, tess_device_open(context, vendor, &device));
        assert_fine(context, tess_queue_create(device, &queue));
        assert_fine(context, tess_device_allocate(device, BYTES, &memory));

        const tess_merge_args args = {
            TESS_STRUCT(tess_merge_args), {memory, 0}, {memory, 64}, {memory, 128}, {memory, 192}};
        assert_fine(context, tess_queue_merge(queue, &desc, &args));
        assert_int_equal(fake->launches, 1);
        assert_string_equal(fake->launch[0].kernel, "fwd_simt_merge_m8");
        assert_string_equal(fake->complaint, "");
        tess_device_release(device, memory, BYTES);
        tess_queue_destroy(queue);
        tess_context_destroy(context);
    }
    unsetenv("TESSERA_CUDA_ARCH");
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_record_is_launched_as_it_was_compiled),
        cmocka_unit_test(merging_is_launched_as_it_was_compiled),
    };
    void *library;

    if (argc != 3) {
        fprintf(stderr, "usage: %s cuda|hip LIBRARY\n", argv[0]);
        return 2;
    }
    vendor = argv[1];
    library = dlopen(argv[2], RTLD_NOW | RTLD_LOCAL);
    fake = library ? dlsym(library, "fake") : NULL;
    if (!fake) {
        fprintf(stderr, "%s: no look-alike driver\n", argv[2]);
        return 2;
    }
    setenv(strcmp(vendor, "hip") == 0 ? "TESSERA_HIP_LIBRARY" : "TESSERA_CUDA_LIBRARY", argv[2], 1);
    return cmocka_run_group_tests(tests, NULL, NULL) != 0;
}
