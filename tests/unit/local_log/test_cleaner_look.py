"""A look at many logs and the passes that go by it."""

from pathlib import Path

import pytest

from local_log.cleaner import cleaner as cleaner_module
from local_log.cleaner.look import Look
from local_log.partition_log import PartitionLog
from tests.unit.local_log.test_cleaner_runs import World, fill


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def test_one_look_serves_many_passes_unless_it_is_old(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks, ranked = list[int](), Look.ranked

    def count(look: Look) -> list[PartitionLog]:
        due = ranked(look)
        looks.append(len(due))
        return due

    monkeypatch.setattr(Look, "ranked", count)
    for number in range(5):
        fill(world.log(f"t{number}"), 30)
    world.cleaner.start()
    assert looks == [5, 0]
    monkeypatch.setattr(cleaner_module, "LOOK_MAX_MS", 0)
    for each in world.logs.all():
        fill(each, 30)
    world.ports.scheduler.advance(2000)
    assert looks[2:8] == [5, 4, 3, 2, 1, 0]
