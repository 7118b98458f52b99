"""Bad input, produce. What is refused leaves no trace."""

import struct
import time
from typing import Any

import pytest
from crc32c import crc32c

from kafka_protocol.errors import ErrorCode
from kafka_protocol.records.records import build_batch
from kafka_protocol.wire.api_keys import ApiKey
from tests.support.brokers.bad_input import (  # noqa: F401 - fixtures
    assert_closed,
    batch,
    client,
    health_topic,
    topic,
    well_afterwards,
)
from tests.support.brokers.process import BrokerProcess
from tests.support.brokers.raw_client import (
    Closed,
    RawClient,
    create_topic,
    fetch,
    log_end,
    produce,
    produce_fields,
)

CRC, ATTRIBUTES, COUNT = 17, 21, 57


def patched(data: bytearray, layout: str, position: int, value: int, *, crc: bool = True) -> bytes:
    """A batch with one field changed and, unless told otherwise, a right checksum."""
    struct.pack_into(layout, data, position, value)
    if crc:
        struct.pack_into(">I", data, CRC, crc32c(memoryview(data)[ATTRIBUTES:]))
    return bytes(data)


def idempotent(*values: bytes, sequence: int, epoch: int = 0, producer_id: int = 7) -> bytes:
    return bytes(
        batch(*values, producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence)
    )


def damaged() -> bytes:
    data = batch(b"x" * 50)
    data[-1] ^= 1
    return bytes(data)


BATCHES: list[Any] = [
    pytest.param(damaged(), ErrorCode.CORRUPT_MESSAGE, id="crc"),
    pytest.param(patched(batch(b"x"), ">i", 8, 5000), ErrorCode.INVALID_RECORD, id="length-larger"),
    pytest.param(patched(batch(b"x"), ">i", 8, 49), ErrorCode.CORRUPT_MESSAGE, id="length-smaller"),
    pytest.param(patched(batch(b"x"), ">i", 8, 10), ErrorCode.CORRUPT_MESSAGE, id="length-tiny"),
    pytest.param(
        patched(batch(b"x"), ">i", 8, -1), ErrorCode.CORRUPT_MESSAGE, id="length-negative"
    ),
    pytest.param(patched(batch(b"x"), ">b", 16, 0), ErrorCode.INVALID_RECORD, id="magic-0"),
    pytest.param(patched(batch(b"x"), ">b", 16, 1), ErrorCode.INVALID_RECORD, id="magic-1"),
    pytest.param(patched(batch(b"x"), ">b", 16, 3), ErrorCode.CORRUPT_MESSAGE, id="magic-3"),
    pytest.param(
        patched(batch(b"x"), ">b", 16, -1), ErrorCode.CORRUPT_MESSAGE, id="magic-negative"
    ),
    pytest.param(bytes(batch(b"x") + batch(b"y")), ErrorCode.INVALID_RECORD, id="two-batches"),
    pytest.param(patched(batch(b"x"), ">i", COUNT, 0), ErrorCode.INVALID_RECORD, id="count-0"),
    pytest.param(
        patched(batch(b"x"), ">i", COUNT, -1), ErrorCode.INVALID_RECORD, id="count-negative"
    ),
    pytest.param(
        patched(batch(b"x"), ">i", COUNT, 9), ErrorCode.INVALID_RECORD, id="count-of-others"
    ),
    pytest.param(
        patched(batch(b"x"), ">h", ATTRIBUTES, 0x20), ErrorCode.INVALID_RECORD, id="control"
    ),
    pytest.param(bytes(batch(b"x" * 1_100_000)), ErrorCode.MESSAGE_TOO_LARGE, id="too-large"),
    pytest.param(
        patched(batch(b"x"), ">q", 0, 5, crc=False), ErrorCode.INVALID_RECORD, id="base-offset"
    ),
    pytest.param(patched(batch(b"x"), ">h", ATTRIBUTES, 5), 76, id="codec-5"),
    pytest.param(patched(batch(b"x"), ">h", ATTRIBUTES, 6), 76, id="codec-6"),
    pytest.param(patched(batch(b"x"), ">h", ATTRIBUTES, 7), 76, id="codec-7"),
    pytest.param(b"", ErrorCode.INVALID_RECORD, id="empty"),
    pytest.param(None, ErrorCode.INVALID_RECORD, id="null"),
    pytest.param(bytes(batch(b"x"))[:30], ErrorCode.INVALID_RECORD, id="cut-header"),
    pytest.param(bytes(batch(b"x"))[:-1], ErrorCode.INVALID_RECORD, id="cut"),
    pytest.param(b"\0" * 30, ErrorCode.CORRUPT_MESSAGE, id="nothing-but-zeros"),
    pytest.param(
        patched(batch(b"x"), ">i", 8, 28, crc=False)[:40],
        ErrorCode.CORRUPT_MESSAGE,
        id="length-of-all-there-is",
    ),
    pytest.param(
        patched(batch(b"x", producer_id=5, producer_epoch=0, base_sequence=0), ">i", 53, -1),
        ErrorCode.INVALID_RECORD,
        id="no-sequence",
    ),
]


