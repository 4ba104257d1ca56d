/* SPDX-License-Identifier: Apache-2.0
 * The descriptor a problem line stands for, without any data: enough to plan, not to run. */
#include "tools/describe.h"

#include "tests/kit/shape.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* More sequences than this and the host copies alone would fill the memory. */
#define MOST_SEQUENCES INT64_C(16777216)

/* The lengths behind each other, run by run, and after that their prefix sums if asked for. */
static int64_t *write_lengths(const tess_lengths *lengths, bool as_sums, int64_t gap, int64_t *out)
{
    int64_t sum = 0;

    for (int32_t run = 0; run < lengths->runs; run++) {
        for (int64_t i = 0; i < lengths->count[run]; i++) {
            *out++ = as_sums ? sum : lengths->value[run];
            sum += lengths->value[run] + gap;
        }
    }
    if (as_sums)
        *out++ = sum;
    return out;
}

static int describe_lengths(const tess_line *line, tool_descriptor *out)
{
    const bool packed_q = line->lens_q.runs > 0, packed_k = line->lens_k.runs > 0;
    const bool used_q = tess_shape_has_used_rows(line), used_k = tess_shape_has_used_columns(line);
    int64_t *at;

    if (!packed_q && !packed_k && !used_q && !used_k)
        return TOOL_OK;
    if (line->batch > MOST_SEQUENCES)
        return tool_fail(TOOL_USAGE, "%" PRId64 " sequences with lengths are more than %" PRId64,
                         line->batch, MOST_SEQUENCES);
    at = tool_allocate((size_t)(4 * line->batch + 4) * sizeof *at, "the lengths");
    if (!at)
        return TOOL_BROKEN;
    out->lengths = at;
    out->varlen =
        (tess_varlen){TESS_STRUCT(tess_varlen), .sequences = line->batch,
                      .max_seqlen_q = packed_q ? line->seqlen_q : 0,
                      .max_seqlen_k = packed_k ? line->seqlen_k : 0, .index_dtype = TESS_I64};
    if (packed_q) {
        out->varlen.present |= TESS_VARLEN_CU_SEQLENS_Q;
        out->varlen.host_cu_seqlens_q = at;
        at = write_lengths(&line->lens_q, true, line->gap, at);
    }
    if (packed_k) {
        out->varlen.present |= TESS_VARLEN_CU_SEQLENS_K;
        out->varlen.host_cu_seqlens_k = at;
        at = write_lengths(&line->lens_k, true, line->gap, at);
    }
    if (used_q) {
        out->varlen.present |= TESS_VARLEN_SEQUSED_Q;
        out->varlen.host_seqused_q = at;
        at = write_lengths(line->used_q.runs ? &line->used_q : &line->lens_q, false, 0, at);
    }
    if (used_k) {
        out->varlen.present |= TESS_VARLEN_SEQUSED_K;
        out->varlen.host_seqused_k = at;
        write_lengths(line->used_k.runs ? &line->used_k : &line->lens_k, false, 0, at);
    }
    out->desc.varlen = &out->varlen;
    return TOOL_OK;
}

static void describe_bias(const tess_line *line, tool_descriptor *out)
{
    const int64_t extent[4] = {line->batch, line->heads_q, line->seqlen_q, line->seqlen_k};
    int64_t stride = 1;

    if (!line->bias)
        return;
    out->bias = (tess_bias){TESS_STRUCT(tess_bias), .present = line->bias};
    if (line->bias & TESS_BIAS_TENSOR) {
        out->bias.tensor_dtype = line->bias_dtype;
        for (int axis = 3; axis >= 0; axis--) {
            if (line->bias_broadcast >> axis & 1)
                continue;
            out->bias.tensor_stride[axis] = stride;
            stride *= extent[axis] > 0 ? extent[axis] : 1;
        }
    }
    if (line->bias & TESS_BIAS_ALIBI)
        out->bias.slope_stride[1] = 1;
    if (line->bias & TESS_BIAS_SINK)
        out->bias.sink_stride = 1;
    out->desc.bias = &out->bias;
}

static tess_layout lay(const tess_line *line, tess_dtype dtype, int64_t batch, int64_t seqlen,
                       int64_t heads, int64_t head_dim)
{
    return line->layout == TESS_LAYOUT_BHSD
               ? tess_layout_by_head(dtype, batch, seqlen, heads, head_dim)
               : tess_layout_packed(dtype, batch, seqlen, heads, head_dim);
}

static void describe_tensors(const tess_line *line, tool_descriptor *out)
{
    const bool packed_q = line->lens_q.runs > 0, packed_k = line->lens_k.runs > 0;
    const int64_t rows =
        packed_q ? tess_lengths_total(&line->lens_q) + line->gap * line->batch : line->seqlen_q;
    int64_t columns =
        packed_k ? tess_lengths_total(&line->lens_k) + line->gap * line->batch : line->seqlen_k;
    int64_t k_batch = packed_k ? 1 : line->batch;
    tess_attention_desc *desc = &out->desc;

    if (line->page_size) {
        const int64_t pages = (line->seqlen_k + line->page_size - 1) / line->page_size;

        out->paging = (tess_paging){TESS_STRUCT(tess_paging), .max_pages = pages};
        desc->paging = &out->paging;
        k_batch = pages * line->batch;
        columns = line->page_size;
    }
    desc->q =
        lay(line, line->dtype, packed_q ? 1 : line->batch, rows, line->heads_q, line->head_dim);
    desc->o = lay(line, tess_shape_o_dtype(line), packed_q ? 1 : line->batch, rows, line->heads_q,
                  line->head_dim_v);
    desc->k = lay(line, line->dtype, k_batch, columns, line->heads_kv, line->head_dim);
    desc->v = lay(line, line->dtype, k_batch, columns, line->heads_kv, line->head_dim_v);
}

int tool_describe(const tess_line *line, tool_descriptor *out)
{
    memset(out, 0, sizeof *out);
    out->desc =
        (tess_attention_desc){TESS_STRUCT(tess_attention_desc),
                              .softmax_scale = line->softmax_scale,
                              .softcap = line->softcap,
                              .mask = line->mask,
                              .flags = line->flags | (line->scale_is_set ? TESS_SCALE_IS_SET : 0),
                              .window_left = line->window_left,
                              .window_right = line->window_right,
                              .num_splits = line->splits};
    describe_tensors(line, out);
    describe_bias(line, out);
    return describe_lengths(line, out);
}

void tool_descriptor_release(tool_descriptor *descriptor)
{
    free(descriptor->lengths);
    memset(descriptor, 0, sizeof *descriptor);
}
