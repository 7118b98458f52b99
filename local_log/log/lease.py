"""Ownership of a log: the event loop, or a pool thread to which the loop has leased it.

A log belongs to the loop. For a follower the loop leases it (`grant`), and one pool thread appends
to it or truncates it. The loop takes it back (`take_back`) when that call has ended, also after an
error. Both calls are made on the loop, so the state here never changes during a callback of the
loop. A log without a lease is changed on the loop, by the same methods.

During a lease the loop may read the log, and changes nothing:

| on the loop | leased for an append | leased for a truncation |
|---|---|---|
| `read`, `aborted_transactions` | state before or after a batch | raise `LogIsTruncated` |
| offsets, marks, sizes, epochs | each before or after a batch | the same, or after the cut |
| retention, a cleaner's swap | wait, by `when_here` | the same |
| due rolls, expiry of producers | skipped | the same |
| settings | may be replaced | the same |
| marks and log start, roles, closing | wait, by `when_here` | the same |

Reads and fsyncs on pool threads (lookups, flushes, copies) need no lease.
"""

from collections.abc import Callable

from local_log.errors import LogIsTruncated


class LogLease:
    """The lease of one log.

    Attributes:
        is_leased: A pool thread changes the log.
        is_truncating: It may shorten the log.
    """

    __slots__ = ("_waiting", "is_leased", "is_truncating")

    def __init__(self) -> None:
        self.is_leased = self.is_truncating = False
        self._waiting: list[Callable[[], object]] = []

    def grant(self, *, truncates: bool) -> None:
        """Lease the log to a pool thread; on the loop.

        Args:
            truncates: The thread calls `truncate_to` or `truncate_fully_and_start_at`.
        """
        assert not self.is_leased, "one change at a time"
        self.is_leased, self.is_truncating = True, truncates

    def take_back(self) -> None:
        """End the lease after the call on the pool; on the loop. Waiting callers run first."""
        assert self.is_leased, "it is here"
        self.is_leased = self.is_truncating = False
        waiting, self._waiting = self._waiting, []
        for here in waiting:
            self.when_here(here)  # the one before may have leased the log

    def when_here(self, here: Callable[[], object]) -> None:
        """Call `here` when the log is the loop's.

        At once, or at the end of the lease; on the loop.
        """
        if self.is_leased:
            self._waiting.append(here)
        else:
            here()

    def refuse_read(self) -> None:
        """Refuse to read during a truncation.

        Raises:
            LogIsTruncated: It is being cut.
        """
        if self.is_truncating:
            raise LogIsTruncated
