/* SPDX-License-Identifier: Apache-2.0
 * The tile verbs in plain C, bit for bit: for machines without AMX, and for sanitizers. */
#ifndef TESSERA_BACKENDS_CPU_TILE_EMULATED_H
#define TESSERA_BACKENDS_CPU_TILE_EMULATED_H

#include <stdint.h>
#include <string.h>

/* The definition of TDPBF16PS in Intel's manual (volume 2): two chains of fused multiply-adds, of
 * the even and of the odd elements, their sum, and that added to the result; all rounded to nearest
 * even, subnormal operands and results taken as 0. */

enum { EMULATED_ROWS = 16, EMULATED_BYTES = 64, EMULATED_COLUMNS = 16 };

typedef unsigned char emulated_tile[EMULATED_ROWS][EMULATED_BYTES];

/* Tiles belong to a thread, like registers. */
static _Thread_local emulated_tile emulated_tiles[8];

static inline void tile_fence(void) {}

/* Whatever the last user of the thread left there must not matter. */
static inline void tile_start(void)
{
    memset(emulated_tiles, 0xff, sizeof emulated_tiles);
}

static inline void tile_stop(void) {}

static inline void tile_zero(int t)
{
    memset(emulated_tiles[t], 0, sizeof emulated_tiles[t]);
}

static inline void tile_load(int t, const void *at, int64_t step)
{
    for (int i = 0; i < EMULATED_ROWS; i++)
        memcpy(emulated_tiles[t][i], (const char *)at + i * step, EMULATED_BYTES);
}

static inline void tile_stream(int t, const void *at, int64_t step)
{
    tile_load(t, at, step);
}

static inline void tile_store(int t, void *at, int64_t step)
{
    for (int i = 0; i < EMULATED_ROWS; i++)
        memcpy((char *)at + i * step, emulated_tiles[t][i], EMULATED_BYTES);
}

static inline float emulated_flush(float x)
{
    return __builtin_fabsf(x) < 0x1p-126f ? __builtin_copysignf(0.0f, x) : x;
}

static inline float emulated_widen(const unsigned char *at)
{
    uint16_t half;
    uint32_t bits;
    float x;

    memcpy(&half, at, sizeof half);
    bits = (uint32_t)half << 16;
    memcpy(&x, &bits, sizeof x);
    return emulated_flush(x);
}

static inline void tile_multiply(int c, int a, int b)
{
    float right[EMULATED_ROWS][2][EMULATED_COLUMNS];

    for (int k = 0; k < EMULATED_ROWS; k++)
        for (int j = 0; j < EMULATED_COLUMNS; j++)
            for (int odd = 0; odd < 2; odd++)
                right[k][odd][j] = emulated_widen(emulated_tiles[b][k] + 4 * j + 2 * odd);
    for (int i = 0; i < EMULATED_ROWS; i++) {
        float chain[2][EMULATED_COLUMNS] = {{0}}, row[EMULATED_COLUMNS];
        for (int k = 0; k < EMULATED_ROWS; k++)
            for (int odd = 0; odd < 2; odd++) {
                const float left = emulated_widen(emulated_tiles[a][i] + 4 * k + 2 * odd);
                for (int j = 0; j < EMULATED_COLUMNS; j++)
                    chain[odd][j] =
                        emulated_flush(__builtin_fmaf(left, right[k][odd][j], chain[odd][j]));
            }
        memcpy(row, emulated_tiles[c][i], sizeof row);
        for (int j = 0; j < EMULATED_COLUMNS; j++)
            row[j] =
                emulated_flush(emulated_flush(row[j]) + emulated_flush(chain[0][j] + chain[1][j]));
        memcpy(emulated_tiles[c][i], row, sizeof row);
    }
}

#endif
