/* SPDX-License-Identifier: Apache-2.0
 * Merging partial results on a queue: descriptor and arguments checked, handed to the backend. */
#include "core/base/alloc.h"
#include "core/runtime/objects.h"
#include "core/runtime/take.h"
#include "core/schedule/layout.h"

#include <inttypes.h>
#include <string.h>

static const char call[] = "tess_queue_merge";

static bool same_extents(const tess_layout *a, const tess_layout *b)
{
    return a->batch == b->batch && a->seqlen == b->seqlen && a->heads == b->heads &&
           a->head_dim == b->head_dim;
}

static tess_status check_tensor(const tess_host *host, const char *name, const tess_layout *layout,
                                bool is_lse)
{
    int64_t lowest, highest;
    const bool is_float =
        layout->dtype == TESS_F32 || layout->dtype == TESS_F16 || layout->dtype == TESS_BF16;

    if (layout->batch < 0 || layout->seqlen < 0 || layout->heads < 0 || layout->head_dim < 1 ||
        layout->batch > INT32_MAX || layout->seqlen > INT32_MAX || layout->heads > INT32_MAX ||
        layout->head_dim > INT32_MAX || !tess_layout_reach(layout, &lowest, &highest))
        return tess_fail(host, TESS_INVALID,
                         "%s: %s is (%" PRId64 ", %" PRId64 ", %" PRId64 ", %" PRId64
                         "); each extent takes 0 (head_dim 1) to 2^31 - 1, with strides that stay "
                         "below 2^60 elements",
                         call, name, layout->batch, layout->seqlen, layout->heads,
                         layout->head_dim);
    if (is_lse ? layout->dtype != TESS_F32 : !is_float)
        return tess_fail(host, TESS_INVALID, "%s: %s.dtype is %" PRId32 " (%s); it takes %s", call,
                         name, layout->dtype, tess_dtype_name(layout->dtype),
                         is_lse ? "f32" : "f32, f16 or bf16");
    if (is_lse && layout->head_dim != 1)
        return tess_fail(host, TESS_INVALID, "%s: %s.head_dim is %" PRId64 "; it takes 1", call,
                         name, layout->head_dim);
    return TESS_OK;
}

static tess_status check_desc(const tess_host *host, const tess_merge_desc *d)
{
    if (d->parts < 1 || d->parts > INT32_MAX)
        return tess_fail(host, TESS_INVALID,
                         "%s: desc.parts is %" PRId64 "; it takes 1 to 2^31 - 1", call, d->parts);
    TESS_TRY(check_tensor(host, "desc.o_part", &d->o_part, false));
    TESS_TRY(check_tensor(host, "desc.lse_part", &d->lse_part, true));
    TESS_TRY(check_tensor(host, "desc.o", &d->o, false));
    TESS_TRY(check_tensor(host, "desc.lse", &d->lse, true));
    if (!same_extents(&d->o_part, &d->o) || !same_extents(&d->lse_part, &d->lse))
        return tess_fail(host, TESS_INVALID,
                         "%s: desc.%s has other extents than its parts; they must be equal", call,
                         same_extents(&d->o_part, &d->o) ? "lse" : "o");
    if (d->lse.batch != d->o.batch || d->lse.seqlen != d->o.seqlen || d->lse.heads != d->o.heads)
        return tess_fail(host, TESS_INVALID,
                         "%s: desc.lse is (%" PRId64 ", %" PRId64 ", %" PRId64 "); it must have "
                         "batch, seqlen and heads of desc.o",
                         call, d->lse.batch, d->lse.seqlen, d->lse.heads);
    if (tess_layout_overlaps_itself(&d->o) || tess_layout_overlaps_itself(&d->lse))
        return tess_fail(host, TESS_INVALID, "%s: desc.%s must not overlap itself", call,
                         tess_layout_overlaps_itself(&d->o) ? "o" : "lse");
    return TESS_OK;
}

/* All parts of one tensor, as far as memory is concerned: the bytes between the lowest element of
 * any part and the highest of any other. */
static void span_of(const tess_layout *layout, int64_t parts, int64_t stride, const tess_in *in,
                    uintptr_t *out_first, uintptr_t *out_end)
{
    const int64_t size = (int64_t)tess_dtype_size(layout->dtype);
    int64_t lowest = 0, highest = 0;

    tess_layout_reach(layout, &lowest, &highest);
    if (stride < 0)
        lowest += (parts - 1) * stride;
    else
        highest += (parts - 1) * stride;
    *out_first = (uintptr_t)in->base + (uintptr_t)(in->offset + lowest * size);
    *out_end = (uintptr_t)in->base + (uintptr_t)(in->offset + (highest + 1) * size);
}

static tess_status check_args(const tess_host *host, const tess_merge_desc *d,
                              const tess_merge_args *a)
{
    const tess_in o = {a->o.base, a->o.offset}, lse = {a->lse.base, a->lse.offset};
    const struct {
        const char *name;
        const tess_layout *layout;
        const tess_in *in;
        int64_t parts, stride;
    } all[] = {{"o_part", &d->o_part, &a->o_part, d->parts, d->o_part_stride},
               {"lse_part", &d->lse_part, &a->lse_part, d->parts, d->lse_part_stride},
               {"o", &d->o, &o, 1, 0},
               {"lse", &d->lse, &lse, 1, 0}};
    uintptr_t first[4], end[4];

    for (int i = 0; i < 4; i++) {
        const int64_t size = (int64_t)tess_dtype_size(all[i].layout->dtype);
        first[i] = end[i] = 0;
        if (tess_layout_is_empty(all[i].layout) || (i == 3 && !a->lse.base))
            continue;
        if (!all[i].in->base ||
            ((uintptr_t)all[i].in->base + (uintptr_t)all[i].in->offset) % (uintptr_t)size)
            return tess_fail(host, TESS_INVALID,
                             "%s: args.%s is NULL or no multiple of its element's %" PRId64
                             " bytes",
                             call, all[i].name, size);
        span_of(all[i].layout, all[i].parts, all[i].stride, all[i].in, &first[i], &end[i]);
    }
    for (int output = 2; output < 4; output++)
        for (int other = 0; other < 4; other++)
            if (other != output && first[output] < end[other] && first[other] < end[output])
                return tess_fail(host, TESS_INVALID,
                                 "%s: args.%s shares memory with args.%s; outputs must not overlap "
                                 "inputs or each other",
                                 call, all[output].name, all[other].name);
    return TESS_OK;
}

tess_status tess_queue_merge(tess_queue *queue, const tess_merge_desc *desc,
                             const tess_merge_args *args)
{
    const tess_host *host;
    tess_merge_desc d;
    tess_merge_args a;

    TESS_TRY(tess_need(queue, call, "queue"));
    host = &queue->device->context->host;
    if (!desc || !args)
        return tess_fail(host, TESS_INVALID, "%s: %s is NULL", call, desc ? "args" : "desc");
    TESS_TRY(tess_take(host, call, "desc", desc, sizeof d, &d));
    TESS_TRY(tess_take(host, call, "args", args, sizeof a, &a));
    TESS_TRY(check_desc(host, &d));
    if (!queue->device->backend->merge)
        return tess_fail(host, TESS_UNSUPPORTED, "%s: %s has no merge", call, queue->device->name);
    if (queue->device->backend->has_plain_addresses)
        TESS_TRY(check_args(host, &d, &a));
    return queue->device->backend->merge(queue->opened, &d, &a);
}
