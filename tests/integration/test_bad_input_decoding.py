"""Bad input, decoding, through a running broker."""

import struct

import pytest

from kafka_protocol.wire.api_keys import ApiKey
from tests.support.brokers.bad_input import (  # noqa: F401 - fixtures
    assert_closed,
    client,
    health_topic,
    topic,
    well_afterwards,
)
from tests.support.brokers.process import BrokerProcess
from tests.support.brokers.raw_client import RawClient, header

METADATA_12_END = b"\x01\x00\x00"  # create, no operations, no tags


def produce_3(topics: bytes) -> bytes:
    return struct.pack(">hhi", -1, 1, 1000) + topics


@pytest.mark.parametrize(
    ("api_key", "version", "body"),
    [
        pytest.param(3, 1, struct.pack(">i", 2**31 - 1), id="huge-array"),
        pytest.param(3, 12, b"\xff\xff\xff\xff\x0f", id="huge-compact-array"),
        pytest.param(0, 3, produce_3(struct.pack(">i", 2**31 - 1)), id="huge-array-in-produce"),
        pytest.param(1, 4, struct.pack(">iiiibi", -1, 0, 0, 0, 0, 2**30), id="huge-array-in-fetch"),
        pytest.param(0, 3, produce_3(struct.pack(">i", -2)), id="null-array"),
        pytest.param(3, 12, b"\x80\x80\x80\x80\x80\x01", id="long-varint-count"),
        pytest.param(3, 12, b"\x01\x01\x00" + b"\xff" * 6, id="long-varint-tags"),
        pytest.param(0, 3, produce_3(struct.pack(">ih", 1, -1)), id="null-name"),
        pytest.param(3, 1, struct.pack(">ih", 1, 100) + b"short", id="cut-name"),
        pytest.param(3, 1, struct.pack(">ih", 1, 2) + b"\xff\xfe", id="not-utf-8"),
        pytest.param(
            3,
            12,
            b"\x02" + bytes(16) + b"\x81\x80\x04" + b"x" * 65_536 + b"\0" + METADATA_12_END,
            id="string-of-64-KiB",
        ),
        pytest.param(3, 1, b"", id="no-body"),
    ],
)
def test_bad_input_closes(
    broker: BrokerProcess,
    client: RawClient,  # noqa: F811
    api_key: int,
    version: int,
    body: bytes,
) -> None:
    client.send_frame(header(api_key, version) + body)
    assert_closed(broker, client, "malformed")


def test_bad_input_a_nullable_array_of_minus_two_is_null(client: RawClient) -> None:  # noqa: F811
    everything = client.ask(ApiKey.METADATA, 1, struct.pack(">i", -1))
    assert client.ask(ApiKey.METADATA, 1, struct.pack(">i", -2)).topics == everything.topics


def test_bad_input_the_same_tag_twice(client: RawClient) -> None:  # noqa: F811
    body = b"\x01\x01\x00\x02" + b"\x07\x01a" + b"\x07\x01b"
    assert client.ask(ApiKey.METADATA, 12, body).topics == []


def test_bad_input_very_many_unknown_tags(client: RawClient) -> None:  # noqa: F811
    tags = b"".join(b"\xff\xff\x7f\x00" for _ in range(100_000))
    body = b"\x01\x01\x00" + b"\xa0\x8d\x06" + tags
    assert client.ask(ApiKey.METADATA, 12, body).topics == []


def test_bad_input_unknown_topic_ids(client: RawClient) -> None:  # noqa: F811
    fields = {"topics": [{"topic_id": b"?" * 16, "name": None}]}
    assert client.ask(ApiKey.METADATA, 12, fields).topics[0].error_code == 100
    fields = {
        "max_wait_ms": 0,
        "min_bytes": 0,
        "topics": [{"topic_id": b"?" * 16, "partitions": [{"partition": 0, "fetch_offset": 0}]}],
    }
    answer = client.ask(ApiKey.FETCH, 13, fields)
    assert answer.responses[0].partitions[0].error_code == 100
    fields = {
        "acks": -1,
        "timeout_ms": 100,
        "topic_data": [{"topic_id": b"?" * 16, "partition_data": [{"index": 0, "records": b"x"}]}],
    }
    answer = client.ask(ApiKey.PRODUCE, 13, fields)
    assert answer.responses[0].partition_responses[0].error_code == 100


def test_bad_input_millions_of_elements(
    broker: BrokerProcess,
    client: RawClient,  # noqa: F811
) -> None:
    inner = struct.pack(">hi", 0, 0)  # a topic without a name and without partitions
    body = struct.pack(">iiiibi", -1, 0, 0, 0, 0, 5_000_000) + inner * 5_000_000
    client.send_frame(header(ApiKey.FETCH, 4) + body)
    said = "FetchRequest 4: 5000000 elements or more, at most 250000 are taken"
    assert_closed(broker, client, said)
