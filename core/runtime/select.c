/* SPDX-License-Identifier: Apache-2.0
 * Choosing a kernel: asks every record, keeps every answer. */
#include "core/runtime/select.h"

size_t tess_select_count(const tess_kernel *kernels, size_t count, int32_t pass)
{
    size_t of_pass = 0;
    for (size_t i = 0; i < count; i++)
        of_pass += kernels[i].pass == pass;
    return of_pass;
}

const tess_kernel *tess_select(const tess_kernel *kernels, size_t count, const char *glob,
                               const tess_problem *problem, const tess_caps *caps,
                               tess_candidate *candidates)
{
    const tess_kernel *best = NULL;
    size_t asked = 0;

    for (size_t i = 0; i < count; i++) {
        const tess_kernel *kernel = &kernels[i];
        tess_refusal refusal = {TESS_REFUSED_NAME, 0, 0};
        if (kernel->pass != problem->pass)
            continue;
        if (!glob || !glob[0] || tess_text_glob(glob, kernel->name))
            refusal = tess_kernel_accepts(kernel, problem, caps);
        if (refusal.code == TESS_ACCEPTED && (!best || kernel->priority > best->priority))
            best = kernel;
        candidates[asked++] = (tess_candidate){kernel, refusal};
    }
    for (size_t i = 0; best && i < asked; i++)
        if (candidates[i].refusal.code == TESS_ACCEPTED && candidates[i].kernel != best)
            candidates[i].refusal = (tess_refusal){TESS_REFUSED_OUTRANKED,
                                                   candidates[i].kernel->priority, best->priority};
    return best;
}

void tess_select_write(const tess_candidate *candidates, size_t count, tess_text *out_text)
{
    for (size_t i = 0; i < count; i++) {
        if (candidates[i].refusal.code == TESS_ACCEPTED)
            continue;
        tess_text_add(out_text, "\n    %-30s ", candidates[i].kernel->name);
        tess_refusal_write(&candidates[i].refusal, candidates[i].kernel, out_text);
    }
}
