"""What a start or a stop does beside the event loop, with the health pages still answering."""

import asyncio
import contextlib
import logging
from collections.abc import Callable
from typing import Final, TypeVar

from local_log.errors import LoadStopped
from runtime.clock import Clock
from runtime.executors import Pool

log = logging.getLogger(__name__)

T = TypeVar("T")

LOG_EVERY_MS: Final = 10_000


class Count:
    """How far a job is that takes one thing after the other; read by the loop."""

    def __init__(self, total: int, what: str, clock: Clock) -> None:
        """Begin at 0 of `total`; `what` says what is counted, as in "3 of 7 logs are closed"."""
        self._done, self._total, self._what, self._clock = 0, total, what, clock
        self._logged_ms = clock.monotonic_ms()

    def one_more(self) -> None:
        """One more is done; from time to time a line in the log says how many are."""
        self._done += 1
        now_ms = self._clock.monotonic_ms()
        if now_ms - self._logged_ms >= LOG_EVERY_MS:
            self._logged_ms = now_ms
            log.info("%s", self.text())

    def text(self) -> str:
        """For people."""
        return f"{self._done} of {self._total} {self._what}"


class StopMark:
    """Tells a job on a pool thread that it is to end."""

    def __init__(self) -> None:
        self._is_stopped = False

    def stop(self) -> None:
        """End the job at its next check; from any thread."""
        self._is_stopped = True

    def check(self) -> None:
        """Raise where the job is to end.

        Raises:
            LoadStopped: it is.
        """
        if self._is_stopped:
            raise LoadStopped("the start was stopped")


async def beside_the_loop(pool: Pool, job: Callable[[], T], *, stop: Callable[[], object]) -> T:
    """The result of a job; whoever cancels this gets the end of the job first.

    What is undone after a start that was stopped may so be what the job worked with.

    Args:
        pool: runs it.
        job: ends soon after `stop`, with LoadStopped or with its result.
        stop: called on the loop where the caller is cancelled.

    Raises:
        Exception: what the job raised.
    """
    running = asyncio.ensure_future(pool.run(job))
    try:
        return await asyncio.shield(running)
    except asyncio.CancelledError:
        stop()
        with contextlib.suppress(LoadStopped):
            await running
        raise
