"""Bad input, fetch and offsets."""

import struct

import pytest

from kafka_protocol.errors import ErrorCode
from kafka_protocol.wire import codec
from kafka_protocol.wire.api_keys import ApiKey
from tests.support.brokers.bad_input import (  # noqa: F401 - fixtures
    batch,
    client,
    health_topic,
    topic,
    well_afterwards,
)
from tests.support.brokers.process import BrokerProcess
from tests.support.brokers.raw_client import RawClient, build, fetch, fetch_fields, header, produce


@pytest.mark.parametrize("offset", [-1, -2, -(2**63), 3, 2**63 - 1])
def test_bad_input_offsets_that_are_not_there(client: RawClient, topic: str, offset: int) -> None:  # noqa: F811
    produce(client, topic, batch(b"0", b"1"))
    answer = fetch(client, topic, offset)
    assert (answer.error_code, len(answer.records)) == (ErrorCode.OFFSET_OUT_OF_RANGE, 0)


def test_bad_input_below_the_log_start(client: RawClient, topic: str) -> None:  # noqa: F811
    for value in (b"0", b"1", b"2"):
        produce(client, topic, batch(value))
    fields = {
        "topics": [{"name": topic, "partitions": [{"partition_index": 0, "offset": 2}]}],
        "timeout_ms": 5000,
    }
    deleted = client.ask(ApiKey.DELETE_RECORDS, 2, fields).topics[0].partitions[0]
    assert (deleted.error_code, deleted.low_watermark) == (0, 2)
    assert fetch(client, topic, 1).error_code == ErrorCode.OFFSET_OUT_OF_RANGE
    assert fetch(client, topic, 2).error_code == 0


class TestSizes:
    """A reader always moves on, and an answer is always bounded."""

    def test_bad_input_fetch_sizes_of_zero(self, client: RawClient, topic: str) -> None:  # noqa: F811
        sizes = [len(batch(b"x" * size)) for size in (100, 200)]
        for size in (100, 200):
            produce(client, topic, batch(b"x" * size))
        assert len(fetch(client, topic, 0, partition_max_bytes=0).records) == sizes[0]
        assert len(fetch(client, topic, 1, partition_max_bytes=0).records) == sizes[1]
        answer = client.ask(ApiKey.FETCH, 11, fetch_fields(topic) | {"max_bytes": 0})
        assert len(answer.responses[0].partitions[0].records) == sizes[0]

    def test_bad_input_negative_fetch_sizes(self, client: RawClient, topic: str) -> None:  # noqa: F811
        produce(client, topic, batch(b"x"))
        for size in (-1, -(2**31)):
            answer = fetch(client, topic, partition_max_bytes=size)
            assert (answer.error_code, len(answer.records)) == (-1, 0)
        assert fetch(client, topic).error_code == 0

    def test_bad_input_the_largest_fetch_sizes(self, client: RawClient, topic: str) -> None:  # noqa: F811
        for _ in range(62):
            assert produce(client, topic, batch(b"x" * 1_000_000), acks=1).error_code == 0
        limit = 2**31 - 1
        fields = fetch_fields(topic, partition_max_bytes=limit) | {"max_bytes": limit}
        answer = client.ask(ApiKey.FETCH, 11, fields)
        size = len(answer.responses[0].partitions[0].records)
        assert 50_000_000 < size <= 57_671_680


@pytest.mark.parametrize("session_id", [1, 4711, 2**31 - 1, -5])
def test_bad_input_an_invented_session(client: RawClient, topic: str, session_id: int) -> None:  # noqa: F811
    more = {"session_id": session_id, "session_epoch": 3}
    answer = client.ask(ApiKey.FETCH, 11, fetch_fields(topic) | more)
    assert (answer.error_code, answer.session_id, answer.responses) == (70, 0, [])


