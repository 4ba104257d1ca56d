# SPDX-License-Identifier: Apache-2.0
"""libtessera.so through ctypes, as far as comparing with other libraries needs it."""
import ctypes as c
import re

DTYPES = {"f32": 1, "f16": 2, "bf16": 3}
CAUSAL = 1


class Layout(c.Structure):
    _fields_ = [(n, c.c_int64) for n in ("batch", "seqlen", "heads", "head_dim", "batch_stride",
                                         "seqlen_stride", "head_stride", "dim_stride")]
    _fields_ += [("dtype", c.c_int32), ("reserved", c.c_int32)]


class Address(c.Structure):
    _fields_ = [("base", c.c_void_p), ("offset", c.c_int64)]


class AttentionDesc(c.Structure):
    _fields_ = [("struct_size", c.c_size_t)]
    _fields_ += [(n, Layout) for n in ("q", "k", "v", "o", "lse")]
    _fields_ += [("softmax_scale", c.c_float), ("softcap", c.c_float), ("mask", c.c_uint32),
                 ("flags", c.c_uint32), ("window_left", c.c_int64), ("window_right", c.c_int64),
                 ("num_splits", c.c_int64)]
    _fields_ += [(n, c.c_void_p) for n in ("varlen", "paging", "bias", "scaling", "program")]


class ForwardArgs(c.Structure):
    _fields_ = [("struct_size", c.c_size_t)]
    _fields_ += [(n, Address) for n in (
        "q", "k", "v", "o", "lse", "cu_seqlens_q", "cu_seqlens_k", "seqused_q", "seqused_k",
        "page_table", "bias", "alibi_slopes", "sink", "q_descale", "k_descale", "v_descale",
        "workspace")]
    _fields_ += [("workspace_size", c.c_size_t)]


class BackwardArgs(c.Structure):
    _fields_ = [("struct_size", c.c_size_t)]
    _fields_ += [(n, Address) for n in (
        "q", "k", "v", "o", "lse", "d_o", "d_lse", "cu_seqlens_q", "cu_seqlens_k", "seqused_q",
        "seqused_k", "page_table", "bias", "alibi_slopes", "sink", "q_descale", "k_descale",
        "v_descale", "dq", "dk", "dv", "dbias", "dalibi_slopes", "dsink", "workspace")]
    _fields_ += [("workspace_size", c.c_size_t)]


class Library:
    """A context, the CPU device and a queue."""

    def __init__(self, path):
        self.lib = c.CDLL(path)
        self.context, self.device, self.queue = c.c_void_p(), c.c_void_p(), c.c_void_p()
        self.need(self.lib.tess_context_create(None, c.byref(self.context)))
        self.need(self.lib.tess_device_open(self.context, b"cpu", c.byref(self.device)))
        self.need(self.lib.tess_queue_create(self.device, c.byref(self.queue)))

    def need(self, status):
        if status:
            text = c.create_string_buffer(8192)
            self.lib.tess_context_error(None, text, 8192)
            raise RuntimeError(text.value.decode())

    def plan(self, shapes, dtype, causal, is_by_head, backward=False):
        """shapes: (batch, seqlen, heads, dim) of q, k, v, o. In memory that is the order too, or
        (batch, heads, seqlen, dim) where whole heads lie behind each other."""
        desc = AttentionDesc(struct_size=c.sizeof(AttentionDesc), mask=CAUSAL if causal else 0)
        for name, (b, s, h, d) in zip("qkvo", shapes):
            row, head = (d, s * d) if is_by_head else (h * d, d)
            setattr(desc, name, Layout(b, s, h, d, h * s * d, row, head, 1, DTYPES[dtype], 0))
        made = c.c_void_p()
        if backward:
            self.need(self.lib.tess_plan_create_backward(self.device, c.byref(desc), None,
                                                         c.byref(made)))
        else:
            self.need(self.lib.tess_plan_create_forward(self.device, c.byref(desc), c.byref(made)))
        return made

    def describe(self, plan):
        text = c.create_string_buffer(8192)
        self.lib.tess_plan_describe(plan, text, 8192)
        return text.value.decode()

    def kernel(self, plan):
        """The kernel's name, which the description gives."""
        found = re.search(r"\b(?:fwd|bwd)_\w+", self.describe(plan))
        return found[0] if found else ""

    def run(self, plan, kind, **addresses):
        args = kind(struct_size=c.sizeof(kind))
        for name, pointer in addresses.items():
            setattr(args, name, Address(pointer, 0))
        run = self.lib.tess_plan_run_forward
        if kind is BackwardArgs:
            run = self.lib.tess_plan_run_backward
        self.need(run(plan, self.queue, c.byref(args)))
