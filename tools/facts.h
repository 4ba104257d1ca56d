/* SPDX-License-Identifier: Apache-2.0
 * What is known of a device and of the library, as JSON. */
#ifndef TESSERA_TOOLS_FACTS_H
#define TESSERA_TOOLS_FACTS_H

#include "tools/json.h"

#include <tessera/tessera.h>

json_t *tool_device_json(const tess_device_info *info);

/* Version of the library, and the compiler that has built this command. */
json_t *tool_library_json(void);

#endif
