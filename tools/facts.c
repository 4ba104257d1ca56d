/* SPDX-License-Identifier: Apache-2.0
 * What is known of a device and of the library, as JSON. */
#include "tools/facts.h"

static const char *kind_name(tess_device_kind kind)
{
    return kind == TESS_DEVICE_CPU ? "cpu" : kind == TESS_DEVICE_GPU ? "gpu" : "other";
}

json_t *tool_device_json(const tess_device_info *info)
{
    json_t *object = json_object();

    tool_json_set(object, "name", tool_json_text(info->name));
    tool_json_set(object, "kind", json_string(kind_name(info->kind)));
    tool_json_set(object, "available", json_boolean(info->available));
    tool_json_set(object, "reason", info->available ? json_null() : tool_json_text(info->reason));
    tool_json_set(object, "description", tool_json_text(info->description));
    tool_json_set(object, "architecture", tool_json_text(info->architecture));
    tool_json_set(object, "driver", info->driver ? json_integer(info->driver) : json_null());
    tool_json_set(object, "units", json_integer(info->units));
    tool_json_set(object, "lanes", json_integer(info->lanes));
    tool_json_set(object, "memory", json_integer(info->memory));
    tool_json_set(object, "shared_memory", json_integer(info->shared_memory));
    tool_json_set(object, "cache", json_integer(info->cache));
    return object;
}

json_t *tool_library_json(void)
{
    char version[40];
    json_t *object = json_object();

    snprintf(version, sizeof version, "%d.%d.%d", TESS_VERSION_MAJOR, TESS_VERSION_MINOR,
             TESS_VERSION_PATCH);
    tool_json_set(object, "version", json_string(version));
    tool_json_set(object, "compiler", tool_json_text(__VERSION__));
    return object;
}
