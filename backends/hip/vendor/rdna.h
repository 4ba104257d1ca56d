/* SPDX-License-Identifier: Apache-2.0
 * What waves of 32 of RDNA 3 and 4 have in common. Included by rdna3.h and rdna4.h. */
#ifndef TESSERA_BACKENDS_HIP_VENDOR_RDNA_H
#define TESSERA_BACKENDS_HIP_VENDOR_RDNA_H

/* The value of the same lane in the other row of 16. */
TESS_DEVICE tess_u32 tess_row_exchange(tess_u32 x)
{
    return static_cast<tess_u32>(
        __builtin_amdgcn_permlanex16(x, x, 0x76543210u, 0xFEDCBA98u, true, false));
}
TESS_DEVICE tess_f32 tess_mma_exchange(tess_f32 x)
{
    return tess_from_bits(tess_row_exchange(tess_bits(x)));
}

/* Whether x holds in any lane of the wave; all take part. */
TESS_DEVICE bool tess_wave_any(bool x)
{
    return __builtin_amdgcn_ballot_w32(x) != 0;
}

#endif
