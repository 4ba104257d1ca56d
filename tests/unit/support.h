/* SPDX-License-Identifier: Apache-2.0
 * What tests of the runtime share: an allocator that keeps account, a device, what a text holds. */
#ifndef TESSERA_TESTS_UNIT_SUPPORT_H
#define TESSERA_TESTS_UNIT_SUPPORT_H

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <tessera/tessera.h>

/* ---- An allocator that keeps account and fails on command -------------------------------------
 */

typedef struct tally {
    pthread_mutex_t lock;
    int64_t calls;
    int64_t fails_at;   /* which call returns NULL, counted from 1; 0: none */
    int64_t fails_from; /* this call and every later one; 0: none */
    int64_t blocks;     /* not yet released */
    size_t live, peak;  /* bytes not yet released, and the most there ever were */
    bool is_wrong;      /* a block came back with another size, or was never ours */
} tally;

#define TALLY_EMPTY                       \
    {                                     \
        .lock = PTHREAD_MUTEX_INITIALIZER \
    }

/* In front of every block, so that a release can be held against its allocation. */
typedef struct tally_block {
    void *memory;
    size_t size;
    uint64_t mark;
} tally_block;

enum { TALLY_ROOM = 64 };
#define TALLY_MARK UINT64_C(0x7e55e7a0b10c)

static inline void *tally_allocate(void *user, size_t size, size_t alignment)
{
    tally *const account = user;
    const size_t room = alignment > TALLY_ROOM ? alignment : TALLY_ROOM;
    void *memory = NULL;
    bool fails;

    pthread_mutex_lock(&account->lock);
    account->calls++;
    fails = account->calls == account->fails_at ||
            (account->fails_from != 0 && account->calls >= account->fails_from);
    account->is_wrong |= size == 0;
    if (!fails && posix_memalign(&memory, room, size + room) == 0) {
        account->blocks++;
        account->live += size;
        account->peak = account->live > account->peak ? account->live : account->peak;
    }
    pthread_mutex_unlock(&account->lock);
    if (memory == NULL)
        return NULL;

    const tally_block block = {memory, size, TALLY_MARK};
    char *const data = (char *)memory + room;

    memcpy(data - sizeof block, &block, sizeof block);
    memset(data, 0xa5, size < 1 << 20 ? size : 1 << 20); /* so that forgotten zeroing shows */
    return data;
}

static inline void tally_release(void *user, void *memory, size_t size)
{
    tally *const account = user;
    tally_block block;

    memcpy(&block, (char *)memory - sizeof block, sizeof block);
    pthread_mutex_lock(&account->lock);
    account->is_wrong |= block.mark != TALLY_MARK || block.size != size;
    account->blocks--;
    account->live -= size;
    pthread_mutex_unlock(&account->lock);
    memset((char *)memory - sizeof block, 0, sizeof block);
    free(block.memory);
}

static inline void assert_nothing_is_left(const tally *account)
{
    assert_false(account->is_wrong);
    assert_int_equal(account->blocks, 0);
    assert_int_equal(account->live, 0);
}

/* ---- Texts ------------------------------------------------------------------------------------
 */

/* Whether text holds every piece of a list that is separated by '|'. */
static inline bool holds_pieces(const char *text, const char *pieces)
{
    char piece[256];

    while (*pieces != '\0') {
        const size_t length = strcspn(pieces, "|");

        assert_true(length < sizeof piece);
        memcpy(piece, pieces, length);
        piece[length] = '\0';
        if (strstr(text, piece) == NULL)
            return false;
        pieces += length + (pieces[length] == '|');
    }
    return true;
}

/* The call returned the wanted status, and its text begins with the call's name and holds every
 * piece. `what` names the case. */
#define assert_refused(context, got, wanted, call, pieces, what) \
    check_refused(context, got, wanted, call, pieces, what, __FILE__, __LINE__)

