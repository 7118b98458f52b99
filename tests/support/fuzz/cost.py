"""What a call costs, counted and not timed: lines of Python, and the most memory it held."""

import sys
import tracemalloc
from collections.abc import Callable
from types import FrameType
from typing import Any, NamedTuple, Self


class Cost(NamedTuple):
    """Of one call."""

    lines: int
    peak_bytes: int


class TooManyLinesError(Exception):
    """It continues for ever, or might as well."""


class Counted:
    """Counts while it is entered, and ends what runs more lines than it may."""

    def __init__(self, lines_max: int) -> None:
        self.cost = Cost(0, 0)
        self._lines, self._lines_max = 0, lines_max

    def __enter__(self) -> Self:
        self._before = sys.gettrace()
        tracemalloc.start()
        sys.settrace(self._trace)
        return self

    def __exit__(self, *_: object) -> None:
        sys.settrace(self._before)
        self.cost = Cost(self._lines, tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()

    def _trace(self, frame: FrameType, event: str, arg: Any) -> Callable[..., Any]:
        self._lines += 1
        if self._lines > self._lines_max:
            raise TooManyLinesError(f"{self._lines_max} lines")
        return self._trace
