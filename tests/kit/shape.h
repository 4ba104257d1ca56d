/* SPDX-License-Identifier: Apache-2.0
 * What the words of a problem line say about one sequence. */
#ifndef TESSERA_TESTS_KIT_SHAPE_H
#define TESSERA_TESTS_KIT_SHAPE_H

#include "core/schedule/problem_text.h"

/* Rows of a sequence, those behind the used ones included. Packed sequences are followed by gap
 * rows, which belong to them as far as cu_seqlens can say. */
static inline int64_t tess_shape_rows(const tess_line *line, int64_t sequence)
{
    return line->lens_q.runs ? tess_lengths_at(&line->lens_q, sequence) + line->gap
                             : line->seqlen_q;
}

static inline int64_t tess_shape_columns(const tess_line *line, int64_t sequence)
{
    return line->lens_k.runs ? tess_lengths_at(&line->lens_k, sequence) + line->gap
                             : line->seqlen_k;
}

static inline int64_t tess_shape_used_rows(const tess_line *line, int64_t sequence)
{
    if (line->used_q.runs)
        return tess_lengths_at(&line->used_q, sequence);
    return line->lens_q.runs ? tess_lengths_at(&line->lens_q, sequence) : line->seqlen_q;
}

static inline int64_t tess_shape_used_columns(const tess_line *line, int64_t sequence)
{
    if (line->used_k.runs)
        return tess_lengths_at(&line->used_k, sequence);
    return line->lens_k.runs ? tess_lengths_at(&line->lens_k, sequence) : line->seqlen_k;
}

/* Whether the arrays of used lengths exist: asked for, or needed to keep out of the gaps. */
static inline bool tess_shape_has_used_rows(const tess_line *line)
{
    return line->used_q.runs || (line->lens_q.runs && line->gap);
}

static inline bool tess_shape_has_used_columns(const tess_line *line)
{
    return line->used_k.runs || (line->lens_k.runs && line->gap);
}

/* D of a sequence: what is added to a row to find the column it faces. */
static inline int64_t tess_shape_offset(const tess_line *line, int64_t sequence)
{
    return line->mask & TESS_MASK_TOP_LEFT
               ? 0
               : tess_shape_used_columns(line, sequence) - tess_shape_used_rows(line, sequence);
}

/* First and last column that a row's masks let it see, not yet cut to the columns that exist. */
static inline void tess_shape_reach(const tess_line *line, int64_t sequence, int64_t row,
                                    int64_t *out_first, int64_t *out_last)
{
    const int64_t far = INT32_MAX, diagonal = row + tess_shape_offset(line, sequence);
    const bool has_window = line->mask & TESS_MASK_WINDOW;
    const int64_t left = has_window && line->window_left >= 0 ? line->window_left : far;
    const int64_t right = has_window && line->window_right >= 0 ? line->window_right : far;

    *out_first = left >= far ? 0 : diagonal - left;
    *out_last = right >= far ? far : diagonal + right;
    if ((line->mask & TESS_MASK_CAUSAL) && *out_last > diagonal)
        *out_last = diagonal;
}

/* Whether some row of the sequence may see a column. Rows see intervals that move on by one column
 * per row, so that what all of them see is an interval too. */
static inline bool tess_shape_is_seen(const tess_line *line, int64_t sequence, int64_t column)
{
    const int64_t rows = tess_shape_used_rows(line, sequence);
    int64_t first, last, ignored;

    if (rows == 0 || column >= tess_shape_used_columns(line, sequence))
        return false;
    tess_shape_reach(line, sequence, 0, &first, &ignored);
    tess_shape_reach(line, sequence, rows - 1, &ignored, &last);
    return column >= first && column <= last;
}

static inline bool tess_shape_is_fp8(tess_dtype dtype)
{
    return dtype == TESS_E4M3 || dtype == TESS_E5M2;
}

/* Element type of O: the inputs' own, or bf16 where that is too narrow. */
static inline tess_dtype tess_shape_o_dtype(const tess_line *line)
{
    if (line->o_dtype != TESS_DTYPE_NONE)
        return line->o_dtype;
    return tess_shape_is_fp8(line->dtype) ? TESS_BF16 : line->dtype;
}

#endif
