/* SPDX-License-Identifier: Apache-2.0
 * Contexts whose GPU backends find look-alike drivers, and kernels that exist by name only. */
#include "tests/fakes/world.h"

#include "backends/cuda/driver.h"
#include "backends/gpu/host/records.h"
#include "backends/hip/driver.h"
#include "core/runtime/registry.h"

#include <dlfcn.h>

const char *fake_vendor;
fake_state *fake;

/* ---- Kernels: every role, and a choice for some ---------------------------------------------- */

#define SOME(each)                                                                                 \
    each(fwd_some_any_m16n32, FORWARD, MAIN, TESS_GPU_FLOATS, 512, 16, 32, 128, 0, 0, 1) each(     \
        fwd_checked_f16_m64n64, FORWARD, MAIN_CHECKED, TESS_GPU_F16, 128, 64, 64, 128, 61440, 0,   \
        5) each(fwd_short_any_m4n32, FORWARD, MAIN, TESS_GPU_F32 | TESS_GPU_BF16, 64, 4, 32, 64,   \
                0, 4, 3) each(fwd_redo, FORWARD, REDO, TESS_GPU_FLOATS, 512, 0, 0, 128, 0, 0, 1)   \
        each(fwd_combine_m8, FORWARD, COMBINE, TESS_GPU_FLOATS, 512, 8, 0, 128, 0, 0,              \
             1) each(fwd_merge_m8, FORWARD, MERGE, TESS_GPU_FLOATS, 0, 8, 0, 128, 0, 0, 1)         \
            each(bwd_some_any_m32n16, BACKWARD, MAIN, TESS_GPU_FLOATS, 512, 32, 16, 128, 0, 0,     \
                 1) each(bwd_delta_m8, BACKWARD, DELTA, TESS_GPU_FLOATS, 512, 8, 0, 128, 0, 0, 1)  \
                each(bwd_dq_m16n16, BACKWARD, DQ, TESS_GPU_FLOATS, 512, 16, 16, 128, 0, 0, 1)      \
                    each(bwd_dbias_m16n16, BACKWARD, DBIAS, TESS_GPU_FLOATS, 512, 16, 16, 128, 0,  \
                         0, 1) each(bwd_dslope, BACKWARD, DSLOPE, TESS_GPU_F32, 512, 0, 0, 128,    \
                                    0, 0, 1)                                                       \
                        each(bwd_dsink, BACKWARD, DSINK, TESS_GPU_FLOATS, 512, 0, 0, 128, 0, 0, 1) \
                            each(bwd_checked_f16_m32n64, BACKWARD, MAIN_CHECKED, TESS_GPU_F16, 64, \
                                 32, 64, 128, 0, 0, 5)                                             \
                                each(bwd_dq_checked_f16_m64n32, BACKWARD, DQ_CHECKED,              \
                                     TESS_GPU_F16, 64, 64, 32, 128, 0, 0, 5)                       \
                                    each(bwd_adds_bf16_m32n64, BACKWARD, MAIN_ADDS, TESS_GPU_BF16, \
                                         64, 32, 64, 128, 0, 0, 5)                                 \
                                        each(bwd_redo, BACKWARD, REDO, TESS_GPU_FLOATS, 512, 0, 0, \
                                             128, 0, 0, 1)                                         \
                                            each(bwd_redo_dq, BACKWARD, REDO_DQ, TESS_GPU_FLOATS,  \
                                                 512, 0, 0, 128, 0, 0, 1)                          \
                                                each(bwd_clear_dq, BACKWARD, CLEAR_DQ,             \
                                                     TESS_GPU_FLOATS, 512, 0, 0, 128, 0, 0, 1)     \
                                                    each(bwd_finish_dq_m8, BACKWARD, FINISH_DQ,    \
                                                         TESS_GPU_FLOATS, 512, 8, 0, 128, 0, 0, 1)

