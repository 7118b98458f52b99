"""Jobs of a start or a stop that run beside the event loop, while health pages are served."""

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
    """The progress of a job with countable steps; the event loop reads it."""

    def __init__(self, total: int, what: str, clock: Clock) -> None:
        """Begin at 0 of `total`; `what` completes the text, as in "3 of 7 logs are closed"."""
        self._done, self._total, self._what, self._clock = 0, total, what, clock
        self._logged_ms = clock.monotonic_ms()

    def one_more(self) -> None:
        """Count one step; logs the progress every `LOG_EVERY_MS`."""
        self._done += 1
        now_ms = self._clock.monotonic_ms()
        if now_ms - self._logged_ms >= LOG_EVERY_MS:
            self._logged_ms = now_ms
            log.info("%s", self.text())

    def text(self) -> str:
        """The progress, for people."""
        return f"{self._done} of {self._total} {self._what}"


class StopMark:
    """A flag that asks a job on a pool thread to end."""

    def __init__(self) -> None:
        self._is_stopped = False

    def stop(self) -> None:
        """End the job at its next check; from any thread."""
        self._is_stopped = True

    def check(self) -> None:
        """Raise if the job is to end.

        Raises:
            LoadStopped: `stop` was called.
        """
        if self._is_stopped:
            raise LoadStopped("the start was stopped")


async def beside_the_loop(pool: Pool, job: Callable[[], T], *, stop: Callable[[], object]) -> T:
    """Run a job on a pool thread; a cancelled caller waits for the job's end.

    So a stopped start may undo things that the job has used.

    Args:
        pool: Runs it.
        job: Ends soon after `stop`, with LoadStopped or with its result.
        stop: Called on the event loop where the caller is cancelled.

    Raises:
        Exception: From the job.
    """
    running = asyncio.ensure_future(pool.run(job))
    try:
        return await asyncio.shield(running)
    except asyncio.CancelledError:
        stop()
        with contextlib.suppress(LoadStopped):
            await running
        raise
