/* SPDX-License-Identifier: Apache-2.0
 * Validates descriptors once, at the door: everything behind this file trusts a problem. */
#include "core/schedule/problem.h"

#include "core/base/error.h"
#include "core/schedule/layout.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

enum { MOST_SPLITS = 65536 };

static const int64_t most_extent = INT32_MAX;

/* What the checks share: where errors go and who the caller called. */
typedef struct checker {
    const tess_host *host;
    const char *call;
    const tess_attention_desc *desc;
    tess_problem *problem;
} checker;

#define INVALID(c, ...) tess_fail((c)->host, TESS_INVALID, __VA_ARGS__)

static bool is_fp8(tess_dtype dtype)
{
    return dtype == TESS_E4M3 || dtype == TESS_E5M2;
}

static bool is_16_or_32_bit_float(tess_dtype dtype)
{
    return dtype == TESS_F32 || dtype == TESS_F16 || dtype == TESS_BF16;
}

static tess_status check_extent(const checker *c, const char *tensor, const char *axis,
                                int64_t extent, int64_t least)
{
    if (extent < least || extent > most_extent)
        return INVALID(c, "%s: %s.%s is %" PRId64 "; it takes %" PRId64 " to %" PRId64, c->call,
                       tensor, axis, extent, least, most_extent);
    return TESS_OK;
}

static tess_status check_layout(const checker *c, const char *tensor, const tess_layout *layout)
{
    int64_t lowest, highest;

    TESS_TRY(check_extent(c, tensor, "batch", layout->batch, 0));
    TESS_TRY(check_extent(c, tensor, "seqlen", layout->seqlen, 0));
    TESS_TRY(check_extent(c, tensor, "heads", layout->heads, 0));
    TESS_TRY(check_extent(c, tensor, "head_dim", layout->head_dim, 1));
    if (layout->reserved != 0)
        return INVALID(c, "%s: %s.reserved is %" PRId32 "; it takes 0", c->call, tensor,
                       layout->reserved);
    if (!tess_layout_reach(layout, &lowest, &highest))
        return INVALID(c,
                       "%s: %s has strides %" PRId64 ", %" PRId64 ", %" PRId64 ", %" PRId64
                       " (batch, seqlen, head, dim); with its extents they leave 2^60 elements",
                       c->call, tensor, layout->batch_stride, layout->seqlen_stride,
                       layout->head_stride, layout->dim_stride);
    return TESS_OK;
}

static tess_status check_output(const checker *c, const char *tensor, const tess_layout *layout)
{
    if (tess_layout_overlaps_itself(layout))
        return INVALID(c,
                       "%s: %s has strides %" PRId64 ", %" PRId64 ", %" PRId64 ", %" PRId64
                       " (batch, seqlen, head, dim); an output must not overlap itself",
                       c->call, tensor, layout->batch_stride, layout->seqlen_stride,
                       layout->head_stride, layout->dim_stride);
    return TESS_OK;
}

/* One extent that must equal another's. */
static tess_status check_equal(const checker *c, const char *what, int64_t seen, const char *other,
                               int64_t wanted)
{
    if (seen != wanted)
        return INVALID(c, "%s: %s is %" PRId64 "; it must equal %s, which is %" PRId64, c->call,
                       what, seen, other, wanted);
    return TESS_OK;
}

static tess_status check_dtypes(const checker *c)
{
    const tess_attention_desc *d = c->desc;
    const tess_dtype dtype = d->q.dtype;

    if (dtype < TESS_F32 || dtype > TESS_E5M2)
        return INVALID(c, "%s: q.dtype is %" PRId32 " (%s); it takes f32, f16, bf16, e4m3 or e5m2",
                       c->call, dtype, tess_dtype_name(dtype));
    if (d->k.dtype != dtype)
        return INVALID(c, "%s: k.dtype is %" PRId32 " (%s); it must equal q.dtype, which is %s",
                       c->call, d->k.dtype, tess_dtype_name(d->k.dtype), tess_dtype_name(dtype));
    if (d->v.dtype != dtype)
        return INVALID(c, "%s: v.dtype is %" PRId32 " (%s); it must equal q.dtype, which is %s",
                       c->call, d->v.dtype, tess_dtype_name(d->v.dtype), tess_dtype_name(dtype));
    if (is_fp8(dtype) ? !is_16_or_32_bit_float(d->o.dtype)
                      : d->o.dtype != dtype && d->o.dtype != TESS_F32)
        return INVALID(c, "%s: o.dtype is %" PRId32 " (%s); with %s inputs it takes %s", c->call,
                       d->o.dtype, tess_dtype_name(d->o.dtype), tess_dtype_name(dtype),
                       is_fp8(dtype)       ? "bf16, f16 or f32"
                       : dtype == TESS_F32 ? "f32"
                       : dtype == TESS_F16 ? "f16 or f32"
                                           : "bf16 or f32");
    return TESS_OK;
}

