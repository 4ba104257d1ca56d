/* SPDX-License-Identifier: Apache-2.0
 * Ceilings with AMX tiles of bf16; memory is read and copied by AVX-512. */
#define _DEFAULT_SOURCE /* syscall() */
#include "bench/peak_loops.h"

#include <immintrin.h>
#include <sys/syscall.h>
#include <unistd.h>

struct tile_shape {
    uint8_t palette, start_row, reserved[14];
    uint16_t row_bytes[16];
    uint8_t rows[16];
};

/* Four independent sums, which hide the latency of a product: 52 cycles for one that starts every
 * 16. */
static float fma_loop(int64_t rounds)
{
    static const struct tile_shape shape = {.palette = 1,
                                            .row_bytes = {64, 64, 64, 64, 64, 64, 64, 64},
                                            .rows = {16, 16, 16, 16, 16, 16, 16, 16}};
    float sums[16][16];

    _tile_loadconfig(&shape);
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
    _tile_zero(4);
    _tile_zero(5);
    _tile_zero(6);
    _tile_zero(7);
    for (int64_t round = 0; round < rounds; round++) {
        _tile_dpbf16ps(0, 4, 6);
        _tile_dpbf16ps(1, 4, 7);
        _tile_dpbf16ps(2, 5, 6);
        _tile_dpbf16ps(3, 5, 7);
    }
    _tile_stored(0, sums, sizeof sums[0]);
    _tile_release();
    return sums[0][0];
}

static uint32_t read_loop(const void *from, size_t size)
{
    return tess_peak_loops_avx512.read(from, size);
}

static void copy_loop(void *to, const void *from, size_t size)
{
    tess_peak_loops_avx512.copy(to, from, size);
}

/* 16 x 16 sums of 32 products each. */
const tess_peak_loops tess_peak_loops_amx = {"amx", 4 * 16 * 16 * 32 * 2.0, fma_loop, read_loop,
                                             copy_loop};

/* arch_prctl(ARCH_REQ_XCOMP_PERM) for the state of tiles fails without the instructions, too. */
bool tess_peak_amx_is_here(void)
{
    return syscall(SYS_arch_prctl, 0x1023, 18) == 0;
}
