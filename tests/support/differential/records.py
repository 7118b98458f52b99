"""Requests that write and read records: Produce, Fetch."""

from collections.abc import Callable, Iterator
from typing import Any

from kafka_protocol.wire.api_keys import ApiKey
from tests.support.differential.common import BASE_MS, BORDER_OFFSETS, every, records
from tests.support.differential.comparison import Case, Side

# -- producing


def produce_cases() -> Iterator[Case]:
    key = ApiKey.PRODUCE

    def one(
        data: Any, *, topic: str = "sink", index: int = 0, **more: Any
    ) -> Callable[[Side], Any]:
        def body(side: Side) -> Any:
            asked = {"index": index, "records": data}
            entry = {"name": topic, "topic_id": side.topic_id(topic), "partition_data": [asked]}
            return {"acks": -1, "timeout_ms": 5000, "topic_data": [entry]} | more

        return body

    for acks in (-1, 1, 2, -2, 32767, 0):
        yield from every(key, f"acks {acks}", one(records(2), acks=acks))
    for topic in ("missing", "nobody", "", "..", "x" * 250, "__consumer_offsets", "compacted"):
        yield from every(key, f"topic {topic[:20]}", one(records(1, key=None), topic=topic))
    for topic in ("missing", "sink"):
        for index in (-1, 1, 7, 2**31 - 1, -(2**31)):
            yield from every(
                key, f"{topic} partition {index}", one(records(1), topic=topic, index=index)
            )
    # Kafka's request thread dies of it and never answers: once is enough.
    yield Case("null records", key, 9, one(None))
    for timeout in (-1, 0):
        yield from every(key, f"timeout {timeout}", one(records(1), timeout_ms=timeout))
    for label, data in _batches():
        yield from every(key, label, one(data))
    for label, data in _batches():
        yield Case(f"compacted {label}", key, 9, one(data, topic="compacted"))
        yield Case(f"stamped {label}", key, 9, one(data, topic="stamped"))
        yield Case(f"acks 0 {label}", key, 9, one(data, acks=0))
    yield from every(key, "nothing", {"acks": -1, "timeout_ms": 1000, "topic_data": []})
    yield from every(key, "no partitions", _no_partitions)
    yield from every(key, "partition twice", _twice(same_topic=True))
    yield from every(key, "topic twice", _twice(same_topic=False))
    yield from every(key, "good and bad side by side", _good_and_bad)
    for sequence, epoch in (
        (0, 0),
        (1, 0),
        (1, 0),
        (0, 0),
        (5, 0),
        (0, 1),
        (1, 0),
        (3, 1),
        (0, -1),
    ):
        data = records(1, producer_id=4000, producer_epoch=epoch, base_sequence=sequence)
        yield Case(f"sequence {sequence} epoch {epoch}", key, 9, one(data))
    fresh = records(1, producer_id=4001, producer_epoch=3, base_sequence=7)
    yield Case("a new producer's sequence 7", key, 9, one(fresh))
    for sequence in (5, 0):
        data = records(5, producer_id=4001, producer_epoch=0, base_sequence=sequence)
        to = one(data, topic="unwritten")
        yield Case(f"first sequence {sequence} of an empty log", key, 9, to)
    strange = records(1, producer_id=4002, producer_epoch=0, base_sequence=-1)
    yield Case("producer id without sequence", key, 9, one(strange))
    wraps = records(3, producer_id=4003, producer_epoch=0, base_sequence=2**31 - 2)
    yield Case("sequence wraps", key, 9, one(wraps))


def _no_partitions(side: Side) -> Any:
    entry = {"name": "sink", "topic_id": side.topic_id("sink"), "partition_data": []}
    return {"acks": -1, "timeout_ms": 1000, "topic_data": [entry]}


def _twice(*, same_topic: bool) -> Callable[[Side], Any]:
    def body(side: Side) -> Any:
        asked = {"index": 0, "records": records(1)}
        name = {"name": "sink", "topic_id": side.topic_id("sink")}
        topics = [name | {"partition_data": [asked] * (2 if same_topic else 1)}]
        return {"acks": -1, "timeout_ms": 5000, "topic_data": topics * (1 if same_topic else 2)}

    return body


