"""A fetch that waits for bytes.

It is parked on the watch of its partitions. It makes another pass when enough bytes became visible
there or a partition's state changed, and a last pass when its time is over. A pass is scheduled for
the end of the current loop iteration, so that several appends cost one pass. Bytes that come during
a pass, which may span loop iterations, count for the next one.
"""

import asyncio
from collections.abc import Callable, Generator
from typing import Any

from broker.replica.fetch_watch import FetchWatch
from runtime.scheduler import Scheduler, Timer
from runtime.work import Until


class DelayedFetch:
    """One parked fetch; the caller must call `finish`.

    Attributes:
        is_over: The wait time has passed: the next pass is the last.
    """

    __slots__ = (
        "_continue",
        "_is_changed",
        "_loop",
        "_missing_bytes",
        "_timer",
        "_watch",
        "is_over",
    )

    def __init__(self, *, watch: FetchWatch[Any], wait_ms: int, scheduler: Scheduler) -> None:
        """Park for `wait_ms` on the partitions of `watch`."""
        self._loop = asyncio.get_running_loop()
        self._watch = watch
        self._is_changed = bool(watch.changed)  # changes during the first pass
        self._missing_bytes = 0
        self._continue: Callable[[], None] | None = None
        self.is_over = False
        watch.parked = self
        self._timer: Timer = scheduler.call_later(wait_ms, self._expire)

    def until_due(self, missing_bytes: int) -> Generator[Until, None, None]:
        """Wait until another pass is due; bytes since the last return count.

        Args:
            missing_bytes: Bytes that make a pass due if no partition changes.
        """
        self._missing_bytes += missing_bytes
        yield Until(self._wait)
        self._is_changed, self._missing_bytes = False, 0

    def on_bytes(self, size_bytes: int) -> None:
        """`size_bytes` became visible in one of the partitions."""
        self._missing_bytes -= size_bytes
        if self._missing_bytes <= 0:
            self._wake_soon()

    def on_change(self) -> None:
        """A partition's state changed: make a pass soon."""
        self._is_changed = True
        self._wake_soon()

    def finish(self) -> None:
        """Cancel the timer and leave the watch."""
        self._timer.cancel()
        self._watch.parked = self._continue = None

    def _wait(self, proceed: Callable[[], None]) -> None:
        self._continue = proceed
        if self.is_over or self._is_changed or self._missing_bytes <= 0:
            self._wake_soon()

    def _wake_soon(self) -> None:
        if self._continue is not None:
            self._loop.call_soon(self._continue)
            self._continue = None

    def _expire(self) -> None:
        self.is_over = True
        proceed, self._continue = (
            self._continue,
            None,
        )  # else bytes that come meanwhile would resume it a second time
        if proceed is not None:
            proceed()
