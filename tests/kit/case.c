/* SPDX-License-Identifier: Apache-2.0
 * Making a case: layouts, index arrays, tensors, and poison wherever nobody may look. */
#include "tests/kit/case.h"

#include "tests/kit/draw.h"
#include "tests/kit/fill.h"
#include "tests/kit/number.h"
#include "tests/kit/shape.h"

#include <stdlib.h>
#include <string.h>

/* Sparse tensors above this size are visited element by element, not byte by byte. */
#define SPARSE_SIZE ((size_t)1 << 28)

/* What lies behind index arrays on a device, and in table entries that nobody may read. */
#define INDEX_POISON 0x7FFFFFF0

static const char *const tensor_names[TESS_CASE_TENSORS] = {
    "q",         "k",         "v",          "o",    "lse",          "cu_seqlens_q",  "cu_seqlens_k",
    "seqused_q", "seqused_k", "page_table", "bias", "alibi_slopes", "sink",          "d_o",
    "d_lse",     "dq",        "dk",         "dv",   "dbias",        "dalibi_slopes", "dsink"};

double tess_line_cost(const tess_line *line)
{
    double pairs = 0;

    for (int64_t b = 0; b < line->batch; b++)
        pairs += (double)tess_shape_used_rows(line, b) * (double)tess_shape_used_columns(line, b);
    return pairs * (double)line->heads_q * (double)(line->head_dim + line->head_dim_v);
}

/* ---- Places ---------------------------------------------------------------------------------- */

char *tess_case_element(const tess_tensor *t, int64_t batch, int64_t seqlen, int64_t head,
                        int64_t dim)
{
    const tess_layout *l = &t->layout;
    const int64_t element = t->origin + batch * l->batch_stride + seqlen * l->seqlen_stride +
                            head * l->head_stride + dim * l->dim_stride;

    return t->buffer.data + element * (int64_t)t->element_size;
}

static int64_t read_index(const tess_tensor *t, int64_t i)
{
    return (int64_t)tess_number_load(t->layout.dtype, tess_case_element(t, 0, 0, 0, i));
}

void tess_case_row_place(const tess_case *c, int64_t sequence, int64_t row, int64_t *out_batch,
                         int64_t *out_seqlen)
{
    const bool is_packed = c->line.lens_q.runs > 0;

    *out_batch = is_packed ? 0 : sequence;
    *out_seqlen = row + (is_packed ? read_index(&c->tensor[TESS_CASE_CU_Q], sequence) : 0);
}

void tess_case_column_place(const tess_case *c, int64_t sequence, int64_t column,
                            int64_t *out_batch, int64_t *out_seqlen)
{
    const bool is_packed = c->line.lens_k.runs > 0;
    const int64_t page_size = c->line.page_size;

    if (page_size > 0) {
        *out_batch = (int64_t)tess_number_load(
            TESS_I32,
            tess_case_element(&c->tensor[TESS_CASE_TABLE], sequence, 0, 0, column / page_size));
        *out_seqlen = column % page_size;
        return;
    }
    *out_batch = is_packed ? 0 : sequence;
    *out_seqlen = column + (is_packed ? read_index(&c->tensor[TESS_CASE_CU_K], sequence) : 0);
}

/* ---- Tensors --------------------------------------------------------------------------------- */

/* Whether the memory of one more tensor is there. Systems hand out more than they have and kill
 * whoever touches it, so that asking for it says nothing. */
static bool has_room(tess_case *c, int kind, const tess_layout *extents, double elements)
{
    if (kind == TESS_LAYOUT_SPARSE)
        elements = (double)extents->batch * (double)extents->seqlen * (double)extents->heads *
                   (double)extents->head_dim;
    c->touched += elements * (double)tess_dtype_size(extents->dtype);
    return c->touched <= c->room;
}

/* Allocates a tensor of these extents. */
static bool make_tensor(tess_case *c, int which, int kind, tess_layout extents, bool is_output)
{
    tess_random random = tess_random_start(c->line.seed, 0x7E45 + (uint64_t)which);
    const tess_drawn drawn = tess_draw_layout(kind, &random, extents, is_output);
    tess_tensor *t = &c->tensor[which];

    t->name = tensor_names[which];
    t->is_present = true;
    t->is_output = is_output;
    t->layout = drawn.layout;
    t->origin = drawn.origin;
    t->element_size = tess_dtype_size(extents.dtype);
    t->is_folded = tess_random_once_in(&random, 2);
    if (!has_room(c, kind, &extents, (double)drawn.elements) ||
        !tess_buffer_make((size_t)drawn.elements * t->element_size, &t->buffer))
        return false;
    t->buffer.is_sparse = kind == TESS_LAYOUT_SPARSE && t->buffer.size > SPARSE_SIZE;
    return true;
}

