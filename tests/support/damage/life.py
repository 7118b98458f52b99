"""The life of a broker whose directories are damaged later: all that leaves a file behind is in it.

Two log directories and more, plain and tiered topics, transactions that commit nothing, topics that
are deleted and made again, raised log starts, holes that a person accepted, reads from the store, a
cache of chunks on disk, clean stops, a kill; and a stranger: a broker of another cluster.
"""

import subprocess
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import ResourceType

from kafka_protocol.records.batch import BatchHeader, read_header
from kafka_protocol.records.records import build_batch
from kafka_protocol.wire.api_keys import ApiKey
from local_log.manager.log_dir import CLEAN_SHUTDOWN
from tests.support.brokers.directories import DirectoriesBroker
from tests.support.brokers.process import until
from tests.support.brokers.raw_client import RawClient, fetch_fields
from tests.support.brokers.tiered_topics import admin_of, alter, create, delete_topic
from tests.support.brokers.traffic import Lane
from tests.support.damage.table import COPIED, HOLED, OTHER, PLAIN, TIERED

DIRECTORIES = 8  # one for the metadata, and one for each damage
PER_TOPIC = {PLAIN: 24, COPIED: 24, TIERED: 24, HOLED: 8}
LANES: list[Lane] = [(topic, n) for topic, count in PER_TOPIC.items() for n in range(count)]
OTHERS = 8
GONE = "gone"
"""A topic that is deleted before the kill. `OTHER` loses files; its records are not read."""
ROUNDS, RECORDS, TAIL, LATE = 3, 40, 20, 5
"""Records of each closed segment, of the last one at the stop, and before the kill."""
ABORTED = (range(60, 64), range(70, 74))  # in the second segment; a marker follows each
DELETED_BELOW = 50  # of every third partition; in the second segment
SETTINGS = {
    "log.index.size.max.bytes": "4096",
    "log.index.interval.bytes": "200",
    "log.segment.delete.delay.ms": "500",
    "log.flush.offset.checkpoint.interval.ms": "500",
    "log.flush.start.offset.checkpoint.interval.ms": "500",
    "replica.high.watermark.checkpoint.interval.ms": "500",
    "rlmm.config.remote.log.metadata.topic.num.partitions": "1",
    "tidemark.remote.copy.max.ms": "1000",
    "metadata.log.max.record.bytes.between.snapshots": "4000",
}
_CACHES = {
    "tidemark.remote.chunk.cache.bytes": str(1 << 20),
    "tidemark.remote.chunk.cache.disk.bytes": str(1 << 24),
}
_REMOTE = {"remote_storage_enable": "true"}
_LOCAL = {"local_retention_bytes": "1"}
_CONFIG: dict[str, dict[str, str]] = {
    PLAIN: {},
    COPIED: _REMOTE,
    TIERED: _REMOTE | _LOCAL,
    HOLED: {},
}


def log_start(lane: Lane) -> int:
    return DELETED_BELOW if lane[0] != HOLED and lane[1] % 3 == 0 else 0


def hole_of(lane: Lane) -> range:
    """Offsets that are lost, which a person accepted."""
    first = RECORDS * (1 + lane[1] % 2)
    return range(first, first + RECORDS) if lane[0] == HOLED else range(0)


def record_of(lane: Lane, offset: int) -> tuple[bytes, bytes]:
    """The only record that can be there."""
    text = f"{lane[0]}/{lane[1]}/{offset}/"
    is_aborted = any(offset in one for one in ABORTED)
    return b"%d" % offset, (f"aborted/{text}" if is_aborted else text * 4).encode()


@dataclass(frozen=True)
class Base:
    """A broker's directory to copy.

    Attributes:
        directory: the broker's.
        moments: its log directories as they were earlier, the oldest first.
        stranger: the directory of a broker of another cluster.
        end: one after the last offset of every partition.
    """

    directory: Path
    moments: Sequence[Path]
    stranger: Path
    end: int


def broker_at(directory: Path, **settings: str) -> DirectoriesBroker:
    return DirectoriesBroker(
        directory,
        log_directories=DIRECTORIES,
        tiered=True,
        settings=SETTINGS | _CACHES | {key.replace("_", "."): one for key, one in settings.items()},
    )


