"""Records of `__consumer_offsets`: bytes as Kafka 4.3.1 wrote them, and every older version."""

import json
from collections import Counter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.coordinator.group.decision import Now
from broker.coordinator.group.decision_builder import GroupLimits
from broker.coordinator.group.lifecycle import GroupStatus
from broker.coordinator.group.records import (
    CommittedOffset,
    commit_timestamp_ms,
    group_record,
    is_plain_offset_value,
    key_group,
    offset_key,
    offset_of_value,
    offset_value,
    read_offset_value,
)
from broker.coordinator.group.replaying import Replay
from broker.coordinator.group.state import GroupState
from kafka_protocol.errors import MalformedMessageError
from kafka_protocol.records.batch import iter_batches
from kafka_protocol.records.control import ControlType, decode_control
from kafka_protocol.records.records import Record, iter_records
from kafka_protocol.types import ZERO_UUID
from kafka_protocol.wire.codec import message
from tests.support.coordinator.world import World
from tests.support.samples.protocol_golden import dumps, golden_file

PARTITIONS = [f"consumer-offsets/__consumer_offsets-{each}" for each in range(4)]


def golden_records(partition: str) -> list[tuple[int, bool, Record]]:
    """(producer id, is control, record) of a log that Kafka wrote."""
    data = golden_file(f"{partition}/00000000000000000000.log").read_bytes()
    return [
        (header.producer_id if header.is_transactional else -1, header.is_control, record)
        for position, header in iter_batches(data)
        for record in iter_records(data, position)
    ]


def loaded(partition: str) -> GroupState:
    """The state that a log of Kafka's makes."""
    state = GroupState(GroupLimits())
    for producer_id, is_control, record in golden_records(partition):
        if is_control:
            kind, _ = decode_control(record)
            state.replay_marker(producer_id, committed=kind is ControlType.COMMIT)
        else:
            state.replay(record.key, record.value, offset=record.offset, producer_id=producer_id)
    state.loaded(Now(0, 0))
    return state


@pytest.mark.parametrize(
    ("partition", "count"), list(zip(PARTITIONS, [37, 77, 71, 1], strict=True))
)
def test_offsets_that_kafka_wrote_are_written_the_same(partition: str, count: int) -> None:
    seen = 0
    for _, is_control, record in golden_records(partition):
        if is_control or record.key is None or record.key[1] > 1:
            continue
        group, end = key_group(record.key)
        key, _ = message("OffsetCommitKey").decode(record.key, 0, 2)
        assert (key.group, end) == (group, 4 + len(group.encode()))
        assert offset_key(key.group, key.topic, key.partition) == record.key
        if record.value is not None:
            assert offset_value(read_offset_value(record.value)) == record.value
            seen += is_plain_offset_value(record.value)
    assert seen == count


@pytest.mark.parametrize("partition", PARTITIONS)
def test_every_record_that_kafka_wrote_is_loaded(partition: str) -> None:
    state = loaded(partition)
    assert not state.counts.unknown_records
    assert state.counts.pending_offsets == 0


@pytest.mark.parametrize(
    ("partition", "stable", "empty"),
    list(zip(PARTITIONS, [6, 21, 9, 11], [8, 18, 11, 11], strict=True)),
)
def test_generations_that_kafka_wrote_are_written_the_same(
    partition: str, stable: int, empty: int
) -> None:
    """Each record of a classic group is loaded by itself, and written again."""
    seen: Counter[GroupStatus] = Counter()
    for _, is_control, record in golden_records(partition):
        is_group = record.key is not None and record.key[:2] == b"\0\2"
        if is_control or not is_group or record.value is None:
            continue
        replay = Replay()
        replay.record(record.key, record.value, offset=0, producer_id=-1)
        [group] = replay.groups.values()
        given = {each.member_id: each.assignment for each in group.members.values()}
        again = group_record(group, given)
        assert (again.key, again.value) == (record.key, record.value)
        seen[group.status] += 1
    assert seen == {GroupStatus.STABLE: stable, GroupStatus.EMPTY: empty}


