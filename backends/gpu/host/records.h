/* SPDX-License-Identifier: Apache-2.0
 * Lines of the .def files as tables: kernels by role, and the records that selection asks. */
#ifndef TESSERA_BACKENDS_GPU_HOST_RECORDS_H
#define TESSERA_BACKENDS_GPU_HOST_RECORDS_H

#include "backends/gpu/host/backend.h"

/* Only main kernels are chosen by a problem; the others follow from them. */
#define TESS_GPU_KEEP(...) __VA_ARGS__
#define TESS_GPU_DROP(...)
#define TESS_GPU_IF_MAIN TESS_GPU_KEEP
#define TESS_GPU_IF_MAIN_CHECKED TESS_GPU_KEEP
#define TESS_GPU_IF_REDO TESS_GPU_DROP
#define TESS_GPU_IF_COMBINE TESS_GPU_DROP
#define TESS_GPU_IF_MERGE TESS_GPU_DROP
#define TESS_GPU_IF_DELTA TESS_GPU_DROP
#define TESS_GPU_IF_DQ TESS_GPU_DROP
#define TESS_GPU_IF_DQ_CHECKED TESS_GPU_DROP
#define TESS_GPU_IF_REDO_DQ TESS_GPU_DROP
#define TESS_GPU_IF_MAIN_ADDS TESS_GPU_KEEP
#define TESS_GPU_IF_CLEAR_DQ TESS_GPU_DROP
#define TESS_GPU_IF_FINISH_DQ TESS_GPU_DROP
#define TESS_GPU_IF_DBIAS TESS_GPU_DROP
#define TESS_GPU_IF_DSLOPE TESS_GPU_DROP
#define TESS_GPU_IF_DSINK TESS_GPU_DROP

/* Whether the kernels of a list take maps: a backend sets it around the list. */
#ifndef TAKES_MAPS
#define TAKES_MAPS false
#endif

/* A line as a place in the table of kernels. */
#define TESS_GPU_PLACE(kernel, which, does, types, dim, rows, columns, block, dynamic, most, rank) \
    PLACE_##kernel,

/* A line as a kernel; SOURCE is a string. */
#define TESS_GPU_ENTRY(kernel, which, does, types, dim, rows, columns, block, dynamic, most, rank) \
    {.name = #kernel,                                                                              \
     .source = SOURCE,                                                                             \
     .pass = TESS_PASS_##which,                                                                    \
     .role = TESS_GPU_##does,                                                                      \
     .dtypes = types,                                                                              \
     .max_head_dim = dim,                                                                          \
     .tile_rows = rows,                                                                            \
     .tile_columns = columns,                                                                      \
     .most_rows = most,                                                                            \
     .threads = block,                                                                             \
     .shared = dynamic,                                                                            \
     .priority = rank,                                                                             \
     .takes_maps = TAKES_MAPS},

/* A line as a record, or nothing; TABLE is the table of kernels, ACCEPT its question. Plain cores
 * add in an order that depends on the dims a kernel is for, not on its rows. */
#define TESS_GPU_RECORD(kernel, which, does, types, dim, rows, columns, block, dynamic, most, \
                        rank)                                                                 \
    TESS_GPU_IF_##does({.name = #kernel,                                                      \
                        .pass = TESS_PASS_##which,                                            \
                        .priority = rank,                                                     \
                        .features = TAKES_MAPS ? TESS_GPU_TAKES_MAPS : 0,                     \
                        .feature_name = "chips of 9.0",                                       \
                        .dtypes = types,                                                      \
                        .max_head_dim = dim,                                                  \
                        .max_folded_rows = most,                                              \
                        .arithmetic = TESS_GPU_##does == TESS_GPU_MAIN ? dim : 0,             \
                        .tile_rows = rows,                                                    \
                        .tile_columns = columns,                                              \
                        .flags_items = TESS_GPU_##does != TESS_GPU_MAIN,                      \
                        .adds_dq = TESS_GPU_##does == TESS_GPU_MAIN_ADDS,                     \
                        .share_is_tile = true,                                                \
                        .leaves_dq = true,                                                    \
                        .accept = ACCEPT,                                                     \
                        .entry = &TABLE[PLACE_##kernel]}, )

/* Bits of the .def files are those of selection. */
_Static_assert(TESS_GPU_F32 == 1u << TESS_F32 && TESS_GPU_F16 == 1u << TESS_F16 &&
                   TESS_GPU_BF16 == 1u << TESS_BF16 && TESS_GPU_E4M3 == 1u << TESS_E4M3 &&
                   TESS_GPU_E5M2 == 1u << TESS_E5M2,
               "kernels.h numbers types as base.h does");

#endif
