"""AnswerStream: one request's answers as they come, for asyncio or a plain loop."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import Executor
from types import TracebackType

from . import _deepinfer
from ._outputs import RequestOutput, StreamDelta, Submitted

TICK_MS = 100
"""How long a wait in the engine lasts before Python looks for signals."""


class AnswerStream:
    """`async for delta in stream` (or `for delta in stream`): StreamDelta objects until all answers have ended.

    Deltas that were not read yet come joined: a slow reader loses nothing. The request is cancelled by `cancel()`, by
    cancelling the task that waits for the next delta, by leaving an `async with stream` block early, and when the stream
    is dropped. One reader at a time.
    """

    def __init__(self, submitted: Submitted, executor: Executor) -> None:
        self._submitted = submitted
        self._stream = submitted.stream
        self._executor = executor

    @property
    def request_id(self) -> str:
        return self._submitted.request_id

    @property
    def output(self) -> RequestOutput:
        """Everything, with finish reasons and counts; waits for the end."""
        try:
            while not self._stream.drain(TICK_MS):
                pass
        except BaseException:  # Ctrl-C
            self.cancel()
            raise
        return self._submitted.output()

    def cancel(self) -> None:
        """Ends the request within a step; deltas made before can still be read."""
        self._stream.cancel()

    def __iter__(self) -> AnswerStream:
        return self

    def __next__(self) -> StreamDelta:
        try:
            delta = _read(self._stream)
        except BaseException:  # Ctrl-C
            self.cancel()
            raise
        if delta is None:
            self._raise_error()
            raise StopIteration
        return self._submitted.delta(delta)

    def __aiter__(self) -> AnswerStream:
        return self

    async def __anext__(self) -> StreamDelta:
        loop = asyncio.get_running_loop()
        try:
            # The wait happens in a thread, without the GIL.
            delta = await loop.run_in_executor(self._executor, _read, self._stream)
        except BaseException:  # asyncio.CancelledError, Ctrl-C
            self.cancel()
            raise
        if delta is None:
            self._raise_error()
            raise StopAsyncIteration
        return self._submitted.delta(delta)

    async def aclose(self) -> None:
        self.cancel()

    async def __aenter__(self) -> AnswerStream:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.cancel()

    def _raise_error(self) -> None:
        for choice in self._stream.result().choices:
            if choice.error is not None:
                raise choice.error


def _read(stream: _deepinfer.Stream) -> _deepinfer.Delta | None:
    """Waits for the next delta; None at the end."""
    while True:
        delta = stream.read(TICK_MS)
        if delta is not None or stream.ended:
            return delta
        if not threading.main_thread().is_alive():
            # The interpreter is leaving and waits for this thread.
            stream.cancel()