static tess_status check_heads(const checker *c)
{
    const tess_attention_desc *d = c->desc;

    TESS_TRY(check_equal(c, "v.heads", d->v.heads, "k.heads", d->k.heads));
    TESS_TRY(check_equal(c, "o.heads", d->o.heads, "q.heads", d->q.heads));
    if (d->k.heads == 0 ? d->q.heads != 0 : d->q.heads == 0 || d->q.heads % d->k.heads != 0)
        return INVALID(c,
                       "%s: q.heads is %" PRId64
                       "; it must be a multiple of k.heads, which is %" PRId64 " (both may be 0)",
                       c->call, d->q.heads, d->k.heads);
    return TESS_OK;
}

/* Extents that do not depend on how sequences are stored. */
static tess_status check_shapes(const checker *c)
{
    const tess_attention_desc *d = c->desc;

    TESS_TRY(check_layout(c, "q", &d->q));
    TESS_TRY(check_layout(c, "k", &d->k));
    TESS_TRY(check_layout(c, "v", &d->v));
    TESS_TRY(check_layout(c, "o", &d->o));
    TESS_TRY(check_dtypes(c));
    TESS_TRY(check_heads(c));
    TESS_TRY(check_equal(c, "k.head_dim", d->k.head_dim, "q.head_dim", d->q.head_dim));
    TESS_TRY(check_equal(c, "v.batch", d->v.batch, "k.batch", d->k.batch));
    TESS_TRY(check_equal(c, "v.seqlen", d->v.seqlen, "k.seqlen", d->k.seqlen));
    TESS_TRY(check_equal(c, "o.batch", d->o.batch, "q.batch", d->q.batch));
    TESS_TRY(check_equal(c, "o.seqlen", d->o.seqlen, "q.seqlen", d->q.seqlen));
    TESS_TRY(check_equal(c, "o.head_dim", d->o.head_dim, "v.head_dim", d->v.head_dim));
    return check_output(c, "o", &d->o);
}

/* The LSE's layout: the caller's, or packed heads before rows. */
static tess_status take_lse(const checker *c)
{
    static const tess_layout unset;
    const tess_layout *lse = &c->desc->lse, *o = &c->desc->o;

    if (memcmp(lse, &unset, sizeof unset) == 0) {
        c->problem->lse = tess_layout_by_head(TESS_F32, o->batch, o->seqlen, o->heads, 1);
        return TESS_OK;
    }
    TESS_TRY(check_layout(c, "lse", lse));
    if (lse->dtype != TESS_F32)
        return INVALID(c, "%s: lse.dtype is %" PRId32 " (%s); it takes f32", c->call, lse->dtype,
                       tess_dtype_name(lse->dtype));
    TESS_TRY(check_equal(c, "lse.batch", lse->batch, "o.batch", o->batch));
    TESS_TRY(check_equal(c, "lse.seqlen", lse->seqlen, "o.seqlen", o->seqlen));
    TESS_TRY(check_equal(c, "lse.heads", lse->heads, "o.heads", o->heads));
    if (lse->head_dim != 1)
        return INVALID(c, "%s: lse.head_dim is %" PRId64 "; it takes 1", c->call, lse->head_dim);
    c->problem->lse = *lse;
    return check_output(c, "lse", lse);
}

