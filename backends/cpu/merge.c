/* SPDX-License-Identifier: Apache-2.0
 * Merging partial results on the CPU: weights from the LSEs, one row at a time. */
#include "backends/cpu/access.h"
#include "backends/cpu/backend.h"
#include "backends/cpu/threads.h"

/* exp(lse - max), exactly 0 for a part that is not there. The difference is taken before the
 * factor, so that large LSEs keep their low bits. */
static float part_weight(float lse, float max)
{
    return lse == TESS_NEG_INF ? 0.0f : tess_exp2((lse - tess_os_shift(max)) * TESS_LOG2_E);
}

tess_cpu_union tess_cpu_unite(int64_t parts, const char *lses, int64_t stride)
{
    tess_cpu_union all = {TESS_NEG_INF, 0.0f};

    for (int64_t part = 0; part < parts; part++)
        all.max = tess_max(tess_cpu_load(lses, part * stride, TESS_F32), all.max);
    for (int64_t part = 0; part < parts; part++)
        all.sum += part_weight(tess_cpu_load(lses, part * stride, TESS_F32), all.max);
    return all;
}

float tess_cpu_union_lse(tess_cpu_union all)
{
    return all.sum == 0.0f ? TESS_NEG_INF : all.max + tess_log2(all.sum) * TESS_LN_2;
}

float tess_cpu_union_weight(tess_cpu_union all, float lse)
{
    return part_weight(lse, all.max) * tess_os_inverse(all.sum);
}

typedef struct merge_run {
    const tess_merge_desc *desc;
    const char *o_part, *lse_part;
    char *o, *lse;
} merge_run;

static void merge_row(const merge_run *run, int64_t batch, int64_t row, int64_t head)
{
    const tess_merge_desc *d = run->desc;
    const tess_layout *op = &d->o_part, *lp = &d->lse_part, *o = &d->o, *l = &d->lse;
    const int64_t from =
        batch * op->batch_stride + row * op->seqlen_stride + head * op->head_stride;
    const int64_t to = batch * o->batch_stride + row * o->seqlen_stride + head * o->head_stride;
    const char *lses = run->lse_part + 4 * (batch * lp->batch_stride + row * lp->seqlen_stride +
                                            head * lp->head_stride);
    const tess_cpu_union all = tess_cpu_unite(d->parts, lses, d->lse_part_stride);

    for (int64_t dim = 0; dim < o->head_dim; dim++) {
        float sum = 0.0f;
        for (int64_t part = 0; part < d->parts; part++) {
            const float lse = tess_cpu_load(lses, part * d->lse_part_stride, TESS_F32);
            if (lse != TESS_NEG_INF) /* else not there, whatever its O holds */
                sum +=
                    tess_cpu_union_weight(all, lse) *
                    tess_cpu_load(run->o_part,
                                  from + part * d->o_part_stride + dim * op->dim_stride, op->dtype);
        }
        tess_cpu_store(run->o, to + dim * o->dim_stride, o->dtype, sum);
    }
    if (run->lse)
        tess_cpu_store(run->lse,
                       batch * l->batch_stride + row * l->seqlen_stride + head * l->head_stride,
                       TESS_F32, tess_cpu_union_lse(all));
}

/* An item is one (batch, row) with all its heads. */
static void merge_item(void *user, int64_t item, int32_t worker)
{
    const merge_run *run = user;

    (void)worker;
    for (int64_t head = 0; head < run->desc->o.heads; head++)
        merge_row(run, item / run->desc->o.seqlen, item % run->desc->o.seqlen, head);
}

tess_status tess_cpu_merge(tess_backend_queue *queue, const tess_merge_desc *desc,
                           const tess_merge_args *args)
{
    merge_run run = {
        .desc = desc,
        .o_part = (const char *)args->o_part.base + args->o_part.offset,
        .lse_part = (const char *)args->lse_part.base + args->lse_part.offset,
        .o = (char *)args->o.base + args->o.offset,
        .lse = args->lse.base ? (char *)args->lse.base + args->lse.offset : NULL,
    };

    tess_cpu_for_each(desc->o.batch * desc->o.seqlen, queue->device->caps.units, merge_item, &run);
    return TESS_OK;
}
