/* SPDX-License-Identifier: Apache-2.0
 * OpenCL devices as a backend: its kernels, their texts, the table of entries. */
#include "backends/opencl/backend.h"

/* ---- Texts ----------------------------------------------------------------------------------- */

/* TESS_CL_SOURCES is what meson has flattened: TESS_CL_SOURCE(name) of each. */

#define TESS_CL_SOURCE(source)                \
    extern const char tess_opencl_##source[]; \
    extern const uint64_t tess_opencl_##source##_size;
TESS_CL_SOURCES
#undef TESS_CL_SOURCE

#define TESS_CL_SOURCE(source) SOURCE_##source,
enum { TESS_CL_SOURCES SOURCES };
#undef TESS_CL_SOURCE

static const tess_cl_source sources[SOURCES] = {
#define TESS_CL_SOURCE(source) {#source, tess_opencl_##source, &tess_opencl_##source##_size},
    TESS_CL_SOURCES
#undef TESS_CL_SOURCE
};

/* ---- Kernels --------------------------------------------------------------------------------- */

enum {
#define TESS_CL_KERNEL(kernel, ...) PLACE_##kernel,
#include "backends/opencl/kernels.def"
#undef TESS_CL_KERNEL
    KERNELS
};

const size_t tess_cl_kernel_count = KERNELS;
const tess_cl_kernel tess_cl_kernels[] = {
#define TESS_CL_KERNEL(kernel, text, which, does, of, types, typed, dim, rows, columns, items, \
                       bytes, most, rank)                                                      \
    {.name = #kernel,                                                                          \
     .source = &sources[SOURCE_##text],                                                        \
     .pass = TESS_PASS_##which,                                                                \
     .role = TESS_GPU_##does,                                                                  \
     .needs = of,                                                                              \
     .dtypes = types,                                                                          \
     .by_dtype = typed,                                                                        \
     .max_head_dim = dim,                                                                      \
     .tile_rows = rows,                                                                        \
     .tile_columns = columns,                                                                  \
     .group = items,                                                                           \
     .local = bytes,                                                                           \
     .most_rows = most,                                                                        \
     .priority = rank},
#include "backends/opencl/kernels.def"
#undef TESS_CL_KERNEL
};

static tess_refusal accept(const tess_kernel *kernel, const tess_problem *problem,
                           const tess_caps *caps)
{
    const tess_cl_kernel *const line = kernel->entry;

    if (caps->shared_memory < line->local)
        return (tess_refusal){TESS_REFUSED_SHARED, caps->shared_memory, line->local};
    return tess_cl_accept(problem, caps);
}

/* Only main kernels are chosen by a problem; the others follow from them. */
#define KEEP(...) __VA_ARGS__
#define DROP(...)
#define IF_MAIN KEEP
#define IF_MAIN_CHECKED KEEP
#define IF_REDO DROP
#define IF_COMBINE DROP
#define IF_DELTA DROP
#define IF_DQ DROP
#define IF_DBIAS DROP
#define IF_DSLOPE DROP
#define IF_DSINK DROP

static const tess_kernel records[] = {
#define TESS_CL_KERNEL(kernel, text, which, does, of, types, typed, dim, rows, columns, items, \
                       bytes, most, rank)                                                      \
    IF_##does({.name = #kernel,                                                                \
               .pass = TESS_PASS_##which,                                                      \
               .priority = rank,                                                               \
               .features = of,                                                                 \
               .feature_name = "a device that is a CPU",                                       \
               .dtypes = types,                                                                \
               .max_head_dim = dim,                                                            \
               .max_folded_rows = most,                                                        \
               .arithmetic = (of) << 16 | dim,                                                 \
               .tile_rows = rows,                                                              \
               .tile_columns = columns,                                                        \
               .flags_items = TESS_GPU_##does == TESS_GPU_MAIN_CHECKED,                        \
               .share_is_tile = true,                                                          \
               .leaves_dq = true,                                                              \
               .accept = accept,                                                               \
               .entry = &tess_cl_kernels[PLACE_##kernel]}, )
#include "backends/opencl/kernels.def"
#undef TESS_CL_KERNEL
};

static const tess_kernel *give_records(size_t *out_count)
{
    *out_count = sizeof records / sizeof records[0];
    return records;
}

/* Bits of the .def file are those of selection. */
_Static_assert(TESS_GPU_F32 == 1u << TESS_F32 && TESS_GPU_F16 == 1u << TESS_F16 &&
                   TESS_GPU_BF16 == 1u << TESS_BF16 && TESS_GPU_E4M3 == 1u << TESS_E4M3 &&
                   TESS_GPU_E5M2 == 1u << TESS_E5M2,
               "kernels.h numbers types as base.h does");

/* Below the CPU's own kernels, which are faster than any OpenCL driver for the same CPU: a device
 * of this backend is somebody's choice, or the last one left. */
const tess_backend tess_backend_opencl = {
    .name = "opencl",
    .priority = 0,
    .has_plain_addresses = 0,
    .count = tess_cl_count,
    .info = tess_cl_info,
    .open = tess_cl_open,
    .device_wrap = tess_cl_device_wrap,
    .close = tess_cl_close,
    .caps = tess_cl_caps,
    .kernels = give_records,
    .prepare = tess_cl_prepare,
    .launch = tess_cl_launch,
    .discard = tess_cl_discard,
    .allocate = tess_cl_allocate,
    .release = tess_cl_release,
    .upload = tess_cl_upload,
    .download = tess_cl_download,
    .queue_create = tess_cl_queue_create,
    .queue_wrap = tess_cl_queue_wrap,
    .queue_destroy = tess_cl_queue_destroy,
    .queue_wait = tess_cl_queue_wait,
    .scratch = tess_cl_scratch,
    .event_create = tess_cl_event_create,
    .event_destroy = tess_cl_event_destroy,
    .event_record = tess_cl_event_record,
    .event_elapsed = tess_cl_event_elapsed,
};
