/* SPDX-License-Identifier: Apache-2.0
 * The sequences of one run: lengths read from the index arrays, checked, and where each one lies.
 */
#include "backends/cpu/sequences.h"

#include "backends/cpu/access.h"

#include <inttypes.h>
#include <string.h>

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
static tess_status check_offsets(const tess_host *host, const char *call, const tess_args *args,
                                 const char *name, const tess_address *array, int64_t total,
                                 int64_t bound)
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
                             " long; the plan's varlen.max_seqlen_%c is %" PRId64,
                             call, name, i - 1, offset - before, name[strlen(name) - 1], bound);
        before = offset;
    }
    return TESS_OK;
}

/* Used lengths: from 0 to what the sequence has, by `offsets` where it is packed. */
static tess_status check_used(const tess_host *host, const char *call, const tess_args *args,
                              const char *name, const tess_address *used,
                              const tess_address *offsets, int64_t whole)
{
    for (int64_t i = 0; i < args->sequences; i++) {
        const int64_t length = index_at(args, used, i);
        const int64_t most =
            offsets ? index_at(args, offsets, i + 1) - index_at(args, offsets, i) : whole;
        if (length < 0 || length > most)
            return tess_fail(host, TESS_INVALID,
                             "%s: %s[%" PRId64 "] is %" PRId64 "; it takes 0 to %" PRId64
                             ", the sequence's length",
                             call, name, i, length, most);
    }
    return TESS_OK;
}

/* Pages of used columns; entries past them are never read. */
static tess_status check_pages(const tess_host *host, const char *call, const tess_args *args,
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

tess_status tess_cpu_sequences_check(const tess_host *host, const char *call, const tess_args *args,
                                     const tess_address addresses[TESS_AT_COUNT])
{
    const bool packed_q = has(args, TESS_VARLEN_CU_SEQLENS_Q);
    const bool packed_k = has(args, TESS_VARLEN_CU_SEQLENS_K);

    if (args->sequences == 0)
        return TESS_OK;
    if (packed_q)
        TESS_TRY(check_offsets(host, call, args, "cu_seqlens_q", &addresses[TESS_AT_CU_SEQLENS_Q],
                               args->total_rows, args->rows));
    if (packed_k)
        TESS_TRY(check_offsets(host, call, args, "cu_seqlens_k", &addresses[TESS_AT_CU_SEQLENS_K],
                               args->total_columns, args->columns));
    if (has(args, TESS_VARLEN_SEQUSED_Q))
        TESS_TRY(check_used(host, call, args, "seqused_q", &addresses[TESS_AT_SEQUSED_Q],
                            packed_q ? &addresses[TESS_AT_CU_SEQLENS_Q] : NULL, args->rows));
    if (has(args, TESS_VARLEN_SEQUSED_K))
        TESS_TRY(check_used(host, call, args, "seqused_k", &addresses[TESS_AT_SEQUSED_K],
                            packed_k ? &addresses[TESS_AT_CU_SEQLENS_K] : NULL, args->columns));
    if (args->page_size > 0)
        TESS_TRY(check_pages(host, call, args, addresses));
    return TESS_OK;
}

static const char *at(const tess_address *address, int64_t index, int32_t dtype)
{
    const char *base = address->base;
    return base ? base + index * tess_cpu_element_size(dtype) : NULL;
}

void tess_cpu_resolve(const tess_args *a, const tess_address addresses[TESS_AT_COUNT],
                      int64_t sequence, const tess_cpu_sequence *s, int64_t head_kv,
                      tess_cpu_work *work)
{
    const int64_t head_q = head_kv * a->group;
    const int64_t q =
        s->batch * a->q_stride[0] + s->first_row * a->q_stride[1] + head_q * a->q_stride[2];
    const int64_t o =
        s->batch * a->o_stride[0] + s->first_row * a->o_stride[1] + head_q * a->o_stride[2];
    const int64_t lse =
        s->batch * a->lse_stride[0] + s->first_row * a->lse_stride[1] + head_q * a->lse_stride[2];
    const bool is_paged = a->page_size > 0;
    const int64_t k =
        (is_paged ? 0 : s->batch_k * a->k_stride[0] + s->first_column * a->k_stride[1]) +
        head_kv * a->k_stride[2];
    const int64_t v =
        (is_paged ? 0 : s->batch_k * a->v_stride[0] + s->first_column * a->v_stride[1]) +
        head_kv * a->v_stride[2];

    work->args = a;
    work->q = at(&addresses[TESS_AT_Q], q, a->dtype);
    work->k = at(&addresses[TESS_AT_K], k, a->dtype);
    work->v = at(&addresses[TESS_AT_V], v, a->dtype);
    if (is_paged && addresses[TESS_AT_PAGE_TABLE].base) /* NULL when it has no entries */
        work->pages =
            (const int32_t *)addresses[TESS_AT_PAGE_TABLE].base + sequence * a->page_table_stride;
    if (addresses[TESS_AT_O].base) /* the same */
        work->o = (char *)addresses[TESS_AT_O].base + o * tess_cpu_element_size(a->o_dtype);
    if (addresses[TESS_AT_LSE].base)
        work->lse = (float *)addresses[TESS_AT_LSE].base + lse;
    if (a->bias & TESS_BIAS_TENSOR)
        work->bias = at(&addresses[TESS_AT_BIAS],
                        sequence * a->bias_stride[0] + head_q * a->bias_stride[1], a->bias_dtype);
    if (a->bias & TESS_BIAS_ALIBI)
        work->slopes = (const float *)addresses[TESS_AT_ALIBI_SLOPES].base +
                       sequence * a->slope_stride[0] + head_q * a->slope_stride[1];
    if (a->bias & TESS_BIAS_SINK)
        work->sink = (const float *)addresses[TESS_AT_SINK].base + head_q * a->sink_stride;
    work->visible = tess_visible_make(
        s->rows, s->columns, (a->mask & TESS_MASK_CAUSAL) != 0, (a->mask & TESS_MASK_TOP_LEFT) != 0,
        (a->mask & TESS_MASK_WINDOW) != 0, a->window_left, a->window_right);
}

int64_t tess_cpu_first_row(const tess_args *args, const tess_cpu_sequence *s)
{
    return args->varlen & TESS_VARLEN_CU_SEQLENS_Q ? s->first_row : s->batch * args->rows;
}

int64_t tess_cpu_all_rows(const tess_args *args)
{
    return args->varlen & TESS_VARLEN_CU_SEQLENS_Q ? args->total_rows
                                                   : args->sequences * args->rows;
}

/* 0 for no work, else one more than the logarithm rounded down. */
static int size_of_work(const tess_cpu_sequence *s)
{
    uint64_t work = (uint64_t)s->rows * (uint64_t)s->columns;
    int size = 0;

    for (; work; work >>= 1)
        size++;
    return size;
}

void tess_cpu_order_sequences(const tess_args *args, const tess_address addresses[TESS_AT_COUNT],
                              int64_t *out_order)
{
    enum { SIZES = 65 };
    int64_t first[SIZES + 1] = {0}; /* of each size, the largest first */

    for (int64_t i = 0; i < args->sequences; i++) {
        const tess_cpu_sequence s = tess_cpu_sequence_at(args, addresses, i);
        first[SIZES - size_of_work(&s)]++;
    }
    for (int place = 1; place <= SIZES; place++)
        first[place] += first[place - 1];
    for (int64_t i = args->sequences - 1; i >= 0; i--) {
        const tess_cpu_sequence s = tess_cpu_sequence_at(args, addresses, i);
        out_order[--first[SIZES - size_of_work(&s)]] = i;
    }
}
