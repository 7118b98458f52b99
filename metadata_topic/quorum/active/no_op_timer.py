"""Writes NoOp records on an idle leader, so that others learn how far the log is."""

from collections.abc import Callable
from typing import Final

from metadata_topic.quorum.active.ports import Audience, ControllerWorld
from runtime.scheduler import Timer

OBSERVER_MEMORY_MS: Final = 5 * 60_000
"""An observer that has not fetched for this long does not count."""


def ms_before_no_op(
    audience: Audience, *, last_write_ms: int, now_ms: int, interval_ms: int
) -> int | None:
    """Return the time until a NoOp record is due.

    DIFFERS: Kafka writes one per interval in any case. Without other voters and observers no node
    learns from it.

    Source: KIP-835.

    Args:
        audience: Other voters and observers, as of now.
        last_write_ms: Time of the leader's last append, or of the begin of its term.
        now_ms: By the same clock.
        interval_ms: `metadata.max.idle.interval.ms`.

    Returns:
        0: write one now. Above 0: check again after this time. None: never.
    """
    if interval_ms <= 0:
        return None
    seen_ms = audience.observer_seen_ms
    is_observed = seen_ms is not None and now_ms - seen_ms <= OBSERVER_MEMORY_MS
    if not audience.has_other_voters and not is_observed:
        return interval_ms
    return max(0, last_write_ms + interval_ms - now_ms)


class NoOpTimer:
    """Checks repeatedly whether a NoOp record is due."""

    __slots__ = ("_is_idle", "_timer", "_world", "_write", "_wrote_ms")

    def __init__(
        self,
        world: ControllerWorld,
        *,
        wrote_ms: Callable[[], int],
        is_idle: Callable[[], bool],
        write: Callable[[], None],
    ) -> None:
        """Take the parts; `start` makes the first check.

        Args:
            world: Has the audience.
            wrote_ms: Returns the time of the leader's last append, or of the begin of its term.
            is_idle: True if no append is in progress.
            write: Writes a NoOp record.
        """
        self._world = world
        self._wrote_ms, self._is_idle, self._write = wrote_ms, is_idle, write
        self._timer: Timer | None = None

    def start(self) -> None:
        """Check now, and repeatedly from now on."""
        interval_ms = self._world.settings.max_idle_interval_ms
        wait_ms = ms_before_no_op(
            self._world.audience(),
            last_write_ms=self._wrote_ms(),
            now_ms=self._world.clock.monotonic_ms(),
            interval_ms=interval_ms,
        )
        if wait_ms is None:
            return
        if wait_ms == 0:
            wait_ms = interval_ms
            if self._is_idle():
                self._write()
        self._timer = self._world.scheduler.call_later(wait_ms, self.start)

    def cancel(self) -> None:
        """Make no more checks."""
        if self._timer is not None:
            self._timer.cancel()