static tess_status take_score(const checker *c)
{
    const tess_attention_desc *d = c->desc;
    const bool is_set = (d->flags & TESS_SCALE_IS_SET) != 0 || d->softmax_scale != 0.0f;

    if (!isfinite(d->softmax_scale))
        return INVALID(c, "%s: softmax_scale is %g; it takes any finite number", c->call,
                       (double)d->softmax_scale);
    if (!isfinite(d->softcap) || d->softcap < 0.0f)
        return INVALID(c, "%s: softcap is %g; it takes 0 (off) or a positive finite number",
                       c->call, (double)d->softcap);
    c->problem->scale = is_set ? d->softmax_scale : (float)(1.0 / sqrt((double)d->q.head_dim));
    c->problem->softcap = d->softcap;
    return TESS_OK;
}

static tess_status take_mask(const checker *c)
{
    const tess_attention_desc *d = c->desc;
    const uint32_t masks = TESS_MASK_CAUSAL | TESS_MASK_WINDOW | TESS_MASK_TOP_LEFT;
    const uint32_t flags = TESS_DETERMINISTIC | TESS_BATCH_INVARIANT | TESS_ALLOW_TF32 |
                           TESS_ALLOW_NONFINITE_SPREAD | TESS_SCALE_IS_SET;

    if (d->mask & ~masks)
        return INVALID(c,
                       "%s: mask is 0x%" PRIx32 "; it takes the bits 0x%" PRIx32
                       " (TESS_MASK_CAUSAL, _WINDOW, _TOP_LEFT)",
                       c->call, d->mask, masks);
    if (d->flags & ~flags)
        return INVALID(c,
                       "%s: flags is 0x%" PRIx32 "; it takes the bits 0x%" PRIx32
                       " (TESS_DETERMINISTIC ... TESS_SCALE_IS_SET)",
                       c->call, d->flags, flags);
    if (!(d->mask & TESS_MASK_WINDOW) && (d->window_left != 0 || d->window_right != 0))
        return INVALID(c,
                       "%s: window_left is %" PRId64 " and window_right is %" PRId64
                       " without TESS_MASK_WINDOW; they take 0 there",
                       c->call, d->window_left, d->window_right);
    if (d->num_splits < 0 || d->num_splits > MOST_SPLITS)
        return INVALID(c, "%s: num_splits is %" PRId64 "; it takes 0 (chosen) to %d", c->call,
                       d->num_splits, MOST_SPLITS);
    c->problem->mask = d->mask;
    c->problem->flags = d->flags & ~(uint32_t)TESS_SCALE_IS_SET;
    c->problem->window_left = d->mask & TESS_MASK_WINDOW ? d->window_left : -1;
    c->problem->window_right = d->mask & TESS_MASK_WINDOW ? d->window_right : -1;
    c->problem->num_splits = d->num_splits;
    return TESS_OK;
}

static tess_status take_paging(const checker *c)
{
    const tess_paging *paging = c->desc->paging;
    tess_problem *p = c->problem;

    if (!paging)
        return TESS_OK;
    if (c->desc->k.seqlen < 1)
        return INVALID(c, "%s: k.seqlen is 0; with paging it is the page size and takes 1 or more",
                       c->call);
    TESS_TRY(check_extent(c, "paging", "max_pages", paging->max_pages, 0));
    if (paging->table_stride < 0 || paging->table_stride > INT64_MAX / 8 / most_extent)
        return INVALID(c, "%s: paging.table_stride is %" PRId64 "; it takes 0 (max_pages) to 2^29",
                       c->call, paging->table_stride);
    p->page_size = c->desc->k.seqlen;
    p->max_pages = paging->max_pages;
    p->table_stride = paging->table_stride ? paging->table_stride : paging->max_pages;
    return TESS_OK;
}

/* The bound on one side's lengths: needed where the side is packed, refused where the layout
 * already says it. */
