"""Produce. What is refused leaves no trace."""

import struct
import time
from dataclasses import dataclass, field
from typing import Any

import pytest
from crc32c import crc32c

from kafka_protocol.errors import ErrorCode
from kafka_protocol.records.records import build_batch
from kafka_protocol.wire.api_keys import ApiKey
from tests.support.bad_input.case import case, cases
from tests.support.bad_input.stage import Stage
from tests.support.brokers.bad_input import batch, with_records
from tests.support.brokers.raw_client import Closed, fetch, log_end, produce, produce_fields

CRC, ATTRIBUTES, COUNT = 17, 21, 57
CORRUPT, INVALID = ErrorCode.CORRUPT_MESSAGE, ErrorCode.INVALID_RECORD


def patched(data: bytearray, layout: str, position: int, value: int, *, crc: bool = True) -> bytes:
    """A batch with one field changed and, unless asked otherwise, a right checksum."""
    struct.pack_into(layout, data, position, value)
    return sealed(data) if crc else bytes(data)


def sealed(data: bytearray) -> bytes:
    """The batch with a right checksum."""
    struct.pack_into(">I", data, CRC, crc32c(memoryview(data)[ATTRIBUTES:]))
    return bytes(data)


def of_records(records: bytes, count: int = 1) -> bytes:
    """A batch whose records are these bytes."""
    return with_records(0, records, count)


def damaged() -> bytes:
    data = batch(b"x" * 50)
    data[-1] ^= 1
    return bytes(data)


def record(body: bytes) -> bytes:
    """A record with its length before it."""
    assert len(body) < 64
    return bytes([len(body) * 2]) + body


KEYED = b"\0\0\0\x02k"
"""Of a record: attributes, timestamp and offset deltas of 0, a key."""


@dataclass(frozen=True, slots=True)
class Refused:
    """Records, the error they get, and the topic's settings that matter."""

    records: bytes | None
    code: int
    configs: dict[str, str] = field(default_factory=dict)


def opened(records: bytes, count: int = 1) -> Refused:
    """Records in an order that only a topic whose batches are opened refuses at once."""
    return Refused(of_records(records, count), INVALID, {"cleanup_policy": "compact"})


