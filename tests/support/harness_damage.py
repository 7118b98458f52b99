"""Directories to damage: filled once, copied for each case, damaged file by file."""

import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import ResourceType
from damage_table import COPIED, OFFLINE, PLAIN, TIERED, WHOLE, Allowed, Damage, Row, Scope
from harness_broker import until
from harness_directories import DirectoriesBroker
from harness_tier import admin_of, alter, create
from harness_traffic import Lane

from kafka_protocol.records.batch import read_header

SEGMENT = re.compile(r"\d{20}\.log")

DIRECTORIES = 8  # one for the metadata, and one for each damage
PER_TOPIC = 24
LANES: list[Lane] = [(topic, n) for topic in (PLAIN, COPIED, TIERED) for n in range(PER_TOPIC)]
ROUNDS, RECORDS, TAIL, LATE = 3, 40, 20, 5
"""Records of each closed segment, of the last one at the stop, and before the kill."""
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


def log_start(lane: Lane) -> int:
    return DELETED_BELOW if lane[1] % 3 == 0 else 0


def record_of(lane: Lane, offset: int) -> tuple[bytes, bytes]:
    """The only record that can be there."""
    return b"%d" % offset, f"{lane[0]}/{lane[1]}/{offset}/".encode() * 4


@dataclass(frozen=True)
class Base:
    """A broker's directory to copy.

    Attributes:
        directory: the broker's.
        old: its log directories as they were earlier in the same life.
        end: one after the last offset of every partition.
    """

    directory: Path
    old: Path
    end: int


def broker_at(directory: Path) -> DirectoriesBroker:
    return DirectoriesBroker(
        directory, log_directories=DIRECTORIES, tiered=True, settings=dict(SETTINGS)
    )


def fill(directory: Path) -> tuple[Base, Base]:
    """Make the two directories: stopped cleanly, and killed a moment later."""
    clean, old, killed = (directory / name for name in ("clean", "old", "killed"))
    broker = broker_at(clean)
    try:
        broker.start()
        for topic, more in ((PLAIN, {}), (COPIED, _REMOTE), (TIERED, _REMOTE | _LOCAL)):
            create(broker, topic, PER_TOPIC, **more)
        for number in range(ROUNDS):
            _write(broker, number * RECORDS, RECORDS)
            _roll(broker, (number + 1) * RECORDS)
            if number == 1:
                copy_data(clean, old)
        admin = admin_of(broker)
        cut = [TopicPartition(*lane, log_start(lane)) for lane in LANES if log_start(lane)]
        for future in admin.delete_records(cut).values():
            future.result(30)
        _write(broker, ROUNDS * RECORDS, TAIL)
        until(lambda: _is_settled(broker), "what is expired is gone, and what is tiered is remote")
        assert broker.terminate() == 0
        end = ROUNDS * RECORDS + TAIL
        copy_data(clean, killed)
        broker = broker_at(killed)
        broker.start()
        _write(broker, end, LATE)
        broker.kill()
    finally:
        broker.close()
        print(broker.log_tail(50))
    return Base(clean, old, end), Base(killed, old, end + LATE)


_REMOTE = {"remote_storage_enable": "true"}
_LOCAL = {"local_retention_bytes": "1"}


def _write(broker: DirectoriesBroker, first: int, count: int) -> None:
    """Records [first, first + count) of every partition, in several batches each."""
    failures: list[str] = []

    def on_delivery(error: object, message: Any) -> None:
        if error is not None or message.key() != b"%d" % message.offset():
            failures.append(f"{message.topic()}-{message.partition()}: {error}")

    producer = Producer({"bootstrap.servers": broker.bootstrap, "enable.idempotence": True})
    for offset in range(first, first + count):
        for lane in LANES:
            key, value = record_of(lane, offset)
            producer.produce(lane[0], value, key, lane[1], on_delivery=on_delivery)
        if offset % 5 == 4:
            assert producer.flush(60) == 0
    assert producer.flush(60) == 0
    assert not failures, failures[:3]


def _roll(broker: DirectoriesBroker, end: int) -> None:
    """Close all segments at `end`, and wait until they are copied."""

    def is_copied(lane: Lane) -> bool:
        remote = _remote_segments(broker, lane)
        return lane[0] == PLAIN or remote[-1:] == [end - RECORDS]

    for age_ms in (1, 24 * 3_600_000):
        for topic in (PLAIN, COPIED, TIERED):
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


def _is_settled(broker: DirectoriesBroker) -> bool:
    for lane in LANES:
        first = RECORDS if log_start(lane) else 0
        local = ROUNDS * RECORDS if lane[0] == TIERED else first
        if broker.local_segments(*lane)[0] != local:
            return False
        if lane[0] != PLAIN and _remote_segments(broker, lane)[:1] != [first]:
            return False
    return not [path for log in broker.log_directories for path in log.glob("*/*.deleted")]


def copy_data(source: Path, target: Path) -> None:
    """Copy a broker's data; what vanishes meanwhile is not missed."""
    target.mkdir(parents=True)
    places = [path for path in source.iterdir() if path.is_dir()]
    subprocess.run(
        ["cp", "-a", "--sparse=always", *map(str, places), str(target)],
        check=False,
        capture_output=True,
    )


