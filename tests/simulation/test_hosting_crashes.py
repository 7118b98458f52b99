"""Partitions come, go and change in batches, and the process ends in the middle of one.

Hosting, logs and metadata are the real ones. They are killed, lose power or one of two log
directories at any operation of a disk; then the next lives must have what was answered. Between any
two steps of a batch clients ask for other things, in an order that a seed draws.
"""

import os
import shutil

import pytest

from tests.support.damage.hosting_life import HostingLife
from tests.support.damage.hosting_lives import HostingLives
from tests.support.damage.hosting_requests import ask_for_anything
from tests.support.damage.places import quick_directory
from tests.support.rounds import rounds

pytestmark = pytest.mark.lasts(seconds=8)

SEED = int(os.environ.get("TIDEMARK_HOSTING_SEED", "0"))
SEEDS = [SEED] if SEED else range(1, 1 + rounds("TIDEMARK_HOSTING_SEEDS", quick=4, full=25))
STEP = rounds("TIDEMARK_HOSTING_STEP", quick=149, full=19)
"""From one operation that is stopped to the next; 1 stops all of them, in ten minutes."""
WAYS = ("kill", "power cut", "a fails", "b fails", "b fails once")


async def _before(life: HostingLife) -> None:
    for name in ("tp1", "tt1", "tf1"):
        life.client(life.create(name, 2))
    await life.settle()
    for _ in range(3):
        for partition in list(life.replicas.partitions.values()):
            life.client(life.produce(partition, 2))
    await life.settle()


async def _batch(life: HostingLife) -> None:
    """Everything at once: most of it is in one batch."""
    parts = list(life.replicas.partitions.values())
    topics = {one.topic: one.topic_id for one in parts}
    life.client(life.create("tp2", 3))
    await life.pump(4)
    life.client(life.delete("tp1"))
    life.client(life.create("tp1", 3))
    life.client(life.elect(topics["tt1"], 1))
    life.client(life.create("tt2", 1))
    life.client(life.delete("tf1"))
    await life.pump(3)
    for one in parts:
        life.client(life.produce(one, 1))
        if one.topic == "tt1":
            life.client(life.delete_records(one, 3))
    life.client(life.create("tf1", 1))
    await life.settle()
    for one in list(life.replicas.partitions.values()):
        life.client(life.produce(one, 1))


async def _nothing(life: HostingLife) -> None:
    """Start and look."""


@pytest.mark.rounds(seconds=20)
@pytest.mark.parametrize("way", WAYS)
def test_a_crash_at_every_operation_of_a_batch_breaks_no_promise(way: str) -> None:
    with quick_directory() as root:
        first = HostingLives(root / "first", 1)
        assert first.live(_before, stops=True)
        at = 1 + WAYS.index(way) * STEP // len(WAYS)
        while True:
            lives = first.copied(root / "copy", seed=1_000 + at)
            print(f"replay: {way}, operation {at}")
            if way == "kill":
                is_whole = lives.live(_batch, operations=at, kills=True)
                assert lives.live(_nothing)
                lives.cut()  # what the kill left unsafe is lost only now
            elif way == "power cut":
                is_whole = lives.live(_batch, operations=at)
            else:
                broken = lives.paths["ab".index(way[0])]
                lives.disk.break_directory(broken, after=at, stays="once" not in way)
                lives.live(_batch)
                is_whole = not lives.disk.has_failed
                if at % 2:
                    lives.live(_batch)
                lives.disk.repair()
            lives.live(_nothing, stops=True)
            shutil.rmtree(lives.root)
            if is_whole:
                break
            at += STEP
        assert at > 300


@pytest.mark.rounds(seconds=20)
@pytest.mark.parametrize("seed", SEEDS)
def test_whatever_crashes_and_fails_no_promise_is_broken(seed: int) -> None:
    print(f"replay: TIDEMARK_HOSTING_SEED={seed} pytest {__file__} -k whatever")
    with quick_directory() as root:
        lives = HostingLives(root / "lives", seed)
        for _ in range(6):
            way, at = lives.below(8), 1 + lives.below(1_200)
            if way < 2:
                lives.disk.break_directory(
                    lives.paths[way], after=at // 2, stays=lives.below(2) == 0
                )
            elif way == 2:
                lives.disk.repair()
            lives.live(
                ask_for_anything,
                operations=at if way % 2 else None,
                kills=way > 4,
                stops=lives.below(3) == 0,
            )
        lives.disk.repair()
        assert lives.live(_nothing, stops=True)
        assert lives.live(_nothing)
