"""Value types of the plugin interface: what a remote segment is called, holds and consists of.

Offsets: `start_offset` and `end_offset` are both inclusive (KIP-405). Topic ids and segment ids
are 16 raw bytes.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum, IntEnum
from typing import BinaryIO

from kafka_protocol.types import EpochEntry, TopicIdPartition


class IndexType(Enum):
    """Kinds of index a reader may ask a store for."""

    OFFSET = "offset"
    TIMESTAMP = "timestamp"
    TRANSACTION = "transaction"
    PRODUCER_SNAPSHOT = "producer_snapshot"
    LEADER_EPOCH = "leader_epoch"


class SegmentState(IntEnum):
    """Life of a remote segment, as numbered in `__remote_log_metadata`.

    Source: KIP-405, State transitions.
    """

    COPY_SEGMENT_STARTED = 0
    COPY_SEGMENT_FINISHED = 1
    DELETE_SEGMENT_STARTED = 2
    DELETE_SEGMENT_FINISHED = 3


@dataclass(frozen=True, slots=True)
class RemoteLogSegmentId:
    """Names one attempt to copy one segment; never reused, also not for a second attempt."""

    topic_id_partition: TopicIdPartition
    id: bytes


@dataclass(frozen=True, slots=True)
class RemoteLogSegmentMetadata:
    """All that is known of a remote segment.

    Attributes:
        start_offset: first offset, inclusive.
        end_offset: last offset, inclusive.
        max_timestamp_ms: largest record timestamp in it, -1 if none.
        broker_id: who wrote the latest state.
        event_timestamp_ms: when that was.
        segment_size_bytes: bytes of the `.log` object.
        leader_epochs: epochs that wrote it; the first entry's start is clipped to `start_offset`.
        state: where in its life it is.
        custom_metadata: what the plugin returned from the copy; given back on every later call.
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
        """The user partition it belongs to."""
        return self.id.topic_id_partition


@dataclass(frozen=True, slots=True)
class LogSegmentData:
    """The parts of one closed segment, each a binary file open at position 0, to be copied.

    A plugin reads them to their end, and may seek back to 0 and read again (a retry); it does not
    close them.

    Attributes:
        log: the segment, record batches byte for byte.
        offset_index, time_index, producer_snapshot: always there.
        transaction_index: None when no transaction was aborted in the segment.
        leader_epoch_index: text of the epoch checkpoint, from the log start to the segment's end.
    """

    log: BinaryIO
    offset_index: BinaryIO
    time_index: BinaryIO
    transaction_index: BinaryIO | None
    producer_snapshot: BinaryIO
    leader_epoch_index: bytes

    def files(self) -> Iterable[BinaryIO]:
        """Every open file of the segment."""
        parts = (
            self.log,
            self.offset_index,
            self.time_index,
            self.transaction_index,
            self.producer_snapshot,
        )
        return [part for part in parts if part is not None]
