"""A disk in memory that knows what was flushed: the log by batches, quorum-state, snapshots."""

import hashlib
from dataclasses import dataclass

from metadata_topic.raft.events import ElectionState, Started
from metadata_topic.raft.log_view import SnapshotFile
from metadata_topic.raft.messages import BOOTSTRAP_ID, SnapshotId
from metadata_topic.raft.voter_history import QuorumFacts, VoterHistory
from tests.support.raft.batch_index import Batch, BatchIndex

PAYLOAD_BYTES = 8
"""Every batch has so many, however many offsets it takes: data is cut into batches by that."""


@dataclass(frozen=True, slots=True)
class StoredSnapshot:
    """A snapshot on a disk.

    Attributes:
        content: the end of it is a digest of the rest, as CRCs are in a real one.
        facts: what it says about the quorum.
    """

    file: SnapshotFile
    content: bytes
    facts: QuorumFacts


def snapshot_content(snapshot_id: SnapshotId, writer: int, size_bytes: int) -> bytes:
    """Bytes that differ from those of any other snapshot and of any other writer."""
    text = f"{snapshot_id.end_offset}/{snapshot_id.epoch}/{writer}:".encode()
    body = text + (text * (size_bytes // len(text) + 1))[:size_bytes]
    return body + hashlib.sha256(body).digest()[:8]


class ModelDisk(BatchIndex):
    """See the module.

    Attributes:
        election: what quorum-state holds; None: there is no such file.
        end_offset: of the log (exclusive).
        flushed_end: what a crash leaves at least (exclusive).
        part: the snapshot that is being fetched, and its bytes so far.
    """

    def __init__(self, directory: bytes, configured: QuorumFacts) -> None:
        super().__init__()
        self.directory = directory
        self.configured = configured
        self.election: ElectionState | None = None
        self.start_offset = self.end_offset = self.flushed_end = 0
        self.snapshots: dict[SnapshotId, StoredSnapshot] = {}
        self.part: tuple[SnapshotId, bytearray] | None = None
        if configured.voters is not None and configured.kraft_version:
            content = snapshot_content(BOOTSTRAP_ID, 0, 20)
            file = SnapshotFile(BOOTSTRAP_ID, len(content))
            self.snapshots[BOOTSTRAP_ID] = StoredSnapshot(file, content, configured)

    def append(self, batch: Batch) -> None:
        """Write at the end; not flushed."""
        assert batch.facts.base_offset == self.end_offset, (
            f"append at {batch.facts.base_offset}, the log ends at {self.end_offset}"
        )
        self.add(batch)
        self.end_offset = batch.facts.end_offset

    def epoch_before(self, end_offset: int) -> int:
        """Epoch of the last record below `end_offset`, in log or snapshot."""
        batch = self.batch_ending_at(end_offset)
        if batch is not None:
            return batch.facts.epoch
        newest = self.newest
        return newest.file.id.epoch if newest is not None else 0

    @property
    def newest(self) -> StoredSnapshot | None:
        """The newest snapshot, that of the format step last of all."""
        return self.snapshots[max(self.snapshots)] if self.snapshots else None

    def facts_at(self, end_offset: int) -> QuorumFacts:
        """What the records below `end_offset` say about the quorum."""
        return self._history().at(end_offset)

    def _history(self) -> VoterHistory:
        newest = self.newest
        first = (
            (0, self.configured) if newest is None else (newest.file.id.end_offset, newest.facts)
        )
        history = VoterHistory([first])
        for batch in self.batches[self.index_at(first[0]) :]:
            if batch.facts.voters is not None or batch.facts.kraft_version is not None:
                history.note(batch.facts)
        return history

    def read(self, offset: int, end_offset: int, max_bytes: int) -> list[Batch]:
        """Whole batches from `offset` on, at least one if there is one below `end_offset`."""
        first = self.index_at(offset)
        last = self.index_at(end_offset)
        return self.batches[first : min(last, first + max(1, max_bytes // PAYLOAD_BYTES))]

    def truncate(self, end_offset: int) -> None:
        """Drop what lies from `end_offset` on, durably."""
        self.keep(slice(self.index_at(end_offset)))
        self.end_offset = min(self.end_offset, end_offset)
        self.flushed_end = min(self.flushed_end, end_offset)

    def raise_start(self, start_offset: int) -> None:
        """Drop the log below a snapshot's end, and older snapshots."""
        self.keep(slice(self.index_at(start_offset), None))
        self.start_offset = start_offset
        self.snapshots = {k: v for k, v in self.snapshots.items() if k.end_offset >= start_offset}

    def install(self, snapshot: StoredSnapshot) -> None:
        """Let a fetched snapshot stand for the whole log."""
        self.clear()
        end = snapshot.file.id.end_offset
        self.start_offset = self.end_offset = self.flushed_end = end
        self.snapshots[snapshot.file.id] = snapshot
        self.part = None

    def crash(self, batches_left: int) -> None:
        """Forget what was not flushed but for so many batches of it."""
        self.keep(slice(self.index_at(self.flushed_end) + batches_left))
        self.end_offset = self.batches[-1].facts.end_offset if self.batches else self.start_offset
        self.flushed_end = self.end_offset
        self.part = None

    @property
    def unflushed_batches(self) -> int:
        """How many a crash may forget."""
        return len(self.batches) - self.index_at(self.flushed_end)

    def started(self, random: float) -> Started:
        """What a process finds when it starts."""
        epochs: list[tuple[int, int]] = []
        for batch in self.batches:
            if not epochs or epochs[-1][0] != batch.facts.epoch:
                epochs.append((batch.facts.epoch, batch.facts.base_offset))
        return Started(
            election=self.election or ElectionState(),
            start_offset=self.start_offset,
            end_offset=self.end_offset,
            epochs=tuple(epochs),
            snapshots=tuple(self.snapshots[key].file for key in sorted(self.snapshots)),
            history=self._history().entries,
            random=random,
        )
