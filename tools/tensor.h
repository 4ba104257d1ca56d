/* SPDX-License-Identifier: Apache-2.0
 * A tensor read from a file: element type, shape, strides, and the bytes. */
#ifndef TESSERA_TOOLS_TENSOR_H
#define TESSERA_TOOLS_TENSOR_H

#include "core/base/text.h"

#include <stdbool.h>
#include <stdint.h>
#include <tessera/tessera.h>

enum { TOOL_RANK = 8, TOOL_TENSOR_NAME = 128 };

typedef struct tool_tensor {
    char name[TOOL_TENSOR_NAME]; /* for messages: the tensor's, or the file's */
    tess_dtype dtype;
    int rank;
    int64_t shape[TOOL_RANK], stride[TOOL_RANK]; /* strides in elements */
    size_t size;                                 /* bytes */
    void *data;                                  /* owned; NULL when not read */
} tool_tensor;

void tool_tensor_release(tool_tensor *tensor);

/* Elements of a shape; false when an extent is negative or the product leaves 63 bits. */
bool tool_tensor_count(const int64_t *shape, int rank, int64_t *out_count);

/* Strides of a shape with its last axis innermost, or its first. */
void tool_tensor_strides(tool_tensor *tensor, bool first_axis_innermost);

/* Appends "(1, 147, 12, 32)". */
void tool_tensor_write_shape(const int64_t *shape, int rank, tess_text *out_text);

/* One element as a number; index arrays and every float type. `index` counts in elements from the
 * start, strides already applied. */
double tool_tensor_value(const tool_tensor *tensor, int64_t index);

#endif
