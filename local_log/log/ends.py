"""Where one log begins and ends, and how far it is committed and copied.

At all times log start <= local log start <= high watermark <= log end. Owned by the event loop's
thread; others may look.
"""

from collections.abc import Callable

from local_log.errors import OffsetOutOfRange


class LogEnds:
    """See the module.

    Attributes:
        log_start_offset: the first offset that a consumer may read, here or remotely.
        log_start_known: False if the start of a tiered log was in a checkpoint that is gone.
        log_end_offset: exclusive.
        high_watermark: first offset that is not committed.
        copied_through: the last offset that the remote tier durably holds (inclusive); -1: none, or
            the tier has not said it yet.
        changed: called on the loop when retention or a truncation have moved the ends, and when the
            log goes offline: whoever waits for this log looks again.
    """

    __slots__ = (
        "changed",
        "copied_through",
        "high_watermark",
        "log_end_offset",
        "log_start_known",
        "log_start_offset",
    )

    def __init__(
        self, *, log_start: int, log_start_known: bool, log_end: int, high_watermark: int
    ) -> None:
        self.log_start_offset = log_start
        self.log_start_known = log_start_known
        self.log_end_offset = log_end
        self.high_watermark = high_watermark
        self.copied_through = -1
        self.changed: Callable[[], object] = _tell_nobody

    def close(self) -> None:
        """Tell nobody any more: whoever is told holds the log, and both were in a cycle."""
        self.changed = _tell_nobody

    def appended(self, log_end: int) -> None:
        """The log reaches up to here now (exclusive)."""
        self.log_end_offset = log_end

    def commit(self, offset: int) -> None:
        """Move the high watermark."""
        assert offset <= self.log_end_offset, "the high watermark is at most the log end"
        self.high_watermark = offset

    # -- the start ------------------------------------------------------------------------------

    def raise_start(self, offset: int) -> None:
        """Move the log start up; where it is unknown, this says what it is.

        Raises:
            OffsetOutOfRange: above the high watermark.
        """
        if offset > self.high_watermark:
            raise OffsetOutOfRange(
                asked=offset, start=self.log_start_offset, end=self.high_watermark
            )
        if offset > self.log_start_offset or not self.log_start_known:
            self.log_start_offset = offset
        self.log_start_known = True

    def expire_below(self, offset: int) -> None:
        """What lies below has expired."""
        if offset > self.log_start_offset:
            self.log_start_offset = offset
            self.changed()

    def begin_at(self, offset: int) -> None:
        """The log was dropped as a whole, and begins here anew."""
        self.log_start_offset = offset

    # -- the end --------------------------------------------------------------------------------

    def lower(self, end: int) -> None:
        """Before a truncation: nothing above `end` (exclusive) is committed."""
        self.high_watermark = min(self.high_watermark, end)

    def cut(self, end: int) -> None:
        """The log was truncated, and reaches up to here now (exclusive)."""
        self.log_end_offset = end
        self.copied_through = min(self.copied_through, end - 1)

    def commit_below(self, local_start: int) -> None:
        """What is not here any more was committed."""
        self.high_watermark = max(self.high_watermark, local_start)

    # -- the copy -------------------------------------------------------------------------------

    def copied(self, last_offset: int) -> None:
        """The remote tier holds this log up to here (inclusive)."""
        self.copied_through = last_offset

    def forget_copies(self) -> None:
        """What the tier has said is true no more, until it says it again."""
        self.copied_through = -1


def _tell_nobody() -> None:
    pass
