/* SPDX-License-Identifier: Apache-2.0
 * What the name and the types of a line in a matrix.def say. */
#ifndef TESSERA_BACKENDS_GPU_MATRIX_NAME_H
#define TESSERA_BACKENDS_GPU_MATRIX_NAME_H

#include "vendor/lane.h"

#include <tessera/base.h>

/* Whether a kernel's name has this word: what its line has no column for. */
TESS_DEVICE constexpr bool tess_name_has(const char *name, const char *word)
{
    for (; *name; name++) {
        int i = 0;
        while (word[i] && name[i] == word[i])
            i++;
        if (!word[i])
            return true;
    }
    return false;
}

TESS_DEVICE constexpr int tess_only_dtype(tess_u32 dtypes)
{
    return dtypes == TESS_GPU_F16 ? TESS_F16 : TESS_BF16;
}

#endif
