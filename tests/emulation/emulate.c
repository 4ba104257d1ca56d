/* SPDX-License-Identifier: Apache-2.0
 * Runs device code on the host, one fiber for each lane of a block. */
#include "tests/emulation/emulate.h"

#include "tests/kit/guard.h"
#include "tests/kit/random.h"

#include <setjmp.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <ucontext.h>

/* makecontext() gives a fiber its stack; from then on lanes change places by jumps, which unlike
 * swapcontext() make no system call. A kernel's registers are all on that stack. */
enum { STACK_SIZE = 128 * 1024, PAGE = 4096 };

/* Turns after which waves that all wait have waited long enough: what they wait for may take a few
 * by chance. */
enum { MOST_IDLE = 1000 };

typedef enum lane_state {
    LANE_READY,
    LANE_AT_BARRIER,
    LANE_IN_COLLECTIVE,
    LANE_WAITING,
    LANE_DONE
} lane_state;

typedef struct lane {
    jmp_buf place;
    lane_state state;
    bool is_started; /* the fiber exists and waits in fiber_main() */
    tess_emulated_together together;
    uint32_t number;
    bool (*is_over)(uint64_t what);
    uint64_t what;
} lane;

/* The one machine of this process; blocks run one after the other. */
static struct machine {
    const tess_emulated_launch *launch;
    lane lanes[TESS_EMULATED_MOST_LANES];
    tess_emulated_part parts[TESS_EMULATED_MOST_LANES];
    char *stacks; /* one for each lane, the lowest page of each not to be touched */
    jmp_buf scheduler;
    jmp_buf end;  /* of the launch, for failures between the lanes' turns */
    bool is_lane; /* a lane runs, not the scheduler or what it calls */
    uint32_t *order;
    uint32_t current, block;
    uint64_t life; /* of the block that runs */
    tess_buffer shared;
    tess_random random;
    const char *failure; /* static text */
} machine;

/* ---- Fibers -----------------------------------------------------------------------------------
 */

static void leave(void)
{
    if (_setjmp(machine.lanes[machine.current].place) == 0)
        _longjmp(machine.scheduler, 1);
}

static void fiber_main(void)
{
    for (;;) {
        leave();
        machine.launch->kernel(machine.launch->arguments);
        machine.lanes[machine.current].state = LANE_DONE;
    }
}

/* Runs a lane until it waits for something. */
static void enter(uint32_t index)
{
    machine.current = index;
    machine.is_lane = true;
    if (_setjmp(machine.scheduler) == 0)
        _longjmp(machine.lanes[index].place, 1);
    machine.is_lane = false;
}

static bool start_fiber(uint32_t index)
{
    static ucontext_t context, origin;
    char *const stack = machine.stacks + (size_t)index * STACK_SIZE;

    if (getcontext(&context) != 0)
        return false;
    context.uc_stack.ss_sp = stack + PAGE;
    context.uc_stack.ss_size = STACK_SIZE - PAGE;
    context.uc_link = NULL;
    makecontext(&context, fiber_main, 0);
    machine.current = index;
    if (_setjmp(machine.scheduler) == 0)
        swapcontext(&origin, &context);
    machine.lanes[index].is_started = true;
    return true;
}

static bool make_stacks(void)
{
    const size_t size = (size_t)TESS_EMULATED_MOST_LANES * STACK_SIZE;
    char *stacks;

    if (machine.stacks)
        return true;
    stacks = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE,
                  -1, 0);
    if (stacks == MAP_FAILED)
        return false;
    for (size_t at = 0; at < size; at += STACK_SIZE)
        if (mprotect(stacks + at, PAGE, PROT_NONE) != 0)
            return false;
    machine.stacks = stacks;
    return true;
}

/* ---- Order ------------------------------------------------------------------------------------
 */

