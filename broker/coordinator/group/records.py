"""Records of `__consumer_offsets`: keys and values to bytes and back, as Apache Kafka writes them.

A load decodes millions of committed offsets, so their codec is written by hand; a test compares it
with the schemas of `kafka_protocol`. Groups use the schemas.

Written: OffsetCommitKey 1, OffsetCommitValue 4 (1 if the commit has a retention time),
GroupMetadataKey 2, GroupMetadataValue 3. Read: all versions of Kafka.

Source: Apache Kafka 4.3; KIP-211 (no expire timestamp from version 2 on), KIP-320 (leader epoch),
KIP-345 (instance ids), KIP-848 (topic ids).
"""

from collections.abc import Callable
from functools import cache, partial
from struct import Struct
from typing import Any, NamedTuple

from broker.coordinator.group.classic_group import ClassicGroup
from broker.coordinator.group.decision import GroupRecord
from kafka_protocol.errors import MalformedMessageError
from kafka_protocol.types import ZERO_UUID
from kafka_protocol.wire.codec import Message, message
from kafka_protocol.wire.primitives import encode_uvarint

GROUP_KEY_TYPE = 2
GROUP_VALUE_VERSION = 3
OFFSET_KEY_TYPES = (0, 1)

_SHORT = Struct(">h")
_INT = Struct(">i")
_LONG = Struct(">q")
_OFFSET_KEY_HEAD = b"\x00\x01"
_GROUP_KEY_HEAD = b"\x00\x02"
_VALUE_4_HEAD = Struct(">hqi")
_HEAD_PACK = _VALUE_4_HEAD.pack
_VERSION_4 = b"\x00\x04"
_TEXT_AT = 14
"""Position of the metadata's length in version 4: one byte, one more than the length."""

_PLAIN_SIZE_MIN = 24
_NO_TAGS = b"\x00"
_TOPIC_ID_TAG = b"\x01\x00\x10"

_new_record: Callable[[tuple[bytes, bytes]], GroupRecord] = partial(tuple.__new__, GroupRecord)
"""`GroupRecord(key, value)`, in a third of the time."""

NO_EXPIRY = -1
"""Value of `CommittedOffset.expire_timestamp_ms` if the broker's retention applies."""


class CommittedOffset(NamedTuple):
    """A consumer's committed offset for a partition.

    Attributes:
        offset: The next offset to read; any number, as in Kafka, even a negative one.
        leader_epoch: Of the last record read, -1 if the client does not have it.
        metadata: Text of the client.
        commit_timestamp_ms: Wall clock of the commit.
        expire_timestamp_ms: When it expires, from clients up to OffsetCommit 4; else NO_EXPIRY.
        topic_id: Of the topic at the commit, zero if unknown.
    """

    offset: int
    leader_epoch: int
    metadata: str
    commit_timestamp_ms: int
    expire_timestamp_ms: int = NO_EXPIRY
    topic_id: bytes = ZERO_UUID


def offset_key(group_id: str, topic: str, partition: int) -> bytes:
    """The key of a committed offset."""
    return _offset_key_prefix(group_id, topic) + _INT.pack(partition)


def _offset_key_prefix(group_id: str, topic: str) -> bytes:
    group, name = group_id.encode(), topic.encode()
    sizes = _SHORT.pack(len(group)), _SHORT.pack(len(name))
    return b"".join((_OFFSET_KEY_HEAD, sizes[0], group, sizes[1], name))


def offset_value(committed: CommittedOffset) -> bytes:
    """The value of a committed offset: version 4, or 1 if it has an expiry time."""
    text = committed.metadata.encode()
    if committed.expire_timestamp_ms != NO_EXPIRY:
        return b"".join(
            (
                _SHORT.pack(1),
                _LONG.pack(committed.offset),
                _SHORT.pack(len(text)),
                text,
                _LONG.pack(committed.commit_timestamp_ms),
                _LONG.pack(committed.expire_timestamp_ms),
            )
        )
    if committed.topic_id == ZERO_UUID:
        tags = _NO_TAGS
    else:
        tags = _TOPIC_ID_TAG + committed.topic_id
    return b"".join(
        (
            _VALUE_4_HEAD.pack(4, committed.offset, committed.leader_epoch),
            encode_uvarint(len(text) + 1),
            text,
            _LONG.pack(committed.commit_timestamp_ms),
            tags,
        )
    )


RecordOf = Callable[[int, int, int, str], GroupRecord]
"""Makes a record of a partition, an offset, a leader epoch and metadata."""


def commit_records(group_id: str, topic: str, same: CommittedOffset) -> RecordOf:
    """Returns a function that makes the records of one commit, group and topic.

    The parts that all records share are encoded once.

    Args:
        group_id: Id of the group.
        topic: Topic of the partitions.
        same: The shared fields: times and topic id.
    """
    prefix, pack_partition, pack_head = _offset_key_prefix(group_id, topic), _INT.pack, _HEAD_PACK
    is_plain = same.expire_timestamp_ms == NO_EXPIRY
    plain_end = offset_value(same._replace(metadata=""))[_TEXT_AT:] if is_plain else b""

    def record(partition: int, offset: int, leader_epoch: int, metadata: str) -> GroupRecord:
        if is_plain and not metadata:
            value = pack_head(4, offset, leader_epoch) + plain_end
        else:
            changed = same._replace(offset=offset, leader_epoch=leader_epoch, metadata=metadata)
            value = offset_value(changed)
        return _new_record((prefix + pack_partition(partition), value))

    return record


