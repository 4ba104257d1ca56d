/* SPDX-License-Identifier: Apache-2.0
 * The safetensors format: 8 bytes of length, a JSON header, the tensors behind each other.
 *
 * Files are not trusted. The header is bounded, every number is checked before it is used, and as
 * in the format's own reader the tensors must cover the data exactly: no hole, no overlap, nothing
 * behind the last. */
#ifndef TESSERA_TOOLS_SAFETENSORS_H
#define TESSERA_TOOLS_SAFETENSORS_H

#include "tools/file.h"
#include "tools/tensor.h"

#include <jansson.h>

typedef struct tool_safetensors {
    tool_file file;
    json_t *header;
    uint64_t data_start; /* where in the file offset 0 of the header lies */
} tool_safetensors;

/* Opens a file and checks its header. False after having written why. */
bool tool_safetensors_open(const char *path, tool_safetensors *out, tess_text *why);
void tool_safetensors_close(tool_safetensors *safetensors);

/* Whether there is a tensor of that name. */
bool tool_safetensors_has(const tool_safetensors *safetensors, const char *name);

/* Reads one tensor. False after having written why: not there, or a type that attention does not
 * take. */
bool tool_safetensors_read(const tool_safetensors *safetensors, const char *name,
                           tool_tensor *out_tensor, tess_text *why);

/* One string of the header's metadata; NULL when there is none. Valid until the file is closed. */
const char *tool_safetensors_note(const tool_safetensors *safetensors, const char *key);

/* Writes packed tensors and metadata (an object of strings, borrowed, may be NULL). */
bool tool_safetensors_write(const char *path, const tool_tensor *const *tensors, size_t count,
                            json_t *notes, tess_text *why);

#endif
