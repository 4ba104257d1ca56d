/* SPDX-License-Identifier: Apache-2.0
 * The kernel record: one compiled kernel, what it takes, and why it refuses. */
#ifndef TESSERA_CORE_SCHEDULE_KERNEL_H
#define TESSERA_CORE_SCHEDULE_KERNEL_H

#include "core/base/text.h"
#include "core/schedule/caps.h"
#include "core/schedule/problem.h"

/* Why a kernel does not take a problem. Each code has two numbers that clashed; the text is made
 * in one place (kernel.c) so that every backend explains itself in the same words. */
typedef enum tess_refusal_code {
    TESS_ACCEPTED = 0,
    TESS_REFUSED_PASS,     /* seen: the problem's pass */
    TESS_REFUSED_DTYPE,    /* seen: the problem's dtype */
    TESS_REFUSED_HEAD_DIM, /* seen: head_dim or head_dim_v, limit: the largest taken */
    TESS_REFUSED_FEATURE,  /* seen: features of the device, limit: feature bits needed */
    TESS_REFUSED_ROWS,     /* seen: folded rows, limit: the most this kernel is for */
    TESS_REFUSED_SCALING,  /* descale factors */
    TESS_REFUSED_PROGRAM,  /* custom score or mask */
    TESS_REFUSED_PAGING,   /* seen: the page size */
    TESS_REFUSED_GRADIENT, /* seen: gradient bits asked for, limit: those offered */
    TESS_REFUSED_SCORES,   /* scores that are more than scale x dot */
    TESS_REFUSED_WAVE,     /* seen: lanes of a wave of the device, limit: the kernel's */
    TESS_REFUSED_SHARED,   /* seen: bytes of shared memory of the device, limit: needed */
    TESS_REFUSED_BITS,     /* batch invariance; limit: the most rows it is for */
    TESS_REFUSED_ORDER,    /* equal bits asked for, sums in no fixed order */
    TESS_REFUSED_NAME,     /* TESSERA_KERNEL names others */
    TESS_REFUSED_OUTRANKED /* it would take it; another is preferred */
} tess_refusal_code;

typedef struct tess_refusal {
    tess_refusal_code code;
    int64_t seen, limit;
} tess_refusal;

typedef struct tess_kernel tess_kernel;
struct tess_kernel {
    const char *name; /* decoded in docs/kernels.md; the same string everywhere */
    int32_t pass;
    int32_t priority;  /* among those that accept, the largest wins */
    uint32_t features; /* tess_caps.features it needs */
    uint32_t dtypes;   /* bit (1 << TESS_F32) ... of storage types it takes */
    int64_t max_head_dim;
    int64_t max_folded_rows; /* 0: any; else it is for short problems only */
    int64_t tile_rows, tile_columns;
    const char *feature_name; /* what the features are called: "avx512" */
    uint32_t arithmetic; /* kernels of one number give a row the same bits; 0: nothing promised */

    bool flags_items;   /* marks work items to be redone: tess_args.redo */
    bool share_is_tile; /* backward: a work item is one column tile, not TESS_SHARE_COLUMNS */
    bool leaves_dq;     /* backward: dQ is another kernel's, so none of its sums are kept */
    bool adds_dq;       /* backward: one sum is, which all add to in an order of chance */

    /* Bytes of scratch per worker; NULL: none. */
    size_t (*scratch)(int64_t head_dim, int64_t head_dim_v);

    /* More questions of the backend's own, after the ones above were answered; NULL: none. */
    tess_refusal (*accept)(const tess_kernel *kernel, const tess_problem *problem,
                           const tess_caps *caps);

    const void *entry; /* the backend's: a table of functions, an image's symbol */
};

/* Whether kernel takes problem on a device with caps. */
tess_refusal tess_kernel_accepts(const tess_kernel *kernel, const tess_problem *problem,
                                 const tess_caps *caps);

/* Appends why, with both numbers: "head_dim 520 is above 256". */
void tess_refusal_write(const tess_refusal *refusal, const tess_kernel *kernel,
                        tess_text *out_text);

#endif