static tess_layout extents_of(tess_dtype dtype, int64_t b, int64_t s, int64_t h, int64_t d)
{
    return (tess_layout){.batch = b, .seqlen = s, .heads = h, .head_dim = d, .dtype = dtype};
}

static bool make_index(tess_case *c, int which, tess_dtype dtype, int64_t count)
{
    return make_tensor(c, which, TESS_LAYOUT_BSHD, extents_of(dtype, 1, 1, 1, count), false);
}

/* Fills the whole buffer, gaps included, with what must not be read or must not be left. */
static void poison(const tess_case *c, tess_tensor *t)
{
    const size_t count = t->buffer.size / t->element_size;
    uint64_t random = tess_random_mix(c->line.seed, 0xBAD);
    uint32_t bits[4];

    if (t->buffer.is_sparse)
        return;
    for (unsigned which = 0; which < 4; which++)
        bits[which] = t->is_output ? tess_number_prefill(t->layout.dtype)
                                   : tess_number_poison(t->layout.dtype, which);
    for (size_t i = 0; i < count; i++) {
        if (i % 32 == 0)
            random = tess_random_mix(random, i);
        tess_number_set_bits(t->layout.dtype, t->buffer.data + i * t->element_size,
                             bits[random >> i % 32 * 2 & 3]);
    }
}

/* Walks over the elements of a tensor, not over its buffer, so that sparse ones are handled too. */
static void set_row_bits(tess_tensor *t, int64_t b, int64_t s, int64_t h, uint32_t bits)
{
    for (int64_t d = 0; d < t->layout.head_dim; d++)
        tess_number_set_bits(t->layout.dtype, tess_case_element(t, b, s, h, d), bits);
}

static void mark_elements(tess_tensor *t, uint32_t bits)
{
    for (int64_t b = 0; b < t->layout.batch; b++)
        for (int64_t s = 0; s < t->layout.seqlen; s++)
            for (int64_t h = 0; h < t->layout.heads; h++)
                set_row_bits(t, b, s, h, bits);
}

uint64_t tess_tensor_hash(const tess_tensor *t)
{
    uint64_t hash = 0;

    if (!t->buffer.is_sparse)
        return tess_buffer_hash(&t->buffer);
    for (int64_t b = 0; b < t->layout.batch; b++)
        for (int64_t s = 0; s < t->layout.seqlen; s++)
            for (int64_t h = 0; h < t->layout.heads; h++)
                for (int64_t d = 0; d < t->layout.head_dim; d++)
                    hash = tess_random_mix(
                        hash, tess_number_bits(t->layout.dtype, tess_case_element(t, b, s, h, d)));
    return hash;
}

/* ---- Index arrays ---------------------------------------------------------------------------- */

static void set_index(tess_tensor *t, int64_t i, int64_t value)
{
    tess_number_store(t->layout.dtype, tess_case_element(t, 0, 0, 0, i), (double)value);
}

/* Prefix sums of the lengths; the total goes to *out_total. */
static bool make_cu_seqlens(tess_case *c, int which, bool is_q, int64_t *out_total)
{
    const int64_t count = c->line.batch;
    int64_t total = 0;

    if (!make_index(c, which, c->line.index_dtype, count + 1))
        return false;
    for (int64_t b = 0; b < count; b++) {
        set_index(&c->tensor[which], b, total);
        total += is_q ? tess_shape_rows(&c->line, b) : tess_shape_columns(&c->line, b);
    }
    set_index(&c->tensor[which], count, total);
    *out_total = total;
    return true;
}

static bool make_used(tess_case *c, int which, bool is_q)
{
    if (!make_index(c, which, c->line.index_dtype, c->line.batch))
        return false;
    for (int64_t b = 0; b < c->line.batch; b++)
        set_index(&c->tensor[which], b,
                  is_q ? tess_shape_used_rows(&c->line, b) : tess_shape_used_columns(&c->line, b));
    return true;
}

