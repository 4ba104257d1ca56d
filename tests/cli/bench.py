# SPDX-License-Identifier: Apache-2.0
"""tessera bench: the numbers are there, they fit together, and comparisons name both sides."""

import support
from support import BROKEN, UNAVAILABLE, USAGE

KEYS = {"problem", "device", "kernel", "seconds_median", "seconds_p10", "seconds_p90", "flops",
        "flops_per_second", "peak_flops_per_second", "share_of_peak", "bytes",
        "share_of_bandwidth"}


class Bench(support.Case):
    LINE = "fwd b1 hq2 q128 k128 d32 f32 causal"

    def bench(self, *arguments, **options):
        return self.tessera("bench", *arguments, "--seconds", "0.05", "--json", **options).json()

    def test_json(self):
        rows = self.bench(self.LINE, "fwd b1 hq1 q1 k300 d64 f16")
        self.assertEqual([self.LINE, "fwd b1 hq1 q1 k300 d64 f16"],
                         [row["problem"] for row in rows])
        for row in rows:
            self.assertLessEqual(KEYS, set(row))
            self.assertLessEqual(row["seconds_p10"], row["seconds_median"])
            self.assertLessEqual(row["seconds_median"], row["seconds_p90"])
            self.assertAlmostEqual(1, row["flops"] / row["seconds_median"] /
                                   row["flops_per_second"], places=6)
            self.assertGreater(row["share_of_peak"], 0)
        self.assertEqual(2 * 64 * 2 * (128 * 129 // 2), rows[0]["flops"])

    def test_backward(self):
        line = "bwd b1 hq2 q64 k64 d32 f32"
        row, = self.bench(line)
        self.assertEqual(line, row["problem"])
        self.assertTrue(row["kernel"].startswith("bwd_"), row)
        self.assertEqual(5 * 2 * 2 * 64 * 64 * 32, row["flops"])
        self.assertGreater(len(self.bench(line, "--kernel", "bwd_*")), 1)

    def test_table(self):
        text = self.tessera("bench", self.LINE, "--seconds", "0.05").out
        self.assertIn(self.LINE, text)
        self.assertIn("fwd_", text)

    def test_compare(self):
        names = self.kernels_for(self.LINE)
        pair = [names[0], next(name for name in names if "scalar" in name)]
        for arguments in [("--compare", *pair), ("--compare", ",".join(pair))]:
            rows = self.bench(self.LINE, *arguments)
            self.assertEqual(pair, [row["kernel"] for row in rows])
        self.refused("bench", self.LINE, "--compare", pair[0], "fwd_lanes_nothing",
                     says='no kernel is called "fwd_lanes_nothing"')
        self.refused("bench", self.LINE, "--compare", pair[0], says="needs two kernels")
        self.refused("bench", self.LINE, "--compare", ",".join(pair), "--kernel", "*",
                     says="exclude each other")

    def test_library_that_is_not_there(self):
        result = self.tessera("bench", self.LINE, "--library", self.folder / "none.so", "--json",
                              code=(UNAVAILABLE, BROKEN, USAGE))
        self.assertIn("none.so", result.err)

    def test_threads(self):
        rows = self.bench(self.LINE, "--threads", "1,2")
        self.assertEqual([1, 2], [row["threads"] for row in rows])
        self.assertEqual(["1 thread", "2 threads"], [row["candidate"] for row in rows])
        self.refused("bench", self.LINE, "--threads", "0", says="takes 1 and more")
        self.refused("bench", self.LINE, "--threads", "two", says="two")
        self.refused("bench", self.LINE, "--threads", "1", "--kernel", "*", says="exclude")

    def test_kernels(self):
        rows = self.bench(self.LINE, "--kernel", "fwd_*")
        self.assertEqual(sorted(self.kernels_for(self.LINE)),
                         sorted(row["kernel"] for row in rows))

    def test_list(self):
        path = self.write("some.problems", self.LINE.encode())
        self.assertEqual(1, len(self.bench("--data", path)))

    def test_refused(self):
        result = self.tessera("bench", "fwd b1 hq1 q8 d5000 f32", "--json", code=UNAVAILABLE)
        self.assertIn("head_dim 5000 is above", result.err)
        self.assertEqual(1, len(result.json()))

    def test_wrong_use(self):
        self.refused("bench", says="needs a PROBLEM")
        self.refused("bench", self.LINE, "--seconds", "0", says="above 0")
        self.refused("bench", self.LINE, "--seconds", "soon", says="finite number")
        self.refused("bench", self.LINE, "--kernel", "x", says="which no kernel matches")
        self.refused("bench", "fwd b1 hq1 q8 d8 f23", says="f23")


if __name__ == "__main__":
    support.main()