@pytest.mark.parametrize(("records", "code"), BATCHES)
@pytest.mark.parametrize("version", [7, 9])
def test_bad_input(
    client: RawClient,  # noqa: F811
    topic: str,  # noqa: F811
    records: bytes | None,
    code: int,
    version: int,
) -> None:
    answer = produce(client, topic, records, version)
    assert (answer.error_code, answer.base_offset) == (code, -1)
    assert log_end(client, topic) == 0
    assert produce(client, topic, batch(b"good"), version).base_offset == 0


def test_bad_input_with_acks_0_closes(
    broker: BrokerProcess,
    client: RawClient,  # noqa: F811
    topic: str,  # noqa: F811
) -> None:
    with RawClient(broker) as other:
        message = produce_fields(topic, damaged(), acks=0)
        with pytest.raises(Closed):
            other.ask(ApiKey.PRODUCE, 9, message)
        assert_closed(broker, other, "CORRUPT_MESSAGE")
    assert log_end(client, topic) == 0


@pytest.mark.parametrize("acks", [2, -2, 32767])
def test_bad_input_n043(client: RawClient, topic: str, acks: int) -> None:  # noqa: F811
    assert produce(client, topic, batch(b"x"), acks=acks).error_code == 21
    assert log_end(client, topic) == 0


def test_bad_input_n038(client: RawClient, topic: str) -> None:  # noqa: F811
    data = batch(b"x", producer_id=3, producer_epoch=0, base_sequence=0, is_transactional=True)
    assert produce(client, topic, data).error_code == 53
    assert log_end(client, topic) == 0


def test_bad_input_n040(client: RawClient, topic: str) -> None:  # noqa: F811
    name = f"{topic}-compacted"
    create_topic(client, name, cleanup_policy="compact")
    now = int(time.time() * 1000)
    data = build_batch([(now, b"k", b"v", []), (now, None, b"v", []), (now, None, b"w", [])])
    answer = produce(client, name, data)
    assert answer.error_code == ErrorCode.INVALID_RECORD
    assert [e.batch_index for e in answer.record_errors] == [1, 2]
    assert log_end(client, name) == 0


@pytest.mark.parametrize("distance_ms", [-10_000_000, 10_000_000])
def test_bad_input_n041(client: RawClient, topic: str, distance_ms: int) -> None:  # noqa: F811
    name = f"{topic}-timed"
    limits = {"message_timestamp_before_max_ms": "5000", "message_timestamp_after_max_ms": "5000"}
    create_topic(client, name, **limits)
    then = int(time.time() * 1000) + distance_ms
    data = build_batch([(then, None, b"v", [])])
    assert produce(client, name, data).error_code == ErrorCode.INVALID_TIMESTAMP
    assert log_end(client, name) == 0


@pytest.mark.parametrize(
    ("name", "codes"),
    [
        pytest.param("__consumer_offsets", {17}, id="consumer-offsets"),
        pytest.param("__cluster_metadata", {3}, id="cluster-metadata"),
        pytest.param("__remote_log_metadata", {44}, id="remote-log-metadata"),
        pytest.param("../../etc/x", {3, 17}, id="path"),
    ],
)
def test_bad_input_topics_that_are_not_for_clients(
    client: RawClient,  # noqa: F811
    name: str,
    codes: set[int],
) -> None:
    assert produce(client, name, batch(b"x")).error_code in codes


class TestSequences:
    def test_bad_input_a_gap_in_the_sequence_numbers(self, client: RawClient, topic: str) -> None:  # noqa: F811
        assert produce(client, topic, idempotent(b"a", sequence=0)).error_code == 0
        assert produce(client, topic, idempotent(b"c", sequence=2)).error_code == 45
        assert produce(client, topic, idempotent(b"b", sequence=1)).base_offset == 1

    def test_bad_input_repeated_sequence_numbers(self, client: RawClient, topic: str) -> None:  # noqa: F811
        sent = [idempotent(b"%d" % i, b"more", sequence=2 * i) for i in range(6)]
        assert [produce(client, topic, s).base_offset for s in sent] == [0, 2, 4, 6, 8, 10]
        assert [produce(client, topic, s).base_offset for s in sent[1:]] == [2, 4, 6, 8, 10]
        assert log_end(client, topic) == 12

    def test_bad_input_an_old_epoch(self, client: RawClient, topic: str) -> None:  # noqa: F811
        assert produce(client, topic, idempotent(b"a", sequence=0, epoch=2)).error_code == 0
        assert produce(client, topic, idempotent(b"b", sequence=0, epoch=1)).error_code == 47
        assert log_end(client, topic) == 1

    def test_bad_input_first_sequences(self, client: RawClient, topic: str) -> None:  # noqa: F811
        assert produce(client, topic, idempotent(b"a", sequence=7)).error_code == 0
        assert produce(client, topic, idempotent(b"b", sequence=7, epoch=1)).error_code == 45
        assert log_end(client, topic) == 1


def test_what_was_refused_is_not_read_back(client: RawClient, topic: str) -> None:  # noqa: F811
    produce(client, topic, damaged())
    produce(client, topic, batch(b"good"))
    records = bytes(fetch(client, topic).records)
    assert records.count(b"good") == 1
    assert b"xxxx" not in records
