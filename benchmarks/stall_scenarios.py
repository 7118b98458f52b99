"""The pieces of work that `benchmarks.stalls` measures."""

import json
import os
import random
import time
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from benchmarks.stall_probe import Client, produce_frame
from benchmarks.stalls import PROBED, Figures, Watched, watched
from kafka_protocol.records.records import build_batch
from kafka_protocol.wire import codec
from kafka_protocol.wire.api_keys import ApiKey

PARTITIONS_A_TOPIC = 100
DEADLINE_S = 240
BATCH_BYTES = 1_000_000
HOUR_MS = 3_600_000


def build(api_key: ApiKey, **fields: Any) -> Any:
    return codec.request(api_key).cls(**fields)


def create(
    client: Client, names: Sequence[str], partitions: int, *, validate: bool = False, **configs: str
) -> list[int]:
    """CreateTopics of all names in one request; the error codes."""
    cls = codec.request(ApiKey.CREATE_TOPICS).cls
    given = [
        cls.Topics.Configs(name=key.replace("_", "."), value=text) for key, text in configs.items()
    ]
    topics = [
        cls.Topics(name=name, num_partitions=partitions, replication_factor=1, configs=given)
        for name in names
    ]
    body = cls(topics=topics, timeout_ms=DEADLINE_S * 1_000, validate_only=validate)
    answer = client.ask(ApiKey.CREATE_TOPICS, 4, body)  # without the configs of each
    return [one.error_code for one in answer.topics]


def created(client: Client, names: Sequence[str], partitions: int, **configs: str) -> None:
    """The same; each must be made. Returns when all are led: many are so after the answer."""
    codes = create(client, names, partitions, **configs)
    assert not any(codes), codes
    cls = codec.request(ApiKey.LIST_OFFSETS).cls
    newest = cls.Topics.Partitions(partition_index=partitions - 1, timestamp=-1)
    body = cls(replica_id=-1, topics=[cls.Topics(name=n, partitions=[newest]) for n in names])

    def are_led() -> bool:
        answer = client.ask(ApiKey.LIST_OFFSETS, 7, body)
        return not any(part.error_code for one in answer.topics for part in one.partitions)

    wait_for(are_led, "all partitions are led")


