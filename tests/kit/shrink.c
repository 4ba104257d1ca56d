/* SPDX-License-Identifier: Apache-2.0
 * Shrinking a failing line. */
#include "tests/kit/shrink.h"

#include <string.h>

/* One way to make a line simpler. Writes the candidate; false when it would change nothing. Every
 * step lowers a number or drops a word, which no other step raises or adds. */
typedef bool (*step_fn)(const tess_line *line, int variant, tess_line *out);

/* ---- Words dropped --------------------------------------------------------------------------- */

static bool drop_mask(const tess_line *line, int variant, tess_line *out)
{
    out->mask &= ~(1u << variant);
    if (!(out->mask & TESS_MASK_WINDOW))
        out->window_left = out->window_right = 0;
    return out->mask != line->mask;
}

static bool drop_bias(const tess_line *line, int variant, tess_line *out)
{
    out->bias &= ~(1u << variant);
    if (!(out->bias & TESS_BIAS_TENSOR)) {
        out->bias_broadcast = 0;
        out->bias_dtype = TESS_F32;
    }
    return out->bias != line->bias;
}

static bool drop_flag(const tess_line *line, int variant, tess_line *out)
{
    out->flags &= ~(1u << variant);
    return out->flags != line->flags;
}

static bool drop_score(const tess_line *line, int variant, tess_line *out)
{
    if (variant == 0) {
        out->scale_is_set = false;
        out->softmax_scale = 0;
        return line->scale_is_set;
    }
    out->softcap = 0;
    return line->softcap > 0;
}

static bool drop_how(const tess_line *line, int variant, tess_line *out)
{
    switch (variant) {
    case 0:
        out->splits = 0;
        return line->splits != 0;
    case 1:
        out->gap = 0;
        return line->gap != 0;
    case 2:
        out->index_dtype = TESS_I32;
        return line->index_dtype != TESS_I32;
    case 3:
        out->layout = TESS_LAYOUT_BSHD;
        return line->layout != TESS_LAYOUT_BSHD;
    case 4:
        memset(out->fill, 0, sizeof out->fill);
        memcpy(out->fill, "normal", sizeof "normal");
        return strcmp(line->fill, "normal") != 0;
    case 5:
        out->seed = 1;
        return line->seed != 1;
    case 6:
        out->bias_broadcast = 0;
        return line->bias_broadcast != 0;
    default:
        out->bias_dtype = TESS_F32;
        return line->bias_dtype != TESS_F32;
    }
}

static bool drop_lists(const tess_line *line, int variant, tess_line *out)
{
    switch (variant) {
    case 0:
        out->used_q.runs = 0;
        return line->used_q.runs != 0;
    case 1:
        out->used_k.runs = 0;
        return line->used_k.runs != 0;
    case 2:
        out->page_size = 0;
        return line->page_size != 0;
    case 3:
        out->lens_q.runs = 0;
        if (!out->lens_k.runs)
            out->gap = 0;
        return line->lens_q.runs != 0;
    default:
        out->lens_k.runs = 0;
        if (!out->lens_q.runs)
            out->gap = 0;
        return line->lens_k.runs != 0;
    }
}

/* f32 before 16 bits, and O of the inputs' type. */
static bool drop_dtype(const tess_line *line, int variant, tess_line *out)
{
    if (variant == 0) {
        out->dtype = TESS_F32;
        out->o_dtype = TESS_DTYPE_NONE;
        return line->dtype != TESS_F32;
    }
    out->o_dtype = TESS_DTYPE_NONE;
    return line->o_dtype != TESS_DTYPE_NONE;
}

/* ---- Sequences ------------------------------------------------------------------------------- */

static void take_range(tess_lengths *lengths, int64_t first, int64_t count)
{
    const tess_lengths before = *lengths;

    if (before.runs == 0)
        return;
    lengths->runs = 0;
    for (int64_t i = first; i < first + count; i++)
        tess_lengths_add(lengths, tess_lengths_at(&before, i), 1);
}

/* Keeps `count` sequences from `first` on. */
static bool keep_sequences(const tess_line *line, int64_t first, int64_t count, tess_line *out)
{
    if (count < 1 || count >= line->batch)
        return false;
    take_range(&out->lens_q, first, count);
    take_range(&out->lens_k, first, count);
    take_range(&out->used_q, first, count);
    take_range(&out->used_k, first, count);
    out->batch = count;
    return true;
}

static bool fewer_sequences(const tess_line *line, int variant, tess_line *out)
{
    switch (variant) {
    case 0:
        return keep_sequences(line, 0, line->batch / 2, out);
    case 1:
        return keep_sequences(line, line->batch - line->batch / 2, line->batch / 2, out);
    case 2:
        return keep_sequences(line, 0, line->batch - 1, out);
    default:
        return keep_sequences(line, 1, line->batch - 1, out);
    }
}

/* ---- Sizes ----------------------------------------------------------------------------------- */

/* Half, then one less: the first gets there fast, the second finds the exact threshold. */
static int64_t less(int64_t value, int variant)
{
    return variant == 0 ? value / 2 : value > 0 ? value - 1 : 0;
}

