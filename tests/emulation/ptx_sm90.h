/* SPDX-License-Identifier: Apache-2.0
 * The instructions of backends/cuda/ptx_sm90.h on the fibers of emulate.h, written from the PTX
 * ISA. Include it first: it takes the place of that header. */
#ifndef TESSERA_BACKENDS_CUDA_PTX_SM90_H
#define TESSERA_BACKENDS_CUDA_PTX_SM90_H

#include "tests/emulation/ptx.h"

#include "tests/emulation/map.h"

#include <map>

/* Everything asynchronous happens as late as it may: a bulk copy lands when somebody asks for its
 * barrier, a product is computed when somebody waits for it. Until then the places that they write
 * hold NaN, and what they read is read only then: whoever looks too early or writes too soon gives
 * a wrong result. */

/* State of a block. It is begun anew in every block. */
struct tess_sm90_copy {
    tess_u32 to;
    const tess_emulated_map *map;
    tess_i32 at[4];
};
struct tess_sm90_mbarrier {
    tess_u32 arrivals, missing, phase;
    tess_i64 bytes; /* announced and not yet landed */
    std::vector<tess_sm90_copy> copies;
};
struct tess_sm90_named {
    tess_u32 threads, arrived, phase;
    bool any, last_any;
};
struct tess_sm90_product {
    tess_f32 *d;                /* lane 0's registers */
    const tess_u32 *lane_a[32]; /* NULL: a is in shared memory */
    tess_u64 a, b;
    tess_u32 n; /* columns / 8 */
    bool is_bf16, is_first;
};
/* Sums that products are adding to. */
struct tess_sm90_sums {
    tess_f32 *registers[32];
    std::vector<tess_f32> of_lane[32];
};
struct tess_sm90_warp {
    std::vector<std::vector<tess_sm90_product>> groups; /* the last one is open */
    tess_u32 committed, done;
    std::map<const tess_f32 *, tess_sm90_sums> sums; /* by lane 0's registers */
    tess_sm90_warp() : groups(1), committed(0), done(0) {}
};
struct tess_sm90_block {
    tess_u64 life;
    std::map<tess_u32, tess_sm90_mbarrier> mbarriers;
    tess_sm90_named named[16];
    std::map<tess_u32, tess_sm90_warp> warps;
    std::map<tess_u32, tess_u32> unfenced; /* 16 bytes of shared memory, by which lane + 1 */
};
static void tess_sm90_wrote(tess_u32 to, tess_u32 bytes);

static inline tess_sm90_block &tess_sm90()
{
    static tess_sm90_block block;
    if (block.life != tess_emulated_life()) {
        block = tess_sm90_block();
        block.life = tess_emulated_life();
        tess_ptx_on_store = tess_sm90_wrote;
    }
    return block;
}

/* ---- mbarrier ---- */

TESS_PTX void tess_ptx_mbarrier_init(tess_u32 barrier, tess_u32 arrivals)
{
    if (barrier % 8 != 0)
        tess_emulated_fail("mbarrier: the address is no multiple of 8");
    tess_sm90().mbarriers[barrier] = {arrivals, arrivals, 0, 0, {}};
}
TESS_PTX void tess_ptx_fence_mbarrier_init() {}

static inline tess_sm90_mbarrier &tess_sm90_mbarrier_at(tess_u32 barrier)
{
    const auto found = tess_sm90().mbarriers.find(barrier);
    if (found == tess_sm90().mbarriers.end())
        tess_emulated_fail("mbarrier: there is none at this address");
    return found->second;
}
static inline void tess_sm90_turn(tess_sm90_mbarrier &barrier)
{
    if (barrier.missing != 0 || barrier.bytes != 0)
        return;
    barrier.phase ^= 1u;
    barrier.missing = barrier.arrivals;
}
TESS_PTX void tess_ptx_mbarrier_arrive_expect_tx(tess_u32 at, tess_u32 bytes)
{
    tess_sm90_mbarrier &barrier = tess_sm90_mbarrier_at(at);
    if (barrier.missing == 0)
        tess_emulated_fail("mbarrier: more arrivals than it counts");
    barrier.missing--;
    barrier.bytes += bytes;
    tess_sm90_turn(barrier);
}
TESS_PTX void tess_ptx_mbarrier_arrive(tess_u32 at)
{
    tess_ptx_mbarrier_arrive_expect_tx(at, 0);
}

