"""Random damages, kills and clients: every record is served right or refused by name.

TIDEMARK_WALK_ROUNDS=500 walks further, TIDEMARK_WALK_SEED=7 another way (0: any), and
TIDEMARK_WALK_ONLY="object lost" does one kind of damage only.
"""

import os
import shutil
from pathlib import Path
from random import Random

import pytest

from tests.support.rounds import rounds
from tests.support.walk.choice import EVERY
from tests.support.walk.rounds import Walk, replay_line

pytestmark = pytest.mark.lasts(seconds=20)

ROUNDS = rounds("TIDEMARK_WALK_ROUNDS", quick=EVERY, full=20)
SEED = int(os.environ.get("TIDEMARK_WALK_SEED", "51")) or Random().randrange(1, 1_000_000)
ONLY = os.environ.get("TIDEMARK_WALK_ONLY", "")


@pytest.mark.slow
@pytest.mark.long(seconds=15 * ROUNDS)  # the stories below are a round of each kind
@pytest.mark.timeout(180 + 60 * ROUNDS)
def test_damages_on_the_way_lose_nothing_and_delete_nothing(tmp_path: Path) -> None:
    walked = walk(tmp_path, ROUNDS, ONLY)
    assert not walked.choice.untold(ROUNDS)


@pytest.mark.slow
@pytest.mark.timeout(400)
@pytest.mark.parametrize(
    "what",
    [
        "broker",
        pytest.param("partition", marks=pytest.mark.long),
        pytest.param("metadata-log", marks=pytest.mark.long),
    ],
)
def test_a_backup_that_was_put_back_is_red_until_a_person_decides(
    tmp_path: Path, what: str
) -> None:
    story = f"{what.replace('-', ' ')} put back"
    assert walk(tmp_path, EVERY, story).choice.told == {story: 1}


def walk(directory: Path, rounds: int, only: str) -> Walk:
    """Some rounds, and what came of them."""
    walk = Walk(directory, SEED, only=only)
    try:
        walk.prepare()
        for number in range(rounds):
            print(replay_line(SEED, number + 1))
            walk.round(number)
        walk.finish()
    finally:
        walk.broker.close()
        print(walk.broker.log_tail(150))
        for title, counted in (
            ("damages", walk.damages),
            ("outcomes", walk.outcomes),
            ("deletions", walk.counting.explained),
            ("stories", walk.choice.told),
            ("ways out", walk.ways.walked),
        ):
            print(f"{title}: {dict(counted.most_common())}")
    shutil.rmtree(directory)
    return walk
