"""Every kind of file, damaged in every way, met by a real start: the table of `damage_table.py`.

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
from damage_table import PLAIN, TABLE, Damage, Outcome, Row, Scope, as_markdown, row_of
from harness_broker import ROOT
from harness_damage import LANES, PER_TOPIC, Base, Damaged, fill
from harness_damage_check import judge, look, unlisted

ALL = bool(os.environ.get("TIDEMARK_ALL_DAMAGES"))
SEED = int(os.environ.get("TIDEMARK_DAMAGE_SEED", "0")) or Random().randrange(1, 1_000_000)
SAMPLE = 20  # starts with a damaged metadata directory in CI

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


@pytest.fixture(scope="module")
def bases(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Base]]:
    directory = tmp_path_factory.mktemp("damage")
    clean, killed = fill(directory)
    yield {"clean": clean, "killed": killed}
    shutil.rmtree(directory)


def rows(*scopes: Scope) -> list[Row]:
    return [row for row in TABLE if row.scope in scopes]


def check(damaged: Damaged) -> list[str]:
    """Start it, compare, and drop it."""
    found = look(damaged)
    complaints = judge(damaged, found)
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
    assert documented == as_markdown(), "run tests/support/damage_table.py and put it there"


def _partition_cases() -> list[list[tuple[Row, Damage, str, int]]]:
    """What is damaged in each start: every partition meets at most one damage."""
    starts: list[list[tuple[Row, Damage, str, int]]] = []
    used = dict.fromkeys({topic for topic, _ in LANES}, 0)
    for row in rows(Scope.PARTITION):
        for topic in sorted(row.topics):
            for damage in row.allowed:
                if damage is not Damage.UNREADABLE:
                    start, number = divmod(used[topic], PER_TOPIC)
                    used[topic] += 1
                    starts += [[]] * (start + 1 - len(starts))
                    starts[start] = [*starts[start], (row, damage, topic, number)]
    return starts


@pytest.mark.parametrize("how", ["clean", "killed"])
def test_damaged_files_of_partitions(how: str, bases: dict[str, Base], tmp_path: Path) -> None:
    complaints = []
    for number, cases in enumerate(_partition_cases()):
        damaged = Damaged(bases[how], tmp_path / f"start-{number}")
        for row, damage, topic, partition in cases:
            place = damaged.place_of((topic, partition))
            damaged.apply(
                row, damage, place, damaged.place_of((topic, (partition + 1) % PER_TOPIC))
            )
        complaints += check(damaged)
    report(complaints)


def test_unreadable_files_of_partitions(bases: dict[str, Base], tmp_path: Path) -> None:
    """One file is enough to take a log directory offline: one in each directory."""
    left, complaints = rows(Scope.PARTITION), []
    while left:
        damaged = Damaged(bases["killed"], tmp_path / f"left-{len(left)}")
        for directory in damaged.broker.log_directories[1:]:
            if left:
                row = left.pop()
                topic = PLAIN if PLAIN in row.topics else min(row.topics)
                place = next(path for path in sorted(directory.iterdir()) if topic in path.name)
                damaged.apply(row, Damage.UNREADABLE, place, place)
        complaints += check(damaged)
    report(complaints)


@pytest.mark.parametrize("row", rows(Scope.DIRECTORY), ids=lambda row: row.kind)
def test_damaged_files_of_log_directories(row: Row, bases: dict[str, Base], tmp_path: Path) -> None:
    """Each damage in a directory of its own, beside one that is whole."""
    damaged = Damaged(bases["clean"], tmp_path / "start")
    places = damaged.broker.log_directories[1:]
    for number, damage in enumerate(row.allowed):
        damaged.apply(row, damage, places[number], places[(number + 1) % len(places)])
    if not damaged.cases:
        report(unlisted(damaged))
        shutil.rmtree(damaged.broker.directory)
        pytest.skip("no log directory has such a file")
    report(check(damaged))


def test_damaged_files_of_the_metadata_directory(bases: dict[str, Base], tmp_path: Path) -> None:
    wanted = [(row, damage) for row in rows(Scope.METADATA) for damage in row.allowed]
    print(f"replay: TIDEMARK_DAMAGE_SEED={SEED}")
    if not ALL:
        wanted = Random(SEED).sample(wanted, SAMPLE)
    complaints = []
    for number, (row, damage) in enumerate(wanted):
        damaged = Damaged(bases["clean"], tmp_path / f"start-{number}")
        place, other = damaged.broker.log_directories[:2]
        is_applied = damaged.apply(row, damage, place, other) is not None
        complaints += check(damaged) if is_applied else unlisted(damaged)
    report(complaints)


@pytest.mark.parametrize("damage", Damage, ids=lambda damage: damage.value)
def test_damaged_local_state_of_the_tier(
    damage: Damage, bases: dict[str, Base], tmp_path: Path
) -> None:
    """All of its files at once, since each can be made again; those that may end a start alone."""
    wanted, complaints = rows(Scope.TIER), []
    may_exit = any(Outcome.EXIT in row.allowed[damage] for row in wanted)
    for number, together in enumerate([[row] for row in wanted] if may_exit else [wanted]):
        damaged = Damaged(bases["killed"], tmp_path / f"start-{number}")
        place, other = damaged.broker.log_directories[:2]
        for row in together:
            found = [str(file.relative_to(place)) for file in sorted(place.glob(row.pattern))]
            for pattern in found or [row.pattern]:
                damaged.apply(replace(row, pattern=pattern), damage, place, other)
        complaints += check(damaged)
    report(complaints)