#define SOURCE "some"
#define TABLE kernels
static const tess_gpu_kernel kernels[] = {SOME(TESS_GPU_ENTRY)};
enum { SOME(TESS_GPU_PLACE) KERNELS };

static const char image_text[] =
    "fake fwd_some_any_m16n32 fwd_checked_f16_m64n64 fwd_short_any_m4n32 fwd_redo fwd_combine_m8 "
    "fwd_merge_m8 "
    "bwd_some_any_m32n16 bwd_delta_m8 bwd_dq_m16n16 bwd_dbias_m16n16 bwd_dslope bwd_dsink "
    "bwd_checked_f16_m32n64 bwd_dq_checked_f16_m64n32 bwd_adds_bf16_m32n64 bwd_redo bwd_redo_dq "
    "bwd_clear_dq bwd_finish_dq_m8";
static const uint64_t image_size = sizeof image_text;

static const tess_gpu_image cuda_images[] = {{"some", "sm_80", image_text, &image_size},
                                             {"some", "sm_90", image_text, &image_size},
                                             {"some", "compute_80", image_text, &image_size}};
static const tess_gpu_image hip_images[] = {{"some", "gfx90a", image_text, &image_size},
                                            {"some", "gfx942", image_text, &image_size}};

/* ---- Backends -------------------------------------------------------------------------------- */

static const tess_gpu_vendor cuda = {.name = "cuda",
                                     .matrix_lanes = 32,
                                     .brand = "CUDA",
                                     .library = &tess_cuda_library,
                                     .path = tess_cuda_path,
                                     .attribute = tess_cuda_attributes,
                                     .architecture = tess_cuda_architecture,
                                     .suits = tess_cuda_suits,
                                     .kernels = kernels,
                                     .kernel_count = KERNELS,
                                     .images = cuda_images,
                                     .image_count = sizeof cuda_images / sizeof cuda_images[0]};
static const tess_gpu_vendor hip = {.name = "hip",
                                    .matrix_lanes = 32,
                                    .brand = "HIP",
                                    .library = &tess_hip_library,
                                    .path = tess_hip_path,
                                    .attribute = tess_hip_attributes,
                                    .architecture = tess_hip_architecture,
                                    .suits = tess_hip_suits,
                                    .kernels = kernels,
                                    .kernel_count = KERNELS,
                                    .images = hip_images,
                                    .image_count = sizeof hip_images / sizeof hip_images[0]};

static tess_refusal accept(const tess_kernel *kernel, const tess_problem *problem,
                           const tess_caps *caps)
{
    (void)kernel;
    (void)caps;
    return tess_gpu_accept(&cuda, problem); /* both have the same kernels */
}

#define ACCEPT accept
static const tess_kernel records[] = {SOME(TESS_GPU_RECORD)};

static const tess_kernel *give_records(size_t *out_count)
{
    *out_count = sizeof records / sizeof records[0];
    return records;
}

#define BACKEND(vendor, rank)                                                                 \
    static int32_t vendor##_count(const tess_open *open, tess_text *out_why)                  \
    {                                                                                         \
        return tess_gpu_count(&vendor, open, out_why);                                        \
    }                                                                                         \
    static tess_status vendor##_info(const tess_open *open, int32_t index,                    \
                                     tess_device_info *out_info)                              \
    {                                                                                         \
        return tess_gpu_info(&vendor, open, index, out_info);                                 \
    }                                                                                         \
    static tess_status vendor##_open(const tess_open *open, tess_backend_device **out_device) \
    {                                                                                         \
        return tess_gpu_open(&vendor, open, out_device);                                      \
    }                                                                                         \
    static const tess_backend vendor##_backend = {.name = #vendor,                            \
                                                  .priority = rank,                           \
                                                  .count = vendor##_count,                    \
                                                  .info = vendor##_info,                      \
                                                  .open = vendor##_open,                      \
                                                  .kernels = give_records,                    \
                                                  TESS_GPU_ENTRIES};

