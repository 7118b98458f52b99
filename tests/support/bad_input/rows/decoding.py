"""Decoding of messages."""

import struct

from kafka_protocol.wire.api_keys import ApiKey
from kafka_protocol.wire.primitives import encode_uvarint
from tests.support.bad_input.case import MB, case, cases
from tests.support.bad_input.stage import Stage
from tests.support.brokers.raw_client import header

METADATA_12_END = b"\x01\x00\x00"  # create, no operations, no tags
UNKNOWN_ID = b"?" * 16


def produce_3(topics: bytes) -> bytes:
    return struct.pack(">hhi", -1, 1, 1000) + topics


def fetch_4(topics: bytes) -> bytes:
    return struct.pack(">iiiib", -1, 0, 0, 0, 0) + topics


@cases(
    {
        "N018 array": (3, 1, struct.pack(">i", 2**31 - 1)),
        "N018 in produce": (0, 3, produce_3(struct.pack(">i", 2**31 - 1))),
        "N018 records": (0, 3, produce_3(struct.pack(">ihiii", 1, 0, 1, 0, 2**31 - 1))),
        "D01 cut name": (3, 1, struct.pack(">ih", 1, 100) + b"short"),
        "D02 name is no text": (3, 1, struct.pack(">ih", 1, 2) + b"\xff\xfe"),
        "N073 group id of 64 KiB": (12, 4, b"\x81\x80\x04" + b"x" * 65_536 + bytes(8)),
    }
)
def closes(stage: Stage, sent: tuple[int, int, bytes]) -> None:
    api_key, version, body = sent
    stage.client.send_frame(header(api_key, version) + body)
    stage.closed("malformed")


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


def empty_tags(count: int) -> bytes:
    return (
        header(ApiKey.METADATA, 12) + b"\x01\x01\x00" + encode_uvarint(count) + b"\x7f\x00" * count
    )


@case("N027", peak_bytes=130 * MB)
def tens_of_millions_of_empty_tags(stage: Stage) -> None:
    """As many as a request has room for."""
    stage.client.send_frame(empty_tags(52_428_700))
    stage.closed("tagged fields")
