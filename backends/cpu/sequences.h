/* SPDX-License-Identifier: Apache-2.0
 * The sequences of one run: lengths read from the index arrays, checked, and where each one lies.
 */
#ifndef TESSERA_BACKENDS_CPU_SEQUENCES_H
#define TESSERA_BACKENDS_CPU_SEQUENCES_H

#include "backends/backend.h"
#include "backends/cpu/work.h"

typedef struct tess_cpu_sequence {
    int64_t batch;         /* index on the batch axis of q and o (0 when packed) */
    int64_t batch_k;       /* the same of k and v */
    int64_t first_row;     /* on the seqlen axis of q and o: 0 unless packed */
    int64_t first_column;  /* the same of k and v */
    int64_t rows, columns; /* used */
} tess_cpu_sequence;

/* Sequence `index` of the run; the arrays have been checked. */
tess_cpu_sequence tess_cpu_sequence_at(const tess_args *args,
                                       const tess_address addresses[TESS_AT_COUNT], int64_t index);

/* Checks every index array against the tensors' extents and the plan's bounds. Fails with
 * TESS_INVALID naming the array, the place and the value; nothing has been written by then. */
tess_status tess_cpu_sequences_check(const tess_host *host, const char *call, const tess_args *args,
                                     const tess_address addresses[TESS_AT_COUNT]);

/* Numbers the sequences for work to be picked up: `out_order` becomes a permutation of them in
 * which those of more work come first, in the steps of a power of two, and equal ones in their
 * order. The work of a sequence is its rows times its columns. */
void tess_cpu_order_sequences(const tess_args *args, const tess_address addresses[TESS_AT_COUNT],
                              int64_t *out_order);

/* Fills in the addresses and masks of one sequence and key head; the sink whatever the share. */
void tess_cpu_resolve(const tess_args *args, const tess_address addresses[TESS_AT_COUNT],
                      int64_t sequence, const tess_cpu_sequence *s, int64_t head_kv,
                      tess_cpu_work *work);

/* Row 0 of a sequence among all rows of O, and how many there are: how workspaces number them. */
int64_t tess_cpu_first_row(const tess_args *args, const tess_cpu_sequence *s);
int64_t tess_cpu_all_rows(const tess_args *args);

#endif
