#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Times PyTorch's CPU scaled_dot_product_attention against Tessera, interleaved in one process.

    TESSERA_THREADS=2 OMP_NUM_THREADS=2 python3 bench/peers/pytorch.py build/libtessera.so

One round times each candidate once; a ratio is formed within its round. Reported are medians over
rounds with the 10th and 90th percentile. Both results are compared with each other first."""
import argparse
import json
import os
import statistics
import time

import torch
import torch.nn.functional as F

from library import BackwardArgs, ForwardArgs, Library

TORCH = {"f32": torch.float32, "f16": torch.float16, "bf16": torch.bfloat16}
CASES = [("fwd", s, d, t, c) for t in ("f32", "bf16") for d in (64, 128) for s in (1024, 4096)
         for c in (False, True)] + [("bwd", 1024, d, "f32", c) for d in (64, 128)
                                    for c in (False, True)] + [("bwd", 4096, 64, "f32", False)]


def spread(values):
    ordered = sorted(values)
    return (statistics.median(ordered), ordered[len(ordered) // 10],
            ordered[-1 - len(ordered) // 10])


def timed(call):
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


class Forward:
    def __init__(self, library, heads, seqlen, dim, dtype, causal):
        self.library, self.causal = library, causal
        shape = (1, heads, seqlen, dim)
        self.q, self.k, self.v = (torch.randn(shape, dtype=TORCH[dtype]) for _ in range(3))
        self.o = torch.empty_like(self.q)
        self.lse = torch.empty(1, heads, seqlen)
        self.plan = library.plan([(1, seqlen, heads, dim)] * 4, dtype, causal)

    def ours(self):
        self.library.run(self.plan, ForwardArgs, q=self.q.data_ptr(), k=self.k.data_ptr(),
                         v=self.v.data_ptr(), o=self.o.data_ptr(), lse=self.lse.data_ptr())

    def theirs(self):
        with torch.no_grad():
            self.peer = F.scaled_dot_product_attention(self.q, self.k, self.v,
                                                       is_causal=self.causal)

    def difference(self):
        return (self.o.float() - self.peer.float()).abs().max().item()


class Backward(Forward):
    def __init__(self, library, heads, seqlen, dim, dtype, causal):
        super().__init__(library, heads, seqlen, dim, dtype, causal)
        super().ours()
        self.backward = library.plan([(1, seqlen, heads, dim)] * 4, dtype, causal, backward=True)
        self.d_o = torch.randn_like(self.q)
        self.gradients = [torch.empty_like(self.q) for _ in range(3)]
        self.leaves = [t.clone().requires_grad_() for t in (self.q, self.k, self.v)]
        self.graph = F.scaled_dot_product_attention(*self.leaves, is_causal=causal)

    def ours(self):
        names = zip(("dq", "dk", "dv"), (g.data_ptr() for g in self.gradients))
        self.library.run(self.backward, BackwardArgs, q=self.q.data_ptr(), k=self.k.data_ptr(),
                         v=self.v.data_ptr(), o=self.o.data_ptr(), lse=self.lse.data_ptr(),
                         d_o=self.d_o.data_ptr(), **dict(names))

    def theirs(self):
        self.peers = torch.autograd.grad(self.graph, self.leaves, self.d_o, retain_graph=True)

    def difference(self):
        return max((a - b).abs().max().item() for a, b in zip(self.gradients, self.peers))


def measure(case, seconds):
    case.ours(), case.theirs()
    ours, theirs = [], []
    start = time.perf_counter()
    while time.perf_counter() - start < seconds or len(ours) < 5:
        ours.append(timed(case.ours))
        theirs.append(timed(case.theirs))
    return ours, theirs


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("library", help="path of libtessera.so")
    parser.add_argument("--heads", type=int, default=8)
    parser.add_argument("--seconds", type=float, default=3.0, help="for each case")
    parser.add_argument("--json", metavar="FILE", help="write the results there too")
    parser.add_argument("--forward-only", action="store_true")
    options = parser.parse_args()
    threads = int(os.environ.get("TESSERA_THREADS", torch.get_num_threads()))
    torch.set_num_threads(threads)
    torch.manual_seed(1)
    library = Library(options.library)
    results = []

    print(f"PyTorch {torch.__version__} ({torch.backends.cpu.get_cpu_capability()}), "
          f"{threads} threads, batch 1, {options.heads} heads")
    for which, seqlen, dim, dtype, causal in CASES:
        if options.forward_only and which == "bwd":
            continue
        kind = Forward if which == "fwd" else Backward
        case = kind(library, options.heads, seqlen, dim, dtype, causal)
        ours, theirs = measure(case, options.seconds)
        flops = (4 if which == "fwd" else 10) * options.heads * seqlen ** 2 * dim
        flops *= (seqlen + 1) / (2 * seqlen) if causal else 1
        ratio = spread([t / o for o, t in zip(ours, theirs)])
        line = (f"{which} b1 hq{options.heads} hk{options.heads} q{seqlen} k{seqlen} d{dim} {dtype}"
                + (" causal" if causal else ""))
        results.append({"problem": line, "rounds": len(ours), "ratio": ratio,
                        "gflops": flops / spread(ours)[0] * 1e-9,
                        "peer_gflops": flops / spread(theirs)[0] * 1e-9,
                        "difference": case.difference()})
        print(f"{line:48} {results[-1]['gflops']:7.1f} Gflop/s, PyTorch "
              f"{results[-1]['peer_gflops']:6.1f}: {ratio[0]:.2f}x ({ratio[1]:.2f}-{ratio[2]:.2f}) "
              f"in {len(ours)} rounds, apart by {results[-1]['difference']:.1e}", flush=True)
    if options.json:
        with open(options.json, "w") as file:
            json.dump(results, file, indent=1)


if __name__ == "__main__":
    main()
