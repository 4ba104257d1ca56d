/* SPDX-License-Identifier: Apache-2.0
 * Addresses where they can be computed with, and where they are handles. */
#include "core/runtime/bind.h"

#include "core/base/alloc.h"
#include "tests/unit/support.h"

static const char call[] = "a_test";

/* A plan of nothing, on a device whose backend is made up. */
typedef struct fixture {
    tess_backend backend;
    tess_context context;
    tess_device device;
    tess_queue queue;
    tess_plan plan;
    tess_binding bindings[TESS_AT_COUNT];
    tess_address addresses[TESS_AT_COUNT];
    int launches;
} fixture;

static char scratch_memory[64];

static tess_status give_scratch(tess_backend_queue *queue, const char *whose, size_t size,
                                void **out_memory)
{
    (void)queue;
    assert_string_equal(whose, call);
    assert_int_equal(size, 1000);
    *out_memory = scratch_memory;
    return TESS_OK;
}

static fixture *launched; /* the one under test: launch() is told no more than its queue */

static tess_status launch(tess_backend_queue *queue, const tess_prepared *prepared,
                          const tess_address addresses[TESS_AT_COUNT])
{
    (void)queue;
    (void)prepared;
    assert_ptr_equal(addresses, launched->addresses);
    launched->launches++;
    return TESS_OK;
}

/* No tensor is asked for until a test puts one in its place. */
static void make(fixture *f, bool is_plain)
{
    memset(f, 0, sizeof *f);
    f->backend.has_plain_addresses = is_plain;
    f->backend.scratch = give_scratch;
    f->backend.launch = launch;
    launched = f;
    f->device.context = &f->context;
    f->device.backend = &f->backend;
    f->queue.device = &f->device;
    f->plan.device = &f->device;
}

/* Puts a tensor of four floats at its place. */
static tess_binding *put(fixture *f, enum tess_address_index at, const char *name, const void *base,
                         int64_t offset)
{
    f->bindings[at] = (tess_binding){.name = name,
                                     .at = at,
                                     .base = base,
                                     .offset = offset,
                                     .layout = tess_bind_vector(TESS_F32, 4),
                                     .is_wanted = true};
    return &f->bindings[at];
}

static tess_status bind(fixture *f)
{
    return tess_bind(&f->plan, call, f->bindings, f->addresses);
}

static void plain_addresses_are_added_up(void **state)
{
    static float data[16];
    fixture f;

    (void)state;
    make(&f, true);
    put(&f, TESS_AT_Q, "q", data, 16);
    put(&f, TESS_AT_K, "k", data + 15, -8);
    assert_fine(NULL, bind(&f));
    assert_ptr_equal(f.addresses[TESS_AT_Q].base, data + 4);
    assert_int_equal(f.addresses[TESS_AT_Q].offset, 0);
    assert_ptr_equal(f.addresses[TESS_AT_K].base, data + 13);
    assert_null(f.addresses[TESS_AT_V].base);
}

/* A handle says nothing about where its memory is: it is passed on with its offset, and alignment
 * cannot be told from it, nor whether it shares memory with another handle. */
static void handles_are_passed_on(void **state)
{
    static char handles[4];
    fixture f;

    (void)state;
    make(&f, false);
    put(&f, TESS_AT_Q, "q", handles + 1, 32);
    put(&f, TESS_AT_O, "o", handles + 2, 32)->is_output = true;
    assert_fine(NULL, bind(&f));
    assert_ptr_equal(f.addresses[TESS_AT_Q].base, handles + 1);
    assert_int_equal(f.addresses[TESS_AT_Q].offset, 32);
    assert_ptr_equal(f.addresses[TESS_AT_O].base, handles + 2);
    put(&f, TESS_AT_O, "o", handles + 1, 32)->is_output = true;
    assert_refused(NULL, bind(&f), TESS_INVALID, call, "o shares memory with q", "one handle");
}

static void what_is_wrong_with_a_handle_is_still_seen(void **state)
{
    static char handle;
    fixture f;

    (void)state;
    make(&f, false);
    put(&f, TESS_AT_Q, "q", &handle, 2);
    assert_refused(NULL, bind(&f), TESS_INVALID, call,
                   "q.offset is 2 bytes|multiple of the element's 4", "offset");
    put(&f, TESS_AT_Q, "q", NULL, 0);
    assert_refused(NULL, bind(&f), TESS_INVALID, call, "q is NULL", "missing");
    put(&f, TESS_AT_Q, "q", &handle, 0)->is_wanted = false;
    assert_refused(NULL, bind(&f), TESS_INVALID, call, "q is given", "superfluous");
    assert_null(f.addresses[TESS_AT_Q].base);
}

static void what_is_empty_or_optional_may_be_null(void **state)
{
    fixture f;

    (void)state;
    for (int is_plain = 0; is_plain < 2; is_plain++) {
        make(&f, is_plain);
        put(&f, TESS_AT_Q, "q", NULL, 0)->layout = tess_bind_vector(TESS_F32, 0);
        put(&f, TESS_AT_LSE, "lse", NULL, 0)->is_optional = true;
        assert_fine(NULL, bind(&f));
        assert_null(f.addresses[TESS_AT_Q].base);
        assert_null(f.addresses[TESS_AT_LSE].base);
    }
}

