#!/usr/bin/env python3
"""The checks themselves: each breach is found in a small repository made for it, and nothing else."""
import pathlib
import subprocess
import sys
import tempfile
import unittest

TOOLS = pathlib.Path(__file__).resolve().parent


def findings(check, files):
    """What a check says about a repository of these files (path to content), line by line."""
    with tempfile.TemporaryDirectory() as folder:
        root = pathlib.Path(folder)
        for path, content in {"tools/ratchet.txt": "", **files}.items():
            (root / path).parent.mkdir(parents=True, exist_ok=True)
            (root / path).write_text(content, encoding="utf-8")
        subprocess.run(["git", "init", "-q"], cwd=root, check=True)
        subprocess.run(["git", "add", "."], cwd=root, check=True)
        done = subprocess.run(
            [sys.executable, TOOLS / check], cwd=root, capture_output=True, text=True
        )
        assert done.stderr == "" and done.returncode == (1 if done.stdout else 0), done
        return done.stdout.splitlines()


class Layers(unittest.TestCase):
    def check(self, path, line):
        return findings("check_layers.py", {path: line + "\n"})

    def test_what_the_table_allows(self):
        self.assertEqual(self.check("src/service/a.cc", '#include "src/core/arbiter.h"'), [])
        self.assertEqual(self.check("src/core/a.cc", '#include "src/core/b.h"'), [])
        self.assertEqual(self.check("tests/driver/a.cc", '#include "src/cuda/driver_api.h"'), [])
        self.assertEqual(self.check("examples/one/a.cc", '#include "a.h"'), [])

    def test_what_it_does_not(self):
        for path, line in [
            ("src/shim/os/a.cc", '#include "src/core/arbiter.h"'),
            ("src/shim/os/a.cc", '#include "softgpu/driver/device.h"'),
            ("softgpu/ptx/a.cc", '#include "softgpu/driver/device.h"'),
            ("src/base/a.cc", '#  include "src/wire/codec.h"'),
            ("src/base/a.cc", '#include "bytes.h"'),
            ("somewhere/a.cc", ""),
        ]:
            self.assertEqual(len(self.check(path, line)), 1, (path, line))

    def test_sub_folders_include_those_before_them(self):
        for path, line in [
            ("src/shim/swap/a.cc", '#include "src/shim/swap/b.h"'),
            ("src/shim/hooks/a.cc", '#include "src/shim/os/b.h"'),
            ("src/shim/testing/a.cc", '#include "src/shim/hooks/b.h"'),
            ("src/shim/gate/a_test.cc", '#include "src/shim/testing/b.h"'),
            ("src/shim/gate/a_test.h", '#include "src/shim/testing/b.h"'),
            ("softgpu/api/a.cc", '#include "softgpu/ptx/b.h"'),
            ("src/shim/driver/a.cc", '#include "src/cuda/driver_api.h"'),
            ("tests/driver/a.cc", '#include "softgpu/api/b.h"'),
        ]:
            self.assertEqual(self.check(path, line), [], (path, line))

    def test_and_none_after_them(self):
        for path, line in [
            ("src/shim/program/a.cc", '#include "src/shim/hooks/b.h"'),
            ("src/shim/os/a.cc", '#include "src/shim/driver/b.h"'),
            ("src/shim/gate/a.cc", '#include "src/shim/testing/b.h"'),
            ("src/shim/gate/a_test.cc", '#include "src/shim/swap/b.h"'),
            ("softgpu/driver/a.cc", '#include "softgpu/api/b.h"'),
            ("softgpu/memory/a.h", '#include "softgpu/driver/b.h"'),
            ("softgpu/ptx/a.cc", '#include "softgpu/card/b.h"'),
            ("src/shim/a.cc", ""),
            ("src/shim/other/a.cc", ""),
            ("src/shim/other/a.cc", '#include "src/shim/os/b.h"'),
            ("softgpu/a.h", ""),
        ]:
            self.assertEqual(len(self.check(path, line)), 1, (path, line))

    def test_core_is_pure(self):
        for line in ["#include <chrono>", "#include <sys/socket.h>", '#include "src/base/mutex.h"',
                     "auto now = MonotonicNow();"]:  # fmt: skip
            self.assertEqual(len(self.check("src/core/a.cc", line)), 1, line)
        self.assertEqual(self.check("src/core/a.cc", "// not MonotonicNow()"), [])
        self.assertEqual(self.check("src/core/a_test.cc", "#include <random>"), [])
        self.assertEqual(self.check("src/core/a_test.h", 'auto seed = std::getenv("SEED");'), [])
        self.assertEqual(len(self.check("src/core/a_test.cc", "auto t = MonotonicNow();")), 1)
        self.assertEqual(self.check("src/wire/a.cc", "#include <sys/socket.h>"), [])


