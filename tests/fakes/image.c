/* SPDX-License-Identifier: Apache-2.0
 * Reading the images that real drivers get: cubins, PTX, AMD code objects with their metadata. */
#include "tests/fakes/engine.h"

#include <elf.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MACHINE_CUDA = 190, MACHINE_AMDGPU = 224 };

static fake_kernel *add_kernel(fake_image *image, const char *name, size_t length)
{
    fake_kernel *k;

    if (image->count == FAKE_KERNELS || length >= FAKE_NAME)
        return NULL;
    k = &image->kernels[image->count++];
    memset(k, 0, sizeof *k);
    memcpy(k->name, name, length);
    return k;
}

/* ---- Text: PTX, and images of tests ---------------------------------------------------------- */

static bool read_ptx(const char *text, fake_image *image)
{
    for (const char *at = text; (at = strstr(at, ".entry ")) != NULL;) {
        at += strlen(".entry ");
        if (!add_kernel(image, at, strcspn(at, "( \n")))
            return false;
    }
    return true;
}

/* "fake NAME NAME ..." */
static bool read_words(const char *text, fake_image *image)
{
    for (text += strlen("fake"); *(text += strspn(text, " ")); text += strcspn(text, " "))
        if (!add_kernel(image, text, strcspn(text, " ")))
            return false;
    return true;
}

/* ---- ELF ------------------------------------------------------------------------------------- */

static uint32_t read_u32(const unsigned char *at)
{
    uint32_t value;

    memcpy(&value, at, sizeof value);
    return value;
}

static uint16_t read_u16(const unsigned char *at)
{
    uint16_t value;

    memcpy(&value, at, sizeof value);
    return value;
}

typedef struct elf {
    const unsigned char *data;
    Elf64_Ehdr header;
} elf;

static Elf64_Shdr section_at(const elf *e, unsigned index)
{
    Elf64_Shdr section;

    memcpy(&section, e->data + e->header.e_shoff + index * e->header.e_shentsize, sizeof section);
    return section;
}

static const char *section_name(const elf *e, const Elf64_Shdr *section)
{
    const Elf64_Shdr names = section_at(e, e->header.e_shstrndx);

    return (const char *)e->data + names.sh_offset + section->sh_name;
}

/* ---- Cubins ---------------------------------------------------------------------------------- */

static fake_kernel *kernel_named(fake_image *image, const char *name)
{
    for (int i = 0; i < image->count; i++)
        if (strcmp(image->kernels[i].name, name) == 0)
            return &image->kernels[i];
    return NULL;
}

/* Attributes of one kernel (.nv.info.NAME): a format, a number, then two bytes of value or of size.
 */
static void read_info(const unsigned char *at, uint64_t size, fake_kernel *k)
{
    enum { SIZED = 4, MAX_THREADS = 0x05, PARAMETER_INFO = 0x17, PARAMETER_BYTES = 0x19 };
    const unsigned char *const end = at + size;

    while (at + 4 <= end) {
        const unsigned value = read_u16(at + 2);
        const unsigned char *const payload = at + 4;

        if (at[1] == PARAMETER_BYTES)
            k->parameter_bytes = value;
        if (at[1] == MAX_THREADS && at[0] == SIZED)
            k->most_threads = read_u32(payload) * read_u32(payload + 4) * read_u32(payload + 8);
        if (at[1] == PARAMETER_INFO && at[0] == SIZED) {
            const unsigned ordinal = read_u16(payload + 4);
            if (ordinal < 8) {
                k->parameter_offset[ordinal] = read_u16(payload + 6);
                k->parameter_size[ordinal] = read_u32(payload + 8) >> 18;
                if (ordinal >= k->parameters)
                    k->parameters = ordinal + 1;
            }
        }
        at = payload + (at[0] == SIZED ? value : 0);
    }
}