def topics(prefix: str, partitions: int) -> list[str]:
    """Names of topics that have so many partitions together."""
    return [f"{prefix}-{n}" for n in range(max(1, partitions // PARTITIONS_A_TOPIC))]


def batch(value: bytes, *, timestamp_ms: int | None = None, **more: Any) -> bytearray:
    now_ms = int(time.time() * 1_000) if timestamp_ms is None else timestamp_ms
    return build_batch([(now_ms, None, value, [])], **more)


def produced(client: Client, frames: Sequence[bytes], window: int = 100) -> None:
    """Send Produce requests, so many in flight; each partition must take its batch."""
    for first in range(0, len(frames), window):
        for answer in client.exchange_many(list(frames[first : first + window])):
            decoded = codec.response(ApiKey.PRODUCE).decode(answer, 9, 5)[0]
            codes = {
                part.error_code for one in decoded.responses for part in one.partition_responses
            }
            assert codes == {0}, codes


def end_of(client: Client, topic: str, timestamp: int) -> int:
    cls = codec.request(ApiKey.LIST_OFFSETS).cls
    asked = cls.Topics.Partitions(partition_index=0, timestamp=timestamp)
    body = cls(replica_id=-1, topics=[cls.Topics(name=topic, partitions=[asked])])
    return int(client.ask(ApiKey.LIST_OFFSETS, 7, body).topics[0].partitions[0].offset)


def scrape(http: str) -> str:
    with urllib.request.urlopen(f"http://{http}/metrics", timeout=DEADLINE_S) as answer:
        return str(answer.read().decode())


def wait_for(condition: Callable[[], bool], what: str) -> None:
    until = time.monotonic() + DEADLINE_S
    while not condition():
        if time.monotonic() > until:
            raise SystemExit(f"not within {DEADLINE_S} s: {what}")
        time.sleep(0.05)


def many_partitions(data: Path, scale: float) -> list[Figures]:
    """One broker that gets 5,000 partitions."""
    broker = watched(data)
    first, rest = topics("made", int(3_000 * scale)), topics("more", int(2_000 * scale))
    with broker.running(topic=PROBED), broker.client() as client:
        created(client, [PROBED], 1)
        with broker.window(f"create {len(first) * 100} partitions"):
            created(client, first, PARTITIONS_A_TOPIC)
        with broker.window(f"create {len(rest) * 50} partitions"):
            created(client, rest[: len(rest) // 2], PARTITIONS_A_TOPIC)
        created(client, rest[len(rest) // 2 :], PARTITIONS_A_TOPIC)
        names = first + rest
        with broker.window(f"scrape with {len(names) * 100} partitions"):
            scrape(broker.http)
        entries = int(20_000 * scale)
        with broker.window(f"ListOffsets of {entries} entries"):
            client.ask(ApiKey.LIST_OFFSETS, 7, list_offsets(names, entries))
        with broker.window(f"Fetch of {entries} entries"):
            client.ask(ApiKey.FETCH, 11, fetch_all(names, entries))
        doomed = rest[: max(1, len(rest) // 2)]
        places = [(name, n) for name in doomed for n in range(PARTITIONS_A_TOPIC)]
        record = batch(b"x" * 100)
        produced(client, [produce_frame(dict.fromkeys(places, record))])
        with broker.window(f"DeleteRecords on {len(places)} partitions"):
            client.ask(ApiKey.DELETE_RECORDS, 1, delete_records(doomed))
        with broker.window(f"delete {len(places)} partitions"):
            body = build(ApiKey.DELETE_TOPICS, topic_names=doomed, timeout_ms=DEADLINE_S * 1_000)
            answer = client.ask(ApiKey.DELETE_TOPICS, 5, body)
            assert not any(one.error_code for one in answer.responses)
    return broker.figures


def list_offsets(names: Sequence[str], entries: int) -> Any:
    cls = codec.request(ApiKey.LIST_OFFSETS).cls
    asked = [
        cls.Topics.Partitions(partition_index=n, timestamp=-1) for n in range(PARTITIONS_A_TOPIC)
    ]
    return cls(
        replica_id=-1,
        topics=[cls.Topics(name=name, partitions=asked) for name in repeated(names, entries)],
    )


def fetch_all(names: Sequence[str], entries: int) -> Any:
    cls = codec.request(ApiKey.FETCH).cls
    asked = [
        cls.Topics.Partitions(partition=n, fetch_offset=0, partition_max_bytes=1_000)
        for n in range(PARTITIONS_A_TOPIC)
    ]
    return cls(
        max_bytes=1 << 20,
        topics=[cls.Topics(topic=name, partitions=asked) for name in repeated(names, entries)],
    )


def repeated(names: Sequence[str], entries: int) -> Iterator[str]:
    for n in range(entries // PARTITIONS_A_TOPIC):
        yield names[n % len(names)]


def delete_records(names: Sequence[str]) -> Any:
    cls = codec.request(ApiKey.DELETE_RECORDS).cls
    asked = [cls.Topics.Partitions(partition_index=n, offset=1) for n in range(PARTITIONS_A_TOPIC)]
    return cls(
        topics=[cls.Topics(name=name, partitions=asked) for name in names],
        timeout_ms=DEADLINE_S * 1_000,
    )


def many_names(data: Path, scale: float) -> list[Figures]:
    """Many topics in one request."""
    broker = watched(data)
    with broker.running(topic=PROBED), broker.client() as client:
        created(client, [PROBED], 1)
        dotted = [f"a.b.topic.{n}" for n in range(int(10_000 * scale))]
        with broker.window(f"validate {len(dotted)} dotted names"):
            create(client, dotted, 1, validate=True)
        cls = codec.request(ApiKey.METADATA).cls
        unknown = [cls.Topics(name=f"auto-{n}") for n in range(int(1_000 * scale))]
        with broker.window(f"Metadata creates {len(unknown)} topics"):
            body = cls(topics=unknown, allow_auto_topic_creation=True)
            client.ask(ApiKey.METADATA, 7, body)
    return broker.figures


def take_over(data: Path, scale: float) -> list[Figures]:
    """A start with tiered partitions: roles, the tier's questions and its validation."""
    broker = watched(data, tiered=True)
    names = topics("tiered", int(5_000 * scale))
    with broker.running(), broker.client() as client:
        created(client, [PROBED], 1)
        created(client, names, PARTITIONS_A_TOPIC, remote_storage_enable="true")
    broker.figures.clear()
    with broker.running(topic=PROBED, wait=False) as process:
        with broker.window(f"start with {len(names) * 100} tiered partitions", is_start=True):
            wait_for(lambda: validated(broker) or process.poll() is not None, "all are validated")
        with broker.window("the second after it"):
            time.sleep(2)
    return broker.figures


def validated(broker: Watched) -> bool:
    """True if the broker is ready and its tier has validated every partition.

    The metrics would say it, too, and hold the event loop with so many partitions.
    """
    if not is_ready(broker):
        return False
    with urllib.request.urlopen(f"http://{broker.http}/health", timeout=DEADLINE_S) as answer:
        health = json.load(answer)
    return set(health["parts"].values()) == {"green"} and not any(health["notes"])


def cold_seek(data: Path, scale: float) -> list[Figures]:
    """Reads at random offsets of a log that is not in memory."""
    broker = watched(data)
    value = os.urandom(16_000)
    count = int(30_000 * scale)
    with broker.running(), broker.client() as client:
        created(client, [PROBED, "large"], 1)
        frames = [produce_frame({("large", 0): batch(value)})] * 50
        for _ in range(count // 50):
            produced(client, frames, 50)
    broker.figures.clear()
    for path in (data / "logs").rglob("0*.*"):
        with path.open("rb") as file:
            os.fsync(file.fileno())
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    cls = codec.request(ApiKey.FETCH).cls
    with broker.running(topic=PROBED), broker.client() as client:
        time.sleep(1)
        with broker.window(f"200 seeks in {count * 16 // 1_000} MB, cold"):
            for _ in range(200):
                asked = cls.Topics.Partitions(
                    partition=0, fetch_offset=random.randrange(count), partition_max_bytes=64_000
                )
                body = cls(max_bytes=64_000, topics=[cls.Topics(topic="large", partitions=[asked])])
                client.ask(ApiKey.FETCH, 11, body)
    return broker.figures


def producer_ids(data: Path, scale: float) -> list[Figures]:
    """A roll with many producer ids: each has an entry in the snapshot."""
    broker = watched(data)
    count = int(100_000 * scale)
    with broker.running(topic=PROBED), broker.client() as client:
        created(client, [PROBED], 1)
        created(client, ["ids"], 1, segment_bytes=str(64 << 20))
        for first in range(0, count, 10_000):
            frames = [
                produce_frame(
                    {("ids", 0): batch(b"x", producer_id=n, producer_epoch=0, base_sequence=0)}
                )
                for n in range(first, min(first + 10_000, count))
            ]
            produced(client, frames)
        large = produce_frame({("ids", 0): batch(os.urandom(BATCH_BYTES))})
        with broker.window(f"a roll with {count} producer ids"):
            produced(client, [large] * 70, 2)
    return broker.figures


def retention(data: Path, scale: float) -> list[Figures]:
    """Segments that are all too old at once."""
    broker = watched(data, log_retention_check_interval_ms="1000", log_initial_task_delay_ms="500")
    count = int(2_000 * scale)
    with broker.running(topic=PROBED), broker.client() as client:
        created(client, [PROBED], 1)
        created(client, ["old"], 1, internal_segment_bytes="200", retention_ms="-1")
        then_ms = int(time.time() * 1_000) - HOUR_MS
        one = produce_frame({("old", 0): batch(b"x" * 100, timestamp_ms=then_ms)})
        with broker.window(f"{count} rolls"):
            produced(client, [one] * count)
        with broker.window(f"retention of {count} segments"):
            set_config(client, "old", "retention.ms", "1000")
            wait_for(lambda: end_of(client, "old", -2) >= count - 1, "old segments are dropped")
            time.sleep(2)
    return broker.figures


def set_config(client: Client, topic: str, key: str, text: str) -> None:
    cls = codec.request(ApiKey.INCREMENTAL_ALTER_CONFIGS).cls
    configs = [cls.Resources.Configs(name=key, config_operation=0, value=text)]
    resources = [cls.Resources(resource_type=2, resource_name=topic, configs=configs)]
    client.ask(ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, cls(resources=resources))


def gzip(data: Path, scale: float) -> list[Figures]:
    """Batches that the broker compresses again, since the topic says how."""
    broker = watched(data)
    text = b"".join(b"%d " % random.randrange(1 << 40) for _ in range(80_000))[:BATCH_BYTES]
    with broker.running(topic=PROBED), broker.client() as client:
        created(client, [PROBED], 1)
        created(client, ["packed"], 1, compression_type="gzip")
        with broker.window("gzip of batches of 1 MB"):
            produced(client, [produce_frame({("packed", 0): batch(text)})] * int(40 * scale), 2)
    return broker.figures


def recovery(data: Path, scale: float) -> list[Figures]:
    """A start after a kill: every active segment is read again."""
    broker = watched(data)
    count = int(200 * scale)
    with broker.running(), broker.client() as client:
        created(client, ["killed"], count)
        small = batch(b"x" * 1_000)
        for _ in range(20):
            frames = [produce_frame({("killed", n): bytes(small)}) for n in range(count)]
            produced(client, frames * 50)
        os.kill(broker.pid, 9)
    broker.figures.clear()
    with (
        broker.running(wait=False) as process,
        broker.window(f"recovery of {count} segments", bystander="health", is_start=True),
    ):
        wait_for(lambda: is_ready(broker) or process.poll() is not None, "the broker is ready")
    return broker.figures


def is_ready(broker: Watched) -> bool:
    try:
        with urllib.request.urlopen(f"http://{broker.http}/ready", timeout=DEADLINE_S) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False


def copying(data: Path, scale: float) -> list[Figures]:
    """20 MB/s to a tiered topic: segments roll, are described, handed over and copied."""
    broker = watched(data, tiered=True)
    with broker.running(topic=PROBED), broker.client() as client:
        created(client, [PROBED], 1)
        tiered = {"remote_storage_enable": "true", "local_retention_bytes": "1"}
        created(client, ["loaded"], 2, segment_bytes=str(8 << 20), **tiered)
        records = [(int(time.time() * 1_000), None, os.urandom(1_000), []) for _ in range(200)]
        frames = [produce_frame({("loaded", n): build_batch(records)}) for n in range(2)]
        for name, is_loaded in (("idle", False), ("copying beside 20 MB/s", True)):
            with broker.window(name):
                began, sent = time.monotonic(), 0
                while (now := time.monotonic() - began) < 15 * scale:
                    if is_loaded:
                        produced(client, [frames[sent % 2]])
                        sent += 1
                    time.sleep(max(0.0, sent / 100 - now) if is_loaded else 1)
    return broker.figures


def lookups(data: Path, scale: float) -> list[Figures]:
    """Look-ups by time inside compressed batches: Python work on a pool's thread."""
    broker = watched(data)
    with broker.running(topic=PROBED), broker.client() as client:
        created(client, [PROBED, "times"], 1)
        now_ms = int(time.time() * 1_000) - HOUR_MS
        records = [(now_ms + n, None, b"x" * 100, []) for n in range(20_000)]
        produced(client, [produce_frame({("times", 0): build_batch(records, codec=1)})])
        with broker.window("look-ups by time, one after the other"):
            until = time.monotonic() + 10 * scale
            while time.monotonic() < until:
                assert end_of(client, "times", now_ms + 19_000) == 19_000
    return broker.figures


SCENARIOS: dict[str, Callable[[Path, float], list[Figures]]] = {
    "partitions": many_partitions,
    "names": many_names,
    "takeover": take_over,
    "seek": cold_seek,
    "producers": producer_ids,
    "retention": retention,
    "gzip": gzip,
    "recovery": recovery,
    "copying": copying,
    "lookups": lookups,
}
