/* SPDX-License-Identifier: Apache-2.0
 * What the host and a GPU kernel agree on: parameters, roles, lines of the .def files. Read by C11
 * on the host, by CUDA, HIP, and by the emulation of both. */
#ifndef TESSERA_BACKENDS_GPU_KERNELS_H
#define TESSERA_BACKENDS_GPU_KERNELS_H

#include "core/portable/args.h"

/* Every kernel has the parameters (tess_args, tess_gpu_addresses, tess_gpu_run), by value, in this
 * order. On NVIDIA the first two are __grid_constant__.
 *
 * Addresses by enum tess_address_index: of element (0,0,0,0), offsets applied, NULL where the
 * problem has no such tensor or the caller did not want it. Of the same size on 64-bit hosts and
 * devices. */
typedef struct tess_gpu_addresses {
    void *at[TESS_AT_COUNT];
} tess_gpu_addresses;

/* Items are spread over a grid of one dimension that may be smaller than their number:
 *
 *     for (item = first_item + block; item < first_item + items; item += blocks)
 *
 * so grids stay within every device's limit and a persistent kernel has the same form. Item 0
 * starts first: walks put the heaviest tile there. */
typedef struct tess_gpu_run {
    tess_i64 first_item;
    tess_i64 items;
    tess_u32 step;     /* place of the launch in its plan */
    tess_u32 has_maps; /* the fourth parameter, where a kernel has one, describes K and V */
} tess_gpu_run;

typedef char tess_gpu_run_has_no_padding[sizeof(tess_gpu_run) == 24 ? 1 : -1];

/* A tensor as a unit for bulk copies wants it described: dims, rows, heads, batch, in boxes of one
 * panel of a tile (64 dims x tile_columns rows). What is in it is the driver's. */
#ifdef __cplusplus
#define TESS_GPU_ALIGNED(bytes) alignas(bytes)
#else
#define TESS_GPU_ALIGNED(bytes) _Alignas(bytes)
#endif
typedef struct tess_gpu_map {
    TESS_GPU_ALIGNED(64) unsigned char of_driver[128];
} tess_gpu_map;

/* The fourth parameter of kernels whose source is "hopper", as the first two are. Not described,
 * that is run.has_maps 0, are tensors in pages and those whose addresses or strides the unit does
 * not take. */
typedef struct tess_gpu_maps {
    tess_gpu_map k, v;
} tess_gpu_maps;

/* What a kernel does in a plan, and what one item of it is. args.tile_rows, tile_columns and
 * row_tiles are those of the kernel that gets them, not of the plan's main one.
 *
 * Forward:   MAIN or MAIN_CHECKED, [REDO], [COMBINE]
 * Backward:  DELTA, then one of
 *                MAIN, [DQ]
 *                MAIN_CHECKED, [REDO], [DQ, or DQ_CHECKED and [REDO_DQ]]
 *                [CLEAR_DQ], MAIN_ADDS, [REDO], [FINISH_DQ]
 *            then [DBIAS], [DSLOPE], [DSINK]
 *
 * A step is left out when the problem has no need of it: REDO behind a plain MAIN or with
 * TESS_ALLOW_NONFINITE_SPREAD, COMBINE with one split, a gradient that nobody wants. */
