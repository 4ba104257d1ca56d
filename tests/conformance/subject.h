/* SPDX-License-Identifier: Apache-2.0
 * What a test runs on: every device of this machine, and of the CPU every instruction set it has.
 */
#ifndef TESSERA_TESTS_CONFORMANCE_SUBJECT_H
#define TESSERA_TESTS_CONFORMANCE_SUBJECT_H

#include <stdbool.h>
#include <tessera/tessera.h>

/* Exit codes of a test program. */
enum { TESS_TEST_PASSED = 0, TESS_TEST_FAILED = 1, TESS_TEST_SKIPPED = 77 };

/* An open device. */
typedef struct tess_subject {
    tess_context *context;
    tess_device *device;
    tess_device_info info;
    char label[96]; /* "cpu avx2": for messages */
} tess_subject;

/* Returns an exit code. */
typedef int (*tess_subject_fn)(const tess_subject *subject, void *user);

/* Opens a device in a context of its own.
 *
 * name     as tess_device_open() takes it
 * isa      ceiling of the CPU's instruction sets, a value of TESSERA_CPU_ISA; NULL: as the
 *          environment says
 * threads  of the context; 0: the default
 *
 * False when it cannot be opened or the ceiling is not reached; `why` then says so. */
bool tess_subject_open(const char *name, const char *isa, int threads, tess_subject *out, char *why,
                       size_t why_size);
void tess_subject_close(tess_subject *subject);

/* Calls `run` on every device, one after the other, and on the CPU once per instruction set that
 * this machine has, lowest first. Where TESSERA_CPU_ISA is set it is the only one.
 *
 * backend  "cpu", "cuda" ...: devices of this backend only; NULL: all
 *
 * Returns TESS_TEST_FAILED when one of them failed, TESS_TEST_SKIPPED with the reason printed when
 * there is none or all of them skipped, else TESS_TEST_PASSED. */
int tess_subjects_each(const char *backend, tess_subject_fn run, void *user);

/* The value of an environment variable as a whole number, `fallback` when it is not set. */
int tess_test_number(const char *variable, int fallback);

#endif
