# SPDX-License-Identifier: Apache-2.0
"""The command itself: help, version, verbs, options every verb has, devices and env."""

import os
import re
import subprocess

import support
from support import BROKEN, OK, UNAVAILABLE, USAGE

VERBS = ["run", "check", "bench", "explain", "devices", "env"]


class Command(support.Case):
    def test_help_lists_every_verb(self):
        text = self.tessera("--help").out
        for verb in VERBS:
            self.assertRegex(text, rf"(?m)^  {verb} ")
        self.assertEqual(text, self.tessera("help").out)
        document = self.tessera("help", "--json").json()
        self.assertEqual(VERBS, [verb["name"] for verb in document["verbs"]])
        self.assertRegex(document["version"], r"^\d+\.\d+\.\d+$")

    def test_help_of_each_verb(self):
        for verb in VERBS:
            text = self.tessera("help", verb).out
            self.assertTrue(text.startswith(f"usage: tessera {verb} "), text)
            self.assertIn("--json", text)
            self.assertEqual(text, self.tessera(verb, "--help").out)

    def test_every_option_is_in_the_manual(self):
        manual = (support.ROOT / "docs" / "man" / "tessera.1").read_text(encoding="utf-8")
        manual = manual.replace("\\-", "-")
        for verb in VERBS:
            for option in re.findall(r"--([a-z-]+)", self.tessera("help", verb).out):
                self.assertIn(f"-{option}", manual, f"--{option} of {verb}")

    def test_version(self):
        self.assertRegex(self.tessera("--version").out, r"^tessera \d+\.\d+\.\d+\n$")

    def test_without_a_verb(self):
        # The help comes unasked, so it goes to standard error.
        done = subprocess.run([support.PROGRAM], capture_output=True, text=True, check=False)
        self.assertEqual((USAGE, ""), (done.returncode, done.stdout))
        self.assertTrue(done.stderr.startswith("usage: tessera"), done.stderr)

    def test_full_disk(self):
        if not os.path.exists("/dev/full"):
            self.skipTest("there is no /dev/full")
        with open("/dev/full", "w", encoding="utf-8") as full:
            done = subprocess.run([support.PROGRAM, "help"], stdout=full, stderr=subprocess.PIPE,
                                  text=True, check=False)
        self.assertEqual(BROKEN, done.returncode)
        self.assertIn("standard output", done.stderr)

    def test_unknown_verb(self):
        self.refused("chekc", says=['"chekc" is no verb', 'did you mean "check"'])
        self.refused("zzzzzzzz", says="the verbs are run, check, bench, explain, devices, env")
        self.refused("help", "explian", says='did you mean "explain"')
        self.refused("--json", says="comes before a verb")

    def test_unknown_option(self):
        for verb in VERBS:
            self.refused(verb, "--jsno", says=["--jsno is no option", "did you mean --json"])
            self.refused(verb, "-Z", says="-Z is no option")
            self.refused(verb, "--json=yes", says="takes no value")

    def test_missing_value(self):
        self.refused("explain", "--svg", says="--svg needs a value: FILE")

    def test_arguments_where_there_are_none(self):
        self.refused("devices", "cpu", says='takes no arguments, but was given "cpu"')
        self.refused("env", "x", says='takes no arguments, but was given "x"')


class Devices(support.Case):
    KEYS = {"name", "kind", "available", "reason", "description", "architecture", "units", "lanes",
            "memory", "shared_memory", "cache"}

    def test_json(self):
        devices = self.tessera("devices", "--json").json()
        self.assertTrue(devices)
        for device in devices:
            self.assertLessEqual(self.KEYS, set(device))
            self.assertEqual(device["available"], device["reason"] is None)
        cpu = [device for device in devices if device["name"] == "cpu"]
        self.assertEqual(1, len(cpu))
        self.assertTrue(cpu[0]["available"])
        self.assertGreaterEqual(cpu[0]["units"], 1)

    def test_kernels(self):
        cpu = next(device for device in self.tessera("devices", "--kernels", "--json").json()
                   if device["name"] == "cpu")
        self.assertTrue(any(kernel["runs_here"] for kernel in cpu["kernels"]))
        text = self.tessera("devices", "-k").out
        for kernel in cpu["kernels"]:
            self.assertIn(kernel["name"], text)

    def test_unknown_device(self):
        self.refused("explain", "fwd b1 hq1 q8 d8 f32", "--device", "cqu", says=["cqu", "cpu"])

    def test_device_that_is_not_there(self):
        absent = [device for device in self.tessera("devices", "--json").json()
                  if not device["available"]]
        if not absent:
            self.skipTest("every device can be opened here")
        self.refused("explain", "fwd b1 hq1 q8 d8 f32", "--device", absent[0]["name"],
                     code=UNAVAILABLE, says=absent[0]["name"].split(":")[0])


class Env(support.Case):
    def test_json(self):
        entries = self.tessera("env", "--json", env={"TESSERA_SPLITS": "3"}).json()
        self.assertTrue(entries)
        for entry in entries:
            self.assertLessEqual({"name", "type", "default", "current", "help"}, set(entry))
            self.assertTrue(entry["name"].startswith("TESSERA_"))
            self.assertEqual("3" if entry["name"] == "TESSERA_SPLITS" else None, entry["current"])

    def test_text(self):
        text = self.tessera("env").out
        for entry in self.tessera("env", "--json").json():
            self.assertIn(entry["name"], text)

    def test_wrong_value(self):
        result = self.tessera("env", "--json", env={"TESSERA_LOG": "verbos"}, code=USAGE)
        self.assertIn('TESSERA_LOG is "verbos"', result.err)
        self.assertTrue(result.json())
        self.refused("devices", env={"TESSERA_LOG": "verbos"}, says="verbos")

    def test_unknown_variable(self):
        result = self.tessera("env", env={"TESSERA_LOGG": "1"}, code=OK)
        self.assertIn("did you mean TESSERA_LOG?", result.err)


if __name__ == "__main__":
    support.main()
