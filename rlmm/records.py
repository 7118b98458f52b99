"""The bytes of `__remote_log_metadata`: Kafka's records, with seven tagged fields of ours.

A value is `uvarint frame=1, uvarint api key, uvarint version` and a flexible struct. Kafka's
readers skip tagged fields that they do not know; what they write has none and reads as the lowest
fence. Tags are far above those that Kafka gives out one by one:

| tag | field | default (not written) |
|---|---|---|
| 10000 | leader epoch of the user partition under which was written (i32) | -1 |
| 10001 | tier incarnation (i64) | -1 |
| 10002 | offset in `__cluster_metadata` at which the writer saw the topic (i64) | -1 |
| 10003 | log start of a settled owner, as it is checkpointed (i64) | -1 |
| 10004 | leader epoch of the last unclean election that the owner knows of (i32) | -1 |
| 10005 | of an update to DELETE_SEGMENT_STARTED: the state that its writer saw (i8) | -1 |
| 10006 | of a full record: a barrier repeats a segment (bool) | false |

Records of Apache Kafka have none of the last four. They carry no log start offset and no election,
delete a segment in any seen state, and are no barriers.

A record of an unknown kind or version, without a value, or with impossible bytes is an error of its
own. A reader counts it and continues with the next record. Keys are ignored.

Source: KIP-405 (Message Format), Kafka 4.3 schemas.
"""

from collections.abc import Callable
from itertools import pairwise
from typing import Any, assert_never

from kafka_protocol.errors import MalformedMessageError, TidemarkError
from kafka_protocol.types import EpochEntry, TopicIdPartition
from kafka_protocol.wire.codec import Message, parse
from kafka_protocol.wire.primitives import read_uvarint
from rlmm import quick_records
from rlmm.api import Fence, PartitionDeleteState, SegmentUpdate
from rlmm.events import MetadataEvent, PartitionDeleted, SegmentAdded, SegmentUpdated, Stamp
from rsm_plugins.segment import RemoteLogSegmentId, RemoteLogSegmentMetadata, SegmentState

_FRAME_VERSION = 1
_NOT_SEEN = -1
_PARTITION = "TopicIdPartition:{Name:str, Id:uuid, Partition:i32}"
_STAMP = (
    "FenceLeaderEpoch:i32@10000=-1, FenceIncarnation:i64@10001=-1, MetadataOffset:i64@10002=-1,"
    " LogStartOffset:i64@10003=-1, UncleanLeaderEpoch:i32@10004=-1"
)

SEGMENT = parse(
    "0 RemoteLogSegmentMetadataRecord 0 f0 | "
    f"RemoteLogSegmentId:{{{_PARTITION}, Id:uuid}}, StartOffset:i64, EndOffset:i64,"
    " BrokerId:i32, MaxTimestampMs:i64, EventTimestampMs:i64,"
    " SegmentLeaderEpochs:[]{LeaderEpoch:i32, Offset:i64}, SegmentSizeInBytes:i32,"
    " CustomMetadata:bytes?=null, RemoteLogSegmentState:i8, TxnIndexEmpty:bool@0,"
    f" {_STAMP}, IsBarrier:bool@10006"
)
UPDATE = parse(
    "1 RemoteLogSegmentMetadataUpdateRecord 0 f0 | "
    f"RemoteLogSegmentId:{{{_PARTITION}, Id:uuid}}, BrokerId:i32, EventTimestampMs:i64,"
    f" CustomMetadata:bytes?=null, RemoteLogSegmentState:i8, {_STAMP}, SeenState:i8@10005=-1"
)
PARTITION_DELETE = parse(
    "2 RemotePartitionDeleteMetadataRecord 0 f0 | "
    f"{_PARTITION}, BrokerId:i32, EventTimestampMs:i64, RemotePartitionDeleteState:i8, {_STAMP}"
)


class UnreadableRecordError(TidemarkError):
    """A record that has no meaning for this reader, which skips and counts it."""

    reason = "unreadable"


class UnknownRecordError(UnreadableRecordError):
    """Its frame, kind or version is unknown; perhaps it is from a later Kafka version."""

    reason = "unknown"