static tess_status take_bound(const checker *c, const char *name, int64_t bound, bool is_packed,
                              int64_t total, int64_t *out_extent)
{
    if (bound < 0 || bound > most_extent)
        return INVALID(c, "%s: varlen.%s is %" PRId64 "; it takes 0 to %" PRId64, c->call, name,
                       bound, most_extent);
    if (!is_packed) {
        if (bound != 0)
            return INVALID(c,
                           "%s: varlen.%s is %" PRId64
                           "; without cu_seqlens the layout gives it and it takes 0",
                           c->call, name, bound);
        return TESS_OK;
    }
    if (bound == 0 && total > 0 && c->problem->sequences > 0)
        return INVALID(c, "%s: varlen.%s is 0; packed sequences need the bound of their lengths",
                       c->call, name);
    *out_extent = bound < total ? bound : total;
    return TESS_OK;
}

/* A copy of an array that the arguments will not hold is an array somebody forgot to announce. */
static tess_status check_copy(const checker *c, const tess_varlen *v, const char *name,
                              const void *copy, uint32_t bit)
{
    if (copy && !(v->present & bit))
        return INVALID(c,
                       "%s: varlen.%s is given but varlen.present is 0x%" PRIx32
                       " without 0x%" PRIx32 "; it takes NULL there",
                       c->call, name, v->present, bit);
    return TESS_OK;
}

static tess_status check_varlen(const checker *c, const tess_varlen *v)
{
    const uint32_t bits = TESS_VARLEN_CU_SEQLENS_Q | TESS_VARLEN_CU_SEQLENS_K |
                          TESS_VARLEN_SEQUSED_Q | TESS_VARLEN_SEQUSED_K;

    if (v->present & ~bits)
        return INVALID(c,
                       "%s: varlen.present is 0x%" PRIx32 "; it takes the bits 0x%" PRIx32
                       " (TESS_VARLEN_...)",
                       c->call, v->present, bits);
    if (v->index_dtype != 0 && v->index_dtype != TESS_I32 && v->index_dtype != TESS_I64)
        return INVALID(c, "%s: varlen.index_dtype is %" PRId32 " (%s); it takes i32 or i64",
                       c->call, v->index_dtype, tess_dtype_name(v->index_dtype));
    TESS_TRY(check_extent(c, "varlen", "sequences", v->sequences, 0));
    TESS_TRY(check_copy(c, v, "host_cu_seqlens_q", v->host_cu_seqlens_q, TESS_VARLEN_CU_SEQLENS_Q));
    TESS_TRY(check_copy(c, v, "host_cu_seqlens_k", v->host_cu_seqlens_k, TESS_VARLEN_CU_SEQLENS_K));
    TESS_TRY(check_copy(c, v, "host_seqused_q", v->host_seqused_q, TESS_VARLEN_SEQUSED_Q));
    TESS_TRY(check_copy(c, v, "host_seqused_k", v->host_seqused_k, TESS_VARLEN_SEQUSED_K));
    if (c->desc->paging && (v->present & TESS_VARLEN_CU_SEQLENS_K))
        return INVALID(c,
                       "%s: varlen.present has TESS_VARLEN_CU_SEQLENS_K together with paging; "
                       "paged keys take their lengths from seqused_k",
                       c->call);
    return TESS_OK;
}

/* Sequences and their bounds. */
static tess_status take_sequences(const checker *c)
{
    const tess_attention_desc *d = c->desc;
    const tess_varlen *v = d->varlen;
    tess_problem *p = c->problem;
    const uint32_t present = v ? v->present : 0;
    const bool packed_q = present & TESS_VARLEN_CU_SEQLENS_Q;
    const bool packed_k = present & TESS_VARLEN_CU_SEQLENS_K;

    if (v)
        TESS_TRY(check_varlen(c, v));
    p->varlen = present;
    p->index_dtype = v && v->index_dtype ? v->index_dtype : TESS_I32;
    p->sequences = v ? v->sequences : d->q.batch;
    p->rows = d->q.seqlen;
    p->columns = d->k.seqlen;

    if (packed_q)
        TESS_TRY(check_equal(c, "q.batch", d->q.batch, "1 for packed rows", 1));
    else
        TESS_TRY(check_equal(c, "q.batch", d->q.batch, "the number of sequences", p->sequences));
    if (packed_k)
        TESS_TRY(check_equal(c, "k.batch", d->k.batch, "1 for packed columns", 1));
    else if (!d->paging)
        TESS_TRY(check_equal(c, "k.batch", d->k.batch, "the number of sequences", p->sequences));

    if (d->paging) {
        const int64_t slots = p->max_pages * p->page_size; /* both below 2^31 */
        p->columns = slots < most_extent ? slots : most_extent;
        if (v && v->max_seqlen_k != 0)
            TESS_TRY(take_bound(c, "max_seqlen_k", v->max_seqlen_k, true, p->columns, &p->columns));
    } else if (v) {
        TESS_TRY(
            take_bound(c, "max_seqlen_k", v->max_seqlen_k, packed_k, d->k.seqlen, &p->columns));
    }
    if (v)
        TESS_TRY(take_bound(c, "max_seqlen_q", v->max_seqlen_q, packed_q, d->q.seqlen, &p->rows));
    return TESS_OK;
}