class Texts(unittest.TestCase):
    def check(self, **files):
        return findings("check_text.py", {name.replace("_", "."): text for name, text in files.items()})

    def test_whitespace_links_and_homes(self):
        self.assertEqual(self.check(a_md="[b](b.md) [c](https://c.example/d)\n", b_md="b\n"), [])
        self.assertEqual(len(self.check(a_md="[b](b.md)\n")), 1)
        self.assertEqual(len(self.check(a_txt="a \n")), 1)
        self.assertEqual(len(self.check(a_txt="see /" + "home/somebody/notes\n")), 1)

    def test_names_that_links_lead_to(self):
        self.assertEqual(self.check(a_md="[`A::Run`](b.md), [`b.md`](b.md)\n", b_md="Run()\n"), [])
        self.assertEqual(len(self.check(a_md="[`A::Run`](b.md)\n", b_md="Runs()\n")), 1)

    def test_syntax(self):
        self.assertEqual(self.check(a_py="x = 1\n", b_sh="if true; then :; fi\n"), [])
        self.assertEqual(len(self.check(a_py="def f(:\n")), 1)
        self.assertTrue(self.check(b_sh="if then\n"))

    def test_lengths_only_shrink(self):
        for ratchet, lines, found in [("", 500, 0), ("", 501, 1), ("600 a.cc", 600, 0),
                                      ("600 a.cc", 601, 1), ("600 a.cc", 599, 1),
                                      ("600 gone.cc", 10, 1)]:  # fmt: skip
            files = {"tools/ratchet.txt": ratchet, "a.cc": "//\n" * lines}
            self.assertEqual(len(findings("check_text.py", files)), found, (ratchet, lines))


class Words(unittest.TestCase):
    def check(self, path, text, allowed=""):
        return findings("check_words.py", {path: text, "tools/words.txt": allowed})

    def test_old_style_is_found_in_prose(self):
        for path, text in [
            ("a.md", "Whoever waits is told.\n"),
            ("a.md", "Evict what is resident and is not needed.\n"),
            ("a.md", "# So many people\n"),
            ("a.md", "| The policy is for root to say | b |\n"),
            ("a.h", "// Nobody calls this.\nint a;\n"),
            ("a.h", "int a;  // for a thread that\n        // nobody waits for\n"),
            ("a.cc", 'Print("while nobody "\n      "listened it grew");\n'),
            ("a.cc", 'auto x = R"(the rule is for root to decide)";\n'),
            ("a.py", "# Somebody else's.\n"),
            ("a.py", "print('waits for somebody else')\n"),
            ("a.cc", 'Log("the card has %s less than was thought");\n'),
            ("a.cc", 'Print("To keep that, there should be 4 of them.");\n'),
            ("a.cc", 'Help("Which rule a GPU goes by");\n'),
            ("a.cc", 'Print("not all of it has left the card");\n'),
            ("a.cc", 'return "the peer does not speak the protocol";\n'),
            ("a.sh", "x=1  # so many of them\n"),
        ]:
            self.assertEqual(len(self.check(path, text)), 1, text)

    def test_nothing_else_is(self):
        for path, text in [
            ("a.md", "A session waits for the lease. It is told [what it needs](a.md).\n"),
            ("a.md", "`tandemd --everybody` serves all users.\n```\nwhoever\n```\n"),
            ("a.cc", 'int nobody = 1; auto x = "nobody";\n'),
            ("a_test.cc", 'Print("for nobody at all");\n'),
            ("a.py", "nobody = 'nobody'\n"),
        ]:
            self.assertEqual(self.check(path, text), [], text)

    def test_long_sentences_are_found_in_documents(self):
        words = "word " * 30
        self.assertEqual(self.check("a.md", f"{words}.\n\nA {words[5:]}.\n"), [])
        self.assertEqual(self.check("a.md", f"{words}. Word {words[5:]}.\n- {words}\n"), [])
        self.assertEqual(len(self.check("a.md", f"First {words}.\n")), 1)
        self.assertEqual(self.check("a.h", f"// First {words}.\n"), [])

    def test_numbers_only_fall(self):
        for allowed, found in [("1", 0), ("2", 1), ("0", 1)]:
            row = f"{allowed} old-style words in docs\n"
            self.assertEqual(len(self.check("a.md", "For nobody.\n", row)), found, allowed)


