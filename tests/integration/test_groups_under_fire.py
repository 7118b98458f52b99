"""Members are killed and paused, and the broker is killed: a group keeps its promises.

`TIDEMARK_FIRE_KILLS=20 TIDEMARK_FIRE_SEED=7 pytest -s tests/integration/test_groups_under_fire.py`
"""

import os
import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.groups.fire import Fire
from tests.support.groups.world import SETTINGS, World, kafka_world, our_world
from tests.support.kafka.tools import require_kafka_tools
from tests.support.rounds import rounds

pytestmark = [pytest.mark.slow, pytest.mark.lasts(seconds=60)]

KILLS = rounds("TIDEMARK_FIRE_KILLS", quick=3, full=20)
SEED = int(os.environ.get("TIDEMARK_FIRE_SEED") or random.randrange(10_000))
MEMBERS = 6 if KILLS <= 3 else 12


@pytest.fixture
def ours(tmp_path: Path) -> Iterator[World]:
    made, end = our_world(tmp_path / "broker", SETTINGS)
    try:
        yield made.ready()
    finally:
        end()


@pytest.fixture
def kafka(tmp_path: Path) -> Iterator[World]:
    require_kafka_tools()
    made, end = kafka_world(tmp_path / "broker", SETTINGS)
    try:
        yield made.ready()
    finally:
        end()


def _burn(world: World, directory: Path, broker_kills: int) -> None:
    print(f"TIDEMARK_FIRE_SEED={SEED}")
    fire = Fire(world, directory, SEED, MEMBERS)
    try:
        fire.burn(broker_kills)
        print(fire.validate())
    finally:
        fire.close()


@pytest.mark.timeout(1_800)
@pytest.mark.rounds(seconds=300)
def test_a_group_keeps_its_promises_while_broker_and_members_are_killed(
    ours: World, tmp_path: Path
) -> None:
    _burn(ours, tmp_path / "members", KILLS)


@pytest.mark.jvm
@pytest.mark.long(seconds=60)
def test_the_same_fire_on_kafka_without_kills_of_the_broker(kafka: World, tmp_path: Path) -> None:
    _burn(kafka, tmp_path / "members", 0)
