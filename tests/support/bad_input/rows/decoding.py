"""Decoding of messages."""

import struct

from kafka_protocol.errors import ErrorCode
from kafka_protocol.wire import codec
from kafka_protocol.wire.api_keys import ApiKey
from kafka_protocol.wire.primitives import encode_uvarint
from tests.support.bad_input.case import MB, case, cases
from tests.support.bad_input.stage import Stage
from tests.support.brokers.raw_client import build, header

METADATA_12_END = b"\x01\x00\x00"  # create, no operations, no tags
UNKNOWN_ID = b"?" * 16


def produce_3(topics: bytes) -> bytes:
    return struct.pack(">hhi", -1, 1, 1000) + topics


def fetch_4(topics: bytes) -> bytes:
    return struct.pack(">iiiib", -1, 0, 0, 0, 0) + topics


@cases(
    {
        "N018 array": (3, 1, struct.pack(">i", 2**31 - 1)),
        "N018 compact array": (3, 12, b"\xff\xff\xff\xff\x07"),
        "N018 in produce": (0, 3, produce_3(struct.pack(">i", 2**31 - 1))),
        "N018 in fetch": (1, 4, fetch_4(struct.pack(">i", 2**30))),
        "N018 of numbers": (12, 0, struct.pack(">h", 32_767)),
        "N018 in join group": (11, 0, struct.pack(">hihhi", 0, 6000, 0, 0, 2**31 - 1)),
        "N018 bytes": (14, 0, struct.pack(">hihihi", 0, 0, 0, 1, 0, 2**31 - 1)),
        "N018 records": (0, 3, produce_3(struct.pack(">ihiii", 1, 0, 1, 0, 2**31 - 1))),
        "N019 not nullable": (0, 3, produce_3(struct.pack(">i", -2))),
        "N019 minus one": (0, 3, produce_3(struct.pack(">i", -1))),
        "N019 topics of version 0": (3, 0, struct.pack(">i", -2)),
        "N022 key": (10, 0, struct.pack(">h", -2)),
        "N020 count": (3, 12, b"\x80\x80\x80\x80\x80\x01"),
        "N020 tags": (3, 12, b"\x01\x01\x00" + b"\xff" * 6),
        "N020 tag number": (3, 12, b"\x01\x01\x00\x01" + b"\xff" * 6),
        "N020 size of a tag": (3, 12, b"\x01\x01\x00\x01\x07" + b"\xff" * 6),
        "N022 name": (0, 3, produce_3(struct.pack(">ih", 1, -1))),
        "N022 compact name": (19, 5, b"\x02\x00" + bytes(30)),
        "N022 bytes": (11, 0, struct.pack(">hihhihi", 0, 6000, 0, 0, 1, 0, -1)),
        "N022 least": (0, 3, produce_3(struct.pack(">ih", 1, -(2**15)))),
        "D01 cut name": (3, 1, struct.pack(">ih", 1, 100) + b"short"),
        "D01 no body": (3, 1, b""),
        "D01 tag over the end": (3, 12, b"\x01\x01\x00\x01\x07\x7f"),
        "D02 name is no text": (3, 1, struct.pack(">ih", 1, 2) + b"\xff\xfe"),
        "N073 name of 64 KiB": (
            3,
            12,
            b"\x02" + bytes(16) + b"\x81\x80\x04" + b"x" * 65_536 + b"\0" + METADATA_12_END,
        ),
        "N073 group of 64 KiB": (16, 3, b"\x01\0"),
        "N073 group id of 64 KiB": (12, 4, b"\x81\x80\x04" + b"x" * 65_536 + bytes(8)),
    }
)
def closes(stage: Stage, sent: tuple[int, int, bytes]) -> None:
    api_key, version, body = sent
    stage.client.send_frame(header(api_key, version) + body)
    stage.closed("malformed")


@cases({f"N019 nullable {count}": count for count in (-2, -1000, -(2**31))})
def a_nullable_array_of_minus_two_is_null(stage: Stage, count: int) -> None:
    everything = stage.client.ask(ApiKey.METADATA, 1, struct.pack(">i", -1))
    again = stage.client.ask(ApiKey.METADATA, 1, struct.pack(">i", count))
    assert again.topics == everything.topics


@cases({f"N019 compact {count}": count for count in (-2, -12, 1 - 2**31)})
def a_nullable_compact_array_below_zero_is_null(stage: Stage, count: int) -> None:
    everything = stage.client.ask(ApiKey.METADATA, 12, b"\0\x01\0\0")
    compact = encode_uvarint((count + 1) % 2**32)
    again = stage.client.ask(ApiKey.METADATA, 12, compact + b"\x01\0\0")
    assert again.topics == everything.topics


@case("N023")
def the_same_tag_twice(stage: Stage) -> None:
    body = b"\x01\x01\x00\x02" + b"\x07\x01a" + b"\x07\x01b"
    assert stage.client.ask(ApiKey.METADATA, 12, body).topics == []


def replica_state(replica_id: int) -> bytes:
    """Tag 1 of a Fetch: who asks."""
    return b"\x01\x0d" + struct.pack(">iqb", replica_id, -1, 0)