class Glossary(unittest.TestCase):
    def check(self, glossary, exempt="", path="src/a.h", declared="class HostArenas {\n};\n"):
        files = {"docs/glossary.md": glossary, "tools/glossary_exempt.txt": exempt, path: declared}
        return findings("check_glossary.py", files)

    def test_each_class_is_explained(self):
        for text in ["**Host arena** – memory.\n", "The *host\narenas*.\n", "A pool (`HostArenas`).\n"]:
            self.assertEqual(self.check(text), [], text)
        for text in ["", "A host arena.\n", "**Host** – its arena.\n", "**Host arenarium** – no.\n"]:
            self.assertEqual(len(self.check(text)), 1, text)

    def test_which_classes(self):
        for declared in ["class [[nodiscard]] A : public B {\n};\n", "class CAPABILITY(\"m\") A {\n};\n",
                         "class A final : public B,\n                public C {\n};\n"]:  # fmt: skip
            self.assertEqual(len(self.check("", declared=declared)), 1, declared)
        self.assertEqual(self.check("", declared="class A;\nstruct B {\n  class C {\n  };\n};\n"), [])
        for path in ["src/a_test.h", "src/shim/testing/a.h", "softgpu/a.h", "src/a.cc"]:
            self.assertEqual(self.check("", path=path), [], path)

    def test_no_exemption_is_idle(self):
        self.assertEqual(self.check("", "# Owners.\nHostArenas\n"), [])
        self.assertEqual(len(self.check("**Host arena**\n", "Gone\n")), 1)


class Tally(unittest.TestCase):
    def tally(self, **files):
        """The lines for these files; `1__core_test_xml` is core_test.xml in the folder of step 1."""
        with tempfile.TemporaryDirectory() as folder:
            for name, text in files.items():
                step, _, path = name.partition("__")
                path = pathlib.Path(folder, step.strip("_"), path.replace("_xml", ".xml"))
                path.parent.mkdir(exist_ok=True)
                path.write_text(text)
            return subprocess.run(
                [sys.executable, TOOLS / "tally.py", folder],
                check=True, capture_output=True, text=True,
            ).stdout  # fmt: skip

    @staticmethod
    def report(**cases):
        """Of GoogleTest; a case is an element below it, or an attribute."""
        rows = (
            f"<testcase name='{name}' classname='C' {inner if '=' in inner else ''}>"
            f"{inner if '<' in inner else ''}</testcase>"
            for name, inner in cases.items()
        )
        return f"<testsuites><testsuite>{''.join(rows)}</testsuite></testsuites>"

    def test_the_cases_of_all_steps_are_added(self):
        found = self.tally(
            _1__core_test_xml=self.report(A="", B="<failure/>", C="<skipped/>", D="status='notrun'"),
            _1__wire_test_xml=self.report(A=""),
            _2__pytest_xml=self.report(A="", E="<error/>"),
        )
        self.assertEqual(
            found, "failed: C.E\nfailed: core_test: C.B\n3 passed, 2 failed, 1 skipped\n"
        )

    def test_a_case_that_runs_again_counts_once(self):
        found = self.tally(
            _1__driver_test_xml=self.report(A="<skipped/>", B="", C="<skipped/>"),
            _1__driver_test_1_xml=self.report(A="", B="<failure/>"),
        )
        self.assertEqual(found.splitlines()[-1], "1 passed, 1 failed, 1 skipped")

    def test_a_program_that_dies_and_a_step_without_tests_are_failures(self):
        found = self.tally(
            _1__core_test_xml="<testsuites><tests",
            _1__ctest_xml=self.report(core_test="<failure/>", wire_test="<failure/>", base_test=""),
            _1__failed="",
            _2__failed="",
        )
        self.assertEqual(
            found, "failed: core_test\nfailed: wire_test\n0 passed, 3 failed, 0 skipped\n"
        )

    def test_a_program_that_hangs_is_named_with_the_case_that_it_had_begun(self):
        said = "[ RUN      ] Gate.A\n[       OK ] Gate.A (0 ms)\n[ RUN      ] Threads/Gate.B/2\n"
        found = self.tally(
            _1__ctest_xml=self.report(shim_test=f"<failure/><system-out>{said}</system-out>"),
            _1__failed="",
        )
        expected = "failed: shim_test: Threads/Gate.B/2 did not end\n0 passed, 1 failed, 0 skipped\n"
        self.assertEqual(found, expected)


