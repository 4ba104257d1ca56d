/* SPDX-License-Identifier: Apache-2.0
 * A case's tensors on a device, and the arguments that name them. */
#include "tests/kit/case.h"

#include "core/runtime/objects.h"
#include "tests/kit/number.h"

#include <stdlib.h>
#include <string.h>

/* Behind index arrays a device sees a number that is too large for everything instead of canaries:
 * a kernel that reads one element too many then does something visible. */
#define INDEX_CANARY 0x7FFFFFF0

static bool fail_from(tess_text *why, const char *what, const char *tensor)
{
    char text[256];

    tess_context_error(NULL, text, sizeof text);
    tess_text_add(why, "%s of %s failed: %s", what, tensor, text);
    return false;
}

static bool is_index(const tess_tensor *t)
{
    return t->layout.dtype == TESS_I32 || t->layout.dtype == TESS_I64;
}

static void write_tail(const tess_tensor *t, char *tail)
{
    const int32_t word = INDEX_CANARY;

    if (!is_index(t)) {
        tess_canary_write(tail, TESS_CANARY);
        return;
    }
    for (size_t i = 0; i < TESS_CANARY; i += sizeof word)
        memcpy(tail + i, &word, sizeof word);
}

/* Copies a sparse tensor row by row, between its buffer and the same place on the device. The gaps
 * are never copied: they are what makes it too large to. */
static bool copy_rows(const tess_tensor *t, tess_queue *queue, bool is_upload)
{
    const tess_layout *l = &t->layout;
    const int64_t run = l->dim_stride == 1 ? l->head_dim : 1;
    const size_t size = (size_t)run * t->element_size;
    tess_status status = TESS_OK;

    for (int64_t b = 0; b < l->batch; b++)
        for (int64_t s = 0; s < l->seqlen; s++)
            for (int64_t h = 0; h < l->heads; h++)
                for (int64_t d = 0; d < l->head_dim && status == TESS_OK; d += run) {
                    char *host = tess_case_element(t, b, s, h, d);
                    char *device = (char *)t->device + TESS_CANARY + (host - t->buffer.data);

                    status = is_upload ? tess_queue_upload(queue, device, host, size)
                                       : tess_queue_download(queue, host, device, size);
                }
    return status == TESS_OK;
}

/* The image of a tensor on a device: canaries, the buffer, canaries. */
static bool upload(tess_tensor *t, tess_queue *queue, tess_text *why)
{
    char *image;
    tess_status status;

    if (t->buffer.is_sparse)
        return copy_rows(t, queue, true) ? true : fail_from(why, "upload", t->name);
    image = malloc(t->device_size);
    if (!image) {
        tess_text_add(why, "no host memory to stage %s", t->name);
        return false;
    }
    tess_canary_write(image, TESS_CANARY);
    memcpy(image + TESS_CANARY, t->buffer.data, t->buffer.size);
    write_tail(t, image + TESS_CANARY + t->buffer.size);
    status = tess_queue_upload(queue, t->device, image, t->device_size);
    free(image);
    return status == TESS_OK ? true : fail_from(why, "upload", t->name);
}

bool tess_case_upload(tess_case *c, tess_device *device, tess_queue *queue, tess_text *why)
{
    tess_device_info info = {TESS_STRUCT(tess_device_info)};

    if (tess_device_get_info(device, &info) != TESS_OK)
        return fail_from(why, "tess_device_get_info()", "the device");
    c->is_on_host = strcmp(info.name, "cpu") == 0;
    if (c->is_on_host)
        return true; /* guard pages do more than copies could */
    for (int i = 0; i < TESS_CASE_TENSORS; i++) {
        tess_tensor *t = &c->tensor[i];

        if (!t->is_present)
            continue;
        if (t->buffer.is_sparse && strncmp(info.name, "opencl", 6) == 0) {
            tess_text_add(why, "%s spans %zu bytes, which a buffer object cannot hold sparsely",
                          t->name, t->buffer.size);
            return false;
        }
        t->device_size = t->buffer.size + 2 * TESS_CANARY;
        if (tess_device_allocate(device, t->device_size, &t->device) != TESS_OK)
            return fail_from(why, "allocation", t->name);
        if (!upload(t, queue, why))
            return false;
    }
    return true;
}

