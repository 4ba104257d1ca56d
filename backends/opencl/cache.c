/* SPDX-License-Identifier: Apache-2.0
 * Compiled programs on disk: found by what they were made from and for, believed only when whole.
 */
#include "backends/opencl/cache.h"

#include "core/base/alloc.h"
#include "core/base/log.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Bytes of all files together. A program is 0.1 to 0.4 MB and a device has some dozens. */
#define MOST_BYTES ((int64_t)256 << 20)

/* Raise it when the format of a file, or what a program promises the host, changes. */
enum { FORMAT = 1 };

/* A file: this header, then the program. Read only on the machine that wrote it, or taken for a
 * foreign one. */
typedef struct header {
    char magic[8];
    uint64_t key[2];
    uint64_t size;  /* of the program */
    uint64_t check; /* hash of the program */
} header;

static const char MAGIC[8] = {'T', 'E', 'S', 'S', 'O', 'C', 'L', '\n'};

enum { MOST_PATH = TESS_ENV_SIZE + 128 };

void tess_cl_cache_folder(const tess_env *env, char *out_folder, size_t size)
{
    const char *const xdg = tess_env_current("XDG_CACHE_HOME");
    const char *const home = tess_env_current("HOME");
    int length = 0;

    out_folder[0] = '\0';
    if (strcmp(env->cache, "off") == 0)
        return;
    if (env->cache[0])
        length = snprintf(out_folder, size, "%s", env->cache);
    else if (xdg && xdg[0] == '/')
        length = snprintf(out_folder, size, "%s/tessera", xdg);
    else if (home && home[0] == '/')
        length = snprintf(out_folder, size, "%s/.cache/tessera", home);
    if (length < 0 || (size_t)length >= size)
        out_folder[0] = '\0';
}

/* ---- Keys ------------------------------------------------------------------------------------ */

/* FNV-1a, 64 bits. Two of them, begun differently, tell files apart; nobody is to be kept out by
 * it. */
static uint64_t hash(uint64_t state, const void *data, size_t size)
{
    const unsigned char *bytes = data;

    for (size_t i = 0; i < size; i++)
        state = (state ^ bytes[i]) * UINT64_C(1099511628211);
    return state;
}

#define BASIS UINT64_C(14695981039346656037)

static uint64_t hash_key(const tess_cl_key *key, uint64_t state)
{
    const uint32_t format = FORMAT;

    state = hash(state, &format, sizeof format);
    state = hash(state, key->options, strlen(key->options) + 1);
    state = hash(state, key->identity, strlen(key->identity) + 1);
    return hash(state, key->source, key->source_size);
}

static header header_of(const tess_cl_key *key, const void *binary, size_t size)
{
    header h;

    memset(&h, 0, sizeof h);
    memcpy(h.magic, MAGIC, sizeof h.magic);
    h.key[0] = hash_key(key, BASIS);
    h.key[1] = hash_key(key, hash(BASIS, MAGIC, sizeof MAGIC));
    h.size = size;
    h.check = hash(BASIS, binary, size);
    return h;
}

static bool write_path(const char *folder, const tess_cl_key *key, char out_path[MOST_PATH])
{
    const header h = header_of(key, "", 0);
    const int length = snprintf(out_path, MOST_PATH, "%s/opencl-%016" PRIx64 "%016" PRIx64, folder,
                                h.key[0], h.key[1]);

    return length > 0 && length < MOST_PATH;
}

/* ---- Reading --------------------------------------------------------------------------------- */

static bool read_all(int file, void *to, size_t size)
{
    char *at = to;

    while (size > 0) {
        const ssize_t count = read(file, at, size);
        if (count < 0 && errno == EINTR)
            continue;
        if (count <= 0)
            return false;
        at += count;
        size -= (size_t)count;
    }
    return true;
}

/* Reads an open file; false when it is not the key's or not whole. */
static bool read_file(const tess_host *host, int file, const tess_cl_key *key,
                      unsigned char **out_binary, size_t *out_size)
{
    struct stat about;
    unsigned char *binary;
    header h, wanted;
    size_t size;

    if (fstat(file, &about) != 0 || about.st_size <= (off_t)sizeof h ||
        (int64_t)about.st_size > MOST_BYTES || !read_all(file, &h, sizeof h))
        return false;
    size = (size_t)about.st_size - sizeof h;
    if (h.size != size)
        return false;
    binary = tess_alloc(host, size);
    if (!binary)
        return false;
    if (read_all(file, binary, size)) {
        wanted = header_of(key, binary, size);
        if (memcmp(&h, &wanted, sizeof h) == 0) {
            *out_binary = binary;
            *out_size = size;
            return true;
        }
    }
    tess_release(host, binary, size);
    return false;
}

