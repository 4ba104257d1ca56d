# SPDX-License-Identifier: Apache-2.0
"""What the peers share: problems, rounds in turn, a table, and JSON that bench/plot.py draws.

A peer has a `name`, `is_by_head` (which of two layouts of heads its tensors have) and
`start(problem, data)`, which raises Refused with a reason or returns an object with

    run()            does the problem once
    results()        what it has computed, as fp32, in the order of Ours.results()
    apart(ours)      largest difference and what is allowed; only where results() says nothing
"""
import argparse
import importlib
import json
import os
import pathlib
import platform
import sys
import time

from library import BackwardArgs, ForwardArgs, Library

SKIP = 77  # what meson takes for "skipped"
SUITES = pathlib.Path(__file__).resolve().parent.parent / "suites"

# Of the largest value. Two results that are each within the bounds of docs/numerics.md are; a peer
# promises nothing, so these are some times wider and only tell a wrong call from a right one.
ALLOWED = {"f32": 1e-4, "f16": 1e-2, "bf16": 6e-2}


class Refused(Exception):
    """A problem that a peer does not do, and why."""


def need(module, package):
    """Imports a module that a peer cannot do without."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        print(f"{pathlib.Path(sys.argv[0]).name} needs {module}, which is not installed ({error}): "
              f"python3 -m pip install {package}")
        sys.exit(SKIP)


np = need("numpy", "numpy")


# ---- Problems ------------------------------------------------------------------------------------


class Problem:
    """One line of text, as far as other libraries take it."""

    def __init__(self, line):
        words = line.split()
        numbers = {"b": 1, "hq": None, "hk": None, "q": None, "k": None, "d": None}
        self.line, self.which, self.dtype, self.is_causal = line, words[0], "f32", False
        for word in words[1:]:
            name = word.rstrip("0123456789")
            if word in ALLOWED:
                self.dtype = word
            elif word == "causal":
                self.is_causal = True
            elif name in numbers and name != word:
                numbers[name] = int(word[len(name):])
            else:
                raise Refused(f"{word} is not compared")
        if None in (numbers["hq"], numbers["q"], numbers["d"]):
            raise Refused("only batches of equal lengths are compared")
        self.batch, self.heads_q, self.rows, self.dim = (numbers[n] for n in ("b", "hq", "q", "d"))
        self.heads_kv = numbers["hk"] or self.heads_q
        self.columns = numbers["k"] or self.rows

    def shapes(self):
        """(batch, seqlen, heads, dim) of q, k, v, o."""
        q = (self.batch, self.rows, self.heads_q, self.dim)
        k = (self.batch, self.columns, self.heads_kv, self.dim)
        return q, k, k, q

    def pairs(self):
        if not self.is_causal:
            return self.rows * self.columns
        offset = self.columns - self.rows
        return sum(max(0, min(i + offset + 1, self.columns)) for i in range(self.rows))

    def flops(self):
        each = 4 if self.which == "fwd" else 10
        return float(each * self.dim * self.pairs() * self.heads_q * self.batch)

    def bytes(self):
        """Least traffic: each tensor once."""
        q, k = (int(np.prod(shape)) for shape in self.shapes()[:2])
        size = 4 if self.dtype == "f32" else 2
        lse = 4 * self.batch * self.rows * self.heads_q
        return float((2 * q + 2 * k) * size * (1 if self.which == "fwd" else 2) + lse)


def read_problems(name):
    """The lines of a suite, a file, or the name itself when it is a line."""
    if " " in name:
        return [name]
    path = SUITES / f"{name}.problems"
    text = (path if path.exists() else pathlib.Path(name)).read_text("utf-8")
    return [line for line in (line.split("#")[0].strip() for line in text.split("\n")) if line]


def to_bf16(values):
    """The nearest bf16, as bits."""
    bits = values.view(np.uint32)
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16)


def to_f32(values):
    if values.dtype == np.uint16:
        return (values.astype(np.uint32) << 16).view(np.float32)
    return values.astype(np.float32)


def make_data(problem, is_by_head):
    """Inputs q, k, v, d_o in the storage type; the memory of bf16 is uint16."""
    random = np.random.default_rng(1)
    data = {}
    for name, (b, s, h, d) in zip(("q", "k", "v", "d_o"), problem.shapes()):
        shape = (b, h, s, d) if is_by_head else (b, s, h, d)
        values = random.standard_normal(shape, np.float32)
        data[name] = (to_bf16(values) if problem.dtype == "bf16" else
                      values.astype(np.float16) if problem.dtype == "f16" else values)
    return data


class Ours:
    """Tessera doing one problem."""

    def __init__(self, library, problem, data, is_by_head):
        self.library, self.problem = library, problem
        self.o = np.empty_like(data["q"])
        self.lse = np.empty((problem.batch, problem.heads_q, problem.rows), np.float32)
        forward = {**{name: data[name] for name in "qkv"}, "o": self.o, "lse": self.lse}
        how = (problem.shapes(), problem.dtype, problem.is_causal, is_by_head)
        self.plan, self.kind, self.arrays = library.plan(*how), ForwardArgs, forward
        if problem.which == "bwd":
            self.run()
            self.gradients = {"d" + name: np.empty_like(data[name]) for name in "qkv"}
            self.plan, self.kind = library.plan(*how, backward=True), BackwardArgs
            self.arrays = {**forward, "d_o": data["d_o"], **self.gradients}

    def run(self):
        self.library.run(self.plan, self.kind,
                         **{name: array.ctypes.data for name, array in self.arrays.items()})

    def results(self):
        outputs = [self.o] if self.problem.which == "fwd" else self.gradients.values()
        return [to_f32(output) for output in outputs]

    def kernel(self):
        return self.library.kernel(self.plan)


# ---- Rounds --------------------------------------------------------------------------------------


def timed(case):
    start = time.perf_counter()
    case.run()
    return time.perf_counter() - start


def set_realtime(is_wanted):
    """Puts all threads of this process, those of every library, at real-time priority or back, so
    that other programs wait. False where that is not permitted."""
    policy = os.SCHED_RR if is_wanted else os.SCHED_OTHER
    try:
        for thread in os.listdir("/proc/self/task"):
            os.sched_setscheduler(int(thread), policy, os.sched_param(int(is_wanted)))
    except (OSError, AttributeError):
        return False
    return True


def window(case, length):
    """Seconds of one run. Threads of one library spin for a while after a call and would take the
    cores from the next: a pause lets them fall asleep, and other programs have their turn. A short
    case then runs once untimed, to wake its threads and find its tensors where a call after another
    finds them."""
    time.sleep(max(0.005, 0.25 * length))
    if length < 0.05:
        case.run()
    return timed(case)


def measure(cases, seconds):
    """Seconds of each case, round by round: in each every case once, in an order that turns; and
    whether that was at real-time priority, which long runs do not ask for."""
    samples = [[] for _ in cases]
    start = time.perf_counter()
    for case in cases:
        case.run()
    lengths = [timed(case) for case in cases]
    is_realtime = max(lengths) < 0.3 and set_realtime(True)
    rounds = 0
    while rounds < 5 or time.perf_counter() - start < seconds:
        for i in range(len(cases)):
            turn = (i + rounds) % len(cases)
            samples[turn].append(window(cases[turn], lengths[turn]))
        rounds += 1
    set_realtime(False)
    return samples, is_realtime


def spread(name, values):
    """Median and spread as the keys of `tessera bench --json`."""
    median, low, high = (float(np.percentile(values, p)) for p in (50, 10, 90))
    return {f"{name}_median" if name == "seconds" else name: median, f"{name}_p10": low,
            f"{name}_p90": high}


def find_apart(ours, peer, dtype):
    """Largest difference and what is allowed: of the largest value of the worst tensor."""
    worst = (0.0, ALLOWED[dtype])
    for a, b in zip(ours, peer):
        apart, size = float(np.abs(a - b).max(initial=0)), float(np.abs(b).max(initial=0))
        allowed = ALLOWED[dtype] * max(size, 1e-3)
        if not apart / allowed <= worst[0] / worst[1]:
            worst = (apart, allowed)
    return worst


def machine_name():
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as file:
            return next(line.split(":")[1].strip() for line in file
                        if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor()


def compare(library, peer, problem, seconds, threads):
    """Two rows, the peer's and ours, as `tessera bench --json` has them, or one without numbers."""
    data = make_data(problem, peer.is_by_head)
    ours = Ours(library, problem, data, peer.is_by_head)
    theirs = peer.start(problem, data)
    samples, is_realtime = measure([theirs, ours], seconds)
    if hasattr(theirs, "apart"):
        apart, allowed = theirs.apart(ours)
    else:
        apart, allowed = find_apart(ours.results(), theirs.results(), problem.dtype)
    rows = []
    for name, kernel, times in ((peer.name, getattr(theirs, "kernel", ""), samples[0]),
                                ("tessera", ours.kernel(), samples[1])):
        seconds_of = spread("seconds", times)
        rows.append({
            "problem": problem.line, "candidate": name, "kernel": kernel, "device": "cpu",
            "machine": machine_name(), "description": f"{threads} threads", "threads": threads,
            **seconds_of, "seconds_best": min(times), "flops": problem.flops(),
            "bytes": problem.bytes(),
            "flops_per_second": problem.flops() / seconds_of["seconds_median"],
            "bytes_per_second": problem.bytes() / seconds_of["seconds_median"],
            **spread("speedup", [a / b for a, b in zip(samples[0], times)]),
            "peer": peer.name, "rounds": len(times), "is_cold": False, "is_realtime": is_realtime,
            "apart": apart, "apart_allowed": allowed})
    return rows


