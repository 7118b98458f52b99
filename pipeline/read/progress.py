"""Retries with a deadline that counts from the last byte that came, and one sign to stop.

Retries are tenacity's. A transfer that continues, however slowly, never runs out of time; one that
stands still does.
"""

import threading
from collections.abc import Callable

from tenacity import RetryCallState, Retrying, retry_if_exception_type, wait_random_exponential

from pipeline.errors import PipelineError
from runtime.clock import Clock, SystemClock

_PAUSE_S_MAX = 10.0


class StoppedError(PipelineError):
    """The reader was closed while it waited or read; the rest is not needed."""


class Progress:
    """Whether bytes still come, shared by the thread that reads and the one that waits for it."""

    def __init__(self, clock: Clock | None = None) -> None:
        self._clock = clock or SystemClock()
        self._stop = threading.Event()
        self._moved_ms = self._clock.monotonic_ms()

    def moved(self) -> None:
        """Something came.

        Raises:
            StoppedError: it is not needed any more.
        """
        self._moved_ms = self._clock.monotonic_ms()
        if self._stop.is_set():
            raise StoppedError("the reader was closed")

    def begin(self) -> None:
        """Something is asked for now: what was before counts no longer."""
        self._moved_ms = self._clock.monotonic_ms()

    @property
    def silence_s(self) -> float:
        """How long nothing has come."""
        return (self._clock.monotonic_ms() - self._moved_ms) / 1_000

    def stop(self) -> None:
        """Let the thread that reads end at its next byte, or in its pause."""
        self._stop.set()

    def pause(self, seconds: float) -> None:
        """Wait, but no longer than until `stop`.

        Raises:
            StoppedError: the result is not needed any more.
        """
        if self._stop.wait(seconds):
            raise StoppedError("the reader was closed")

    def retrying(
        self,
        retriable: type[Exception] | tuple[type[Exception], ...],
        patience_s: Callable[[BaseException], float],
    ) -> Retrying:
        """Make an object that calls a function until it succeeds.

        The last error goes to the caller, and so does at once every error that is not `retriable`.

        Args:
            retriable: errors that may pass.
            patience_s: how long nothing may come before this error is the last one.
        """
        self.begin()

        def is_late(state: RetryCallState) -> bool:
            error = state.outcome.exception() if state.outcome else None
            return error is None or self.silence_s + state.upcoming_sleep > patience_s(error)

        return Retrying(
            retry=retry_if_exception_type(retriable),
            wait=wait_random_exponential(multiplier=0.1, max=_PAUSE_S_MAX),
            stop=is_late,
            sleep=self.pause,
            reraise=True,
        )