/* Arrays and bounds of tess_varlen; rows and columns in memory go to the two totals. */
static bool make_varlen(tess_case *c, int64_t *out_rows, int64_t *out_columns)
{
    const tess_line *line = &c->line;
    tess_random random = tess_random_start(line->seed, 0x5E95);
    const bool wants_host = tess_random_once_in(&random, 2);
    tess_varlen *v = &c->varlen;

    *v = (tess_varlen){TESS_STRUCT(tess_varlen), .sequences = line->batch};
    *out_rows = line->seqlen_q;
    *out_columns = line->seqlen_k;
    v->index_dtype = line->index_dtype;
    if (line->lens_q.runs) {
        v->present |= TESS_VARLEN_CU_SEQLENS_Q;
        v->max_seqlen_q = line->seqlen_q + line->gap;
        if (!make_cu_seqlens(c, TESS_CASE_CU_Q, true, out_rows))
            return false;
    }
    if (line->lens_k.runs) {
        v->present |= TESS_VARLEN_CU_SEQLENS_K;
        v->max_seqlen_k = line->seqlen_k + line->gap;
        if (!make_cu_seqlens(c, TESS_CASE_CU_K, false, out_columns))
            return false;
    }
    if (tess_shape_has_used_rows(line)) {
        v->present |= TESS_VARLEN_SEQUSED_Q;
        if (!make_used(c, TESS_CASE_USED_Q, true))
            return false;
    }
    if (tess_shape_has_used_columns(line)) {
        v->present |= TESS_VARLEN_SEQUSED_K;
        if (!make_used(c, TESS_CASE_USED_K, false))
            return false;
    }
    /* With pages the bound is the table's, unless that is more than was asked for. */
    if (line->page_size > 0 && line->seqlen_k % line->page_size != 0)
        v->max_seqlen_k = line->seqlen_k;
    if (wants_host) {
        v->host_cu_seqlens_q = c->tensor[TESS_CASE_CU_Q].buffer.data;
        v->host_cu_seqlens_k = c->tensor[TESS_CASE_CU_K].buffer.data;
        v->host_seqused_q = c->tensor[TESS_CASE_USED_Q].buffer.data;
        v->host_seqused_k = c->tensor[TESS_CASE_USED_K].buffer.data;
    }
    if (v->present || v->max_seqlen_k)
        c->desc.varlen = v;
    return true;
}

/* ---- Pages ----------------------------------------------------------------------------------- */

/* A table that names the pages of the pool in random order. With strided layouts, consecutive
 * sequences sometimes share their first page, as a common prefix would. */
static void draw_table(tess_case *c, int64_t *pool)
{
    const tess_line *line = &c->line;
    const int64_t page_size = line->page_size, max_pages = c->paging.max_pages;
    tess_tensor *t = &c->tensor[TESS_CASE_TABLE];
    tess_random random = tess_random_start(line->seed, 0x9A6E);
    int64_t taken = 0;

    for (int64_t i = 0; i < c->pages; i++)
        pool[i] = i;
    for (int64_t i = c->pages - 1; i > 0; i--) {
        const int64_t other = tess_random_below(&random, i + 1), page = pool[i];

        pool[i] = pool[other];
        pool[other] = page;
    }
    for (int64_t b = 0; b < line->batch; b++) {
        const int64_t used = tess_shape_used_columns(line, b);
        const bool can_share = b > 0 && line->layout == TESS_LAYOUT_STRIDED && used >= page_size &&
                               tess_shape_used_columns(line, b - 1) >= page_size;
        const bool shares = can_share && tess_random_once_in(&random, 2);

        for (int64_t page = 0; page < max_pages; page++) {
            double entry = tess_random_once_in(&random, 2) ? INDEX_POISON : -1;

            if (page == 0 && shares)
                entry = tess_number_load(TESS_I32, tess_case_element(t, b - 1, 0, 0, 0));
            else if (page * page_size < used)
                entry = (double)pool[taken++];
            tess_number_store(TESS_I32, tess_case_element(t, b, 0, 0, page), entry);
        }
    }
}

static bool make_paging(tess_case *c)
{
    const tess_line *line = &c->line;
    const int64_t page_size = line->page_size;
    tess_random random = tess_random_start(line->seed, 0x9A6F);
    tess_tensor *t = &c->tensor[TESS_CASE_TABLE];
    int64_t *pool;

    if (page_size == 0)
        return true;
    c->paging = (tess_paging){TESS_STRUCT(tess_paging)};
    c->paging.max_pages = (line->seqlen_k + page_size - 1) / page_size;
    if (!make_tensor(c, TESS_CASE_TABLE, TESS_LAYOUT_BSHD,
                     extents_of(TESS_I32, line->batch, 1, 1, c->paging.max_pages), false))
        return false;
    if (line->layout == TESS_LAYOUT_STRIDED && c->paging.max_pages > 0) {
        const int64_t stride = c->paging.max_pages + 1 + tess_random_below(&random, 5);

        tess_buffer_free(&t->buffer);
        t->layout.batch_stride = c->paging.table_stride = stride;
        if (!tess_buffer_make(
                (size_t)((line->batch > 0 ? line->batch - 1 : 0) * stride + c->paging.max_pages) *
                    sizeof(int32_t),
                &t->buffer))
            return false;
        memset(t->buffer.data, 0x7F, t->buffer.size);
    }
    c->pages = 1 + tess_random_below(&random, 3);
    for (int64_t b = 0; b < line->batch; b++)
        c->pages += (tess_shape_used_columns(line, b) + page_size - 1) / page_size;
    pool = malloc((size_t)c->pages * sizeof *pool);
    if (!pool)
        return false;
    draw_table(c, pool);
    free(pool);
    c->desc.paging = &c->paging;
    return true;
}

