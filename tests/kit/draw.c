/* SPDX-License-Identifier: Apache-2.0
 * Drawing layouts. */
#include "tests/kit/draw.h"

/* Axes in the order of the layout's members. */
enum { BATCH, SEQLEN, HEADS, DIM, AXES };

/* From here on 32-bit element offsets wrap. */
#define FAR_ELEMENTS (INT64_C(1) << 31)

static void get_extents(const tess_layout *layout, int64_t extent[AXES])
{
    extent[BATCH] = layout->batch;
    extent[SEQLEN] = layout->seqlen;
    extent[HEADS] = layout->heads;
    extent[DIM] = layout->head_dim;
}

static void set_strides(tess_layout *layout, const int64_t stride[AXES])
{
    layout->batch_stride = stride[BATCH];
    layout->seqlen_stride = stride[SEQLEN];
    layout->head_stride = stride[HEADS];
    layout->dim_stride = stride[DIM];
}

/* Axes from the innermost outwards. Kernels read along the head dimension, so that it is innermost
 * more often than chance would have it. */
static void draw_order(tess_random *random, int order[AXES])
{
    const bool dim_first = tess_random_percent(random, 65);

    order[0] = DIM;
    order[1] = HEADS;
    order[2] = SEQLEN;
    order[3] = BATCH;
    for (int i = dim_first ? 1 : 0; i < AXES - 1; i++) {
        const int other = i + (int)tess_random_below(random, AXES - i);
        const int axis = order[i];

        order[i] = order[other];
        order[other] = axis;
    }
}

static void draw_strided(tess_random *random, const int64_t extent[AXES], bool is_output,
                         int64_t stride[AXES])
{
    static const int64_t pads[] = {0, 0, 0, 0, 1, 3, 8, 16, 64};
    static const int64_t absurd[] = {0, 1, -7, INT64_C(1) << 40};
    int order[AXES];
    int64_t span = tess_random_percent(random, 80) ? 1 : 2 + tess_random_below(random, 2);

    draw_order(random, order);
    for (int i = 0; i < AXES; i++) {
        const int axis = order[i];
        const int64_t pad = pads[tess_random_below(random, sizeof pads / sizeof *pads)];
        const int64_t choice = tess_random_below(random, 100);

        stride[axis] = span;
        if (extent[axis] <= 1) {
            if (choice < 50)
                stride[axis] = absurd[choice % 4];
            continue;
        }
        span = span * extent[axis] + pad;
        if (choice < 12)
            stride[axis] = -stride[axis];
        else if (choice < 24 && !is_output)
            stride[axis] = 0;
    }
}

/* Packed but for one axis, whose elements lie so far apart that the last is past 2^31. */
static void draw_sparse(tess_random *random, const int64_t extent[AXES], int64_t stride[AXES])
{
    int order[AXES] = {DIM, HEADS, SEQLEN, BATCH};
    int far_axis = (int)tess_random_below(random, DIM);
    int64_t span = 1;

    for (int tries = 0; tries < DIM && extent[far_axis] < 2; tries++)
        far_axis = (far_axis + 1) % DIM;
    for (int i = 0; i < AXES; i++) {
        if (order[i] == far_axis)
            continue;
        stride[order[i]] = span;
        span *= extent[order[i]] > 0 ? extent[order[i]] : 1;
    }
    stride[far_axis] = span;
    if (extent[far_axis] > 1 && span < FAR_ELEMENTS)
        stride[far_axis] += FAR_ELEMENTS / (extent[far_axis] - 1) + 24;
}

static void measure(tess_drawn *drawn, const int64_t extent[AXES], const int64_t stride[AXES])
{
    int64_t lowest = 0, highest = 0;

    for (int axis = 0; axis < AXES; axis++) {
        const int64_t reach = extent[axis] > 1 ? (extent[axis] - 1) * stride[axis] : 0;

        lowest += reach < 0 ? reach : 0;
        highest += reach > 0 ? reach : 0;
    }
    drawn->origin = -lowest;
    drawn->elements = highest - lowest + 1;
    for (int axis = 0; axis < AXES; axis++)
        if (extent[axis] == 0)
            drawn->origin = drawn->elements = 0;
}

tess_drawn tess_draw_layout(int kind, tess_random *random, tess_layout extents, bool is_output)
{
    const tess_layout e = extents;
    tess_drawn drawn = {.layout = extents};
    int64_t extent[AXES], stride[AXES];

    get_extents(&extents, extent);
    switch (kind) {
    case TESS_LAYOUT_STRIDED:
        draw_strided(random, extent, is_output, stride);
        set_strides(&drawn.layout, stride);
        break;
    case TESS_LAYOUT_SPARSE:
        draw_sparse(random, extent, stride);
        set_strides(&drawn.layout, stride);
        break;
    case TESS_LAYOUT_BHSD:
        drawn.layout = tess_layout_by_head(e.dtype, e.batch, e.seqlen, e.heads, e.head_dim);
        break;
    default:
        drawn.layout = tess_layout_packed(e.dtype, e.batch, e.seqlen, e.heads, e.head_dim);
        break;
    }
    get_extents(&drawn.layout, extent);
    stride[BATCH] = drawn.layout.batch_stride;
    stride[SEQLEN] = drawn.layout.seqlen_stride;
    stride[HEADS] = drawn.layout.head_stride;
    stride[DIM] = drawn.layout.dim_stride;
    measure(&drawn, extent, stride);
    if (kind == TESS_LAYOUT_STRIDED && drawn.elements > 0 && tess_random_once_in(random, 3)) {
        const int64_t lead = 1 + tess_random_below(random, 19);

        drawn.origin += lead;
        drawn.elements += lead;
    }
    return drawn;
}
