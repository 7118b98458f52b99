"""The contents of one record of `__remote_log_metadata`, as values.

`records.py` has the encoding.
"""

from dataclasses import dataclass

from kafka_protocol.types import TopicIdPartition
from rlmm.api import LOWEST_FENCE, Fence, PartitionDeleteState, SegmentUpdate
from rsm_plugins.segment import RemoteLogSegmentMetadata


@dataclass(frozen=True, slots=True)
class Stamp:
    """Our additions to Kafka's records, in tagged fields.

    Attributes:
        fence: Of the writer; the lowest where a record has none (written by Kafka).
        metadata_offset: Offset in `__cluster_metadata` at which the writer saw the topic, -1 if
            unknown.
        log_start: Checkpointed log start offset of an owner that has settled; -1 if not carried.
        unclean_epoch: Leader epoch of the last unclean election known to the writer, -1 if none.
    """

    fence: Fence = LOWEST_FENCE
    metadata_offset: int = -1
    log_start: int = -1
    unclean_epoch: int = -1


NO_STAMP = Stamp()


@dataclass(frozen=True, slots=True)
class SegmentAdded:
    """A full record (key 0): a copy begins, or a barrier repeats its beginning.

    Attributes:
        is_barrier: Repeats a segment that was named before, and does not name it again.
    """

    metadata: RemoteLogSegmentMetadata
    stamp: Stamp = NO_STAMP
    is_barrier: bool = False

    @property
    def topic_id_partition(self) -> TopicIdPartition:
        """The user partition it is about."""
        return self.metadata.topic_id_partition

    @property
    def broker_id(self) -> int:
        """The broker that wrote it."""
        return self.metadata.broker_id


@dataclass(frozen=True, slots=True)
class SegmentUpdated:
    """An update record (key 1): a later state of a known segment."""

    update: SegmentUpdate
    stamp: Stamp = NO_STAMP

    @property
    def topic_id_partition(self) -> TopicIdPartition:
        """The user partition it is about."""
        return self.update.id.topic_id_partition

    @property
    def broker_id(self) -> int:
        """The broker that wrote it."""
        return self.update.broker_id


@dataclass(frozen=True, slots=True)
class PartitionDeleted:
    """A partition delete record (key 2): one step of the deletion of a partition's remote data."""

    topic_id_partition: TopicIdPartition
    state: PartitionDeleteState
    event_timestamp_ms: int
    broker_id: int
    stamp: Stamp = NO_STAMP


MetadataEvent = SegmentAdded | SegmentUpdated | PartitionDeleted
