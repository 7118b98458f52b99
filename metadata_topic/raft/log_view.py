"""The core's view of a log: ends, epochs and snapshots, without records.

Source: KIP-595 (divergence by epoch), KIP-630 (when a snapshot is sent instead).
"""

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass

from metadata_topic.raft.messages import BOOTSTRAP_ID, EpochEnd, SnapshotId


@dataclass(frozen=True, slots=True)
class SnapshotFile:
    """A complete snapshot on this replica's disk."""

    id: SnapshotId
    size_bytes: int


class LogView:
    """Ends, epochs and snapshots of one log; changed by the core only.

    Attributes:
        start_offset: First offset still in the log.
        end_offset: First offset not written yet (exclusive end).
        flushed_end: First offset not known to be durable (exclusive end).
        snapshots: Complete ones, oldest first.
    """

    __slots__ = ("_epochs", "_starts", "end_offset", "flushed_end", "snapshots", "start_offset")

    def __init__(
        self,
        start_offset: int,
        end_offset: int,
        epochs: Sequence[tuple[int, int]],
        snapshots: Sequence[SnapshotFile],
    ) -> None:
        """Take the state on disk; all of it is durable.

        Args:
            start_offset: Of the log.
            end_offset: Of the log (exclusive).
            epochs: (epoch, first offset), by rising offset and epoch.
            snapshots: Oldest first.
        """
        self.start_offset = start_offset
        self.end_offset = self.flushed_end = end_offset
        self._epochs = [epoch for epoch, _ in epochs]
        self._starts = [start for _, start in epochs]
        self.snapshots = self._at_or_above_start(snapshots)

    def _at_or_above_start(self, snapshots: Sequence[SnapshotFile]) -> tuple[SnapshotFile, ...]:
        """Leave out snapshots whose deletion is unfinished: the oldest one precedes the log."""
        return tuple(one for one in snapshots if one.id.end_offset >= self.start_offset)

    @property
    def epochs(self) -> tuple[tuple[int, int], ...]:
        """(epoch, first offset) of the log's epochs, by rising offset."""
        return tuple(zip(self._epochs, self._starts, strict=True))

    @property
    def newest_snapshot(self) -> SnapshotFile | None:
        """The newest snapshot to send; None if only that of the format step exists."""
        if self.snapshots and self.snapshots[-1].id != BOOTSTRAP_ID:
            return self.snapshots[-1]
        return None

    @property
    def oldest_snapshot(self) -> SnapshotFile | None:
        """The oldest snapshot to send; None if only that of the format step exists."""
        for snapshot in self.snapshots:
            if snapshot.id != BOOTSTRAP_ID:
                return snapshot
        return None

    @property
    def last_epoch(self) -> int:
        """Epoch of the last record, in log or snapshot; 0 without records."""
        if self._epochs and self._starts[-1] < self.end_offset:
            return self._epochs[-1]
        for epoch, start in zip(reversed(self._epochs), reversed(self._starts), strict=True):
            if start < self.end_offset:
                return epoch
        snapshot = self.newest_snapshot
        return 0 if snapshot is None else snapshot.id.epoch

    def is_behind(self, last_epoch: int, end_offset: int) -> bool:
        """True if a log with this end is at least as new as this one."""
        return (last_epoch, end_offset) >= (self.last_epoch, self.end_offset)

    def end_of(self, epoch: int) -> EpochEnd:
        """Return the largest epoch not above `epoch` in this log, and its end.

        For an epoch below all of the log: the oldest snapshot's epoch and the log start; without a
        snapshot (0, log start).
        """
        index = bisect_right(self._epochs, epoch) - 1
        if index < 0:
            oldest = self.oldest_snapshot
            known = 0 if oldest is None else min(oldest.id.epoch, epoch)
            return EpochEnd(known, self.start_offset)
        after = index + 1
        end = self._starts[after] if after < len(self._starts) else self.end_offset
        return EpochEnd(self._epochs[index], end)

    def append(self, epoch: int, base_offset: int, end_offset: int) -> None:
        """Add a batch at the log's end."""
        assert base_offset == self.end_offset, f"batch at {base_offset}, end {self.end_offset}"
        assert end_offset > base_offset
        if not self._epochs or self._epochs[-1] != epoch:
            assert not self._epochs or self._epochs[-1] < epoch, "epochs never fall"
            self._epochs.append(epoch)
            self._starts.append(base_offset)
        self.end_offset = end_offset

    def truncate_to(self, end_offset: int) -> None:
        """Drop everything at and after `end_offset`."""
        self.end_offset = min(self.end_offset, end_offset)
        self.flushed_end = min(self.flushed_end, end_offset)
        while self._starts and self._starts[-1] >= end_offset:
            self._starts.pop()
            self._epochs.pop()

    def restart_at(self, snapshot: SnapshotFile) -> None:
        """Drop everything, older snapshots too: `snapshot` replaces it."""
        end = snapshot.id.end_offset
        self.start_offset = self.end_offset = self.flushed_end = end
        self._epochs, self._starts = [], []
        self.add_snapshot(snapshot)
        self.snapshots = self._at_or_above_start(self.snapshots)

    def add_snapshot(self, snapshot: SnapshotFile) -> None:
        """Add a new complete snapshot."""
        others = [one for one in self.snapshots if one.id != snapshot.id]
        self.snapshots = tuple(sorted([*others, snapshot], key=lambda one: one.id))

    def raise_start(self, start_offset: int, snapshots: Sequence[SnapshotFile]) -> None:
        """Drop epochs and snapshots wholly below `start_offset`."""
        assert self.start_offset <= start_offset <= self.end_offset
        self.start_offset = start_offset
        self.snapshots = self._at_or_above_start(snapshots)
        while len(self._starts) > 1 and self._starts[1] <= start_offset:
            del self._starts[0], self._epochs[0]
        if self._starts and self._starts[0] < start_offset:
            self._starts[0] = start_offset

    def snapshot(self, snapshot_id: SnapshotId) -> SnapshotFile | None:
        """Return the snapshot of an id, None if it is missing."""
        for snapshot in self.snapshots:
            if snapshot.id == snapshot_id:
                return snapshot
        return None
