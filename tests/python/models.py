"""The models of the tests, opened once for all of them."""

import asyncio
import atexit
import functools
import os
import shutil
import tempfile
import unittest
from pathlib import Path

from deepinfer import LLM

SOURCE = Path(__file__).resolve().parents[2]
NANO = SOURCE / "models" / "nano"
TINY = SOURCE / "tests" / "data" / "models" / "tiny2"

PROSE = (
    "Once upon a time there was a small fox who lived under an old oak tree. Every morning the fox walked to the river "
    "to drink, and every evening it came home before the moon rose. One day the river was gone. "
)


class AsyncTest(unittest.IsolatedAsyncioTestCase):
    async def asyncSetUp(self) -> None:
        # These tests wait for answers between awaits; asyncio's debug mode need not tell.
        asyncio.get_running_loop().slow_callback_duration = float("inf")


@functools.lru_cache(maxsize=None)
def _links() -> Path:
    folder = tempfile.mkdtemp(prefix="deepinfer-")
    atexit.register(shutil.rmtree, folder)
    return Path(folder)


@functools.lru_cache(maxsize=None)
def linked(folder: Path) -> Path:
    """A folder of links to a model's files: what the engine learns about drafts is written beside a model."""
    links = _links() / folder.name
    links.mkdir()
    for file in folder.iterdir():
        if file.name != "dspark_calibration.json":
            (links / file.name).symlink_to(file)
    return links


def open_tiny(**options) -> LLM:
    """Two threads and no profile: what these tests look at depends on neither."""
    settings = {"threads": 2, "profile_steps": False, "variable_drafts": False, "kv_memory": "16MiB"}
    return LLM(linked(TINY), **{**settings, **options})


@functools.lru_cache(maxsize=None)
def tiny() -> LLM:
    return open_tiny()


@functools.lru_cache(maxsize=None)
def nano() -> LLM:
    return LLM(linked(NANO), profile_steps=False, variable_drafts=False, kv_memory="16MiB", snapshot_memory="16MiB")


def settled(llm: LLM) -> dict:
    """The statistics once nothing runs: they are published after the answers."""
    while True:
        statistics = llm.statistics()
        if statistics["running"] == statistics["waiting"] == 0:
            return statistics


def module_environment() -> dict:
    """For programs that the tests start: where the module is."""
    import deepinfer

    return {**os.environ, "PYTHONPATH": str(Path(deepinfer.__file__).parents[1])}
