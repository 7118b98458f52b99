"""What a remote log metadata manager promises: which remote segments exist, and in which state.

A metadata manager is a plugin too. Writes are futures that complete only when the manager has read
its own record back at its place in the topic and the state table accepted it; a write of unknown
outcome fails with `MetadataWriteTimeoutError`, upon which its owner takes the next incarnation and
writes its barrier again.

Every write carries a `Fence`. From a barrier on, every reader refuses records of a lower fence for
that partition. Source: KIP-405 RemoteLogMetadataManager; the fence is ours (docs/tiering.md).
"""

from collections.abc import Iterator, Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from enum import IntEnum
from typing import Protocol

from kafka_protocol.types import TopicIdPartition
from rsm_plugins.segment import RemoteLogSegmentId, RemoteLogSegmentMetadata, SegmentState


@dataclass(frozen=True, slots=True, order=True)
class Fence:
    """Who writes; higher outranks lower.

    The leader epoch of the user partition, then the tier incarnation.
    """

    leader_epoch: int
    incarnation: int


LOWEST_FENCE = Fence(-1, -1)
REMOVER_FENCE = Fence(2**31 - 1, 2**63 - 1)


class PartitionDeleteState(IntEnum):
    """Life of a deleted partition's remote data (KIP-405, Topic deletion lifecycle)."""

    DELETE_PARTITION_MARKED = 0
    DELETE_PARTITION_STARTED = 1
    DELETE_PARTITION_FINISHED = 2


@dataclass(frozen=True, slots=True)
class SegmentUpdate:
    """A change of a known segment's state."""

    id: RemoteLogSegmentId
    state: SegmentState
    event_timestamp_ms: int
    broker_id: int
    custom_metadata: bytes | None = None


class MetadataError(Exception):
    """A metadata write did not come about."""


class MetadataRefusedError(MetadataError):
    """The record was read back and refused: it changed nothing.

    By the state table, or by a higher fence.

    Attributes:
        fence: the higher one that was read, None where the state table refused.
    """

    def __init__(self, message: str, fence: Fence | None = None) -> None:
        super().__init__(message)
        self.fence = fence


class MetadataWriteTimeoutError(MetadataError):
    """Nobody knows whether the record is, or will be, in the topic: the ownership ends here."""


class MetadataNotReadyError(MetadataError):
    """The manager has not caught up for this partition, or no longer owns it."""


class RemoteLogMetadataManager(Protocol):
    """The metadata manager as the RemoteLogManager sees it.

    Thread-safe. Look-ups never wait for a network, and raise MetadataNotReadyError where what is
    cached may be too old to answer.
    """

    def configure(self, configs: Mapping[str, str]) -> None:
        """Take the settings under `rlmm.config.` (prefix removed).

        With them come `node.id`, `cluster.id`, `log.dir` and `bootstrap.servers` of the named
        listener.

        Raises:
            ValueError: a setting is wrong; the message names key, value and what is allowed.
        """

    def own(
        self, partition: TopicIdPartition, fence: Fence, metadata_offset: int = -1
    ) -> "Future[None]":
        """Become the writer of `partition`: catch up, write the barrier, done when it is read back.

        Called again with a higher fence after a time-out, and by the manager's own doing never.
        Fails with MetadataRefusedError when a higher fence is already there.
        """

    def follow(self, partition: TopicIdPartition) -> "Future[None]":
        """Read along without writing; done when caught up to the end seen at the call."""

    def release(self, partition: TopicIdPartition) -> None:
        """Stop owning or following; the cached state may stay on disk."""

    def is_ready(self, partition: TopicIdPartition) -> bool:
        """True once `own` or `follow` completed and nothing put the cache in doubt since."""

    def add(
        self, metadata: RemoteLogSegmentMetadata, fence: Fence, metadata_offset: int
    ) -> "Future[None]":
        """Write COPY_SEGMENT_STARTED of a new id.

        `metadata_offset`: of the image the writer saw the topic in.
        """

    def update(self, update: SegmentUpdate, fence: Fence, metadata_offset: int) -> "Future[None]":
        """Write a later state of a known id."""

    def segment(self, id: RemoteLogSegmentId) -> RemoteLogSegmentMetadata | None:
        """The segment as known now; None for unknown and for DELETE_SEGMENT_FINISHED."""

    def segment_for(
        self, partition: TopicIdPartition, epoch: int, offset: int
    ) -> RemoteLogSegmentMetadata | None:
        """The COPY_SEGMENT_FINISHED segment that holds (epoch, offset), or None.

        Never one of another lineage.
        """

    def next_segment(
        self, partition: TopicIdPartition, epoch: int, offset: int
    ) -> RemoteLogSegmentMetadata | None:
        """The next FINISHED segment that holds records of `epoch`.

        Next: with the smallest start at or above `offset`.
        """

    def highest_offset_for_epoch(self, partition: TopicIdPartition, epoch: int) -> int | None:
        """The largest offset (inclusive) of `epoch` in FINISHED segments, or None."""

    def list_segments(
        self, partition: TopicIdPartition, epoch: int | None = None
    ) -> Iterator[RemoteLogSegmentMetadata]:
        """Segments in every state but DELETE_SEGMENT_FINISHED; of one epoch or all.

        Ascending by start offset.
        """

    def finished_order(self, id: RemoteLogSegmentId) -> int | None:
        """Where in the topic the id first became FINISHED, to tell earlier from later.

        The first counts; a barrier that repeats it does not.
        """

    def started_seen_ms(self, id: RemoteLogSegmentId) -> int | None:
        """When this cache first saw STARTED of the id (wall clock, kept over restarts)."""

    def close(self) -> None:
        """Stop clients and close the store; called once."""


class DeletedTopics(Protocol):
    """The side of a metadata manager that the remover of deleted topics works with.

    A manager has it when its own topic does not clean up after deleted user topics. The remover's
    records carry `REMOVER_FENCE`; `update` takes them without ownership.
    """

    def led_partitions(self) -> "list[PartitionDeletion]":
        """User partitions, deleted ones included, that this broker may judge.

        Their records lie in metadata partitions that it leads and has consumed to their end.
        """

    def leads_all(self) -> bool:
        """Whether `led_partitions` are all that records ever named, wherever they lie."""

    def deletion(self, partition: TopicIdPartition) -> "PartitionDeletion | None":
        """The same of one user partition; None if no record named it."""

    def put_partition_delete(
        self, partition: TopicIdPartition, state: PartitionDeleteState
    ) -> "Future[None]":
        """Write a partition delete record; futures end as those of `update`."""


@dataclass(frozen=True, slots=True)
class PartitionDeletion:
    """What the remover must know of a user partition.

    Attributes:
        metadata_offset: the highest offset in `__cluster_metadata` at which a writer saw the
            topic, -1 if none.
        state: how far its deletion is, None while nobody marked it.
        marked_seen_ms: when this broker first read the mark (wall clock).
    """

    partition: TopicIdPartition
    metadata_offset: int
    state: PartitionDeleteState | None
    marked_seen_ms: int | None
