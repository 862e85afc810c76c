"""A progress line on standard error for batches that take long."""

from __future__ import annotations

import sys
import time

_SECONDS_BEFORE_SHOWN = 1.0
_WIDTH = 30


class Progress:
    """Counts finished requests; shows nothing unless standard error is a terminal and a second has passed."""

    def __init__(self, total: int, enabled: bool) -> None:
        self._total = total
        self._enabled = enabled and total > 1 and sys.stderr is not None and sys.stderr.isatty()
        self._start = time.monotonic()
        self._length = 0

    def show(self, finished: int, tokens: int) -> None:
        seconds = time.monotonic() - self._start
        if not self._enabled or seconds < _SECONDS_BEFORE_SHOWN:
            return
        self._write(progress_line(finished, self._total, tokens, seconds))

    def close(self) -> None:
        """Leaves the last state as a line of its own."""
        if self._length:
            sys.stderr.write("\n")
            sys.stderr.flush()

    def _write(self, line: str) -> None:
        sys.stderr.write("\r" + line.ljust(self._length))
        sys.stderr.flush()
        self._length = len(line)


def progress_line(finished: int, total: int, tokens: int, seconds: float) -> str:
    """`[#####     ] 3/12 prompts, 87 tokens/s, 9 s left`."""
    bar = ("#" * (_WIDTH * finished // total)).ljust(_WIDTH)
    left = f", {seconds / finished * (total - finished):.0f} s left" if 0 < finished < total else ""
    return f"[{bar}] {finished}/{total} prompts, {tokens / seconds:.0f} tokens/s{left}"