typedef enum tess_gpu_role {
    /* Forward: item = ((sequence x heads_kv + head) x row_tiles + tile) x splits + split; with
     * splits > 1 it writes partial_o and partial_lse. Backward: item = (sequence x heads_kv + head)
     * x shares + share, a share being args.share_columns = tile_columns columns, whose dK and dV it
     * owns. Isolates non-finite numbers by itself: an absent pair is never multiplied. */
    TESS_GPU_MAIN,

    /* The same, but multiplies absent pairs by zero. It writes 1 to redo[item] when a number that
     * is not finite came out of an item, else 0: one 32-bit flag for every item, in the workspace
     * at args.redo, unless TESS_ALLOW_NONFINITE_SPREAD. No counter, so nothing has to be cleared
     * before a run. */
    TESS_GPU_MAIN_CHECKED,

    /* Does the flagged items of MAIN_CHECKED again, exactly. Item as in MAIN_CHECKED and of that
     * kernel's tile shape: args are MAIN_CHECKED's own. Small grid; a block looks at its items'
     * flags and mostly ends there. */
    TESS_GPU_REDO,

    /* Merges partial_o and partial_lse: item = (sequence x heads_kv + head) x row_tiles + tile. */
    TESS_GPU_COMBINE,

    /* Merges partial results of the caller's: item = tile_rows rows, counted over batch, row and
     * head. Not of a plan: of args it has sequences, rows, heads_q and head_dim_v, the extents;
     * splits, how many parts; q_stride and dtype of a part of O at TESS_AT_Q; k_stride of a part of
     * LSE at TESS_AT_K; partial_o and partial_lse, elements from one part to the next; o_stride,
     * o_dtype and lse_stride of the result. */
    TESS_GPU_MERGE,

    /* dot(dO, O) - dLSE into args.delta: item as in COMBINE. */
    TESS_GPU_DELTA,

    /* dQ, each row by one owner: item as in COMBINE. */
    TESS_GPU_DQ,

    /* The same, but multiplies absent pairs by zero, with flags as MAIN_CHECKED has: behind those,
     * so args.redo is further on than MAIN_CHECKED's. tile_rows is TESS_LEAST_FLAGGED_ROWS at
     * least. Only behind a MAIN_CHECKED. */
    TESS_GPU_DQ_CHECKED,

    /* REDO for DQ_CHECKED. */
    TESS_GPU_REDO_DQ,

    /* MAIN_CHECKED that adds dQ, before the scale, to fp32 numbers at args.partial_dq, [row][head]
     * [dim] with rows tess_dq_pitch() apart: in no fixed order. */
    TESS_GPU_MAIN_ADDS,

    /* Makes those numbers 0: item = TESS_CLEARED_QUADS times 16 bytes of them. */
    TESS_GPU_CLEAR_DQ,

    /* dQ from them, rows that are not finite computed again: item as in COMBINE. */
    TESS_GPU_FINISH_DQ,

    /* dbias, each element by one owner, sums over axes of stride 0 included: item = ((b x heads +
     * h) x row tiles + tile) x column tiles + tile, of axes that are not summed over (1 of those
     * that are). */
    TESS_GPU_DBIAS,

    /* dalibi_slopes: item = (b x heads_q + h), b = 0 only when slope_stride[0] is 0. */
    TESS_GPU_DSLOPE,

    /* dsink: item = h of heads_q. */
    TESS_GPU_DSINK,

    TESS_GPU_ROLES
} tess_gpu_role;

#define TESS_CLEARED_QUADS 1024

/* One line per compiled kernel in backends/gpu/simt.def and each vendor's matrix.def:
 *
 *     TESS_GPU_KERNEL(name, pass, role, dtypes, max_head_dim, tile_rows, tile_columns, threads,
 *                     dynamic_shared_bytes, most_rows, priority)
 *
 * name      symbol in every image, extern "C"
 * pass      FORWARD or BACKWARD
 * role      of enum tess_gpu_role without TESS_GPU_
 * dtypes    storage types it takes, bits: TESS_GPU_F32 | TESS_GPU_F16 ...
 * max_head_dim          of head_dim and head_dim_v both; 0: any
 * tile_rows, tile_columns   0 where the role has none
 * threads   of a block: a multiple of the wave
 * dynamic_shared_bytes  0: all shared memory is static
 * most_rows folded rows it is for at most, 0: any
 * priority  among those that accept, the largest wins; per role */
/* Scores of a plain matrix kernel are scale x dot, with a scale that keeps their order and whose
 * product with log2 e is an ordinary number. */
#define TESS_LEAST_PLAIN_SCALE 1e-30f
#define TESS_MOST_PLAIN_SCALE 1e30f

#define TESS_GPU_F32 (1u << 1)
#define TESS_GPU_F16 (1u << 2)
#define TESS_GPU_BF16 (1u << 3)
#define TESS_GPU_E4M3 (1u << 4)
#define TESS_GPU_E5M2 (1u << 5)
#define TESS_GPU_FLOATS (TESS_GPU_F32 | TESS_GPU_F16 | TESS_GPU_BF16)

#endif