static inline void check_refused(const tess_context *context, tess_status got, tess_status wanted,
                                 const char *call, const char *pieces, const char *what,
                                 const char *file, int line)
{
    char text[8192];
    const size_t length = tess_context_error(context, text, sizeof text);
    const size_t prefix = strlen(call);

    if (got != wanted)
        print_error("%s: %s, not %s: \"%s\"\n", what, tess_status_name(got),
                    tess_status_name(wanted), got == TESS_OK ? "" : text);
    else if (length == 0 || strncmp(text, call, prefix) != 0 || text[prefix] != ':' ||
             !holds_pieces(text, pieces))
        print_error("%s: the text is \"%s\"; it should begin with \"%s:\" and hold %s\n", what,
                    text, call, pieces);
    else
        return;
    _fail(file, line);
}

/* Fails with the library's own text when a call did not succeed. */
#define assert_fine(context, status) check_fine(context, status, __FILE__, __LINE__)

static inline void check_fine(const tess_context *context, tess_status status, const char *file,
                              int line)
{
    char text[8192];

    if (status == TESS_OK)
        return;
    tess_context_error(context, text, sizeof text);
    print_error("%s: %s\n", tess_status_name(status), text);
    _fail(file, line);
}

/* ---- A context with an open device -------------------------------------------------------------
 */

typedef struct world {
    tally memory;
    tess_context *context;
    tess_device *device;
    tess_queue *queue;
} world;

/* threads: of the context's descriptor, 0 for the default. */
static inline void world_open_on(world *w, const char *device, int32_t threads)
{
    *w = (world){.memory = TALLY_EMPTY};
    const tess_context_desc desc = {TESS_STRUCT(tess_context_desc), .allocate = tally_allocate,
                                    .release = tally_release, .memory_user = &w->memory,
                                    .threads = threads};

    assert_fine(NULL, tess_context_create(&desc, &w->context));
    assert_fine(w->context, tess_device_open(w->context, device, &w->device));
    assert_fine(w->context, tess_queue_create(w->device, &w->queue));
}

static inline void world_open(world *w, int32_t threads)
{
    world_open_on(w, "cpu", threads);
}

/* Everything made in this world must be gone; nothing may be left behind. */
static inline void world_close(world *w)
{
    tess_queue_destroy(w->queue);
    tess_context_destroy(w->context);
    assert_nothing_is_left(&w->memory);
}

/* ---- A small problem whose every extent differs ------------------------------------------------
 */

enum {
    SMALL_BATCH = 2,
    SMALL_ROWS = 5,
    SMALL_COLUMNS = 7,
    SMALL_HEADS = 6,
    SMALL_HEADS_KV = 3,
    SMALL_DIM = 8,
    SMALL_DIM_V = 4
};

static inline tess_attention_desc small_desc(void)
{
    return (tess_attention_desc){
        TESS_STRUCT(tess_attention_desc),
        .q = tess_layout_packed(TESS_F32, SMALL_BATCH, SMALL_ROWS, SMALL_HEADS, SMALL_DIM),
        .k = tess_layout_packed(TESS_F32, SMALL_BATCH, SMALL_COLUMNS, SMALL_HEADS_KV, SMALL_DIM),
        .v = tess_layout_packed(TESS_F32, SMALL_BATCH, SMALL_COLUMNS, SMALL_HEADS_KV, SMALL_DIM_V),
        .o = tess_layout_packed(TESS_F32, SMALL_BATCH, SMALL_ROWS, SMALL_HEADS, SMALL_DIM_V)};
}

/* Numbers in -1 ... 1 that are the same everywhere and repeat nowhere nearby. */
static inline float drawn(uint64_t seed, uint64_t index)
{
    uint64_t x = seed * UINT64_C(0x9e3779b97f4a7c15) + index * UINT64_C(0xbf58476d1ce4e5b9) + 1;

    x = (x ^ x >> 31) * UINT64_C(0x94d049bb133111eb);
    x = (x ^ x >> 29) * UINT64_C(0xbf58476d1ce4e5b9);
    return (float)((double)(x >> 40) / 8388608.0 - 1.0);
}

static inline void draw_all(float *values, size_t count, uint64_t seed)
{
    for (size_t i = 0; i < count; i++)
        values[i] = drawn(seed, i);
}

#endif
