/* SPDX-License-Identifier: Apache-2.0
 * The whole of a program that computes attention: context, device, queue, plan, run. */
#include <stdio.h>
#include <stdlib.h>
#include <tessera/tessera.h>

static tess_context *context;

static void need(tess_status status)
{
    char text[512];
    if (status == TESS_OK)
        return;
    tess_context_error(context, text, sizeof text);
    fprintf(stderr, "%s\n", text);
    exit(1);
}

int main(void)
{
    enum { BATCH = 1, ROWS = 128, HEADS = 4, DIM = 64, COUNT = BATCH * ROWS * HEADS * DIM };
    static float q[COUNT], k[COUNT], v[COUNT], o[COUNT];
    tess_device *device;
    tess_queue *queue;
    tess_plan *plan;

    for (int i = 0; i < COUNT; i++) {
        q[i] = (float)(i % 7);
        k[i] = (float)(i % 5);
        v[i] = (float)(i % 3);
    }
    need(tess_context_create(NULL, &context));
    need(tess_device_open(context, NULL, &device)); /* TESSERA_BACKEND, else the best there is */
    need(tess_queue_create(device, &queue));

    const tess_layout shape = tess_layout_packed(TESS_F32, BATCH, ROWS, HEADS, DIM);
    const tess_attention_desc desc = {
        TESS_STRUCT(tess_attention_desc), .q = shape, .k = shape, .v = shape, .o = shape,
        .mask = TESS_MASK_CAUSAL};
    const tess_forward_args args = {TESS_STRUCT(tess_forward_args), .q.base = q, .k.base = k,
                                    .v.base = v, .o.base = o};
    need(tess_plan_create_forward(device, &desc, &plan));
    need(tess_plan_run_forward(plan, queue, &args));
    need(tess_queue_wait(queue));
    printf("o[last] = %f\n", (double)o[COUNT - 1]);

    tess_plan_destroy(plan);
    tess_queue_destroy(queue);
    tess_context_destroy(context);
    return 0;
}
