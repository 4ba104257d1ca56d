/* SPDX-License-Identifier: Apache-2.0
 * A tensor read from a file: element type, shape, strides, and the bytes. */
#include "tools/tensor.h"

#include "tests/kit/number.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

void tool_tensor_release(tool_tensor *tensor)
{
    free(tensor->data);
    memset(tensor, 0, sizeof *tensor);
}

bool tool_tensor_count(const int64_t *shape, int rank, int64_t *out_count)
{
    int64_t count = 1;
    bool is_empty = false;

    /* An extent of 0 hides no overflow of the others: strides are made from them too. */
    for (int axis = 0; axis < rank; axis++) {
        if (shape[axis] < 0)
            return false;
        if (shape[axis] == 0)
            is_empty = true;
        else if (__builtin_mul_overflow(count, shape[axis], &count))
            return false;
    }
    *out_count = is_empty ? 0 : count;
    return true;
}

void tool_tensor_strides(tool_tensor *tensor, bool first_axis_innermost)
{
    int64_t stride = 1;

    for (int i = 0; i < tensor->rank; i++) {
        const int axis = first_axis_innermost ? i : tensor->rank - 1 - i;

        tensor->stride[axis] = stride;
        if (tensor->shape[axis] > 0)
            stride *= tensor->shape[axis];
    }
}

void tool_tensor_write_shape(const int64_t *shape, int rank, tess_text *out_text)
{
    tess_text_add(out_text, "(");
    for (int axis = 0; axis < rank; axis++)
        tess_text_add(out_text, axis ? ", %" PRId64 : "%" PRId64, shape[axis]);
    tess_text_add(out_text, ")");
}

double tool_tensor_value(const tool_tensor *tensor, int64_t index)
{
    return tess_number_load(tensor->dtype, (const char *)tensor->data +
                                               index * (int64_t)tess_dtype_size(tensor->dtype));
}
