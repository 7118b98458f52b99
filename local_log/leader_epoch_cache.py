"""Which leader epoch wrote which offsets: the lineage of a partition.

Entries ascend strictly in epoch and in start offset. The chain reaches from the log start (not only
the
local start: remote data is found by it) to the log end, and is kept in `leader-epoch-checkpoint`.
"""

from bisect import bisect_right
from collections.abc import Callable, Sequence
from typing import NamedTuple

from kafka_protocol.types import EpochEntry


class EpochEnd(NamedTuple):
    """`epoch` ended before `end_offset` (exclusive)."""

    epoch: int
    end_offset: int


def _start(entry: EpochEntry) -> int:
    return entry.start_offset


def _epoch(entry: EpochEntry) -> int:
    return entry.epoch


class LeaderEpochCache:
    """The chain in memory; every change is handed to `on_change`, which keeps it."""

    __slots__ = ("_entries", "latest_epoch", "on_change")

    def __init__(
        self,
        entries: Sequence[EpochEntry] = (),
        save: Callable[[list[EpochEntry]], None] | None = None,
    ) -> None:
        self._entries: list[EpochEntry] = []
        self.on_change = save
        self.latest_epoch: int | None = None
        for entry in entries:
            self._insert(entry)

    def entries(self) -> list[EpochEntry]:
        """The chain, oldest first (a copy)."""
        return list(self._entries)

    @property
    def newest(self) -> EpochEntry | None:
        """The last entry."""
        return self._entries[-1] if self._entries else None

    def _insert(self, entry: EpochEntry) -> bool:
        entries = self._entries
        if (
            entries
            and entries[-1].epoch == entry.epoch
            and entries[-1].start_offset <= (entry.start_offset)
        ):
            return False
        # Whatever claims the same or a later epoch or offset was never committed: the new one wins.
        while entries and (
            entries[-1].epoch >= entry.epoch or entries[-1].start_offset >= entry.start_offset
        ):
            entries.pop()
        entries.append(entry)
        self.latest_epoch = entry.epoch
        return True

    def _changed(self, before: list[EpochEntry]) -> None:
        """Hand the chain on; what cannot be kept did not happen."""
        try:
            if self.on_change is not None:
                self.on_change(self.entries())
        except BaseException:
            self._entries = before
            raise
        finally:
            self.latest_epoch = self._entries[-1].epoch if self._entries else None

    def assign(self, epoch: int, start_offset: int) -> None:
        """Note that `epoch` writes from `start_offset` on; nothing happens if it already does.

        Entries with the same or a higher epoch or start give way (they held no committed record).
        """
        before = self.entries()
        if self._insert(EpochEntry(epoch, start_offset)):
            self._changed(before)

    def replace(self, entries: Sequence[EpochEntry]) -> None:
        """Take another chain; an epoch that is there already goes on."""
        before, self._entries = self.entries(), []
        for entry in entries:
            self._insert(entry)
        self._changed(before)

    def epoch_for(self, offset: int) -> int | None:
        """The epoch that wrote `offset`; None before the first entry."""
        index = bisect_right(self._entries, offset, key=_start)
        return self._entries[index - 1].epoch if index else None

    def end_offset_for(self, asked: int, log_end: int) -> EpochEnd | None:
        """Say where epoch `asked` ended on this replica.

        A follower truncates to the answer: too high, and it keeps records the leader never had.

        Args:
            asked: epoch the follower last fetched under.
            log_end: first offset not yet written here (exclusive).

        Returns:
            The largest epoch <= `asked` and the first offset after it (exclusive).
            `asked` older than every entry: (`asked`, first start), its data is gone.
            `asked` newer than every entry, or -1: None, the caller sends UNDEFINED.

        Source: KIP-101 (the request), KIP-279 (floor epoch in the answer).
        """
        entries = self._entries
        if asked == -1 or not entries or asked > entries[-1].epoch:
            return None
        index = bisect_right(entries, asked, key=_epoch)
        if index == len(entries):
            return EpochEnd(entries[-1].epoch, log_end)
        if index == 0:
            return EpochEnd(asked, entries[0].start_offset)
        return EpochEnd(entries[index - 1].epoch, entries[index].start_offset)

    def truncate_from_end(self, end_offset: int) -> None:
        """Forget entries that start at or after `end_offset` (the new log end)."""
        kept = len(self._entries)
        while kept and self._entries[kept - 1].start_offset >= end_offset:
            kept -= 1
        if kept != len(self._entries):
            before = self.entries()
            del self._entries[kept:]
            self._changed(before)

    def truncate_from_start(self, start_offset: int, *, keeps: bool = True) -> bool:
        """Forget what lies before `start_offset` (the new log start).

        The epoch that wrote it stays and is said to start there.

        Args:
            start_offset: inclusive.
            keeps: hand the change to `on_change`; False while the log start itself is not durable:
                a chain on disk that begins above it says nothing of what lies between.

        Returns:
            Whether there was anything to forget.
        """
        index = bisect_right(self._entries, start_offset, key=_start)
        if index == 0 or (index == 1 and self._entries[0].start_offset == start_offset):
            return False
        floor, before = self._entries[index - 1], self.entries()
        self._entries[:index] = [EpochEntry(floor.epoch, start_offset)]
        if keeps:
            self._changed(before)
        return True

    def clear(self) -> None:
        """Forget everything, as after a truncation of the whole log."""
        if self._entries:
            before, self._entries = self._entries, []
            self._changed(before)

    def between(self, start_offset: int, end_offset: int) -> list[EpochEntry]:
        """The chain of [start, end), its first entry clipped to `start_offset`."""
        chosen: list[EpochEntry] = []
        for entry in self._entries:
            if entry.start_offset >= end_offset:
                break
            if entry.start_offset <= start_offset:
                chosen = [EpochEntry(entry.epoch, start_offset)]
            else:
                chosen.append(entry)
        return chosen
