"""Every kind of file, damaged in every way, met by a real start: the table of `damage/table.py`.

Many partitions, or many log directories, are damaged in one start. TIDEMARK_ALL_DAMAGES=1 runs what
CI takes a sample of: the metadata directory, where each damage needs a start of its own.
"""

import os
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest

from local_log.manager.log_dir import CLEAN_SHUTDOWN
from tests.support.brokers.process import ROOT
from tests.support.damage.check import look, unlisted, validate
from tests.support.damage.copies import Damaged
from tests.support.damage.impossible import INAPPLICABLE
from tests.support.damage.life import OTHERS, PER_TOPIC, Base, fill
from tests.support.damage.table import (
    CLEAN,
    KILLED,
    OTHER,
    PLAIN,
    TABLE,
    Damage,
    Outcome,
    Row,
    Scope,
    as_markdown,
    row_of,
)
from tests.support.rounds import rounds

ALL = bool(os.environ.get("TIDEMARK_ALL_DAMAGES"))
SEED = int(os.environ.get("TIDEMARK_DAMAGE_SEED", "0")) or Random().randrange(1, 1_000_000)
SAMPLE = rounds("TIDEMARK_DAMAGE_STARTS", quick=3, full=12)  # with a damaged metadata directory

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


@pytest.fixture(scope="module")
def bases(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Base]]:
    directory = tmp_path_factory.mktemp("damage")
    clean, killed = fill(directory)
    yield {CLEAN: clean, KILLED: killed}
    shutil.rmtree(directory)


def rows(*scopes: Scope, left_by: str = "") -> list[Row]:
    """Rows of these places, all or those that such an end of a broker leaves."""
    found = [row for row in TABLE if row.scope in scopes]
    return [row for row in found if not left_by or left_by in row.left_by]


def cells(row: Row) -> list[Damage]:
    """What can happen to such a file."""
    return [damage for damage in row.allowed if damage not in INAPPLICABLE.get(row.kind, ())]


def check(damaged: Damaged) -> list[str]:
    """Start it, compare, and drop it."""
    found = look(damaged)
    complaints = validate(damaged, found)
    if complaints:
        print(found.said)
    shutil.rmtree(damaged.broker.directory)
    return complaints


def report(complaints: list[str]) -> None:
    assert not complaints, f"{len(complaints)} defects:\n" + "\n".join(sorted(complaints))


def test_every_file_of_a_broker_is_in_the_table(bases: dict[str, Base]) -> None:
    unknown = {
        str(path.relative_to(base.directory))
        for base in bases.values()
        for directory in base.directory.glob("logs*")
        for path in directory.rglob("*")
        if path.is_file() and path.suffix != ".tmp"  # a kill may leave one
        if row_of(path.relative_to(directory)) is None
    }
    assert unknown == set()


def test_the_documented_table_is_this_one() -> None:
    text = (ROOT / "docs" / "local-log.md").read_text()
    [_, documented, _] = text.split("<!-- the damage table -->\n")
    assert documented == as_markdown(), "run tests/support/damage/table.py and put it there"


def test_each_cell_is_shown_by_a_start_or_cannot_be() -> None:
    kinds = {row.kind: row for row in TABLE}
    assert set(INAPPLICABLE) <= set(kinds)
    empty = {
        f"{row.kind}, {damage.value}"
        for row in TABLE
        for damage in Damage
        if damage not in row.allowed and damage not in INAPPLICABLE.get(row.kind, ())
    }
    assert empty == set()


def _partition_cases(left_by: str) -> list[list[tuple[Row, Damage, str, int]]]:
    """What is damaged in each start: every partition meets at most one damage."""
    counts = PER_TOPIC | {OTHER: OTHERS}
    starts: list[list[tuple[Row, Damage, str, int]]] = []
    used = dict.fromkeys(counts, 0)
    for row in rows(Scope.PARTITION, left_by=left_by):
        for topic in sorted(row.topics):
            for damage in cells(row):
                if damage is not Damage.UNREADABLE:
                    start, number = divmod(used[topic], counts[topic])
                    used[topic] += 1
                    starts += [[]] * (start + 1 - len(starts))
                    starts[start] = [*starts[start], (row, damage, topic, number)]
    return starts


@pytest.mark.parametrize("how", [pytest.param(CLEAN, marks=pytest.mark.long), KILLED])
def test_damaged_files_of_partitions(how: str, bases: dict[str, Base], tmp_path: Path) -> None:
    complaints = []
    for number, cases in enumerate(_partition_cases(how)):
        damaged = Damaged(bases[how], tmp_path / f"start-{number}")
        for row, damage, topic, partition in cases:
            next_one = (partition + 1) % PER_TOPIC.get(topic, OTHERS)
            place = damaged.place_of((topic, partition))
            damaged.apply(row, damage, place, damaged.place_of((topic, next_one)))
        complaints += check(damaged)
    report(complaints)


