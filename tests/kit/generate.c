/* SPDX-License-Identifier: Apache-2.0
 * Drawing problem lines. */
#include "tests/kit/generate.h"

#include "tests/kit/fill.h"
#include "tests/kit/random.h"
#include "tests/kit/shape.h"

#include <math.h>
#include <string.h>

#define PICK(random, list) ((list)[tess_random_below(random, sizeof(list) / sizeof *(list))])

/* ---- Shapes ---------------------------------------------------------------------------------- */

/* Lengths around the tiles of the kernels, primes, and now and then a long one. */
static int64_t draw_length(tess_random *random, int64_t percent_zero)
{
    static const int64_t tiles[] = {8, 16, 24, 32, 48, 64, 96, 128};
    static const int64_t primes[] = {2,  3,  5,  7,  11,  13,  17,  31,
                                     37, 61, 67, 97, 131, 193, 257, 331};

    if (tess_random_percent(random, percent_zero))
        return 0;
    switch (tess_random_below(random, 8)) {
    case 0:
        return 1;
    case 1:
    case 2:
    case 3:
        return PICK(random, tiles) - 1 + tess_random_below(random, 3);
    case 4:
    case 5:
        return PICK(random, primes);
    case 6:
        return 1 + tess_random_below(random, 160);
    default:
        return 200 + tess_random_below(random, 900);
    }
}

static void draw_heads(tess_random *random, tess_line *line)
{
    static const int64_t key_heads[] = {1, 1, 1, 2, 2, 3, 4, 8};
    static const int64_t groups[] = {1, 1, 1, 2, 2, 3, 4, 5, 7, 8, 12};

    line->heads_kv = PICK(random, key_heads);
    line->heads_q = line->heads_kv * PICK(random, groups);
}

static void draw_dims(tess_random *random, tess_line *line)
{
    static const int64_t dims[] = {1,  2,  3,  7,   8,   16,  20,  32,  40,  63,  64, 64,
                                   72, 80, 96, 100, 127, 128, 128, 129, 192, 200, 256};

    line->head_dim = line->head_dim_v = PICK(random, dims);
    if (tess_random_once_in(random, 3))
        line->head_dim_v = PICK(random, dims);
}

static void draw_dtype(tess_random *random, tess_line *line)
{
    static const tess_dtype dtypes[] = {TESS_F32,  TESS_F32,  TESS_F32,  TESS_F32,  TESS_F32,
                                        TESS_F32,  TESS_F32,  TESS_F16,  TESS_F16,  TESS_F16,
                                        TESS_F16,  TESS_F16,  TESS_BF16, TESS_BF16, TESS_BF16,
                                        TESS_BF16, TESS_BF16, TESS_BF16, TESS_E4M3, TESS_E5M2};
    static const tess_dtype outputs[] = {TESS_F32, TESS_F16, TESS_BF16};

    line->dtype = PICK(random, dtypes);
    if (tess_shape_is_fp8(line->dtype))
        line->o_dtype = PICK(random, outputs);
    else if (line->dtype != TESS_F32 && tess_random_once_in(random, 6))
        line->o_dtype = TESS_F32;
}

/* ---- Sequences ------------------------------------------------------------------------------- */

/* Used lengths below the lengths; sometimes all, sometimes none. */
static void draw_used(tess_random *random, tess_line *line, bool is_q)
{
    tess_lengths *used = is_q ? &line->used_q : &line->used_k;
    const tess_lengths *lens = is_q ? &line->lens_q : &line->lens_k;

    for (int64_t b = 0; b < line->batch; b++) {
        const int64_t length = lens->runs ? tess_lengths_at(lens, b)
                               : is_q     ? line->seqlen_q
                                          : line->seqlen_k;
        const int64_t choice = tess_random_below(random, 10);

        tess_lengths_add(used,
                         choice < 2   ? 0
                         : choice < 4 ? length
                                      : tess_random_below(random, length + 1),
                         1);
    }
}

static void draw_lens(tess_random *random, tess_lengths *lens, int64_t count, int64_t *out_bound)
{
    for (int64_t b = 0; b < count; b++)
        tess_lengths_add(lens, draw_length(random, 30), 1);
    *out_bound = tess_lengths_max(lens);
}