BACKEND(cuda, 30)
BACKEND(hip, 20)

/* In place of what was compiled in. */
const tess_backend *const *tess_registry(size_t *out_count)
{
    static const tess_backend *const backends[] = {&cuda_backend, &hip_backend, &tess_backend_cpu};

    *out_count = sizeof backends / sizeof backends[0];
    return backends;
}

/* ---- Worlds ---------------------------------------------------------------------------------- */

void fake_world_start(int argc, char **argv)
{
    void *library;

    if (argc != 3 || (strcmp(argv[1], "cuda") != 0 && strcmp(argv[1], "hip") != 0)) {
        fprintf(stderr, "usage: %s cuda|hip LIBRARY\n", argv[0]);
        exit(2);
    }
    library = dlopen(argv[2], RTLD_NOW | RTLD_LOCAL);
    fake = library ? dlsym(library, "fake") : NULL;
    if (!fake) {
        fprintf(stderr, "%s: no look-alike driver\n", argv[2]);
        exit(2);
    }
    fake_vendor = argv[1];
    setenv("TESSERA_CUDA_LIBRARY", fake_is_hip() ? "/nowhere/libcuda.so.1" : argv[2], 1);
    setenv("TESSERA_HIP_LIBRARY", fake_is_hip() ? argv[2] : "/nowhere/libamdhip64.so", 1);
}

void fake_world_open(fake_world *w)
{
    fake->reset();
    *w = (fake_world){.memory = TALLY_EMPTY};

    const tess_context_desc desc = {TESS_STRUCT(tess_context_desc), .allocate = tally_allocate,
                                    .release = tally_release, .memory_user = &w->memory};

    assert_fine(NULL, tess_context_create(&desc, &w->context));
    assert_fine(w->context, tess_device_open(w->context, fake_vendor, &w->device));
    assert_fine(w->context, tess_queue_create(w->device, &w->queue));
}

void fake_world_close(fake_world *w)
{
    tess_queue_destroy(w->queue);
    tess_context_destroy(w->context);
    assert_nothing_is_left(&w->memory);
    assert_string_equal(fake->complaint, "");
    assert_int_equal(fake->contexts, 0);
    assert_int_equal(fake->streams, 0);
    assert_int_equal(fake->events, 0);
    assert_int_equal(fake->modules, 0);
    assert_int_equal(fake->blocks, 0);
    assert_int_equal(fake->current(), 0);
}

tess_status fake_tensors_make(tess_device *device, size_t workspace_size, fake_tensors *out)
{
    void **const tensors[] = {&out->q, &out->k, &out->v, &out->o, &out->lse};

    memset(out, 0, sizeof *out);
    out->workspace_size = workspace_size;
    for (size_t i = 0; i < sizeof tensors / sizeof tensors[0]; i++)
        TESS_TRY(tess_device_allocate(device, FAKE_TENSOR_BYTES, tensors[i]));
    if (workspace_size)
        TESS_TRY(tess_device_allocate(device, workspace_size, &out->workspace));
    out->args = (tess_forward_args){TESS_STRUCT(tess_forward_args),
                                    .q = {out->q, 0},
                                    .k = {out->k, 0},
                                    .v = {out->v, 0},
                                    .o = {out->o, 0},
                                    .lse = {out->lse, 0},
                                    .workspace = {out->workspace, 0},
                                    .workspace_size = workspace_size};
    return TESS_OK;
}

void fake_tensors_free(tess_device *device, fake_tensors *t)
{
    void *const tensors[] = {t->q, t->k, t->v, t->o, t->lse};

    for (size_t i = 0; i < sizeof tensors / sizeof tensors[0]; i++)
        tess_device_release(device, tensors[i], FAKE_TENSOR_BYTES);
    tess_device_release(device, t->workspace, t->workspace_size);
}