/* ---- Queries, keys, values ------------------------------------------------------------------- */

/* From so many elements on a table of values is worth making. */
enum { MANY_ELEMENTS = 1 << 20, AT_ONCE = 64 };

static void fill_row_from(const tess_fill *fill, const uint32_t *table, int tensor, tess_tensor *t,
                          tess_place place, const int64_t at[2])
{
    uint32_t bits[AT_ONCE];

    for (; place.dim < t->layout.head_dim; place.dim += AT_ONCE) {
        const int64_t left = t->layout.head_dim - place.dim;
        const int64_t count = left < AT_ONCE ? left : AT_ONCE;

        tess_fill_bits(fill, table, tensor, place, count, bits);
        for (int64_t i = 0; i < count; i++)
            tess_number_set_bits(t->layout.dtype,
                                 tess_case_element(t, at[0], at[1], place.head, place.dim + i),
                                 bits[i]);
    }
}

static void fill_row(const tess_fill *fill, int tensor, tess_tensor *t, tess_place place,
                     const int64_t at[2])
{
    for (int64_t d = 0; d < t->layout.head_dim; d++) {
        place.dim = d;
        tess_number_store(t->layout.dtype, tess_case_element(t, at[0], at[1], place.head, d),
                          tess_fill_value(fill, tensor, place));
    }
}

/* Whether a row of a sequence sees no column and no sink: nothing depends on what it holds. */
static bool sees_nothing(const tess_line *line, int64_t sequence, int64_t row)
{
    const int64_t columns = tess_shape_used_columns(line, sequence);
    int64_t first, last;

    tess_shape_reach(line, sequence, row, &first, &last);
    return !(line->bias & TESS_BIAS_SINK) && (first >= columns || last < 0 || last < first);
}

/* Fills the used rows of q, d_o or d_lse, or of a tensor of keys. Keys that no row sees and
 * upstream gradients of rows that see nothing stay poison, unless the caller lets NaN and
 * infinities spread within a tile, where such keys and rows may lie too. */
static void fill_operand(const tess_case *c, const tess_fill *fill, int filled, tess_tensor *t)
{
    const bool is_keys = filled == TESS_FILLED_K || filled == TESS_FILLED_V;
    const bool is_upstream = filled == TESS_FILLED_D_O || filled == TESS_FILLED_D_LSE;
    const bool may_spread = (c->line.flags & TESS_ALLOW_NONFINITE_SPREAD) != 0;
    const bool has_many = t->buffer.size / t->element_size >= MANY_ELEMENTS;
    uint32_t *const table =
        has_many && filled != TESS_FILLED_D_LSE ? tess_fill_table(fill, t->layout.dtype) : NULL;

    for (int64_t b = 0; b < c->line.batch; b++) {
        const int64_t rows =
            is_keys ? tess_shape_used_columns(&c->line, b) : tess_shape_used_rows(&c->line, b);

        for (int64_t i = 0; i < rows; i++) {
            int64_t at[2];

            if (is_keys && !may_spread && !tess_shape_is_seen(&c->line, b, i))
                continue;
            if (is_upstream && !may_spread && sees_nothing(&c->line, b, i))
                continue;
            if (is_keys)
                tess_case_column_place(c, b, i, &at[0], &at[1]);
            else
                tess_case_row_place(c, b, i, &at[0], &at[1]);
            for (int64_t h = 0; h < t->layout.heads; h++) {
                if (table)
                    fill_row_from(fill, table, filled, t, (tess_place){b, h, i, 0}, at);
                else
                    fill_row(fill, filled, t, (tess_place){b, h, i, 0}, at);
            }
        }
    }
    free(table);
}

