#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Times the matrix products of attention alone, by OpenBLAS and oneDNN, against all of Tessera.

    TESSERA_THREADS=2 python3 bench/peers/gemm.py build/libtessera.so [--data SUITE or LINE]

For each head S = Q K^T and O = S V, with no scale, mask or softmax: less than attention takes, and
what it would take if everything else were free. Full forward problems; f32 by both, bf16 by oneDNN,
with S in that type. OpenBLAS is Debian's libopenblas0-pthread; oneDNN 3 is pip's onednn-cpu-gomp.
"""
import ctypes as c
import ctypes.util
import os
import pathlib
import sys

from compare import SKIP, Refused, count_threads, np, parse, run, to_f32


class Case:
    """Two products for each head; `multiply` has been made for these addresses."""

    def __init__(self, peer, problem, data):
        self.q, self.k, self.v = (data[name] for name in "qkv")
        self.dtype = problem.dtype
        self.s = np.empty((problem.rows, problem.columns), self.q.dtype)
        self.o = np.empty_like(self.q)
        group = problem.heads_q // problem.heads_kv
        self.calls = []
        for b in range(problem.batch):
            for h in range(problem.heads_q):
                q, o = self.q[b, h], self.o[b, h]
                k, v = self.k[b, h // group], self.v[b, h // group]
                self.calls += [peer.multiply(q, k.T, self.s), peer.multiply(self.s, v, o)]

    def run(self):
        for call in self.calls:
            call()

    def apart(self, _):
        """Some rows of the last head; attention's own result is another one."""
        q, k, v = (to_f32(array[-1, -1]) for array in (self.q, self.k, self.v))
        wanted = q[:8] @ k.T @ v
        bound = 1e-4 if self.dtype == "f32" else 3e-2
        return (float(np.abs(wanted - to_f32(self.o[-1, -1][:8])).max()),
                bound * float(np.abs(wanted).max()))


class Peer:
    is_by_head = True

    def start(self, problem, data):
        if problem.which != "fwd" or problem.is_causal:
            raise Refused("full forward problems only: a product skips nothing")
        if problem.dtype not in self.dtypes:
            raise Refused(f"no product in {problem.dtype}")
        return Case(self, problem, data)


# ---- OpenBLAS ------------------------------------------------------------------------------------


# Cores whose kernels are older than AVX2: what OpenBLAS takes a processor for when it is too new.
OLD_CORES = ("prescott", "core2", "nehalem", "sandybridge", "generic", "barcelona", "bulldozer")
NO_TRANSPOSE, TRANSPOSE, ROW_MAJOR = 111, 112, 101


