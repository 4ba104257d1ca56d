/* SPDX-License-Identifier: Apache-2.0
 * One use of everything in core/portable, by number, so that dialects can be compared. */
#ifndef TESSERA_TESTS_DIALECTS_PROBE_H
#define TESSERA_TESTS_DIALECTS_PROBE_H

#include "core/portable/args.h"
#include "core/portable/convert.h"
#include "core/portable/online_softmax.h"
#include "core/portable/visible.h"
#include "core/portable/walk.h"

/* Like core/portable: values in, values out. A probe of an index is a question to a dialect; the
 * kinds of one table differ in nothing but the function they ask. */

enum { PROBE_INDICES = 4096, PROBE_EXACT_KINDS = 25, PROBE_NEAR_KINDS = 16 };

/* A bit for each near kind that is a logarithm: the two LSE, log2 and the merged LSE. */
enum { PROBE_LOGARITHMS = 1 << 2 | 1 << 5 | 1 << 8 | 1 << 11 };

/* Integers and bits must be the same everywhere. */
TESS_FN tess_u32 probe_conversion(tess_u32 kind, tess_u32 index)
{
    const tess_u32 any = index * 2654435761u; /* spreads the indices over all bit patterns */
    const tess_u32 code = index * 40503u & 0xffffu;
    /* Exponents near 1, where the 8-bit types live. */
    const tess_f32 near_one = tess_from_bits((any & 0x87ffffffu) | 0x38000000u);

    switch (kind) {
    case 0:
        return tess_bits(tess_f32_from_f16(code));
    case 1:
        return tess_bits(tess_f32_from_bf16(code));
    case 2:
        return tess_bits(tess_f32_from_e4m3(index & 0xffu));
    case 3:
        return tess_bits(tess_f32_from_e5m2(index & 0xffu));
    case 4:
        return tess_f16_from_f32(tess_from_bits(any));
    case 5:
        return tess_bf16_from_f32(tess_from_bits(any));
    case 6:
        return tess_e4m3_from_f32(tess_from_bits(any));
    case 7:
        return tess_e5m2_from_f32(tess_from_bits(any));
    case 8:
        return tess_f16_from_f32(near_one);
    case 9:
        return tess_e4m3_from_f32(near_one);
    case 10:
        return tess_e5m2_from_f32(near_one);
    default:
        return (tess_u32)tess_is_nan(tess_from_bits(any)) |
               (tess_u32)tess_is_finite(tess_from_bits(any)) << 1;
    }
}

/* A small problem for each index: shapes, masks and cuts from its digits. */
TESS_FN tess_u32 probe_walk(tess_u32 kind, tess_u32 index)
{
    const tess_i64 rows = 1 + index % 7u, columns = 1 + index / 7u % 11u;
    const tess_u32 masks = index / 77u;
    const tess_i64 left = (tess_i64)(index % 5u) - 1, right = (tess_i64)(index % 3u) - 1;
    const tess_visible visible = tess_visible_make(
        rows, columns, (masks & 1u) != 0u, (masks & 2u) != 0u, (masks & 4u) != 0u, left, right);
    const tess_i64 row = index % 13u % rows, column = index % 17u % columns;
    const tess_i64 group = 1 + index % 4u, tile_rows = 1 + index % 6u;
    const tess_i64 count = tess_walk_row_tiles(rows, group, tile_rows);
    const tess_row_tile tile = tess_walk_row_tile(index % count, count, rows, group, tile_rows);
    const tess_column_walk walk =
        tess_walk_columns(visible, tess_walk_query(tile.first, group),
                          tess_walk_query(tile.end - 1, group), 3, index % 2u, 2);

    switch (kind) {
    case 0:
        return (tess_u32)tess_visible_first(visible, row);
    case 1:
        return (tess_u32)tess_visible_end(visible, row);
    case 2:
        return (tess_u32)tess_visible_admits(visible, row, column);
    case 3:
        return (tess_u32)count;
    case 4:
        return (tess_u32)tile.first;
    case 5:
        return (tess_u32)tile.end;
    case 6:
        return (tess_u32)tess_walk_head(tile.first, group);
    case 7:
        return (tess_u32)walk.first;
    case 8:
        return (tess_u32)walk.end;
    case 9:
        return (tess_u32)walk.full_first;
    case 10:
        return (tess_u32)walk.full_end;
    default:
        return (tess_u32)tess_walk_is_masked(walk, walk.first);
    }
}