def printed_offsets(partition: str) -> dict[str, dict[tuple[str, int], tuple[int, int]]]:
    """Offsets by group as they follow from what Kafka's dump tool printed of a log."""
    found: dict[str, dict[tuple[str, int], tuple[int, int]]] = {}
    pending: dict[str, list[tuple[Any, Any]]] = {}
    producer = ""
    for line in dumps()[f"{partition}/00000000000000000000.log"]:
        if line.startswith("baseOffset"):
            is_plain = "isTransactional: false" in line
            producer = "" if is_plain else line.partition("producerId: ")[2].split()[0]
        elif "endTxnMarker" in line:
            for key, value in pending.pop(producer, []):
                if "endTxnMarker: COMMIT" in line:
                    found.setdefault(key["group"], {})[key["topic"], key["partition"]] = value
        elif ' key: {"type":"1",' in line:
            key_text, _, text = line.partition(" key: ")[2].partition(" payload: ")
            key = json.loads(key_text)["data"]
            if text == "<DELETE>":
                found.get(key["group"], {}).pop((key["topic"], key["partition"]), None)
                continue
            value = (0, json.loads(text)["data"]["offset"])
            if producer:
                pending.setdefault(producer, []).append((key, value))
            else:
                found.setdefault(key["group"], {})[key["topic"], key["partition"]] = value
    return {group: offsets for group, offsets in found.items() if offsets}


@pytest.mark.parametrize(("partition", "count"), list(zip(PARTITIONS, [8, 24, 12, 1], strict=True)))
def test_offsets_are_those_that_follow_from_kafkas_own_dump(partition: str, count: int) -> None:
    world = World()
    world.state = loaded(partition)
    known = {group: offsets for group, offsets in world.all_offsets().items() if offsets}
    assert known == printed_offsets(partition)
    assert sum(map(len, known.values())) == count


# Versions.


OFFSETS = st.builds(
    CommittedOffset,
    st.integers(-(2**63), 2**63 - 1),
    st.integers(-1, 2**31 - 1),
    st.text(max_size=200).filter(lambda text: not any("\ud800" <= c <= "\udfff" for c in text)),
    st.integers(-(2**63), 2**63 - 1),
    st.one_of(st.just(-1), st.integers(0, 2**63 - 1)),
    st.one_of(st.just(ZERO_UUID), st.binary(min_size=16, max_size=16)),
)


def by_schema(committed: CommittedOffset, version: int) -> bytes:
    """The value as the general codec writes it."""
    schema = message("OffsetCommitValue")
    value = schema.cls(
        offset=committed.offset,
        leader_epoch=committed.leader_epoch,
        metadata=committed.metadata,
        commit_timestamp=committed.commit_timestamp_ms,
        expire_timestamp=committed.expire_timestamp_ms,
        topic_id=committed.topic_id,
    )
    return version.to_bytes(2, "big") + schema.encode(value, version)


@given(OFFSETS)
def test_offsets_are_written_as_the_schema_says(committed: CommittedOffset) -> None:
    version = 4 if committed.expire_timestamp_ms == -1 else 1
    assert offset_value(committed) == by_schema(committed, version)


@given(OFFSETS, st.integers(0, 4))
def test_offsets_of_every_version_are_read(committed: CommittedOffset, version: int) -> None:
    value = by_schema(committed, version)
    read = read_offset_value(value)
    assert offset_of_value(value) == read.offset
    assert read[0] == committed.offset
    assert (read.metadata, read.commit_timestamp_ms) == (
        committed.metadata,
        committed.commit_timestamp_ms,
    )
    assert read.leader_epoch == (committed.leader_epoch if version >= 3 else -1)
    assert read.topic_id == (committed.topic_id if version >= 4 else ZERO_UUID)
    expire_ms = committed.expire_timestamp_ms if version == 1 else -1
    assert read.expire_timestamp_ms == expire_ms
    base_ms = committed.commit_timestamp_ms if expire_ms == -1 else None
    assert commit_timestamp_ms(value) == base_ms


@given(OFFSETS, st.data())
def test_quick_reading_says_the_same_as_the_schema(committed: CommittedOffset, data: Any) -> None:
    value = bytearray(by_schema(committed, 4))
    for _ in range(data.draw(st.integers(0, 2))):
        value[data.draw(st.integers(0, len(value) - 1))] = data.draw(st.integers(0, 255))
    del value[data.draw(st.integers(max(0, len(value) - 20), len(value))) :]
    if not is_plain_offset_value(bytes(value)):
        return
    read = read_offset_value(bytes(value))
    full, end = message("OffsetCommitValue").decode(bytes(value), 4, 2)
    assert end == len(value)
    assert read == CommittedOffset(
        full.offset, full.leader_epoch, full.metadata, full.commit_timestamp, -1, full.topic_id
    )


@pytest.mark.parametrize("value", [b"", b"\0", b"\0\x05" + bytes(40), b"\0\4", b"\xff\xff\0"])
def test_bytes_that_are_no_offset_are_refused(value: bytes) -> None:
    assert not is_plain_offset_value(value)
    with pytest.raises(MalformedMessageError):
        read_offset_value(value)
