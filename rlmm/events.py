"""What one record of `__remote_log_metadata` says, as values.

How it is written is in `records.py`.
"""

from dataclasses import dataclass

from kafka_protocol.types import TopicIdPartition
from rlmm.api import LOWEST_FENCE, Fence, PartitionDeleteState, SegmentUpdate
from rsm_plugins.segment import RemoteLogSegmentMetadata


@dataclass(frozen=True, slots=True)
class Stamp:
    """What our writers add to Kafka's records, in tagged fields.

    Attributes:
        fence: who wrote; the lowest where a record has none (written by Kafka).
        metadata_offset: offset in `__cluster_metadata` at which the writer saw the topic, -1 if
            unknown.
        log_start: of a settled owner's log, as it is checkpointed; -1 if not carried.
        unclean_epoch: leader epoch of the last unclean election that the writer knew of, -1 if
            none.
    """

    fence: Fence = LOWEST_FENCE
    metadata_offset: int = -1
    log_start: int = -1
    unclean_epoch: int = -1


NO_STAMP = Stamp()


@dataclass(frozen=True, slots=True)
class SegmentAdded:
    """A full record (key 0): a copy begins, or a barrier repeats that it did.

    Attributes:
        is_barrier: it repeats a segment that was named before, and names none again.
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
        """Who wrote it."""
        return self.metadata.broker_id


@dataclass(frozen=True, slots=True)
class SegmentUpdated:
    """An update record (key 1): a known segment continues to a later state."""

    update: SegmentUpdate
    stamp: Stamp = NO_STAMP

    @property
    def topic_id_partition(self) -> TopicIdPartition:
        """The user partition it is about."""
        return self.update.id.topic_id_partition

    @property
    def broker_id(self) -> int:
        """Who wrote it."""
        return self.update.broker_id


@dataclass(frozen=True, slots=True)
class PartitionDeleted:
    """A partition delete record (key 2): one step of a deleted partition's end."""

    topic_id_partition: TopicIdPartition
    state: PartitionDeleteState
    event_timestamp_ms: int
    broker_id: int
    stamp: Stamp = NO_STAMP


MetadataEvent = SegmentAdded | SegmentUpdated | PartitionDeleted