class DriverTable(unittest.TestCase):
    ROW = "// ---- Streams\nCU_PT(cuB, _ptsz, cuB, 11070, GATE(stream), YES, (int a), (a))\n"
    NVML = "// ---- Devices\nNVML(nvmlA, (int a))\nNVML_WITHOUT(nvmlB, (int b), (b))\nNVML(nvmlA_v2, ())\n"

    def run_in(self, root, *arguments):
        return subprocess.run(
            [sys.executable, TOOLS / "driver_table.py", *arguments],
            cwd=root, capture_output=True, text=True,
        )  # fmt: skip

    def test_it_knows_when_it_is_old_and_renews_itself(self):
        with tempfile.TemporaryDirectory() as folder:
            root = pathlib.Path(folder)
            rows, document = root / "src/cuda/driver_api.def", root / "docs/software-gpu.md"
            nvml = root / "softgpu/nvml/nvml_api.def"
            for path, text in ((rows, self.ROW), (nvml, self.NVML)):
                path.parent.mkdir(parents=True)
                path.write_text(text)
            document.parent.mkdir()
            document.write_text(
                "before\n<!-- Made by tools/driver_table.py from src/cuda/driver_api.def. -->\n"
                "<!-- End of the table. -->\nbetween\n"
                "<!-- Made by tools/driver_table.py from softgpu/nvml/nvml_api.def. -->\n"
                "<!-- End of the table. -->\nafter\n"
            )
            self.assertEqual(self.run_in(root, "--check").returncode, 1)
            self.assertEqual(self.run_in(root).returncode, 0)
            self.assertEqual(self.run_in(root, "--check").returncode, 0)
            text = document.read_text()
            self.assertIn("| `cuB`, `_ptsz` | 11.7 | there |", text)
            self.assertIn("| Devices | `nvmlA` `_v2`, `nvmlB` |", text)
            self.assertIn("\nbetween\n", text)
            self.assertTrue(text.startswith("before\n") and text.endswith("after\n"))
            for path, old, new in ((rows, "YES", "NO"), (nvml, "nvmlB", "nvmlC")):
                path.write_text(path.read_text().replace(old, new))
                self.assertEqual(self.run_in(root, "--check").returncode, 1)
                self.assertEqual(self.run_in(root).returncode, 0)
            document.write_text("no marks\n")
            self.assertEqual(self.run_in(root).returncode, 1)