class TombstoneRecordError(UnreadableRecordError):
    """It has no value: a later Kafka compacts the topic by key (KIP-1266).

    It changes nothing: a segment ends only by its DELETE_SEGMENT_FINISHED.
    """

    reason = "tombstone"


class DamagedRecordError(UnreadableRecordError):
    """Its kind is known and its bytes do not fit."""

    reason = "damaged"


def encode(event: MetadataEvent) -> bytes:
    """The bytes of a record's value."""
    match event:
        case SegmentAdded():
            return _encode_segment(event)
        case SegmentUpdated():
            return _encode_update(event)
        case PartitionDeleted():
            return _encode_partition_delete(event)
        case _:
            assert_never(event)


def decode(value: bytes | None) -> MetadataEvent:
    """Decode a record's value.

    Raises:
        TombstoneRecordError: There is none.
        UnknownRecordError: Another frame, kind or version.
        DamagedRecordError: Truncated, too long, or a field has an impossible value.
    """
    if value is None:
        raise TombstoneRecordError("record without a value")
    quick = quick_records.read(value)
    if quick is not None:
        return quick
    event = decode_in_full(value)
    if not isinstance(event, PartitionDeleted):
        quick_records.learn(value, event)
    return event


def decode_in_full(value: bytes) -> MetadataEvent:
    """Decode field by field, without the short cut; the same results and errors as `decode`."""
    try:
        frame, position = read_uvarint(value, 0)
        api_key, position = read_uvarint(value, position)
        version, position = read_uvarint(value, position)
    except (MalformedMessageError, IndexError) as e:
        raise DamagedRecordError(f"record of {len(value)} bytes has no frame") from e
    reader = _READERS.get(api_key)
    if frame != _FRAME_VERSION or reader is None or version != 0:
        raise UnknownRecordError(f"frame={frame} api_key={api_key} version={version}")
    message, build = reader
    try:
        body, end = message.decode(value, 0, position)
        if end != len(value):
            raise DamagedRecordError(f"{message.name} has {len(value) - end} bytes too many")
        return build(body)
    except (MalformedMessageError, ValueError) as e:
        raise DamagedRecordError(f"{message.name}: {e}") from e


def _frame(api_key: int, message: Message, body: object) -> bytes:
    return bytes((_FRAME_VERSION, api_key, 0)) + message.encode(body, 0)


def _encode_segment(event: SegmentAdded) -> bytes:
    meta = event.metadata
    record = SEGMENT.cls
    body = record(
        remote_log_segment_id=_encode_id(record, meta.id),
        start_offset=meta.start_offset,
        end_offset=meta.end_offset,
        broker_id=meta.broker_id,
        max_timestamp_ms=meta.max_timestamp_ms,
        event_timestamp_ms=meta.event_timestamp_ms,
        segment_leader_epochs=[
            record.SegmentLeaderEpochs(leader_epoch=entry.epoch, offset=entry.start_offset)
            for entry in meta.leader_epochs
        ],
        segment_size_in_bytes=meta.segment_size_bytes,
        custom_metadata=meta.custom_metadata,
        remote_log_segment_state=int(meta.state),
        txn_index_empty=meta.txn_index_empty,
        is_barrier=event.is_barrier,
        **_encode_stamp(event.stamp),
    )
    return _frame(0, SEGMENT, body)


def _encode_update(event: SegmentUpdated) -> bytes:
    update = event.update
    body = UPDATE.cls(
        remote_log_segment_id=_encode_id(UPDATE.cls, update.id),
        broker_id=update.broker_id,
        event_timestamp_ms=update.event_timestamp_ms,
        custom_metadata=update.custom_metadata,
        remote_log_segment_state=int(update.state),
        seen_state=_NOT_SEEN if update.seen_state is None else int(update.seen_state),
        **_encode_stamp(event.stamp),
    )
    return _frame(1, UPDATE, body)


def _encode_partition_delete(event: PartitionDeleted) -> bytes:
    body = PARTITION_DELETE.cls(
        topic_id_partition=_encode_partition(PARTITION_DELETE.cls, event.topic_id_partition),
        broker_id=event.broker_id,
        event_timestamp_ms=event.event_timestamp_ms,
        remote_partition_delete_state=int(event.state),
        **_encode_stamp(event.stamp),
    )
    return _frame(2, PARTITION_DELETE, body)


