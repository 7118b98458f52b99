"""Control records: markers of transactions, leaders and snapshots inside a log.

A control record's key is `int16 version 0, int16 type`; its value a struct of
`wire/messages/control_records.py`. ABORT and COMMIT have a schema version in front of theirs, the
others begin with their own field Version.
"""

from collections.abc import Iterable, Sequence
from enum import IntEnum
from struct import Struct
from typing import Any, NamedTuple

from kafka_protocol.errors import InvalidRecordError
from kafka_protocol.records.records import Record, build_batch
from kafka_protocol.wire.codec import message

_KEY = Struct(">hh")
_MARKER_VERSION = b"\0\0"


class ControlType(IntEnum):
    """Second number of a control record's key."""

    ABORT = 0
    COMMIT = 1
    LEADER_CHANGE = 2
    SNAPSHOT_HEADER = 3
    SNAPSHOT_FOOTER = 4
    KRAFT_VERSION = 5
    KRAFT_VOTERS = 6


_SCHEMAS = {
    ControlType.ABORT: "EndTxnMarker",
    ControlType.COMMIT: "EndTxnMarker",
    ControlType.LEADER_CHANGE: "LeaderChangeMessage",
    ControlType.SNAPSHOT_HEADER: "SnapshotHeaderRecord",
    ControlType.SNAPSHOT_FOOTER: "SnapshotFooterRecord",
    ControlType.KRAFT_VERSION: "KRaftVersionRecord",
    ControlType.KRAFT_VOTERS: "VotersRecord",
}


class ControlEntry(NamedTuple):
    """One control record to be written: its type and its value's bytes."""

    type: ControlType
    value: bytes


def control_entry(kind: ControlType, value: Any) -> ControlEntry:
    """Encode a control record's value.

    Args:
        kind: Its type.
        value: Instance of the struct that belongs to the type.
    """
    encoded = message(_SCHEMAS[kind]).encode(value, 0)
    if kind <= ControlType.COMMIT:
        encoded = _MARKER_VERSION + encoded
    return ControlEntry(kind, encoded)


def leader_change(
    leader_id: int, voters: Sequence[int], granting_voters: Sequence[int]
) -> ControlEntry:
    """Make a new leader's first record, with its id, all voters, and the voters that granted."""
    cls = message("LeaderChangeMessage").cls
    return control_entry(
        ControlType.LEADER_CHANGE,
        cls(
            leader_id=leader_id,
            voters=[cls.Voters(voter_id=voter) for voter in voters],
            granting_voters=[cls.GrantingVoters(voter_id=voter) for voter in granting_voters],
        ),
    )


def snapshot_header(
    last_contained_log_timestamp_ms: int, *, cluster_id: str | None = None
) -> ControlEntry:
    """First record of a snapshot.

    DIFFERS: a tagged field of ours, which Kafka skips, says whose snapshot it is.
    """
    cls = message("SnapshotHeaderRecord").cls
    return control_entry(
        ControlType.SNAPSHOT_HEADER,
        cls(last_contained_log_timestamp=last_contained_log_timestamp_ms, cluster_id=cluster_id),
    )


def snapshot_footer() -> ControlEntry:
    """Last record of a snapshot: without it the snapshot is cut."""
    return control_entry(ControlType.SNAPSHOT_FOOTER, message("SnapshotFooterRecord").cls())


def kraft_version(level: int) -> ControlEntry:
    """The finalised kraft.version: 1 says that voters may change."""
    cls = message("KRaftVersionRecord").cls
    return control_entry(ControlType.KRAFT_VERSION, cls(kraft_version=level))


def kraft_voters(voters: Sequence[Any]) -> ControlEntry:
    """The voter set; `voters` are `message("VotersRecord").cls.Voters`."""
    cls = message("VotersRecord").cls
    return control_entry(ControlType.KRAFT_VOTERS, cls(voters=list(voters)))


def control_batch(
    entries: Iterable[ControlEntry],
    *,
    base_offset: int,
    leader_epoch: int,
    timestamp_ms: int,
    producer_id: int = -1,
    producer_epoch: int = -1,
    is_transactional: bool = False,
) -> bytearray:
    """Build a control batch; producer fields are set only in transaction markers."""
    return build_batch(
        [(timestamp_ms, _KEY.pack(0, entry.type), entry.value, ()) for entry in entries],
        base_offset=base_offset,
        leader_epoch=leader_epoch,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        is_transactional=is_transactional,
        is_control=True,
    )


def end_transaction_batch(
    kind: ControlType,
    *,
    base_offset: int,
    leader_epoch: int,
    timestamp_ms: int,
    producer_id: int,
    producer_epoch: int,
    coordinator_epoch: int,
) -> bytearray:
    """The marker (COMMIT or ABORT) that ends a transaction in a partition."""
    marker = message("EndTxnMarker").cls(coordinator_epoch=coordinator_epoch)
    return control_batch(
        [control_entry(kind, marker)],
        base_offset=base_offset,
        leader_epoch=leader_epoch,
        timestamp_ms=timestamp_ms,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        is_transactional=True,
    )


def control_type(record: Record) -> int:
    """The type number of a control record; numbers we do not know are to be skipped.

    Raises:
        InvalidRecordError: The key is no control record's.
    """
    if record.key is None or len(record.key) < _KEY.size:
        raise InvalidRecordError("control record without a key of version and type")
    return int(_KEY.unpack_from(record.key)[1])


def decode_control(record: Record) -> tuple[ControlType, Any]:
    """Decode a control record.

    Returns:
        Its type and the struct of its value.

    Raises:
        InvalidRecordError: An unknown type, or no key or value.
        MalformedMessageError: The value is no struct of that type.
    """
    number = control_type(record)
    if number not in _SCHEMAS or record.value is None:
        raise InvalidRecordError(f"control record of type {number}")
    kind = ControlType(number)
    start = len(_MARKER_VERSION) if kind <= ControlType.COMMIT else 0
    value, _ = message(_SCHEMAS[kind]).decode(record.value, 0, start)
    return kind, value
