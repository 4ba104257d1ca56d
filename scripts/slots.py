#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Counts what the inner loops of AMD matrix kernels issue, from their machine code.

Usage: slots.py --objdump LLVM-OBJDUMP --architecture gfxN --least PERCENT IMAGE

Of each kernel the way through its loop over tiles is taken that multiplies a whole tile and brings
the next one, by the least other work: no mask, no hook, no new shift. Printed are the instructions
on it and the share of matrix instructions of the cycles that they and other vector instructions
hold a SIMD for, as if nothing overlapped; the cycles are those of AMD's ISA documents. Scalar
instructions, branches and memory have ports of their own. Fails when a kernel has no matrix
instruction, reads memory without knowing which, or has a smaller share than --least.
"""
import argparse
import heapq
import re
import subprocess
import sys

# Cycles of 16-bit matrix products on one SIMD.
MATRIX = {
    "gfx90a": {"v_mfma_f32_32x32x8": 64},
    "gfx942": {"v_mfma_f32_32x32x8": 32},
    "gfx950": {"v_mfma_f32_32x32x16": 32},
    "gfx11": {"v_wmma_f32_16x16x16": 32},
    "gfx12": {"v_wmma_f32_16x16x16": 16},
}
# Vector instructions at a quarter of the rate of the others.
SLOW = re.compile(r"v_(exp|log|rcp|rsq|sqrt|sin|cos|mul_lo_u32|mul_hi_[iu]32|mad_[iu]64)")
TILE_READS, TILE_WRITES = 4, 2  # 16 bytes a lane each, of K and V and of K, at least


def disassemble(objdump, image):
    """Per kernel, its instructions: address, mnemonic, where a branch leads."""
    text = subprocess.run([objdump, "-d", image], capture_output=True, text=True, check=True).stdout
    kernels, code = {}, None
    for line in text.split("\n"):
        head = re.match(r"[0-9a-f]+ <(\w+)>:$", line)
        if head:
            code = kernels.setdefault(head[1], [])
        part = re.match(r"\t(\w+)(.*?)// ([0-9A-F]+):", line)
        if not part or code is None:
            continue
        address, target = int(part[3], 16), None
        if part[1].startswith(("s_cbranch", "s_branch")):
            words = int(part[2].split()[0])
            target = address + 4 + 4 * (words - 65536 if words > 32767 else words)
        code.append((address, part[1], target))
    return kernels


def blocks_of(code):
    """Address of each block: its instructions and the blocks that may follow."""
    starts = {code[0][0]}
    for (_, _, target), after in zip(code, code[1:] + [(None, "", None)]):
        if target is not None:
            starts |= {target, after[0]}
    blocks, own = {}, None
    for address, name, target in code:
        if address in starts:
            if own is not None and not own[1]:
                own[1].append(address)
            own = blocks.setdefault(address, ([], []))
        own[0].append(name)
        if target is not None:
            following = [target] if name == "s_branch" else [target, address + 4]
            own[1].extend(following)
        elif name == "s_endpgm":
            own[1].append(None)
    return blocks


def lanes_of(architecture):
    return 64 if architecture.startswith("gfx9") else 32


def cycles(name, architecture):
    """Of an instruction on its SIMD: (matrix, other)."""
    known = next((v for k, v in MATRIX.items() if architecture.startswith(k)), {})
    for prefix, count in known.items():
        if name.startswith(prefix):
            return count, 0
    if not name.startswith("v_") or name.startswith(("v_mfma", "v_wmma")):
        return 0, 0
    base = 4 if lanes_of(architecture) == 64 else 1
    return 0, base * (4 if SLOW.match(name) else 1)


def weigh(names, architecture):
    """What a block adds to a way: matrix cycles, others, reads and writes of tiles."""
    pairs = [cycles(name, architecture) for name in names]
    return (sum(p[0] for p in pairs), sum(p[1] for p in pairs),
            sum(name in ("global_load_dwordx4", "global_load_b128") for name in names),
            sum(name in ("ds_write_b128", "ds_store_b128") for name in names))


def way_through(blocks, architecture):
    """Blocks of the cheapest way from the first product around to it, or None (Dijkstra)."""
    weights = {address: weigh(names, architecture) for address, (names, _) in blocks.items()}
    wanted = (sum(weight[0] for weight in weights.values()), TILE_READS, TILE_WRITES)
    start = min(address for address, weight in weights.items() if weight[0])
    end = (start, wanted)
    queue, came_from = [(0, start, (0, 0, 0), None)], {}
    while queue:
        cost, address, state, before = heapq.heappop(queue)
        if (address, state) in came_from:
            continue
        came_from[address, state] = before
        if (address, state) == end:
            return trace(came_from, before)
        matrix, other, reads, writes = weights[address]
        added = (matrix, reads, writes)
        reached = tuple(min(x + y, most) for x, y, most in zip(state, added, wanted))
        for after in blocks[address][1]:
            if after in weights:
                heapq.heappush(queue, (cost + other, after, reached, (address, state)))
    return None


def trace(came_from, place):
    """Blocks on the way that ends in a place."""
    way = []
    while place:
        way.append(place[0])
        place = came_from[place]
    return way


def report(name, code, architecture, least):
    """A line of text, and what is wrong with the kernel."""
    blocks = blocks_of(code)
    names = [n for _, n, _ in code]
    if not any(cycles(n, architecture)[0] for n in names):
        return f"{name}: no matrix instruction", [f"{name} has no matrix instruction"]
    complaints = []
    way = way_through(blocks, architecture)
    if way is None:
        return f"{name}: no loop", [f"{name}: its loop over tiles was not found"]
    on_way = [n for address in way for n in blocks[address][0]]
    matrix, other = (sum(cycles(n, architecture)[i] for n in on_way) for i in (0, 1))
    count = sum(bool(cycles(n, architecture)[0]) for n in on_way)
    vector = sum(bool(cycles(n, architecture)[1]) for n in on_way)
    shared = sum(n.startswith("ds_") for n in on_way)
    share = 100 * matrix / (matrix + other)
    if share < least:
        complaints.append(f"{name}: {share:.0f} % is less than {least} %")
    return (f"{name:34} {count:3} matrix, {vector:3} other vector, {shared:3} shared memory; "
            f"{matrix:4} of {matrix + other:4} cycles, {share:.0f} %"), complaints


def main():
    parser = argparse.ArgumentParser(description="Count what inner loops issue.")
    for name in ("--objdump", "--architecture"):
        parser.add_argument(name, required=True)
    parser.add_argument("--least", type=float, required=True)
    parser.add_argument("image")
    arguments = parser.parse_args()
    complaints = []
    for name, code in disassemble(arguments.objdump, arguments.image).items():
        line, wrong = report(name, code, arguments.architecture, arguments.least)
        print(line)
        complaints += wrong
    for complaint in complaints:
        print(f"{arguments.architecture}: {complaint}")
    return 1 if complaints else 0


if __name__ == "__main__":
    sys.exit(main())