class HookIndex(unittest.TestCase):
    FILES = {
        "src/cuda/driver_api.def": (
            "CU_PT(cuC, _ptsz, cuC, 2000, GATE(stream), YES, (int a), (a))\n"
            "CU(cuB, cuB, 2000, OWN, YES, (int a), (a))\n"
            "CU(cuA, cuA, 2000, PASS, YES, (int a), (a))\n"
            'CU_REFUSE(cuD, cuD, 2000, "is old")\n'
        ),
        "src/shim/hooks/b_hooks.cc": "CUresult cuB(int a) noexcept {\n",
        "src/shim/hooks/nvml_hooked.def": "NVML_MEMORY(nvmlA, nvmlMemory_t)\n",
    }

    def run_in(self, root, *arguments):
        return subprocess.run(
            [sys.executable, TOOLS / "hook_index.py", *arguments],
            cwd=root, capture_output=True, text=True,
        )  # fmt: skip

    def test_it_knows_when_it_is_old_and_renews_itself(self):
        with tempfile.TemporaryDirectory() as folder:
            root = pathlib.Path(folder)
            for path, text in self.FILES.items():
                (root / path).parent.mkdir(parents=True, exist_ok=True)
                (root / path).write_text(text)
            (root / "docs").mkdir()
            self.assertEqual(self.run_in(root, "--check").returncode, 1)
            self.assertEqual(self.run_in(root).returncode, 0)
            self.assertEqual(self.run_in(root, "--check").returncode, 0)
            lines = (root / "docs/hooks.md").read_text().splitlines()
            rows = [line.split("](")[0] for line in lines if line.startswith("| `")]
            self.assertEqual(
                rows,
                [
                    "| `cuB` | OWN | [`b_hooks.cc`",
                    "| `cuC` | GATE(stream) | [`gated_hooks.cc`",
                    "| `cuC_ptsz` | GATE(stream) | [`gated_hooks.cc`",
                    "| `cuD` | REFUSE | [`refused_hooks.cc`",
                    "| `nvmlA` | NVML | [`nvml_hooks.cc`",
                ],
            )
            (root / "src/shim/hooks/b_hooks.cc").rename(root / "src/shim/hooks/c_hooks.cc")
            self.assertEqual(self.run_in(root, "--check").returncode, 1)
            (root / "src/shim/hooks/c_hooks.cc").unlink()
            gone = self.run_in(root)
            self.assertEqual(gone.returncode, 1)
            self.assertIn("cuB", gone.stdout)


class DriverClasses(unittest.TestCase):
    ROWS = (
        "CU(cuA, cuA, 2000, OWN, YES, (int a), (a))\n"
        "CU_PT(cuB, _ptsz, cuB, 2000, GATE(stream), YES, (int a), (a))\n"
        'CU_REFUSE(cuC, cuC, 2000, "is old")\n'
        'CU_PASS(cuD, cuD, 2000, "asks")\n'
        "CU(cuE, cuE, 3020, PASS, NO, (int a), (a))\n"
        'CU_PASS(cuGLA, cuGLA, 2000, "is of another header")\n'
    )
    CLASSES = (
        "symbol\tbase_name\tmin_cuda\tstream_variant\tclass\thandling\n"
        "cuA\tcuA\t2000\t-\tA alloc\temulate\n"
        "cuB\tcuB\t2000\t-\tS copy\tgate\n"
        "cuB_ptsz\tcuB\t7000\t_ptsz\tS copy\tgate\n"
        "cuC\tcuC\t2000\t-\tQ\tanswer\n"
        "cuD\tcuD\t2000\t-\tP\tpass\n"
        "cuE\tcuE\t3020\t-\tC ctx\ttrack it\n"
    )
    PASSED = "symbol\tpassed\treason\ncuE\tfor now\tnot done\n"

    def check(self, rows=ROWS, classes=CLASSES, passed=PASSED):
        files = {
            "src/cuda/driver_api.def": rows,
            "tests/data/driver_api_classes.tsv": classes,
            "tools/passed_on_purpose.tsv": passed,
        }
        return findings("check_driver_classes.py", files)

    def test_each_function_has_one_row(self):
        self.assertEqual(self.check(), [])
        again = self.ROWS + 'CU_PASS(cuA, cuA, 2000, "asks")\n'
        self.assertEqual(len(self.check(rows=again)), 1)
        unknown = self.ROWS + 'CU_PASS(cuF, cuF, 2000, "asks")\n'
        self.assertEqual(len(self.check(rows=unknown)), 1)
        self.assertEqual(len(self.check(rows=self.ROWS.replace("cuA, 2000", "cuA, 3020"))), 1)
        self.assertEqual(len(self.check(classes=self.CLASSES.replace("cuD", "cuF"))), 2)

    def test_what_is_passed_is_listed_and_nothing_else(self):
        self.assertEqual(len(self.check(passed="symbol\tpassed\treason\n")), 1)
        self.assertEqual(len(self.check(rows=self.ROWS.replace("GATE(stream)", "PASS"))), 2)
        for more in ["cuE\tfor now\ttwice\n", "cuA\tfor good\thooked\n", "cuD\tfor good\tP\n"]:
            self.assertEqual(len(self.check(passed=self.PASSED + more)), 1, more)
        for bad in ["cuE\tfor now\t\n", "cuE\tone day\tnot done\n"]:
            self.assertEqual(len(self.check(passed="symbol\tpassed\treason\n" + bad)), 1, bad)