/* A tensor that is given as strides alone: bias[b,h,i,j], slope[b,h], sink[h] and the like. */
typedef struct side {
    const char *name; /* of the member: "bias.slope_stride" */
    const int64_t *stride;
    int axes;
    const char *bit_name; /* what announces it: "TESS_BIAS_ALIBI" */
    bool is_present;
    int64_t extent[4];
} side;

static void write_strides(const side *s, char *text, size_t size)
{
    tess_text out = tess_text_in(text, size);
    for (int axis = 0; axis < s->axes; axis++)
        tess_text_add(&out, "%s%" PRId64, axis ? ", " : "", s->stride[axis]);
}

static tess_layout side_layout(const side *s)
{
    int64_t extent[4] = {1, 1, 1, 1}, stride[4] = {0};
    memcpy(extent, s->extent, (size_t)s->axes * sizeof *extent);
    memcpy(stride, s->stride, (size_t)s->axes * sizeof *stride);
    return (tess_layout){extent[0], extent[1], extent[2], extent[3], stride[0],
                         stride[1], stride[2], stride[3], TESS_F32,  0};
}

/* It must stay addressable like any other input, and say nothing when nobody announced it. */
static tess_status check_side(const checker *c, const side *s)
{
    const tess_layout layout = side_layout(s);
    char strides[96];
    int64_t lowest, highest;

    write_strides(s, strides, sizeof strides);
    if (s->is_present && !tess_layout_reach(&layout, &lowest, &highest))
        return INVALID(c, "%s: %s is %s; with the problem's extents it leaves 2^60 elements",
                       c->call, s->name, strides);
    for (int axis = 0; !s->is_present && axis < s->axes; axis++)
        if (s->stride[axis] != 0)
            return INVALID(c, "%s: %s is %s without %s; it takes 0 there", c->call, s->name,
                           strides, s->bit_name);
    return TESS_OK;
}

static tess_status take_bias(const checker *c)
{
    const tess_bias *b = c->desc->bias;
    tess_problem *p = c->problem;
    const uint32_t bits = TESS_BIAS_TENSOR | TESS_BIAS_ALIBI | TESS_BIAS_SINK;

    if (!b)
        return TESS_OK;
    if (b->present & ~bits)
        return INVALID(
            c, "%s: bias.present is 0x%" PRIx32 "; it takes the bits 0x%" PRIx32 " (TESS_BIAS_...)",
            c->call, b->present, bits);
    if ((b->present & TESS_BIAS_TENSOR) ? !is_16_or_32_bit_float(b->tensor_dtype)
                                        : b->tensor_dtype != 0)
        return INVALID(c, "%s: bias.tensor_dtype is %" PRId32 " (%s); it takes %s", c->call,
                       b->tensor_dtype, tess_dtype_name(b->tensor_dtype),
                       b->present & TESS_BIAS_TENSOR ? "f32, f16 or bf16"
                                                     : "0 without TESS_BIAS_TENSOR");
    const bool has_tensor = b->present & TESS_BIAS_TENSOR,
               has_slopes = b->present & TESS_BIAS_ALIBI;
    const bool has_sink = b->present & TESS_BIAS_SINK;
    const side sides[] = {
        {"bias.tensor_stride",
         b->tensor_stride,
         4,
         "TESS_BIAS_TENSOR",
         has_tensor,
         {p->sequences, p->heads_q, p->rows, p->columns}},
        {"bias.slope_stride",
         b->slope_stride,
         2,
         "TESS_BIAS_ALIBI",
         has_slopes,
         {p->sequences, p->heads_q}},
        {"bias.sink_stride", &b->sink_stride, 1, "TESS_BIAS_SINK", has_sink, {p->heads_q}}};

    for (int i = 0; i < 3; i++)
        TESS_TRY(check_side(c, &sides[i]));
    p->bias = b->present;
    p->bias_dtype = b->tensor_dtype;
    memcpy(p->bias_stride, b->tensor_stride, sizeof p->bias_stride);
    memcpy(p->slope_stride, b->slope_stride, sizeof p->slope_stride);
    p->sink_stride = b->sink_stride;
    return TESS_OK;
}

