"""Value types of the plugin interface: the id, the metadata and the files of a remote segment.

Offsets: `start_offset` and `end_offset` are both inclusive (KIP-405). Topic ids and segment ids are
16 raw bytes. All values are immutable, and may be used from any thread.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum, IntEnum
from typing import BinaryIO

from kafka_protocol.types import EpochEntry, TopicIdPartition


class IndexType(Enum):
    """The kinds of index that are stored with each segment."""

    OFFSET = "offset"
    TIMESTAMP = "timestamp"
    TRANSACTION = "transaction"
    PRODUCER_SNAPSHOT = "producer_snapshot"
    LEADER_EPOCH = "leader_epoch"


class SegmentState(IntEnum):
    """States of a remote segment, as numbered in `__remote_log_metadata`.

    Source: KIP-405, State transitions.
    """

    COPY_SEGMENT_STARTED = 0
    COPY_SEGMENT_FINISHED = 1
    DELETE_SEGMENT_STARTED = 2
    DELETE_SEGMENT_FINISHED = 3


@dataclass(frozen=True, slots=True)
class RemoteLogSegmentId:
    """Names one attempt to copy one segment; a second attempt gets an id of its own.

    Attributes:
        topic_id_partition: The user partition.
        id: 16 random bytes, never used again.
    """

    topic_id_partition: TopicIdPartition
    id: bytes


@dataclass(frozen=True, slots=True)
class RemoteLogSegmentMetadata:
    """The metadata of a remote segment.

    Attributes:
        start_offset: First offset, inclusive.
        end_offset: Last offset, inclusive.
        max_timestamp_ms: Largest record timestamp in it (ms since 1970), -1 if none.
        broker_id: The broker that wrote the latest state.
        event_timestamp_ms: Time of that write, in ms since 1970.
        segment_size_bytes: Bytes of the `.log` object.
        leader_epochs: The leader epochs of its records, ascending; the first entry's start offset
            is not below `start_offset`.
        state: The latest state.
        custom_metadata: The bytes that the plugin returned from the copy, passed to every later
            call; None before that, and where it returned none.
        txn_index_empty: True if it is known that no transaction was aborted in it.
    """

    id: RemoteLogSegmentId
    start_offset: int
    end_offset: int
    max_timestamp_ms: int
    broker_id: int
    event_timestamp_ms: int
    segment_size_bytes: int
    leader_epochs: tuple[EpochEntry, ...]
    state: SegmentState = SegmentState.COPY_SEGMENT_STARTED
    custom_metadata: bytes | None = None
    txn_index_empty: bool = False

    @property
    def topic_id_partition(self) -> TopicIdPartition:
        """The user partition that the segment belongs to."""
        return self.id.topic_id_partition


@dataclass(frozen=True, slots=True)
class LogSegmentData:
    """The parts of one closed segment to be copied, each an open binary file.

    A plugin seeks to 0 and reads each file to its end; for a retry it may seek to 0 again. It does
    not close the files. The files belong to one copy, and are used by one thread at a time.

    Attributes:
        log: The segment, record batches byte for byte.
        offset_index, time_index, producer_snapshot: Always present.
        transaction_index: None when no transaction was aborted in the segment.
        leader_epoch_index: Text of the leader epoch checkpoint, from the log start offset to the
            segment's end (exclusive).
    """

    log: BinaryIO
    offset_index: BinaryIO
    time_index: BinaryIO
    transaction_index: BinaryIO | None
    producer_snapshot: BinaryIO
    leader_epoch_index: bytes

    def files(self) -> Iterable[BinaryIO]:
        """The open files of the segment, without `leader_epoch_index`, which is bytes."""
        parts = (
            self.log,
            self.offset_index,
            self.time_index,
            self.transaction_index,
            self.producer_snapshot,
        )
        return [part for part in parts if part is not None]
