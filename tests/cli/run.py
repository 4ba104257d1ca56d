# SPDX-License-Identifier: Apache-2.0
"""tessera run: real data, small data with known answers, every option, results read back."""

import struct

import support
from support import BROKEN, DIFFERS, MINILM, OK, UNAVAILABLE, floats, npy, safetensors, wave

KEYS = {"input", "problem", "device", "kernel", "splits", "tensors", "runs", "seconds_median",
        "seconds_p10", "seconds_p90", "flops", "flops_per_second", "peak_flops_per_second",
        "share_of_peak", "bytes", "verify"}


class Small(support.Case):
    """One sequence of 3 rows and 5 columns, 2 heads, small dims: plain Python can do it."""

    ROWS, COLUMNS, HEADS, DIM, DIM_V = 3, 5, 2, 4, 3

    def setUp(self):
        super().setUp()
        self.q = wave(self.ROWS * self.HEADS * self.DIM)
        self.k = wave(self.COLUMNS * self.HEADS * self.DIM, 0.61)
        self.v = wave(self.COLUMNS * self.HEADS * self.DIM_V, 0.83)

    def head(self, values, rows, dim, head):
        """Rows of one head of a (rows, heads, dim) tensor."""
        return [values[(r * self.HEADS + head) * dim:(r * self.HEADS + head + 1) * dim]
                for r in range(rows)]

    def expected(self, causal=False, scale=None):
        """O as (row, head, dim) and LSE as (head, row), flat."""
        o = [0.0] * (self.ROWS * self.HEADS * self.DIM_V)
        lse = []
        for head in range(self.HEADS):
            rows = support.attention(self.head(self.q, self.ROWS, self.DIM, head),
                                     self.head(self.k, self.COLUMNS, self.DIM, head),
                                     self.head(self.v, self.COLUMNS, self.DIM_V, head),
                                     self.DIM ** -0.5 if scale is None else scale, causal)
            for row, (values, total) in enumerate(rows):
                at = (row * self.HEADS + head) * self.DIM_V
                o[at:at + self.DIM_V] = values
                lse.append(total)
        return o, lse

    def tensors(self, dtype="F32", code="f"):
        return {"q": (dtype, [1, self.ROWS, self.HEADS, self.DIM], floats(self.q, code)),
                "k": (dtype, [1, self.COLUMNS, self.HEADS, self.DIM], floats(self.k, code)),
                "v": (dtype, [1, self.COLUMNS, self.HEADS, self.DIM_V], floats(self.v, code))}

    def file(self, **changes):
        return self.write("in.safetensors", safetensors(self.tensors(), **changes))

    def assert_close(self, expected, got, within=2e-6):
        self.assertEqual(len(expected), len(got))
        for want, have in zip(expected, got):
            self.assertAlmostEqual(want, have, delta=within)


