/* SPDX-License-Identifier: Apache-2.0
 * The safetensors format: 8 bytes of length, a JSON header, the tensors behind each other. */
#include "tools/safetensors.h"

#include "tools/tool.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* The format's own bound, and the key under which it keeps metadata. */
#define LARGEST_HEADER UINT64_C(100000000)
static const char METADATA[] = "__metadata__";

typedef struct element_type {
    const char *name;
    unsigned size;
    tess_dtype dtype; /* NONE: known to the format, not to attention */
} element_type;

static const element_type types[] = {
    {"F32", 4, TESS_F32},        {"F16", 2, TESS_F16},        {"BF16", 2, TESS_BF16},
    {"F8_E4M3", 1, TESS_E4M3},   {"F8_E5M2", 1, TESS_E5M2},   {"I32", 4, TESS_I32},
    {"I64", 8, TESS_I64},        {"F64", 8, TESS_DTYPE_NONE}, {"U64", 8, TESS_DTYPE_NONE},
    {"U32", 4, TESS_DTYPE_NONE}, {"U16", 2, TESS_DTYPE_NONE}, {"I16", 2, TESS_DTYPE_NONE},
    {"U8", 1, TESS_DTYPE_NONE},  {"I8", 1, TESS_DTYPE_NONE},  {"BOOL", 1, TESS_DTYPE_NONE},
};

enum { TYPE_COUNT = sizeof types / sizeof types[0] };

/* What the header says about one tensor, checked. */
typedef struct entry {
    const char *name;
    const element_type *type; /* NULL: a type newer than this reader */
    int rank;
    int64_t shape[TOOL_RANK];
    uint64_t begin, end;
} entry;

static const element_type *find_type(const char *name)
{
    for (int i = 0; i < TYPE_COUNT; i++)
        if (name && strcmp(types[i].name, name) == 0)
            return &types[i];
    return NULL;
}

static bool refuse_entry(tess_text *why, const char *name, const char *reason)
{
    char shown[TOOL_TENSOR_NAME];

    tess_text_add(why, "header: tensor \"%s\" %s", tool_printable(name, shown, sizeof shown),
                  reason);
    return false;
}

static bool read_shape(const json_t *shape, entry *e, tess_text *why)
{
    const size_t rank = json_array_size(shape);

    if (!json_is_array(shape))
        return refuse_entry(why, e->name, "has no shape");
    /* More axes than attention has are somebody else's tensor: size unchecked, never read. */
    e->rank = (int)(rank > TOOL_RANK ? TOOL_RANK + 1 : rank);
    for (size_t axis = 0; axis < rank; axis++) {
        const json_t *extent = json_array_get(shape, axis);

        if (!json_is_integer(extent) || json_integer_value(extent) < 0)
            return refuse_entry(why, e->name, "has a shape that is no list of whole numbers");
        if (axis < TOOL_RANK)
            e->shape[axis] = json_integer_value(extent);
    }
    return true;
}

static bool read_offsets(const json_t *offsets, uint64_t data_size, entry *e, tess_text *why)
{
    const json_t *begin = json_array_get(offsets, 0), *end = json_array_get(offsets, 1);

    if (json_array_size(offsets) != 2 || !json_is_integer(begin) || !json_is_integer(end) ||
        json_integer_value(begin) < 0 || json_integer_value(end) < json_integer_value(begin))
        return refuse_entry(why, e->name, "has no data_offsets of the form [begin, end]");
    e->begin = (uint64_t)json_integer_value(begin);
    e->end = (uint64_t)json_integer_value(end);
    if (e->end > data_size) {
        char reason[96];

        snprintf(reason, sizeof reason, "ends at byte %" PRIu64 " but the file has %" PRIu64,
                 e->end, data_size);
        return refuse_entry(why, e->name, reason);
    }
    return true;
}

static bool read_entry(const char *name, const json_t *value, uint64_t data_size, entry *out,
                       tess_text *why)
{
    int64_t count;
    const json_t *const type = json_object_get(value, "dtype");

    *out = (entry){.name = name, .type = find_type(json_string_value(type))};
    if (!json_is_object(value) || !json_is_string(type))
        return refuse_entry(why, name, "has no dtype");
    if (!read_shape(json_object_get(value, "shape"), out, why) ||
        !read_offsets(json_object_get(value, "data_offsets"), data_size, out, why))
        return false;
    if (!out->type || out->rank > TOOL_RANK)
        return true;
    if (!tool_tensor_count(out->shape, out->rank, &count) ||
        (uint64_t)count > (out->end - out->begin) / out->type->size ||
        (uint64_t)count * out->type->size != out->end - out->begin) {
        char reason[256];
        tess_text text = tess_text_in(reason, sizeof reason);

        tess_text_add(&text, "has shape ");
        tool_tensor_write_shape(out->shape, out->rank, &text);
        tess_text_add(&text, " of %s, which is not its %" PRIu64 " bytes", out->type->name,
                      out->end - out->begin);
        return refuse_entry(why, name, reason);
    }
    return true;
}

