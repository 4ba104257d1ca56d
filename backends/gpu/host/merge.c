/* SPDX-License-Identifier: Apache-2.0
 * Merging partial results of the caller's: one launch, whose numbers are the descriptor's. */
#include "backends/gpu/host/backend.h"

#include "core/portable/walk.h"

/* Every vendor's list has one. */
static const tess_gpu_kernel *find(const tess_gpu_vendor *vendor)
{
    const tess_gpu_kernel *kernel = vendor->kernels;

    while (kernel->role != TESS_GPU_MERGE)
        kernel++;
    return kernel;
}

static tess_args args_of(const tess_merge_desc *d)
{
    const tess_layout *const op = &d->o_part, *const lp = &d->lse_part;
    const tess_layout *const o = &d->o, *const l = &d->lse;

    return (tess_args){
        .q_stride = {op->batch_stride, op->seqlen_stride, op->head_stride, op->dim_stride},
        .k_stride = {lp->batch_stride, lp->seqlen_stride, lp->head_stride},
        .o_stride = {o->batch_stride, o->seqlen_stride, o->head_stride, o->dim_stride},
        .lse_stride = {l->batch_stride, l->seqlen_stride, l->head_stride},
        .sequences = o->batch,
        .rows = o->seqlen,
        .heads_q = o->heads,
        .head_dim_v = (int32_t)o->head_dim,
        .splits = d->parts,
        .partial_o = d->o_part_stride,
        .partial_lse = d->lse_part_stride,
        .dtype = op->dtype,
        .o_dtype = o->dtype,
    };
}

static tess_status launch(const tess_gpu_scope *scope, tess_backend_queue *queue, tess_args *args,
                          tess_gpu_addresses *addresses)
{
    const tess_gpu_kernel *const kernel = find(queue->device->vendor);
    const int64_t rows = args->sequences * args->rows * args->heads_q;
    tess_gpu_run run = {.items = (rows + kernel->tile_rows - 1) / kernel->tile_rows};
    void *parameters[] = {args, addresses, &run};
    void *function;

    TESS_TRY(tess_gpu_check_address(scope, "o_part", addresses->at[TESS_AT_Q]));
    TESS_TRY(tess_gpu_check_address(scope, "lse_part", addresses->at[TESS_AT_K]));
    TESS_TRY(tess_gpu_check_address(scope, "o", addresses->at[TESS_AT_O]));
    TESS_TRY(tess_gpu_check_address(scope, "lse", addresses->at[TESS_AT_LSE]));
    TESS_TRY(tess_gpu_function(scope, queue->device, kernel, &function));
    return TESS_GPU_IN(scope, launch, function, (uint32_t)tess_min_i64(run.items, INT32_MAX), 1, 1,
                       kernel->threads, 1, 1, kernel->shared, queue->stream, parameters, NULL);
}

tess_status tess_gpu_merge(tess_backend_queue *queue, const tess_merge_desc *desc,
                           const tess_merge_args *args)
{
    tess_args numbers = args_of(desc);
    tess_gpu_addresses addresses = {.at = {0}};
    tess_gpu_scope scope;

    /* Addresses of inputs have lost their const here as in every launch. */
    addresses.at[TESS_AT_Q] = (char *)(uintptr_t)args->o_part.base + args->o_part.offset;
    addresses.at[TESS_AT_K] = (char *)(uintptr_t)args->lse_part.base + args->lse_part.offset;
    addresses.at[TESS_AT_O] = (char *)args->o.base + args->o.offset;
    if (args->lse.base)
        addresses.at[TESS_AT_LSE] = (char *)args->lse.base + args->lse.offset;
    TESS_TRY(tess_gpu_enter(&scope, queue->device, "tess_queue_merge"));
    return tess_gpu_leave(&scope, launch(&scope, queue, &numbers, &addresses));
}
