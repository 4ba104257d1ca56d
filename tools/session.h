/* SPDX-License-Identifier: Apache-2.0
 * An open device for one run of the command, and the kernels that --kernel names. */
#ifndef TESSERA_TOOLS_SESSION_H
#define TESSERA_TOOLS_SESSION_H

#include "core/runtime/objects.h"
#include "tools/tool.h"

#include <stdbool.h>

typedef struct tool_session {
    tess_context *context;
    tess_device *device;
    tess_queue *queue;
    tess_device_info info;
} tool_session;

/* Opens a context, a device (NULL: the library's choice) and a queue.
 *
 * glob  NULL: any kernel; else kernels whose name matches, as TESSERA_KERNEL does; complains when
 *       the device has none
 *
 * Returns TOOL_OK, or another exit code after a complaint; nothing is left open then. */
int tool_session_open(tool_session *session, const char *device, const char *glob);
void tool_session_close(tool_session *session);

/* From here on plans may use kernels of this name or pattern only; NULL or "" for any. */
void tool_session_restrict(tool_session *session, const char *glob);

/* Collects the device's kernels for a pass whose name matches glob.
 *
 * kernels  room for `most` addresses of static records
 *
 * Returns how many there are, at most `most`. */
size_t tool_session_kernels(const tool_session *session, int32_t pass, const char *glob,
                            const tess_kernel **kernels, size_t most);

/* Appends the names of all kernels of the device that look like glob, or of all when none does. */
void tool_session_suggest(const tool_session *session, const char *glob, tess_text *out_text);

#endif