static bool read_cubin(const elf *e, fake_image *image)
{
    snprintf(image->architecture, sizeof image->architecture, "sm_%u",
             (unsigned)(e->header.e_flags >> 8 & 0xff));
    for (unsigned i = 0; i < e->header.e_shnum; i++) {
        const Elf64_Shdr s = section_at(e, i);
        const char *name = section_name(e, &s);
        if (strncmp(name, ".text.", 6) == 0 && !add_kernel(image, name + 6, strlen(name + 6)))
            return false;
    }
    for (unsigned i = 0; i < e->header.e_shnum; i++) {
        const Elf64_Shdr s = section_at(e, i);
        const char *name = section_name(e, &s);
        fake_kernel *k;
        if (strncmp(name, ".nv.info.", 9) == 0 && (k = kernel_named(image, name + 9)) != NULL)
            read_info(e->data + s.sh_offset, s.sh_size, k);
        if (strncmp(name, ".nv.shared.", 11) == 0 && (k = kernel_named(image, name + 11)) != NULL)
            k->shared = (unsigned)s.sh_size;
    }
    return true;
}

/* ---- AMD's metadata: MessagePack in a note --------------------------------------------------- */

/* What is left to read; NULL once something was malformed. */
typedef struct pack {
    const unsigned char *at, *end;
} pack;

typedef enum pack_type { PACK_NUMBER, PACK_TEXT, PACK_ARRAY, PACK_MAP, PACK_OTHER } pack_type;

typedef struct pack_item {
    pack_type type;
    uint64_t count; /* the number, or elements, or bytes of text */
    const char *text;
} pack_item;

static uint64_t take_big_endian(pack *p, int bytes)
{
    uint64_t value = 0;

    if (!p->at || p->end - p->at < bytes) {
        p->at = NULL;
        return 0;
    }
    for (int i = 0; i < bytes; i++)
        value = value << 8 | *p->at++;
    return value;
}

static pack_item take_text(pack *p, uint64_t length)
{
    pack_item item = {PACK_TEXT, length, (const char *)p->at};

    if (!p->at || (uint64_t)(p->end - p->at) < length)
        p->at = NULL;
    else
        p->at += length;
    return item;
}

/* The next item; the elements of an array or a map follow it. */
static pack_item take(pack *p)
{
    const unsigned byte = (unsigned)take_big_endian(p, 1);

    if (byte < 0x80)
        return (pack_item){PACK_NUMBER, byte, NULL};
    if (byte < 0x90)
        return (pack_item){PACK_MAP, byte & 15, NULL};
    if (byte < 0xa0)
        return (pack_item){PACK_ARRAY, byte & 15, NULL};
    if (byte < 0xc0)
        return take_text(p, byte & 31);
    if (byte >= 0xcc && byte <= 0xcf)
        return (pack_item){PACK_NUMBER, take_big_endian(p, 1 << (byte - 0xcc)), NULL};
    if (byte >= 0xd9 && byte <= 0xdb)
        return take_text(p, take_big_endian(p, 1 << (byte - 0xd9)));
    if (byte == 0xdc || byte == 0xdd)
        return (pack_item){PACK_ARRAY, take_big_endian(p, byte == 0xdc ? 2 : 4), NULL};
    if (byte == 0xde || byte == 0xdf)
        return (pack_item){PACK_MAP, take_big_endian(p, byte == 0xde ? 2 : 4), NULL};
    if (byte >= 0xd0 && byte <= 0xd3)
        take_big_endian(p, 1 << (byte - 0xd0));
    return (pack_item){PACK_OTHER, 0, NULL}; /* nil, true, false, negative numbers */
}

static void skip(pack *p)
{
    const pack_item item = take(p);
    const uint64_t inside = item.type == PACK_MAP     ? 2 * item.count
                            : item.type == PACK_ARRAY ? item.count
                                                      : 0;

    for (uint64_t i = 0; p->at && i < inside; i++)
        skip(p);
}

static bool is_key(const pack_item *key, const char *name)
{
    return key->type == PACK_TEXT && key->count == strlen(name) &&
           memcmp(key->text, name, key->count) == 0;
}

static void read_parameter(pack *p, fake_kernel *k)
{
    const uint64_t members = take(p).count;
    const unsigned index = k->parameters;
    bool is_hidden = false;

    for (uint64_t i = 0; p->at && i < members; i++) {
        const pack_item key = take(p);
        if (is_key(&key, ".offset")) {
            k->parameter_offset[index] = (unsigned)take(p).count;
        } else if (is_key(&key, ".size")) {
            k->parameter_size[index] = (unsigned)take(p).count;
        } else if (is_key(&key, ".value_kind")) {
            const pack_item kind = take(p);
            is_hidden = kind.count > 7 && memcmp(kind.text, "hidden_", 7) == 0;
        } else {
            skip(p);
        }
    }
    k->parameters += !is_hidden && index < 7;
}