/* A permutation of 0 ... count - 1. */
static void draw_order(uint32_t *order, uint32_t count)
{
    const tess_emulated_order how = machine.launch->order;

    for (uint32_t i = 0; i < count; i++)
        order[i] = how == TESS_EMULATED_BACKWARD ? count - 1 - i : i;
    for (uint32_t i = count; how == TESS_EMULATED_RANDOM && i > 1; i--) {
        const uint32_t j = (uint32_t)(tess_random_next(&machine.random) % i);
        const uint32_t other = order[j];
        order[j] = order[i - 1];
        order[i - 1] = other;
    }
}

/* ---- Waves ------------------------------------------------------------------------------------
 */

static bool fail(const char *text)
{
    if (!machine.failure)
        machine.failure = text;
    return false;
}

static bool is_waiting_with(const lane *a, const lane *b)
{
    if (a->state != b->state)
        return false;
    if (a->state == LANE_WAITING)
        return a->is_over == b->is_over && a->what == b->what;
    return a->state != LANE_IN_COLLECTIVE || (a->together == b->together && a->number == b->number);
}

/* Lets every lane of a wave come to its next wait; false when they do not wait for one thing. */
static bool gather(uint32_t first, uint32_t wave)
{
    uint32_t order[TESS_EMULATED_MOST_WAVE];

    draw_order(order, wave);
    for (uint32_t i = 0; i < wave && !machine.failure; i++)
        if (machine.lanes[first + order[i]].state == LANE_READY)
            enter(first + order[i]);
    for (uint32_t i = 1; i < wave && !machine.failure; i++)
        if (!is_waiting_with(&machine.lanes[first], &machine.lanes[first + i]))
            return fail("lanes of one wave wait for different things, or some have ended");
    return !machine.failure;
}

static void wake(uint32_t first, uint32_t wave)
{
    for (uint32_t i = 0; i < wave; i++)
        machine.lanes[first + i].state = LANE_READY;
}

/* Runs a wave until it is at a barrier, has to wait, or is done. */
static bool run_wave(uint32_t first, uint32_t wave)
{
    lane *const lanes = machine.lanes + first;

    while (gather(first, wave)) {
        if (lanes[0].state != LANE_IN_COLLECTIVE)
            return true;
        machine.current = first;
        lanes[0].together(machine.parts + first, wave, lanes[0].number);
        wake(first, wave);
    }
    return false;
}

/* Lets a wave go on that need not wait any more; *out_moved when it did. */
static bool try_wave(uint32_t first, uint32_t wave, bool *out_moved)
{
    const lane *const own = &machine.lanes[first];

    machine.current = first;
    if (own->state == LANE_WAITING && own->is_over(own->what) && !machine.failure)
        wake(first, wave);
    if (own->state != LANE_READY)
        return !machine.failure;
    *out_moved = true;
    return run_wave(first, wave);
}

static uint32_t waves_in(lane_state state)
{
    const uint32_t wave = machine.launch->wave;
    uint32_t count = 0;

    for (uint32_t i = 0; i < machine.launch->threads; i += wave)
        count += machine.lanes[i].state == state;
    return count;
}

/* Runs all waves to the next barrier; *out_done when they ended instead. */
static bool run_round(bool *out_done)
{
    const uint32_t wave = machine.launch->wave, waves = machine.launch->threads / wave;
    uint32_t order[TESS_EMULATED_MOST_LANES];
    uint32_t idle = 0; /* turns in a row in which nobody moved */

    while (waves_in(LANE_READY) + waves_in(LANE_WAITING) > 0) {
        bool moved = false;

        draw_order(order, waves);
        for (uint32_t i = 0; i < waves; i++)
            if (!try_wave(order[i] * wave, wave, &moved))
                return false;
        idle = moved ? 0 : idle + 1;
        if (idle > MOST_IDLE)
            return fail("waves wait for what never comes");
    }
    *out_done = waves_in(LANE_DONE) == waves;
    if (*out_done)
        return true;
    if (waves_in(LANE_AT_BARRIER) != waves)
        return fail("waves wait at a barrier that others have passed by and ended");
    wake(0, machine.launch->threads);
    return true;
}

