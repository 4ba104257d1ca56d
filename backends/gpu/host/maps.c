/* SPDX-License-Identifier: Apache-2.0
 * Tensors described to the unit for bulk copies (TMA) of chips of 9.0: addresses are known at a run
 * only, so this is done for each; it takes the driver about a microsecond. */
#include "backends/gpu/host/backend.h"

/* Of cuTensorMapEncodeTiled(). */
enum { TYPE_F16 = 6, TYPE_BF16 = 9, SWIZZLE_128 = 3, PROMOTE_256 = 3, RANK = 4 };

/* Dims of a box: what 128 bytes hold, the width of the pattern. */
enum { BOX_DIMS = 64 };

/* A tensor's extents and strides in elements: dims, rows, heads, batch. */
typedef struct shape {
    int64_t extent[RANK], stride[RANK];
} shape;

/* The unit takes addresses and strides that are multiples of 16 bytes, strides below 2^40, extents
 * up to 2^32, dims side by side. Rows that are shared (stride 0) or lie backwards are read another
 * way. The stride of an axis with one entry is never used, whatever it is. */
static bool is_for_unit(const void *base, const shape *s)
{
    if ((uintptr_t)base % 16 != 0 || s->stride[0] != 1)
        return false;
    for (int i = 0; i < RANK; i++)
        if (s->extent[i] < 1 || s->extent[i] > INT32_MAX ||
            (i > 0 && s->extent[i] > 1 &&
             (s->stride[i] <= 0 || s->stride[i] % 8 != 0 || s->stride[i] >= INT64_C(1) << 39)))
            return false;
    return true;
}

static tess_status describe(const tess_gpu_scope *scope, int32_t dtype, void *base, const shape *s,
                            int64_t rows, tess_gpu_map *out_map)
{
    static const uint32_t steps[RANK] = {1, 1, 1, 1};
    const uint32_t box[RANK] = {BOX_DIMS, (uint32_t)rows, 1, 1};
    uint64_t extents[RANK], strides[RANK - 1];

    for (int i = 0; i < RANK; i++) {
        extents[i] = (uint64_t)s->extent[i];
        if (i > 0)
            strides[i - 1] = s->extent[i] > 1 ? (uint64_t)s->stride[i] * 2 : 16;
    }
    return TESS_GPU_IN(scope, tensor_map, out_map, dtype == TESS_F16 ? TYPE_F16 : TYPE_BF16, RANK,
                       base, extents, strides, box, steps, 0, SWIZZLE_128, PROMOTE_256, 0);
}

static shape shape_of(const tess_args *args, const tess_i64 stride[4], int32_t dims)
{
    const bool is_packed = (args->varlen & TESS_VARLEN_CU_SEQLENS_K) != 0;

    return (shape){
        {dims, is_packed ? args->total_columns : args->columns, args->heads_kv,
         is_packed ? 1 : args->sequences},
        {stride[3], stride[1], stride[2], stride[0]},
    };
}

tess_status tess_gpu_describe(const tess_gpu_scope *scope, const tess_args *args,
                              const tess_gpu_addresses *addresses, tess_gpu_maps *maps,
                              bool *out_has)
{
    const shape k = shape_of(args, args->k_stride, args->head_dim);
    const shape v = shape_of(args, args->v_stride, args->head_dim_v);

    *out_has = false;
    if (!scope->device->driver->tensor_map || args->page_size > 0 ||
        !is_for_unit(addresses->at[TESS_AT_K], &k) || !is_for_unit(addresses->at[TESS_AT_V], &v))
        return TESS_OK;
    TESS_TRY(
        describe(scope, args->dtype, addresses->at[TESS_AT_K], &k, args->tile_columns, &maps->k));
    TESS_TRY(
        describe(scope, args->dtype, addresses->at[TESS_AT_V], &v, args->tile_columns, &maps->v));
    *out_has = true;
    return TESS_OK;
}
