"""Damages that only a person can end: each makes a tiered partition red, or the whole tier.

A story is a damage with its documented way out (docs/operations.md): what health must say, what
must not change in the store until then, and what the way out gives up. Those of one partition and
of the claim are here, those of whole directories in `walk_backups.py`.
"""

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

from kafka_protocol.files.offset_checkpoint import HIGH_WATERMARKS, RECOVERY_POINTS
from local_log.manager.log_dir import CLEAN_SHUTDOWN
from tests.support.brokers.traffic import Lane
from tests.support.damage.table import OFFLINE, PLAIN, TIERED, WHOLE
from tests.support.walk.counting import Counting
from tests.support.walk.damages import CHECKSUMS, EPOCH_CHAIN, Surgeon, Wound, replace_path
from tests.support.walk.oracle import History, Piece, World
from tests.support.walk.recorder import batches_of
from tests.support.walk.ways import Ways

INCARNATION = "tier-incarnation"


@dataclass
class Story(Wound):
    """A damage, what must be said of it, and its way out.

    Attributes:
        red: health must say this (a pattern), before anybody asks for a record.
        frozen: partitions of whose objects none may change until the way out.
        way: the way out of a broker that is down, at the next start. None: undone by then.
        must: it cannot be undone.
        on_exit: answers a start that was refused; the text of the refusal.
        way_up: the way out beside the running broker, given what health says; whether it was
            taken. It is asked again while something is still refused.
        after: what is left to do beside the broker that starts after `way`.
    """

    red: str = ""
    frozen: frozenset[Lane] = frozenset()
    way: Callable[[Random], None] | None = None
    must: bool = False
    on_exit: Callable[[str], None] | None = None
    way_up: Callable[[Random, str], bool] | None = None
    after: Callable[[], None] | None = None
    is_over: bool = False

    def is_curable(self, refused: set[Lane]) -> bool:
        """Until its way out was taken."""
        return not self.is_over and bool(self.way or refused & self.lanes)


@dataclass
class Moment:
    """What was due when the directories were copied."""

    histories: Mapping[Lane, History]
    lanes: Mapping[Lane, str]


@dataclass
class Scene:
    """What a story may look at and change."""

    surgeon: Surgeon
    world: World
    counting: Counting
    ways: Ways
    moment: Moment = field(default_factory=lambda: Moment({}, {}))

    @property
    def first(self) -> Path:
        """The log directory that is the metadata directory."""
        return self.surgeon.broker.log_directories[0]

    def old(self, path: Path) -> Path:
        """Where the older copy of a file or directory is."""
        return self.surgeon.old / path.relative_to(self.surgeon.broker.directory)

    def kept(self, path: Path) -> Path:
        """Where what is damaged is kept."""
        return self.surgeon.old.parent / "kept" / path.relative_to(self.surgeon.broker.directory)

    def tiered(self, spared: set[Lane]) -> list[Lane]:
        """Partitions with something in the store that may be damaged."""
        lanes = self.surgeon.lanes.items()
        return sorted(lane for lane, kind in lanes if kind != PLAIN and lane not in spared)

    def pieces(self, lane: Lane) -> list[Piece]:
        """Finished remote segments that are not deleted, by offset."""
        world = self.world
        found = [
            piece
            for name, piece in world.copied.items()
            if piece.lane == lane and name in world.finished and name not in world.deleted
        ]
        return sorted(found, key=lambda piece: piece.first)

    def is_older_copy(self) -> bool:
        """Whether the store's claim is above all that the old counter has noted."""
        old = self.old(self.first / INCARNATION)
        claims = list(self.surgeon.broker.remote_directory.glob("claims/*/*"))
        words = old.read_text().split() if old.is_file() else []
        if len(claims) != 1 or len(words) != 3 or words[1] == "-":
            return False
        noted = [int(number) for number in words[1].split(",")]
        number = json.loads(claims[0].read_text())["number"]
        return number not in noted and number > noted[0]


Maker = Callable[[Scene, Random, set[Lane]], Story | None]


def incarnation_put_back(scene: Scene, dice: Random, spared: set[Lane]) -> Story | None:
    """The counter of an hour ago: an older copy, as far as the claim can tell.

    Not while something is to be restored: no partition is judged before the claim is taken.
    """
    file = scene.first / INCARNATION
    if spared or not file.is_file() or not scene.is_older_copy():
        return None
    keep = scene.kept(file)
    replace_path(file, keep)
    replace_path(scene.old(file), file)
    return Story(
        "counter of the tier put back",
        frozenset(scene.tiered(set())),
        frozenset({WHOLE}),
        lambda: replace_path(keep, file),
        file,
        red="claim: the store's claim",
        frozen=frozenset(scene.tiered(set())),
        way=scene.ways.claim,
    )


