"""The plugin interface of remote log metadata: which remote segments exist, and in which state.

A write returns a future. It completes once the manager has read its own record back from the topic,
and the state table accepted it. A write of unknown outcome fails with `MetadataWriteTimeoutError`;
its owner then takes the next tier incarnation and writes its barrier again.

Every write carries a `Fence`. From a barrier on, every reader refuses records of a lower fence for
that partition. Source: KIP-405, RemoteLogMetadataManager; the fence is ours (docs/tiering.md).
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from enum import IntEnum

from kafka_protocol.errors import TidemarkError
from kafka_protocol.types import TopicIdPartition
from rsm_plugins.segment import RemoteLogSegmentId, RemoteLogSegmentMetadata, SegmentState
from runtime.clock import Clock
from runtime.health_reasons import HealthText


@dataclass(frozen=True, slots=True, order=True)
class Fence:
    """Fencing token of a writer; a higher one outranks a lower one.

    Ordered by the leader epoch of the user partition, then by the tier incarnation.
    """

    leader_epoch: int
    incarnation: int


LOWEST_FENCE = Fence(-1, -1)
REMOVER_FENCE = Fence(2**31 - 1, 2**63 - 1)


class PartitionDeleteState(IntEnum):
    """States of the deletion of a partition's remote data (KIP-405, Topic deletion lifecycle)."""

    DELETE_PARTITION_MARKED = 0
    DELETE_PARTITION_STARTED = 1
    DELETE_PARTITION_FINISHED = 2


@dataclass(frozen=True, slots=True)
class SegmentUpdate:
    """A change of a known segment's state.

    Attributes:
        event_timestamp_ms: Time of the change, in ms since 1970.
        broker_id: The broker that writes it.
        custom_metadata: Replaces the stored one; None keeps it.
        seen_state: Only for DELETE_SEGMENT_STARTED: the segment's state when its writer decided to
            delete it. A segment that was seen in COPY_SEGMENT_STARTED and has become finished since
            is not deleted. None: not given.
    """

    id: RemoteLogSegmentId
    state: SegmentState
    event_timestamp_ms: int
    broker_id: int
    custom_metadata: bytes | None = None
    seen_state: SegmentState | None = None


@dataclass(frozen=True, slots=True)
class SegmentHistory:
    """A segment that accepted records name, in any state but DELETE_SEGMENT_FINISHED.

    Attributes:
        metadata: Its present state.
        named_under: Fence of the record that named it first; its repetition by a barrier does not
            count.
        finished_under: Fence of its first COPY_SEGMENT_FINISHED, None before that.
        finished_order: Position of that record in the topic, None before that.
    """

    metadata: RemoteLogSegmentMetadata
    named_under: Fence
    finished_under: Fence | None
    finished_order: int | None

    @property
    def is_placeholder(self) -> bool:
        """True if a barrier made this id for itself: it names no offsets."""
        return self.metadata.segment_size_bytes == 0


@dataclass(frozen=True, slots=True)
class PartitionHistory:
    """Facts from the accepted records of a partition, beyond the state of its segments.

    A leader epoch without an entry proves nothing: records of Apache Kafka carry neither a log
    start offset nor an unclean election.

    The keys of both mappings are leader epochs of fences. An epoch is left out where a higher epoch
    has at least as high an offset, since it then proves nothing more. So the offsets fall as the
    epochs rise, and the mappings stay small.

    Attributes:
        log_starts: The highest log start offset in records of that leader epoch (an owner adds it
            after `carry`).
        given_ends: The highest end (exclusive) of the segments that were first named under that
            leader epoch, deleted ones included. All offsets below it were assigned by that epoch's
            lineage.
        last_unclean_epoch: Leader epoch of the last unclean election, -1 if none is known: the
            highest one in records that were not below the fence.
        highest_epoch: The highest leader epoch in the fence of any record that was read, refused
            ones included; -1 if none.
        segments: Ascending by start offset.
    """

    log_starts: Mapping[int, int]
    given_ends: Mapping[int, int]
    last_unclean_epoch: int
    highest_epoch: int
    segments: tuple[SegmentHistory, ...]


