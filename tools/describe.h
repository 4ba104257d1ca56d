/* SPDX-License-Identifier: Apache-2.0
 * The descriptor a problem line stands for, without any data: enough to plan, not to run. */
#ifndef TESSERA_TOOLS_DESCRIBE_H
#define TESSERA_TOOLS_DESCRIBE_H

#include "core/schedule/problem_text.h"
#include "tools/tool.h"

/* The descriptor and what it points to; do not copy it. */
typedef struct tool_descriptor {
    tess_attention_desc desc;
    tess_varlen varlen;
    tess_paging paging;
    tess_bias bias;
    int64_t *lengths; /* host copies of the index arrays */
} tool_descriptor;

/* Tensors lie as the line's layout says; strided and sparse ones, which a test draws, are described
 * as packed. Returns TOOL_OK, or an exit code after a complaint. */
int tool_describe(const tess_line *line, tool_descriptor *out);
void tool_descriptor_release(tool_descriptor *descriptor);

#endif
