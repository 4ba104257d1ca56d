/* SPDX-License-Identifier: Apache-2.0
 * From a schedule to steps: which kernels run in which order, on how many items, on what grid. */
#include "backends/gpu/host/backend.h"

#include "core/base/alloc.h"
#include "core/portable/walk.h"

#include <string.h>

/* Flags are looked at by few blocks: mostly none is set, and then they only cost their start. */
enum { REDO_BLOCKS_PER_UNIT = 1 };

/* ---- Kernels of a role ----------------------------------------------------------------------- */

static bool takes(const tess_gpu_kernel *kernel, tess_gpu_role role, const tess_problem *problem)
{
    const int64_t dim = tess_max_i64(problem->head_dim, problem->head_dim_v);

    return kernel->role == role && kernel->pass == problem->pass &&
           (kernel->dtypes & 1u << problem->dtype) && dim <= kernel->max_head_dim &&
           (kernel->most_rows == 0 || problem->rows * problem->group <= kernel->most_rows);
}

const tess_gpu_kernel *tess_gpu_find(const tess_gpu_vendor *vendor, tess_gpu_role role,
                                     const tess_problem *problem)
{
    const tess_gpu_kernel *best = NULL;

    for (size_t i = 0; i < vendor->kernel_count; i++) {
        const tess_gpu_kernel *kernel = &vendor->kernels[i];
        if (takes(kernel, role, problem) && (!best || kernel->priority > best->priority))
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

tess_refusal tess_gpu_accept(const tess_gpu_vendor *vendor, const tess_problem *problem)
{
    uint32_t offered = problem->gradients;

    if (problem->pass == TESS_PASS_FORWARD)
        return (tess_refusal){TESS_ACCEPTED, 0, 0};
    if (tess_problem_is_paged(problem)) /* as on the CPU: two sequences may share a page */
        return (tess_refusal){TESS_REFUSED_PAGING, problem->page_size, 0};
    for (int i = 0; i < GRADIENT_ROLES; i++)
        if (!tess_gpu_find(vendor, gradient_roles[i].role, problem))
            offered &= ~gradient_roles[i].gradient;
    return offered == problem->gradients
               ? (tess_refusal){TESS_ACCEPTED, 0, 0}
               : (tess_refusal){TESS_REFUSED_GRADIENT, problem->gradients, offered};
}

/* As tess_matrix_is_plain() asks on the device. */
static bool has_plain_scores(const tess_problem *problem)
{
    return problem->scale > TESS_LEAST_PLAIN_SCALE && problem->scale < TESS_MOST_PLAIN_SCALE &&
           !(problem->softcap > 0.0f) && !(problem->bias & (TESS_BIAS_TENSOR | TESS_BIAS_ALIBI));
}

/* What a kernel on matrix units asks of a device and of scores and dO. */
static tess_refusal accept_line(const tess_gpu_vendor *vendor, const tess_gpu_kernel *line,
                                const tess_problem *problem, const tess_caps *caps)
{
    if (vendor->matrix_lanes && caps->lanes != vendor->matrix_lanes)
        return (tess_refusal){TESS_REFUSED_WAVE, caps->lanes, vendor->matrix_lanes};
    if (caps->shared_memory < line->shared)
        return (tess_refusal){TESS_REFUSED_SHARED, caps->shared_memory, line->shared};
    if (strstr(line->name, "_plain_") && !has_plain_scores(problem))
        return (tess_refusal){TESS_REFUSED_SCORES, 0, 0};
    /* dO is an operand of the products like the others; questions in general leave it open. */
    if (problem->pass == TESS_PASS_BACKWARD && problem->d_o.dtype &&
        !(line->dtypes & 1u << problem->d_o.dtype))
        return (tess_refusal){TESS_REFUSED_DTYPE, problem->d_o.dtype, line->dtypes};
    return (tess_refusal){TESS_ACCEPTED, 0, 0};
}

tess_refusal tess_gpu_accept_matrix(const tess_gpu_vendor *vendor, const tess_kernel *kernel,
                                    const tess_problem *problem, const tess_caps *caps)
{
    const tess_refusal refusal = accept_line(vendor, kernel->entry, problem, caps);

    return refusal.code == TESS_ACCEPTED ? tess_gpu_accept(vendor, problem) : refusal;
}

/* dQ on matrix units, where they do it. */
static const tess_gpu_kernel *find_matrix_dq(const tess_backend_device *device,
                                             const tess_problem *problem)
{
    const tess_gpu_vendor *vendor = device->vendor;
    const tess_gpu_kernel *best = NULL;

    for (size_t i = 0; i < vendor->kernel_count; i++) {
        const tess_gpu_kernel *kernel = &vendor->kernels[i];
        if (takes(kernel, TESS_GPU_DQ_CHECKED, problem) &&
            accept_line(vendor, kernel, problem, &device->caps).code == TESS_ACCEPTED &&
            (!best || kernel->priority > best->priority))
            best = kernel;
    }
    return best;
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
    case TESS_GPU_CLEAR_DQ:
        return (tess_problem_total_rows(&s->problem) * args->heads_q *
                    (tess_dq_pitch(args->head_dim) / 4) +
                TESS_CLEARED_QUADS - 1) /
               TESS_CLEARED_QUADS;
    case TESS_GPU_COMBINE:
    case TESS_GPU_DELTA:
    case TESS_GPU_DQ:
    case TESS_GPU_DQ_CHECKED:
    case TESS_GPU_REDO_DQ:
    case TESS_GPU_FINISH_DQ:
        return args->sequences * args->heads_kv * args->row_tiles;
    default:
        return s->work_items;
    }
}

/* ---- Steps ----------------------------------------------------------------------------------- */

/* The block of numbers of one kernel. A kernel that does work again goes over the tiles of the one
 * whose flags it reads. */
static tess_args args_of(const tess_gpu_kernel *kernel, const tess_gpu_kernel *tiles,
                         const tess_schedule *s)
{
    tess_args args = s->args;

    args.tile_rows = tiles->tile_rows;
    args.tile_columns = tiles->tile_columns;
    args.row_tiles =
        tiles->tile_rows ? tess_walk_row_tiles(args.rows, args.group, tiles->tile_rows) : 0;
    if (kernel->role == TESS_GPU_DQ_CHECKED || kernel->role == TESS_GPU_REDO_DQ)
        args.redo += s->work_items * (int64_t)sizeof(uint32_t);
    return args;
}

static bool does_again(const tess_gpu_kernel *kernel)
{
    return kernel->role == TESS_GPU_REDO || kernel->role == TESS_GPU_REDO_DQ;
}

static uint32_t grid_of(const tess_gpu_kernel *kernel, int64_t items, const tess_caps *caps)
{
    int64_t most = INT32_MAX; /* what every device takes along x */

    if (does_again(kernel))
        most = (int64_t)caps->units * REDO_BLOCKS_PER_UNIT;
    else if (kernel->takes_maps) /* blocks that stay and take items, one to a unit */
        most = caps->units;
    return (uint32_t)tess_min_i64(items, most);
}

/* What is being put together. */
typedef struct making {
    const tess_gpu_scope *scope;
    tess_backend_device *device;
    const tess_schedule *schedule;
    tess_prepared *prepared;
} making;

/* Adds a kernel; `tiles` is the one whose tiles it goes over, mostly itself. */
static tess_status add(const making *m, const tess_gpu_kernel *kernel, const tess_gpu_kernel *tiles)
{
    tess_gpu_step *step = &m->prepared->steps[m->prepared->count];

    step->kernel = kernel;
    step->args = args_of(kernel, tiles, m->schedule);
    step->run.items = items_of(kernel->role, m->schedule, &step->args);
    step->run.step = (uint32_t)m->prepared->count;
    step->grid = grid_of(kernel, step->run.items, &m->device->caps);
    if (step->run.items == 0) /* an empty grid is an error to every driver */
        return TESS_OK;
    TESS_TRY(tess_gpu_function(m->scope, m->device, kernel, &step->function));
    m->prepared->count++;
    return TESS_OK;
}

/* The kernel of a role, over the tiles of another where one is given. */
static tess_status add_role(const making *m, tess_gpu_role role, const tess_gpu_kernel *tiles)
{
    static const char *const names[TESS_GPU_ROLES] = {
        [TESS_GPU_REDO] = "redo",           [TESS_GPU_COMBINE] = "combine",
        [TESS_GPU_DELTA] = "delta",         [TESS_GPU_DQ] = "dQ",
        [TESS_GPU_REDO_DQ] = "redo dQ",     [TESS_GPU_CLEAR_DQ] = "clear dQ",
        [TESS_GPU_FINISH_DQ] = "finish dQ", [TESS_GPU_DBIAS] = "dbias",
        [TESS_GPU_DSLOPE] = "dslope",       [TESS_GPU_DSINK] = "dsink",
    };
    const tess_gpu_kernel *kernel = tess_gpu_find(m->device->vendor, role, &m->schedule->problem);

    if (!kernel)
        return tess_fail(m->device->host, TESS_UNSUPPORTED,
                         "%s: %s needs a %s kernel behind it, and %s:%d has none for this problem",
                         m->scope->call, m->schedule->kernel->name, names[role],
                         m->device->vendor->name, m->device->ordinal);
    return add(m, kernel, tiles ? tiles : kernel);
}

static bool needs_redo(const tess_gpu_kernel *kernel, const tess_problem *problem)
{
    return (kernel->role == TESS_GPU_MAIN_CHECKED || kernel->role == TESS_GPU_MAIN_ADDS ||
            kernel->role == TESS_GPU_DQ_CHECKED) &&
           !(problem->flags & TESS_ALLOW_NONFINITE_SPREAD);
}

/* dQ: on matrix units behind a main kernel that is on them and has room for flags. */
static tess_status add_dq(const making *m, const tess_gpu_kernel *main)
{
    const tess_problem *problem = &m->schedule->problem;
    const tess_gpu_kernel *kernel =
        main->role == TESS_GPU_MAIN_CHECKED ? find_matrix_dq(m->device, problem) : NULL;

    if (!kernel)
        return add_role(m, TESS_GPU_DQ, NULL);
    TESS_TRY(add(m, kernel, kernel));
    return needs_redo(kernel, problem) ? add_role(m, TESS_GPU_REDO_DQ, kernel) : TESS_OK;
}

static tess_status add_all(const making *m)
{
    const tess_schedule *s = m->schedule;
    const tess_problem *p = &s->problem;
    const tess_gpu_kernel *main = s->kernel->entry;

    if (p->pass == TESS_PASS_BACKWARD)
        TESS_TRY(add_role(m, TESS_GPU_DELTA, NULL));
    if (main->role == TESS_GPU_MAIN_ADDS && (p->gradients & TESS_GRADIENT_Q))
        TESS_TRY(add_role(m, TESS_GPU_CLEAR_DQ, NULL));
    TESS_TRY(add(m, main, main));
    if (needs_redo(main, p))
        TESS_TRY(add_role(m, TESS_GPU_REDO, main));
    if (p->pass == TESS_PASS_FORWARD)
        return s->args.splits > 1 ? add_role(m, TESS_GPU_COMBINE, NULL) : TESS_OK;
    if (p->gradients & TESS_GRADIENT_Q)
        TESS_TRY(main->role == TESS_GPU_MAIN_ADDS ? add_role(m, TESS_GPU_FINISH_DQ, NULL)
                                                  : add_dq(m, main));
    for (int i = 0; i < GRADIENT_ROLES; i++)
        if (gradient_roles[i].role != TESS_GPU_DQ && (p->gradients & gradient_roles[i].gradient))
            TESS_TRY(add_role(m, gradient_roles[i].role, NULL));
    return TESS_OK;
}

tess_status tess_gpu_prepare(tess_backend_device *device, const tess_schedule *schedule,
                             tess_prepared **out_prepared)
{
    const bool is_forward = schedule->problem.pass == TESS_PASS_FORWARD;
    const char *const call = is_forward ? "tess_plan_create_forward" : "tess_plan_create_backward";
    tess_prepared *prepared = tess_alloc_zero(device->host, sizeof *prepared);
    tess_gpu_scope scope;
    const making m = {&scope, device, schedule, prepared};
    tess_status status;

    if (!prepared)
        return tess_fail(device->host, TESS_NO_MEMORY, "%s: no memory for %zu bytes", call,
                         sizeof *prepared);
    prepared->device = device;
    prepared->call = is_forward ? "tess_plan_run_forward" : "tess_plan_run_backward";
    status = tess_gpu_enter(&scope, device, call);
    if (status == TESS_OK)
        status = tess_gpu_leave(&scope, add_all(&m));
    if (status != TESS_OK) {
        tess_gpu_discard(prepared);
        return status;
    }
    *out_prepared = prepared;
    return TESS_OK;
}

void tess_gpu_discard(tess_prepared *prepared)
{
    tess_release(prepared->device->host, prepared, sizeof *prepared);
}
