"""Who changes a log: the event loop, or a pool thread to which the loop has leased it.

A log is the loop's. For a follower the loop leases it (`grant`), one pool thread appends to it or
truncates it, and the loop takes it back (`take_back`) when that call has ended, in whatever way.
Both are called on the loop: no thread overtakes a question that the loop asks here. A log that is
not leased is changed on the loop, by the same methods.

While a log is leased the loop may read it, and changes nothing of it:

| on the loop | leased for an append | leased for a truncation |
|---|---|---|
| `read`, `aborted_transactions` | as of before or after a batch | raise `LogIsTruncated` |
| offsets, marks, sizes, epochs | each as of before or after a batch | likewise, or of the cut |
| retention, a cleaner's swap | wait, by `when_here` | likewise |
| rolls that are due, producers that expire | another time | likewise |
| settings | may be replaced | likewise |
| marks and log start, roles, closing | wait, by `when_here` | likewise |

What reads and fsyncs on pool threads (look-ups, flushes, copies) never needed the log for itself.
"""

from collections.abc import Callable

from local_log.errors import LogIsTruncated


class LogLease:
    """See the module.

    Attributes:
        is_leased: a pool thread changes the log.
        is_truncating: it may make it shorter.
    """

    __slots__ = ("_waiting", "is_leased", "is_truncating")

    def __init__(self) -> None:
        self.is_leased = self.is_truncating = False
        self._waiting: list[Callable[[], object]] = []

    def grant(self, *, truncates: bool) -> None:
        """A pool thread is about to change the log; on the loop.

        Args:
            truncates: it calls `truncate_to` or `truncate_fully_and_start_at`.
        """
        assert not self.is_leased, "one change at a time"
        self.is_leased, self.is_truncating = True, truncates

    def take_back(self) -> None:
        """The call on the pool has ended; on the loop. Whoever waits for the log comes first."""
        assert self.is_leased, "it is here"
        self.is_leased = self.is_truncating = False
        waiting, self._waiting = self._waiting, []
        for here in waiting:
            self.when_here(here)  # one before it may have leased the log

    def when_here(self, here: Callable[[], object]) -> None:
        """Call `here` once the log is the loop's: at once, or at its return; on the loop."""
        if self.is_leased:
            self._waiting.append(here)
        else:
            here()

    def refuse_read(self) -> None:
        """Refuse to read while the log is cut.

        Raises:
            LogIsTruncated: it is being cut.
        """
        if self.is_truncating:
            raise LogIsTruncated