@cases(
    {
        "N028 crc": Refused(damaged(), CORRUPT),
        "N028 crc of zero": Refused(patched(batch(b"x"), ">I", CRC, 0, crc=False), CORRUPT),
        "N029 larger": Refused(patched(batch(b"x"), ">i", 8, 5000), INVALID),
        "N029 one larger": Refused(patched(batch(b"x"), ">i", 8, len(batch(b"x")) - 11), INVALID),
        "N029 largest": Refused(patched(batch(b"x"), ">i", 8, 2**31 - 1), INVALID),
        "N029 smaller": Refused(patched(batch(b"x"), ">i", 8, 49), CORRUPT),
        "N029 less than the header": Refused(patched(batch(b"x"), ">i", 8, 10), CORRUPT),
        "N029 zero": Refused(patched(batch(b"x"), ">i", 8, 0), CORRUPT),
        "N029 negative": Refused(patched(batch(b"x"), ">i", 8, -1), CORRUPT),
        "N029 cut": Refused(bytes(batch(b"x"))[:-1], INVALID),
        "N029 cut header": Refused(bytes(batch(b"x"))[:30], INVALID),
        "N029 nothing but zeros": Refused(b"\0" * 30, CORRUPT),
        "N029 length of all there is": Refused(
            patched(batch(b"x"), ">i", 8, 28, crc=False)[:40], CORRUPT
        ),
        "N029 surplus": Refused(bytes(batch(b"x")) + b"\0" * 7, INVALID),
        "N029 empty": Refused(b"", INVALID),
        "N029 null": Refused(None, INVALID),
        "N030 magic 0": Refused(patched(batch(b"x"), ">b", 16, 0), INVALID),
        "N030 magic 1": Refused(patched(batch(b"x"), ">b", 16, 1), INVALID),
        "N030 magic 3": Refused(patched(batch(b"x"), ">b", 16, 3), CORRUPT),
        "N030 magic negative": Refused(patched(batch(b"x"), ">b", 16, -1), CORRUPT),
        "N031 two batches": Refused(bytes(batch(b"x") + batch(b"y")), INVALID),
        "N032 none": Refused(patched(batch(b"x"), ">i", COUNT, 0), INVALID),
        "N032 negative": Refused(patched(batch(b"x"), ">i", COUNT, -1), INVALID),
        "N032 not of the last delta": Refused(patched(batch(b"x"), ">i", COUNT, 9), INVALID),
        "N032 largest": Refused(patched(batch(b"x"), ">i", COUNT, 2**31 - 1), INVALID),
        "N032 last delta negative": Refused(patched(batch(b"x"), ">i", 23, -1), INVALID),
        "N037 control": Refused(patched(batch(b"x"), ">h", ATTRIBUTES, 0x20), INVALID),
        "N038 transactional": Refused(
            bytes(
                batch(b"x", producer_id=3, producer_epoch=0, base_sequence=0, is_transactional=True)
            ),
            53,
        ),
        "N039 too large": Refused(bytes(batch(b"x" * 1_100_000)), ErrorCode.MESSAGE_TOO_LARGE),
        "N039 larger than its topic takes": Refused(
            bytes(batch(b"x" * 2_000)), ErrorCode.MESSAGE_TOO_LARGE, {"max_message_bytes": "1000"}
        ),
        "N042 base offset": Refused(patched(batch(b"x"), ">q", 0, 5, crc=False), INVALID),
        "N042 negative": Refused(patched(batch(b"x"), ">q", 0, -1, crc=False), INVALID),
        "N056 codec 5": Refused(patched(batch(b"x"), ">h", ATTRIBUTES, 5), 76),
        "N056 codec 6": Refused(patched(batch(b"x"), ">h", ATTRIBUTES, 6), 76),
        "N056 codec 7": Refused(patched(batch(b"x"), ">h", ATTRIBUTES, 7), 76),
        "P01 no sequence": Refused(
            patched(batch(b"x", producer_id=5, producer_epoch=0, base_sequence=0), ">i", 53, -1),
            INVALID,
        ),
        "N021 key size of six bytes": opened(record(b"\0\0\0" + b"\xff" * 5 + b"\x01k\0\0")),
        "N033 fewer than counted": opened(record(KEYED + b"\0\0"), count=10),
        "N033 more than counted": opened(record(KEYED + b"\0\0") * 3),
        "N034 larger than what is left": opened(b"\x7e" + KEYED + b"\0\0"),
        "N034 smaller than its fields": opened(b"\x06" + KEYED + b"\0\0"),
        "N034 negative": opened(b"\x01" + KEYED + b"\0\0"),
        "N034 larger than its fields": opened(record(KEYED + b"\0\0\0")),
        "N035 header count negative": opened(record(KEYED + b"\0\x01")),
        "N035 header count too large": opened(record(KEYED + b"\0\xfe\xff\xff\xff\x0f")),
        "N035 null header key": opened(record(KEYED + b"\0\x02\x01\0")),
        "N036 then no key": opened(record(b"\0\0\0\x09\0\0")),
        "N033 offset of a later record": opened(record(b"\0\0\x0a\x02k\0\0")),
        "N033 offset below the batch": opened(record(b"\0\0\x09\x02k\0\0")),
        "N033 one offset twice": opened(record(KEYED + b"\0\0") * 2, count=2),
        "P02 key larger than its record": opened(record(b"\0\0\0\xfe\xff\xff\xff\x0fk\0\0")),
        "P02 value larger than its record": opened(record(KEYED + b"\xfe\xff\xff\xff\x0f")),
    }
)
def refused(stage: Stage, sent: Refused) -> None:
    topic = stage.topic(**sent.configs)
    for version in (7, 9, 12):
        answer = produce(stage.client, topic, sent.records, version)
        assert (answer.error_code, answer.base_offset) == (sent.code, -1)
    assert log_end(stage.client, topic) == 0
    good = build_batch([(int(time.time() * 1000), b"k", b"good", [])])
    assert produce(stage.client, topic, good).base_offset == 0
    read = bytes(fetch(stage.client, topic).records)
    assert (len(read), read.count(b"good")) == (len(good), 1)


@cases(
    {
        "N021 not opened": of_records(record(b"\0\0\0" + b"\xff" * 5 + b"\x01k\0\0")),
        "N034 not opened": of_records(b"\x7e" + KEYED + b"\0\0"),
        "N035 not opened": of_records(record(KEYED + b"\0\xfe\xff\xff\xff\x0f")),
    }
)
def what_a_look_at_the_header_does_not_show(stage: Stage, data: bytes) -> None:
    """Taken (docs/decisions/produce-reads-headers-only.md); a reader of ours fails it alone."""
    topic = stage.topic()
    assert produce(stage.client, topic, data).error_code == 0
    assert first_offset(stage, topic).error_code == CORRUPT
    assert bytes(fetch(stage.client, topic).records)[61:] == data[61:]


