/* SPDX-License-Identifier: Apache-2.0
 * The sequences of one run: lengths read from the index arrays, checked, and where each one lies.
 */
#ifndef TESSERA_BACKENDS_CPU_SEQUENCES_H
#define TESSERA_BACKENDS_CPU_SEQUENCES_H

#include "backends/backend.h"

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
tess_status tess_cpu_sequences_check(const tess_host *host, const tess_args *args,
                                     const tess_address addresses[TESS_AT_COUNT]);

#endif
