"""What a fetch of very many partitions waits by: it looks again in slices, and misses nothing."""

import asyncio
from asyncio import Future
from typing import Any

from broker.replica.fetch_watch import FetchWatch
from runtime.scheduler import Scheduler, Timer


class WideWait:
    """One parked fetch, to the watch of its partitions; remove it by `finish`.

    Attributes:
        is_over: the wait is over: the next look is the last.
    """

    __slots__ = (
        "_came_bytes",
        "_due",
        "_is_changed",
        "_missing_bytes",
        "_timer",
        "_watch",
        "is_over",
    )

    def __init__(self, *, watch: FetchWatch[Any], wait_ms: int, scheduler: Scheduler) -> None:
        """Park for `wait_ms`; 0: look once."""
        self._watch = watch
        self._is_changed = bool(watch.changed)  # while a look was taken
        self._came_bytes = self._missing_bytes = 0
        self._due: Future[None] | None = None
        self.is_over = wait_ms <= 0
        watch.parked = self
        self._timer: Timer = scheduler.call_later(wait_ms, self._expire)

    async def until_due(self, missing_bytes: int) -> None:
        """Return when it is worth to look again: also for what has come since the last return.

        Args:
            missing_bytes: so many must come, where nothing else happens.
        """
        self._missing_bytes = missing_bytes
        if not self._is_due:
            self._due = asyncio.get_running_loop().create_future()
            await self._due
        self._is_changed, self._came_bytes = False, 0

    @property
    def _is_due(self) -> bool:
        return self.is_over or self._is_changed or self._came_bytes >= self._missing_bytes

    def on_bytes(self, size_bytes: int) -> None:
        """So many bytes became visible in one of the partitions."""
        self._came_bytes += size_bytes
        self._ring()

    def on_change(self) -> None:
        """Look again soon."""
        self._is_changed = True
        self._ring()

    def finish(self) -> None:
        """Wait no longer."""
        self._timer.cancel()
        self._watch.parked = None

    def _expire(self) -> None:
        self.is_over = True
        self._ring()

    def _ring(self) -> None:
        if self._due is not None and not self._due.done() and self._is_due:
            self._due.set_result(None)