class OpenBlas(Peer):
    dtypes = ("f32",)

    def __init__(self, path, threads):
        # Cycles, as a power of two, that its idle threads spin: the usual 26 reach into the windows
        # of others.
        os.environ.setdefault("OPENBLAS_THREAD_TIMEOUT", "20")
        self.lib = c.CDLL(path)
        self.lib.openblas_get_corename.restype = c.c_char_p
        self.core = self.lib.openblas_get_corename().decode()
        self.lib.openblas_set_num_threads(threads)
        self.name = f"OpenBLAS ({self.core})"

    def multiply(self, a, b, out):
        """A call of out = a b; b may be the transpose of an array."""
        (m, k), n = a.shape, b.shape[1]
        is_transposed = b.strides[0] < b.strides[1]
        pitch = b.strides[1 if is_transposed else 0] // 4
        arguments = (ROW_MAJOR, NO_TRANSPOSE, TRANSPOSE if is_transposed else NO_TRANSPOSE, m, n, k,
                     c.c_float(1), c.c_void_p(a.ctypes.data), a.strides[0] // 4,
                     c.c_void_p(b.ctypes.data), pitch, c.c_float(0),
                     c.c_void_p(out.ctypes.data), out.strides[0] // 4)
        return lambda: self.lib.cblas_sgemm(*arguments)


def force_core(core):
    """Starts again with OPENBLAS_CORETYPE where a new processor is taken for an old one."""
    try:
        flags = pathlib.Path("/proc/cpuinfo").read_text("utf-8").split()
    except OSError:
        return
    better = "SKYLAKEX" if "avx512f" in flags else "HASWELL" if "avx2" in flags else None
    if core.lower() not in OLD_CORES or not better or "OPENBLAS_CORETYPE" in os.environ:
        return
    print(f"OpenBLAS takes this processor for {core}: starting again with "
          f"OPENBLAS_CORETYPE={better}", flush=True)
    os.environ["OPENBLAS_CORETYPE"] = better
    os.execv(sys.executable, [sys.executable, *sys.argv])


# ---- oneDNN --------------------------------------------------------------------------------------


SRC, WEIGHTS, DST = 1, 33, 17
CPU, IN_ORDER = 1, 1
DNNL_TYPES = {np.dtype(np.float32): 3, np.dtype(np.uint16): 2}


class Version(c.Structure):
    _fields_ = [("major", c.c_int), ("minor", c.c_int), ("patch", c.c_int)]


class Argument(c.Structure):
    _fields_ = [("which", c.c_int), ("memory", c.c_void_p)]


class OneDnn(Peer):
    dtypes = ("f32", "bf16")

    def __init__(self, path):
        self.lib = c.CDLL(path)
        self.lib.dnnl_version.restype = c.POINTER(Version)
        version = self.lib.dnnl_version()[0]
        self.name = f"oneDNN {version.major}.{version.minor}.{version.patch}"
        self.major = version.major
        if self.major < 3:
            return
        self.engine = self.make("dnnl_engine_create", CPU, c.c_size_t(0))
        self.stream = self.make("dnnl_stream_create", self.engine, IN_ORDER)

    def make(self, function, *arguments):
        made = c.c_void_p()
        status = getattr(self.lib, function)(c.byref(made), *arguments)
        if status:
            raise Refused(f"{function} fails with status {status}")
        return made

    def describe(self, array):
        strides = [stride // array.itemsize for stride in array.strides]
        numbers = c.c_int64 * 2
        return self.make("dnnl_memory_desc_create_with_strides", 2, numbers(*array.shape),
                         DNNL_TYPES[array.dtype], numbers(*strides))

    def multiply(self, a, b, out):
        descriptors = [self.describe(array) for array in (a, b, out)]
        product = self.make("dnnl_matmul_primitive_desc_create", self.engine, descriptors[0],
                            descriptors[1], None, descriptors[2], None)
        primitive = self.make("dnnl_primitive_create", product)
        memories = [self.make("dnnl_memory_create", descriptor, self.engine,
                              c.c_void_p(array.ctypes.data))
                    for descriptor, array in zip(descriptors, (a, b, out))]
        arguments = (Argument * 3)(*zip((SRC, WEIGHTS, DST), (m.value for m in memories)))

        def call():
            self.lib.dnnl_primitive_execute(primitive, self.stream, 3, arguments)
            self.lib.dnnl_stream_wait(self.stream)
        return call


# ---- The command ---------------------------------------------------------------------------------


def find(name, given):
    """A library by its path, from the system, or from where pip puts it."""
    if given:
        return given
    inside = sorted(pathlib.Path(sys.prefix, "lib").glob(f"lib{name}.so*"))
    return str(inside[0]) if inside else ctypes.util.find_library(name)


def open_peers(options, threads):
    peers = []
    openblas, onednn = find("openblas", options.openblas), find("dnnl", options.onednn)
    if openblas:
        peers.append(OpenBlas(openblas, threads))
        force_core(peers[-1].core)
    else:
        print("OpenBLAS is not installed: apt-get install libopenblas0-pthread")
    if onednn:
        peers.append(OneDnn(onednn))
    if not onednn or peers[-1].major < 3:
        found = peers.pop().name if onednn else "oneDNN"
        print(f"{found} {'is too old' if onednn else 'is not installed'}: 3 or later is needed, "
              "python3 -m pip install onednn-cpu-gomp")
    return peers


def main():
    parser = parse(__doc__.splitlines()[0])
    parser.add_argument("--openblas", metavar="FILE", help="path of libopenblas.so")
    parser.add_argument("--onednn", metavar="FILE", help="path of libdnnl.so, version 3")
    options = parser.parse_args()
    threads = count_threads()
    peers = open_peers(options, threads)
    return run(options, peers, threads) if peers else SKIP


if __name__ == "__main__":
    sys.exit(main())
