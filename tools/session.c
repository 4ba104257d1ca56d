/* SPDX-License-Identifier: Apache-2.0
 * An open device for one run of the command, and the kernels that --kernel names. */
#include "tools/session.h"

#include <stdio.h>
#include <string.h>

/* More kernels than any backend has; a name list longer than this is no help anyway. */
enum { MOST_KERNELS = 512 };

size_t tool_session_kernels(const tool_session *session, int32_t pass, const char *glob,
                            const tess_kernel **kernels, size_t most)
{
    size_t total, count = 0;
    const tess_kernel *const all = session->device->backend->kernels(&total);

    for (size_t i = 0; i < total && count < most; i++)
        if (all[i].pass == pass && (!glob || tess_text_glob(glob, all[i].name)))
            kernels[count++] = &all[i];
    return count;
}

void tool_session_suggest(const tool_session *session, const char *glob, tess_text *out_text)
{
    const char *names[MOST_KERNELS], *nearest;
    size_t count;
    const tess_kernel *const all = session->device->backend->kernels(&count);

    if (count > MOST_KERNELS)
        count = MOST_KERNELS;
    for (size_t i = 0; i < count; i++)
        names[i] = all[i].name;
    nearest = tess_text_nearest(glob, names, count);
    if (nearest)
        tess_text_add(out_text, "; did you mean %s?", nearest);
    tess_text_add(out_text, "%s kernels of %s are", nearest ? " The" : "; the",
                  session->device->name);
    for (size_t i = 0; i < count; i++)
        tess_text_add(out_text, " %s", names[i]);
}

/* A pattern that names no kernel at all is a typing mistake, not a refusal. */
static int check_glob(const tool_session *session, const char *glob)
{
    const tess_kernel *one;
    static char list[8192];
    tess_text text = tess_text_in(list, sizeof list);

    if (!glob || tool_session_kernels(session, TESS_PASS_FORWARD, glob, &one, 1) ||
        tool_session_kernels(session, TESS_PASS_BACKWARD, glob, &one, 1))
        return TOOL_OK;
    tool_session_suggest(session, glob, &text);
    return tool_fail(TOOL_USAGE, "--kernel is \"%s\", which no kernel matches%s", glob, list);
}

int tool_session_open(tool_session *session, const char *device, const char *glob)
{
    tess_status status;
    int result;

    memset(session, 0, sizeof *session);
    status = tess_context_create(NULL, &session->context);
    if (status == TESS_OK)
        status = tess_device_open(session->context, device, &session->device);
    if (status == TESS_OK)
        status = tess_queue_create(session->device, &session->queue);
    session->info.struct_size = sizeof session->info;
    if (status == TESS_OK)
        status = tess_device_get_info(session->device, &session->info);
    result =
        status == TESS_OK ? check_glob(session, glob) : tool_fail_library(session->context, status);
    if (result != TOOL_OK)
        tool_session_close(session);
    else if (glob)
        tool_session_restrict(session, glob);
    return result;
}

void tool_session_close(tool_session *session)
{
    tess_queue_destroy(session->queue);
    tess_context_destroy(session->context);
    memset(session, 0, sizeof *session);
}

void tool_session_restrict(tool_session *session, const char *glob)
{
    /* The very place TESSERA_KERNEL is read into: the command is inside the library's walls, and
     * one context serves several kernels so. Nothing else runs on this context meanwhile. */
    snprintf(session->context->env.kernel, sizeof session->context->env.kernel, "%s",
             glob ? glob : "");
}
