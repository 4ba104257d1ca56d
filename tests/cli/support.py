# SPDX-License-Identifier: Apache-2.0
"""What the tests of the command share: running it, and writing the files it reads byte by byte."""

import json
import os
import pathlib
import struct
import subprocess
import sys
import tempfile
import unittest

OK, DIFFERS, USAGE, UNAVAILABLE, BROKEN = range(5)

ROOT = pathlib.Path(__file__).resolve().parents[2]
MINILM = ROOT / "docs" / "examples" / "minilm" / "minilm_layer.safetensors"

# The program under test; the first argument of each test script.
PROGRAM = str(pathlib.Path(sys.argv.pop(1)).resolve()) if len(sys.argv) > 1 else "tessera"


class Result:
    """How one run of the command ended."""

    def __init__(self, arguments, done):
        self.arguments = arguments
        self.code = done.returncode
        self.out = done.stdout
        self.err = done.stderr

    def json(self):
        """The one document on standard output."""
        return json.loads(self.out)


class Case(unittest.TestCase):
    """A test with a folder of its own and a way to run the command."""

    maxDiff = None

    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="tessera-cli-")
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def tessera(self, *arguments, code=OK, env=None, cwd=None, stdin=None, once=True):
        """Runs the command, holds its exit status to `code`, or to one of several.

        once: tessera run need not repeat anything for the clock's sake.
        """
        words = [str(word) for word in arguments]
        if once and words[0] == "run" and "--repeat" not in words:
            words += ["--repeat", "1"]
        done = subprocess.run([PROGRAM, *words], capture_output=True, text=True, timeout=600,
                              env={**clean_environment(), **(env or {})}, cwd=cwd, input=stdin,
                              check=False)
        result = Result(words, done)
        self.assertIn(result.code, code if isinstance(code, tuple) else (code,),
                      f"tessera {' '.join(words)}\n{result.out}{result.err}")
        if result.code in (USAGE, UNAVAILABLE, BROKEN):
            self.assertTrue(result.err.startswith("tessera"), result.err)
        return result

    def refused(self, *arguments, says, code=USAGE, **options):
        """A wrong use: nothing on standard output, every one of `says` in the complaint."""
        result = self.tessera(*arguments, code=code, **options)
        self.assertEqual("", result.out)
        for text in [says] if isinstance(says, str) else says:
            self.assertIn(text, result.err)
        return result

    def kernels_for(self, line):
        """Names of the kernels that take a problem, the one that is chosen first."""
        document = self.tessera("explain", line, "--json").json()
        return [document["kernel"]] + [refusal["kernel"] for refusal in document["refusals"]
                                       if refusal["code"] == "outranked"]

    def write(self, name, data):
        """A file of these bytes in the test's folder."""
        path = self.folder / name
        path.write_bytes(data)
        return path


def clean_environment():
    """The environment without variables that would change what is tested."""
    return {key: value for key, value in os.environ.items() if not key.startswith("TESSERA_")}


def floats(values, code="f"):
    """Little-endian numbers: "f" is f32, "e" is f16, "i" is int32."""
    return struct.pack(f"<{len(values)}{code}", *values)


def safetensors(tensors, notes=None, header=None, length=None):
    """The bytes of a file. tensors: name -> (dtype, shape, bytes).

    header: text in place of the right one; length: a number in place of the right one.
    """
    data, table = b"", {}
    if notes is not None:
        table["__metadata__"] = notes
    for name, (dtype, shape, content) in tensors.items():
        table[name] = {"dtype": dtype, "shape": shape,
                       "data_offsets": [len(data), len(data) + len(content)]}
        data += content
    text = json.dumps(table).encode() if header is None else header
    return struct.pack("<Q", len(text) if length is None else length) + text + data


def read_safetensors(path):
    """name -> (dtype, shape, bytes), and the metadata."""
    raw = pathlib.Path(path).read_bytes()
    size = struct.unpack("<Q", raw[:8])[0]
    table = json.loads(raw[8:8 + size])
    notes = table.pop("__metadata__", {})
    data = raw[8 + size:]
    assert max(entry["data_offsets"][1] for entry in table.values()) == len(data)
    return {name: (entry["dtype"], entry["shape"],
                   data[entry["data_offsets"][0]:entry["data_offsets"][1]])
            for name, entry in table.items()}, notes


def npy(descr, shape, content, fortran=False, version=1, header=None, length=None):
    """The bytes of an .npy file."""
    if header is None:
        header = repr({"descr": descr, "fortran_order": fortran, "shape": tuple(shape)}) + "\n"
    text = header.encode()
    size = len(text) if length is None else length
    count = struct.pack("<H" if version == 1 else "<I", size)
    return b"\x93NUMPY" + bytes([version, 0]) + count + text + content


def read_npy(path):
    """descr, shape, bytes of a file of version 1."""
    raw = pathlib.Path(path).read_bytes()
    assert raw[:8] == b"\x93NUMPY\x01\x00", raw[:8]
    size = struct.unpack("<H", raw[8:10])[0]
    assert (10 + size) % 64 == 0 and raw[9 + size:10 + size] == b"\n"
    table = eval(raw[10:10 + size], {"__builtins__": {}})  # our own output: a literal
    assert table["fortran_order"] is False
    return table["descr"], table["shape"], raw[10 + size:]


def wave(count, step=0.37):
    """Numbers that are neither all alike nor large, and exact in f16."""
    return [round(((i * step) % 2.0 - 1.0) * 64) / 64 for i in range(count)]


def attention(q, k, v, scale, causal=False):
    """One head of attention on lists of rows, in plain Python; bottom-right causal."""
    import math

    result = []
    for i, row in enumerate(q):
        scores = [scale * sum(a * b for a, b in zip(row, key)) for key in k]
        seen = [j for j in range(len(k)) if not causal or j <= i + len(k) - len(q)]
        top = max(scores[j] for j in seen)
        weight = {j: math.exp(scores[j] - top) for j in seen}
        total = sum(weight.values())
        result.append(([sum(weight[j] * v[j][d] for j in seen) / total for d in range(len(v[0]))],
                       top + math.log(total)))
    return result


def main():
    """Runs the tests of the script; the program's name has been taken off the arguments."""
    unittest.main(verbosity=1)
