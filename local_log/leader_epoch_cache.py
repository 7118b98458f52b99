"""Leader epochs of a partition with their start offsets: its epoch chain.

Entries ascend strictly in epoch and in start offset. The chain covers the log from the log start
(not only the local start, since remote segments are found by it) to the log end. It is kept in
`leader-epoch-checkpoint`.
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
    """The epoch chain in memory; `on_change` is called with every new one, to save it.

    One thread at a time changes it. A change replaces the whole chain, so that readers on any
    thread see the old or the new one.
    """

    __slots__ = ("_entries", "latest_epoch", "on_change")

    def __init__(
        self,
        entries: Sequence[EpochEntry] = (),
        save: Callable[[list[EpochEntry]], None] | None = None,
    ) -> None:
        self._entries = _chain(entries)
        self.on_change = save
        self.latest_epoch = self._entries[-1].epoch if self._entries else None

    def entries(self) -> list[EpochEntry]:
        """The chain, oldest first (a copy)."""
        return list(self._entries)

    @property
    def newest(self) -> EpochEntry | None:
        """The last entry."""
        return self._entries[-1] if self._entries else None

    def _become(self, entries: tuple[EpochEntry, ...]) -> None:
        before, self._entries = self._entries, entries
        self._changed(before)

    def _changed(self, before: tuple[EpochEntry, ...]) -> None:
        """Save the chain; if that fails, restore the old one."""
        try:
            if self.on_change is not None:
                self.on_change(self.entries())
        except BaseException:
            self._entries = before
            raise
        finally:
            self.latest_epoch = self._entries[-1].epoch if self._entries else None

    def assign(self, epoch: int, start_offset: int) -> None:
        """Start `epoch` at `start_offset`, unless the epoch exists already.

        Entries with the same or a higher epoch or start are removed (they had no committed record).
        """
        entries = list(self._entries)
        if _insert(entries, EpochEntry(epoch, start_offset)):
            self._become(tuple(entries))

    def replace(self, entries: Sequence[EpochEntry]) -> None:
        """Take another chain."""
        self._become(_chain(entries))

    def reaches(self, log_end: int) -> bool:
        """True if the last entry has no record in a log that ends at `log_end` (exclusive)."""
        return bool(self._entries) and self._entries[-1].start_offset >= log_end

    def epoch_for(self, offset: int) -> int | None:
        """Epoch of the record at `offset`; None before the first entry."""
        entries = self._entries
        index = bisect_right(entries, offset, key=_start)
        return entries[index - 1].epoch if index else None

    def end_offset_for(self, asked: int, log_end: int) -> EpochEnd | None:
        """Say where epoch `asked` ended on this replica.

        A follower truncates to the answer: too high, and it keeps records the leader never had.

        Args:
            asked: Epoch the follower last fetched under.
            log_end: First offset not yet written here (exclusive).

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
        """Remove entries that start at or after `end_offset` (the new log end)."""
        entries = self._entries
        kept = len(entries)
        while kept and entries[kept - 1].start_offset >= end_offset:
            kept -= 1
        if kept != len(entries):
            self._become(entries[:kept])

    def truncate_from_start(self, start_offset: int, *, keeps: bool = True) -> bool:
        """Remove entries before `start_offset` (the new log start).

        The entry that covers it stays, and starts there.

        Args:
            start_offset: Inclusive.
            keeps: Call `on_change`; False while the log start itself is not durable: a chain on
                disk that begins above it has no epochs for the offsets between.

        Returns:
            True if an entry was removed or moved.
        """
        entries = self._entries
        index = bisect_right(entries, start_offset, key=_start)
        if index == 0 or (index == 1 and entries[0].start_offset == start_offset):
            return False
        self._entries = (EpochEntry(entries[index - 1].epoch, start_offset), *entries[index:])
        if keeps:
            self._changed(entries)
        return True

    def clear(self) -> None:
        """Remove all entries, as after a truncation of the whole log."""
        if self._entries:
            self._become(())

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


def _insert(entries: list[EpochEntry], entry: EpochEntry) -> bool:
    newest = entries[-1] if entries else None
    if (
        newest is not None
        and newest.epoch == entry.epoch
        and newest.start_offset <= entry.start_offset
    ):
        return False
    # Entries of the same or a later epoch or offset were never committed: the new one replaces
    # them.
    while entries and (
        entries[-1].epoch >= entry.epoch or entries[-1].start_offset >= entry.start_offset
    ):
        entries.pop()
    entries.append(entry)
    return True


def _chain(entries: Sequence[EpochEntry]) -> tuple[EpochEntry, ...]:
    chain: list[EpochEntry] = []
    for entry in entries:
        _insert(chain, entry)
    return tuple(chain)


def truncation_for(chain: LeaderEpochCache, theirs: EpochEnd, *, log_end: int) -> int:
    """Return where a follower must cut a log that diverges from the leader's.

    From the end of `theirs.epoch` on, the leader has later epochs only. From the end of the floor
    of that epoch on, this log has. So the logs agree at most up to the lower end. The rest may
    still differ, and the next Fetch, with its last epoch, shows it: each cut removes an epoch or
    reaches the common end. DIFFERS: Kafka takes only its own end if it lacks `theirs.epoch`, and
    asks once more.

    Args:
        chain: Of this log.
        theirs: The leader's largest epoch not above the requested one, and its end.
        log_end: Of this log (exclusive).

    Returns:
        The new log end (exclusive), at most `log_end`. Below the log start: even the log start is
        in another lineage.

    Source: KIP-279 (floor epochs), KIP-595 (DivergingEpoch in the answer to Fetch).
    """
    ours = chain.end_offset_for(theirs.epoch, log_end)
    end = log_end if ours is None else ours.end_offset
    return min(end, theirs.end_offset, log_end)
