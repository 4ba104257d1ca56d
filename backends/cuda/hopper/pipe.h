/* SPDX-License-Identifier: Apache-2.0
 * Places in shared memory that go round between the warp that fills them and the groups that empty
 * them. */
#ifndef TESSERA_BACKENDS_CUDA_HOPPER_PIPE_H
#define TESSERA_BACKENDS_CUDA_HOPPER_PIPE_H

#include "backends/cuda/ptx_sm90.h"
#include "vendor/lane.h"

/* STAGES places, each with two barriers: `full` is arrived at by the producer, once and with the
 * bytes of its copies, `empty` by one thread of each group that has read the place. Both sides
 * count their turns: turn n is at place n % STAGES, in its phase n / STAGES. The producer's first
 * turn finds every place empty, since the phase before the first counts as over. */
template <int STAGES> struct tess_hopper_ring {
    tess_u32 full_barriers, empty_barriers, place, phase;

    TESS_DEVICE_MEMBER tess_hopper_ring(tess_u64 (&full_of)[STAGES], tess_u64 (&empty_of)[STAGES])
        : full_barriers(tess_ptx_shared_address(full_of)),
          empty_barriers(tess_ptx_shared_address(empty_of)), place(0), phase(0)
    {
    }

    static TESS_DEVICE_MEMBER void init(tess_u64 (&full_of)[STAGES], tess_u64 (&empty_of)[STAGES],
                                        tess_u32 groups)
    {
        for (int i = 0; i < STAGES; i++) {
            tess_ptx_mbarrier_init(tess_ptx_shared_address(&full_of[i]), 1);
            tess_ptx_mbarrier_init(tess_ptx_shared_address(&empty_of[i]), groups);
        }
    }

    TESS_DEVICE_MEMBER tess_u32 stage() const { return place; }
    TESS_DEVICE_MEMBER tess_u32 full() const { return full_barriers + 8 * place; }

    TESS_DEVICE_MEMBER void advance()
    {
        place++;
        if (place == STAGES) {
            place = 0;
            phase ^= 1u;
        }
    }

    TESS_DEVICE_MEMBER void wait_full() const { tess_ptx_mbarrier_wait(full(), phase); }
    TESS_DEVICE_MEMBER void wait_empty() const
    {
        tess_ptx_mbarrier_wait(empty_barriers + 8 * place, phase ^ 1u);
    }

    /* A consumer has done with the place. One thread speaks for its group: a product that one warp
     * has waited for is over in all four. */
    TESS_DEVICE_MEMBER void release()
    {
        if (tess_thread() % 128u == 0)
            tess_ptx_mbarrier_arrive(empty_barriers + 8 * place);
        advance();
    }
    TESS_DEVICE_MEMBER void release_by_warp()
    {
        tess_ptx_bar_warp_sync();
        if (tess_thread() % 32u == 0)
            tess_ptx_mbarrier_arrive(empty_barriers + 8 * place);
        advance();
    }
};

#endif