/* Blocks of descale factors along the rows of one tensor. */
static int64_t blocks_of(int64_t rows, int64_t rows_per_block)
{
    return rows_per_block ? (rows - 1) / rows_per_block + 1 : 1;
}

static tess_status take_scaling(const checker *c)
{
    const tess_scaling *s = c->desc->scaling;
    const tess_problem *p = c->problem;

    if (!s)
        return TESS_OK;
    if (!is_fp8(c->problem->dtype))
        return INVALID(c, "%s: scaling is given but q.dtype is %s; it takes NULL there", c->call,
                       tess_dtype_name(c->problem->dtype));
    if (s->q_rows_per_block < 0 || s->k_rows_per_block < 0 || s->v_rows_per_block < 0)
        return INVALID(c,
                       "%s: scaling has %" PRId64 ", %" PRId64 " and %" PRId64
                       " rows per block of q, k and v; each takes 0 (one block) or more",
                       c->call, s->q_rows_per_block, s->k_rows_per_block, s->v_rows_per_block);
    const side sides[] = {
        {"scaling.q_stride",
         s->q_stride,
         3,
         "",
         true,
         {p->sequences, p->heads_q, blocks_of(p->rows, s->q_rows_per_block)}},
        {"scaling.k_stride",
         s->k_stride,
         3,
         "",
         true,
         {p->sequences, p->heads_kv, blocks_of(p->columns, s->k_rows_per_block)}},
        {"scaling.v_stride",
         s->v_stride,
         3,
         "",
         true,
         {p->sequences, p->heads_kv, blocks_of(p->columns, s->v_rows_per_block)}}};

    for (int i = 0; i < 3; i++)
        TESS_TRY(check_side(c, &sides[i]));
    c->problem->has_scaling = true;
    return TESS_OK;
}

/* The stride of an axis with one element is never used; 0 makes equal problems equal. */
static void forget_unused_strides(tess_layout *layout)
{
    if (layout->batch <= 1)
        layout->batch_stride = 0;
    if (layout->seqlen <= 1)
        layout->seqlen_stride = 0;
    if (layout->heads <= 1)
        layout->head_stride = 0;
    if (layout->head_dim <= 1)
        layout->dim_stride = 0;
}

tess_status tess_problem_make(const tess_host *host, const char *call,
                              const tess_attention_desc *desc, tess_problem *out_problem)
{
    tess_problem p;
    const checker c = {host, call, desc, &p};

    memset(&p, 0, sizeof p);
    p.pass = TESS_PASS_FORWARD;
    TESS_TRY(check_shapes(&c));
    p.q = desc->q;
    p.k = desc->k;
    p.v = desc->v;
    p.o = desc->o;
    p.dtype = desc->q.dtype;
    p.o_dtype = desc->o.dtype;
    p.heads_q = desc->q.heads;
    p.heads_kv = desc->k.heads;
    p.group = p.heads_kv ? p.heads_q / p.heads_kv : 1;
    p.head_dim = desc->q.head_dim;
    p.head_dim_v = desc->v.head_dim;
    TESS_TRY(take_lse(&c));
    TESS_TRY(take_score(&c));
    TESS_TRY(take_mask(&c));
    TESS_TRY(take_paging(&c));
    TESS_TRY(take_sequences(&c));
    TESS_TRY(take_bias(&c));
    TESS_TRY(take_scaling(&c));
    p.has_program = desc->program && (desc->program->score || desc->program->mask);

    forget_unused_strides(&p.q);
    forget_unused_strides(&p.k);
    forget_unused_strides(&p.v);
    forget_unused_strides(&p.o);
    forget_unused_strides(&p.lse);
    *out_problem = p;
    return TESS_OK;
}