static bool make_operands(tess_case *c, const tess_fill *fill, int64_t rows, int64_t columns)
{
    const tess_line *line = &c->line;
    const bool q_packed = line->lens_q.runs > 0, k_packed = line->lens_k.runs > 0;
    const int64_t q_batch = q_packed ? 1 : line->batch;
    const int64_t k_batch = line->page_size > 0 ? c->pages : k_packed ? 1 : line->batch;
    const int64_t k_rows = line->page_size > 0 ? line->page_size : columns;
    const struct {
        int which, filled;
        tess_layout extents;
    } operands[] = {
        {TESS_CASE_Q, TESS_FILLED_Q,
         extents_of(line->dtype, q_batch, rows, line->heads_q, line->head_dim)},
        {TESS_CASE_K, TESS_FILLED_K,
         extents_of(line->dtype, k_batch, k_rows, line->heads_kv, line->head_dim)},
        {TESS_CASE_V, TESS_FILLED_V,
         extents_of(line->dtype, k_batch, k_rows, line->heads_kv, line->head_dim_v)},
    };

    for (size_t i = 0; i < sizeof operands / sizeof *operands; i++) {
        tess_tensor *t = &c->tensor[operands[i].which];

        if (!make_tensor(c, operands[i].which, line->layout, operands[i].extents, false))
            return false;
        poison(c, t);
        /* The walk over elements visits unused rows of sparse tensors; the rest is never there. */
        if (t->buffer.is_sparse)
            mark_elements(t, tess_number_poison(line->dtype, (unsigned)line->seed));
        fill_operand(c, fill, operands[i].filled, t);
    }
    c->desc.q = c->tensor[TESS_CASE_Q].layout;
    c->desc.k = c->tensor[TESS_CASE_K].layout;
    c->desc.v = c->tensor[TESS_CASE_V].layout;
    return true;
}

static bool make_outputs(tess_case *c)
{
    const tess_line *line = &c->line;
    const tess_layout *q = &c->desc.q;
    const int lse_kind =
        line->layout == TESS_LAYOUT_STRIDED ? TESS_LAYOUT_STRIDED : TESS_LAYOUT_BHSD;

    if (!make_tensor(
            c, TESS_CASE_O, line->layout,
            extents_of(tess_shape_o_dtype(line), q->batch, q->seqlen, q->heads, line->head_dim_v),
            true) ||
        !make_tensor(c, TESS_CASE_LSE, lse_kind,
                     extents_of(TESS_F32, q->batch, q->seqlen, q->heads, 1), true))
        return false;
    c->desc.o = c->tensor[TESS_CASE_O].layout;
    if (lse_kind == TESS_LAYOUT_STRIDED)
        c->desc.lse = c->tensor[TESS_CASE_LSE].layout;
    return true;
}

/* ---- What is added to scores ----------------------------------------------------------------- */

/* Fills the bias where scores exist. Where a mask forbids the score, the element stays poison: it
 * must not reach the row either. An element that serves several rows or columns is always filled.
 */
static void fill_bias(const tess_case *c, const tess_fill *fill, tess_tensor *t)
{
    const tess_line *line = &c->line;
    const uint32_t broadcast = line->bias_broadcast;
    const bool may_spread = (line->flags & TESS_ALLOW_NONFINITE_SPREAD) != 0;

    for (int64_t b = 0; b < line->batch; b++) {
        const int64_t rows = tess_shape_used_rows(line, b);
        const int64_t columns = tess_shape_used_columns(line, b);

        for (int64_t i = 0; i < (broadcast & 4 ? (rows > 0) : rows); i++) {
            int64_t first, last;

            tess_shape_reach(line, b, i, &first, &last);
            for (int64_t j = 0; j < (broadcast & 8 ? (columns > 0) : columns); j++) {
                if (!broadcast && !may_spread && (j < first || j > last))
                    continue;
                for (int64_t h = 0; h < t->layout.heads; h++) {
                    const tess_place place = {broadcast & 1 ? 0 : b, h, i, j};

                    tess_number_store(line->bias_dtype,
                                      tess_case_element(t, place.sequence, i, h, j),
                                      tess_fill_value(fill, TESS_FILLED_BIAS, place));
                }
            }
        }
    }
}

