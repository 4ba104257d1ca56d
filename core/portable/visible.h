/* SPDX-License-Identifier: Apache-2.0
 * Which columns a row may see. The built-in masks all reduce to one interval per row. */
#ifndef TESSERA_CORE_PORTABLE_VISIBLE_H
#define TESSERA_CORE_PORTABLE_VISIBLE_H

#include "dialect.h"

/* The masks of one sequence: everything that decides which columns its rows see. */
typedef struct tess_visible {
    tess_i64 columns;  /* columns that exist: the used length */
    tess_i64 diagonal; /* D: row i faces column i + D */
    tess_i64 left;     /* columns to the left of the facing one; TESS_UNBOUNDED: all */
    tess_i64 right;    /* columns to its right; causal is right = 0 */
} tess_visible;

/* Bounds are clamped to this before any sum is taken, so that a row index, a diagonal and a bound,
 * each below 2^31 in size, add up without overflow. */
#define TESS_UNBOUNDED ((tess_i64)2147483647)

TESS_FN tess_visible tess_visible_make(tess_i64 rows, tess_i64 columns, tess_i32 is_causal,
                                       tess_i32 is_top_left, tess_i32 has_window, tess_i64 left,
                                       tess_i64 right)
{
    tess_visible visible;
    visible.columns = columns;
    visible.diagonal = is_top_left ? 0 : columns - rows;
    visible.left = has_window && left >= 0 ? tess_min_i64(left, TESS_UNBOUNDED) : TESS_UNBOUNDED;
    visible.right = has_window && right >= 0 ? tess_min_i64(right, TESS_UNBOUNDED) : TESS_UNBOUNDED;
    if (is_causal)
        visible.right = 0;
    return visible;
}

/* First column that row sees, in 0 ... columns. With no left bound it is 0 whatever the row. */
TESS_FN tess_i64 tess_visible_first(tess_visible visible, tess_i64 row)
{
    if (visible.left >= TESS_UNBOUNDED)
        return 0;
    return tess_min_i64(tess_max_i64(row + visible.diagonal - visible.left, 0), visible.columns);
}

/* One past the last column that row sees; not above columns, and not below 0. The row sees nothing
 * when this is <= tess_visible_first(). Both grow with the row. */
TESS_FN tess_i64 tess_visible_end(tess_visible visible, tess_i64 row)
{
    if (visible.right >= TESS_UNBOUNDED)
        return visible.columns;
    return tess_min_i64(tess_max_i64(row + visible.diagonal + visible.right + 1, 0),
                        visible.columns);
}

TESS_FN tess_i32 tess_visible_admits(tess_visible visible, tess_i64 row, tess_i64 column)
{
    return column >= tess_visible_first(visible, row) && column < tess_visible_end(visible, row);
}

#endif