/* Outputs against everything, inputs against outputs only. */
static void only_outputs_may_not_overlap(void **state)
{
    static float data[16];
    fixture f;

    (void)state;
    for (int outputs = 0; outputs < 4; outputs++) {
        for (int64_t distance = 0; distance <= 4; distance++) {
            make(&f, true);
            put(&f, TESS_AT_Q, "a", data, 0)->is_output = outputs & 1;
            put(&f, TESS_AT_K, "b", data, distance * 4)->is_output = (outputs & 2) != 0;

            const tess_status status = bind(&f);
            if (outputs && distance < 4)
                assert_refused(NULL, status, TESS_INVALID, call,
                               outputs == 2 ? "b shares memory with a" : "a shares memory with b",
                               "overlap");
            else
                assert_fine(NULL, status);
        }
    }
}

/* ---- The workspace --------------------------------------------------------------------------- */

static tess_status workspace(fixture *f, void *base, int64_t offset, size_t size)
{
    const tess_out given = {base, offset};

    memset(f->addresses, 0, sizeof f->addresses);
    return tess_bind_launch(&f->plan, &f->queue, call, &given, size, f->addresses);
}

static void a_workspace_is_aligned_within_what_was_given(void **state)
{
    static _Alignas(64) char memory[4096];
    fixture f;

    (void)state;
    make(&f, true);
    f.plan.schedule.workspace_size = 1000; /* 63 bytes of it for this */
    for (int64_t offset = 0; offset < 200; offset++) {
        assert_fine(NULL, workspace(&f, memory, offset, 1000));

        const tess_address at = f.addresses[TESS_AT_WORKSPACE];
        const int64_t skipped = (const char *)at.base - (memory + offset);

        assert_int_equal((uintptr_t)at.base % TESS_ALIGNMENT, 0);
        assert_in_range(skipped, 0, TESS_ALIGNMENT - 1);
        assert_int_equal(at.offset, 0);
    }
    assert_refused(NULL, workspace(&f, memory, 0, 999), TESS_INVALID, call,
                   "workspace_size is 999|needs 1000 bytes", "too small");
    assert_int_equal(f.launches, 200);
}

static void a_workspace_handle_is_passed_on(void **state)
{
    static char handle;
    fixture f;

    (void)state;
    make(&f, false);
    f.plan.schedule.workspace_size = 1000;
    assert_fine(NULL, workspace(&f, &handle, 192, 1000));
    assert_ptr_equal(f.addresses[TESS_AT_WORKSPACE].base, &handle);
    assert_int_equal(f.addresses[TESS_AT_WORKSPACE].offset, 192);
}

static void without_a_workspace_it_is_the_queues(void **state)
{
    fixture f;

    (void)state;
    make(&f, true);
    f.plan.schedule.workspace_size = 1000;
    assert_fine(NULL, workspace(&f, NULL, 0, 0));
    assert_ptr_equal(f.addresses[TESS_AT_WORKSPACE].base, scratch_memory);
    f.plan.schedule.workspace_size = 0; /* nothing is needed, nothing is asked for */
    assert_fine(NULL, workspace(&f, NULL, 0, 0));
    assert_null(f.addresses[TESS_AT_WORKSPACE].base);
    assert_refused(NULL, workspace(&f, NULL, 0, 8), TESS_INVALID, call,
                   "workspace is NULL but workspace_size is 8", "size without memory");
    assert_int_equal(f.launches, 2);
}

static void a_queue_without_scratch_asks_for_a_workspace(void **state)
{
    static char memory[2000];
    fixture f;

    (void)state;
    make(&f, true);
    f.backend.scratch = NULL;
    f.plan.schedule.workspace_size = 1000;
    snprintf(f.device.name, sizeof f.device.name, "fast:1");
    assert_refused(NULL, workspace(&f, NULL, 0, 0), TESS_UNSUPPORTED, call,
                   "workspace is NULL|fast:1|1000 bytes", "no scratch");
    assert_fine(NULL, workspace(&f, memory, 0, sizeof memory));
    assert_int_equal(f.launches, 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(plain_addresses_are_added_up),
        cmocka_unit_test(handles_are_passed_on),
        cmocka_unit_test(what_is_wrong_with_a_handle_is_still_seen),
        cmocka_unit_test(what_is_empty_or_optional_may_be_null),
        cmocka_unit_test(only_outputs_may_not_overlap),
        cmocka_unit_test(a_workspace_is_aligned_within_what_was_given),
        cmocka_unit_test(a_workspace_handle_is_passed_on),
        cmocka_unit_test(without_a_workspace_it_is_the_queues),
        cmocka_unit_test(a_queue_without_scratch_asks_for_a_workspace),
    };
    const int failed = cmocka_run_group_tests(tests, NULL, NULL);

    return failed != 0;
}
