/* SPDX-License-Identifier: Apache-2.0
 * Rows that a checked kernel of any tile shape left non-finite, once more. */
#include "exact.h"

typedef struct tess_redo_memory {
    tess_forward_item item;
    float floats[TESS_EXACT_FLOATS];
} tess_redo_memory;

TESS_CL_ASSERT(tess_the_line_says_how_much_it_is, sizeof(tess_redo_memory) <= TESS_CL_LOCAL);

/* Whether an element of the row, as it was stored, is not finite. */
TESS_FN int tess_is_bad_row(tess_rows rows, tess_i64 row, __local float *floats)
{
    float is_bad = 0.0f;

    for (tess_i32 dim = (tess_i32)get_local_id(0); dim < rows.dims; dim += TESS_CL_GROUP)
        if (!tess_is_finite(tess_row_element(rows, row, dim)))
            is_bad = 1.0f;
    return tess_block_max(is_bad, floats) > 0.0f;
}

/* The role FORWARD REDO. */
TESS_CL_KERNEL(TESS_CL_FORWARD_PARAMETERS)
{
    __local tess_redo_memory memory;
    TESS_CL_FORWARD_ADDRESSES(to);
    __global const tess_u32 *const flags =
        (__global const tess_u32 *)(to.at[TESS_AT_WORKSPACE] + args->redo);

    TESS_CL_FOR_ITEMS(i)
    {
        if (flags[i]) {
            barrier(CLK_LOCAL_MEM_FENCE); /* nobody reads the item before */
            if (get_local_id(0) == 0)
                memory.item = tess_forward_item_at(args, &to, i);
            barrier(CLK_LOCAL_MEM_FENCE); /* the item is there */
            for (tess_i64 row = memory.item.tile.first; row < memory.item.tile.end; row++)
                if (tess_is_bad_row(memory.item.o, row, memory.floats))
                    tess_forward_exact(&memory.item, row, memory.floats);
        }
    }
}