static void draw_packed(tess_random *random, tess_line *line)
{
    const bool packs_k = !tess_random_once_in(random, 5);

    line->batch = 1 + tess_random_below(random, 7);
    line->seqlen_k = draw_length(random, 5);
    draw_lens(random, &line->lens_q, line->batch, &line->seqlen_q);
    if (packs_k)
        draw_lens(random, &line->lens_k, line->batch, &line->seqlen_k);
    if (tess_random_once_in(random, 4))
        line->gap = 1 + tess_random_below(random, 5);
    if (tess_random_once_in(random, 5))
        draw_used(random, line, true);
    if (tess_random_once_in(random, 5))
        draw_used(random, line, false);
}

static void draw_paged(tess_random *random, tess_line *line)
{
    static const int64_t pages[] = {1, 3, 16, 16, 64, 256};

    line->batch = 1 + tess_random_below(random, 5);
    line->page_size = PICK(random, pages);
    line->seqlen_q = tess_random_once_in(random, 2) ? 1 : draw_length(random, 5);
    line->seqlen_k = draw_length(random, 5);
    if (tess_random_once_in(random, 3))
        draw_lens(random, &line->lens_q, line->batch, &line->seqlen_q);
    if (!tess_random_once_in(random, 5))
        draw_used(random, line, false);
}

static void draw_dense(tess_random *random, tess_line *line)
{
    line->batch = tess_random_once_in(random, 30) ? 0 : 1 + tess_random_below(random, 4);
    line->seqlen_q = tess_random_once_in(random, 5) ? 1 : draw_length(random, 5);
    line->seqlen_k = tess_random_once_in(random, 3) ? line->seqlen_q : draw_length(random, 5);
    if (tess_random_once_in(random, 8))
        draw_used(random, line, true);
    if (tess_random_once_in(random, 8))
        draw_used(random, line, false);
}

/* ---- Scores ---------------------------------------------------------------------------------- */

static int64_t draw_bound(tess_random *random, int64_t columns)
{
    switch (tess_random_below(random, 6)) {
    case 0:
        return 0;
    case 1:
        return INT32_MAX;
    case 2:
        return -1;
    case 3:
        return columns;
    default:
        return tess_random_below(random, columns + 2);
    }
}

static void draw_mask(tess_random *random, tess_line *line)
{
    if (tess_random_percent(random, 45))
        line->mask |= TESS_MASK_CAUSAL;
    if (tess_random_percent(random, 30)) {
        line->mask |= TESS_MASK_WINDOW;
        line->window_left = draw_bound(random, line->seqlen_k);
        line->window_right = draw_bound(random, line->seqlen_k);
    }
    if (tess_random_percent(random, 15))
        line->mask |= TESS_MASK_TOP_LEFT;
}

static void draw_scale(tess_random *random, tess_line *line)
{
    const int64_t choice = tess_random_below(random, 100);
    const float size = (float)(1 + tess_random_below(random, 64)) / 128.0f;

    line->scale_is_set = choice < 25;
    if (choice < 5)
        line->softmax_scale = 0;
    else if (choice < 15)
        line->softmax_scale = -size;
    else if (choice < 25)
        line->softmax_scale = size;
    if (tess_random_percent(random, 15))
        line->softcap = (float)(1 + tess_random_below(random, 100)) / 2.0f;
}

static void draw_bias(tess_random *random, tess_line *line)
{
    static const tess_dtype dtypes[] = {TESS_F32, TESS_F32, TESS_F16, TESS_BF16};

    if (tess_random_percent(random, 15))
        line->bias |= TESS_BIAS_ALIBI;
    if (tess_random_percent(random, 15))
        line->bias |= TESS_BIAS_SINK;
    if (!tess_random_percent(random, 15))
        return;
    line->bias |= TESS_BIAS_TENSOR;
    line->bias_dtype = PICK(random, dtypes);
    if (tess_random_once_in(random, 2))
        line->bias_broadcast = (uint32_t)tess_random_below(random, 16);
}

static void draw_fill(tess_random *random, tess_line *line)
{
    int kind = TESS_FILL_NORMAL;

    if (tess_random_percent(random, 65))
        kind = (int)tess_random_below(random, TESS_FILL_COUNT);
    if ((line->bias & TESS_BIAS_TENSOR) && tess_random_once_in(random, 3))
        kind = TESS_FILL_HOLES;
    /* With the permission to spread there is nothing left to compare a NaN's row with. */
    if ((kind == TESS_FILL_NAN || kind == TESS_FILL_INF) &&
        (line->flags & TESS_ALLOW_NONFINITE_SPREAD))
        kind = TESS_FILL_NORMAL;
    memset(line->fill, 0, sizeof line->fill);
    memcpy(line->fill, tess_fill_name(kind), strlen(tess_fill_name(kind)));
}