class MetadataError(TidemarkError):
    """A metadata write failed."""


class MetadataRefusedError(MetadataError):
    """The record was read back and refused, by the state table or by a higher fence.

    It changed nothing.

    Attributes:
        fence: The higher fence that was read, None where the state table refused.
    """

    def __init__(self, message: str, fence: Fence | None = None) -> None:
        super().__init__(message)
        self.fence = fence


class MetadataWriteTimeoutError(MetadataError):
    """The record may be in the topic, now or later; the ownership ends with this error."""


class MetadataNotReadyError(MetadataError):
    """The manager has not caught up for this partition, or no longer owns it."""


@dataclass(frozen=True, slots=True)
class PartitionDeletion:
    """State of the deletion of a user partition, as the remover needs it.

    Attributes:
        partition: The user partition.
        metadata_offset: The highest offset in `__cluster_metadata` at which a writer saw the topic,
            -1 if none.
        state: Progress of the deletion, None before a record marks it.
        marked_seen_ms: Time at which this broker first read the mark, by its wall clock in ms since
            1970; None before.
    """

    partition: TopicIdPartition
    metadata_offset: int
    state: PartitionDeleteState | None
    marked_seen_ms: int | None


class RemoteLogMetadataManager(ABC):
    """The metadata manager as used by the RemoteLogManager: the base class of every such plugin.

    All methods may be called from any thread at any time after `configure`. Look-ups never wait for
    the network. They raise MetadataNotReadyError where the cached state may be too old to answer.
    Methods that are not abstract may be left out; health then names the features that are off
    (`features_off`).
    """

    @abstractmethod
    def configure(self, configs: Mapping[str, str]) -> None:
        """Accept the settings under `rlmm.config.` (prefix removed).

        Called once, before any look-up or write. `node.id`, `cluster.id`, `log.dir` and
        `bootstrap.servers` of the named listener are among the settings.

        Raises:
            ValueError: A setting is wrong; the message names the key, its value and the allowed
                values.
        """

    @abstractmethod
    def own(
        self,
        partition: TopicIdPartition,
        fence: Fence,
        metadata_offset: int = -1,
        unclean_epoch: int = -1,
    ) -> "Future[None]":
        """Become the writer of `partition`: catch up, then write the barrier.

        The future completes once the barrier is read back. It fails with MetadataRefusedError when
        a higher fence is already there, or when the topic lost records since the first record under
        this fence. After a time-out the caller calls again with a higher fence; the manager never
        repeats it by itself.

        Args:
            partition: The user partition, which this broker leads.
            fence: Carried by every record of this owner.
            metadata_offset: Offset in `__cluster_metadata` of the image in which the topic was
                seen, -1 if unknown.
            unclean_epoch: Leader epoch of the unclean election in the cluster metadata, else -1.
                Every record of this owner, the barrier included, carries this one or the one of
                accepted records, whichever is higher.

        No record carries a log start offset before `carry` was called.
        """

    @abstractmethod
    def follow(self, partition: TopicIdPartition) -> "Future[None]":
        """Read along without writing; completes at the end of the topic as seen at the call."""

    @abstractmethod
    def release(self, partition: TopicIdPartition) -> None:
        """Stop owning or following; the cached state may stay on disk."""

    @abstractmethod
    def is_ready(self, partition: TopicIdPartition) -> bool:
        """True once `own` or `follow` has completed, until the cached state may be too old."""

    @abstractmethod
    def add(
        self, metadata: RemoteLogSegmentMetadata, fence: Fence, metadata_offset: int
    ) -> "Future[None]":
        """Write COPY_SEGMENT_STARTED of a new id.

        Args:
            metadata: The segment, with an id that was never used.
            fence: Of the present ownership.
            metadata_offset: Offset in `__cluster_metadata` of the image in which the writer saw the
                topic.
        """

    @abstractmethod
    def update(self, update: SegmentUpdate, fence: Fence, metadata_offset: int) -> "Future[None]":
        """Write a later state of a known id; arguments as of `add`."""

    @abstractmethod
    def segment(self, id: RemoteLogSegmentId) -> RemoteLogSegmentMetadata | None:
        """The segment in its present state; None if unknown or in DELETE_SEGMENT_FINISHED."""

    @abstractmethod
    def segment_for(
        self, partition: TopicIdPartition, epoch: int, offset: int
    ) -> RemoteLogSegmentMetadata | None:
        """The COPY_SEGMENT_FINISHED segment that holds (epoch, offset), or None.

        A segment of another lineage is never returned.
        """

    @abstractmethod
    def next_segment(
        self, partition: TopicIdPartition, epoch: int, offset: int
    ) -> RemoteLogSegmentMetadata | None:
        """The next COPY_SEGMENT_FINISHED segment with records of `epoch`, or None.

        Next: with the smallest start offset at or above `offset`.
        """

    @abstractmethod
    def highest_offset_for_epoch(self, partition: TopicIdPartition, epoch: int) -> int | None:
        """The largest offset (inclusive) of `epoch` in COPY_SEGMENT_FINISHED segments, or None."""

    @abstractmethod
    def list_segments(
        self, partition: TopicIdPartition, epoch: int | None = None
    ) -> Iterator[RemoteLogSegmentMetadata]:
        """Segments in every state but DELETE_SEGMENT_FINISHED, ascending by start offset.

        With `epoch`, only those that hold records of that leader epoch.
        """

    @abstractmethod
    def finished_order(self, id: RemoteLogSegmentId) -> int | None:
        """Position in the topic at which the id first became COPY_SEGMENT_FINISHED, None before.

        Positions are for comparison only. A repetition by a barrier does not count.
        """

    @abstractmethod
    def started_seen_ms(self, id: RemoteLogSegmentId) -> int | None:
        """Time at which this cache first saw COPY_SEGMENT_STARTED of the id, None before.

        By the wall clock, in ms since 1970; kept over restarts.
        """

    @abstractmethod
    def close(self) -> None:
        """Stop clients and close the store; called once, as the last call."""

    # -- may be omitted

    def carry(self, partition: TopicIdPartition, fence: Fence, log_start: int) -> None:
        """Carry `log_start` in each further record of this owner.

        Called once the owner has taken over, and after each rise of the log start offset, when that
        is checkpointed. A call under another fence than the owner's does nothing.

        Args:
            partition: The owned partition.
            fence: Of the ownership.
            log_start: First offset of the log, inclusive.
        """

    def history(self, partition: TopicIdPartition) -> PartitionHistory | None:
        """Facts beyond the states of the segments; None: this manager keeps no history.

        Without history the RemoteLogManager takes no log start offset from records, rebuilds no
        epoch chain from segments, and does not notice a lost log end.

        Raises:
            MetadataNotReadyError: `is_ready` is False. Only an owner whose barrier was read back
                may validate its log by this.
        """
        return None

    def catch_up(self, partition: TopicIdPartition) -> "Future[None]":
        """Completes once the records that the topic holds at the call are read.

        Fails with MetadataNotReadyError where the partition is neither owned nor followed, or no
        longer.
        """
        done: Future[None] = Future()
        if self.is_ready(partition):
            done.set_result(None)
        else:
            done.set_exception(MetadataNotReadyError(f"neither owned nor followed: {partition}"))
        return done

    def on_lost_records(self, listener: Callable[[TopicIdPartition], None]) -> None:
        """Call `listener` for each owned or followed partition of which the topic lost records.

        The ownership has ended by then. State that was read before may be false, so a caller
        withdraws the reports that it based on it. `listener` may be called from any thread. It must
        not wait.
        """

    def check(self, configs: Mapping[str, str]) -> None:
        """Check the settings of a later `configure` without using them.

        The settings by which the manager's clients reach the broker are not among them yet.

        Raises:
            ValueError: A setting is wrong; the message names the key, its value and the allowed
                values.
        """

    def use_clock(self, clock: Clock) -> None:
        """Take the time from `clock`, which a test may move; called before `configure`."""

    def aborting_segments(
        self, partition: TopicIdPartition, offset: int
    ) -> Iterator[RemoteLogSegmentMetadata]:
        """COPY_SEGMENT_FINISHED segments with a transaction index that end at or above `offset`.

        Ascending by start offset. Segments whose record says that the index is empty are left out.
        This default walks all segments.
        """
        return (
            segment
            for segment in self.list_segments(partition)
            if segment.state is SegmentState.COPY_SEGMENT_FINISHED
            and not segment.txn_index_empty
            and segment.end_offset >= offset
        )

    def lead(self, metadata_partitions: Iterable[int] | None) -> None:
        """Set the partitions of the metadata topic that this broker leads; None: all of them.

        The manager reads them, so that the remover finds deleted topics in them. This method,
        `counts`, `unreadable` and `failure` are called from any thread and never wait.
        """

    def counts(self) -> Mapping[str, int]:
        """Counts of records read since the start, by outcome, for metrics."""
        return {}

    def unreadable(self) -> Sequence[HealthText]:
        """One health text for each metadata partition that cannot be read or reached."""
        return ()

    def failure(self) -> str | None:
        """Why the manager has ended permanently, None while it works."""
        return None


