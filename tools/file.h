/* SPDX-License-Identifier: Apache-2.0
 * Reading pieces of files of known size, and writing files that appear whole or not at all. */
#ifndef TESSERA_TOOLS_FILE_H
#define TESSERA_TOOLS_FILE_H

#include "core/base/text.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

/* A regular file open for reading. Pieces are read, never mapped: a file that shrinks meanwhile is
 * then a short read with a message, not a bus error. */
typedef struct tool_file {
    const char *path; /* the caller's */
    FILE *stream;
    uint64_t size;
} tool_file;

bool tool_file_open(const char *path, tool_file *file, tess_text *why);
void tool_file_close(tool_file *file);

/* Reads `size` bytes at `offset`, which must lie inside the file. */
bool tool_file_read(const tool_file *file, uint64_t offset, void *data, size_t size,
                    tess_text *why);

/* A file being written beside its final place; tool_writer_finish() moves it there, and until then
 * an older file of that name stays as it was. */
typedef struct tool_writer {
    char path[4096], temporary[4112];
    FILE *stream;
} tool_writer;

bool tool_writer_open(const char *path, tool_writer *writer, tess_text *why);
void tool_writer_put(tool_writer *writer, const void *data, size_t size);

/* False when anything since tool_writer_open() went wrong; the file is gone then. */
bool tool_writer_finish(tool_writer *writer, tess_text *why);

#endif
