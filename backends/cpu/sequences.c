/* SPDX-License-Identifier: Apache-2.0
 * The sequences of one run: lengths read from the index arrays, checked, and where each one lies.
 */
#include "backends/cpu/sequences.h"

#include <inttypes.h>

static const char call[] = "tess_plan_run_forward";

static int64_t index_at(const tess_args *args, const tess_address *array, int64_t i)
{
    return args->index_is_64 ? ((const int64_t *)array->base)[i]
                             : ((const int32_t *)array->base)[i];
}

static bool has(const tess_args *args, uint32_t bit)
{
    return (args->varlen & bit) != 0;
}

tess_cpu_sequence tess_cpu_sequence_at(const tess_args *args,
                                       const tess_address addresses[TESS_AT_COUNT], int64_t index)
{
    tess_cpu_sequence s = {index, index, 0, 0, args->rows, args->columns};

    if (has(args, TESS_VARLEN_CU_SEQLENS_Q)) {
        s.batch = 0;
        s.first_row = index_at(args, &addresses[TESS_AT_CU_SEQLENS_Q], index);
        s.rows = index_at(args, &addresses[TESS_AT_CU_SEQLENS_Q], index + 1) - s.first_row;
    }
    if (has(args, TESS_VARLEN_CU_SEQLENS_K)) {
        s.batch_k = 0;
        s.first_column = index_at(args, &addresses[TESS_AT_CU_SEQLENS_K], index);
        s.columns = index_at(args, &addresses[TESS_AT_CU_SEQLENS_K], index + 1) - s.first_column;
    }
    if (has(args, TESS_VARLEN_SEQUSED_Q))
        s.rows = index_at(args, &addresses[TESS_AT_SEQUSED_Q], index);
    if (has(args, TESS_VARLEN_SEQUSED_K))
        s.columns = index_at(args, &addresses[TESS_AT_SEQUSED_K], index);
    return s;
}

/* Prefix sums: from 0 or above, never falling, not past the tensor, no length above the bound. */
static tess_status check_offsets(const tess_host *host, const tess_args *args, const char *name,
                                 const tess_address *array, int64_t total, int64_t bound)
{
    int64_t before = 0;

    for (int64_t i = 0; i <= args->sequences; i++) {
        const int64_t offset = index_at(args, array, i);
        if (offset < before || offset > total)
            return tess_fail(host, TESS_INVALID,
                             "%s: %s[%" PRId64 "] is %" PRId64 "; it takes %" PRId64
                             " (the one before) to %" PRId64 " (the tensor's rows)",
                             call, name, i, offset, before, total);
        if (i > 0 && offset - before > bound)
            return tess_fail(host, TESS_INVALID,
                             "%s: %s makes sequence %" PRId64 " %" PRId64
                             " long; the plan's max_seqlen is %" PRId64,
                             call, name, i - 1, offset - before, bound);
        before = offset;
    }
    return TESS_OK;
}

/* Used lengths: from 0 to what the sequence has. */
static tess_status check_used(const tess_host *host, const tess_args *args, const char *name,
                              const tess_address *used, const tess_address *offsets, bool is_packed,
                              int64_t whole)
{
    for (int64_t i = 0; i < args->sequences; i++) {
        const int64_t length = index_at(args, used, i);
        const int64_t most =
            is_packed ? index_at(args, offsets, i + 1) - index_at(args, offsets, i) : whole;
        if (length < 0 || length > most)
            return tess_fail(host, TESS_INVALID,
                             "%s: %s[%" PRId64 "] is %" PRId64 "; it takes 0 to %" PRId64
                             ", the sequence's length",
                             call, name, i, length, most);
    }
    return TESS_OK;
}

/* Pages of used columns; entries past them are never read. */
static tess_status check_pages(const tess_host *host, const tess_args *args,
                               const tess_address addresses[TESS_AT_COUNT])
{
    const int32_t *table = addresses[TESS_AT_PAGE_TABLE].base;

    for (int64_t i = 0; i < args->sequences; i++) {
        const tess_cpu_sequence s = tess_cpu_sequence_at(args, addresses, i);
        const int64_t pages = (s.columns + args->page_size - 1) / args->page_size;
        for (int64_t page = 0; s.rows > 0 && page < pages; page++) {
            const int32_t entry = table[i * args->page_table_stride + page];
            if (entry < 0 || entry >= args->pages)
                return tess_fail(host, TESS_INVALID,
                                 "%s: page_table[%" PRId64 "][%" PRId64 "] is %" PRId32
                                 "; it takes 0 to %" PRId64 " (the pool's pages)",
                                 call, i, page, entry, (int64_t)args->pages - 1);
        }
    }
    return TESS_OK;
}

tess_status tess_cpu_sequences_check(const tess_host *host, const tess_args *args,
                                     const tess_address addresses[TESS_AT_COUNT])
{
    const bool packed_q = has(args, TESS_VARLEN_CU_SEQLENS_Q);
    const bool packed_k = has(args, TESS_VARLEN_CU_SEQLENS_K);

    if (args->sequences == 0)
        return TESS_OK;
    if (packed_q)
        TESS_TRY(check_offsets(host, args, "cu_seqlens_q", &addresses[TESS_AT_CU_SEQLENS_Q],
                               args->total_rows, args->rows));
    if (packed_k)
        TESS_TRY(check_offsets(host, args, "cu_seqlens_k", &addresses[TESS_AT_CU_SEQLENS_K],
                               args->total_columns, args->columns));
    if (has(args, TESS_VARLEN_SEQUSED_Q))
        TESS_TRY(check_used(host, args, "seqused_q", &addresses[TESS_AT_SEQUSED_Q],
                            &addresses[TESS_AT_CU_SEQLENS_Q], packed_q, args->rows));
    if (has(args, TESS_VARLEN_SEQUSED_K))
        TESS_TRY(check_used(host, args, "seqused_k", &addresses[TESS_AT_SEQUSED_K],
                            &addresses[TESS_AT_CU_SEQLENS_K], packed_k, args->columns));
    if (args->page_size > 0)
        TESS_TRY(check_pages(host, args, addresses));
    return TESS_OK;
}