static inline void tess_sm90_land(tess_sm90_mbarrier &barrier)
{
    const tess_sm90_copy copy = barrier.copies.front();
    barrier.copies.erase(barrier.copies.begin());
    barrier.bytes -=
        static_cast<tess_i64>(tess_emulated_map_read(copy.map, copy.at, tess_ptx_at(copy.to)));
    if (barrier.bytes < 0)
        tess_emulated_fail("mbarrier: more bytes have landed than were announced");
    tess_sm90_turn(barrier);
}
static inline bool tess_sm90_is_over(tess_u64 what)
{
    tess_sm90_mbarrier &barrier = tess_sm90_mbarrier_at(static_cast<tess_u32>(what >> 1));
    const tess_u32 parity = what & 1u;
    while (barrier.phase == parity && !barrier.copies.empty() && tess_emulated_random() % 3 != 0)
        tess_sm90_land(barrier);
    return barrier.phase != parity;
}
TESS_PTX void tess_ptx_mbarrier_wait(tess_u32 barrier, tess_u32 parity)
{
    tess_emulated_wait(tess_sm90_is_over, static_cast<tess_u64>(barrier) << 1 | parity);
}

/* ---- The async proxy sees what was fenced ---- */

static void tess_sm90_wrote(tess_u32 to, tess_u32 bytes)
{
    for (tess_u32 at = to / 16; at <= (to + bytes - 1) / 16; at++)
        tess_sm90().unfenced[at] = tess_emulated_thread() + 1;
}
TESS_PTX void tess_ptx_fence_proxy_async()
{
    auto &unfenced = tess_sm90().unfenced;
    for (auto at = unfenced.begin(); at != unfenced.end();)
        at = at->second == tess_emulated_thread() + 1 ? unfenced.erase(at) : std::next(at);
}

/* ---- Named barriers ---- */

static inline bool tess_sm90_has_turned(tess_u64 what)
{
    return tess_sm90().named[what >> 1].phase != (what & 1u);
}
/* One warp arrives. */
static inline void tess_sm90_arrive_together(const tess_emulated_part *parts, tess_u32 lanes,
                                             tess_u32 name_and_threads)
{
    const tess_u32 threads = name_and_threads & 0xFFFFu;
    tess_sm90_named &barrier = tess_sm90().named[name_and_threads >> 16 & 15u];

    if (barrier.arrived == 0)
        barrier.threads = threads;
    if (barrier.threads != threads || threads % 32 != 0)
        tess_emulated_fail("bar: threads of one barrier differ, or are no multiple of 32");
    for (tess_u32 lane = 0; lane < lanes; lane++)
        barrier.any |= *static_cast<const bool *>(parts[lane].in);
    barrier.arrived += lanes;
    if (barrier.arrived < threads)
        return;
    if (barrier.arrived > threads)
        tess_emulated_fail("bar: more threads than it counts");
    barrier.arrived = 0;
    barrier.last_any = barrier.any;
    barrier.any = false;
    barrier.phase ^= 1u;
}
static inline void tess_sm90_arrive(tess_u32 name, tess_u32 threads, bool x, tess_u32 kind)
{
    tess_emulated_collective(tess_sm90_arrive_together, kind << 24 | name << 16 | threads, &x,
                             nullptr);
}
TESS_PTX bool tess_ptx_bar_red_or(tess_u32 name, tess_u32 threads, bool x)
{
    const tess_u32 phase = tess_sm90().named[name].phase;
    tess_sm90_arrive(name, threads, x, 1);
    tess_emulated_wait(tess_sm90_has_turned, static_cast<tess_u64>(name) << 1 | phase);
    return tess_sm90().named[name].last_any;
}
TESS_PTX void tess_ptx_bar_sync(tess_u32 name, tess_u32 threads)
{
    (void)tess_ptx_bar_red_or(name, threads, false);
}
TESS_PTX void tess_ptx_bar_arrive(tess_u32 name, tess_u32 threads)
{
    tess_sm90_arrive(name, threads, false, 2);
}

TESS_PTX tess_u32 tess_ptx_atom_shared_add(tess_u32 to, tess_u32 value)
{
    tess_u32 before;
    std::memcpy(&before, tess_ptx_at(to), sizeof before);
    value += before;
    std::memcpy(tess_ptx_at(to), &value, sizeof value);
    return before;
}

template <int COUNT> TESS_PTX void tess_ptx_setmaxnreg_dec()
{
    static_assert(COUNT % 8 == 0 && COUNT >= 24 && COUNT <= 256, "setmaxnreg");
}
template <int COUNT> TESS_PTX void tess_ptx_setmaxnreg_inc()
{
    tess_ptx_setmaxnreg_dec<COUNT>();
}

/* ---- Bulk copies ---- */

TESS_PTX void tess_ptx_cp_async_bulk_tensor_4d(tess_u32 to, const void *map, tess_u32 barrier,
                                               tess_i32 dim, tess_i32 row, tess_i32 head,
                                               tess_i32 batch)
{
    const tess_emulated_map *const m = static_cast<const tess_emulated_map *>(map);
    if (to % 1024 != 0)
        tess_emulated_fail("cp.async.bulk.tensor: the place is no multiple of 1024");
    std::memset(tess_ptx_at(to), 0xFF, tess_emulated_map_bytes(m));
    tess_sm90_mbarrier_at(barrier).copies.push_back({to, m, {dim, row, head, batch}});
}
TESS_PTX void tess_ptx_prefetch_tensormap(const void *) {}

