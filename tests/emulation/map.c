/* SPDX-License-Identifier: Apache-2.0
 * Tensors described for bulk copies, as the emulated driver describes them. */
#include "tests/emulation/map.h"

#include "backends/gpu/host/driver.h"

#include <stdbool.h>
#include <string.h>

enum { MAGIC = 0x7E55A0, SWIZZLE_128 = 3, MOST_BOX = 256, ELEMENT = 2 };

int tess_emulated_map_encode(void *map, int type, unsigned rank, void *base, const uint64_t *extent,
                             const uint64_t *stride, const uint32_t *box, const uint32_t *step,
                             int interleave, int swizzle, int promotion, int fill)
{
    tess_emulated_map m = {.base = base, .magic = MAGIC};

    (void)promotion;
    if ((uintptr_t)map % 64 != 0 || (uintptr_t)base % 16 != 0 || rank != 4 || interleave || fill ||
        swizzle != SWIZZLE_128 || (type != 6 && type != 9))
        return TESS_GPU_INVALID_VALUE;
    for (int i = 0; i < 4; i++) {
        m.extent[i] = extent[i];
        m.stride[i] = i == 0 ? ELEMENT : stride[i - 1];
        if (extent[i] == 0 || extent[i] > UINT32_MAX || box[i] == 0 || box[i] > MOST_BOX ||
            step[i] != 1)
            return TESS_GPU_INVALID_VALUE;
        if (i > 0 && (stride[i - 1] % 16 != 0 || stride[i - 1] >= (uint64_t)1 << 40))
            return TESS_GPU_INVALID_VALUE;
    }
    if (box[0] * ELEMENT > 128 || box[0] * ELEMENT % 16 != 0 || box[2] != 1 || box[3] != 1)
        return TESS_GPU_INVALID_VALUE;
    m.box[0] = box[0];
    m.box[1] = box[1];
    memcpy(map, &m, sizeof m);
    return TESS_GPU_SUCCESS;
}

size_t tess_emulated_map_bytes(const tess_emulated_map *map)
{
    return (size_t)map->box[0] * map->box[1] * ELEMENT;
}

size_t tess_emulated_map_read(const tess_emulated_map *map, const int32_t at[4], char *to)
{
    for (uint32_t row = 0; row < map->box[1]; row++)
        for (uint32_t dim = 0; dim < map->box[0]; dim++) {
            const int64_t place[4] = {at[0] + (int64_t)dim, at[1] + (int64_t)row, at[2], at[3]};
            const uint32_t chunk = dim / 8 ^ row % 8;
            char *const element = to + row * 128 + chunk * 16 + dim % 8 * ELEMENT;
            const char *from = map->base;
            bool is_inside = true;

            for (int i = 0; i < 4; i++) {
                is_inside &= place[i] >= 0 && place[i] < (int64_t)map->extent[i];
                from += place[i] * (int64_t)map->stride[i];
            }
            if (is_inside)
                memcpy(element, from, ELEMENT);
            else
                memset(element, 0, ELEMENT);
        }
    return tess_emulated_map_bytes(map);
}
