# SPDX-License-Identifier: Apache-2.0
"""Files that are damaged, or made to do damage: each is refused with its reason, none crashes."""

import json
import os
import random
import struct

import support
from support import OK, UNAVAILABLE, USAGE, floats, npy, safetensors


def entry(begin, end, shape=(1, 1, 1, 1), dtype="F32"):
    return {"dtype": dtype, "shape": list(shape), "data_offsets": [begin, end]}


class Safetensors(support.Case):
    GOOD = {name: ("F32", [1, 1, 1, 1], floats([1.0])) for name in "qkv"}

    def header(self, table, data=12 * b"\0", says=None, length=None):
        """A file with this header, which must be refused with these words."""
        text = table if isinstance(table, bytes) else json.dumps(table).encode()
        path = self.write("bad.safetensors", struct.pack(
            "<Q", len(text) if length is None else length) + text + data)
        return self.refused("run", path, says=says)

    def table(self, **changes):
        """The header of a good file, some tensors replaced; None takes one away."""
        table = {"q": entry(0, 4), "k": entry(4, 8), "v": entry(8, 12), **changes}
        return {name: value for name, value in table.items() if value is not None}

    def test_good(self):
        self.tessera("run", self.write("good.safetensors", safetensors(self.GOOD)))

    def test_truncated_anywhere(self):
        whole = safetensors(self.GOOD)
        for size in [0, 1, 7, 8, 9, 20, len(whole) // 2, len(whole) - 13, len(whole) - 1]:
            self.refused("run", self.write("cut.safetensors", whole[:size]),
                         says="cut.safetensors")

    def test_too_long(self):
        self.refused("run", self.write("long.safetensors", safetensors(self.GOOD) + b"\0"),
                     says="the tensors end at byte 12 but the file has 13")

    def test_header_length(self):
        for length in [2 ** 64 - 1, 2 ** 63, 2 ** 63 - 8, 2 ** 32, 100_000_001, 10_000]:
            self.header(self.table(), length=length,
                        says=[f"said to be {length} bytes", "damaged, or not safetensors"])
        self.header(self.table(), length=0, says="header")
        self.header(self.table(), length=10, says="header")

    def test_header_that_is_no_json(self):
        for text in [b"", b"{", b"[]", b"null", b"1", b'"q"', b"{}}", b"\xff\xfe", b"[" * 5000,
                     b'{"q": 1}', b'{"q": {}}', b'{"q": []}', b'{"a\\u0000b": {}}']:
            self.header(text, says="header")

    def test_names_twice(self):
        text = b'{"q": %s, "q": %s}' % ((json.dumps(entry(0, 4)).encode(),) * 2)
        self.header(text, says="duplicate")

    def test_offsets(self):
        self.header(self.table(v=entry(8, 16, (1, 1, 1, 2))), says="ends at byte 16")
        self.header(self.table(v=entry(12, 8)), says="data_offsets")
        self.header(self.table(v=entry(-4, 0)), says="data_offsets")
        self.header(self.table(v=entry(2 ** 62, 2 ** 62 + 4)), says="ends at byte")
        self.header(self.table(v=entry(8.0, 12.0)), says="data_offsets")
        self.header(self.table(v=entry("8", "12")), says="data_offsets")
        self.header(self.table(v={**entry(8, 12), "data_offsets": [8]}), says="data_offsets")
        self.header(self.table(v={**entry(8, 12), "data_offsets": [8, 12, 16]}),
                    says="data_offsets")
        self.header(self.table(v={**entry(8, 12), "data_offsets": None}), says="data_offsets")
        self.header(b'{"q": {"dtype": "F32", "shape": [1,1,1,1], "data_offsets": '
                    b'[0, 99999999999999999999]}}', says="header")

    def test_overlap_and_holes(self):
        self.header(self.table(v=entry(4, 8)), says="overlaps another tensor")
        self.header(self.table(k=entry(2, 6), v=entry(6, 10)), says="overlaps another tensor")
        self.header(self.table(k=None), says="belong to none")

    def test_shapes(self):
        self.header(self.table(v=entry(8, 12, (1, 1, 1, 2))), says="which is not its 4 bytes")
        self.header(self.table(v=entry(8, 12, (1, 1, 1, -1))), says="whole numbers")
        self.header(self.table(v=entry(8, 12, (1, 1, 1, 1.0))), says="whole numbers")
        self.header(self.table(v=entry(8, 12, (2 ** 62, 4, 1, 1))), says="which is not its 4")
        self.header(self.table(v=entry(8, 12, (2 ** 33, 2 ** 33, 2 ** 33, 1))), says="is not its")
        self.header(self.table(v=entry(8, 12, (2 ** 62 + 1, 1, 1, 4))), says="is not its")
        self.header(self.table(v={**entry(8, 12), "shape": 1}), says="no shape")
        self.header(self.table(v={**entry(8, 12), "shape": None}), says="no shape")

    def test_empty_tensors_of_absurd_extents(self):
        for shape in [(0, 2 ** 62, 1, 1), (2 ** 40, 0, 2 ** 20, 1), (1, 0, 2 ** 62, 1)]:
            table = {name: entry(0, 0, shape) for name in "qkv"}
            self.header(table, data=b"", says="")
        # One tensor's extents must not overflow with another's.
        table = {"q": entry(0, 0, (2 ** 30, 0, 2 ** 30, 1)), "k": entry(0, 0, (2 ** 30, 0, 1, 1)),
                 "v": entry(0, 0, (2 ** 30, 0, 1, 2 ** 60))}
        self.header(table, data=b"", says="")

    def test_types(self):
        self.header(self.table(v={**entry(8, 12), "dtype": 7}), says="no dtype")
        self.header(self.table(v=entry(8, 12, dtype="F99")), says='tensor "v" is F99')
        self.header(self.table(v=entry(8, 12, dtype="U32")), says='tensor "v" is U32')
        self.header(self.table(v=entry(8, 12, dtype="I32")), says="v holds i32")
        self.header(self.table(v=entry(8, 12, [1] * 9)), says="more than 8 axes")

    def test_strangers_do_not_matter(self):
        # A tensor that nobody asks for may be of any type and rank.
        self.tessera("run", self.write("more.safetensors", safetensors(
            {**self.GOOD, "x": ("F4_NEW", [3], b"ab"), "y": ("U8", [1] * 12, b"\0"),
             "z": ("BOOL", [0], b"")})))

    def test_metadata(self):
        for notes in [1, [], None, {"a": 1}, {"a": None}]:
            self.header(self.table(__metadata__=notes) if notes is not None
                        else {**self.table(), "__metadata__": None}, says="metadata")
        # Notes are hints: what is no number is no scale.
        self.tessera("run", self.write("notes.safetensors", safetensors(
            self.GOOD, notes={"softmax_scale": "wide", "causal": "perhaps", "tokens": ""})))

    def test_names_are_shown_harmlessly(self):
        result = self.header(self.table(v=None, **{"\x1b[31mred": entry(8, 12)}),
                             says='no tensor "v"')
        self.assertNotIn("\x1b", result.err)
        result = self.tessera("run", self.write("tokens.safetensors", safetensors(
            self.GOOD, notes={"tokens": "\x1b[2J", "model": "\x1b]0;title\x07"})),
            "--explain-row", "0,0,0")
        self.assertNotIn("\x1b", result.out)

    def test_random_damage(self):
        # Flipped bytes in the header: refused, or still a file. Never a crash.
        whole = safetensors(self.GOOD, notes={"causal": "false"})
        chance = random.Random(7)
        for _ in range(60):
            damaged = bytearray(whole)
            for _ in range(chance.randint(1, 4)):
                damaged[chance.randrange(len(whole) - 12)] = chance.randrange(256)
            self.tessera("run", self.write("damaged.safetensors", bytes(damaged)),
                         code=(OK, USAGE, UNAVAILABLE))

    def test_pipes_and_folders(self):
        fifo = self.folder / "fifo.safetensors"
        os.mkfifo(fifo)
        self.refused("run", fifo, says="not a regular file")
        self.refused("run", "/dev/zero", says="not a regular file")


class Npy(support.Case):
    def damaged(self, data, says):
        good = self.write("good.npy", npy("<f4", [1, 1, 1], floats([1.0])))
        bad = self.write("bad.npy", data)
        return self.refused("run", "--q", good, "--k", good, "--v", bad, says=["--v", says])

    def test_good(self):
        good = self.write("good.npy", npy("<f4", [1, 1, 1], floats([1.0])))
        self.tessera("run", "--q", good, "--k", good, "--v", good)

    def test_not_npy(self):
        for data in [b"", b"\x93NUM", b"\x93NUMPY", b"PK\x03\x04" + b"\0" * 60, b"x" * 100]:
            self.damaged(data, "not an .npy file")
        self.damaged(npy("<f4", [1, 1, 1], floats([1.0]), version=3), "version 3.0")
        self.damaged(npy("<f4", [1, 1, 1], floats([1.0]), version=0), "version 0.0")

    def test_lengths(self):
        self.damaged(npy("<f4", [1, 1, 1], floats([1.0]), length=65535), "said to be 65535")
        self.damaged(npy("<f4", [1, 1, 1], b"", version=2, length=2 ** 32 - 1),
                     "said to be 4294967295")
        self.damaged(npy("<f4", [1, 1, 1], floats([1.0]), length=0), "the header is no dictionary")
        self.damaged(b"\x93NUMPY\x02\x00\x01", "file")

    def test_shapes(self):
        for shape in [(1, 1, 2), (2 ** 62, 4, 1), (2 ** 33, 2 ** 33, 1), (2 ** 63, 1, 1)]:
            self.damaged(npy("<f4", shape, floats([1.0])), "")
        self.damaged(npy("<f4", [1, 1, 1], floats([1.0]) + b"\0"), "5 bytes behind the header")
        self.damaged(npy("<f4", [1] * 9, floats([1.0])), "at most 8 axes")
        self.damaged(npy("<f4", [], floats([1.0])), "has shape ()")

    def test_types(self):
        for descr in ["<f8", ">f4", "|u1", "<c8", "|O"]:
            self.damaged(npy(descr, [1, 1, 1], floats([1.0, 1.0])), f"elements are '{descr}'")

    def test_dictionaries(self):
        for header in ["", "{", "}", "{}", "[]", "{'descr': '<f4'}",
                       "{'descr': '<f4', 'fortran_order': False}",
                       "{'descr': '<f4', 'fortran_order': 0, 'shape': (1,1,1)}",
                       "{'descr': '<f4', 'fortran_order': False, 'shape': (1,1,1)",
                       "{'descr': '<f4', 'fortran_order': False, 'shape': (1,,1)}",
                       "{'descr': '<f4', 'fortran_order': False, 'shape': (-1,1,1)}",
                       "{'descr': '<f4', 'fortran_order': False, 'shape': [1,1,1]}",
                       "{'descr': '<f4', 'descr': '<f4', 'fortran_order': False, 'shape': ()}",
                       "{'descr': '<f4', 'fortran_order': False, 'shape': (1,1,1), 'x': 1}",
                       "{'descr': [('a','<f4')], 'fortran_order': False, 'shape': (1,1,1)}",
                       "{'descr': '<f4, 'fortran_order': False, 'shape': (1,1,1)}",
                       "{'descr': '<f4', 'fortran_order': False, 'shape': (1,1,1)} x",
                       "{'descr': '<f4', 'fortran_order': False, 'shape': (1,1,1)}\0}",
                       "{'descr': '" + "f" * 5000 + "', 'fortran_order': False, 'shape': ()}",
                       "__import__('os').system('true')"]:
            self.damaged(npy("", (), floats([1.0]), header=header), "the header is no dictionary")

    def test_truncated_anywhere(self):
        whole = npy("<f4", [1, 1, 1], floats([1.0]))
        for size in range(len(whole)):
            self.damaged(whole[:size], "")


if __name__ == "__main__":
    support.main()