def _good_and_bad(side: Side) -> Any:
    broken = records(1)
    broken[-1] ^= 1
    parts = [
        {"index": 0, "records": records(1)},
        {"index": 1, "records": broken},
        {"index": 9, "records": records(1)},
    ]
    entry = {"name": "sink", "topic_id": side.topic_id("sink"), "partition_data": parts}
    gone = {"name": "gone", "topic_id": side.topic_id("gone"), "partition_data": parts[:1]}
    return {"acks": -1, "timeout_ms": 5000, "topic_data": [entry, gone]}


def _batches() -> Iterator[tuple[str, bytearray]]:
    """Batches with something odd in their headers; the CRC is right where it can be."""
    yield "empty bytes", bytearray()
    yield "short", records(1)[:40]
    yield "one byte short", records(1)[:-1]
    yield "one byte more", records(1) + b"x"
    yield "two batches", records(1) + records(1)
    yield "base offset 5", records(1, base_offset=5)
    yield "leader epoch 7", records(1, leader_epoch=7)
    yield "control", records(1, is_control=True)
    yield (
        "transactional",
        records(1, is_transactional=True, producer_id=1, producer_epoch=0, base_sequence=0),
    )
    yield "crc", _patched(17, b"\0\0\0\0", crc=False)
    for magic in (0, 1, 3, 127, 255):
        yield f"magic {magic}", _patched(16, bytes([magic]), crc=False)
    for length in (0, -1, 5, 38, 48, 49, 50, 2**31 - 1, -(2**31)):
        yield f"length {length}", _patched(8, length.to_bytes(4, "big", signed=True), crc=False)
    for codec in (1, 2, 3, 4, 5, 6, 7):
        data = _patched(21, bytes([0, codec]))
        if codec > 4:
            yield f"codec bits {codec}", data
    for count in (0, -1, 2, 2**31 - 1):
        yield f"count {count}", _patched(57, count.to_bytes(4, "big", signed=True))
    for delta in (-1, 1, 2**31 - 1):
        yield f"last delta {delta}", _patched(23, delta.to_bytes(4, "big", signed=True))
    for stamp in (-1, 0, 2**63 - 1, BASE_MS + 10**13):
        yield f"max timestamp {stamp}", _patched(35, stamp.to_bytes(8, "big", signed=True))
    yield "log append time bit", _patched(21, bytes([0, 8]))
    yield "high attribute bits", _patched(21, bytes([0x7F, 0x80]))
    for codec in (1, 2, 3, 4):
        yield f"codec {codec}", records(3, codec=codec)
    yield "large", records(1, size=1_100_000)
    yield "no key", records(1, key=None)


def _patched(position: int, data: bytes, *, crc: bool = True) -> bytearray:
    import crc32c

    batch = records(1)
    batch[position : position + len(data)] = data
    if crc:
        batch[17:21] = crc32c.crc32c(bytes(batch[21:])).to_bytes(4, "big")
    return batch


# -- fetching


def _fetch(
    topic: str = "plain", offset: int = 0, index: int = 0, **more: Any
) -> Callable[[Side], Any]:
    partition = {
        "partition": index,
        "fetch_offset": offset,
        "partition_max_bytes": more.pop("partition_max_bytes", 1 << 20),
        "current_leader_epoch": more.pop("epoch", -1),
        "last_fetched_epoch": more.pop("fetched_epoch", -1),
    }

    def body(side: Side) -> Any:
        entry = {"topic": topic, "topic_id": side.topic_id(topic), "partitions": [partition]}
        base = {"max_wait_ms": 0, "min_bytes": 0, "max_bytes": 1 << 26, "topics": [entry]}
        return base | more

    return body


