/* SPDX-License-Identifier: Apache-2.0
 * Questions about strided tensors: how far they reach, whether elements share memory. */
#include "core/schedule/layout.h"

#include "core/base/alloc.h"

/* A stride that does not fit becomes the largest number, which the plan then refuses by name;
 * wrapped, it might look like one that is fine. */
static int64_t stride_of(int64_t a, int64_t b)
{
    int64_t product;
    return tess_multiply_i64(a, b, &product) ? product : INT64_MAX;
}

tess_layout tess_layout_packed(tess_dtype dtype, int64_t batch, int64_t seqlen, int64_t heads,
                               int64_t head_dim)
{
    const int64_t row = stride_of(heads, head_dim);
    return (tess_layout){batch, seqlen,   heads, head_dim, stride_of(seqlen, row),
                         row,   head_dim, 1,     dtype,    0};
}

tess_layout tess_layout_by_head(tess_dtype dtype, int64_t batch, int64_t seqlen, int64_t heads,
                                int64_t head_dim)
{
    const int64_t head = stride_of(seqlen, head_dim);
    return (tess_layout){batch,    seqlen, heads, head_dim, stride_of(heads, head),
                         head_dim, head,   1,     dtype,    0};
}

void tess_layout_axes(const tess_layout *layout, int64_t out_extent[4], int64_t out_stride[4])
{
    out_extent[0] = layout->batch;
    out_extent[1] = layout->seqlen;
    out_extent[2] = layout->heads;
    out_extent[3] = layout->head_dim;
    out_stride[0] = layout->batch_stride;
    out_stride[1] = layout->seqlen_stride;
    out_stride[2] = layout->head_stride;
    out_stride[3] = layout->dim_stride;
}

bool tess_layout_is_empty(const tess_layout *layout)
{
    return layout->batch == 0 || layout->seqlen == 0 || layout->heads == 0 || layout->head_dim == 0;
}

bool tess_layout_reach(const tess_layout *layout, int64_t *out_lowest, int64_t *out_highest)
{
    const int64_t most = INT64_MAX / 8;
    int64_t extent[4], stride[4], lowest = 0, highest = 0;

    tess_layout_axes(layout, extent, stride);
    for (int axis = 0; axis < 4; axis++) {
        int64_t span;
        if (extent[axis] <= 1)
            continue;
        if (!tess_multiply_i64(extent[axis] - 1, stride[axis], &span) || span > most ||
            span < -most ||
            !tess_add_i64(span < 0 ? lowest : highest, span, span < 0 ? &lowest : &highest))
            return false;
        if (lowest < -most || highest > most)
            return false;
    }
    *out_lowest = lowest;
    *out_highest = highest;
    return true;
}

static int64_t magnitude(int64_t value)
{
    return value < 0 ? -value : value;
}

/* Axes with more than one element, smallest stride first, strides made positive. Returns how many.
 */
static int sort_axes(const tess_layout *layout, int64_t out_extent[4], int64_t out_stride[4])
{
    int64_t extent[4], stride[4];
    int count = 0;

    tess_layout_axes(layout, extent, stride);
    for (int axis = 0; axis < 4; axis++) {
        int64_t size;
        int at = count;
        if (extent[axis] <= 1)
            continue; /* before the stride is looked at: it may be anything */
        size = magnitude(stride[axis]);
        for (; at > 0 && out_stride[at - 1] > size; at--) {
            out_stride[at] = out_stride[at - 1];
            out_extent[at] = out_extent[at - 1];
        }
        out_stride[at] = size;
        out_extent[at] = extent[axis];
        count++;
    }
    return count;
}

bool tess_layout_overlaps_itself(const tess_layout *layout)
{
    int64_t extent[4], stride[4], reach = 0;
    const int axes = tess_layout_is_empty(layout) ? 0 : sort_axes(layout, extent, stride);

    for (int axis = 0; axis < axes; axis++) {
        if (stride[axis] <= reach)
            return true;
        reach += stride[axis] * (extent[axis] - 1);
    }
    return false;
}

/* A tensor as a set of bytes: from `lowest`, strides in bytes and positive. */
typedef struct byte_view {
    int64_t extent[4], stride[4];
    int axes;
    uintptr_t lowest;
    int64_t reach; /* from the lowest element's first byte to the highest element's */
    int64_t size;  /* of an element */
} byte_view;

static byte_view view_of(const tess_layout *layout, uintptr_t at)
{
    byte_view view = {.size = (int64_t)tess_dtype_size(layout->dtype)};
    int64_t lowest = 0, highest = 0;

    tess_layout_reach(layout, &lowest, &highest);
    view.axes = sort_axes(layout, view.extent, view.stride);
    for (int axis = 0; axis < view.axes; axis++)
        view.stride[axis] *= view.size;
    view.lowest = at + (uintptr_t)(lowest * view.size);
    view.reach = (highest - lowest) * view.size;
    return view;
}

/* Bytes covered by the axes whose stride is below modulus; 0 when a larger stride is no multiple
 * of it, so that residues say nothing. */
static int64_t inner_span(const byte_view *view, int64_t modulus)
{
    int64_t span = view->size;
    for (int axis = 0; axis < view->axes; axis++) {
        if (view->stride[axis] < modulus)
            span += view->stride[axis] * (view->extent[axis] - 1);
        else if (view->stride[axis] % modulus != 0)
            return 0;
    }
    return span;
}

/* Views of one buffer interleaved with period `modulus` are apart when their residues are: each
 * occupies [residue, residue + span) on a circle of that length. */
static bool apart_modulo(const byte_view *a, const byte_view *b, int64_t modulus)
{
    const int64_t a_span = inner_span(a, modulus), b_span = inner_span(b, modulus);
    const int64_t distance = (int64_t)((b->lowest % (uintptr_t)modulus + (uintptr_t)modulus -
                                        a->lowest % (uintptr_t)modulus) %
                                       (uintptr_t)modulus);

    if (a_span == 0 || b_span == 0)
        return false;
    return a_span <= distance && b_span <= modulus - distance;
}

bool tess_layouts_may_overlap(const tess_layout *a, uintptr_t a_at, const tess_layout *b,
                              uintptr_t b_at)
{
    byte_view left, right;

    if (tess_layout_is_empty(a) || tess_layout_is_empty(b))
        return false;
    left = view_of(a, a_at);
    right = view_of(b, b_at);
    if (left.lowest + (uintptr_t)(left.reach + left.size) <= right.lowest ||
        right.lowest + (uintptr_t)(right.reach + right.size) <= left.lowest)
        return false;
    for (int axis = 0; axis < left.axes; axis++)
        if (left.stride[axis] > 0 && apart_modulo(&left, &right, left.stride[axis]))
            return false;
    for (int axis = 0; axis < right.axes; axis++)
        if (right.stride[axis] > 0 && apart_modulo(&left, &right, right.stride[axis]))
            return false;
    return true;
}
