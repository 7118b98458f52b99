"""A tiered topic to read: records of one size, most of them in the remote tier."""

import json
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from random import Random

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from benchmarks import brokers
from pipeline.opening import open_log
from pipeline.store import address_of_url
from pipeline.values import Where

TOPIC = "orders"
PARTITIONS = 2
KEY_BYTES = 15
SEGMENT_BYTES_MAX = 32 << 20
_WORDS = ("order", "customer", "amount", "currency", "status", "shipped", "pending", "street")


def values_of(size: int, count: int = 2_000) -> list[bytes]:
    """JSON-like texts of exactly `size` bytes, which compress to about the half."""
    rng = Random(size)
    found = []
    for number in range(count):
        text = ""
        while len(text) < size:
            text += json.dumps({rng.choice(_WORDS): rng.randrange(10**6), "id": number})
        found.append(text[:size].encode())
    return found


@contextmanager
def filled_topic(data: Path, mb: int, value_bytes: int, codec: str) -> Iterator[brokers.Running]:
    """Run a broker with a filled topic until the block ends."""
    with brokers.tidemark(data, tiered=True) as running:
        # also of what compresses well there are to be several segments
        share = mb * 1_000_000 // PARTITIONS // 16
        _create(running.bootstrap, max(1 << 20, min(share, SEGMENT_BYTES_MAX)))
        _produce(running.bootstrap, mb, value_bytes, codec)
        _wait_tiered(data / "remote-tier")
        yield running


def records_in(bootstrap: str) -> dict[int, int]:
    """The number of records of each partition."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "watermarks"})
    found = {}
    for number in range(PARTITIONS):
        low, high = consumer.get_watermark_offsets(TopicPartition(TOPIC, number), 30)
        found[number] = high - low
    consumer.close()
    return found


def _create(bootstrap: str, segment_bytes: int) -> None:
    config = {
        "remote.storage.enable": "true",
        "local.retention.bytes": "1",
        "segment.bytes": str(segment_bytes),
    }
    topic = NewTopic(TOPIC, PARTITIONS, 1, config=config)
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([topic])[TOPIC].result(30)


def _produce(bootstrap: str, mb: int, value_bytes: int, codec: str) -> None:
    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "compression.type": codec,
            "batch.size": 65_536,
            "batch.num.messages": 100_000,
            "linger.ms": 100,
            "queue.buffering.max.messages": 1_000_000,
        }
    )
    values = values_of(value_bytes)
    for number in range(mb * 1_000_000 // (value_bytes + KEY_BYTES)):
        key = b"key-%011d" % (number * 7919 % 10**11)
        while True:
            try:
                producer.produce(TOPIC, values[number % len(values)], key, number % PARTITIONS)
                break
            except BufferError:
                producer.poll(0.1)
    producer.flush(120)


def _wait_tiered(bucket: Path, deadline_s: float = 300) -> None:
    """Return when the store holds segments, and no further one has come for five seconds."""
    began = changed = time.monotonic()
    ends: dict[int, int] = {}
    while len(ends) < PARTITIONS or time.monotonic() - changed < 5:
        if time.monotonic() - began > deadline_s:
            raise TimeoutError(f"after {deadline_s} s the store still changes: {ends}")
        time.sleep(0.5)
        if (now := _remote_ends(bucket)) != ends:
            ends, changed = now, time.monotonic()


def _remote_ends(bucket: Path) -> dict[int, int]:
    if not bucket.is_dir():
        return {}
    with closing(open_log(Where(store=address_of_url(str(bucket))))) as log:
        if TOPIC not in log.topics():
            return {}
        return {one.partition: end for one, end in log.latest(log.partitions([TOPIC])).items()}
