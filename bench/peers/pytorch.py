#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Times PyTorch's CPU scaled_dot_product_attention against Tessera, interleaved in one process.

    TESSERA_THREADS=2 python3 bench/peers/pytorch.py build/libtessera.so [--data SUITE or LINE]

Forward and backward, f32, f16 and bf16; results are compared with each other. README.md of
bench/ says how the rounds go."""
import sys

from compare import Refused, count_threads, need, parse, run

torch = need("torch", "torch")
F = torch.nn.functional


def to_torch(array, dtype):
    if dtype == "bf16":
        return torch.from_numpy(array.view("int16")).view(torch.bfloat16)
    return torch.from_numpy(array)


class Forward:
    def __init__(self, problem, data):
        self.q, self.k, self.v = (to_torch(data[name], problem.dtype) for name in "qkv")
        self.options = {"is_causal": problem.is_causal,
                        "enable_gqa": problem.heads_q != problem.heads_kv}

    def run(self):
        with torch.no_grad():
            self.o = F.scaled_dot_product_attention(self.q, self.k, self.v, **self.options)

    def results(self):
        return [self.o.float().numpy()]


class Backward(Forward):
    def __init__(self, problem, data):
        super().__init__(problem, data)
        self.d_o = to_torch(data["d_o"], problem.dtype)
        self.leaves = [t.clone().requires_grad_() for t in (self.q, self.k, self.v)]
        self.graph = F.scaled_dot_product_attention(*self.leaves, **self.options)

    def run(self):
        self.gradients = torch.autograd.grad(self.graph, self.leaves, self.d_o, retain_graph=True)

    def results(self):
        return [gradient.float().numpy() for gradient in self.gradients]


class PyTorch:
    is_by_head = True

    def __init__(self):
        capability = torch.backends.cpu.get_cpu_capability()
        self.name = f"PyTorch {torch.__version__.split('+')[0]} ({capability})"

    def start(self, problem, data):
        if problem.is_causal and problem.rows != problem.columns:
            raise Refused("is_causal aligns to the first column, not to the last")
        return (Forward if problem.which == "fwd" else Backward)(problem, data)


def main():
    options = parse(__doc__.splitlines()[0]).parse_args()
    threads = count_threads()
    torch.set_num_threads(threads)
    return run(options, [PyTorch()], threads)


if __name__ == "__main__":
    sys.exit(main())
