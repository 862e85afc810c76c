"""The package as a whole: the example, an installation by pip, the progress line."""

import io
import os
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path
from unittest import mock

from deepinfer._progress import Progress, progress_line
from models import NANO, SOURCE, TINY, linked, module_environment

EXAMPLE = SOURCE / "examples" / "offline_inference.py"


def run(*arguments, **options) -> subprocess.CompletedProcess:
    return subprocess.run([sys.executable, *map(str, arguments)], capture_output=True, text=True, **options)


class Example(unittest.TestCase):
    def run_example(self, *flags) -> subprocess.CompletedProcess:
        return run(EXAMPLE, *flags, env=module_environment())

    def test_answers(self) -> None:
        flags = ["--model", linked(NANO), "--prompt", "The fox", "--prompt", "a", "--seq-seed", "3", "--max-tokens", "6"]
        first, second = self.run_example(*flags), self.run_example(*flags, "--draft-length", "0", "--tp", "1")
        self.assertEqual((first.returncode, first.stderr), (0, ""))
        self.assertEqual(first.stdout.count("Prompt: "), 2)
        self.assertIn("Prompt: 'The fox'\nAnswer: ", first.stdout)
        self.assertIn("6 generated (length)", first.stdout)
        answers = [[line for line in one.stdout.splitlines() if line.startswith("Answer")] for one in (first, second)]
        self.assertEqual(*answers)

    def test_structured_output(self) -> None:
        result = self.run_example("--model", linked(NANO), "--check_structured_output", "--temperature", "1", "--seed", "3")
        self.assertEqual((result.returncode, result.stderr), (0, ""), result.stdout)
        self.assertEqual(result.stdout.count(": ok: "), 9)

    def test_refusals(self) -> None:
        result = self.run_example("--tp", "2")
        self.assertEqual(result.returncode, 2)
        self.assertIn("argument --tp/--tensor-parallel-size: expected 1, found '2'", result.stderr)
        result = self.run_example("--temperature", "9")
        self.assertEqual(result.returncode, 1)
        expected = "offline_inference: temperature: expected a number of at least 0 and at most 2, found 9\n"
        self.assertEqual(result.stderr, expected)


class Installation(unittest.TestCase):
    @unittest.skipUnless(os.environ.get("DEEPINFER_BUILD_DIR"), "needs the build folder of the module")
    def test_pip_without_network(self) -> None:
        with tempfile.TemporaryDirectory() as target:
            flags = ["--no-build-isolation", "--no-index", "--no-deps", "--no-cache-dir", "--target", target]
            result = run("-m", "pip", "--disable-pip-version-check", "install", *flags, SOURCE)
            self.assertEqual(result.returncode, 0, result.stdout + result.stderr)
            program = (
                "import deepinfer, sys\n"
                "llm = deepinfer.LLM(sys.argv[1], profile_steps=False, kv_memory='4MiB')\n"
                "output = llm.generate('a', deepinfer.SamplingParams(max_tokens=3, ignore_eos=True))[0]\n"
                "print(deepinfer.__file__, len(output.outputs[0].token_ids))\n"
            )
            environment = {**os.environ, "PYTHONPATH": target}
            result = run("-c", program, linked(TINY), env=environment, cwd=target)
            self.assertEqual(result.stdout, f"{Path(target) / 'deepinfer' / '__init__.py'} 3\n", result.stderr)


class ProgressLine(unittest.TestCase):
    def test_text(self) -> None:
        bar = "#" * 7 + " " * 23
        self.assertEqual(progress_line(1, 4, 50, 2.0), f"[{bar}] 1/4 prompts, 25 tokens/s, 6 s left")
        self.assertEqual(progress_line(4, 4, 50, 2.0), f"[{'#' * 30}] 4/4 prompts, 25 tokens/s")

    def test_only_on_terminals_and_only_when_it_takes_long(self) -> None:
        class Terminal(io.StringIO):
            def isatty(self) -> bool:
                return True

        for stream, seconds, is_shown in ((Terminal(), 2.0, True), (Terminal(), 0.5, False), (io.StringIO(), 2.0, False)):
            with mock.patch("sys.stderr", stream), mock.patch("time.monotonic", side_effect=[0.0, seconds]):
                progress = Progress(4, True)
                progress.show(1, 10)
                progress.close()
            self.assertEqual(stream.getvalue() != "", is_shown)
