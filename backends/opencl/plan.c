/* SPDX-License-Identifier: Apache-2.0
 * From a schedule to steps: which kernels run in which order, on how many items, on what grid. */
#include "backends/opencl/backend.h"

#include "core/base/alloc.h"
#include "core/portable/walk.h"

/* ---- Kernels of a role ----------------------------------------------------------------------- */

bool tess_cl_fits(const tess_cl_kernel *kernel, const tess_caps *caps)
{
    return (kernel->needs & caps->features) == kernel->needs &&
           kernel->local <= caps->shared_memory;
}

static bool takes(const tess_cl_kernel *kernel, tess_gpu_role role, const tess_problem *problem)
{
    const int64_t dim = tess_max_i64(problem->head_dim, problem->head_dim_v);

    return kernel->role == role && kernel->pass == problem->pass &&
           (kernel->dtypes & 1u << problem->dtype) && dim <= kernel->max_head_dim &&
           (kernel->most_rows == 0 || problem->rows * problem->group <= kernel->most_rows);
}

/* Whether a kernel is to be preferred: one of the main kernel's family is, whatever its priority.
 */
static bool is_better(const tess_cl_kernel *kernel, const tess_cl_kernel *best, uint32_t family)
{
    if (!best || (kernel->needs == family) != (best->needs == family))
        return !best || kernel->needs == family;
    return kernel->priority > best->priority;
}

const tess_cl_kernel *tess_cl_find(tess_gpu_role role, const tess_problem *problem,
                                   const tess_caps *caps, uint32_t family)
{
    const tess_cl_kernel *best = NULL;

    for (size_t i = 0; i < tess_cl_kernel_count; i++) {
        const tess_cl_kernel *kernel = &tess_cl_kernels[i];
        if (takes(kernel, role, problem) && tess_cl_fits(kernel, caps) &&
            is_better(kernel, best, family))
            best = kernel;
    }
    return best;
}

/* Roles that compute a gradient of their own, beside the main kernel's dK and dV. */
static const struct {
    uint32_t gradient;
    tess_gpu_role role;
} gradient_roles[] = {{TESS_GRADIENT_Q, TESS_GPU_DQ},
                      {TESS_GRADIENT_BIAS, TESS_GPU_DBIAS},
                      {TESS_GRADIENT_ALIBI, TESS_GPU_DSLOPE},
                      {TESS_GRADIENT_SINK, TESS_GPU_DSINK}};

enum { GRADIENT_ROLES = sizeof gradient_roles / sizeof gradient_roles[0] };

tess_refusal tess_cl_accept(const tess_problem *problem, const tess_caps *caps)
{
    uint32_t offered = problem->gradients;

    if (problem->pass == TESS_PASS_FORWARD)
        return (tess_refusal){TESS_ACCEPTED, 0, 0};
    if (tess_problem_is_paged(problem)) /* as on the CPU: two sequences may share a page */
        return (tess_refusal){TESS_REFUSED_PAGING, problem->page_size, 0};
    for (int i = 0; i < GRADIENT_ROLES; i++)
        if (!tess_cl_find(gradient_roles[i].role, problem, caps, TESS_CL_ANY))
            offered &= ~gradient_roles[i].gradient;
    return offered == problem->gradients
               ? (tess_refusal){TESS_ACCEPTED, 0, 0}
               : (tess_refusal){TESS_REFUSED_GRADIENT, problem->gradients, offered};
}

/* ---- Items ----------------------------------------------------------------------------------- */

/* Elements along an axis of dbias; one that is summed over has one. */
static int64_t dbias_extent(const tess_args *args, int axis, int64_t extent, int64_t tile)
{
    return args->dbias_stride[axis] ? (extent + tile - 1) / tile : 1;
}

/* Items of a role, as backends/gpu/kernels.h counts them. Products of the plan's own extents, which
 * the schedule has found to fit. */
static int64_t items_of(tess_gpu_role role, const tess_schedule *s, const tess_args *args)
{
    switch (role) {
    case TESS_GPU_DBIAS:
        return dbias_extent(args, 0, args->sequences, 1) * dbias_extent(args, 1, args->heads_q, 1) *
               dbias_extent(args, 2, args->rows, args->tile_rows) *
               dbias_extent(args, 3, args->columns, args->tile_columns);
    case TESS_GPU_DSLOPE:
        return (args->slope_stride[0] ? args->sequences : 1) * args->heads_q;
    case TESS_GPU_DSINK:
        return args->heads_q;
    case TESS_GPU_COMBINE:
    case TESS_GPU_DELTA:
    case TESS_GPU_DQ:
        return args->sequences * args->heads_kv * args->row_tiles;
    default:
        return s->work_items;
    }
}

/* ---- Steps ----------------------------------------------------------------------------------- */

/* The block of numbers of one kernel: REDO goes over the main kernel's tiles. */
static tess_args args_of(const tess_cl_kernel *kernel, const tess_schedule *s)
{
    tess_args args = s->args;

    if (kernel->role == TESS_GPU_REDO)
        return args;
    args.tile_rows = kernel->tile_rows;
    args.tile_columns = kernel->tile_columns;
    args.row_tiles =
        kernel->tile_rows ? tess_walk_row_tiles(args.rows, args.group, kernel->tile_rows) : 0;
    return args;
}

/* Groups of a launch: drivers of 32 bits count work-items in as many. Flags are looked at by few
 * groups: mostly none is set, and then they only cost their start. */
enum { MOST_GROUPS = 1 << 20, REDO_GROUPS_PER_UNIT = 1 };