class DriverTests(unittest.TestCase):
    ROWS = (
        "CU(cuA, cuA, 2000, PASS, YES, (int a), (a))\n"
        "CU_PT(cuB_v2, _ptsz, cuB, 11070, GATE(stream), YES, (int a), (a))\n"
        "CU(cuC, cuC, 2000, PASS, NO, (int a), (a))\n"
        "CU(cuD, cuD, 2000, PASS, LOADER, (int a), (a))\n"
    )

    def check(self, test):
        files = {"src/cuda/driver_api.def": self.ROWS, "tests/driver/a_test.cc": test}
        return findings("check_driver_tests.py", files)

    def test_each_call_that_is_there_has_a_test(self):
        self.assertEqual(self.check("Cu().cuA(1); TAKES(cuB_v2, 1);\n"), [])
        self.assertEqual(len(self.check("Cu().cuA(1); // cuB_v2\n")), 1)
        self.assertEqual(len(self.check("Cu().cuB(1); Cu().cuB_v2x(1);\n")), 2)


class DriverErrors(unittest.TestCase):
    ROWS = (
        "CU_PT(cuA_v2, _ptsz, cuA, 2000, PASS, YES, (int a), (a))\n"
        "CU(cuB, cuB, 2000, PASS, YES, (int a), (a))\n"
        "CU(cuC, cuC, 2000, PASS, NO, (int a), (a))\n"
    )
    ERRORS = "DOCUMENTED(cuA, CUDA_ERROR_X)\nIN_A_LOOP(cuA, CUDA_ERROR_Y)\nAFTER_A_FAULT(cuA)\n"
    EXCUSED = 'EXCUSED(cuB, CUDA_ERROR_X, "nobody can")\n'
    SHOWN = "REFUSES(kX, cuA_v2, f(1, 2), 3);\n"

    def check(self, errors=ERRORS + EXCUSED, test=SHOWN):
        files = {
            "src/cuda/driver_api.def": self.ROWS,
            "tests/driver/documented_errors.def": errors,
            "tests/driver/errors.h": "const Answers kX = {CUDA_ERROR_X, CUDA_ERROR_Y};\n",
            "tests/driver/a_test.cc": test,
        }
        return findings("check_driver_errors.py", files)

    def test_each_error_is_in_a_test_or_excused(self):
        for test in [self.SHOWN, "EXPECT_CU(CUDA_ERROR_X, Cu().cuA_v2_ptsz(1));\n",
                     "EXPECT_EQ(Cu().cuA_v2(\n    1), CUDA_ERROR_X);\n",
                     "const Answers x = {CUDA_ERROR_X};\nREFUSES(x, cuA_v2);\n",
                     "REFUSES(soft ? kX : kY, cuA_v2);\n"]:  # fmt: skip
            self.assertEqual(self.check(test=test), [], test)
        for test in ["", "// " + self.SHOWN, "REFUSES(kY, cuA_v2);\n", "REFUSES(kX, cuC);\n",
                     "const Answers kX = {CUDA_ERROR_Y, CUDA_ERROR_X};\n" + self.SHOWN]:  # fmt: skip
            self.assertEqual(len(self.check(test=test)), 1, test)

    def test_no_excuse_is_idle(self):
        self.assertEqual(len(self.check(test=self.SHOWN + "REFUSES(kX, cuB, 1);\n")), 1)
        self.assertEqual(len(self.check(test=self.SHOWN + "REFUSES(kX, cuB_ptsz, 1);\n")), 0)
        for more in [self.EXCUSED, "IN_A_LOOP(cuC, CUDA_ERROR_X)\n",
                     "EXCUSED(cuB, CUDA_ERROR_Y)\n", "AFTER_A_FAULT(cuC)\n",
                     "AFTER_A_FAULT(cuB, CUDA_ERROR_Y)\n", "IN_A_LOOP(cuB)\n"]:  # fmt: skip
            self.assertEqual(len(self.check(self.ERRORS + self.EXCUSED + more)), 1, more)
        self.assertEqual(len(self.check(self.ERRORS)), 1)  # nothing is said of cuB


if __name__ == "__main__":
    unittest.main()