void tess_case_drop(tess_case *c, tess_device *device)
{
    for (int i = 0; i < TESS_CASE_TENSORS; i++) {
        tess_tensor *t = &c->tensor[i];

        tess_device_release(device, t->device, t->device_size);
        t->device = NULL;
    }
}

bool tess_case_reset(tess_case *c, tess_queue *queue, tess_text *why)
{
    tess_case_prefill(c);
    for (int i = 0; i < TESS_CASE_TENSORS; i++) {
        tess_tensor *t = &c->tensor[i];

        if (t->is_present && t->is_output && t->device && !upload(t, queue, why))
            return false;
    }
    return true;
}

static bool download(tess_tensor *t, tess_queue *queue, tess_text *why)
{
    char *image, tail[TESS_CANARY];
    bool is_intact;

    if (t->buffer.is_sparse)
        return copy_rows(t, queue, false) ? true : fail_from(why, "download", t->name);
    image = malloc(t->device_size);
    if (!image) {
        tess_text_add(why, "no host memory to fetch %s", t->name);
        return false;
    }
    if (tess_queue_download(queue, image, t->device, t->device_size) != TESS_OK) {
        free(image);
        return fail_from(why, "download", t->name);
    }
    write_tail(t, tail);
    is_intact = tess_canary_holds(image, TESS_CANARY) &&
                memcmp(image + TESS_CANARY + t->buffer.size, tail, TESS_CANARY) == 0;
    memcpy(t->buffer.data, image + TESS_CANARY, t->buffer.size);
    free(image);
    if (!is_intact)
        tess_text_add(why, "memory beside %s was overwritten on the device\n", t->name);
    return is_intact;
}

bool tess_case_download(tess_case *c, tess_queue *queue, tess_text *why)
{
    bool is_good = true;

    if (tess_queue_wait(queue) != TESS_OK)
        return fail_from(why, "tess_queue_wait()", "the run");
    for (int i = 0; i < TESS_CASE_TENSORS; i++) {
        tess_tensor *t = &c->tensor[i];

        if (t->is_present && t->device)
            is_good = download(t, queue, why) && is_good;
        if (t->is_present && !tess_buffer_is_intact(&t->buffer)) {
            tess_text_add(why, "memory in front of %s was overwritten\n", t->name);
            is_good = false;
        }
    }
    return is_good;
}

/* ---- Arguments ------------------------------------------------------------------------------- */

static tess_out where(const tess_tensor *t, bool on_host)
{
    const int64_t offset = t->origin * (int64_t)t->element_size;

    if (!t->is_present)
        return (tess_out){NULL, 0};
    if (!on_host && t->device)
        return (tess_out){t->device, TESS_CANARY + offset};
    if (t->buffer.size == 0 && t->is_folded)
        return (tess_out){NULL, 0}; /* what has no element needs no address */
    if (t->is_folded)
        return (tess_out){t->buffer.data + offset, 0};
    return (tess_out){t->buffer.data, offset};
}

static tess_in source(const tess_tensor *t, bool on_host)
{
    const tess_out out = where(t, on_host);

    return (tess_in){out.base, out.offset};
}

static tess_forward_args forward_args(const tess_case *c, bool on_host, bool wants_lse)
{
    const tess_tensor *t = c->tensor;
    tess_forward_args a = {TESS_STRUCT(tess_forward_args)};

    a.q = source(&t[TESS_CASE_Q], on_host);
    a.k = source(&t[TESS_CASE_K], on_host);
    a.v = source(&t[TESS_CASE_V], on_host);
    a.o = where(&t[TESS_CASE_O], on_host);
    if (wants_lse)
        a.lse = where(&t[TESS_CASE_LSE], on_host);
    a.cu_seqlens_q = source(&t[TESS_CASE_CU_Q], on_host);
    a.cu_seqlens_k = source(&t[TESS_CASE_CU_K], on_host);
    a.seqused_q = source(&t[TESS_CASE_USED_Q], on_host);
    a.seqused_k = source(&t[TESS_CASE_USED_K], on_host);
    a.page_table = source(&t[TESS_CASE_TABLE], on_host);
    a.bias = source(&t[TESS_CASE_BIAS], on_host);
    a.alibi_slopes = source(&t[TESS_CASE_SLOPES], on_host);
    a.sink = source(&t[TESS_CASE_SINK], on_host);
    return a;
}

