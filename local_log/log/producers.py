"""What one log remembers of its producers, in memory and in its snapshot files."""

from collections.abc import Iterable, Sequence

from kafka_protocol.files.txn_index import AbortedTransaction
from kafka_protocol.records.batch import BatchHeader
from local_log.producers.late_snapshots import PRODUCERS_AT_ONCE_MAX, LateSnapshots
from local_log.producers.snapshots import ProducerSnapshots
from local_log.producers.state import ProducerStates
from local_log.producers.transactions import note_batch
from local_log.segment.recovery import build_producers
from local_log.segment.segment import LogSegment
from runtime.disk import Buffer, Disk


class LogProducers:
    """See the module.

    Attributes:
        states: up to the log end; another object after a truncation.
        snapshots: the files.
    """

    __slots__ = ("_disk", "_late", "snapshots", "states")

    def __init__(self, states: ProducerStates, snapshots: ProducerSnapshots, disk: Disk) -> None:
        self.states = states
        self.snapshots = snapshots
        self._late = LateSnapshots(snapshots)
        self._disk = disk

    def end_transaction(self, header: BatchHeader, batch: Buffer) -> AbortedTransaction | None:
        """Note a control batch that is in the log.

        Returns:
            The entry for the transaction index if it aborts a transaction that has records.
        """
        return note_batch(self.states, header, lambda: bytes(batch))

    def begin_segment(self, base_offset: int) -> None:
        """Keep what is known where a new segment begins; of very many producers later.

        Raises:
            OSError: the disk failed.
        """
        self.states.end_offset = base_offset
        if len(self.states.producers) <= PRODUCERS_AT_ONCE_MAX:
            self.snapshots.write(base_offset, self.states.dump())
        else:
            self._late.add(base_offset, self.states.freeze())

    def write_late(self) -> None:
        """Write the snapshots that wait for it; on any thread."""
        if self._late:
            self._late.write()

    def forget_snapshots(self, base_offsets: Iterable[int]) -> None:
        """Segments have left the log; their files are renamed later."""
        self.snapshots.forget(base_offsets)

    def cut(self, segments: Sequence[LogSegment], *, start: int, end: int) -> None:
        """Go back to what was known at `end`, where the log ends now.

        Args:
            segments: of the log.
            start: the log start.
            end: exclusive.

        Raises:
            OSError: the disk failed.
        """
        self._late.forget_above(end)
        self.snapshots.remove([offset for offset in self.snapshots.offsets if offset > end])
        self.states = build_producers(segments, self.snapshots, start=start, end=end)

    def write_last(self, end: int) -> None:
        """Write a snapshot at the log end, which saves the next start its recovery."""
        self.write_late()
        is_expected = end in self.snapshots.offsets  # one that came late may have failed
        if not is_expected or not self._disk.exists(self.snapshots.path(end)):
            self.snapshots.write(end, self.states.dump())

    def fsync_last(self) -> None:
        """Make the newest snapshot durable."""
        for offset in self.snapshots.offsets[-1:]:
            self._disk.fsync_path(self.snapshots.path(offset))

    def close(self) -> None:
        """Write nothing more: the directory may have another name, and its name another log."""
        self._late.close()