def first_offset(stage: Stage, topic: str) -> Any:
    """The look-up by a time before all others: a batch must be opened."""
    asked = {"partition_index": 0, "timestamp": 1}
    fields = {"replica_id": -1, "topics": [{"name": topic, "partitions": [asked]}]}
    return stage.client.ask(ApiKey.LIST_OFFSETS, 7, fields).topics[0].partitions[0]


@case("N033")
def the_sound_first_records_of_a_batch_are_found(stage: Stage) -> None:
    topic = stage.topic()
    data = of_records(record(KEYED + b"\x08four\0") * 3, count=4)
    assert produce(stage.client, topic, data).error_code == 0
    found = first_offset(stage, topic)
    assert (found.error_code, found.offset) == (0, 0)


@cases({f"N036 {name}": size for name, size in {"minus five": 9, "least": 127}.items()})
def a_negative_key_size_is_a_null_key(stage: Stage, size: int) -> None:
    topic = stage.topic(message_timestamp_before_max_ms="3600000")  # so that it is opened
    data = of_records(record(b"\0\0\0" + bytes([size]) + b"\x02v\0"))
    assert produce(stage.client, topic, data).error_code == 0
    assert log_end(stage.client, topic) == 1


@case("N028")
def with_acks_0_the_connection_closes(stage: Stage) -> None:
    topic, other = stage.topic(), stage.connect()
    with pytest.raises(Closed):
        other.ask(ApiKey.PRODUCE, 9, produce_fields(topic, damaged(), acks=0))
    stage.closed("CORRUPT_MESSAGE", other)
    assert log_end(stage.client, topic) == 0


@case("N028")
def one_bad_partition_does_not_hold_back_the_others(stage: Stage) -> None:
    good, bad = stage.topic(), stage.topic()
    sent = [
        {"name": name, "partition_data": [{"index": 0, "records": records}]}
        for name, records in ((bad, damaged()), (good, bytes(batch(b"x"))), ("none", b"x"))
    ]
    fields = {"acks": -1, "timeout_ms": 5000, "topic_data": sent}
    answer = stage.client.ask(ApiKey.PRODUCE, 9, fields)
    codes = [one.partition_responses[0].error_code for one in answer.responses]
    assert codes == [CORRUPT, 0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    assert (log_end(stage.client, good), log_end(stage.client, bad)) == (1, 0)


@cases({f"N043 acks {acks}": acks for acks in (2, -2, 32_767)})
def unknown_acks(stage: Stage, acks: int) -> None:
    topic = stage.topic()
    assert produce(stage.client, topic, batch(b"x"), acks=acks).error_code == 21
    assert log_end(stage.client, topic) == 0


@case("N040")
def records_without_key_are_named(stage: Stage) -> None:
    topic, now = stage.topic(cleanup_policy="compact"), int(time.time() * 1000)
    data = build_batch([(now, b"k", b"v", []), (now, None, b"v", []), (now, None, b"w", [])])
    answer = produce(stage.client, topic, data)
    assert answer.error_code == INVALID
    assert [one.batch_index for one in answer.record_errors] == [1, 2]
    assert log_end(stage.client, topic) == 0


@cases({"N041 before": -10_000_000, "N041 after": 10_000_000})
def timestamps_out_of_their_limits(stage: Stage, distance_ms: int) -> None:
    limits = {"message_timestamp_before_max_ms": "5000", "message_timestamp_after_max_ms": "5000"}
    topic = stage.topic(**limits)
    data = build_batch([(int(time.time() * 1000) + distance_ms, None, b"v", [])])
    assert produce(stage.client, topic, data).error_code == ErrorCode.INVALID_TIMESTAMP
    assert log_end(stage.client, topic) == 0


TRANSACTIONAL = batch(b"x", producer_id=3, producer_epoch=0, base_sequence=0, is_transactional=True)


@cases(
    {
        "N038 every partition": (-1, bytes(TRANSACTIONAL), 53),
        "N043 every partition": (2, bytes(batch(b"x")), 21),
    }
)
def all_partitions_of_the_request_are_refused(stage: Stage, asked: tuple[int, bytes, int]) -> None:
    """Also those whose batch is good."""
    acks, first, code = asked
    topics = [stage.topic(), stage.topic()]
    sent = [
        {"name": name, "partition_data": [{"index": 0, "records": records}]}
        for name, records in zip(topics, (first, bytes(batch(b"good"))), strict=True)
    ]
    fields = {"acks": acks, "timeout_ms": 5000, "topic_data": sent}
    answer = stage.client.ask(ApiKey.PRODUCE, 9, fields)
    assert [one.partition_responses[0].error_code for one in answer.responses] == [code] * 2
    assert [log_end(stage.client, name) for name in topics] == [0, 0]
