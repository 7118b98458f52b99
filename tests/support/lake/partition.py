"""One partition of a generated bucket: its leaders one after the other, and what they copied."""

import hashlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from itertools import count
from pathlib import Path

from kafka_protocol.records.batch import read_header
from kafka_protocol.records.control import ControlType
from kafka_protocol.records.records import NewRecord, Record
from kafka_protocol.types import EpochEntry, TopicIdPartition
from local_log.log.tier_segments import ClosedSegment
from pipeline.values import Isolation
from rlmm.api import Fence, SegmentUpdate
from rlmm.events import MetadataEvent, SegmentAdded, SegmentUpdated, Stamp
from rlmm.lineage import chain_spans
from rsm_plugins.api import RemoteStorageManager
from rsm_plugins.layout.manager import LayoutStorageManager
from rsm_plugins.segment import (
    RemoteLogSegmentId,
    RemoteLogSegmentMetadata,
    SegmentState,
)
from tests.support.lake.replica import NOW_MS, Replica
from tests.support.lake.rows import Row, committed_rows, rows_of_batch

STARTED = SegmentState.COPY_SEGMENT_STARTED
FINISHED = SegmentState.COPY_SEGMENT_FINISHED
DELETING = SegmentState.DELETE_SEGMENT_STARTED
DELETED = SegmentState.DELETE_SEGMENT_FINISHED

Told = str | bytes | None | NewRecord


class Upto(Enum):
    """Where a copy was abandoned."""

    STARTED = "only its record was written"
    OBJECTS = "log and indexes are there, the manifest is not"
    MANIFEST = "all objects are there, FINISHED was never written"


class Objects(Enum):
    """What a deletion left in the store."""

    ALL = "all"
    NO_MANIFEST = "the manifest is gone, which goes first"
    NONE = "none"


@dataclass(slots=True)
class Copy:
    """A copy of a segment.

    Attributes:
        metadata: in its newest state.
        held: (leader epoch, offset) of what it holds, by its leader's log.
        whole: all its objects are in the store, the manifest too, whatever the records say.
    """

    metadata: RemoteLogSegmentMetadata
    held: frozenset[tuple[int, int]]
    whole: bool = False


