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

/* The accepted candidate of the largest priority, the first among equals; `general`: of those for
 * any number of rows. */
static const tess_kernel *find_best(const tess_candidate *candidates, size_t count, bool general)
{
    const tess_kernel *best = NULL;

    for (size_t i = 0; i < count; i++) {
        const tess_kernel *kernel = candidates[i].kernel;
        if (candidates[i].refusal.code != TESS_ACCEPTED || (general && kernel->max_folded_rows))
            continue;
        if (!best || kernel->priority > best->priority)
            best = kernel;
    }
    return best;
}

/* The number of rows is that of the longest sequence. A sequence whose bits may not depend on the
 * others takes a kernel for few rows only where that gives the bits of the one for many. */
static void keep_bits(tess_candidate *candidates, size_t count)
{
    const tess_kernel *general = find_best(candidates, count, true);

    for (size_t i = 0; general && i < count; i++) {
        const tess_kernel *kernel = candidates[i].kernel;
        if (candidates[i].refusal.code == TESS_ACCEPTED && kernel->max_folded_rows &&
            (kernel->arithmetic == 0 || kernel->arithmetic != general->arithmetic))
            candidates[i].refusal = (tess_refusal){TESS_REFUSED_BITS, 0, kernel->max_folded_rows};
    }
}

const tess_kernel *tess_select(const tess_kernel *kernels, size_t count, const char *glob,
                               const tess_problem *problem, const tess_caps *caps,
                               tess_candidate *candidates)
{
    const tess_kernel *best;
    size_t asked = 0;

    for (size_t i = 0; i < count; i++) {
        const tess_kernel *kernel = &kernels[i];
        tess_refusal refusal = {TESS_REFUSED_NAME, 0, 0};
        if (kernel->pass != problem->pass)
            continue;
        if (!glob || !glob[0] || tess_text_glob(glob, kernel->name))
            refusal = tess_kernel_accepts(kernel, problem, caps);
        candidates[asked++] = (tess_candidate){kernel, refusal};
    }
    if (problem->flags & TESS_BATCH_INVARIANT)
        keep_bits(candidates, asked);
    best = find_best(candidates, asked, false);
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
