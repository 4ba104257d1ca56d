#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Times onnxruntime's CPU attention against Tessera, interleaved in one process.

    TESSERA_THREADS=2 python3 bench/peers/onnx_runtime.py build/libtessera.so [--data SUITE or LINE]

Forward in f32: the operators MultiHeadAttention (its flash kernel where nothing is masked) and,
for grouped heads, GroupQueryAttention, both of the domain com.microsoft. On the CPU they have
neither bf16 nor a backward pass."""
import sys

from compare import Refused, count_threads, need, np, parse, run

ort = need("onnxruntime", "onnxruntime")
onnx = need("onnx", "onnx")
from onnx import TensorProto, helper  # noqa: E402  need() speaks when it is missing


def make_model(node, inputs):
    graph = helper.make_graph(
        [node], "attention",
        [helper.make_tensor_value_info(name, kind, shape) for name, kind, shape in inputs],
        [helper.make_tensor_value_info("o", TensorProto.FLOAT, None)])
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=8).SerializeToString()


class Case:
    """One operator, its tensors bound in place: nothing but attention happens in a run."""

    def __init__(self, problem, data, threads):
        shapes = [(b, s, h * d) for b, s, h, d in problem.shapes()]
        inputs = [(name, TensorProto.FLOAT, shape) for name, shape in zip("qkv", shapes)]
        node = helper.make_node("MultiHeadAttention", list("qkv"), ["o"], domain="com.microsoft",
                                num_heads=problem.heads_q, unidirectional=int(problem.is_causal))
        self.tensors = [data[name].reshape(shape) for name, shape in zip("qkv", shapes)]
        if problem.heads_kv != problem.heads_q:
            # The operator is made for caches: causal, with lengths as tensors.
            inputs += [("seqlens", TensorProto.INT32, (problem.batch,)),
                       ("total", TensorProto.INT32, (1,))]
            node = helper.make_node(
                "GroupQueryAttention", [*"qkv", "", "", "seqlens", "total"], ["o"],
                domain="com.microsoft", num_heads=problem.heads_q, kv_num_heads=problem.heads_kv)
            self.tensors += [np.full(problem.batch, problem.columns - 1, np.int32),
                             np.array([problem.columns], np.int32)]
        options = ort.SessionOptions()
        options.intra_op_num_threads = threads
        # Its idle threads would spin on, through the windows of others.
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
        self.kernel = node.op_type
        self.session = ort.InferenceSession(make_model(node, inputs), options,
                                            providers=["CPUExecutionProvider"])
        self.shape = problem.shapes()[3]
        self.o = np.empty(shapes[3], np.float32)
        self.binding = self.session.io_binding()
        for (name, _, shape), tensor in zip(inputs, self.tensors):
            self.binding.bind_input(name, "cpu", 0, tensor.dtype.type, shape, tensor.ctypes.data)
        self.binding.bind_output("o", "cpu", 0, np.float32, shapes[3], self.o.ctypes.data)

    def run(self):
        self.session.run_with_iobinding(self.binding)

    def results(self):
        return [self.o.reshape(self.shape)]


class OnnxRuntime:
    is_by_head = False

    def __init__(self, threads):
        self.name, self.threads = f"onnxruntime {ort.__version__}", threads

    def start(self, problem, data):
        if problem.which == "bwd":
            raise Refused("no backward pass")
        if problem.dtype != "f32":
            raise Refused(f"not compared in {problem.dtype}")
        is_grouped = problem.heads_q != problem.heads_kv
        if is_grouped and (not problem.is_causal or problem.rows != problem.columns):
            raise Refused("grouped heads only causally, as many queries as keys")
        if problem.is_causal and problem.rows != problem.columns:
            raise Refused("causal only with as many queries as keys")
        return Case(problem, data, self.threads)


def main():
    options = parse(__doc__.splitlines()[0]).parse_args()
    threads = count_threads()
    return run(options, [OnnxRuntime(threads)], threads)


if __name__ == "__main__":
    sys.exit(main())
