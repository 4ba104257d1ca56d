/* SPDX-License-Identifier: Apache-2.0
 * The tile verbs in AMX instructions. */
#ifndef TESSERA_BACKENDS_CPU_TILE_AMX_H
#define TESSERA_BACKENDS_CPU_TILE_AMX_H

#include <immintrin.h>
#include <stdint.h>

/* gcc's tile loads (12.2) are volatile assembler without a memory operand: nothing but a clobber
 * keeps an ordinary store in front of them. */
#define tile_fence() __asm__ volatile("" ::: "memory")

struct tile_shape {
    uint8_t palette, start_row, reserved[14];
    uint16_t row_bytes[16];
    uint8_t rows[16];
};

/* A constant, since gcc 12.2 believes that loading a shape reads its first 8 bytes only, and would
 * drop stores to the others. */
static const struct tile_shape tile_shape = {.palette = 1,
                                             .row_bytes = {64, 64, 64, 64, 64, 64, 64, 64},
                                             .rows = {16, 16, 16, 16, 16, 16, 16, 16}};

static inline void tile_start(void)
{
    _tile_loadconfig(&tile_shape);
}

static inline void tile_stop(void)
{
    _tile_release();
}

#define tile_zero(t) _tile_zero(t)
#define tile_load(t, at, step) _tile_loadd(t, at, (size_t)(step))
#define tile_stream(t, at, step) _tile_stream_loadd(t, at, (size_t)(step))
#define tile_store(t, at, step) _tile_stored(t, at, (size_t)(step))
#define tile_multiply(c, a, b) _tile_dpbf16ps(c, a, b)

#endif