static void draw_how(tess_random *random, tess_line *line)
{
    static const int64_t splits[] = {1, 1, 2, 3, 5, 16, 64, 128};
    const int64_t layout = tess_random_below(random, 100);
    const bool has_arrays =
        line->lens_q.runs || line->lens_k.runs || line->used_q.runs || line->used_k.runs;

    if (tess_random_percent(random, 40))
        line->splits = PICK(random, splits);
    line->layout = layout < 45   ? TESS_LAYOUT_BSHD
                   : layout < 60 ? TESS_LAYOUT_BHSD
                   : layout < 95 ? TESS_LAYOUT_STRIDED
                                 : TESS_LAYOUT_SPARSE;
    if (has_arrays && tess_random_percent(random, 25))
        line->index_dtype = TESS_I64;
    if (tess_random_percent(random, 10))
        line->flags |= TESS_DETERMINISTIC;
    if (tess_random_percent(random, 15))
        line->flags |= TESS_BATCH_INVARIANT;
    if (line->dtype == TESS_F32 && tess_random_percent(random, 5))
        line->flags |= TESS_ALLOW_TF32;
    if (tess_random_percent(random, 5))
        line->flags |= TESS_ALLOW_NONFINITE_SPREAD;
}

/* ---- Fitting --------------------------------------------------------------------------------- */

static double cost_of(const tess_line *line)
{
    double pairs = 0;

    for (int64_t b = 0; b < line->batch; b++)
        pairs += (double)tess_shape_used_rows(line, b) * (double)tess_shape_used_columns(line, b);
    pairs *= (double)line->heads_q * (double)(line->head_dim + line->head_dim_v + 16);
    return line->backward ? 2.5 * pairs : pairs; /* five products for two */
}

static void halve(tess_lengths *lengths)
{
    const tess_lengths before = *lengths;

    lengths->runs = 0;
    for (int32_t run = 0; run < before.runs; run++)
        tess_lengths_add(lengths, before.value[run] / 2, before.count[run]);
}

/* Halves lengths until the problem is cheap enough; whatever related them still does. */
static void fit(tess_line *line)
{
    for (int round = 0; cost_of(line) > TESS_GENERATE_COST; round++) {
        if (round % 3 == 2 && line->heads_q > line->heads_kv) {
            line->heads_q = line->heads_kv * ((line->heads_q / line->heads_kv + 1) / 2);
            continue;
        }
        if (round % 2 == 0) {
            line->seqlen_q /= 2;
            halve(&line->lens_q);
            halve(&line->used_q);
        } else {
            line->seqlen_k /= 2;
            halve(&line->lens_k);
            halve(&line->used_k);
        }
    }
    /* With lists, the bound is what the list says. */
    if (line->lens_q.runs)
        line->seqlen_q = tess_lengths_max(&line->lens_q);
    if (line->lens_k.runs)
        line->seqlen_k = tess_lengths_max(&line->lens_k);
}

static void generate(uint64_t seed, bool is_backward, tess_line *out_line)
{
    tess_random random = tess_random_start(seed, is_backward ? 0x6E5 : 0x6E4);
    const int64_t kind = tess_random_below(&random, 100);

    tess_line_default(out_line);
    out_line->seed = seed;
    out_line->backward = is_backward;
    draw_heads(&random, out_line);
    draw_dims(&random, out_line);
    draw_dtype(&random, out_line);
    if (kind < (is_backward ? 60 : 45))
        draw_dense(&random, out_line);
    else if (kind < (is_backward ? 95 : 75))
        draw_packed(&random, out_line);
    else
        draw_paged(&random, out_line);
    draw_scale(&random, out_line);
    draw_bias(&random, out_line);
    draw_how(&random, out_line);
    draw_fill(&random, out_line);
    fit(out_line);
    draw_mask(&random, out_line);
}

void tess_generate_line(uint64_t seed, tess_line *out_line)
{
    generate(seed, false, out_line);
}

void tess_generate_backward_line(uint64_t seed, tess_line *out_line)
{
    generate(seed, true, out_line);
}

void tess_generate_any_line(uint64_t seed, tess_line *out_line)
{
    tess_random random = tess_random_start(seed, 0x6E6);

    generate(seed, tess_random_once_in(&random, 4), out_line);
}
