/* SPDX-License-Identifier: Apache-2.0
 * The inside of the look-alike drivers: both vendors' entry points are thin over these. */
#ifndef TESSERA_TESTS_FAKES_ENGINE_H
#define TESSERA_TESTS_FAKES_ENGINE_H

#include "tests/fakes/fake.h"

extern fake_state fake;

/* What one vendor's entry points say about themselves before the first call. */
typedef struct fake_vendor {
    int (*current)(void);
    void *(*foreign_stream)(int device);
    void (*forget)(void);    /* on a reset; NULL: nothing to forget */
    unsigned shared_unasked; /* bytes of shared memory that a kernel has without opting in */
    int shared_memory;       /* of a chip */
    int wave;
} fake_vendor;

void fake_introduce(const fake_vendor *vendor);

/* A function that the library under test finds. */
#define ENTRY __attribute__((visibility("default")))

/* Returns an error. */
#define CHECK(expression)                \
    do {                                 \
        const int answer = (expression); \
        if (answer != FAKE_SUCCESS)      \
            return answer;               \
    } while (0)

/* Fails the call when its turn has come. */
#define BEGIN(name) CHECK(fake_begin(name))

/* Starts a call: records its name and says whether it fails, with which number. */
int fake_begin(const char *name);

/* Notes a misuse; returns the error number. */
int fake_complain(int code, const char *format, ...) __attribute__((format(printf, 2, 3)));

typedef enum fake_kind { FAKE_CONTEXT, FAKE_STREAM, FAKE_EVENT, FAKE_MODULE } fake_kind;

/* An object of a device; a function is an object of its module. */
typedef struct fake_object fake_object;

fake_object *fake_make(fake_kind kind, int device);
/* NULL, with a complaint, unless the handle is a live object of that kind. */
fake_object *fake_object_of(void *handle, fake_kind kind, const char *what);
int fake_device_of(const fake_object *object);
void fake_end(fake_object *object);

/* ---- Memory: the device's is the host's -------------------------------------------------------
 */

int fake_allocate(int device, size_t size, bool is_async, void **out_memory);
int fake_free(void *memory, bool is_async);
/* The device of the block that holds size bytes at address; -1 when none does. */
int fake_owner(const void *address, size_t size);
int fake_copy(void *to, const void *from, size_t size, const void *on_device);

/* ---- Images -----------------------------------------------------------------------------------
 */

/* One kernel of an image and what is known of it; 0 is unknown. */
typedef struct fake_kernel {
    char name[FAKE_NAME];
    unsigned parameter_bytes; /* all explicit ones together */
    unsigned parameters;
    unsigned parameter_size[8], parameter_offset[8];
    unsigned most_threads;
    unsigned shared; /* static */
    unsigned private_bytes, spills;
} fake_kernel;

enum { FAKE_KERNELS = 512 };

typedef struct fake_image {
    char architecture[32]; /* "sm_80", "gfx942"; "" is any */
    int count;
    fake_kernel kernels[FAKE_KERNELS];
} fake_image;

/* Reads a cubin, PTX, an AMD code object, or the text "fake NAME NAME ..."; false with a complaint
 * when it is none of these or malformed. */
bool fake_image_read(const void *data, fake_image *out_image);

int fake_load(int device, const void *data, const char *architecture, void **out_module);
int fake_unload(void *module);
int fake_find(void *module, const char *name, void **out_function);
int fake_function_set(void *function, int value);

/* limit: bytes of shared memory a block of this chip may use. */
int fake_run(void *function, int current_device, const unsigned grid[3], const unsigned block[3],
             unsigned shared, void *stream, void **parameters);

#endif