def test_bad_input_very_many_sessions(client: RawClient, topic: str) -> None:  # noqa: F811
    produce(client, topic, batch(b"x"))
    begin = {"session_id": 0, "session_epoch": 0}
    ids = []
    for _ in range(2_000):
        answer = client.ask(ApiKey.FETCH, 11, fetch_fields(topic) | begin)
        assert (answer.error_code, len(answer.responses)) == (0, 1)
        ids.append(answer.session_id)
    assert len({i for i in ids if i}) <= 1_000
    assert ids[-1] == 0
    for session_id in filter(None, ids):  # leave none behind for the next test
        client.ask(
            ApiKey.FETCH, 11, fetch_fields(topic) | {"session_id": session_id, "session_epoch": -1}
        )


def test_bad_input_epochs_and_strangers(client: RawClient, topic: str) -> None:  # noqa: F811
    produce(client, topic, batch(b"x"))
    epoch = client.ask(ApiKey.METADATA, 7, {"topics": [{"name": topic}]}).topics[0]
    current = epoch.partitions[0].leader_epoch
    assert fetch(client, topic, current_leader_epoch=current).error_code == 0
    newer = fetch(client, topic, current_leader_epoch=current + 1).error_code
    assert newer == ErrorCode.UNKNOWN_LEADER_EPOCH
    if current > 0:
        older = fetch(client, topic, current_leader_epoch=current - 1).error_code
        assert older == ErrorCode.FENCED_LEADER_EPOCH
    stranger = fetch_fields(topic, current_leader_epoch=current) | {"replica_id": 77}
    answer = client.ask(ApiKey.FETCH, 11, stranger).responses[0].partitions[0]
    assert answer.error_code == ErrorCode.UNKNOWN_LEADER_EPOCH
    stranger = fetch_fields(topic) | {"replica_id": 77}
    answer = client.ask(ApiKey.FETCH, 11, stranger).responses[0].partitions[0]
    assert answer.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_bad_input_very_many_partitions(
    broker: BrokerProcess,
    client: RawClient,  # noqa: F811
    topic: str,  # noqa: F811
) -> None:
    produce(client, topic, batch(b"x"))
    count = 100_000
    partitions = b"".join(struct.pack(">iqi", i, 0, 1 << 20) for i in range(count))
    name = struct.pack(">h", len(topic)) + topic.encode()
    body = struct.pack(">iiiibi", -1, 500, 1, 1 << 26, 0, 1) + name
    client.send_frame(header(ApiKey.FETCH, 4) + body + struct.pack(">i", count) + partitions)
    found = client.answer(ApiKey.FETCH, 4).responses[0].partitions
    assert len(found) == count
    assert (found[0].error_code, len(found[0].records)) == (0, len(batch(b"x")))
    assert found[1].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


@pytest.mark.parametrize("timestamp", [-7, -1000, -(2**63)])
def test_bad_input_timestamps_that_mean_nothing(
    client: RawClient,  # noqa: F811
    topic: str,  # noqa: F811
    timestamp: int,
) -> None:
    fields = {
        "replica_id": -1,
        "topics": [{"name": topic, "partitions": [{"partition_index": 0, "timestamp": timestamp}]}],
    }
    answer = client.ask(ApiKey.LIST_OFFSETS, 11, fields).topics[0].partitions[0]
    assert (answer.error_code, answer.offset) == (ErrorCode.UNSUPPORTED_VERSION, -1)


def test_a_fetch_whose_client_goes_away_is_forgotten(broker: BrokerProcess, topic: str) -> None:  # noqa: F811
    for _ in range(20):
        with RawClient(broker) as gone:
            fields = fetch_fields(topic) | {"max_wait_ms": 2**31 - 1}
            gone.send_frame(header(ApiKey.FETCH, 11) + _encoded(fields))


def _encoded(fields: dict[str, object]) -> bytes:

    message = codec.request(ApiKey.FETCH)
    return message.encode(build(message.cls, fields), 11)