static size_t groups_of(const tess_cl_kernel *kernel, int64_t items, const tess_caps *caps)
{
    const int64_t most = kernel->role == TESS_GPU_REDO
                             ? tess_max_i64((int64_t)caps->units * REDO_GROUPS_PER_UNIT, 1)
                             : MOST_GROUPS;

    return (size_t)tess_min_i64(items, most);
}

/* What is being put together. */
typedef struct making {
    tess_backend_device *device;
    const char *call;
    const tess_schedule *schedule;
    tess_prepared *prepared;
} making;

static tess_status add(const making *m, const tess_cl_kernel *kernel)
{
    tess_backend_device *const device = m->device;
    tess_cl_step *const step = &m->prepared->steps[m->prepared->count];
    const tess_args args = args_of(kernel, m->schedule);
    tess_cl_code code = TESS_CL_SUCCESS;
    void *program = NULL;

    step->kernel = kernel;
    step->items = items_of(kernel->role, m->schedule, &args);
    step->groups = groups_of(kernel, step->items, &device->caps);
    if (step->items == 0) /* an empty grid is an error to most drivers */
        return TESS_OK;
    TESS_TRY(tess_cl_program(device, m->call, kernel, m->schedule->problem.dtype, &program));
    m->prepared->count++; /* from here on what it holds is released with the plan */
    step->function = device->driver->kernel_create(program, kernel->name, &code);
    TESS_TRY(tess_cl_answer(device->host, m->call, TESS_CL_CALL_kernel_create, code));
    return tess_cl_buffer(device, m->call, TESS_CL_MEMORY_READ_ONLY, sizeof args, &args,
                          &step->args);
}

static tess_status add_role(const making *m, tess_gpu_role role)
{
    static const char *const names[TESS_GPU_ROLES] = {
        [TESS_GPU_REDO] = "redo",  [TESS_GPU_COMBINE] = "combine", [TESS_GPU_DELTA] = "delta",
        [TESS_GPU_DQ] = "dQ",      [TESS_GPU_DBIAS] = "dbias",     [TESS_GPU_DSLOPE] = "dslope",
        [TESS_GPU_DSINK] = "dsink"};
    const tess_cl_kernel *const main = m->schedule->kernel->entry;
    const tess_cl_kernel *kernel =
        tess_cl_find(role, &m->schedule->problem, &m->device->caps, main->needs);

    if (!kernel)
        return tess_fail(m->device->host, TESS_UNSUPPORTED,
                         "%s: %s needs a %s kernel behind it, and %s has none for this problem",
                         m->call, m->schedule->kernel->name, names[role], m->device->name);
    return add(m, kernel);
}

static bool needs_redo(const tess_cl_kernel *main, const tess_problem *problem)
{
    return main->role == TESS_GPU_MAIN_CHECKED && !(problem->flags & TESS_ALLOW_NONFINITE_SPREAD);
}

static tess_status add_all(const making *m)
{
    const tess_schedule *s = m->schedule;
    const tess_problem *p = &s->problem;
    const tess_cl_kernel *main = s->kernel->entry;

    if (p->pass == TESS_PASS_BACKWARD)
        TESS_TRY(add_role(m, TESS_GPU_DELTA));
    TESS_TRY(add(m, main));
    if (needs_redo(main, p))
        TESS_TRY(add_role(m, TESS_GPU_REDO));
    if (p->pass == TESS_PASS_FORWARD)
        return s->args.splits > 1 ? add_role(m, TESS_GPU_COMBINE) : TESS_OK;
    for (int i = 0; i < GRADIENT_ROLES; i++)
        if (p->gradients & gradient_roles[i].gradient)
            TESS_TRY(add_role(m, gradient_roles[i].role));
    return TESS_OK;
}

tess_status tess_cl_prepare(tess_backend_device *device, const tess_schedule *schedule,
                            tess_prepared **out_prepared)
{
    const bool is_forward = schedule->problem.pass == TESS_PASS_FORWARD;
    const char *const call = is_forward ? "tess_plan_create_forward" : "tess_plan_create_backward";
    tess_prepared *prepared = tess_alloc_zero(device->host, sizeof *prepared);
    const making m = {device, call, schedule, prepared};
    tess_status status;

    if (!prepared)
        return tess_fail(device->host, TESS_NO_MEMORY, "%s: no memory for %zu bytes", call,
                         sizeof *prepared);
    prepared->device = device;
    prepared->call = is_forward ? "tess_plan_run_forward" : "tess_plan_run_backward";
    pthread_mutex_init(&prepared->lock, NULL);
    status = add_all(&m);
    if (status != TESS_OK) {
        char text[TESS_ERROR_LENGTH + 1];
        tess_error_text(device->host, text, sizeof text);
        tess_cl_discard(prepared);
        return tess_fail(device->host, status, "%s", text); /* whatever releasing said */
    }
    *out_prepared = prepared;
    return TESS_OK;
}

/* Work in a queue keeps the driver's objects alive until it is done. */
void tess_cl_discard(tess_prepared *prepared)
{
    static const char call[] = "tess_plan_destroy";
    const tess_backend_device *const device = prepared->device;

    for (int i = 0; i < prepared->count; i++) {
        if (prepared->steps[i].function)
            (void)TESS_CL_OF(device, call, kernel_release, prepared->steps[i].function);
        if (prepared->steps[i].args)
            (void)TESS_CL_OF(device, call, buffer_release, prepared->steps[i].args);
    }
    pthread_mutex_destroy(&prepared->lock);
    tess_release(device->host, prepared, sizeof *prepared);
}
