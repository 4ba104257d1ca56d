/* SPDX-License-Identifier: Apache-2.0
 * A C++ program, which has no designated initialisers before C++20: structs are zeroed, then set.
 */
#include <cmath>
#include <cstdio>
#include <tessera/tessera.h>
#include <vector>

namespace
{

tess_context *context = nullptr;

bool need(tess_status status)
{
    char text[512] = "";

    if (status == TESS_OK)
        return true;
    tess_context_error(context, text, sizeof text);
    std::fprintf(stderr, "%s: %s\n", tess_status_name(status), text);
    return false;
}

/* Every value is 1, so whatever the weights are, so is every output. */
bool run(tess_device *device, tess_queue *queue)
{
    const tess_layout shape = tess_layout_packed(TESS_F32, 1, 5, 2, 16);
    std::vector<float> q(160, 0.5f), k(160, 0.25f), v(160, 1.0f), o(160, 0.0f);
    tess_plan *plan = nullptr;

    tess_attention_desc desc = tess_attention_desc();
    desc.struct_size = sizeof desc;
    desc.q = desc.k = desc.v = desc.o = shape;
    desc.mask = TESS_MASK_CAUSAL | TESS_MASK_TOP_LEFT;

    tess_forward_args args = {};
    args.struct_size = sizeof args;
    args.q.base = q.data();
    args.k.base = k.data();
    args.v.base = v.data();
    args.o.base = o.data();

    bool is_right = need(tess_plan_create_forward(device, &desc, &plan)) &&
                    need(tess_plan_run_forward(plan, queue, &args)) && need(tess_queue_wait(queue));
    tess_plan_destroy(plan);
    for (float element : o)
        is_right = is_right && std::fabs(element - 1.0f) < 1e-6f;
    return is_right;
}

} // namespace

int main()
{
    tess_device *device = nullptr;
    tess_queue *queue = nullptr;

    tess_context_desc desc = {};
    desc.struct_size = sizeof desc;
    const bool is_right = need(tess_context_create(&desc, &context)) &&
                          need(tess_device_open(context, "cpu", &device)) &&
                          need(tess_queue_create(device, &queue)) && run(device, queue);
    tess_queue_destroy(queue);
    tess_context_destroy(context);
    return is_right ? 0 : 1;
}
