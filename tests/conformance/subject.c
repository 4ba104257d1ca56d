/* SPDX-License-Identifier: Apache-2.0
 * Opening devices and walking over the instruction sets of the CPU. */
#include "tests/conformance/subject.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ISA_VARIABLE "TESSERA_CPU_ISA"

/* Values of TESSERA_CPU_ISA, lowest first. */
static const char *const isas[] = {"scalar", "portable", "neon", "sve", "avx2", "avx512", "amx"};

int tess_test_number(const char *variable, int fallback)
{
    const char *text = getenv(variable);
    char *end;
    long number;

    if (!text || !*text)
        return fallback;
    number = strtol(text, &end, 10);
    if (*end || number < 0 || number > 100000000) {
        fprintf(stderr, "%s is \"%s\"; it takes a whole number from 0 to 100000000\n", variable,
                text);
        exit(TESS_TEST_FAILED);
    }
    return (int)number;
}

static bool fail(const char *what, char *why, size_t why_size)
{
    char text[512];

    tess_context_error(NULL, text, sizeof text);
    snprintf(why, why_size, "%s: %s", what, text);
    return false;
}

bool tess_subject_open(const char *name, const char *isa, int threads, tess_subject *out, char *why,
                       size_t why_size)
{
    const tess_context_desc desc = {TESS_STRUCT(tess_context_desc), .threads = threads};
    const char *set = getenv(ISA_VARIABLE);
    char *before = set ? strdup(set) : NULL;
    tess_status status;

    memset(out, 0, sizeof *out);
    if (isa)
        setenv(ISA_VARIABLE, isa, 1);
    status = tess_context_create(&desc, &out->context);
    if (before)
        setenv(ISA_VARIABLE, before, 1);
    else
        unsetenv(ISA_VARIABLE);
    free(before);
    if (status != TESS_OK)
        return fail("tess_context_create", why, why_size);
    if (tess_device_open(out->context, name, &out->device) != TESS_OK) {
        fail(name, why, why_size);
        tess_subject_close(out);
        return false;
    }
    out->info.struct_size = sizeof out->info;
    tess_device_get_info(out->device, &out->info);
    if (isa && strcmp(out->info.architecture, isa) != 0) {
        snprintf(why, why_size, "this CPU, or this build, has no %s", isa);
        tess_subject_close(out);
        return false;
    }
    snprintf(out->label, sizeof out->label, "%s %s", name, out->info.architecture);
    return true;
}

void tess_subject_close(tess_subject *subject)
{
    tess_context_destroy(subject->context); /* closes the device */
    subject->context = NULL;
    subject->device = NULL;
}

/* What has happened so far. */
typedef struct walk {
    tess_subject_fn run;
    void *user;
    int ran, failed, skipped;
} walk;

static void visit(walk *w, const char *name, const char *isa)
{
    tess_subject subject;
    char why[640];
    int result;

    if (!tess_subject_open(name, isa, 0, &subject, why, sizeof why)) {
        if (isa)
            return; /* a level that this machine lacks is no news */
        printf("skip %s: %s\n", name, why);
        w->skipped++;
        return;
    }
    result = w->run(&subject, w->user);
    tess_subject_close(&subject);
    fflush(stdout);
    w->ran += result != TESS_TEST_SKIPPED;
    w->skipped += result == TESS_TEST_SKIPPED;
    w->failed += result != TESS_TEST_SKIPPED && result != TESS_TEST_PASSED;
}

static void visit_device(walk *w, const char *name)
{
    if (strcmp(name, "cpu") != 0 || getenv(ISA_VARIABLE)) {
        visit(w, name, NULL);
        return;
    }
    for (size_t i = 0; i < sizeof isas / sizeof *isas; i++)
        visit(w, name, isas[i]);
}

/* Whether a device's name, "cuda:1", is of a backend, "cuda". */
static bool is_of(const char *name, const char *backend)
{
    const size_t length = strlen(backend);

    return strncmp(name, backend, length) == 0 && (name[length] == '\0' || name[length] == ':');
}

int tess_subjects_each(const char *backend, tess_subject_fn run, void *user)
{
    walk w = {.run = run, .user = user};
    tess_context *context = NULL;

    if (tess_context_create(NULL, &context) != TESS_OK) {
        char why[640];

        fail("tess_context_create", why, sizeof why);
        printf("%s\n", why);
        return TESS_TEST_FAILED;
    }
    for (size_t i = 0; i < tess_context_device_count(context); i++) {
        tess_device_info info = {TESS_STRUCT(tess_device_info)};

        if (tess_context_device_info(context, i, &info) != TESS_OK ||
            (backend && !is_of(info.name, backend)))
            continue;
        if (info.available)
            visit_device(&w, info.name);
        else
            printf("skip %s: %s\n", info.name, info.reason);
    }
    tess_context_destroy(context);
    if (w.failed)
        return TESS_TEST_FAILED;
    if (w.ran == 0) {
        printf("skipped: there is no %s device to run on\n", backend ? backend : "usable");
        return TESS_TEST_SKIPPED;
    }
    return TESS_TEST_PASSED;
}