static int compare_entries(const void *a, const void *b)
{
    const entry *left = a, *right = b;

    if (left->begin != right->begin)
        return left->begin < right->begin ? -1 : 1;
    return left->end < right->end ? -1 : left->end > right->end;
}

/* Tensors side by side from the first byte to the last. */
static bool check_cover(entry *entries, size_t count, uint64_t data_size, tess_text *why)
{
    uint64_t end = 0;

    qsort(entries, count, sizeof *entries, compare_entries);
    for (size_t i = 0; i < count; i++) {
        if (entries[i].begin < end)
            return refuse_entry(why, entries[i].name, "overlaps another tensor");
        if (entries[i].begin > end)
            return refuse_entry(why, entries[i].name, "leaves bytes before it that belong to none");
        end = entries[i].end;
    }
    if (end != data_size) {
        tess_text_add(why, "header: the tensors end at byte %" PRIu64 " but the file has %" PRIu64,
                      end, data_size);
        return false;
    }
    return true;
}

static bool check_notes(json_t *notes, tess_text *why)
{
    const char *key;
    json_t *value;

    if (json_is_object(notes)) {
        json_object_foreach(notes, key, value)
        {
            if (!json_is_string(value)) {
                tess_text_add(why, "header: metadata holds something that is no string");
                return false;
            }
        }
        return true;
    }
    tess_text_add(why, "header: metadata is no object");
    return false;
}

static bool check_header(json_t *header, uint64_t data_size, tess_text *why)
{
    const size_t room = json_object_size(header);
    entry *entries;
    const char *name;
    json_t *value;
    size_t count = 0;
    bool is_good = true;

    if (!json_is_object(header)) {
        tess_text_add(why, "header: not a JSON object");
        return false;
    }
    entries = malloc((room + 1) * sizeof *entries);
    if (!entries) {
        tess_text_add(why, "no memory for %zu tensors", room);
        return false;
    }
    json_object_foreach(header, name, value)
    {
        is_good = strcmp(name, METADATA) == 0
                      ? check_notes(value, why)
                      : read_entry(name, value, data_size, &entries[count], why);
        if (!is_good)
            break;
        if (strcmp(name, METADATA) != 0)
            count++;
    }
    is_good = is_good && check_cover(entries, count, data_size, why);
    free(entries);
    return is_good;
}

static uint64_t little_endian(const unsigned char bytes[8])
{
    uint64_t value = 0;

    for (int i = 7; i >= 0; i--)
        value = value << 8 | bytes[i];
    return value;
}

/* Reads and parses the header; the caller closes on failure. */
static bool read_header(tool_safetensors *out, tess_text *why)
{
    unsigned char length_bytes[8];
    uint64_t length;
    json_error_t error;
    char *text;
    bool is_read;

    if (!tool_file_read(&out->file, 0, length_bytes, sizeof length_bytes, why))
        return false;
    length = little_endian(length_bytes);
    if (length > LARGEST_HEADER || length > out->file.size - 8) {
        tess_text_add(why,
                      "%s: the header is said to be %" PRIu64
                      " bytes long, but the file has %" PRIu64 " and the format allows %" PRIu64
                      ": damaged, or not safetensors",
                      out->file.path, length, out->file.size, LARGEST_HEADER);
        return false;
    }
    text = malloc((size_t)length + 1);
    if (!text) {
        tess_text_add(why, "no memory for a header of %" PRIu64 " bytes", length);
        return false;
    }
    is_read = tool_file_read(&out->file, 8, text, (size_t)length, why);
    if (is_read) {
        out->header = json_loadb(text, (size_t)length, JSON_REJECT_DUPLICATES, &error);
        if (!out->header)
            tess_text_add(why, "%s: header: %s at byte %d", out->file.path, error.text,
                          error.position);
    }
    free(text);
    out->data_start = 8 + length;
    return is_read && out->header;
}

bool tool_safetensors_open(const char *path, tool_safetensors *out, tess_text *why)
{
    char reason[512];
    tess_text inner = tess_text_in(reason, sizeof reason);

    memset(out, 0, sizeof *out);
    if (!tool_file_open(path, &out->file, why))
        return false;
    if (!read_header(out, why)) {
        tool_safetensors_close(out);
        return false;
    }
    if (!check_header(out->header, out->file.size - out->data_start, &inner)) {
        tess_text_add(why, "%s: %s", path, reason);
        tool_safetensors_close(out);
        return false;
    }
    return true;
}

void tool_safetensors_close(tool_safetensors *safetensors)
{
    tool_file_close(&safetensors->file);
    json_decref(safetensors->header);
    safetensors->header = NULL;
}

bool tool_safetensors_has(const tool_safetensors *safetensors, const char *name)
{
    return strcmp(name, METADATA) != 0 && json_object_get(safetensors->header, name);
}

const char *tool_safetensors_note(const tool_safetensors *safetensors, const char *key)
{
    return json_string_value(json_object_get(json_object_get(safetensors->header, METADATA), key));
}

