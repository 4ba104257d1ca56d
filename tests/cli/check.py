# SPDX-License-Identifier: Apache-2.0
"""tessera check: verdicts, lists, random problems, and mistakes made on purpose."""

import json

import support
from support import BROKEN, DIFFERS, OK, UNAVAILABLE, USAGE

RESULT_KEYS = {"problem", "verdict", "kernel", "share_of_budget", "largest_error", "text"}
SUMMARY = r"(?m)^(\d+) passed, (\d+) failed, (\d+) refused, (\d+) skipped$"


class Check(support.Case):
    LINE = "fwd b1 hq4 q100 k100 d64 f32 causal"

    def test_one_problem(self):
        text = self.tessera("check", self.LINE).out
        self.assertRegex(text, r"(?m)^pass +fwd_\S+ .* " + self.LINE)
        self.assertTrue(text.endswith("1 passed, 0 failed, 0 refused, 0 skipped\n"), text)

    def test_backward(self):
        line = "bwd b1 hq4 hk2 q20 k30 d16 f32 causal"
        self.assertRegex(self.tessera("check", line).out, r"(?m)^pass +bwd_\S+ .* " + line)
        # The forward pass that it starts from takes whatever kernel there is.
        document = self.tessera("check", line, "--kernel", "bwd_*", "--json").json()
        self.assertEqual(0, document["failed"])
        self.assertGreater(document["passed"], 1)
        for result in document["results"]:
            self.assertTrue(result["kernel"].startswith("bwd_"), result)
        paged = self.tessera("check", "bwd b1 hq1 q4 k32 page=16 d16 f32", code=UNAVAILABLE)
        self.assertIn("1 refused", paged.out)

    def test_json(self):
        document = self.tessera("check", self.LINE, "--json").json()
        self.assertEqual((1, 0, 0, 0), tuple(document[key] for key in
                                             ("passed", "failed", "refused", "skipped")))
        result = document["results"][0]
        self.assertLessEqual(RESULT_KEYS, set(result))
        self.assertEqual((self.LINE, "pass"), (result["problem"], result["verdict"]))
        self.assertLess(result["share_of_budget"], 1)

    def test_report(self):
        path = self.folder / "report.json"
        refused = "fwd b1 hq1 q8 k8 d5000 f32"
        out = self.tessera("check", self.LINE, refused, "--report", path).out
        self.assertRegex(out, SUMMARY)
        report = json.loads(path.read_text("utf-8"))
        self.assertEqual(["library", "device", "data", "check"], list(report))
        self.assertRegex(report["library"]["version"], r"^\d+\.\d+\.\d+$")
        self.assertTrue(report["device"]["available"])
        self.assertIn("driver", report["device"])
        self.assertEqual((1, 1), (report["check"]["passed"], report["check"]["refused"]))
        self.assertEqual([self.LINE, refused], [r["problem"] for r in report["check"]["results"]])
        # With --json the same is printed as without a report.
        printed = self.tessera("check", self.LINE, "--json", "--report", path).json()
        self.assertEqual([self.LINE], [r["problem"] for r in printed["results"]])
        self.assertEqual(1, json.loads(path.read_text("utf-8"))["check"]["passed"])
        lost = self.tessera("check", self.LINE, "--report", self.folder / "no" / "where",
                            code=BROKEN)
        self.assertIn("the report: ", lost.err)

    def test_quiet(self):
        self.assertEqual("1 passed, 0 failed, 0 refused, 0 skipped\n",
                         self.tessera("check", self.LINE, "--quiet").out)

    def test_random_is_the_same_every_time(self):
        first, again = (self.tessera("check", "--random", "12", "--seed", "5", "--json").json()
                        for _ in range(2))
        lines = [result["problem"] for result in first["results"]]
        self.assertEqual(12, len(lines))
        self.assertEqual(lines, [result["problem"] for result in again["results"]])
        self.assertEqual(0, first["failed"])
        # A problem line is enough to do it again, and the seed counts on from problem to problem.
        one = self.tessera("check", lines[3], "--json", code=(OK, UNAVAILABLE)).json()
        self.assertEqual(first["results"][3]["verdict"], one["results"][0]["verdict"])
        later = self.tessera("check", "--random", "1", "--seed", "8", "--json",
                             code=(OK, UNAVAILABLE)).json()
        self.assertEqual(lines[3], later["results"][0]["problem"])

    def test_list_of_problems(self):
        path = self.write("some.problems", b"# a comment\n\n" + self.LINE.encode() +
                          b"\nfwd b2 hq2 q9 d16 f16   # behind a line\r\n")
        self.assertIn("2 passed", self.tessera("check", "--data", path).out)
        self.assertIn("3 passed", self.tessera("check", self.LINE, "--data", path).out)
        self.assertIn("2 passed", self.tessera("check", "--data", "-",
                                               stdin=path.read_text(encoding="utf-8")).out)
        bad = self.write("bad.problems", self.LINE.encode() + b"\nfwd b1 hq1 q8 d8 f23\n")
        self.refused("check", "--data", bad, says=["bad.problems:2:", '"f23"'])
        self.refused("check", "--data", "nosuchlist", says=["nosuchlist", "tests/data"])

    def test_list_by_name(self):
        folder = self.folder / "tests" / "data"
        folder.mkdir(parents=True)
        (folder / "mine.problems").write_text(self.LINE + "\n", encoding="utf-8")
        self.assertIn("1 passed", self.tessera("check", "--data", "mine", cwd=self.folder).out)

    def test_list_of_both_kinds(self):
        # The harness and the tests may have lists of one name: each verb takes its own first.
        for folder, line in [("tests/data", self.LINE), ("bench/suites", "fwd b1 hq1 q8 d8 f32")]:
            (self.folder / folder).mkdir(parents=True)
            (self.folder / folder / "both.problems").write_text(line, encoding="utf-8")
        self.assertIn(self.LINE, self.tessera("check", "--data", "both", cwd=self.folder).out)
        rows = self.tessera("bench", "--data", "both", "--seconds", "0.01", "--json",
                            cwd=self.folder).json()
        self.assertEqual(["fwd b1 hq1 q8 k8 d8 f32"], [row["problem"] for row in rows])

    def test_every_kernel(self):
        document = self.tessera("check", self.LINE, "--kernel", "*", "--json").json()
        self.assertEqual(0, document["failed"])
        self.assertEqual(sorted(self.kernels_for(self.LINE)),
                         sorted(result["kernel"] for result in document["results"]
                                if result["verdict"] == "pass"))
        for result in document["results"]:
            self.assertTrue(result["kernel"])

    def test_refused(self):
        result = self.tessera("check", "fwd b1 hq1 q8 d5000 f32", code=UNAVAILABLE)
        self.assertRegex(result.out, SUMMARY)
        self.assertIn("head_dim 5000 is above", result.out)

    def test_invalid(self):
        # Nothing is broken but the line: no smaller one is looked for, and the status says so.
        for line, says in [("fwd b1 hq3 hk2 q4 d8 f32", "q.heads is 3"),
                           ("fwd b1 hq2 q4 d8 f32 fill=foo", "fill=foo is no fill")]:
            text = self.tessera("check", line, code=USAGE).out
            self.assertTrue(text.startswith("INVALID "), text)
            self.assertIn(says, text)
            self.assertNotIn("smaller:", text)
            self.assertTrue(text.endswith("0 passed, 0 failed, 0 refused, 0 skipped, 1 invalid\n"))
            document = self.tessera("check", line, self.LINE, "--json", code=USAGE).json()
            self.assertEqual((1, 0, 1), tuple(document[key] for key in
                                              ("passed", "failed", "invalid")))
            self.assertEqual("invalid", document["results"][0]["verdict"])

    def test_out_of_memory(self):
        line = "fwd b1000 hq2000 q40000 k40000 d256 f32"
        for verb in "check", "bench":
            result = self.tessera(verb, line, code=BROKEN)
            self.assertIn("no memory for the tensors: they need", result.out + result.err)

    def test_sabotage_any_is_caught(self):
        result = self.tessera("check", "--random", "25", "--sabotage", "any", code=DIFFERS)
        self.assertRegex(result.out, r"(?m)^sabotage: [1-9]\d* caught, 0 missed, \d+ could not")
        self.assertRegex(result.out, SUMMARY)
        document = self.tessera("check", self.LINE, "--sabotage", "any", "--json",
                                code=DIFFERS).json()
        self.assertEqual("fail", document["results"][0]["verdict"])
        self.assertIsNotNone(document["results"][0]["sabotage"])

    def test_each_mode(self):
        modes = self.tessera("check", "--sabotage", "list").out.split()
        self.assertIn("drop-last-tile", modes)
        self.assertEqual(modes, self.tessera("check", "--sabotage", "list", "--json").json())
        # Between them these lines have something for every mode.
        lines = ["fwd b2 hq4 hk2 q70 k90 d32 f32 causal softcap=4 alibi sink bias layout=strided",
                 "fwd hq4 d16 f32 lensq=0,30 lensk=9,40 gap=3",
                 "fwd b1 hq2 q40 k20 d16 f32 causal fill=nan", "fwd b1 hq2 q40 k90 d16 f32",
                 "bwd b1 hq4 hk2 q9 k12 d16 f32 causal softcap=1 scale=2 alibi seed=2",
                 "bwd b1 hq4 hk2 q9 k12 d16 f32 causal softcap=1 scale=2 alibi seed=3"]
        for mode in modes:
            result = self.tessera("check", *lines, "--sabotage", mode, "--json",
                                  code=DIFFERS).json()
            self.assertEqual(0, result["passed"], f"{mode} was missed")

    def test_wrong_use(self):
        self.refused("check", "--sabotage", "shift-msk", says='did you mean "shift-mask"?')
        self.refused("check", "--random", "many", says="whole number")
        self.refused("check", "--seed", "-1", "--random", "1", says="--seed")
        self.refused("check", self.LINE, "--seed", "4", says="it needs --random N")
        self.refused("check", "--kernel", "nothing", says="which no kernel matches")


if __name__ == "__main__":
    support.main()
