# SPDX-License-Identifier: Apache-2.0
"""tessera explain: the plan, the reasons, the tile map in text, JSON and SVG."""

import collections
import xml.etree.ElementTree as tree

import support
from support import UNAVAILABLE

KEYS = {"problem", "device", "kernel", "tile_rows", "tile_columns", "splits", "work_items",
        "workspace", "flops", "bytes", "pairs", "refusals", "tiles", "tile_map", "supported"}
SVG = "{http://www.w3.org/2000/svg}"


class Explain(support.Case):
    LINE = "fwd b1 hq8 hk2 q130 k200 d64 f32 causal"

    def explain(self, *arguments, **options):
        return self.tessera("explain", *arguments, "--json", **options).json()

    def test_keys_and_cost(self):
        document = self.explain(self.LINE)
        self.assertLessEqual(KEYS, set(document))
        self.assertEqual(self.LINE, document["problem"])
        self.assertTrue(document["supported"])
        pairs = 8 * sum(min(200, i + 71) for i in range(130))
        self.assertEqual(pairs, document["pairs"])
        self.assertEqual(2 * (64 + 64) * pairs, document["flops"])

    def test_text_agrees_with_json(self):
        document = self.explain(self.LINE)
        text = self.tessera("explain", self.LINE).out
        self.assertIn(f"kernel      {document['kernel']}", text)
        self.assertIn(f"tile        {document['tile_rows']} rows x {document['tile_columns']} "
                      "columns", text)
        self.assertIn(f"workspace   {document['workspace']} bytes", text)
        for refusal in document["refusals"]:
            self.assertIn(refusal["kernel"], text)
            self.assertIn(refusal["reason"], text)
        tile_map = document["tile_map"]
        self.assertIn(f"{tile_map['full']} full, {tile_map['masked']} masked, "
                      f"{tile_map['skipped']} skipped", text)

    def test_words_as_arguments(self):
        self.assertEqual(self.explain(self.LINE), self.explain(*self.LINE.split()))
        both = self.explain(*self.LINE.split(), "fwd b1 hq1 q8 d8 f32")
        self.assertEqual([self.LINE, "fwd b1 hq1 q8 k8 d8 f32"],
                         [document["problem"] for document in both])

    def tile(self, document, place, column):
        """A tile by brute force over its rows and columns: "skipped", "masked" or "full"."""
        tile_map = document["tile_map"]
        rows = range(place * document["tile_rows"],
                     min((place + 1) * document["tile_rows"],
                         tile_map["rows"] * tile_map["group"]))
        first = column * document["tile_columns"]
        columns = range(first, first + document["tile_columns"])
        seen = [column < tile_map["columns"] and self.sees(row // tile_map["group"], column)
                for row in rows for column in columns]
        return "full" if all(seen) else "masked" if any(seen) else "skipped"

    def test_counts_by_brute_force(self):
        for line, sees in [
                ("fwd b1 hq8 hk2 q130 k200 d64 f32 causal", lambda i, j: j <= i + 70),
                ("fwd b1 hq1 q300 k300 d32 f32 window=50,20", lambda i, j: i - 50 <= j <= i + 20),
                ("fwd b1 hq2 q100 k40 d32 f32 causal", lambda i, j: j <= i - 60),
                ("fwd b1 hq2 q100 k140 d32 f32 causal topleft", lambda i, j: j <= i),
                ("fwd b1 hq1 q64 k64 d32 f32", lambda i, j: True)]:
            for kernel in ["*scalar*", "*"]:
                self.sees = sees
                document = self.explain(line, "--kernel", kernel)
                tile_map = document["tile_map"]
                count = collections.Counter(self.tile(document, place, column)
                                            for place in range(tile_map["row_tiles"])
                                            for column in range(tile_map["column_tiles"]))
                self.assertEqual({name: count[name] for name in ("skipped", "masked", "full")},
                                 {name: tile_map[name] for name in ("skipped", "masked", "full")},
                                 line)

    def test_scaled_maps_by_brute_force(self):
        # A cell of the scaled map is full or skipped only when all of its tiles are.
        for line, sees in [("fwd b1 hq1 q2500 k1700 d8 f32 window=200,90",
                            lambda i, j: i - 1000 <= j <= i - 710),
                           ("fwd b1 hq1 q1900 k2100 d8 f32 causal", lambda i, j: j <= i + 200),
                           ("fwd b1 hq1 q2000 k300 d8 f32 causal", lambda i, j: j <= i - 1700),
                           ("fwd b1 hq1 q2000 k330 d8 f32 topleft window=90,70",
                            lambda i, j: i - 90 <= j <= i + 70)]:
            self.sees = sees
            document = self.explain(line, "--kernel", "*scalar*")
            tile_map = document["tile_map"]
            scale = tile_map["drawn"]["scale"]
            self.assertGreater(scale, 1)
            kinds = collections.defaultdict(set)
            for place in range(tile_map["row_tiles"]):
                for column in range(tile_map["column_tiles"]):
                    kinds[place // scale, column // scale].add(self.tile(document, place, column))
            count = collections.Counter(
                kind.pop() if len(kind) == 1 else "masked" for kind in kinds.values())
            self.assertEqual({name: count[name] for name in ("skipped", "masked", "full")},
                             {name: tile_map["drawn"][name]
                              for name in ("skipped", "masked", "full")}, line)

    def draw(self, *arguments):
        """The JSON and the parsed picture of a problem."""
        path = self.folder / "map.svg"
        document = self.explain(*arguments, "--svg", path)
        return document, tree.parse(path).getroot()

    def test_svg_agrees_with_json(self):
        for line in [self.LINE, "fwd b1 hq1 q5000 k5000 d64 f32 causal window=900,-1",
                     "fwd b1 hq1 q1 k4000 d64 f32 splits=4", "fwd b1 hq1 q20 k0 d64 f32"]:
            document, root = self.draw(line)
            self.assertEqual(SVG + "svg", root.tag)
            tile_map = document["tile_map"]
            drawn = collections.Counter(
                rect.get("class").split()[1] for rect in root.iter(SVG + "rect")
                if rect.get("class").startswith("tile "))
            for name in ("skipped", "masked", "full"):
                self.assertEqual(tile_map["drawn"][name], drawn[name], f"{name} of {line}")
            texts = [text.text for text in root.iter(SVG + "text")]
            for name in ("skipped", "masked", "full"):
                self.assertIn(f"{name}: {tile_map[name]}", texts)
            self.assertIn("columns (keys)", texts)
            self.assertIn("rows (queries)", texts)
            self.assertTrue(any(document["kernel"] in text for text in texts))
            self.assertIn(document["problem"], root.find(SVG + "title").text)
            # Everything lies inside the picture.
            width, height = (float(root.get(side)) for side in ("width", "height"))
            for rect in root.iter(SVG + "rect"):
                self.assertLessEqual(float(rect.get("x", 0)) + float(rect.get("width")), width)
                self.assertLessEqual(float(rect.get("y", 0)) + float(rect.get("height")), height)

    def test_order_of_work_counts_the_visited_tiles(self):
        document, root = self.draw("fwd b1 hq1 q130 k200 d64 f32 causal")
        tile_map = document["tile_map"]
        numbers = sorted(int(text.text) for text in root.iter(SVG + "text")
                         if (text.get("class") or "").startswith("order"))
        self.assertEqual(list(range(1, tile_map["full"] + tile_map["masked"] + 1)), numbers)

    def test_long_lists_of_lengths(self):
        line = "fwd hq4 d64 f32 causal lensq=" + ",".join(str(n) for n in range(1, 60))
        document, root = self.draw(line, "--sequence", "58")
        self.assertEqual(59, document["tile_map"]["rows"])
        self.assertLessEqual(document["tile_map"]["full"], document["tiles"]["full"])
        self.assertTrue(root.find(SVG + "title").text.endswith(document["problem"]))
        self.refused("explain", line, "--sequence", "59", says="59 sequences, counted from 0")

    def test_huge_problem_needs_no_memory(self):
        document = self.explain("fwd b64 hq128 q1048576 d128 bf16 causal")
        self.assertGreater(document["flops"], 1e18)
        self.assertEqual(document["tile_map"]["drawn"]["scale"] > 1, True)

    def test_refused(self):
        result = self.tessera("explain", "fwd b1 hq1 q8 d5000 f32", "--json", code=UNAVAILABLE)
        document = result.json()
        self.assertFalse(document["supported"])
        self.assertIsNone(document["kernel"])
        self.assertTrue(all("head_dim 5000" in refusal["reason"] or refusal["code"] == "feature"
                            for refusal in document["refusals"]))
        self.assertIn("no kernel on", result.err)

    def test_kernel_by_name(self):
        names = self.kernels_for(self.LINE)
        for name in names:
            self.assertEqual(name, self.explain(self.LINE, "--kernel", name)["kernel"])
        self.refused("explain", self.LINE, "--kernel", names[0].replace("fwd", "fdw"),
                     says=["which no kernel matches", f"did you mean {names[0]}?"])

    def test_wrong_use(self):
        self.refused("explain", says="needs a PROBLEM")
        self.refused("explain", "fwd b1 hq8 q64 d64 f32 cusal",
                     says=['"cusal"', 'did you mean "causal"?'])
        self.refused("explain", "forward b1", says="forward")
        self.refused("explain", self.LINE, self.LINE, "--svg", self.folder / "x.svg",
                     says="--svg draws one problem, but 2 were given")
        self.refused("explain", "fwd b1 hq3 hk2 q8 d8 f32", says="heads")
        result = self.tessera("explain", self.LINE, "--svg", self.folder / "none" / "x.svg",
                              code=support.BROKEN)
        self.assertIn("No such file", result.err)


if __name__ == "__main__":
    support.main()