# ------------------------------------------------------------------ damaging


@dataclass(frozen=True)
class Case:
    """One damage of one file of one start.

    Attributes:
        path: of the file, within the broker's directory.
        lanes: partitions that may be touched by it.
    """

    row: Row
    damage: Damage
    path: Path
    lanes: tuple[Lane, ...]

    @property
    def allowed(self) -> Allowed:
        """What the table says; one unreadable file may take its whole directory offline."""
        wanted = self.row.allowed[self.damage]
        if self.damage is Damage.UNREADABLE and self.row.scope is Scope.PARTITION:
            return wanted | {WHOLE, OFFLINE}
        return wanted

    def __str__(self) -> str:
        return f"{self.row.kind}, {self.damage.value} ({self.path})"


class Damaged:
    """A copy of a base, with some files damaged."""

    def __init__(self, base: Base, directory: Path) -> None:
        self.base = base
        copy_data(base.directory, directory)
        self.broker = broker_at(directory)
        self.broker.is_formatted = True
        self.cases: list[Case] = []
        self.inapplicable: list[tuple[Row, Damage]] = []
        self.home = {lane: self.broker.index_of(*lane) for lane in LANES}

    def apply(self, row: Row, damage: Damage, place: Path, neighbour: Path) -> Case | None:
        """Damage one file of a place (a partition's directory, or a log directory).

        Args:
            row: which file.
            damage: what happens to it.
            place: a path in this copy.
            neighbour: the place from whose original the file of another comes.

        Returns:
            None where there is no such file, or nothing that differs from it; that is noted in
            `inapplicable`.
        """
        file = find_file(place, row)
        if file is None:
            self.inapplicable.append((row, damage))
            return None
        relative = file.relative_to(self.broker.directory)
        other = find_file(self.base.directory / neighbour.relative_to(self.broker.directory), row)
        lanes = tuple(lane for lane in LANES if self._concerns(row, damage, place, lane))
        if not damage_file(damage, file, self.base.old / relative, other):
            self.inapplicable.append((row, damage))
            return None
        case = Case(row, damage, relative, lanes)
        self.cases.append(case)
        return case

    def place_of(self, lane: Lane) -> Path:
        """Directory of a partition in this copy."""
        return self.broker.log_directories[self.home[lane]] / f"{lane[0]}-{lane[1]}"

    def of(self, name: str) -> str:
        """The damages that a partition met, by the name of its directory."""
        met = [case for case in self.cases if name in [f"{t}-{n}" for t, n in case.lanes]]
        return " and ".join(map(str, met)) or "undamaged"

    def _concerns(self, row: Row, damage: Damage, place: Path, lane: Lane) -> bool:
        home = self.broker.log_directories[self.home[lane]]
        if row.scope is Scope.PARTITION and damage is not Damage.UNREADABLE:
            return place == self.place_of(lane)
        return row.scope in (Scope.METADATA, Scope.TIER) or home in (place, place.parent)


def find_file(place: Path, row: Row) -> Path | None:
    if row.pattern == ".":
        return place if place.exists() else None
    found = sorted(path for path in place.glob(row.pattern) if path.exists())
    if row.scope is Scope.PARTITION and row.which == 0 and row.pattern.startswith("*"):
        found = found[:-1]  # not of the last segment
    return found[row.which] if found else None


def damage_file(damage: Damage, file: Path, old: Path, other: Path | None) -> bool:
    """Damage one file or directory; whether anything has changed."""
    if file.is_dir():
        return _do_directory(damage, file, old, other)
    data = file.read_bytes()
    match damage:
        case Damage.LOST:
            file.unlink()
            return True
        case Damage.UNREADABLE:
            file.unlink()
            file.mkdir()
            return True
        case Damage.EMPTY:
            new = b""
        case Damage.CUT:
            new = data[: len(data) // 2]
        case Damage.FLIPPED:
            at = _in_a_record(data) if SEGMENT.fullmatch(file.name) else len(data) // 2
            new = data[:at] + bytes(byte ^ 1 for byte in data[at : at + 1]) + data[at + 1 :]
        case Damage.NEIGHBOUR:
            new = data if other is None else other.read_bytes()
        case Damage.OLD:
            new = old.read_bytes() if old.is_file() else data
    file.write_bytes(new)
    return new != data


def _in_a_record(data: bytes) -> int:
    """The last byte of the batch in the middle: under its checksum, unlike a base offset."""
    position = 0
    while position < len(data) // 2:
        position += read_header(data, position).size_bytes
    return max(position - 1, 0)


def _do_directory(damage: Damage, place: Path, old: Path, other: Path | None) -> bool:
    source = {Damage.OLD: old, Damage.NEIGHBOUR: other}.get(damage)
    if damage in (Damage.OLD, Damage.NEIGHBOUR) and (source is None or not source.is_dir()):
        return False
    shutil.rmtree(place)
    if damage is Damage.EMPTY:
        place.mkdir()
    elif damage is Damage.UNREADABLE:
        place.write_bytes(b"this is no directory\n")
    elif source is not None:
        shutil.copytree(source, place, symlinks=True)
    return True
