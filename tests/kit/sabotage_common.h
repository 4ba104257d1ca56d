/* SPDX-License-Identifier: Apache-2.0
 * What falsifying a forward result and falsifying gradients share. */
#ifndef TESSERA_TESTS_KIT_SABOTAGE_COMMON_H
#define TESSERA_TESTS_KIT_SABOTAGE_COMMON_H

#include "core/schedule/problem_text.h"

#include <math.h>
#include <string.h>

/* ---- Which lines a mode applies to ----------------------------------------------------------- */

static inline bool tess_line_always(const tess_line *line)
{
    return line->batch > 0 && line->heads_q > 0;
}

static inline bool tess_line_has_mask(const tess_line *line)
{
    return (line->mask & (TESS_MASK_CAUSAL | TESS_MASK_WINDOW)) != 0;
}

static inline bool tess_line_has_softcap(const tess_line *line)
{
    return line->softcap > 0;
}

static inline bool tess_line_has_alibi(const tess_line *line)
{
    return (line->bias & TESS_BIAS_ALIBI) != 0;
}

static inline bool tess_line_has_tensor(const tess_line *line)
{
    return (line->bias & TESS_BIAS_TENSOR) != 0;
}

static inline bool tess_line_has_sink(const tess_line *line)
{
    return (line->bias & TESS_BIAS_SINK) != 0;
}

static inline bool tess_line_has_softcap_and_bias(const tess_line *line)
{
    return line->softcap > 0 && (line->bias & (TESS_BIAS_ALIBI | TESS_BIAS_TENSOR));
}

static inline bool tess_line_has_offset_alibi(const tess_line *line)
{
    return tess_line_has_alibi(line) && !(line->mask & TESS_MASK_TOP_LEFT);
}

static inline bool tess_line_has_heads(const tess_line *line)
{
    return line->heads_q > 1;
}

static inline bool tess_line_has_group(const tess_line *line)
{
    return line->heads_q > line->heads_kv;
}

static inline bool tess_line_has_groups(const tess_line *line)
{
    return line->heads_kv > 1 && line->heads_q > line->heads_kv;
}

static inline bool tess_line_is_nan_fill(const tess_line *line)
{
    return strcmp(line->fill, "nan") == 0 || strcmp(line->fill, "inf") == 0;
}

/* ---- Whether it shows ------------------------------------------------------------------------ */

/* A difference that is far above what rounding in the storage type explains. Not the comparison's
 * budgets: a budget that has become too wide is one of the faults to be found. */
static inline double tess_plain_difference(tess_dtype dtype)
{
    switch (dtype) {
    case TESS_F32:
        return 1e-3;
    case TESS_F16:
        return 2e-2;
    case TESS_BF16:
        return 0.1;
    default:
        return 0.3;
    }
}

static inline bool tess_differs(double a, double b, double threshold)
{
    if (isnan(a) || isnan(b))
        return isnan(a) != isnan(b);
    if (isinf(a) || isinf(b))
        return a != b;
    return fabs(a - b) > threshold;
}

#endif
