"""Produce. What is refused leaves no trace."""

import struct
import time
from dataclasses import dataclass, field
from typing import Any

from crc32c import crc32c

from kafka_protocol.errors import ErrorCode
from kafka_protocol.records.records import build_batch
from kafka_protocol.wire.api_keys import ApiKey
from tests.support.bad_input.case import case, cases
from tests.support.bad_input.stage import Stage
from tests.support.brokers.bad_input import batch, with_records
from tests.support.brokers.raw_client import fetch, log_end, produce

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
        "N029 one larger": Refused(patched(batch(b"x"), ">i", 8, len(batch(b"x")) - 11), INVALID),
        "N029 nothing but zeros": Refused(b"\0" * 30, CORRUPT),
        "N029 length of all there is": Refused(
            patched(batch(b"x"), ">i", 8, 28, crc=False)[:40], CORRUPT
        ),
        "N029 surplus": Refused(bytes(batch(b"x")) + b"\0" * 7, INVALID),
        "N029 null": Refused(None, INVALID),
        "N032 largest": Refused(patched(batch(b"x"), ">i", COUNT, 2**31 - 1), INVALID),
        "N039 larger than its topic takes": Refused(
            bytes(batch(b"x" * 2_000)), ErrorCode.MESSAGE_TOO_LARGE, {"max_message_bytes": "1000"}
        ),
        "N042 negative": Refused(patched(batch(b"x"), ">q", 0, -1, crc=False), INVALID),
        "N033 fewer than counted": opened(record(KEYED + b"\0\0"), count=10),
        "N033 more than counted": opened(record(KEYED + b"\0\0") * 3),
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
