/* SPDX-License-Identifier: Apache-2.0
 * The argument block: no holes, and small enough for every OpenCL device. */
#include "core/portable/args.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

/* 64-bit members first, then an even number of 32-bit ones: no compiler pads between them. That the
 * members are as many as expected is asserted in args.h itself, in each dialect. */
static void wide_members_come_first(void **state)
{
    (void)state;
    assert_int_equal(offsetof(tess_args, q_stride), 0);
    assert_int_equal(offsetof(tess_args, k_stride), 4 * sizeof(tess_i64));
    assert_int_equal(offsetof(tess_args, head_dim) % sizeof(tess_i64), 0);
    assert_int_equal((sizeof(tess_args) - offsetof(tess_args, head_dim)) % sizeof(tess_i64), 0);
    assert_int_equal(offsetof(tess_args, softcap) + sizeof(tess_f32), sizeof(tess_args));
    assert_int_equal(sizeof(tess_args) % sizeof(tess_i64), 0);
}

/* CL_DEVICE_MAX_PARAMETER_SIZE is 1024 at least, and no more with PoCL. */
static void a_forward_launch_fits_opencl(void **state)
{
    (void)state;
    assert_true(sizeof(tess_args) + TESS_AT_D_O * sizeof(tess_u64) <= 1024);
}

/* Backends walk the addresses by number. */
static void forward_addresses_come_before_backward_ones(void **state)
{
    (void)state;
    assert_int_equal(TESS_AT_Q, 0);
    assert_int_equal(TESS_AT_WORKSPACE + 1, TESS_AT_D_O);
    assert_true(TESS_AT_D_O < TESS_AT_COUNT);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(wide_members_come_first),
        cmocka_unit_test(a_forward_launch_fits_opencl),
        cmocka_unit_test(forward_addresses_come_before_backward_ones),
    };
    const int failed = cmocka_run_group_tests(tests, NULL, NULL);

    return failed != 0;
}