/* Lays out the bias: axes that broadcast have one element and a stride of 0. */
static bool make_bias_tensor(tess_case *c, const tess_fill *fill)
{
    const tess_line *line = &c->line;
    const uint32_t broadcast = line->bias_broadcast;
    const int64_t rows = line->seqlen_q + line->gap, columns = line->seqlen_k + line->gap;
    const tess_layout extents =
        extents_of(line->bias_dtype, broadcast & 1 ? 1 : line->batch, broadcast & 4 ? 1 : rows,
                   broadcast & 2 ? 1 : line->heads_q, broadcast & 8 ? 1 : columns);
    tess_tensor *t = &c->tensor[TESS_CASE_BIAS];
    tess_layout *l = &t->layout;

    if (!make_tensor(c, TESS_CASE_BIAS,
                     line->layout == TESS_LAYOUT_STRIDED ? TESS_LAYOUT_STRIDED : TESS_LAYOUT_BHSD,
                     extents, false))
        return false;
    poison(c, t);
    fill_bias(c, fill, t);
    l->batch_stride = broadcast & 1 ? 0 : l->batch_stride;
    l->head_stride = broadcast & 2 ? 0 : l->head_stride;
    l->seqlen_stride = broadcast & 4 ? 0 : l->seqlen_stride;
    l->dim_stride = broadcast & 8 ? 0 : l->dim_stride;
    c->bias.tensor_stride[0] = l->batch_stride;
    c->bias.tensor_stride[1] = l->head_stride;
    c->bias.tensor_stride[2] = l->seqlen_stride;
    c->bias.tensor_stride[3] = l->dim_stride;
    c->bias.tensor_dtype = line->bias_dtype;
    return true;
}

/* A vector over heads, or a matrix over sequences and heads. */
static bool make_head_tensor(tess_case *c, const tess_fill *fill, int which, int filled,
                             int64_t batch)
{
    const int kind = c->line.layout == TESS_LAYOUT_STRIDED ? TESS_LAYOUT_STRIDED : TESS_LAYOUT_BSHD;
    tess_tensor *t = &c->tensor[which];

    if (!make_tensor(c, which, kind, extents_of(TESS_F32, batch, 1, c->line.heads_q, 1), false))
        return false;
    poison(c, t);
    for (int64_t b = 0; b < batch; b++)
        for (int64_t h = 0; h < c->line.heads_q; h++)
            tess_number_store(TESS_F32, tess_case_element(t, b, 0, h, 0),
                              tess_fill_value(fill, filled, (tess_place){b, h, 0, 0}));
    return true;
}

static bool make_bias(tess_case *c, const tess_fill *fill)
{
    const tess_line *line = &c->line;
    tess_random random = tess_random_start(line->seed, 0xB1A5);
    const bool per_sequence = tess_random_once_in(&random, 2);

    if (!line->bias)
        return true;
    c->bias = (tess_bias){TESS_STRUCT(tess_bias), .present = line->bias};
    if ((line->bias & TESS_BIAS_TENSOR) && !make_bias_tensor(c, fill))
        return false;
    if (line->bias & TESS_BIAS_ALIBI) {
        const tess_layout *l = &c->tensor[TESS_CASE_SLOPES].layout;

        if (!make_head_tensor(c, fill, TESS_CASE_SLOPES, TESS_FILLED_SLOPES,
                              per_sequence ? line->batch : 1))
            return false;
        c->bias.slope_stride[0] = per_sequence ? l->batch_stride : 0;
        c->bias.slope_stride[1] = l->head_stride;
    }
    if (line->bias & TESS_BIAS_SINK) {
        if (!make_head_tensor(c, fill, TESS_CASE_SINK, TESS_FILLED_SINK, 1))
            return false;
        c->bias.sink_stride = c->tensor[TESS_CASE_SINK].layout.head_stride;
    }
    c->desc.bias = &c->bias;
    return true;
}

/* ---- Gradients ------------------------------------------------------------------------------- */

/* dLSE lies as LSE does. */
static bool make_lse_gradient(tess_case *c, const tess_fill *fill)
{
    const tess_tensor *lse = &c->tensor[TESS_CASE_LSE];
    tess_tensor *t = &c->tensor[TESS_CASE_D_LSE];

    if (!make_tensor(c, TESS_CASE_D_LSE, TESS_LAYOUT_BHSD, lse->layout, false))
        return false;
    tess_buffer_free(&t->buffer);
    t->layout = lse->layout;
    t->origin = lse->origin;
    if (!tess_buffer_make(lse->buffer.size, &t->buffer))
        return false;
    poison(c, t);
    fill_operand(c, fill, TESS_FILLED_D_LSE, t);
    c->gradients.wanted |= TESS_GRADIENT_FROM_LSE;
    return true;
}