def is_plain_offset_value(value: bytes) -> bool:
    """True if these bytes are an OffsetCommitValue 4 with short ASCII metadata.

    This is the fast check of a load; `read_offset_value` validates values that it rejects.
    """
    size = len(value)
    if size < _PLAIN_SIZE_MIN or value[:2] != _VERSION_4:
        return False
    text_end = _TEXT_AT + value[_TEXT_AT]
    if size == text_end + 27:
        if value[text_end + 8 : text_end + 11] != _TOPIC_ID_TAG:
            return False
    elif size != text_end + 9 or value[-1]:
        return False
    return value[_TEXT_AT] == 1 or (
        0 < value[_TEXT_AT] < 0x80 and value[_TEXT_AT + 1 : text_end].isascii()
    )


def commit_timestamp_ms(value: bytes) -> int | None:
    """When an offset was committed; None if it has an expiry time."""
    if is_plain_offset_value(value):
        return int(_LONG.unpack_from(value, _TEXT_AT + value[_TEXT_AT])[0])
    read = read_offset_value(value)
    return read.commit_timestamp_ms if read.expire_timestamp_ms == NO_EXPIRY else None


def offset_of_value(value: bytes) -> int:
    """The committed offset of a decodable value: the first field in all versions."""
    return int(_LONG.unpack_from(value, 2)[0])


def read_offset_value(value: bytes) -> CommittedOffset:
    """Decode an OffsetCommitValue of any version.

    Raises:
        MalformedMessageError: It cannot be decoded.
    """
    if is_plain_offset_value(value):
        text_end = _TEXT_AT + value[_TEXT_AT]
        return CommittedOffset(
            _LONG.unpack_from(value, 2)[0],
            _INT.unpack_from(value, 10)[0],
            value[_TEXT_AT + 1 : text_end].decode(),
            _LONG.unpack_from(value, text_end)[0],
            NO_EXPIRY,
            value[text_end + 11 :] or ZERO_UUID,
        )
    read = _decode(_schema("OffsetCommitValue"), value)
    return CommittedOffset(
        read.offset,
        read.leader_epoch,
        read.metadata,
        read.commit_timestamp,
        read.expire_timestamp,
        bytes(read.topic_id),
    )


def key_type(key: bytes) -> int:
    """The type number at the beginning of a key.

    Raises:
        MalformedMessageError: The key is too short.
    """
    if len(key) < 2:
        raise MalformedMessageError("a key without a type")
    return int(_SHORT.unpack_from(key)[0])


def key_group(key: bytes) -> tuple[str, int]:
    """The group id, which is the first field of every key, and the position after it.

    Raises:
        MalformedMessageError: It is cut or not UTF-8.
    """
    if len(key) < 4:
        raise MalformedMessageError("a key without a group id")
    end = 4 + (key[2] << 8 | key[3])
    if end > len(key):
        raise MalformedMessageError("a group id that is cut")
    try:
        return key[4:end].decode(), end
    except UnicodeDecodeError as cause:
        raise MalformedMessageError("a group id that is not text") from cause


def group_key(group_id: str) -> bytes:
    """The key of a classic group."""
    name = group_id.encode()
    return _GROUP_KEY_HEAD + _SHORT.pack(len(name)) + name


def group_record(group: ClassicGroup, assignments: dict[str, bytes]) -> GroupRecord:
    """The record of a generation.

    Args:
        group: Its current state; O(members).
        assignments: By member id; a missing member has an empty assignment.
    """
    schema = _schema("GroupMetadataValue")
    name = group.protocol_name
    members = [
        schema.cls.Members(
            member_id=member.member_id,
            group_instance_id=member.instance_id,
            client_id=member.caller.client_id,
            client_host=member.caller.client_host,
            rebalance_timeout=member.timeouts.rebalance_ms,
            session_timeout=member.timeouts.session_ms,
            subscription=member.metadata(name or ""),
            assignment=assignments.get(member.member_id, b""),
        )
        for member in group.members.values()
    ]
    value = schema.cls(
        protocol_type=group.protocol_type or "",
        generation=group.generation,
        protocol=name,
        leader=group.leader_id,
        current_state_timestamp=-1 if group.since_ms is None else group.since_ms,
        members=members,
    )
    return GroupRecord(group_key(group.group_id), _encode(schema, value, GROUP_VALUE_VERSION))


def new_group_record(group: ClassicGroup) -> GroupRecord:
    """The record of a new group, before its first generation."""
    schema = _schema("GroupMetadataValue")
    since_ms = -1 if group.since_ms is None else group.since_ms
    value = schema.cls(protocol=None, leader=None, current_state_timestamp=since_ms)
    return GroupRecord(group_key(group.group_id), _encode(schema, value, GROUP_VALUE_VERSION))


def read_group_value(value: bytes) -> Any:
    """Decode a GroupMetadataValue of any version, as the struct of its schema.

    Raises:
        MalformedMessageError: It cannot be decoded.
    """
    return _decode(_schema("GroupMetadataValue"), value)


@cache
def _schema(name: str) -> Message:
    return message(name)


def _encode(schema: Message, value: Any, version: int) -> bytes:
    return _SHORT.pack(version) + schema.encode(value, version)


def _decode(schema: Message, value: bytes) -> Any:
    """Decode a value that begins with its version; trailing bytes are ignored, as in Kafka."""
    if len(value) < 2:
        raise MalformedMessageError(f"{schema.name}: {len(value)} bytes, without a version")
    decoded, _ = schema.decode(value, _SHORT.unpack_from(value)[0], 2)
    return decoded
