"""Values that describe a read: they travel from the driver to executors, so all can be pickled.

Offsets: `start` and `first` are inclusive, `end` is exclusive, `last` is inclusive. Must not know:
Arrow, Spark, stores, sockets.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from typing import NamedTuple

from kafka_protocol.types import TopicIdPartition, TopicPartition
from pipeline.aborted import AbortedRanges
from rsm_plugins.segment import RemoteLogSegmentMetadata


class Isolation(IntEnum):
    """Which records of transactions a reader sees; numbers as in Fetch."""

    READ_UNCOMMITTED = 0
    READ_COMMITTED = 1


@dataclass(frozen=True, slots=True)
class StoreAddress:
    """A storage plugin and its settings.

    Attributes:
        class_name: as `remote.log.storage.manager.class.name`.
        settings: as `rsm.config.*`, prefix removed. May hold secrets: never shown.
    """

    class_name: str
    settings: Mapping[str, str] = field(repr=False)


@dataclass(frozen=True, slots=True)
class ClusterAddress:
    """A cluster and how its brokers are spoken to.

    Attributes:
        bootstrap: `host:port`, several with commas between.
        client: settings of the Kafka client (option prefix `kafka.` removed). May hold secrets.
    """

    bootstrap: str
    client: Mapping[str, str] = field(default_factory=dict, repr=False)

    @property
    def client_id(self) -> str:
        """The client id that brokers see, of the driver and of executors."""
        return self.client.get("client.id", "tidemark-pipeline")


@dataclass(frozen=True, slots=True)
class Where:
    """The place of a log as the user gives it; `pipeline.opening.open_log` makes a log of it.

    Attributes:
        cluster: asked for topics, offsets and the local tail; None: the bucket alone.
        store: None: the cluster is asked (DescribeConfigs of a broker).
        isolation: decides the end of the log, and which records are excluded.
        fail_on_data_loss: raise DataLossError, or skip and count.
        topic_ids: topic name to id (16 bytes), where a bucket has several of one name.
        log_starts: of a bucket alone: offsets below are not read.
    """

    cluster: ClusterAddress | None = None
    store: StoreAddress | None = None
    isolation: Isolation = Isolation.READ_UNCOMMITTED
    fail_on_data_loss: bool = True
    topic_ids: Mapping[str, bytes] = field(default_factory=dict)
    log_starts: Mapping[TopicPartition, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Source:
    """Facts that a reader of a split needs beside the split; the same for all splits of a log.

    Attributes:
        store: None where nothing is in a remote tier.
        cluster: None where a bucket is read alone.
        cluster_id: given to the plugin as `cluster.id`; empty if unknown.
    """

    store: StoreAddress | None
    cluster: ClusterAddress | None
    cluster_id: str
    isolation: Isolation
    fail_on_data_loss: bool


class OffsetRange(NamedTuple):
    """Offsets `[start, end)`."""

    start: int
    end: int


@dataclass(frozen=True, slots=True)
class RemotePiece:
    """Rows of one remote segment.

    Rows with an offset in `[first, last]`, in batches that begin in the bytes
    `[cut(byte_from), cut(byte_to))`. `cut(x)` is the largest position in the segment's offset
    index that is <= x, 0 where there is none, and the segment's size for x >= that size. So pieces
    with touching bytes share no batch and leave none out, and the planner need not read an index.

    Attributes:
        aborted: transactions whose records are excluded; empty for READ_UNCOMMITTED.
    """

    segment: RemoteLogSegmentMetadata
    first: int
    last: int
    byte_from: int
    byte_to: int
    aborted: AbortedRanges = AbortedRanges()  # noqa: RUF009 - a value


@dataclass(frozen=True, slots=True)
class TailPiece:
    """Rows that the brokers serve: offsets `[first, last]` of a partition.

    Attributes:
        leader: host and port of the leader when the plan was made; a hint, None where unknown.
    """

    partition: TopicIdPartition
    first: int
    last: int
    leader: tuple[str, int] | None = field(default=None, compare=False)


Piece = RemotePiece | TailPiece


@dataclass(frozen=True, slots=True)
class Split:
    """The work of one task: pieces of one partition, ascending by offset.

    Attributes:
        bytes_estimate: stored bytes to be read, about.
    """

    partition: TopicPartition
    pieces: tuple[Piece, ...]
    bytes_estimate: int


@dataclass(frozen=True, slots=True)
class SplitLimits:
    """How a plan is cut.

    Attributes:
        target_bytes: stored bytes a split should have; segments are joined or cut towards it.
        splits_min: make at least about so many splits in all (`minPartitions`, a hint).
        offsets_max: most offsets a split may span (`maxRecordsPerPartition`).
        timestamp_from_ms: rows with an earlier timestamp are not needed: segments that hold only
            such are skipped. Rows are not filtered.
    """

    target_bytes: int = 128 << 20
    splits_min: int | None = None
    offsets_max: int | None = None
    timestamp_from_ms: int | None = None


@dataclass(frozen=True, slots=True)
class PlanFacts:
    """The statistics of a plan; for log lines and progress, summed over partitions.

    Attributes:
        segments_known: live remote segments of the topics' partitions.
        segments_read, segments_skipped: of these.
        bytes_read, bytes_skipped: of remote segments, as far as the planner knows.
        tail_offsets: offsets to be read from brokers.
        lost_offsets: asked for and not there; only where fail_on_data_loss is False.
        notes: sentences on what was planned (a bucket that is read alone).
        warnings: sentences on what is wrong: offsets that are excluded, records that are damaged.
    """

    segments_known: int = 0
    segments_read: int = 0
    segments_skipped: int = 0
    bytes_read: int = 0
    bytes_skipped: int = 0
    tail_offsets: int = 0
    lost_offsets: int = 0
    notes: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Plan:
    """All splits, partition by partition, ascending by offset within each."""

    splits: tuple[Split, ...]
    facts: PlanFacts