class Minilm(support.Case):
    def test_verify(self):
        text = self.tessera("run", MINILM, "--verify", once=False).out
        self.assertEqual("PASS", text.splitlines()[-1])
        for word in ["(1, 147, 12, 32)", "fwd b1 hq12 q147 k147 d32 f32", "kernel", "GFLOP/s",
                     "o against float64", "o against the file's"]:
            self.assertIn(word, text)

    def test_json(self):
        document = self.tessera("run", MINILM, "--verify", "--json").json()
        self.assertLessEqual(KEYS, set(document))
        self.assertTrue(document["verify"]["passed"])
        self.assertEqual({("o", "float64"), ("lse", "float64"), ("o", "file")},
                         {(f["tensor"], f["against"]) for f in document["verify"]["findings"]})
        for finding in document["verify"]["findings"]:
            self.assertEqual(0, finding["wrong"])
            self.assertLess(finding["largest_error"], 1e-5)
        self.assertEqual(4 * 32 * 147 * 147 * 12, document["flops"])

    def test_wrong_scale_is_found(self):
        document = self.tessera("run", MINILM, "--verify", "--scale", "0.2", "--json",
                                code=DIFFERS).json()
        self.assertFalse(document["verify"]["passed"])
        passed = {(f["tensor"], f["against"]): f["passed"]
                  for f in document["verify"]["findings"]}
        # It is computed right for that scale; it is not what the model computed.
        self.assertTrue(passed["o", "float64"])
        self.assertFalse(passed["o", "file"])
        self.assertIn("FAIL", self.tessera("run", MINILM, "--verify", "--scale", "0.2", "--quiet",
                                           code=DIFFERS).out)

    def test_wrong_mask_is_found(self):
        self.tessera("run", MINILM, "--verify", "--causal", code=DIFFERS)

    def test_splits_give_the_same(self):
        document = self.tessera("run", MINILM, "--verify", "--splits", "3", "--json").json()
        self.assertIn("splits=3", document["problem"])
        self.assertTrue(document["verify"]["passed"])

    def test_every_kernel(self):
        devices = self.tessera("devices", "--kernels", "--json").json()
        kernels = [k["name"] for d in devices if d["name"] == "cpu" for k in d["kernels"]
                   if k["runs_here"] and k["pass"] == "forward" and "f32" in k["dtypes"]]
        for kernel in kernels:
            # A kernel for few rows may refuse; whoever accepts is right.
            self.tessera("run", MINILM, "--verify", "--kernel", kernel, "--json",
                         code=(OK, UNAVAILABLE))

    def test_explain_row(self):
        document = self.tessera("run", MINILM, "--explain-row", "0,9,27", "--top", "3",
                                "--json").json()
        row = document["explain_row"]
        self.assertEqual("foolish", row["token"])
        self.assertEqual(147, row["keys"])
        self.assertEqual(3, len(row["top"]))
        self.assertEqual("[CLS]", row["top"][0]["token"])
        weights = [key["weight"] for key in row["top"]]
        self.assertEqual(sorted(weights, reverse=True), weights)
        text = self.tessera("run", MINILM, "--explain-row", "0,9,27", "--top", "3").out
        self.assertIn('row 27 "foolish"', text)
        self.refused("run", MINILM, "--explain-row", "0,12,0", says="12 heads, counted from 0")
        self.refused("run", MINILM, "--explain-row", "0,1,147", says="147 rows, counted from 0")
        self.refused("run", MINILM, "--explain-row", "0,1", says="BATCH,HEAD,ROW")

    def test_peak(self):
        document = self.tessera("run", MINILM, "--peak", "--json", once=False).json()
        self.assertGreater(document["runs"], 5)
        self.assertGreater(document["peak_flops_per_second"], 0)
        self.assertGreater(document["share_of_peak"], 0)
        self.assertLess(document["share_of_peak"], 1.5)

    def test_names(self):
        # k as q and q as k: another problem, computed as right.
        document = self.tessera("run", MINILM, "--q-name", "k", "--k-name", "q", "--o-name", "o",
                                "--verify", "--json", code=DIFFERS).json()
        self.assertTrue(document["verify"]["findings"][0]["passed"])
        self.refused("run", MINILM, "--q-name", "queries",
                     says=['no tensor "queries"', "its tensors are k, o, q, v"])