/* dO, laid out like any input: a gradient of a plain sum is one number repeated everywhere. */
static bool make_upstream(tess_case *c, const tess_fill *fill, tess_random *random)
{
    const tess_layout *o = &c->desc.o;
    const bool draws = !c->is_plain;
    const bool is_wide =
        tess_shape_is_fp8(c->line.dtype) || (draws && tess_random_once_in(random, 4));
    const bool is_repeated = draws && tess_random_once_in(random, 8);
    const bool from_lse = draws ? tess_random_once_in(random, 2) : c->from_lse;
    tess_tensor *t = &c->tensor[TESS_CASE_D_O];

    if (!make_tensor(
            c, TESS_CASE_D_O, c->line.layout,
            extents_of(is_wide ? TESS_F32 : o->dtype, o->batch, o->seqlen, o->heads, o->head_dim),
            false))
        return false;
    if (is_repeated && t->buffer.size > 0)
        t->layout.batch_stride = t->layout.seqlen_stride = t->layout.head_stride =
            t->layout.dim_stride = 0;
    poison(c, t);
    if (t->buffer.is_sparse)
        mark_elements(t, tess_number_poison(t->layout.dtype, (unsigned)c->line.seed));
    fill_operand(c, fill, TESS_FILLED_D_O, t);
    c->gradients.d_o = t->layout;
    if (!from_lse)
        return true;
    return make_lse_gradient(c, fill);
}

/* Which gradients are asked for: mostly all there are. */
static void draw_wanted(tess_case *c, tess_random *random)
{
    const uint32_t bias = c->line.bias;
    uint32_t wanted = TESS_GRADIENT_Q | TESS_GRADIENT_K | TESS_GRADIENT_V;

    if (bias & TESS_BIAS_TENSOR)
        wanted |= TESS_GRADIENT_BIAS;
    if (bias & TESS_BIAS_ALIBI)
        wanted |= TESS_GRADIENT_ALIBI;
    if (bias & TESS_BIAS_SINK)
        wanted |= TESS_GRADIENT_SINK;
    if (!c->is_plain && tess_random_once_in(random, 5)) {
        const uint32_t some = wanted & (uint32_t)tess_random_below(random, 64);

        wanted = some ? some : wanted;
    }
    c->gradients.wanted |= wanted;
}

/* A gradient of the shape of `like`, in its type or in f32. */
static bool make_gradient(tess_case *c, int which, uint32_t bit, const tess_layout *like,
                          tess_random *random, tess_layout *out_layout)
{
    const bool is_wide =
        tess_shape_is_fp8(like->dtype) || (!c->is_plain && tess_random_once_in(random, 4));

    if (!(c->gradients.wanted & bit))
        return true;
    if (!make_tensor(c, which, c->line.layout,
                     extents_of(is_wide ? TESS_F32 : like->dtype, like->batch, like->seqlen,
                                like->heads, like->head_dim),
                     true))
        return false;
    *out_layout = c->tensor[which].layout;
    return true;
}

/* dBias: axes that the line's bias repeats are summed, and so are others now and then. */
static bool make_bias_gradient(tess_case *c, tess_random *random)
{
    const tess_line *line = &c->line;
    const uint32_t extra = !c->is_plain && tess_random_once_in(random, 4)
                               ? (uint32_t)tess_random_below(random, 16)
                               : 0;
    const uint32_t summed = line->bias_broadcast | extra;
    const int64_t rows = line->seqlen_q + (line->lens_q.runs ? line->gap : 0);
    const int64_t columns = line->seqlen_k + (line->lens_k.runs ? line->gap : 0);
    const int64_t extent[4] = {line->batch, line->heads_q, rows, columns};
    const int kind = line->layout == TESS_LAYOUT_STRIDED ? TESS_LAYOUT_STRIDED : TESS_LAYOUT_BHSD;
    int64_t used[4], *stride[4];
    tess_tensor *t = &c->tensor[TESS_CASE_DBIAS];

    if (!(c->gradients.wanted & TESS_GRADIENT_BIAS))
        return true;
    for (int axis = 0; axis < 4; axis++)
        used[axis] = summed >> axis & 1 ? 1 : extent[axis];
    if (!make_tensor(c, TESS_CASE_DBIAS, kind,
                     extents_of(TESS_F32, used[0], used[2], used[1], used[3]), true))
        return false;
    stride[0] = &t->layout.batch_stride;
    stride[1] = &t->layout.head_stride;
    stride[2] = &t->layout.seqlen_stride;
    stride[3] = &t->layout.dim_stride;
    for (int axis = 0; axis < 4; axis++) {
        if (summed >> axis & 1)
            *stride[axis] = 0;
        else if (*stride[axis] == 0 && extent[axis] == 0)
            *stride[axis] = 1; /* 0 would ask for a sum of nothing, which is an element */
        c->gradients.dbias_stride[axis] = *stride[axis];
    }
    return true;
}