class _Life:
    """The broker at `directory`, through several lives."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.broker = broker_at(directory)
        self.moments: list[Path] = []

    def proceed(self, **settings: str) -> None:
        self.broker = broker_at(self.directory, **settings)
        self.broker.start()

    def close(self) -> None:
        self.broker.close()
        print(self.broker.log_tail(50))

    def remember(self) -> None:
        """This is how it was an hour ago."""
        self.moments.append(self.directory.with_name(f"moment-{len(self.moments)}"))
        copy_data(self.directory, self.moments[-1])

    def stop_and_continue(self, meanwhile: Callable[[], None] = lambda: None) -> None:
        assert self.broker.terminate() == 0
        meanwhile()
        self.remember()
        self.proceed()


def fill(directory: Path) -> tuple[Base, Base]:
    """Make the two directories: stopped cleanly, and killed a moment later."""
    stranger = directory / "stranger"
    _live_elsewhere(stranger)
    clean, killed = directory / "clean", directory / "killed"
    end = ROUNDS * RECORDS + TAIL
    life = _Life(clean)
    with ExitStack() as stack:
        stack.callback(life.close)
        life.proceed()
        _topics(life)
        for number in range(ROUNDS):
            _round(life, number)
        _raise_log_starts(life.broker)
        _write(life.broker, ROUNDS * RECORDS, TAIL // 2)
        _read_remote_early(life.broker)
        life.stop_and_continue(lambda: _lose_and_accept(life.broker))
        _write(life.broker, ROUNDS * RECORDS + TAIL // 2, TAIL // 2)
        _write_other(life.broker, 2 * RECORDS, TAIL)
        until(lambda: _is_settled(life.broker), "what is expired is gone, what is tiered is remote")
        _read_remote(life.broker)
        assert life.broker.terminate() == 0
        copy_data(clean, killed)
        life = _Life(killed)
        stack.callback(life.close)
        life.proceed(log_segment_delete_delay_ms="3600000")
        _end_by_kill(life.broker, end)
    moments = sorted(directory.glob("moment-*"))
    return Base(clean, moments, stranger, end), Base(killed, moments, stranger, end + LATE)


def _live_elsewhere(directory: Path) -> None:
    """A short life in another cluster."""
    broker = DirectoriesBroker(directory, tiered=True, settings=SETTINGS | _CACHES)
    try:
        broker.start()
        create(broker, "strange", 60)
        create(broker, OTHER, 1, **_REMOTE, **_LOCAL)
        _write_other(broker, 0, 3, partitions=1)
        alter(broker, ResourceType.TOPIC, OTHER, segment_ms="1")
        until(lambda: broker.local_segments(OTHER)[-1] == 3, "the stranger's segment is closed")
        _write_other(broker, 3, 3, partitions=1)  # local retention leaves a byte
        until(lambda: broker.local_segments(OTHER)[0] > 0, "the stranger's segment is remote")
        with RawClient(broker) as client:
            _read(client, (OTHER, 0), 0)
        assert broker.terminate() == 0
    finally:
        broker.close()


def _topics(life: _Life) -> None:
    """Topics whose like-named predecessors were deleted: an hour ago their ids were others."""
    broker = life.broker
    metadata = broker.log_directories[0] / "__remote_log_metadata-0"
    until(metadata.is_dir, "the remote metadata lie beside the metadata log")
    for topic, count in PER_TOPIC.items():
        create(broker, topic, count)
    until(lambda: _directories(broker, PLAIN), "the first topics are there")
    life.remember()
    for topic in PER_TOPIC:
        delete_topic(broker, topic)
    until(lambda: not any(_directories(broker, topic) for topic in PER_TOPIC), "they are gone")
    for topic, count in PER_TOPIC.items():
        create(broker, topic, count, **_CONFIG[topic])
    create(broker, OTHER, OTHERS, **_REMOTE, **_LOCAL)


def _directories(broker: DirectoriesBroker, topic: str) -> list[Path]:
    return [path for log in broker.log_directories for path in log.glob(f"{topic}-*")]


def _round(life: _Life, number: int) -> None:
    """One closed segment of every partition, in whose middle the broker was stopped."""
    first, half, end = number * RECORDS, RECORDS // 2, (number + 1) * RECORDS
    _write(life.broker, first, half)
    if number == 0:
        life.stop_and_continue()
        _write(life.broker, half, half)
    elif number == 1:
        for offsets, following in zip(ABORTED, (ABORTED[1].start, end), strict=True):
            life.stop_and_continue(partial(_abort, life.broker, offsets))
            _write(life.broker, offsets.stop + 1, following - offsets.stop - 1)
    else:
        _write(life.broker, first + half, half)
    if number:
        _write_other(life.broker, (number - 1) * RECORDS, RECORDS)
    _roll(life.broker, end)


def _write(broker: DirectoriesBroker, first: int, count: int) -> None:
    """Records [first, first + count) of every partition, in several batches each."""
    failures: list[str] = []

    def on_delivery(error: object, message: Any) -> None:
        if error is not None or message.key() != b"%d" % message.offset():
            failures.append(f"{message.topic()}-{message.partition()}: {error}")

    producer = Producer({"bootstrap.servers": broker.bootstrap, "enable.idempotence": True})
    for offset in range(first, first + count):
        now_ms = int(time.time() * 1000)
        for number, lane in enumerate(LANES):
            key, value = record_of(lane, offset)
            when = now_ms - number  # so that no two partitions have the same time index
            producer.produce(lane[0], value, key, lane[1], on_delivery=on_delivery, timestamp=when)
        if offset % 5 == 4:
            assert producer.flush(60) == 0
    assert producer.flush(60) == 0
    assert not failures, failures[:3]


def _abort(broker: DirectoriesBroker, offsets: range) -> None:
    """A transaction that was aborted, in every partition, as one of Kafka's brokers leaves it.

    The broker is down, and was killed: nothing of this is in any checkpoint.
    """
    for directory in broker.log_directories:
        (directory / CLEAN_SHUTDOWN).unlink()
    now_ms = int(time.time() * 1000)
    for number, lane in enumerate(LANES):
        log = max(broker.partition_directory(*lane).glob("*.log"))
        epoch = last_batch(log.read_bytes()).partition_leader_epoch
        producer = {
            "producer_id": 1000 * offsets.start + number,
            "producer_epoch": 0,
            "is_transactional": True,
            "leader_epoch": epoch,
        }
        data = [(now_ms, *record_of(lane, offset), []) for offset in offsets]
        marker = [(now_ms, b"\0\0\0\0", b"\0\0\0\0\0\0", [])]  # version 0, abort; epoch 0
        with log.open("ab") as file:
            file.write(
                build_batch(data, base_offset=offsets.start, base_sequence=0, **producer)
                + build_batch(marker, base_offset=offsets.stop, is_control=True, **producer)
            )


def last_batch(data: bytes) -> BatchHeader:
    """Header of the last batch of a segment."""
    position = 0
    while True:
        header = read_header(data, position)
        position += header.size_bytes
        if position == len(data):
            return header


def _write_other(
    broker: DirectoriesBroker, first: int, count: int, *, partitions: int = OTHERS
) -> None:
    """Large records, so that what was read of them does not fit into the memory of the tier."""
    producer = Producer({"bootstrap.servers": broker.bootstrap, "enable.idempotence": True})
    for offset in range(first, first + count):
        now_ms = int(time.time() * 1000)
        for number in range(partitions):
            value = b"%d/%d/" % (number, offset) * 3000
            producer.produce(OTHER, value, b"%d" % offset, number, timestamp=now_ms - number)
        assert producer.flush(60) == 0


def _roll(broker: DirectoriesBroker, end: int) -> None:
    """Close all segments at `end`, and wait until they are copied."""

    def is_copied(lane: Lane) -> bool:
        remote = _remote_segments(broker, lane)
        return lane[0] not in (COPIED, TIERED) or remote[-1:] == [end - RECORDS]

    for age_ms in (1, 24 * 3_600_000):
        for topic in (*PER_TOPIC, OTHER):
            alter(broker, ResourceType.TOPIC, topic, segment_ms=str(age_ms))
        if age_ms == 1:
            until(
                lambda: all(broker.local_segments(*lane)[-1] == end for lane in LANES),
                f"every segment is closed at {end}",
            )
    until(lambda: all(is_copied(lane) for lane in LANES), f"all is copied up to {end}")


def _remote_segments(broker: DirectoriesBroker, lane: Lane) -> list[int]:
    try:
        return broker.remote_segments(*lane)
    except FileNotFoundError:
        return []  # a file was renamed while the directory was listed


def _raise_log_starts(broker: DirectoriesBroker) -> None:
    admin = admin_of(broker)
    cut = [TopicPartition(*lane, log_start(lane)) for lane in LANES if log_start(lane)]
    for future in admin.delete_records(cut).values():
        future.result(30)


def _lose_and_accept(broker: DirectoriesBroker) -> None:
    """A closed segment of some partitions is lost; a person accepts that."""
    for topic, number in ((topic, n) for topic, n in LANES if topic == HOLED):
        place = broker.partition_directory(topic, number)
        for path in place.glob(f"{hole_of((topic, number)).start:020d}.*"):
            path.unlink()
        config = ("--config", str(broker.config_file))
        done = broker.command("log", "accept", topic, str(number), *config, "--yes")
        assert (place / "tidemark-accepted").is_file(), done.stdout + done.stderr


def _is_settled(broker: DirectoriesBroker) -> bool:
    for lane in LANES:
        first = RECORDS if log_start(lane) else 0
        local = ROUNDS * RECORDS if lane[0] == TIERED else first
        if broker.local_segments(*lane)[0] != local:
            return False
        if lane[0] in (COPIED, TIERED) and _remote_segments(broker, lane)[:1] != [first]:
            return False
    for segments in (broker.local_segments(OTHER, n) for n in range(OTHERS)):
        if segments[0] == 0 or len(segments) > 1:  # a copy that is not finished would be removed
            return False
    return not [path for log in broker.log_directories for path in log.glob("*/*.deleted")]


def _read_remote(broker: DirectoriesBroker) -> None:
    """Each remote segment once: the tier keeps indexes and chunks of it."""
    with RawClient(broker) as client:
        for lane in [lane for lane in LANES if lane[0] == TIERED]:
            _read(client, lane, log_start(lane))
            _read(client, lane, 2 * RECORDS)
        for number in [*range(OTHERS), *range(OTHERS)]:
            _read(client, (OTHER, number), 0)


def _read_remote_early(broker: DirectoriesBroker) -> None:
    """So that there were cached indexes an hour ago, too."""
    lane = (TIERED, 1)
    until(lambda: broker.local_segments(*lane)[0] > 0, f"the first segment of {lane} is remote")
    with RawClient(broker) as client:
        _read(client, lane, 0)


def _read(client: RawClient, lane: Lane, offset: int) -> None:
    fields = fetch_fields(lane[0], offset, partition=lane[1])
    fields |= {"isolation_level": 1, "max_wait_ms": 1000}

    def is_read() -> bool:
        part = client.ask(ApiKey.FETCH, 11, fields).responses[0].partitions[0]
        return part.error_code == 0 and bool(part.records)

    until(is_read, f"{lane} is read at {offset}")


def _end_by_kill(broker: DirectoriesBroker, end: int) -> None:
    """Deletions are begun and not finished, chunks lie on the disk, a few records came last."""
    create(broker, GONE, 3 * DIRECTORIES)
    _write(broker, end, LATE)
    _read_remote(broker)
    last = 2 * RECORDS + TAIL
    alter(broker, ResourceType.TOPIC, OTHER, segment_ms="1")
    until(
        lambda: all(broker.local_segments(OTHER, n)[-1] == last for n in range(OTHERS)),
        f"every segment of {OTHER} is closed at {last}",
    )
    # No later segment may close: a copy that the kill cuts off is rightly removed at a start.
    alter(broker, ResourceType.TOPIC, OTHER, segment_ms=str(24 * 3_600_000))
    _write_other(broker, last, 1)
    delete_topic(broker, GONE)
    until(
        lambda: (
            len([p for p in _directories(broker, OTHER) if [*p.glob("*.log.deleted")]]) == OTHERS
            and len(_directories(broker, GONE)) == 3 * DIRECTORIES
            and all(path.name.endswith("-delete") for path in _directories(broker, GONE))
        ),
        "what is deleted waits to be removed",
    )
    broker.kill()


def copy_data(source: Path, target: Path) -> None:
    """Copy a broker's data; what vanishes meanwhile is not missed."""
    target.mkdir(parents=True)
    places = [path for path in source.iterdir() if path.is_dir()]
    subprocess.run(
        ["cp", "-a", "--sparse=always", *map(str, places), str(target)],
        check=False,
        capture_output=True,
    )
