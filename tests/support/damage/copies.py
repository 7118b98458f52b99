"""Directories of `life`, copied for each case and damaged file by file."""

import re
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from kafka_protocol.records.batch import read_header
from tests.support.brokers.traffic import Lane
from tests.support.damage.life import LANES, Base, broker_at, copy_data
from tests.support.damage.table import (
    COPIED,
    OFFLINE,
    OTHER,
    PLAIN,
    TIERED,
    WHOLE,
    Allowed,
    Damage,
    Row,
    Scope,
)

SEGMENT = re.compile(r"\d{20}\.log")


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
            neighbour: the place from whose original the file of another comes, unless that is the
                same: then a place of another topic, of the metadata log, of another cluster.

        Returns:
            None where there is no such file, or nothing that differs from it; that is noted in
            `inapplicable`.
        """
        file = find_file(place, row)
        lanes = tuple(lane for lane in LANES if self._concerns(row, damage, place, lane))
        if file is not None:
            old = next((path for path in self._earlier(file) if _differs(path, file)), file)
            others = self._of_others(row, file, neighbour)
            other = next((path for path in others if _differs(path, file)), None)
        if file is None or not damage_file(damage, file, old, other):
            self.inapplicable.append((row, damage))
            return None
        case = Case(row, damage, file.relative_to(self.broker.directory), lanes)
        self.cases.append(case)
        return case

    def place_of(self, lane: Lane) -> Path:
        """Directory of a partition in this copy."""
        return self.broker.partition_directory(*lane)

    def of(self, name: str) -> str:
        """The damages that a partition met, by the name of its directory."""
        met = [case for case in self.cases if name in [f"{t}-{n}" for t, n in case.lanes]]
        return " and ".join(map(str, met)) or "undamaged"

    def _earlier(self, file: Path) -> Iterator[Path]:
        """The same file at earlier moments, the newest first, wherever its partition lay then."""
        inside = file.relative_to(self.broker.directory)
        for moment in reversed(self.base.moments):
            yield moment / inside
            if len(inside.parts) > 2:
                yield from moment.glob(f"logs*/{Path(*inside.parts[1:])}")

    def _of_others(self, row: Row, file: Path, neighbour: Path) -> Iterator[Path]:
        """The same kind of file of other places."""
        here = self.base.directory
        places = [here / neighbour.relative_to(self.broker.directory)]
        stranger = self.base.stranger / "logs"
        if row.scope is Scope.PARTITION:
            places += [path for topic in _TOPICS for path in here.glob(f"logs*/{topic}-0")]
        else:
            places += [stranger]
        for place in places:
            found = find_file(place, row)
            if found is not None:
                yield found
        if row.scope is Scope.METADATA:
            yield from here.glob(f"logs*/{PLAIN}-0/{file.name}")
            yield from here.glob(f"logs*/{PLAIN}-0/*{file.suffix}")
        if row.scope is Scope.TIER:
            for folder in (stranger / file.parent.name, here / "logs" / file.parent.name):
                yield from (
                    path for path in folder.glob(f"*{file.suffix}") if path.name != file.name
                )

    def _concerns(self, row: Row, damage: Damage, place: Path, lane: Lane) -> bool:
        home = self.broker.log_directories[self.home[lane]]
        if row.scope is Scope.PARTITION and damage is not Damage.UNREADABLE:
            return place == home / f"{lane[0]}-{lane[1]}"
        return row.scope in (Scope.METADATA, Scope.TIER) or home in (place, place.parent)


_TOPICS = (PLAIN, COPIED, TIERED, OTHER)


def _differs(path: Path, file: Path) -> bool:
    if file.is_dir() or path.is_dir():
        return path.is_dir() and file.is_dir()
    return path.is_file() and path.read_bytes() != file.read_bytes()


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
    if damage in (Damage.CUT, Damage.FLIPPED) or source == place:
        return False
    shutil.rmtree(place)
    if damage is Damage.EMPTY:
        place.mkdir()
    elif damage is Damage.UNREADABLE:
        place.write_bytes(b"this is no directory\n")
    elif source is not None:
        shutil.copytree(source, place, symlinks=True)
    return True
