/* SPDX-License-Identifier: Apache-2.0
 * The tile verbs in AMX instructions. */
#ifndef TESSERA_BACKENDS_CPU_TILE_AMX_H
#define TESSERA_BACKENDS_CPU_TILE_AMX_H

#include <immintrin.h>
#include <stdint.h>
#include <string.h>

/* gcc's tile loads (12.2) are volatile assembler without a memory operand: nothing but a clobber
 * keeps an ordinary store in front of them. */
#define tile_fence() __asm__ volatile("" ::: "memory")

struct tile_shape {
    uint8_t palette, start_row, reserved[14];
    uint16_t row_bytes[16];
    uint8_t rows[16];
};

static inline void tile_start(void)
{
    struct tile_shape shape;

    memset(&shape, 0, sizeof shape);
    shape.palette = 1;
    for (int i = 0; i < 8; i++) {
        shape.row_bytes[i] = 64;
        shape.rows[i] = 16;
    }
    /* gcc 12.2 says that loading a shape reads its first 8 bytes only, and drops the other stores.
     */
    __asm__ volatile("" ::"r"(&shape) : "memory");
    _tile_loadconfig(&shape);
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