/* ---- wgmma ---- */

static inline tess_sm90_warp &tess_sm90_own_warp()
{
    return tess_sm90().warps[tess_emulated_thread() / 32];
}

TESS_PTX void tess_ptx_settle() {}
TESS_PTX void tess_ptx_wgmma_fence() {}
template <int N> TESS_PTX void tess_ptx_wgmma_hold(tess_f32 (&)[N][4]) {}
TESS_PTX tess_u64 tess_ptx_wgmma_descriptor(tess_u32 address, tess_u32 panel_bytes)
{
    return static_cast<tess_u64>(address >> 4) | static_cast<tess_u64>(panel_bytes >> 4) << 16 |
           static_cast<tess_u64>(1024u >> 4) << 32 | static_cast<tess_u64>(1) << 62;
}

/* Element (row, column) of an operand: `column` counts along the 128 bytes of a panel's rows. By
 * rows the first 64 columns only, from the descriptor's own address on; across, further panels are
 * the descriptor's leading offset apart. */
static inline tess_f32 tess_sm90_element(tess_u64 descriptor, tess_u32 row, tess_u32 column,
                                         bool is_bf16)
{
    const tess_u32 start = static_cast<tess_u32>(descriptor & 0x3FFFu) << 4;
    const tess_u32 leading = static_cast<tess_u32>(descriptor >> 16 & 0x3FFFu) << 4;
    const tess_u32 stride = static_cast<tess_u32>(descriptor >> 32 & 0x3FFFu) << 4;
    const tess_u32 linear =
        start + column / 64 * leading + row / 8 * stride + row % 8 * 128 + column % 64 * 2;
    const tess_u32 at = linear ^ (linear >> 7 & 7u) << 4;
    unsigned short bits;

    if (descriptor >> 62 != 1)
        tess_emulated_fail("wgmma: this pattern is not emulated");
    const auto &unfenced = tess_sm90().unfenced;
    if (!unfenced.empty() && unfenced.count(at / 16))
        tess_emulated_fail("wgmma: a plain store stands before it without fence.proxy.async");
    std::memcpy(&bits, tess_ptx_at(at), sizeof bits);
    return is_bf16 ? tess_f32_from_bf16(bits) : tess_f32_from_f16(bits);
}

/* The 16 rows of one warp. */
static inline void tess_sm90_multiply(tess_sm90_warp &own, const tess_sm90_product &p,
                                      tess_u32 warp)
{
    static tess_f32 a[16][16], b[16][256];
    tess_sm90_sums &sums = own.sums[p.d];
    const tess_u32 columns = 8 * p.n;
    const auto widen = [&](tess_u32 pair, tess_u32 half) {
        const tess_u32 bits = pair >> 16 * half & 0xFFFFu;
        return p.is_bf16 ? tess_f32_from_bf16(bits) : tess_f32_from_f16(bits);
    };

    for (tess_u32 k = 0; k < 16; k++)
        for (tess_u32 n = 0; n < columns; n++)
            b[k][n] = p.lane_a[0] ? tess_sm90_element(p.b, k, n, p.is_bf16)
                                  : tess_sm90_element(p.b, n, k, p.is_bf16);
    for (tess_u32 lane = 0; lane < 32 && p.lane_a[0]; lane++)
        for (tess_u32 i = 0; i < 4; i++)
            for (tess_u32 half = 0; half < 2; half++)
                a[lane / 4 + 8 * (i % 2)][2 * (lane % 4) + 8 * (i / 2) + half] =
                    widen(p.lane_a[lane][i], half);
    for (tess_u32 row = 0; row < 16 && !p.lane_a[0]; row++)
        for (tess_u32 k = 0; k < 16; k++)
            a[row][k] = tess_sm90_element(p.a, 16 * (warp % 4) + row, k, p.is_bf16);
    for (tess_u32 lane = 0; lane < 32; lane++)
        for (tess_u32 i = 0; i < 4 * p.n; i++) {
            const tess_u32 row = lane / 4 + 8 * (i % 4 / 2);
            const tess_u32 column = 8 * (i / 4) + 2 * (lane % 4) + i % 2;
            tess_f32 sum = p.is_first ? 0.0f : sums.of_lane[lane][i];
            for (tess_u32 k = 0; k < 16; k++)
                sum += a[row][k] * b[k][column];
            sums.of_lane[lane][i] = sum;
        }
}

/* The products of a warp's oldest group. */
static inline void tess_sm90_run_group(tess_u32 warp)
{
    tess_sm90_warp &own = tess_sm90().warps[warp];
    for (const tess_sm90_product &p : own.groups.front())
        tess_sm90_multiply(own, p, warp);
    own.groups.erase(own.groups.begin());
    own.done++;
}

