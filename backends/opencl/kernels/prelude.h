/* SPDX-License-Identifier: Apache-2.0
 * What every kernel begins with: the parameters, the addresses they carry, the walk over items. */
#ifndef TESSERA_BACKENDS_OPENCL_KERNELS_PRELUDE_H
#define TESSERA_BACKENDS_OPENCL_KERNELS_PRELUDE_H

#include "core/portable/args.h"

#include "core/portable/convert.h"
#include "core/portable/online_softmax.h"
#include "core/portable/walk.h"

#include <tessera/attention.h>
#include <tessera/base.h>

/* Kernels are OpenCL C 1.2 without any extension, flattened into one text by scripts/flatten_cl.py
 * and compiled by the device's driver. The host defines:
 *
 *     TESS_CL_NAME      of the kernel: the line in kernels.def
 *     TESS_CL_DIMS      the line's max_head_dim
 *     TESS_CL_ROWS      its tile_rows
 *     TESS_CL_COLUMNS   its tile_columns
 *     TESS_CL_GROUP     work-items of a work-group
 *     TESS_CL_LOCAL     the line's bytes of local memory
 *     TESS_CL_DTYPE     the problem's storage type, TESS_F32 ..., where the line says by dtype */

/* ---- Parameters -------------------------------------------------------------------------------
 *
 * The numbers lie in a constant buffer that the plan owns: by value and with all addresses they
 * would pass the 1,024 bytes of parameters that OpenCL 1.2 promises. Tensors come as a buffer and
 * the byte offset of element (0,0,0,0) in it, since a sub-buffer cannot start anywhere. Order and
 * meaning are those of enum tess_address_index; what is not there is NULL with offset 0. */
typedef __constant const tess_args *tess_args_at;

#define TESS_CL_AT(name) __global char *name, tess_i64 name##_offset

#define TESS_CL_FORWARD_AT                                                                         \
    TESS_CL_AT(q), TESS_CL_AT(k), TESS_CL_AT(v), TESS_CL_AT(o), TESS_CL_AT(lse),                   \
        TESS_CL_AT(cu_seqlens_q), TESS_CL_AT(cu_seqlens_k), TESS_CL_AT(seqused_q),                 \
        TESS_CL_AT(seqused_k), TESS_CL_AT(page_table), TESS_CL_AT(bias), TESS_CL_AT(alibi_slopes), \
        TESS_CL_AT(sink), TESS_CL_AT(q_descale), TESS_CL_AT(k_descale), TESS_CL_AT(v_descale),     \
        TESS_CL_AT(workspace)
#define TESS_CL_BACKWARD_AT                                                                 \
    TESS_CL_FORWARD_AT, TESS_CL_AT(d_o), TESS_CL_AT(d_lse), TESS_CL_AT(dq), TESS_CL_AT(dk), \
        TESS_CL_AT(dv), TESS_CL_AT(dbias), TESS_CL_AT(dalibi_slopes), TESS_CL_AT(dsink)

/* __kernel void TESS_CL_NAME(TESS_CL_FORWARD_PARAMETERS) */
#define TESS_CL_FORWARD_PARAMETERS \
    tess_args_at args, TESS_CL_FORWARD_AT, tess_i64 first_item, tess_i64 items
#define TESS_CL_BACKWARD_PARAMETERS \
    tess_args_at args, TESS_CL_BACKWARD_AT, tess_i64 first_item, tess_i64 items

/* Addresses by enum tess_address_index, offsets applied, NULL where there is nothing. */
typedef struct tess_addresses {
    __global char *at[TESS_AT_COUNT];
} tess_addresses;

/* Declares `to`, the addresses, in a kernel with those parameters. */
#define TESS_CL_PUT(index, name) to.at[index] = name + name##_offset
#define TESS_CL_PUT_FORWARD                          \
    TESS_CL_PUT(TESS_AT_Q, q);                       \
    TESS_CL_PUT(TESS_AT_K, k);                       \
    TESS_CL_PUT(TESS_AT_V, v);                       \
    TESS_CL_PUT(TESS_AT_O, o);                       \
    TESS_CL_PUT(TESS_AT_LSE, lse);                   \
    TESS_CL_PUT(TESS_AT_CU_SEQLENS_Q, cu_seqlens_q); \
    TESS_CL_PUT(TESS_AT_CU_SEQLENS_K, cu_seqlens_k); \
    TESS_CL_PUT(TESS_AT_SEQUSED_Q, seqused_q);       \
    TESS_CL_PUT(TESS_AT_SEQUSED_K, seqused_k);       \
    TESS_CL_PUT(TESS_AT_PAGE_TABLE, page_table);     \
    TESS_CL_PUT(TESS_AT_BIAS, bias);                 \
    TESS_CL_PUT(TESS_AT_ALIBI_SLOPES, alibi_slopes); \
    TESS_CL_PUT(TESS_AT_SINK, sink);                 \
    TESS_CL_PUT(TESS_AT_Q_DESCALE, q_descale);       \
    TESS_CL_PUT(TESS_AT_K_DESCALE, k_descale);       \
    TESS_CL_PUT(TESS_AT_V_DESCALE, v_descale);       \
    TESS_CL_PUT(TESS_AT_WORKSPACE, workspace)
#define TESS_CL_PUT_BACKWARD                           \
    TESS_CL_PUT(TESS_AT_D_O, d_o);                     \
    TESS_CL_PUT(TESS_AT_D_LSE, d_lse);                 \
    TESS_CL_PUT(TESS_AT_DQ, dq);                       \
    TESS_CL_PUT(TESS_AT_DK, dk);                       \
    TESS_CL_PUT(TESS_AT_DV, dv);                       \
    TESS_CL_PUT(TESS_AT_DBIAS, dbias);                 \
    TESS_CL_PUT(TESS_AT_DALIBI_SLOPES, dalibi_slopes); \
    TESS_CL_PUT(TESS_AT_DSINK, dsink)
#define TESS_CL_FORWARD_ADDRESSES(to)                                          \
    tess_addresses to;                                                         \
    for (int unused = TESS_AT_WORKSPACE + 1; unused < TESS_AT_COUNT; unused++) \
        to.at[unused] = 0;                                                     \
    TESS_CL_PUT_FORWARD
#define TESS_CL_BACKWARD_ADDRESSES(to) \
    tess_addresses to;                 \
    TESS_CL_PUT_FORWARD;               \
    TESS_CL_PUT_BACKWARD

/* Items of a role are those of backends/gpu/kernels.h. A launch may have fewer groups than items:
 *
 *     TESS_CL_FOR_ITEMS(item) { ... } */
#define TESS_CL_FOR_ITEMS(item)                                                             \
    for (tess_i64 item = first_item + (tess_i64)get_group_id(0); item < first_item + items; \
         item += (tess_i64)get_num_groups(0))

#define TESS_CL_KERNEL \
    __kernel __attribute__((reqd_work_group_size(TESS_CL_GROUP, 1, 1))) void TESS_CL_NAME

/* An array that a compile-time condition lets be. */
#define TESS_CL_ASSERT(name, condition) typedef char name[(condition) ? 1 : -1]

#define TESS_UNROLL _Pragma("unroll")
#define TESS_NO_UNROLL _Pragma("unroll 1")

#endif
