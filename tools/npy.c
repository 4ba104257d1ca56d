/* SPDX-License-Identifier: Apache-2.0
 * The .npy format of NumPy: one array per file behind a small text header. */
#include "tools/npy.h"

#include "tools/file.h"
#include "tools/tool.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

static const char MAGIC[6] = {'\x93', 'N', 'U', 'M', 'P', 'Y'};

/* A header lists a type and up to eight extents; NumPy itself refuses to evaluate longer ones. */
enum { LARGEST_HEADER = 65536 };

/* What the header says. */
typedef struct description {
    char descr[16];
    bool is_fortran, has_descr, has_order, has_shape;
    int rank;
    int64_t shape[TOOL_RANK];
} description;

/* Where the parser is in the header: a Python dictionary of three known keys. */
typedef struct cursor {
    const char *at;
} cursor;

static void skip_blanks(cursor *c)
{
    c->at += strspn(c->at, " \t\r\n");
}

static bool take(cursor *c, char wanted)
{
    skip_blanks(c);
    if (*c->at != wanted)
        return false;
    c->at++;
    return true;
}

/* 'text' or "text", without escapes. */
static bool take_string(cursor *c, char *data, size_t size)
{
    const char *end;
    char quote;

    skip_blanks(c);
    quote = *c->at;
    if (quote != '\'' && quote != '"')
        return false;
    end = strchr(c->at + 1, quote);
    if (!end || (size_t)(end - c->at) > size)
        return false;
    snprintf(data, size, "%.*s", (int)(end - c->at - 1), c->at + 1);
    c->at = end + 1;
    return true;
}

static bool take_boolean(cursor *c, bool *out_value)
{
    skip_blanks(c);
    *out_value = strncmp(c->at, "True", 4) == 0;
    if (!*out_value && strncmp(c->at, "False", 5) != 0)
        return false;
    c->at += *out_value ? 4 : 5;
    return true;
}

static bool take_extent(cursor *c, int64_t *out_extent)
{
    int64_t value = 0;
    const char *start;

    skip_blanks(c);
    start = c->at;
    for (; *c->at >= '0' && *c->at <= '9'; c->at++)
        if (__builtin_mul_overflow(value, 10, &value) ||
            __builtin_add_overflow(value, *c->at - '0', &value))
            return false;
    if (*c->at == 'L') /* written by Python 2 */
        c->at++;
    *out_extent = value;
    return c->at != start;
}

/* (), (3,), (3, 4) or (3, 4,). */
static bool take_shape(cursor *c, description *d)
{
    if (!take(c, '('))
        return false;
    d->rank = 0;
    while (!take(c, ')')) {
        if (d->rank == TOOL_RANK || !take_extent(c, &d->shape[d->rank]))
            return false;
        d->rank++;
        if (!take(c, ',')) {
            skip_blanks(c);
            if (*c->at != ')')
                return false;
        }
    }
    return true;
}

static bool take_member(cursor *c, description *d)
{
    char key[24];

    if (!take_string(c, key, sizeof key) || !take(c, ':'))
        return false;
    if (strcmp(key, "descr") == 0 && !d->has_descr)
        return d->has_descr = take_string(c, d->descr, sizeof d->descr);
    if (strcmp(key, "fortran_order") == 0 && !d->has_order)
        return d->has_order = take_boolean(c, &d->is_fortran);
    if (strcmp(key, "shape") == 0 && !d->has_shape)
        return d->has_shape = take_shape(c, d);
    return false;
}

static bool parse_header(const char *text, description *d)
{
    cursor c = {text};

    memset(d, 0, sizeof *d);
    if (!take(&c, '{'))
        return false;
    while (!take(&c, '}')) {
        if (!take_member(&c, d))
            return false;
        if (!take(&c, ',')) {
            skip_blanks(&c);
            if (*c.at != '}')
                return false;
        }
    }
    skip_blanks(&c);
    return *c.at == '\0' && d->has_descr && d->has_order && d->has_shape;
}

static tess_dtype dtype_of(const char *descr)
{
    static const struct {
        const char *descr;
        tess_dtype dtype;
    } known[] = {{"<f4", TESS_F32}, {"<f2", TESS_F16}, {"<i4", TESS_I32}, {"<i8", TESS_I64}};

    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++)
        if (strcmp(known[i].descr, descr) == 0)
            return known[i].dtype;
    return TESS_DTYPE_NONE;
}