def fetch_cases() -> Iterator[Case]:
    key = ApiKey.FETCH

    for topic in ("plain", "empty", "trimmed", "compacted", "stamped", "missing", "", ".."):
        for offset in BORDER_OFFSETS:
            yield from every(key, f"{topic} {offset}", _fetch(topic, offset))
    for index in (-1, 1, 2, 2**31 - 1):
        yield from every(key, f"partition {index}", _fetch(index=index))
    for epoch in (-2, 0, 1, 2, 3, 4, 5, 1000):
        yield from every(key, f"epoch {epoch}", _fetch(epoch=epoch), 9)
        yield from every(
            key, f"last fetched epoch {epoch}", _fetch(offset=6, fetched_epoch=epoch), 12
        )
    yield from _fetch_limits()
    for isolation in (0, 1, 2, -1):
        yield from every(key, f"isolation {isolation}", _fetch(isolation_level=isolation))
    for wait in (-1, 1, 30):
        yield from every(key, f"wait {wait}", _fetch(offset=10, max_wait_ms=wait, min_bytes=1))
    for replica in (-2, 0, 1, 99):
        state = {"replica_id": replica, "replica_epoch": -1}
        for epoch in (-1, 4):
            fields = _fetch(replica_id=replica, replica_state=state, epoch=epoch)
            yield from every(key, f"replica {replica} epoch {epoch}", fields)
    yield from every(key, "nothing", _no_topics)
    for session_id, epoch in (
        (0, 0),
        (0, -1),
        (0, 1),
        (77, 0),
        (77, -1),
        (77, 1),
        (2**31 - 1, 5),
        (-1, 3),
        (0, -5),
    ):
        fields = _fetch(session_id=session_id, session_epoch=epoch)
        yield from every(key, f"session {session_id} epoch {epoch}", fields, 7)
    yield from every(key, "rack", _fetch(rack_id="r1"), 11)
    yield from every(key, "cluster id", _fetch(cluster_id="another-cluster"), 12)
    for version in (12, 13, 18):
        yield from _session_story(version)


def _no_topics(side: Side) -> Any:
    return {"max_wait_ms": 0, "min_bytes": 0, "max_bytes": 1 << 26, "topics": []}


def _session_story(version: int) -> Iterator[Case]:
    """An incremental session from its first fetch to its end, with mistakes on the way."""

    def asked(side: Side, epoch: int, topics: dict[str, dict[int, int]], gone: Any = ()) -> Any:
        return {
            "max_wait_ms": 0,
            "min_bytes": 0,
            "max_bytes": 1 << 26,
            "session_id": side.facts.get("session_id", 0) if epoch else 0,
            "session_epoch": epoch,
            "topics": [
                {
                    "topic": name,
                    "topic_id": side.topic_id(name),
                    "partitions": [
                        {"partition": i, "fetch_offset": at, "partition_max_bytes": 1 << 20}
                        for i, at in partitions.items()
                    ],
                }
                for name, partitions in topics.items()
            ],
            "forgotten_topics_data": [
                {"topic": name, "topic_id": side.topic_id(name), "partitions": indexes}
                for name, indexes in gone
            ],
        }

    steps: list[tuple[int, dict[str, dict[int, int]], Any]] = [
        (0, {"plain": {0: 0, 1: 0}, "empty": {0: 0}, "missing": {0: 0}}, ()),
        (1, {}, ()),
        (2, {"plain": {0: 10}}, ()),
        (3, {}, ()),
        (4, {"trimmed": {0: 0}}, [("missing", [0])]),
        (5, {}, ()),
        (7, {}, ()),
        (6, {"plain": {9: 0}}, [("nobody", [0]), ("plain", [44])]),
        (7, {}, [("plain", [0, 1, 9]), ("trimmed", [0]), ("empty", [0])]),
        (8, {"plain": {0: 0}}, ()),
        (-1, {"plain": {0: 0}}, ()),
        (1, {}, ()),
    ]
    for number, (epoch, topics, gone) in enumerate(steps):
        yield Case(
            f"session step {number}",
            ApiKey.FETCH,
            version,
            lambda side, e=epoch, t=topics, g=gone: asked(side, e, t, g),
            chain=f"fetch-{version}",
        )


def _fetch_limits() -> Iterator[Case]:
    key = ApiKey.FETCH
    for limit in (0, -1, 1, 61, 80, 150, 2**31 - 1):
        yield from every(key, f"partition bytes {limit}", _fetch(partition_max_bytes=limit))
        yield from every(key, f"bytes {limit}", _fetch(max_bytes=limit))
        yield from every(key, f"min bytes {limit}", _fetch(min_bytes=limit))
