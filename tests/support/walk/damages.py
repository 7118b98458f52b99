"""The damages of a walk: chosen by dice, done while the broker is down, undone from a copy.

Files of log directories, of the metadata directory and of the tier are damaged as the table of
`damage/table.py` names them; objects of the store are lost, swapped, or all an hour old.
"""

import re
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

from kafka_protocol.files.offset_checkpoint import LOG_STARTS, RECOVERY_POINTS, parse
from kafka_protocol.types import TopicPartition
from tests.support.brokers.directories import DirectoriesBroker
from tests.support.brokers.traffic import Lane
from tests.support.damage.copies import damage_file, find_file
from tests.support.damage.life import copy_data
from tests.support.damage.table import (
    COPIED,
    EARLIER,
    EXIT,
    OFFLINE,
    PLAIN,
    TABLE,
    TIERED,
    WHOLE,
    Allowed,
    Damage,
    Outcome,
    Row,
    Scope,
)

EPOCH_CHAIN, CHECKSUMS = "leader-epoch-checkpoint", "tidemark-checksums"

LEFT_OUT = frozenset(
    {
        ("closed segment", Damage.NEIGHBOUR),
        ("last segment", Damage.NEIGHBOUR),
        ("incarnation of the tier", Damage.OLD),
        ("log directory", Damage.NEIGHBOUR),
        ("log directory", Damage.OLD),
    }
)
"""Records of another partition at the same offsets: the table says that nobody can tell. What is an
older copy to the claim on the store, or to other directories, comes in `walk_stories.py`."""

OF_DIRECTORY = re.compile(r".*-offset-checkpoint|tidemark-checksums|\.kafka_cleanshutdown")
"""Files about all partitions of a directory: a copy is old as soon as one of them goes on."""

CHECKPOINTS = frozenset({"recovery points", "high watermarks", "log starts", "clean mark"})
"""Files of a log directory whose damage may also hit the directory of the metadata log."""

SHORT = "lines and checksums lost"
STORE_KINDS = ("object lost", "objects swapped", "store an hour old")


@dataclass
class Wound:
    """One damage, and how it is undone.

    Attributes:
        kind: for a person.
        lanes: partitions that it may touch.
        allowed: what may become of them.
        heal: puts back what was there.
        path: of the damaged file; None: of the store.
        stops_the_tier: it may neither copy nor expire until a person repairs the file.
    """

    kind: str
    lanes: frozenset[Lane]
    allowed: Allowed
    heal: Callable[[], None]
    path: Path | None = None
    stops_the_tier: bool = False

    def is_curable(self, refused: set[Lane]) -> bool:
        """Whether it must be undone, and its copy is as good as when it was taken."""
        if self.stops_the_tier:
            return True
        if not self.lanes & refused or not self.allowed & {OFFLINE, Outcome.CHECKSUM}:
            return False
        if self.path is None or not OF_DIRECTORY.fullmatch(self.path.name):
            return True
        here = {lane for lane in self.lanes if (self.path.parent / f"{lane[0]}-{lane[1]}").exists()}
        return here <= refused

    def __str__(self) -> str:
        names = ", ".join(sorted(f"{topic}-{number}" for topic, number in self.lanes)[:3])
        return f"{self.kind} [{names}{', ...' if len(self.lanes) > 3 else ''}]"


