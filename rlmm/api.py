"""What a remote log metadata manager promises: which remote segments exist, and in which state.

A metadata manager is a plugin too. Writes are futures that complete only when the manager has read
its own record back at its place in the topic and the state table accepted it; a write of unknown
outcome fails with `MetadataWriteTimeoutError`, upon which its owner takes the next incarnation and
writes its barrier again.

Every write carries a `Fence`. From a barrier on, every reader refuses records of a lower fence for
that partition. Source: KIP-405 RemoteLogMetadataManager; the fence is ours (docs/tiering.md).
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
    """A change of a known segment's state.

    Attributes:
        seen_state: of DELETE_SEGMENT_STARTED: the state by which its writer validated. A segment
            that was validated in COPY_SEGMENT_STARTED and is finished by then is not deleted. None:
            not told.
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
        metadata: its present state.
        named_under: the pair of the record that named it first; a barrier's repetition of it
            does not count.
        finished_under: the pair of its first FINISHED, None before.
        finished_order: where in the topic that stands, None before.
    """

    metadata: RemoteLogSegmentMetadata
    named_under: Fence
    finished_under: Fence | None
    finished_order: int | None

    @property
    def is_placeholder(self) -> bool:
        """Whether it is a barrier's own id, which names no offsets."""
        return self.metadata.segment_size_bytes == 0


@dataclass(frozen=True, slots=True)
class PartitionHistory:
    """What the accepted records of a partition say beyond the state of its segments.

    A pair without an entry proves nothing: records of Kafka carry no log
    start and no unclean election.

    The two mappings are by leader epoch of the record's pair and leave out what concludes nothing
    more: an epoch below another one that has at least as high an offset. So their offsets fall as
    the epochs rise, and they stay small.

    Attributes:
        log_starts: the highest log start that settled owners of that leader epoch carried.
        given_ends: the highest offset (exclusive) that segments first named under that leader
            epoch reach to, deleted ones included: offsets below it were given by its lineage.
        last_unclean_epoch: the leader epoch of the last unclean election, -1 if none is known: the
            highest that records not below the fence carried.
        highest_epoch: the highest leader epoch of any owner's pair that was read, also of refused
            records; -1 if none.
        segments: ascending by start offset.
    """

    log_starts: Mapping[int, int]
    given_ends: Mapping[int, int]
    last_unclean_epoch: int
    highest_epoch: int
    segments: tuple[SegmentHistory, ...]


class MetadataError(TidemarkError):
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