/* A gradient's layout: the caller's, or like its tensor; is_output: it is wanted and written. */
static tess_status take_gradient(const checker *c, const char *name, const tess_layout *given,
                                 const tess_layout *like, const char *like_name, bool is_output,
                                 tess_layout *out_layout)
{
    static const tess_layout unset;

    *out_layout = *like;
    if (memcmp(given, &unset, sizeof unset) == 0) {
        if (is_output && tess_layout_overlaps_itself(like))
            return INVALID(c,
                           "%s: %s is not given and %s overlaps itself; give a layout that does "
                           "not",
                           c->call, name, like_name);
        return TESS_OK;
    }
    TESS_TRY(check_layout(c, name, given));
    if (given->dtype != like->dtype && given->dtype != TESS_F32)
        return INVALID(c, "%s: %s.dtype is %" PRId32 " (%s); it takes %s or f32", c->call, name,
                       given->dtype, tess_dtype_name(given->dtype), tess_dtype_name(like->dtype));
    if (given->batch != like->batch || given->seqlen != like->seqlen ||
        given->heads != like->heads || given->head_dim != like->head_dim)
        return INVALID(c,
                       "%s: %s is (%" PRId64 ", %" PRId64 ", %" PRId64 ", %" PRId64
                       "); it must have the extents of %s, (%" PRId64 ", %" PRId64 ", %" PRId64
                       ", %" PRId64 ")",
                       c->call, name, given->batch, given->seqlen, given->heads, given->head_dim,
                       like_name, like->batch, like->seqlen, like->heads, like->head_dim);
    *out_layout = *given;
    forget_unused_strides(out_layout);
    return is_output ? check_output(c, name, given) : TESS_OK;
}

/* dbias is given as strides; those that are 0 sum over their axis, the others must not overlap. */
static tess_status take_bias_gradient(const checker *c, const tess_gradient_desc *wanted)
{
    tess_problem *p = c->problem;
    side dbias = {"gradients.dbias_stride",
                  wanted->dbias_stride,
                  4,
                  "TESS_GRADIENT_BIAS",
                  (p->gradients & TESS_GRADIENT_BIAS) != 0,
                  {p->sequences, p->heads_q, p->rows, p->columns}};
    char strides[96];
    tess_layout layout;

    TESS_TRY(check_side(c, &dbias));
    for (int axis = 0; axis < 4; axis++)
        if (dbias.stride[axis] == 0)
            dbias.extent[axis] = dbias.extent[axis] > 0;
    layout = side_layout(&dbias);
    write_strides(&dbias, strides, sizeof strides);
    if (dbias.is_present && tess_layout_overlaps_itself(&layout))
        return INVALID(c, "%s: %s is %s; an output must not overlap itself", c->call, dbias.name,
                       strides);
    memcpy(p->dbias_stride, wanted->dbias_stride, sizeof p->dbias_stride);
    return TESS_OK;
}

