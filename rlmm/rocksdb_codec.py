"""Values of the RocksDB store: facts and entries as bytes and back."""

import struct

import msgspec

from kafka_protocol.types import EpochEntry, TopicIdPartition
from rlmm.api import Fence, PartitionDeleteState
from rlmm.lifecycle import OffsetsByEpoch, PartitionFacts, SegmentEntry
from rlmm.store import PartitionKey
from rsm_plugins.segment import RemoteLogSegmentId, RemoteLogSegmentMetadata, SegmentState

_U64 = struct.Struct(">Q")


class _Facts(msgspec.Struct, array_like=True):
    topic: str
    leader_epoch: int
    incarnation: int
    metadata_offset: int
    delete_state: int | None
    marked_seen_ms: int | None
    live_count: int
    highest_epoch: int
    log_starts: OffsetsByEpoch
    given_ends: OffsetsByEpoch
    unclean_epoch: int


class _Entry(msgspec.Struct, array_like=True):
    topic: str
    end_offset: int
    max_timestamp_ms: int
    broker_id: int
    event_timestamp_ms: int
    segment_size_bytes: int
    leader_epochs: list[tuple[int, int]]
    state: int
    custom_metadata: bytes | None
    txn_index_empty: bool
    started_seen_ms: int
    finished_order: int | None
    named_under: tuple[int, int]
    finished_under: tuple[int, int] | None


class _EndOfEntry(msgspec.Struct, array_like=True):
    """The first fields of an `_Entry`; the decoder skips the rest."""

    topic: str
    end_offset: int


_encode = msgspec.msgpack.Encoder().encode
decode_facts = msgspec.msgpack.Decoder(_Facts).decode
_decode_entry = msgspec.msgpack.Decoder(_Entry).decode
decode_end = msgspec.msgpack.Decoder(_EndOfEntry).decode


def from_facts(facts: PartitionFacts) -> bytes:
    """The stored bytes of facts."""
    state = facts.delete_state
    return _encode(
        _Facts(
            facts.topic_id_partition.topic,
            facts.fence.leader_epoch,
            facts.fence.incarnation,
            facts.metadata_offset,
            None if state is None else int(state),
            facts.marked_seen_ms,
            facts.live_count,
            facts.highest_epoch,
            facts.log_starts,
            facts.given_ends,
            facts.unclean_epoch,
        )
    )


def to_facts(partition: PartitionKey, value: bytes) -> PartitionFacts:
    """Facts of a user partition, from the stored bytes."""
    found = decode_facts(value)
    state = found.delete_state
    return PartitionFacts(
        TopicIdPartition(partition[0], partition[1], found.topic),
        Fence(found.leader_epoch, found.incarnation),
        found.metadata_offset,
        None if state is None else PartitionDeleteState(state),
        found.marked_seen_ms,
        found.live_count,
        found.highest_epoch,
        found.log_starts,
        found.given_ends,
        found.unclean_epoch,
    )


def from_entry(entry: SegmentEntry) -> bytes:
    """The stored bytes of an entry; its start offset and id are in the key."""
    meta = entry.metadata
    return _encode(
        _Entry(
            meta.topic_id_partition.topic,
            meta.end_offset,
            meta.max_timestamp_ms,
            meta.broker_id,
            meta.event_timestamp_ms,
            meta.segment_size_bytes,
            [(epoch, start) for epoch, start in meta.leader_epochs],
            int(meta.state),
            meta.custom_metadata,
            meta.txn_index_empty,
            entry.started_seen_ms,
            entry.finished_order,
            _from_fence(entry.named_under),
            None if entry.finished_under is None else _from_fence(entry.finished_under),
        )
    )


def _from_fence(fence: Fence) -> tuple[int, int]:
    return fence.leader_epoch, fence.incarnation


def to_entry(partition: PartitionKey, start_and_id: bytes, value: bytes) -> SegmentEntry:
    """An entry, from the end of its key and the stored bytes."""
    found = _decode_entry(value)
    owner = TopicIdPartition(partition[0], partition[1], found.topic)
    metadata = RemoteLogSegmentMetadata(
        id=RemoteLogSegmentId(owner, start_and_id[8:]),
        start_offset=_U64.unpack_from(start_and_id)[0],
        end_offset=found.end_offset,
        max_timestamp_ms=found.max_timestamp_ms,
        broker_id=found.broker_id,
        event_timestamp_ms=found.event_timestamp_ms,
        segment_size_bytes=found.segment_size_bytes,
        leader_epochs=tuple(EpochEntry(epoch, start) for epoch, start in found.leader_epochs),
        state=SegmentState(found.state),
        custom_metadata=found.custom_metadata,
        txn_index_empty=found.txn_index_empty,
    )
    return SegmentEntry(
        metadata,
        found.started_seen_ms,
        found.finished_order,
        Fence(*found.named_under),
        None if found.finished_under is None else Fence(*found.finished_under),
    )