class RemoteLogMetadataManager(ABC):
    """The metadata manager as the RemoteLogManager sees it: a plugin is a subclass.

    Thread-safe. Look-ups never wait for a network, and raise MetadataNotReadyError where what is
    cached may be too old to answer. What is not abstract may be omitted: health names what is off
    then (`features_off`).
    """

    @abstractmethod
    def configure(self, configs: Mapping[str, str]) -> None:
        """Take the settings under `rlmm.config.` (prefix removed).

        With them come `node.id`, `cluster.id`, `log.dir` and `bootstrap.servers` of the named
        listener.

        Raises:
            ValueError: a setting is wrong; the message names key, value and what is allowed.
        """

    @abstractmethod
    def own(
        self,
        partition: TopicIdPartition,
        fence: Fence,
        metadata_offset: int = -1,
        unclean_epoch: int = -1,
    ) -> "Future[None]":
        """Become the writer of `partition`: catch up, write the barrier, done when it is read back.

        Called again with a higher fence after a time-out, and by the manager's own doing never.
        Fails with MetadataRefusedError when a higher fence is already there, or when the topic lost
        records since this one wrote its first.

        Every record of this owner, the barrier included, carries the highest unclean epoch that is
        known: `unclean_epoch` (of the unclean election that the cluster metadata name, else -1) or
        what accepted records carry. None carries a log start before `carry`.
        """

    @abstractmethod
    def follow(self, partition: TopicIdPartition) -> "Future[None]":
        """Read along without writing; done when caught up to the end seen at the call."""

    @abstractmethod
    def release(self, partition: TopicIdPartition) -> None:
        """Stop owning or following; the cached state may stay on disk."""

    @abstractmethod
    def is_ready(self, partition: TopicIdPartition) -> bool:
        """True once `own` or `follow` completed and nothing put the cache in doubt since."""

    @abstractmethod
    def add(
        self, metadata: RemoteLogSegmentMetadata, fence: Fence, metadata_offset: int
    ) -> "Future[None]":
        """Write COPY_SEGMENT_STARTED of a new id.

        `metadata_offset`: of the image the writer saw the topic in.
        """

    @abstractmethod
    def update(self, update: SegmentUpdate, fence: Fence, metadata_offset: int) -> "Future[None]":
        """Write a later state of a known id."""

    @abstractmethod
    def segment(self, id: RemoteLogSegmentId) -> RemoteLogSegmentMetadata | None:
        """The segment as known now; None for unknown and for DELETE_SEGMENT_FINISHED."""

    @abstractmethod
    def segment_for(
        self, partition: TopicIdPartition, epoch: int, offset: int
    ) -> RemoteLogSegmentMetadata | None:
        """The COPY_SEGMENT_FINISHED segment that holds (epoch, offset), or None.

        Never one of another lineage.
        """

    @abstractmethod
    def next_segment(
        self, partition: TopicIdPartition, epoch: int, offset: int
    ) -> RemoteLogSegmentMetadata | None:
        """The next FINISHED segment that holds records of `epoch`.

        Next: with the smallest start at or above `offset`.
        """

    @abstractmethod
    def highest_offset_for_epoch(self, partition: TopicIdPartition, epoch: int) -> int | None:
        """The largest offset (inclusive) of `epoch` in FINISHED segments, or None."""

    @abstractmethod
    def list_segments(
        self, partition: TopicIdPartition, epoch: int | None = None
    ) -> Iterator[RemoteLogSegmentMetadata]:
        """Segments in every state but DELETE_SEGMENT_FINISHED; of one epoch or all.

        Ascending by start offset.
        """

    @abstractmethod
    def finished_order(self, id: RemoteLogSegmentId) -> int | None:
        """Where in the topic the id first became FINISHED, to tell earlier from later.

        The first counts; a barrier that repeats it does not.
        """

    @abstractmethod
    def started_seen_ms(self, id: RemoteLogSegmentId) -> int | None:
        """When this cache first saw STARTED of the id (wall clock, kept over restarts)."""

    @abstractmethod
    def close(self) -> None:
        """Stop clients and close the store; called once."""

    # -- may be omitted

    def carry(self, partition: TopicIdPartition, fence: Fence, log_start: int) -> None:
        """Let each record of this owner carry its log start from here on.

        Called by an owner that has settled, and after each rise of the log start, once that is
        checkpointed. A call under another pair than the owner's does nothing.
        """

    def history(self, partition: TopicIdPartition) -> PartitionHistory | None:
        """What is known beyond the segments' states; None: this manager keeps no history.

        Without history nothing is proved by it: no log start is taken from records, no chain is
        rebuilt from segments, and a lost log end is not noticed here.

        Raises:
            MetadataNotReadyError: `is_ready` is False; only what an owner reads after its barrier
                was read back may be validated by.
        """
        return None

    def catch_up(self, partition: TopicIdPartition) -> "Future[None]":
        """Done when all is read that the topic held for an owned or followed partition at the call.

        Fails with MetadataNotReadyError where it is neither, or is no longer.
        """
        done: Future[None] = Future()
        if self.is_ready(partition):
            done.set_result(None)
        else:
            done.set_exception(MetadataNotReadyError(f"neither owned nor followed: {partition}"))
        return done

    def on_lost_records(self, listener: Callable[[TopicIdPartition], None]) -> None:
        """Call `listener` for each owned or followed partition of which the topic lost records.

        What was known of it may never have been true: whoever told others something by it takes
        that back. An ownership has ended by it. Called from any thread; it must not wait.
        """

    def check(self, configs: Mapping[str, str]) -> None:
        """Look at the settings of a later `configure` without using them.

        Those by which its clients reach the broker are not there yet.

        Raises:
            ValueError: a setting is wrong; the message names key, value and what is allowed.
        """

    def use_clock(self, clock: Clock) -> None:
        """Go by this clock, which a test may move; called before `configure`."""

    def aborting_segments(
        self, partition: TopicIdPartition, offset: int
    ) -> Iterator[RemoteLogSegmentMetadata]:
        """FINISHED segments that reach up to `offset` or above and have a transaction index.

        Ascending by start offset. Those whose record says that the index is empty are excluded.
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
        """Say which partitions of the metadata topic this broker leads; None: all of them.

        They are read, so that the remover finds deleted topics in them. This, `counts`,
        `unreadable` and `failure` are called from any thread and never wait.
        """

    def counts(self) -> Mapping[str, int]:
        """Records read since the start, by what became of them, for metrics."""
        return {}

    def unreadable(self) -> Sequence[HealthText]:
        """Why metadata partitions cannot be read or reached, a line for each, with the remedy."""
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
        """User partitions that this broker may validate, but those whose deletion is complete.

        Their records lie in metadata partitions that it leads and has consumed to their end.
        """

    @abstractmethod
    def finished_partitions(self, topic_ids: frozenset[bytes]) -> list[PartitionDeletion]:
        """As `led_partitions`, of these topics those whose deletion is complete: mostly none.

        Asked with the ids of all topics that exist, again and again.
        """

    @abstractmethod
    def leads_all(self) -> bool:
        """Whether `led_partitions` are of all that records ever named, wherever they lie."""

    @abstractmethod
    def deletion(self, partition: TopicIdPartition) -> PartitionDeletion | None:
        """The same of one user partition; None if no record named it."""

    @abstractmethod
    def put_partition_delete(
        self, partition: TopicIdPartition, state: PartitionDeleteState
    ) -> "Future[None]":
        """Write a partition delete record; futures end as those of `update`."""


FEATURES: Mapping[str, str] = {
    "carry": "records carry no log start: where its checkpoint is lost, it may stay unknown",
    "history": "a lost log end, epoch chain or log start is not noticed by records",
    "catch_up": "a follower may build on what was read long ago",
    "on_lost_records": "records that its topic lost are not noticed at once",
    "counts": "metrics do not count its records",
    "unreadable": "health does not name what it cannot read",
    "failure": "its end is not noticed, and the tier is not started again",
}
"""What is off without a method that may be omitted. Without those not named here nothing is."""


def features_off(manager: RemoteLogMetadataManager) -> list[str]:
    """What does not work with this manager, for health."""
    off = [
        f"{name}: {text}"
        for name, text in FEATURES.items()
        if getattr(type(manager), name) is getattr(RemoteLogMetadataManager, name)
    ]
    if not isinstance(manager, RemovesDeletedTopics):
        off.append("remote data of deleted topics is not removed")
    return off
