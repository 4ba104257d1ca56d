#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tests the tests: every rule of the checking scripts finds what it is there to find."""
import contextlib
import pathlib
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "scripts"))
# pylint: disable=wrong-import-position
import check_docs
import check_layers
import check_style
import tree

C_HEADER = "/* SPDX-License-Identifier: Apache-2.0\n * Says what it is for. */\n"
PY_HEADER = '# SPDX-License-Identifier: Apache-2.0\n"""Says what it is for."""\n'


@contextlib.contextmanager
def small_tree(files):
    """A tree of a few files in place of the real one."""
    with tempfile.TemporaryDirectory() as folder:
        for name, text in files.items():
            path = pathlib.Path(folder, name)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, "utf-8")
            path.chmod(0o755 if text.startswith("#!") else 0o644)
        real, tree.ROOT = tree.ROOT, pathlib.Path(folder).resolve()
        try:
            yield
        finally:
            tree.ROOT = real


def complaints(check, files):
    """Everything one checker says about each file of a small tree."""
    with small_tree(files):
        return [words for name in files for _, words in check(pathlib.PurePosixPath(name))]


class Layers(unittest.TestCase):
    """Each complaint of check_layers.py, and its absence beside it."""

    def expect(self, words, files):
        found = complaints(check_layers.check, files)
        self.assertEqual(len(found), 1 if words else 0, found)
        if words:
            self.assertIn(words, found[0])

    def test_edges(self):
        files = {"core/base/log.h": "", "core/runtime/plan.h": "", "core/portable/walk.h": ""}
        self.expect("", {**files, "core/runtime/a.c": '#include "core/base/log.h"\n'})
        self.expect("core/base may not include core/runtime",
                    {**files, "core/base/a.c": '#include "core/runtime/plan.h"\n'})
        self.expect("core/portable may not include core/base",
                    {**files, "core/portable/a.h": '#include "core/base/log.h"\n'})
        self.expect("backends/cpu may not include core/runtime",
                    {**files, "backends/cpu/a.c": '# include  "core/runtime/plan.h"\n'})
        self.expect("has no line in EDGES",
                    {**files, "elsewhere/a.c": '#include "core/base/log.h"\n'})
        self.expect("", {**files, "tests/unit/a.c": '#include "core/runtime/plan.h"\n'})
        self.expect("", {**files, "core/base/a.c": '/* #include "core/runtime/plan.h" */\n'})

    def test_backends_see_each_other_through_the_contract_only(self):
        files = {"backends/backend.h": "", "backends/cpu/isa.h": ""}
        self.expect("", {**files, "core/runtime/a.c": '#include "backends/backend.h"\n'})
        self.expect("core/runtime may not include backends/cpu",
                    {**files, "core/runtime/a.c": '#include "backends/cpu/isa.h"\n'})
        self.expect("backends/cuda may not include backends/cpu",
                    {**files, "backends/cuda/a.c": '#include "backends/cpu/isa.h"\n'})

    def test_missing_file(self):
        self.expect("is not in the tree", {"core/base/a.c": '#include "core/base/gone.h"\n'})

    def test_vendor_seam(self):
        self.expect("", {"backends/gpu/simt/a.h": '#include "vendor/lane.h"\n'})
        self.expect("is not in the tree", {"core/base/a.h": '#include "vendor/lane.h"\n'})
        self.expect("names none", {"backends/gpu/simt/a.h": "int i = threadIdx.x;\n"})
        self.expect("names none", {"backends/gpu/simt/a.h": "#ifdef CUDA_ARCH\n#endif\n"})
        self.expect("", {"backends/gpu/simt/a.h": "/* cuda and hip */ int chips;\n"})

    def test_system_headers(self):
        self.expect("opens vendors' code", {"backends/cuda/a.c": "#include <cuda.h>\n"})
        self.expect("a public header may not", {"include/tessera/a.h": "#include <stdio.h>\n"})
        self.expect("is for", {"core/base/a.c": "#include <immintrin.h>\n"})
        self.expect("", {"backends/cpu/vec_avx2.h": "#include <immintrin.h>\n"})
        self.expect("only a *_tmpl.c", {"backends/cpu/a.c": "#include HEADER\n"})

    def test_words(self):
        self.expect("intrinsics", {"backends/cpu/a.c": "x = _mm256_add_ps(x, y);\n"})
        self.expect("intrinsics", {"backends/cpu/a.c": "x = vaddq_f32(x, y);\n"})
        self.expect("", {"backends/cpu/vec_neon.h": "x = vaddq_f32(x, y);\n"})
        self.expect("assembler", {"core/base/a.c": '__asm__("nop");\n'})
        self.expect("", {"backends/cuda/ptx.h": '__asm__("nop");\n'})
        self.expect("reads the environment", {"backends/cpu/a.c": 'x = getenv("HOME");\n'})
        self.expect("", {"core/base/env.c": 'x = getenv("HOME");\n'})
        self.expect("", {"tools/a.c": 'x = getenv("HOME");\n'})
        self.expect("never prints", {"core/base/a.c": 'printf("x");\n'})
        self.expect("", {"core/base/a.c": 'snprintf(text, 3, "printf(");\n'})
        self.expect("never ends", {"backends/cpu/a.c": "abort();\n"})
        self.expect("", {"backends/cpu/a.c": "int exit_status;\n"})

    def test_flags(self):
        self.expect("-ffast-math", {"backends/cpu/meson.build": "c_args: '-ffast-math'\n"})
        self.expect("", {"backends/cpu/meson.build": "# never -ffast-math\n"})
        self.expect("-cl-fast-relaxed-math",
                    {"backends/opencl/a.c": 'x = "-cl-fast-relaxed-math";\n'})

    def test_oracle(self):
        files = {"core/schedule/problem_text.h": "",
                 "tests/kit/case.h": '#include "core/schedule/problem_text.h"\n'}
        self.expect("", {**files, "tests/kit/case.c": '#include "tests/kit/case.h"\n'})
        self.expect("share nothing",
                    {**files, "tests/kit/oracle.c": '#include "tests/kit/case.h"\n'})


