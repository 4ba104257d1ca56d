/* SPDX-License-Identifier: Apache-2.0
 * Reading pieces of files of known size, and writing files that appear whole or not at all. */
#include "tools/file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static bool refuse(tess_text *why, const char *path, const char *reason)
{
    tess_text_add(why, "%s: %s", path, reason);
    return false;
}

bool tool_file_open(const char *path, tool_file *file, tess_text *why)
{
    struct stat status;
    /* A FIFO without a writer would otherwise block here for ever. */
    const int handle = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);

    *file = (tool_file){.path = path};
    if (handle < 0)
        return refuse(why, path, strerror(errno));
    if (fstat(handle, &status) != 0 || !S_ISREG(status.st_mode)) {
        close(handle);
        return refuse(why, path, "not a regular file");
    }
    file->size = (uint64_t)status.st_size;
    file->stream = fdopen(handle, "rb");
    if (!file->stream) {
        close(handle);
        return refuse(why, path, strerror(errno));
    }
    return true;
}

void tool_file_close(tool_file *file)
{
    if (file->stream)
        fclose(file->stream);
    file->stream = NULL;
}

bool tool_file_read(const tool_file *file, uint64_t offset, void *data, size_t size, tess_text *why)
{
    if (offset > file->size || size > file->size - offset)
        return refuse(why, file->path, "ends too early");
    if (fseeko(file->stream, (off_t)offset, SEEK_SET) != 0)
        return refuse(why, file->path, strerror(errno));
    errno = 0;
    if (size && fread(data, 1, size, file->stream) != size)
        return refuse(why, file->path, errno ? strerror(errno) : "shrank while it was read");
    return true;
}

bool tool_writer_open(const char *path, tool_writer *writer, tess_text *why)
{
    memset(writer, 0, sizeof *writer);
    if (strlen(path) >= sizeof writer->path)
        return refuse(why, path, "the name is too long");
    snprintf(writer->path, sizeof writer->path, "%s", path);
    snprintf(writer->temporary, sizeof writer->temporary, "%s.%ld.part", path, (long)getpid());
    writer->stream = fopen(writer->temporary, "wbx");
    return writer->stream ? true : refuse(why, path, strerror(errno));
}

void tool_writer_put(tool_writer *writer, const void *data, size_t size)
{
    /* The stream remembers that a write failed. */
    if (size)
        (void)fwrite(data, 1, size, writer->stream);
}

bool tool_writer_finish(tool_writer *writer, tess_text *why)
{
    const bool is_whole = fflush(writer->stream) == 0 && !ferror(writer->stream);
    const bool is_closed = fclose(writer->stream) == 0;

    writer->stream = NULL;
    if (is_whole && is_closed && rename(writer->temporary, writer->path) == 0)
        return true;
    refuse(why, writer->path, strerror(errno));
    remove(writer->temporary);
    return false;
}