def test_unreadable_files_of_partitions(bases: dict[str, Base], tmp_path: Path) -> None:
    """One file is enough to take a log directory offline: one in each directory."""
    left, complaints = rows(Scope.PARTITION, left_by=KILLED), []
    while left:
        damaged = Damaged(bases[KILLED], tmp_path / f"left-{len(left)}")
        for directory in damaged.broker.log_directories[1:]:
            if left:
                row = left.pop()
                topic = PLAIN if PLAIN in row.topics else min(row.topics)
                place = next(directory.glob(f"{topic}-*"))
                damaged.apply(row, Damage.UNREADABLE, place, place)
        complaints += check(damaged)
    report(complaints)


@pytest.mark.parametrize("row", rows(Scope.DIRECTORY), ids=lambda row: row.kind)
def test_damaged_files_of_log_directories(row: Row, bases: dict[str, Base], tmp_path: Path) -> None:
    """Each damage in a directory of its own, beside one that is whole; what ends a start alone."""
    complaints = []
    ending = [damage for damage in cells(row) if Outcome.EXIT in row.allowed[damage]]
    together = [damage for damage in cells(row) if damage not in ending]
    for how in sorted(row.left_by)[: None if ALL else 1]:
        for start, group in enumerate([together, *([damage] for damage in ending)]):
            damaged = Damaged(bases[how], tmp_path / f"{how}-{start}")
            places = damaged.broker.log_directories[1:]
            for number, damage in enumerate(group):
                damaged.apply(row, damage, places[number], places[(number + 1) % len(places)])
            complaints += check(damaged)
    report(complaints)


def test_a_clean_mark_of_an_hour_ago_after_a_kill(bases: dict[str, Base], tmp_path: Path) -> None:
    """It does not make a killed broker's logs whole: they are recovered."""
    damaged = Damaged(bases[KILLED], tmp_path / "start")
    for place in damaged.broker.log_directories:
        shutil.copy(bases[CLEAN].directory / place.name / CLEAN_SHUTDOWN, place / CLEAN_SHUTDOWN)
    torn = damaged.place_of((PLAIN, 1))
    with max(torn.glob("*.log")).open("ab") as file:
        file.write(b"\xff" * 100)  # after a clean stop such an end is refused
    report(check(damaged))


@pytest.mark.rounds(seconds=4 * SAMPLE)
def test_damaged_files_of_the_metadata_directory(bases: dict[str, Base], tmp_path: Path) -> None:
    wanted = [(row, damage) for row in rows(Scope.METADATA) for damage in cells(row)]
    print(f"replay: TIDEMARK_DAMAGE_SEED={SEED}")
    if not ALL:
        wanted = Random(SEED).sample(wanted, SAMPLE)
    complaints = []
    for number, (row, damage) in enumerate(wanted):
        damaged = Damaged(bases[CLEAN], tmp_path / f"start-{number}")
        place, other = damaged.broker.log_directories[:2]
        is_applied = damaged.apply(row, damage, place, other) is not None
        complaints += check(damaged) if is_applied else unlisted(damaged)
    report(complaints)


@pytest.mark.parametrize(
    "damage",
    [
        # All files meet all damages: in one start each, or several, which take long.
        pytest.param(
            damage,
            id=damage.value,
            marks=() if damage in (Damage.LOST, Damage.FLIPPED) else pytest.mark.long,
        )
        for damage in Damage
    ],
)
def test_damaged_local_state_of_the_tier(
    damage: Damage, bases: dict[str, Base], tmp_path: Path
) -> None:
    """All of its files at once, since each can be made again; what may refuse a partition alone."""
    wanted, complaints = [row for row in rows(Scope.TIER) if damage in cells(row)], []
    alone = [row for row in wanted if row.allowed[damage] != {Outcome.WHOLE}]
    places = [row for row in wanted if row not in alone and row.kind.startswith("directory")]
    files = [row for row in wanted if row not in alone and row not in places]
    for number, group in enumerate([*([row] for row in alone), places, files]):
        if group:
            damaged = Damaged(bases[KILLED], tmp_path / f"start-{number}")
            _damage_tier(damaged, group, damage)
            complaints += check(damaged)
    report(complaints)


def _damage_tier(damaged: Damaged, group: list[Row], damage: Damage) -> None:
    place, other = damaged.broker.log_directories[:2]
    for row in group:
        found = [str(file.relative_to(place)) for file in sorted(place.glob(row.pattern))]
        for pattern in found or [row.pattern]:
            damaged.apply(replace(row, pattern=pattern), damage, place, other)