tess_status tess_problem_add_gradients(const tess_host *host, const char *call,
                                       const tess_gradient_desc *wanted, tess_problem *problem)
{
    const checker c = {host, call, NULL, problem};
    const uint32_t bits = TESS_GRADIENT_Q | TESS_GRADIENT_K | TESS_GRADIENT_V | TESS_GRADIENT_BIAS |
                          TESS_GRADIENT_ALIBI | TESS_GRADIENT_SINK | TESS_GRADIENT_FROM_LSE;
    const uint32_t given = wanted->wanted;

    if (given & ~bits)
        return INVALID(&c,
                       "%s: gradients.wanted is 0x%" PRIx32 "; it takes the bits 0x%" PRIx32
                       " (TESS_GRADIENT_...)",
                       call, given, bits);
    if (wanted->reserved != 0)
        return INVALID(&c, "%s: gradients.reserved is %" PRIu32 "; it takes 0", call,
                       wanted->reserved);
    if (((given & TESS_GRADIENT_BIAS) && !(problem->bias & TESS_BIAS_TENSOR)) ||
        ((given & TESS_GRADIENT_ALIBI) && !(problem->bias & TESS_BIAS_ALIBI)) ||
        ((given & TESS_GRADIENT_SINK) && !(problem->bias & TESS_BIAS_SINK)))
        return INVALID(&c,
                       "%s: gradients.wanted is 0x%" PRIx32 " but bias.present is 0x%" PRIx32
                       "; a gradient is of something that is present",
                       call, given, problem->bias);
    problem->gradients = given ? given : TESS_GRADIENT_Q | TESS_GRADIENT_K | TESS_GRADIENT_V;
    TESS_TRY(
        take_gradient(&c, "gradients.d_o", &wanted->d_o, &problem->o, "o", false, &problem->d_o));
    TESS_TRY(take_gradient(&c, "gradients.dq", &wanted->dq, &problem->q, "q",
                           problem->gradients & TESS_GRADIENT_Q, &problem->dq));
    TESS_TRY(take_gradient(&c, "gradients.dk", &wanted->dk, &problem->k, "k",
                           problem->gradients & TESS_GRADIENT_K, &problem->dk));
    TESS_TRY(take_gradient(&c, "gradients.dv", &wanted->dv, &problem->v, "v",
                           problem->gradients & TESS_GRADIENT_V, &problem->dv));
    TESS_TRY(take_bias_gradient(&c, wanted));
    problem->pass = TESS_PASS_BACKWARD;
    return TESS_OK;
}

static void repeat(tess_lengths *lengths, int64_t value, int64_t count)
{
    lengths->runs = 0;
    tess_lengths_add(lengths, value, count);
}

void tess_problem_line(const tess_problem *problem, tess_line *out_line)
{
    tess_line_default(out_line);
    out_line->backward = problem->pass == TESS_PASS_BACKWARD;
    out_line->batch = problem->sequences;
    out_line->heads_q = problem->heads_q;
    out_line->heads_kv = problem->heads_kv;
    out_line->seqlen_q = problem->rows;
    out_line->seqlen_k = problem->columns;
    out_line->head_dim = problem->head_dim;
    out_line->head_dim_v = problem->head_dim_v;
    out_line->dtype = problem->dtype;
    out_line->o_dtype = problem->o_dtype == problem->dtype ? TESS_DTYPE_NONE : problem->o_dtype;
    out_line->mask = problem->mask;
    if (problem->mask & TESS_MASK_WINDOW) {
        out_line->window_left = problem->window_left;
        out_line->window_right = problem->window_right;
    }
    if (problem->scale != (float)(1.0 / sqrt((double)problem->head_dim))) {
        out_line->scale_is_set = true;
        out_line->softmax_scale = problem->scale;
    }
    out_line->softcap = problem->softcap;
    out_line->bias = problem->bias;
    if (problem->bias & TESS_BIAS_TENSOR)
        out_line->bias_dtype = problem->bias_dtype;
    out_line->flags = problem->flags;
    out_line->splits = problem->num_splits;
    out_line->page_size = problem->page_size;
    out_line->index_dtype = problem->index_dtype;
    if (problem->varlen & TESS_VARLEN_CU_SEQLENS_Q)
        repeat(&out_line->lens_q, problem->rows, problem->sequences);
    if (problem->varlen & TESS_VARLEN_CU_SEQLENS_K)
        repeat(&out_line->lens_k, problem->columns, problem->sequences);
    if (problem->varlen & TESS_VARLEN_SEQUSED_Q)
        repeat(&out_line->used_q, problem->rows, problem->sequences);
    if (problem->varlen & TESS_VARLEN_SEQUSED_K)
        repeat(&out_line->used_k, problem->columns, problem->sequences);
}

void tess_problem_write(const tess_problem *problem, tess_text *out_text)
{
    tess_line line;
    tess_problem_line(problem, &line);
    tess_line_write(&line, out_text);
}