/* The groups of a warp group are those of all four warps: it is over when all have begun it. */
static inline bool tess_sm90_all_committed(tess_u64 what)
{
    const tess_u32 warp = static_cast<tess_u32>(what >> 32) / 4 * 4;
    const tess_u32 count = static_cast<tess_u32>(what);
    for (tess_u32 i = 0; i < 4; i++)
        if (tess_sm90().warps[warp + i].committed < count)
            return false;
    if (tess_emulated_random() % 4 == 0) /* a little later, then */
        return false;
    for (tess_u32 i = 0; i < 4; i++)
        while (tess_sm90().warps[warp + i].done < count)
            tess_sm90_run_group(warp + i);
    return true;
}

static inline void tess_sm90_commit_together(const tess_emulated_part *, tess_u32, tess_u32)
{
    tess_sm90_warp &own = tess_sm90_own_warp();
    own.groups.emplace_back();
    own.committed++;
}
TESS_PTX void tess_ptx_wgmma_commit_group()
{
    tess_emulated_collective(tess_sm90_commit_together, 0, nullptr, nullptr);
}

/* Sums that no product adds to any more come back to the registers. */
static inline void tess_sm90_return_together(const tess_emulated_part *, tess_u32, tess_u32)
{
    tess_sm90_warp &own = tess_sm90_own_warp();
    for (auto at = own.sums.begin(); at != own.sums.end();) {
        bool is_awaited = false;
        for (const auto &group : own.groups)
            for (const tess_sm90_product &p : group)
                is_awaited |= p.d == at->first;
        for (tess_u32 lane = 0; lane < 32 && !is_awaited; lane++)
            std::memcpy(at->second.registers[lane], at->second.of_lane[lane].data(),
                        at->second.of_lane[lane].size() * sizeof(tess_f32));
        at = is_awaited ? std::next(at) : own.sums.erase(at);
    }
}
template <int PENDING> TESS_PTX void tess_ptx_wgmma_wait_group()
{
    const tess_u32 committed = tess_sm90_own_warp().committed;
    const tess_u32 wanted = committed > PENDING ? committed - PENDING : 0;
    const tess_u64 warp = tess_emulated_thread() / 32;
    tess_emulated_wait(tess_sm90_all_committed, warp << 32 | wanted);
    tess_emulated_collective(tess_sm90_return_together, 0, nullptr, nullptr);
}

/* One lane's part of a product that begins. */
struct tess_sm90_begun {
    tess_f32 *d;
    const tess_u32 *a_registers;
    tess_u64 a, b;
    tess_u32 n;
    bool is_bf16, is_first;
};
static inline void tess_sm90_begin_together(const tess_emulated_part *parts, tess_u32 lanes,
                                            tess_u32)
{
    tess_sm90_warp &own = tess_sm90_own_warp();
    const auto of = [&](tess_u32 lane) -> const tess_sm90_begun & {
        return *static_cast<const tess_sm90_begun *>(parts[lane].in);
    };
    tess_sm90_product p = {of(0).d, {}, of(0).a, of(0).b, of(0).n, of(0).is_bf16, of(0).is_first};
    const bool is_new = own.sums.count(p.d) == 0;
    tess_sm90_sums &sums = own.sums[p.d];

    for (tess_u32 lane = 0; lane < lanes; lane++) {
        const tess_sm90_begun &part = of(lane);
        if (part.a != p.a || part.b != p.b)
            tess_emulated_fail("wgmma: lanes bring different descriptors");
        p.lane_a[lane] = part.a_registers;
        sums.registers[lane] = part.d;
        if (is_new)
            sums.of_lane[lane].assign(part.d, part.d + 4 * p.n);
        std::memset(part.d, 0xFF, 16 * p.n);
    }
    own.groups.back().push_back(p);
}

/* DTYPE as <tessera/base.h> numbers them: 3 is bf16. */
template <int DTYPE, int N> struct tess_ptx_wgmma {
    template <bool IS_FIRST> static void rows(tess_f32 (&d)[N][4], tess_u64 a, tess_u64 b)
    {
        const tess_sm90_begun part = {&d[0][0], nullptr, a, b, N, DTYPE == 3, IS_FIRST};
        tess_emulated_collective(tess_sm90_begin_together, 0, &part, nullptr);
    }
    template <bool IS_FIRST>
    static void across(tess_f32 (&d)[N][4], const tess_u32 (&a)[4], tess_u64 b)
    {
        const tess_sm90_begun part = {&d[0][0], a, 0, b, N, DTYPE == 3, IS_FIRST};
        tess_emulated_collective(tess_sm90_begin_together, 1, &part, nullptr);
    }
};

#endif