static void cut(tess_lengths *lengths, int64_t bound)
{
    const tess_lengths before = *lengths;

    if (before.runs == 0)
        return;
    lengths->runs = 0;
    for (int32_t run = 0; run < before.runs; run++)
        tess_lengths_add(lengths, before.value[run] < bound ? before.value[run] : bound,
                         before.count[run]);
}

static bool fewer_rows(const tess_line *line, int variant, tess_line *out)
{
    out->seqlen_q = less(line->seqlen_q, variant);
    cut(&out->lens_q, out->seqlen_q);
    cut(&out->used_q, out->seqlen_q);
    return out->seqlen_q != line->seqlen_q;
}

static bool fewer_columns(const tess_line *line, int variant, tess_line *out)
{
    out->seqlen_k = less(line->seqlen_k, variant);
    cut(&out->lens_k, out->seqlen_k);
    cut(&out->used_k, out->seqlen_k);
    return out->seqlen_k != line->seqlen_k;
}

/* Used lengths become whole ones, where that is less to say. */
static bool simpler_used(const tess_line *line, int variant, tess_line *out)
{
    tess_lengths *used = variant == 0 ? &out->used_q : &out->used_k;
    const int64_t max = tess_lengths_max(used);

    if (used->runs < 2)
        return false;
    /* All as long as the longest may contradict the lengths; then the halving must do. */
    if (variant == 0 ? line->lens_q.runs : line->lens_k.runs)
        return false;
    used->runs = 0;
    return tess_lengths_add(used, max, line->batch);
}

static bool fewer_heads(const tess_line *line, int variant, tess_line *out)
{
    const int64_t group = line->heads_kv > 0 ? line->heads_q / line->heads_kv : 0;

    switch (variant) {
    case 0: /* one key head */
        out->heads_kv = 1;
        out->heads_q = group;
        return line->heads_kv > 1;
    case 1: /* no groups */
        out->heads_q = line->heads_kv;
        return group > 1;
    case 2:
        out->heads_kv = line->heads_kv - 1;
        out->heads_q = out->heads_kv * group;
        return line->heads_kv > 1;
    default:
        out->heads_q = line->heads_q - line->heads_kv;
        return group > 1;
    }
}

static bool smaller_dims(const tess_line *line, int variant, tess_line *out)
{
    switch (variant) {
    case 0:
        out->head_dim = less(line->head_dim, 0);
        out->head_dim_v = less(line->head_dim_v, 0);
        break;
    case 1:
    case 2:
        out->head_dim = less(line->head_dim, variant - 1);
        break;
    default:
        out->head_dim_v = less(line->head_dim_v, variant - 3);
        break;
    }
    return out->head_dim > 0 && out->head_dim_v > 0;
}

static bool smaller_numbers(const tess_line *line, int variant, tess_line *out)
{
    switch (variant) {
    case 0:
    case 1:
        out->splits = less(line->splits, variant);
        return line->splits > 1;
    case 2:
    case 3:
        out->page_size = less(line->page_size, variant - 2);
        return line->page_size > 1;
    case 4:
        out->window_left = less(line->window_left, 0);
        return line->window_left > 0;
    default:
        out->window_right = less(line->window_right, 0);
        return line->window_right > 0;
    }
}

/* ---- Trying ---------------------------------------------------------------------------------- */

static const struct {
    step_fn step;
    int variants;
} steps[] = {
    {fewer_sequences, 4}, {drop_lists, 5},      {drop_bias, 3},     {drop_mask, 3},
    {drop_how, 8},        {drop_score, 2},      {drop_flag, 4},     {drop_dtype, 2},
    {fewer_heads, 4},     {fewer_rows, 2},      {fewer_columns, 2}, {simpler_used, 2},
    {smaller_dims, 5},    {smaller_numbers, 6},
};

/* Only lines that can be written down and read back are candidates: the result must replay. */
static bool is_replayable(const tess_line *line, tess_line *out)
{
    char text[4096];
    tess_text written = tess_text_in(text, sizeof text);

    tess_line_write(line, &written);
    return written.length < sizeof text && tess_line_read(text, out, NULL) == TESS_OK;
}

/* Goes through all steps once; true when one of them was taken. */
static bool try_all(tess_line *line, tess_shrink_fn still_fails, void *user, int *questions,
                    int limit)
{
    bool is_smaller = false;

    for (size_t s = 0; s < sizeof steps / sizeof *steps; s++) {
        for (int variant = 0; variant < steps[s].variants; variant++) {
            tess_line candidate = *line, replayed;

            while (*questions < limit && steps[s].step(line, variant, &candidate) &&
                   is_replayable(&candidate, &replayed)) {
                ++*questions;
                if (!still_fails(user, &replayed))
                    break;
                *line = candidate = replayed;
                is_smaller = true;
            }
        }
    }
    return is_smaller;
}

int tess_shrink(tess_line *line, tess_shrink_fn still_fails, void *user, int limit)
{
    int questions = 0;

    if (limit <= 0)
        limit = 500;
    while (questions < limit && try_all(line, still_fails, user, &questions, limit)) {
    }
    return questions;
}