class Style(unittest.TestCase):
    """Each complaint of check_style.py."""

    def expect(self, words, name, text):
        found = complaints(check_style.check, {name: text})
        self.assertEqual(len(found), 1 if words else 0, found)
        if words:
            self.assertIn(words, found[0])

    def test_clean(self):
        self.expect("", "core/a.c", C_HEADER + "int x;\n")
        self.expect("", "scripts/a.py", "#!/usr/bin/env python3\n" + PY_HEADER)
        self.expect("", "docs/a.md", "# Anything\n")

    def test_blanks(self):
        self.expect("a tab", "core/a.c", C_HEADER + "\tint x;\n")
        self.expect("blanks at the end", "core/a.c", C_HEADER + "int x; \n")
        self.expect("no newline", "core/a.c", C_HEADER + "int x;")
        self.expect("empty line at the end", "core/a.c", C_HEADER + "int x;\n\n")
        self.expect("U+200B", "docs/a.md", "zero\u200bwidth\n")
        self.expect("U+00A0", "core/a.c", C_HEADER + "int\u00a0x;\n")
        self.expect("columns", "core/a.c", C_HEADER + "/* " + "x" * 100 + " */\n")

    def test_header(self):
        self.expect("the first line", "core/a.c", "int x;\n")
        self.expect("the second line", "core/a.c", "/* SPDX-License-Identifier: Apache-2.0\n */\n")
        self.expect("the first line", "core/meson.build", "x = 1\n")

    def test_loose_ends(self):
        self.expect("is for an issue", "core/a.c", C_HEADER + "/* TO" "DO: more */\n")

    def test_places(self):
        self.expect("one machine", "core/a.c", C_HEADER + 'x = "/home/' 'me/x";\n')
        self.expect("", "core/a.c", C_HEADER + 'x = "/usr/lib/x";\n')
        self.expect("out of the tree", "docs/a.md", "see ../" "../notes\n")
        self.expect("", "docs/a.md", "see ../README.md\n")

    def test_scripts(self):
        self.expect("set -euo pipefail", "scripts/a.sh",
                    "#!/usr/bin/env bash\n" + PY_HEADER.replace('"""', "# ", 1))

    def test_unlisted_source(self):
        files = {"core/meson.build": "files('base/a.c')\n", "core/base/a.c": "",
                 "core/base/b.c": ""}
        with small_tree(files):
            found = list(check_style.check_listed([pathlib.PurePosixPath(name) for name in files]))
        self.assertEqual([str(path) for path, _, _ in found], ["core/base/b.c"])


class Pages(unittest.TestCase):
    """Each complaint of check_docs.py."""

    FILES = {"core/base/env.c": "int tess_env_read; enum { TESS_OK };\n",
             "docs/other.md": "# Its Part\n"}

    def expect(self, words, text):
        files = {**self.FILES, "docs/page.md": text}
        page = pathlib.PurePosixPath("docs/page.md")
        with small_tree(files):
            names = check_docs.Names([pathlib.PurePosixPath(name) for name in files])
            found = [said for _, said in check_docs.check_links(page, text, names)]
            found += [said for _, span in check_docs.spans(text)
                      if (said := names.complain(span, page))]
        self.assertEqual(len(found), 1 if words else 0, found)
        if words:
            self.assertIn(words, found[0])

    def test_names(self):
        self.expect("", "`core/base/env.c`, `env.c`, `core/base`, `core/base/*.c`\n")
        self.expect("", "`tess_env_read()`, `tess_env_read`\n")
        self.expect("", "`TESS_OK`, `x = 1`, `int64_t`, `backends/<name>/driver.c`\n")
        self.expect("not in the tree", "`core/base/gone.c`\n")
        self.expect("not in the tree", "`gone.h`\n")
        self.expect("not in the tree", "`core/base/{env,gone}.c`\n")
        self.expect("nowhere in the code", "`tess_gone()`\n")
        self.expect("nowhere in the code", "`TESS_GONE`\n")
        self.expect("", "```\n`tess_gone()`\n```\n")

    def test_links(self):
        self.expect("", "[a](other.md#its-part) [b](../core/base/env.c) [c](https://example.org)\n")
        self.expect("leads nowhere", "[a](gone.md)\n")
        self.expect("no heading", "[a](other.md#gone)\n")


if __name__ == "__main__":
    unittest.main()
