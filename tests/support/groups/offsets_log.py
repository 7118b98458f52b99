"""What a broker wrote about a group: records of `__consumer_offsets`, read as any client may."""

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from kafka_protocol.records.batch import iter_batches
from kafka_protocol.records.records import iter_records
from kafka_protocol.wire import codec
from kafka_protocol.wire.api_keys import ApiKey
from tests.support.brokers.raw_client import RawClient, fetch_fields
from tests.support.groups.world import World

TOPIC = "__consumer_offsets"
Partition = tuple[str, int]


@dataclass(frozen=True)
class Commit:
    """One committed offset, at its place in the log."""

    partition: Partition
    offset: int


@dataclass(frozen=True)
class Generation:
    """One generation as it was stored: which member has which partitions."""

    number: int
    assigned: dict[str, frozenset[Partition]]


def history(world: World, group: str, partitions: int) -> list[Commit | Generation]:
    """Commits and generations of a group, in the order in which they were written.

    A group lies in one partition of the topic, so the order is that of its log.
    """
    found: list[Commit | Generation] = []
    with world.connect() as client:
        for index in range(partitions):
            for key, value in _records(client, index):
                entry = _entry(group, key, value)
                if entry is not None:
                    found.append(entry)
    return found


def _records(client: RawClient, index: int) -> Iterator[tuple[bytes, bytes | None]]:
    offset = 0
    while True:
        asked = fetch_fields(TOPIC, offset)
        asked["topics"][0]["partitions"][0]["partition"] = index
        answer = client.ask(ApiKey.FETCH, 11, asked).responses[0].partitions[0]
        data = bytes(answer.records or b"")
        assert answer.error_code == 0, answer
        if not data:
            return
        for position, head in iter_batches(data):
            for record in iter_records(data, position):
                if record.key is not None:
                    yield record.key, record.value
            offset = head.last_offset + 1


def _entry(group: str, key: bytes, value: bytes | None) -> Commit | Generation | None:
    (kind,) = struct.unpack_from(">h", key)
    if value is None:
        return None
    if kind == 1:
        named, _ = codec.message("OffsetCommitKey").decode(key, 0, 2)
        if named.group != group:
            return None
        said = _value("OffsetCommitValue", value)
        return Commit((named.topic, named.partition), said.offset)
    if kind == 2:
        named, _ = codec.message("GroupMetadataKey").decode(key, 0, 2)
        if named.group != group:
            return None
        said = _value("GroupMetadataValue", value)
        members = {one.member_id: _partitions(one.assignment) for one in said.members}
        return Generation(said.generation, members)
    return None


def _value(name: str, value: bytes) -> Any:
    (version,) = struct.unpack_from(">h", value)
    return codec.message(name).decode(value, version, 2)[0]


def _partitions(assignment: bytes) -> frozenset[Partition]:
    if not assignment:
        return frozenset()
    (version,) = struct.unpack_from(">h", assignment)
    said, _ = codec.message("ConsumerProtocolAssignment").decode(assignment, min(version, 3), 2)
    return frozenset(
        (one.topic, index) for one in said.assigned_partitions for index in one.partitions
    )