tess_forward_args tess_case_forward_args(const tess_case *c, bool wants_lse)
{
    return forward_args(c, false, wants_lse);
}

tess_forward_args tess_case_host_forward_args(const tess_case *c)
{
    return forward_args(c, true, true);
}

static tess_backward_args backward_args(const tess_case *c, bool on_host)
{
    const tess_forward_args f = forward_args(c, on_host, true);
    const tess_tensor *t = c->tensor;
    tess_backward_args a = {TESS_STRUCT(tess_backward_args)};

    a.q = f.q;
    a.k = f.k;
    a.v = f.v;
    a.o = source(&t[TESS_CASE_O], on_host);
    a.lse = source(&t[TESS_CASE_LSE], on_host);
    a.d_o = source(&t[TESS_CASE_D_O], on_host);
    a.d_lse = source(&t[TESS_CASE_D_LSE], on_host);
    a.cu_seqlens_q = f.cu_seqlens_q;
    a.cu_seqlens_k = f.cu_seqlens_k;
    a.seqused_q = f.seqused_q;
    a.seqused_k = f.seqused_k;
    a.page_table = f.page_table;
    a.bias = f.bias;
    a.alibi_slopes = f.alibi_slopes;
    a.sink = f.sink;
    a.dq = where(&t[TESS_CASE_DQ], on_host);
    a.dk = where(&t[TESS_CASE_DK], on_host);
    a.dv = where(&t[TESS_CASE_DV], on_host);
    a.dbias = where(&t[TESS_CASE_DBIAS], on_host);
    a.dalibi_slopes = where(&t[TESS_CASE_DSLOPES], on_host);
    a.dsink = where(&t[TESS_CASE_DSINK], on_host);
    return a;
}

tess_backward_args tess_case_backward_args(const tess_case *c)
{
    return backward_args(c, false);
}

tess_backward_args tess_case_host_backward_args(const tess_case *c)
{
    return backward_args(c, true);
}

/* ---- The pass before ------------------------------------------------------------------------- */

static tess_status plan_forward(const tess_case *c, tess_device *device, tess_plan **out_plan)
{
    char *const name = device->context->env.kernel;
    char before[TESS_ENV_SIZE];
    tess_status status = tess_plan_create_forward(device, &c->desc, out_plan);

    if (status != TESS_UNSUPPORTED || name[0] == '\0')
        return status;
    memcpy(before, name, sizeof before);
    name[0] = '\0';
    status = tess_plan_create_forward(device, &c->desc, out_plan);
    memcpy(name, before, sizeof before);
    return status;
}

tess_status tess_case_run_forward(tess_case *c, tess_device *device, tess_queue *queue,
                                  tess_text *why)
{
    const tess_forward_args args = tess_case_forward_args(c, true);
    tess_plan *plan = NULL;
    tess_status status = plan_forward(c, device, &plan);

    c->tensor[TESS_CASE_O].is_output = c->tensor[TESS_CASE_LSE].is_output = true;
    if (status == TESS_OK && !tess_case_reset(c, queue, why))
        status = TESS_INTERNAL;
    if (status == TESS_OK)
        status = tess_plan_run_forward(plan, queue, &args);
    if (status == TESS_OK)
        status = tess_queue_wait(queue);
    if (status != TESS_OK)
        fail_from(why, "the forward pass", "this line");
    else if (!tess_case_download(c, queue, why))
        status = TESS_INTERNAL;
    tess_plan_destroy(plan);
    if (status == TESS_OK)
        tess_case_keep_outputs(c);
    return status;
}
