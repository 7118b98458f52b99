"""What the codec's classes, gather lists and schema lines promise their users."""

from copy import deepcopy
from typing import Any
from uuid import UUID

import pytest

from kafka_protocol.wire.api_keys import ApiKey, header_versions
from kafka_protocol.wire.codec import Gather, Message, message, parse, request, response
from kafka_protocol.wire.framing import part_size, read_request_header, response_parts
from kafka_protocol.wire.messages import FAMILIES
from kafka_protocol.wire.primitives import uuid_from_any_text, uuid_from_text, uuid_to_text
from kafka_protocol.wire.schema import snake_case
from tests.support.samples.protocol import whole

TOPIC_ID = bytes(range(1, 17))
ALL = [make(key) for key in ApiKey for make in (request, response)]
ALL += [message(name) for name in FAMILIES]


@pytest.mark.parametrize("schema", ALL, ids=lambda schema: schema.name)
def test_every_version_with_all_fields_set_survives_a_round_trip(schema: Message) -> None:
    for version in range(schema.min_version, schema.max_version + 1):
        value = whole(schema, version)
        encoded = schema.encode(value, version)
        assert schema.decode(encoded, version) == (value, len(encoded))


@pytest.mark.parametrize("schema", ALL, ids=lambda schema: schema.name)
def test_flexible_versions_are_those_with_flexible_headers(schema: Message) -> None:
    for version in range(schema.min_version, schema.max_version + 1):
        if schema.name.endswith("Request"):
            flexible = header_versions(schema.api_key or 0, version)[0] == 2
            assert schema.is_flexible(version) == flexible


def test_defaults_are_those_of_the_schema_and_lists_are_not_shared() -> None:
    fetch = request(ApiKey.FETCH).cls
    one, other = fetch(), fetch()
    assert (one.replica_id, one.max_bytes, one.session_epoch) == (-1, 0x7FFFFFFF, -1)
    assert one.cluster_id is None
    one.topics.append(fetch.Topics())
    assert other.topics == []
    assert one != other


def test_shared_defaults_refuse_changes_and_can_be_replaced() -> None:
    cls = response(ApiKey.FETCH).cls.Responses.Partitions
    partition = cls()
    with pytest.raises(AttributeError, match="shared default"):
        partition.current_leader.leader_id = 5
    partition.current_leader = cls.CurrentLeader(leader_id=5)
    assert partition.current_leader.leader_id == 5
    assert cls().current_leader == cls.CurrentLeader()


def test_values_can_be_copied_deeply() -> None:
    cls = response(ApiKey.FETCH).cls.Responses
    value = cls(topic="t", partitions=[cls.Partitions(partition_index=3)])
    copied = deepcopy(value)
    copied.partitions[0].partition_index = 4
    assert value.partitions[0].partition_index == 3
    assert copied.partitions[0].current_leader == value.partitions[0].current_leader


def test_a_tagged_struct_equal_to_its_default_is_not_written() -> None:
    answer = response(ApiKey.FETCH)
    partition = answer.cls.Responses.Partitions
    plain = answer.cls(responses=[answer.cls.Responses(partitions=[partition()])])
    same = answer.cls(
        responses=[
            answer.cls.Responses(
                partitions=[partition(current_leader=partition.CurrentLeader(leader_id=-1))]
            )
        ]
    )
    assert answer.encode(plain, 17) == answer.encode(same, 17)


def test_values_have_no_attributes_beyond_their_fields() -> None:
    with pytest.raises(AttributeError):
        request(ApiKey.FETCH).cls().no_such_field = 1
    with pytest.raises(TypeError):
        request(ApiKey.FETCH).cls(no_such_field=1)


def test_structs_print_their_fields() -> None:
    assert (
        repr(message("TopicRecord").cls(name="t"))
        == f"TopicRecord(name='t', topic_id={bytes(16)!r}, was_tiered=False)"
    )


def test_records_decode_without_a_copy_and_can_be_patched() -> None:
    produce = request(ApiKey.PRODUCE)
    topic = produce.cls.TopicData
    value = produce.cls(
        acks=-1,
        topic_data=[topic(name="t", partition_data=[topic.PartitionData(records=b"x" * 100)])],
    )
    frame = bytearray(produce.encode(value, 9))
    records = produce.decode(frame, 9)[0].topic_data[0].partition_data[0].records
    assert isinstance(records, memoryview)
    records[0] = ord("y")
    assert b"yxxx" in frame


class Region:
    """Stands for a region of a file."""

    def __init__(self, size_bytes: int) -> None:
        self.size_bytes = size_bytes


def fetched(records: Any) -> Any:
    topic = response(ApiKey.FETCH).cls.Responses
    return response(ApiKey.FETCH).cls(
        responses=[topic(topic="t", partitions=[topic.Partitions(records=records)])]
    )


