/* SPDX-License-Identifier: Apache-2.0
 * Runs device code on the host, one fiber for each lane of a block. */
#ifndef TESSERA_TESTS_EMULATION_EMULATE_H
#define TESSERA_TESTS_EMULATION_EMULATE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* A lane runs alone until it comes to a barrier or to an exchange between the lanes of its wave.
 * What real lanes do at the same time is thus done in some order, and where that order matters a
 * synchronisation is missing: a wave runs to its barrier, or until it has to wait for others,
 * before the next one starts, in an order drawn anew each time. */
enum { TESS_EMULATED_MOST_LANES = 1024, TESS_EMULATED_MOST_WAVE = 64 };

typedef enum tess_emulated_order {
    TESS_EMULATED_FORWARD, /* waves, lanes and blocks by number */
    TESS_EMULATED_BACKWARD,
    TESS_EMULATED_RANDOM
} tess_emulated_order;

typedef struct tess_emulated_launch {
    void (*kernel)(const void *arguments); /* every lane calls it */
    const void *arguments;
    uint32_t blocks, threads; /* threads: a multiple of the wave */
    uint32_t wave;            /* 32 or 64 */
    size_t shared_size;       /* bytes of the block's shared memory: NaN when a block starts */
    tess_emulated_order order;
    uint64_t seed; /* of the random order */
} tess_emulated_launch;

/* Runs all blocks. Returns NULL, or what no real device would survive: lanes that wait for
 * different things, shared memory that is not there. The text is valid until the next launch of
 * this thread. Reads and writes outside of what the host has allocated are the host's to notice
 * (tests/kit/guard.h); shared memory ends at such a page too. */
const char *tess_emulate(const tess_emulated_launch *launch);

/* ---- What lanes call --------------------------------------------------------------------------
 */

uint32_t tess_emulated_thread(void); /* of the block */
uint32_t tess_emulated_block(void);
uint32_t tess_emulated_blocks(void);
uint32_t tess_emulated_wave(void);       /* lanes of a wave */
void *tess_emulated_shared(size_t size); /* at least this many bytes, or the launch fails */

/* Waits for every lane of the block. */
void tess_emulated_barrier(void);

/* Waits until is_over(what) says so. It is asked again and again between the turns of other waves,
 * and may do what hardware would have done meanwhile. All lanes of a wave wait together. */
void tess_emulated_wait(bool (*is_over)(uint64_t what), uint64_t what);

/* A number that is another one for every block of every launch: to begin anew with. */
uint64_t tess_emulated_life(void);

/* A random number of the launch. */
uint64_t tess_emulated_random(void);

/* One lane's part of something that its wave does together. */
typedef struct tess_emulated_part {
    const void *in; /* of the lane, valid until all have come */
    void *out;
} tess_emulated_part;

/* Waits for every lane of the wave, then `together` is called once with all parts, lane by lane.
 * All lanes must have come with the same function and number.
 *
 * number  for the function's use: a mask, a shape */
typedef void (*tess_emulated_together)(const tess_emulated_part *parts, uint32_t lanes,
                                       uint32_t number);
void tess_emulated_collective(tess_emulated_together together, uint32_t number, const void *in,
                              void *out);

/* Ends the launch with this text. Does not return. */
#if defined(__GNUC__)
__attribute__((noreturn))
#endif
void tess_emulated_fail(const char *text);

#ifdef __cplusplus
}
#endif

#endif