class Results(Small):
    def test_safetensors_round_trip(self):
        out = self.folder / "out.safetensors"
        self.tessera("run", self.file(), "-o", out, "--causal")
        tensors, notes = support.read_safetensors(out)
        o, lse = self.expected(causal=True)
        self.assertEqual(("F32", [1, 3, 2, 3]), tensors["o"][:2])
        self.assertEqual(("F32", [1, 2, 3]), tensors["lse"][:2])
        self.assert_close(o, struct.unpack("<18f", tensors["o"][2]))
        self.assert_close(lse, struct.unpack("<6f", tensors["lse"][2]))
        self.assertEqual("true", notes["causal"])
        self.assertEqual("batch,seqlen,heads,head_dim", notes["layout"])
        self.assertEqual(0.5, float(notes["softmax_scale"]))
        self.assertIn("causal", notes["problem"])
        self.assertEqual([], [p.name for p in self.folder.iterdir() if ".part" in p.name])

        # With its answer and its notes beside the inputs the file verifies itself.
        both = self.write("both.safetensors",
                          safetensors({**self.tensors(), "o": tensors["o"],
                                       "lse": tensors["lse"]}, notes=notes))
        document = self.tessera("run", both, "--verify", "--json").json()
        self.assertIn(("lse", "file"), [(f["tensor"], f["against"])
                                        for f in document["verify"]["findings"]])
        self.assertIn("causal", document["problem"])
        self.tessera("run", both, "--verify", "--no-causal", code=DIFFERS)
        self.tessera("run", both, "--verify", "--no-metadata", code=DIFFERS)

    def test_npy_round_trip(self):
        names = {}
        for name, (_, shape, data) in self.tensors().items():
            names[name] = self.write(f"{name}.npy", npy("<f4", shape[1:], data))
        self.tessera("run", "--q", names["q"], "--k", names["k"], "--v", names["v"],
                     "--o", self.folder / "o.npy", "--lse", self.folder / "lse.npy")
        o, lse = self.expected()
        descr, shape, data = support.read_npy(self.folder / "o.npy")
        self.assertEqual(("<f4", (3, 2, 3)), (descr, shape))  # no batch in, none out
        self.assert_close(o, struct.unpack("<18f", data))
        descr, shape, data = support.read_npy(self.folder / "lse.npy")
        self.assertEqual(("<f4", (2, 3)), (descr, shape))
        self.assert_close(lse, struct.unpack("<6f", data))

    def test_npy_of_other_kinds(self):
        # Fortran order, version 2, and half precision all hold the same numbers.
        arguments = []
        for name, (_, shape, _) in self.tensors().items():
            values = getattr(self, name)
            turned = [values[(r * shape[2] + h) * shape[3] + d] for d in range(shape[3])
                      for h in range(shape[2]) for r in range(shape[1])]
            arguments += [f"--{name}", self.write(f"{name}.npy", npy(
                "<f4", shape[1:], floats(turned), fortran=True, version=2))]
        self.tessera("run", *arguments, "--verify", "--o", self.folder / "o.npy")
        _, _, data = support.read_npy(self.folder / "o.npy")
        self.assert_close(self.expected()[0], struct.unpack("<18f", data))

        arguments = []
        for name, (_, shape, data) in self.tensors("F16", "e").items():
            arguments += [f"--{name}", self.write(f"{name}.npy", npy("<f2", shape, data))]
        self.tessera("run", *arguments, "--verify", "--o", self.folder / "o.npy")
        descr, shape, data = support.read_npy(self.folder / "o.npy")
        self.assertEqual(("<f2", (1, 3, 2, 3)), (descr, shape))
        self.assert_close(self.expected()[0], struct.unpack("<18e", data), within=3e-3)

    def test_layouts(self):
        turned = {}
        for name, (dtype, shape, _) in self.tensors().items():
            values = getattr(self, name)
            rows, heads, dim = shape[1:]
            turned[name] = (dtype, [1, heads, rows, dim],
                            floats([values[(r * heads + h) * dim + d] for h in range(heads)
                                    for r in range(rows) for d in range(dim)]))
        path = self.write("by_head.safetensors", safetensors(turned))
        out = self.folder / "out.safetensors"
        self.tessera("run", path, "--layout", "bhsd", "-o", out, "--verify")
        tensors, notes = support.read_safetensors(out)
        self.assertEqual([1, 2, 3, 3], tensors["o"][1])
        self.assertEqual("batch,heads,seqlen,head_dim", notes["layout"])
        got = struct.unpack("<18f", tensors["o"][2])
        self.assert_close(self.expected()[0],
                          [got[(h * 3 + r) * 3 + d] for r in range(3) for h in range(2)
                           for d in range(3)])
        # The note in the file says the same as the option.
        noted = self.write("noted.safetensors",
                           safetensors(turned, notes={"layout": notes["layout"]}))
        self.assertIn("hq2 q3 k5", self.tessera("run", noted, "--json").json()["problem"])
        odd = self.write("odd.safetensors", safetensors(turned, notes={"layout": "dhsb"}))
        self.refused("run", odd, says=["dhsb", "--layout"])

    def test_out_dtype(self):
        out = self.folder / "out.safetensors"
        half = self.write("half.safetensors", safetensors(self.tensors("F16", "e")))
        for dtype, stored in [("f32", "F32"), ("f16", "F16")]:
            self.tessera("run", half, "--out-dtype", dtype, "-o", out, "--verify")
            self.assertEqual(stored, support.read_safetensors(out)[0]["o"][0])

    def test_bf16(self):
        def upper_halves(values):
            return b"".join(floats([value])[2:] for value in values)

        path = self.write("bf16.safetensors", safetensors(
            {name: ("BF16", shape, upper_halves(getattr(self, name)))
             for name, (_, shape, _) in self.tensors().items()}))
        out = self.folder / "out.safetensors"
        self.tessera("run", path, "-o", out, "--verify")
        self.assertEqual("BF16", support.read_safetensors(out)[0]["o"][0])
        self.refused("run", path, "--o", self.folder / "o.npy", says="hold no bf16")

    def test_outputs_that_cannot_be_written(self):
        path = self.file()
        self.refused("run", path, "-o", "out.npy", says="ends in .safetensors")
        self.refused("run", path, "--o", "out.safetensors", says="ends in .npy")
        self.refused("run", path, "-o", self.folder / "none" / "out.safetensors", code=BROKEN,
                     says="No such file or directory")