class RemovesDeletedTopics(RemoteLogMetadataManager):
    """A manager whose records of a deleted topic stay until the remover has emptied the store.

    The remover's records carry `REMOVER_FENCE`; `update` takes them without ownership.
    """

    @abstractmethod
    def led_partitions(self) -> list[PartitionDeletion]:
        """The user partitions whose deletion this broker may decide, completed deletions excluded.

        Their records are in metadata partitions that this broker leads and has read to their end.
        """

    @abstractmethod
    def finished_partitions(self, topic_ids: frozenset[bytes]) -> list[PartitionDeletion]:
        """The partitions of these topics whose deletion is complete: mostly none.

        From the same metadata partitions as `led_partitions`. Called regularly with the ids of all
        existing topics.
        """

    @abstractmethod
    def leads_all(self) -> bool:
        """True if `led_partitions` covers the whole metadata topic."""

    @abstractmethod
    def deletion(self, partition: TopicIdPartition) -> PartitionDeletion | None:
        """The deletion state of one user partition; None if no record names it."""

    @abstractmethod
    def put_partition_delete(
        self, partition: TopicIdPartition, state: PartitionDeleteState
    ) -> "Future[None]":
        """Write a partition delete record; the future completes and fails as that of `update`."""


FEATURES: Mapping[str, str] = {
    "carry": "records carry no log start: where its checkpoint is lost, it may stay unknown",
    "history": "a lost log end, epoch chain or log start is not noticed by records",
    "catch_up": "a follower may build on what was read long ago",
    "on_lost_records": "records that its topic lost are not noticed at once",
    "counts": "metrics do not count its records",
    "unreadable": "health does not name what it cannot read",
    "failure": "its end is not noticed, and the tier is not started again",
}
"""By method that may be left out: what is off without it. Other methods leave nothing off."""


def features_off(manager: RemoteLogMetadataManager) -> list[str]:
    """The features that are off with this manager, for health."""
    off = [
        f"{name}: {text}"
        for name, text in FEATURES.items()
        if getattr(type(manager), name) is getattr(RemoteLogMetadataManager, name)
    ]
    if not isinstance(manager, RemovesDeletedTopics):
        off.append("remote data of deleted topics is not removed")
    return off