static void read_kernel(pack *p, fake_image *image)
{
    const uint64_t members = take(p).count;
    fake_kernel k = {.name = ""};

    for (uint64_t i = 0; p->at && i < members; i++) {
        const pack_item key = take(p);
        if (is_key(&key, ".name")) {
            const pack_item name = take(p);
            snprintf(k.name, sizeof k.name, "%.*s", (int)name.count, name.text);
        } else if (is_key(&key, ".args")) {
            for (uint64_t count = take(p).count; p->at && count > 0; count--)
                read_parameter(p, &k);
        } else if (is_key(&key, ".group_segment_fixed_size")) {
            k.shared = (unsigned)take(p).count;
        } else if (is_key(&key, ".private_segment_fixed_size")) {
            k.private_bytes = (unsigned)take(p).count;
        } else if (is_key(&key, ".max_flat_workgroup_size")) {
            k.most_threads = (unsigned)take(p).count;
        } else {
            skip(p);
        }
    }
    if (p->at && image->count < FAKE_KERNELS)
        image->kernels[image->count++] = k;
}

static bool read_metadata(const unsigned char *data, uint64_t size, fake_image *image)
{
    pack p = {data, data + size};
    const uint64_t members = take(&p).count;

    for (uint64_t i = 0; p.at && i < members; i++) {
        const pack_item key = take(&p);
        if (is_key(&key, "amdhsa.target")) {
            const pack_item target = take(&p);
            const char *chip = memchr(target.text, 'g', target.count);
            for (; chip && strncmp(chip, "gfx", 3) != 0; chip = strchr(chip + 1, 'g'))
                continue;
            if (chip)
                snprintf(image->architecture, sizeof image->architecture, "%.*s",
                         (int)(target.text + target.count - chip), chip);
            image->architecture[strcspn(image->architecture, ":")] = '\0';
        } else if (is_key(&key, "amdhsa.kernels")) {
            for (uint64_t count = take(&p).count; p.at && count > 0; count--)
                read_kernel(&p, image);
        } else {
            skip(&p);
        }
    }
    return p.at != NULL;
}

/* The note of type 32 that AMDGPU owns. */
static bool read_code_object(const elf *e, fake_image *image)
{
    for (unsigned i = 0; i < e->header.e_phnum; i++) {
        Elf64_Phdr segment;
        const unsigned char *at, *end;

        memcpy(&segment, e->data + e->header.e_phoff + i * e->header.e_phentsize, sizeof segment);
        if (segment.p_type != PT_NOTE)
            continue;
        at = e->data + segment.p_offset;
        for (end = at + segment.p_filesz; at + 12 <= end;) {
            const uint32_t name = (read_u32(at) + 3) & ~3u, size = read_u32(at + 4);
            if (read_u32(at + 8) == 32 && memcmp(at + 12, "AMDGPU", 7) == 0)
                return read_metadata(at + 12 + name, size, image);
            at += 12 + name + ((size + 3) & ~3u);
        }
    }
    return false;
}

static bool read_elf(const unsigned char *data, fake_image *image)
{
    elf e = {.data = data};

    memcpy(&e.header, data, sizeof e.header);
    return e.header.e_machine == MACHINE_CUDA     ? read_cubin(&e, image)
           : e.header.e_machine == MACHINE_AMDGPU ? read_code_object(&e, image)
                                                  : false;
}

bool fake_image_read(const void *data, fake_image *out_image)
{
    const char *text = data;
    bool is_read;

    if (memcmp(text, ELFMAG, SELFMAG) == 0)
        is_read = read_elf(data, out_image);
    else if (strncmp(text, "fake", 4) == 0)
        is_read = read_words(text, out_image);
    else
        is_read = strstr(text, ".target sm_") && read_ptx(text, out_image);
    if (!is_read)
        fake_complain(0, "an image is neither a cubin, nor PTX, nor a code object, or malformed");
    return is_read;
}
