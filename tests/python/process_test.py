"""How a process ends, and what one that was forked may do."""

import subprocess
import sys
import unittest

from models import TINY, linked, module_environment

OPEN = """
import os, sys, threading
from deepinfer import LLM, CancelledError, SamplingParams
def opened():
    return LLM(sys.argv[1], threads=2, profile_steps=False, variable_drafts=False, kv_memory="16MiB")
llm = opened()
ENDLESS = SamplingParams(max_tokens=3000, ignore_eos=True, seed=1)
"""


def run(program: str) -> subprocess.CompletedProcess:
    # From 3.12 on Python warns of forks beside threads.
    command = [sys.executable, "-W", "ignore::DeprecationWarning", "-c", OPEN + program, linked(TINY)]
    return subprocess.run(command, capture_output=True, text=True, env=module_environment(), timeout=150)


class Ends(unittest.TestCase):
    def test_while_a_daemon_thread_reads(self) -> None:
        ended = run("""
started = threading.Event()
def read():
    for delta in llm.stream("a", ENDLESS):
        started.set()
threading.Thread(target=read, daemon=True).start()
started.wait(100)
""")
        self.assertEqual((ended.returncode, ended.stderr), (0, ""))

    def test_while_a_daemon_thread_generates(self) -> None:
        ended = run("""
threading.Thread(target=llm.generate, args=("a", ENDLESS), kwargs={"use_tqdm": False}, daemon=True).start()
while llm.statistics()["running"] == 0:
    pass
""")
        self.assertEqual((ended.returncode, ended.stderr), (0, ""))


class Forked(unittest.TestCase):
    def test_a_child_ends_and_cannot_use_what_it_inherited(self) -> None:
        ended = run("""
stream = llm.stream("a", ENDLESS)
child = os.fork()
if child == 0:
    for use in (lambda: llm.generate("a"), lambda: llm.options, lambda: next(stream), stream.cancel):
        try:
            use()
        except CancelledError as error:
            print(error)
    sys.exit(3)
status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
print(status, llm.generate("a", SamplingParams(max_tokens=3, ignore_eos=True))[0].outputs[0].finish_reason)
""")
        self.assertEqual((ended.returncode, ended.stderr), (0, ""))
        lines = ended.stdout.splitlines()
        self.assertEqual(len(lines), 5, ended.stdout)
        for line in lines[:4]:
            self.assertRegex(line, "opened by another process.*start this process with")
        self.assertEqual(lines[4], "3 length")

    def test_a_child_may_open_its_own(self) -> None:
        ended = run("""
child = os.fork()
if child == 0:
    print(opened().generate("a", SamplingParams(max_tokens=3, ignore_eos=True))[0].outputs[0].finish_reason)
    sys.exit(4)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
""")
        self.assertEqual((ended.returncode, ended.stderr, ended.stdout), (0, "", "length\n4\n"))
