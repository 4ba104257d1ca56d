/* SPDX-License-Identifier: Apache-2.0
 * Merging partial results on a queue: descriptor and arguments checked, handed to the backend. */
#include "core/base/alloc.h"
#include "core/runtime/bind.h"
#include "core/runtime/take.h"
#include "core/schedule/layout.h"

#include <inttypes.h>
#include <string.h>

static const char call[] = "tess_queue_merge";

/* Extents of `given` must be those of `wanted`; head_dim only where it is compared. */
static tess_status check_extents(const tess_host *host, const char *name, const tess_layout *given,
                                 const char *wanted_name, const tess_layout *wanted,
                                 int64_t head_dim)
{
    if (given->batch != wanted->batch || given->seqlen != wanted->seqlen ||
        given->heads != wanted->heads || given->head_dim != head_dim)
        return tess_fail(host, TESS_INVALID,
                         "%s: %s is (%" PRId64 ", %" PRId64 ", %" PRId64 ", %" PRId64
                         "); with %s it takes (%" PRId64 ", %" PRId64 ", %" PRId64 ", %" PRId64 ")",
                         call, name, given->batch, given->seqlen, given->heads, given->head_dim,
                         wanted_name, wanted->batch, wanted->seqlen, wanted->heads, head_dim);
    return TESS_OK;
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
    if (layout->reserved != 0)
        return tess_fail(host, TESS_INVALID, "%s: %s.reserved is %" PRId32 "; it takes 0", call,
                         name, layout->reserved);
    if (is_lse ? layout->dtype != TESS_F32 : !is_float)
        return tess_fail(host, TESS_INVALID, "%s: %s.dtype is %" PRId32 " (%s); it takes %s", call,
                         name, layout->dtype, tess_dtype_name(layout->dtype),
                         is_lse ? "f32" : "f32, f16 or bf16");
    if (is_lse && layout->head_dim != 1)
        return tess_fail(host, TESS_INVALID, "%s: %s.head_dim is %" PRId64 "; it takes 1", call,
                         name, layout->head_dim);
    return TESS_OK;
}

/* Elements between the lowest and the highest of any part, from element (0,0,0,0) of part 0. False
 * when they leave 62 bits, as in tess_layout_reach(). */
static bool parts_reach(const tess_layout *layout, int64_t parts, int64_t stride,
                        int64_t *out_lowest, int64_t *out_highest)
{
    const int64_t most = INT64_MAX / 8;
    int64_t span = 0;

    if (!tess_layout_reach(layout, out_lowest, out_highest))
        return false;
    if (parts > 1 && (!tess_multiply_i64(parts - 1, stride, &span) || span > most || span < -most))
        return false;
    *(span < 0 ? out_lowest : out_highest) += span;
    return true;
}

static tess_status check_parts(const tess_host *host, const char *name, const tess_layout *layout,
                               int64_t parts, int64_t stride)
{
    int64_t lowest, highest;

    if (!parts_reach(layout, parts, stride, &lowest, &highest))
        return tess_fail(host, TESS_INVALID,
                         "%s: desc.%s_stride is %" PRId64 "; with %" PRId64
                         " parts it leaves 2^60 elements",
                         call, name, stride, parts);
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
    TESS_TRY(check_extents(host, "desc.o", &d->o, "desc.o_part", &d->o_part, d->o_part.head_dim));
    TESS_TRY(check_extents(host, "desc.lse_part", &d->lse_part, "desc.o_part", &d->o_part, 1));
    TESS_TRY(check_extents(host, "desc.lse", &d->lse, "desc.o_part", &d->o_part, 1));
    TESS_TRY(check_parts(host, "o_part", &d->o_part, d->parts, d->o_part_stride));
    TESS_TRY(check_parts(host, "lse_part", &d->lse_part, d->parts, d->lse_part_stride));
    if (tess_layout_overlaps_itself(&d->o) || tess_layout_overlaps_itself(&d->lse))
        return tess_fail(host, TESS_INVALID, "%s: desc.%s must not overlap itself", call,
                         tess_layout_overlaps_itself(&d->o) ? "o" : "lse");
    return TESS_OK;
}

/* One tensor of the call: all parts of it. */
typedef struct operand {
    const char *name;
    const tess_layout *layout;
    const void *base;
    int64_t offset, parts, stride;
} operand;

static uintptr_t address_of(const operand *o, int64_t element)
{
    const int64_t size = (int64_t)tess_dtype_size(o->layout->dtype);
    return (uintptr_t)o->base + (uintptr_t)o->offset + (uintptr_t)(element * size);
}

/* Whether an output shares memory with some part of another tensor. The parts are looked at one by
 * one only when they lie around the output: between the parts there may well be room for it. */
static bool shares_memory(const operand *output, const operand *other)
{
    int64_t lowest, highest, output_lowest, output_highest;

    if (!output->base || !other->base)
        return false;
    parts_reach(other->layout, other->parts, other->stride, &lowest, &highest);
    tess_layout_reach(output->layout, &output_lowest, &output_highest);
    if (address_of(output, output_highest + 1) <= address_of(other, lowest) ||
        address_of(other, highest + 1) <= address_of(output, output_lowest))
        return false;
    for (int64_t part = 0; part < other->parts; part++)
        if (tess_layouts_may_overlap(output->layout, address_of(output, 0), other->layout,
                                     address_of(other, part * other->stride)))
            return true;
    return false;
}

static tess_status check_args(const tess_host *host, bool is_plain, const tess_merge_desc *d,
                              const tess_merge_args *a)
{
    const operand all[] = {
        {"o_part", &d->o_part, a->o_part.base, a->o_part.offset, d->parts, d->o_part_stride},
        {"lse_part", &d->lse_part, a->lse_part.base, a->lse_part.offset, d->parts,
         d->lse_part_stride},
        {"o", &d->o, a->o.base, a->o.offset, 1, 0},
        {"lse", &d->lse, a->lse.base, a->lse.offset, 1, 0}};

    for (int i = 0; i < 4; i++) {
        const tess_binding binding = {all[i].name,    TESS_AT_O, all[i].base, all[i].offset,
                                      *all[i].layout, i >= 2,    true,        i == 3};
        TESS_TRY(tess_bind_check(host, call, is_plain, &binding));
    }
    for (int output = 2; is_plain && output < 4; output++)
        for (int other = 0; other < output; other++)
            if (shares_memory(&all[output], &all[other]))
                return tess_fail(host, TESS_INVALID,
                                 "%s: %s shares memory with %s; outputs must not overlap inputs or "
                                 "each other",
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
    TESS_TRY(check_args(host, queue->device->backend->has_plain_addresses, &d, &a));
    if (tess_layout_is_empty(&d.o))
        return TESS_OK;
    return queue->device->backend->merge(queue->opened, &d, &a);
}