static bool run_block(uint32_t block)
{
    bool done = false;

    machine.block = block;
    machine.life++;
    /* Every byte 0xFF is a NaN in each floating type, and a large or negative index. */
    memset(machine.shared.data, 0xFF, machine.shared.size);
    for (uint32_t i = 0; i < machine.launch->threads; i++)
        machine.lanes[i].state = LANE_READY;
    while (!done)
        if (!run_round(&done))
            return false;
    return true;
}

static bool run_blocks(void)
{
    const uint32_t blocks = machine.launch->blocks;
    bool is_good = true;

    if (_setjmp(machine.end) != 0)
        return false;
    draw_order(machine.order, blocks);
    for (uint32_t i = 0; i < blocks && is_good; i++)
        is_good = run_block(machine.order[i]);
    return is_good;
}

const char *tess_emulate(const tess_emulated_launch *launch)
{
    machine.launch = launch;
    machine.failure = NULL;
    machine.random = tess_random_start(launch->seed, 0xE4);
    if (launch->threads > TESS_EMULATED_MOST_LANES || launch->wave > TESS_EMULATED_MOST_WAVE ||
        launch->wave == 0 || launch->threads % launch->wave != 0)
        return "threads of a block are a multiple of the wave, at most 1024";
    machine.order = malloc((launch->blocks ? launch->blocks : 1) * sizeof *machine.order);
    if (!machine.order || !make_stacks() ||
        !tess_buffer_make(launch->shared_size, &machine.shared)) {
        free(machine.order);
        return "no memory for the lanes";
    }
    for (uint32_t i = 0; i < launch->threads && !machine.failure; i++)
        if (!machine.lanes[i].is_started && !start_fiber(i))
            fail("a fiber cannot be made");
    if (machine.failure ||
        !run_blocks()) /* lanes hang in the middle of it: they are made anew next time */
        for (uint32_t i = 0; i < TESS_EMULATED_MOST_LANES; i++)
            machine.lanes[i].is_started = false;
    if (!tess_buffer_is_intact(&machine.shared))
        fail("memory in front of the block's shared memory was overwritten");
    tess_buffer_free(&machine.shared);
    free(machine.order);
    return machine.failure;
}

/* ---- What lanes call --------------------------------------------------------------------------
 */

uint32_t tess_emulated_thread(void)
{
    return machine.current;
}

uint32_t tess_emulated_block(void)
{
    return machine.block;
}

uint32_t tess_emulated_blocks(void)
{
    return machine.launch->blocks;
}

uint32_t tess_emulated_wave(void)
{
    return machine.launch->wave;
}

void *tess_emulated_shared(size_t size)
{
    if (size > machine.launch->shared_size)
        tess_emulated_fail("a kernel uses more shared memory than its line in the .def file says");
    return machine.shared.data;
}

void tess_emulated_barrier(void)
{
    machine.lanes[machine.current].state = LANE_AT_BARRIER;
    leave();
}

void tess_emulated_wait(bool (*is_over)(uint64_t what), uint64_t what)
{
    lane *const own = &machine.lanes[machine.current];

    own->is_over = is_over;
    own->what = what;
    own->state = LANE_WAITING;
    leave();
}

uint64_t tess_emulated_life(void)
{
    return machine.life;
}

uint64_t tess_emulated_random(void)
{
    return tess_random_next(&machine.random);
}

void tess_emulated_collective(tess_emulated_together together, uint32_t number, const void *in,
                              void *out)
{
    lane *const own = &machine.lanes[machine.current];

    machine.parts[machine.current] = (tess_emulated_part){in, out};
    own->together = together;
    own->number = number;
    own->state = LANE_IN_COLLECTIVE;
    leave();
}

void tess_emulated_fail(const char *text)
{
    fail(text);
    if (!machine.is_lane)
        _longjmp(machine.end, 1);
    for (;;) /* the scheduler never comes back to this lane */
        leave();
}