def partition_put_back(scene: Scene, dice: Random, spared: set[Lane]) -> Story | None:
    """The directory of a tiered partition as it was before its last segments were copied."""
    lanes = [lane for lane in scene.tiered(spared) if _lost_end(scene, lane)]
    if not lanes:
        return None
    lane = dice.choice(lanes)
    place = scene.surgeon.broker.partition_directory(*lane)
    keep = scene.kept(place)
    replace_path(place, keep)
    replace_path(scene.old(place), place)
    for name in (RECOVERY_POINTS, HIGH_WATERMARKS, CLEAN_SHUTDOWN):
        (place.parent / name).unlink(missing_ok=True)  # what tells of a later end
    here = [(first, last) for path in place.glob("*.log") for first, last in batches_of(path)]

    def adopt(dice: Random) -> None:
        history = scene.world.histories[lane]
        remote = [(piece.first, piece.last) for piece in scene.pieces(lane)]
        is_named = dice.random() < 0.4
        options = ("--log-end", str(history.sent)) if is_named else ()
        said = scene.ways.adopt(lane, dice, *options)
        found = re.search(r"new records begin:  at offset (\d+)", said)
        assert found, said
        end = int(found[1])
        assert max(last for _, last in (*remote, *here)) < end <= history.sent, (lane, said)
        history.adopt(end, [*remote, *here])

    return Story(
        "partition put back",
        frozenset({lane}),
        frozenset({OFFLINE}),
        lambda: replace_path(keep, place),
        place,
        red=rf"\b{lane[0]}-{lane[1]}: log end lost",
        frozen=frozenset({lane}),
        way=adopt,
    )


def _lost_end(scene: Scene, lane: Lane) -> bool:
    """Whether remote segments prove that the old directory ends too early."""
    place = scene.surgeon.broker.partition_directory(*lane)
    old, name = scene.old(place), "partition.metadata"
    if not place.is_dir() or not (old / name).is_file() or not (place / name).is_file():
        return False
    if (old / name).read_bytes() != (place / name).read_bytes():
        return False
    batches = [batch for path in old.glob("*.log") for batch in batches_of(path)]
    end = max((last + 1 for _, last in batches), default=0)
    proved = max((piece.last + 1 for piece in scene.pieces(lane)), default=0)
    return scene.world.histories[lane].latest_start < end < proved


def chain_lost(scene: Scene, dice: Random, spared: set[Lane]) -> Story | None:
    """The chain of a tiered partition, and the indexes in the store that tell it."""
    lanes = [lane for lane in scene.tiered(spared) if _seam(scene, lane)]
    if not lanes:
        return None
    lane = dice.choice(lanes)
    place = scene.surgeon.broker.partition_directory(*lane)
    file, keep = place / EPOCH_CHAIN, scene.kept(place / EPOCH_CHAIN)
    hidden = {
        path: path.read_bytes()
        for piece in _seam(scene, lane)
        for path in scene.surgeon.broker.remote_paths(f"*/{lane[1]}/*-{piece.name}.indexes")
    }
    replace_path(file, keep)
    for path in (file, place / CHECKSUMS, *hidden):
        path.unlink(missing_ok=True)

    def show() -> None:
        for path, content in hidden.items():
            if path.with_suffix(".log").exists():
                scene.surgeon.put_object(path, content)

    def heal() -> None:
        replace_path(keep, file)
        show()

    def adopt(dice: Random) -> None:
        scene.ways.adopt(lane, dice, f"--segment={_named(scene, lane)[-1].name}")
        show()

    def delete_records(dice: Random, health: str) -> bool:
        wanted = re.search(rf"\b{lane[0]}-{lane[1]}: chain lost.*?DeleteRecords to (\d+)", health)
        if dice.random() < 0.5 or wanted is None:
            return False
        offset = int(wanted[1])
        assert offset <= min(scene.surgeon.broker.local_segments(*lane)), (lane, health)
        history = scene.world.histories[lane]
        history.deleted_below = max(history.deleted_below, offset)
        scene.ways.delete_records(lane, offset)
        scene.ways.walked["DeleteRecords, chain lost"] += 1
        show()
        return True

    return Story(
        "chain and its indexes lost",
        frozenset({lane}),
        frozenset({OFFLINE}),
        heal,
        file,
        red=rf"\b{lane[0]}-{lane[1]}: chain lost",
        frozen=frozenset({lane}),
        way=adopt,
        way_up=delete_records,
    )


def _seam(scene: Scene, lane: Lane) -> list[Piece]:
    """Remote segments that hold the offset before the local start, if others tell the chain."""
    local = scene.surgeon.broker.local_segments(*lane)
    place = scene.surgeon.broker.partition_directory(*lane)
    if scene.surgeon.lanes[lane] != TIERED or not local or not (place / EPOCH_CHAIN).is_file():
        return []
    last = min(local) - 1
    if last < scene.world.histories[lane].latest_start or not _named(scene, lane):
        return []
    return [piece for piece in scene.pieces(lane) if piece.first <= last <= piece.last]


def _named(scene: Scene, lane: Lane) -> list[Piece]:
    """Remote segments wholly below those, which no retention takes meanwhile."""
    last = min(scene.surgeon.broker.local_segments(*lane)) - 1
    start = scene.world.histories[lane].latest_start
    return [piece for piece in scene.pieces(lane) if start <= piece.first and piece.last < last]