/* Reads the fixed bytes and the header's text; *out_start is where the data begins. */
static bool read_header(const tool_file *file, char *text, uint64_t *out_start, tess_text *why)
{
    unsigned char fixed[12] = {0};
    const size_t fixed_size = file->size < sizeof fixed ? (size_t)file->size : sizeof fixed;
    uint64_t length, start;

    if (!tool_file_read(file, 0, fixed, fixed_size, why))
        return false;
    if (fixed_size < 10 || memcmp(fixed, MAGIC, sizeof MAGIC) != 0) {
        tess_text_add(why, "%s: not an .npy file: it does not begin with \"\\x93NUMPY\"",
                      file->path);
        return false;
    }
    if (fixed[6] != 1 && fixed[6] != 2) {
        tess_text_add(why, "%s: .npy version %d.%d; versions 1 and 2 can be read", file->path,
                      fixed[6], fixed[7]);
        return false;
    }
    start = fixed[6] == 1 ? 10 : 12;
    length = (uint64_t)fixed[8] | (uint64_t)fixed[9] << 8;
    if (fixed[6] == 2)
        length |= (uint64_t)fixed[10] << 16 | (uint64_t)fixed[11] << 24;
    if (file->size < start || length > file->size - start || length > LARGEST_HEADER) {
        tess_text_add(why,
                      "%s: the header is said to be %" PRIu64
                      " bytes long, but the file has %" PRIu64 " and headers up to %d are read",
                      file->path, length, file->size, LARGEST_HEADER);
        return false;
    }
    *out_start = start + length;
    if (!tool_file_read(file, start, text, (size_t)length, why))
        return false;
    /* A zero inside would hide what is behind it; a blank there is no dictionary. */
    text[length] = '\0';
    if (strlen(text) != length)
        text[0] = '\0';
    return true;
}

/* Fills everything but the data. */
static bool describe(const tool_file *file, const char *text, uint64_t data_size,
                     tool_tensor *tensor, tess_text *why)
{
    description d;
    int64_t count;
    char shown[24];

    if (!parse_header(text, &d)) {
        tess_text_add(why,
                      "%s: the header is no dictionary of descr, fortran_order and a shape of at "
                      "most %d axes",
                      file->path, TOOL_RANK);
        return false;
    }
    tensor->dtype = dtype_of(d.descr);
    if (tensor->dtype == TESS_DTYPE_NONE) {
        tess_text_add(why,
                      "%s: elements are '%s'; '<f4' and '<f2', and '<i4' or '<i8' for lengths, can "
                      "be read: array.astype('<f4') makes one",
                      file->path, tool_printable(d.descr, shown, sizeof shown));
        return false;
    }
    tensor->rank = d.rank;
    memcpy(tensor->shape, d.shape, sizeof d.shape);
    if (!tool_tensor_count(d.shape, d.rank, &count) ||
        (uint64_t)count != data_size / tess_dtype_size(tensor->dtype) ||
        data_size % tess_dtype_size(tensor->dtype)) {
        tess_text_add(why, "%s: shape ", file->path);
        tool_tensor_write_shape(d.shape, d.rank, why);
        tess_text_add(why, " of '%s' is not the %" PRIu64 " bytes behind the header", d.descr,
                      data_size);
        return false;
    }
    tool_tensor_strides(tensor, d.is_fortran);
    tensor->size = (size_t)data_size;
    return true;
}

static bool read_file(const tool_file *file, tool_tensor *tensor, tess_text *why)
{
    uint64_t start;
    char *text = malloc(LARGEST_HEADER + 1);
    bool is_good;

    if (!text) {
        tess_text_add(why, "%s: no memory for its header", file->path);
        return false;
    }
    is_good = read_header(file, text, &start, why) &&
              describe(file, text, file->size - start, tensor, why);
    free(text);
    if (!is_good)
        return false;
    tensor->data = malloc(tensor->size ? tensor->size : 1);
    if (!tensor->data) {
        tess_text_add(why, "%s: no memory for its %zu bytes", file->path, tensor->size);
        return false;
    }
    return tool_file_read(file, start, tensor->data, tensor->size, why);
}

bool tool_npy_read(const char *path, tool_tensor *out_tensor, tess_text *why)
{
    tool_file file;
    bool is_good;

    memset(out_tensor, 0, sizeof *out_tensor);
    if (!tool_file_open(path, &file, why))
        return false;
    snprintf(out_tensor->name, sizeof out_tensor->name, "%s", path);
    is_good = read_file(&file, out_tensor, why);
    tool_file_close(&file);
    if (!is_good)
        tool_tensor_release(out_tensor);
    return is_good;
}

bool tool_npy_write(const char *path, const tool_tensor *tensor, tess_text *why)
{
    char header[512];
    tess_text text = tess_text_in(header, sizeof header);
    unsigned char fixed[10] = {0};
    tool_writer writer;
    size_t padded;

    tess_text_add(&text, "{'descr': '%s', 'fortran_order': False, 'shape': (",
                  tensor->dtype == TESS_F16 ? "<f2" : "<f4");
    for (int axis = 0; axis < tensor->rank; axis++)
        tess_text_add(&text, axis ? " %" PRId64 "," : "%" PRId64 ",", tensor->shape[axis]);
    tess_text_add(&text, "), }");
    /* The format pads with blanks so that the data begins at a multiple of 64, and ends the header
     * with a newline. */
    padded = (text.length + 1 + sizeof fixed + 63) / 64 * 64 - sizeof fixed;
    memcpy(fixed, MAGIC, sizeof MAGIC);
    fixed[6] = 1;
    fixed[8] = (unsigned char)(padded & 255);
    fixed[9] = (unsigned char)(padded >> 8);
    if (!tool_writer_open(path, &writer, why))
        return false;
    tool_writer_put(&writer, fixed, sizeof fixed);
    tool_writer_put(&writer, header, text.length);
    for (size_t i = text.length; i + 1 < padded; i++)
        tool_writer_put(&writer, " ", 1);
    tool_writer_put(&writer, "\n", 1);
    tool_writer_put(&writer, tensor->data, tensor->size);
    return tool_writer_finish(&writer, why);
}
