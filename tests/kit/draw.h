/* SPDX-License-Identifier: Apache-2.0
 * Drawing layouts: packed ones, and strides nobody would choose but everybody may pass. */
#ifndef TESSERA_TESTS_KIT_DRAW_H
#define TESSERA_TESTS_KIT_DRAW_H

#include "core/schedule/problem_text.h"
#include "tests/kit/random.h"

/* A layout and the memory it needs: `elements` in all, element (0,0,0,0) being number `origin`. */
typedef struct tess_drawn {
    tess_layout layout;
    int64_t origin, elements;
} tess_drawn;

/* Draws a layout with the extents and dtype of `extents`; its strides are ignored.
 *
 * kind    TESS_LAYOUT_...; BSHD and BHSD draw nothing
 * random  read and advanced only by STRIDED and SPARSE
 *
 * Outputs never get a stride of 0. Strides of axes with one element are sometimes absurd. */
tess_drawn tess_draw_layout(int kind, tess_random *random, tess_layout extents, bool is_output);

#endif
