/* SPDX-License-Identifier: Apache-2.0
 * Questions about strided tensors: how far they reach, whether elements share memory. */
#ifndef TESSERA_CORE_SCHEDULE_LAYOUT_H
#define TESSERA_CORE_SCHEDULE_LAYOUT_H

#include <stdbool.h>
#include <stdint.h>
#include <tessera/attention.h>

/* Whether the tensor has no element. */
bool tess_layout_is_empty(const tess_layout *layout);

/* Lowest and highest element relative to element (0,0,0,0), in elements. False when a sum leaves
 * 62 bits, so that byte offsets of any type stay in 64. */
bool tess_layout_reach(const tess_layout *layout, int64_t *out_lowest, int64_t *out_highest);

/* Whether two indices may name the same memory. True when the axes, ordered by stride, do not each
 * step over everything the smaller ones reach; the rare interleavings that this misjudges are
 * refused too. */
bool tess_layout_overlaps_itself(const tess_layout *layout);

/* Whether two tensors at these addresses may share memory. Exact for tensors whose reaches are
 * apart and for views interleaved in one buffer (packed QKV); everything else counts as sharing. */
bool tess_layouts_may_overlap(const tess_layout *a, uintptr_t a_at, const tess_layout *b,
                              uintptr_t b_at);

/* Extents and strides as arrays: batch, seqlen, heads, head_dim. */
void tess_layout_axes(const tess_layout *layout, int64_t out_extent[4], int64_t out_stride[4]);

#endif