@case("N023")
def a_known_tag_twice_the_last_one_wins(stage: Stage) -> None:
    """A consumer is served, a broker without a replica is not."""
    named = {"topics": [{"topic_id": bytes(16), "name": stage.topic()}]}
    topic_id = stage.client.ask(ApiKey.METADATA, 12, named).topics[0].topic_id
    asked = {"topic_id": topic_id, "partitions": [{"partition": 0, "fetch_offset": 0}]}
    message = codec.request(ApiKey.FETCH)
    fields = {"max_wait_ms": 0, "min_bytes": 0, "topics": [asked]}
    body = message.encode(build(message.cls, fields), 15)
    assert body[-1:] == b"\0", "no tags"
    codes = []
    for first, last in ((77, -1), (-1, 77)):
        tags = b"\x02" + replica_state(first) + replica_state(last)
        answer = stage.client.ask(ApiKey.FETCH, 15, body[:-1] + tags)
        codes.append(answer.responses[0].partitions[0].error_code)
    assert codes == [0, ErrorCode.NOT_LEADER_OR_FOLLOWER]


@case("D01")
def the_size_of_a_known_tag_is_not_that_of_its_value(stage: Stage) -> None:
    """Tag 0 of Fetch 12 is the cluster id."""
    fields = struct.pack(">iiiibii", -1, 0, 0, 0, 0, 0, -1)
    body = fields + b"\x01\x01\x01" + b"\x02" + b"\x00\x02\x01" + b"\x00\x03\x02a"
    stage.client.send_frame(header(ApiKey.FETCH, 12) + body)
    stage.closed("malformed")


@case("N024")
def very_many_unknown_tags(stage: Stage) -> None:
    tags = b"".join(b"\xff\xff\x7f\x00" for _ in range(100_000))
    body = b"\x01\x01\x00" + b"\xa0\x8d\x06" + tags
    assert stage.client.ask(ApiKey.METADATA, 12, body).topics == []


@case("N025")
def unknown_topic_ids(stage: Stage) -> None:
    client = stage.client
    fields: dict[str, object] = {"topics": [{"topic_id": UNKNOWN_ID, "name": None}]}
    assert client.ask(ApiKey.METADATA, 12, fields).topics[0].error_code == 100
    asked = {"topic_id": UNKNOWN_ID, "partitions": [{"partition": 0, "fetch_offset": 0}]}
    fields = {"max_wait_ms": 0, "min_bytes": 0, "topics": [asked]}
    answer = client.ask(ApiKey.FETCH, 13, fields)
    assert answer.responses[0].partitions[0].error_code == 100
    sent = {"topic_id": UNKNOWN_ID, "partition_data": [{"index": 0, "records": b"x"}]}
    fields = {"acks": -1, "timeout_ms": 100, "topic_data": [sent]}
    answer = client.ask(ApiKey.PRODUCE, 13, fields)
    assert answer.responses[0].partition_responses[0].error_code == 100


@case("N026")
def name_and_id_of_a_topic_to_delete(stage: Stage) -> None:
    topic = stage.topic()
    both = {"name": topic, "topic_id": UNKNOWN_ID}
    neither = {"name": None, "topic_id": bytes(16)}
    unknown = {"name": None, "topic_id": UNKNOWN_ID}
    fields = {"topics": [both, neither, unknown], "timeout_ms": 5000}
    answer = stage.client.ask(ApiKey.DELETE_TOPICS, 6, fields)
    assert [one.error_code for one in answer.responses] == [42, 42, 100]
    known = stage.client.ask(ApiKey.METADATA, 1, {"topics": [{"name": topic}]})
    assert known.topics[0].error_code == 0


@case("N027", peak_bytes=80 * MB)
def millions_of_elements(stage: Stage) -> None:
    """The request itself is 30 MB."""
    inner = struct.pack(">hi", 0, 0)  # a topic without a name and without partitions
    body = fetch_4(struct.pack(">i", 5_000_000) + inner * 5_000_000)
    stage.client.send_frame(header(ApiKey.FETCH, 4) + body)
    stage.closed("FetchRequest 4: 5000000 elements or more, at most 250000 are taken")


@case("N027")
def nested_arrays_that_are_within_the_cap_one_by_one(stage: Stage) -> None:
    """A thousand lists of a thousand lists: three megabytes."""
    partitions = b"\x01" + b"\x01" + b"\x00"  # a topic without a name, no partitions, no tags
    group = b"\x01" + b"\xe9\x07" + partitions * 1_000 + b"\x00"
    stage.client.send_frame(header(ApiKey.OFFSET_FETCH, 8) + b"\xe9\x07" + group * 1_000)
    stage.closed("elements or more, at most 250000 are taken")


def empty_tags(count: int) -> bytes:
    return (
        header(ApiKey.METADATA, 12) + b"\x01\x01\x00" + encode_uvarint(count) + b"\x7f\x00" * count
    )


@case("N027", peak_bytes=60 * MB)
def millions_of_empty_tags(stage: Stage) -> None:
    """Twenty megabytes, several times: what the first one took is there for the next."""
    for one in [stage.client, *(stage.connect() for _ in range(3))]:
        one.send_frame(empty_tags(10_485_759))
        stage.closed("tagged fields", one)


@case("N027", peak_bytes=130 * MB)
def tens_of_millions_of_empty_tags(stage: Stage) -> None:
    """As many as a request has room for."""
    stage.client.send_frame(empty_tags(52_428_700))
    stage.closed("tagged fields")
