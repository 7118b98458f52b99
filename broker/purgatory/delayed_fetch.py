"""A fetch that waits for bytes.

It is parked on the watch of its partitions and looks again when enough bytes became visible there,
when something about a partition changed, and for the last time when its wait is over. Looking again
is put off to the end of the loop's current work, so that several appends cost one look.
"""

import asyncio
from collections.abc import Callable
from typing import Any

from broker.replica.fetch_watch import FetchWatch
from runtime.scheduler import Scheduler, Timer


class DelayedFetch:
    """One parked fetch; remove it by `finish`."""

    __slots__ = ("_attempt", "_finished", "_loop", "_missing_bytes", "_queued", "_timer", "_watch")

    def __init__(
        self,
        *,
        watch: FetchWatch[Any],
        missing_bytes: int,
        wait_ms: int,
        attempt: Callable[[bool], int | None],
        scheduler: Scheduler,
    ) -> None:
        """Park.

        Args:
            watch: of the partitions where bytes may come.
            missing_bytes: how many must come before it is worth to look again.
            wait_ms: after so long it looks for the last time.
            attempt: looks again (the argument: for the last time); None when it has answered, else
                how many bytes are still missing.
            scheduler: for the end of the wait.
        """
        self._loop = asyncio.get_running_loop()
        self._attempt = attempt
        self._missing_bytes = missing_bytes
        self._queued = self._finished = False
        self._watch = watch
        watch.parked = self
        self._timer: Timer = scheduler.call_later(wait_ms, self._expire)
        if watch.changed:
            self.on_change()  # while the first look was taken in slices

    def on_bytes(self, size_bytes: int) -> None:
        """So many bytes became visible in one of the partitions."""
        self._missing_bytes -= size_bytes
        if self._missing_bytes <= 0:
            self.on_change()

    def on_change(self) -> None:
        """Look again soon."""
        if not self._queued and not self._finished:
            self._queued = True
            self._loop.call_soon(self._look)

    def finish(self) -> None:
        """Wait no longer; fine to call twice."""
        if not self._finished:
            self._finished = True
            self._timer.cancel()
            self._watch.parked = None

    def _look(self) -> None:
        self._queued = False
        if self._finished:
            return
        missing = self._attempt(False)
        if missing is None:
            self.finish()
        else:
            self._missing_bytes = missing

    def _expire(self) -> None:
        if not self._finished:
            self._attempt(True)
            self.finish()