def print_rows(peer, ours):
    name, is_good = peer["problem"], ours["apart"] <= ours["apart_allowed"]
    print(f"{name:44} {ours['flops_per_second'] * 1e-9:7.1f} Gflop/s, {peer['candidate']} "
          f"{peer['flops_per_second'] * 1e-9:7.1f}: {ours['speedup']:.2f}x "
          f"({ours['speedup_p10']:.2f}-{ours['speedup_p90']:.2f}) in {ours['rounds']} rounds, "
          f"apart by {ours['apart']:.1e}" + ("" if is_good else
                                             f", WRONG: at most {ours['apart_allowed']:.1e}"),
          flush=True)
    return is_good


def parse(description):
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("library", help="path of libtessera.so")
    parser.add_argument("--data", default="cpu", help="a list of bench/suites, a file or one line")
    parser.add_argument("--seconds", type=float, default=3.0, help="for each problem")
    parser.add_argument("--json", metavar="FILE", help="write the rows there, for bench/plot.py")
    return parser


def count_threads():
    """As many as TESSERA_THREADS says, for every library; else as many as there are cores."""
    threads = int(os.environ.get("TESSERA_THREADS") or len(os.sched_getaffinity(0)))
    os.environ["TESSERA_THREADS"] = os.environ["OMP_NUM_THREADS"] = str(threads)
    return threads


def run(options, peers, threads):
    """Compares every problem with every peer; the exit status."""
    library = Library(options.library)
    rows, wrong = [], 0
    print(f"{machine_name()}, {threads} threads; " + ", ".join(peer.name for peer in peers))
    for line in read_problems(options.data):
        for peer in peers:
            try:
                pair = compare(library, peer, Problem(line), options.seconds, threads)
            except Refused as why:
                print(f"{line:44} {peer.name}: {why}", flush=True)
                continue
            rows += pair
            wrong += not print_rows(*pair)
    if options.json:
        pathlib.Path(options.json).write_text(json.dumps(rows, indent=1) + "\n", "utf-8")
    if not rows:
        print("no problem of the list was compared")
    return 1 if wrong or not rows else 0
