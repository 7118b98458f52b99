"""A short cut through the usual records of `__remote_log_metadata`.

Nearly all records of a partition begin with the same bytes (its name) and end with the same bytes
(the writer's stamp). Both are decoded once, by `rlmm.records`, and recognised by their bytes
afterwards; between them are fixed fields. An unusual or damaged record gives None here, and is
decoded or refused there. Partitions and stamps also become one object for many records.
"""

from struct import Struct
from struct import error as struct_error

from kafka_protocol.types import EpochEntry, TopicIdPartition
from rlmm.api import SegmentUpdate
from rlmm.events import SegmentAdded, SegmentUpdated, Stamp
from rsm_plugins.segment import RemoteLogSegmentId, RemoteLogSegmentMetadata, SegmentState

_ADDED, _UPDATED = 0, 1
_HEADS = {b"\x01\x00\x00": _ADDED, b"\x01\x01\x00": _UPDATED}
"""Frame version, api key and version."""

_FIELDS = (
    # Segment id, no tags, start, end, broker, max and event timestamp, count of leader epochs + 1,
    # epoch, its offset, no tags, size, length of the custom metadata + 1.
    Struct(">16sBqqiqqBiqBiB"),
    # Segment id, no tags, broker, event timestamp, length of the custom metadata + 1.
    Struct(">16sBiqB"),
)
_STATES = {int(state): state for state in SegmentState}
_KNOWN_MAX = 4_096

_partitions: dict[bytes, TopicIdPartition] = {}
_tails: tuple[dict[bytes, tuple[Stamp, bool, SegmentState | None]], ...] = ({}, {})


def read(value: bytes) -> SegmentAdded | SegmentUpdated | None:
    """The record, or None if it must be decoded in full."""
    try:
        kind = _HEADS[value[:3]]
        at = value[3] + 23  # a name, 16 bytes of id, 4 of partition; the length counts itself
        partition = _partitions[value[3 : at + 1]]
        layout = _FIELDS[kind]
        fields = layout.unpack_from(value, at + 1)
        at += 1 + layout.size
        custom_end = at + (fields[-1] or 1) - 1
        state = _STATES[value[custom_end]]
        stamp, txn_index_empty, seen_state = _tails[kind][value[custom_end + 1 :]]
    except (KeyError, IndexError, struct_error, TypeError):
        return None
    if fields[1] or fields[-1] > 127:
        return None
    custom = value[at:custom_end] if fields[-1] else None
    named = RemoteLogSegmentId(partition, fields[0])
    if kind == _UPDATED:
        _, _, broker_id, timestamp, _ = fields
        update = SegmentUpdate(named, state, timestamp, broker_id, custom, seen_state)
        return SegmentUpdated(update, stamp)
    _, _, first, last, broker_id, newest, timestamp, epochs, epoch, begin, tags, size, _ = fields
    if epochs != 2 or tags or not 0 <= first <= last or size < 0:
        return None
    chain = (EpochEntry(epoch, begin),)
    metadata = RemoteLogSegmentMetadata(
        named,
        first,
        last,
        newest,
        broker_id,
        timestamp,
        size,
        chain,
        state,
        custom,
        txn_index_empty,
    )
    return SegmentAdded(metadata, stamp)


def partition_of(value: bytes) -> TopicIdPartition | None:
    """The user partition of a record, None if its beginning was not seen before."""
    if len(value) < 4 or value[:3] not in _HEADS:
        return None
    return _partitions.get(value[3 : value[3] + 24])


def learn(value: bytes, event: SegmentAdded | SegmentUpdated) -> None:
    """Remember the beginning and the end of a record that was decoded in full."""
    at = value[3] + 23
    name = value[3 : at + 1]
    kind, txn_index_empty, seen_state = _UPDATED, False, None
    if isinstance(event, SegmentAdded):
        if event.is_barrier:
            return  # an owner writes only one
        kind, txn_index_empty = _ADDED, event.metadata.txn_index_empty
    else:
        seen_state = event.update.seen_state
    try:
        fields = _FIELDS[kind].unpack_from(value, at + 1)
    except struct_error:
        return  # shorter than a usual record
    is_usual = name[0] < 128 and not name[-1] and not fields[1] and fields[-1] < 128
    if not is_usual or (kind == _ADDED and (fields[7] != 2 or fields[10])):
        return
    tail = value[at + 1 + _FIELDS[kind].size + (fields[-1] or 1) :]
    if len(_partitions) > _KNOWN_MAX:
        _partitions.clear()
    if len(_tails[kind]) > _KNOWN_MAX:
        _tails[kind].clear()
    _partitions[name] = event.topic_id_partition
    _tails[kind][tail] = event.stamp, txn_index_empty, seen_state
