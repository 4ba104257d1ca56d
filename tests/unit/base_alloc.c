/* SPDX-License-Identifier: Apache-2.0
 * Memory comes from the program's allocator, in the sizes promised, and products cannot wrap. */
#include "core/base/alloc.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* An allocator that keeps account and fails on command. */
typedef struct pool {
    int calls;
    int fails_at; /* which call returns NULL, counted from 1; 0: none */
    size_t held;  /* bytes not yet given back, by the sizes both sides state */
    size_t last_size;
    size_t last_alignment;
} pool;

static void *pool_allocate(void *user, size_t size, size_t alignment)
{
    pool *const account = user;
    void *memory;

    account->calls++;
    account->last_size = size;
    account->last_alignment = alignment;
    if (account->calls == account->fails_at)
        return NULL;
    memory = tess_default_allocate(NULL, size, alignment);
    assert_non_null(memory);
    memset(memory, 0xa5, size); /* so that forgotten zeroing shows */
    account->held += size;
    return memory;
}

static void pool_release(void *user, void *memory, size_t size)
{
    pool *const account = user;

    assert_non_null(memory);
    assert_true(size > 0);
    account->held -= size;
    tess_default_release(NULL, memory, size);
}

static tess_host host_of(pool *account)
{
    return (tess_host){.allocate = pool_allocate, .release = pool_release, .memory_user = account};
}

static void assert_zero(const unsigned char *bytes, size_t size)
{
    for (size_t i = 0; i < size; i++)
        assert_int_equal(bytes[i], 0);
}

static void uses_the_programs_allocator(void **state)
{
    pool account = {0};
    const tess_host host = host_of(&account);

    (void)state;
    void *const memory = tess_alloc(&host, 100);

    assert_non_null(memory);
    assert_int_equal(account.calls, 1);
    assert_int_equal(account.last_size, 100);
    assert_int_equal(account.last_alignment, TESS_ALIGNMENT);
    assert_int_equal(account.held, 100);
    tess_release(&host, memory, 100);
    assert_int_equal(account.held, 0);
}

static void aligns_without_an_allocator(void **state)
{
    const tess_host empty = {0};
    const tess_host *const hosts[] = {NULL, &empty};

    (void)state;
    for (size_t h = 0; h < 2; h++)
        for (size_t size = 0; size < 200; size++) {
            void *const memory = tess_alloc(hosts[h], size);

            assert_non_null(memory);
            assert_int_equal((uintptr_t)memory % TESS_ALIGNMENT, 0);
            memset(memory, 1, size);
            tess_release(hosts[h], memory, size);
        }
}

static void size_zero_is_one_byte(void **state)
{
    pool account = {0};
    const tess_host host = host_of(&account);

    (void)state;
    void *const one = tess_alloc(&host, 0);

    assert_int_equal(account.last_size, 1);
    void *const other = tess_alloc_array(&host, 0, 16);

    assert_int_equal(account.last_size, 1);
    assert_ptr_not_equal(one, other);
    tess_release(&host, one, 0);
    tess_release(&host, other, 0);
    assert_int_equal(account.held, 0);
}

static void zeroes(void **state)
{
    pool account = {0};
    const tess_host host = host_of(&account);

    (void)state;
    unsigned char *const block = tess_alloc_zero(&host, 77);
    unsigned char *const array = tess_alloc_array(&host, 7, 11);

    assert_non_null(block);
    assert_non_null(array);
    assert_zero(block, 77);
    assert_zero(array, 77);
    tess_release(&host, block, 77);
    tess_release(&host, array, 77);
    assert_int_equal(account.held, 0);
}

static void every_failure_is_a_null(void **state)
{
    (void)state;
    for (int fails_at = 1; fails_at <= 3; fails_at++) {
        pool account = {.fails_at = fails_at};
        const tess_host host = host_of(&account);
        void *const plain = tess_alloc(&host, 10);
        void *const zeroed = tess_alloc_zero(&host, 20);
        void *const array = tess_alloc_array(&host, 10, 3);

        assert_int_equal(account.calls, 3);
        assert_true((plain == NULL) == (fails_at == 1));
        assert_true((zeroed == NULL) == (fails_at == 2));
        assert_true((array == NULL) == (fails_at == 3));
        tess_release(&host, plain, 10);
        tess_release(&host, zeroed, 20);
        tess_release(&host, array, 30);
        assert_int_equal(account.held, 0);
    }
}

static void a_product_that_does_not_fit_is_never_asked_for(void **state)
{
    pool account = {0};
    const tess_host host = host_of(&account);

    (void)state;
    assert_null(tess_alloc_array(&host, SIZE_MAX / 2 + 1, 2));
    assert_null(tess_alloc_array(&host, SIZE_MAX, SIZE_MAX));
    assert_int_equal(account.calls, 0);
}

static void releasing_nothing_asks_nobody(void **state)
{
    pool account = {0};
    const tess_host host = host_of(&account);

    (void)state;
    tess_release(&host, NULL, 5); /* pool_release would fail on it */
    tess_release(NULL, NULL, 0);
    assert_int_equal(account.held, 0);
}

static void sizes_are_checked(void **state)
{
    size_t out = 42;

    (void)state;
    assert_false(tess_multiply(SIZE_MAX, 2, &out));
    assert_false(tess_multiply(SIZE_MAX / 3 + 1, 3, &out));
    assert_false(tess_add(SIZE_MAX, 1, &out));
    assert_int_equal(out, 42);
    assert_true(tess_multiply(SIZE_MAX / 3, 3, &out));
    assert_true(out == SIZE_MAX / 3 * 3);
    assert_true(tess_multiply(SIZE_MAX, 0, &out));
    assert_int_equal(out, 0);
    assert_true(tess_multiply(SIZE_MAX, 1, &out));
    assert_true(out == SIZE_MAX);
    assert_true(tess_add(SIZE_MAX - 1, 1, &out));
    assert_true(out == SIZE_MAX);
}

static void counts_are_checked(void **state)
{
    int64_t out = 42;

    (void)state;
    assert_false(tess_multiply_i64(INT64_MAX, 2, &out));
    assert_false(tess_multiply_i64(INT64_MIN, -1, &out));
    assert_false(tess_multiply_i64(INT64_C(1) << 32, INT64_C(1) << 31, &out));
    assert_false(tess_add_i64(INT64_MAX, 1, &out));
    assert_false(tess_add_i64(INT64_MIN, -1, &out));
    assert_int_equal(out, 42);
    assert_true(tess_multiply_i64(INT64_C(1) << 32, -(INT64_C(1) << 31), &out));
    assert_true(out == INT64_MIN);
    assert_true(tess_multiply_i64(-3, 5, &out));
    assert_true(out == -15);
    assert_true(tess_add_i64(INT64_MAX, INT64_MIN, &out));
    assert_true(out == -1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(uses_the_programs_allocator),
        cmocka_unit_test(aligns_without_an_allocator),
        cmocka_unit_test(size_zero_is_one_byte),
        cmocka_unit_test(zeroes),
        cmocka_unit_test(every_failure_is_a_null),
        cmocka_unit_test(a_product_that_does_not_fit_is_never_asked_for),
        cmocka_unit_test(releasing_nothing_asks_nobody),
        cmocka_unit_test(sizes_are_checked),
        cmocka_unit_test(counts_are_checked),
    };
    const int failed = cmocka_run_group_tests(tests, NULL, NULL);

    return failed != 0;
}