static bool refuse_absent(const tool_safetensors *safetensors, const char *name, tess_text *why)
{
    const char *other;
    json_t *value;
    int listed = 0;

    tess_text_add(why, "%s: has no tensor \"%s\"; its tensors are", safetensors->file.path, name);
    json_object_foreach(safetensors->header, other, value)
    {
        char shown[64];

        if (strcmp(other, METADATA) == 0)
            continue;
        if (++listed > 20) {
            tess_text_add(why, ", and more");
            break;
        }
        tess_text_add(why, listed == 1 ? " %s" : ", %s",
                      tool_printable(other, shown, sizeof shown));
    }
    if (!listed)
        tess_text_add(why, " none");
    return false;
}

bool tool_safetensors_read(const tool_safetensors *safetensors, const char *name,
                           tool_tensor *out_tensor, tess_text *why)
{
    const json_t *const value = json_object_get(safetensors->header, name);
    const char *const type_name = json_string_value(json_object_get(value, "dtype"));
    const char *const path = safetensors->file.path;
    entry e;

    memset(out_tensor, 0, sizeof *out_tensor);
    if (!tool_safetensors_has(safetensors, name))
        return refuse_absent(safetensors, name, why);
    if (!read_entry(name, value, UINT64_MAX, &e, why))
        return false; /* cannot be: the header was checked when the file was opened */
    if (!e.type || e.type->dtype == TESS_DTYPE_NONE || e.rank > TOOL_RANK) {
        char shown[64];

        tess_text_add(why,
                      "%s: tensor \"%s\" is %s of %s%d axes; F32, F16, BF16, F8_E4M3, F8_E5M2, and "
                      "I32 or I64 for lengths, of up to %d axes can be read",
                      path, name, tool_printable(type_name, shown, sizeof shown),
                      e.rank > TOOL_RANK ? "more than " : "",
                      e.rank > TOOL_RANK ? TOOL_RANK : e.rank, TOOL_RANK);
        return false;
    }
    snprintf(out_tensor->name, sizeof out_tensor->name, "%s", name);
    out_tensor->dtype = e.type->dtype;
    out_tensor->rank = e.rank;
    memcpy(out_tensor->shape, e.shape, sizeof e.shape);
    tool_tensor_strides(out_tensor, false);
    out_tensor->size = (size_t)(e.end - e.begin);
    out_tensor->data = malloc(out_tensor->size ? out_tensor->size : 1);
    if (!out_tensor->data) {
        tess_text_add(why, "no memory for tensor \"%s\" of %zu bytes", name, out_tensor->size);
        return false;
    }
    if (!tool_file_read(&safetensors->file, safetensors->data_start + e.begin, out_tensor->data,
                        out_tensor->size, why)) {
        tool_tensor_release(out_tensor);
        return false;
    }
    return true;
}

/* ---- Writing --------------------------------------------------------------------------------- */

static json_t *header_of(const tool_tensor *const *tensors, size_t count, json_t *notes)
{
    json_t *header = json_object();
    uint64_t offset = 0;

    if (notes)
        (void)json_object_set(header, METADATA, notes);
    for (size_t i = 0; i < count; i++) {
        const uint64_t end = offset + tensors[i]->size;
        json_t *shape = json_array();
        const char *type_name = "";

        for (int axis = 0; axis < tensors[i]->rank; axis++)
            (void)json_array_append_new(shape, json_integer(tensors[i]->shape[axis]));
        for (int t = 0; t < TYPE_COUNT; t++)
            if (types[t].dtype == tensors[i]->dtype)
                type_name = types[t].name;
        (void)json_object_set_new(header, tensors[i]->name,
                                  json_pack("{s:s, s:o, s:[I,I]}", "dtype", type_name, "shape",
                                            shape, "data_offsets", (json_int_t)offset,
                                            (json_int_t)end));
        offset = end;
    }
    return header;
}

bool tool_safetensors_write(const char *path, const tool_tensor *const *tensors, size_t count,
                            json_t *notes, tess_text *why)
{
    json_t *header = header_of(tensors, count, notes);
    char *text = header ? json_dumps(header, JSON_COMPACT) : NULL;
    tool_writer writer;
    unsigned char length_bytes[8];
    size_t length, padded;

    json_decref(header);
    if (!text) {
        tess_text_add(why, "%s: no memory for its header", path);
        return false;
    }
    if (!tool_writer_open(path, &writer, why)) {
        free(text);
        return false;
    }
    length = strlen(text);
    padded = (length + 7) / 8 * 8; /* blanks at the end keep the data aligned */
    for (int i = 0; i < 8; i++)
        length_bytes[i] = (unsigned char)((uint64_t)padded >> 8 * i);
    tool_writer_put(&writer, length_bytes, sizeof length_bytes);
    tool_writer_put(&writer, text, length);
    tool_writer_put(&writer, "       ", padded - length);
    for (size_t i = 0; i < count; i++)
        tool_writer_put(&writer, tensors[i]->data, tensors[i]->size);
    free(text);
    return tool_writer_finish(&writer, why);
}