def test_gathered_records_stay_where_they_are() -> None:
    answer = response(ApiKey.FETCH)
    region = Region(5000)
    parts = answer.encode_parts(fetched(Gather([region, b"tail"], 5004)), 12)
    assert parts[1:3] == [region, b"tail"]
    joined = b"".join(b"x" * 5000 if part is region else part for part in parts)
    assert joined == answer.encode(fetched(b"x" * 5000 + b"tail"), 12)
    sent, total_bytes = response_parts(9, 1, parts)
    assert total_bytes == sum(map(part_size, sent)) == len(joined) + 9
    with pytest.raises(TypeError):
        answer.encode(fetched(Gather([region], 5000)), 12)


@pytest.mark.parametrize("records", [None, b"", Gather([], 0)], ids=["null", "empty", "gather"])
@pytest.mark.parametrize("version", [4, 17])
def test_missing_records_are_null_or_empty(records: Any, version: int) -> None:
    answer = response(ApiKey.FETCH)
    value, _ = answer.decode(answer.encode(fetched(records), version), version)
    expected = None if records is None else b""
    assert value.responses[0].partitions[0].records == expected


def test_large_records_are_a_part_of_their_own() -> None:
    data = bytes(100_000)
    parts = response(ApiKey.FETCH).encode_parts(fetched(data), 12)
    assert any(part is data for part in parts)


def test_a_small_answer_is_one_buffer() -> None:
    parts = response(ApiKey.HEARTBEAT).encode_parts(response(ApiKey.HEARTBEAT).cls(), 4)
    sent, total_bytes = response_parts(7, 1, parts)
    assert len(sent) == 1
    assert total_bytes == part_size(sent[0])
    assert response_parts(7, 0, []) == ([b"\0\0\0\x04\0\0\0\x07"], 8)


def test_the_header_of_kafkas_own_making_is_read() -> None:
    frame = bytes.fromhex("00120004000000010003636c6900") + bytes.fromhex("027804312e3000")
    header = read_request_header(frame)
    assert header == (ApiKey.API_VERSIONS, 4, 1, "cli", 14)
    body, _ = request(ApiKey.API_VERSIONS).decode(frame, 4, header.body_offset)
    assert (body.client_software_name, body.client_software_version) == ("x", "1.0")


def test_messages_of_ones_own_can_be_parsed_and_grow_by_tags() -> None:
    old = parse("100 Extra 0 f0 | Name:str")
    new = parse("100 Extra 0 f0 | Name:str, Note:str?@0=null, Level:i32@5=3")
    written = new.encode(new.cls(name="n", note="more", level=9), 0)
    assert old.decode(written, 0) == (old.cls(name="n"), len(written))
    assert new.decode(old.encode(old.cls(name="n"), 0), 0)[0] == new.cls(name="n")


@pytest.mark.parametrize(
    "line",
    [
        "no bar at all",
        "1 Name 0 f0 | Field",
        "1 Name 0 f0 | Field:i33",
        "1 Name 0 f0 | Field:[]{A:i8",
        "1 Name 0 f0 | Field:i8 0+ nonsense",
        "1 Name | Field:i8",
    ],
)
def test_lines_that_break_the_grammar_are_refused(line: str) -> None:
    with pytest.raises(ValueError, match=r".+"):
        parse(line)


@pytest.mark.parametrize(
    ("name", "attribute"),
    [
        ("TopicData", "topic_data"),
        ("timeoutMs", "timeout_ms"),
        ("KRaftVersionFeature", "kraft_version_feature"),
        ("V3AndBelowTransactionalId", "v3_and_below_transactional_id"),
        ("Enable2Pc", "enable2_pc"),
    ],
)
def test_field_names_become_pythons_case(name: str, attribute: str) -> None:
    assert snake_case(name) == attribute


def test_uuids_have_a_text_form() -> None:
    assert uuid_to_text(TOPIC_ID) == "AQIDBAUGBwgJCgsMDQ4PEA"
    assert uuid_from_text("AQIDBAUGBwgJCgsMDQ4PEA") == TOPIC_ID


@pytest.mark.parametrize("text", ["", "short", "AQIDBAUGBwgJCgsMDQ4P!!", "A" * 23, "é" * 22])
def test_text_that_is_no_uuid_is_refused(text: str) -> None:
    for read in (uuid_from_text, uuid_from_any_text):
        with pytest.raises(ValueError, match="uuid"):
            read(text)


def test_a_person_may_give_a_uuid_as_logs_show_it() -> None:
    for text in (uuid_to_text(TOPIC_ID), TOPIC_ID.hex(), str(UUID(bytes=TOPIC_ID)).upper()):
        assert uuid_from_any_text(text) == TOPIC_ID
    with pytest.raises(ValueError, match="uuid"):
        uuid_from_any_text("x" * 32)
    with pytest.raises(ValueError, match="uuid"):
        uuid_from_text(TOPIC_ID.hex())