def _encode_stamp(stamp: Stamp) -> dict[str, int]:
    return {
        "fence_leader_epoch": stamp.fence.leader_epoch,
        "fence_incarnation": stamp.fence.incarnation,
        "metadata_offset": stamp.metadata_offset,
        "log_start_offset": stamp.log_start,
        "unclean_leader_epoch": stamp.unclean_epoch,
    }


def _encode_partition(owner: Any, partition: TopicIdPartition) -> Any:
    return owner.TopicIdPartition(
        name=partition.topic, id=partition.topic_id, partition=partition.partition
    )


def _encode_id(owner: Any, id: RemoteLogSegmentId) -> Any:
    struct = owner.RemoteLogSegmentId
    return struct(topic_id_partition=_encode_partition(struct, id.topic_id_partition), id=id.id)


def _decode_stamp(body: Any) -> Stamp:
    if body.log_start_offset < -1 or body.unclean_leader_epoch < -1:
        raise DamagedRecordError(
            f"log start {body.log_start_offset}, unclean election {body.unclean_leader_epoch}"
        )
    fence = Fence(body.fence_leader_epoch, body.fence_incarnation)
    return Stamp(fence, body.metadata_offset, body.log_start_offset, body.unclean_leader_epoch)


def _decode_partition(body: Any) -> TopicIdPartition:
    if body.partition < 0:
        raise DamagedRecordError(f"partition={body.partition}")
    return TopicIdPartition(bytes(body.id), body.partition, body.name)


def _decode_id(body: Any) -> RemoteLogSegmentId:
    return RemoteLogSegmentId(_decode_partition(body.topic_id_partition), bytes(body.id))


def _decode_custom(custom: Any) -> bytes | None:
    return None if custom is None else bytes(custom)


def _build_segment(body: Any) -> SegmentAdded:
    epochs = tuple(
        EpochEntry(entry.leader_epoch, entry.offset) for entry in body.segment_leader_epochs
    )
    metadata = RemoteLogSegmentMetadata(
        id=_decode_id(body.remote_log_segment_id),
        start_offset=body.start_offset,
        end_offset=body.end_offset,
        max_timestamp_ms=body.max_timestamp_ms,
        broker_id=body.broker_id,
        event_timestamp_ms=body.event_timestamp_ms,
        segment_size_bytes=body.segment_size_in_bytes,
        leader_epochs=epochs,
        state=SegmentState(body.remote_log_segment_state),
        custom_metadata=_decode_custom(body.custom_metadata),
        txn_index_empty=body.txn_index_empty,
    )
    first, last, size = metadata.start_offset, metadata.end_offset, metadata.segment_size_bytes
    if not 0 <= first <= last or size < 0:
        raise DamagedRecordError(f"offsets {first}..{last} size_bytes={size}")
    ordered = all(
        one.epoch < two.epoch and one.start_offset <= two.start_offset
        for one, two in pairwise(epochs)
    )
    if not epochs or not ordered:
        raise DamagedRecordError(f"leader epochs are not a chain: {epochs!r:.200}")
    return SegmentAdded(metadata, _decode_stamp(body), body.is_barrier)


def _build_update(body: Any) -> SegmentUpdated:
    update = SegmentUpdate(
        id=_decode_id(body.remote_log_segment_id),
        state=SegmentState(body.remote_log_segment_state),
        event_timestamp_ms=body.event_timestamp_ms,
        broker_id=body.broker_id,
        custom_metadata=_decode_custom(body.custom_metadata),
        seen_state=None if body.seen_state == _NOT_SEEN else SegmentState(body.seen_state),
    )
    return SegmentUpdated(update, _decode_stamp(body))


def _build_partition_delete(body: Any) -> PartitionDeleted:
    return PartitionDeleted(
        _decode_partition(body.topic_id_partition),
        PartitionDeleteState(body.remote_partition_delete_state),
        body.event_timestamp_ms,
        body.broker_id,
        _decode_stamp(body),
    )


_READERS: dict[int, tuple[Message, Callable[[Any], MetadataEvent]]] = {
    0: (SEGMENT, _build_segment),
    1: (UPDATE, _build_update),
    2: (PARTITION_DELETE, _build_partition_delete),
}
