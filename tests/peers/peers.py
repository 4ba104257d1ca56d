#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The scripts of bench/peers do what docs/benchmarking.md says of them.

Usage: peers.py missing|faults|pytorch|onnx_runtime|gemm LIBRARY

missing   without the packages they need, each says which and ends with the status for "skipped"
faults    a peer with another result is called WRONG; a problem it cannot do is named with a reason
others    that peer on small problems, its JSON, and a picture of it; skipped where not installed

PEERS_PYTHON is the interpreter that has the packages, if it is not the one that runs this."""
import json
import os
import pathlib
import subprocess
import sys
import tempfile

PEERS = pathlib.Path(__file__).resolve().parents[2] / "bench" / "peers"
PLOT = PEERS.parent / "plot.py"
PYTHON = os.environ.get("PEERS_PYTHON", sys.executable)
SKIP = 77

PROBLEMS = {
    "pytorch": ["fwd b1 hq2 q40 d16 f32", "fwd b2 hq4 hk2 q33 d32 bf16 causal",
                "fwd b1 hq2 q1 k70 d16 f16", "bwd b1 hq2 q40 d16 f32 causal"],
    "onnx_runtime": ["fwd b1 hq2 q40 d16 f32", "fwd b2 hq2 q40 d16 f32 causal",
                     "fwd b1 hq2 q1 k70 d16 f32", "fwd b1 hq4 hk2 q40 d16 f32 causal"],
    "gemm": ["fwd b1 hq2 q40 d16 f32", "fwd b2 hq4 hk2 q33 k50 d32 f32"],
}

# A peer that is Tessera itself; what it has computed is damaged when the line is causal.
MIRROR = """\
import sys
sys.path.insert(0, {peers!r})
import compare
from library import Library

class Mirror:
    name, is_by_head = "mirror", True
    def start(self, problem, data):
        if problem.which == "bwd":
            raise compare.Refused("mirrors only look forward")
        case = compare.Ours(Library({library!r}), problem, data, True)
        results = case.results
        if problem.is_causal:
            case.results = lambda: [results()[0] + 0.01]
        return case

options = compare.parse("").parse_args()
sys.exit(compare.run(options, [Mirror()], compare.count_threads()))
"""


def run(*command, python=(PYTHON,)):
    result = subprocess.run([*python, *map(str, command)], check=False, stdout=subprocess.PIPE,
                            stderr=subprocess.STDOUT, text=True)
    print(result.stdout, end="", flush=True)
    return result.returncode, result.stdout


def expect(is_true, what):
    if not is_true:
        sys.exit(f"FAILED: {what}")


def check_missing(library, _):
    # -S leaves out all packages, whatever is installed.
    for name in PROBLEMS:
        status, said = run(PEERS / f"{name}.py", library, python=(sys.executable, "-S"))
        expect(status == SKIP, f"{name}.py ends with {status}, not with {SKIP}")
        expect("is not installed" in said and "pip install" in said, f"{name}.py says how to help")


def check_faults(library, folder):
    script = folder / "mirror.py"
    script.write_text(MIRROR.format(peers=str(PEERS), library=library), "utf-8")
    lists = folder / "list.problems"
    good, bad, refused = ("fwd b1 hq2 q24 d16 f32", "fwd b1 hq2 q24 d16 f32 causal",
                          "bwd b1 hq2 q24 d16 f32")
    lists.write_text("\n".join([good, refused, "fwd b1 hq2 q8 d8 f32 alibi"]), "utf-8")
    status, said = run(script, library, "--data", lists, "--seconds", 0.02)
    if status == SKIP:
        sys.exit(SKIP)
    expect(status == 0, "equal results are fine")
    expect("apart by 0.0e+00" in said, "a mirror shows the same")
    expect("mirrors only look forward" in said, "a refusal is named")
    expect("alibi is not compared" in said, "an option that peers lack is named")
    status, said = run(script, library, "--data", bad, "--seconds", 0.02)
    expect(status == 1 and "WRONG" in said, "another result is WRONG")
    status, said = run(script, library, "--data", refused, "--seconds", 0.02)
    expect(status == 1 and "no problem of the list" in said, "comparing nothing is no success")


def check_rows(path, count):
    rows = json.loads(path.read_text("utf-8"))
    expect(len(rows) >= 2 * count, f"{len(rows)} rows for {count} problems")
    for row in rows:
        expect(row["seconds_p10"] <= row["seconds_median"] <= row["seconds_p90"], "a spread")
        expect(row["rounds"] >= 5 and row["flops_per_second"] > 0, "rounds and a rate")
    expect({row["candidate"] for row in rows} == {"tessera", *(row["peer"] for row in rows)},
           "a row for each side")
    expect(all(row["kernel"] for row in rows if row["candidate"] == "tessera"), "our kernel's name")


def check_peer(name, library, folder):
    lists, results = folder / "list.problems", folder / "results.json"
    lists.write_text("\n".join(PROBLEMS[name]), "utf-8")
    status, _ = run(PEERS / f"{name}.py", library, "--data", lists, "--seconds", 0.05, "--json",
                    results)
    if status == SKIP:
        sys.exit(SKIP)
    expect(status == 0, f"{name}.py ends with {status}")
    check_rows(results, len(PROBLEMS[name]))
    if run("-c", "import matplotlib")[0] == 0:
        expect(run(PLOT, results)[0] == 0, "plot.py draws it")
        expect((folder / "results-peers.png").stat().st_size > 10000, "a picture")


def main():
    what, library = sys.argv[1], str(pathlib.Path(sys.argv[2]).resolve())
    with tempfile.TemporaryDirectory(prefix="tessera-peers-") as name:
        folder = pathlib.Path(name)
        if what == "missing":
            check_missing(library, folder)
        elif what == "faults":
            check_faults(library, folder)
        else:
            check_peer(what, library, folder)


if __name__ == "__main__":
    main()
