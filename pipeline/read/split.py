"""Reads a split: pieces to groups of batches in one thread, groups to Arrow in the caller's.

The rows come in the order of their offsets, each once, also where a store or a broker failed on
the way. Offsets that are gone are an error or are counted, see `pipeline.read.lost`.
"""

import logging
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field

import pyarrow as pa

from pipeline.cluster.cluster import connect
from pipeline.columns import schema_of
from pipeline.decode.group import decode_group
from pipeline.errors import PipelineError
from pipeline.plan.splits import bytes_of_tail
from pipeline.read.ahead import read_ahead
from pipeline.read.groups import Group, ReadLimits, TwoBuffers
from pipeline.read.leader import Leader
from pipeline.read.lost import LossRule, LostOffsets
from pipeline.read.progress import Progress
from pipeline.read.remote import RemoteGroups
from pipeline.read.segment_bytes import SegmentBytes
from pipeline.read.tail import TailGroups
from pipeline.store import shared_store
from pipeline.values import RemotePiece, Source, Split, TailPiece
from rsm_plugins.api import RemoteResourceNotFoundError

log = logging.getLogger(__name__)

BATCH_BYTES = 8 << 20
"""About what one Arrow batch holds; the best size for Spark's pipe to its JVM."""


def read_split(
    split: Split,
    source: Source,
    columns: Sequence[str],
    *,
    batch_bytes: int = BATCH_BYTES,
    lost: LostOffsets | None = None,
    limits: ReadLimits | None = None,
    read: Callable[[int], object] = lambda _size_bytes: None,
) -> Generator[pa.RecordBatch, None, None]:
    """The rows of a split, ascending by offset.

    Memory is bounded by two groups of stored bytes and a few Arrow batches. Closing the generator
    early ends its thread.

    Args:
        split: what to read.
        source: where.
        columns: of `pipeline.columns`, in the order wanted.
        batch_bytes: about the bytes of one Arrow batch.
        lost: takes what is skipped where `source.fail_on_data_loss` is False.
        limits: sizes and deadlines.
        read: takes stored bytes. Each group of batches is counted before its rows come.

    Raises:
        DataLossError: offsets are gone, and that is to be an error.
        DamagedDataError: stored bytes are not what was copied.
        StoreUnreachableError: the store does not answer, refuses, or hangs.
        ClusterError: the brokers do not answer, or refuse.
        OptionError: a setting of the store or a column is wrong.
    """
    schema_of(columns)
    reading = _Reading(
        split,
        source,
        limits or ReadLimits(),
        LossRule(source.fail_on_data_loss, LostOffsets() if lost is None else lost),
    )
    groups = read_ahead(reading.groups(), reading.progress, reading.limits.silence_s)
    with closing(groups):
        for group in groups:
            read(len(group.data))
            yield from decode_group(
                group.data, group.origin, group.keep, columns, batch_bytes=batch_bytes
            )


@dataclass(slots=True)
class _Reading:
    """A split while it is read; all but `progress` belongs to the thread that reads."""

    split: Split
    source: Source
    limits: ReadLimits
    rule: LossRule
    progress: Progress = field(default_factory=Progress)
    buffers: TwoBuffers = field(default_factory=TwoBuffers)

    def groups(self) -> Generator[Group, None, None]:
        for piece in self.split.pieces:
            if isinstance(piece, RemotePiece):
                yield from self._remote(piece)
            else:
                yield from self._tail(piece, bytes_of_tail(self.split, piece))

    def _remote(self, piece: RemotePiece) -> Iterator[Group]:
        address = self.source.store
        if address is None:
            raise PipelineError(f"{self.split.partition}: a remote piece and no store to read from")
        store = shared_store(address, self.source.cluster_id)
        segment = SegmentBytes(store, address, piece.segment, self.progress, self.limits)
        groups = RemoteGroups(piece, segment, self.buffers, self.limits.group_bytes)
        try:
            yield from groups
        except RemoteResourceNotFoundError:
            yield from self._vanished(piece, groups)

    def _vanished(self, piece: RemotePiece, groups: RemoteGroups) -> Iterator[Group]:
        """The segment was deleted between plan and read, or while it was read.

        Another copy or the brokers' disks may still hold its offsets, and brokers know. They are
        asked where it is certain which offsets are left: not in the middle of a segment, whose
        index is gone, too.
        """
        segment = piece.segment
        size_bytes, left = segment.segment_size_bytes, piece.byte_to - piece.byte_from
        reads_on = groups.next_offset >= 0
        first = max(piece.first, segment.start_offset, groups.next_offset)
        last = min(piece.last, segment.end_offset)
        if first > last:
            return
        if piece.byte_to >= size_bytes and (piece.byte_from <= 0 or reads_on):
            if self.source.cluster is not None:
                log.warning(
                    "a segment is not in the store (deleted meanwhile, or is this another store?),"
                    " the brokers are asked: %s",
                    groups.name,
                )
                yield from self._tail(TailPiece(segment.topic_id_partition, first, last), left)
                return
            count = last - first + 1
        else:
            count = max(1, (last - first + 1) * min(left, size_bytes) // size_bytes)
        reason = f"{groups.name} was deleted after the plan was made"
        self.rule.apply_counted(self.split.partition, first, last, count, reason)

    def _tail(self, piece: TailPiece, bytes_estimate: int) -> Iterator[Group]:
        cluster = self.source.cluster
        if cluster is None:
            raise PipelineError(f"{self.split.partition}: a tail to read and no cluster")
        with connect(cluster) as client:
            leader = Leader(client, piece.partition, self.source.isolation, piece.leader)
            limits = self.limits
            yield from TailGroups(piece, leader, self.rule, self.progress, limits, bytes_estimate)