static bool make_gradients(tess_case *c, const tess_fill *fill)
{
    const tess_line *line = &c->line;
    tess_gradient_desc *g = &c->gradients;
    tess_random random = tess_random_start(line->seed, 0x64AD);
    const int64_t slopes = c->bias.slope_stride[0] ? line->batch : 1;

    if (!line->backward)
        return true;
    *g = (tess_gradient_desc){TESS_STRUCT(tess_gradient_desc)};
    draw_wanted(c, &random);
    return make_upstream(c, fill, &random) &&
           make_gradient(c, TESS_CASE_DQ, TESS_GRADIENT_Q, &c->desc.q, &random, &g->dq) &&
           make_gradient(c, TESS_CASE_DK, TESS_GRADIENT_K, &c->desc.k, &random, &g->dk) &&
           make_gradient(c, TESS_CASE_DV, TESS_GRADIENT_V, &c->desc.v, &random, &g->dv) &&
           make_bias_gradient(c, &random) &&
           (!(g->wanted & TESS_GRADIENT_ALIBI) ||
            make_tensor(c, TESS_CASE_DSLOPES, TESS_LAYOUT_BSHD,
                        extents_of(TESS_F32, slopes, 1, line->heads_q, 1), true)) &&
           (!(g->wanted & TESS_GRADIENT_SINK) ||
            make_tensor(c, TESS_CASE_DSINK, TESS_LAYOUT_BSHD,
                        extents_of(TESS_F32, 1, 1, line->heads_q, 1), true));
}

/* ---- Making and releasing -------------------------------------------------------------------- */

static void describe(tess_case *c)
{
    const tess_line *line = &c->line;
    tess_attention_desc *d = &c->desc;

    *d = (tess_attention_desc){TESS_STRUCT(tess_attention_desc)};
    d->softmax_scale = line->scale_is_set ? line->softmax_scale : 0;
    d->softcap = line->softcap;
    d->mask = line->mask;
    d->flags = line->flags | (line->scale_is_set ? (uint32_t)TESS_SCALE_IS_SET : 0);
    d->window_left = line->mask & TESS_MASK_WINDOW ? line->window_left : 0;
    d->window_right = line->mask & TESS_MASK_WINDOW ? line->window_right : 0;
    d->num_splits = line->splits;
}

void tess_case_prefill(tess_case *c)
{
    for (int i = 0; i < TESS_CASE_TENSORS; i++) {
        tess_tensor *t = &c->tensor[i];

        if (!t->is_present || !t->is_output)
            continue;
        poison(c, t);
        if (t->buffer.is_sparse)
            mark_elements(t, tess_number_prefill(t->layout.dtype));
    }
}

static bool make(const tess_line *line, const bool plain[2], tess_case *out, tess_text *why)
{
    tess_fill fill;
    int64_t rows, columns;

    memset(out, 0, sizeof *out);
    out->line = *line;
    out->is_plain = plain[0];
    out->from_lse = plain[1];
    out->room = tess_memory_available();
    if (!tess_fill_make(&out->line, &fill, why))
        return false;
    describe(out);
    if (!make_varlen(out, &rows, &columns) || !make_paging(out) ||
        !make_operands(out, &fill, rows, columns) || !make_outputs(out) || !make_bias(out, &fill) ||
        !make_gradients(out, &fill)) {
        tess_text_add(why,
                      "no memory for the tensors: they need %.3g bytes at least, %.3g are free",
                      out->touched, out->room);
        return false;
    }
    tess_case_prefill(out);
    for (int i = 0; i < TESS_CASE_TENSORS; i++)
        if (out->tensor[i].is_present && !out->tensor[i].is_output)
            out->tensor[i].hash = tess_tensor_hash(&out->tensor[i]);
    return true;
}

bool tess_case_make(const tess_line *line, tess_case *out, tess_text *why)
{
    return make(line, (bool[2]){false, false}, out, why);
}

bool tess_case_make_plain(const tess_line *line, bool from_lse, tess_case *out, tess_text *why)
{
    return make(line, (bool[2]){true, from_lse}, out, why);
}

void tess_case_keep_outputs(tess_case *c)
{
    static const int kept[] = {TESS_CASE_O, TESS_CASE_LSE};

    for (size_t i = 0; i < sizeof kept / sizeof *kept; i++) {
        tess_tensor *t = &c->tensor[kept[i]];

        t->is_output = false;
        t->hash = tess_tensor_hash(t);
    }
}

void tess_case_free(tess_case *c)
{
    for (int i = 0; i < TESS_CASE_TENSORS; i++)
        tess_buffer_free(&c->tensor[i].buffer);
    memset(c, 0, sizeof *c);
}