class Options(Small):
    """Each option reaches the problem's line, and the oracle agrees with the result."""

    def check(self, *options, line, code=OK):
        document = self.tessera("run", self.file(), "--verify", "--json", *options,
                                code=code).json()
        for word in line.split():
            self.assertIn(word, document["problem"].split())
        return document

    def test_masks(self):
        self.check("--causal", line="causal")
        self.check("--causal", "--top-left", line="causal topleft")
        self.check("--window", "1,2", line="window=1,2")
        self.check("--window", "-1,0", line="window=-1,0")
        self.refused("run", self.file(), "--window", "3", says=['--window is "3"', "LEFT,RIGHT"])
        self.refused("run", self.file(), "--window", "a,b", says='--window is "a,b"')
        self.refused("run", self.file(), "--causal", "--no-causal", says="exclude each other")

    def test_scores(self):
        self.check("--scale", "0.25", line="scale=0.25")
        self.check("--scale", "-1", line="scale=-1")
        self.check("--scale", "0", line="scale=0")
        self.check("--softcap", "5", line="softcap=5")
        self.refused("run", self.file(), "--scale", "nan", says="finite number")
        self.refused("run", self.file(), "--softcap", "-1", says="softcap")

    def test_alibi(self):
        paper = self.check("--alibi", "auto", line="alibi")
        given = self.check("--alibi", "0.0625,0.00390625", line="alibi")
        self.assertEqual(paper["verify"]["findings"][0]["worst_expected"],
                         given["verify"]["findings"][0]["worst_expected"])
        self.refused("run", self.file(), "--alibi", "1,2,3", says=["shape (3)", "(heads)"])
        self.refused("run", self.file(), "--alibi", "slopes", says=['--alibi is "slopes"'])

    def test_sink(self):
        self.check("--sink", "0.5,-2", line="sink")
        self.check("--sink", "1", line="sink")
        self.check("--sink", self.write("s.npy", npy("<f4", [2], floats([1, 2]))), line="sink")
        self.refused("run", self.file(), "--sink", "1,2,3", says="one number per query head")

    def test_bias(self):
        values = floats(wave(2 * 3 * 5))
        for shape, size in [([1, 2, 3, 5], 120), ([2, 3, 5], 120), ([3, 5], 60), ([1, 5], 20)]:
            self.check("--bias", self.write("b.npy", npy("<f4", shape, values[:size])),
                       line="bias")
        self.refused("run", self.file(), "--bias",
                     self.write("b.npy", npy("<f4", [4, 5], values[:80])), says="shape (4, 5)")
        path = self.write("with.safetensors", safetensors(
            {**self.tensors(), "mask": ("F32", [3, 5], values[:60])}))
        self.assertIn("bias", self.tessera("run", path, "--bias", "mask", "--verify",
                                           "--json").json()["problem"])

    def test_lengths(self):
        self.check("--seqused-k", "4", line="usedk=4")
        self.check("--seqused-q", "2", "--causal", line="usedq=2 causal")
        self.refused("run", self.file(), "--seqused-k", "6", says=["6", "longer than 5"])
        self.refused("run", self.file(), "--seqused-k", "-1", says="whole numbers from 0")
        document = self.check("--cu-seqlens-q", "0,1,3", "--cu-seqlens-k", "0,2,5", "--causal",
                              line="lensq=1,2 lensk=2,3 causal")
        self.assertTrue(document["verify"]["passed"])
        self.refused("run", self.file(), "--cu-seqlens-q", "0,2,1", "--cu-seqlens-k", "0,2,5",
                     says="falls from 2 to 1")
        self.refused("run", self.file(), "--cu-seqlens-q", "0,1,9", "--cu-seqlens-k", "0,2,5",
                     says="ends at 9")

    def test_schedule(self):
        self.assertEqual(1, self.check("--repeat", "1", line="fwd")["runs"])
        self.assertEqual(7, self.check("--repeat", "7", line="fwd")["runs"])
        self.check("--deterministic", "--batch-invariant", line="deterministic invariant")
        self.refused("run", self.file(), "--splits", "0", says="from 1 to 65536")

    def test_kernel_and_device(self):
        self.refused("run", self.file(), "--kernel", "bwd_nothing", says="which no kernel matches")
        self.refused("run", self.file(), "--device", "cqu", says="cpu")
        self.assertEqual("cpu", self.check("--device", "cpu", line="fwd")["device"])

    def test_explain_row(self):
        document = self.tessera("run", self.file(), "--json", "--explain-row", "0,1,2", "--causal",
                                "--top", "9").json()
        row = document["explain_row"]
        _, lse = self.expected(causal=True)
        self.assertAlmostEqual(lse[5], row["lse"], places=9)
        self.assertEqual(5, len(row["top"]))
        self.assertAlmostEqual(1, sum(key["weight"] for key in row["top"]), places=9)
        self.assertNotIn("token", row)

    def test_expect(self):
        o, _ = self.expected()
        right = self.write("o.npy", npy("<f4", [1, 3, 2, 3], floats(o)))
        self.check("--expect", right, line="fwd")
        o[5] += 0.01
        wrong = self.write("o.npy", npy("<f4", [1, 3, 2, 3], floats(o)))
        document = self.check("--expect", wrong, line="fwd", code=DIFFERS)
        finding = document["verify"]["findings"][-1]
        self.assertEqual((1, [0, 1, 0, 2]), (finding["wrong"], finding["worst_at"]))
        small = self.write("o.npy", npy("<f4", [1, 3, 2, 2], floats(o[:12])))
        self.refused("run", self.file(), "--verify", "--expect", small,
                     says=["(1, 3, 2, 2)", "(1, 3, 2, 3)"])

    def test_wrong_use(self):
        path = self.file()
        self.refused("run", says="needs a .safetensors file")
        self.refused("run", path, path, says="takes one input file")
        self.refused("run", path, "--q", "q.npy", says="was given both")
        self.refused("run", "--q", "q.npy", says="belong together; --k is missing")
        self.refused("run", self.folder / "none.safetensors", says="No such file")
        self.refused("run", self.folder, says="not a regular file")
        self.refused("run", "q.npy", says="holds one tensor")
        self.refused("run", path, "--layout", "bsdh", says=['did you mean "bshd"'])

    def test_shapes_that_do_not_fit(self):
        tensors = self.tensors()
        tensors["v"] = ("F32", [1, 4, 2, 3], floats(self.v[:24]))
        path = self.write("short.safetensors", safetensors(tensors))
        self.refused("run", path, says=["v.seqlen", "4", "5"])
        tensors["v"] = ("F32", [5, 6], floats(self.v))
        path = self.write("flat.safetensors", safetensors(tensors))
        self.refused("run", path, says=["v has shape (5, 6)", "(batch, seqlen, heads, head_dim)"])
        tensors["v"] = ("F16", [1, 5, 2, 3], floats(self.v, "e"))
        self.refused("run", self.write("mixed.safetensors", safetensors(tensors)), says="dtype")

    def test_empty(self):
        tensors = {"q": ("F32", [1, 0, 2, 4], b""), "k": ("F32", [1, 5, 2, 4], floats(self.k)),
                   "v": ("F32", [1, 5, 2, 3], floats(self.v))}
        out = self.folder / "out.safetensors"
        self.tessera("run", self.write("empty.safetensors", safetensors(tensors)), "--verify",
                     "-o", out)
        self.assertEqual([1, 0, 2, 3], support.read_safetensors(out)[0]["o"][1])


if __name__ == "__main__":
    support.main()
