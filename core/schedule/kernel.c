/* SPDX-License-Identifier: Apache-2.0
 * The questions every kernel is asked in the same way, and the words of the answers. */
#include "core/schedule/kernel.h"

#include <inttypes.h>

static tess_refusal refuse(tess_refusal_code code, int64_t seen, int64_t limit)
{
    return (tess_refusal){code, seen, limit};
}

tess_refusal tess_kernel_accepts(const tess_kernel *kernel, const tess_problem *problem,
                                 const tess_caps *caps)
{
    const int64_t dim =
        problem->head_dim > problem->head_dim_v ? problem->head_dim : problem->head_dim_v;
    const int64_t folded_rows = problem->rows * problem->group;

    if (kernel->pass != problem->pass)
        return refuse(TESS_REFUSED_PASS, problem->pass, kernel->pass);
    if ((kernel->features & caps->features) != kernel->features)
        return refuse(TESS_REFUSED_FEATURE, caps->features, kernel->features);
    if (problem->has_program)
        return refuse(TESS_REFUSED_PROGRAM, 0, 0);
    if (!(kernel->dtypes & 1u << problem->dtype))
        return refuse(TESS_REFUSED_DTYPE, problem->dtype, kernel->dtypes);
    if (problem->has_scaling)
        return refuse(TESS_REFUSED_SCALING, 0, 0);
    if (dim > kernel->max_head_dim)
        return refuse(TESS_REFUSED_HEAD_DIM, dim, kernel->max_head_dim);
    if (kernel->max_folded_rows && folded_rows > kernel->max_folded_rows)
        return refuse(TESS_REFUSED_ROWS, folded_rows, kernel->max_folded_rows);
    if (kernel->adds_dq && (problem->flags & (TESS_DETERMINISTIC | TESS_BATCH_INVARIANT)))
        return refuse(TESS_REFUSED_ORDER, 0, 0);
    if (kernel->accept)
        return kernel->accept(kernel, problem, caps);
    return refuse(TESS_ACCEPTED, 0, 0);
}

/* "f32, f16, bf16" from the bits of a record. */
static void write_dtypes(uint32_t dtypes, tess_text *out_text)
{
    const char *between = "";
    for (tess_dtype dtype = TESS_F32; dtype <= TESS_E5M2; dtype++) {
        if (dtypes & 1u << dtype) {
            tess_text_add(out_text, "%s%s", between, tess_dtype_name(dtype));
            between = ", ";
        }
    }
}

void tess_refusal_write(const tess_refusal *refusal, const tess_kernel *kernel, tess_text *out_text)
{
    switch (refusal->code) {
    case TESS_ACCEPTED:
        tess_text_add(out_text, "accepted");
        break;
    case TESS_REFUSED_PASS:
        tess_text_add(out_text, "does the %s pass only",
                      kernel->pass == TESS_PASS_FORWARD ? "forward" : "backward");
        break;
    case TESS_REFUSED_DTYPE:
        tess_text_add(out_text, "takes ");
        write_dtypes(kernel->dtypes, out_text);
        tess_text_add(out_text, ", not %s", tess_dtype_name((tess_dtype)refusal->seen));
        break;
    case TESS_REFUSED_HEAD_DIM:
        tess_text_add(out_text, "head_dim %" PRId64 " is above %" PRId64, refusal->seen,
                      refusal->limit);
        break;
    case TESS_REFUSED_FEATURE:
        tess_text_add(out_text,
                      "needs %s, which this device does not have or TESSERA_CPU_ISA "
                      "excludes",
                      kernel->feature_name);
        break;
    case TESS_REFUSED_ROWS:
        tess_text_add(out_text,
                      "for at most %" PRId64 " rows with the heads of a group folded in, not "
                      "%" PRId64,
                      refusal->limit, refusal->seen);
        break;
    case TESS_REFUSED_SCALING:
        tess_text_add(out_text, "takes no descale factors");
        break;
    case TESS_REFUSED_PROGRAM:
        tess_text_add(out_text, "takes no custom score or mask program yet");
        break;
    case TESS_REFUSED_PAGING:
        tess_text_add(out_text, "takes no pages (of %" PRId64 " slots): sequences may share them",
                      refusal->seen);
        break;
    case TESS_REFUSED_GRADIENT:
        tess_text_add(out_text, "gradient bits 0x%" PRIx64 " asked for, 0x%" PRIx64 " offered",
                      (uint64_t)refusal->seen, (uint64_t)refusal->limit);
        break;
    case TESS_REFUSED_SCORES:
        tess_text_add(out_text, "takes plain scores only: a scale above 0, and no softcap, ALiBi "
                                "or bias");
        break;
    case TESS_REFUSED_WAVE:
        tess_text_add(out_text, "needs waves of %" PRId64 " lanes, not %" PRId64, refusal->limit,
                      refusal->seen);
        break;
    case TESS_REFUSED_SHARED:
        tess_text_add(out_text,
                      "needs %" PRId64 " bytes of shared memory for a block; the device has "
                      "%" PRId64,
                      refusal->limit, refusal->seen);
        break;
    case TESS_REFUSED_BITS:
        tess_text_add(out_text,
                      "for at most %" PRId64 " rows, with other bits than kernels for more: "
                      "TESS_BATCH_INVARIANT",
                      refusal->limit);
        break;
    case TESS_REFUSED_ORDER:
        tess_text_add(out_text, "adds dQ up in an order of chance: TESS_DETERMINISTIC, "
                                "TESS_BATCH_INVARIANT");
        break;
    case TESS_REFUSED_NAME:
        tess_text_add(out_text, "TESSERA_KERNEL does not name it");
        break;
    case TESS_REFUSED_OUTRANKED:
        tess_text_add(out_text,
                      "would do; another is preferred (priority %" PRId64 " over %" PRId64 ")",
                      refusal->limit, refusal->seen);
        break;
    }
}