/* The block as this dialect reads it: a member from each stretch of it. */
TESS_FN tess_u32 probe_args(tess_args args, tess_u32 index)
{
    switch (index % 10u) {
    case 0:
        return (tess_u32)args.q_stride[0];
    case 1:
        return (tess_u32)args.o_stride[3];
    case 2:
        return (tess_u32)(args.sink_stride >> 32);
    case 3:
        return (tess_u32)args.total_columns;
    case 4:
        return (tess_u32)args.window_right;
    case 5:
        return (tess_u32)args.splits;
    case 6:
        return (tess_u32)(args.scratch_size >> 32);
    case 7:
        return (tess_u32)args.head_dim;
    case 8:
        return args.flags;
    default:
        return tess_bits(args.softcap);
    }
}

TESS_FN tess_u32 probe_exact(tess_args args, tess_u32 kind, tess_u32 index)
{
    if (kind < 12u)
        return probe_conversion(kind, index);
    if (kind < 24u)
        return probe_walk(kind - 12u, index);
    return probe_args(args, index);
}

/* Scores of a row: mostly ordinary, some absent, some rows of nothing else, some huge or NaN. */
TESS_FN tess_f32 probe_score(tess_u32 index, tess_u32 column)
{
    const tess_u32 random = (index * 31u + column) * 2654435761u >> 8;

    if (index % 16u == 0u || random % 5u == 0u)
        return TESS_NEG_INF;
    if (index % 64u == 1u)
        return -1e30f;
    if (index % 64u == 2u && column == 3u)
        return tess_from_bits(0x7fc00000u);
    return tess_os_score((tess_f32)(random & 0xffffu) * 0x1p-10f - 32.0f);
}

/* Three tiles of four columns; the values of the columns are 1, 2, 3 ... */
TESS_FN tess_f32 probe_recurrence(tess_u32 kind, tess_u32 index)
{
    tess_os_row row = tess_os_empty();
    tess_f32 output = 0.0f;
    tess_u32 tile, column;
    tess_os_sunk sunk;

    for (tile = 0u; tile < 12u; tile += 4u) {
        tess_f32 max = TESS_NEG_INF, weights = 0.0f, product = 0.0f;
        tess_os_step step;

        for (column = tile; column < tile + 4u; column++)
            max = tess_max(max, probe_score(index, column));
        step = tess_os_admit(row, max);
        for (column = tile; column < tile + 4u; column++) {
            const tess_f32 weight = tess_os_weight(probe_score(index, column), step.shift);
            weights += weight;
            product += weight * (tess_f32)(column + 1u);
        }
        output = output * step.rescale + product;
        row = tess_os_advance(row, step, max, weights);
    }
    sunk = tess_os_sink(row, (tess_f32)(index % 41u) - 20.0f);
    switch (kind) {
    case 0:
        return row.sum;
    case 1:
        return tess_os_shift(row.shift);
    case 2:
        return tess_os_lse(row);
    case 3:
        return output * tess_os_inverse(row.sum);
    case 4:
        return sunk.rescale;
    case 5:
        return tess_os_lse(sunk.row);
    default:
        return output * sunk.rescale * tess_os_inverse(sunk.row.sum);
    }
}

TESS_FN tess_f32 probe_function(tess_u32 kind, tess_u32 index)
{
    const tess_f32 x = ((tess_f32)index - 2048.0f) * 0.0078125f; /* -16 ... 16 */
    const tess_f32 lse_1 = index % 16u == 5u ? TESS_NEG_INF : x;
    const tess_f32 lse_2 = index % 32u == 5u ? TESS_NEG_INF : (tess_f32)(index % 29u) - 14.0f;
    const tess_os_merged merged = tess_os_merge(lse_1, lse_2);

    switch (kind) {
    case 0:
        return tess_exp2(x);
    case 1:
        return tess_log2(tess_abs(x) + 0.001f);
    case 2:
        return tess_tanh(x);
    case 3:
        return tess_tanh_from_exp2(x);
    case 4:
        return merged.lse;
    case 5:
        return merged.weight_1;
    case 6:
        return merged.weight_2;
    case 7:
        return tess_os_score(x * 3e37f);
    default:
        return tess_max(x, (tess_f32)tess_max_i64((tess_i64)index - 3000, -100));
    }
}

/* Functions of the library are not the same to the last bit in all dialects. */
TESS_FN tess_f32 probe_near(tess_u32 kind, tess_u32 index)
{
    if (kind < 7u)
        return probe_recurrence(kind, index);
    return probe_function(kind - 7u, index);
}

#endif
