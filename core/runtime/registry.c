/* SPDX-License-Identifier: Apache-2.0
 * Backends by name: what was compiled in, what a context allows, which device a name means. */
#include "core/runtime/registry.h"

#include <assert.h>
#include <string.h>

enum { MOST_BACKENDS = 16, MOST_NAME = 64 };

const tess_backend *tess_registry_find(const char *device_name, const char **out_rest)
{
    const size_t length = strcspn(device_name, ":");
    size_t count;
    const tess_backend *const *backends = tess_registry(&count);

    if (device_name[length] == ':' && device_name[length + 1] == '\0')
        return NULL;
    for (size_t i = 0; i < count; i++) {
        if (strlen(backends[i]->name) == length &&
            strncmp(backends[i]->name, device_name, length) == 0) {
            *out_rest =
                device_name[length] == ':' ? device_name + length + 1 : device_name + length;
            return backends[i];
        }
    }
    return NULL;
}

void tess_registry_write(tess_text *out_text)
{
    size_t count;
    const tess_backend *const *backends = tess_registry(&count);

    for (size_t i = 0; i < count; i++)
        tess_text_add(out_text, "%s%s",
                      i == 0          ? ""
                      : i + 1 < count ? ", "
                                      : " or ",
                      backends[i]->name);
}

const char *tess_registry_nearest(const char *word)
{
    const char *names[MOST_BACKENDS];
    size_t count;
    const tess_backend *const *backends = tess_registry(&count);

    assert(count <= MOST_BACKENDS);
    for (size_t i = 0; i < count; i++)
        names[i] = backends[i]->name;
    return tess_text_nearest(word, names, count);
}

bool tess_list_at(const char *list, size_t index, char *out_name, size_t size)
{
    size_t length;

    for (; index > 0; index--) {
        list = strchr(list, ',');
        if (!list)
            return false;
        list++;
    }
    list += strspn(list, " ");
    length = strcspn(list, ",");
    while (length > 0 && list[length - 1] == ' ')
        length--;
    if (length >= size)
        length = size - 1;
    memcpy(out_name, list, length);
    out_name[length] = '\0';
    return true;
}

bool tess_registry_is_elsewhere(const char *device_name)
{
    static const char *const names[] = {"cuda", "hip", "opencl"};
    const size_t length = strcspn(device_name, ":");
    const char *rest;

    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        if (strlen(names[i]) == length && strncmp(names[i], device_name, length) == 0)
            return !tess_registry_find(device_name, &rest);
    return false;
}

tess_status tess_registry_check_list(const tess_host *host, const char *call, const char *what,
                                     const char *list)
{
    char name[MOST_NAME], word[MOST_NAME], known[256];
    const char *const verb = strchr(list, ',') ? "names" : "is";
    const char *rest, *nearest;
    tess_text text = tess_text_in(known, sizeof known);

    for (size_t i = 0; tess_list_at(list, i, name, sizeof name); i++) {
        if (tess_registry_find(name, &rest) || tess_registry_is_elsewhere(name))
            continue;
        tess_registry_write(&text);
        memcpy(word, name, sizeof word);
        word[strcspn(word, ":")] = '\0'; /* the number behind it is not what was mistyped */
        nearest = tess_registry_nearest(word);
        return tess_fail(host, TESS_INVALID, "%s: %s %s \"%s\"; it takes %s%s%s%s", call, what,
                         verb, name, known, nearest ? " (did you mean " : "",
                         nearest ? nearest : "", nearest ? "?)" : "");
    }
    return TESS_OK;
}

/* The `index`-th of the backends that an allow list names and this build has; NULL past the end. */
static const tess_backend *listed_at(const char *list, size_t index)
{
    char name[MOST_NAME];
    const char *rest;

    for (size_t i = 0; tess_list_at(list, i, name, sizeof name); i++) {
        const tess_backend *backend = tess_registry_find(name, &rest);
        if (backend && index-- == 0)
            return backend;
    }
    return NULL;
}

/* Its first place in an allow list; false when it is not there. */
static bool is_listed(const char *list, const tess_backend *backend, size_t *out_index)
{
    const tess_backend *listed;

    for (size_t i = 0; (listed = listed_at(list, i)) != NULL; i++) {
        if (listed == backend) {
            *out_index = i;
            return true;
        }
    }
    return false;
}

bool tess_registry_allows(const tess_context *context, const tess_backend *backend)
{
    size_t ignored;
    return !context->backends[0] || is_listed(context->backends, backend, &ignored);
}

const tess_backend *tess_registry_at(const tess_context *context, size_t index)
{
    const char *const list = context->backends;
    const tess_backend *listed;
    size_t first, count;
    const tess_backend *const *backends = tess_registry(&count);

    for (size_t i = 0; list[0] && (listed = listed_at(list, i)) != NULL; i++)
        if (is_listed(list, listed, &first) && first == i && index-- == 0)
            return listed;
    for (size_t i = 0; i < count; i++)
        if ((!list[0] || !is_listed(list, backends[i], &first)) && index-- == 0)
            return backends[i];
    return NULL;
}