bool tess_cl_cache_read(const tess_host *host, const char *folder, const tess_cl_key *key,
                        unsigned char **out_binary, size_t *out_size)
{
    char path[MOST_PATH];
    bool is_good;
    int file;

    if (!folder[0] || !write_path(folder, key, path))
        return false;
    file = open(path, O_RDONLY | O_CLOEXEC);
    if (file < 0)
        return false;
    is_good = read_file(host, file, key, out_binary, out_size);
    if (is_good)
        (void)futimens(file, NULL); /* used now */
    else
        tess_log(host, TESS_LOG_WARN, "%s is damaged or another's; it is made anew", path);
    close(file);
    return is_good;
}

/* ---- Writing --------------------------------------------------------------------------------- */

/* Makes a folder and those above it; the last answer counts. */
static bool make_folder(const char *folder)
{
    char path[MOST_PATH];
    const size_t length = strlen(folder);

    if (length >= sizeof path)
        return false;
    for (size_t i = 1; i <= length; i++) {
        if (folder[i] != '/' && folder[i] != '\0')
            continue;
        memcpy(path, folder, i);
        path[i] = '\0';
        if (mkdir(path, 0700) != 0 && errno != EEXIST)
            return false;
    }
    return true;
}

static bool write_all(int file, const void *from, size_t size)
{
    const char *at = from;

    while (size > 0) {
        const ssize_t count = write(file, at, size);
        if (count < 0 && errno == EINTR)
            continue;
        if (count <= 0)
            return false;
        at += count;
        size -= (size_t)count;
    }
    return true;
}

/* The file used longest ago, and the bytes of all. */
static int64_t survey(const char *folder, char out_oldest[MOST_PATH])
{
    DIR *const directory = opendir(folder);
    struct timespec oldest = {0, 0};
    int64_t bytes = 0;
    const struct dirent *entry;

    out_oldest[0] = '\0';
    while (directory && (entry = readdir(directory)) != NULL) {
        char path[MOST_PATH];
        struct stat about;
        const int length = snprintf(path, sizeof path, "%s/%s", folder, entry->d_name);

        if (strncmp(entry->d_name, "opencl-", 7) != 0 || length >= (int)sizeof path ||
            stat(path, &about) != 0)
            continue;
        bytes += (int64_t)about.st_size;
        if (!out_oldest[0] || about.st_mtim.tv_sec < oldest.tv_sec ||
            (about.st_mtim.tv_sec == oldest.tv_sec && about.st_mtim.tv_nsec < oldest.tv_nsec)) {
            oldest = about.st_mtim;
            memcpy(out_oldest, path, sizeof path);
        }
    }
    if (directory)
        closedir(directory);
    return bytes;
}

/* Makes room for one more file. */
static void bound(const char *folder, size_t size)
{
    char oldest[MOST_PATH];

    while (survey(folder, oldest) + (int64_t)size > MOST_BYTES && oldest[0])
        if (unlink(oldest) != 0 && errno != ENOENT)
            return;
}

/* Readers see the whole file or none: it is written beside and then renamed. Of two writers one
 * wins, with the same content. */
static bool write_file(const char *path, const header *h, const void *binary, size_t size)
{
    char beside[MOST_PATH + 32];
    bool is_written;
    int file;

    snprintf(beside, sizeof beside, "%s.%ld.%p", path, (long)getpid(), (const void *)&file);
    file = open(beside, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (file < 0)
        return false;
    is_written = write_all(file, h, sizeof *h) && write_all(file, binary, size);
    is_written = close(file) == 0 && is_written;
    if (is_written && rename(beside, path) == 0)
        return true;
    unlink(beside);
    return false;
}

void tess_cl_cache_write(const tess_host *host, const char *folder, const tess_cl_key *key,
                         const unsigned char *binary, size_t size)
{
    const header h = header_of(key, binary, size);
    char path[MOST_PATH];

    if (!folder[0] || !write_path(folder, key, path) || (int64_t)size > MOST_BYTES / 4)
        return;
    if (!make_folder(folder)) {
        tess_log(host, TESS_LOG_WARN, "compiled programs are not kept: %s cannot be made: %s",
                 folder, strerror(errno));
        return;
    }
    bound(folder, size + sizeof h);
    if (!write_file(path, &h, binary, size))
        tess_log(host, TESS_LOG_WARN, "a compiled program is not kept: %s cannot be written: %s",
                 path, strerror(errno));
}

void tess_cl_cache_remove(const char *folder, const tess_cl_key *key)
{
    char path[MOST_PATH];

    if (folder[0] && write_path(folder, key, path))
        unlink(path);
}