@dataclass
class Surgeon:
    """Damages one broker's files.

    Attributes:
        old: its directories as they were some lives ago.
        lanes: kind of topic (as in the table) of each partition.
        only: how the kind of each damage begins, with "|" between several; for short stories.
        put_back: objects that came back to the store after the broker had deleted them.
    """

    broker: DirectoriesBroker
    old: Path
    lanes: dict[Lane, str]
    only: str = ""
    put_back: set[str] = field(default_factory=set)
    _touched: list[Path] = field(default_factory=list)
    _is_harmless: bool = False

    def remember(self) -> None:
        """From now on "old" is as it is now."""
        shutil.rmtree(self.old, ignore_errors=True)
        copy_data(self.broker.directory, self.old)

    def operate(
        self,
        dice: Random,
        after_kill: bool,
        spared: set[Lane],
        *,
        spares_tier: bool = False,
        is_harmless: bool = False,
    ) -> list[Wound]:
        """A few damages of all kinds.

        Args:
            after_kill: segments that are not flushed for certain are left alone: what they lose
                nobody can tell from a power cut.
            spared: lanes that must be whole after this start.
            spares_tier: the tier's own files are left alone.
            is_harmless: only what every start mends by itself.
        """
        self._is_harmless = is_harmless
        found: list[Wound | None] = []
        self._touched.clear()
        for lane in dice.sample(sorted(self.lanes), 4):
            if lane not in spared and dice.random() < 0.7:
                found.append(self._of_partition(dice, lane, after_kill))
        if not spared and dice.random() < 0.4:
            found.append(self._of_directory(dice))
        if not spared and dice.random() < 0.25:
            found.append(self._of_place(dice, Scope.METADATA, self.broker.log_directories[0]))
        for _ in range(0 if spares_tier else dice.choice((0, 1, 3))):
            found.append(self._of_place(dice, Scope.TIER, self.broker.log_directories[0]))
        if not is_harmless and dice.random() < 0.5:
            found.append(self._of_store(dice, spared))
        if not spared and not is_harmless and dice.random() < 0.5:
            found += self._together(dice)
        wounds = [wound for wound in found if wound is not None]
        unproved = {wound.path.parent for wound in wounds if wound.path and SHORT in wound.kind}
        for wound in wounds:
            if wound.path and wound.path.parent in unproved:  # nor do checksums tell it there
                wound.allowed |= {OFFLINE}
        return wounds

    # ------------------------------------------------------------------ files

    def _of_partition(self, dice: Random, lane: Lane, after_kill: bool) -> Wound | None:
        place = self.broker.partition_directory(*lane)
        others = [one for one in self.lanes if one[0] == lane[0] and one != lane]
        choices = [
            (row, damage)
            for row, damage in self._choices(Scope.PARTITION)
            if self.lanes[lane] in row.topics
        ]
        if not choices:
            return None
        row, damage = dice.choice(choices)
        if not place.is_dir() or not self._is_told(row, damage, lane, after_kill):
            return None
        other = self.broker.partition_directory(*dice.choice(others)) if others else place
        lanes = {lane}
        allowed = row.allowed[damage]
        if damage is Damage.UNREADABLE:  # one unreadable file may take its directory offline
            lanes, allowed = self._in_directory(place.parent), allowed | {WHOLE, OFFLINE}
        return self._damage(row, damage, place, other, lanes, allowed)

    def _of_directory(self, dice: Random) -> Wound | None:
        choices = self._choices(Scope.DIRECTORY)
        if not choices:
            return None
        row, damage = dice.choice(choices)
        places = self.broker.log_directories
        first = 0 if row.kind in CHECKPOINTS else 1
        number = dice.randrange(first, len(places))
        allowed = row.allowed[damage]
        lanes = self._in_directory(places[number])
        if OFFLINE in allowed:  # it may hold a part of the remote metadata
            lanes |= {lane for lane, kind in self.lanes.items() if kind != PLAIN}
            allowed |= {WHOLE}
        return self._damage(row, damage, places[number], places[number - 1], lanes, allowed)

    def _of_place(self, dice: Random, scope: Scope, place: Path) -> Wound | None:
        choices = self._choices(scope)
        if not choices:
            return None
        row, damage = dice.choice(choices)
        if scope is Scope.TIER:
            file = dice.choice(sorted(place.glob(row.pattern)) or [place / "nothing"])
            row = Row(row.kind, scope, str(file.relative_to(place)), row.allowed, row.says)
        other = self.broker.log_directories[1]
        return self._damage(row, damage, place, other, set(self.lanes), row.allowed[damage])

    def _together(self, dice: Random) -> list[Wound | None]:
        """A tiered partition's chain and log start lose lines; no checksum proves it."""
        if not self._is_wanted(SHORT):
            return []
        lane = dice.choice([lane for lane, kind in sorted(self.lanes.items()) if kind == TIERED])
        place = self.broker.partition_directory(*lane)
        found = [self._shortened(place / EPOCH_CHAIN, {lane}, dice, lambda lines: lines[-1:])]
        if dice.random() < 0.5:
            lanes = self._in_directory(place.parent)
            own = f"{lane[0]} {lane[1]} "
            found.append(
                self._shortened(
                    place.parent / LOG_STARTS,
                    lanes,
                    dice,
                    lambda lines: [line for line in lines if not line.startswith(own)],
                )
            )
        return found

    def _shortened(
        self,
        file: Path,
        lanes: set[Lane],
        dice: Random,
        keep_lines: Callable[[list[str]], list[str]],
    ) -> Wound | None:
        """A checkpoint without some of its lines, or a lost one, and its checksums lost."""
        checksums = file.parent / CHECKSUMS
        if not file.is_file() or checksums.is_dir():
            return None
        if any(one in file.parents or one == file for one in self._touched):
            return None
        self._touched.append(file)
        keep = self.old.parent / "kept" / file.relative_to(self.broker.directory)
        replace_path(file, keep)
        checksums.unlink(missing_ok=True)
        version, _, *lines = file.read_text().splitlines()
        kept = keep_lines(lines)
        file.write_text("\n".join([version, str(len(kept)), *kept]) + "\n")
        if dice.random() < 0.3:
            file.unlink()
        kind = f"{SHORT}: {file.name}"
        allowed = frozenset({WHOLE, EARLIER, OFFLINE})
        return Wound(kind, frozenset(lanes), allowed, lambda: replace_path(keep, file), file)

    def _choices(self, scope: Scope) -> list[tuple[Row, Damage]]:
        return [
            (row, damage)
            for row in TABLE
            for damage in row.allowed
            if row.scope is scope
            and self._is_wanted(f"{row.kind}, {damage.value}")
            and not {(row.kind, damage), (row.kind, None)} & LEFT_OUT
            and not (self._is_harmless and _may_hurt(row, damage))
        ]

    def _is_wanted(self, kind: str) -> bool:
        return any(kind.startswith(one) for one in self.only.split("|"))

    def _is_told(self, row: Row, damage: Damage, lane: Lane, after_kill: bool) -> bool:
        """Whether a loss lies below what was flushed."""
        if row.pattern == "." and damage is Damage.OLD:
            return False  # of the same life perhaps
        if row.pattern != "*.log" or not after_kill:
            return True
        if row.which == -1:
            return False
        place = self.broker.partition_directory(*lane)
        closed = sorted(int(path.stem) for path in place.glob("*.log"))
        try:
            points = parse((place.parent / RECOVERY_POINTS).read_bytes())
        except (OSError, ValueError):
            return False
        return len(closed) > 1 and points.get(TopicPartition(*lane), -1) >= closed[1]

    def _in_directory(self, directory: Path) -> set[Lane]:
        return {lane for lane in self.lanes if (directory / f"{lane[0]}-{lane[1]}").exists()}

    def _damage(
        self,
        row: Row,
        damage: Damage,
        place: Path,
        other: Path,
        lanes: set[Lane],
        allowed: Allowed,
    ) -> Wound | None:
        file = find_file(place, row)
        if file is None or any(
            file == one or file in one.parents or one in file.parents for one in self._touched
        ):
            return None
        self._touched.append(file)
        relative = file.relative_to(self.broker.directory)
        keep = self.old.parent / "kept" / relative
        replace_path(file, keep)
        if not damage_file(damage, file, self.old / relative, find_file(other, row)):
            replace_path(keep, file)
            return None
        kind = f"{row.kind}, {damage.value}"
        stops = row.scope is Scope.TIER and damage is Damage.UNREADABLE
        lanes_hurt = frozenset(lanes)
        return Wound(kind, lanes_hurt, allowed, lambda: replace_path(keep, file), file, stops)

    # ------------------------------------------------------------------ the store

    def _of_store(self, dice: Random, spared: set[Lane]) -> Wound | None:
        kinds = [kind for kind in STORE_KINDS if self._is_wanted(kind)]
        if not kinds:
            return None
        kind = dice.choice(kinds)
        lanes = {lane for lane, of in self.lanes.items() if of in (COPIED, TIERED)} - spared
        objects = self.objects(lanes)
        if kind == "store an hour old":
            return self._store_of_old(lanes) if not spared else None
        suffix = dice.choice((".log", ".log", ".indexes", ".manifest"))
        chosen = [path for path in objects if path.suffix == suffix]
        count = 1 if kind == "object lost" else 2
        if len(chosen) < count:
            return None
        victims = dice.sample(chosen, count)
        contents = [path.read_bytes() for path in victims]
        for path, content in zip(victims, reversed(contents), strict=True):
            path.write_bytes(content)
        if kind == "object lost":
            victims[0].unlink()

        def heal() -> None:
            for path, content in zip(victims, contents, strict=True):
                self.put_object(path, content)

        touched = frozenset(self._lane_of(path) for path in victims)
        return Wound(f"{kind} ({suffix})", touched, frozenset({WHOLE, OFFLINE}), heal)

    def _store_of_old(self, lanes: set[Lane]) -> Wound | None:
        """Newer objects are gone, and deleted ones are back."""
        store, old = self.broker.remote_directory, self.old / self.broker.remote_directory.name
        keep = self.old.parent / "kept" / "store"
        if not old.is_dir():
            return None
        replace_path(store, keep)
        replace_path(old, store)

        def heal() -> None:
            for path in _files(keep):
                if _is_claim(path) and (store / path).exists():
                    continue  # the broker has claimed since; the older one is somebody else's
                self.put_object(store / path, (keep / path).read_bytes())
            for path in _files(store) - _files(keep):
                if path in _files(old):
                    (store / path).unlink()

        return Wound("store an hour old", frozenset(lanes), frozenset({WHOLE, OFFLINE}), heal)

    def put_object(self, path: Path, content: bytes) -> None:
        """Back into the store, where it may have been deleted meanwhile."""
        if not path.exists():
            self.put_back.add(str(path.relative_to(self.broker.remote_directory)))
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)

    def objects(self, lanes: set[Lane]) -> list[Path]:
        """The store's, of these partitions, sorted."""
        found = sorted(self.broker.remote_directory.glob("*/*/*"))
        files = [path for path in found if path.is_file() and not _is_claim(path)]
        return [path for path in files if self._lane_of(path) in lanes]

    def _lane_of(self, path: Path) -> Lane:
        # <topic>-<id of 22 characters>/<partition>/<object>
        return path.parent.parent.name[:-23], int(path.parent.name)


def _may_hurt(row: Row, damage: Damage) -> bool:
    return damage is Damage.UNREADABLE or not row.allowed[damage] <= {WHOLE, EARLIER}


def _is_claim(path: Path) -> bool:
    return path.parent.parent.name == "claims"


def is_refusable(wounds: Sequence[Wound], lane: Lane) -> bool:
    """Whether a partition may be refused, in part or whole."""
    refusals = {OFFLINE, Outcome.CHECKSUM}
    return any(lane in wound.lanes and wound.allowed & refusals for wound in wounds)


def may_exit(wounds: Sequence[Wound]) -> list[Wound]:
    return [wound for wound in wounds if EXIT in wound.allowed]


def _files(root: Path) -> set[Path]:
    return {path.relative_to(root) for path in root.rglob("*") if path.is_file()}


def replace_path(source: Path, target: Path) -> None:
    """Make `target` a copy of `source`, whatever it is."""
    if target.is_dir():
        shutil.rmtree(target)
    elif target.exists():
        target.unlink()
    target.parent.mkdir(parents=True, exist_ok=True)
    if source.is_dir():
        shutil.copytree(source, target, symlinks=True)
    else:
        shutil.copy2(source, target)
