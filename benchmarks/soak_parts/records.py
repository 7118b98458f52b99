"""Records whose bytes follow from where they stand, and the requests that carry them."""

import time
from collections.abc import Iterator, Sequence
from typing import Any

from kafka_protocol.records.batch import iter_batches
from kafka_protocol.records.records import build_batch, iter_records

LANES = 4
VALUE_BYTES = 1_000


def value_of(partition: int, offset: int) -> bytes:
    """The only value that a record of topic `lanes` can have there."""
    text = b"%d/%012d/" % (partition, offset)
    return (text * (VALUE_BYTES // len(text) + 1))[:VALUE_BYTES]


def batch(*values: bytes, **more: Any) -> bytes:
    """A producer's batch of now."""
    now_ms = int(time.time() * 1_000)
    return bytes(build_batch([(now_ms, None, value, []) for value in values], **more))


def records_in(data: bytes | None) -> Iterator[tuple[int, bytes]]:
    """Offsets and values of all whole batches."""
    for position, _ in iter_batches(data or b""):
        for record in iter_records(data or b"", position):
            yield record.offset, record.value or b""


def produce_fields(topic: str, partition: int, records: bytes, acks: int = -1) -> dict[str, Any]:
    data = [{"index": partition, "records": records}]
    topics = [{"name": topic, "partition_data": data}]
    return {"acks": acks, "timeout_ms": 30_000, "topic_data": topics}


def fetch_fields(
    topic: str, partition: int, offset: int, *, part_bytes: int = 1 << 16, **more: Any
) -> dict[str, Any]:
    """A Fetch of one partition, without a session unless said."""
    asked = {"partition": partition, "fetch_offset": offset, "partition_max_bytes": part_bytes}
    topics = [{"topic": topic, "partitions": [asked]}]
    usual = {"max_wait_ms": 500, "min_bytes": 1, "max_bytes": 1 << 24, "session_epoch": -1}
    return {**usual, "topics": topics, **more}


def topic_fields(name: str, partitions: int, configs: dict[str, str]) -> dict[str, Any]:
    given = [{"name": key, "value": text} for key, text in configs.items()]
    made = {"name": name, "num_partitions": partitions, "replication_factor": 1, "configs": given}
    return {"topics": [made], "timeout_ms": 30_000}


def offsets_fields(topic: str, partition: int, timestamp: int) -> dict[str, Any]:
    parts: Sequence[dict[str, int]] = [{"partition_index": partition, "timestamp": timestamp}]
    return {"replica_id": -1, "topics": [{"name": topic, "partitions": list(parts)}]}
