/* SPDX-License-Identifier: Apache-2.0
 * The tile verbs of the amx level: the machine's instructions, or what they compute in plain C. */
#ifndef TESSERA_BACKENDS_CPU_TILE_H
#define TESSERA_BACKENDS_CPU_TILE_H

/* Eight tiles, numbered by constants, of 16 rows of 64 bytes each: 16 x 32 bf16 or 16 x 16 fp32.
 *
 *     tile_start(), tile_stop()    around every use on a thread
 *     tile_zero(t)
 *     tile_load(t, at, step)       16 rows, `step` bytes apart
 *     tile_stream(t, at, step)     the same, for rows that are not worth a place in the first cache
 *     tile_store(t, at, step)
 *     tile_multiply(c, a, b)       c[i][j] += a[i][2k] b[k][2j] + a[i][2k + 1] b[k][2j + 1], summed
 *                                  over k; products, sums and results below 2^-126 count as 0
 *     tile_fence()                 between vector stores and tile loads of the same memory
 *
 * The second operand thus holds pairs: row k has elements 2k and 2k + 1 of every column. */
#ifdef TESS_AMX_EMULATED
#include "backends/cpu/tile_emulated.h"
#else
#include "backends/cpu/tile_amx.h"
#endif

#endif
