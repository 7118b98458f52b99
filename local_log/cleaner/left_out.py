"""Logs that compaction leaves out: set aside for their damage, or not looked at for an error."""

import logging
from collections.abc import Callable, Sequence
from typing import Final

from local_log.cleaner.log_facts import NotedLog
from local_log.log.partition_log import PartitionLog
from runtime.log_context import Outage

log = logging.getLogger(__name__)

_SHOWN_MAX: Final = 100


class LeftOut:
    """Lives on the loop; nothing here grows with the number of logs.

    Args:
        is_open: whether a log still is.
    """

    __slots__ = ("_aside", "_is_open", "_unread")

    def __init__(self, is_open: Callable[[PartitionLog], bool]) -> None:
        self._is_open = is_open
        self._aside: set[PartitionLog] = set()
        self._unread: dict[PartitionLog, tuple[Outage, OSError]] = {}

    @property
    def uncleanable(self) -> list[PartitionLog]:
        """Logs that were set aside: not cleaned until the next start, or a truncation."""
        self._aside = {one for one in self._aside if self._is_out(one)}
        return list(self._aside)

    def _is_out(self, one: PartitionLog) -> bool:
        return bool(one.cleaning.uncleanable) and self._is_open(one)

    @property
    def unread(self) -> list[PartitionLog]:
        """Logs that the last look failed to read: they are looked at again."""
        return [one for one in self._unread if self._is_open(one)]

    def set_aside(self, one: PartitionLog, reason: str) -> None:
        """Clean a log no more."""
        one.cleaning.set_aside(reason)
        self._aside.add(one)
        log.error(
            "not cleaned any more until the next start: partition=%s %s; its records are served",
            one.topic_partition,
            reason,
        )

    def looked(self, failed: Sequence[tuple[NotedLog, OSError]]) -> None:
        """Take note of the logs that a look could not read; each outage is logged once.

        A log whose segments changed since it was noted proves nothing: its files went meanwhile.
        """
        before, self._unread = self._unread, {}
        for noted, error in failed:
            one = noted.log
            if self._is_open(one) and one.segments.all == noted.segments:
                outage = Outage(log, f"looking at {one.topic_partition} for the cleaner")
                outage = before.pop(one, (outage, error))[0]
                outage.failed(error)
                self._unread[one] = outage, error
        for one, (outage, _) in before.items():
            if self._is_open(one):
                outage.succeeded()

    def reasons(self) -> list[str]:
        """One line for each of these logs, up to a page of them."""
        lines = [
            f"{one.topic_partition} is not compacted until the next start: "
            f"{one.cleaning.uncleanable}"
            for one in self.uncleanable
        ] + [
            f"{one.topic_partition} is not compacted, it is tried again: {self._unread[one][1]}"
            for one in self.unread
        ]
        lines.sort()
        if len(lines) > _SHOWN_MAX:
            more = len(lines) - _SHOWN_MAX
            lines[_SHOWN_MAX:] = [f"and {more} more partitions are not compacted"]
        return lines