class LakePartition:
    """A builder: each step returns the partition, so that steps can be chained.

    Attributes:
        id: topic id, number, topic.
        copies: all copies that were begun, in order.
        log_start: readers see nothing below (DeleteRecords).
        epoch: leader epoch of what is appended next.
    """

    def __init__(
        self,
        directory: Path,
        id: TopicIdPartition,
        *,
        store: RemoteStorageManager,
        tell: Callable[[MetadataEvent], None],
        incarnation: int,
        log_start: int = 0,
    ) -> None:
        self.id, self.log_start = id, log_start
        self.copies: list[Copy] = []
        self.epoch = 0
        self._directory, self._store, self._tell = directory, store, tell
        self._numbers, self._clock = count(1), count(NOW_MS)
        self._unclean_epoch, self._incarnation = -1, incarnation
        self._replicas = [Replica(directory / "0", id, start=log_start)]

    @property
    def leader(self) -> Replica:
        """The replica that leads now."""
        return self._replicas[-1]

    @property
    def end(self) -> int:
        """The leader's log end (exclusive)."""
        return self.leader.end

    @property
    def chain(self) -> tuple[EpochEntry, ...]:
        """The leader's epoch chain, from the log start on."""
        return self.leader.chain

    # -- what leaders write ----------------------------------------------------------------------

    def append(
        self,
        *told: Told,
        codec: int = 0,
        producer_id: int = -1,
        transactional: bool = False,
        append_time_ms: int | None = None,
    ) -> "LakePartition":
        """Append one batch.

        Args:
            told: each a value (its key and timestamp are made up), or `(timestamp_ms, key, value,
                headers)`.
            codec: 0 none, 1 gzip, 2 snappy, 3 lz4, 4 zstd.
            producer_id: of an idempotent producer.
            transactional: the batch belongs to a transaction of that producer.
            append_time_ms: the broker stamps it (LogAppendTime).
        """
        self.leader.append(
            [self._record(each) for each in told],
            epoch=self.epoch,
            codec=codec,
            producer_id=producer_id,
            transactional=transactional,
            append_time_ms=append_time_ms,
        )
        return self

    def batches(self, batches: int, records: int = 3, **how: int | bool) -> "LakePartition":
        """Append so many batches of so many made-up records each."""
        for _ in range(batches):
            first = self.end
            self.append(*(f"value of {first + n}" for n in range(records)), **how)  # type: ignore[arg-type]
        return self

    def _record(self, told: Told) -> NewRecord:
        if isinstance(told, tuple):
            return told
        at_ms = next(self._clock)
        value = told.encode() if isinstance(told, str) else told
        return at_ms, b"key of %d" % (at_ms % 1_000), value, []

    def commit(self, producer_id: int) -> "LakePartition":
        """Append the marker that commits the producer's transaction."""
        self.leader.end_transaction(producer_id, ControlType.COMMIT, epoch=self.epoch)
        return self

    def abort(self, producer_id: int) -> "LakePartition":
        """Append the marker that aborts the producer's transaction."""
        self.leader.end_transaction(producer_id, ControlType.ABORT, epoch=self.epoch)
        return self

    def thinned(self, *kept: int, size: int, codec: int = 0) -> "LakePartition":
        """Append a batch of `size` offsets of which compaction left those at the places `kept`."""
        first = self.end
        left = [Record(first + n, NOW_MS, b"key", b"kept %d" % (first + n), []) for n in kept]
        self.leader.append_compacted(
            left, epoch=self.epoch, last_offset=first + size - 1, codec=codec
        )
        return self

    def gap(self, offsets: int) -> "LakePartition":
        """Append one record behind so many offsets of which not even a batch is left."""
        record = self._record(b"behind a gap")
        self.leader.append_behind_gap([record], epoch=self.epoch, first=self.end + offsets)
        return self

    def roll(self) -> "LakePartition":
        """Close the leader's active segment."""
        self.leader.roll()
        return self

    def lead(self, epoch: int) -> "LakePartition":
        """Be led under another epoch by the same replica."""
        self.epoch = epoch
        return self

    def elect(
        self, epoch: int, *, at: int | None = None, rolls: Iterable[int] = ()
    ) -> "LakePartition":
        """Be led by another replica, whose segments may end elsewhere.

        Args:
            epoch: its leader epoch.
            at: its log end; below the leader's: an unclean election that gives up the rest.
            rolls: base offsets at which it begins a segment.
        """
        old, number = self.leader, len(self._replicas)
        new = Replica(self._directory / str(number), self.id, start=old.first)
        roll_at = set(rolls)
        for batch in old.batches():
            header = read_header(batch)
            if at is not None and header.next_offset > at:
                break
            if header.base_offset in roll_at:
                new.roll()
            new.take(batch)
        if self.log_start > old.first:
            new.raise_start(self.log_start)
        if at is not None and at < old.end:
            self._unclean_epoch = epoch
        self._replicas.append(new)
        return self.lead(epoch)

    def delete_records(self, before: int) -> "LakePartition":
        """Raise the log start, as DeleteRecords does."""
        self.leader.raise_start(before)
        self.log_start = before
        return self

    # -- what is copied --------------------------------------------------------------------------

    def copy(self, *, again: bool = False, upto: Upto | None = None) -> "LakePartition":
        """Copy the leader's closed segments.

        Args:
            again: also those whose offsets are copied: overlapping copies.
            upto: None: to the end; else every copy is abandoned there.
        """
        for closed in self.leader.closed():
            if closed.last_offset < self.log_start:
                continue
            if again or not self._is_copied(closed):
                self._copy(closed, upto)
        return self

    def _is_copied(self, closed: ClosedSegment) -> bool:
        wanted = {
            pair
            for pair in _pairs(self.chain, closed.base_offset, closed.last_offset)
            if pair[1] >= self.log_start
        }
        return wanted <= self.covered()

    def _copy(self, closed: ClosedSegment, upto: Upto | None) -> None:
        number, first, last = next(self._numbers), closed.base_offset, closed.last_offset
        data, is_empty = self.leader.open_segment(first)
        started = RemoteLogSegmentMetadata(
            id=RemoteLogSegmentId(self.id, self._segment_id(number)),
            start_offset=first,
            end_offset=last,
            max_timestamp_ms=closed.max_timestamp_ms,
            broker_id=1,
            event_timestamp_ms=NOW_MS + number,
            segment_size_bytes=closed.size_bytes,
            leader_epochs=_epochs(self.chain, first, last),
            txn_index_empty=is_empty,
        )
        self._tell(SegmentAdded(started, self._stamp()))
        copy = Copy(started, frozenset(_pairs(self.chain, first, last)))
        self.copies.append(copy)
        if upto is not Upto.STARTED:
            custom = self._store.copy_log_segment_data(started, data)
            copy.metadata = replace(started, custom_metadata=custom)
            copy.whole = upto is not Upto.OBJECTS
            if not copy.whole:
                self._remove_manifest(copy.metadata)
        for file in data.files():
            file.close()
        if upto is None:
            self._update(copy, FINISHED)

    def _segment_id(self, number: int) -> bytes:
        """As good as random: no other segment of any partition has it."""
        own = b"%s/%d/%d" % (self.id.topic_id, self.id.partition, number)
        return hashlib.sha256(own).digest()[:16]

    def delete(
        self, number: int, left: Objects = Objects.NONE, *, finished: bool = False
    ) -> "LakePartition":
        """Delete a copy.

        Args:
            number: of the copy in `copies`.
            left: what is still in the store.
            finished: whether DELETE_SEGMENT_FINISHED is written.
        """
        copy = self.copies[number]
        self._update(copy, DELETING)
        copy.whole = left is Objects.ALL
        if left is Objects.NO_MANIFEST:
            self._remove_manifest(copy.metadata)
        elif left is Objects.NONE:
            self._store.delete_log_segment_data(copy.metadata)
        if finished:
            self._update(copy, DELETED)
        return self

    def _update(self, copy: Copy, state: SegmentState) -> None:
        metadata = copy.metadata
        update = SegmentUpdate(
            metadata.id, state, metadata.event_timestamp_ms + 1, 1, metadata.custom_metadata
        )
        copy.metadata = replace(
            metadata, state=state, event_timestamp_ms=metadata.event_timestamp_ms + 1
        )
        self._tell(SegmentUpdated(update, self._stamp()))

    def _remove_manifest(self, metadata: RemoteLogSegmentMetadata) -> None:
        store = self._store
        assert isinstance(store, LayoutStorageManager)
        objects = store._store  # what a killed copy leaves cannot be asked for by the interface
        objects.delete([names.manifest for names in store.places(metadata)])

    def _stamp(self) -> Stamp:
        fence = Fence(self.epoch, self._incarnation)
        return Stamp(fence, 0, self.log_start, self._unclean_epoch)

    # -- what is expected ------------------------------------------------------------------------

    def covered(self, *, alone: bool = False) -> set[tuple[int, int]]:
        """(leader epoch, offset) of all finished copies, of whatever lineage.

        Args:
            alone: as the bucket says it without the records: of all copies that are whole.
        """
        return {
            pair
            for copy in self.copies
            if (copy.whole if alone else copy.metadata.state is FINISHED)
            for pair in copy.held
        }

    def remote(self, *, alone: bool = False) -> range:
        """Offsets on the leader's chain, from the log start on, that copies hold.

        From the first to the last; holes between are in `missing`. `alone` as for `covered`.
        """
        covered, pairs = self.covered(alone=alone), _pairs(self.chain, self.log_start, self.end - 1)
        found = [pair[1] for pair in pairs if pair in covered]
        return range(found[0], found[-1] + 1) if found else range(self.log_start, self.log_start)

    def missing(self, *, alone: bool = False) -> list[int]:
        """Offsets within `remote` that no copy holds."""
        covered, remote = self.covered(alone=alone), self.remote(alone=alone)
        pairs = _pairs(self.chain, remote.start, remote.stop - 1)
        return [offset for epoch, offset in pairs if (epoch, offset) not in covered]

    def rows(
        self, isolation: Isolation = Isolation.READ_UNCOMMITTED, *, alone: bool = False
    ) -> list[Row]:
        """The rows that a reader of the store must give, ascending.

        Args:
            isolation: with READ_COMMITTED what is undecided at the remote end ends the rows.
            alone: as for `covered`.
        """
        remote, missing = self.remote(alone=alone), set(self.missing(alone=alone))
        partition, batches = self.id.topic_partition, self.leader.batches()
        if isolation is Isolation.READ_COMMITTED:
            rows = committed_rows(partition, batches, remote.stop).rows
        else:
            rows = [row for batch in batches for row in rows_of_batch(partition, batch)]
        return [row for row in rows if row.offset in remote and row.offset not in missing]

    def stable_end(self, *, alone: bool = False) -> int:
        """Where READ_COMMITTED ends for who knows nothing but what is remote (exclusive)."""
        end = self.remote(alone=alone).stop
        return committed_rows(self.id.topic_partition, self.leader.batches(), end).end

    def close(self) -> None:
        """Let go of the replicas' files."""
        for replica in self._replicas:
            replica.close()


def _pairs(chain: Sequence[EpochEntry], first: int, last: int) -> Iterable[tuple[int, int]]:
    """Each (leader epoch, offset) of `[first, last]`, ascending."""
    for span in chain_spans(chain, last + 1):
        for offset in range(max(span.first, first), span.last + 1):
            yield span.epoch, offset


def _epochs(chain: Sequence[EpochEntry], first: int, last: int) -> tuple[EpochEntry, ...]:
    """The part of a chain that wrote `[first, last]`, clipped at its begin."""
    return tuple(
        EpochEntry(span.epoch, max(span.first, first))
        for span in chain_spans(chain, last + 1)
        if span.last >= first
    )
